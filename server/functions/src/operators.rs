//! Operators that DataFusion does not have, or has otherwise than PostgreSQL, put in by the types of their sides: jsonb,
//! intervals, dates, overlapping arrays, and literals compared with a type that has more than one text for a value.
//!
//! The operators of JSON (`->`, `->>`, `#>`, `#>>`, `?`, `?|`, `?&`, `@>`, `<@`, `@?`, `@@`, `#-`) become calls of functions here; `jsonb`
//! (`jsonb.rs`) evaluates them.
//!
//! Equality and order of jsonb and interval are not those of what holds them, so both sides of a comparison become the
//! keys that compare as they should (`jsonb_sort_key`, `interval_sort_key`). Both remain plain comparisons, which joins
//! and views know what to do with.

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result};
use datafusion::functions_nested::expr_fn::{array_has_all, array_has_any};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use millrace_postgres::types::{ANNOTATION, enumeration, is_text, sql_name};

use crate::datetime::{self, Function};
use crate::quoted::{beside_time, narrowed};
use crate::sql::type_check;
use crate::{cast as pg_cast, jsonb};

/// Puts them in.
#[derive(Debug, Default)]
pub struct PgOperators;

/// What a side of an operator is, as far as the choice of an operator goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A text literal: it takes the type of the other side.
    Unknown,
    Jsonb,
    Json,
    Text,
    Uuid,
    Bytes,
    Integer,
    Number,
    Date,
    Time,
    Timestamp,
    Interval,
    List,
    Other,
}

fn kind(expr: &Expr, field: &Field) -> Kind {
    if let Some(annotation) = field.metadata().get(ANNOTATION) {
        match annotation.as_str() {
            "jsonb" => return Kind::Jsonb,
            "json" => return Kind::Json,
            "uuid" => return Kind::Uuid,
            _ if enumeration::is_enum(field) => return Kind::Other,
            _ => {}
        }
    }
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => match expr {
            Expr::Literal(_, _) => Kind::Unknown,
            _ => Kind::Text,
        },
        DataType::Binary => Kind::Bytes,
        integer if integer.is_integer() => Kind::Integer,
        number if number.is_numeric() => Kind::Number,
        DataType::Date32 => Kind::Date,
        DataType::Time64(_) => Kind::Time,
        DataType::Timestamp(..) => Kind::Timestamp,
        DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => Kind::List,
        _ => Kind::Other,
    }
}

/// The comparison that an operator is.
fn comparison(operator: &BinaryOperator) -> Option<Operator> {
    Some(match operator {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return None,
    })
}

fn read_as(expr: Expr, type_name: &str) -> Expr {
    pg_cast::udf().call(vec![expr, lit(type_name)])
}

impl ExprPlanner for PgOperators {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(expr));
        }
        // What has no type yet is a parameter: DataFusion infers it.
        let (Ok((_, mut left)), Ok((_, mut right))) =
            (expr.left.to_field(schema), expr.right.to_field(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        if kind(&expr.left, &left) == Kind::Unknown
            && let Some(name) = beside_time(&expr.op, &right, true)?
        {
            expr.left = read_as(expr.left, &name);
            (_, left) = expr.left.to_field(schema)?;
        } else if kind(&expr.right, &right) == Kind::Unknown
            && let Some(name) = beside_time(&expr.op, &left, false)?
        {
            expr.right = read_as(expr.right, &name);
            (_, right) = expr.right.to_field(schema)?;
        }
        if let Some(operator) = comparison(&expr.op) {
            type_check::sides(&expr.left, &operator.to_string(), &expr.right, schema)?;
        }
        let kinds = (kind(&expr.left, &left), kind(&expr.right, &right));
        if expr.op == BinaryOperator::StringConcat {
            rows_as_texts(&mut expr, (&left, &right));
        }
        if expr.op == BinaryOperator::StringConcat
            && let Some(list) = beside_list(&mut expr, kinds, (&left, &right))
        {
            return Ok(PlannerResult::Planned(list));
        }
        Ok(match planned(&expr, kinds, (&left, &right)) {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }
}

fn planned(expr: &RawBinaryExpr, kinds: (Kind, Kind), fields: (&FieldRef, &FieldRef)) -> Option<Expr> {
    if let Some(operator) = comparison(&expr.op) {
        return compared(expr, operator, kinds, fields);
    }
    json(expr, kinds)
        .or_else(|| times(expr, kinds))
        .or_else(|| match expr.op {
            _ if kinds.0 == Kind::List || kinds.1 == Kind::List => sets(expr, kinds, fields),
            _ => None,
        })
}

/// `||` of a row and a text: the row is written as a text.
fn rows_as_texts(expr: &mut RawBinaryExpr, (left, right): (&Field, &Field)) {
    let is_row = |field: &Field| matches!(field.data_type(), DataType::Struct(_));
    let side = match (is_row(left), is_row(right)) {
        (true, false) if is_text(right.data_type()) => &mut expr.left,
        (false, true) if is_text(left.data_type()) => &mut expr.right,
        _ => return,
    };
    let row = std::mem::replace(side, lit(""));
    *side = pg_cast::udf().call(vec![row, lit("text")]);
}

/// `||` of an array and a literal: NULL adds nothing, and a quoted literal is an array, too. What is planned already is given back.
fn beside_list(expr: &mut RawBinaryExpr, kinds: (Kind, Kind), fields: (&Field, &Field)) -> Option<Expr> {
    let (list, literal, field, kind) = match kinds {
        (Kind::List, other) if other != Kind::List => (&expr.left, &mut expr.right, fields.0, other),
        (other, Kind::List) if other != Kind::List => (&expr.right, &mut expr.left, fields.1, other),
        _ => return None,
    };
    if matches!(literal, Expr::Literal(value, None) if value.data_type().is_null()) {
        return Some(list.clone());
    }
    if kind == Kind::Unknown {
        *literal = read_as(literal.clone(), &sql_name(field));
    } else if matches!(field.data_type(), DataType::List(item) if item.data_type() == &DataType::Int32) {
        *literal = narrowed(std::mem::take(literal));
    }
    None
}

/// What compares the elements of two arrays; a quoted literal is one of the other side's type.
fn sets(expr: &RawBinaryExpr, kinds: (Kind, Kind), fields: (&FieldRef, &FieldRef)) -> Option<Expr> {
    let side = |side: &Expr, kind: Kind, other: &Field| match kind {
        Kind::Unknown => read_as(side.clone(), &sql_name(other)),
        _ => side.clone(),
    };
    let left = side(&expr.left, kinds.0, fields.1);
    let right = side(&expr.right, kinds.1, fields.0);
    match expr.op {
        BinaryOperator::PGOverlap => Some(array_has_any(left, right)),
        BinaryOperator::AtArrow => Some(array_has_all(left, right)),
        BinaryOperator::ArrowAt => Some(array_has_all(right, left)),
        _ => None,
    }
}

/// Both sides of a comparison as what compares as PostgreSQL does; `None`: they do as they are.
fn compared(
    expr: &RawBinaryExpr,
    operator: Operator,
    kinds: (Kind, Kind),
    fields: (&FieldRef, &FieldRef),
) -> Option<Expr> {
    // A literal is read by the input function of the type that it is compared with.
    let reads = |kind| {
        matches!(
            kind,
            Kind::Jsonb
                | Kind::Uuid
                | Kind::Bytes
                | Kind::Date
                | Kind::Time
                | Kind::Timestamp
                | Kind::Interval
                | Kind::List
        )
    };
    let (left, right, kind) = match kinds {
        (left, Kind::Unknown) if reads(left) => {
            let read = read_as(expr.right.clone(), &sql_name(fields.0));
            (expr.left.clone(), read, left)
        }
        (Kind::Unknown, right) if reads(right) => {
            let read = read_as(expr.left.clone(), &sql_name(fields.1));
            (read, expr.right.clone(), right)
        }
        (left, right) if left == right && matches!(left, Kind::Jsonb | Kind::Interval) => {
            (expr.left.clone(), expr.right.clone(), left)
        }
        _ => return None,
    };
    let key = match kind {
        Kind::Jsonb => jsonb::udf(jsonb::SORT_KEY),
        Kind::Interval => datetime::udf(Function::SortKey),
        _ => return Some(binary_expr(left, operator, right)),
    };
    Some(binary_expr(key.call(vec![left]), operator, key.call(vec![right])))
}

fn json(expr: &RawBinaryExpr, (left, right): (Kind, Kind)) -> Option<Expr> {
    let is_json = |kind| matches!(kind, Kind::Jsonb | Kind::Json);
    // A bare text is taken as JSON by the operators that nothing else has.
    let may_be_json = |kind| is_json(kind) || matches!(kind, Kind::Unknown | Kind::Text);
    let call = |name: &str, left: &Expr, right: Expr| Some(jsonb::udf(name).call(vec![left.clone(), right]));
    let plain = || expr.right.clone();
    let document = |side: &Expr, kind: Kind| match kind {
        Kind::Unknown => read_as(side.clone(), "jsonb"),
        _ => side.clone(),
    };
    let texts = || match right {
        Kind::Unknown | Kind::Text => read_as(expr.right.clone(), "text[]"),
        _ => expr.right.clone(),
    };
    match expr.op {
        BinaryOperator::Arrow if may_be_json(left) => call("jsonb_get", &expr.left, plain()),
        BinaryOperator::LongArrow if may_be_json(left) => call("jsonb_get_text", &expr.left, plain()),
        BinaryOperator::HashArrow if may_be_json(left) => call("jsonb_path", &expr.left, texts()),
        BinaryOperator::HashLongArrow if may_be_json(left) => call("jsonb_path_text", &expr.left, texts()),
        BinaryOperator::Question if may_be_json(left) => call("jsonb_exists", &expr.left, plain()),
        BinaryOperator::QuestionPipe if may_be_json(left) => call("jsonb_exists_any", &expr.left, texts()),
        BinaryOperator::QuestionAnd if may_be_json(left) => call("jsonb_exists_all", &expr.left, texts()),
        BinaryOperator::AtQuestion if may_be_json(left) => call("jsonb_path_exists_opr", &expr.left, plain()),
        BinaryOperator::AtAt if may_be_json(left) => call("jsonb_path_match_opr", &expr.left, plain()),
        BinaryOperator::HashMinus if may_be_json(left) => call("jsonb_delete_path", &expr.left, texts()),
        BinaryOperator::AtArrow if left == Kind::Jsonb || right == Kind::Jsonb => call(
            "jsonb_contains",
            &document(&expr.left, left),
            document(&expr.right, right),
        ),
        BinaryOperator::ArrowAt if left == Kind::Jsonb || right == Kind::Jsonb => call(
            "jsonb_contains",
            &document(&expr.right, right),
            document(&expr.left, left),
        ),
        BinaryOperator::StringConcat
            if matches!(
                (left, right),
                (Kind::Jsonb, Kind::Jsonb | Kind::Unknown) | (Kind::Unknown, Kind::Jsonb)
            ) =>
        {
            call(
                "jsonb_concat",
                &document(&expr.left, left),
                document(&expr.right, right),
            )
        }
        BinaryOperator::Minus if left == Kind::Jsonb => call("jsonb_delete", &expr.left, plain()),
        _ => None,
    }
}

fn times(expr: &RawBinaryExpr, kinds: (Kind, Kind)) -> Option<Expr> {
    let (left, right) = (expr.left.clone(), expr.right.clone());
    let timestamp = |date: Expr| cast(date, DataType::Timestamp(TimeUnit::Microsecond, None));
    let interval = |length: Expr| cast(length, DataType::Interval(IntervalUnit::MonthDayNano));
    let shifted = |function, date, days| Some(datetime::udf(function).call(vec![date, days]));
    let is_number = |kind| matches!(kind, Kind::Integer | Kind::Number);
    let scale = |function, interval, number| Some(datetime::udf(function).call(vec![interval, number]));
    match (&expr.op, kinds) {
        (BinaryOperator::Multiply, (Kind::Interval, number)) if is_number(number) => {
            scale(Function::Multiply, left, right)
        }
        (BinaryOperator::Multiply, (number, Kind::Interval)) if is_number(number) => {
            scale(Function::Multiply, right, left)
        }
        (BinaryOperator::Divide, (Kind::Interval, number)) if is_number(number) => {
            scale(Function::Divide, left, right)
        }
        // A time becomes an interval where there is no operator for it.
        (BinaryOperator::Multiply, (Kind::Time, number)) if is_number(number) => {
            scale(Function::Multiply, read_as(left, "interval"), right)
        }
        (BinaryOperator::Multiply, (number, Kind::Time)) if is_number(number) => {
            scale(Function::Multiply, read_as(right, "interval"), left)
        }
        (BinaryOperator::Divide, (Kind::Time, number)) if is_number(number) => {
            scale(Function::Divide, read_as(left, "interval"), right)
        }
        (BinaryOperator::Plus, (Kind::Date, Kind::Interval)) => {
            Some(binary_expr(timestamp(left), Operator::Plus, interval(right)))
        }
        (BinaryOperator::Plus, (Kind::Interval, Kind::Date)) => {
            Some(binary_expr(timestamp(right), Operator::Plus, interval(left)))
        }
        (BinaryOperator::Minus, (Kind::Date, Kind::Interval)) => {
            Some(binary_expr(timestamp(left), Operator::Minus, interval(right)))
        }
        (BinaryOperator::Minus, (Kind::Date, Kind::Date)) => {
            Some(datetime::udf(Function::Days).call(vec![left, right]))
        }
        (
            BinaryOperator::Minus,
            (Kind::Timestamp, Kind::Timestamp | Kind::Date) | (Kind::Date, Kind::Timestamp),
        ) => Some(datetime::udf(Function::Difference).call(vec![left, right])),
        (BinaryOperator::Plus, (Kind::Date, Kind::Integer)) => shifted(Function::DaysLater, left, right),
        (BinaryOperator::Plus, (Kind::Integer, Kind::Date)) => shifted(Function::DaysLater, right, left),
        (BinaryOperator::Minus, (Kind::Date, Kind::Integer)) => shifted(Function::DaysEarlier, left, right),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::col;
    use millrace_postgres::types::SqlType;

    fn schema() -> DFSchema {
        let fields = vec![
            SqlType::annotated(DataType::Utf8, "jsonb").field("j", true),
            Field::new("d", DataType::Date32, true),
            Field::new("i", DataType::Interval(IntervalUnit::MonthDayNano), true),
            Field::new("n", DataType::Int32, true),
            Field::new("t", DataType::Utf8, true),
        ];
        DFSchema::try_from(arrow::datatypes::Schema::new(fields)).unwrap()
    }

    fn plan(left: Expr, op: BinaryOperator, right: Expr) -> Option<String> {
        let raw = RawBinaryExpr { op, left, right };
        match PgOperators.plan_binary_op(raw, &schema()).unwrap() {
            PlannerResult::Planned(expr) => Some(expr.to_string()),
            PlannerResult::Original(_) => None,
        }
    }

    #[test]
    fn sides_choose_the_operator() {
        assert_eq!(
            plan(col("j"), BinaryOperator::Eq, lit("{}")).unwrap(),
            "jsonb_sort_key(j) = jsonb_sort_key(pg_cast(Utf8(\"{}\"), Utf8(\"jsonb\")))"
        );
        assert_eq!(
            plan(col("j"), BinaryOperator::Minus, lit("a")).unwrap(),
            "jsonb_delete(j, Utf8(\"a\"))"
        );
        assert_eq!(
            plan(col("i"), BinaryOperator::Multiply, col("n")).unwrap(),
            "interval_multiply(i, n)"
        );
        assert_eq!(plan(col("t"), BinaryOperator::Eq, lit("x")), None);
        assert_eq!(plan(col("n"), BinaryOperator::Plus, col("n")), None);
        assert_eq!(plan(col("t"), BinaryOperator::StringConcat, lit("x")), None);
    }
}
