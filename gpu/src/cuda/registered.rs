//! Host memory that the driver knows: each piece is registered once in the process, however many devices it is
//! mapped to.
//!
//! In: pieces of host memory. Out: their addresses for a device. A piece stays registered, and the context of the device
//! that it was registered by stays with it, until its last user has gone. Fails as the driver says.
#![allow(unsafe_code)]

use super::kernels::Kernels;
use crate::card::CardError;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const FLAGS: u32 = 1 | 2;

/// By their first bytes.
static PIECES: Mutex<BTreeMap<usize, Piece>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Piece {
    bytes: usize,
    /// Devices that it is mapped to.
    users: usize,
    by: Arc<Kernels>,
}

/// Registers a piece for a device, whose context is current; its address there.
///
/// # Safety
/// As [`crate::card::Card::map`].
pub(super) unsafe fn register(
    device: &Arc<Kernels>,
    start: NonNull<u8>,
    bytes: usize,
) -> Result<u64, CardError> {
    let (context, at) = (device.context(), start.addr().get());
    let mut pieces = PIECES.lock().unwrap_or_else(PoisonError::into_inner);
    match pieces.entry(at) {
        Entry::Occupied(piece) if piece.get().bytes == bytes => piece.into_mut().users += 1,
        _ => {
            // SAFETY: the caller's promise.
            let status =
                unsafe { (context.driver.host_register)(start.as_ptr().cast(), bytes, FLAGS) };
            context.check("cuMemHostRegister", status)?;
            pieces.insert(at, Piece { bytes, users: 1, by: Arc::clone(device) });
        }
    }
    drop(pieces);
    let mut address = 0;
    // SAFETY: writes one address, of memory that is registered with the flags for it.
    let status =
        unsafe { (context.driver.host_address)(&raw mut address, start.as_ptr().cast(), 0) };
    context.check("cuMemHostGetDevicePointer", status).inspect_err(|_| {
        // SAFETY: registered above, and not given out.
        let _ = unsafe { unregister(start) };
    })?;
    Ok(address)
}

/// Undoes [`register`], once. False: it stays registered for ever, as its context is lost.
///
/// # Safety
/// As [`crate::card::Card::unmap`], of one piece.
pub(super) unsafe fn unregister(start: NonNull<u8>) -> bool {
    let mut pieces = PIECES.lock().unwrap_or_else(PoisonError::into_inner);
    let Entry::Occupied(mut piece) = pieces.entry(start.addr().get()) else { return true };
    piece.get_mut().users -= 1;
    if piece.get().users > 0 {
        return true;
    }
    let piece = piece.remove();
    let context = piece.by.context();
    let can = !context.is_lost() && context.enter().is_ok();
    if can {
        // SAFETY: the caller's promise, and those of the piece's other users before. What it answers is of no use:
        // there is nothing to be done.
        unsafe { (context.driver.host_unregister)(start.as_ptr().cast()) };
    }
    // The context may go with the piece, which takes a while.
    drop(pieces);
    can
}
