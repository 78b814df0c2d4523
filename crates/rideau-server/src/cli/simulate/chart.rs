//! Waits, goodput and refusals over the load, as a picture.
//!
//! The lines differ by colour, by dashes and by marks. Colours follow what the reader prefers,
//! dark or light.

use std::fmt::Write;

use rideau_config::human::{Html, Span};

use super::report::{RunRow, percent, rate};

/// The rows of one line: the same but for the load.
struct Line<'a> {
    label: &'a str,
    rows: Vec<&'a RunRow>,
}

/// One of the charts beside each other.
struct Panel {
    title: &'static str,
    value: fn(&RunRow) -> f64,
    shown: fn(f64) -> String,
    is_log: bool,
    /// The end of the axis reaches here at least.
    least_top: f64,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "99th percentile of waits",
        value: RunRow::p99_ms,
        shown: |ms| Span::micros((ms * 1e3) as u64).to_string(),
        is_log: true,
        least_top: 1.0,
    },
    Panel {
        title: "goodput a second",
        value: |row| row.goodput_per_s,
        shown: rate,
        is_log: false,
        least_top: 0.0,
    },
    Panel {
        title: "requests that got nothing",
        value: |row| row.lost,
        shown: percent,
        is_log: false,
        least_top: 0.01,
    },
];

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 36.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 40.0;
const LEGEND_ROW: f64 = 20.0;
/// Lines of more than these begin with the first again.
const LINES: usize = 6;
const DASHES: [&str; LINES] = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2"];
/// The least that a logarithmic axis shows, in milliseconds.
const LOG_LEAST: f64 = 0.1;

/// The colours, for both kinds of screens.
pub(super) const STYLE: &str = "
svg { --ink: #1c2330; --soft: #667085; --grid: #e4e7ec; --paper: #ffffff;
  --c0: #1a66d6; --c1: #c2410c; --c2: #15803d; --c3: #9333ea; --c4: #0e7490; --c5: #be185d; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6e9ef; --soft: #98a2b3; --grid: #2c3444; --paper: #12161f;
    --c0: #6ea8fe; --c1: #fb923c; --c2: #4ade80; --c3: #c084fc; --c4: #22d3ee; --c5: #f472b6; }
}
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .soft { fill: var(--soft); }
svg .grid { stroke: var(--grid); fill: none; }
svg .paper { fill: var(--paper); }
svg .line { fill: none; stroke-width: 2; }
";

/// A picture that stands alone.
pub(super) fn svg(rows: &[RunRow]) -> String {
    let lines = lines(rows);
    let width = WIDTH * PANELS.len() as f64;
    let height = HEIGHT + LEGEND_ROW * (lines.len() as f64 + 0.5);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"Waits, goodput and refusals over the load\">\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (panel, at) in PANELS.iter().zip(0..) {
        let x = WIDTH * f64::from(at);
        let _ = writeln!(svg, "<g transform=\"translate({x} 0)\">");
        panel.draw(&lines, &mut svg);
        svg += "</g>\n";
    }
    for (at, line) in lines.iter().enumerate() {
        let y = HEIGHT + LEGEND_ROW * (at as f64 + 0.5);
        let (dash, colour) = (DASHES[at % LINES], at % LINES);
        let _ = writeln!(
            svg,
            "<path class=\"line\" d=\"M{LEFT} {y}h36\" stroke=\"var(--c{colour})\" \
             stroke-dasharray=\"{dash}\"/>{}<text x=\"{}\" y=\"{}\">{}</text>",
            mark(at, LEFT + 18.0, y),
            LEFT + 46.0,
            y + 4.0,
            Html(line.label)
        );
    }
    svg + "</svg>\n"
}

fn lines(rows: &[RunRow]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in rows {
        match lines.iter_mut().find(|line| line.label == row.label) {
            Some(line) => line.rows.push(row),
            None => lines.push(Line {
                label: &row.label,
                rows: vec![row],
            }),
        }
    }
    for line in &mut lines {
        line.rows
            .sort_by(|one, other| one.load.total_cmp(&other.load));
    }
    lines
}

impl Panel {
    fn draw(&self, lines: &[Line<'_>], svg: &mut String) {
        let rows = || lines.iter().flat_map(|line| &line.rows);
        let loads = rows().map(|row| row.load);
        let (first, last) = ends(loads);
        // One load alone stands in the middle.
        let (first, last) = if first < last {
            (first, last)
        } else {
            (0.0, 2.0 * last)
        };
        let top = rows()
            .map(|row| (self.value)(row))
            .fold(self.least_top, f64::max);
        let ticks = self.ticks(top);
        let top = ticks.last().copied().unwrap_or(top).max(f64::MIN_POSITIVE);
        let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let x = |load: f64| LEFT + wide * (load - first) / (last - first);
        let y = |value: f64| {
            let part = match self.is_log {
                true => (value.max(LOG_LEAST) / LOG_LEAST).ln() / (top / LOG_LEAST).ln(),
                false => value / top,
            };
            TOP + high * (1.0 - part.clamp(0.0, 1.0))
        };
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"20\">{}</text>", self.title);
        for tick in &ticks {
            let at = y(*tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}h{wide}\"/><text class=\"soft\" \
                 x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                (self.shown)(*tick)
            );
        }
        for load in load_ticks(rows().map(|row| row.load)) {
            let _ = writeln!(
                svg,
                "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{load}x</text>",
                x(load),
                HEIGHT - BOTTOM + 18.0
            );
        }
        for (at, line) in lines.iter().enumerate() {
            self.draw_line(at, line, x, y, svg);
        }
    }

    fn draw_line(
        &self,
        at: usize,
        line: &Line<'_>,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
        svg: &mut String,
    ) {
        let (dash, colour) = (DASHES[at % LINES], at % LINES);
        let points = line
            .rows
            .iter()
            .map(|row| (x(row.load), y((self.value)(row)), *row));
        let points: Vec<_> = points.collect();
        let path: Vec<_> = points
            .iter()
            .map(|(x, y, _)| format!("{x:.1} {y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            "<path class=\"line\" d=\"M{}\" stroke=\"var(--c{colour})\" \
             stroke-dasharray=\"{dash}\"/>",
            path.join("L")
        );
        for (x, y, row) in points {
            let said = (self.shown)((self.value)(row));
            let _ = writeln!(
                svg,
                "<g><title>{} at {}x: {said}</title>{}</g>",
                Html(line.label),
                row.load,
                mark(at, x, y)
            );
        }
    }

    /// Where the axis has lines, from the bottom to the top.
    fn ticks(&self, top: f64) -> Vec<f64> {
        if self.is_log {
            let decades = (top.max(1.0) / LOG_LEAST).log10().ceil() as i32;
            return (0..=decades)
                .map(|at| LOG_LEAST * 10_f64.powi(at))
                .collect();
        }
        let raw = top.max(f64::MIN_POSITIVE) / 4.0;
        let decade = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * decade);
        let step = steps.into_iter().find(|step| *step >= raw * 0.999);
        let step = step.unwrap_or(raw);
        let count = (top / step - 1e-9).ceil().max(1.0) as u32;
        (0..=count).map(|at| f64::from(at) * step).collect()
    }
}

/// A mark of a line at a point: each line has another one.
fn mark(line: usize, x: f64, y: f64) -> String {
    let path = match line % LINES {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
        3 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
        4 => format!("M{x:.1} {:.1}l4.5 -8h-9z", y + 5.0),
        _ => format!("M{:.1} {:.1}h3v-3h3v3h3v3h-3v3h-3v-3h-3z", x - 4.5, y - 1.5),
    };
    format!("<path d=\"{path}\" fill=\"var(--c{})\"/>", line % LINES)
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (value.min(least), value.max(most))
    })
}

/// Up to eight of the loads.
fn load_ticks(loads: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = loads.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let every = all.len().div_ceil(8).max(1);
    all.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_a_round_number_above_the_highest_value() {
        for (top, wanted) in [
            (812.0, &[0.0, 250.0, 500.0, 750.0, 1000.0][..]),
            (0.01, &[0.0, 0.0025, 0.005, 0.0075, 0.01]),
            (4.0, &[0.0, 1.0, 2.0, 3.0, 4.0]),
        ] {
            assert_eq!(PANELS[1].ticks(top), wanted, "{top}");
        }
        assert_eq!(PANELS[0].ticks(90.0).len(), 4, "0.1, 1, 10 and 100");
    }

    #[test]
    fn few_loads_are_named() {
        let loads = (0..30).map(f64::from);
        assert_eq!(load_ticks(loads).len(), 8);
        assert_eq!(load_ticks([2.0, 1.0, 2.0].into_iter()), [1.0, 2.0]);
    }
}
