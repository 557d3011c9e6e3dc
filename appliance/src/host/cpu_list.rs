//! Sets of CPUs, as flags and the kernel write them: `2-7,10`.

use std::fmt;
use std::str::FromStr;

/// A set of CPUs, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        /// The kernel's largest CPU_SETSIZE in common use.
        const CPUS_MAX: usize = 8192;
        let mut cpus = std::collections::BTreeSet::new();
        for part in s.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
                (Ok(a), Ok(b)) if a <= b && b < CPUS_MAX => cpus.extend(a..=b),
                _ => return Err(format!("'{part}' is neither a CPU nor a range (2-7,10)")),
            }
        }
        Ok(Self(cpus.into_iter().collect()))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                _ => write!(f, "{comma}{}", run.first().unwrap_or(&0))?,
            }
        }
        Ok(())
    }
}
