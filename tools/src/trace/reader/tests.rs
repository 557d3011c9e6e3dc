use super::*;
use crate::trace::writer::{Format, Writer};

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
fn times_come_back_in_nanoseconds() {
    let times = |bytes: &[u8]| {
        let (_dir, path) = file(bytes);
        let mut r = Reader::open(&path).unwrap();
        let mut all = Vec::new();
        while r.next_frame().unwrap().is_some() {
            all.push(r.time_ns());
        }
        all
    };
    for format in [Format::Pcap, Format::Pcapng] {
        let want = [0, 1, 60, 61, 100].map(|n: u64| n * 1_500_000_000);
        assert_eq!(times(&written(format)), want);
    }
    // Microseconds, as most captures have.
    let mut micro = written(Format::Pcap);
    micro[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    assert_eq!(times(&micro)[1], 1_000_000_000 + 500_000_000 * 1_000);
    // An interface that counts in other units; one that does not say counts microseconds.
    let mut ng = written(Format::Pcapng);
    assert_eq!(ng[48], 9);
    ng[48] = 0x80 | 10;
    assert_eq!(times(&ng)[1], 1_464_843_750_000_000);
    // A comment in place of the unit.
    (ng[44], ng[48]) = (1, b'x');
    assert_eq!(times(&ng)[1], 1_500_000_000_000);
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
fn a_capture_cut_to_its_snap_length_is_read() {
    for format in [Format::Pcap, Format::Pcapng] {
        let mut cut = written(format);
        // The snap length: of the file, or of its only interface.
        let (at, original) = if format == Format::Pcap { (16, 24 + 12) } else { (40, 60 + 24) };
        cut[at..at + 4].copy_from_slice(&100u32.to_le_bytes());
        cut[original..original + 4].copy_from_slice(&1_514u32.to_le_bytes());
        let (_dir, path) = file(&cut);
        assert_eq!(read_all(&path).unwrap().len(), 5, "{format:?}");
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
