//! Relations that a text file lists with their columns: `relation column:type column:type ..`, on further lines that begin with spaces.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use millrace_functions::cast;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;

/// The columns of a relation; `None`: it is not listed.
///
/// # Errors
/// A type is not known.
pub fn schema(listed: &'static str, name: &str) -> SqlResult<Option<SchemaRef>> {
    let mut lines = listed
        .lines()
        .skip_while(|line| line.split(' ').next() != Some(name));
    let Some(first) = lines.next().filter(|line| line.starts_with(char::is_alphabetic)) else {
        return Ok(None);
    };
    let further = lines.take_while(|line| line.starts_with(' '));
    let words = first.split(' ').skip(1);
    let mut fields = vec![];
    for column in words.chain(further.flat_map(str::split_whitespace)) {
        let (name, of) = column.split_once(':').unwrap_or((column, "text"));
        fields.push(df(cast::named(of))?.field(name, true));
    }
    Ok(Some(Arc::new(Schema::new(fields))))
}

/// The names of the relations.
pub fn names(listed: &'static str) -> impl Iterator<Item = &'static str> {
    let first = listed.lines().filter_map(|line| line.split(' ').next());
    first.filter(|name| name.starts_with(char::is_alphabetic))
}
