//! Writes capture files, one frame at a time, in bounded memory: pcap with nanosecond time
//! stamps, or pcapng with one Ethernet interface.

use std::io::{self, Write};
use std::path::Path;

const LINKTYPE_ETHERNET: u16 = 1;
const SNAPLEN: u32 = 65_535;
/// pcap magic whose time stamps count nanoseconds.
const PCAP_NS_MAGIC: u32 = 0xa1b2_3c4d;
const NS_PER_S: u64 = 1_000_000_000;

/// The two kinds of capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// libpcap, nanosecond magic.
    Pcap,
    /// pcapng.
    Pcapng,
}

impl Format {
    /// By the file's extension: `.pcapng` and `.ntar` are pcapng, all others pcap.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("pcapng" | "ntar") => Self::Pcapng,
            _ => Self::Pcap,
        }
    }
}

/// A capture file being written. Little-endian.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    format: Format,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. Give a buffered `out`: every frame is several small writes.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, format: Format) -> io::Result<Self> {
        let mut head = Vec::with_capacity(64);
        match format {
            Format::Pcap => {
                head.extend_from_slice(&PCAP_NS_MAGIC.to_le_bytes());
                head.extend_from_slice(&[2, 0, 4, 0]);
                head.extend_from_slice(&[0; 8]);
                head.extend_from_slice(&SNAPLEN.to_le_bytes());
                head.extend_from_slice(&u32::from(LINKTYPE_ETHERNET).to_le_bytes());
            }
            Format::Pcapng => {
                // Section header: byte-order magic, version 1.0, length unknown.
                head.extend_from_slice(&0x0a0d_0d0a_u32.to_le_bytes());
                head.extend_from_slice(&28u32.to_le_bytes());
                head.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
                head.extend_from_slice(&[1, 0, 0, 0]);
                head.extend_from_slice(&[0xff; 8]);
                head.extend_from_slice(&28u32.to_le_bytes());
                // Interface: if_tsresol (option 9) = 10^-9 s, then end of options.
                head.extend_from_slice(&1u32.to_le_bytes());
                head.extend_from_slice(&32u32.to_le_bytes());
                head.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
                head.extend_from_slice(&[0; 2]);
                head.extend_from_slice(&SNAPLEN.to_le_bytes());
                head.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
                head.extend_from_slice(&32u32.to_le_bytes());
            }
        }
        out.write_all(&head)?;
        Ok(Self { out, format })
    }

    /// Appends one frame, `ns` nanoseconds after the epoch.
    ///
    /// # Errors
    /// What the file says, or a frame longer than a capture may hold.
    pub fn frame(&mut self, ns: u64, frame: &[u8]) -> io::Result<()> {
        let len = u32::try_from(frame.len())
            .ok()
            .filter(|n| *n <= SNAPLEN)
            .ok_or(io::ErrorKind::InvalidInput)?;
        match self.format {
            Format::Pcap => {
                let second = u32::try_from(ns / NS_PER_S).unwrap_or(u32::MAX);
                let rest = u32::try_from(ns % NS_PER_S).unwrap_or(0);
                let mut head = [0; 16];
                for (to, word) in
                    head.as_chunks_mut::<4>().0.iter_mut().zip([second, rest, len, len])
                {
                    *to = word.to_le_bytes();
                }
                self.out.write_all(&head)?;
                self.out.write_all(frame)
            }
            Format::Pcapng => {
                let padded = len.next_multiple_of(4);
                let total = 32 + padded;
                let [b0, b1, b2, b3, b4, b5, b6, b7] = ns.to_le_bytes();
                let (high, low) =
                    (u32::from_le_bytes([b4, b5, b6, b7]), u32::from_le_bytes([b0, b1, b2, b3]));
                let mut head = [0; 28];
                let words = [6, total, 0, high, low, len, len];
                for (to, word) in head.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                    *to = word.to_le_bytes();
                }
                self.out.write_all(&head)?;
                self.out.write_all(frame)?;
                self.out.write_all(&[0; 3][..(padded - len) as usize])?;
                self.out.write_all(&total.to_le_bytes())
            }
        }
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    /// What the file says: without this call a full disk goes unnoticed.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
