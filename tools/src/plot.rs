//! Curves as SVG, for reports; and [`bars`].
//!
//! In: names, axes, points. Out: the text of an SVG file, which holds every point. Nothing fails:
//! what cannot be placed (no number, or not above 0 on a logarithmic axis) is left out.

mod bars;
#[cfg(test)]
mod tests;

pub use bars::bars;

use std::fmt::Write as _;

/// How an axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// From 0, or below where a value lies there.
    #[default]
    Linear,
    /// By factors, from the least value.
    Log,
}

/// An axis.
#[derive(Debug, Clone, Copy, Default)]
pub struct Axis<'a> {
    /// What it shows, with its unit.
    pub label: &'a str,
    /// How it counts.
    pub scale: Scale,
}

impl<'a> Axis<'a> {
    /// From 0 up.
    pub const fn linear(label: &'a str) -> Self {
        Self { label, scale: Scale::Linear }
    }

    /// By factors.
    pub const fn log(label: &'a str) -> Self {
        Self { label, scale: Scale::Log }
    }
}

/// A curve: its name and its points, along and up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// What distinguishes it from the others.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone, Default)]
pub struct Plot<'a> {
    /// Stands above it; may be empty.
    pub title: &'a str,
    /// From left to right.
    pub x: Axis<'a>,
    /// From the bottom up.
    pub y: Axis<'a>,
    /// One colour each.
    pub curves: Vec<Curve>,
}

impl Plot<'_> {
    /// Adds a point to the curve of that name, which comes into being with its first.
    pub fn add(&mut self, name: &str, point: (f64, f64)) {
        match self.curves.iter_mut().find(|c| c.name == name) {
            Some(curve) => curve.points.push(point),
            None => self.curves.push(Curve { name: name.to_owned(), points: vec![point] }),
        }
    }

    /// The file.
    pub fn svg(&self) -> String {
        let x = Extent::of(self.x.scale, self.values(|p| p.0), false);
        let y = Extent::of(self.y.scale, self.values(|p| p.1), true);
        let legend_rows = self.curves.len().div_ceil(LEGEND_COLUMNS);
        let height = HEIGHT + LEGEND_ROW * legend_rows.saturating_sub(1) as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{:.1}\" y=\"16\" text-anchor=\"middle\">{}</text>\n",
            WIDTH / 2.0,
            escape(self.title)
        );
        let place = |(along, up)| Some((across(x.share(along)?), upward(y.share(up)?)));
        rungs(&mut svg, &y);
        for tick in x.ticks() {
            let Some(share) = x.share(tick) else { continue };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                across(share),
                HEIGHT - BOTTOM + 18.0,
                figure(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{LEFT}\" y=\"32\">{}</text>",
            WIDTH / 2.0,
            HEIGHT - BOTTOM + 36.0,
            escape(self.x.label),
            escape(self.y.label)
        );
        for (number, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000");
            let points: Vec<(f64, f64)> = curve.points.iter().filter_map(|p| place(*p)).collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let (row, column) = (number / LEGEND_COLUMNS, number % LEGEND_COLUMNS);
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
                line.join(" "),
                LEFT + LEGEND_WIDTH * column as f64,
                HEIGHT - 10.0 + LEGEND_ROW * row as f64,
                escape(&curve.name)
            );
            for (x, y) in points.iter().filter(|_| points.len() <= DOTS_MAX) {
                let dot =
                    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
                let _ = writeln!(svg, "{dot}");
            }
        }
        svg + "</svg>\n"
    }

    fn values(&self, which: impl Fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
        self.curves.iter().flat_map(|c| &c.points).map(which)
    }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Room for labels around the curves.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const BOTTOM: f64 = 70.0;
const TOP: f64 = 44.0;
const LEGEND_COLUMNS: usize = 4;
const LEGEND_WIDTH: f64 = 142.0;
const LEGEND_ROW: f64 = 16.0;
const COLOURS: [&str; 8] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#97bbf5", "#a463f2", "#3ca951"];
/// Longer curves get no dots.
const DOTS_MAX: usize = 64;
/// Marks on an axis, about so many.
const TICKS: f64 = 5.0;

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// A line across for each tick of the vertical axis, and its figure.
fn rungs(svg: &mut String, y: &Extent) {
    for tick in y.ticks() {
        let Some(at) = y.share(tick).map(upward) else { continue };
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            figure(tick)
        );
    }
}

fn upward(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
}

/// From where to where an axis goes.
struct Extent {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Extent {
    /// Around all of `values`; upward axes begin at 0 where they can.
    fn of(scale: Scale, values: impl Iterator<Item = f64>, upward: bool) -> Self {
        let fits = |v: &f64| v.is_finite() && (scale == Scale::Linear || *v > 0.0);
        let (low, high) = values
            .filter(fits)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (mut low, mut high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        match scale {
            Scale::Linear => {
                if upward {
                    (low, high) = (low.min(0.0), high + (high - low.min(0.0)) * 0.05);
                }
                if high <= low {
                    high = low + 1.0;
                }
            }
            Scale::Log if high <= low => high = low * 2.0,
            Scale::Log => {}
        }
        Self { scale, low, high }
    }

    /// How far along a value lies, from 0 to 1.
    fn share(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        share.is_finite().then_some(share)
    }

    /// Round numbers within: 1, 2 or 5 times a power of ten apart; powers of 2 or of ten on a
    /// logarithmic axis.
    fn ticks(&self) -> Vec<f64> {
        let inside = |v: &f64| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(v);
        if self.scale == Scale::Log {
            let base = if self.high / self.low > 2_000.0 { 10.0_f64 } else { 2.0 };
            let steps = (self.high / self.low).log(base) / (2.0 * TICKS);
            let step = base.powi(whole(steps.ceil().max(1.0)));
            let first = base.powi(whole(self.low.log(base).floor()));
            let all = std::iter::successors(Some(first), |t| Some(t * step));
            return all.take(99).take_while(|t| *t <= self.high * 1.001).filter(inside).collect();
        }
        let rough = (self.high - self.low) / TICKS;
        let power = 10.0_f64.powi(whole(rough.log10().floor()));
        let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil();
        let all = (0..99).map(|n| (first + f64::from(n)) * step);
        all.take_while(|t| *t <= self.high).collect()
    }
}

/// An exponent; far below the range of an `i32`.
fn whole(value: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "a float saturates")]
    {
        value as i32
    }
}

/// A number for people: two or three digits that count, and a unit for what is large.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e9 => format!("{:.2} G", value / 1e9),
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} K", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
