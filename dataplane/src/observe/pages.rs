//! The pages about the whole, which collectors read.
//!
//! In: the state of the process. Out: names and values, in order. A page allocates and takes locks.
//! Never fails.

use super::rows::Rows;
use super::server::Server;
use super::{classes, general, settings};

/// A page about the whole, which collectors read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overview {
    /// `stats`.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats engine`.
    Engine,
}

/// Writes the rows of such a page, also without a client (for metrics).
pub fn overview(page: Overview, server: &Server, rows: &mut impl Rows) {
    match page {
        Overview::General => general::page(server, rows),
        Overview::Settings => settings::page(server, rows),
        Overview::Items => classes::items(&server.store.stats(), &server.counted_by_class(), rows),
        Overview::Slabs => {
            let (counted, all) = (server.counted_by_class(), server.totals_by_class());
            classes::slabs(&server.store.stats(), &counted, &all, rows);
        }
        Overview::Engine => {
            if let Some(engine) = server.engine() {
                engine.rows(&mut |name, value| rows.row(name, value));
            }
        }
    }
}
