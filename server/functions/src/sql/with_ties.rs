//! `FETCH FIRST n ROWS ONLY` is LIMIT n; `FETCH FIRST n ROWS WITH TIES`: the rows whose rank by ORDER BY is not above n.
//!
//! What is ordered by becomes further columns of the query, over which the rows are ranked; they are left out again around
//! it. With OFFSET m rows begin after m, and end with the rank of the row m + n, whatever comes beside it.

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, Fetch, Ident, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, Value, WildcardAdditionalOptions,
};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::syntax::parsed_query;

const RANK: &str = "rank of ties";
const ROW: &str = "row of ties";

/// `FETCH FIRST n ROWS ONLY` is LIMIT n.
pub fn fetch_as_limit(query: &mut Query) -> SqlResult<()> {
    let Some(fetch) = query.fetch.take() else {
        return Ok(());
    };
    if fetch.percent {
        return Err(SqlError::unsupported("FETCH FIRST .. PERCENT is not supported"));
    }
    if fetch.with_ties {
        return as_ranked(query, &fetch);
    }
    let limit = fetch
        .quantity
        .unwrap_or_else(|| Expr::value(Value::Number("1".into(), false)));
    let clause = query.limit_clause.take();
    query.limit_clause = Some(match clause {
        None => LimitClause::LimitOffset {
            limit: Some(limit),
            offset: None,
            limit_by: vec![],
        },
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) => LimitClause::LimitOffset {
            limit: Some(limit),
            offset,
            limit_by,
        },
        Some(_) => {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "multiple LIMIT clauses not allowed",
            ));
        }
    });
    Ok(())
}

/// The query with its FETCH .. WITH TIES as a condition on ranks.
///
/// # Errors
/// It has no ORDER BY, or one that cannot be ranked by.
fn as_ranked(query: &mut Query, fetch: &Fetch) -> SqlResult<()> {
    let Some(OrderBy {
        kind: OrderByKind::Expressions(keys),
        ..
    }) = query.order_by.take()
    else {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "WITH TIES cannot be specified without ORDER BY clause",
        ));
    };
    let offset = match query.limit_clause.take() {
        None => None,
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) if limit_by.is_empty() => offset.map(|offset| offset.value),
        Some(_) => {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "multiple LIMIT clauses not allowed",
            ));
        }
    };
    let mut extra = vec![];
    let order = match query.body.as_mut() {
        SetExpr::Select(select) if select.distinct.is_none() => with_keys(select, &keys, &mut extra)?,
        _ => by_columns(&keys)?,
    };
    let count = fetch
        .quantity
        .as_ref()
        .map_or("1".to_string(), ToString::to_string);
    let offset = offset.map_or("0".to_string(), |offset| offset.to_string());
    let order = order.join(", ");
    let text = format!(
        "SELECT 1 FROM (SELECT *, rank() OVER (ORDER BY {order}) AS \"{RANK}\", \
         row_number() OVER (ORDER BY {order}) AS \"{ROW}\" FROM (SELECT 1) AS ties) AS ranked \
         WHERE \"{RANK}\" <= ({count}) + ({offset}) AND \"{ROW}\" > ({offset}) ORDER BY \"{ROW}\""
    );
    let mut outer = *parsed_query(&text)?;
    let Some(place) = innermost(&mut outer) else {
        return Err(SqlError::internal(
            "the query around WITH TIES has no place for it",
        ));
    };
    std::mem::swap(&mut place.body, &mut query.body);
    if let SetExpr::Select(select) = outer.body.as_mut() {
        let mut left_out: Vec<Ident> = extra
            .into_iter()
            .map(|name| Ident::with_quote('"', name))
            .collect();
        left_out.push(Ident::with_quote('"', ROW));
        select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions {
            opt_except: Some(ExceptSelectItem {
                first_element: Ident::with_quote('"', RANK),
                additional_elements: left_out,
            }),
            ..WildcardAdditionalOptions::default()
        })];
    }
    query.body = outer.body;
    query.order_by = outer.order_by;
    Ok(())
}

/// The query inside both subqueries in FROM.
fn innermost(query: &mut Query) -> Option<&mut Query> {
    let inner = derived(query)?;
    derived(inner)
}

fn derived(query: &mut Query) -> Option<&mut Query> {
    match query.body.as_mut() {
        SetExpr::Select(select) => match &mut select.from.first_mut()?.relation {
            TableFactor::Derived { subquery, .. } => Some(subquery),
            _ => None,
        },
        _ => None,
    }
}

/// Puts what is ordered by into the select list, and says how the rows are ordered by it.
fn with_keys(select: &mut Select, keys: &[OrderByExpr], extra: &mut Vec<String>) -> SqlResult<Vec<String>> {
    let mut order = vec![];
    let mut items = vec![];
    for (index, key) in keys.iter().enumerate() {
        let name = format!("tie {index}");
        order.push(format!("{}{}", quote_identifier(&name), key.options));
        items.push(SelectItem::ExprWithAlias {
            expr: meant(&key.expr, &select.projection)?,
            alias: Ident::with_quote('"', name.as_str()),
        });
        extra.push(name);
    }
    select.projection.extend(items);
    Ok(order)
}

/// What an ordinal or an alias of the select list stands for.
fn meant(key: &Expr, items: &[SelectItem]) -> SqlResult<Expr> {
    match key {
        Expr::Value(value) => {
            let Value::Number(text, _) = &value.value else {
                return Ok(key.clone());
            };
            let item = text
                .parse::<usize>()
                .ok()
                .and_then(|at| items.get(at.checked_sub(1)?));
            let is_plain = !items
                .iter()
                .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
            match item {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) if is_plain => {
                    Ok(expr.clone())
                }
                _ if is_plain => Err(SqlError::new(
                    SqlState::InvalidColumnReference,
                    format!("ORDER BY position {text} is not in select list"),
                )),
                _ => Err(SqlError::unsupported(
                    "ORDER BY of a position beside * is not supported with WITH TIES",
                )),
            }
        }
        Expr::Identifier(name) => {
            let named = items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias }
                    if millrace_parser::fold(alias) == millrace_parser::fold(name) =>
                {
                    Some(expr.clone())
                }
                _ => None,
            });
            Ok(named.unwrap_or_else(|| key.clone()))
        }
        _ => Ok(key.clone()),
    }
}

/// The order of rows that can only be ordered by their columns: of DISTINCT, UNION and the like.
fn by_columns(keys: &[OrderByExpr]) -> SqlResult<Vec<String>> {
    keys.iter()
        .map(|key| match &key.expr {
            Expr::Identifier(name) => Ok(format!("{name}{}", key.options)),
            _ => Err(SqlError::unsupported(
                "WITH TIES over DISTINCT, UNION, INTERSECT, EXCEPT or VALUES is supported only if ORDER BY names columns",
            )),
        })
        .collect()
}
