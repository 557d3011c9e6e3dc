//! Frames of all kinds: what clients send, what is nearly that, and noise.

use crate::rng::Rng;
use driver_shim::MacAddr;
use gpu::{Entry, EntryFlags};
use std::path::PathBuf;
use wire::build::UdpFrame;

/// A frame, where it stands in its slot, and what stage 3 would say of it.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entry: Entry,
}

/// What random requests are made of.
pub(crate) struct Source {
    pub(crate) rng: Rng,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) corpus: Vec<Vec<u8>>,
}

/// Every committed input of every fuzz target.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let root = std::env::var_os("GNOMON_TEST_CORPUS").map_or_else(here, PathBuf::from);
    let mut all = Vec::new();
    for target in root.read_dir().unwrap() {
        for input in target.unwrap().path().read_dir().unwrap() {
            all.push(std::fs::read(input.unwrap().path()).unwrap());
        }
    }
    assert!(all.len() > 100);
    all.sort();
    all
}

/// Keys of all lengths, of the bytes that text may hold.
pub(crate) fn keys(rng: &mut Rng, n: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..n)
        .map(|i| {
            let longest = rng.one_of(&[8, 16, 32, 64, 128, 250]);
            let mut key = format!("{i}:").into_bytes();
            let len = (1 + rng.below(longest)).max(key.len());
            key.resize_with(len, || b'!' + rng.byte() % 0xdf);
            key
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

impl Source {
    fn key(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        match rng.below(12) {
            0 => vec![b'k'; rng.one_of(&[0, 1, 249, 250, 251, 252, 300])],
            1 => {
                let n = rng.below(20);
                rng.bytes(n)
            }
            2 => {
                // A known key with something wrong at its end.
                let mut key = rng.pick(&self.keys).clone();
                match rng.below(3) {
                    0 => key.push(b'x'),
                    1 => _ = key.pop(),
                    _ => *key.last_mut().unwrap() ^= 1,
                }
                key
            }
            _ => rng.pick(&self.keys).clone(),
        }
    }

    fn get(&mut self) -> Vec<u8> {
        let mut text =
            self.rng.pick(&[&b"get"[..], b"get", b"get", b"gets", b"gat", b"Get"]).to_vec();
        let n = self.rng.one_of(&[1, 1, 1, 1, 1, 1, 2, 3, 5, 6, 7, 8]);
        for _ in 0..n {
            text.push(b' ');
            text.extend(self.key());
        }
        if self.rng.one_in(30) {
            text.push(self.rng.one_of(b" \t\0\n"));
        }
        text.extend_from_slice(self.line_end());
        text
    }

    fn meta(&mut self) -> Vec<u8> {
        let mut text = self.rng.pick(&[&b"mg "[..], b"mg ", b"mg ", b"md ", b"mg"]).to_vec();
        text.extend(self.key());
        for _ in 0..self.rng.below(6) {
            let flags =
                [&b" v"[..], b" s", b" t", b" Oabc", b" q", b" b", b" k", b"b", b" N30", b"  "];
            text.extend_from_slice(self.rng.one_of(&flags));
        }
        text.extend_from_slice(self.line_end());
        text
    }

    fn line_end(&mut self) -> &'static [u8] {
        let ends =
            [&b"\r\n"[..], b"\r\n", b"\r\n", b"\r\n", b"\n", b"", b"\r", b" \r\n", b"\r\r\n"];
        self.rng.one_of(&ends)
    }

    fn binary(&mut self) -> Vec<u8> {
        let key = self.key();
        let len = u16::try_from(key.len()).unwrap();
        let rng = &mut self.rng;
        let mut packet = vec![0x80, rng.one_of(&[0, 0, 9, 12, 13, 1, 10, 29, 35])];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0, 0, 0]);
        packet.extend(u32::from(len).to_be_bytes());
        packet.extend(rng.bytes(12));
        packet.extend(key);
        if rng.one_in(4) {
            let at = rng.below(24.min(packet.len()));
            packet[at] = rng.one_of(&[0, 1, 4, 0x80, 250, 255]);
        }
        match rng.below(10) {
            0 => packet.push(0),
            1 => _ = packet.pop(),
            _ => {}
        }
        packet
    }

    /// The text of a request, or of something else.
    fn text(&mut self) -> Vec<u8> {
        let mut text = match self.rng.below(16) {
            0..8 => self.get(),
            8..10 => self.meta(),
            10..12 => self.binary(),
            12 => self.rng.pick(&self.corpus).clone(),
            13 => {
                let n = self.rng.below(60);
                self.rng.bytes(n)
            }
            14 => [self.get(), self.get()].concat(),
            _ => {
                let n = 100 + self.rng.below(1300);
                format!("set k 0 0 {n}\r\n{}\r\n", "v".repeat(n)).into_bytes()
            }
        };
        if self.rng.one_in(12) && !text.is_empty() {
            let at = self.rng.below(text.len());
            text[at] = self.rng.byte();
        }
        if self.rng.one_in(20) {
            let keep = self.rng.below(text.len() + 1);
            text.truncate(keep);
        }
        text.truncate(1400);
        text
    }

    /// A frame around `text`, most of the time a good one.
    fn wrap(&mut self, text: &[u8]) -> Packet {
        let rng = &mut self.rng;
        let mut payload = rng.bytes(4);
        payload.extend(rng.one_of(&[[0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 9, 9]]));
        if rng.one_in(20) {
            payload[4..6].copy_from_slice(&rng.one_of(&[[0, 0], [0, 2], [1, 1], [255, 255]]));
        }
        payload.extend_from_slice(text);
        if rng.one_in(40) {
            let keep = rng.below(12);
            payload.truncate(keep);
        }
        let ipv6 = rng.one_in(3);
        let vlans = &[5, 6][..rng.one_of(&[0, 0, 0, 1, 2])];
        let (src, dst) = if ipv6 {
            ("[fd00::1]:40000", "[fd00::2]:11211")
        } else {
            ("10.0.0.1:40000", "10.0.0.2:11211")
        };
        let frame = UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload: &payload,
        };
        let mut bytes = frame.to_vec().unwrap();
        let l3 = u8::try_from(14 + 4 * vlans.len()).unwrap();
        let l4 = l3 + if ipv6 { 40 } else { 20 };
        let mut flags = EntryFlags(if ipv6 { EntryFlags::IPV6.0 } else { 0 });
        for good in [EntryFlags::IP_GOOD, EntryFlags::UDP_GOOD, EntryFlags::LIMITED] {
            if rng.one_in(4) {
                flags = flags.with(good);
            }
        }
        match rng.below(24) {
            // No checksum.
            0 => bytes[usize::from(l4) + 6..][..2].fill(0),
            1 => {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
            2 => {
                let keep = rng.below(bytes.len());
                bytes.truncate(keep);
            }
            3 => {
                bytes[usize::from(l4) + 4..][..2].copy_from_slice(&rng.number().to_be_bytes()[2..])
            }
            4 => bytes[usize::from(l3)] = rng.byte(),
            _ => {}
        }
        // As Ethernet pads short frames.
        if rng.one_in(4) {
            let n = rng.below(20);
            bytes.extend(rng.bytes(n));
        }
        Packet { bytes, entry: Entry { l3, l4, flags, ..Entry::default() } }
    }

    /// A whole frame around `text`, whose checksums are known to be good.
    pub(crate) fn whole(text: &[u8]) -> Packet {
        let payload = [&[0, 7, 0, 0, 0, 1, 0, 0], text].concat();
        let frame = UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans: &[],
            src: "10.0.0.1:40000".parse().unwrap(),
            dst: "10.0.0.2:11211".parse().unwrap(),
            payload: &payload,
        };
        let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
        let entry = Entry { l3: 14, l4: 34, flags, ..Entry::default() };
        Packet { bytes: frame.to_vec().unwrap(), entry }
    }

    /// A packet for `slot`, at any place within it, and some beyond it.
    pub(crate) fn packet(&mut self, slot: u32, slot_bytes: u32) -> Packet {
        let text = self.text();
        let mut packet = self.wrap(&text);
        let rng = &mut self.rng;
        if rng.one_in(16) {
            // Noise, or another target's idea of a frame, with headers said to be anywhere.
            packet.bytes = match rng.below(2) {
                0 => {
                    let n = rng.below(200);
                    rng.bytes(n)
                }
                _ => rng.pick(&self.corpus).clone(),
            };
            packet.bytes.truncate(2000);
            if rng.one_in(2) {
                (packet.entry.l3, packet.entry.l4) = (rng.byte(), rng.byte());
            }
            packet.entry.flags = EntryFlags(rng.byte() & 15);
        }
        self.place(packet, slot, slot_bytes)
    }

    /// Gives the packet a place in its slot.
    pub(crate) fn place(&mut self, mut packet: Packet, slot: u32, slot_bytes: u32) -> Packet {
        let rng = &mut self.rng;
        let len = packet.bytes.len();
        let room = slot_bytes as usize - len;
        let off = match rng.below(4) {
            0 => 128.min(room),
            1 => room,
            _ => rng.below(room + 1),
        };
        packet.entry.slot = slot;
        packet.entry.off = u16::try_from(off).unwrap();
        packet.entry.len = u16::try_from(len).unwrap();
        packet.entry.mark = rng.byte();
        if rng.one_in(200) {
            match rng.below(3) {
                0 => packet.entry.slot = u32::MAX - rng.number(),
                1 => packet.entry.off = u16::try_from(room + 1).unwrap(),
                _ => packet.entry.len = u16::MAX,
            }
        }
        packet
    }

    /// An input of a fuzz target as a whole frame, and as the text of a good request.
    pub(crate) fn of_corpus(&mut self, input: &[u8]) -> Vec<Packet> {
        let headers = [(14, 34, false), (18, 38, false), (14, 54, true), (0, 0, false)];
        let mut all: Vec<Packet> = headers
            .into_iter()
            .map(|(l3, l4, ipv6)| {
                let flags = EntryFlags(if ipv6 { EntryFlags::IPV6.0 } else { 0 });
                let bytes = input[..input.len().min(2000)].to_vec();
                Packet { bytes, entry: Entry { l3, l4, flags, ..Entry::default() } }
            })
            .collect();
        let text = &input[..input.len().min(1400)];
        all.push(self.wrap(text));
        let good = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
        let mut whole = self.wrap(text);
        whole.entry.flags = whole.entry.flags.with(good);
        all.push(whole);
        all
    }
}
