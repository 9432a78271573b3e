//! An aggregate's state for the checkpoint store: what it has emitted, then its groups.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::AggregateInstance;
use crate::error::Result;
use crate::group_keys::GroupKeys;
use crate::groups::Groups;
use crate::image::{Part, Parts};

impl AggregateInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![
            self.emitted_first,
            self.groups.is_some(),
        ]));
        let next: ArrayRef = Arc::new(Int64Array::from(vec![
            self.timer.as_ref().and_then(|timer| timer.next),
        ]));
        parts.push(Part::Columns(vec![flags, next]));
        if let Some(groups) = &mut self.groups {
            groups.add_parts(parts)?;
        }
        Ok(())
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let columns = parts.columns(2)?;
        let flags = columns[0].as_boolean();
        if let Some(timer) = &mut self.timer {
            timer.next = columns[1].as_primitive::<Int64Type>().iter().next().flatten();
        }
        self.emitted_first = flags.value(0);
        if !flags.value(1) {
            return Ok(());
        }
        let keys = GroupKeys::kept(&self.input_schema, self.group_columns)?;
        let mut groups = Groups::new(keys, &self.calls)?;
        groups.take_parts(parts)?;
        self.live_groups = (0..groups.rows.len())
            .filter(|group| self.is_alive(&groups, *group))
            .count();
        self.groups = Some(groups);
        Ok(())
    }
}
