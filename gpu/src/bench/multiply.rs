//! Another user of the device: vectors multiplied in its memory, in one launch or in many.
//!
//! The background task of MemcachedGPU (section 5.4). In: how many blocks the task has, how many of them a launch
//! has. Out: nothing but the time that it takes, and products that can be checked. Launches return at once, and
//! the caller looks for their end. Owns its stream and memory, which is never freed while a kernel may run. Fails
//! as the device does.
#![allow(unsafe_code)]

use super::device::wait;
use super::{launch, refused};
use crate::card::{Card, CardError, CardMemory, Kernel, Stream};
use crate::host::HostMemory;
use crate::params::MicroMultiplyParams;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Bytes of an element.
const ELEMENT: usize = size_of::<u32>();
/// An odd number, so that the elements of a vector are all different.
const STEP: u32 = 0x9e37_79b1;

/// The task.
#[derive(Debug)]
pub struct Multiply {
    // Before what its kernels use.
    stream: Box<dyn Stream>,
    vectors: ManuallyDrop<Vectors>,
    blocks: u32,
    /// Elements of each thread, and how often it goes through them.
    rounds: u32,
    passes: u32,
}

#[derive(Debug)]
struct Vectors {
    /// Multiplied by itself: element n is n times [`STEP`].
    from: CardMemory,
    to: CardMemory,
}

impl Multiply {
    /// A task of `blocks` blocks, whose threads have `rounds` elements each. `background`: it waits for work of a
    /// higher priority.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(
        card: &Arc<dyn Card>,
        blocks: u32,
        rounds: u32,
        background: bool,
    ) -> Result<Self, CardError> {
        let elements =
            (blocks as usize).saturating_mul(threads() as usize).saturating_mul(rounds as usize);
        let bytes = elements.saturating_mul(ELEMENT);
        let vectors =
            Vectors { from: CardMemory::new(card, bytes)?, to: CardMemory::new(card, bytes)? };
        let stream = if background { card.background() } else { card.stream() }?;
        let mut new =
            Self { stream, vectors: ManuallyDrop::new(vectors), blocks, rounds, passes: 1 };
        let host = HostMemory::mapped(card, bytes)?;
        // SAFETY: so many bytes of memory of ours, aligned to a page and zeroed.
        let words = unsafe {
            std::slice::from_raw_parts_mut(host.start().cast::<u32>().as_ptr(), elements)
        };
        words.iter_mut().zip(0_u32..).for_each(|(word, n)| *word = n.wrapping_mul(STEP));
        // SAFETY: both have so many bytes; they outlive the copy, or stay for ever.
        let done = unsafe { new.stream.copy(new.vectors.from.at(), host.at(), bytes) }
            .and_then(|()| wait(&mut *new.stream));
        if done.is_err() {
            std::mem::forget(host);
        }
        done.map(|()| new)
    }

    /// Has each thread multiply as many elements as it has so many times, from the next [`Self::begin`] on.
    pub fn repeat(&mut self, passes: u32) {
        self.passes = passes.max(1);
    }

    /// The whole task, in launches of `per_launch` blocks, one behind the other.
    ///
    /// # Errors
    /// What the device says.
    pub fn begin(&mut self, per_launch: u32) -> Result<(), CardError> {
        let Vectors { from, to } = &*self.vectors;
        let per_launch = per_launch.max(1);
        for first in (0..self.blocks).step_by(per_launch as usize) {
            let params = MicroMultiplyParams {
                a: from.at(),
                b: from.at(),
                to: to.at(),
                first,
                rounds: self.rounds,
                stride: self.blocks.saturating_mul(threads()),
                passes: self.passes,
            };
            let blocks = per_launch.min(self.blocks - first);
            launch(&mut *self.stream, Kernel::MicroMultiply, blocks, &params)?;
        }
        Ok(())
    }

    /// Whether it is done.
    ///
    /// # Errors
    /// What the device says.
    pub fn is_idle(&mut self) -> Result<bool, CardError> {
        self.stream.is_idle()
    }

    /// Waits until it is done, and looks at the products.
    ///
    /// # Errors
    /// What the device says, and a product that is wrong.
    pub fn end(&mut self) -> Result<(), CardError> {
        wait(&mut *self.stream)?;
        let mut bytes = vec![0; self.vectors.to.bytes()];
        self.vectors.to.read(&mut bytes)?;
        let wrong = bytes.as_chunks::<ELEMENT>().0.iter().zip(0_u32..).position(|(product, n)| {
            let factor = n.wrapping_mul(STEP);
            u32::from_ne_bytes(*product) != factor.wrapping_mul(factor)
        });
        wrong.map_or(Ok(()), |n| Err(refused(&format!("product {n} is wrong"))))
    }
}

impl Drop for Multiply {
    fn drop(&mut self) {
        if wait(&mut *self.stream).is_ok() {
            // SAFETY: dropped here and nowhere else; no kernel runs.
            unsafe { ManuallyDrop::drop(&mut self.vectors) }
        }
    }
}

/// Threads of a block.
fn threads() -> u32 {
    Kernel::MicroMultiply.facts().threads
}

#[cfg(test)]
#[cfg(feature = "simt")]
mod tests {
    use super::*;
    use crate::simt::SimtCard;

    #[test]
    fn the_same_products_by_one_launch_and_by_many() {
        let card: Arc<dyn Card> = Arc::new(SimtCard::default());
        for per_launch in [5, 2, 1] {
            let mut task = Multiply::new(&card, 5, 2, true).unwrap();
            assert!(task.end().is_err(), "nothing was multiplied");
            for passes in [1, 3] {
                task.repeat(passes);
                task.begin(per_launch).unwrap();
                task.end().unwrap();
            }
        }
    }
}
