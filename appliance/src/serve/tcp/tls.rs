//! A connection over TLS: what a socket carries as records, given and taken as plain bytes.
//!
//! In: records from the socket, plain bytes to be sent. Out: plain bytes, records. Nothing is
//! held of a connection that waits but a record that has come in part. A write covers so many
//! plain bytes and is done when the last byte of their record has left: until then the same bytes
//! must be offered again. Fails: [`io::ErrorKind::InvalidData`] for what is no record of this
//! connection, after which an alert has been sent as far as the socket takes it.

use crate::serve::tls::session::Session;
use dataplane::stages::stream::{
    TLS_PARTIAL_MAX_BYTES, TLS_PLAIN_MAX_BYTES, TLS_RECORD_MAX_BYTES, TlsSession, TlsStep,
};
use rustls::ServerConfig;
use socket2::SockRef;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What a connection may hold uncharged: keys and states, and a message of its handshake, or a record,
/// that has come in part.
pub(crate) const TLS_BYTES: usize = (8 << 10) + TLS_PARTIAL_MAX_BYTES;

/// The most that one read takes from the socket, and more than what it says.
pub(super) const READ_MAX_BYTES: usize = 2 * TLS_RECORD_MAX_BYTES;

/// A connection.
pub(super) struct Tls {
    socket: TcpStream,
    session: Session,
    /// Records that have come and are not whole, or not looked at.
    incoming: Vec<u8>,
    /// Plain bytes that came with the end of the handshake.
    plain: Vec<u8>,
    /// Records that are to leave, of which so much has left.
    outgoing: Vec<u8>,
    left: usize,
    /// Plain bytes that they are.
    covers: usize,
    /// The client has said that no more comes.
    ended: bool,
}

impl Tls {
    /// A fresh connection, whose handshake is to come.
    pub(super) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            socket,
            session: Session::new(config)?,
            incoming: Vec::new(),
            plain: Vec::new(),
            outgoing: Vec::new(),
            left: 0,
            covers: 0,
            ended: false,
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the session was begun anew, and not recovered again.
    pub(super) fn is_new_session(&self) -> bool {
        self.session.is_new()
    }

    /// Looks at all that has come. What is to be answered lies ready to be sent; plain bytes are
    /// kept. The work of a handshake is done here.
    pub(super) fn advance(&mut self) -> io::Result<TlsStep> {
        let mut plain = std::mem::take(&mut self.plain);
        let step = self.advance_into(&mut plain);
        self.plain = plain;
        step
    }

    fn advance_into(&mut self, plain: &mut Vec<u8>) -> io::Result<TlsStep> {
        let (used, step) = self
            .session
            .advance(&mut self.incoming, plain, &mut self.outgoing)
            .inspect_err(|_| self.incoming.clear())?;
        self.incoming.drain(..used.min(self.incoming.len()));
        // A connection that was answered waits without another read: it holds no more than was set aside.
        match self.incoming.len() {
            0 => self.incoming = Vec::new(),
            _ => self.incoming.shrink_to(TLS_RECORD_MAX_BYTES),
        }
        if self.incoming.len() > TLS_PARTIAL_MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.ended |= step == TlsStep::Ended;
        Ok(step)
    }

    /// Waits until something has come, and takes what there is. Nothing is held while it waits but
    /// a record in part. False at the end.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.incoming.try_reserve(TLS_RECORD_MAX_BYTES)?;
        let come = pin!(self.socket.read_buf(&mut self.incoming)).poll(cx);
        if come.is_pending() {
            self.incoming.shrink_to_fit();
        }
        Poll::Ready(Ok(ready!(come)? > 0))
    }

    /// Waits until plain bytes have come, and takes them. 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        into: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.plain.is_empty() {
                let plain = std::mem::take(&mut self.plain);
                into.try_reserve(plain.len())?;
                into.extend_from_slice(&plain);
                return Poll::Ready(Ok(plain.len()));
            }
            if self.ended {
                return Poll::Ready(Ok(0));
            }
            if !ready!(self.poll_receive(cx))? {
                self.ended = true;
                continue;
            }
            let before = into.len();
            let step = self.advance_into(into);
            // Answers to the client's messages about TLS, and alerts.
            let flushed = self.try_flush();
            step?;
            match flushed {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
            let come = into.len() - before;
            if come > 0 {
                return Poll::Ready(Ok(come));
            }
        }
    }

    /// Throws away what has come.
    pub(super) fn forget(&mut self) {
        self.incoming.clear();
    }

    /// Whether a record has come in part.
    pub(super) fn holds_part(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Whether plain bytes are there that were not taken.
    pub(super) fn has_unread(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Whether the client has said that no more comes: it may have come with what was taken, and
    /// nothing shows it in the socket.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Sends what lies ready, as far as the socket takes it at once.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.outgoing.get(self.left..).filter(|rest| !rest.is_empty()) {
            match self.socket.try_write(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.left += sent,
            }
        }
        (self.outgoing, self.left) = (Vec::new(), 0);
        Ok(())
    }

    /// Sends what lies ready.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Sends the first of these bytes, and says how many those were. Would block until the socket
    /// has taken all of their record.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_flush()?;
        if self.covers == 0 {
            let first = bytes.get(..TLS_PLAIN_MAX_BYTES).unwrap_or(bytes);
            if first.is_empty() {
                return Ok(0);
            }
            if let Err(error) = self.session.seal(first, &mut self.outgoing) {
                // It is over, and says so as far as the socket takes it at once.
                self.session.close(&mut self.outgoing)?;
                let _ = self.try_flush();
                return Err(error);
            }
            self.covers = first.len();
            self.try_flush()?;
        }
        Ok(std::mem::take(&mut self.covers))
    }

    /// The same, after a wait.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Bytes held of a record that has not left.
    pub(super) fn held_bytes(&self) -> usize {
        self.outgoing.capacity()
    }

    /// Nothing more will be sent: says so, as far as the socket takes it at once.
    pub(super) fn shutdown(&mut self) -> io::Result<()> {
        if self.covers == 0 {
            self.session.close(&mut self.outgoing)?;
        }
        let _ = self.try_flush();
        SockRef::from(&self.socket).shutdown(Shutdown::Write)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::shared::tests::in_time;
    use super::*;
    use crate::serve::tls::session::tests::clear::{self, Terms};
    use rustls::ClientConnection;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// A client, in the clear and on its socket.
    pub(in super::super) struct Client {
        pub(in super::super) tls: ClientConnection,
        pub(in super::super) socket: TcpStream,
    }

    impl Client {
        /// Records that say this.
        pub(in super::super) fn records(&mut self, says: &[u8]) -> Vec<u8> {
            self.tls.writer().write_all(says).unwrap();
            let mut records = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut records).unwrap();
            }
            records
        }

        /// Sends what there is to be said.
        async fn say(&mut self) {
            let records = self.records(b"");
            self.socket.write_all(&records).await.unwrap();
        }

        /// Takes something that comes, and what it says. False at the end.
        pub(in super::super) async fn hear(&mut self, said: &mut Vec<u8>) -> bool {
            let mut records = Vec::with_capacity(TLS_RECORD_MAX_BYTES);
            let come = self.socket.read_buf(&mut records).await.unwrap() > 0;
            let mut records = &records[..];
            while !records.is_empty() {
                self.tls.read_tls(&mut records).unwrap();
                self.tls.process_new_packets().unwrap();
                match self.tls.reader().read_to_end(said) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
                    _ => {}
                }
            }
            come
        }

        /// All that it gets until the end, which must be said.
        pub(in super::super) async fn hear_all(&mut self) -> Vec<u8> {
            let mut said = Vec::new();
            while self.hear(&mut said).await {}
            self.tls.reader().read_to_end(&mut said).unwrap();
            said
        }
    }

    /// Both ends of a connection whose handshake is over.
    pub(in super::super) async fn pair(is_1_3: bool) -> (Client, Tls) {
        in_time(shaken(is_1_3)).await
    }

    async fn shaken(is_1_3: bool) -> (Client, Tls) {
        let terms = Terms { is_1_3, mutual: false, retry: false, tickets: false };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let tls = ClientConnection::new(clear::client(terms), name).unwrap();
        let mut client = Client { tls, socket };
        let mut tls = Tls::new(listener.accept().await.unwrap().0, clear::server(terms)).unwrap();
        loop {
            client.say().await;
            assert!(poll_fn(|cx| tls.poll_receive(cx)).await.unwrap());
            let step = tls.advance().unwrap();
            tls.flush().await.unwrap();
            if step == TlsStep::Open {
                break;
            }
            client.hear(&mut Vec::new()).await;
        }
        while client.tls.is_handshaking() {
            client.hear(&mut Vec::new()).await;
        }
        (client, tls)
    }

    #[tokio::test]
    async fn what_can_seal_no_more_says_the_end() {
        let (mut client, mut tls) = pair(false).await;
        let mut sealed = 0;
        let error = in_time(async {
            loop {
                match tls.write(b"MN\r\n").await {
                    Ok(_) => sealed += 1,
                    Err(error) => break error,
                }
            }
        });
        let error = error.await;
        // Not the client's fault.
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        drop(tls);
        assert!(in_time(client.hear_all()).await == b"MN\r\n".repeat(sealed));
    }

    #[tokio::test]
    async fn a_handshake_that_waits_holds_no_more_than_is_set_aside() {
        let terms = Terms { is_1_3: true, mutual: false, retry: false, tickets: false };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = in_time(listener.accept()).await.unwrap().0;
        let mut tls = Tls::new(server, clear::server(terms)).unwrap();
        // A greeting of 60,000 bytes, in records of which two come whole and the third in part.
        let record = |bytes: &[u8]| {
            let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            [&[22, 3, 1][..], &len, bytes].concat()
        };
        let mut first = vec![0; TLS_PLAIN_MAX_BYTES];
        first[..4].copy_from_slice(&[1, 0, 0xea, 0x60]);
        let next = record(&[0; TLS_PLAIN_MAX_BYTES]);
        let sent = [record(&first), next.clone(), next].concat()[..33_000].to_vec();
        client.write_all(&sent).await.unwrap();
        while tls.incoming.len() < sent.len() {
            assert!(in_time(poll_fn(|cx| tls.poll_receive(cx))).await.unwrap());
            assert_eq!(tls.advance().unwrap(), TlsStep::Blocked);
        }
        let more = poll_fn(|cx| Poll::Ready(tls.poll_receive(cx).is_ready())).await;
        let held = tls.incoming.capacity();
        assert!(!more && held >= sent.len() && held <= TLS_BYTES, "{held} bytes");
    }

    #[tokio::test]
    async fn a_connection_that_waits_holds_a_record_at_most() {
        for is_1_3 in [true, false] {
            let (mut client, mut tls) = pair(is_1_3).await;
            assert_eq!(tls.incoming.capacity(), 0, "the handshake is over");
            let (request, record) = (&[7; 100][..], &[7; TLS_PLAIN_MAX_BYTES][..]);
            let [a, b, c, d, e] =
                [request, request, record, request, record].map(|says| client.records(says));
            let mut plain = Vec::new();
            let mut come = 0;
            for (sent, says, most) in [
                (a, 100, 0),
                ([&b[..], &c[..10]].concat(), 100, TLS_RECORD_MAX_BYTES),
                // Which takes more space than one record has.
                ([&c[10..], &d, &e[..10_000]].concat(), record.len() + 100, TLS_RECORD_MAX_BYTES),
            ] {
                client.socket.write_all(&sent).await.unwrap();
                come += says;
                while plain.len() < come {
                    let read = in_time(poll_fn(|cx| tls.poll_read(&mut plain, cx)));
                    assert!(read.await.unwrap() > 0);
                }
                let held = tls.incoming.capacity();
                assert!(held <= most, "{held} bytes for {}", tls.incoming.len());
            }
            assert_eq!(plain.len(), come);
        }
    }
}
