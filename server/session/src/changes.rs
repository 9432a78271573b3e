//! Changes that stand where a query may stand: in WITH, or behind it.

use datafusion::sql::sqlparser::ast::{self, SetExpr};

/// Whether a query changes something, itself or in its WITH.
pub(crate) fn has_changes(query: &ast::Query) -> bool {
    let in_with = query.with.as_ref().is_some_and(|with| {
        let mut tables = with.cte_tables.iter();
        tables.any(|table| change_of(&table.query).is_some())
    });
    in_with || change_of(query).is_some()
}

/// The INSERT, UPDATE, DELETE or MERGE that stands where a query may stand.
pub(crate) fn change_of(query: &ast::Query) -> Option<&ast::Statement> {
    match query.body.as_ref() {
        SetExpr::Insert(change)
        | SetExpr::Update(change)
        | SetExpr::Delete(change)
        | SetExpr::Merge(change) => Some(change),
        _ => None,
    }
}
