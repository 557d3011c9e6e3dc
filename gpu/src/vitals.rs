//! What a GPU's management library shows of its health.
//!
//! The form of it, for every build; `cuda::nvml` reads it.

/// One GPU. What it, its driver or its library does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Its PCI address, as the library writes it.
    pub pci: String,
    /// Of the die.
    pub temperature_celsius: Option<u32>,
    /// What it takes now.
    pub power_milliwatts: Option<u32>,
    /// What it has taken since its driver was loaded.
    pub energy_millijoules: Option<u64>,
    /// Of its processors, now.
    pub sm_megahertz: Option<u32>,
    /// Of its memory, now.
    pub memory_megahertz: Option<u32>,
    /// Memory errors that were corrected, since its driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that could not be.
    pub ecc_uncorrected: Option<u64>,
    /// Part of the last moments in which a kernel ran.
    pub busy_percent: Option<u32>,
    /// The driver's critical errors by their numbers, and how many there were since it was watched.
    pub xids: Vec<(u64, u64)>,
}
