//! PostgreSQL's spellings, rewritten in the AST before it is bound.
//!
//! * `CAST(x AS t)`, `x::t` and `t 'x'` become `pg_cast(x, 't')` (see [`crate::cast`]).
//! * Intervals are read by their input function; `AT TIME ZONE` and `OVERLAPS` become calls.
//! * `pg_catalog.f(..)` loses its schema; some functions have another name in DataFusion.
//! * `x COLLATE "C"` is `x`: texts are ordered by their bytes.
//! * Columns of a SELECT that were not named get a name (see [`super::column_names`]).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, ObjectName, ObjectNamePart, Select, SetExpr, Statement,
    UnaryOperator, Value, VisitorMut,
};
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;

use crate::arrays::members;
use crate::sql::column_names::name_columns;
use crate::sql::window_bounds::restore_bounds;
use crate::sql::{
    call_clauses, calls, literals, quantified, quoted_arguments, row_values, rows_from, search, set_places,
    set_returning, variadic, with_ties,
};
use crate::syntax::{call, parsed_query, text};
use crate::{arrays, cast, date_part, own, regex};

/// Rewrites a query.
///
/// # Errors
/// A cast names a type that does not exist.
pub fn query(query: &mut ast::Query) -> SqlResult<()> {
    run(query)
}

/// Rewrites a statement.
///
/// # Errors
/// As [`query`].
pub fn statement(statement: &mut Statement) -> SqlResult<()> {
    run(statement)
}

/// Rewrites an expression.
///
/// # Errors
/// As [`query`].
pub fn expression(expression: &mut Expr) -> SqlResult<()> {
    run(expression)
}

fn run(node: &mut impl Walk) -> SqlResult<()> {
    own::check(node)?;
    set_places::check(node)?;
    match node.walk_mut(&mut Rewriter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Self::Break> {
        if let SetExpr::Table(table) = query.body.as_ref() {
            match whole_table(table) {
                Ok(body) => query.body = body,
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        if let Some(with) = &mut query.with
            && let Err(error) = search::expand(with)
        {
            return ControlFlow::Break(Box::new(error));
        }
        match with_ties::fetch_as_limit(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        members::expand(&mut select.projection);
        name_columns(select);
        match row_values::in_conditions(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for window in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(window) = &mut window.1 {
                restore_bounds(window);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<Self::Break> {
        if let ast::TableFactor::Table {
            name, args: Some(_), ..
        }
        | ast::TableFactor::Function { name, .. } = factor
        {
            without_schema(name);
        }
        if let ast::TableFactor::UNNEST { array_exprs, .. } = factor {
            array_exprs
                .iter_mut()
                .for_each(|array| *array = arrays::flatten(array));
        }
        literals::in_series(factor);
        let mut replaced = Ok(None);
        for rule in [
            rows_from::unnested,
            set_returning::rows_in_from,
            set_returning::word_in_from,
        ] {
            if let Ok(None) = replaced {
                replaced = rule(factor);
            }
        }
        match replaced {
            Ok(Some(derived)) => *factor = derived,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Self::Break> {
        literals::in_query(query);
        match quoted_arguments::in_limits(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Err(error) = literals::check_number(expr) {
            return ControlFlow::Break(Box::new(error));
        }
        literals::without_exponent(expr);
        if let Expr::BinaryOp { op, .. } = expr {
            without_operator_schema(op);
        }
        if let Err(error) = arrays::empty::typed(expr) {
            return ControlFlow::Break(Box::new(error));
        }
        if let Expr::Function(function) = expr {
            calls::rows_by_name(function);
        }
        for rule in [
            variadic::spread,
            row_values::compared,
            quantified::compared_with_each,
            quantified::array_of_query,
        ] {
            match rule(expr) {
                Ok(Some(new)) => *expr = new,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        literals::in_expression(expr);
        match rewritten(expr) {
            Ok(Some(new)) => *expr = new,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// `TABLE t` is `SELECT * FROM t`.
fn whole_table(table: &ast::Table) -> SqlResult<Box<SetExpr>> {
    let name = table.table_name.as_deref().unwrap_or_default();
    let schema = table
        .schema_name
        .as_ref()
        .map(|schema| format!("{schema}."))
        .unwrap_or_default();
    Ok(parsed_query(&format!("SELECT * FROM {schema}{name}"))?.body)
}

/// What an expression becomes; `None`: it stays.
fn rewritten(expr: &mut Expr) -> SqlResult<Option<Expr>> {
    let called = regex::spelling::rewritten(expr)
        .or_else(|| arrays::rewritten(expr))
        .or_else(|| rows_from::array_of_rows(expr));
    if called.is_some() {
        return Ok(called);
    }
    Ok(match expr {
        Expr::Cast {
            kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
            expr: inner,
            data_type,
            ..
        } => Some(cast_to(inner.as_ref().clone(), data_type)?),
        // Its escapes were read already.
        Expr::Value(value) => match &value.value {
            Value::UnicodeStringLiteral(read) => Some(text(read)),
            _ => None,
        },
        Expr::TypedString(typed) => Some(cast_to(Expr::Value(typed.value.clone()), &typed.data_type)?),
        Expr::BinaryOp { left, op, right } => binary(left, op, right),
        Expr::Function(function) => {
            if let Some(ast::WindowType::WindowSpec(window)) = &mut function.over {
                restore_bounds(window);
            }
            call_clauses::check(function)?;
            calls::window_functions_have_windows(function)?;
            calls::rewritten(function)?
        }
        Expr::Position { expr, r#in } => {
            Some(call("strpos", vec![r#in.as_ref().clone(), expr.as_ref().clone()]))
        }
        Expr::Overlay {
            expr,
            overlay_what,
            overlay_from,
            overlay_for,
        } => {
            let behind = overlay_for.iter().map(|length| length.as_ref());
            let all = [expr.as_ref(), overlay_what.as_ref(), overlay_from.as_ref()]
                .into_iter()
                .chain(behind)
                .cloned();
            Some(call("overlay", all.collect()))
        }
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: inner,
        } if literals::quoted(inner) => Some(Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(boolean(inner)),
        }),
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: inner,
        } => Some(call("bit_not", vec![integer(inner)])),
        Expr::UnaryOp {
            op: UnaryOperator::PGSquareRoot,
            expr: inner,
        } => Some(call("sqrt", vec![double(inner)])),
        Expr::UnaryOp {
            op: UnaryOperator::PGCubeRoot,
            expr: inner,
        } => Some(call("cbrt", vec![double(inner)])),
        Expr::UnaryOp {
            op: UnaryOperator::PGAbs,
            expr: inner,
        } => Some(call("abs", vec![integer(inner)])),
        Expr::AtTimeZone { timestamp, time_zone } => Some(call(
            "timezone",
            vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()],
        )),
        Expr::Interval(interval) => interval_literal(interval),
        Expr::IsNormalized { expr, form, negated } => {
            let form = form.as_ref().map(|form| text(&form.to_string()));
            let is = call(
                "is_normalized",
                std::iter::once(expr.as_ref().clone()).chain(form).collect(),
            );
            Some(match negated {
                true => Expr::UnaryOp {
                    op: ast::UnaryOperator::Not,
                    expr: Box::new(is),
                },
                false => is,
            })
        }
        Expr::Extract {
            field, expr: inner, ..
        } => Some(call(
            date_part::EXTRACT,
            vec![text(&field.to_string()), inner.as_ref().clone()],
        )),
        Expr::Collate {
            expr: inner,
            collation,
        } => {
            bytewise(collation)?;
            Some(inner.as_ref().clone())
        }
        _ => None,
    })
}

/// Texts are ordered by their bytes, as with the collations of these names.
fn bytewise(collation: &ObjectName) -> SqlResult<()> {
    if millrace_parser::is_bytewise(collation) {
        return Ok(());
    }
    let hint = "Text is ordered by its bytes, as with COLLATE \"C\".";
    // Those of a language are there in PostgreSQL: "en_US", "und-x-icu", "unicode".
    let name = collation.0.last().and_then(|part| part.as_ident());
    let is_of_language =
        name.is_none_or(|name| name.value.contains(['_', '-', '.']) || name.value == "unicode");
    Err(match is_of_language {
        true => SqlError::unsupported(format!("collation {collation} is not supported")),
        false => SqlError::new(
            SqlState::UndefinedObject,
            format!("collation {collation} does not exist"),
        ),
    }
    .with_hint(hint))
}

fn double(operand: &Expr) -> Expr {
    call(cast::NAME, vec![operand.clone(), text("double precision")])
}

/// An operand that is to be a boolean: quoted ones are read as such.
fn boolean(operand: &Expr) -> Expr {
    match literals::quoted(operand) {
        true => call(cast::NAME, vec![operand.clone(), text("boolean")]),
        false => operand.clone(),
    }
}

/// An operand; an integer literal is told its type.
fn integer(operand: &Expr) -> Expr {
    match literals::number_text(operand) {
        Some(number) if number.parse::<i32>().is_ok() => {
            call(cast::NAME, vec![text(&number), text("integer")])
        }
        _ => operand.clone(),
    }
}

fn cast_to(inner: Expr, data_type: &DataType) -> SqlResult<Expr> {
    // The alias types of pg_catalog are numbers there; the name of an object is looked up by other means.
    let name = data_type.to_string().to_lowercase();
    let bare = name.trim_start_matches("pg_catalog.").trim_matches('"');
    if matches!(data_type, DataType::Regclass)
        || (bare.starts_with("reg") && matches!(data_type, DataType::Custom(..)))
        || matches!(bare, "oid" | "xid")
    {
        return Ok(plain_cast(inner, DataType::Int(None)));
    }
    if matches!(bare, "text" | "name") || bare == "char" && name != "char" {
        return Ok(call(cast::NAME, vec![inner, text("text")]));
    }
    let sql_type = types::from_sql(data_type)?;
    let name = types::sql_name(&sql_type.field("", true));
    let (inner, name) = literals::cast_of_literal(inner, &sql_type, &name);
    Ok(call(cast::NAME, vec![inner, text(&name)]))
}

fn plain_cast(inner: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(inner),
        data_type,
        array: false,
        format: None,
    }
}

/// `(a, b) OVERLAPS (c, d)` and `a ^@ b`; the other operators are chosen by the types of their sides, see [`crate::operators`].
fn binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    match (op, left, right) {
        (BinaryOperator::And | BinaryOperator::Or, ..)
            if literals::quoted(left) || literals::quoted(right) =>
        {
            Some(Expr::BinaryOp {
                left: Box::new(boolean(left)),
                op: op.clone(),
                right: Box::new(boolean(right)),
            })
        }
        (BinaryOperator::PGStartsWith, ..) => Some(call("starts_with", vec![left.clone(), right.clone()])),
        (BinaryOperator::Overlaps, Expr::Tuple(left), Expr::Tuple(right))
            if left.len() == 2 && right.len() == 2 =>
        {
            let arguments = left.iter().chain(right).cloned().collect();
            Some(call("overlaps", arguments))
        }
        _ => None,
    }
}

/// `pg_catalog.f` is `f`.
pub(super) fn without_schema(function: &mut ObjectName) {
    if let [
        ObjectNamePart::Identifier(schema),
        ObjectNamePart::Identifier(name),
    ] = function.0.as_slice()
        && matches!(
            millrace_parser::fold(schema).as_str(),
            "pg_catalog" | "information_schema"
        )
    {
        *function = ObjectName(vec![ObjectNamePart::Identifier(name.clone())]);
    }
}

/// `OPERATOR(pg_catalog.~)` is `~`.
fn without_operator_schema(operator: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(parts) = &*operator else {
        return;
    };
    let name = match parts.as_slice() {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return,
    };
    let known = [
        ("=", BinaryOperator::Eq),
        ("<>", BinaryOperator::NotEq),
        ("<", BinaryOperator::Lt),
        ("<=", BinaryOperator::LtEq),
        (">", BinaryOperator::Gt),
        (">=", BinaryOperator::GtEq),
        ("+", BinaryOperator::Plus),
        ("-", BinaryOperator::Minus),
        ("*", BinaryOperator::Multiply),
        ("/", BinaryOperator::Divide),
        ("%", BinaryOperator::Modulo),
        ("||", BinaryOperator::StringConcat),
        ("~", BinaryOperator::PGRegexMatch),
        ("~*", BinaryOperator::PGRegexIMatch),
        ("!~", BinaryOperator::PGRegexNotMatch),
        ("!~*", BinaryOperator::PGRegexNotIMatch),
        ("~~", BinaryOperator::PGLikeMatch),
        ("~~*", BinaryOperator::PGILikeMatch),
        ("!~~", BinaryOperator::PGNotLikeMatch),
        ("!~~*", BinaryOperator::PGNotILikeMatch),
    ];
    if let Some((_, plain)) = known.iter().find(|(known, _)| known == name) {
        *operator = plain.clone();
    }
}

/// `INTERVAL '1 day'`, `INTERVAL '1' DAY`: read by the input function of interval.
fn interval_literal(interval: &ast::Interval) -> Option<Expr> {
    let Expr::Value(value) = interval.value.as_ref() else {
        return None;
    };
    let (Value::SingleQuotedString(amount) | Value::EscapedStringLiteral(amount)) = &value.value else {
        return None;
    };
    let (first, last) = (&interval.leading_field, &interval.last_field);
    let is_whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let (amount, fields) = match (first, last) {
        (Some(unit), None) if is_whole(amount.trim()) => (format!("{amount} {unit}"), String::new()),
        (Some(unit), None) => (amount.clone(), format!(" {unit}")),
        (Some(unit), Some(last)) => (amount.clone(), format!(" {unit} to {last}")),
        _ => (amount.clone(), String::new()),
    };
    let digits = match first {
        Some(ast::DateTimeField::Second) => interval.leading_precision,
        _ => interval.fractional_seconds_precision,
    };
    let fields = fields.to_lowercase();
    let target = match digits {
        Some(digits) => format!("interval{fields}({digits})"),
        None => format!("interval{fields}"),
    };
    Some(call(cast::NAME, vec![text(&amount), text(&target)]))
}

#[cfg(test)]
mod tests {

    fn rewritten_query(sql: &str) -> String {
        let parsed = millrace_parser::parse(sql).unwrap().remove(0);
        let millrace_parser::ast::Statement::Sql(mut statement) = parsed.statement else {
            panic!("{sql}")
        };
        super::statement(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn casts_become_calls() {
        assert_eq!(
            rewritten_query("SELECT '1'::int AS a, x::varchar(5) AS b, DATE '2013-01-01' AS c"),
            "SELECT pg_cast('1', 'integer') AS a, pg_cast(x, 'character varying(5)') AS b, \
             pg_cast('2013-01-01', 'date') AS c"
        );
    }

    #[test]
    fn times_become_calls() {
        assert_eq!(
            rewritten_query("SELECT INTERVAL '1' DAY AS a, t AT TIME ZONE 'UTC' AS b, age(t) AS c"),
            "SELECT pg_cast('1 DAY', 'interval') AS a, timezone('UTC', t) AS b, \
             age(pg_cast(current_date(), 'timestamp without time zone'), t) AS c"
        );
        let frame =
            "SELECT sum(x) OVER (ORDER BY t RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) AS a";
        assert_eq!(rewritten_query(frame), frame);
    }
}
