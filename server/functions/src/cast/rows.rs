//! Casts of rows: attribute by attribute.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::composite::structs;
use millrace_postgres::types::{self, ANNOTATION, is_text};

use super::convert;

/// Whether a row may be taken for one of another type: it has none, or the same.
fn is_record_for(from: &Field, to: &Field) -> bool {
    let (own, wanted) = (from.metadata().get(ANNOTATION), to.metadata().get(ANNOTATION));
    own.is_none() || wanted.is_none() || own == wanted
}

/// The error of a row that is cast to a type of which it is not.
fn other_row(from: &Field, to: &Field) -> SqlError {
    let error = SqlError::new(
        SqlState::CannotCoerce,
        format!(
            "cannot cast type {} to {}",
            types::plain_name(from),
            types::plain_name(to)
        ),
    );
    match (from.data_type(), to.data_type()) {
        (DataType::Struct(own), DataType::Struct(wanted)) if is_record_for(from, to) => {
            match own.len().cmp(&wanted.len()) {
                Ordering::Less => error.with_detail("Input has too few columns."),
                Ordering::Greater => error.with_detail("Input has too many columns."),
                Ordering::Equal => error,
            }
        }
        _ => error,
    }
}

/// Whether INSERT and UPDATE may put rows into a column. A row without a type may have literals for any attribute.
pub(super) fn assignable(from: &Field, to: &Field) -> bool {
    let (DataType::Struct(own), DataType::Struct(wanted)) = (from.data_type(), to.data_type()) else {
        return false;
    };
    let fits = |(own, of): (&FieldRef, &FieldRef)| is_text(own.data_type()) || super::assignable(own, of);
    is_record_for(from, to) && own.len() == wanted.len() && own.iter().zip(wanted).all(fits)
}

/// Refuses a cast between types of which not each attribute can be cast.
///
/// # Errors
/// 42846.
pub(super) fn check(from: &Field, to: &Field) -> SqlResult<()> {
    let (DataType::Struct(own), DataType::Struct(wanted)) = (from.data_type(), to.data_type()) else {
        return Ok(());
    };
    let castable = |(own, wanted): (&FieldRef, &FieldRef)| {
        let (own, wanted) = (own.data_type(), wanted.data_type());
        is_text(own) || is_text(wanted) || own.is_nested() || can_cast_types(own, wanted)
    };
    let is_castable =
        is_record_for(from, to) && own.len() == wanted.len() && own.iter().zip(wanted).all(castable);
    match is_castable {
        true => Ok(()),
        false => Err(other_row(from, to)),
    }
}

/// Rows with other attributes; what else is cast from or to a row is as `convert` has it.
pub(super) fn converted(
    from: &Field,
    to: &Field,
    values: &ArrayRef,
    each: impl Fn(&Field, &Field, &ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let (DataType::Struct(own), DataType::Struct(wanted)) = (from.data_type(), to.data_type()) else {
        return convert(from, to, values);
    };
    if own.len() != wanted.len() || !is_record_for(from, to) {
        return Err(other_row(from, to).into());
    }
    let rows = values.as_struct();
    let columns = rows.columns().iter().zip(own.iter().zip(wanted));
    let columns = columns.map(|(values, (own, wanted))| each(own, wanted, values));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(structs(wanted, columns, rows.len(), rows.nulls().cloned())?)
}
