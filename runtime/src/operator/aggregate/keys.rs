//! Group keys to dense group numbers: DataFusion's `GroupValues`, with removal and the case of no columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use crate::error::Result;
use crate::state::row_table::arrow_error;

pub(crate) struct GroupKeys {
    schema: SchemaRef,
    /// `None` for a grouping by nothing: one group, number 0.
    values: Option<Box<dyn GroupValues>>,
    len: usize,
}

impl GroupKeys {
    /// The first `columns` of the schema are the key.
    pub fn new(schema: &SchemaRef, columns: usize) -> Result<Self> {
        let schema: SchemaRef = Arc::new(Schema::new(schema.fields()[..columns].to_vec()));
        let values = match columns {
            0 => None,
            _ => Some(new_group_values(Arc::clone(&schema), &GroupOrdering::None)?),
        };
        Ok(GroupKeys {
            schema,
            values,
            len: 0,
        })
    }

    pub fn columns(&self) -> usize {
        self.schema.fields().len()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The group of each row.
    pub fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
        let Some(values) = &mut self.values else {
            self.len = 1;
            return Ok(vec![0; rows]);
        };
        let mut groups = Vec::with_capacity(rows);
        values.intern(keys, &mut groups)?;
        self.len = values.len();
        Ok(groups)
    }

    /// All keys, by group number; leaves nothing.
    pub fn take_all(&mut self) -> Result<Vec<ArrayRef>> {
        self.len = 0;
        match &mut self.values {
            None => Ok(vec![]),
            Some(values) => Ok(values.emit(EmitTo::All)?),
        }
    }

    /// Keeps only these groups, renumbered in the order given.
    pub fn retain(&mut self, groups: &[usize]) -> Result<()> {
        if self.values.is_none() {
            return Ok(());
        }
        let positions = UInt64Array::from_iter_values(groups.iter().map(|group| *group as u64));
        let kept = self
            .take_all()?
            .iter()
            .map(|column| arrow::compute::take(column, &positions, None).map_err(arrow_error))
            .collect::<Result<Vec<_>>>()?;
        self.values = Some(new_group_values(Arc::clone(&self.schema), &GroupOrdering::None)?);
        self.intern(&kept, groups.len())?;
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.values.as_ref().map_or(0, |values| values.size())
    }
}
