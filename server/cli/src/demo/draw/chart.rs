//! Freshness as a line: how long each batch took from sending to reading, from the start of the story on. The scale is
//! logarithmic: beside heavy queries it may be a thousand times as long as alone.

use std::time::Duration;

use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType};

use super::super::acts::Policy;
use super::super::frame::{Beside, Frame, Sample, in_few_digits};

/// The story's minute; the line grows into it.
const MINUTE: Duration = Duration::from_secs(60);
/// The scale, as powers of ten of a millisecond.
const SCALE: [f64; 2] = [-1.0, 3.0];
const SCALE_LABELS: [&str; 3] = ["0.1 ms", " 10 ms", "   1 s"];
/// Points of a column of the terminal, in braille.
const POINTS_OF_COLUMN: u16 = 2;

/// Draws the line.
pub fn draw(shown: &Frame, target: &mut ratatui::Frame<'_>, area: Rect) {
    let end = shown.elapsed.max(MINUTE);
    let runs = runs(&shown.samples, end, area.width * POINTS_OF_COLUMN);
    let datasets = runs.iter().map(|(beside, points)| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(colour(*beside)))
            .data(points)
    });
    let chart = Chart::new(datasets.collect())
        .block(
            Block::new()
                .borders(Borders::TOP)
                .border_style(Style::new().dim())
                .title(title(shown, usize::from(area.width))),
        )
        .x_axis(Axis::default().bounds([0.0, end.as_secs_f64()]))
        .y_axis(
            Axis::default()
                .bounds(SCALE)
                .labels(SCALE_LABELS)
                .style(Style::new().dim()),
        )
        .legend_position(None);
    target.render_widget(chart, area);
}

fn colour(beside: Beside) -> Color {
    match beside {
        Beside::Nothing | Beside::Alone => Color::Green,
        Beside::Heavy(Policy::Pausing) => Color::Yellow,
        Beside::Heavy(Policy::InTurn) => Color::Red,
        Beside::Kill => Color::Magenta,
    }
}

/// What the line is, and what its colours mean, with the numbers of each; in fewer words where there is no room.
fn title(shown: &Frame, width: usize) -> Line<'static> {
    let named = |paused: &str, gap: &str| {
        let kinds = [
            (Beside::Nothing, "alone"),
            (Beside::Heavy(Policy::Pausing), paused),
            (Beside::Heavy(Policy::InTurn), "in turn"),
            (Beside::Kill, "kill -9"),
        ];
        let mut spans = vec![Span::raw(" fresh after ")];
        for (beside, name) in kinds {
            if let Some([median, _]) = shown.freshness(beside) {
                spans.push(format!("{} {name}{gap}", rounded(median)).fg(colour(beside)));
            }
        }
        Line::from(spans)
    };
    let long = named("SELECTs paused", "  ");
    if long.width() <= width {
        long
    } else {
        named("paused", " ")
    }
}

/// A duration in few letters.
fn rounded(duration: Duration) -> String {
    match duration.as_secs_f64() * 1000.0 {
        long if (100.0..1000.0).contains(&long) => format!("{long:.0} ms"),
        _ => in_few_digits(duration),
    }
}

/// The samples in stretches of one kind, each point the slowest of its part of the width.
fn runs(samples: &[Sample], end: Duration, points: u16) -> Vec<(Beside, Vec<(f64, f64)>)> {
    let step = (end.as_secs_f64() / f64::from(points.max(1))).max(f64::MIN_POSITIVE);
    let mut runs: Vec<(Beside, Vec<(f64, f64)>)> = vec![];
    for sample in samples {
        let at = (sample.at.as_secs_f64() / step).floor() * step;
        let value = (sample.freshness.as_secs_f64() * 1000.0)
            .max(f64::MIN_POSITIVE)
            .log10()
            .clamp(SCALE[0], SCALE[1]);
        match runs.last_mut() {
            Some((beside, points)) if *beside == sample.beside => match points.last_mut() {
                Some((last, slowest)) if *last == at => *slowest = slowest.max(value),
                _ => points.push((at, value)),
            },
            _ => runs.push((sample.beside, vec![(at, value)])),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_part_is_drawn_and_kinds_are_apart() {
        let sample = |at, freshness, beside| Sample {
            at: Duration::from_millis(at),
            freshness: Duration::from_millis(freshness),
            beside,
        };
        let samples = [
            sample(0, 1, Beside::Nothing),
            sample(10, 10, Beside::Nothing),
            sample(1500, 1, Beside::Nothing),
            sample(1600, 100_000, Beside::Heavy(Policy::InTurn)),
            sample(2500, 1, Beside::Nothing),
        ];
        let runs = runs(&samples, Duration::from_secs(10), 10);
        assert_eq!(
            runs,
            [
                (Beside::Nothing, vec![(0.0, 1.0), (1.0, 0.0)]),
                (Beside::Heavy(Policy::InTurn), vec![(1.0, SCALE[1])]),
                (Beside::Nothing, vec![(2.0, 0.0)]),
            ]
        );
    }
}
