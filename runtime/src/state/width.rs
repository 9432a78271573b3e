//! How large rows are, where copies of them are to be made.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use millrace_storage::column_bytes;

/// Bytes of a batch of copies, unless one copy takes more.
pub const COPIED_BYTES_MAX: usize = 16 << 20;

/// Columns of rows, by what a value takes.
#[derive(Debug, Clone)]
pub struct Widths {
    /// Whose values differ in size.
    differing: Vec<usize>,
    /// Of a row in all others.
    fixed: usize,
}

impl Widths {
    /// Of some columns of a schema.
    pub fn of(schema: &Schema, columns: impl IntoIterator<Item = usize>) -> Self {
        let (mut differing, mut fixed) = (vec![], 0);
        for column in columns {
            match schema.field(column).data_type() {
                DataType::Boolean | DataType::Null => fixed += 1,
                DataType::FixedSizeBinary(width) => fixed += *width as usize,
                other => match other.primitive_width() {
                    Some(width) => fixed += width,
                    None => differing.push(column),
                },
            }
        }
        Widths { differing, fixed }
    }

    /// Bytes of a row, at least 1, if all have as many.
    pub fn constant(&self) -> Option<usize> {
        self.differing.is_empty().then_some(self.fixed.max(1))
    }

    /// Bytes of a row, at least 1.
    pub fn row_bytes(&self, rows: &RecordBatch, row: usize) -> usize {
        let differing = self.differing.iter();
        let bytes = differing.map(|column| value_bytes(rows.column(*column).as_ref(), row));
        (self.fixed + bytes.sum::<usize>()).max(1)
    }
}

fn value_bytes(column: &dyn Array, row: usize) -> usize {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value_length(row) as usize,
        DataType::Binary => column.as_binary::<i32>().value_length(row) as usize,
        _ => column_bytes(column.slice(row, 1).as_ref()),
    }
}
