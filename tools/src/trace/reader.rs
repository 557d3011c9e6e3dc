//! Reads capture files, one frame at a time, in bounded memory: pcap and pcapng, both byte
//! orders, Ethernet only. Hostile files end in an error, never in a panic or in a great
//! allocation.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// No block or frame beyond this is read: longer ones are damage, not data.
const BLOCK_MAX_BYTES: usize = 1 << 20;
const FILE_BUFFER_BYTES: usize = 1 << 20;
const LINKTYPE_ETHERNET: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;
/// Time stamps of pcapng where an interface says nothing else.
const MICROSECONDS: u64 = 1_000_000;
/// Interfaces whose time stamps are told apart; a section with more is odd.
const INTERFACES_MAX: usize = 1024;

/// Why a capture file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}; check the name and the permissions")]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's refusal.
        source: io::Error,
    },
    /// Reading failed midway.
    #[error("cannot read {path} any further: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's refusal.
        source: io::Error,
    },
    /// No capture file at all.
    #[error("{0} is neither a pcap nor a pcapng file; make one with gnomon-pcapgen")]
    Magic(PathBuf),
    /// A capture of something else.
    #[error("{path} holds frames of link type {linktype}, not Ethernet (1)")]
    LinkType {
        /// The file.
        path: PathBuf,
        /// What it holds.
        linktype: u32,
    },
    /// The file breaks off or contradicts itself.
    #[error("{path} is damaged after {frames} frames: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Frames read before.
        frames: u64,
        /// What is wrong.
        what: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pcap,
    Pcapng,
}

/// A capture file being read.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    kind: Kind,
    big_endian: bool,
    frames: u64,
    block: Vec<u8>,
    /// Units of time stamps in a second, of each interface; of the file in pcap.
    units_per_s: Vec<u64>,
    time_ns: u64,
    /// Where in the block at hand the frame read last stands.
    at: Range<usize>,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`ReadError`]: no such file, no permission, no capture file, not Ethernet.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?;
        let mut reader = Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(FILE_BUFFER_BYTES, file),
            kind: Kind::Pcap,
            big_endian: false,
            frames: 0,
            block: Vec::with_capacity(4096),
            units_per_s: Vec::new(),
            time_ns: 0,
            at: 0..0,
        };
        reader.header()?;
        Ok(reader)
    }

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// [`ReadError::Io`] for what cannot be rewound, such as a pipe.
    pub fn rewind(&mut self) -> Result<(), ReadError> {
        self.file.seek(SeekFrom::Start(0)).map_err(|e| self.io(e))?;
        self.frames = 0;
        self.header()
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
        let range = match self.kind {
            Kind::Pcap => self.next_pcap()?,
            Kind::Pcapng => self.next_pcapng()?,
        };
        let more = range.is_some();
        self.at = range.unwrap_or_default();
        Ok(more)
    }

    /// The frame read last.
    pub fn frame(&self) -> &[u8] {
        self.block.get(self.at.clone()).unwrap_or_default()
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }

    fn damaged(&self, what: &'static str) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), frames: self.frames, what }
    }

    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Word `n` of the block at hand; 0 beyond its end.
    fn block_word(&self, n: usize) -> u32 {
        self.block.as_chunks::<4>().0.get(n).map_or(0, |b| self.word(*b))
    }

    /// Reads `len` bytes as the block at hand. `false`: the file ends just here.
    fn read_block(&mut self, len: usize) -> Result<bool, ReadError> {
        self.block.clear();
        let got = (&mut self.file)
            .take(len as u64)
            .read_to_end(&mut self.block)
            .map_err(|e| self.io(e))?;
        if got == 0 && len > 0 {
            return Ok(false);
        }
        if got < len { Err(self.damaged("it breaks off within a frame")) } else { Ok(true) }
    }

    fn header(&mut self) -> Result<(), ReadError> {
        let magic = |r: &Self| ReadError::Magic(r.path.clone());
        let mut first = [0; 4];
        self.file.read_exact(&mut first).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => magic(self),
            _ => self.io(e),
        })?;
        (self.kind, self.big_endian) = match u32::from_le_bytes(first) {
            0xa1b2_3c4d | 0xa1b2_c3d4 => (Kind::Pcap, false),
            0x4d3c_b2a1 | 0xd4c3_b2a1 => (Kind::Pcap, true),
            0x0a0d_0d0a => (Kind::Pcapng, false),
            _ => return Err(magic(self)),
        };
        self.units_per_s.clear();
        if self.kind == Kind::Pcapng {
            return self.section();
        }
        let nanoseconds = first == [0x4d, 0x3c, 0xb2, 0xa1] || first == [0xa1, 0xb2, 0x3c, 0x4d];
        self.units_per_s.push(if nanoseconds { NS_PER_S } else { MICROSECONDS });
        if !self.read_block(20)? {
            return Err(magic(self));
        }
        // The upper bits of the field tell of check sequences.
        self.check_linktype(self.block_word(4) & 0x0fff_ffff)
    }

    fn check_linktype(&self, linktype: u32) -> Result<(), ReadError> {
        if linktype == LINKTYPE_ETHERNET {
            return Ok(());
        }
        Err(ReadError::LinkType { path: self.path.clone(), linktype })
    }

    fn next_pcap(&mut self) -> Result<Option<Range<usize>>, ReadError> {
        if !self.read_block(16)? {
            return Ok(None);
        }
        let (seconds, units) = (self.block_word(0), self.block_word(1));
        let scale = NS_PER_S / self.units_per_s.first().copied().unwrap_or(NS_PER_S).max(1);
        self.time_ns = u64::from(seconds) * NS_PER_S + u64::from(units) * scale;
        let len = self.block_word(2) as usize;
        if len > BLOCK_MAX_BYTES {
            return Err(self.damaged("a frame claims to be longer than 1 MB"));
        }
        if !self.read_block(len)? {
            return Err(self.damaged("it breaks off before a frame"));
        }
        self.frames += 1;
        Ok(Some(0..len))
    }

    /// The rest of a section header, whose type has been read.
    fn section(&mut self) -> Result<(), ReadError> {
        if !self.read_block(8)? {
            return Err(ReadError::Magic(self.path.clone()));
        }
        self.big_endian = match self.block[4..8] {
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            _ => return Err(ReadError::Magic(self.path.clone())),
        };
        self.units_per_s.clear();
        let len = self.block_word(0) as usize;
        self.rest_of_block(len, 12)
    }

    /// Reads what is left of a block of `len` bytes after its first `read` bytes.
    fn rest_of_block(&mut self, len: usize, read: usize) -> Result<(), ReadError> {
        if len < read || len > BLOCK_MAX_BYTES || !len.is_multiple_of(4) {
            return Err(self.damaged("a block has an impossible length"));
        }
        if !self.read_block(len - read)? {
            return Err(self.damaged("it breaks off within a block"));
        }
        Ok(())
    }

    /// Units of time stamps in a second, as the interface block at hand says in its options.
    fn resolution(&self, body: usize) -> u64 {
        let half = |at: usize| {
            let bytes = self.block.get(at..at + 2).and_then(|b| b.first_chunk::<2>())?;
            let n = if self.big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
            Some(n(*bytes))
        };
        let mut at = 8;
        while let (Some(code), Some(len)) = (half(at), half(at + 2)) {
            let value = self.block.get(at + 4).copied().filter(|_| at + 4 < body);
            match (code, value) {
                (0, _) | (9, None) => break,
                (9, Some(power)) => {
                    let (base, power) = (if power & 0x80 == 0 { 10u64 } else { 2 }, power & 0x7f);
                    return base.checked_pow(power.into()).unwrap_or(u64::MAX);
                }
                _ => at += 4 + usize::from(len).next_multiple_of(4),
            }
        }
        MICROSECONDS
    }

    fn next_pcapng(&mut self) -> Result<Option<Range<usize>>, ReadError> {
        loop {
            if !self.read_block(4)? {
                return Ok(None);
            }
            let kind = self.block_word(0);
            if kind == 0x0a0d_0d0a {
                self.section()?;
                continue;
            }
            if !self.read_block(4)? {
                return Err(self.damaged("it breaks off within a block"));
            }
            let len = self.block_word(0) as usize;
            self.rest_of_block(len, 8)?;
            // After type and length, and with the length repeated at the end.
            let body = self.block.len().saturating_sub(4);
            let (at, frame_len) = match kind {
                1 => {
                    // A 16-bit field, then 16 reserved bits.
                    let word = self.block_word(0);
                    let linktype = if self.big_endian { word >> 16 } else { word & 0xffff };
                    self.check_linktype(linktype)?;
                    if self.units_per_s.len() < INTERFACES_MAX {
                        self.units_per_s.push(self.resolution(body));
                    }
                    continue;
                }
                // Simple packet: the original length, then as much of it as the block holds.
                3 => (4, (self.block_word(0) as usize).min(body.saturating_sub(4))),
                6 => {
                    let interface = self.block_word(0) as usize;
                    let units = u64::from(self.block_word(1)) << 32 | u64::from(self.block_word(2));
                    let per_s = self.units_per_s.get(interface).copied().unwrap_or(MICROSECONDS);
                    let ns = u128::from(units) * u128::from(NS_PER_S) / u128::from(per_s.max(1));
                    self.time_ns = u64::try_from(ns).unwrap_or(u64::MAX);
                    (20, self.block_word(3) as usize)
                }
                _ => continue,
            };
            if frame_len > body.saturating_sub(at) {
                return Err(self.damaged("a frame is longer than its block"));
            }
            self.frames += 1;
            return Ok(Some(at..at + frame_len));
        }
    }
}
