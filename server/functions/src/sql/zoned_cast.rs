//! Casts that depend on the time zone of the session.
//!
//! A bound plan casts in UTC. Before it is run for a session in another zone, [`in_zone`] replaces the casts between
//! timestamptz and what has no zone by `pg_cast_in_zone(value, 'type', 'zone')`, and has `date_trunc`, `extract` and
//! `to_char` look at the local time. The plans of views are not touched:
//! what a view says may not depend on who looks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_datafusion_err, plan_datafusion_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types::parse::datetime::timestamptz_in;
use millrace_postgres::types::zone::Zone;
use millrace_postgres::types::{digits, parse, timestamptz};
use millrace_sql::times;

use crate::datetime::{self, Function};
use crate::in_plans::in_expressions;
use crate::sql::comparisons::is_comparison;
use crate::{by_pattern, cast as pg_cast, clock, date_part, zoned_shift};

const NAME: &str = "pg_cast_in_zone";
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The plan with what depends on the time zone done in this one.
///
/// # Errors
/// The plan cannot be put together again.
pub fn in_zone(plan: LogicalPlan, zone: Zone) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|plan| {
        in_expressions(plan, |expr, schema| Ok(replaced(expr, schema, zone)))
    })?;
    Ok(replaced.data)
}

fn replaced(expr: Expr, schema: &DFSchema, zone: Zone) -> Transformed<Expr> {
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr
        && let Some(shift) = shifted(left, *op, right, schema, zone)
    {
        return Transformed::yes(shift);
    }
    let expr = match compared(expr, schema, zone) {
        Transformed {
            transformed: false,
            data,
            ..
        } => data,
        changed => return changed,
    };
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else {
        return Transformed::no(expr);
    };
    let is_instant = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
    let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    let to_or_from_local =
        |expr: &Expr| datetime::udf(Function::TimeZone).call(vec![lit(zone.sql_name()), expr.clone()]);
    match (func.name(), args.as_slice()) {
        (pg_cast::NAME | pg_cast::ASSIGN, [value, Expr::Literal(ScalarValue::Utf8(Some(name)), _), ..]) => {
            let (Ok(source), Ok(target)) = (value.get_type(schema), pg_cast::named(name)) else {
                return Transformed::no(expr);
            };
            if !depends(&source, &target.data_type) {
                return Transformed::no(expr);
            }
            let arguments = vec![value.clone(), lit(name.as_str()), lit(zone.sql_name())];
            Transformed::yes(udf().call(arguments))
        }
        // Fields of an instant are those of its local time.
        (date_part::DATE_PART | date_part::EXTRACT, [part, value]) if is_instant(value) => {
            Transformed::yes(func.call(vec![part.clone(), value.clone(), lit(zone.sql_name())]))
        }
        ("generate_series" | zoned_shift::SERIES, [from, to, step]) if is_instant(from) || is_instant(to) => {
            let arguments = vec![from.clone(), to.clone(), step.clone(), lit(zone.sql_name())];
            Transformed::yes(zoned_shift::series().call(arguments))
        }
        (zoned_shift::SERIES, [from, ..]) if args.len() == 3 && is_date(from) => {
            let arguments = args.iter().cloned().chain([lit(zone.sql_name())]);
            Transformed::yes(zoned_shift::series().call(arguments.collect()))
        }
        // Instants in a text are written as they are shown.
        ("concat" | "concat_ws" | "format", args) if args.iter().any(is_instant) => {
            let shown = |arg: &Expr| match is_instant(arg) {
                true => udf().call(vec![arg.clone(), lit("text"), lit(zone.sql_name())]),
                false => arg.clone(),
            };
            Transformed::yes(func.call(args.iter().map(shown).collect()))
        }
        ("age", [to, from]) if is_instant(to) && is_instant(from) => {
            Transformed::yes(func.call(vec![to_or_from_local(to), to_or_from_local(from)]))
        }
        ("current_date", []) => {
            let now = clock::now().call(vec![]);
            Transformed::yes(udf().call(vec![now, lit("date"), lit(zone.sql_name())]))
        }
        ("make_timestamptz", [_, _, _, _, _, _]) => {
            let arguments = args.iter().cloned().chain([lit(zone.sql_name())]);
            Transformed::yes(func.call(arguments.collect()))
        }
        (by_pattern::TO_TIMESTAMP, [text, pattern]) => {
            Transformed::yes(func.call(vec![text.clone(), pattern.clone(), lit(zone.sql_name())]))
        }
        ("to_char", [value, pattern]) if is_instant(value) => {
            Transformed::yes(func.call(vec![value.clone(), pattern.clone(), lit(zone.sql_name())]))
        }
        ("date_trunc", [part, value]) if is_date(value) => {
            let midnight = datafusion::logical_expr::cast(value.clone(), TIMESTAMP);
            Transformed::yes(to_or_from_local(&func.call(vec![part.clone(), midnight])))
        }
        ("date_trunc", [part, value]) if is_instant(value) => {
            let local = func.call(vec![part.clone(), to_or_from_local(value)]);
            Transformed::yes(to_or_from_local(&local))
        }
        _ => Transformed::no(expr),
    }
}

/// A comparison of instants with what has no zone, or the cast in it: midnight of a date, and a timestamp, are those of the zone.
fn compared(expr: Expr, schema: &DFSchema, zone: Zone) -> Transformed<Expr> {
    let is_instant = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
    let has_no_zone = |expr: &Expr| {
        matches!(
            expr.get_type(schema),
            Ok(DataType::Date32 | DataType::Timestamp(_, None))
        )
    };
    let in_zone = |side: Expr| {
        let target = lit("timestamp with time zone");
        udf().call(vec![side, target, lit(zone.sql_name())])
    };
    match expr {
        Expr::BinaryExpr(mut binary) if is_comparison(binary.op) => {
            if is_instant(&binary.left) && has_no_zone(&binary.right) {
                binary.right = Box::new(in_zone(*binary.right));
            } else if has_no_zone(&binary.left) && is_instant(&binary.right) {
                binary.left = Box::new(in_zone(*binary.left));
            } else {
                return Transformed::no(Expr::BinaryExpr(binary));
            }
            Transformed::yes(Expr::BinaryExpr(binary))
        }
        // What a comparison was given when it was planned.
        Expr::Cast(cast)
            if has_no_zone(&cast.expr)
                && matches!(cast.field.data_type(), DataType::Timestamp(_, Some(_))) =>
        {
            Transformed::yes(in_zone(*cast.expr))
        }
        Expr::Between(mut between) if is_instant(&between.expr) => {
            let mut changed = false;
            for side in [&mut between.low, &mut between.high] {
                if has_no_zone(side) {
                    **side = in_zone(std::mem::take(side.as_mut()));
                    changed = true;
                }
            }
            match changed {
                true => Transformed::yes(Expr::Between(between)),
                false => Transformed::no(Expr::Between(between)),
            }
        }
        Expr::InList(mut list) if is_instant(&list.expr) && list.list.iter().any(has_no_zone) => {
            list.list = std::mem::take(&mut list.list)
                .into_iter()
                .map(|item| if has_no_zone(&item) { in_zone(item) } else { item })
                .collect();
            Transformed::yes(Expr::InList(list))
        }
        other => Transformed::no(other),
    }
}

/// An instant plus or minus a length of time.
fn shifted(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema, zone: Zone) -> Option<Expr> {
    if !matches!(op, Operator::Plus | Operator::Minus) {
        return None;
    }
    let types = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let (instant, length) = match types {
        (DataType::Timestamp(_, Some(_)), DataType::Interval(_)) => (left, right),
        (DataType::Interval(_), DataType::Timestamp(_, Some(_))) if op == Operator::Plus => (right, left),
        _ => return None,
    };
    let arguments = vec![instant.clone(), length.clone(), lit(zone.sql_name())];
    Some(zoned_shift::udf(op == Operator::Minus).call(arguments))
}

/// Whether values of a type are instants, or have some in them.
fn has_instants(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, zone) => zone.is_some(),
        DataType::List(item) => has_instants(item.data_type()),
        DataType::Struct(members) => members.iter().any(|member| has_instants(member.data_type())),
        _ => false,
    }
}

/// Whether a cast depends on the zone.
fn depends(source: &DataType, target: &DataType) -> bool {
    if source.is_nested() {
        return target.is_string() && has_instants(source);
    }
    let has_zone = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(_)));
    match (has_zone(source), has_zone(target)) {
        (false, true) => source.is_string() || matches!(source, DataType::Timestamp(..) | DataType::Date32),
        (true, false) => {
            target.is_string()
                || matches!(
                    target,
                    DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_)
                )
        }
        _ => false,
    }
}

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ZonedCast {
        signature: Signature::any(3, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ZonedCast {
    signature: Signature,
}

impl ScalarUDFImpl for ZonedCast {
    fn name(&self) -> &str {
        NAME
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
            Some(ScalarValue::Utf8(Some(name))) => Ok(Arc::new(
                pg_cast::named(name)?.field(NAME, args.arg_fields[0].is_nullable()),
            )),
            _ => Err(plan_datafusion_err!(
                "the second argument of {NAME} is the name of a type"
            )),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, _, ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone)))] = args.args.as_slice() else {
            return Err(exec_datafusion_err!("{NAME} takes a value, a type and a zone"));
        };
        let zone = Zone::named_in_sql(zone)?;
        let is_scalar = matches!(value, ColumnarValue::Scalar(_));
        let values = value.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let out = convert(&args.arg_fields[0], &args.return_field, &values, zone)?;
        if is_scalar {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?))
        } else {
            Ok(ColumnarValue::Array(out))
        }
    }
}

fn convert(from: &Field, to: &Field, values: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
    Ok(digits::rounded(to, with_all_digits(from, to, values, zone)?))
}

fn with_all_digits(from: &Field, to: &Field, values: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
    if values.data_type().is_string() {
        let texts = cast(values, &DataType::Utf8)?;
        let instants = texts
            .as_string::<i32>()
            .iter()
            .map(|text| text.map(|text| timestamptz_in(text, zone)).transpose())
            .collect::<Result<TimestampMicrosecondArray, _>>()?;
        return Ok(Arc::new(instants.with_timezone("UTC")));
    }
    if values.data_type().is_nested() {
        let field = shown_field(&Arc::new(from.clone()), zone);
        let texts = pg_cast::to_text(&field, &shown(values, zone))?;
        return Ok(parse::column(to, &texts).map_err(|cell| *cell.error)?);
    }
    if let DataType::Timestamp(_, Some(_)) = values.data_type() {
        let instants = cast(values, &timestamptz())?;
        let instants = instants.as_primitive::<TimestampMicrosecondType>();
        if to.data_type().is_string() {
            let shown: ArrayRef = Arc::new(instants.clone().with_timezone(zone.to_string()));
            let texts = pg_cast::to_text(from, &shown)?;
            return Ok(parse::column(to, &texts).map_err(|cell| *cell.error)?);
        }
        let local: TimestampMicrosecondArray =
            instants.unary::<_, TimestampMicrosecondType>(|micros| zone.to_local(micros));
        let local: ArrayRef = Arc::new(local.with_timezone_opt::<Arc<str>>(None));
        return match times::converts(local.data_type(), to.data_type()) {
            true => Ok(times::convert(&local, to.data_type())?),
            false => Ok(cast(&local, to.data_type())?),
        };
    }
    let local = match times::converts(values.data_type(), &TIMESTAMP) {
        true => times::convert(values, &TIMESTAMP)?,
        false => cast(values, &TIMESTAMP)?,
    };
    let local = local.as_primitive::<TimestampMicrosecondType>();
    let instants: TimestampMicrosecondArray =
        local.unary::<_, TimestampMicrosecondType>(|micros| zone.to_utc(micros));
    Ok(Arc::new(instants.with_timezone("UTC")))
}

/// The assignment of a column to a column of a table.
///
/// # Errors
/// The first value that has no counterpart.
pub fn assigned(from: &Field, to: &Field, values: &ArrayRef, zone: Option<Zone>) -> Result<ArrayRef> {
    match zone {
        Some(zone) if depends(values.data_type(), to.data_type()) => convert(from, to, values, zone),
        _ => pg_cast::convert(from, to, values),
    }
}

/// The type in which a column's instants are shown in a zone; `None`: it has none.
fn shown_type(data_type: &DataType, zone: Zone) -> Option<DataType> {
    match data_type {
        DataType::Timestamp(_, Some(_)) => Some(DataType::Timestamp(
            TimeUnit::Microsecond,
            Some(zone.to_string().into()),
        )),
        DataType::List(item) => {
            let shown = shown_type(item.data_type(), zone)?;
            Some(DataType::List(Arc::new(
                item.as_ref().clone().with_data_type(shown),
            )))
        }
        DataType::Struct(members) if has_instants(data_type) => {
            let members = members.iter().map(|member| shown_field(member, zone));
            Some(DataType::Struct(members.collect()))
        }
        _ => None,
    }
}

/// A column whose instants are shown in a zone; other columns stay.
pub fn shown(array: &ArrayRef, zone: Zone) -> ArrayRef {
    shown_type(array.data_type(), zone)
        .and_then(|data_type| cast(array, &data_type).ok())
        .unwrap_or_else(|| Arc::clone(array))
}

/// The field of such a column.
pub fn shown_field(field: &FieldRef, zone: Zone) -> FieldRef {
    match shown_type(field.data_type(), zone) {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => Arc::clone(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::StringArray;

    #[test]
    fn casts_are_done_in_the_zone() {
        let zone = Zone::Named(chrono_tz::America::New_York);
        let text = Field::new("t", DataType::Utf8, true);
        let instant = Field::new("z", timestamptz(), true);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("2013-07-31 10:00"),
            Some("2013-07-31 10:00Z"),
            None,
        ]));
        let instants = convert(&text, &instant, &texts, zone).unwrap();
        let back = convert(&instant, &text, &instants, zone).unwrap();
        assert_eq!(
            back.as_string::<i32>(),
            &StringArray::from(vec![
                Some("2013-07-31 10:00:00-04"),
                Some("2013-07-31 06:00:00-04"),
                None
            ])
        );
        let local = Field::new("l", TIMESTAMP, true);
        let locals = convert(&instant, &local, &instants, zone).unwrap();
        let again = convert(&local, &instant, &locals, zone).unwrap();
        assert_eq!(again.as_ref(), instants.as_ref());
    }
}
