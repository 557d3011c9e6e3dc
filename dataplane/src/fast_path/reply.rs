//! Step 3: requests of a row become replies, in their own frames.
//!
//! In: proposed locations whose items were prefetched some rows ago. Out: frames that are fit to
//! send. The item is verified as stage 6 verifies it; where that fails, or the reply is none for the
//! fast path, the frame is left as it was. Nothing is summed twice: addresses, ports, request id and
//! key stand in the reply as in the request, so its checksum follows from the request's by what is
//! other in it (RFC 1624).

use super::line::{Line, TAIL};
use super::read::{KEY, part};
use super::sum::{fold32, fold64, less, of, turned};
use super::vector::Vector;
use super::{Pass, ROW, TEXT, Totals, WINDOW, bits_of};
use crate::protocol::executor::VALUE_OVERHEAD_BYTES;
use crate::protocol::udp_frame::{HEADER_BYTES, PAYLOAD_MAX_BYTES};
use crate::short;
use crate::store::{ItemRef, SUM_KEPT_MIN_BYTES};
use crate::wire::ipv4::{FLAG_DF, PLAIN_L3, PLAIN_L4, UDP, VERSION_IHL};
use crate::wire::reply::TTL;
use driver_shim::{Frame, TxOffload};

/// First byte of the UDP header.
const L4: usize = PLAIN_L4 as usize;
/// UDP length beside the text.
const AROUND_TEXT: usize = 8 + HEADER_BYTES;
/// The reply that there is nothing, and the end of any other.
const END: &[u8; 5] = b"END\r\n";
/// The reply's words where the request's are others, added less those taken away.
const VALUE_LESS_GET: u32 = of(b"VALUE ") as u32 + less(of(b"get "));

impl Pass<'_, '_> {
    /// Answers the requests of a row.
    #[inline(always)]
    pub(super) fn reply_row<const BY_PORT: bool>(&mut self, row: usize, vector: impl Vector) {
        let (read, far) = (bits_of(self.lanes.read, row), bits_of(self.lanes.far, row));
        let (all_found, key_lens) = (&self.lanes.found[row], self.lanes.key_len[row]);
        let frames = self.burst.get_mut(row * ROW..).unwrap_or_default();
        for n in 0..ROW {
            let Some(frame) = frames.get_mut(n).filter(|_| read >> n & 1 == 1) else { continue };
            let key_len = key_lens[n];
            let Some(window) = frame.window_mut::<WINDOW>() else { continue };
            let text_len = match all_found[n] {
                Some(found) => {
                    let Some(item) = found.item().filter(|item| self.horizon.is_live(item)) else {
                        continue;
                    };
                    let Some(text_len) = hit::<BY_PORT>(window, &item, key_len, vector) else {
                        continue;
                    };
                    self.ops.hot_keys.see(item.key());
                    self.ops.classes.get_hits(found.class());
                    item.mark_visited(self.horizon.now);
                    self.totals.hits += 1;
                    text_len
                }
                None if far >> n & 1 == 1 => {
                    let key = window.get(KEY..KEY + usize::from(key_len)).unwrap_or_default();
                    self.ops.hot_keys.see(key);
                    self.totals.misses += 1;
                    miss::<BY_PORT>(window)
                }
                None => continue,
            };
            self.totals.text_bytes += KEY as u64 - TEXT as u64 + u64::from(key_len) + 2;
            finish::<BY_PORT>(frame, TEXT + text_len, &mut self.totals, row * ROW + n);
        }
    }
}

/// Writes the reply to a hit over the request. Returns the length of its text; `None`: the window is as it was.
#[inline(always)]
fn hit<const BY_PORT: bool>(
    window: &mut [u8; WINDOW],
    item: &ItemRef<'_>,
    key_len: u8,
    vector: impl Vector,
) -> Option<usize> {
    let key = item.key_block();
    let value = item.value().whole()?;
    if item.key().len() != usize::from(key_len)
        || !vector.same(key, part(window, KEY), key_len.into())
    {
        return None;
    }
    let key_len = usize::from(key_len);
    // As stage 6 has it, which does not look at the numbers.
    if VALUE_OVERHEAD_BYTES + key_len + value.len() + END.len() > PAYLOAD_MAX_BYTES {
        return None;
    }
    let line = Line::new(item.flags(), value.len())?;
    let (at, len) = (TEXT + 6 + key_len, usize::from(line.len));
    let text_len = 6 + key_len + len + value.len() + TAIL.len();
    put(window, TEXT, *b"VALUE ");
    put(window, TEXT + 6, *key);
    for (n, word) in line.text().into_iter().enumerate() {
        put(window, at + 8 * n, word);
    }
    let to = window.get_mut(at + len..at + len + value.len())?;
    let value_sum = if BY_PORT {
        short::copy(to, value);
        0
    } else if value.len() >= SUM_KEPT_MIN_BYTES {
        short::copy(to, value);
        item.value_sum().swap_bytes()
    } else {
        vector.copy_and_sum(to, value)
    };
    put(window, at + len + value.len(), *TAIL);
    let sum = if BY_PORT {
        0
    } else {
        let request_sum = u16::from_le_bytes(*part(window, 40));
        let behind = fold32(line.sum() + turned(value_sum, len));
        // A request's text is as long as its reply's less this; the length counts twice.
        let longer = text_len - (4 + key_len + 2);
        #[expect(clippy::cast_possible_truncation, reason = "a datagram's length fits")]
        let longer = (2 * longer as u16).swap_bytes();
        fold32(
            u32::from(!request_sum) + VALUE_LESS_GET + turned(behind, key_len) + u32::from(longer),
        )
    };
    turn::<BY_PORT>(window, text_len, sum);
    Some(text_len)
}

/// Writes the reply that there is nothing over the request.
#[inline(always)]
fn miss<const BY_PORT: bool>(window: &mut [u8; WINDOW]) -> usize {
    put(window, TEXT, *END);
    let sum = if BY_PORT {
        0
    } else {
        let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
        let length = u16::try_from(AROUND_TEXT + END.len()).unwrap_or(0).swap_bytes();
        // The frame header is that of the first datagram of one, as in the request.
        fold64(
            word(26)
                + word(30)
                + word(34)
                + word(42)
                + word(46)
                + u64::from(of(END))
                + 2 * u64::from(length)
                + u64::from(u16::from(UDP).swap_bytes()),
        )
    };
    turn::<BY_PORT>(window, END.len(), sum);
    END.len()
}

/// Turns the headers round and sets lengths and checksums. `sum` is that of all that UDP's covers.
#[inline(always)]
fn turn<const BY_PORT: bool>(window: &mut [u8; WINDOW], text_len: usize, sum: u16) {
    #[expect(clippy::cast_possible_truncation, reason = "a datagram's length fits")]
    let udp_len = (AROUND_TEXT + text_len) as u16;
    let (total_len, udp_len) = ((udp_len + 20).swap_bytes(), udp_len.swap_bytes());
    // Six bytes each, and the last two of what the wider one holds.
    let (low, high) = (u64::from_le_bytes(*part(window, 0)), u32::from_le_bytes(*part(window, 8)));
    put(window, 0, (low >> 48 | u64::from(high) << 16 | low << 48).to_le_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "four bytes are meant")]
    put(window, 8, ((low >> 16) as u32).to_le_bytes());
    let addresses = u64::from_le_bytes(*part(window, 26));
    let ports = u32::from_le_bytes(*part(window, 34));
    let first = u16::from_be_bytes([VERSION_IHL, 0]).swap_bytes();
    let (flags, ttl) = (FLAG_DF.swap_bytes(), u16::from_be_bytes([TTL, UDP]).swap_bytes());
    let parties = (addresses & 0xffff_ffff) + (addresses >> 32);
    let fixed = u64::from(first) + u64::from(flags) + u64::from(ttl);
    let (ip_sum, udp_sum) = if BY_PORT {
        (0, fold64(parties + u64::from(udp_len) + u64::from(u16::from(UDP).swap_bytes())))
    } else {
        let udp_sum = if sum == 0xffff { sum } else { !sum };
        (!fold64(parties + fixed + u64::from(total_len)), udp_sum)
    };
    put(window, 14, first.to_le_bytes());
    let word = u64::from(total_len) | u64::from(flags) << 32 | u64::from(ttl) << 48;
    put(window, 16, word.to_le_bytes());
    put(window, 24, ip_sum.to_le_bytes());
    put(window, 26, addresses.rotate_left(32).to_le_bytes());
    put(window, L4, ports.rotate_left(16).to_le_bytes());
    put(window, L4 + 4, (u32::from(udp_len) | u32::from(udp_sum) << 16).to_le_bytes());
}

/// Sets the frame's length, and says what the port is to fill in.
#[inline(always)]
fn finish<const BY_PORT: bool>(frame: &mut Frame, len: usize, totals: &mut Totals, n: usize) {
    // The window was longer.
    let fits = frame.set_len(len);
    debug_assert!(fits.is_ok());
    frame.tx = if BY_PORT {
        TxOffload {
            ip: true.into(),
            udp: true.into(),
            ipv6: false.into(),
            l2_len: PLAIN_L3,
            l3_len: PLAIN_L4 - PLAIN_L3,
        }
    } else {
        TxOffload::default()
    };
    totals.frames |= 1 << n;
    totals.bytes += len as u64;
}

/// Writes bytes where they fit.
#[inline(always)]
fn put<const N: usize>(window: &mut [u8; WINDOW], at: usize, bytes: [u8; N]) {
    if let Some(to) = window.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}
