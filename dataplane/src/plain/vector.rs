//! The steps of the fast path that vector instructions do faster, each with a portable twin.
//!
//! In: fixed blocks of bytes and how many of them count. Out: the same from both, to the bit (the
//! tests compare them). [`Avx2`] can be had only on a processor that has what its methods use, so
//! that holding one is what makes them sound; nothing here reads or writes beyond a slice.
#![allow(unsafe_code)]

use base::checksum::Pieces;
use base::crc32::MASK_BYTES;
use store::Store;

/// Longest key that a block holds.
pub(crate) const KEY_BLOCK: usize = 32;
/// What any key lies in, as whole words.
pub(crate) const LONG_BLOCK: usize = (memcache::KEY_MAX_BYTES / 8 + 1) * 8;
/// Most bytes of a plain `get` that a sum covers: addresses, UDP and memcached headers, `get `, a key
/// of [`KEY_BLOCK`] bytes and the line end, and two bytes more.
pub(crate) const SUM_BLOCK: usize = 64;
/// Bytes of an IPv4 header without options.
pub(crate) const IP_HEAD: usize = 20;
/// Where UDP's length stands behind the first of the addresses.
const UDP_LEN: usize = 12;
/// The protocol in UDP's pseudo-header, as it stands in a sum.
pub(crate) const PROTOCOL: u32 = (wire::ipv4::UDP as u32) << 8;
/// Bytes of the headers that are compared.
pub(crate) const HEAD: usize = 48;
/// Requests that are hashed together.
pub(crate) const ROW: usize = 4;
/// Rows between one step and the next: what memory takes to answer, in the work of a row.
pub(crate) const ROWS_AHEAD: usize = 2;

/// What is done to a block of bytes. Sums are those of the Internet checksum over little-endian
/// words, folded where they have 16 bits.
pub(crate) trait Vector: Copy {
    /// Whether `head` is `want` where `mask` has ones.
    fn fits(self, head: &[u8; HEAD], mask: &[u8; HEAD], want: &[u8; HEAD]) -> bool;
    /// Whether the first `len` bytes, at least one, have neither blanks nor control characters.
    fn is_word(self, block: &[u8; KEY_BLOCK], len: usize) -> bool;
    /// How many bytes come before the first blank or control character.
    fn word_len(self, block: &[u8; KEY_BLOCK]) -> usize;
    /// Which of the bytes are blanks, and which are decimal digits: a bit each.
    fn blanks_and_digits(self, block: &[u8; KEY_BLOCK]) -> (u32, u32);
    /// The sum of the first `len` bytes, not folded further than that. There are as many up to the next whole
    /// block of 32 bytes, or it is 0.
    fn sum(self, bytes: &[u8], len: usize) -> u32;
    /// The same of a block that has them: at most `N`, which is 32 times 1 to 4.
    fn sum_block<const N: usize>(self, block: &[u8; N], len: usize) -> u32;
    /// Whether the first `len` bytes are the same.
    fn same(self, a: &[u8; KEY_BLOCK], b: &[u8; KEY_BLOCK], len: usize) -> bool;
    /// Whether the checksums of an IPv4 header and of a datagram are right: of the first [`IP_HEAD`] bytes
    /// of `header`, and of the first `len` bytes of `block`, addresses and datagram, with the rest of UDP's
    /// pseudo-header. `len` is 14 at least, so that UDP's length is there; `N` is 32 times 1 to 4.
    fn sums_hold<const N: usize>(self, header: &[u8; 32], block: &[u8; N], len: usize) -> bool;
    /// [`masked`](base::crc32::masked).
    fn masked_crc(self, bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32;
    /// [`behind`](base::crc32::behind).
    fn crc_behind(self, first: [u8; 8], bytes: &[u8]) -> u32;
    /// The hashes of the first `lens[n]` bytes of `keys[n]`.
    fn hash(self, store: &Store, keys: &[[u8; KEY_BLOCK]; ROW], lens: [u8; ROW]) -> [u64; ROW];
    /// The same of longer blocks.
    fn hash_long(
        self,
        store: &Store,
        keys: [&[u8; LONG_BLOCK]; ROW],
        lens: [u8; ROW],
    ) -> [u64; ROW];
    /// Copies `from` to `to`, which is as long, and gives its sum, not folded further than that.
    fn copy_and_sum(self, to: &mut [u8], from: &[u8]) -> u32;
    /// Makes the sender's Ethernet address the receiver's, and the other way round; the type stays,
    /// and behind it comes what an IPv4 header begins with.
    fn turn_ethernet(self, head: &mut [u8; 16]);
    /// Does the same to addresses and ports, and sets the four bytes behind them.
    fn turn_parties(self, parties: &mut [u8; 16], behind: u32);
}

/// What is compiled once for each kind of processor.
pub(crate) trait Compiled {
    /// What comes of it.
    type Done;

    /// Does it. To be inlined, so that it is compiled for the processor of its caller.
    fn run(self, vector: impl Vector) -> Self::Done;
}

/// Copies `from` to `to`, which is as long, and gives its sum; by whichever the processor has.
#[inline]
pub(crate) fn copy_and_sum(to: &mut [u8], from: &[u8]) -> Pieces {
    #[cfg(target_arch = "x86_64")]
    if let Some(vector) = Avx2::detect() {
        return Pieces::added(vector.copy_and_sum(to, from));
    }
    Pieces::added(Portable.copy_and_sum(to, from))
}

#[cfg(target_arch = "x86_64")]
mod long_hash;
mod portable;
pub(crate) use portable::Portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::plain::sum::{at, fold32, turned};
    use crate::plain::vector::{
        Compiled, HEAD, IP_HEAD, KEY_BLOCK, LONG_BLOCK, PROTOCOL, ROW, SUM_BLOCK, Vector, long_hash,
    };
    use base::checksum;
    use base::crc32::{MASK_BYTES, Pclmul};
    use base::small_bytes;
    use std::arch::x86_64::*;
    use store::Store;
    use store::hash_lanes::{finish, round};
    use wire::ipv4::VERSION_IHL;

    /// A processor with AVX2 and the bit instructions that came with it, and carry-less multiplication.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Avx2(Pclmul);

    impl Avx2 {
        /// `Some` on such a processor.
        pub(crate) fn detect() -> Option<Self> {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("movbe")
                && is_x86_feature_detected!("popcnt");
            Pclmul::detect().filter(|_| has).map(Self)
        }

        /// The work, compiled for such a processor.
        pub(crate) fn run<W: Compiled>(self, work: W) -> W::Done {
            // SAFETY: `self` exists, so the processor has the instructions (`detect`).
            unsafe { run(self, work) }
        }
    }

    #[inline(never)]
    #[target_feature(enable = "avx2,bmi1,bmi2,movbe,pclmulqdq,popcnt")]
    fn run<W: Compiled>(vector: Avx2, work: W) -> W::Done {
        work.run(vector)
    }

    impl Vector for Avx2 {
        #[inline(always)]
        fn fits(self, head: &[u8; HEAD], mask: &[u8; HEAD], want: &[u8; HEAD]) -> bool {
            // SAFETY: `self` exists, so the processor has the instructions (`detect`).
            unsafe { fits(head, mask, want) }
        }

        #[inline(always)]
        fn is_word(self, block: &[u8; KEY_BLOCK], len: usize) -> bool {
            // SAFETY: as in `fits`.
            unsafe { is_word(block, len) }
        }

        #[inline(always)]
        fn word_len(self, block: &[u8; KEY_BLOCK]) -> usize {
            // SAFETY: as in `fits`.
            unsafe { word_len(block) }
        }

        #[inline(always)]
        fn blanks_and_digits(self, block: &[u8; KEY_BLOCK]) -> (u32, u32) {
            // SAFETY: as in `fits`.
            unsafe { blanks_and_digits(block) }
        }

        #[inline(always)]
        fn sum(self, bytes: &[u8], len: usize) -> u32 {
            // SAFETY: as in `fits`.
            unsafe { sum(bytes, len) }
        }

        #[inline(always)]
        fn sum_block<const N: usize>(self, block: &[u8; N], len: usize) -> u32 {
            // SAFETY: as in `fits`.
            unsafe { sum_block(block, len) }
        }

        #[inline(always)]
        fn same(self, a: &[u8; KEY_BLOCK], b: &[u8; KEY_BLOCK], len: usize) -> bool {
            // SAFETY: as in `fits`.
            unsafe { same(a, b, len) }
        }

        #[inline(always)]
        fn sums_hold<const N: usize>(self, header: &[u8; 32], block: &[u8; N], len: usize) -> bool {
            // SAFETY: as in `fits`.
            unsafe { sums_hold(header, block, len) }
        }

        #[inline(always)]
        fn masked_crc(self, bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
            self.0.masked(bytes, mask)
        }

        #[inline(always)]
        fn crc_behind(self, first: [u8; 8], bytes: &[u8]) -> u32 {
            self.0.behind(first, bytes)
        }

        #[inline(always)]
        fn hash(self, store: &Store, keys: &[[u8; KEY_BLOCK]; ROW], lens: [u8; ROW]) -> [u64; ROW] {
            // SAFETY: as in `fits`.
            unsafe { hash(store.hash_state(), keys, lens) }
        }

        #[inline(always)]
        fn hash_long(
            self,
            store: &Store,
            keys: [&[u8; LONG_BLOCK]; ROW],
            lens: [u8; ROW],
        ) -> [u64; ROW] {
            // SAFETY: as in `fits`.
            unsafe { long_hash::hash(store.hash_state(), keys, lens) }
        }

        #[inline(always)]
        fn copy_and_sum(self, to: &mut [u8], from: &[u8]) -> u32 {
            match from.len() {
                ..32 => {
                    small_bytes::copy(to, from);
                    checksum::sum(from).swap_bytes().into()
                }
                // SAFETY: as in `fits`.
                32..=64 => unsafe { copy_and_sum_short(to, from) },
                // SAFETY: as in `fits`.
                _ => unsafe { copy_and_sum(to, from) },
            }
        }

        #[inline(always)]
        fn turn_ethernet(self, head: &mut [u8; 16]) {
            // SAFETY: as in `fits`.
            unsafe { turn_ethernet(head) }
        }

        #[inline(always)]
        fn turn_parties(self, parties: &mut [u8; 16], behind: u32) {
            // SAFETY: as in `fits`.
            unsafe { turn_parties(parties, behind) }
        }
    }

    /// The longest block of [`sums_hold`].
    const MASKS_MAX: usize = 128;
    /// Ones, then twice as many zeros: from `MASKS_MAX - n` on, `n` ones and zeros behind.
    static MASKS: [u8; 3 * MASKS_MAX] = {
        let mut bytes = [0; 3 * MASKS_MAX];
        let (ones, _) = bytes.split_at_mut(MASKS_MAX);
        let mut n = 0;
        while n < MASKS_MAX {
            ones[n] = 0xff;
            n += 1;
        }
        bytes
    };

    /// 32 bytes of `bytes` from `at` on; zeros, if they are not there.
    #[inline(always)]
    fn block(bytes: &[u8], at: usize) -> &[u8; 32] {
        bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; 32])
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes that can be read; the instruction needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u8; 32], what: __m256i) {
        // SAFETY: 32 bytes that are ours to write; the instruction needs no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), what) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn fits(head: &[u8; HEAD], mask: &[u8; HEAD], want: &[u8; HEAD]) -> bool {
        let same = |at| {
            let head = load(block(head, at));
            _mm256_cmpeq_epi8(_mm256_and_si256(head, load(block(mask, at))), load(block(want, at)))
        };
        // The blocks overlap: together they are all.
        _mm256_movemask_epi8(_mm256_and_si256(same(0), same(HEAD - 32))) == -1
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn is_word(block: &[u8; KEY_BLOCK], len: usize) -> bool {
        let bytes = load(block);
        let blanks = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x20)), bytes);
        first(blanks, len) == 0
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn word_len(block: &[u8; KEY_BLOCK]) -> usize {
        let bytes = load(block);
        let blanks = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x20)), bytes);
        _mm256_movemask_epi8(blanks).trailing_zeros() as usize
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn blanks_and_digits(block: &[u8; KEY_BLOCK]) -> (u32, u32) {
        let bytes = load(block);
        let bits = |bytes| _mm256_movemask_epi8(bytes).cast_unsigned();
        // Digits are 0 to 9 then; what is below them is large.
        let values = _mm256_sub_epi8(bytes, _mm256_set1_epi8(b'0'.cast_signed()));
        let digits = _mm256_cmpeq_epi8(_mm256_min_epu8(values, _mm256_set1_epi8(9)), values);
        (bits(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b' '.cast_signed()))), bits(digits))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum(bytes: &[u8], len: usize) -> u32 {
        let blocks = bytes.as_chunks::<32>().0;
        let Some((last, whole)) = blocks.get(..=len / 32).and_then(<[_]>::split_last) else {
            return 0;
        };
        let mask = load(block(&MASKS, MASKS_MAX - len % 32));
        let mut all = pairs(_mm256_and_si256(load(last), mask));
        // By two: a loop over one is unrolled further than most requests are long.
        let (twos, one) = whole.as_chunks::<2>();
        for [a, b] in twos {
            all = _mm256_add_epi32(all, _mm256_add_epi32(pairs(load(a)), pairs(load(b))));
        }
        if let [block] = one {
            all = _mm256_add_epi32(all, pairs(load(block)));
        }
        #[expect(clippy::cast_possible_truncation, reason = "of a frame")]
        let blocks = (len / 32 + 1) as u32;
        total(all, blocks)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum_block<const N: usize>(bytes: &[u8; N], len: usize) -> u32 {
        let mask = MASKS_MAX.wrapping_sub(len) % (2 * MASKS_MAX);
        let part =
            |at| pairs(_mm256_and_si256(load(block(bytes, at)), load(block(&MASKS, mask + at))));
        let mut all = part(0);
        for n in 1..N / 32 {
            all = _mm256_add_epi32(all, part(32 * n));
        }
        #[expect(clippy::cast_possible_truncation, reason = "1 to 4")]
        total(all, const { N as u32 / 32 })
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn same(a: &[u8; KEY_BLOCK], b: &[u8; KEY_BLOCK], len: usize) -> bool {
        let same = _mm256_cmpeq_epi8(load(a), load(b));
        let differ = _mm256_xor_si256(same, _mm256_set1_epi8(-1));
        first(differ, len) == 0
    }

    /// The top bits of the first `len` bytes.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn first(bytes: __m256i, len: usize) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 32, and looked at modulo 256")]
        let len = len as u32;
        _bzhi_u32(_mm256_movemask_epi8(bytes).cast_unsigned(), len)
    }

    /// The sums of two words each, less 2^16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs(words: __m256i) -> __m256i {
        _mm256_madd_epi16(signed(words), _mm256_set1_epi16(1))
    }

    /// The sum over what [`pairs`] gave for so many blocks.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(pairs: __m256i, blocks: u32) -> u32 {
        let x = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
        let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b_01_00_11_10>(x));
        let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b_10_11_00_01>(x));
        _mm_cvtsi128_si32(x).cast_unsigned().wrapping_add(blocks << 19)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sums_hold<const N: usize>(header: &[u8; 32], bytes: &[u8; N], len: usize) -> bool {
        let mask = MASKS_MAX.wrapping_sub(len) % (2 * MASKS_MAX);
        let part = |at| {
            let mask = load(block(&MASKS, mask + at));
            signed(_mm256_and_si256(load(block(bytes, at)), mask))
        };
        // UDP's length counts in the datagram and in the pseudo-header.
        let times = _mm256_setr_epi16(1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        let mut whole = _mm256_madd_epi16(part(0), times);
        for n in 1..N / 32 {
            let pairs = _mm256_madd_epi16(part(32 * n), _mm256_set1_epi16(1));
            whole = _mm256_add_epi32(whole, pairs);
        }
        let mask = load(block(&MASKS, MASKS_MAX - IP_HEAD));
        let header = pairs(_mm256_and_si256(load(header), mask));
        let halves = |x| _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        let both = _mm_hadd_epi32(halves(header), halves(whole));
        let both = _mm_hadd_epi32(both, both);
        // What `signed` took away from 16 words, and from those of the blocks and one.
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "tens")]
        let words = const { (N as i32 / 2 + 1) << 15 };
        let back = _mm_setr_epi32(16 << 15, words + PROTOCOL.cast_signed(), 0, 0);
        let both = _mm_add_epi32(both, back);
        // As `fold32`.
        let both = _mm_add_epi32(both, _mm_shufflelo_epi16::<0b_10_11_00_01>(both));
        _mm_cvtsi128_si64(_mm_srai_epi32::<16>(both)) == -1
    }

    /// Words less 2^15: the instruction that multiplies them takes them as signed.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn signed(words: __m256i) -> __m256i {
        _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN))
    }

    /// Copies 32 to 64 bytes: the first 32 and the last.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn copy_and_sum_short(to: &mut [u8], from: &[u8]) -> u32 {
        let len = from.len();
        let (Some(first), Some(last), Some(to_first)) =
            (from.first_chunk::<32>(), from.last_chunk::<32>(), to.first_chunk_mut::<32>())
        else {
            return 0;
        };
        let (a, b) = (load(first), load(last));
        store(to_first, a);
        let Some(to_last) = to.last_chunk_mut::<32>() else { return 0 };
        store(to_last, b);
        // Less what was in the first.
        let b = _mm256_andnot_si256(
            load(block(&MASKS, MASKS_MAX - SUM_BLOCK + len % (2 * SUM_BLOCK))),
            b,
        );
        let halves = |x| _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        let both = _mm_hadd_epi32(halves(pairs(a)), halves(pairs(b)));
        let both = _mm_cvtsi128_si64(_mm_hadd_epi32(both, both)).cast_unsigned();
        #[expect(clippy::cast_possible_truncation, reason = "each half is one of the sums")]
        let [a, b] =
            [both as u32, (both >> 32) as u32].map(|x| u64::from(x.wrapping_add(16 << 15)));
        // At an odd place, if the length is odd: at most 2^29.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "of 16 words each, one turned by a byte"
        )]
        let sum = (a + at(b, len)) as u32;
        sum
    }

    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u32 {
        let mut all = _mm256_setzero_si256();
        let mut n = 0;
        // By two blocks: a loop over one is taken for a copy, and made a call.
        let (twos, rest) = from.as_chunks::<64>();
        let (into, to_rest) = to.as_chunks_mut::<64>();
        for (to, from) in into.iter_mut().zip(twos) {
            let (Some((a, b)), Some((to_a, to_b))) =
                (from.split_first_chunk::<32>(), to.split_first_chunk_mut::<32>())
            else {
                return 0;
            };
            let (Some(b), Some(to_b)) = (b.first_chunk::<32>(), to_b.first_chunk_mut::<32>())
            else {
                return 0;
            };
            let (a, b) = (load(a), load(b));
            store(to_a, a);
            store(to_b, b);
            all = _mm256_add_epi32(all, _mm256_add_epi32(pairs(a), pairs(b)));
            n += 2;
        }
        let mut rest = rest;
        if let (Some((block, behind)), Some(to)) =
            (rest.split_first_chunk::<32>(), to_rest.first_chunk_mut::<32>())
        {
            let x = load(block);
            store(to, x);
            all = _mm256_add_epi32(all, pairs(x));
            n += 1;
            rest = behind;
        }
        if rest.is_empty() {
            return total(all, n);
        }
        // The last 32 bytes, less those that are in the sum already.
        let (Some(last), Some(to)) = (from.last_chunk::<32>(), to.last_chunk_mut::<32>()) else {
            return 0;
        };
        let x = load(last);
        store(to, x);
        let counted = load(block(&MASKS, MASKS_MAX - (32 - rest.len())));
        let x = pairs(_mm256_andnot_si256(counted, x));
        if rest.len().is_multiple_of(2) {
            return total(_mm256_add_epi32(all, x), n + 1);
        }
        // They begin at an odd place.
        total(all, n) + turned(fold32(total(x, 1)), 1)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load16(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes that can be read; the instruction needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store16(to: &mut [u8; 16], what: __m128i) {
        // SAFETY: 16 bytes that are ours to write; the instruction needs no alignment.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), what) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn turn_ethernet(head: &mut [u8; 16]) {
        // -128 makes a zero.
        let turned = _mm_setr_epi8(6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, -128, -128);
        let ip = _mm_setr_epi16(0, 0, 0, 0, 0, 0, 0, i16::from_le_bytes([VERSION_IHL, 0]));
        store16(head, _mm_or_si128(_mm_shuffle_epi8(load16(head), turned), ip));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn turn_parties(parties: &mut [u8; 16], behind: u32) {
        let turned = _mm_setr_epi8(4, 5, 6, 7, 0, 1, 2, 3, 10, 11, 8, 9, -128, -128, -128, -128);
        let parties_turned = _mm_shuffle_epi8(load16(parties), turned);
        store16(parties, _mm_insert_epi32::<3>(parties_turned, behind.cast_signed()));
    }

    /// SipHash-1-3 of four keys at once; `state` is that before the first word.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn hash(state: [u64; 4], keys: &[[u8; KEY_BLOCK]; ROW], lens: [u8; ROW]) -> [u64; ROW] {
        // Words of a key side by side, to the same words of four keys side by side.
        let masked = |n: usize| {
            let (key, len) = (
                keys.get(n).unwrap_or(&[0; KEY_BLOCK]),
                lens.get(n).map_or(0, |l| usize::from(*l)),
            );
            let mask = load(block(&MASKS, MASKS_MAX - len % SUM_BLOCK));
            _mm256_and_si256(load(key), mask)
        };
        let (a, b, c, d) = (masked(0), masked(1), masked(2), masked(3));
        let (ab_even, ab_odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let (cd_even, cd_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
        let words = [
            _mm256_permute2x128_si256::<0x20>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
            _mm256_permute2x128_si256::<0x31>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
            _mm256_setzero_si256(),
        ];
        let lens = u32::from_le_bytes(lens);
        let lens_wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(lens.cast_signed()));
        // The last word of a key, which holds its length, and how many words it has in all.
        let length = _mm256_slli_epi64::<56>(lens_wide);
        let last = _mm256_srli_epi64::<3>(lens_wide);
        // Whole words; as many as the longest has, or more. Keys are mostly of one length.
        let whole = lens >> 3 & 0x1f1f_1f1f;
        let same = whole == (whole & 0xff) * 0x0101_0101;
        let longest = if same { whole & 0xff } else { 4 };
        let mut v = state.map(|word| _mm256_set1_epi64x(word.cast_signed()));
        for (n, word) in words.into_iter().enumerate().take(longest as usize + 1) {
            #[expect(clippy::cast_possible_wrap, reason = "at most 4")]
            let n = _mm256_set1_epi64x(n as i64);
            let word = _mm256_or_si256(word, _mm256_and_si256(length, _mm256_cmpeq_epi64(n, last)));
            let mut next = v;
            next[3] = _mm256_xor_si256(next[3], word);
            round(&mut next);
            next[0] = _mm256_xor_si256(next[0], word);
            if same {
                v = next;
                continue;
            }
            // A key that has ended stays as it is.
            let ended = _mm256_cmpgt_epi64(n, last);
            for (v, next) in v.iter_mut().zip(next) {
                *v = _mm256_blendv_epi8(next, *v, ended);
            }
        }
        finish(v)
    }
}

#[cfg(test)]
mod tests;
