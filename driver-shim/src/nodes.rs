//! NUMA nodes as the kernel takes them in a memory policy.
//!
//! In: numbers of nodes. Out: a mask of bits, of a fixed length. Fails: for a number above the kernel's most.

use nix::errno::Errno;
use std::ffi::{c_int, c_ulong};

/// The kernel's most (`CONFIG_NODES_SHIFT`).
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = c_ulong::BITS as usize;

/// Where memory that is not there yet is to come from: one node as long as it has any, or several in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePolicy {
    mode: c_int,
    mask: [c_ulong; NODES_MAX / WORD_BITS],
}

impl NodePolicy {
    /// No node: from the one that the touching thread runs on.
    ///
    /// # Errors
    /// `EINVAL`: a number that no node has.
    pub fn of(nodes: &[u32]) -> Result<Self, Errno> {
        let mode = match nodes {
            [] => libc::MPOL_DEFAULT,
            [_] => libc::MPOL_PREFERRED,
            _ => libc::MPOL_INTERLEAVE,
        };
        let mut mask = [0; NODES_MAX / WORD_BITS];
        for &node in nodes {
            let (word, bit) = (node as usize / WORD_BITS, node as usize % WORD_BITS);
            *mask.get_mut(word).ok_or(Errno::EINVAL)? |= 1 << bit;
        }
        Ok(Self { mode, mask })
    }

    /// For `set_mempolicy` and `mbind`: the mode, the mask, and one more than its bits, as the kernel counts.
    pub fn arguments(&self) -> (c_int, &[c_ulong], usize) {
        (self.mode, &self.mask, NODES_MAX + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_bits_and_their_number_says_how() {
        let of = |nodes: &[u32]| {
            let policy = NodePolicy::of(nodes).unwrap();
            let (mode, mask, bits) = policy.arguments();
            assert_eq!(bits, mask.len() * WORD_BITS + 1);
            (mode, mask[0], mask[1], mask[2..].iter().all(|word| *word == 0))
        };
        assert_eq!(of(&[]), (libc::MPOL_DEFAULT, 0, 0, true));
        assert_eq!(of(&[65]), (libc::MPOL_PREFERRED, 0, 2, true));
        assert_eq!(of(&[0, 3]), (libc::MPOL_INTERLEAVE, 9, 0, true));
        assert!(NodePolicy::of(&[1023]).is_ok());
        assert_eq!(NodePolicy::of(&[0, 1024]), Err(Errno::EINVAL));
        assert_eq!(NodePolicy::of(&[u32::MAX]), Err(Errno::EINVAL));
    }
}
