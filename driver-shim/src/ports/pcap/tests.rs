//! Written files are read back; foreign, hostile and broken ones are made by hand.

use super::*;
use crate::Pages;
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;

/// A file name of its own, removed at the end.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("gnomon-{}-{n}.pcap", std::process::id())))
    }

    fn with(bytes: &[u8]) -> Self {
        let temp = Self::new();
        std::fs::write(&temp.0, bytes).unwrap();
        temp
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn region() -> Region {
    Region::new(256, Pages::Small).unwrap()
}

fn rx(path: &Path) -> PcapPortConfig {
    PcapPortConfig { rx: Some(path.to_path_buf()), tx: None }
}

struct Outcome {
    frames: Vec<Vec<u8>>,
    errors: u64,
    broken: Option<String>,
}

/// Reads a whole file.
fn read(bytes: &[u8]) -> Result<Outcome, PcapPortError> {
    let (temp, region) = (Temp::with(bytes), region());
    let (mut port, handle) = open(&rx(&temp.0), &region)?;
    let mut frames = Vec::new();
    while !handle.done() {
        let mut burst = Burst::new();
        port.queues[0].rx.burst(&mut burst);
        frames.extend(burst.iter().map(|f| f.bytes().to_vec()));
    }
    let c = port.control.counters();
    assert_eq!(c.rx_frames, frames.len() as u64);
    drop(port);
    assert_eq!(region.available(), region.capacity());
    let broken = handle.rx_error().map(ToString::to_string);
    Ok(Outcome { frames, errors: c.rx_errors, broken })
}

fn word(big: bool, w: u32) -> [u8; 4] {
    if big { w.to_be_bytes() } else { w.to_le_bytes() }
}

fn words(big: bool, ws: &[u32]) -> Vec<u8> {
    ws.iter().flat_map(|&w| word(big, w)).collect()
}

/// A pcap file of these packets, each said to have been 10 bytes longer on the wire.
fn pcap(big: bool, magic: u32, link: u32, packets: &[&[u8]]) -> Vec<u8> {
    let version = if big { 2 << 16 | 4 } else { 4 << 16 | 2 };
    let mut file = words(big, &[magic, version, 0, 0, 2000, link]);
    for p in packets {
        let len = u32::try_from(p.len()).unwrap();
        file.extend(words(big, &[1, 2, len, len + 10]));
        file.extend(*p);
    }
    file
}

fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = word(big, u32::try_from(body.len()).unwrap() + 12);
    [&word(big, kind)[..], &len, &body, &len].concat()
}

fn section(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    block(big, 0x0a0d_0d0a, &words(big, &[0x1a2b_3c4d, version, u32::MAX, u32::MAX]))
}

fn interface(big: bool, link: u16) -> Vec<u8> {
    let link = if big { u32::from(link) << 16 } else { u32::from(link) };
    block(big, 1, &words(big, &[link, 0]))
}

fn enhanced(big: bool, interface: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    block(big, 6, &[&words(big, &[interface, 0, 0, len, len])[..], data].concat())
}

fn pcapng(big: bool) -> Vec<u8> {
    let mut old = words(big, &[0, 0, 0, 3, 3]);
    old.extend(b"old");
    [
        section(big),
        interface(big, 1),
        enhanced(big, 0, b"first"),
        // A name resolution block of rubbish, an unknown block.
        block(big, 4, &words(big, &[0xffff_ffff, 7])),
        block(big, 0x0bad, b"whatever"),
        interface(big, 1),
        enhanced(big, 1, b"second"),
        block(big, 3, &[&words(big, &[6])[..], b"simple"].concat()),
        block(big, 2, &old),
    ]
    .concat()
}

#[test]
fn what_is_written_is_read_back() {
    let (temp, region) = (Temp::new(), region());
    let config = PcapPortConfig { rx: None, tx: Some(temp.0.clone()) };
    let (mut port, handle) = open(&config, &region).unwrap();
    assert!(handle.done(), "nothing to receive");
    let sent: Vec<Vec<u8>> = (0..200_u8).map(|i| vec![i; 20 + usize::from(i) * 9]).collect();
    for some in sent.chunks(50) {
        let mut burst: Burst = some
            .iter()
            .map(|bytes| {
                let mut f = region.alloc().unwrap();
                f.fill(bytes).unwrap();
                f
            })
            .collect();
        assert_eq!(port.queues[0].tx.burst(&mut burst), 50);
        assert!(burst.is_empty());
    }
    assert_eq!(port.control.counters().tx_frames, 200);
    assert!(handle.tx_error().is_none());
    // Everything is in the file while the port is still open.
    let file = std::fs::read(&temp.0).unwrap();
    assert_eq!(read(&file).unwrap().frames, sent);
    let mut reader = PcapReader::new(&file[..]).unwrap();
    assert_eq!(reader.header().ts_resolution, pcap_file::TsResolution::NanoSecond);
    let first = reader.next_packet().unwrap().unwrap();
    assert!(first.timestamp.as_secs() > 1_700_000_000);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn every_form_of_pcap_is_read() {
    let packets: [&[u8]; 3] = [b"one", b"", &[3; 1500]];
    for big in [false, true] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let outcome = read(&pcap(big, magic, 1, &packets)).unwrap();
            assert_eq!(outcome.frames, packets);
            assert_eq!((outcome.errors, outcome.broken), (0, None));
        }
    }
}

#[test]
fn both_byte_orders_of_pcapng_are_read() {
    let want = ["first", "second", "simple", "old"].map(|s| s.as_bytes().to_vec());
    for big in [false, true] {
        let outcome = read(&pcapng(big)).unwrap();
        assert_eq!((outcome.broken, outcome.frames), (None, want.to_vec()));
    }
    // Sections of both orders, one after the other.
    let outcome = read(&[pcapng(true), pcapng(false)].concat()).unwrap();
    assert_eq!(outcome.broken, None);
    assert_eq!(outcome.frames, [want.clone(), want].concat());
}

#[test]
fn a_packet_longer_than_a_slot_is_counted_and_passed_over() {
    let packets: [&[u8]; 4] = [b"a", &[1; FRAME_MAX_BYTES], &[2; FRAME_MAX_BYTES + 1], b"b"];
    let outcome = read(&pcap(false, 0xa1b2_c3d4, 1, &packets)).unwrap();
    assert_eq!(outcome.frames, [packets[0], packets[1], packets[3]]);
    assert_eq!(outcome.errors, 1);
}

#[test]
fn what_is_no_capture_of_ethernet_is_refused() {
    for bytes in [&b""[..], b"abc", b"GET / HTTP/1.1\r\n\r\n", &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0]] {
        assert!(matches!(read(bytes), Err(PcapPortError::NotCapture(_))));
    }
    let cut = &pcap(false, 0xa1b2_c3d4, 1, &[])[..20];
    assert!(matches!(read(cut), Err(PcapPortError::NotCapture(_))));
    let raw_ip = pcap(false, 0xa1b2_c3d4, 101, &[]);
    assert!(matches!(read(&raw_ip), Err(PcapPortError::NotEthernet { .. })));

    let region = region();
    let missing = open(&rx(Path::new("/nowhere/a.pcap")), &region).unwrap_err();
    assert!(missing.to_string().starts_with("cannot open /nowhere/a.pcap"), "{missing}");
    let config = PcapPortConfig { rx: None, tx: Some("/nowhere/a.pcap".into()) };
    assert!(matches!(open(&config, &region), Err(PcapPortError::Write { .. })));
}

#[test]
fn a_broken_file_ends_where_it_breaks_and_says_so() {
    let good = pcap(false, 0xa1b2_c3d4, 1, &[b"one", b"two"]);
    let outcome = read(&good[..good.len() - 1]).unwrap();
    assert_eq!(outcome.frames, [b"one"]);
    let why = outcome.broken.unwrap();
    assert!(why.contains("behind packet 1: a packet reaches beyond the file's end"), "{why}");

    let start = [section(false), interface(false, 1), enhanced(false, 0, b"one")].concat();
    for (bad, why) in [
        (enhanced(false, 7, b"x"), "there is no interface 7"),
        (block(false, 6, &words(false, &[0, 0, 0, 400, 400])), "longer than its block"),
        (block(false, 3, b""), "longer than its block"),
        ([interface(false, 101), enhanced(false, 1, b"x")].concat(), "not Ethernet"),
        (words(false, &[6, 13, 0, 0]), "initial_len"),
        (words(false, &[6, 400_000_000, 0, 0]), "beyond the file's end"),
    ] {
        let outcome = read(&[&start[..], &bad].concat()).unwrap();
        assert_eq!(outcome.frames, [b"one"]);
        let said = outcome.broken.unwrap();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn without_free_slots_the_file_waits() {
    let temp = Temp::with(&pcap(false, 0xa1b2_c3d4, 1, &[b"one"]));
    let region = Region::new(1, Pages::Small).unwrap();
    let (mut port, handle) = open(&rx(&temp.0), &region).unwrap();
    let mut burst = Burst::new();
    let held = region.alloc();
    assert_eq!(port.queues[0].rx.burst(&mut burst), 0);
    assert!(!handle.done());
    drop(held);
    assert_eq!(port.queues[0].rx.burst(&mut burst), 1);
    assert!(!handle.done(), "the end has not been seen");
    burst.clear();
    assert_eq!(port.queues[0].rx.burst(&mut burst), 0);
    assert!(handle.done() && handle.rx_error().is_none());
}

#[test]
fn one_file_is_not_read_and_overwritten() {
    let bytes = pcap(false, 0xa1b2_c3d4, 1, &[b"one"]);
    let temp = Temp::with(&bytes);
    let config = PcapPortConfig { rx: Some(temp.0.clone()), tx: Some(temp.0.clone()) };
    assert!(matches!(open(&config, &region()), Err(PcapPortError::SameFile(_))));
    assert_eq!(std::fs::read(&temp.0).unwrap(), bytes, "untouched");
}

#[test]
fn a_failed_write_is_counted_and_said() {
    let region = region();
    // The header goes into a pipe's buffer; the reader is gone when the frame comes.
    let fifo = Temp::new();
    nix::unistd::mkfifo(&fifo.0, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let path = fifo.0.clone();
    let reader = std::thread::spawn(move || {
        let mut header = [0; 24];
        File::open(path).unwrap().read_exact(&mut header).unwrap();
        header
    });
    let config = PcapPortConfig { rx: None, tx: Some(fifo.0.clone()) };
    let (mut port, handle) = open(&config, &region).unwrap();
    assert_eq!(reader.join().unwrap()[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
    for n in 1..3 {
        let mut burst: Burst = region.alloc().into_iter().collect();
        assert_eq!(port.queues[0].tx.burst(&mut burst), 1);
        assert_eq!(port.control.counters().tx_errors, n);
    }
    assert!(handle.tx_error().unwrap().to_string().contains("cannot write"));
    assert_eq!(region.available(), region.capacity());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Whatever a file holds, reading ends, without a panic, and no slot is lost.
    #[test]
    fn damaged_files_do_no_harm(
        ng: bool,
        big: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        shorten: bool,
    ) {
        let mut file = if ng {
            pcapng(big)
        } else {
            pcap(big, 0xa1b2_c3d4, 1, &[b"one", b"two", &[3; 100]])
        };
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        if shorten {
            file.truncate(cut.index(file.len()));
        }
        let _ = read(&file);
    }
}
