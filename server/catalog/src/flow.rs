//! How much of a view may be in flight: what settings and options say of it.

use millrace_planner::stage::flow::FlowLimits;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use serde::{Deserialize, Serialize};

/// The setting, and the option of a view, that says how many batches.
pub const BATCHES: &str = "flow_batches";
/// The same for the rows of a batch.
pub const BATCH_ROWS: &str = "flow_batch_rows";

/// Batches that may be in flight at most.
const BATCHES_MAX: usize = 1_024;
/// Rows that a batch may have at most.
const BATCH_ROWS_MAX: usize = 10_000_000;

/// Flow control of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowDef {
    /// Batches in flight; 0: no flow control; `None`: the default.
    pub batches: Option<usize>,
    /// Rows of a batch; `None`: the default.
    pub batch_rows: Option<usize>,
}

impl FlowDef {
    /// With one of the two set to what a text says. False if it is neither.
    ///
    /// # Errors
    /// The text is no such number.
    pub fn set(&mut self, name: &str, text: &str) -> SqlResult<bool> {
        match name {
            BATCHES => self.batches = number(name, text, BATCHES_MAX, true)?,
            BATCH_ROWS => self.batch_rows = number(name, text, BATCH_ROWS_MAX, false)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The limits, with so many cores in all.
    pub fn limits(&self, cores: usize) -> FlowLimits {
        let default = FlowLimits::of_cores(cores);
        FlowLimits {
            batches: self.batches.unwrap_or(default.batches),
            batch_rows: self.batch_rows.unwrap_or(default.batch_rows),
        }
    }
}

/// `auto`, `off` where that can be, or a number from 1 on.
fn number(name: &str, text: &str, most: usize, may_be_off: bool) -> SqlResult<Option<usize>> {
    match text.to_ascii_lowercase().as_str() {
        "auto" | "default" => return Ok(None),
        "off" | "false" if may_be_off => return Ok(Some(0)),
        _ => {}
    }
    let number = text.replace('_', "").parse().ok();
    number
        .filter(|number| (1..=most).contains(number))
        .map(Some)
        .ok_or_else(|| {
            let words = match may_be_off {
                true => ", \"auto\" or \"off\"",
                false => " or \"auto\"",
            };
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("invalid value for parameter \"{name}\": \"{text}\""),
            )
            .with_hint(format!("Give a number from 1 to {most}{words}."))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers_or_words() {
        let mut flow = FlowDef::default();
        assert!(flow.set(BATCHES, "8").unwrap());
        assert!(flow.set(BATCH_ROWS, "10_000").unwrap());
        assert!(!flow.set("flow_batch", "8").unwrap());
        let limits = flow.limits(2);
        assert_eq!((limits.batches, limits.batch_rows), (8, 10_000));
        assert!(flow.set(BATCHES, "OFF").unwrap());
        assert_eq!(flow.limits(2).batches, 0);
        assert!(flow.set(BATCHES, "auto").unwrap() && flow.set(BATCH_ROWS, "auto").unwrap());
        let limits = flow.limits(2);
        assert_eq!((limits.batches, limits.batch_rows), (4, 2_000));
        for (name, text) in [
            (BATCHES, "0"),
            (BATCHES, "many"),
            (BATCH_ROWS, "off"),
            (BATCHES, "1025"),
        ] {
            assert!(flow.set(name, text).is_err(), "{name} = {text}");
        }
        let hint = |name: &str| FlowDef::default().set(name, "-1").unwrap_err().hint.unwrap();
        assert_eq!(
            hint(BATCHES),
            "Give a number from 1 to 1024, \"auto\" or \"off\"."
        );
        assert_eq!(hint(BATCH_ROWS), "Give a number from 1 to 10000000 or \"auto\".");
    }
}
