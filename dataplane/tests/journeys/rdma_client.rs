//! A requester of RDMA READs, which shares no code with the responder: packets by etherparse, the
//! invariant CRC as annex A17.3.3 lists its bytes.

use crate::stream_client::Client;
use crate::world::{CLIENT4, CLIENT6, SERVER4, SERVER6, World, Wrap, frame};
use smoltcp::iface::SocketHandle;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) const ROCE: u16 = 4791;
const FROM: u16 = 0xc123;

/// A response taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    /// Syndrome and message number.
    pub(crate) aeth: Option<(u8, u32)>,
    pub(crate) payload: Vec<u8>,
}

/// A queue pair of the client's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester {
    pub(crate) wrap: Wrap,
    /// The server's number.
    pub(crate) to: u32,
    /// Of the next request.
    pub(crate) psn: u32,
    pub(crate) mtu: u32,
}

/// What `g` says of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stag {
    pub(crate) stag: u64,
    pub(crate) len: u32,
}

/// The client's number.
pub(crate) const OWN_QPN: u32 = 0x77;

/// One line of the service's.
pub(crate) fn line(client: &mut Client, w: &mut World, c: SocketHandle, ask: &[u8]) -> String {
    let mut got = client.ask(w, c, ask, 1);
    while !got.ends_with(b"\r\n") {
        got.extend(client.ask(w, c, b"", 1));
    }
    String::from_utf8(got).unwrap()
}

/// Stores a value, and gives its stag.
pub(crate) fn store(
    client: &mut Client,
    w: &mut World,
    c: SocketHandle,
    key: &str,
    value: &[u8],
) -> Stag {
    let head = format!("ms {key} {} g F7\r\n", value.len());
    let said = line(client, w, c, &[head.as_bytes(), value, b"\r\n"].concat());
    stag(said.strip_prefix("HD g").unwrap_or_else(|| panic!("{said}")))
}

pub(crate) fn stag(text: &str) -> Stag {
    let (stag, len) = text.trim_end().split_once(',').unwrap();
    assert_eq!(stag.len(), 16);
    Stag { stag: u64::from_str_radix(stag, 16).unwrap(), len: len.parse().unwrap() }
}

impl Requester {
    pub(crate) fn connect(
        client: &mut Client,
        w: &mut World,
        c: SocketHandle,
        wrap: Wrap,
        (psn, mtu): (u32, u32),
    ) -> Self {
        let (theirs, ours): (IpAddr, IpAddr) = match wrap {
            Wrap::V4 => (CLIENT4.into(), SERVER4.into()),
            _ => (CLIENT6.into(), SERVER6.into()),
        };
        let gid = |ip: IpAddr| -> Ipv6Addr {
            match ip {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            }
        };
        let ask = format!("rdma {OWN_QPN} {psn} {} {mtu}\r\n", gid(theirs));
        let said = line(client, w, c, ask.as_bytes());
        let words: Vec<&str> = said.trim_end().split(' ').collect();
        let ["RDMA", to, _, server, agreed] = words[..] else { panic!("{said}") };
        assert_eq!((server.parse(), agreed.parse()), (Ok(gid(ours)), Ok(mtu)), "{said}");
        Self { wrap, to: to.parse().unwrap(), psn, mtu }
    }

    /// A READ request.
    pub(crate) fn read(&self, stag: u64, offset: u32, len: u32) -> Vec<u8> {
        let [rkey, high] = [stag >> 32, stag & 0xffff_ffff];
        let mut reth = (high << 32 | u64::from(offset)).to_be_bytes().to_vec();
        reth.extend(u32::try_from(rkey).unwrap().to_be_bytes());
        reth.extend(len.to_be_bytes());
        self.packet(0x0c, &reth)
    }

    /// Any packet.
    pub(crate) fn packet(&self, opcode: u8, behind: &[u8]) -> Vec<u8> {
        let mut data = vec![opcode, 0x40, 0xff, 0xff];
        data.extend(self.to.to_be_bytes());
        data.extend((self.psn | 1 << 31).to_be_bytes());
        data.extend(behind);
        data.extend([0; 4]);
        let mut bytes = frame(self.wrap, FROM, ROCE, &data);
        let icrc = icrc(&bytes);
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&icrc.to_le_bytes());
        bytes
    }

    /// Sends a request and gives what comes back. What is TCP goes to the client's stack.
    pub(crate) fn ask(&self, client: &mut Client, w: &mut World, bytes: &[u8]) -> Vec<Response> {
        w.send(bytes);
        w.settle();
        self.come(client, w)
    }

    /// What has come back.
    pub(crate) fn come(&self, client: &mut Client, w: &mut World) -> Vec<Response> {
        let mut responses = Vec::new();
        for frame in w.received(0) {
            match is_roce(frame.bytes()) {
                true => responses.push(self.open(frame.bytes())),
                false => client.far.come.push_back(frame.bytes().to_vec()),
            }
        }
        responses
    }

    /// READs all of an image, if the responses are as they should be. The PSN goes on.
    pub(crate) fn fetch(&mut self, client: &mut Client, w: &mut World, stag: Stag) -> Vec<u8> {
        let responses = self.ask(client, w, &self.read(stag.stag, 0, stag.len));
        let n = u32::try_from(responses.len()).unwrap();
        assert_eq!(n, stag.len.div_ceil(self.mtu).max(1), "{stag:?}");
        let mut image = Vec::new();
        for (i, r) in (0..).zip(&responses) {
            let opcode = match (i, n) {
                (_, 1) => 0x10,
                (0, _) => 0x0d,
                (i, n) if i + 1 == n => 0x0f,
                _ => 0x0e,
            };
            assert_eq!((r.opcode, r.psn), (opcode, (self.psn + i) & 0xff_ffff));
            assert_eq!(r.aeth.map(|(syndrome, _)| syndrome), (opcode != 0x0e).then_some(0x1f));
            assert!(i + 1 == n || r.payload.len() == self.mtu as usize);
            image.extend(&r.payload);
        }
        assert_eq!(image.len(), stag.len as usize);
        self.psn = (self.psn + n) & 0xff_ffff;
        image
    }

    /// Takes a response apart. Panics unless it is as well formed as annex A17 wants it.
    fn open(&self, bytes: &[u8]) -> Response {
        let l4 = if self.wrap == Wrap::V4 { 34 } else { 54 };
        assert_eq!(bytes[l4..l4 + 4], [0xc1, 0x23, 0x12, 0xb7], "UDP ports");
        assert_eq!(
            usize::from(u16::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5]])),
            bytes.len() - l4
        );
        assert_eq!(bytes[l4 + 6..l4 + 8], [0, 0], "a UDP checksum");
        match self.wrap {
            Wrap::V4 => {
                let packet = etherparse::Ipv4HeaderSlice::from_slice(&bytes[14..]).unwrap();
                assert_eq!((packet.source(), packet.destination()), (SERVER4, CLIENT4));
                let sum = packet.to_header().calc_header_checksum();
                assert_eq!(packet.header_checksum(), sum);
                assert_eq!(usize::from(packet.total_len()), bytes.len() - 14);
            }
            _ => {
                let packet = etherparse::Ipv6HeaderSlice::from_slice(&bytes[14..]).unwrap();
                assert_eq!((packet.source(), packet.destination()), (SERVER6, CLIENT6));
                assert_eq!(usize::from(packet.payload_length()), bytes.len() - 54);
            }
        }
        let (covered, crc) = bytes.split_at(bytes.len() - 4);
        assert_eq!(crc, icrc(bytes).to_le_bytes(), "ICRC");
        let bth = &covered[l4 + 8..];
        let n = |at: usize| u32::from_be_bytes(bth[at..at + 4].try_into().unwrap());
        assert_eq!((bth[1] & 0x4f, n(4)), (0x40, OWN_QPN));
        let pad = usize::from(bth[1] >> 4 & 3);
        let aeth = (bth[0] != 0x0e).then(|| (bth[12], n(12) & 0xff_ffff));
        let payload = &bth[if aeth.is_some() { 16 } else { 12 }..];
        let (payload, padding) = payload.split_at(payload.len() - pad);
        assert!(padding.iter().all(|b| *b == 0) && bth.len() % 4 == 0);
        Response { opcode: bth[0], psn: n(8) & 0xff_ffff, aeth, payload: payload.to_vec() }
    }
}

fn is_roce(bytes: &[u8]) -> bool {
    let (protocol, port) = match bytes[12..14] {
        [8, 0] => (bytes[23], &bytes[36..38]),
        [0x86, 0xdd] => (bytes[20], &bytes[56..58]),
        _ => return false,
    };
    protocol == 17 && port == ROCE.to_be_bytes()
}

/// The invariant CRC of a frame whose last four bytes it will be, or is.
pub(crate) fn icrc(bytes: &[u8]) -> u32 {
    let mut covered = [&[0xff; 8], &bytes[14..bytes.len() - 4]].concat();
    let ip = &mut covered[8..];
    let l4 = match ip[0] >> 4 {
        4 => {
            for at in [1, 8, 10, 11] {
                ip[at] = 0xff;
            }
            20
        }
        _ => {
            ip[0] |= 0x0f;
            for at in [1, 2, 3, 7] {
                ip[at] = 0xff;
            }
            40
        }
    };
    for at in [l4 + 6, l4 + 7, l4 + 8 + 4] {
        ip[at] = 0xff;
    }
    crc32fast::hash(&covered)
}
