//! The names of columns in CREATE STREAM and CREATE TABLE.

use datafusion::sql::sqlparser::ast::Ident;
use millrace_parser::ast::ColumnDefinition;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;

/// How many columns a relation may have.
const COLUMNS_MAX: usize = 1600;

/// Refuses names that come twice, and too many of them.
pub(in crate::statement) fn check_columns<'a>(names: impl Iterator<Item = &'a str>) -> SqlResult<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            ));
        }
    }
    if seen.len() > COLUMNS_MAX {
        return Err(SqlError::new(
            SqlState::TooManyColumns,
            format!("tables can have at most {COLUMNS_MAX} columns"),
        ));
    }
    Ok(())
}

/// Where the columns of a key are.
///
/// # Errors
/// There is no such column.
pub(super) fn key_positions(definitions: &[ColumnDefinition], key: &[Ident]) -> SqlResult<Vec<usize>> {
    key.iter()
        .map(|ident| {
            let name = millrace_parser::fold(ident);
            let mut all = definitions
                .iter()
                .map(|definition| millrace_parser::fold(&definition.name));
            all.position(|column| column == name).ok_or_else(|| {
                let known: Vec<String> = definitions
                    .iter()
                    .map(|definition| millrace_parser::fold(&definition.name))
                    .collect();
                SqlError::new(
                    SqlState::UndefinedColumn,
                    format!("column \"{name}\" named in key does not exist"),
                )
                .with_hint_opt(did_you_mean(&name, known.iter().map(String::as_str)))
            })
        })
        .collect()
}
