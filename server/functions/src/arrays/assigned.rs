//! `SET a[i] = v` and `SET a[i:j] = v`: the array with other elements in these places.
//!
//! An array begins with 1, so that a place before its first element, or any but the first of an empty array, is refused.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::Expr;
use millrace_parser::ast::{ASSIGN_ELEMENT, ASSIGN_SLICE};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;

use super::innermost;
use crate::jsonb;
use crate::syntax::{self, arguments, call};

/// `array_with_element(a, v, i, ..)`.
pub(crate) const ELEMENT: &str = "array_with_element";
/// `array_with_part(a, v, i, j)`.
pub(crate) const PART: &str = "array_with_part";

/// What is assigned to elements of a column, in which places, and whether it is a slice; `None`: the whole column is assigned.
pub fn parts(value: &Expr) -> Option<(&Expr, Vec<&Expr>, bool)> {
    let Expr::Function(function) = value else {
        return None;
    };
    let [name] = function.name.0.as_slice() else {
        return None;
    };
    let name = name.as_ident()?.value.as_str();
    if name != ASSIGN_ELEMENT && name != ASSIGN_SLICE {
        return None;
    }
    let mut arguments = arguments(function).into_iter();
    Some((arguments.next()?, arguments.collect(), name == ASSIGN_SLICE))
}

/// What is assigned to a column by the value of an assignment, if that is one to elements of it. `before`: what the column is before.
///
/// # Errors
/// The column is no array.
pub fn assigned(value: &Expr, before: &Expr, column: &Field) -> SqlResult<Option<Expr>> {
    let Some((given, places, is_slice)) = parts(value) else {
        return Ok(None);
    };
    if jsonb::is_jsonb(column) {
        if is_slice {
            return Err(SqlError::new(
                SqlState::DatatypeMismatch,
                "jsonb subscript does not support slices",
            ));
        }
        let given = syntax::assigned(given, "jsonb", column.name());
        let places = places.into_iter().cloned();
        let all = [before.clone(), given].into_iter().chain(places).collect();
        return Ok(Some(call(jsonb::WITH_SUBSCRIPTS, all)));
    }
    let Some((_, element)) = innermost(column.data_type()) else {
        return Err(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "cannot subscript type {} because it does not support subscripting",
                types::plain_name(column)
            ),
        ));
    };
    let type_name = match is_slice {
        true => types::sql_name(column),
        false => types::sql_name(element),
    };
    let given = syntax::assigned(given, &type_name, column.name());
    let places = places.into_iter().cloned();
    let all = [before.clone(), given].into_iter().chain(places).collect();
    Ok(Some(call(if is_slice { PART } else { ELEMENT }, all)))
}

/// The functions.
pub(super) fn udfs() -> [Arc<ScalarUDF>; 2] {
    [ELEMENT, PART].map(|name| {
        Arc::new(ScalarUDF::from(Assigned {
            name,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Assigned {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Assigned {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [array, value, places @ ..] = arg_types else {
            return Err(exec_datafusion_err!(
                "{} takes an array, a value and places",
                self.name
            ));
        };
        if let Some(wrong) = places
            .iter()
            .find(|place| !place.is_integer() && !place.is_null())
        {
            let shown = types::plain_name(&Field::new("", wrong.clone(), true));
            let message = format!("array subscript must have type integer, not {shown}");
            return Err(SqlError::new(SqlState::DatatypeMismatch, message).into());
        }
        let places = places.iter().map(|_| DataType::Int64);
        Ok([array.clone(), value.clone()].into_iter().chain(places).collect())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by return_field_from_args",
            self.name
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let array = args.arg_fields.first();
        let array = array.ok_or_else(|| exec_datafusion_err!("{} takes an array", self.name))?;
        let field = array.as_ref().clone();
        Ok(Arc::new(field.with_name(self.name).with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|value| value.to_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let [array, value, places @ ..] = arrays.as_slice() else {
            return Err(exec_datafusion_err!(
                "{} takes an array, a value and places",
                self.name
            ));
        };
        let done = match (self.name, places) {
            (PART, [from, to]) => with_parts(array, value, from, to)?,
            _ => with_elements(array, value, places, true)?,
        };
        Ok(ColumnarValue::Array(done))
    }
}

fn wrong_place(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::ArraySubscriptError, message)
}

/// The places of a row, from 0.
fn place(places: &ArrayRef, row: usize) -> Result<i64> {
    let places = places.as_primitive::<Int64Type>();
    if places.is_null(row) {
        let message = "array subscript in assignment must not be null";
        return Err(SqlError::new(SqlState::NullValueNotAllowed, message).into());
    }
    Ok(places.value(row) - 1)
}

/// A place that an array of this length can be given a value in.
fn fitting(place: i64, length: usize) -> Result<usize> {
    match usize::try_from(place) {
        Ok(0) => Ok(0),
        Ok(place) if length > 0 => Ok(place),
        _ => Err(
            SqlError::unsupported("an array that does not begin with 1 is not supported")
                .with_detail(format!(
                    "Element {} is assigned to an array of {length} elements.",
                    place + 1
                ))
                .into(),
        ),
    }
}

/// Where each element of the results comes from.
#[derive(Default)]
struct Picked {
    from: Vec<(usize, usize)>,
    lengths: Vec<usize>,
}

/// Sources of elements: those that were there, those that are assigned, and NULL.
const OLD: usize = 0;
const NEW: usize = 1;
const NOTHING: usize = 2;

impl Picked {
    fn lists(self, item: &FieldRef, old: &ArrayRef, new: &ArrayRef) -> Result<ArrayRef> {
        let nothing = new_null_array(item.data_type(), 1);
        let new = cast(new, item.data_type())?;
        let values = interleave(&[old.as_ref(), new.as_ref(), nothing.as_ref()], &self.from)?;
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(item),
            offsets,
            values,
            None,
        )?))
    }
}

fn list_of(array: &ArrayRef) -> Result<&ListArray> {
    array
        .as_list_opt::<i32>()
        .ok_or_else(|| exec_datafusion_err!("{} is no array", array.data_type()))
}

/// The arrays with these values at their places; of several dimensions there is a place in each. `extends`: a place may be behind
/// the last element, which it may not be of several dimensions.
fn with_elements(array: &ArrayRef, value: &ArrayRef, places: &[ArrayRef], extends: bool) -> Result<ArrayRef> {
    let lists = list_of(array)?;
    let DataType::List(item) = lists.data_type() else {
        return Err(exec_datafusion_err!("{} is no array", lists.data_type()));
    };
    let Some((first, inner)) = places.split_first() else {
        return Err(wrong_place("wrong number of array subscripts").into());
    };
    let is_nested = matches!(item.data_type(), DataType::List(_));
    if is_nested == inner.is_empty() {
        return Err(wrong_place("wrong number of array subscripts").into());
    }
    let offsets = lists.offsets();
    let length = |row: usize| match lists.is_null(row) {
        true => 0,
        false => lists.value_length(row) as usize,
    };
    let mut at = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let place = place(first, row)?;
        let fits = usize::try_from(place).is_ok_and(|place| place < length(row));
        if !fits && (is_nested || !extends) {
            return Err(wrong_place("array subscript out of range").into());
        }
        at.push(fitting(place, length(row))?);
    }
    // Of several dimensions a whole array is put in the place of the one that was there.
    let value = match is_nested {
        false => Arc::clone(value),
        true => {
            let these = at
                .iter()
                .enumerate()
                .map(|(row, at)| offsets[row] as u32 + *at as u32);
            let these = take(lists.values(), &UInt32Array::from_iter_values(these), None)?;
            with_elements(&these, value, inner, false)?
        }
    };
    let mut picked = Picked::default();
    for (row, at) in at.into_iter().enumerate() {
        let (start, old) = (offsets[row] as usize, length(row));
        let all = old.max(at + 1);
        picked.lengths.push(all);
        picked.from.extend((0..all).map(|index| match index {
            _ if index == at => (NEW, row),
            _ if index < old => (OLD, start + index),
            _ => (NOTHING, 0),
        }));
    }
    picked.lists(item, lists.values(), &value)
}

/// The arrays with these values from one place to another.
fn with_parts(array: &ArrayRef, value: &ArrayRef, from: &ArrayRef, to: &ArrayRef) -> Result<ArrayRef> {
    let lists = list_of(array)?;
    let DataType::List(item) = lists.data_type() else {
        return Err(exec_datafusion_err!("{} is no array", lists.data_type()));
    };
    if matches!(item.data_type(), DataType::List(_)) {
        let message = "assignment to a slice of an array of several dimensions is not supported";
        return Err(SqlError::unsupported(message).into());
    }
    let new = list_of(value)?;
    let mut picked = Picked::default();
    for row in 0..lists.len() {
        let (start, old) = match lists.is_null(row) {
            true => (0, 0),
            false => (lists.offsets()[row] as usize, lists.value_length(row) as usize),
        };
        let (first, last) = (place(from, row)?, place(to, row)?);
        // NULL changes nothing.
        if new.is_null(row) {
            picked.lengths.push(old);
            picked.from.extend((0..old).map(|index| (OLD, start + index)));
            continue;
        }
        if first > last {
            return Err(wrong_place("upper bound cannot be less than lower bound").into());
        }
        let first = fitting(first, old)?;
        let last = usize::try_from(last).unwrap_or(first);
        if (new.value_length(row) as usize) < last - first + 1 {
            return Err(wrong_place("source array too small").into());
        }
        let given = new.offsets()[row] as usize;
        let all = old.max(last + 1);
        picked.lengths.push(all);
        picked.from.extend((0..all).map(|index| match index {
            _ if (first..=last).contains(&index) => (NEW, given + index - first),
            _ if index < old => (OLD, start + index),
            _ => (NOTHING, 0),
        }));
    }
    picked.lists(item, lists.values(), new.values())
}
