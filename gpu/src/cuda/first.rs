//! The first run of every kernel, with nothing to do.
//!
//! A driver gives a kernel its local memory at its first launch, and waits for kernels that run
//! when it needs more of it: for ever, behind one that stays. So each runs once as soon as it is
//! loaded; the driver keeps what it has taken. Fails with what the driver says, or when one of them does not end.
#![allow(unsafe_code)]

use super::context::Context;
use crate::card::{Card, CardError, Kernel, Stream};
use crate::params::{
    DevAddr, Doorbells, GetParams, MicroEmptyParams, MicroReadParams, RingSlot, ServeParams,
    WorkQueue,
};
use std::thread;
use std::time::{Duration, Instant};

/// Memory that they may touch, all zeros: a [`RingSlot`] and a word behind it, or [`Doorbells`] and a
/// [`WorkQueue`] behind them.
const BYTES: usize = size_of::<Doorbells>() + size_of::<WorkQueue>();
const _: () = assert!(BYTES >= 2 * size_of::<RingSlot>());

/// Longest wait for a kernel, and the pause between two looks at it.
const FIRST_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Runs them all, one after the other.
pub(super) fn run_all(card: &dyn Card, context: &Context) -> Result<(), CardError> {
    let at = card.take(BYTES)?;
    let launched = card.stream().and_then(|mut stream| {
        // Dropped at the end of this, which waits for them.
        Kernel::ALL.into_iter().try_for_each(|kernel| {
            run(&mut *stream, kernel, at)?;
            wait(&mut *stream)
        })
    });
    // SAFETY: taken above; the kernels have ended, or else the device keeps it.
    unsafe { card.give_back(at) };
    launched?;
    if !context.is_lost() {
        return Ok(());
    }
    let why = "a kernel with nothing to do failed, or does not end".to_owned();
    Err(CardError::Sticky { call: "cuLaunchKernel", why })
}

/// Until the kernel has ended, or for [`FIRST_MAX`]: one that is made to stay takes its places until then, which
/// the next such kernel may need.
fn wait(stream: &mut dyn Stream) -> Result<(), CardError> {
    let begun = Instant::now();
    while !stream.is_idle()? && begun.elapsed() < FIRST_MAX {
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Launches a kernel with parameters that give it nothing to do.
fn run(stream: &mut dyn Stream, kernel: Kernel, at: DevAddr) -> Result<(), CardError> {
    let mut launch = |params: *const u8| {
        // SAFETY: the kernel's own structure, or zeros of its size at least, by which the kernel
        // has nothing to do; what it touches all the same is in the memory at `at`.
        unsafe { stream.launch(kernel, 1, params) }
    };
    let word = at.plus(size_of::<RingSlot>());
    match kernel {
        Kernel::GetSetassoc | Kernel::GetCuckoo | Kernel::GetRows => {
            let params = GetParams { ring_slot: at, arrived: word, ..GetParams::default() };
            launch((&raw const params).cast())
        }
        Kernel::ServeSetassoc | Kernel::ServeCuckoo | Kernel::ServeRows => {
            // It ends because the host seems dead at once.
            let (queue, patience_ms) = (at.plus(size_of::<Doorbells>()), 1);
            let params =
                ServeParams { doorbells: at, queue, patience_ms, ..ServeParams::default() };
            launch((&raw const params).cast())
        }
        Kernel::MicroRead => {
            let params = MicroReadParams { lanes: 1, ..MicroReadParams::default() };
            launch((&raw const params).cast())
        }
        Kernel::MicroEmpty => {
            let params = MicroEmptyParams { runs: word };
            launch((&raw const params).cast())
        }
        // No strings, no changes, no answers.
        _ => {
            let zeros = vec![0_u64; kernel.facts().params_bytes.div_ceil(size_of::<u64>())];
            launch(zeros.as_ptr().cast())
        }
    }
}
