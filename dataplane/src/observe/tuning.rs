//! Settings of memcached's that administrators change while it runs, and that stand for nothing
//! here: there are no LRU segments to be of a size, and the sweeper needs no pauses.
//!
//! In: what was set. Out: the same, for `stats settings`, so that tools find what they set.

use parking_lot::Mutex;

/// The settings, at memcached's defaults in the beginning.
#[derive(Debug, Default)]
pub struct Tuning(Mutex<Values>);

/// What they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) crawler_sleep_us: u32,
    pub(crate) crawler_to_crawl: u32,
    pub(crate) hot_percent: u32,
    pub(crate) warm_percent: u32,
    pub(crate) hot_factor_hundredths: u32,
    pub(crate) warm_factor_hundredths: u32,
    pub(crate) segmented: bool,
    pub(crate) automove_ratio_hundredths: u32,
    pub(crate) automove_free_thousandths: u32,
    pub(crate) automove_window_seconds: u32,
    /// `None`: short-lived items are not kept apart.
    pub(crate) temporary_ttl: Option<u32>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            crawler_sleep_us: 100,
            crawler_to_crawl: 0,
            hot_percent: 20,
            warm_percent: 40,
            hot_factor_hundredths: 20,
            warm_factor_hundredths: 200,
            segmented: true,
            automove_ratio_hundredths: 0,
            automove_free_thousandths: 0,
            automove_window_seconds: 3,
            temporary_ttl: None,
        }
    }
}

impl Tuning {
    /// What is set now.
    pub(super) fn now(&self) -> Values {
        *self.0.lock()
    }

    /// Changes it.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Values)) {
        change(&mut self.0.lock());
    }
}
