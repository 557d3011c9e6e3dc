//! Responses: READ responses of up to a path MTU each, and refusals.
//!
//! In: the request's frame, whose headers every response repeats with the parties swapped, and what it
//! gets. Out: frames that are fit to send, the request's own the last of them. Fails: when there are too few slots; then nothing
//! was written.

use super::image::{Image, Pieces};
use crate::plain::seal::turn_read;
use crate::plain::vector::Vector;
use crate::plain::window::{WINDOW, put};
use base::crc32::pieces::Piece;
use driver_shim::{Frame, Region, TxOffload};
use gpu::{Entry, EntryFlags};
use wire::ipv4::{PLAIN_L3, PLAIN_L4};
use wire::roce::{
    Aeth, BTH_BYTES, Bth, ICRC_BYTES, MASK4, PSEUDO_BYTES, Psn, opcode, seal, syndrome, turn,
};
use wire::udp::HEADER_BYTES as UDP_HEADER_BYTES;
use zerocopy::{IntoBytes, transmute};

const AETH_BYTES: usize = size_of::<Aeth>();
/// Where what a plain packet's ICRC covers begins.
pub(super) const PSEUDO: usize = PLAIN_L3 as usize - PSEUDO_BYTES;
/// Where the payload of a plain response with an AETH begins.
const PAYLOAD: usize = PLAIN_L4 as usize + UDP_HEADER_BYTES + BTH_BYTES + AETH_BYTES;

/// To whom a response goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct To {
    /// The requester's queue pair.
    pub(super) qpn: u32,
    /// Of the first response.
    pub(super) psn: Psn,
    /// Requests carried out.
    pub(super) msn: u32,
}

/// Bytes of UDP payload in so many responses with `len` bytes of an item, as a refusal has it, too.
pub(super) fn payload_bytes(packets: u32, len: usize) -> usize {
    let packets = usize::try_from(packets).unwrap_or(usize::MAX);
    // The first and the last have an AETH, and the last alone is padded.
    packets * (BTH_BYTES + ICRC_BYTES) + packets.min(2) * AETH_BYTES + len.next_multiple_of(4)
}

/// Takes the frames of all responses but the last.
pub(super) fn reserve(region: &Region, packets: u32, frames: &mut Vec<Frame>) -> bool {
    for _ in 1..packets {
        match region.alloc() {
            Some(frame) => frames.push(frame),
            None => {
                frames.clear();
                return false;
            }
        }
    }
    true
}

/// Makes a plain request's frame its only response, with all of the image. `ip_sum` is the sum of its IPv4 header but
/// for its length. `None`: they do not fit, and nothing was written.
#[inline(always)]
pub(super) fn only(
    request: &mut Frame,
    ip_sum: u16,
    (bth, to): (&Bth, To),
    image: &Image<'_>,
    vector: impl Vector,
) -> Option<()> {
    let len = image.len();
    let pad = len.wrapping_neg() & 3;
    let end = PAYLOAD + len + pad;
    let fits = end + ICRC_BYTES <= WINDOW;
    let mut frame = request.open::<WINDOW>().filter(|_| fits)?;
    let window = &mut *frame.bytes;
    let udp_len = u16::try_from(end + ICRC_BYTES - usize::from(PLAIN_L4)).ok()?;
    let reply = Bth::reply(opcode::READ_ONLY, u8::try_from(pad).unwrap_or(0), to.qpn, to.psn, bth);
    turn_read(window, udp_len, ip_sum, vector);
    put::<BTH_BYTES, _>(window, PAYLOAD - AETH_BYTES - BTH_BYTES, transmute!(reply));
    put::<AETH_BYTES, _>(
        window,
        PAYLOAD - AETH_BYTES,
        transmute!(Aeth::new(syndrome::ACK, to.msn)),
    );
    // What is behind the bytes of the image is written over by its end, or is the padding.
    put(window, PAYLOAD + len, [0; 4]);
    image.copy(window.get_mut(PAYLOAD..PAYLOAD + len)?, vector)?;
    let icrc = vector.masked_crc(window.get(PSEUDO..end)?, &MASK4);
    put(window, end, icrc.to_le_bytes());
    frame.set_len(end + ICRC_BYTES);
    *frame.tx = TxOffload::default();
    Some(())
}

/// Writes `len` bytes of the image from `at` on into responses of `mtu` bytes: `frames`, one fewer
/// than there are responses, and the request's own.
#[inline(never)]
pub(super) fn read(
    request: &mut Frame,
    entry: &Entry,
    (bth, to): (&Bth, To),
    (image, at, len): (&Image<'_>, usize, usize),
    mtu: usize,
    frames: &mut [Frame],
) -> Option<()> {
    let (last, mut pieces) = (frames.len(), image.pieces(at));
    let begin = usize::from(entry.l4) + UDP_HEADER_BYTES;
    for (n, frame) in frames.iter_mut().enumerate() {
        frame.fill(request.bytes().get(..begin)?).ok()?;
        frame.watched = request.watched;
        let opcode = if n == 0 { opcode::READ_FIRST } else { opcode::READ_MIDDLE };
        let piece = (&mut pieces, mtu);
        respond(frame, entry, opcode, bth, To { psn: packet(to.psn, n), ..to }, Some(piece))?;
    }
    let opcode = if last == 0 { opcode::READ_ONLY } else { opcode::READ_LAST };
    let piece = (&mut pieces, len.checked_sub(last * mtu)?);
    respond(request, entry, opcode, bth, To { psn: packet(to.psn, last), ..to }, Some(piece))
}

/// Makes the request's frame its refusal.
pub(super) fn refuse(
    request: &mut Frame,
    entry: &Entry,
    bth: &Bth,
    to: To,
    syndrome: u8,
) -> Option<()> {
    write(request, entry, opcode::ACKNOWLEDGE, bth, to, Some(syndrome), None)
}

fn packet(first: Psn, n: usize) -> Psn {
    first.plus(u32::try_from(n).unwrap_or(0))
}

fn respond(
    frame: &mut Frame,
    entry: &Entry,
    opcode: u8,
    bth: &Bth,
    to: To,
    piece: Option<(&mut Pieces<'_>, usize)>,
) -> Option<()> {
    let says = (opcode != opcode::READ_MIDDLE).then_some(syndrome::ACK);
    write(frame, entry, opcode, bth, to, says, piece)
}

/// Writes one response behind the UDP header, and seals it.
fn write(
    frame: &mut Frame,
    entry: &Entry,
    opcode: u8,
    bth: &Bth,
    to: To,
    syndrome: Option<u8>,
    piece: Option<(&mut Pieces<'_>, usize)>,
) -> Option<()> {
    let what = (opcode, bth, to, syndrome, piece);
    match (entry.l3, entry.l4, entry.flags.has(EntryFlags::IPV6)) {
        // The usual place, compiled with what is known of it.
        (PLAIN_L3, PLAIN_L4, false) => write_at(frame, (PLAIN_L3, PLAIN_L4, false), what),
        at => write_at(frame, at, what),
    }
}

/// What a response says.
type What<'a, 'i> = (u8, &'a Bth, To, Option<u8>, Option<(&'a mut Pieces<'i>, usize)>);

#[inline(always)]
fn write_at(
    frame: &mut Frame,
    (l3, l4, ipv6): (u8, u8, bool),
    (opcode, bth, to, syndrome, piece): What<'_, '_>,
) -> Option<()> {
    let len = piece.as_ref().map_or(0, |(_, len)| *len);
    let pad = len.wrapping_neg() & 3;
    let begin = usize::from(l4) + UDP_HEADER_BYTES;
    let head = BTH_BYTES + if syndrome.is_some() { AETH_BYTES } else { 0 };
    frame.set_len(begin + head + len + pad + ICRC_BYTES).ok()?;
    frame.tx = TxOffload::default();
    let bytes = frame.bytes_mut();
    // The headers come first: what has just been written is not read again until a payload has been copied.
    turn(bytes, l3, l4, ipv6)?;
    let reply = Bth::reply(opcode, u8::try_from(pad).unwrap_or(0), to.qpn, to.psn, bth);
    let (bth, mut rest) = bytes.get_mut(begin..)?.split_first_chunk_mut::<BTH_BYTES>()?;
    bth.copy_from_slice(reply.as_bytes());
    if let Some(syndrome) = syndrome {
        let (aeth, behind) = rest.split_first_chunk_mut::<AETH_BYTES>()?;
        aeth.copy_from_slice(Aeth::new(syndrome, to.msn).as_bytes());
        rest = behind;
    }
    let (payload, behind) = rest.split_at_mut_checked(len)?;
    let mut written = piece.map_or_else(Piece::default, |(pieces, _)| pieces.copy(payload));
    if pad > 0 {
        behind.get_mut(..pad)?.fill(0);
        written = written.then(Piece::zeros(pad));
    }
    seal(bytes, l3, l4, ipv6, written)
}
