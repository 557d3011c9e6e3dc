//! What runs kernels: a CUDA device, or the SIMT executor in its place.
//!
//! Thin on purpose: memory, streams, launches and their end. Everything that is more than that
//! (places, doorbells, deadlines, what an index is) is above it, and the same for every device.
//! Nothing here blocks, but what says so.
#![allow(unsafe_code)]

use crate::params::{
    DIGEST_SHARED_BYTES, DevAddr, DigestParams, GET_SHARED_BYTES, GetParams, MicroEmptyParams,
    MicroLookupParams, MicroMultiplyParams, MicroPingParams, MicroReadParams, ServeParams,
    UPDATE_SHARED_BYTES, UpdateParams,
};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// Gives every kernel to the macro `$then`: its variant of [`Kernel`], and its name in `gpu/kernels`.
macro_rules! kernels {
    ($then:ident) => {
        $then! {
            /// Hashes and checksums of byte strings.
            Digest "digest"
            /// A batch of requests over the set-associative index.
            GetSetassoc "get_setassoc"
            /// A batch of requests over the cuckoo index.
            GetCuckoo "get_cuckoo"
            /// A batch of requests over rows.
            GetRows "get_rows"
            /// Batches over the set-associative index, until ended.
            ServeSetassoc "serve_setassoc"
            /// Batches over the cuckoo index, until ended.
            ServeCuckoo "serve_cuckoo"
            /// Batches over rows, until ended.
            ServeRows "serve_rows"
            /// Changes of the set-associative index.
            UpdateSetassoc "update_setassoc"
            /// Changes of the cuckoo index.
            UpdateCuckoo "update_cuckoo"
            /// Changes of rows.
            UpdateRows "update_rows"
            /// Reads of memory, to measure it.
            MicroRead "micro_read"
            /// Keys against the set-associative index, to measure it.
            MicroLookupSetassoc "micro_lookup_setassoc"
            /// Keys against the cuckoo index, to measure it.
            MicroLookupCuckoo "micro_lookup_cuckoo"
            /// Products of two vectors, for another user of the device.
            MicroMultiply "micro_multiply"
            /// Answers to a doorbell, to measure the way.
            MicroPing "micro_ping"
            /// Nothing, to measure a launch.
            MicroEmpty "micro_empty"
        }
    };
}
pub(crate) use kernels;

macro_rules! declare {
    ($($(#[$doc:meta])* $variant:ident $name:literal)*) => {
        /// The kernels, by the names that they have in `gpu/kernels`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $($(#[$doc])* $variant,)*
        }

        impl Kernel {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in the sources.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}
kernels!(declare);

/// What a launch of a kernel needs.
#[derive(Debug, Clone, Copy)]
pub struct KernelFacts {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Size of its structure of [`crate::params`].
    pub params_bytes: usize,
    /// Strings, requests or changes that a block takes at a time. A grid of fewer blocks than that
    /// needs does the same, one part after the other.
    pub per_block: u32,
    /// Its blocks wait for each other or for the host, so that all must run at once.
    pub resident: bool,
}

impl Kernel {
    /// What its launch needs.
    pub fn facts(self) -> KernelFacts {
        let get = KernelFacts {
            threads: 256,
            shared_bytes: GET_SHARED_BYTES,
            params_bytes: size_of::<GetParams>(),
            per_block: 128,
            resident: false,
        };
        let serve = KernelFacts { params_bytes: size_of::<ServeParams>(), resident: true, ..get };
        let update = KernelFacts {
            threads: 128,
            shared_bytes: UPDATE_SHARED_BYTES,
            params_bytes: size_of::<UpdateParams>(),
            per_block: 128,
            resident: false,
        };
        let lookup = KernelFacts {
            threads: 256,
            shared_bytes: 0,
            params_bytes: size_of::<MicroLookupParams>(),
            per_block: 256,
            resident: false,
        };
        match self {
            Self::Digest => KernelFacts {
                threads: 128,
                shared_bytes: DIGEST_SHARED_BYTES,
                params_bytes: size_of::<DigestParams>(),
                per_block: 128,
                resident: false,
            },
            Self::GetSetassoc | Self::GetCuckoo | Self::GetRows => get,
            Self::ServeSetassoc | Self::ServeCuckoo | Self::ServeRows => serve,
            // A warp an operation.
            Self::UpdateSetassoc | Self::UpdateRows => KernelFacts { per_block: 4, ..update },
            Self::UpdateCuckoo => update,
            Self::MicroRead => KernelFacts {
                threads: 256,
                shared_bytes: 0,
                params_bytes: size_of::<MicroReadParams>(),
                per_block: 256,
                resident: false,
            },
            Self::MicroLookupSetassoc | Self::MicroLookupCuckoo => lookup,
            Self::MicroMultiply => KernelFacts {
                threads: 1024,
                shared_bytes: 0,
                params_bytes: size_of::<MicroMultiplyParams>(),
                per_block: 1024,
                resident: false,
            },
            Self::MicroPing => KernelFacts {
                threads: 32,
                shared_bytes: 0,
                params_bytes: size_of::<MicroPingParams>(),
                per_block: 1,
                resident: true,
            },
            Self::MicroEmpty => KernelFacts {
                threads: 32,
                shared_bytes: 0,
                params_bytes: size_of::<MicroEmptyParams>(),
                per_block: 1,
                resident: false,
            },
        }
    }
}

/// What a device cannot do, or says went wrong. `sticky` ones end the device's use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CardError {
    #[error("the GPU has no {bytes} bytes of memory left")]
    OutOfMemory { bytes: usize },
    #[error("{bytes} bytes of host memory cannot be mapped to the GPU: {why}")]
    NotMapped { bytes: usize, why: String },
    #[error("the GPU refuses the kernels: {0}")]
    NotLoaded(String),
    /// A call failed, and others may work.
    #[error("{call}: {why}")]
    Refused { call: &'static str, why: String },
    #[error("{call}: {why}; the GPU cannot be used any more before a restart")]
    Sticky { call: &'static str, why: String },
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFacts {
    /// The vendor's name for it.
    pub name: String,
    /// Blocks run on so many processors.
    pub multiprocessors: u32,
    /// Its own memory.
    pub memory_bytes: u64,
    /// Its address on the PCI bus, if it is there.
    pub pci: Option<String>,
}

/// A machine that runs kernels. Shared by all engines.
pub trait Card: Send + Sync + Debug {
    /// What it is.
    fn facts(&self) -> CardFacts;

    /// Most blocks of a resident kernel that the device runs at once beside those that stay already,
    /// with multiprocessors left for kernels that come and go.
    fn resident_max(&self, kernel: Kernel) -> u32;

    /// Blocks of a kernel that one multiprocessor runs at once.
    fn per_multiprocessor(&self, kernel: Kernel) -> u32;

    /// Takes `bytes` of the device's own memory, zeroed.
    ///
    /// # Errors
    /// [`CardError::OutOfMemory`], or what the driver says. May block.
    fn take(&self, bytes: usize) -> Result<DevAddr, CardError>;

    /// Gives back what [`Card::take`] gave, unless a kernel may run that cannot be stopped: then the
    /// memory stays taken, and is not used again. May block.
    ///
    /// # Safety
    /// `at` came from `take`, was not given back, and no kernel that may touch it runs.
    unsafe fn give_back(&self, at: DevAddr);

    /// Pins `bytes` of host memory and maps them to the device. May block.
    ///
    /// # Safety
    /// The memory is mapped and stays so until [`Card::unmap`].
    ///
    /// # Errors
    /// [`CardError::NotMapped`].
    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError>;

    /// Undoes [`Card::map`], of this device: others may still have the memory mapped. May block. False: it stays
    /// mapped and must stay what it is, for a kernel may run that cannot be stopped.
    ///
    /// # Safety
    /// `start` was mapped, and no kernel that may touch it runs.
    #[must_use]
    unsafe fn unmap(&self, start: NonNull<u8>) -> bool;

    /// Reads the device's memory as it is now: a caller that reads what a kernel wrote has seen its stream
    /// idle. Blocks.
    ///
    /// # Safety
    /// `to.len()` bytes from `from` on are the device's own memory, taken and not given back.
    ///
    /// # Errors
    /// What the driver says.
    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError>;

    /// A new queue of work, of the highest priority that the device has. May block.
    ///
    /// # Errors
    /// What the driver says.
    fn stream(&self) -> Result<Box<dyn Stream>, CardError>;

    /// The same for work that may wait: of the lowest priority, on a device that has priorities. Blocks that
    /// run go on to their end; those of other streams go before the next. May block.
    ///
    /// # Errors
    /// What the driver says.
    fn background(&self) -> Result<Box<dyn Stream>, CardError> {
        self.stream()
    }
}

/// Work in order, beside that of other streams. Dropping one waits for its work, at most a second;
/// what has not ended by then is left alone, and so is what it uses.
pub trait Stream: Send + Debug {
    /// Adds a launch of `blocks` blocks and returns at once.
    ///
    /// # Safety
    /// `params` points to the kernel's structure of [`crate::params`]; the addresses in it hold
    /// what that structure says, and stay so until the kernel has ended.
    ///
    /// # Errors
    /// What the driver says. The work of earlier launches may be the cause.
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<(), CardError>;

    /// Makes a launch ready that will be repeated as it is, with [`Stream::replay`]: a graph.
    ///
    /// # Safety
    /// As [`Stream::launch`], until the stream is dropped.
    ///
    /// # Errors
    /// What the driver says.
    unsafe fn record(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<Recorded, CardError>;

    /// Adds a recorded launch and returns at once.
    ///
    /// # Errors
    /// What the driver says.
    fn replay(&mut self, what: Recorded) -> Result<(), CardError>;

    /// Adds a copy between memory of the device's own and host memory mapped to it, either way, and
    /// returns at once.
    ///
    /// # Safety
    /// Both ranges are such memory, do not overlap, and stay until the copy has ended.
    ///
    /// # Errors
    /// What the driver says.
    unsafe fn copy(&mut self, to: DevAddr, from: DevAddr, bytes: usize) -> Result<(), CardError>;

    /// Whether all work has ended.
    ///
    /// # Errors
    /// What the driver says went wrong in it.
    fn is_idle(&mut self) -> Result<bool, CardError>;
}

/// Names a recorded launch of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded(pub usize);

/// Memory of a device's own, given back on drop.
#[derive(Debug)]
pub struct CardMemory {
    card: Arc<dyn Card>,
    at: DevAddr,
    bytes: usize,
}

impl CardMemory {
    /// Takes `bytes`, zeroed.
    ///
    /// # Errors
    /// As [`Card::take`].
    pub fn new(card: &Arc<dyn Card>, bytes: usize) -> Result<Self, CardError> {
        Ok(Self { at: card.take(bytes)?, card: Arc::clone(card), bytes })
    }

    /// Its first byte.
    pub fn at(&self) -> DevAddr {
        self.at
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads from its first byte on. Blocks.
    ///
    /// # Errors
    /// As [`Card::read`].
    pub fn read(&self, to: &mut [u8]) -> Result<(), CardError> {
        let n = to.len().min(self.bytes);
        let to = to.get_mut(..n).unwrap_or_default();
        // SAFETY: `n` bytes of memory that is ours until drop.
        unsafe { self.card.read(self.at, to) }
    }
}

impl Drop for CardMemory {
    fn drop(&mut self) {
        // SAFETY: taken in `new`, given back once. A caller that launches kernels over it keeps it
        // until they have ended (`Stream::launch`'s contract).
        unsafe { self.card.give_back(self.at) }
    }
}
