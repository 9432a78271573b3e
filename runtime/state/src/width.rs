//! How large rows are, where copies of them are to be made.

use arrow::array::{Array, AsArray, OffsetSizeTrait, RecordBatch};
use arrow::buffer::OffsetBuffer;
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

/// The type of views of values, if there is one.
pub fn view_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    }
}

/// Whether copies of values are as large as the values.
pub fn differs_in_size(data_type: &DataType) -> bool {
    view_of(data_type).is_some() || data_type.is_nested()
}

fn longest_view(lengths: impl Iterator<Item = u32>) -> usize {
    lengths.max().unwrap_or(0) as usize
}

fn longest<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
    offsets.lengths().max().unwrap_or(0)
}

/// Bytes of the largest value, about: elements of lists count by their average.
pub fn largest(column: &dyn Array) -> usize {
    let elements = |count: usize, values: &dyn Array| {
        let bytes = count.saturating_mul(column_bytes(values));
        bytes.div_ceil(values.len().max(1))
    };
    match column.data_type() {
        DataType::Utf8 => longest(column.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => longest(column.as_string::<i64>().offsets()),
        DataType::Binary => longest(column.as_binary::<i32>().offsets()),
        DataType::LargeBinary => longest(column.as_binary::<i64>().offsets()),
        DataType::Utf8View => longest_view(column.as_string_view().lengths()),
        DataType::BinaryView => longest_view(column.as_binary_view().lengths()),
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            elements(longest(lists.offsets()), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            elements(longest(lists.offsets()), lists.values())
        }
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            fields.map(|field| largest(field)).sum()
        }
        _ => elements(1, column),
    }
}
