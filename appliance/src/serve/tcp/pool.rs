//! The one account for the memory of connections (`--conn-memory`): requests that have come in part,
//! replies that have not been taken, and buffers in use.
//!
//! In: how much a connection needs. Out: a [`Charge`], given back on drop, or none. Every
//! connection may hold [`RESERVE_BYTES`] uncharged, which the account sets aside at the start, so
//! that small requests never wait. What is larger waits in the order it came, for [`WAIT_MAX`] at
//! most, so that connections that wait for each other do not do so for ever. Two lanes, so that
//! requests of some kilobytes do not wait behind those of megabytes.

use super::waiting::LATE;
use crate::process::allocator;
use dataplane::observe::ConnMemory;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

/// What the account counts in.
const UNIT_BYTES: usize = 1 << 10;
/// What a connection may hold uncharged of a request, and of a reply: more than the longest line
/// that is not a `get`.
pub(super) const SMALL_BYTES: usize = (2 << 10) + 64;
/// What is set aside for each connection that `-c` allows.
pub(crate) const RESERVE_BYTES: usize = 5 << 10;
/// Free space made for each read.
pub(super) const READ_BYTES: usize = 16 << 10;
/// Replies gathered before they are sent: many small ones leave in one write.
pub(super) const OUT_BYTES: usize = 64 << 10;
/// Most bytes of replies in one turn, the last value included. A longer value is charged first.
pub(super) const TURN_OUT_BYTES: usize = 2 * OUT_BYTES;
/// The most that a turn can leave behind: what was read, and what was answered.
const TURN_BYTES: usize = 2 * READ_BYTES + TURN_OUT_BYTES;
/// What a thread has of its own: the buffers that its connections pass on or keep for a turn of
/// others, and a turn that it may overdraw.
pub(crate) const THREAD_BYTES: usize = 1 << 20;
/// Charges up to this have a quarter of the account to themselves, and beyond it what the others leave idle.
const LITTLE_MAX_BYTES: usize = 2 * TURN_BYTES;
/// Longest wait for memory.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// How long one that did with less is as good as one that waits: who holds memory is looked at once a second.
const PRESSED_MS: u64 = 2_000;
/// Time between two looks of one that waits whether large ones leave something idle.
const IDLE_LOOK: Duration = Duration::from_millis(50);

/// The account.
#[derive(Debug)]
pub(super) struct Pool {
    figures: Arc<ConnMemory>,
    began: Instant,
    little: Part,
    large: Part,
    /// Units that turns left behind when there was nothing to charge them to any more.
    overdrawn: AtomicUsize,
}

#[derive(Debug)]
struct Part {
    units: usize,
    free: Semaphore,
    waiting: AtomicUsize,
    /// When a connection last did with less, or was refused without a wait, in milliseconds since the account began,
    /// and one; 0 if none was.
    pressed_ms: AtomicU64,
}

impl Part {
    fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self {
            units,
            free: Semaphore::new(units),
            waiting: AtomicUsize::new(0),
            pressed_ms: AtomicU64::new(0),
        }
    }
}

/// So many bytes of the account, given back on drop.
#[derive(Debug)]
pub(super) struct Charge<'p> {
    pool: &'p Pool,
    part: &'p Part,
    permit: Option<SemaphorePermit<'p>>,
    units: u32,
}

impl Pool {
    /// An account of `limit_bytes` for so many connections and threads.
    pub(super) fn new(
        figures: Arc<ConnMemory>,
        limit_bytes: usize,
        connections: usize,
        threads: usize,
    ) -> Self {
        figures.set_limit(limit_bytes as u64);
        let aside = connections.saturating_mul(RESERVE_BYTES);
        let aside = aside.saturating_add(threads.saturating_mul(THREAD_BYTES));
        let shared = limit_bytes.saturating_sub(aside);
        let little = shared / 4;
        Self {
            figures,
            began: Instant::now(),
            little: Part::new(little),
            large: Part::new(shared - little),
            overdrawn: AtomicUsize::new(0),
        }
    }

    /// Whom it refused, and what it holds.
    pub(super) fn figures(&self) -> &ConnMemory {
        &self.figures
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Whether a turn may leave behind all that it can.
    pub(super) fn has_turn(&self) -> bool {
        let owed = self.overdrawn.load(Ordering::Relaxed);
        let has = self.little.free.available_permits() >= owed + TURN_BYTES / UNIT_BYTES
            && !allocator::is_short();
        if !has {
            self.little.pressed_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        has
    }

    /// Whether one more may wait that holds a part of a large request: what came of those that wait is
    /// not to take the place of little ones. If not, the stalled are to make room.
    pub(super) fn may_wait(&self) -> bool {
        let may = self.little.free.available_permits() >= self.little.units / 2;
        if !may {
            let now = self.now_ms();
            self.little.pressed_ms.store(now, Ordering::Relaxed);
            self.large.pressed_ms.store(now, Ordering::Relaxed);
        }
        may
    }

    fn part(&self, bytes: usize) -> &Part {
        if bytes <= LITTLE_MAX_BYTES { &self.little } else { &self.large }
    }

    /// So much, if it is there at once.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Charge<'_>> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        let part = self.part(bytes);
        if allocator::is_short() {
            return None;
        }
        if let Ok(permit) = part.free.try_acquire_many(units) {
            return Some(self.charged(part, Some(permit), units));
        }
        self.take_idle(units)
    }

    /// Of what large ones leave idle, but for half of their part.
    fn take_idle(&self, units: u32) -> Option<Charge<'_>> {
        let large = &self.large;
        let is_idle = large.waiting.load(Ordering::Relaxed) == 0
            && large.free.available_permits() >= large.units / 2 + units as usize;
        let permit = if is_idle { large.free.try_acquire_many(units).ok() } else { None };
        Some(self.charged(large, Some(permit?), units))
    }

    /// So much, after a wait if need be. None when it did not come in time, or never can.
    pub(super) async fn take(&self, bytes: usize) -> Option<Charge<'_>> {
        if let Some(charge) = self.try_take(bytes) {
            return Some(charge);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        let part = self.part(bytes);
        if units as usize > part.units || allocator::is_short() {
            return None;
        }
        let _waits = Waits::new(self, part);
        let waited = async {
            let mut permit = pin!(part.free.acquire_many(units));
            loop {
                tokio::select! {
                    biased;
                    permit = &mut permit => return Some(self.charged(part, Some(permit.ok()?), units)),
                    () = sleep(IDLE_LOOK) => {}
                }
                let idle = if bytes <= LITTLE_MAX_BYTES { self.take_idle(units) } else { None };
                if idle.is_some() {
                    return idle;
                }
            }
        };
        let mut waited = pin!(waited);
        loop {
            let due = Instant::now() + WAIT_MAX;
            match timeout(WAIT_MAX, &mut waited).await {
                Ok(taken) => return taken,
                // During a pause no holder could give anything back.
                Err(_) if due.elapsed() >= LATE => {}
                Err(_) => return None,
            }
        }
    }

    /// What a turn left behind, which began when there was memory for it. Another thread may have
    /// taken that meanwhile: then it is overdrawn, by one turn for each thread at most, and by a record of
    /// TLS for each large reply. None for what is longer than a turn can be.
    pub(super) fn take_behind(&self, bytes: usize) -> Option<Charge<'_>> {
        if let Some(charge) = self.try_take(bytes) {
            return Some(charge);
        }
        if bytes > TURN_BYTES || allocator::is_short() {
            return None;
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        self.overdrawn.fetch_add(units as usize, Ordering::Relaxed);
        Some(self.charged(&self.little, None, units))
    }

    fn charged<'p>(
        &'p self,
        part: &'p Part,
        permit: Option<SemaphorePermit<'p>>,
        units: u32,
    ) -> Charge<'p> {
        self.figures.take(u64::from(units) * UNIT_BYTES as u64);
        Charge { pool: self, part, permit, units }
    }
}

impl Charge<'_> {
    /// Bytes that it covers.
    pub(super) fn bytes(&self) -> usize {
        self.units as usize * UNIT_BYTES
    }

    /// Whether who holds it is to give it up, if slow: others wait, or one was refused or did with less in the last two
    /// seconds, which is said to one holder of its part.
    pub(super) fn must_yield(&self) -> bool {
        if self.part.waiting.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let pressed_ms = self.part.pressed_ms.swap(0, Ordering::Relaxed);
        pressed_ms > 0 && self.pool.now_ms().saturating_sub(pressed_ms) < PRESSED_MS
    }

    /// Gives back what is above so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let above = self.units.saturating_sub(units);
        if let Some(permit) = &mut self.permit
            && above > 0
            && permit.split(above as usize).is_some()
        {
            // What was split off is back already.
            self.units -= above;
            self.pool.figures.shrink(u64::from(above) * UNIT_BYTES as u64);
        }
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.permit.is_none() {
            self.pool.overdrawn.fetch_sub(self.units as usize, Ordering::Relaxed);
        }
        self.pool.figures.give_back(u64::from(self.units) * UNIT_BYTES as u64);
    }
}

/// One that waits, until it is dropped.
struct Waits<'p>(&'p Pool, &'p Part);

impl<'p> Waits<'p> {
    fn new(pool: &'p Pool, part: &'p Part) -> Self {
        part.waiting.fetch_add(1, Ordering::Relaxed);
        pool.figures.begin_wait();
        Self(pool, part)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.1.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.figures.end_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};
    use tokio::runtime::Builder;

    const MB: usize = 1 << 20;

    fn pool(shared: usize) -> Pool {
        let aside = 10 * RESERVE_BYTES + 2 * THREAD_BYTES;
        Pool::new(Arc::default(), shared + aside, 10, 2)
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut pool = pool(16 * MB);
        pool.began -= Duration::from_millis(PRESSED_MS);
        let (a, b) = (pool.try_take(8 * MB).unwrap(), pool.try_take(4 * MB).unwrap());
        assert!(pool.try_take(MB).is_none(), "a quarter is for little ones");
        assert!(pool.try_take(100_000).is_some());
        assert_eq!(pool.figures.now().used_bytes, 12 << 20);
        let half = pool.try_take(300_000).map(|_| pool.may_wait());
        assert_eq!(half, Some(true));
        let little: Vec<_> = (0..7).map(|_| pool.try_take(300_000).unwrap()).collect();
        let stalled = [&a, &little[0]];
        assert!(!stalled.iter().any(|charge| charge.must_yield()));
        assert!(!pool.may_wait(), "half of the little ones' part is for those that are little");
        // One of each kind is to make room.
        assert!(stalled.iter().all(|charge| charge.must_yield() && !charge.must_yield()));
        pool.large.pressed_ms.store(1, Ordering::Relaxed);
        assert!(!a.must_yield(), "that was long ago");
        drop((a, little));
        assert_eq!((b.bytes(), pool.figures.now().used_bytes), (4 * MB, 4 << 20));
        assert!(pool.try_take(8 * MB).is_some());
    }

    #[test]
    fn little_ones_have_half_of_what_large_ones_leave_idle() {
        let pool = pool(16 * MB);
        let little: Vec<_> = std::iter::from_fn(|| pool.try_take(256 << 10)).collect();
        assert_eq!(little.len(), 4 * (4 + 6));
        assert_eq!(pool.large.free.available_permits(), 6 * MB / UNIT_BYTES);
        let large = pool.try_take(6 * MB).unwrap();
        drop(little);
        assert!(pool.try_take(6 * MB).is_some());
        drop(large);
        // Not while a large one waits.
        let all = pool.try_take(12 * MB).unwrap();
        let _waits = Waits::new(&pool, &pool.large);
        drop(all);
        let little: Vec<_> = std::iter::from_fn(|| pool.try_take(256 << 10)).collect();
        assert_eq!(little.len(), 4 * 4);
    }

    #[test]
    fn a_charge_shrinks() {
        let pool = pool(16 * MB);
        let mut charge = pool.try_take(12 * MB).unwrap();
        charge.shrink_to(2 * MB);
        assert_eq!((charge.bytes(), pool.figures.now().used_bytes), (2 * MB, 2 << 20));
        assert!(pool.try_take(10 * MB).is_some());
        drop(charge);
        let now = pool.figures.now();
        assert_eq!((now.used_bytes, now.charges), (0, 0));
    }

    #[test]
    fn a_turn_is_refused_before_it_begins_and_overdrawn_after() {
        let pool = pool(MB);
        assert!(pool.has_turn());
        let (held, _large) = (pool.try_take(200_000).unwrap(), pool.try_take(MB / 2).unwrap());
        assert!(!pool.has_turn());
        let behind = pool.take_behind(TURN_BYTES).unwrap();
        assert_eq!(pool.overdrawn.load(Ordering::Relaxed), TURN_BYTES / UNIT_BYTES);
        assert!(pool.take_behind(TURN_BYTES + 1).is_none(), "no turn leaves that");
        drop(held);
        assert!(!pool.has_turn(), "what is overdrawn counts");
        drop(behind);
        assert!(pool.has_turn());
    }

    #[test]
    fn who_waits_is_served_when_there_is_room_and_let_go_when_there_is_none_for_long() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let pool = pool(16 * MB);
            let held = pool.try_take(12 * MB).unwrap();
            assert!(!held.must_yield());
            let mut wait = pin!(pool.take(4 * MB));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            assert!(held.must_yield());
            drop(held);
            assert!(wait.await.is_some());
            assert_eq!(pool.figures.now().waiting, 0);
            assert!(pool.take(13 * MB).await.is_none(), "more than there is");
            // A little one that waits gets what a large one gives back.
            let mut little: Vec<_> = std::iter::from_fn(|| pool.try_take(256 << 10)).collect();
            little.truncate(16);
            let held = pool.try_take(5 * MB).unwrap();
            let held = (held, pool.try_take(6 * MB).unwrap());
            let mut wait = pin!(pool.take(300_000));
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            drop(held);
            assert!(wait.await.is_some());
        });
    }
    #[test]
    fn who_waits_does_so_longer_when_nobody_could_give_anything_back() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let pool = pool(16 * MB);
            let held = pool.try_take(12 * MB).unwrap();
            let gives_back = async {
                std::thread::sleep(WAIT_MAX + 2 * LATE);
                // Its time is over.
                sleep(Duration::from_millis(20)).await;
                drop(held);
            };
            assert!(tokio::join!(pool.take(4 * MB), gives_back).0.is_some());
        });
    }
}
