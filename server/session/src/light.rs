//! Statements whose work is known to be small before they are looked at closely: they run where their connection is.
//!
//! A hop to the scheduler for statements and back is two hand-overs between threads, which a single-row INSERT would feel. What is
//! made of literals and parameters alone, and of few of them, needs no protection from itself.

use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, GroupByExpr, Insert, SelectItem, SetExpr};
use millrace_parser::Parsed;
use millrace_parser::ast::Statement;

use crate::names;
use crate::session::Session;

/// Text and values of a light statement together, in bytes.
const BYTES_MAX: usize = 8 << 10;

/// Whether a statement with these parameters is light.
pub(crate) fn is_light(session: &Session, parsed: &Parsed, params: &[ScalarValue]) -> bool {
    let bytes = parsed.text.len() + params.iter().map(ScalarValue::size).sum::<usize>();
    let is_light = || match &parsed.statement {
        Statement::SetVariable(_) | Statement::ResetVariable(_) => true,
        Statement::Sql(statement) => match statement.as_ref() {
            ast::Statement::StartTransaction { .. } | ast::Statement::Rollback { .. } => true,
            ast::Statement::Insert(insert) => is_light_insert(session, insert) && !is_shared_out(session),
            ast::Statement::Query(query) => is_constant(query) && !is_shared_out(session),
            _ => false,
        },
        _ => false,
    };
    bytes <= BYTES_MAX && is_light()
}

/// Whether the processor is shared out to the session's role: of many small statements, too.
fn is_shared_out(session: &Session) -> bool {
    let limits = session.limits();
    limits.cpu_share.is_some() || limits.query_priority_max.is_some()
}

/// Literals and parameters into a relation that computes nothing of its own.
fn is_light_insert(session: &Session, insert: &Insert) -> bool {
    let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|source| source.body.as_ref()) else {
        return false;
    };
    let is_plain = insert.on.is_none() && insert.returning.is_none();
    is_plain
        && values
            .rows
            .iter()
            .flat_map(|row| row.content.iter())
            .all(is_literal)
        && names::insert_target(session, &session.scope(), insert).is_ok_and(|object| {
            object.relation().is_some_and(|relation| {
                let mut columns = relation.columns.iter();
                // The conditions of checks and domains may take long, even on one row.
                relation.checks.is_empty()
                    && columns.all(|column| {
                        column.default.is_none() && column.generated.is_none() && column.domain.is_none()
                    })
            })
        })
}

/// Whether a query asks for constants alone: whatever else it says is to be planned, which may take long.
fn is_constant(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let has_no_groups = matches!(&select.group_by, GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty());
    let is_bare_query = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.pipe_operators.is_empty();
    let is_bare_select = select.distinct.is_none()
        && select.top.is_none()
        && select.into.is_none()
        && select.from.is_empty()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.selection.is_none()
        && select.connect_by.is_empty()
        && has_no_groups
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none();
    let mut items = select.projection.iter();
    is_bare_query
        && is_bare_select
        && items.all(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_plain_literal(expr),
            _ => false,
        })
}

/// Whether an expression is a literal, or one that is cast to a plain type: a domain's conditions, and the texts of other types, may take
/// long.
fn is_plain_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_plain_literal(expr),
        Expr::Cast { expr, data_type, .. } => is_plain_type(data_type) && is_plain_literal(expr),
        _ => false,
    }
}

fn is_plain_type(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::SmallInt(_)
            | DataType::Int(_)
            | DataType::Integer(_)
            | DataType::BigInt(_)
            | DataType::Real
            | DataType::DoublePrecision
            | DataType::Boolean
            | DataType::Text
    )
}

/// Whether an expression is a literal, or one that is cast, but not to a type that somebody made.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_literal(expr),
        Expr::Cast { expr, data_type, .. } => !matches!(data_type, DataType::Custom(..)) && is_literal(expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_light;
    use crate::tests::Fixture;

    #[tokio::test(flavor = "multi_thread")]
    async fn conditions_that_somebody_made_do_not_run_where_the_connection_is() {
        let f = Fixture::new().await;
        for made in [
            "CREATE DOMAIN d AS TEXT CHECK (length(VALUE) > 0)",
            "CREATE TABLE plain (a INT, t TEXT)",
            "CREATE TABLE checked (a INT CHECK (a > 0))",
            "CREATE TABLE of_domain (a INT, t d)",
            "CREATE TABLE with_default (a INT, b INT DEFAULT 1)",
        ] {
            f.ok(made).await;
        }
        for (sql, expected) in [
            ("INSERT INTO plain VALUES (1, 'a'), (-2, 'b'::text)", true),
            ("INSERT INTO plain VALUES (1, 'a'::d)", false),
            ("INSERT INTO plain VALUES (1, CAST('a' AS d))", false),
            ("INSERT INTO plain VALUES (1, lower('A'))", false),
            ("INSERT INTO plain SELECT 1, 'a'", false),
            ("INSERT INTO checked VALUES (1)", false),
            ("INSERT INTO of_domain VALUES (1, 'a')", false),
            ("INSERT INTO of_domain (a) VALUES (1)", false),
            ("INSERT INTO with_default VALUES (1, 2)", false),
            ("SELECT 1, 'a'::text", true),
            ("SELECT 'a'::d", false),
            ("SELECT lower('A')", false),
        ] {
            let parsed = millrace_parser::parse(sql).unwrap().remove(0);
            assert_eq!(is_light(&f.session, &parsed, &[]), expected, "{sql}");
        }
        // The first role is given a share: the scheduler sees all that it does.
        f.ok("ALTER ROLE millrace SET (cpu_share = 10)").await;
        for sql in ["INSERT INTO plain VALUES (1, 'a')", "SELECT 1"] {
            let parsed = millrace_parser::parse(sql).unwrap().remove(0);
            assert!(!is_light(&f.session, &parsed, &[]), "{sql}");
        }
    }
}
