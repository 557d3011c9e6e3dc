//! The steps, their order and their time; and the process that does them.
//!
//! In: which steps, for how long, on what. Out: for each a row of the table `steps`: what became of it, and
//! after how many seconds. After each the page is written. One process does all steps with one handle
//! on the device, until one fails; the parent process starts another for the rest ([`super::watch`]).
//! Fails by that.

use super::lab::{Lab, WHOLE};
use super::micro::Micro;
use super::plan::{Plan, Step};
use super::study::Study;
use super::{Extent, Result, consolidation, cpu, goals, lookup, page, programs, sanity, stage};
use crate::report::Report;
use gpu::card::Card;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the steps share; made by the first that needs it.
#[derive(Debug, Default)]
struct Shared {
    card: Option<Arc<dyn Card>>,
    lab: Option<Lab>,
}

/// Does the steps until one fails.
///
/// # Errors
/// The report cannot be written. A step's failure is in the report.
pub fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    // Its parts end in this order: the lab uses the GPU.
    let mut shared = Shared::default();
    for (number, &step) in plan.steps.iter().enumerate() {
        let left = plan.left.saturating_sub(begun.elapsed());
        if left.is_zero() {
            report.row(
                "steps",
                json!({ "step": step.name(), "outcome": "left out",
                                        "why": "no time was left", "seconds": 0.0 }),
            )?;
            continue;
        }
        // The last one has what the others left.
        let last = number + 1 == plan.steps.len();
        let limit = if last { left } else { plan.limit(step).min(left) };
        report.fact("running", json!({ "step": step.name(), "seconds": limit.as_secs_f64() }))?;
        if plan.crash == Some(step) {
            std::process::abort();
        }
        let (start, until) = (Instant::now(), Instant::now() + limit);
        let done = shared.step(plan, step, Extent { tiny: plan.tiny, until }, report);
        let why = done.as_ref().err().map(ToString::to_string);
        let out_of_time = start.elapsed() >= limit;
        let outcome = match why {
            Some(_) => "failed",
            None if out_of_time => "done, cut short",
            None => "done",
        };
        record(report, step, outcome, start.elapsed(), why)?;
        if done.is_err() {
            break;
        }
    }
    Ok(())
}

/// Notes what became of a step, and writes the page.
///
/// # Errors
/// The report cannot be written.
pub(super) fn record(
    report: &mut Report,
    step: Step,
    outcome: &str,
    took: Duration,
    why: Option<String>,
) -> Result<()> {
    let row = json!({ "step": step.name(), "outcome": outcome, "seconds": took.as_secs_f64(),
                      "why": why.map(|why| why.replace(['\n', '|'], " ")) });
    report.row("steps", row)?;
    report.fact("running", Value::Null)?;
    goals::write(report)?;
    Ok(page::write(report)?)
}

impl Shared {
    fn card(&mut self, plan: &Plan, report: &mut Report) -> Result<Arc<dyn Card>> {
        if let Some(card) = &self.card {
            return Ok(Arc::clone(card));
        }
        let begun = Instant::now();
        let card = plan.card.open(plan.device)?;
        let facts = card.facts();
        report.fact("gpu", json!(facts.name))?;
        report.fact("multiprocessors", json!(facts.multiprocessors))?;
        report.fact("memory_gb", json!(facts.memory_bytes >> 30))?;
        report.fact("open_seconds", json!(begun.elapsed().as_secs_f64()))?;
        Ok(Arc::clone(self.card.insert(card)))
    }

    fn lab(&mut self, plan: &Plan, extent: Extent, report: &mut Report) -> Result<&mut Lab> {
        if self.lab.is_none() {
            let card = self.card(plan, report)?;
            self.lab = Some(Lab::new(&card, plan.items, extent)?);
        }
        self.lab.as_mut().ok_or_else(|| "no store".into())
    }

    fn step(&mut self, plan: &Plan, step: Step, extent: Extent, report: &mut Report) -> Result<()> {
        match step {
            Step::Sanity => {
                let card = self.card(plan, report)?;
                sanity::run(&card, extent, report)
            }
            Step::Roofs => Micro::new(&self.card(plan, report)?, extent)?.roofs(report),
            Step::Driver => Micro::new(&self.card(plan, report)?, extent)?.driver(report),
            Step::Lookup => {
                let card = self.card(plan, report)?;
                // Room for a large index.
                self.lab = None;
                lookup::run(&card, plan.index_items, extent, report)
            }
            Step::Stage => stage::rates(self.lab(plan, extent, report)?, extent, report),
            Step::Latency => stage::latencies(self.lab(plan, extent, report)?, extent, report),
            Step::Sets => stage::sets(self.lab(plan, extent, report)?, extent, report),
            Step::Consolidation => {
                let per_s = extent.pick(consolidation::GETS_PER_S, 1e4);
                consolidation::run(self.lab(plan, extent, report)?, per_s, extent, report)
            }
            Step::EndToEnd => {
                Study::new(self.lab(plan, extent, report)?, extent).end_to_end(report)
            }
            Step::Whole => {
                let card = self.card(plan, report)?;
                self.lab = None;
                let each = WHOLE.map(|how| {
                    let mut lab = Lab::new(&card, plan.items, extent)?;
                    Study::new(&mut lab, extent).whole(how, report)
                });
                each.into_iter().collect()
            }
            Step::Study => Study::new(self.lab(plan, extent, report)?, extent).sweeps(report),
            Step::Cpu => Ok(cpu::run(report, &extent)?),
            Step::Parity => programs::parity(plan, extent, report),
            Step::Sanitizer => programs::sanitizer(plan, extent, report),
        }
    }
}
