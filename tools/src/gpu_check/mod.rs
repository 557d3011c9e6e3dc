//! Behind `gnomon-gpu-check`: what a GPU does for this program, and what it could do.
//!
//! In: a GPU, or the SIMT executor in its place. Out: figures, each written down as soon as it is
//! known ([`Report`](crate::report::Report)), and a page with tables and plots ([`page`]). In the order
//! of their worth: whether it works ([`sanity`]), what bounds it ([`micro`], [`cpu`]), the index and the
//! stage by themselves ([`lookup`], [`stage`]), GETs beside another user ([`consolidation`]), the whole pipeline ([`study`]), and other programs'
//! checks ([`programs`]); above all, what was wanted ([`goals`]). Each step has a time limit, after
//! which it begins nothing new ([`steps`]). A step that fails, crashes or hangs does not keep the
//! others from being done ([`watch`]).

pub mod consolidation;
pub mod cpu;
pub mod goals;
pub mod lab;
pub mod lookup;
pub mod micro;
pub mod page;
pub mod plan;
pub mod programs;
pub mod sanity;
pub mod stage;
pub mod steps;
pub mod study;
pub mod watch;

use crate::study::median;
use std::time::{Duration, Instant};

/// What a step, or a part of one, came to.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How much of everything is measured.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Smallest sizes and single runs: for machines without a GPU, and to see that all works.
    pub tiny: bool,
    /// When the step ends.
    pub until: Instant,
}

impl Extent {
    /// Whether there is time for one more measurement.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Least time of one measurement.
    pub fn at_least(&self) -> Duration {
        if self.tiny { Duration::from_micros(1) } else { Duration::from_millis(50) }
    }

    /// Measurements of which the median counts.
    pub fn runs(&self) -> usize {
        if self.tiny { 2 } else { 3 }
    }

    /// One of two values.
    pub fn pick<T>(&self, full: T, tiny: T) -> T {
        if self.tiny { tiny } else { full }
    }
}

/// The value below which the share `p` of sorted values lies.
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a slice"
    )]
    let at = (sorted.len() as f64 * p) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(&mut []).is_nan());
        let sorted: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((percentile(&sorted, 0.99) - 99.0).abs() < 1e-9);
        assert!((percentile(&sorted, 0.5) - 50.0).abs() < 1e-9);
    }
}
