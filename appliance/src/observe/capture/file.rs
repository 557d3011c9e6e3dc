//! The pcapng file: blocks in memory, for the thread that sends them.
//!
//! In: interfaces, frames, and what was counted of each interface in the end. Out: bytes. Writing to
//! memory does not fail; a block for an interface that was never described is left out.
//!
//! The file is big-endian, because the crate writes the time of an interface's statistics as one
//! 64-bit number, which in a little-endian file would have its halves exchanged.

use dataplane::capture::{Record, Seen};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapResult};
use std::borrow::Cow;
use std::time::Duration;
use wire::DropReason;

/// Times are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// A packet's flags: which way it went.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// What is reported about an interface in the end. Frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statistics {
    /// When the capture began and ended, since 1970.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    /// Received while it ran.
    pub(super) received: u64,
    /// Selected by the filter, lost for lack of a record, and in the file.
    pub(super) wanted: u64,
    pub(super) lost: u64,
    pub(super) written: u64,
}

/// A file in the making.
pub(super) struct CaptureFile(PcapNgWriter<Vec<u8>>);

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CaptureFile").finish_non_exhaustive()
    }
}

impl CaptureFile {
    /// Begins one.
    pub(super) fn new(application: &'static str) -> PcapResult<Self> {
        let section = SectionHeaderBlock {
            endianness: Endianness::Big,
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..SectionHeaderBlock::default()
        };
        Ok(Self(PcapNgWriter::with_section_header(Vec::new(), section)?))
    }

    /// Describes the next interface: they are numbered from 0.
    pub(super) fn interface(
        &mut self,
        name: &str,
        description: &str,
        snap_bytes: usize,
    ) -> PcapResult<()> {
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: u32::try_from(snap_bytes).unwrap_or(0),
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfDescription(description.into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.0.write_pcapng_block(block).map(|_| ())
    }

    /// A frame of an interface, at a time since 1970.
    pub(super) fn frame(
        &mut self,
        interface: u32,
        at: Duration,
        record: &Record,
    ) -> PcapResult<()> {
        let mut options = vec![EnhancedPacketOption::Flags(direction(record.seen))];
        if let Seen::Dropped(reason) = record.seen {
            let comment = format!("dropped: {}: {}", reason.name(), reason.meaning());
            options.push(EnhancedPacketOption::Comment(comment.into()));
        }
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: at,
            original_len: u32::try_from(record.len).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&record.bytes),
            options,
        };
        self.0.write_pcapng_block(block).map(|_| ())
    }

    /// What was counted of an interface.
    pub(super) fn statistics(&mut self, interface: u32, counted: &Statistics) -> PcapResult<()> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let block = InterfaceStatisticsBlock {
            interface_id: interface,
            timestamp: ns(counted.ended),
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(ns(counted.began)),
                InterfaceStatisticsOption::IsbEndTime(ns(counted.ended)),
                InterfaceStatisticsOption::IsbIfRecv(counted.received),
                InterfaceStatisticsOption::IsbIfDrop(counted.lost),
                InterfaceStatisticsOption::IsbFilterAccept(counted.wanted),
                InterfaceStatisticsOption::IsbUsrDeliv(counted.written),
            ],
        };
        self.0.write_pcapng_block(block).map(|_| ())
    }

    /// What was written since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.0.get_mut())
    }
}

fn direction(seen: Seen) -> u32 {
    match seen {
        // A reply, on its way out.
        Seen::Sent | Seen::Dropped(DropReason::TxFull) => OUTBOUND,
        Seen::Received | Seen::Dropped(_) => INBOUND,
    }
}
