//! Bars of parts on top of one another.

use super::{
    BOTTOM, COLOURS, Extent, HEIGHT, LEFT, LEGEND_COLUMNS, LEGEND_ROW, LEGEND_WIDTH, RIGHT, Scale,
    WIDTH, escape, rungs, upward,
};
use std::fmt::Write as _;

/// Narrower bars have their names askew.
const UPRIGHT_STEP_MIN: f64 = 80.0;

/// A bar each, with its name and the heights of its parts, from below; `parts` are what these are
/// called, in all bars.
pub fn bars(title: &str, y: &str, parts: &[&str], bars: &[(String, Vec<f64>)]) -> String {
    let tall = |heights: &[f64]| heights.iter().filter(|h| h.is_finite() && **h > 0.0).sum::<f64>();
    let all = || bars.iter().map(|(_, heights)| tall(heights));
    let up = Extent::of(Scale::Linear, all().chain([0.0]), true);
    let legend = LEGEND_ROW * parts.len().div_ceil(LEGEND_COLUMNS) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.1}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{:.1}\" fill=\"#fff\"/>\n\
         <text x=\"{:.1}\" y=\"16\" text-anchor=\"middle\">{}</text><text x=\"{LEFT}\" y=\"32\">{}</text>\n",
        HEIGHT + legend,
        HEIGHT + legend,
        WIDTH / 2.0,
        escape(title),
        escape(y)
    );
    rungs(&mut svg, &up);
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (number, (name, heights)) in bars.iter().enumerate() {
        let left = LEFT + step * (number as f64 + 0.15);
        let mut base = 0.0;
        for (part, height) in heights.iter().enumerate().filter(|(_, h)| h.is_finite() && **h > 0.0)
        {
            let place = |height| up.share(height).map_or(HEIGHT - BOTTOM, upward);
            let (below, above) = (place(base), place(base + height));
            base += height;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{above:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                step * 0.7,
                below - above,
                colour(part)
            );
        }
        let (x, y) = (left + step * 0.35, HEIGHT - BOTTOM + 16.0);
        let turned = if step < UPRIGHT_STEP_MIN {
            format!("text-anchor=\"end\" transform=\"rotate(-30 {x:.1} {y:.1})\"")
        } else {
            "text-anchor=\"middle\"".to_owned()
        };
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {turned}>{}</text>", escape(name));
    }
    for (number, part) in parts.iter().enumerate() {
        let (row, column) = (number / LEGEND_COLUMNS, number % LEGEND_COLUMNS);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            LEFT + LEGEND_WIDTH * column as f64,
            HEIGHT + LEGEND_ROW * row as f64,
            colour(number),
            escape(part)
        );
    }
    svg + "</svg>\n"
}

fn colour(number: usize) -> &'static str {
    COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_tall_as_their_parts() {
        let all =
            [("one".to_owned(), vec![1.0, 3.0]), ("two<".to_owned(), vec![2.0, 0.0, f64::NAN])];
        let svg = bars("t", "ns", &["a", "b"], &all);
        let heights: Vec<f64> = svg
            .lines()
            .filter(|l| l.starts_with("<rect x="))
            .map(|l| l.split('"').nth(7).unwrap().parse().unwrap())
            .collect();
        let [one, three, two] = heights[..] else { panic!("{svg}") };
        assert!((three - 3.0 * one).abs() < 0.3 && (two - 2.0 * one).abs() < 0.3, "{heights:?}");
        assert!(svg.contains(">two&lt;<") && svg.contains(">b<"), "{svg}");
        assert!(bars("t", "ns", &[], &[]).ends_with("</svg>\n"));
    }
}
