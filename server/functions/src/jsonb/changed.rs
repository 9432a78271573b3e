//! What changes a document at a path: `#-`, `jsonb_set`, `jsonb_set_lax`, `jsonb_insert`, and assignment to a subscript.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::json::Node;
use millrace_postgres::types::parse;

use super::Out;
use super::cell::{Cell, document, read, refused, text};
use super::value::{self, Put, element_place, index_of};

/// Where a path leads to; `None`: it has a NULL. `node` is what it is a path of.
pub(super) fn found<'n, 'a>(node: &'n Node<'a>, path: &Cell<'_>) -> SqlResult<Option<&'n Node<'a>>> {
    let path = items(path)?;
    let known: Option<Vec<&str>> = path.iter().map(Option::as_deref).collect();
    Ok(known.and_then(|path| value::at_path(node, &path)))
}

/// The steps of a path.
fn items(path: &Cell<'_>) -> SqlResult<Vec<Option<String>>> {
    let owned = |item: &Option<&str>| item.map(str::to_string);
    match path {
        // A path that is written as a text has not the type of an array yet.
        Cell::Text(written) => Ok(parse::array::elements(written)?),
        Cell::Items(items) => Ok(items.iter().map(owned).collect()),
        _ => Err(refused("expected an array of texts")),
    }
}

/// The path along which a document is changed; `None`: nothing is changed, as it leads to nothing before it has a NULL.
fn steps(node: &Node<'_>, path: &Cell<'_>) -> SqlResult<Option<Vec<String>>> {
    let path = items(path)?;
    let Some(place) = path.iter().position(Option::is_none) else {
        return Ok(path.into_iter().collect());
    };
    let before: Vec<&str> = path.iter().take(place).filter_map(Option::as_deref).collect();
    match value::at_path(node, &before) {
        Some(_) => Err(SqlError::new(
            SqlState::NullValueNotAllowed,
            format!("path element at position {} is null", place + 1),
        )),
        None => Ok(None),
    }
}

/// The document without what the path leads to.
pub(super) fn without(cells: &[Cell<'_>]) -> SqlResult<Out> {
    let node = document(cells)?;
    let Some(path) = steps(&node, &cells[1])? else {
        return Ok(Out::Text(node.written()));
    };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    Ok(Out::Text(value::without_path(node, &path)?.written()))
}

/// The document with the value of the third argument at the path of the second.
pub(super) fn with_path(cells: &[Cell<'_>], put: Put) -> SqlResult<Out> {
    put_value(document(cells)?, &cells[1], &document(&cells[2..])?, put)
}

fn put_value<'a>(node: Node<'a>, path: &Cell<'_>, value: &Node<'a>, put: Put) -> SqlResult<Out> {
    let Some(path) = steps(&node, path)? else {
        return Ok(Out::Text(node.written()));
    };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    Ok(Out::Text(value::with_path(node, &path, value, put)?.written()))
}

/// `jsonb_set_lax`: as `jsonb_set`, and what NULL as the new value does is said by the last argument.
pub(super) fn set_lax(cells: &[Cell<'_>]) -> SqlResult<Out> {
    let [target, path, new, rest @ ..] = cells else {
        return Err(refused("jsonb_set_lax takes a document, a path and a value"));
    };
    let create = match rest.first() {
        Some(Cell::Null) => return Ok(Out::Null),
        Some(Cell::Boolean(create)) => *create,
        _ => true,
    };
    if matches!(target, Cell::Null) || matches!(path, Cell::Null) {
        return Ok(Out::Null);
    }
    let treatment = match rest.get(1) {
        None => "use_json_null",
        Some(Cell::Text(treatment)) => *treatment,
        Some(_) => return Err(refused(TREATMENTS)),
    };
    let put = if create { Put::Always } else { Put::There };
    if !matches!(new, Cell::Null) {
        return with_path(cells, put);
    }
    match treatment {
        "use_json_null" => put_value(document(cells)?, path, &read("null")?, put),
        "delete_key" => without(cells),
        "return_target" => Ok(Out::Text(document(cells)?.written())),
        "raise_exception" => Err(SqlError::new(
            SqlState::NullValueNotAllowed,
            "JSON value must not be null",
        )
        .with_detail("Exception was raised because null_value_treatment is \"raise_exception\".")
        .with_hint(
            "To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed.",
        )),
        _ => Err(refused(TREATMENTS)),
    }
}

const TREATMENTS: &str = "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"";

/// `SET j['a'][0] = v`: the document, the value, and the subscripts. What is not there yet is made: an array where a whole number
/// leads to, filled up with nulls, and an object elsewhere.
pub(super) fn with_subscripts(cells: &[Cell<'_>]) -> SqlResult<Out> {
    let [before, value, subscripts @ ..] = cells else {
        return Err(refused("an assignment takes a document, a value and subscripts"));
    };
    let null_subscript = || {
        SqlError::new(
            SqlState::NullValueNotAllowed,
            "jsonb subscript in assignment must not be null",
        )
    };
    let path = subscripts.iter().map(|subscript| match subscript {
        Cell::Null => Err(null_subscript()),
        Cell::Integer(index) => Ok(index.to_string()),
        key => text(key).map(str::to_string),
    });
    let path = path.collect::<SqlResult<Vec<String>>>()?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let value = match value {
        Cell::Null => read("null")?,
        _ => document(&cells[1..])?,
    };
    let mut node = match before {
        Cell::Null if matches!(subscripts.first(), Some(Cell::Integer(_))) => Node::Array(vec![]),
        Cell::Null => Node::Object(vec![]),
        _ => document(cells)?,
    };
    assign(&mut node, &path, 0, value)?;
    Ok(Out::Text(node.written()))
}

fn assign<'a>(node: &mut Node<'a>, path: &[&str], position: usize, value: Node<'a>) -> SqlResult<()> {
    let Some(step) = path.get(position) else {
        *node = value;
        return Ok(());
    };
    match node {
        Node::Object(members) => match members.iter().position(|(name, _)| name == step) {
            Some(at) => assign(&mut members[at].1, path, position + 1, value),
            None => {
                members.push(((*step).to_string(), made(&path[position + 1..], value)?));
                *node = value::object(std::mem::take(members));
                Ok(())
            }
        },
        Node::Array(items) => {
            let index = index_of(step, position)?;
            match element_place(index, items.len()) {
                Some(at) => assign(&mut items[at], path, position + 1, value),
                None if index < 0 => Err(refused(&format!(
                    "path element at position {} is out of range: {index}",
                    position + 1
                ))),
                None => {
                    fill(items, index)?;
                    items.push(made(&path[position + 1..], value)?);
                    Ok(())
                }
            }
        }
        _ => Err(refused("cannot replace existing key")
            .with_detail("The path assumes key is a composite object, but it is a scalar value.")),
    }
}

/// What is made for a path that leads to nothing yet.
fn made<'a>(path: &[&str], value: Node<'a>) -> SqlResult<Node<'a>> {
    path.iter()
        .rev()
        .try_fold(value, |inner, step| match step.parse::<i32>() {
            Ok(index) => {
                let mut items = vec![];
                fill(&mut items, i64::from(index))?;
                items.push(inner);
                Ok(Node::Array(items))
            }
            Err(_) => Ok(value::object(vec![((*step).to_string(), inner)])),
        })
}

/// Nulls up to a place.
fn fill(items: &mut Vec<Node<'_>>, place: i64) -> SqlResult<()> {
    let length = usize::try_from(place).unwrap_or(0);
    // Each may be as large as a node.
    crate::bounded::may_be_as_large("an array of jsonb", length.saturating_mul(size_of::<Node<'_>>()))?;
    while items.len() < length {
        items.push(read("null")?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(before: &str, value: &str, subscripts: &[Cell<'_>]) -> SqlResult<String> {
        let mut cells = vec![
            match before {
                "" => Cell::Null,
                text => Cell::Text(text),
            },
            Cell::Text(value),
        ];
        cells.extend(subscripts.iter().map(|cell| match cell {
            Cell::Text(text) => Cell::Text(text),
            Cell::Integer(index) => Cell::Integer(*index),
            _ => Cell::Null,
        }));
        match with_subscripts(&cells)? {
            Out::Text(text) => Ok(text),
            _ => Ok(String::new()),
        }
    }

    #[test]
    fn what_is_not_there_is_made() {
        let key = Cell::Text;
        assert_eq!(
            set("{}", "1", &[key("a"), key("b")]).unwrap(),
            r#"{"a": {"b": 1}}"#
        );
        assert_eq!(set("", "1", &[key("0")]).unwrap(), r#"{"0": 1}"#);
        assert_eq!(set("", "1", &[Cell::Integer(1)]).unwrap(), "[null, 1]");
        assert_eq!(
            set("{}", "1", &[key("a"), key("1")]).unwrap(),
            r#"{"a": [null, 1]}"#
        );
        assert_eq!(set("[1, 2]", "9", &[Cell::Integer(-1)]).unwrap(), "[1, 9]");
        assert_eq!(
            set("[1]", "9", &[Cell::Integer(3)]).unwrap(),
            "[1, null, null, 9]"
        );
        assert!(set("[1]", "9", &[Cell::Integer(-2)]).is_err());
        assert!(set("[1]", "9", &[key("x")]).is_err());
        assert!(set("1", "9", &[key("x")]).is_err());
        assert!(set("{\"a\": 1}", "9", &[key("a"), key("x")]).is_err());
        assert!(set("{}", "9", &[Cell::Null]).is_err());
        let far = set("[]", "9", &[Cell::Integer(2_000_000_000)]);
        assert_eq!(far.unwrap_err().code.code(), "54000");
    }
}
