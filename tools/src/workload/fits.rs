//! Sizes of keys and values as published for a large deployment: Atikoglu et al., "Workload
//! Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, section 5 and table 5.
//!
//! In: a number drawn uniformly from 0 to 1. Out: the size at that place of the distribution, by
//! the inverse of its distribution function. Nothing fails.

/// The name stem of each fit, as written on a command line.
const NAMES: [(Fit, &str); 2] = [(Fit::EtcKey, "etc-key"), (Fit::EtcValue, "etc-value")];

/// A published distribution of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Keys of the ETC pool: generalised extreme value.
    EtcKey,
    /// Values of the ETC pool: a table up to 14 bytes, generalised Pareto above.
    EtcValue,
}

/// Generalised extreme value distribution of ETC's key sizes: location, scale, shape.
const KEY_GEV: [f64; 3] = [30.7984, 8.20449, 0.078688];
/// Shares of ETC's value sizes 0 to 14, table 5.
const VALUE_SHARES: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];
/// Sum of these: 44 % of all values are that small.
const VALUE_SMALL: f64 = 0.44155;
/// Generalised Pareto distribution of ETC's value sizes from 15 bytes on: scale, shape. Its
/// location is 0, counted from the first size that the table leaves out.
const VALUE_PARETO: [f64; 2] = [214.476, 0.348_238];

/// Least key: the fit has 1 key in 2,000,000 below, and 11 bytes name any key number.
const KEY_MIN_BYTES: u32 = 11;
/// Greatest key in memcached.
const KEY_MAX_BYTES: u32 = 250;
/// Greatest item in the deployment, 1 MB; the fit itself has no end.
const VALUE_MAX_BYTES: u32 = 1_000_000;

impl Fit {
    /// The fit of that name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(fit, _)| *fit)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(fit, _)| *fit == self).map_or("", |(_, name)| name)
    }

    /// Least size.
    pub fn min(self) -> u32 {
        match self {
            Self::EtcKey => KEY_MIN_BYTES,
            Self::EtcValue => 0,
        }
    }

    /// Greatest size; the distribution's tail beyond is drawn to it.
    pub fn max(self) -> u32 {
        match self {
            Self::EtcKey => KEY_MAX_BYTES,
            Self::EtcValue => VALUE_MAX_BYTES,
        }
    }

    /// The size that a share `u` of all sizes does not exceed; `u` from 0 to 1.
    pub fn quantile(self, u: f64) -> u32 {
        // The logarithms of 0 are kept out.
        let u = u.clamp(1e-18, 1.0 - 1e-16);
        let size = match self {
            Self::EtcKey => {
                let [location, scale, shape] = KEY_GEV;
                location + scale / shape * ((-u.ln()).powf(-shape) - 1.0)
            }
            Self::EtcValue if u < VALUE_SMALL => return small_value(u),
            Self::EtcValue => {
                let [scale, shape] = VALUE_PARETO;
                let above = (1.0 - u) / (1.0 - VALUE_SMALL);
                VALUE_SHARES.len() as f64 + scale / shape * (above.powf(-shape) - 1.0)
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and the range is small"
        )]
        let size = size.round() as u32;
        size.clamp(self.min(), self.max())
    }
}

/// The size in the table at share `u`.
fn small_value(u: f64) -> u32 {
    let mut below = 0.0;
    for (size, share) in (0..).zip(VALUE_SHARES) {
        below += share;
        if u < below {
            return size;
        }
    }
    14
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes at a million places, evenly apart.
    fn sizes(fit: Fit) -> Vec<u32> {
        (0..1_000_000).map(|i| fit.quantile((f64::from(i) + 0.5) / 1e6)).collect()
    }

    fn share(sizes: &[u32], which: impl Fn(u32) -> bool) -> f64 {
        sizes.iter().filter(|s| which(**s)).count() as f64 / sizes.len() as f64
    }

    #[test]
    fn keys_follow_the_density() {
        // The distribution function itself, against how many are drawn below each size.
        let drawn = sizes(Fit::EtcKey);
        for x in [15.0, 20.0, 30.0, 40.0, 60.0, 100.0_f64] {
            let [location, scale, shape] = KEY_GEV;
            let want = (-(1.0 + shape * (x + 0.5 - location) / scale).powf(-1.0 / shape)).exp();
            let got = share(&drawn, |s| f64::from(s) <= x);
            assert!((got - want).abs() < 1e-5, "{x}: {got} and not {want}");
        }
        assert!(share(&drawn, |s| s == KEY_MIN_BYTES) < 1e-4);
        assert_eq!(drawn.windows(2).find(|w| w[0] > w[1]), None);
    }

    #[test]
    fn small_values_follow_the_table_and_large_ones_the_fit() {
        assert!((VALUE_SHARES.iter().sum::<f64>() - VALUE_SMALL).abs() < 1e-9);
        let drawn = sizes(Fit::EtcValue);
        for (size, want) in (0..).zip(VALUE_SHARES) {
            let got = share(&drawn, |s| s == size);
            assert!((got - want).abs() < 2e-6, "{size}: {got} and not {want}");
        }
        for x in [100.0, 500.0, 5_000.0_f64] {
            let [scale, shape] = VALUE_PARETO;
            let above = (1.0 + shape * (x + 0.5 - 15.0) / scale).powf(-1.0 / shape);
            let (got, want) = (share(&drawn, |s| f64::from(s) > x), above * (1.0 - VALUE_SMALL));
            assert!((got - want).abs() < 1e-5, "{x}: {got} and not {want}");
        }
        // What the paper says of it: nine of ten values are below 500 bytes.
        assert!((0.88..0.95).contains(&share(&drawn, |s| s < 500)));
    }

    #[test]
    fn any_share_has_a_size() {
        for fit in [Fit::EtcKey, Fit::EtcValue] {
            for u in [0.0, 1e-300, 0.44155, 1.0, -1.0, 2.0] {
                assert!((fit.min()..=fit.max()).contains(&fit.quantile(u)), "{u}");
            }
            assert_eq!(Fit::named(fit.name()), Some(fit));
        }
    }
}
