//! How large values are, and how large at most their texts: from the offsets of columns, without looking at bytes.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, UInt64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::scalar::ScalarValue;

/// What the text of a value takes that is no text itself, and no list: an interval has the longest.
const PRINTED_BYTES: u64 = 96;
/// What a value takes beside its bytes: its place among others.
const PLACE_BYTES: u64 = 8;

/// The arguments of a call.
#[derive(Debug)]
pub struct Columns(Vec<Column>);

#[derive(Debug)]
struct Column {
    values: ArrayRef,
    /// One value for all rows.
    is_constant: bool,
}

impl Columns {
    /// The arguments as they come. Constants are not repeated.
    ///
    /// # Errors
    /// A constant has no array, which does not happen.
    pub fn new(args: &[ColumnarValue]) -> Result<Columns> {
        let columns = args.iter().map(|value| {
            let (values, is_constant) = match value {
                ColumnarValue::Array(values) => (ArrayRef::clone(values), false),
                ColumnarValue::Scalar(value) => (value.to_array()?, true),
            };
            Ok(Column { values, is_constant })
        });
        Ok(Columns(columns.collect::<Result<_>>()?))
    }

    /// How many arguments there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The values of an argument, and where that of a row is among them. None: there is no such argument, or it is NULL.
    pub fn value(&self, argument: usize, row: usize) -> Option<(&ArrayRef, usize)> {
        let column = self.0.get(argument)?;
        let row = if column.is_constant { 0 } else { row };
        (row < column.values.len() && column.values.is_valid(row)).then_some((&column.values, row))
    }

    /// A text.
    pub fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let (values, row) = self.value(argument, row)?;
        match values.data_type() {
            DataType::Utf8 => Some(values.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(values.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(values.as_string_view().value(row)),
            _ => None,
        }
    }

    /// An integer.
    pub fn integer(&self, argument: usize, row: usize) -> Option<i64> {
        let (values, row) = self.value(argument, row)?;
        match values.data_type() {
            DataType::Int64 => Some(values.as_primitive::<Int64Type>().value(row)),
            DataType::Int32 => Some(values.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int16 => Some(values.as_primitive::<Int16Type>().value(row).into()),
            DataType::UInt64 => {
                let value = values.as_primitive::<UInt64Type>().value(row);
                Some(i64::try_from(value).unwrap_or(i64::MAX))
            }
            other if other.is_integer() => {
                let wide = arrow::compute::cast(&values.slice(row, 1), &DataType::Int64).ok()?;
                Some(wide.as_primitive::<Int64Type>().value(0))
            }
            _ => None,
        }
    }

    /// The bytes of a value.
    pub fn bytes(&self, argument: usize, row: usize) -> u64 {
        self.value(argument, row)
            .map_or(0, |(values, row)| bytes(values, row..row + 1))
    }

    /// The bytes of its text.
    pub fn printed(&self, argument: usize, row: usize) -> u64 {
        self.value(argument, row)
            .map_or(0, |(values, row)| printed(values, row..row + 1))
    }

    /// How many elements a list has; anything else is one.
    pub fn elements(&self, argument: usize, row: usize) -> u64 {
        let Some((values, row)) = self.value(argument, row) else {
            return 0;
        };
        match elements(values, row..row + 1) {
            Some((_, range)) => range.len() as u64,
            None => 1,
        }
    }

    /// What all arguments take in all rows by a measure, constants as often as there are rows.
    pub fn total(&self, rows: usize, measure: Measure) -> u64 {
        let columns = self.0.iter().map(|column| {
            let all = measure(&column.values, 0..column.values.len());
            match column.is_constant {
                true => all.saturating_mul(rows as u64),
                false => all,
            }
        });
        columns.fold(0, u64::saturating_add)
    }

    /// The same of the constants alone.
    pub fn repeated(&self, rows: usize) -> u64 {
        let constants = self.0.iter().filter(|column| column.is_constant);
        let bytes = constants.map(|column| bytes(&column.values, 0..column.values.len()));
        bytes.fold(0, u64::saturating_add).saturating_mul(rows as u64)
    }
}

/// [`bytes`] or [`printed`].
pub type Measure = fn(&ArrayRef, Range<usize>) -> u64;

fn span<O: OffsetSizeTrait>(offsets: &[O], range: &Range<usize>) -> Range<usize> {
    offsets[range.start].as_usize()..offsets[range.end].as_usize()
}

/// The elements of lists in some rows.
fn elements(values: &ArrayRef, rows: Range<usize>) -> Option<(&ArrayRef, Range<usize>)> {
    Some(match values.data_type() {
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            (lists.values(), span(lists.value_offsets(), &rows))
        }
        DataType::LargeList(_) => {
            let lists = values.as_list::<i64>();
            (lists.values(), span(lists.value_offsets(), &rows))
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            let lists = values.as_fixed_size_list();
            (lists.values(), rows.start * length..rows.end * length)
        }
        _ => return None,
    })
}

/// The bytes of texts and binary values in some rows.
fn content(values: &ArrayRef, rows: &Range<usize>) -> Option<u64> {
    let lengths = |lengths: &mut dyn Iterator<Item = u32>| -> u64 { lengths.map(u64::from).sum() };
    let (start, length) = (rows.start, rows.len());
    Some(match values.data_type() {
        DataType::Utf8 => span(values.as_string::<i32>().value_offsets(), rows).len() as u64,
        DataType::LargeUtf8 => span(values.as_string::<i64>().value_offsets(), rows).len() as u64,
        DataType::Binary => span(values.as_binary::<i32>().value_offsets(), rows).len() as u64,
        DataType::LargeBinary => span(values.as_binary::<i64>().value_offsets(), rows).len() as u64,
        DataType::Utf8View => lengths(&mut values.as_string_view().lengths().skip(start).take(length)),
        DataType::BinaryView => lengths(&mut values.as_binary_view().lengths().skip(start).take(length)),
        _ => return None,
    })
}

/// The largest value of a dictionary, for each row.
fn of_dictionary(values: &ArrayRef, rows: &Range<usize>, measure: Measure) -> Option<u64> {
    let dictionary = values.as_any_dictionary_opt()?;
    let values = dictionary.values();
    let largest = (0..values.len()).map(|at| measure(values, at..at + 1)).max();
    Some(largest.unwrap_or(0).saturating_mul(rows.len() as u64))
}

/// The bytes of values at most.
pub fn bytes(values: &ArrayRef, rows: Range<usize>) -> u64 {
    let places = PLACE_BYTES * rows.len() as u64;
    if let Some(content) = content(values, &rows) {
        return content + places;
    }
    if let Some(width) = values.data_type().primitive_width() {
        return (width * rows.len()) as u64;
    }
    if let Some((elements, range)) = elements(values, rows.clone()) {
        return bytes(elements, range) + places;
    }
    if let Some(of_dictionary) = of_dictionary(values, &rows, bytes) {
        return of_dictionary;
    }
    match values.data_type() {
        DataType::Null | DataType::Boolean => rows.len() as u64,
        DataType::Struct(_) => {
            let columns = values.as_struct().columns().iter();
            columns.map(|column| bytes(column, rows.clone())).sum()
        }
        DataType::Map(..) => {
            let map = values.as_map();
            let range = span(map.value_offsets(), &rows);
            let columns = map.entries().columns().iter();
            columns.map(|column| bytes(column, range.clone())).sum::<u64>() + places
        }
        // Of no type that is made here: its part of the whole.
        _ => {
            let whole = values.get_array_memory_size() as u128 * rows.len() as u128;
            u64::try_from(whole / values.len().max(1) as u128).unwrap_or(u64::MAX)
        }
    }
}

/// The bytes of the texts of values at most.
pub fn printed(values: &ArrayRef, rows: Range<usize>) -> u64 {
    match values.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => bytes(values, rows),
        _ => quoted(values, rows),
    }
}

/// The same of values inside of another one, where texts may have to be quoted, and each of their bytes to be escaped.
fn quoted(values: &ArrayRef, rows: Range<usize>) -> u64 {
    let count = rows.len() as u64;
    if let Some(content) = content(values, &rows) {
        return content.saturating_mul(2) + 4 * count;
    }
    if let Some((elements, range)) = elements(values, rows.clone()) {
        return quoted(elements, range.clone()) + range.len() as u64 + 2 * count;
    }
    if let Some(of_dictionary) = of_dictionary(values, &rows, quoted) {
        return of_dictionary;
    }
    match values.data_type() {
        DataType::Struct(_) => {
            let columns = values.as_struct().columns().iter();
            columns.map(|column| quoted(column, rows.clone()) + count).sum()
        }
        DataType::Boolean | DataType::Null => 5 * count,
        other => match other.primitive_width() {
            // An integer has three digits a byte at most, and a sign.
            Some(width) if other.is_integer() => (3 * width as u64 + 1) * count,
            Some(_) => PRINTED_BYTES * count,
            None => 4 * bytes(values, rows),
        },
    }
}

/// The bytes of a constant.
pub fn of_constant(value: &ScalarValue) -> u64 {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_ref().map_or(0, |text| text.len() as u64)
        }
        ScalarValue::Binary(content)
        | ScalarValue::LargeBinary(content)
        | ScalarValue::BinaryView(content)
        | ScalarValue::FixedSizeBinary(_, content) => {
            content.as_ref().map_or(0, |content| content.len() as u64)
        }
        other => other.size() as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{DictionaryArray, Int32Array, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn of(values: impl Array + 'static, rows: Range<usize>) -> u64 {
        bytes(&(Arc::new(values) as ArrayRef), rows)
    }

    #[test]
    fn a_slice_counts_its_own_rows() {
        let texts = StringArray::from(vec!["a", "bcd", "", "efghi"]);
        assert_eq!(of(texts.clone(), 0..4), 9 + 4 * PLACE_BYTES);
        assert_eq!(of(texts.slice(1, 2), 0..2), 3 + 2 * PLACE_BYTES);
        assert_eq!(of(texts, 1..2), 3 + PLACE_BYTES);
        assert_eq!(of(Int64Array::from(vec![1, 2, 3]), 1..3), 16);
    }

    #[test]
    fn a_value_that_many_rows_share_counts_in_each() {
        let long = "x".repeat(1_000);
        let views = StringViewArray::from(vec![long.as_str(); 3]);
        assert_eq!(of(views, 0..3), 3 * (1_000 + PLACE_BYTES));
        let keys = Int32Array::from(vec![0; 5]);
        let values: ArrayRef = Arc::new(StringArray::from(vec![long.as_str()]));
        let dictionary = DictionaryArray::<Int32Type>::try_new(keys, values).unwrap();
        assert_eq!(of(dictionary, 0..5), 5 * (1_000 + PLACE_BYTES));
    }

    #[test]
    fn lists_count_by_their_elements() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2), None]),
            None,
            Some(vec![Some(4)]),
        ]);
        assert_eq!(of(lists.clone(), 0..3), 4 * 4 + 3 * PLACE_BYTES);
        let args = Columns::new(&[ColumnarValue::Array(Arc::new(lists))]).unwrap();
        assert_eq!(
            (args.elements(0, 0), args.elements(0, 1), args.elements(0, 2)),
            (3, 0, 1)
        );
        assert!(args.printed(0, 0) >= "{-2147483648,2,NULL}".len() as u64);
    }

    #[test]
    fn constants_count_in_each_row() {
        let args = [
            ColumnarValue::Scalar(ScalarValue::from("four")),
            ColumnarValue::Array(Arc::new(StringArray::from(vec!["", "1", "22"]))),
        ];
        let columns = Columns::new(&args).unwrap();
        assert_eq!(
            columns.total(3, bytes),
            3 * (4 + PLACE_BYTES) + 3 + 3 * PLACE_BYTES
        );
        assert_eq!(columns.repeated(3), 3 * (4 + PLACE_BYTES));
        assert_eq!(
            (columns.text(0, 2), columns.text(1, 2)),
            (Some("four"), Some("22"))
        );
    }
}
