//! What is final is forgotten: state that only rows below a watermark's bound would need.
//!
//! Looking for it costs what the state holds, so it is done when the state has doubled since the last time: each row is
//! looked at a constant number of times, and no more than twice of what is still open is kept.

use arrow::array::{BooleanArray, RecordBatch};
use datafusion::common::ScalarValue;
use millrace_planner::stage::closing::Closing;
use millrace_planner::watermark::{Bound, Watermarks};

use super::expression::{ErrorCounter, evaluate};
use crate::error::Result;

/// State smaller than this is not looked through.
const SIZE_MIN: usize = 1_024;

/// See the module.
pub struct Closer {
    closing: Closing,
    /// Rows, groups or partitions that were left the last time.
    kept: usize,
    last: Option<ScalarValue>,
}

impl Closer {
    pub fn new(closing: Option<&Closing>) -> Option<Closer> {
        closing.map(|closing| Closer {
            closing: closing.clone(),
            kept: 0,
            last: None,
        })
    }

    pub fn closing(&self) -> &Closing {
        &self.closing
    }

    /// The bound below which state is to be forgotten now, of which there is so much.
    pub fn due(&mut self, size: usize, watermarks: &Watermarks) -> Result<Option<ScalarValue>> {
        if size < SIZE_MIN || size < 2 * self.kept {
            return Ok(None);
        }
        let bound = self.closing.bound.value(watermarks)?;
        if bound.is_none() || bound == self.last {
            return Ok(None);
        }
        self.last.clone_from(&bound);
        Ok(bound)
    }

    /// So much is left.
    pub fn swept(&mut self, kept: usize) {
        self.kept = kept;
    }

    /// Which rows are below the bound.
    pub fn is_final(&self, rows: &RecordBatch, bound: &ScalarValue) -> Result<BooleanArray> {
        is_final(&self.closing, rows, bound)
    }
}

/// Which rows are below the bound. One on which the value cannot be computed never is.
pub fn is_final(closing: &Closing, rows: &RecordBatch, bound: &ScalarValue) -> Result<BooleanArray> {
    let values = evaluate(&closing.value, rows, &bound.data_type(), &ErrorCounter::default())?;
    Ok(Bound::below(bound, &values)?)
}
