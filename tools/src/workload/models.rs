//! Workloads by name: the pools of a large deployment, and YCSB's core workloads.
//!
//! In: a name. Out: a [`Mix`], which flags may then change. Nothing fails.
//!
//! **Pools** (Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS
//! 2012). Only ETC is published as a model (section 5, table 5): its sizes are exact. Of the
//! others the paper shows some numbers in section 3 and draws the rest: USR's keys are 16 or 21
//! bytes and its values 2; nine of ten of VAR's keys are 31 bytes; nine of ten values of every
//! pool are below 500 bytes. What it only draws is **approximated** here by a few sizes and a round
//! share of gets, and marked so. It gives no law of popularity (figure 8 and table 4 show a long
//! tail), so that all pools take Zipf 0.99. Deletes, expiry and the hours of the day are left out.
//!
//! **YCSB** (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, section 4
//! and table 2): keys `user` and 19 digits long, values of ten fields of 100 bytes. Of workload
//! E, memcached has no scan: it becomes a multi-get of 1 to 100 keys in a row. Of
//! workload F, a read-modify-write is two requests, a get and then a set of the same key by the
//! same client. Inserts go round: the new key takes the place of the oldest.

use super::fits::Fit;
use super::{Popularity, Sizes, popularity::THETA_DEFAULT};

/// A workload by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// General purpose pool: the published model.
    Etc,
    /// Account status: keys of 16 or 21 bytes, values of 2, hardly a set.
    Usr,
    /// Objects of one application (approximation).
    App,
    /// Browser information: mostly sets (approximation).
    Var,
    /// Where services are (approximation).
    Sys,
    /// Half updates, scrambled Zipf.
    YcsbA,
    /// One update in 20, scrambled Zipf.
    YcsbB,
    /// Gets alone, scrambled Zipf.
    YcsbC,
    /// One insert in 20, the latest wanted most.
    YcsbD,
    /// Short scans, here multi-gets of keys in a row, and one insert in 20.
    YcsbE,
    /// Half read-modify-writes: a get and then a set.
    YcsbF,
}

/// What a request that is no get does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Writes {
    /// Sets a key as popular as those read.
    Update,
    /// Sets the next new key.
    Insert,
    /// Gets a key, and sets it with the next request.
    Modify,
}

/// What is asked, and how large it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Key sizes.
    pub key_size: Sizes,
    /// Value sizes.
    pub value_size: Sizes,
    /// Which keys are wanted.
    pub popularity: Popularity,
    /// Share of requests that are gets, 0 to 1; the others write.
    pub get_ratio: f64,
    /// Keys per get, all different.
    pub multi_get: u32,
    /// A get requests 1 to `multi_get` keys in a row, each number alike likely.
    pub scans: bool,
    /// What the others do.
    pub writes: Writes,
}

impl Default for Mix {
    /// Gets of one key each, 16 bytes, all alike popular; values of 64 bytes.
    fn default() -> Self {
        Self {
            key_size: Sizes::Fixed(16),
            value_size: Sizes::Fixed(64),
            popularity: Popularity::Uniform,
            get_ratio: 1.0,
            multi_get: 1,
            scans: false,
            writes: Writes::Update,
        }
    }
}

/// Bytes of a key in YCSB: `user` and a 64-bit number.
const YCSB_KEY_BYTES: u32 = 23;
/// Ten fields of 100 bytes.
const YCSB_VALUE_BYTES: u32 = 1_000;
/// Longest scan in workload E.
const YCSB_SCAN_KEYS: u32 = 100;

impl Model {
    /// Its command.
    pub fn mix(self) -> Mix {
        let sizes = |list: &[(u32, u32)]| Sizes::List(list.to_vec());
        let pool = |key_size, value_size, get_ratio| Mix {
            key_size,
            value_size,
            get_ratio,
            popularity: Popularity::Scrambled(THETA_DEFAULT),
            ..Mix::default()
        };
        let ycsb = |get_ratio, writes| Mix {
            writes,
            ..pool(Sizes::Fixed(YCSB_KEY_BYTES), Sizes::Fixed(YCSB_VALUE_BYTES), get_ratio)
        };
        match self {
            // 30 gets to an update: section 3.1.
            Self::Etc => pool(Fit::EtcKey.into(), Fit::EtcValue.into(), 30.0 / 31.0),
            // 99.8 % gets: section 3.1. Which of the two key sizes is how frequent is not reported.
            Self::Usr => pool(sizes(&[(16, 1), (21, 1)]), Sizes::Fixed(2), 0.998),
            // Approximated from figures 1 and 2.
            Self::App => {
                pool(sizes(&[(20, 1), (30, 5), (45, 4)]), sizes(&[(270, 9), (900, 1)]), 0.95)
            }
            Self::Var => {
                pool(sizes(&[(31, 9), (24, 1)]), sizes(&[(50, 6), (150, 3), (700, 1)]), 0.18)
            }
            Self::Sys => {
                pool(sizes(&[(20, 5), (40, 5)]), sizes(&[(30, 2), (450, 7), (1_000, 1)]), 0.67)
            }
            Self::YcsbA => ycsb(0.5, Writes::Update),
            Self::YcsbB => ycsb(0.95, Writes::Update),
            Self::YcsbC => ycsb(1.0, Writes::Update),
            Self::YcsbD => {
                Mix { popularity: Popularity::Latest(THETA_DEFAULT), ..ycsb(0.95, Writes::Insert) }
            }
            Self::YcsbE => {
                Mix { multi_get: YCSB_SCAN_KEYS, scans: true, ..ycsb(0.95, Writes::Insert) }
            }
            Self::YcsbF => ycsb(0.5, Writes::Modify),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::sizes::Of;
    use clap::ValueEnum;

    #[test]
    fn names_are_those_of_the_papers() {
        let names: Vec<String> = Model::value_variants()
            .iter()
            .map(|m| m.to_possible_value().unwrap().get_name().to_owned())
            .collect();
        let want = "etc usr app var sys ycsb-a ycsb-b ycsb-c ycsb-d ycsb-e ycsb-f";
        assert_eq!(names.join(" "), want);
    }

    #[test]
    fn what_the_paper_says_of_the_pools_holds() {
        let share = |m: Model, which: &dyn Fn(usize) -> bool| {
            let sizes = m.mix().value_size;
            (0..100_000).filter(|i| which(sizes.of(*i, Of::Value))).count() as f64 / 100_000.0
        };
        for m in [Model::Etc, Model::Usr, Model::App, Model::Var, Model::Sys] {
            let small = share(m, &|s| s < 500);
            assert!((0.88..=1.0).contains(&small), "{m:?}: {small}");
        }
        assert!(share(Model::Usr, &|s| s == 2) == 1.0);
        let keys = Model::Var.mix().key_size;
        let of_31 = (0..100_000).filter(|i| keys.of(*i, Of::Key) == 31).count();
        assert!((89_000..91_000).contains(&of_31), "{of_31}");
    }
}
