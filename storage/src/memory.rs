//! How much memory rows take.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;

/// The longest value that is inside its view.
const VIEW_INLINE_MAX: u32 = 12;

/// Bytes of these rows. Of buffers that they share with other rows, as slices and views do, only what is theirs counts; a
/// column that cannot tell counts as a whole.
pub fn rows_bytes(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(|column| column_bytes(column)).sum()
}

/// Bytes of one column, likewise.
pub fn column_bytes(column: &dyn Array) -> usize {
    let behind_views = |lengths: &mut dyn Iterator<Item = u32>| -> usize {
        lengths
            .filter(|length| *length > VIEW_INLINE_MAX)
            .map(|length| length as usize)
            .sum()
    };
    let behind = match column.data_type() {
        DataType::Utf8View => behind_views(&mut column.as_string_view().lengths()),
        DataType::BinaryView => behind_views(&mut column.as_binary_view().lengths()),
        _ => 0,
    };
    let data = column.to_data();
    let own = data.get_slice_memory_size();
    own.unwrap_or_else(|_| data.get_array_memory_size()) + behind
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn a_slice_answers_for_its_own_part() {
        let long = "a text that is not inside its view";
        let texts = vec![long; 1_000];
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("number", Arc::new(Int64Array::from_iter_values(0..1_000))),
            ("text", Arc::new(StringArray::from(texts.clone()))),
            ("view", Arc::new(StringViewArray::from(texts))),
        ];
        let whole = RecordBatch::try_from_iter(columns).unwrap();
        let of = |rows: usize| rows * (8 + (4 + long.len()) + (16 + long.len())) + 4;
        assert_eq!(rows_bytes(&whole), of(1_000));
        assert_eq!(rows_bytes(&whole.slice(500, 10)), of(10));
    }
}
