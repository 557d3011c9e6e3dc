//! Flags that describe a workload, alike in all tools that take one.

use super::models::{Mix, Model, Writes};
use super::{Popularity, Sizes};
use clap::Args;

/// What is asked. A model sets everything; the other flags change it.
#[derive(Debug, Clone, Args)]
pub struct WorkloadFlags {
    /// A workload by name: a pool of Atikoglu et al. 2012 or a core workload of YCSB. The flags below
    /// change it, or gets of one key of 16 bytes, uniform, values of 64 bytes, where none is named.
    #[arg(long, value_enum, value_name = "MODEL")]
    pub workload: Option<Model>,
    /// Number of keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Key size in bytes, 1 to 250: 16, 8..64, a list 16:3,64:1, or etc-key.
    #[arg(long, value_name = "SIZES")]
    pub key_size: Option<Sizes>,
    /// Value size in bytes: 64, 1..1000, a list 64:9,1000:1, or etc-value.
    #[arg(long, value_name = "SIZES")]
    pub value_size: Option<Sizes>,
    /// Which keys are asked for: uniform, zipf:0.99 (key 0 the most), scrambled:0.99 (the same
    /// scattered over the keys), latest, scan, or hotspot:0.2:0.8 (share of keys, of requests).
    #[arg(long)]
    pub popularity: Option<Popularity>,
    /// Share of requests that are gets, 0 to 1; the others write.
    #[arg(long, value_name = "SHARE")]
    pub get_ratio: Option<f64>,
    /// Keys per get, all different.
    #[arg(long, value_name = "K")]
    pub multi_get: Option<u32>,
    /// What the others do: set a key, set the next new key, or get a key and then set it.
    #[arg(long, value_enum)]
    pub writes: Option<Writes>,
}

impl WorkloadFlags {
    /// What was asked for.
    pub fn mix(&self) -> Mix {
        let mix = self.workload.map(Model::mix).unwrap_or_default();
        Mix {
            key_size: self.key_size.clone().unwrap_or(mix.key_size),
            value_size: self.value_size.clone().unwrap_or(mix.value_size),
            popularity: self.popularity.unwrap_or(mix.popularity),
            get_ratio: self.get_ratio.unwrap_or(mix.get_ratio),
            multi_get: self.multi_get.unwrap_or(mix.multi_get),
            scans: mix.scans,
            writes: self.writes.unwrap_or(mix.writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        workload: WorkloadFlags,
    }

    fn mix(line: &str) -> Mix {
        Cli::parse_from(line.split(' ')).workload.mix()
    }

    #[test]
    fn flags_change_what_the_model_says() {
        assert_eq!(mix("x"), Mix::default());
        assert_eq!(mix("x --workload etc"), Model::Etc.mix());
        let changed = mix("x --workload ycsb-f --value-size 10 --get-ratio 0.9");
        let want = Mix { value_size: Sizes::Fixed(10), get_ratio: 0.9, ..Model::YcsbF.mix() };
        assert_eq!(changed, want);
    }
}
