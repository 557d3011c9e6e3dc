//! Stages 3 and 4 for the usual READ request, whose headers are recognised by one comparison.
//!
//! In: a burst. Out: its plain READ requests wait, in their order; the other frames are as they came, for the
//! general stages, which name every reason to drop one. Plain is what comes over IPv4 without options or VLAN
//! tags, from a trusted source, with checksums that are right. Frames of one queue pair keep their order: behind
//! what may be another RDMA packet, none is taken. Nothing fails.

use super::packets::PSEUDO;
use super::stage::{Asked, Origin, Read, Reads, WAITING_MAX};
use crate::plain::requests::LOOK;
use crate::plain::vector::{Compiled, Vector};
use crate::plain::window::part;
use crate::plain::{FastPathMode, RequestMatcher};
use driver_shim::{Burst, Frame, Region};
use gpu::EntryFlags;
use std::hint::black_box;
use wire::eth::IPV4;
use wire::ipv4::{PLAIN_L3, PLAIN_L4, UDP, VERSION_IHL};
use wire::roce::{BTH_BYTES, Bth, ICRC_BYTES, MASK4, PORT, READ_BYTES, Reth};
use wire::udp::HEADER_BYTES as UDP_HEADER_BYTES;
use wire::verify::verify_ip4_header;
use zerocopy::transmute;

/// Where the base transport header is.
const BTH: usize = PLAIN_L4 as usize + UDP_HEADER_BYTES;
/// Bytes of the frame of a READ request.
const FRAME_BYTES: usize = BTH + READ_BYTES;
const RETH_BYTES: usize = size_of::<Reth>();
/// Bytes that its ICRC covers.
const ICRC_COVERS: usize = FRAME_BYTES - ICRC_BYTES - PSEUDO;
const _: () = assert!(FRAME_BYTES <= LOOK && BTH_BYTES + RETH_BYTES + ICRC_BYTES == READ_BYTES);

/// Whether a burst begins with what may be an RDMA packet: then plain ones are taken before all others, and there
/// are none left, mostly.
#[inline(never)]
pub fn leads(burst: &Burst) -> bool {
    burst.first().is_some_and(|first| !is_other(first))
}

impl Reads {
    /// Takes in the plain READ requests of a burst from the worker's port of this number.
    pub(crate) fn enter_plain(
        &mut self,
        burst: &mut Burst,
        matcher: &mut RequestMatcher,
        region: &Region,
        port: usize,
    ) {
        let mark = u8::try_from(port).unwrap_or(u8::MAX);
        let Self { waiting, asked, mode, .. } = self;
        if *mode != FastPathMode::Off {
            mode.run_on_this_cpu(Entering { waiting, asked, burst, matcher, region, mark });
        }
    }
}

struct Entering<'e> {
    waiting: &'e mut Vec<Frame>,
    asked: &'e mut Vec<Asked>,
    burst: &'e mut Burst,
    matcher: &'e mut RequestMatcher,
    region: &'e Region,
    mark: u8,
}

impl Compiled for Entering<'_> {
    type Done = ();

    #[inline(always)]
    fn run(self, vector: impl Vector) {
        let Self { waiting, asked, burst, matcher, region, mark } = self;
        let mut taken = 0_u64;
        for (n, frame) in burst.iter().enumerate() {
            let is_here = asked.len() < WAITING_MAX && region.owns(frame);
            let plain = if is_here { plain(frame, matcher, mark, vector) } else { None };
            match plain {
                Some(plain) => {
                    asked.push(plain);
                    taken |= 1 << n;
                }
                None if is_other(frame) => {}
                None => break,
            }
        }
        if taken.count_ones() as usize == burst.len() {
            burst.drain(..).for_each(|frame| waiting.push(frame));
            return;
        }
        let mut left = Burst::new();
        for (n, frame) in burst.drain(..).enumerate() {
            if taken >> n & 1 == 1 {
                waiting.push(frame);
            } else {
                left.push(frame);
            }
        }
        burst.extend(left.drain(..));
    }
}

/// The request in a frame, if it is a plain one.
#[inline(always)]
fn plain(
    frame: &Frame,
    matcher: &mut RequestMatcher,
    mark: u8,
    vector: impl Vector,
) -> Option<Asked> {
    let look = frame.window::<LOOK>().filter(|_| frame.len() >= FRAME_BYTES)?;
    let ip_sum = matcher.reader(look, vector)?;
    // Else the compiler takes what it reads now out of the words that were compared.
    let look = black_box(look);
    let icrc = vector.masked_crc(part::<ICRC_COVERS, LOOK>(look, PSEUDO), &MASK4);
    let is_right = (frame.rx.ip_good.is_set()
        || verify_ip4_header(part::<FRAME_BYTES, LOOK>(look, 0), PLAIN_L3))
        && icrc.to_le_bytes() == *part(look, FRAME_BYTES - ICRC_BYTES);
    let bth: Bth = transmute!(*part::<BTH_BYTES, LOOK>(look, BTH));
    let reth: Reth = transmute!(*part::<RETH_BYTES, LOOK>(look, BTH + BTH_BYTES));
    let origin = Origin { l3: PLAIN_L3, l4: PLAIN_L4, flags: EntryFlags::default(), mark };
    let read = Some(Read::of(&reth));
    is_right.then_some(Asked { origin, ip_sum: Some(ip_sum), bth, read })
}

/// Whether it is no RDMA packet, as far as a glance shows.
fn is_other(frame: &Frame) -> bool {
    let Some(look) = frame.window::<LOOK>() else { return false };
    let word = |at| u16::from_be_bytes(*part(look, at));
    let [version, protocol] = [14, 23].map(|at| part::<1, LOOK>(look, at));
    (word(12), *version) == (IPV4, [VERSION_IHL]) && (*protocol != [UDP] || word(36) != PORT)
}
