//! Reads capture files, one frame at a time, in bounded memory: pcap and pcapng, both byte
//! orders, Ethernet only. Hostile files end in an error, never in a panic or in a great
//! allocation.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// No block or frame beyond this is read: longer ones are damage, not data.
const BLOCK_MAX_BYTES: usize = 1 << 20;
const FILE_BUFFER_BYTES: usize = 1 << 20;
const LINKTYPE_ETHERNET: u32 = 1;

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

    /// The next frame, valid until the next call; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`] when the file is damaged or cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let range = match self.kind {
            Kind::Pcap => self.next_pcap()?,
            Kind::Pcapng => self.next_pcapng()?,
        };
        Ok(range.map(|r| &self.block[r]))
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
        if self.kind == Kind::Pcapng {
            return self.section();
        }
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

    fn next_pcap(&mut self) -> Result<Option<std::ops::Range<usize>>, ReadError> {
        if !self.read_block(16)? {
            return Ok(None);
        }
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

    fn next_pcapng(&mut self) -> Result<Option<std::ops::Range<usize>>, ReadError> {
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
                    continue;
                }
                // Simple packet: the original length, then as much of it as the block holds.
                3 => (4, (self.block_word(0) as usize).min(body.saturating_sub(4))),
                6 => (20, self.block_word(3) as usize),
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

#[cfg(test)]
mod tests {
    use super::super::writer::{Format, Writer};
    use super::*;

    fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.pcap");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    fn written(format: Format) -> Vec<u8> {
        let mut w = Writer::new(Vec::new(), format).unwrap();
        for len in [0u8, 1, 60, 61, 100] {
            w.frame(u64::from(len) * 1_500_000_000, &vec![len; len.into()]).unwrap();
        }
        w.finish().unwrap()
    }

    fn read_all(path: &Path) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut r = Reader::open(path)?;
        let mut all = Vec::new();
        while let Some(f) = r.next_frame()? {
            all.push(f.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn both_formats_come_back_twice() {
        for format in [Format::Pcap, Format::Pcapng] {
            let (_dir, path) = file(&written(format));
            let all = read_all(&path).unwrap();
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 60, 61, 100]);
            assert!(all.iter().all(|f| f.iter().all(|b| usize::from(*b) == f.len())));
            let mut r = Reader::open(&path).unwrap();
            while r.next_frame().unwrap().is_some() {}
            assert_eq!(r.frames(), 5);
            r.rewind().unwrap();
            assert_eq!(r.next_frame().unwrap(), Some(&[][..]));
        }
    }

    #[test]
    fn the_other_byte_order_is_read() {
        let mut be = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1, 9, 9, 3, 3] {
            be.extend_from_slice(&word.to_be_bytes());
        }
        be.extend_from_slice(b"abc");
        let (_dir, path) = file(&be);
        assert_eq!(read_all(&path).unwrap(), [b"abc"]);

        let mut be = Vec::new();
        let section = [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 0x0001_0000, !0, !0, 28];
        let interface = [1, 20, 0x0001_0000, 65_535, 20];
        let packet = [6, 36, 0, 0, 0, 3, 3, 0x6162_6300, 36];
        for word in section.iter().chain(&interface).chain(&packet) {
            be.extend_from_slice(&word.to_be_bytes());
        }
        let (_dir, path) = file(&be);
        assert_eq!(read_all(&path).unwrap(), [b"abc"]);
    }

    #[test]
    fn damage_is_an_error_at_every_length_and_never_a_panic() {
        for format in [Format::Pcap, Format::Pcapng] {
            let whole = written(format);
            let mut good = 0;
            for len in 0..whole.len() {
                let (_dir, path) = file(&whole[..len]);
                good += usize::from(read_all(&path).is_ok());
            }
            // It may end after the header and after each frame but the last; in pcapng also
            // after the section header alone.
            assert_eq!(good, if format == Format::Pcap { 5 } else { 6 });
            for at in 0..120 {
                for bits in [0xff, 1] {
                    let mut bytes = whole.clone();
                    bytes[at] ^= bits;
                    let (_dir, path) = file(&bytes);
                    let _ = read_all(&path);
                }
            }
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let missing = Reader::open(Path::new("/nonexistent/x.pcap")).unwrap_err();
        assert!(missing.to_string().contains("check the name"), "{missing}");
        let (_dir, path) = file(b"GIF89a..................");
        let e = read_all(&path).unwrap_err();
        assert!(matches!(e, ReadError::Magic(_)), "{e}");
        let mut other = written(Format::Pcap);
        other[20] = 101;
        let (_dir, path) = file(&other);
        assert!(matches!(read_all(&path), Err(ReadError::LinkType { linktype: 101, .. })));
    }
}
