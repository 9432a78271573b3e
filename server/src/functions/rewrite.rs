//! PostgreSQL's spellings, rewritten in the AST before it is bound.
//!
//! * `CAST(x AS t)`, `x::t` and `t 'x'` become `pg_cast(x, 't')` (see [`super::cast`]).
//! * `->`, `->>`, `#>`, `#>>`, `?` over jsonb become calls of JSON functions.
//! * `pg_catalog.f(..)` loses its schema; some functions have another name in DataFusion.
//! * Columns of a SELECT that were not named get the names that PostgreSQL gives them. Where two would be equal, the
//!   later one gets a number, because DataFusion wants them distinct; [`output_names`] tells what they are to be called
//!   in the answer.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SetExpr, Statement, Value,
    VisitMut, VisitorMut,
};

use crate::error::{SqlError, SqlResult};
use crate::functions::cast;
use crate::types;

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

fn run(node: &mut impl VisitMut) -> SqlResult<()> {
    match node.visit(&mut Rewriter) {
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
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        name_columns(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
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
    let mut parsed = millrace_parser::parse(&format!("SELECT * FROM {schema}{name}"))?;
    match parsed.pop().map(|parsed| parsed.statement) {
        Some(millrace_parser::ast::Statement::Sql(sql)) => match *sql {
            Statement::Query(query) => Ok(query.body),
            other => Err(SqlError::internal(format!("TABLE {name} became {other}"))),
        },
        _ => Err(SqlError::internal(format!("TABLE {name} became nothing"))),
    }
}

/// The names that the columns of a query have in its answer; empty where a wildcard leaves them to the plan.
pub fn output_names(query: &ast::Query) -> Vec<String> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::Select(select) => {
                let mut names = vec![];
                for item in &select.projection {
                    match item {
                        SelectItem::UnnamedExpr(expr) => names.push(column_name(expr)),
                        SelectItem::ExprWithAlias { alias, .. } => names.push(millrace_parser::fold(alias)),
                        _ => return vec![],
                    }
                }
                return names;
            }
            _ => return vec![],
        }
    }
}

/// Gives the columns of a SELECT that were not named the names that PostgreSQL gives them. Twice is as once.
pub(crate) fn name_columns(select: &mut Select) {
    let mut taken: BTreeSet<String> = select
        .projection
        .iter()
        .filter_map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(millrace_parser::fold(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(millrace_parser::fold(name)),
            _ => None,
        })
        .collect();
    let mut seen = BTreeSet::new();
    for item in &mut select.projection {
        match item {
            // A plain column keeps its qualifier unless the name comes twice.
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let name = column_name(expr);
                if !seen.insert(name.clone()) {
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: distinct(&name, &mut taken),
                    };
                }
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = column_name(expr);
                let alias = if !seen.contains(&name) && taken.insert(name.clone()) {
                    seen.insert(name.clone());
                    Ident::with_quote('"', name)
                } else {
                    distinct(&name, &mut taken)
                };
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias,
                };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = millrace_parser::fold(alias);
                if !seen.insert(name.clone()) {
                    *alias = distinct(&name, &mut taken);
                }
            }
            _ => {}
        }
    }
}

fn distinct(name: &str, taken: &mut BTreeSet<String>) -> Ident {
    let mut number = 1;
    loop {
        let candidate = format!("{name}_{number}");
        if taken.insert(candidate.clone()) {
            return Ident::with_quote('"', candidate);
        }
        number += 1;
    }
}

/// The name that PostgreSQL gives to a column that was not named.
fn column_name(expr: &Expr) -> String {
    const NONE: &str = "?column?";
    match expr {
        Expr::Identifier(name) => millrace_parser::fold(name),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(|| NONE.into(), millrace_parser::fold),
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => millrace_parser::fold(name),
            _ => NONE.into(),
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => column_name(inner),
        Expr::Cast {
            expr: inner,
            data_type,
            ..
        } => match column_name(inner) {
            name if name == NONE => type_column_name(data_type),
            name => name,
        },
        Expr::TypedString(typed) => type_column_name(&typed.data_type),
        Expr::Interval(_) => "interval".into(),
        Expr::Case { else_result, .. } => match else_result.as_deref() {
            Some(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_))) => {
                column_name(expr)
            }
            _ => "case".into(),
        },
        Expr::Extract { .. } => "extract".into(),
        Expr::Substring { .. } => "substring".into(),
        Expr::Trim { .. } => "btrim".into(),
        Expr::Position { .. } => "position".into(),
        Expr::Overlay { .. } => "overlay".into(),
        Expr::Ceil { .. } => "ceil".into(),
        Expr::Floor { .. } => "floor".into(),
        Expr::AtTimeZone { .. } => "timezone".into(),
        Expr::Exists { .. } => "exists".into(),
        Expr::Array(_) => "array".into(),
        Expr::Tuple(_) => "row".into(),
        Expr::Subquery(query) => output_names(query)
            .into_iter()
            .next()
            .unwrap_or_else(|| NONE.into()),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".into(),
        _ => NONE.into(),
    }
}

fn type_column_name(data_type: &DataType) -> String {
    match types::from_sql(data_type) {
        Ok(sql_type) => types::pg_type(&sql_type.field("", true)).name().to_string(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

/// What an expression becomes; `None`: it stays.
fn rewritten(expr: &mut Expr) -> SqlResult<Option<Expr>> {
    Ok(match expr {
        Expr::Cast {
            kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
            expr: inner,
            data_type,
            ..
        } => Some(cast_to(inner.as_ref().clone(), data_type)?),
        Expr::TypedString(typed) => Some(cast_to(Expr::Value(typed.value.clone()), &typed.data_type)?),
        Expr::BinaryOp { left, op, right } => binary(left, op, right),
        Expr::Function(function) => {
            rename(function);
            None
        }
        Expr::AtTimeZone { .. } => None,
        _ => None,
    })
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
    let name = types::type_name(&sql_type.field("", true));
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

fn binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let arguments = |left: &Expr, right: &Expr| vec![left.clone(), right.clone()];
    match op {
        BinaryOperator::Arrow => Some(call("json_get_json", arguments(left, right))),
        BinaryOperator::LongArrow => Some(call("json_as_text", arguments(left, right))),
        BinaryOperator::Question => Some(call("json_contains", arguments(left, right))),
        BinaryOperator::HashArrow => Some(path_call("json_get_json", left, right)),
        BinaryOperator::HashLongArrow => Some(path_call("json_as_text", left, right)),
        // `~~` and its like reach the AST as LIKE; the qualified operators of psql are handled with pg_catalog.
        _ => None,
    }
}

/// A call with the steps of the path `'{a,0,b}'` as arguments.
fn path_call(name: &str, left: &Expr, right: &Expr) -> Expr {
    let mut arguments = vec![left.clone()];
    match right {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(path) if path.starts_with('{') && path.ends_with('}') => {
                let steps = path[1..path.len() - 1]
                    .split(',')
                    .map(|step| step.trim().trim_matches('"'));
                arguments.extend(steps.filter(|step| !step.is_empty()).map(
                    |step| match step.parse::<u32>() {
                        Ok(index) => Expr::value(Value::Number(index.to_string(), false)),
                        Err(_) => text(step),
                    },
                ));
            }
            _ => arguments.push(right.clone()),
        },
        Expr::Array(array) => arguments.extend(array.elem.iter().cloned()),
        other => arguments.push(other.clone()),
    }
    call(name, arguments)
}

/// PostgreSQL's names of functions that DataFusion has under another name.
const RENAMED: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("first", "first_value"),
    ("last", "last_value"),
    ("gen_random_uuid", "uuid"),
    ("jsonb_array_length", "json_length"),
    ("json_array_length", "json_length"),
    ("jsonb_object_keys", "json_object_keys"),
    ("json_typeof", "jsonb_typeof"),
    ("clock_timestamp", "now"),
    ("statement_timestamp", "now"),
    ("transaction_timestamp", "now"),
];

fn rename(function: &mut Function) {
    if let [
        ObjectNamePart::Identifier(schema),
        ObjectNamePart::Identifier(name),
    ] = function.name.0.as_slice()
        && matches!(
            millrace_parser::fold(schema).as_str(),
            "pg_catalog" | "information_schema"
        )
    {
        function.name = ObjectName(vec![ObjectNamePart::Identifier(name.clone())]);
    }
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() {
        let folded = millrace_parser::fold(name);
        if let Some((_, renamed)) = RENAMED.iter().find(|(from, _)| *from == folded) {
            function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(*renamed))]);
        }
    }
}

/// A call of a function.
pub fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments
        .into_iter()
        .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
        .collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// A string literal.
pub fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_string()))
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
    fn json_operators_become_calls() {
        assert_eq!(
            rewritten_query("SELECT j -> 'a' ->> 0 AS a, j #>> '{b,1}' AS b"),
            "SELECT json_as_text(json_get_json(j, 'a'), 0) AS a, json_as_text(j, 'b', 1) AS b"
        );
    }

    #[test]
    fn columns_are_named_as_postgresql_names_them() {
        assert_eq!(
            rewritten_query("SELECT count(*), a + 1, '1'::int, b::text, b FROM t"),
            "SELECT count(*) AS \"count\", a + 1 AS \"?column?\", pg_cast('1', 'integer') AS \"int4\", \
             pg_cast(b, 'text') AS \"b_1\", b FROM t"
        );
        assert_eq!(
            rewritten_query("SELECT 1, 2"),
            "SELECT 1 AS \"?column?\", 2 AS \"?column?_1\""
        );
    }
}
