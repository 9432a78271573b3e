//! Line charts as SVG: one helper for every suite.

use plotters::prelude::*;

use crate::error::BenchError;

const SIZE: (u32, u32) = (960, 560);
const FONT: &str = "sans-serif";
/// Pixels of the lines' names, beside the plot.
const LEGEND_WIDTH: u32 = 170;
const LEGEND_TOP: i32 = 56;
const LEGEND_STEP: i32 = 22;
/// Room between the outermost points and the frame, as a factor.
const MARGIN: f64 = 1.5;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    /// Both positive.
    pub points: Vec<(f64, f64)>,
}

/// A chart with logarithmic axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Names the file.
    pub name: &'static str,
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

impl Chart {
    /// The chart as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn svg(&self) -> Result<String, BenchError> {
        let mut svg = String::new();
        self.draw(&mut svg)
            .map_err(|error| BenchError::Plot(format!("{}: {error}", self.name)))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (Some(xs), Some(ys)) = (
            range(points().map(|point| point.0)),
            range(points().map(|point| point.1)),
        ) else {
            return Err("no points".into());
        };
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(xs.log_scale(), ys.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .draw()?;
        // Names stand in the order in which the lines end.
        let end = |line: &Line| line.points.last().map_or(0.0, |point| point.1);
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by(|left, right| end(right).total_cmp(&end(left)));
        for (place, line) in lines.into_iter().enumerate() {
            let style = Palette99::pick(place).stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?;
            let y = LEGEND_TOP + place as i32 * LEGEND_STEP;
            legend.draw(&PathElement::new([(0, y), (18, y)], style))?;
            legend.draw(&Text::new(line.name.as_str(), (26, y - 7), (FONT, 14)))?;
        }
        area.present()?;
        Ok(())
    }
}

/// What holds all of them, with a margin; nothing if there are none.
fn range(values: impl Iterator<Item = f64>) -> Option<std::ops::Range<f64>> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    (low > 0.0 && low.is_finite()).then(|| low / MARGIN..high * MARGIN)
}

fn label(value: &f64) -> String {
    if *value >= 1e6 {
        format!("{}M", value / 1e6)
    } else if *value >= 1e3 {
        format!("{}k", value / 1e3)
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            name: "c",
            title: "A chart".to_owned(),
            x: "rows",
            y: "ms",
            lines: vec![Line {
                name: "a line".to_owned(),
                points,
            }],
        }
    }

    #[test]
    fn a_chart_shows_its_words_and_lines() {
        let svg = chart(vec![(10.0, 0.1), (1_000.0, 3.0)]).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("polyline"), "{svg}");
        for word in ["A chart", "a line", "rows", "ms", "1k"] {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
    }

    #[test]
    fn nothing_and_zero_cannot_be_drawn() {
        assert!(chart(vec![]).svg().is_err());
        assert!(chart(vec![(1.0, 0.0)]).svg().is_err());
    }
}
