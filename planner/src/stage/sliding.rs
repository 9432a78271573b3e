//! Aggregates over overlapping windows.

use std::fmt::Write;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::aggregation::Aggregation;
use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::readable::readable_names;
use super::words::flags;
use crate::watermark::Bound;

/// Aggregates over overlapping windows (HOP), which are put together from panes: what comes in is grouped by pane.
#[derive(Debug, Clone)]
pub struct Sliding {
    /// Its group columns are those of the output. In the input those that tell of the window hold the start of the pane.
    pub aggregation: Aggregation,
    /// The group columns that tell of the window; there is at least one.
    pub windows: Vec<WindowColumn>,
    /// Lengths in microseconds. A window begins at each multiple of the slide, plus the offset; a pane divides slide and size.
    pub slide: i64,
    pub size: i64,
    pub offset: i64,
    pub pane: i64,
    pub form: SlidingForm,
    /// A window whose start plus so many microseconds is below the bound is final.
    pub closes: Option<(i64, Bound)>,
    /// Each window is emitted once, when it is final, and not whenever it changes.
    pub once: bool,
}

/// A column that tells when a window begins, plus so many microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowColumn {
    pub column: usize,
    pub shift: i64,
}

/// How the value over the next window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlidingForm {
    /// From that over the last one: the panes that leave are taken away, those that enter are added.
    Subtract,
    /// From those of its panes, for at least one of the aggregates.
    Merge,
}

impl Description for Sliding {
    fn schema(&self) -> &SchemaRef {
        &self.aggregation.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.aggregation.input]
    }

    fn line(&self) -> String {
        let micros = |length: i64| Duration::from_micros(length.unsigned_abs());
        let form = match self.form {
            SlidingForm::Subtract => "by subtracting panes",
            SlidingForm::Merge => "by merging panes",
        };
        let closes = match (&self.closes, self.once) {
            (None, _) => "",
            (Some(_), false) => ", closes at its end",
            (Some(_), true) => ", emitted when it closes",
        };
        format!(
            "Sliding: windows of {:?} every {:?} from panes of {:?}, {form}; {}{closes}",
            micros(self.size),
            micros(self.slide),
            micros(self.pane),
            self.aggregation.words()
        )
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        vec![]
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let form = match self.form {
            SlidingForm::Subtract => "subtract",
            SlidingForm::Merge => "merge",
        };
        let mut text = format!(
            "{}, slide {}, size {}, offset {}, pane {}, {form}",
            self.aggregation.state_text(&inputs[0]),
            self.slide,
            self.size,
            self.offset,
            self.pane,
        );
        for window in &self.windows {
            let _ = write!(text, ", window {} + {}", window.column, window.shift);
        }
        flags(
            &mut text,
            &[(self.closes.is_some(), "closes"), (self.once, "once")],
        );
        Some(State {
            kind: "sliding windows",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let stream = inputs[0].clone()?;
        if self.closes.is_none() {
            let schema = self.aggregation.input.schema();
            let names = readable_names(schema, 0..self.aggregation.group_columns);
            note(format!("GROUP BY ({names})"), "every group", &stream);
        }
        Some(stream)
    }

    fn goes_by_watermarks(&self) -> bool {
        self.closes.is_some()
    }
}
