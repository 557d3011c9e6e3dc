//! Where the frames come from: a capture file, or a workload that is made up while it is played.

use super::PlayError;
use crate::trace::{Frames, GenerateError, Reader, Summary, Trace};

/// Frames with their times, from the first to the last, and again from the first.
pub trait Source {
    /// The next frame and when it should leave, in nanoseconds from an arbitrary start; valid
    /// until the next call. `None` at the end.
    ///
    /// # Errors
    /// What keeps the source from going on.
    fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, PlayError>;

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// A source that cannot, such as a pipe.
    fn rewind(&mut self) -> Result<(), PlayError>;

    /// Rows of a CSV trace that made no sense, and values that were cut to what a packet holds, since the start.
    fn rows(&self) -> (u64, u64) {
        (0, 0)
    }
}

impl Source for Reader {
    fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, PlayError> {
        if self.advance()? { Ok(Some((self.time_ns(), self.frame()))) } else { Ok(None) }
    }

    fn rewind(&mut self) -> Result<(), PlayError> {
        Ok(Self::rewind(self)?)
    }
}

/// A workload, made up frame by frame.
#[derive(Debug)]
pub struct Generated {
    trace: Trace,
    frames: Frames,
}

impl Generated {
    /// # Errors
    /// [`GenerateError`]: an impossible trace.
    pub fn new(trace: Trace) -> Result<Self, GenerateError> {
        Ok(Self { frames: Frames::new(&trace)?, trace })
    }
}

impl Source for Generated {
    fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, PlayError> {
        Ok(self.frames.next_frame()?)
    }

    fn rewind(&mut self) -> Result<(), PlayError> {
        self.frames = Frames::new(&self.trace)?;
        Ok(())
    }

    fn rows(&self) -> (u64, u64) {
        let Summary { rows_skipped, values_cut, .. } = *self.frames.summary();
        (rows_skipped, values_cut)
    }
}
