//! Plain requests: those of nearly every frame, which are recognised by one comparison, and the steps that vector
//! instructions do faster. The fast path and the RDMA stage are made of it.
//!
//! In: frames as they came. Out: whether they are plain and from a trusted source; headers of replies. Work is
//! compiled once for each kind of processor ([`FastPathMode`]). Nothing fails.

pub(crate) mod datagram;
mod families;
pub(crate) mod family;
pub(crate) mod requests;
pub(crate) mod seal;
pub(crate) mod sum;
pub(crate) mod vector;
pub(crate) mod window;

pub use requests::RequestMatcher;
use vector::{Compiled, Portable};

/// How the fast path works, and the RDMA stage on plain requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FastPathMode {
    /// With the vector instructions that the processor has.
    #[default]
    Vector,
    /// Without.
    Portable,
    /// Not at all: every request takes the general stages.
    Off,
}

impl FastPathMode {
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

impl FastPathMode {
    /// Does the work, by [`Compiled::run`] as it is compiled for this CPU's vector instructions.
    #[inline(always)]
    pub(crate) fn run_on_this_cpu<W: Compiled>(self, work: W) -> W::Done {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Vector
            && let Some(vector) = vector::Avx2::detect()
        {
            return vector.run(work);
        }
        work.run(Portable)
    }
}
