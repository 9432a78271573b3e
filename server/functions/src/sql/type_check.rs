//! Types that PostgreSQL does not bring together: refused when a statement is bound. DataFusion would cast one side to the
//! other, most often to text or from it, and fail on some row, or compare digits by their letters.
//!
//! A quoted literal and a parameter have no type of their own: they take that of the other side. What is cast by
//! PostgreSQL without being asked (among numbers, among dates and timestamps) stays as it is.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, JoinType, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::enumeration::{self, is_enum};
use millrace_postgres::types::resolution::{self, Choice, Known};
use millrace_postgres::types::{ANNOTATION, pg_type, plain_name};

use crate::cast;
use crate::sql::{extremes, literal_inputs, quantified, stored_texts, window_bounds};
use crate::unknown;

const HINT: &str =
    "No operator matches the given name and argument types. You might need to add explicit type casts.";

/// Types that are compared with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Family {
    /// Whatever is asked for: NULL, a quoted literal, a parameter.
    Unknown,
    Text,
    Number,
    Boolean,
    /// Dates and timestamps.
    Date,
    /// Times of day, and intervals.
    Time,
    Bytes,
    List(Box<Family>),
    /// Nothing is refused of it.
    Other,
}

fn of_type(data_type: &DataType) -> Family {
    match data_type {
        DataType::Null => Family::Unknown,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Family::Text,
        DataType::Boolean => Family::Boolean,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) | DataType::Interval(_) | DataType::Duration(_) => {
            Family::Time
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Family::Bytes,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Family::List(Box::new(of_type(item.data_type())))
        }
        number if number.is_numeric() => Family::Number,
        _ => Family::Other,
    }
}

/// Whether an expression is a literal without a type of its own.
fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) | Expr::Placeholder(_) => true,
        Expr::Alias(alias) => is_untyped(&alias.expr),
        _ => false,
    }
}

/// An expression's type, where it has one.
pub(super) fn typed(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    match expr {
        _ if is_untyped(expr) => None,
        // A literal is of the smallest type that it fits in.
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok() => {
            Some(Arc::new(Field::new("literal", DataType::Int32, false)))
        }
        _ => expr.to_field(schema).ok().map(|(_, field)| field),
    }
}

fn meet(left: &Family, right: &Family) -> bool {
    match (left, right) {
        (Family::Unknown | Family::Other, _) | (_, Family::Unknown | Family::Other) => true,
        (Family::List(left), Family::List(right)) => meet(left, right),
        (left, right) => left == right,
    }
}

fn fields_meet(left: &Field, right: &Field) -> bool {
    let (one, other) = (enumeration::EnumType::of(left), enumeration::EnumType::of(right));
    if let (Some(one), Some(other)) = (one, other) {
        return one.oid == other.oid;
    }
    meet(&of_type(left.data_type()), &of_type(right.data_type()))
}

pub(super) fn no_operator(left: &Field, operator: &str, right: &Field) -> SqlError {
    SqlError::new(
        SqlState::UndefinedFunction,
        format!(
            "operator does not exist: {} {operator} {}",
            plain_name(left),
            plain_name(right)
        ),
    )
    .with_hint(HINT)
}

fn unmatched(what: &str, left: &Field, right: &Field) -> SqlError {
    SqlError::new(
        SqlState::DatatypeMismatch,
        format!(
            "{what} types {} and {} cannot be matched",
            plain_name(left),
            plain_name(right)
        ),
    )
}

/// Checks a plan as it was bound, before anything is cast. `asks_arguments`: see [`arguments`]; quoted literals are looked at then, too.
///
/// # Errors
/// Types that have nothing in common: 42883, 42804, 42846.
pub fn plan(plan: &LogicalPlan, asks_arguments: bool) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Union(union) => {
                if let [first, others @ ..] = union.inputs.as_slice() {
                    for other in others {
                        branches(first, other)?;
                    }
                }
            }
            LogicalPlan::Join(join) => {
                for (left, right) in &join.on {
                    let (left, right) = (typed(left, join.left.schema()), typed(right, join.right.schema()));
                    // As they are bound, only INTERSECT and EXCEPT are joins by pairs.
                    if let (Some(left), Some(right)) = (left, right)
                        && (!fields_meet(&left, &right) || is_enum(&left) != is_enum(&right))
                    {
                        let what = match join.join_type {
                            JoinType::LeftAnti => "EXCEPT",
                            _ => "INTERSECT",
                        };
                        return Err(unmatched(what, &left, &right).into());
                    }
                }
            }
            _ => {}
        }
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expression(expr, &schema)?;
            if asks_arguments {
                arguments(expr, &schema)?;
                literal_inputs::check(expr)?;
                extremes::check(expr, &schema)?;
                window_bounds::check_ranges(expr, &schema)?;
            }
            stored_texts::not_compared(expr, &schema, node)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map(|_| ())
}

/// The branches of a UNION.
fn branches(first: &LogicalPlan, other: &LogicalPlan) -> Result<()> {
    let of_branch = |plan: &LogicalPlan, index: usize| -> bool {
        let mut plan = plan;
        loop {
            match plan {
                LogicalPlan::Projection(projection) => {
                    return projection.expr.get(index).is_some_and(is_untyped);
                }
                LogicalPlan::SubqueryAlias(alias) => plan = &alias.input,
                _ => return false,
            }
        }
    };
    let columns = first.schema().fields().iter().zip(other.schema().fields());
    for (index, (one, two)) in columns.enumerate() {
        let (of_first, of_other) = (of_branch(first, index), of_branch(other, index));
        let is_null = one.data_type().is_null() || two.data_type().is_null();
        if is_enum(one) != is_enum(two) && !is_null {
            return Err(match of_first || of_other {
                true => SqlError::unsupported("a literal beside an enum in a set operation is not supported")
                    .with_hint("Cast it to the type."),
                false => unmatched("UNION", one, two),
            }
            .into());
        }
        if !fields_meet(one, two) && !of_first && !of_other {
            return Err(unmatched("UNION", one, two).into());
        }
    }
    Ok(())
}

/// Checks an expression and all that it is made of.
///
/// # Errors
/// As [`plan`].
pub fn expression(expr: &Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|node| {
        one(node, schema)?;
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

/// Checks the arguments of functions that somebody made: their types become those of the parameters without being cast.
///
/// # Errors
/// 42883: there is no such function of these types.
pub fn arguments(expr: &Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|node| {
        if let Expr::ScalarFunction(function) = node
            && function.func.name() == cast::NAME
            && let [value, _, Expr::Literal(ScalarValue::Utf8(Some(called)), _)] = function.args.as_slice()
        {
            argument(called, value, node, schema)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

fn argument(called: &str, value: &Expr, cast: &Expr, schema: &DFSchema) -> Result<()> {
    let (Some(given), Ok((_, wanted))) = (typed(value, schema), cast.to_field(schema)) else {
        return Ok(());
    };
    let (from, to) = (pg_type(&given), pg_type(&wanted));
    // How wide an integer is depends on literals in it, which all have 64 bits here: what does not fit is out of range.
    let has_same_values = given.data_type().is_integer() && wanted.data_type().is_integer();
    // A parameter's value has the type that the client gave it.
    let is_of_client = matches!(
        value,
        Expr::Literal(ScalarValue::Float32(_) | ScalarValue::Float64(_), _)
    );
    if has_same_values
        || is_of_client
        || given.data_type().is_null()
        || resolution::is_implicit(&from, &to).unwrap_or(true)
    {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::UndefinedFunction,
        format!(
            "function {called} takes {}, not {}",
            plain_name(&wanted),
            plain_name(&given)
        ),
    )
    .with_hint("No function matches the given argument types. You might need to add explicit type casts.")
    .into())
}

/// Checks the sides of a comparison.
///
/// # Errors
/// 42883: there is no such operator.
pub fn sides(left: &Expr, operator: &str, right: &Expr, schema: &DFSchema) -> Result<()> {
    match (typed(left, schema), typed(right, schema)) {
        (Some(left), Some(right)) if !fields_meet(&left, &right) => {
            let operator = if operator == "!=" { "<>" } else { operator };
            Err(no_operator(&left, operator, &right).into())
        }
        _ => Ok(()),
    }
}

fn one(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let compared = |left: &Expr, operator: &str, right: &Expr| sides(left, operator, right, schema);
    match expr {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => compared(&binary.left, &binary.op.to_string(), &binary.right),
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => {
                compared(&binary.left, "=", &binary.right)
            }
            Operator::StringConcat => match (typed(&binary.left, schema), typed(&binary.right, schema)) {
                (Some(left), Some(right)) if is_enum(&left) && is_enum(&right) => {
                    Err(no_operator(&left, "||", &right).into())
                }
                _ => Ok(()),
            },
            Operator::And | Operator::Or => {
                for side in [&binary.left, &binary.right] {
                    if let Some(field) = typed(side, schema)
                        && !meet(&of_type(field.data_type()), &Family::Boolean)
                    {
                        return Err(SqlError::new(
                            SqlState::DatatypeMismatch,
                            format!(
                                "argument of {} must be type boolean, not type {}",
                                binary.op,
                                plain_name(&field)
                            ),
                        )
                        .into());
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        },
        Expr::InList(list) => list
            .list
            .iter()
            .try_for_each(|item| compared(&list.expr, "=", item)),
        Expr::Between(between) => {
            compared(&between.expr, ">=", &between.low)?;
            compared(&between.expr, "<=", &between.high)
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
            of_query(expr, "=", &subquery.subquery, schema)
        }
        Expr::SetComparison(SetComparison {
            expr, subquery, op, ..
        }) => of_query(expr, &op.to_string(), &subquery.subquery, schema),
        Expr::Case(case) => {
            for (when, _) in &case.when_then_expr {
                match &case.expr {
                    Some(operand) => compared(operand, "=", when)?,
                    None => boolean("CASE/WHEN", when, schema)?,
                }
            }
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            alike("CASE", results.chain(case.else_expr.as_deref()), schema)
        }
        Expr::Like(like) => {
            for side in [&like.expr, &like.pattern] {
                if let Some(field) = typed(side, schema)
                    && (!meet(&of_type(field.data_type()), &Family::Text) || is_enum(&field))
                {
                    let operator = match (like.negated, like.case_insensitive) {
                        (false, false) => "~~",
                        (false, true) => "~~*",
                        (true, false) => "!~~",
                        (true, true) => "!~~*",
                    };
                    let name = |expr: &Expr| {
                        typed(expr, schema).map_or_else(|| "unknown".to_string(), |field| plain_name(&field))
                    };
                    let (left, right) = (name(&like.expr), name(&like.pattern));
                    return Err(SqlError::new(
                        SqlState::UndefinedFunction,
                        format!("operator does not exist: {left} {operator} {right}"),
                    )
                    .with_hint(HINT)
                    .into());
                }
            }
            Ok(())
        }
        // A condition's type is not asked for otherwise.
        Expr::ScalarFunction(function) if unknown::is(&function.func) => expr.to_field(schema).map(|_| ()),
        Expr::ScalarFunction(function) => call(function, schema),
        Expr::AggregateFunction(aggregate) => match &aggregate.params.filter {
            Some(condition) => boolean("FILTER", condition, schema),
            None => Ok(()),
        },
        Expr::IsTrue(operand) => boolean("IS TRUE", operand, schema),
        Expr::IsNotTrue(operand) => boolean("IS NOT TRUE", operand, schema),
        Expr::IsFalse(operand) => boolean("IS FALSE", operand, schema),
        Expr::IsNotFalse(operand) => boolean("IS NOT FALSE", operand, schema),
        Expr::IsUnknown(operand) => boolean("IS UNKNOWN", operand, schema),
        Expr::IsNotUnknown(operand) => boolean("IS NOT UNKNOWN", operand, schema),
        _ => Ok(()),
    }
}

fn boolean(what: &str, argument: &Expr, schema: &DFSchema) -> Result<()> {
    match typed(argument, schema) {
        Some(field) if !meet(&of_type(field.data_type()), &Family::Boolean) => Err(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "argument of {what} must be type boolean, not type {}",
                plain_name(&field)
            ),
        )
        .into()),
        _ => Ok(()),
    }
}

fn of_query(expr: &Expr, operator: &str, query: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    let right = query.schema().field(0);
    match typed(expr, schema) {
        Some(left) if !fields_meet(&left, right) => Err(no_operator(&left, operator, right).into()),
        _ => Ok(()),
    }
}

/// Expressions one of which is the value.
fn alike<'a>(what: &str, all: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Result<()> {
    let mut first: Option<FieldRef> = None;
    for field in all.filter_map(|expr| typed(expr, schema)) {
        match &first {
            Some(known) if !fields_meet(known, &field) => return Err(unmatched(what, known, &field).into()),
            Some(known) if of_type(known.data_type()) != Family::Unknown => {}
            _ => first = Some(field),
        }
    }
    Ok(())
}

fn call(function: &datafusion::logical_expr::expr::ScalarFunction, schema: &DFSchema) -> Result<()> {
    let name = function.func.name();
    match name {
        cast::NAME => return casts(function, schema),
        "coalesce" | "greatest" | "least" => {
            return alike(&name.to_uppercase(), function.args.iter(), schema);
        }
        "nullif" => {
            if let [left, right] = function.args.as_slice()
                && let (Some(left), Some(right)) = (typed(left, schema), typed(right, schema))
                && !fields_meet(&left, &right)
            {
                return Err(no_operator(&left, "=", &right).into());
            }
            return Ok(());
        }
        _ => {}
    }
    if let Some(operator) = quantified::operator_of(name)
        && let [left, list] = function.args.as_slice()
        && let (Some(left), Some(list)) = (typed(left, schema), typed(list, schema))
        && let DataType::List(element) | DataType::LargeList(element) = list.data_type()
        && !fields_meet(&left, element)
    {
        return Err(no_operator(&left, &operator.to_string(), element).into());
    }
    // These take anything and write it out.
    if matches!(name, "concat" | "concat_ws" | "format") {
        return Ok(());
    }
    let fields: Option<Vec<FieldRef>> = function
        .args
        .iter()
        .map(|arg| arg.to_field(schema).ok().map(|(_, field)| field))
        .collect();
    let Some(fields) = fields else { return Ok(()) };
    if fields.iter().any(|field| is_enum(field)) && resolution::is_function(name) {
        let arguments: Vec<Known> = function
            .args
            .iter()
            .zip(&fields)
            .map(|(argument, field)| (!is_untyped(argument)).then(|| pg_type(field)))
            .collect();
        if resolution::function(name, &arguments) == Choice::None {
            return Err(no_function(function, &fields).into());
        }
    }
    let Ok(wanted) = fields_with_udf(&fields, function.func.as_ref()) else {
        return Ok(());
    };
    let is_foreign = |(argument, (given, wanted)): (&Expr, (&FieldRef, &FieldRef))| {
        let (given, wanted) = (of_type(given.data_type()), of_type(wanted.data_type()));
        // What is cast to a text or from one, without having been written so.
        !is_untyped(argument) && !meet(&given, &wanted) && (given == Family::Text || wanted == Family::Text)
    };
    if function
        .args
        .iter()
        .zip(fields.iter().zip(&wanted))
        .any(is_foreign)
    {
        return Err(no_function(function, &fields).into());
    }
    Ok(())
}

fn no_function(function: &datafusion::logical_expr::expr::ScalarFunction, fields: &[FieldRef]) -> SqlError {
    let types: Vec<String> = function
        .args
        .iter()
        .zip(fields)
        .map(|(argument, field)| match is_untyped(argument) {
            true => "unknown".to_string(),
            false => plain_name(field),
        })
        .collect();
    SqlError::new(
        SqlState::UndefinedFunction,
        format!(
            "function {}({}) does not exist",
            function.func.name(),
            types.join(", ")
        ),
    )
    .with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// A cast that was written.
fn casts(function: &datafusion::logical_expr::expr::ScalarFunction, schema: &DFSchema) -> Result<()> {
    let Some(value) = function.args.first() else {
        return Ok(());
    };
    let call = Expr::ScalarFunction(function.clone());
    let (Some(from), Ok((_, to))) = (typed(value, schema), call.to_field(schema)) else {
        return Ok(());
    };
    if let Some(has) = of_documents(&from, &to) {
        return match has {
            true => Ok(()),
            false => Err(no_cast(&from, &to).into()),
        };
    }
    // A literal is an `integer` here that DataFusion has for a wider one.
    let is_literal = matches!(value, Expr::Literal(..));
    if has_cast(from.data_type(), to.data_type(), is_literal) {
        return Ok(());
    }
    Err(no_cast(&from, &to).into())
}

fn no_cast(from: &Field, to: &Field) -> SqlError {
    SqlError::new(
        SqlState::CannotCoerce,
        format!("cannot cast type {} to {}", plain_name(from), plain_name(to)),
    )
}

/// Whether there is a cast, where one of the types is json, jsonb, uuid or an enum, which texts hold here; `None`: neither is.
fn of_documents(from: &Field, to: &Field) -> Option<bool> {
    fn special(field: &Field) -> Option<&str> {
        let name = field.metadata().get(ANNOTATION).map(String::as_str)?;
        (matches!(name, "json" | "jsonb" | "uuid") || is_enum(field)).then_some(name)
    }
    let is_text = |field: &Field| of_type(field.data_type()) == Family::Text && special(field).is_none();
    let is_document = |name: &str| matches!(name, "json" | "jsonb");
    match (special(from), special(to)) {
        (None, None) => None,
        _ if from.data_type().is_null() => Some(true),
        (Some(from), Some(to)) => Some(from == to || is_document(from) && is_document(to)),
        (None, Some(_)) => Some(is_text(from)),
        (Some(from), None) => {
            let is_scalar = matches!(of_type(to.data_type()), Family::Number | Family::Boolean);
            Some(is_text(to) || from == "jsonb" && is_scalar)
        }
    }
}

/// Whether PostgreSQL has a cast from the one type to the other.
fn has_cast(from: &DataType, to: &DataType, is_literal: bool) -> bool {
    let (given, wanted) = (of_type(from), of_type(to));
    match (&given, &wanted) {
        // Every type is written as a text and read from one.
        (Family::Unknown | Family::Other | Family::Text, _) | (_, Family::Other | Family::Text) => true,
        (Family::List(_), Family::List(_)) => match (from, to) {
            (
                DataType::List(from) | DataType::LargeList(from) | DataType::FixedSizeList(from, _),
                DataType::List(to) | DataType::LargeList(to) | DataType::FixedSizeList(to, _),
            ) => has_cast(from.data_type(), to.data_type(), is_literal),
            _ => true,
        },
        (Family::Number, Family::Boolean) => {
            matches!(from, DataType::Int32) || is_literal && from.is_integer()
        }
        (Family::Boolean, Family::Number) => matches!(to, DataType::Int32),
        (Family::Time, Family::Time) => true,
        (Family::Date, Family::Time) => {
            matches!(from, DataType::Timestamp(..)) && matches!(to, DataType::Time64(_) | DataType::Time32(_))
        }
        (given, wanted) => given == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{IntervalUnit, Schema, TimeUnit};
    use datafusion::logical_expr::{col, lit};

    fn schema() -> DFSchema {
        let fields = vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("i", DataType::Int32, true),
            Field::new("f", DataType::Float64, true),
            Field::new("b", DataType::Boolean, true),
            Field::new("d", DataType::Date32, true),
            Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ];
        DFSchema::try_from(Schema::new(fields)).unwrap()
    }

    #[test]
    fn sides_without_a_type_in_common_are_refused() {
        let refused = |expr: Expr| expression(&expr, &schema()).is_err();
        assert!(refused(col("t").eq(lit(5))));
        assert!(refused(col("i").lt(col("t"))));
        assert!(refused(col("b").eq(lit(1))));
        assert!(refused(col("i").eq(col("d"))));
        assert!(refused(col("t").in_list(vec![lit("a"), lit(1)], false)));
        assert!(refused(col("i").between(lit(1), col("t"))));
        assert!(refused(col("i").and(col("b"))));
        assert!(refused(col("i").like(lit("1%"))));
        assert!(!refused(col("i").eq(lit("5"))));
        assert!(!refused(col("i").eq(col("f"))));
        assert!(!refused(col("d").eq(col("ts"))));
        assert!(!refused(col("t").eq(lit(ScalarValue::Null))));
    }

    #[test]
    fn casts_are_those_of_postgresql() {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        let time = DataType::Time64(TimeUnit::Microsecond);
        for (from, to, has) in [
            (DataType::Int32, &timestamp, false),
            (DataType::Int32, &DataType::Boolean, true),
            (DataType::Int64, &DataType::Boolean, false),
            (DataType::Boolean, &DataType::Int64, false),
            (DataType::Boolean, &DataType::Int32, true),
            (timestamp.clone(), &time, true),
            (DataType::Date32, &time, false),
            (time.clone(), &interval, true),
            (DataType::Date32, &DataType::Int32, false),
            (DataType::Date32, &DataType::Utf8, true),
            (DataType::Utf8, &DataType::Date32, true),
        ] {
            assert_eq!(has_cast(&from, to, false), has, "{from} to {to}");
        }
    }
}
