//! What columns are called that a query does not name: as PostgreSQL calls them. Where two would be equal, the later one is
//! named as a copy of the first (see [`copies`]), because DataFusion wants them distinct; [`output_names`] tells what they
//! are to be called in the answer.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, DataType, Expr, Ident, ObjectNamePart, Select, SelectItem, SetExpr, Value,
};

use millrace_postgres::types;
use millrace_sql::copies;

use crate::arrays::members;
use crate::{domain, syntax};

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
                        SelectItem::UnnamedExpr(expr) if members::is_all(expr) => return vec![],
                        SelectItem::UnnamedExpr(expr) => names.push(column_name(expr)),
                        SelectItem::ExprWithAlias { alias, .. } => {
                            names.push(copies::original(&millrace_parser::fold(alias)).to_string())
                        }
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
pub fn name_columns(select: &mut Select) {
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
    let mut next = BTreeMap::new();
    for item in &mut select.projection {
        match item {
            // A plain column keeps its qualifier unless the name comes twice.
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let name = column_name(expr);
                if !seen.insert(name.clone()) {
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: distinct(&name, &mut taken, &mut next),
                    };
                }
            }
            SelectItem::UnnamedExpr(expr) if members::is_all(expr) => {}
            SelectItem::UnnamedExpr(expr) => {
                let name = column_name(expr);
                let alias = if !seen.contains(&name) && taken.insert(name.clone()) {
                    seen.insert(name.clone());
                    Ident::with_quote('"', name)
                } else {
                    distinct(&name, &mut taken, &mut next)
                };
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias,
                };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = millrace_parser::fold(alias);
                if !seen.insert(name.clone()) {
                    *alias = distinct(&name, &mut taken, &mut next);
                }
            }
            _ => {}
        }
    }
}

/// A name that is not taken. `next`: of each name, the number of its next copy.
fn distinct(name: &str, taken: &mut BTreeSet<String>, next: &mut BTreeMap<String, usize>) -> Ident {
    let original = copies::original(name);
    let number = next.entry(original.to_owned()).or_insert(1);
    loop {
        let candidate = copies::copy(original, *number);
        *number += 1;
        if taken.insert(candidate.clone()) {
            return Ident::with_quote('"', candidate);
        }
    }
}

/// What a column is called for which there is nothing to call it by.
const NONE: &str = "?column?";

/// The name that PostgreSQL gives to a column that was not named.
pub fn column_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => millrace_parser::fold(name),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(|| NONE.into(), millrace_parser::fold),
        Expr::Function(function) if syntax::name_of(function).as_deref() == Some(domain::NAME) => {
            let arguments = syntax::arguments(function);
            // A domain may be made of another.
            let mut value = arguments.first().copied();
            while let Some(Expr::Function(inner)) = value
                && syntax::name_of(inner).as_deref() == Some(domain::NAME)
            {
                value = syntax::arguments(inner).first().copied();
            }
            if let Some(Expr::Cast { expr, .. }) = value {
                value = Some(expr.as_ref());
            }
            match (
                value,
                arguments.get(1).and_then(|name| syntax::literal_text(name)),
            ) {
                (Some(value), _) if is_named(value) => column_name(value),
                (_, Some(domain)) => domain.rsplit('.').next().unwrap_or_default().replace('"', ""),
                _ => NONE.into(),
            }
        }
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => millrace_parser::fold(name),
            _ => NONE.into(),
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => column_name(inner),
        // A member has its own name; an element that of its array.
        Expr::CompoundFieldAccess { root, access_chain } => {
            let members = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(member) => Some(member),
                AccessExpr::Subscript(_) => None,
            });
            column_name(members.unwrap_or(root))
        }
        Expr::Cast {
            expr: inner,
            data_type,
            ..
        } => match is_named(inner) {
            true => column_name(inner),
            false => type_column_name(data_type),
        },
        Expr::TypedString(typed) => type_column_name(&typed.data_type),
        Expr::Interval(_) => "interval".into(),
        Expr::Case { else_result, .. } => match else_result.as_deref() {
            Some(expr) if is_named(expr) => column_name(expr),
            _ => "case".into(),
        },
        Expr::Extract { .. } => "extract".into(),
        Expr::Substring { shorthand: true, .. } => "substr".into(),
        Expr::Substring { .. } => "substring".into(),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim".into(),
            Some(ast::TrimWhereField::Trailing) => "rtrim".into(),
            Some(ast::TrimWhereField::Both) | None => "btrim".into(),
        },
        Expr::BinaryOp {
            op: ast::BinaryOperator::Overlaps,
            ..
        } => "overlaps".into(),
        Expr::IsNormalized { negated: false, .. } => "is_normalized".into(),
        Expr::Position { .. } => "position".into(),
        Expr::Overlay { .. } => "overlay".into(),
        Expr::Ceil { .. } => "ceil".into(),
        Expr::Floor { .. } => "floor".into(),
        Expr::AtTimeZone { .. } => "timezone".into(),
        Expr::Exists { negated: false, .. } => "exists".into(),
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

/// Whether an expression has a name of its own, which a cast of it keeps.
fn is_named(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } | Expr::Cast { expr: inner, .. } => {
            is_named(inner)
        }
        Expr::Case { else_result, .. } => else_result.as_deref().is_some_and(is_named),
        Expr::TypedString(_) | Expr::Interval(_) | Expr::Value(_) => false,
        other => column_name(other) != NONE,
    }
}

fn type_column_name(data_type: &DataType) -> String {
    match types::from_sql(data_type) {
        Ok(sql_type) => types::pg_type(&sql_type.field("", true))
            .name()
            .trim_start_matches('_')
            .to_string(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    fn named(sql: &str) -> String {
        let parsed = millrace_parser::parse(sql).unwrap().remove(0);
        let millrace_parser::ast::Statement::Sql(mut statement) = parsed.statement else {
            panic!("{sql}")
        };
        crate::sql::rewrite::statement(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn columns_are_named_as_postgresql_names_them() {
        assert_eq!(
            named("SELECT count(*), a + 1, '1'::int, b::text, b FROM t"),
            "SELECT count(*) AS \"count\", a + 1 AS \"?column?\", pg_cast('1', 'integer') AS \"int4\", \
             pg_cast(b, 'text') AS \"b\u{2060}1\", b FROM t"
        );
        assert_eq!(
            named("SELECT 1, 2"),
            "SELECT pg_cast(1, 'integer') AS \"?column?\", pg_cast(2, 'integer') AS \"?column?\u{2060}1\""
        );
    }
}
