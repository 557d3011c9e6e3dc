//! Is this machine fit for what was asked? `gnomon check`, and the first step of every start with a NIC.
//!
//! In: what is needed ([`Wants`], from the same flags as `serve`) and a [`Host`], which is a
//! directory that looks like `/`. Out: [`Finding`]s, each with the command that mends it. Changes
//! nothing, touches no device, and needs no privileges: what cannot be read is said, not guessed.

mod cpus;
mod gpus;
mod host;
mod memory;
mod nics;

pub use host::Host;

pub(crate) use nics::BIFURCATED;

use crate::host::pci::PciAddress;
use serde::Serialize;
use std::fmt;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// As it should be.
    Pass,
    /// It will work, and not as well as it could.
    Warn,
    /// It will not work, or would do harm. `serve` does not start.
    Fail,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub status: Status,
    /// What was looked at: `huge pages`, `NIC 0000:81:00.0 driver`.
    pub what: String,
    /// What was found.
    pub found: String,
    /// The command, or the change, that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn pass(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { status: Status::Pass, what: what.into(), found: found.into(), fix: None }
    }

    fn warn(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { status: Status::Warn, what: what.into(), found: found.into(), fix }
    }

    fn fail(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, ..Self::warn(what, found, fix) }
    }
}

/// What the machine is needed for.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// NICs that DPDK is to drive.
    pub nics: Vec<PciAddress>,
    /// A TAP device is to carry the rest of their traffic.
    pub exception_path: bool,
    /// Interfaces that packet sockets are to read.
    pub interfaces: Vec<String>,
    /// Those whose frames the kernel sees too, while such a device has the service's address.
    pub seen_twice: Vec<String>,
    /// How it is needed that the kernel keeps the rest.
    pub isolated: Want,
    /// NICs whose interfaces have all addresses of their ports.
    pub addressed: Vec<PciAddress>,
    /// CPUs that will poll.
    pub worker_cpus: Vec<usize>,
    /// Bytes of items and packets, for huge pages and locked memory.
    pub memory_bytes: u64,
    /// What is wanted of each NUMA node, where it is divided over several.
    pub nodes: Vec<OfNode>,
    /// How huge pages are needed.
    pub huge: Want,
    /// How a GPU is needed.
    pub gpu: Want,
}

/// What is wanted of a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfNode {
    /// The kernel's number.
    pub id: u32,
    /// CPUs that will poll the NICs of this node, and no others.
    pub worker_cpus: Vec<usize>,
    /// Its share of items, and its packets, in bytes.
    pub memory_bytes: u64,
}

/// How much something is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Want {
    /// Not at all.
    No,
    /// Where there is one.
    #[default]
    IfThere,
    /// Without it there is no start.
    Must,
}

/// Looks at everything that matters to `wants`.
pub fn check(host: &Host, wants: &Wants) -> Vec<Finding> {
    let mut findings = memory::check(host, wants);
    findings.extend(cpus::check(host, wants));
    findings.extend(nics::check(host, wants));
    findings.extend(gpus::check(host, wants));
    findings
}

/// What the plan says of the flags: an error has its remedy in it.
pub fn flags<E: fmt::Display>(plan: Result<(), E>) -> Finding {
    match plan {
        Ok(()) => Finding::pass("flags", "make a plan"),
        Err(error) => Finding { fix: None, ..Finding::fail("flags", error.to_string(), "") },
    }
}

/// Whether the kernel's addresses of the plan are free. An appliance that runs already may have them.
pub fn addresses<E: fmt::Display>(free: Result<(), E>, may_be_ours: bool) -> Finding {
    const WHAT: &str = "addresses";
    match free {
        Ok(()) => Finding::pass(WHAT, "free"),
        Err(error) if may_be_ours => {
            let fix = "nothing, if this very appliance is running already";
            Finding::warn(WHAT, error.to_string(), fix)
        }
        Err(error) => Finding { fix: None, ..Finding::fail(WHAT, error.to_string(), "") },
    }
}

/// What the profile stands for.
pub fn profile(flags: String) -> Finding {
    Finding::pass("profile", flags)
}

/// What keeps `serve` from starting on a NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this machine is not fit for that:\n{0}\n`gnomon check` with the same flags tells all")]
pub struct Unfit(String);

/// Every start passes here. Without a NIC nothing of the machine can be harmed.
///
/// # Errors
/// Something failed.
pub fn before_start(host: &Host, wants: &Wants) -> Result<(), Unfit> {
    let findings = match wants.nics.is_empty() {
        true => nics::seen_twice(wants).collect(),
        false => check(host, wants),
    };
    let mut failed = Vec::new();
    for Finding { status, what, found, fix } in findings {
        let fix = fix.unwrap_or_default();
        match status {
            Status::Pass => {}
            Status::Warn => tracing::warn!("{what}: {found}; {fix}"),
            Status::Fail => failed.push(format!("  {what}: {found} -> {fix}")),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Unfit(failed.join("\n"))) }
}

/// What `gnomon check` prints.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// All of it.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Nothing failed.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|f| f.status != Status::Fail)
    }

    fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|f| f.status == status).count()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|l| l.what.len()).max().unwrap_or(0);
        for Finding { status, what, found, fix } in &self.findings {
            writeln!(f, "{status}  {what:width$}  {found}")?;
            if let Some(fix) = fix {
                writeln!(f, "{:>6}{:width$}  -> {fix}", "", "")?;
            }
        }
        let [pass, warn, fail] =
            [Status::Pass, Status::Warn, Status::Fail].map(|status| self.count(status));
        write!(f, "{pass} passed, {warn} to look at, {fail} failed")
    }
}

#[cfg(test)]
pub(crate) mod tests;
