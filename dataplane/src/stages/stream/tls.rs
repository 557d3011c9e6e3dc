//! TLS over a connection, as this stage sees it: records in, plain bytes out, and the other way.
//!
//! In: records that the state machine has in order; replies. Out: plain bytes for the conversation,
//! records for the state machine. What makes and reads records is a [`TlsSession`], which knows TLS. Records lie in buffers of the worker's; a connection keeps what has come in part, and no
//! reply: one is sealed as far as its records fit the send buffer, and the rest of it stays plain.
//! Fails: [`io::ErrorKind::InvalidData`] for what is no record of this connection.

use super::machine::Machine;
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;

/// The longest record: header, plain bytes, and what ciphers add.
pub const TLS_RECORD_MAX_BYTES: usize = 5 + (16 << 10) + 256;
/// Plain bytes of a record at most.
pub const TLS_PLAIN_MAX_BYTES: usize = 16 << 10;
/// What ciphers add to a record, its header included; more than any of them does.
pub const TLS_OVERHEAD_BYTES: usize = 64;
/// The most that is held of a message that has come in part: a chain of certificates in several records.
pub const TLS_PARTIAL_MAX_BYTES: usize = 2 * TLS_RECORD_MAX_BYTES;
/// Memory that is planned for a connection over TLS: keys and states, and what has come in part.
pub const TLS_CONNECTION_BYTES: u64 = (8 << 10) + TLS_PARTIAL_MAX_BYTES as u64;
/// Plain bytes from which on a connection gets no more of them before it has had answers, or a
/// buffer of the spill.
const PLAIN_HELD_BYTES: usize = 2 << 10;
/// Of a longer reply, less than this is no record of its own.
const SLIVER_BYTES: usize = 1 << 10;

/// What a session can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsStep {
    /// Its handshake needs more of the client.
    Blocked,
    /// Plain bytes can be sent.
    Open,
    /// Its handshake is over, and nothing more comes.
    Ended,
}

/// One client's TLS: its handshake, its keys.
pub trait TlsSession: Send {
    /// Looks at the records that have come, of which the last may be there in part: plain bytes go
    /// behind `plain`, what is to be answered behind `outgoing`. Says how many bytes were used up. The
    /// work of a handshake is done here.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: no record of this session; there may be an alert in `outgoing`.
    /// [`io::ErrorKind::UnexpectedEof`]: the client ended it in its handshake.
    /// [`io::ErrorKind::OutOfMemory`].
    fn advance(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> io::Result<(usize, TlsStep)>;

    /// Puts a record with these bytes, [`TLS_PLAIN_MAX_BYTES`] at most, behind `outgoing`.
    ///
    /// # Errors
    /// The session is over, or there is no memory.
    fn seal(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()>;

    /// Says behind `outgoing` that nothing more will be sent, where that can be said. What comes then is
    /// thrown away.
    ///
    /// # Errors
    /// As [`Self::seal`].
    fn close(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()>;

    /// Whether it was begun anew, and is no resumed one.
    fn is_new(&self) -> bool;
}

/// Who begins sessions: with the certificates of the moment.
pub trait TlsSessions: Send + Sync + Debug {
    /// A session whose handshake is to come.
    ///
    /// # Errors
    /// What is wrong with the settings.
    fn begin(&self) -> io::Result<Box<dyn TlsSession>>;
}

/// What a connection's bytes go through.
#[derive(Debug)]
pub(super) enum Layer {
    /// Nothing.
    Plain,
    /// TLS, which the handshake thread has now; by this number it comes back. And the name that
    /// watchers know the connection by.
    Away(u64, i32),
    /// TLS.
    Tls(Box<Secure>),
}

impl Layer {
    /// TLS, where it is here.
    pub(super) fn tls(&mut self) -> Option<&mut Secure> {
        match self {
            Self::Tls(secure) => Some(secure),
            Self::Plain | Self::Away(..) => None,
        }
    }

    /// Whether a handshake is under way.
    pub(super) fn is_shaking(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Away(..) => true,
            Self::Tls(secure) => secure.shaking,
        }
    }

    /// The name that watchers know the connection by, over TLS.
    pub(super) fn fd(&self) -> i32 {
        match self {
            Self::Plain => -1,
            Self::Away(_, fd) => *fd,
            Self::Tls(secure) => secure.fd,
        }
    }

    /// Whether a part of a request or record is there, or more, or what the handshake thread found or is to get, or
    /// what is to be sent first.
    pub(super) fn has_input(&self) -> bool {
        let Self::Tls(secure) = self else { return false };
        let has_bytes = !secure.plain.is_empty() || !secure.incoming.is_empty();
        has_bytes || !secure.outgoing.is_empty() || secure.found.is_some() || secure.has_more
    }

    /// Bytes of a record that has come in part.
    pub(super) fn partial(&self) -> usize {
        let Self::Tls(secure) = self else { return 0 };
        secure.incoming.len()
    }

    /// Whether records are to be sent before all others.
    pub(super) fn is_to_say_more(&self) -> bool {
        matches!(self, Self::Tls(secure) if !secure.outgoing.is_empty())
    }

    /// Whether the client has said that no more comes.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Tls(secure) if secure.ended)
    }
}

/// One connection's TLS.
pub(super) struct Secure {
    session: Box<dyn TlsSession>,
    /// Records that have come and are not whole, or not looked at.
    pub(super) incoming: Vec<u8>,
    /// Plain bytes that are not answered.
    pub(super) plain: Vec<u8>,
    /// Records that are to leave before all others, of which so much has left.
    outgoing: Vec<u8>,
    left: usize,
    /// The client's address, the slot of its connection, and the name that watchers know it by.
    pub(super) source: IpAddr,
    pub(super) slot: u32,
    pub(super) fd: i32,
    /// Its handshake is under way,
    pub(super) shaking: bool,
    /// and more has come of it than the handshake thread has seen.
    has_more: bool,
    /// What the handshake thread found.
    pub(super) found: Option<io::Result<TlsStep>>,
    /// The client has said that no more comes.
    pub(super) ended: bool,
    /// We have.
    said_end: bool,
}

base::opaque!(Secure, |it| shaking: it.shaking);

impl Secure {
    /// A session whose handshake is to come.
    pub(super) fn new(session: Box<dyn TlsSession>, source: IpAddr, slot: u32, fd: i32) -> Self {
        Self {
            session,
            incoming: Vec::new(),
            plain: Vec::new(),
            outgoing: Vec::new(),
            left: 0,
            source,
            slot,
            fd,
            shaking: true,
            has_more: false,
            found: None,
            ended: false,
            said_end: false,
        }
    }

    /// Takes more of the handshake from the state machine. Says whether there is any that the handshake
    /// thread has not seen.
    pub(super) fn receive(&mut self, machine: &mut Machine) -> io::Result<bool> {
        let before = self.incoming.len();
        fill(&mut self.incoming, machine, TLS_PARTIAL_MAX_BYTES)?;
        self.has_more |= self.incoming.len() > before;
        Ok(self.has_more)
    }

    /// The work of a handshake, with what has come.
    pub(super) fn shake(&mut self) {
        let Self { session, incoming, plain, outgoing, .. } = self;
        let found = session.advance(incoming, plain, outgoing).and_then(|(used, step)| {
            incoming.drain(..used.min(incoming.len()));
            incoming.shrink_to_fit();
            match step == TlsStep::Blocked && incoming.len() >= TLS_PARTIAL_MAX_BYTES {
                true => Err(io::ErrorKind::InvalidData.into()),
                false => Ok(step),
            }
        });
        self.has_more = false;
        self.found = Some(found);
    }

    /// Whether the session was begun anew, and is no resumed one.
    pub(super) fn is_new(&self) -> bool {
        self.session.is_new()
    }

    /// Drops what was to leave: the connection ends without it.
    pub(super) fn drop_outgoing(&mut self) {
        (self.outgoing, self.left) = (Vec::new(), 0);
    }

    /// Gives the state machine what is to leave before all else. False: it has no space for all of it.
    pub(super) fn flush(&mut self, machine: &mut Machine) -> bool {
        if self.outgoing.is_empty() {
            return true;
        }
        self.left += machine.write(self.outgoing.get(self.left..).unwrap_or_default());
        if self.left < self.outgoing.len() {
            return false;
        }
        self.drop_outgoing();
        true
    }

    /// Whether more plain bytes may be taken, with so many there already.
    pub(super) fn may_hold(held: usize) -> bool {
        held < PLAIN_HELD_BYTES
    }

    /// Takes records from the state machine, through `records`, and puts their
    /// bytes behind `plain`: a buffer's worth, and more until they are `enough`.
    pub(super) fn open(
        &mut self,
        machine: &mut Machine,
        records: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        enough: impl Fn(&[u8]) -> bool,
    ) -> io::Result<()> {
        if machine.waiting() == 0 || self.ended {
            return Ok(());
        }
        records.clear();
        records.try_reserve(TLS_RECORD_MAX_BYTES)?;
        records.append(&mut self.incoming);
        loop {
            fill(records, machine, TLS_RECORD_MAX_BYTES)?;
            let (used, step) = self.session.advance(records, plain, &mut self.outgoing)?;
            records.drain(..used.min(records.len()));
            self.ended = step == TlsStep::Ended;
            if records.len() >= TLS_RECORD_MAX_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // What is to be said of TLS first may be as long as what came: no more of it before.
            let done = enough(plain) || machine.waiting() == 0 || !self.outgoing.is_empty();
            if done || self.ended {
                break;
            }
        }
        self.incoming = copy(records)?;
        Ok(())
    }

    /// Seals as much of these bytes, through `sealed`, as the state machine has space for. Says how many bytes
    /// those were.
    pub(super) fn write(
        &mut self,
        machine: &mut Machine,
        bytes: &[u8],
        sealed: &mut Vec<u8>,
    ) -> io::Result<usize> {
        // Sealed before these bytes, and to be read before them.
        if !self.flush(machine) {
            return Ok(0);
        }
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let room = machine.room().saturating_sub(TLS_OVERHEAD_BYTES);
            let first = rest.get(..room.min(TLS_PLAIN_MAX_BYTES)).unwrap_or(rest);
            if first.is_empty() || (first.len() < rest.len() && first.len() < SLIVER_BYTES) {
                break;
            }
            sealed.clear();
            self.session.seal(first, sealed)?;
            at += first.len();
            let sent = machine.write(sealed);
            // With new keys of ours there is more to say than a record.
            if let Some(left) = sealed.get(sent..).filter(|left| !left.is_empty()) {
                self.outgoing.try_reserve(left.len())?;
                self.outgoing.extend_from_slice(left);
                break;
            }
        }
        Ok(at)
    }

    /// Says that nothing more will be sent. False: the state machine has no space for it yet.
    pub(super) fn say_end(&mut self, machine: &mut Machine) -> bool {
        if !self.said_end {
            self.said_end = true;
            // A session that cannot say it is over.
            let _ = self.session.close(&mut self.outgoing);
        }
        self.flush(machine)
    }
}

/// Takes bytes that have come behind `into`, up to so many in all.
fn fill(into: &mut Vec<u8>, machine: &mut Machine, most: usize) -> io::Result<()> {
    let come = machine.waiting().min(most.saturating_sub(into.len()));
    into.try_reserve(come)?;
    let end = into.len() + come;
    while into.len() < end {
        let took = machine.read(|bytes| {
            let bytes = bytes.get(..end - into.len()).unwrap_or(bytes);
            into.extend_from_slice(bytes);
            (bytes.len(), bytes.len())
        });
        if took.is_none_or(|took| took == 0) {
            break;
        }
    }
    Ok(())
}

/// A copy without spare space.
pub(super) fn copy(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    kept.try_reserve_exact(bytes.len())?;
    kept.extend_from_slice(bytes);
    Ok(kept)
}
