//! The executor as a device: its memory is the host's.
#![allow(unsafe_code)]

use super::ffi::{self, Event, Machine, Region, WatchCounts};
use crate::card::{Card, CardError, CardFacts, Kernel, Recorded, Stream};
use crate::host::HostMemory;
use crate::params::DevAddr;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Blocks that stay at once: each has a thread, and fibers with stacks of their own.
const RESIDENT_MAX: u32 = 6;
/// Regions of recorded memory begin at multiples of this.
const PAGE_BYTES: u64 = 4096;
/// Longest wait for the work of a stream that is dropped.
const DROP_WAIT_MAX: Duration = Duration::from_secs(1);

/// How a device makes its users wait, as devices do.
#[derive(Debug, Clone, Copy)]
pub struct Hostile {
    /// Queues that streams share: what is in one is done in order, whichever stream it came from.
    /// 0: each stream has its own.
    pub queues: u32,
    /// Blocks that run at once, of all kernels. One keeps its place until it ends. 0: as many as
    /// there are.
    pub places: u32,
    /// Longest time that a call that takes, maps, unmaps or gives back memory waits for kernels to end.
    /// A device would wait for ever; here it is an error of the device's, which ends them, and a line
    /// on standard error. `None`: no call waits.
    pub wait_max: Option<Duration>,
}

impl Default for Hostile {
    /// A driver's own eight queues, and the places of a small device.
    fn default() -> Self {
        Self { queues: 8, places: 16, wait_max: Some(Duration::from_secs(20)) }
    }
}

/// A CPU that runs kernels.
#[derive(Debug)]
pub struct SimtCard {
    seed: u64,
    machine: Machine,
    resident_max: u32,
    wait_max: Mutex<Option<Duration>>,
    taken: Mutex<HashMap<u64, HostMemory>>,
    /// Of a watching device: all memory that is taken or mapped, by its first byte.
    regions: Option<Regions>,
    /// Kernels have copies of what is mapped.
    late: bool,
    /// Where the next region lies in the memory that recorded events name.
    laid: AtomicU64,
}

type Regions = Arc<Mutex<BTreeMap<u64, Region>>>;

impl Default for SimtCard {
    fn default() -> Self {
        Self::new(0)
    }
}

/// What a lock guards, even if a thread panicked holding it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimtCard {
    /// Threads of a block take turns in order, or in an order drawn from `seed` if that is not 0.
    /// A kind device: blocks and streams never wait for each other, nor does memory for kernels.
    pub fn new(seed: u64) -> Self {
        Self::over(Machine::new(0, 0), seed, None, None)
    }

    /// As [`Self::new`], with a device's limits.
    pub fn hostile(seed: u64, how: Hostile) -> Self {
        let mut new = Self::over(Machine::new(how.queues, how.places), seed, how.wait_max, None);
        // As a device, it keeps places for kernels that come and go.
        let places = if how.places == 0 { u32::MAX } else { how.places / 8 * 7 };
        new.resident_max = places.min(RESIDENT_MAX);
        new
    }

    /// As [`Self::new`], with the instrumented build of the kernels. An access to memory that was
    /// neither taken nor mapped when the kernel was launched ends it with an error. Some hundred
    /// times slower.
    pub fn watching(seed: u64) -> Self {
        Self::over(Machine::new(0, 0), seed, None, Some(Arc::default()))
    }

    /// As [`Self::watching`], with host memory in no order but the one that kernels see to: what they
    /// store there arrives late and shuffled unless a release for the whole system is behind it, and what
    /// they load may be old unless they have acquired (`gpu/simt/late.h`). Counts nothing.
    pub fn late(seed: u64) -> Self {
        let mut new = Self::watching(seed);
        new.late = true;
        new
    }

    fn over(
        machine: Machine,
        seed: u64,
        wait_max: Option<Duration>,
        regions: Option<Regions>,
    ) -> Self {
        let (wait_max, taken) = (Mutex::new(wait_max), Mutex::default());
        let (resident_max, laid) = (RESIDENT_MAX, AtomicU64::new(PAGE_BYTES));
        Self { seed, machine, resident_max, wait_max, taken, regions, late: false, laid }
    }

    /// Stops the device for `pause` from now on: blocks that run stall where they are, launches
    /// and copies wait. [`Duration::MAX`] is for ever, and [`Duration::ZERO`] ends it.
    pub fn stall(&self, pause: Duration) {
        self.machine.stall(pause);
    }

    /// The block of this number stalls from now on, in every kernel; `None`: none does.
    pub fn hold(&self, block: Option<u32>) {
        self.machine.hold(block.unwrap_or(u32::MAX));
    }

    /// [`Hostile::wait_max`], from now on.
    pub fn set_wait_max(&self, most: Option<Duration>) {
        *held(&self.wait_max) = most;
    }

    /// What watched kernels that have ended did.
    pub fn counts(&self) -> WatchCounts {
        self.machine.counts()
    }

    /// Forgets what was recorded. Records from now on what threads of watched kernels do, or no more;
    /// not of kernels that stay, whose blocks are in no order.
    pub fn record(&self, on: bool) {
        self.machine.record(on);
    }

    /// What was recorded, of kernels that have ended; none may be running. Blocks and threads one
    /// after the other as they had their turns, each thread's events in its own order.
    pub fn events(&self) -> Vec<Event> {
        self.machine.events()
    }

    fn note(&self, start: u64, bytes: usize, is_host: bool, behind: u64) {
        if let Some(regions) = &self.regions {
            let (bytes, is_host) = (bytes as u64, u64::from(is_host));
            let laid = self.laid.fetch_add(bytes.next_multiple_of(PAGE_BYTES), Ordering::Relaxed);
            held(regions).insert(start, Region { start, bytes, is_host, behind, laid });
        }
    }

    /// The copy of what is mapped from `start` on.
    fn copy_of(&self, start: u64) -> Option<u64> {
        let regions = held(self.regions.as_ref().filter(|_| self.late)?);
        regions.values().find(|region| region.behind == start).map(|region| region.start)
    }

    fn forget(&self, start: u64) {
        if let Some(regions) = &self.regions {
            held(regions).remove(&start);
        }
    }

    /// Waits as a device's driver may. False: for too long.
    fn wait_for_kernels(&self, who: &CStr) -> bool {
        let most = *held(&self.wait_max);
        most.is_none_or(|most| self.machine.wait_for_kernels(most, who))
    }
}

impl Drop for SimtCard {
    fn drop(&mut self) {
        // A kernel that was given up may go on and use what was taken for it: that stays for good.
        if !self.machine.is_idle() {
            std::mem::forget(std::mem::take(&mut *held(&self.taken)));
        }
    }
}

fn waited(call: &'static str) -> CardError {
    CardError::Sticky { call, why: "kernels that run do not end".to_owned() }
}

impl Card for SimtCard {
    fn facts(&self) -> CardFacts {
        let multiprocessors = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        CardFacts {
            name: "SIMT executor".to_owned(),
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(1),
            memory_bytes: u64::MAX,
            pci: None,
        }
    }

    fn resident_max(&self, _: Kernel) -> u32 {
        self.resident_max
    }

    /// A block has a thread, and a multiprocessor is a processor.
    fn per_multiprocessor(&self, _: Kernel) -> u32 {
        1
    }

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        if !self.wait_for_kernels(c"take") {
            return Err(waited("take"));
        }
        let memory = HostMemory::new(bytes);
        let at = memory.start().expose_provenance().get() as u64;
        held(&self.taken).insert(at, memory);
        self.note(at, bytes, false, 0);
        Ok(DevAddr(at))
    }

    unsafe fn give_back(&self, at: DevAddr) {
        self.wait_for_kernels(c"give_back");
        self.forget(at.0);
        held(&self.taken).remove(&at.0);
    }

    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        if !self.wait_for_kernels(c"map") {
            return Err(waited("map"));
        }
        let at = start.expose_provenance().get() as u64;
        if !self.late {
            self.note(at, bytes, true, 0);
            return Ok(DevAddr(at));
        }
        // And behind it, for each byte, what is on its way there.
        let copy = HostMemory::new(2 * bytes.next_multiple_of(4096));
        let start = copy.start().expose_provenance().get() as u64;
        held(&self.taken).insert(start, copy);
        self.note(start, bytes, true, at);
        Ok(DevAddr(start))
    }

    unsafe fn unmap(&self, start: NonNull<u8>) -> bool {
        self.wait_for_kernels(c"unmap");
        let at = start.addr().get() as u64;
        if let Some(copy) = self.copy_of(at) {
            self.forget(copy);
            held(&self.taken).remove(&copy);
        }
        self.forget(at);
        true
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        let Some(stream) = self.machine.stream() else {
            let why = "the system has no thread for it".to_owned();
            return Err(CardError::Refused { call: "stream", why });
        };
        let (seed, regions) = (self.seed, self.regions.clone());
        Ok(Box::new(SimtStream { stream, seed, regions, recorded: Vec::new() }))
    }
}

/// The device's memory is the host's.
fn pointer(at: DevAddr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(at.0).unwrap_or(0))
}

/// A launch, with its parameters as they were then.
#[derive(Debug)]
struct Job {
    kernel: Kernel,
    blocks: u32,
    params: Box<[u64]>,
}

#[derive(Debug)]
struct SimtStream {
    stream: ffi::Stream,
    seed: u64,
    regions: Option<Regions>,
    recorded: Vec<Job>,
}

impl SimtStream {
    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn add(&self, kernel: Kernel, blocks: u32, params: *const u8) -> Result<(), CardError> {
        self.is_good()?;
        let regions =
            self.regions.as_ref().map(|all| held(all).values().copied().collect::<Vec<_>>());
        // SAFETY: the caller's promise.
        unsafe { self.stream.launch(kernel, blocks, params, self.seed, regions.as_deref()) };
        Ok(())
    }

    /// Where the host's memory really is that kernels have a copy of.
    fn behind(&self, at: DevAddr) -> DevAddr {
        let Some(regions) = &self.regions else { return at };
        match held(regions).range(..=at.0).next_back() {
            Some((start, region)) if region.behind != 0 => DevAddr(region.behind + (at.0 - start)),
            _ => at,
        }
    }

    /// Whether all work has ended, or what went wrong.
    fn is_good(&self) -> Result<bool, CardError> {
        self.stream.is_idle().map_err(|why| CardError::Sticky { call: "launch", why })
    }
}

impl Stream for SimtStream {
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        unsafe { self.add(kernel, blocks, params) }
    }

    unsafe fn record(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<Recorded, CardError> {
        let bytes = kernel.facts().params_bytes;
        let mut copy = vec![0_u64; bytes.div_ceil(size_of::<u64>())].into_boxed_slice();
        // SAFETY: the structure has that many bytes, and so has the copy.
        unsafe { std::ptr::copy_nonoverlapping(params, copy.as_mut_ptr().cast(), bytes) };
        self.recorded.push(Job { kernel, blocks, params: copy });
        Ok(Recorded(self.recorded.len() - 1))
    }

    fn replay(&mut self, what: Recorded) -> Result<(), CardError> {
        let Some(Job { kernel, blocks, params }) = self.recorded.get(what.0) else {
            return Err(CardError::Refused { call: "replay", why: "no such record".to_owned() });
        };
        // SAFETY: a copy of the kernel's structure; what it points to is `record`'s promise.
        unsafe { self.add(*kernel, *blocks, params.as_ptr().cast()) }
    }

    unsafe fn copy(&mut self, to: DevAddr, from: DevAddr, bytes: usize) -> Result<(), CardError> {
        self.is_good()?;
        let (to, from) = (self.behind(to), self.behind(from));
        // SAFETY: the caller's promise.
        unsafe { self.stream.copy(to, from, bytes) };
        Ok(())
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        self.is_good()
    }
}

impl Drop for SimtStream {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.is_good() == Ok(false) && begun.elapsed() < DROP_WAIT_MAX {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, IndexKind, Sizes};
    use crate::params::HashKey;

    fn bench(card: SimtCard) -> (Arc<SimtCard>, Bench) {
        let key = HashKey { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
        let card = Arc::new(card);
        let kind = IndexKind::Cuckoo { n_buckets: 1, kicks_max: 0 };
        let sizes = Sizes { slots: 200, slot_bytes: 256, batch: 1 };
        let as_card: Arc<dyn Card> = Arc::clone(&card) as _;
        let bench = Bench::new(&as_card, kind, key, sizes).unwrap();
        (card, bench)
    }

    fn digest(seed: u64) -> Vec<(u64, u32)> {
        let (_, mut bench) = bench(SimtCard::new(seed));
        for slot in 0..200 {
            bench.slot(slot).iter_mut().zip(0..=255).for_each(|(b, n)| *b = n);
        }
        bench.digest(&(0..200).collect::<Vec<u32>>()).unwrap()
    }

    /// SipHash-1-3 of the bytes 0, 1, 2, … under the key 0, 1, … 15: from the reference
    /// implementation's `vectors_siphash` rule, computed with its 1-3 variant.
    #[test]
    fn kernels_run() {
        let plain = digest(0);
        assert_eq!(plain[0].0, 0xabac_0158_050f_c4dc);
        assert_eq!(plain[..4].iter().map(|d| d.1).collect::<Vec<_>>(), [0, 0, 1, 0x0201]);
        assert_eq!(plain, digest(7));
    }

    #[test]
    fn what_threads_do_is_recorded_the_same_wherever_their_memory_is() {
        let lengths: Vec<u32> = (0..70).collect();
        let of = |seed| {
            let (card, mut bench) = bench(SimtCard::watching(seed));
            bench.digest(&lengths).unwrap();
            assert_eq!(card.events(), [], "nothing before it is asked for");
            let before = card.counts();
            card.record(true);
            bench.digest(&lengths).unwrap();
            let (counts, events) = (card.counts(), card.events());
            let steps = events.iter().filter(|event| event.bytes == 0).count() as u64;
            assert_eq!(steps, counts.lanes - before.lanes);
            card.record(false);
            assert_eq!(card.events(), []);
            (bench, events)
        };
        let ((_here, one), (_there, two)) = (of(3), of(3));
        assert!(one == two, "two devices, two pieces of memory");
        // In another order of threads each thread does the same.
        let (_, mut other) = of(4);
        assert!(one != other);
        let mut one = one;
        for events in [&mut one, &mut other] {
            events.sort_by_key(|event| (event.block, event.thread));
        }
        assert!(one == other);
        // Bytes 1 to 69 of so many slots, one after the other in each thread.
        let of_69: Vec<&Event> = one.iter().filter(|e| e.thread == 69 && e.bytes > 0).collect();
        assert!(of_69.iter().any(|e| e.access == Event::READ && e.at % 4096 == 69 * 256 % 4096));
        assert!(of_69.iter().any(|e| e.access == Event::WRITE && e.bytes == 8));
    }
}
