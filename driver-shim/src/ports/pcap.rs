//! Capture files as a port: one queue that receives what a pcap or pcapng file holds, as fast as
//! it is asked, and transmits into a pcap file with nanosecond timestamps.
//!
//! Files are streamed; memory does not grow with them. A file may be a pipe. Captured bytes are
//! delivered as they are: a packet that was cut short by the capture is a short frame. The port
//! claims the address [`crate::ports::memory::MAC`] and no IP address; where the capture was
//! taken elsewhere, change [`crate::PortInfo`] before use.
//!
//! Fails at start-up ([`PcapPortError`]: no such file, not a capture, not Ethernet). A file that
//! turns out broken later ends there, and [`PcapHandle::rx_error`] says where and how. A packet
//! longer than a slot is counted `rx_errors`. With no free slot the file waits. A frame that
//! cannot be written is counted `tx_errors`, and [`PcapHandle::tx_error`] says why.

use crate::frame::{BURST_MAX, Burst, Frame};
use crate::port::{Port, PortInfo, QueuePair, RxQueue, TxCaps, TxQueue};
use crate::ports::memory;
use crate::ports::tally::{Tallies, Tally};
use crate::region::Region;
use crate::slots::FRAME_MAX_BYTES;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::{DataLink, Endianness};
use std::fs::File;
use std::io::{self, Chain, Cursor, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Which files.
#[derive(Debug, Clone, Default)]
pub struct PcapPortConfig {
    /// Received from. Without one, nothing is ever received.
    pub rx: Option<PathBuf>,
    /// Transmitted to; an existing file is overwritten. Without one, transmitted frames vanish.
    pub tx: Option<PathBuf>,
}

/// What is wrong with a capture file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum PcapPortError {
    #[error("cannot open {path}: {source}; check the name and its permissions")]
    Open { path: PathBuf, source: io::Error },
    #[error("{0} is neither a pcap nor a pcapng file; `file` or `capinfos` says what it is")]
    NotCapture(PathBuf),
    #[error("{path}: packets are {link}, not Ethernet; capture on an Ethernet interface")]
    NotEthernet { path: PathBuf, link: String },
    #[error("{path}: broken behind packet {packets}: {why}; capture it again, or cut it there")]
    Broken { path: PathBuf, packets: u64, why: String },
    /// It would be overwritten while it is read.
    #[error("{0} cannot be both read and written; name two files")]
    SameFile(PathBuf),
    #[error("cannot write {path}: {source}; check the permissions and the free space")]
    Write { path: PathBuf, source: io::Error },
}

/// How far an open port has come.
#[derive(Debug, Clone)]
pub struct PcapHandle(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    done: AtomicBool,
    rx_error: OnceLock<PcapPortError>,
    tx_error: OnceLock<PcapPortError>,
}

impl PcapHandle {
    /// True once every packet of the file has been handed over, or reading broke off.
    pub fn done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    /// Why reading broke off, if it did.
    pub fn rx_error(&self) -> Option<&PcapPortError> {
        self.0.rx_error.get()
    }

    /// The first failure to write, if there was one.
    pub fn tx_error(&self) -> Option<&PcapPortError> {
        self.0.tx_error.get()
    }
}

/// Opens the files.
///
/// # Errors
/// [`PcapPortError`]: a file that cannot be opened or made, or is no capture of Ethernet.
pub fn open(config: &PcapPortConfig, region: &Region) -> Result<(Port, PcapHandle), PcapPortError> {
    let handle = PcapHandle(Arc::default());
    let tally = Arc::<Tally>::default();
    let mut identity = None;
    let mut source = None;
    if let Some(path) = &config.rx {
        let (opened, id) = Source::open(path)?;
        (source, identity) = (Some(opened), Some(id));
    }
    let sink = config.tx.as_deref().map(|path| Sink::create(path, identity)).transpose()?;
    handle.0.done.store(source.is_none(), Ordering::Release);

    let file =
        |p: &Option<PathBuf>| p.as_ref().map_or_else(|| "-".into(), |p| p.display().to_string());
    let info = PortInfo {
        name: format!("pcap:{}:{}", file(&config.rx), file(&config.tx)),
        mac: memory::MAC,
        mtu: u16::try_from(FRAME_MAX_BYTES - ETHERNET_BYTES).unwrap_or(u16::MAX),
        tx_caps: TxCaps::default(),
        any_destination: false,
        busy_poll: false,
        flows_stray: false,
    };
    let rx = PcapRx {
        source,
        region: region.clone(),
        progress: Arc::clone(&handle.0),
        tally: Arc::clone(&tally),
    };
    let tx = PcapTx { sink, progress: Arc::clone(&handle.0), tally: Arc::clone(&tally) };
    let queues = vec![QueuePair { rx: Box::new(rx), tx: Box::new(tx) }];
    Ok((Port { info, queues, control: Box::new(Tallies(vec![tally])) }, handle))
}

const ETHERNET_BYTES: usize = 14;

/// Device and inode: the same for two names of one file.
type Identity = (u64, u64);

fn identity(file: &File) -> io::Result<Identity> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

/// The first bytes, already looked at, and the rest.
type Input = Chain<Cursor<[u8; 4]>, File>;

enum Reader {
    Pcap(PcapReader<Input>),
    Ng(PcapNgReader<Input>),
}

/// What came of reading on.
enum Next {
    /// A packet, now in the frame.
    Packet,
    /// A packet that is longer than the frame.
    TooLong,
    /// The file's end.
    End,
}

struct Source {
    path: PathBuf,
    reader: Reader,
    packets: u64,
}

impl Source {
    fn open(path: &Path) -> Result<(Self, Identity), PcapPortError> {
        let path = path.to_path_buf();
        let fail = |source| PcapPortError::Open { path: path.clone(), source };
        let mut file = File::open(&path).map_err(fail)?;
        let id = identity(&file).map_err(fail)?;
        let not_capture = || PcapPortError::NotCapture(path.clone());
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => not_capture(),
            _ => fail(e),
        })?;
        let is_ng = magic == [0x0a, 0x0d, 0x0d, 0x0a];
        let input = Cursor::new(magic).chain(file);
        let reader = if is_ng {
            Reader::Ng(PcapNgReader::new(input).map_err(|_| not_capture())?)
        } else {
            let reader = PcapReader::new(input).map_err(|_| not_capture())?;
            let link = reader.header().datalink;
            if link != DataLink::ETHERNET {
                return Err(PcapPortError::NotEthernet { path, link: format!("{link:?}") });
            }
            Reader::Pcap(reader)
        };
        Ok((Self { path, reader, packets: 0 }, id))
    }

    /// Reads the next packet into `frame`.
    fn next(&mut self, frame: &mut Frame) -> Result<Next, PcapPortError> {
        let next = match &mut self.reader {
            Reader::Pcap(reader) => next_pcap(reader, frame).map_err(Reason::Broken),
            Reader::Ng(reader) => next_ng(reader, frame),
        };
        match next {
            Ok(next) => {
                self.packets += u64::from(!matches!(next, Next::End));
                Ok(next)
            }
            Err(Reason::Broken(why)) => {
                let path = self.path.clone();
                Err(PcapPortError::Broken { path, packets: self.packets, why })
            }
            Err(Reason::Link(link)) => {
                Err(PcapPortError::NotEthernet { path: self.path.clone(), link })
            }
        }
    }
}

enum Reason {
    Broken(String),
    Link(String),
}

fn say(e: &pcap_file::PcapError) -> String {
    match e {
        pcap_file::PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            "a packet reaches beyond the file's end".to_owned()
        }
        pcap_file::PcapError::IoError(e) => e.to_string(),
        e => e.to_string(),
    }
}

fn fill(frame: &mut Frame, data: &[u8]) -> Next {
    if frame.fill(data).is_ok() { Next::Packet } else { Next::TooLong }
}

fn next_pcap(reader: &mut PcapReader<Input>, frame: &mut Frame) -> Result<Next, String> {
    // Raw: the checked form refuses packets that the capture cut short.
    match reader.next_raw_packet() {
        None => Ok(Next::End),
        Some(Ok(packet)) => Ok(fill(frame, &packet.data)),
        Some(Err(e)) => Err(say(&e)),
    }
}

/// Goes on to the next block with a packet. Blocks are taken raw, and the three that hold
/// packets decoded here: all others are passed over whatever is in them.
fn next_ng(reader: &mut PcapNgReader<Input>, frame: &mut Frame) -> Result<Next, Reason> {
    loop {
        let big_endian = reader.section().endianness == Endianness::Big;
        let block = match reader.next_raw_block() {
            None => return Ok(Next::End),
            Some(Ok(block)) => block,
            Some(Err(e)) => return Err(Reason::Broken(say(&e))),
        };
        let Some(packet) = NgPacket::decode(block.type_, &block.body, big_endian) else { continue };
        let packet = packet.map_err(|why| Reason::Broken(why.to_owned()))?;
        let next = fill(frame, packet.data);
        let interface = packet.interface;
        match reader.interfaces().get(interface) {
            Some(i) if i.linktype == DataLink::ETHERNET => return Ok(next),
            Some(i) => return Err(Reason::Link(format!("{:?}", i.linktype))),
            None => return Err(Reason::Broken(format!("there is no interface {interface}"))),
        }
    }
}

struct NgPacket<'a> {
    interface: usize,
    data: &'a [u8],
}

impl<'a> NgPacket<'a> {
    /// `None` for a block without a packet.
    fn decode(kind: u32, body: &'a [u8], big: bool) -> Option<Result<Self, &'static str>> {
        // pcapng, sections 4.3, 4.4 and appendix A: enhanced, simple and (old) packet block.
        const PACKET: u32 = 2;
        const SIMPLE: u32 = 3;
        const ENHANCED: u32 = 6;
        let word = |at: usize| -> Option<u32> {
            let bytes = body.get(at..at + 4)?.try_into().ok()?;
            Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let half = || -> Option<u16> {
            let bytes = body.get(0..2)?.try_into().ok()?;
            Some(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
        };
        let captured = |at: usize| body.get(20..)?.get(..word(at)? as usize);
        let found = match kind {
            ENHANCED => word(0).map(|i| i as usize).zip(captured(12)),
            PACKET => half().map(usize::from).zip(captured(12)),
            // What is there of it: it does not say how much was captured.
            SIMPLE => word(0)
                .zip(body.get(4..))
                .map(|(len, data)| (0, data.get(..len as usize).unwrap_or(data))),
            _ => return None,
        };
        Some(match found {
            Some((interface, data)) => Ok(Self { interface, data }),
            None => Err("a packet is longer than its block"),
        })
    }
}

struct PcapRx {
    source: Option<Source>,
    region: Region,
    progress: Arc<Progress>,
    tally: Arc<Tally>,
}

impl RxQueue for PcapRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        let mut bytes = 0;
        while let Some(source) = &mut self.source
            && !into.is_full()
            && let Some(mut frame) = self.region.alloc()
        {
            match source.next(&mut frame) {
                Ok(Next::Packet) => {
                    bytes += frame.len() as u64;
                    into.push(frame);
                }
                Ok(Next::TooLong) => self.tally.rx_errors.add(1),
                Ok(Next::End) => self.source = None,
                Err(e) => {
                    let _first = self.progress.rx_error.set(e);
                    self.source = None;
                }
            }
        }
        let got = into.len() - before;
        self.tally.rx_frames.add(got as u64);
        self.tally.rx_bytes.add(bytes);
        // Only once the last frames are counted: a thread that sees `done` sees them too.
        self.progress.done.store(self.source.is_none(), Ordering::Release);
        got
    }
}

/// A classic pcap file: magic number of the nanosecond form, version 2.4, snapshot length,
/// Ethernet; then for each packet seconds, nanoseconds, captured and original length.
struct Sink {
    path: PathBuf,
    file: File,
    /// A burst's records, written at once.
    records: Vec<u8>,
}

const RECORD_BYTES: usize = 16;

impl Sink {
    fn create(path: &Path, source: Option<Identity>) -> Result<Self, PcapPortError> {
        let fail = |source| PcapPortError::Write { path: path.to_path_buf(), source };
        let mut options = File::options();
        // Not cut to nothing until it is known to be another file than the one that is read.
        let mut file = options.write(true).create(true).truncate(false).open(path).map_err(fail)?;
        if source == Some(identity(&file).map_err(fail)?) {
            return Err(PcapPortError::SameFile(path.to_path_buf()));
        }
        if file.metadata().map_err(fail)?.is_file() {
            file.set_len(0).map_err(fail)?;
        }
        let header: [u32; 6] = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 1];
        file.write_all(&header.map(u32::to_le_bytes).concat()).map_err(fail)?;
        let records = Vec::with_capacity(BURST_MAX * (RECORD_BYTES + FRAME_MAX_BYTES));
        Ok(Self { path: path.to_path_buf(), file, records })
    }

    fn write(&mut self, frames: &[Frame]) -> Result<(), PcapPortError> {
        // A clock before 1970 or after 2106 gives a wrong time, not a lost frame.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        self.records.clear();
        for frame in frames {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            for word in [seconds, now.subsec_nanos(), len, len] {
                self.records.extend_from_slice(&word.to_le_bytes());
            }
            self.records.extend_from_slice(frame.bytes());
        }
        let written = self.file.write_all(&self.records);
        written.map_err(|source| PcapPortError::Write { path: self.path.clone(), source })
    }
}

struct PcapTx {
    sink: Option<Sink>,
    progress: Arc<Progress>,
    tally: Arc<Tally>,
}

impl TxQueue for PcapTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let n = from.len();
        // After a failure the file may end within a record: nothing more can follow.
        let failed = self.progress.tx_error.get().is_some();
        let result = match &mut self.sink {
            Some(sink) if n > 0 && !failed => sink.write(from),
            _ => Ok(()),
        };
        if let Err(e) = result {
            let _first = self.progress.tx_error.set(e);
        }
        if self.progress.tx_error.get().is_some() {
            self.tally.tx_errors.add(n as u64);
        } else {
            self.tally.tx_frames.add(n as u64);
            self.tally.tx_bytes.add(from.iter().map(|f| f.len() as u64).sum());
        }
        from.clear();
        n
    }
}

#[cfg(test)]
mod tests;
