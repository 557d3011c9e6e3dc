//! Addresses of PCI devices.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Domain, bus, device and function, in full: `0000:81:00.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PciAddress(pub String);

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        in_full(s).map(Self).ok_or_else(|| "not a PCI address (0000:81:00.0)".to_owned())
    }
}

/// `0000:81:00.0` or `81:00.0`, in full and in lower case.
fn in_full(s: &str) -> Option<String> {
    let hex = |s: &str, digits: usize| {
        (s.len() == digits && s.bytes().all(|b| b.is_ascii_hexdigit())).then_some(())
    };
    let full = if s.split(':').count() == 2 { format!("0000:{s}") } else { s.to_owned() };
    let mut parts = full.split(':');
    hex(parts.next()?, 4)?;
    hex(parts.next()?, 2)?;
    let (device, function) = parts.next()?.split_once('.')?;
    hex(device, 2)?;
    (function.len() == 1 && matches!(function.as_bytes(), [b'0'..=b'7'])).then_some(())?;
    parts.next().is_none().then(|| full.to_ascii_lowercase())
}
