//! What the appliance shows of itself: [`metrics`], [`health`] of its threads and ports, the start and end
//! [`report`]s, packet [`capture`]s; and [`terminal`], which reads a running one's metrics.

pub mod metrics;
pub mod health;
pub mod report;
pub mod capture;
pub mod terminal;
