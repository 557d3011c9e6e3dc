//! Large replies at once, with memory for one of them at a time: those that have theirs keep it.

use super::super::connection::tests::serve_stream;
use super::super::drain::Drain;
use super::super::pool::{Pool, THREAD_BYTES};
use super::super::shared::tests::{in_time, thread};
use super::super::tls::READ_MAX_BYTES;
use super::super::tls::tests::{Client, pair};
use super::*;
use dataplane::commands::Buffer;
use dataplane::observe::conns::Address;
use dataplane::stages::stream::TLS_PLAIN_MAX_BYTES;
use socket2::SockRef;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

const VALUE_BYTES: usize = 700_000;
/// A quarter of it is for what is little, and the rest for one value.
const SHARED_BYTES: usize = 960_000;
/// A `get` that is longer than what is held uncharged, and comes in two parts.
const LINE_PARTS: [&str; 2] = ["get k", "\r\n"];
const LINE_KEYS: usize = 1200;

fn small_thread(stopped: watch::Receiver<Option<Drain>>) -> ThreadShared {
    let mut shared = thread(None, stopped);
    let limit = SHARED_BYTES + RESERVE_BYTES + THREAD_BYTES;
    shared.pool = Arc::new(Pool::new(Arc::default(), limit, 1, 1));
    shared
}

fn conn_of(shared: &ThreadShared, stream: &Stream) -> Conn {
    shared.server.conns.enter(stream.fd(), Address::Other("unix:".into()), None)
}

/// Until so many have waited for memory.
async fn waits(shared: &ThreadShared, connections: u64) {
    let all = async {
        while shared.pool.figures().now().waits < connections {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), all).await.expect("they wait");
}

/// Puts the value there. What a client gets that asks for it.
async fn store(shared: &ThreadShared) -> Vec<u8> {
    let block = [vec![b'v'; VALUE_BYTES], b"\r\n".to_vec()].concat();
    let (mut client, server) = UnixStream::pair().unwrap();
    let client = async {
        client.write_all(format!("set k 0 0 {VALUE_BYTES}\r\n").as_bytes()).await.unwrap();
        client.write_all(&block).await.unwrap();
        client.shutdown().await.unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"STORED\r\n");
    };
    in_time(async { tokio::join!(serve_stream(Stream::Unix(server), shared), client) }).await;
    [format!("VALUE k 0 {VALUE_BYTES}\r\n").as_bytes(), &block, b"END\r\n"].concat()
}

/// No connection was refused or cut off, and all was given back.
fn assert_all_well(shared: &ThreadShared, waited: u64) {
    let now = shared.pool.figures().now();
    assert!(now.waits >= waited, "{now:?}");
    assert_eq!((now.requests_refused, now.replies_refused, now.stalled), (0, 0, 0));
    assert_eq!((now.used_bytes, now.charges, now.waiting), (0, 0, 0));
}

#[tokio::test]
async fn a_reply_over_tls_keeps_its_memory_while_others_wait_for_it() {
    let (_stop, stopped) = watch::channel(None);
    let shared = small_thread(stopped);
    let expected = &store(&shared).await;
    let served = |(mut client, tls): (Client, _)| {
        let shared = &shared;
        async move {
            let tls = Stream::Tls(Box::new(tls));
            let asks = client.records(b"get k\r\n");
            let client = async move {
                client.socket.write_all(&asks).await.unwrap();
                // All three have asked before one of them takes anything.
                waits(shared, 2).await;
                let mut said = Vec::new();
                while said.len() < expected.len() && client.hear(&mut said).await {}
                assert!(said == *expected, "{} bytes of {}", said.len(), expected.len());
            };
            tokio::join!(serve_stream(tls, shared), client).0
        }
    };
    let pairs = [pair(true).await, pair(false).await, pair(true).await];
    for (_, tls) in &pairs {
        // Of the first piece a record stays behind.
        SockRef::from(tls.socket()).set_send_buffer_size(16 << 10).unwrap();
    }
    let [a, b, c] = pairs.map(served);
    in_time(async { tokio::join!(a, b, c) }).await;
    assert_all_well(&shared, 2);
}

#[tokio::test]
async fn a_long_line_is_charged_once_while_its_reply_leaves() {
    let (_stop, stopped) = watch::channel(None);
    let shared = small_thread(stopped);
    let expected = &store(&shared).await;
    let served = |(mut client, server): (UnixStream, UnixStream)| {
        let shared = &shared;
        async move {
            let client = async move {
                let [first, last] = LINE_PARTS;
                let first = [first, &" n".repeat(LINE_KEYS)].concat();
                client.write_all(first.as_bytes()).await.unwrap();
                // Until all three lines have a charge.
                let charged = async {
                    while shared.pool.figures().now().charges < 3 {
                        yield_now().await;
                    }
                };
                timeout(Duration::from_secs(10), charged).await.expect("they are charged");
                client.write_all(last.as_bytes()).await.unwrap();
                let mut said = vec![0; expected.len()];
                client.read_exact(&mut said).await.unwrap();
                assert!(said == *expected);
            };
            tokio::join!(serve_stream(Stream::Unix(server), shared), client).0
        }
    };
    let pair = || served(UnixStream::pair().unwrap());
    in_time(async { tokio::join!(pair(), pair(), pair()) }).await;
    assert_all_well(&shared, 1);
}

#[tokio::test]
async fn what_came_behind_is_charged_once_while_a_reply_is_waited_for() {
    let (_stop, stopped) = watch::channel(None);
    let shared = small_thread(stopped);
    let expected = store(&shared).await;
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut stream = Stream::Unix(server);
    let conn = conn_of(&shared, &stream);
    // More than a turn can leave behind.
    let mut input = Input::default();
    input.bytes.extend(b"get k\r\n");
    input.bytes.resize(200_000, b'\n');
    input.charge = shared.pool.try_take(input.bytes.len());
    let mut conversation = Conversation::new(shared.item_max_bytes);
    let held = shared.pool.try_take(VALUE_BYTES).unwrap();
    let free = async {
        waits(&shared, 1).await;
        drop(held);
    };
    let hear = async {
        let mut said = vec![0; expected.len()];
        client.read_exact(&mut said).await.map(|_| said)
    };
    let needs = {
        let mut session = shared.session.borrow_mut();
        let mut ctx = Ctx::new(&mut session, &shared.ops, &shared.server);
        let mut none = Vec::new();
        let out = Buffer::new(&mut none, OUT_BYTES).limited_to(OUT_BYTES);
        conversation.advance(&mut ctx, input.unread(), out).needs
    };
    assert!(needs > VALUE_BYTES);
    let reply = async {
        let large = (&mut Vec::new(), needs);
        let end = reply(&mut stream, &shared, &conn, &mut conversation, &mut input, large).await;
        drop(stream);
        end
    };
    let (end, (), said) = in_time(async { tokio::join!(reply, free, hear) }).await;
    assert!(matches!(end, Ok(None)), "{end:?}");
    assert!(said.unwrap() == expected);
    drop(input);
    assert_all_well(&shared, 1);
}

#[tokio::test]
async fn a_request_that_is_used_up_is_not_held_while_its_reply_leaves() {
    let (_stop, stopped) = watch::channel(None);
    let shared = small_thread(stopped);
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut stream = Stream::Unix(server);
    let mut input = Input::default();
    (input.bytes, input.at) = (vec![b'v'; VALUE_BYTES], VALUE_BYTES);
    input.charge = shared.pool.try_take(VALUE_BYTES);
    assert!(input.charge.is_some());
    let mut out = b"STORED\r\n".to_vec();
    in_time(finish_sending(&mut stream, &shared, &mut input, &mut out, 0)).await.unwrap();
    assert_eq!((input.bytes.capacity(), input.charge.is_none()), (0, true));
    let mut said = [0; 8];
    in_time(client.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"STORED\r\n");
    assert_all_well(&shared, 0);
}

/// The line comes in a record of its own, the value in many.
#[tokio::test]
async fn a_request_over_tls_is_held_in_what_it_is_charged_for_and_two_records() {
    let (_stop, stopped) = watch::channel(None);
    let shared = small_thread(stopped);
    let (mut client, tls) = pair(true).await;
    let mut stream = Stream::Tls(Box::new(tls));
    let conn = conn_of(&shared, &stream);
    let mut conversation = Conversation::new(shared.item_max_bytes);
    let mut input = Input::default();
    input.bytes.extend(format!("set k 0 0 {VALUE_BYTES}\r\n").as_bytes());
    let whole = input.bytes.len() + VALUE_BYTES + 2;
    {
        let mut session = shared.session.borrow_mut();
        let mut ctx = Ctx::new(&mut session, &shared.ops, &shared.server);
        conversation.advance(&mut ctx, input.unread(), Buffer::new(&mut Vec::new(), OUT_BYTES));
    }
    let block = [vec![b'v'; VALUE_BYTES], b"\r\n".to_vec()].concat();
    let says = async {
        for part in block.chunks(TLS_PLAIN_MAX_BYTES) {
            let record = client.records(part);
            client.socket.write_all(&record).await.unwrap();
        }
    };
    let gathered = gather(&mut stream, &shared, &conn, &mut conversation, &mut input);
    let (gathered, ()) = in_time(async { tokio::join!(gathered, says) }).await;
    assert!(matches!(gathered, Ok(Gathered::More)), "{gathered:?}");
    assert_eq!(input.bytes.len(), whole);
    let charged = input.charge.as_ref().map_or(0, Charge::bytes);
    let held = input.bytes.capacity();
    assert!(held <= charged + READ_MAX_BYTES, "{held} bytes for a charge of {charged}");
}

/// The kernel may have taken nothing more for a while of a connection whose client reads all the time.
#[test]
fn what_a_client_takes_is_its_pace_not_what_the_kernel_took() {
    let mut pace = Pace::of_writes(4 * TAKEN_BYTES);
    assert!(!pace.ends_too_slow(3 * TAKEN_BYTES), "it took some of what was there");
    pace.note_moved(2 * TAKEN_BYTES);
    assert!(pace.ends_too_slow(5 * TAKEN_BYTES), "all of it is in the queue");
    pace.note_moved(TAKEN_BYTES);
    assert!(!pace.ends_too_slow(5 * TAKEN_BYTES));
    assert!(pace.ends_too_slow(4 * TAKEN_BYTES + 1));
}

/// While a client waits for the rest, for a turn of its connection's, and during a pause of the process, it is not slow.
#[tokio::test]
async fn who_can_take_nothing_is_not_too_slow() {
    let idle = Duration::from_secs(1);
    let (_stop, stopped) = watch::channel(None);
    let mut shared = small_thread(stopped);
    shared.idle_max = Some(idle);
    let (shared, expected) = (&shared, &store(&shared).await);
    let (mut client, server) = UnixStream::pair().unwrap();
    let client = async move {
        client.write_all(b"get k\r\n").await.unwrap();
        let mut said = vec![0; 1];
        client.read_exact(&mut said).await.unwrap();
        // The connection waits for a turn behind this one.
        let turn = Turn::of(shared).await.unwrap();
        // Not until now does the process go on, and finds the client's time to be over.
        std::thread::sleep(2 * idle);
        sleep(Duration::from_millis(20)).await;
        let all_that_left = async { while client.read_buf(&mut said).await.unwrap() > 0 {} };
        let longer = timeout(2 * idle + idle / 2, all_that_left).await;
        assert!(longer.is_err(), "cut off after {} bytes", said.len());
        drop(turn);
        while said.len() < expected.len() && client.read_buf(&mut said).await.unwrap() > 0 {}
        assert!(said == *expected, "{} bytes of {}", said.len(), expected.len());
    };
    let all = async { tokio::join!(serve_stream(Stream::Unix(server), shared), client) };
    timeout(Duration::from_secs(10), all).await.expect("it is answered");
}
