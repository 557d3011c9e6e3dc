//! Writes capture files, one frame at a time, in bounded memory: pcap with nanosecond time
//! stamps, or pcapng with one Ethernet interface.

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const SNAPLEN: u32 = 65_535;
/// Times are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;

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
pub enum Writer<W: Write> {
    /// pcap.
    Pcap(PcapWriter<W>),
    /// pcapng.
    Pcapng(PcapNgWriter<W>),
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

fn failed(e: PcapError) -> io::Error {
    match e {
        PcapError::IoError(e) => e,
        other => io::Error::new(io::ErrorKind::InvalidInput, other),
    }
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. Give a buffered `out`: every frame is several small writes.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(out: W, format: Format) -> io::Result<Self> {
        let begin = || match format {
            Format::Pcap => {
                let header = PcapHeader {
                    snaplen: SNAPLEN,
                    ts_resolution: TsResolution::NanoSecond,
                    endianness: Endianness::Little,
                    ..PcapHeader::default()
                };
                Ok(Self::Pcap(PcapWriter::with_header(out, header)?))
            }
            Format::Pcapng => {
                let mut writer = PcapNgWriter::with_endianness(out, Endianness::Little)?;
                let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, SNAPLEN);
                interface.options.push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
                writer.write_pcapng_block(interface)?;
                Ok(Self::Pcapng(writer))
            }
        };
        begin().map_err(failed)
    }

    /// Appends one frame, `ns` nanoseconds after the epoch.
    ///
    /// # Errors
    /// What the file says, or a frame longer than a capture may hold.
    pub fn frame(&mut self, ns: u64, frame: &[u8]) -> io::Result<()> {
        let len = u32::try_from(frame.len()).ok().filter(|n| *n <= SNAPLEN);
        let original_len = len.ok_or(io::ErrorKind::InvalidInput)?;
        let timestamp = Duration::from_nanos(ns);
        let written = match self {
            Self::Pcap(writer) => {
                writer.write_packet(&PcapPacket::new(timestamp, original_len, frame))
            }
            Self::Pcapng(writer) => writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp,
                original_len,
                data: Cow::Borrowed(frame),
                options: Vec::new(),
            }),
        };
        written.map(|_| ()).map_err(failed)
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    /// What the file says: without this call a full disk goes unnoticed.
    pub fn finish(self) -> io::Result<W> {
        let mut out = match self {
            Self::Pcap(writer) => writer.into_writer(),
            Self::Pcapng(writer) => writer.into_inner(),
        };
        out.flush()?;
        Ok(out)
    }
}
