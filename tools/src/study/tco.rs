//! The cost tables of the papers, recomputed: total cost of ownership of the FPGA appliance (table 2), its
//! energy (table 3), and performance per watt and dollar of MemcachedGPU (table 6).
//!
//! In: nothing but the papers' own figures, and with `--krps`, `--watts` and `--price` those of a machine of yours.
//! Out: each printed ratio beside the quotient of the figures printed next to it, and whether they agree. A
//! ratio that no rounding of them gives is a slip in one of the three.

use super::frame::{Common, Frame};
use crate::report::table::{Draw, Table, table};
use clap::Parser;
use serde_json::{Value, json};
use std::error::Error;

/// Half of the last place of the printed ratios.
const HALF_OF_RATIO: f64 = 0.005;

/// Table 2 of the FPGA paper, of 1,000 CPU servers or as much memory: system, million requests per second, million
/// dollars a year in all, and as printed operations per second and dollar.
const OWNERSHIP: [(&str, f64, f64, f64); 6] = [
    ("CPU1", 1_000.0, 40.5, 24.69),
    ("CPU2", 300.0, 40.5, 7.40),
    ("FPGA2A", 2_262.0, 52.0, 43.51),
    ("FPGA2B", 2_262.0, 77.0, 14.79),
    ("FPGA3A", 4_608.0, 52.0, 88.62),
    ("FPGA3B", 4_608.0, 153.0, 29.92),
];

/// Table 3 of the FPGA paper: system, watts, thousand operations per second, and as printed those per watt.
const ENERGY: [(&str, f64, f64, f64); 4] = [
    ("CPU1", 202.0, 1_000.0, 4.95),
    ("CPU2", 202.0, 300.0, 1.49),
    ("FPGA1", 17.4, 283.0, 16.26),
    ("FPGA2", 18.84, 566.0, 30.04),
];

/// Table 6 of MemcachedGPU, as far as it prints both ratios: platform, million requests per second, thousand requests per
/// second and watt, and the same per dollar.
const COMPARISON: [(&str, f64, f64, f64); 8] = [
    ("MemcGPU Tesla, online", 13.0, 62.0, 4.3),
    ("MemcGPU Tesla, online, low latency", 9.0, 45.0, 3.0),
    ("MemcGPU GTX 750Ti, NGD online", 12.85, 84.8, 25.7),
    ("MemcGPU GTX 750Ti, offline", 28.3, 127.3, 56.6),
    ("memcached, 4 threads", 0.93, 6.6, 2.67),
    ("memcached with PF_RING, 2 threads", 1.82, 15.89, 5.2),
    ("Flying Memc", 1.67, 8.9, 2.6),
    ("FPGA (Blott et al.)", 13.02, 106.7, 1.75),
];

const OWNERSHIP_TABLE: Table = table! {
    "ownership" "Total cost of ownership (FPGA appliance, table 2)"
    ["system mops million_dollars printed recomputed agrees"]
    "Operations per second and dollar a year: as printed, and as the printed rate and total give it."
    => Draw::Bars { label: "system", y: "operations per second and dollar", parts: &["recomputed"] }
};
const ENERGY_TABLE: Table = table! {
    "energy" "Energy (FPGA appliance, table 3)" ["system watts kops printed recomputed agrees"]
    "Thousand operations per second and watt: as printed, and as the printed rate and power give it."
    => Draw::Bars { label: "system", y: "KOps/s per watt", parts: &["recomputed"] }
};
const COMPARISON_TABLE: Table = table! {
    "comparison" "Per watt and dollar (MemcachedGPU, table 6)"
    ["system mrps krps_per_watt krps_per_dollar watts dollars"]
    "The watts and the price of processor and GPU that the printed ratios mean, and yours where given."
    => Draw::Bars { label: "system", y: "KRPS per watt", parts: &["krps_per_watt"] }
};

/// What of yours is set beside the papers' machines.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Thousand requests per second of your machine.
    #[arg(long, value_parser = positive, requires = "watts")]
    krps: Option<f64>,
    /// Watts that it takes meanwhile, at the wall or by its meters.
    #[arg(long, value_parser = positive, requires = "krps")]
    watts: Option<f64>,
    /// Price of its processors and GPUs, in dollars.
    #[arg(long, value_parser = positive, requires = "krps")]
    price: Option<f64>,
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("`{text}` is no number above 0")),
    }
}

/// Half of the last place that a number is printed with.
fn half_a_place(number: f64) -> f64 {
    let text = number.to_string();
    let places = text.split_once('.').map_or(0, |(_, places)| places.len());
    0.5 / 10_f64.powi(i32::try_from(places).unwrap_or(0))
}

/// Whether a printed ratio may be that of what the printed numbers were before they were rounded.
fn agrees(printed: f64, over: f64, under: f64) -> bool {
    let (more, less) = (half_a_place(over), half_a_place(under));
    let least = (over - more) / (under + less) - HALF_OF_RATIO;
    let most = (over + more) / (under - less) + HALF_OF_RATIO;
    (least..=most).contains(&printed)
}

fn ownership() -> Vec<Value> {
    let row = |(system, mops, dollars, printed): (&str, f64, f64, f64)| {
        let recomputed = mops / dollars;
        json!({
            "system": system, "mops": mops, "million_dollars": dollars, "printed": printed,
            "recomputed": recomputed, "agrees": agrees(printed, mops, dollars),
        })
    };
    OWNERSHIP.map(row).to_vec()
}

fn energy() -> Vec<Value> {
    let row = |(system, watts, kops, printed): (&str, f64, f64, f64)| {
        let recomputed = kops / watts;
        json!({
            "system": system, "watts": watts, "kops": kops, "printed": printed,
            "recomputed": recomputed, "agrees": agrees(printed, kops, watts),
        })
    };
    ENERGY.map(row).to_vec()
}

fn comparison() -> Vec<Value> {
    let row = |(system, mrps, per_watt, per_dollar): (&str, f64, f64, f64)| {
        json!({
            "system": system, "mrps": mrps, "krps_per_watt": per_watt, "krps_per_dollar": per_dollar,
            "watts": 1e3 * mrps / per_watt, "dollars": 1e3 * mrps / per_dollar,
        })
    };
    COMPARISON.map(row).to_vec()
}

impl Cli {
    /// Recomputes, prints and writes.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("tco", &self.common)?;
        let mut all = comparison();
        // Without a meter there is no figure, and none is guessed.
        if let (Some(krps), Some(watts)) = (self.krps, self.watts) {
            all.push(json!({
                "system": "this machine", "mrps": krps / 1e3, "krps_per_watt": krps / watts,
                "krps_per_dollar": self.price.map(|price| krps / price), "watts": watts, "dollars": self.price,
            }));
        }
        frame.report.table("ownership", ownership())?;
        frame.report.table("energy", energy())?;
        frame.report.table("comparison", all)?;
        Ok(frame.end(&[OWNERSHIP_TABLE, ENERGY_TABLE, COMPARISON_TABLE])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ratios_are_those_of_their_figures_but_for_two() {
        let slips: Vec<String> = ownership()
            .iter()
            .chain(&energy())
            .filter(|row| row["agrees"] == false)
            .map(|row| row["system"].to_string())
            .collect();
        assert_eq!(slips, ["\"FPGA2B\"", "\"FPGA3B\""]);
        // The one is what FPGA3B's total makes it.
        assert!(agrees(14.79, 2_262.0, 153.0) && !agrees(14.79, 2_262.0, 77.0));
        let of = |system: &str| {
            let row = ownership().into_iter().find(|row| row["system"] == system).unwrap();
            (row["recomputed"].as_f64().unwrap() * 100.0).round() / 100.0
        };
        assert_eq!(
            [of("CPU1"), of("FPGA2A"), of("FPGA2B"), of("FPGA3A")],
            [24.69, 43.5, 29.38, 88.62]
        );
    }

    /// Section 5.6 gives the prices that the ratios come from: 150 dollars for the GTX 750Ti, and the processor's.
    #[test]
    fn a_ratio_means_a_price() {
        let all = comparison();
        let ti = all.iter().find(|row| row["system"] == "MemcGPU GTX 750Ti, offline").unwrap();
        let dollars = ti["dollars"].as_f64().unwrap();
        assert!((dollars - 500.0).abs() < 1.0, "{dollars}");
    }
}
