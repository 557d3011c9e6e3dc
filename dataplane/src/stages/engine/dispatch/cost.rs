//! What batches cost, as far as the last few show.
//!
//! In: measurements, in nanoseconds. Out: averages that forget, and a line through the last points:
//! so much for a batch, and so much more for each request. Never fails: with nothing measured yet
//! costs are 0, and what does not fit a line is all start.

/// Weight of a new measurement: some thirty batches are remembered.
const WEIGHT: f64 = 1.0 / 32.0;

/// An average of the last measurements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    value: f64,
    any: bool,
}

impl Rate {
    pub(super) fn add(&mut self, measured: f64) {
        if self.any {
            self.value += WEIGHT * (measured - self.value);
        } else {
            (self.value, self.any) = (measured, true);
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.value
    }
}

/// The line through the last points, by least squares.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinearFit {
    n: Rate,
    t: Rate,
    nn: Rate,
    nt: Rate,
}

impl LinearFit {
    /// A batch of `n` requests took `t`.
    pub(super) fn add(&mut self, n: f64, t: f64) {
        self.n.add(n);
        self.t.add(t);
        self.nn.add(n * n);
        self.nt.add(n * t);
    }

    /// Cost of a batch, and of each request in it; neither below 0.
    pub(super) fn fit(&self) -> (f64, f64) {
        let (n, t) = (self.n.get(), self.t.get());
        let variance = self.nn.get() - n * n;
        // Sizes so much the same say nothing of the slope.
        let each = if variance < 1.0 + 1e-3 * n * n {
            0.0
        } else {
            ((self.nt.get() - n * t) / variance).max(0.0)
        };
        let start = t - each * n;
        if start < 0.0 { (0.0, if n > 0.0 { t / n } else { 0.0 }) } else { (start, each) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * (1.0 + a.abs() + b.abs())
    }

    #[test]
    fn a_line_is_found() {
        let mut line = LinearFit::default();
        for n in [1.0, 512.0, 64.0, 300.0, 10.0, 256.0] {
            line.add(n, 5000.0 + 4.0 * n);
        }
        let (start, each) = line.fit();
        assert!(near(start, 5000.0) && near(each, 4.0), "{start} {each}");
    }

    #[test]
    fn sizes_that_are_all_the_same_are_all_start() {
        let mut line = LinearFit::default();
        assert_eq!(line.fit(), (0.0, 0.0));
        for _ in 0..10 {
            line.add(512.0, 9000.0);
        }
        let (start, each) = line.fit();
        assert!(near(start, 9000.0) && each == 0.0);
    }

    #[test]
    fn nothing_is_below_zero() {
        let mut line = LinearFit::default();
        for (n, t) in [(10.0, 9000.0), (500.0, 1000.0), (100.0, 3.0)] {
            line.add(n, t);
            let (start, each) = line.fit();
            assert!(start >= 0.0 && each >= 0.0);
        }
    }

    #[test]
    fn what_was_is_forgotten() {
        let mut rate = Rate::default();
        rate.add(1000.0);
        for _ in 0..2000 {
            rate.add(10.0);
        }
        assert!(near(rate.get(), 10.0));
    }
}
