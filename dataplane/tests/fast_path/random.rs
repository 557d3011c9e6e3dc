//! Random and hostile requests.

use base::checksum;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use memcache::binary::Header;
use std::net::SocketAddr;
use std::path::Path;
use wire::build::UdpFrame;
use wire::corrupt::Corruption;

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random {
    state: u64,
    /// Of 40 requests, how many are gets of other forms; and of 40 frames, how many go over IPv6, and how many
    /// have tags.
    others: usize,
    v6: usize,
    tagged: usize,
    /// Of 40 requests, how many are gets and nothing else.
    calm: usize,
    /// Of 40 keys, how many are one of those of 33 bytes and more.
    long: usize,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, others: 2, v6: 1, tagged: 1, calm: 0, long: 0 }
    }

    /// What a burst is made of: frames of one kind nearly all, or of several.
    pub(crate) fn mix(&mut self) {
        let shares = [0, 2, 20, 40];
        self.others = shares[self.below(4)];
        (self.v6, self.tagged) = [(1, 1), (1, 1), (10, 5), (40, 1), (0, 40)][self.below(5)];
        self.calm = [0, 0, 30, 38, 40][self.below(5)];
        self.long = [0, 0, 20, 40][self.below(4)];
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub(crate) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// One of few keys, of 1 to 250 bytes.
    pub(crate) fn key(&mut self) -> String {
        let n = if self.below(40) < self.long { 32 + self.below(16) } else { self.below(48) };
        let len = match n {
            0..40 => 1 + n,
            _ => [63, 64, 100, 128, 200, 249, 250, 251][n - 40],
        };
        let first = char::from(b'a' + u8::try_from(n % 26).unwrap());
        std::iter::once(first).chain(('!'..='~').cycle().skip(n)).take(len).collect()
    }

    pub(crate) fn value(&mut self) -> Vec<u8> {
        let lens = [
            0, 1, 9, 10, 31, 32, 33, 63, 64, 65, 99, 100, 127, 191, 192, 193, 500, 999, 1000, 1300,
        ];
        let len = match self.below(4) {
            0 => self.below(1380),
            _ => lens[self.below(lens.len())],
        };
        let byte = self.next().to_le_bytes();
        byte.into_iter().cycle().take(len).collect()
    }

    /// A value, often one whose reply fits a datagram, or is taken to, with no byte to spare, or one too few.
    fn value_of(&mut self, key: &str) -> Vec<u8> {
        if self.below(4) > 0 {
            return self.value();
        }
        // Beside key and value: of `get`, `mg` and the binary gets, as they are estimated, and as they are.
        let around = [53 + 5, 70, 24 + 4, 24, 6 + 4 + 4 + 2 + 7, 10][self.below(6)];
        let len = (1392_usize + 2).saturating_sub(around + self.below(5)) - key.len().min(1000);
        // The request must fit one, too.
        let byte = self.next().to_le_bytes();
        byte.into_iter().cycle().take(len.min(1360 - key.len())).collect()
    }

    /// A `set`, nearly always a good one.
    pub(crate) fn set(&mut self) -> Vec<u8> {
        let key = self.key();
        let value = self.value_of(&key);
        let mut words = [
            self.of(&["0", "0", "0", "7", "12", "007", "123456789", "1234567890", "4294967295"]),
            self.of(&["0", "0", "0", "0", "1", "2", "3", "100000", "0000", "2592001", "-1"]),
            &value.len().to_string(),
        ]
        .map(str::to_owned);
        let mut tail = self.of(&["", "", " noreply"]).to_owned();
        let (mut gap, mut line_end, mut end, mut behind) = (" ", "\r\n", "\r\n", "");
        match self.below(60) {
            0 => words[0] = self.of(&["4294967296", "-1", "a", "", "1 2"]).to_owned(),
            1 => words[1] = self.of(&["99999999999", "a", "", "1\u{1}2"]).to_owned(),
            2 => words[2] = self.of(&["0", "1", "99999", "0000000001", "-1", ""]).to_owned(),
            3 => words[2] = format!("{:04}", value.len()),
            4 => words[2] = format!("{}", value.len() + 1),
            5 => words[2] = format!("{}", value.len().saturating_sub(1)),
            6 => gap = self.of(&["  ", "\t", ""]),
            7 => line_end = self.of(&["\n", "\r", " \r\n", ""]),
            8 => end = self.of(&["\n", "\r", "xx", "", "\r\n\r\n"]),
            9 => {
                tail = self.of(&[" noreply ", " norepl", " 5", " no reply", "  noreply"]).to_owned()
            }
            10 => behind = self.of(&["get a\r\n", "delete a\r\n", "x"]),
            _ => {}
        }
        let [flags, exptime, len] = words;
        let line = format!("set {key}{gap}{flags} {exptime} {len}{tail}{line_end}");
        [line.as_bytes(), &value, end.as_bytes(), behind.as_bytes()].concat()
    }

    /// An `mg`, nearly always one of the usual flags.
    fn meta(&mut self) -> Vec<u8> {
        let key = self.key();
        let mut flags: Vec<&str> = Vec::new();
        for flag in ["v", "v", "k", "f", "t", "s", "c", "q"] {
            if self.below(2) == 0 && !flags.contains(&flag) {
                flags.insert(self.below(flags.len() + 1), flag);
            }
        }
        let (mut blank, mut end, mut behind) = (" ", "\r\n", "");
        match self.below(30) {
            0 => flags.push(self.of(&["h", "l", "u", "Oabc", "b", "O", "g", "p"])),
            1 => {
                flags.push(self.of(&["N30", "T10", "T-1", "R30", "C1", "E5", "v", "K", "x y", ""]))
            }
            2 => blank = self.of(&["  ", "\t", "\u{1}"]),
            3 => end = self.of(&["\n", " \r\n", "\r", "", "\r\r\n"]),
            4 => behind = self.of(&["get a\r\n", "delete a\r\n", "x", "mn\r\n"]),
            _ => {}
        }
        let flags: String = flags.iter().flat_map(|flag| [blank, *flag]).collect();
        format!("mg {key}{flags}{end}{behind}").into_bytes()
    }

    /// A binary get, nearly always a good one.
    fn binary(&mut self) -> Vec<u8> {
        let (key, op) = (self.key(), [0, 9, 0xc, 0xd][self.below(4)]);
        let mut packet = Header::request(op).packet(b"", key.as_bytes(), b"").unwrap();
        packet[12..20].copy_from_slice(&self.next().to_le_bytes());
        match self.below(30) {
            0 => packet[1] = self.byte() % 0x26,
            1 => {
                let at = 2 + self.below(10);
                packet[at] = packet[at].wrapping_add(1 + self.byte() % 4);
            }
            2 => packet.extend(b"x"),
            3 => packet.truncate(self.below(packet.len())),
            4 => packet.extend(packet.clone()),
            5 => {
                let at = 24 + self.below(key.len());
                packet[at] = self.byte();
            }
            _ => {}
        }
        packet
    }

    /// `sets` of 40 are `set`s, and some of the others; `None`: not any.
    pub(crate) fn text(&mut self, sets: Option<usize>, corpus: &[Vec<u8>]) -> Vec<u8> {
        if sets.is_some_and(|sets| self.below(40) < sets) {
            return self.set();
        }
        if self.below(40) < self.others {
            return if self.below(2) == 0 { self.meta() } else { self.binary() };
        }
        if self.below(40) < self.calm {
            return format!("get {}\r\n", self.key()).into_bytes();
        }
        let key = self.key();
        let line = match self.below(40) {
            0..17 => format!("get {key}\r\n"),
            17..20 => {
                let keys: String = (0..self.below(5)).map(|_| format!(" {}", self.key())).collect();
                format!("{} {key}{keys}\r\n", self.of(&["get", "gets"]))
            }
            20 => format!("get {key}\n"),
            21 => format!("get {key} \r\n"),
            22 => format!("delete {key}\r\n"),
            23 => format!("incr {key} 1\r\n"),
            24 => format!("touch {key} {}\r\n", self.of(&["0", "-1", "1", "2", "1000"])),
            25 => format!("mg {key} v k t\r\n"),
            26 => match self.below(4) {
                0 => format!("md {key} I T30\r\n"),
                1 => format!("mg {key} N30 v\r\n"),
                2 => format!("ms {key} 3 I\r\nabc\r\n"),
                _ => format!("md {key}\r\n"),
            },
            27 => format!("get {key}\r\ndelete {}\r\n", self.key()),
            28 if self.below(50) == 0 => "flush_all\r\n".to_owned(),
            28 => format!("gat 0 {key}\r\n"),
            29 => {
                let header = Header::request([0, 4, 0xc][self.below(3)]);
                return header.packet(b"", key.as_bytes(), b"").unwrap();
            }
            30 if sets.is_none() => "version\r\n".to_owned(),
            30 if !corpus.is_empty() => return corpus[self.below(corpus.len())].clone(),
            30 => return Vec::new(),
            n => {
                let value = self.value();
                let verb = match n {
                    ..37 if sets.is_some() => "set",
                    _ => self.of(&["add", "replace", "append", "prepend"]),
                };
                let flags = if n % 2 == 0 { self.below(10) } else { self.below(1 << 32) };
                let exptime = self.of(&["0", "0", "0", "0", "1", "2", "-1", "100000"]);
                let noreply = self.of(&["", "", " noreply"]);
                let line = format!("{verb} {key} {flags} {exptime} {}{noreply}\r\n", value.len());
                return [line.as_bytes(), &value, b"\r\n"].concat();
            }
        };
        line.into_bytes()
    }

    pub(crate) fn frame(&mut self, id: u16, sets: Option<usize>, corpus: &[Vec<u8>]) -> Vec<u8> {
        let text = self.text(sets, corpus);
        // Bursts are of 64 requests at most.
        let [id_hi, id_lo] = (id | u16::from(self.byte()) << 8).to_be_bytes();
        let mut payload = vec![id_hi, id_lo, 0, 0, 0, 1, 0, 0];
        if self.below(40) == 0 {
            let at = 2 + self.below(6);
            payload[at] = self.byte();
        }
        payload.extend(text);
        payload.truncate(1400);
        let sources = ["10.0.0.1:40000", "10.0.0.9:5000", "10.0.0.77:65535"];
        let odd = [
            "11.2.3.4:4444",
            "12.2.3.4:4444",
            "10.0.0.1:53",
            "10.0.0.1:1900",
            "10.0.0.1:1901",
            "10.0.0.2:9",
            "127.0.0.1:4444",
            "10.0.0.1:11211",
        ];
        let sources6 = ["[fd00::1]:40000", "[fd00::9]:5000", "[fd00::9:1:77]:65535"];
        let odd6 = [
            "[fd11::1]:4444",
            "[fd12::1]:4444",
            "[fd00::1]:53",
            "[fd00::1]:1900",
            "[fd00::2]:9000",
            "[::]:4444",
            "[::1]:4444",
            "[::ffff:10.0.0.1]:4444",
            "[ff02::1]:4444",
            "[fd00::1]:11211",
        ];
        let v6 = self.below(40) < self.v6;
        let src = match self.below(30) {
            0 if v6 => self.of(&odd6),
            _ if v6 => self.of(&sources6),
            0 => self.of(&odd),
            _ => self.of(&sources),
        };
        let tags = [&[7][..], &[0], &[4095], &[7, 9]];
        let vlans = if self.below(40) < self.tagged { tags[self.below(4)] } else { &[] };
        let dst = match (v6, self.below(40)) {
            (true, 0) => self.of(&["[fd00::3]:11211", "[ff02::1]:11211", "[fd00::2]:80"]),
            (true, _) => "[fd00::2]:11211",
            (false, _) => "10.0.0.2:11211",
        };
        let dst: SocketAddr = dst.parse().unwrap();
        let (src_mac, dst_mac, src) = (PEER_MAC, MAC, src.parse().unwrap());
        let mut frame =
            UdpFrame { src_mac, dst_mac, vlans, src, dst, payload: &payload }.to_vec().unwrap();
        match self.below(60) {
            0 => {
                let corruption = Corruption::ALL[self.below(Corruption::ALL.len())];
                corruption.apply(&mut frame);
            }
            1 => {
                let bit = self.below(8 * frame.len());
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            2 => {
                // Of a header, and the others still right.
                let bit = self.below(8 * 78.min(frame.len()));
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            3 => frame.truncate(self.below(frame.len())),
            4 => frame.extend(std::iter::repeat_n(0xaa, self.below(20))),
            7..12 => self.vary(&mut frame, 14 + 4 * vlans.len(), v6),
            12 if vlans.len() == 2 => frame[12..14].copy_from_slice(&[0x81, 0]),
            // The sum is zero, which is sent as its complement.
            13 => {
                let at = 40 + 4 * vlans.len() + if v6 { 20 } else { 0 };
                let [sum, id] =
                    [at, at + 2].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
                let (id, carry) = sum.overflowing_add(id);
                frame[at..at + 2].fill(0xff);
                frame[at + 2..at + 4].copy_from_slice(&(id + u16::from(carry)).to_be_bytes());
            }
            // No checksum.
            5 => {
                let at = 40 + 4 * vlans.len() + if v6 { 20 } else { 0 };
                frame[at..at + 2].fill(0);
            }
            6 if sets.is_some() => frame = corpus[self.below(corpus.len())].clone(),
            _ => {}
        }
        if frame.is_empty() {
            frame.push(0);
        }
        frame.truncate(1900);
        frame
    }
}

impl Random {
    /// Headers that may be anything, with their sums right.
    fn vary(&mut self, frame: &mut [u8], l3: usize, v6: bool) {
        let (any, at) = (self.next().to_le_bytes(), self.below(4));
        frame[7..12].copy_from_slice(&any[..5]);
        if l3 > 14 {
            // Priority, and the bit behind it.
            frame[14] = frame[14] & 0x0f | any[6] & 0xf0;
        }
        if v6 {
            // Traffic class, flow label and hop limit.
            (frame[l3], frame[l3 + 1]) = (0x60 | any[5] & 0xf, any[6]);
            frame[l3 + 7] = any[7];
            return;
        }
        // Type of service, identification, flags and hops.
        match at {
            0 => frame[l3 + 1] = any[5],
            1 => frame[l3 + 4..l3 + 6].copy_from_slice(&any[5..7]),
            2 => frame[l3 + 6] = any[5] & 0xe0,
            _ => frame[l3 + 8] = any[5],
        }
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = checksum::field(checksum::sum(&frame[l3..l3 + 20]));
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What fuzzers found worth keeping.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut all = Vec::new();
    for target in ["ascii", "binary", "classify", "datagram", "meta", "udp_frame"] {
        for entry in root.join(target).read_dir().unwrap() {
            let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.truncate(1390);
            // `stats` shows the time, and what was counted so far within a burst.
            let tells = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
            if !tells(b"stat") && !tells(&[0x80, 0x10]) {
                all.push(bytes);
            }
        }
    }
    assert!(all.len() > 50);
    all.sort_unstable();
    all
}
