//! `pg_cast(value, 'type')`: what the rewritten `CAST(value AS type)` does.
//!
//! Text is read by the type's input function, so that `'yes'::boolean` and `'1 day'::interval` mean what they mean in
//! PostgreSQL and errors read the same. Floats and numerics are rounded to integers, not cut. Whatever DataFusion's own
//! cast does equally well becomes that cast when the plan is simplified, so that its optimizer rules apply.

mod json_values;
mod rows;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array, IntervalMonthDayNanoArray,
    ListArray, StringArray, StringBuilder, Time64MicrosecondArray,
};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, IntervalMonthDayNano, Time64MicrosecondType, TimeUnit,
};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, exec_datafusion_err, plan_datafusion_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::enumeration::{as_texts, is_enum};
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::output::TextColumn;
use millrace_postgres::types::parse::datetime::MICROS_PER_DAY;
use millrace_postgres::types::{self, ANNOTATION, SqlType, digits, is_text, length_limit, parse};
use millrace_sql::numeric::doubles_of;
use millrace_sql::times;

use crate::arguments::constant;
use crate::digits::range;
use crate::names;

/// The function's name.
pub const NAME: &str = "pg_cast";
/// The name of the cast that INSERT and UPDATE make, `pg_assign(value, 'type', 'column')`: not every type may be assigned
/// to every other, and a text that is too long is an error, while an explicit cast cuts it.
pub const ASSIGN: &str = "pg_assign";

/// The explicit cast. The argument of a function that somebody made is cast by `pg_cast(value, 'type', 'function')`, which is refused
/// where the value's type does not become the other without being asked (`sql::type_check`).
pub fn udf() -> Arc<ScalarUDF> {
    let arguments = vec![TypeSignature::Any(2), TypeSignature::Any(3)];
    function(NAME, Signature::one_of(arguments, Volatility::Immutable))
}

/// The functions.
pub fn udfs() -> [Arc<ScalarUDF>; 2] {
    [udf(), function(ASSIGN, Signature::any(3, Volatility::Immutable))]
}

fn function(name: &'static str, signature: Signature) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(PgCast { name, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgCast {
    name: &'static str,
    signature: Signature,
}

/// Whether INSERT and UPDATE may put a value of the one type into a column of the other. Plain texts may become uuid and
/// json, as functions over those types answer with texts.
pub fn assignable(from: &Field, to: &Field) -> bool {
    if is_enum(to) {
        let is_same = from.metadata().get(ANNOTATION) == to.metadata().get(ANNOTATION);
        return is_same || from.data_type().is_null();
    }
    let special = |field: &Field| {
        field
            .metadata()
            .get(ANNOTATION)
            .is_some_and(|name| matches!(name.as_str(), "uuid" | "json" | "jsonb"))
    };
    let number = |data_type: &DataType| data_type.is_numeric();
    let date = |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    let time = |data_type: &DataType| matches!(data_type, DataType::Time64(_) | DataType::Interval(_));
    match (from.data_type(), to.data_type()) {
        (DataType::Null, _) => true,
        (DataType::Struct(_), DataType::Struct(_)) => rows::assignable(from, to),
        (DataType::Struct(_), _) | (_, DataType::Struct(_)) => false,
        (from_type, to_type) if is_text(to_type) => !special(to) || is_text(from_type),
        (DataType::List(from), DataType::List(to)) => assignable(from, to),
        (from, to) => {
            number(from) && number(to)
                || date(from) && date(to)
                || time(from) && time(to)
                || matches!((from, to), (DataType::Timestamp(..), DataType::Time64(_)))
                || is_binary(from) && is_binary(to)
                || matches!((from, to), (DataType::Duration(_), DataType::Interval(_)))
                || from == to
        }
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

/// The error of a value that may not be put into a column.
pub fn not_assignable(column: &str, from: &Field, to: &Field) -> SqlError {
    SqlError::new(
        SqlState::DatatypeMismatch,
        format!(
            "column \"{column}\" is of type {} but expression is of type {}",
            types::plain_name(to),
            types::plain_name(from)
        ),
    )
    .with_hint("You will need to rewrite or cast the expression.")
}

/// The type that a type's name means.
///
/// # Errors
/// There is no such type.
pub fn named(name: &str) -> Result<SqlType> {
    let sql_type = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(name)
        .and_then(|mut parser| parser.parse_data_type())
        .map_err(|error| plan_datafusion_err!("type {name:?}: {error}"))?;
    Ok(types::from_sql(&sql_type)?)
}

/// How many dimensions an array has; 0: it is none.
fn dimensions(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item) => 1 + dimensions(item.data_type()),
        _ => 0,
    }
}

fn is_fraction(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::Decimal128(..)
    )
}

impl ScalarUDFImpl for PgCast {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{NAME} tells its type by return_field_from_args"
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.scalar_arguments.get(1).copied().flatten() {
            Some(ScalarValue::Utf8(Some(name))) => {
                let target = named(name)?;
                let source = args.arg_fields[0].data_type();
                // A numeric without a precision rounds nothing.
                let target = match (source, target.annotation.as_deref()) {
                    (DataType::Decimal128(_, 0..), Some("numeric")) if self.name == NAME => {
                        SqlType::of(&args.arg_fields[0])
                    }
                    // An array keeps its dimensions.
                    _ if self.name == NAME => {
                        let more = dimensions(source).saturating_sub(dimensions(&target.data_type).max(1));
                        let is_array = dimensions(&target.data_type) > 0;
                        (0..if is_array { more } else { 0 }).fold(target, |target, _| {
                            SqlType::plain(DataType::List(Arc::new(target.field("item", true))))
                        })
                    }
                    _ => target,
                };
                let target = target.field(self.name, args.arg_fields[0].is_nullable());
                let are_rows = matches!(
                    (source, target.data_type()),
                    (DataType::Struct(_), DataType::Struct(_))
                );
                if are_rows {
                    rows::check(&args.arg_fields[0], &target)?;
                }
                // A quoted literal is read by the column's type, whatever that is.
                let quoted = matches!(
                    args.scalar_arguments[0],
                    Some(ScalarValue::Utf8(_) | ScalarValue::Null)
                );
                if self.name == ASSIGN && !quoted && !assignable(&args.arg_fields[0], &target) {
                    let column = match args.scalar_arguments.get(2).copied().flatten() {
                        Some(ScalarValue::Utf8(Some(column))) => column,
                        _ => "?column?",
                    };
                    return Err(not_assignable(column, &args.arg_fields[0], &target).into());
                }
                let from = args.arg_fields[0].data_type();
                let is_time = matches!(
                    (from, target.data_type()),
                    (DataType::Time64(_), DataType::Interval(_))
                        | (DataType::Interval(_), DataType::Time64(_))
                );
                if !is_text(from)
                    && !is_text(target.data_type())
                    && !is_time
                    && !are_rows
                    && !can_cast_types(from, target.data_type())
                {
                    return Err(SqlError::new(
                        SqlState::CannotCoerce,
                        format!(
                            "cannot cast type {} to {}",
                            types::plain_name(&args.arg_fields[0]),
                            types::plain_name(&target)
                        ),
                    )
                    .into());
                }
                Ok(Arc::new(target))
            }
            _ => Err(plan_datafusion_err!(
                "the second argument of {NAME} is the name of a type"
            )),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [value, Expr::Literal(ScalarValue::Utf8(Some(name)), _), ..] = args.as_slice() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let target = named(name)?;
        let source = info.get_data_type(value)?;
        // Fractions are rounded, and of floats only the digits that mean something become those of a numeric.
        let rounds = is_fraction(&source) && target.data_type.is_integer()
            || source.is_floating() && matches!(target.data_type, DataType::Decimal128(..))
            || source.is_numeric() && target.data_type == DataType::Float32
            || matches!(source, DataType::Decimal128(..)) && target.data_type == DataType::Float64;
        let to_text = is_text(&target.data_type);
        // These are done value by value, see `convert`.
        let is_special = is_text(&source) && is_enum(&value.to_field(info.schema())?.1)
            || matches!(
                source,
                DataType::Duration(_) | DataType::List(_) | DataType::Struct(_)
            )
            || matches!(
                (&source, &target.data_type),
                (DataType::Time64(_), DataType::Interval(_)) | (DataType::Interval(_), DataType::Time64(_))
            )
            || times::converts(&source, &target.data_type) && !reads_clock(value)?;
        if target.annotation.is_none() && !is_text(&source) && !rounds && !to_text && !is_special {
            let plain = value.clone();
            return Ok(ExprSimplifyResult::Simplified(if source == target.data_type {
                plain
            } else {
                datafusion::logical_expr::cast(plain, target.data_type)
            }));
        }
        // A text of another type, such as varchar(n), would stay one.
        let is_plain = || -> Result<bool> { Ok(value.to_field(info.schema())?.1.metadata().is_empty()) };
        let is_same = target.annotation.is_none() && source == DataType::Utf8 && to_text && !is_special;
        if is_same && is_plain()? {
            return Ok(ExprSimplifyResult::Simplified(value.clone()));
        }
        // Whose argument it is was looked at.
        if self.name == NAME && args.len() == 3 {
            return Ok(ExprSimplifyResult::Simplified(udf().call(args[..2].to_vec())));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let from = args
            .arg_fields
            .first()
            .ok_or_else(|| exec_datafusion_err!("{NAME} without arguments"))?;
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let values = args.args[0].to_array(if scalar { 1 } else { args.number_rows })?;
        let converted = if self.name == NAME {
            explicit(from, &args.return_field, &values)?
        } else {
            convert(from, &args.return_field, &values)?
        };
        if scalar {
            Ok(ColumnarValue::Scalar(constant(&converted)?))
        } else {
            Ok(ColumnarValue::Array(converted))
        }
    }
}

/// An explicit cast: texts that are too long are cut, also in arrays.
fn explicit(from: &Field, to: &Field, values: &ArrayRef) -> Result<ArrayRef> {
    if length_limit(to).is_some() {
        return cut(from, to, values);
    }
    match (types::element(from), types::element(to), to.data_type()) {
        (Some(from), Some(of), DataType::List(to)) => {
            elements(values, |values| explicit(&from, &of, values), to)
        }
        _ if matches!(from.data_type(), DataType::Struct(_)) && values.data_type() != to.data_type() => {
            rows::converted(from, to, values, explicit)
        }
        _ => convert(from, to, values),
    }
}

/// Casts to a text of limited length: what is too long is cut.
fn cut(from: &Field, to: &Field, values: &ArrayRef) -> Result<ArrayRef> {
    let limit = length_limit(to).map_or(usize::MAX, |(_, limit)| limit);
    let values = &as_texts(from, values);
    let texts = if is_text(values.data_type()) {
        arrow::compute::cast(values, &DataType::Utf8)?
            .as_string::<i32>()
            .clone()
    } else if values.data_type() == &DataType::Null {
        StringArray::new_null(values.len())
    } else {
        to_text(from, values)?
    };
    let cut: StringArray = texts
        .iter()
        .map(|text| {
            text.map(|text| match text.char_indices().nth(limit) {
                Some((end, _)) => &text[..end],
                None => text,
            })
        })
        .collect();
    Ok(parse::column(to, &cut).map_err(|cell| *cell.error)?)
}

/// Casts a column to the type of another field, as PostgreSQL's explicit and assignment casts do.
///
/// # Errors
/// The first value that has no counterpart, as an [`millrace_postgres::error::SqlError`] inside.
pub fn convert(from: &Field, to: &Field, values: &ArrayRef) -> Result<ArrayRef> {
    Ok(digits::rounded(to, with_all_digits(from, to, values)?))
}

fn with_all_digits(from: &Field, to: &Field, values: &ArrayRef) -> Result<ArrayRef> {
    let target = to.data_type();
    let annotation = to.metadata().get(ANNOTATION);
    if annotation == from.metadata().get(ANNOTATION) && values.data_type() == target {
        return Ok(ArrayRef::clone(values));
    }
    if values.data_type() == &DataType::Null {
        return Ok(arrow::array::new_null_array(target, values.len()));
    }
    if is_text(values.data_type()) {
        let texts = arrow::compute::cast(&as_texts(from, values), &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        if json_values::converts(from, to) {
            return json_values::converted(to, texts);
        }
        return Ok(parse::column(to, texts).map_err(|cell| *cell.error)?);
    }
    if let (DataType::Duration(_), DataType::Interval(_)) = (values.data_type(), target) {
        return Ok(Arc::new(intervals(values)?));
    }
    match (values.data_type(), target) {
        (DataType::Time64(_), DataType::Interval(_)) => {
            let times = arrow::compute::cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
            let times = times.as_primitive::<Time64MicrosecondType>();
            let lengths = times
                .iter()
                .map(|time| time.map(|time| IntervalMonthDayNano::new(0, 0, time * 1000)));
            return Ok(Arc::new(lengths.collect::<IntervalMonthDayNanoArray>()));
        }
        // What is left of whole days.
        (DataType::Interval(_), DataType::Time64(_)) => {
            let lengths = intervals(values)?;
            let times = lengths
                .iter()
                .map(|length| length.map(|length| (length.nanoseconds / 1000).rem_euclid(MICROS_PER_DAY)));
            return Ok(Arc::new(times.collect::<Time64MicrosecondArray>()));
        }
        _ => {}
    }
    if let (Some(from), Some(of), DataType::List(to)) = (types::element(from), types::element(to), target) {
        return elements(values, |values| convert(&from, &of, values), to);
    }
    if let (DataType::Struct(_), DataType::Struct(_)) = (from.data_type(), target) {
        return rows::converted(from, to, values, convert);
    }
    if is_text(target) {
        // Through the text output, and then the input for what has a form of its own (varchar(n), jsonb).
        let texts = to_text(from, values)?;
        return Ok(parse::column(to, &texts).map_err(|cell| *cell.error)?);
    }
    let rounded;
    let values = if is_fraction(values.data_type()) && target.is_integer() {
        rounded = round(values)?;
        &rounded
    } else {
        values
    };
    if let (DataType::Float32 | DataType::Float64, DataType::Decimal128(precision, scale)) =
        (values.data_type(), target)
    {
        let any = annotation.is_some_and(|name| name == "numeric");
        return Ok(Arc::new(floats_to_numeric(values, *precision, *scale, any)?));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    if target == &DataType::Float32 && values.data_type().is_numeric() {
        return Ok(Arc::new(to_real(values)?));
    }
    if target == &DataType::Float64 && matches!(values.data_type(), DataType::Decimal128(..)) {
        return Ok(doubles_of(values)?);
    }
    if times::converts(values.data_type(), target) {
        return times::convert(values, target).map_err(|_| {
            let message = format!("date out of range for {}", types::plain_name(to));
            SqlError::new(SqlState::DatetimeFieldOverflow, message).into()
        });
    }
    let converted = cast_with_options(values, target, &options);
    if converted.is_err() && values.data_type().is_numeric() && target.is_integer() {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("{} out of range", types::plain_name(to)),
        )
        .into());
    }
    Ok(converted?)
}

/// Whether a value is the clock of a view, by whose casts it is known when rows come and go.
pub(crate) fn reads_clock(value: &Expr) -> Result<bool> {
    value.exists(|part| Ok(matches!(part, Expr::Placeholder(_))))
}

/// Numbers as `real`; what is too large for it, or too near to zero, is out of range.
fn to_real(values: &ArrayRef) -> Result<Float32Array> {
    let wide = doubles_of(values)?;
    let one = |value: f64| -> Result<f32> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "that is what the cast to real does"
        )]
        let real = value as f32;
        match real {
            real if real.is_infinite() && value.is_finite() => Err(range("overflow").into()),
            real if real == 0.0 && value != 0.0 => Err(range("underflow").into()),
            real => Ok(real),
        }
    };
    let values = wide.as_primitive::<Float64Type>();
    values.iter().map(|value| value.map(one).transpose()).collect()
}

/// The digits of floats that mean something: 15, or 6 of a `real`, as PostgreSQL takes them.
///
/// # Errors
/// One is not finite, too large, or nothing of it is left in a numeric without a precision (`any`).
fn floats_to_numeric(values: &ArrayRef, precision: u8, scale: i8, any: bool) -> Result<Decimal128Array> {
    let digits = if values.data_type() == &DataType::Float32 {
        6
    } else {
        15
    };
    let wide = arrow::compute::cast(values, &DataType::Float64)?;
    let numerics = wide
        .as_primitive::<Float64Type>()
        .iter()
        .map(|value| {
            let Some(value) = value else { return Ok(None) };
            if !value.is_finite() {
                let name = if value.is_nan() { "NaN" } else { "infinity" };
                return Err(SqlError::new(
                    SqlState::NumericValueOutOfRange,
                    format!("cannot convert {name} to numeric"),
                ));
            }
            let numeric = parse::number::decimal(&format!("{value:.*e}", digits - 1), precision, scale)?;
            if any && numeric == 0 && value != 0.0 {
                return Err(SqlError::new(
                    SqlState::NumericValueOutOfRange,
                    format!(
                        "value \"{value:e}\" is too small for a numeric with {scale} digits after the point"
                    ),
                )
                .with_hint("Cast to a numeric with more digits, as in numeric(38,20), or round() first."));
            }
            Ok(Some(numeric))
        })
        .collect::<SqlResult<Decimal128Array>>()?;
    Ok(numerics.with_precision_and_scale(precision, scale)?)
}

/// Arrays with other elements.
fn elements(
    values: &ArrayRef,
    convert: impl FnOnce(&ArrayRef) -> Result<ArrayRef>,
    to: &FieldRef,
) -> Result<ArrayRef> {
    let list = values.as_list::<i32>();
    let elements = convert(list.values())?;
    let list = ListArray::try_new(
        Arc::clone(to),
        list.offsets().clone(),
        elements,
        list.nulls().cloned(),
    )?;
    Ok(Arc::new(list))
}

/// Floats go to the even neighbour when they are half way, numerics away from zero.
fn round(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Decimal128(precision, scale) if *scale > 0 => Ok(arrow::compute::cast(
            values,
            &DataType::Decimal128(*precision, 0),
        )?),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let wide = arrow::compute::cast(values, &DataType::Float64)?;
            let rounded: Float64Array = wide.as_primitive::<Float64Type>().unary(f64::round_ties_even);
            Ok(Arc::new(rounded))
        }
        _ => Ok(ArrayRef::clone(values)),
    }
}

/// The text output of a column.
///
/// # Errors
/// The column's type has no text form.
pub fn to_text(field: &Field, values: &ArrayRef) -> Result<StringArray> {
    // A boolean as text is a word, while the output function writes a letter.
    if let Some(booleans) = values.as_boolean_opt() {
        return Ok(booleans
            .iter()
            .map(|value| value.map(|value| if value { "true" } else { "false" }))
            .collect());
    }
    let column = TextColumn::new(field, values)?;
    let mut out = StringBuilder::with_capacity(values.len(), values.len() * 8);
    let mut text = vec![];
    for row in 0..values.len() {
        if column.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        column.write(row, &mut text)?;
        out.append_value(String::from_utf8_lossy(&text));
    }
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Int32Array};
    use arrow::datatypes::Int32Type;
    use millrace_postgres::from_internal;

    fn plain(data_type: DataType) -> Field {
        Field::new("v", data_type, true)
    }

    #[test]
    fn floats_are_rounded_and_not_cut() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![2.5, 3.5, -2.5, 2.6]));
        let out = convert(&plain(DataType::Float64), &plain(DataType::Int32), &values).unwrap();
        assert_eq!(out.as_primitive::<Int32Type>().values(), &[2, 4, -2, 3]);
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1e10]));
        let error = convert(&plain(DataType::Float64), &plain(DataType::Int32), &values).unwrap_err();
        assert_eq!(
            from_internal::datafusion(error).code,
            SqlState::NumericValueOutOfRange
        );
    }

    #[test]
    fn floats_have_so_many_digits_as_numerics() {
        let numeric = |value: f64| -> Result<i128> {
            let values: ArrayRef = Arc::new(Float64Array::from(vec![value]));
            let out = convert(
                &plain(DataType::Float64),
                &plain(DataType::Decimal128(38, 20)),
                &values,
            )?;
            Ok(out.as_primitive::<arrow::datatypes::Decimal128Type>().value(0))
        };
        assert_eq!(numeric(0.1).unwrap(), 10_i128.pow(19));
        assert_eq!(numeric(0.1 + 0.2).unwrap(), 3 * 10_i128.pow(19));
        assert!(numeric(f64::NAN).is_err());
        assert_eq!(numeric(1e-30).unwrap(), 0);
        let values: ArrayRef = Arc::new(arrow::array::Float32Array::from(vec![1.1, 123_456_789.5]));
        let out = convert(
            &plain(DataType::Float32),
            &plain(DataType::Decimal128(38, 1)),
            &values,
        )
        .unwrap();
        let out = out.as_primitive::<arrow::datatypes::Decimal128Type>();
        assert_eq!(out.values(), &[11, 1_234_570_000]);
    }

    #[test]
    fn not_every_type_is_assigned_to_every_other() {
        let text = plain(DataType::Utf8);
        let uuid = SqlType::annotated(DataType::Utf8, "uuid").field("v", true);
        let integer = plain(DataType::Int32);
        for (from, to, may) in [
            (&integer, &plain(DataType::Float64), true),
            (&integer, &text, true),
            (&text, &integer, false),
            (&plain(DataType::Boolean), &integer, false),
            (&integer, &plain(DataType::Date32), false),
            (&plain(DataType::Date32), &plain(types::timestamptz()), true),
            (&plain(DataType::Null), &integer, true),
            (&integer, &uuid, false),
            (&text, &uuid, true),
        ] {
            assert_eq!(assignable(from, to), may, "{from} to {to}");
        }
    }

    #[test]
    fn explicit_casts_cut_what_is_too_long() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["äbcdef", "ab"]));
        let target = SqlType::annotated(DataType::Utf8, "varchar(3)").field("v", true);
        let out = cut(&plain(DataType::Utf8), &target, &texts).unwrap();
        assert_eq!(out.as_string::<i32>(), &StringArray::from(vec!["äbc", "ab"]));
        assert!(convert(&plain(DataType::Utf8), &target, &texts).is_err());
    }

    #[test]
    fn texts_are_read_and_written() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["yes", "off"]));
        let out = convert(&plain(DataType::Utf8), &plain(DataType::Boolean), &texts).unwrap();
        assert_eq!(out.as_boolean(), &BooleanArray::from(vec![true, false]));
        let back = to_text(&plain(DataType::Boolean), &out).unwrap();
        assert_eq!(back, StringArray::from(vec!["true", "false"]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let out = to_text(&plain(DataType::Int32), &numbers).unwrap();
        assert_eq!(out, StringArray::from(vec![Some("1"), None]));
    }
}
