//! The kernels' code: for one kind of device as it runs there, and as PTX, which the driver compiles
//! for whatever device it finds. Both made of `gpu/kernels/*.cu` by `scripts/ptx.py`, which also sees
//! to it that they are in step.

use crate::card::{Kernel, kernels};
use std::ffi::CStr;

/// Bytes from a multiple of 16 on, as a driver finds them in a program of its own compiler's.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

/// A kernel's code.
pub(super) struct Code {
    /// For every device.
    pub(super) ptx: &'static CStr,
    /// For devices of [`CUBIN_FOR`] alone.
    pub(super) cubin: &'static [u8],
}

macro_rules! embedded {
    ($($(#[$doc:meta])* $variant:ident $name:literal)*) => {
        fn embedded(kernel: Kernel) -> (&'static str, &'static Aligned<[u8]>) {
            match kernel {
                $(Kernel::$variant => (
                    concat!(include_str!(concat!("../../ptx/", $name, ".ptx")), "\0"),
                    const { &Aligned(*include_bytes!(concat!("../../cubin/", $name, ".cubin"))) },
                ),)*
            }
        }
    };
}
kernels!(embedded);

/// A kernel's code.
pub(super) fn of(kernel: Kernel) -> Code {
    let (text, Aligned(cubin)) = embedded(kernel);
    // Ends in the only zero that a text has; were it not so, the driver would refuse the rest.
    let ptx = CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default();
    Code { ptx, cubin }
}

/// The compute capability that cubins are for: Hopper's.
pub(super) const CUBIN_FOR: (i32, i32) = (9, 0);

/// The newest CUDA whose PTX that is: 1000 × major + 10 × minor.
pub(super) const CUDA_MIN: i32 = 12080;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_in_the_ptx_with_the_facts_that_launches_use() {
        for kernel in Kernel::ALL {
            let (name, facts) = (kernel.name(), kernel.facts());
            let text = of(kernel).ptx.to_str().unwrap();
            let (_, entry) = text.split_once(&format!(".visible .entry {name}(\n")).unwrap();
            let (head, _) = entry.split_once("\n{\n").unwrap();
            let bytes = facts.params_bytes;
            assert!(head.contains(&format!("{name}_param_0[{bytes}]")), "{head}");
            assert!(head.contains(&format!(".maxntid {}, 1, 1", facts.threads)), "{head}");
        }
    }

    /// PTX is numbered by itself; 8.7 came with CUDA 12.8.
    #[test]
    fn drivers_that_can_read_the_ptx_are_known() {
        for kernel in Kernel::ALL {
            let text = of(kernel).ptx.to_str().unwrap();
            assert!(text.contains("\n.version 8.7\n") && text.contains("\n.target sm_75\n"));
        }
        assert_eq!(CUDA_MIN, 12080);
    }
}
