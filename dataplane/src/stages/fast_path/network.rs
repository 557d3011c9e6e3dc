//! What of a plain `get` and of its reply depends on IP's version.
//!
//! In: frames as they came, then windows with a reply's text. Out: what an answer needs of the request; a frame that
//! is fit to send. From UDP's header on both versions look the same, so everything else works on a window that
//! begins as many bytes into the frame as IPv6's header is longer than IPv4's. Nothing fails.

use super::requests::{Asked, LOOK, Requests};
use super::seal::{self, L4};
use super::vector::Vector;
use super::window::{WINDOW, part, put};
use driver_shim::{Frame, Open, TxOffload};
use wire::ipv4::{PLAIN_L3, UDP};
use wire::reply::TTL;

/// A version of IP.
pub(super) trait Network {
    /// Bytes of a frame before its window.
    const FRONT: usize;
    /// Of the passes over a burst, its is the first.
    const IS_FIRST: bool = Self::FRONT == 0;
    /// The beginning of a frame: what is looked at.
    type Look;
    /// A frame that a reply is written into.
    type Open<'f>;

    /// `None`: it does not lie in the slot.
    fn look(frame: &Frame) -> Option<&Self::Look>;
    /// The window of what is looked at.
    fn window(look: &Self::Look) -> &[u8; LOOK];
    /// The request in the frame, if it is one for the fast path.
    fn asked(
        requests: &mut Requests,
        frame: &Frame,
        look: &Self::Look,
        vector: impl Vector,
    ) -> Option<Asked>;
    /// `None`: it does not lie in the slot.
    fn open(frame: &mut Frame) -> Option<Self::Open<'_>>;
    /// The window to write into, which is always there.
    fn text<'o>(open: &'o mut Self::Open<'_>) -> Option<&'o mut [u8; WINDOW]>;
    /// Turns the headers round as far as they lie in the window, and sets lengths and checksums. `sum` is that of
    /// all that UDP's covers, `header` as in [`Asked`].
    fn turn<const BY_PORT: bool>(
        window: &mut [u8; WINDOW],
        udp_len: u16,
        header: u16,
        sum: u64,
        vector: impl Vector,
    );
    /// Does the rest of that, sets the frame's length, and says what the port is to fill in.
    fn finish<const BY_PORT: bool>(open: &mut Self::Open<'_>, udp_len: u16, vector: impl Vector);
}

/// IPv4 without options.
pub(super) struct V4;

impl Network for V4 {
    const FRONT: usize = 0;
    type Look = [u8; LOOK];
    type Open<'f> = Open<'f, WINDOW>;

    #[inline(always)]
    fn look(frame: &Frame) -> Option<&[u8; LOOK]> {
        frame.window()
    }

    #[inline(always)]
    fn window(look: &[u8; LOOK]) -> &[u8; LOOK] {
        look
    }

    #[inline(always)]
    fn asked(
        requests: &mut Requests,
        frame: &Frame,
        look: &[u8; LOOK],
        vector: impl Vector,
    ) -> Option<Asked> {
        requests.asked(frame, look, vector)
    }

    #[inline(always)]
    fn open(frame: &mut Frame) -> Option<Open<'_, WINDOW>> {
        frame.open()
    }

    #[inline(always)]
    fn text<'o>(open: &'o mut Open<'_, WINDOW>) -> Option<&'o mut [u8; WINDOW]> {
        Some(open.bytes)
    }

    #[inline(always)]
    fn turn<const BY_PORT: bool>(
        window: &mut [u8; WINDOW],
        udp_len: u16,
        header: u16,
        sum: u64,
        vector: impl Vector,
    ) {
        seal::turn::<BY_PORT>(window, udp_len, header, sum, vector);
    }

    #[inline(always)]
    fn finish<const BY_PORT: bool>(open: &mut Open<'_, WINDOW>, udp_len: u16, _: impl Vector) {
        seal::finish::<BY_PORT>(open, udp_len);
    }
}

/// IPv6 without extension headers.
pub(super) struct V6;

/// By how much IPv6's header is longer than IPv4's.
const FRONT: usize = 20;
/// First byte of the IPv6 header, which is [`wire::ipv4::PLAIN_L3`] as well, and of its addresses.
const L3: usize = PLAIN_L3 as usize;
const SOURCE: usize = L3 + 8;
const DESTINATION: usize = SOURCE + 16;
/// First byte of the UDP header.
const UDP_AT: usize = FRONT + L4;
/// Bytes of a frame that are looked at, and those that a reply may have.
pub(super) const LOOK_V6: usize = FRONT + LOOK;
const WIDE: usize = FRONT + WINDOW;
/// Version, class and flow of a reply, and what follows its length.
const BEFORE_LENGTH: [u8; 4] = wire::ipv6::VERSION.to_be_bytes();

impl Network for V6 {
    const FRONT: usize = FRONT;
    type Look = [u8; LOOK_V6];
    type Open<'f> = Open<'f, WIDE>;

    #[inline(always)]
    fn look(frame: &Frame) -> Option<&[u8; LOOK_V6]> {
        frame.window()
    }

    #[inline(always)]
    fn window(look: &[u8; LOOK_V6]) -> &[u8; LOOK] {
        part(look, FRONT)
    }

    #[inline(always)]
    fn asked(
        requests: &mut Requests,
        frame: &Frame,
        look: &[u8; LOOK_V6],
        vector: impl Vector,
    ) -> Option<Asked> {
        requests.asked_v6(frame, look, vector)
    }

    #[inline(always)]
    fn open(frame: &mut Frame) -> Option<Open<'_, WIDE>> {
        frame.open()
    }

    #[inline(always)]
    fn text<'o>(open: &'o mut Open<'_, WIDE>) -> Option<&'o mut [u8; WINDOW]> {
        open.bytes.last_chunk_mut()
    }

    #[inline(always)]
    fn turn<const BY_PORT: bool>(
        window: &mut [u8; WINDOW],
        udp_len: u16,
        header: u16,
        sum: u64,
        _: impl Vector,
    ) {
        let udp_sum = seal::udp_sum::<BY_PORT>(udp_len, header, sum);
        let behind = u64::from(udp_len.swap_bytes()) << 32 | u64::from(udp_sum) << 48;
        let ports = u32::from_le_bytes(*part(window, L4)).rotate_left(16);
        put(window, L4, (u64::from(ports) | behind).to_le_bytes());
    }

    #[inline(always)]
    fn finish<const BY_PORT: bool>(open: &mut Open<'_, WIDE>, udp_len: u16, vector: impl Vector) {
        let bytes = &mut *open.bytes;
        if let Some(head) = bytes.first_chunk_mut() {
            vector.turn_ethernet(head);
        }
        let [a, b, c, d] = BEFORE_LENGTH;
        let [hi, lo] = udp_len.to_be_bytes();
        put(bytes, L3, [a, b, c, d, hi, lo, UDP, TTL]);
        let (source, destination): ([u8; 16], [u8; 16]) =
            (*part(bytes, SOURCE), *part(bytes, DESTINATION));
        put(bytes, SOURCE, destination);
        put(bytes, DESTINATION, source);
        open.set_len(UDP_AT + usize::from(udp_len));
        *open.tx = if BY_PORT {
            TxOffload {
                ip: false.into(),
                udp: true.into(),
                ipv6: true.into(),
                l2_len: PLAIN_L3,
                l3_len: L3_LEN,
            }
        } else {
            TxOffload::default()
        };
    }
}

/// Bytes of the header.
const L3_LEN: u8 = 40;
const _: () = assert!(L3_LEN as usize == wire::ipv6::HEADER_BYTES);
const _: () = assert!(UDP_AT == L3 + L3_LEN as usize);
