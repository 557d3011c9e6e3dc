//! Connections while memory is short: what comes in part stays in the socket; and parts of records at a stop.

use super::super::drain::Drain;
use super::super::shared::tests::{in_time, thread};
use super::super::tls::tests::pair;
use super::*;
use crate::process::allocator::tests::IS_SHORT;
use dataplane::commands::login::Users;
use dataplane::observe::conns::Address;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Serves a connection to its end, as its task does.
pub(in super::super) async fn serve_stream(mut stream: Stream, shared: &ThreadShared) -> End {
    let mut dialogue = None;
    let conn = shared.server.conns.enter(stream.fd(), Address::Other("unix:".into()), None);
    let ended = loop {
        stream.readable().await.unwrap();
        if let Some(ended) = converse(&mut stream, shared, &conn, &mut dialogue).await.transpose() {
            break ended;
        }
    };
    finish(&mut stream, shared, &conn, ended).await
}

/// The same, on a Unix socket and with no memory.
async fn serve(socket: UnixStream, shared: &ThreadShared) -> End {
    IS_SHORT.set(true);
    serve_stream(Stream::Unix(socket), shared).await
}

/// All that a client gets.
async fn heard(client: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).await?;
    Ok(replies)
}

#[tokio::test]
async fn what_stays_in_the_socket_does_not_cost_the_last_reply() {
    for half_closes in [true, false] {
        let (_stop, stopped) = watch::channel(None);
        let mut shared = thread(None, stopped);
        shared.idle_max = Some(Duration::from_millis(100));
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"get a\r\nget b").await.unwrap();
        if half_closes {
            client.shutdown().await.unwrap();
        }
        let both = async { tokio::join!(serve(server, &shared), heard(&mut client)) };
        let (end, heard) = in_time(both).await;
        assert!(matches!((end, half_closes), (End::Client, true) | (End::Idle, false)));
        assert_eq!(heard.unwrap(), b"END\r\n");
    }
}

#[tokio::test]
async fn the_service_waits_no_longer_for_a_rest_that_stays_in_the_socket() {
    let (stop, stopped) = watch::channel(None);
    let shared = thread(None, stopped);
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(b"get a\r\nget b").await.unwrap();
    let client = async move {
        let mut reply = [0; 5];
        client.read_exact(&mut reply).await.unwrap();
        stop.send(Some(Drain::new(Duration::from_secs(60)))).unwrap();
        assert_eq!(heard(&mut client).await.unwrap(), b"");
        // It has ended: so does the client.
        drop(client);
        stop
    };
    let served = timeout(Duration::from_secs(10), serve(server, &shared));
    let (end, _stop) = in_time(async { tokio::join!(served, client) }).await;
    assert!(matches!(end, Ok(End::Service { .. })), "{end:?}");
}

#[derive(Debug)]
struct Nobody;

impl Users for Nobody {
    fn knows(&self, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

/// Before a login, too, what was answered is used up, though its reply leaves in parts.
#[tokio::test]
async fn what_is_refused_before_a_login_is_answered_once() {
    const ROUND: &[u8] = &[b'\n'; 100];
    const REPLY: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
    let (_stop, stopped) = watch::channel(None);
    let shared = thread(Some(Arc::new(Nobody)), stopped);
    let (mut client, server) = UnixStream::pair().unwrap();
    let ops = &shared.ops;
    let client = async move {
        let mut sent = 0;
        // Until replies are no longer taken.
        while ops.bytes_read.get() == sent as u64 {
            client.write_all(ROUND).await.unwrap();
            sent += ROUND.len();
            for _ in 0..1000 {
                if ops.bytes_read.get() < sent as u64 {
                    yield_now().await;
                }
            }
        }
        client.shutdown().await.unwrap();
        let expected = sent * REPLY.len();
        let mut replies = Vec::new();
        (&mut client).take(expected as u64 + 1).read_to_end(&mut replies).await.unwrap();
        (replies.len(), expected)
    };
    let both = async { tokio::join!(serve(server, &shared), client) };
    let (_, (heard, expected)) = in_time(both).await;
    assert_eq!(heard, expected);
}

/// The rest of a record is waited for, as the rest of a request is, whenever its first part came.
#[tokio::test]
async fn half_a_record_holds_up_a_stop() {
    for before in [true, false] {
        let (stop, stopped) = watch::channel(None);
        let shared = thread(None, stopped);
        let (mut client, tls) = pair(true).await;
        let says = client.records(b"mn\r\n");
        let client = async move {
            if before {
                client.socket.write_all(&says[..4]).await.unwrap();
                sleep(Duration::from_millis(50)).await;
            }
            stop.send(Some(Drain::new(Duration::from_secs(60)))).unwrap();
            if !before {
                client.socket.write_all(&says[..4]).await.unwrap();
            }
            sleep(Duration::from_millis(300)).await;
            client.socket.write_all(&says[4..]).await.unwrap();
            assert_eq!(client.hear_all().await, b"MN\r\n");
            stop
        };
        let served = async {
            let stream = Stream::Tls(Box::new(tls));
            tokio::select! {
                end = serve_stream(stream, &shared) => end,
                () = sleep(Duration::from_secs(10)) => panic!("it goes on"),
            }
        };
        let (end, _stop) = in_time(async { tokio::join!(served, client) }).await;
        assert!(matches!(end, End::Service { heard: true }), "{end:?}");
    }
}

#[tokio::test]
async fn who_watches_holds_no_buffers() {
    // Not so long that it is sent from where it lies.
    const VALUE_BYTES: usize = 15_000;
    let (_stop, stopped) = watch::channel(None);
    let shared = thread(None, stopped);
    let (mut client, server) = UnixStream::pair().unwrap();
    let spares = [&shared.spare_input, &shared.spare_output];
    let client = async move {
        let set = format!("set k 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
        client.write_all(set.as_bytes()).await.unwrap();
        client.read_exact(&mut [0; "STORED\r\n".len()]).await.unwrap();
        client.write_all(b"get k k k\r\nwatch\r\n").await.unwrap();
        let value = format!("VALUE k 0 {VALUE_BYTES}\r\n\r\n").len() + VALUE_BYTES;
        let mut said = vec![0; 3 * value + "END\r\nOK\r\n".len()];
        client.read_exact(&mut said).await.unwrap();
        assert!(said.ends_with(b"\r\nEND\r\nOK\r\n"));
        spares.map(|spare| spare.take().capacity())
    };
    let served = serve_stream(Stream::Unix(server), &shared);
    let (end, spares) = in_time(async { tokio::join!(served, client) }).await;
    assert!(matches!(end, End::Client), "{end:?}");
    assert!(spares.iter().all(|&bytes| bytes > 0), "{spares:?}");
}
