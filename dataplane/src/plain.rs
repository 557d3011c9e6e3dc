//! Plain requests: those of nearly every frame, which are recognised by one comparison, and the steps that vector
//! instructions do faster. The fast path and the RDMA stage are made of it.
//!
//! In: frames as they came. Out: whether they are plain and from a trusted source; headers of replies. Work is
//! compiled once for each kind of processor ([`PlainMode`]). Nothing fails.

pub(crate) mod datagram;
mod families;
pub(crate) mod family;
pub(crate) mod requests;
pub(crate) mod seal;
pub(crate) mod sum;
pub(crate) mod vector;
pub(crate) mod window;

pub use requests::Requests;
use vector::{Compiled, Portable};

/// How plain requests are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlainMode {
    /// With the vector instructions that the processor has.
    #[default]
    Vector,
    /// Without.
    Portable,
    /// Not at all: every request takes the general stages.
    Off,
}

impl PlainMode {
    /// As the variable `GNOMON_FAST_PATH` has it: `vector` (also when it is not set or says
    /// anything else), `portable` or `off`. For tests and comparisons.
    pub fn from_env() -> Self {
        match std::env::var("GNOMON_FAST_PATH").as_deref() {
            Ok("portable") => Self::Portable,
            Ok("off") => Self::Off,
            _ => Self::Vector,
        }
    }
}

impl PlainMode {
    #[inline(always)]
    pub(crate) fn carry_out<W: Compiled>(self, work: W) -> W::Done {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Vector
            && let Some(vector) = vector::Avx2::detect()
        {
            return vector.run(work);
        }
        work.run(Portable)
    }
}
