//! Energy, from RAPL (Linux' powercap), where it may be read: root's on most kernels.
//!
//! In: `/sys/class/powercap/intel-rapl:N`, one a package, by AMD and Intel alike. Out: joules since
//! the start, and requests to a joule. The hardware's counters wrap, so that they have to be read
//! more often than they do: minutes apart at the least. A package that cannot be read any more
//! stays where it is. Never fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the kernel shows it.
const POWERCAP: &str = "/sys/class/powercap";
/// Shortest time over which requests are set against energy.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Package {
    zone: String,
    energy: PathBuf,
    /// Where the counter begins again.
    range_uj: u64,
    last_uj: u64,
    taken_uj: u64,
}

/// What packages took.
#[derive(Debug)]
pub struct Power {
    packages: Vec<Package>,
    /// When the window began, and the joules and requests by then.
    begun: Option<(Instant, f64, u64)>,
    requests_per_joule: Option<f64>,
}

impl Power {
    /// Of this machine, from now on.
    pub fn of_machine() -> Self {
        Self::under(Path::new(POWERCAP))
    }

    fn under(root: &Path) -> Self {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut packages: Vec<Package> = entries.filter_map(|e| Package::new(&e.path())).collect();
        packages.sort_by(|a, b| a.zone.cmp(&b.zone));
        Self { packages, begun: None, requests_per_joule: None }
    }

    /// Reads the counters. `requests` says how many have been answered so far.
    pub fn look(&mut self, now: Instant, requests: impl FnOnce() -> u64) {
        if self.packages.is_empty() {
            return;
        }
        self.packages.iter_mut().for_each(Package::look);
        match self.begun {
            Some((begun, ..)) if now.saturating_duration_since(begun) < WINDOW => {}
            before => {
                let joules: f64 = self.joules().map(|(_, joules)| joules).sum();
                let requests = requests();
                if let Some((_, joules_then, requests_then)) = before
                    && joules > joules_then
                {
                    // A reset of the statistics sets requests back.
                    let asked = requests.saturating_sub(requests_then);
                    self.requests_per_joule = Some(asked as f64 / (joules - joules_then));
                }
                self.begun = Some((now, joules, requests));
            }
        }
    }

    /// Joules of each package since the start.
    pub(super) fn joules(&self) -> impl Iterator<Item = (&str, f64)> {
        self.packages.iter().map(|p| (p.zone.as_str(), p.taken_uj as f64 / 1e6))
    }

    pub(super) fn requests_per_joule(&self) -> Option<f64> {
        self.requests_per_joule
    }
}

impl Package {
    fn new(dir: &Path) -> Option<Self> {
        // Parts of a package (core, dram) have a second colon.
        let (driver, number) = dir.file_name()?.to_str()?.split_once(':')?;
        if driver != "intel-rapl" || number.parse::<u32>().is_err() {
            return None;
        }
        let (energy, name) = (dir.join("energy_uj"), fs::read_to_string(dir.join("name")).ok()?);
        let range_uj = number_in(&dir.join("max_energy_range_uj"))?;
        let last_uj = number_in(&energy)?;
        let zone = format!("{}:{number}", name.trim());
        Some(Self { zone, energy, range_uj, last_uj, taken_uj: 0 })
    }

    fn look(&mut self) {
        let Some(now_uj) = number_in(&self.energy) else { return };
        let taken = match now_uj.checked_sub(self.last_uj) {
            Some(taken) => taken,
            None => self.range_uj.saturating_sub(self.last_uj).saturating_add(now_uj),
        };
        self.taken_uj = self.taken_uj.saturating_add(taken);
        self.last_uj = now_uj;
    }
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;

    #[test]
    fn energy_is_summed_over_the_counters_wrap() {
        let t = Tree::new(
            "power",
            &[
                ("intel-rapl:0/name", "package-0\n"),
                ("intel-rapl:0/energy_uj", "9000000\n"),
                ("intel-rapl:0/max_energy_range_uj", "10000000\n"),
                ("intel-rapl:0:0/name", "core\n"),
                ("intel-rapl:0:0/energy_uj", "1\n"),
                ("intel-rapl:0:0/max_energy_range_uj", "10000000\n"),
                ("dtpm/name", "other\n"),
            ],
        );
        let mut power = Power::under(&t.0);
        let joules = |power: &Power| -> Vec<(String, f64)> {
            power.joules().map(|(zone, j)| (zone.to_owned(), j)).collect()
        };
        let start = Instant::now();
        power.look(start, || 100);
        assert_eq!(joules(&power), [("package-0:0".to_owned(), 0.0)]);
        std::fs::write(t.0.join("intel-rapl:0/energy_uj"), "1000000").unwrap();
        power.look(start + Duration::from_secs(1), || panic!("the window is not over"));
        assert_eq!(joules(&power), [("package-0:0".to_owned(), 2.0)]);
        assert_eq!(power.requests_per_joule(), None);
        power.look(start + WINDOW, || 400);
        assert_eq!(power.requests_per_joule(), Some(150.0));
        std::fs::write(t.0.join("intel-rapl:0/energy_uj"), "broken").unwrap();
        power.look(start + WINDOW * 2, || 400);
        assert_eq!(joules(&power), [("package-0:0".to_owned(), 2.0)]);
        assert_eq!(power.requests_per_joule(), Some(150.0), "no energy, no news");
    }

    #[test]
    fn without_rapl_there_is_nothing_to_tell() {
        let mut power = Power::under(Path::new("/nowhere"));
        power.look(Instant::now(), || panic!("nobody asked"));
        assert_eq!(power.joules().count(), 0);
    }
}
