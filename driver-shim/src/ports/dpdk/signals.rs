//! The signals by which net_tap's driver says that packets came, taken when they are looked for.
//!
//! The driver has the kernel send the process a real-time signal for each packet, and its handler counts them; a
//! receive queue is read only when the count has changed. Delivered, each woke the first thread of the process or
//! interrupted a worker: an interrupt of a processor and a switch of threads for each packet. Blocked, they wait; a worker
//! takes all that wait at once, and calls the handler once. It also does so now and then without a signal: of more than
//! RLIMIT_SIGPENDING the kernel sends none.
#![allow(unsafe_code)]

use parking_lot::Mutex;
use std::io;
use std::mem::{MaybeUninit, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Signals taken at a time.
const SIGNALS: usize = 64;
/// Looks in a row of one queue that find no signal, until the driver is to look all the same: some milliseconds of an
/// idle worker.
const LOOKS_MAX: u32 = 64;

/// The real-time signals of the driver's.
pub(super) struct PacketSignals {
    waiting: OwnedFd,
    signal: libc::c_int,
    /// One call at a time: it adds to its count in steps.
    handler: Mutex<extern "C" fn(libc::c_int)>,
}

impl PacketSignals {
    /// From now on all real-time signals wait: for this thread, and those that it starts.
    pub(super) fn block() {
        let set = set_of(libc::SIGRTMIN()..=libc::SIGRTMAX());
        // SAFETY: a set, and no place for the one before.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
        // Sent in their place when more wait than may; it would end the process.
        // SAFETY: no other code has a handler of it.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    }

    /// Those that a driver has set up, if one has.
    ///
    /// # Errors
    /// No more descriptors.
    pub(super) fn find() -> io::Result<Option<Self>> {
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: asks only; `action` is a place for the answer.
            let rc = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
            // SAFETY: plain numbers, for which zeros will do, too.
            let action = unsafe { action.assume_init() };
            let none = [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            if rc != 0 || none || action.sa_flags & libc::SA_SIGINFO != 0 {
                continue;
            }
            // SAFETY: neither of the two words, and without SA_SIGINFO it takes the signal's number alone.
            let handler = unsafe {
                std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(action.sa_sigaction)
            };
            let set = set_of(signal..=signal);
            let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
            // SAFETY: a new descriptor, of a set.
            let fd = unsafe { libc::signalfd(-1, &raw const set, flags) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just made, and no other code has it.
            let waiting = unsafe { OwnedFd::from_raw_fd(fd) };
            return Ok(Some(Self { waiting, signal, handler: Mutex::new(handler) }));
        }
        Ok(None)
    }

    /// Takes those that wait, and says once to the driver that packets came, if any did or may have. For the one
    /// queue that has `looks`.
    pub(super) fn take(&self, looks: &mut u32) {
        *looks += 1;
        if self.take_all() || *looks >= LOOKS_MAX {
            *looks = 0;
            let handler = self.handler.lock();
            (*handler)(self.signal);
        }
    }

    /// Takes those that wait; whether any did.
    fn take_all(&self) -> bool {
        let mut any = false;
        let mut infos = [const { MaybeUninit::<libc::signalfd_siginfo>::uninit() }; SIGNALS];
        let all = size_of_val(&infos);
        let fd = self.waiting.as_raw_fd();
        loop {
            // SAFETY: so many bytes are there to be written to, and are not read.
            let read = unsafe { libc::read(fd, infos.as_mut_ptr().cast(), all) };
            any |= read > 0;
            if usize::try_from(read) != Ok(all) {
                return any;
            }
        }
    }
}

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a place for a set, which this makes empty.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: a set, and a signal that there is.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: `sigemptyset` has made it one.
    unsafe { set.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static CALLS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: libc::c_int) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn signals_wait_until_they_are_taken_and_many_are_one_call() {
        let signal = libc::SIGRTMIN() + 5;
        // SAFETY: the handler counts, and no more.
        unsafe { libc::signal(signal, count as *const () as libc::sighandler_t) };
        PacketSignals::block();
        let signals = PacketSignals::find().unwrap().expect("a handler");
        assert_eq!(signals.signal, signal);
        signals.take(&mut 0);
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        for sent in [1, 20, 3 * SIGNALS - 1] {
            let before = CALLS.load(Ordering::Relaxed);
            for _ in 0..sent {
                // SAFETY: to this thread, which blocks it.
                assert_eq!(unsafe { libc::raise(signal) }, 0);
            }
            assert_eq!(CALLS.load(Ordering::Relaxed), before);
            signals.take(&mut 0);
            assert_eq!(CALLS.load(Ordering::Relaxed), before + 1, "{sent} signals");
            signals.take(&mut 0);
            assert_eq!(CALLS.load(Ordering::Relaxed), before + 1, "{sent} signals");
        }
        // Without signals.
        let (before, mut looks) = (CALLS.load(Ordering::Relaxed), 0);
        for _ in 0..3 * LOOKS_MAX {
            signals.take(&mut looks);
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), before + 3);
    }
}
