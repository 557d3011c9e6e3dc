//! The machine below: [`machine`] reads its processors, memory and limits, [`check`] says what is missing,
//! [`bind`] gives a NIC to its DPDK driver, [`affinity`] places threads and memory. [`cpu_list`] and [`pci`] are the words for CPUs and devices.

pub mod machine;
pub mod check;
pub mod bind;
pub mod affinity;
pub mod cpu_list;
pub mod pci;
