//! One queue pair, the responder's half: which requests it carries out.
//!
//! In: the PSN of a request, and the length of a READ. Out: a [`Verdict`]. Rules of the InfiniBand specification,
//! volume 1, section 9.7.5: the expected PSN is carried out, earlier ones again, later ones are refused
//! once. A refusal of any other kind is the pair's end: the requester must open another. What comes with an
//! earlier PSN never is: every host that knows the addresses could send it.

use super::READ_MAX_BYTES;
use std::net::{IpAddr, Ipv4Addr};
use wire::DropReason;
use wire::roce::{Psn, syndrome};

/// Earlier PSNs that are answered again: more than a client can wait for, 128 READs of 64 KB in the smallest
/// packets. A forged source, which has another answered, must guess one of them: the fewer there are, the
/// harder.
const ANSWERED_MAX: u32 = 1 << 16;

/// Whom a queue pair connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// Our address.
    pub ours: IpAddr,
    /// The client's.
    pub theirs: IpAddr,
}

/// A queue pair. It is closed while its number is 0.
#[derive(Debug)]
pub struct Pair {
    pub(super) qpn: u32,
    pub(super) between: Between,
    /// The same, as a request's IPv4 header has them, in little-endian order; 0 over IPv6.
    addresses: u64,
    /// The client's queue pair.
    pub(super) their_qpn: u32,
    /// Bytes of payload in a packet.
    pub(super) mtu: u16,
    expected: Psn,
    /// PSNs before the expected one that were answered, as far as they count as earlier.
    answered: u32,
    /// Requests carried out.
    msn: u32,
    /// A PSN beyond the expected one was refused, and the expected one has not come since.
    has_refused: bool,
    /// A refusal was its end.
    over: bool,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To be carried out for the first time: so many packets of response.
    Read(u32),
    /// The same, once more.
    Again(u32),
    /// To be refused with this syndrome, at this PSN.
    Refuse(u8, Psn),
    /// Nothing is to be said.
    Drop(DropReason),
}

impl Pair {
    pub(super) fn closed() -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            qpn: 0,
            between: Between { ours: nobody, theirs: nobody },
            addresses: 0,
            their_qpn: 0,
            mtu: 0,
            expected: Psn::new(0),
            answered: 0,
            msn: 0,
            has_refused: false,
            over: false,
        }
    }

    /// Is between these from now on.
    pub(super) fn connect(&mut self, between: Between) {
        self.between = between;
        self.addresses = match (between.theirs, between.ours) {
            (IpAddr::V4(theirs), IpAddr::V4(ours)) => {
                let [theirs, ours] = [theirs, ours].map(|a| u32::from_le_bytes(a.octets()));
                u64::from(theirs) | u64::from(ours) << 32
            }
            _ => 0,
        };
    }

    /// Awaits this PSN.
    pub(super) fn expect(&mut self, psn: Psn) {
        (self.expected, self.answered, self.msn) = (psn, 0, 0);
        (self.has_refused, self.over) = (false, false);
    }

    /// Whether it is the open pair of this number between these.
    pub fn is(&self, qpn: u32, between: Between) -> bool {
        self.qpn == qpn && qpn != 0 && !self.over && self.between == between
    }

    /// The same, between these addresses of an IPv4 header, of which none is 0.
    #[inline]
    pub(crate) fn is_plain(&self, qpn: u32, addresses: u64) -> bool {
        self.qpn == qpn && qpn != 0 && !self.over && self.addresses == addresses
    }

    /// The client's queue pair.
    pub(crate) fn their_qpn(&self) -> u32 {
        self.their_qpn
    }

    /// Bytes of payload in a packet.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Requests carried out, modulo 2^32.
    pub fn msn(&self) -> u32 {
        self.msn
    }

    /// What to do with a request of this PSN. `len`: of a READ; `is_permitted`: whether its R_Key and addresses are
    /// right. Nothing changes but that a refusal is remembered.
    #[inline]
    pub fn judge(&mut self, (psn, len): (Psn, Option<u32>), is_permitted: bool) -> Verdict {
        let ahead = psn.ahead_of(self.expected);
        if ahead > 0 {
            return match std::mem::replace(&mut self.has_refused, true) {
                false => Verdict::Refuse(syndrome::NAK_SEQUENCE, self.expected),
                true => Verdict::Drop(DropReason::RdmaSequence),
            };
        }
        let (is_ours, len) = (len.is_some(), len.unwrap_or(0));
        let mtu = u32::from(self.mtu).max(1);
        // Most have one packet, and a division takes longer than the rest.
        let packets = if len <= mtu { 1 } else { len.div_ceil(mtu) };
        let is_short = usize::try_from(len).is_ok_and(|len| len <= READ_MAX_BYTES);
        if ahead < 0 {
            let back = ahead.unsigned_abs();
            let was_answered = is_ours && back <= self.answered && packets <= back;
            return match was_answered && is_short && is_permitted {
                true => Verdict::Again(packets),
                false => Verdict::Drop(DropReason::RdmaSequence),
            };
        }
        if !is_ours || !is_short {
            self.over = true;
            return Verdict::Refuse(syndrome::NAK_INVALID, psn);
        }
        if !is_permitted {
            self.over = true;
            return Verdict::Refuse(syndrome::NAK_ACCESS, psn);
        }
        Verdict::Read(packets)
    }

    /// The READ that the expected PSN brought is about to be answered by so many packets.
    pub fn advance(&mut self, packets: u32) {
        self.expected = self.expected.plus(packets);
        self.answered = (self.answered + packets).min(ANSWERED_MAX);
        self.msn = self.msn.wrapping_add(1);
        self.has_refused = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::roce::{ICRC_BYTES, Roce, opcode};

    /// A request with this opcode, PSN and length.
    fn request(opcode: u8, psn: u32, len: u32) -> (Psn, Option<u32>) {
        let mut data = vec![opcode, 0, 0xff, 0xff, 0, 0, 0, 1];
        data.extend(psn.to_be_bytes());
        if opcode == opcode::READ_REQUEST {
            data.extend([0; 12]);
            data.extend(len.to_be_bytes());
        }
        data.extend([0; ICRC_BYTES]);
        let request = Roce::checked(&data).unwrap();
        (request.bth.psn(), request.read.map(|read| read.len.get()))
    }

    fn read(psn: u32, len: u32) -> (Psn, Option<u32>) {
        request(opcode::READ_REQUEST, psn, len)
    }

    fn pair(expected: u32) -> Pair {
        let mut pair = Pair { mtu: 1024, qpn: 9, ..Pair::closed() };
        pair.expect(Psn::new(expected));
        pair
    }

    #[test]
    fn the_expected_one_is_carried_out_earlier_ones_again_and_later_ones_refused_once() {
        use Verdict as V;
        let mut p = pair(0xff_fffe);
        assert_eq!(p.judge(read(0xff_fffe, 3000), true), V::Read(3));
        p.advance(3);
        assert_eq!(p.msn(), 1);
        // Past the end of the numbers: 1 is expected now.
        assert_eq!(p.judge(read(2, 1), true), V::Refuse(syndrome::NAK_SEQUENCE, Psn::new(1)));
        assert_eq!(p.judge(read(3, 1), true), V::Drop(DropReason::RdmaSequence));
        assert_eq!(p.judge(read(0xff_fffe, 3000), true), V::Again(3));
        assert_eq!(p.judge(read(0xff_ffff, 2000), true), V::Again(2));
        // Longer than what was answered.
        assert_eq!(p.judge(read(0xff_ffff, 3000), true), V::Drop(DropReason::RdmaSequence));
        assert_eq!(p.judge(read(1, 0), true), V::Read(1));
        p.advance(1);
        assert_eq!(p.judge(read(9, 1), true), V::Refuse(syndrome::NAK_SEQUENCE, Psn::new(2)));
        // Before all that was answered; and so long that its PSNs go once round.
        assert_eq!(p.judge(read(0xff_fffd, 1), true), V::Drop(DropReason::RdmaSequence));
        assert_eq!(p.judge(read(0, u32::MAX), true), V::Drop(DropReason::RdmaSequence));
    }

    #[test]
    fn what_was_answered_long_ago_is_not_answered_again() {
        let mut p = pair(1 << 20);
        for _ in 0..1 << 20 {
            p.advance(1);
        }
        let expected = 2 << 20;
        for (back, verdict) in [
            (1, Verdict::Again(1)),
            (ANSWERED_MAX, Verdict::Again(1)),
            (ANSWERED_MAX + 1, Verdict::Drop(DropReason::RdmaSequence)),
            (1 << 20, Verdict::Drop(DropReason::RdmaSequence)),
        ] {
            assert_eq!(p.judge(read(expected - back, 1), true), verdict, "{back}");
        }
        // All that a client may have under way, in the smallest packets.
        let most = u32::try_from(READ_MAX_BYTES.div_ceil(256)).unwrap();
        assert!(128 * most <= ANSWERED_MAX);
    }

    #[test]
    fn what_is_not_offered_or_not_permitted_is_the_end() {
        let most = u32::try_from(READ_MAX_BYTES).unwrap();
        const READ: u8 = opcode::READ_REQUEST;
        for (opcode, len, permitted, syndrome) in [
            (0x0a, 0, true, syndrome::NAK_INVALID),
            (READ, most + 1, true, syndrome::NAK_INVALID),
            (READ, u32::MAX, true, syndrome::NAK_INVALID),
            (READ, most, false, syndrome::NAK_ACCESS),
        ] {
            // Over only by the expected PSN.
            let mut p = pair(4);
            p.advance(1);
            let between = p.between;
            let earlier = request(opcode, 4, len);
            assert_eq!(p.judge(earlier, permitted), Verdict::Drop(DropReason::RdmaSequence));
            assert!(p.is(9, between) && !p.is(8, between));
            let refused = p.judge(request(opcode, 5, len), permitted);
            assert_eq!(refused, Verdict::Refuse(syndrome, Psn::new(5)));
            assert!(!p.is(9, between));
        }
        assert_eq!(pair(5).judge(read(5, most), true), Verdict::Read(65));
    }
}
