//! READs by libibverbs: an RDMA NIC, or Linux's rdma_rxe.
//!
//! In: a service's connection. Out: a queue pair on the device that has the connection's address for RoCE v2. Each READ is
//! waited for without sleep, for some seconds at most, and copied out of registered memory. Fails: no such device, the service's refusal,
//! and a completion with an error, after which the queue pair is over.
#![allow(unsafe_code, reason = "libibverbs is C")]

use crate::codec::connection::Connection;
use crate::frames::random_24;
use crate::image::READ_MAX_BYTES;
use crate::reader::{ReadError, Reader};
use crate::service;
use memcache::FarEnd;
use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use wire::roce::syndrome;

/// Completions of a refused READ: `IBV_WC_REM_INV_REQ_ERR` and `IBV_WC_REM_ACCESS_ERR`.
const REFUSED_REQUEST: c_int = 9;
const REFUSED_ACCESS: c_int = 10;
/// Path MTU that the shim sets.
const MTU: u16 = 1024;

/// The shim's queue pair.
#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn gnomon_verbs_open(gid: *const [u8; 16], read_max: u32) -> *mut Raw;
    fn gnomon_verbs_qpn(v: *const Raw) -> u32;
    fn gnomon_verbs_connect(
        v: *mut Raw,
        psn: u32,
        far_qpn: u32,
        far_psn: u32,
        far_gid: *const [u8; 16],
    ) -> c_int;
    fn gnomon_verbs_read(v: *mut Raw, va: u64, rkey: u32, len: u32, into: *mut u8) -> c_int;
    fn gnomon_verbs_close(v: *mut Raw);
}

/// A queue pair.
#[derive(Debug)]
pub struct Verbs {
    raw: NonNull<Raw>,
}

// SAFETY: nothing of libibverbs is bound to a thread, and only a &mut or its owner reaches what is here.
unsafe impl Send for Verbs {}

impl Drop for Verbs {
    fn drop(&mut self) {
        // SAFETY: it came from gnomon_verbs_open, and is closed once, here.
        unsafe { gnomon_verbs_close(self.raw.as_ptr()) }
    }
}

impl Verbs {
    /// Opens a queue pair on the device with the connection's address, and connects it; the connection
    /// is to be kept as long.
    ///
    /// # Errors
    /// See the module.
    pub fn connect(service: &mut Connection) -> io::Result<Self> {
        let gid = match service.between()?.0.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let read_max = u32::try_from(READ_MAX_BYTES).map_err(io::Error::other)?;
        // SAFETY: 16 bytes that outlive the call.
        let raw = unsafe { gnomon_verbs_open(&gid.octets(), read_max) };
        let verbs = Self { raw: NonNull::new(raw).ok_or_else(io::Error::last_os_error)? };
        // SAFETY: it is open.
        let qpn = unsafe { gnomon_verbs_qpn(verbs.raw.as_ptr()) };
        let near = FarEnd { qpn, psn: random_24(), gid, mtu: MTU };
        let far = service::connect(service, &near)?;
        let far_gid = far.gid.octets();
        let raw = verbs.raw.as_ptr();
        // SAFETY: it is open, and the address outlives the call.
        match unsafe { gnomon_verbs_connect(raw, near.psn, far.qpn, far.psn, &far_gid) } {
            0 => Ok(verbs),
            why => Err(io::Error::from_raw_os_error(why)),
        }
    }
}

impl Reader for Verbs {
    fn read(&mut self, stag: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let (len, rkey) = match (u32::try_from(into.len()), u32::try_from(stag >> 32)) {
            (Ok(len), Ok(rkey)) => (len, rkey),
            _ => return Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
        };
        let raw = self.raw.as_ptr();
        // SAFETY: it is open; `into` has `len` bytes, and what is longer than the shim's memory is refused there.
        match unsafe { gnomon_verbs_read(raw, stag << 32, rkey, len, into.as_mut_ptr()) } {
            0 => Ok(()),
            REFUSED_REQUEST => Err(ReadError::Refused(syndrome::NAK_INVALID)),
            REFUSED_ACCESS => Err(ReadError::Refused(syndrome::NAK_ACCESS)),
            why if why < 0 => Err(io::Error::from_raw_os_error(-why).into()),
            _ => Err(ReadError::Silent),
        }
    }
}
