//! One TCP connection: read, answer whole commands, write, in turn.

use dataplane::protocol::stream::Conversation;
use dataplane::protocol::{OpCounters, Server};
use dataplane::store::Session;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// Room made for each read.
const READ_BYTES: usize = 16 << 10;
/// Replies gathered before they are sent: many small ones leave in one write.
const OUT_BYTES: usize = 64 << 10;
/// Largest buffer that a connection keeps while it waits.
const KEEP_BYTES: usize = 64 << 10;
/// How long a client may take to receive the last replies of a connection that we end.
const PARTING_MAX: Duration = Duration::from_secs(2);

/// What the connections of one thread answer with.
pub(super) struct Desk {
    pub(super) session: RefCell<Session>,
    pub(super) ops: Arc<OpCounters>,
    pub(super) server: Arc<Server>,
    pub(super) item_max_bytes: usize,
    pub(super) stopped: watch::Receiver<bool>,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Client,
    /// `quit`, or input that cannot be followed.
    Conversation,
    /// The service stops.
    Service,
    /// The network.
    #[expect(dead_code, reason = "shown in the log")]
    Failed(io::Error),
}

/// Serves the connection to its end.
pub(super) async fn serve(mut stream: TcpStream, desk: &Desk) -> End {
    let end = converse(&mut stream, desk).await.unwrap_or_else(End::Failed);
    if matches!(end, End::Conversation) {
        let _ = timeout(PARTING_MAX, part(&mut stream)).await;
    }
    end
}

/// Ends the connection from our side and reads on until the client has ended it too: closing with
/// bytes unread would reset it, and take from the client replies that have not arrived yet.
async fn part(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unwanted = vec![0; READ_BYTES];
    while stream.read(&mut unwanted).await? > 0 {}
    Ok(())
}

async fn converse(stream: &mut TcpStream, desk: &Desk) -> io::Result<End> {
    stream.set_nodelay(true)?;
    let mut stopped = desk.stopped.clone();
    let mut conversation = Conversation::new(desk.item_max_bytes);
    let mut input = Input::default();
    let mut out = Vec::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return Ok(End::Service),
            ready = stream.readable() => ready?,
        }
        input.make_room(conversation.wants());
        match stream.try_read_buf(&mut input.bytes) {
            Ok(0) => return Ok(End::Client),
            Ok(n) => desk.ops.bytes_read.add(n as u64),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        }
        loop {
            let progress = conversation.advance(
                &mut desk.session.borrow_mut(),
                &desk.ops,
                &desk.server,
                input.unread(),
                &mut out,
                OUT_BYTES,
            );
            input.at += progress.consumed;
            let full = out.len() >= OUT_BYTES;
            if !out.is_empty() {
                stream.write_all(&out).await?;
                desk.ops.bytes_written.add(out.len() as u64);
                empty(&mut out);
            }
            if progress.close {
                return Ok(End::Conversation);
            }
            if !full {
                break;
            }
        }
        input.rest();
    }
}

fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEEP_BYTES);
}

/// Bytes received and not used up yet.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    /// Bytes at the front that are used up.
    at: usize,
}

impl Input {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Moves what is left to the front.
    fn rest(&mut self) {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            empty(&mut self.bytes);
        }
    }

    /// Makes room to read towards a request of `whole` bytes. Grows with what has come, not with
    /// what was announced.
    fn make_room(&mut self, whole: usize) {
        let missing = whole.saturating_sub(self.bytes.len());
        self.bytes.reserve(missing.min(self.bytes.len()).max(READ_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_grows_with_what_has_come() {
        let mut input = Input::default();
        input.make_room(1 << 30);
        assert!((READ_BYTES..2 * READ_BYTES).contains(&input.bytes.capacity()));
        input.bytes.resize(READ_BYTES, 0);
        input.make_room(1 << 30);
        assert!(input.bytes.capacity() <= 4 * READ_BYTES);
    }

    #[test]
    fn input_forgets_what_was_used_and_gives_memory_back() {
        let mut input = Input { bytes: vec![7; 1 << 20], at: (1 << 20) - 2 };
        assert_eq!(input.unread(), [7, 7]);
        input.rest();
        assert_eq!(input.unread(), [7, 7]);
        input.at = 2;
        input.rest();
        assert!(input.unread().is_empty());
        assert!(input.bytes.capacity() <= KEEP_BYTES);
    }
}
