//! The arguments of one row of a function over JSON.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::json::{self, Node};

/// One argument of one row.
#[derive(Debug)]
pub(super) enum Cell<'a> {
    /// Of a function that takes NULLs.
    Null,
    Text(&'a str),
    Integer(i64),
    Boolean(bool),
    Texts(Vec<&'a str>),
    /// With the NULLs among them.
    Items(Vec<Option<&'a str>>),
}

pub(super) fn refused(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

pub(super) fn read(text: &str) -> SqlResult<Node<'_>> {
    json::parse(text).map_err(|error| error.of("json", text))
}

/// The first of the cells, a JSON value.
pub(super) fn document<'a>(cells: &[Cell<'a>]) -> SqlResult<Node<'a>> {
    match cells.first() {
        Some(Cell::Text(text)) => read(text),
        _ => Err(refused("expected a jsonb value")),
    }
}

pub(super) fn items<'a>(cells: &[Cell<'a>]) -> SqlResult<Vec<Node<'a>>> {
    match document(cells)? {
        Node::Array(items) => Ok(items),
        Node::Object(_) => Err(refused("cannot extract elements from an object")),
        _ => Err(refused("cannot extract elements from a scalar")),
    }
}

/// JSON values that were written one by one.
pub(super) fn nodes<'a>(cells: &[Cell<'a>]) -> SqlResult<Vec<Node<'a>>> {
    match cells.first() {
        Some(Cell::Texts(texts)) => texts.iter().map(|text| read(text)).collect(),
        _ => Err(refused("expected a list of jsonb values")),
    }
}

pub(super) fn text<'a>(cell: &Cell<'a>) -> SqlResult<&'a str> {
    match cell {
        Cell::Text(text) => Ok(text),
        _ => Err(refused("expected a text")),
    }
}

pub(super) fn texts<'c, 'a>(cell: &'c Cell<'a>) -> SqlResult<&'c [&'a str]> {
    match cell {
        Cell::Texts(texts) => Ok(texts),
        _ => Err(refused("expected an array of texts")),
    }
}

pub(super) fn steps<'a>(cells: &[Cell<'a>]) -> SqlResult<Vec<&'a str>> {
    cells.iter().map(text).collect()
}

pub(super) fn step<'n, 'a>(node: &'n Node<'a>, cell: &Cell<'_>) -> SqlResult<Option<&'n Node<'a>>> {
    Ok(match cell {
        Cell::Integer(index) => super::value::element(node, *index),
        key => super::value::member(node, text(key)?),
    })
}
