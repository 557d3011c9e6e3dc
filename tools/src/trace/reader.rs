//! Reads capture files, one frame at a time, in bounded memory: pcap and pcapng, both byte
//! orders, Ethernet only. Hostile files end in an error, never in a panic or in a great
//! allocation: the crate reads through a buffer of 8 MB, and what does not fit it is damage.

#[cfg(test)]
mod tests;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::fs::File;
use std::io::{self, Chain, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// First bytes of a pcapng file (draft-ietf-opsawg-pcapng, section header block).
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const NS_PER_S: u64 = 1_000_000_000;
/// Time stamps of pcapng where an interface says nothing else.
const MICROSECONDS: u64 = 1_000_000;

/// Why a capture file cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ReadError {
    #[error("cannot open {path}: {source}; check the name and the permissions")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read {path} any further: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} is neither a pcap nor a pcapng file; make one with gnomon-pcapgen")]
    Magic(PathBuf),
    #[error("{path} holds frames of link type {linktype}, not Ethernet (1)")]
    LinkType { path: PathBuf, linktype: u32 },
    #[error("{path} is damaged after {frames} frames: {what}")]
    Damaged { path: PathBuf, frames: u64, what: &'static str },
}

/// The file, and before it the bytes that said which kind it is.
type Bytes = Chain<Cursor<[u8; 4]>, File>;

enum Kind {
    Pcap(PcapReader<Bytes>),
    Pcapng(PcapNgReader<Bytes>),
}

/// A capture file being read.
pub struct Reader {
    path: PathBuf,
    /// For going back to its start.
    file: File,
    kind: Kind,
    frames: u64,
    time_ns: u64,
    /// The frame read last.
    frame: Vec<u8>,
}

base::opaque!(Reader, |it| path: it.path);

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`ReadError`]: no such file, no permission, no capture file, not Ethernet.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let path = path.to_owned();
        let file =
            File::open(&path).map_err(|source| ReadError::Open { path: path.clone(), source })?;
        let kind = begin(&path, &file)?;
        Ok(Self { path, file, kind, frames: 0, time_ns: 0, frame: Vec::with_capacity(2048) })
    }

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// [`ReadError::Io`] for what cannot be rewound, such as a pipe.
    pub fn rewind(&mut self) -> Result<(), ReadError> {
        let io = |source| ReadError::Io { path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(0)).map_err(io)?;
        self.frames = 0;
        self.kind = begin(&self.path, &self.file)?;
        Ok(())
    }

    /// Frames read since the start of the file.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// When the last frame was captured, in nanoseconds since the epoch.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// The next frame, valid until the next call; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`] when the file is damaged or cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if self.advance()? { Ok(Some(self.frame())) } else { Ok(None) }
    }

    /// Reads the next frame. `false` at the end.
    ///
    /// # Errors
    /// As for [`Reader::next_frame`].
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        self.frame.clear();
        let more = match &mut self.kind {
            Kind::Pcap(reader) => next_pcap(reader, &mut self.frame),
            Kind::Pcapng(reader) => next_pcapng(reader, &mut self.frame),
        };
        let time_ns = more.map_err(|e| failed(&self.path, self.frames, e))?;
        self.frames += u64::from(time_ns.is_some());
        // A simple packet has no time: that of the one before.
        self.time_ns = time_ns.flatten().unwrap_or(self.time_ns);
        Ok(time_ns.is_some())
    }

    /// The frame read last.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }
}

/// Reads the header of a file, from where it stands.
fn begin(path: &Path, file: &File) -> Result<Kind, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let magic = |_| ReadError::Magic(path.to_owned());
    let mut file = file.try_clone().map_err(io)?;
    let mut first = [0; 4];
    if let Err(e) = file.read_exact(&mut first) {
        return Err(if e.kind() == io::ErrorKind::UnexpectedEof { magic(e) } else { io(e) });
    }
    let bytes = Cursor::new(first).chain(file);
    if first == PCAPNG_MAGIC {
        return Ok(Kind::Pcapng(
            PcapNgReader::new(bytes).map_err(|_| ReadError::Magic(path.to_owned()))?,
        ));
    }
    let reader = PcapReader::new(bytes).map_err(|_| ReadError::Magic(path.to_owned()))?;
    match ethernet(reader.header().datalink) {
        Ok(()) => Ok(Kind::Pcap(reader)),
        Err(e) => Err(failed(path, 0, e)),
    }
}

/// What a frame cannot be read for.
enum Failure {
    LinkType(u32),
    Pcap(PcapError),
}

impl From<PcapError> for Failure {
    fn from(e: PcapError) -> Self {
        Self::Pcap(e)
    }
}

fn ethernet(link: DataLink) -> Result<(), Failure> {
    // The upper bits of the field describe check sequences.
    match u32::from(link) & 0x0fff_ffff {
        1 => Ok(()),
        other => Err(Failure::LinkType(other)),
    }
}

fn failed(path: &Path, frames: u64, failure: Failure) -> ReadError {
    let path = path.to_owned();
    match failure {
        Failure::LinkType(linktype) => ReadError::LinkType { path, linktype },
        Failure::Pcap(PcapError::IoError(e)) if e.kind() != io::ErrorKind::UnexpectedEof => {
            ReadError::Io { path, source: e }
        }
        Failure::Pcap(PcapError::InvalidField(what)) => ReadError::Damaged { path, frames, what },
        Failure::Pcap(_) => {
            ReadError::Damaged { path, frames, what: "it breaks off within a frame" }
        }
    }
}

/// A frame's time, if it has one; `None` outside at the end.
type Next = Result<Option<Option<u64>>, Failure>;

/// Lengths are taken as they are: a capture that was cut to its snap length is no damage.
fn next_pcap(reader: &mut PcapReader<Bytes>, frame: &mut Vec<u8>) -> Next {
    let scale = match reader.header().ts_resolution {
        TsResolution::NanoSecond => 1,
        TsResolution::MicroSecond => 1_000,
    };
    let Some(packet) = reader.next_raw_packet().transpose()? else { return Ok(None) };
    frame.extend_from_slice(&packet.data);
    Ok(Some(Some(u64::from(packet.ts_sec) * NS_PER_S + u64::from(packet.ts_frac) * scale)))
}

fn next_pcapng(reader: &mut PcapNgReader<Bytes>, frame: &mut Vec<u8>) -> Next {
    loop {
        let (interface, units) = match reader.next_block().transpose()? {
            None => return Ok(None),
            Some(Block::InterfaceDescription(interface)) => {
                ethernet(interface.linktype)?;
                continue;
            }
            Some(Block::SimplePacket(packet)) => {
                let len = packet.data.len().min(packet.original_len as usize);
                frame.extend_from_slice(packet.data.get(..len).unwrap_or_default());
                return Ok(Some(None));
            }
            // The crate hands on what the file counts, whatever the interface's unit.
            Some(Block::EnhancedPacket(packet)) => {
                frame.extend_from_slice(&packet.data);
                (packet.interface_id as usize, packet.timestamp.as_nanos())
            }
            Some(_) => continue,
        };
        let per_s = reader.interfaces().get(interface).map_or(MICROSECONDS, units_per_s);
        let ns = units * u128::from(NS_PER_S) / u128::from(per_s.max(1));
        return Ok(Some(Some(u64::try_from(ns).unwrap_or(u64::MAX))));
    }
}

/// Units of time stamps in a second, as the interface says in its options.
fn units_per_s(interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let says = |option: &InterfaceDescriptionOption<'_>| match option {
        InterfaceDescriptionOption::IfTsResol(power) => Some(*power),
        _ => None,
    };
    interface.options.iter().find_map(says).map_or(MICROSECONDS, |power| {
        let (base, power) = (if power & 0x80 == 0 { 10u64 } else { 2 }, power & 0x7f);
        base.checked_pow(power.into()).unwrap_or(u64::MAX)
    })
}
