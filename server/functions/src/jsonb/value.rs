//! What the jsonb functions do to one value: steps, paths, containment, comparison, and changes.
//!
//! Values are [`Node`]s, so numbers keep the digits that they were written with; they are compared by value.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::json::Node;

use crate::bounded::may_be_as_large;
use crate::bounded::work::Work;

fn refused(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

/// The place in an array that an index means: from the end when it is negative.
pub(super) fn element_place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let at = if index < 0 { index + length } else { index };
    (0..length)
        .contains(&at)
        .then(|| usize::try_from(at).expect("it is not negative"))
}

/// The order of keys: by length, and then by bytes.
fn in_order(left: &str, right: &str) -> std::cmp::Ordering {
    let lengths = left.len().cmp(&right.len());
    lengths.then_with(|| left.as_bytes().cmp(right.as_bytes()))
}

/// The member of an object.
pub fn member<'n, 'a>(node: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    match node {
        Node::Object(members) => {
            let at = members.binary_search_by(|(name, _)| in_order(name, key));
            Some(&members[at.ok()?].1)
        }
        _ => None,
    }
}

/// The element of an array; a scalar is the one element of itself.
pub fn element<'n, 'a>(node: &'n Node<'a>, index: i64) -> Option<&'n Node<'a>> {
    match node {
        Node::Array(items) => items.get(element_place(index, items.len())?),
        Node::Plain(_) | Node::Text(_) => element_place(index, 1).map(|_| node),
        Node::Object(_) => None,
    }
}

/// What a path leads to: keys of objects, and indexes of arrays written as text.
pub fn at_path<'n, 'a>(node: &'n Node<'a>, path: &[&str]) -> Option<&'n Node<'a>> {
    path.iter().try_fold(node, |node, step| match node {
        Node::Array(_) => element(node, step.trim().parse().ok()?),
        _ => member(node, step),
    })
}

/// The value as text: a string without its quotes; `None` for null.
pub fn as_text(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Text(text) => Some(text.clone()),
        node if node.is_null() => None,
        node => Some(node.written()),
    }
}

/// Values in their order, null last.
pub fn ascending(mut nodes: Vec<Node<'_>>) -> Vec<Node<'_>> {
    nodes.sort_by_cached_key(|node| (node.is_null(), sort_key(node)));
    nodes
}

/// The type's name.
pub fn type_of(node: &Node<'_>) -> &'static str {
    match node {
        Node::Plain(text) => match text.as_ref() {
            "null" => "null",
            "true" | "false" => "boolean",
            _ => "number",
        },
        Node::Text(_) => "string",
        Node::Array(_) => "array",
        Node::Object(_) => "object",
    }
}

/// Whether a text is a key of the object, a string in the array, or the string itself.
pub fn has(node: &Node<'_>, key: &str) -> bool {
    match node {
        Node::Object(_) => member(node, key).is_some(),
        Node::Array(items) => items
            .iter()
            .any(|item| matches!(item, Node::Text(text) if text == key)),
        Node::Text(text) => text == key,
        Node::Plain(_) => false,
    }
}

/// Containment: an object holds one whose members it has, an array one whose elements it has in any order. At the top,
/// an array also holds a bare scalar that is one of its elements.
///
/// # Errors
/// Too many elements would have to be compared with each other.
pub fn contains(whole: &Node<'_>, part: &Node<'_>) -> SqlResult<bool> {
    let work = &mut Work::new("jsonb containment");
    match (whole, part) {
        (Node::Array(items), Node::Plain(_) | Node::Text(_)) => any_holds(items, part, work),
        (whole, part) => holds(whole, part, work),
    }
}

fn any_holds(items: &[Node<'_>], part: &Node<'_>, work: &mut Work) -> SqlResult<bool> {
    for item in items {
        if holds(item, part, work)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a comparison of numbers by their keys takes, in comparisons of others.
const KEYS_STEPS: u64 = 16;

fn holds(whole: &Node<'_>, part: &Node<'_>, work: &mut Work) -> SqlResult<bool> {
    work.steps(1)?;
    Ok(match (whole, part) {
        (Node::Object(_), Node::Object(members)) => {
            for (key, part) in members {
                match member(whole, key) {
                    Some(whole) if holds(whole, part, work)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Node::Array(items), Node::Array(parts)) => {
            for part in parts {
                if !any_holds(items, part, work)? {
                    return Ok(false);
                }
            }
            true
        }
        (Node::Text(whole), Node::Text(part)) => whole == part,
        (Node::Plain(left), Node::Plain(right)) if left == right => true,
        // Integers and words have one form each; a fraction may have zeros at its end.
        (Node::Plain(left), Node::Plain(right)) if left.contains('.') || right.contains('.') => {
            work.steps(KEYS_STEPS)?;
            sort_key(whole) == sort_key(part)
        }
        _ => false,
    })
}

/// Bytes that compare as the values do in PostgreSQL: null, strings, numbers, booleans, arrays, objects; the shorter of
/// two arrays or objects first. An empty array at the top comes before everything.
pub fn sort_key(node: &Node<'_>) -> Vec<u8> {
    let mut out = vec![];
    match node {
        Node::Array(items) if items.is_empty() => out.push(0),
        node => put_key(node, &mut out),
    }
    out
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    // Texts have no zero byte, so it ends them.
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn put_key(node: &Node<'_>, out: &mut Vec<u8>) {
    match node {
        Node::Plain(text) => match text.as_ref() {
            "null" => out.push(1),
            "false" => out.extend_from_slice(&[4, 0]),
            "true" => out.extend_from_slice(&[4, 1]),
            number => {
                out.push(3);
                put_number(number, out);
            }
        },
        Node::Text(text) => {
            out.push(2);
            put_string(text, out);
        }
        Node::Array(items) => {
            out.push(5);
            put_count(items.len(), out);
            for item in items {
                put_key(item, out);
            }
        }
        Node::Object(members) => {
            out.push(6);
            put_count(members.len(), out);
            for (key, value) in members {
                put_string(key, out);
                put_key(value, out);
            }
        }
    }
}

/// The sign, the exponent and the digits of a number in plain digits; those of a negative one inverted.
fn put_number(text: &str, out: &mut Vec<u8>) {
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
    let whole = whole.trim_start_matches('0');
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        out.push(1);
        return;
    }
    let leading = digits.len() - significant.len();
    let exponent = i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(leading).unwrap_or(0);
    out.push(if negative { 0 } else { 2 });
    let start = out.len();
    out.extend_from_slice(&(exponent.wrapping_sub(i64::MIN)).to_be_bytes());
    out.extend_from_slice(significant.trim_end_matches('0').as_bytes());
    out.push(0);
    if negative {
        for byte in &mut out[start..] {
            *byte = !*byte;
        }
    }
}

/// An object of members in any order, the later of equal keys.
pub fn object<'a>(mut members: Vec<(String, Node<'a>)>) -> Node<'a> {
    members.sort_by(|(a, _), (b, _)| in_order(a, b));
    let mut kept: Vec<(String, Node<'a>)> = Vec::with_capacity(members.len());
    for member in members {
        match kept.last_mut() {
            Some(last) if last.0 == member.0 => *last = member,
            _ => kept.push(member),
        }
    }
    Node::Object(kept)
}

/// `||`: two objects become one, anything else an array of both's elements.
pub fn concat<'a>(left: Node<'a>, right: Node<'a>) -> Node<'a> {
    let items = |node| match node {
        Node::Array(items) => items,
        other => vec![other],
    };
    match (left, right) {
        (Node::Object(mut left), Node::Object(right)) => {
            left.extend(right);
            object(left)
        }
        (left, right) => {
            let mut all = items(left);
            all.extend(items(right));
            Node::Array(all)
        }
    }
}

/// `- text`: without the member, or without the strings.
///
/// # Errors
/// The value is a scalar.
pub fn without_key<'a>(node: Node<'a>, key: &str) -> SqlResult<Node<'a>> {
    match node {
        Node::Object(mut members) => {
            members.retain(|(name, _)| name != key);
            Ok(Node::Object(members))
        }
        Node::Array(mut items) => {
            items.retain(|item| !matches!(item, Node::Text(text) if text == key));
            Ok(Node::Array(items))
        }
        _ => Err(refused("cannot delete from scalar")),
    }
}

/// `- integer`: without the element.
///
/// # Errors
/// The value is not an array.
pub fn without_index(node: Node<'_>, index: i64) -> SqlResult<Node<'_>> {
    match node {
        Node::Array(mut items) => {
            if let Some(at) = element_place(index, items.len()) {
                items.remove(at);
            }
            Ok(Node::Array(items))
        }
        Node::Object(_) => Err(refused("cannot delete from object using integer index")),
        _ => Err(refused("cannot delete from scalar")),
    }
}

/// The number that a step of a path is, where it leads into an array.
pub(super) fn index_of(step: &str, position: usize) -> SqlResult<i64> {
    step.trim().parse().map_err(|_| {
        SqlError::new(
            SqlState::InvalidTextRepresentation,
            format!(
                "path element at position {} is not an integer: \"{step}\"",
                position + 1
            ),
        )
    })
}

/// `#-`: without what the path leads to.
///
/// # Errors
/// The value is a scalar, or a step into an array is not a number.
pub fn without_path<'a>(mut node: Node<'a>, path: &[&str]) -> SqlResult<Node<'a>> {
    if matches!(node, Node::Plain(_) | Node::Text(_)) {
        return Err(refused("cannot delete path in scalar"));
    }
    remove(&mut node, path, 0)?;
    Ok(node)
}

fn remove(node: &mut Node<'_>, path: &[&str], position: usize) -> SqlResult<()> {
    let Some(step) = path.get(position) else {
        return Ok(());
    };
    let is_last = position + 1 == path.len();
    match node {
        Node::Object(members) => {
            if let Some(at) = members.iter().position(|(name, _)| name == step) {
                if is_last {
                    members.remove(at);
                } else {
                    remove(&mut members[at].1, path, position + 1)?;
                }
            }
        }
        Node::Array(items) => {
            if let Some(at) = element_place(index_of(step, position)?, items.len()) {
                if is_last {
                    items.remove(at);
                } else {
                    remove(&mut items[at], path, position + 1)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// What becomes of a value where a path leads to, for `jsonb_set` and `jsonb_insert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It takes the place of what is there, if something is.
    There,
    /// It takes the place of what is there, or is added.
    Always,
    /// It is put before the element that is there, or becomes a new member.
    Before,
    /// It is put behind the element that is there, or becomes a new member.
    After,
}

/// With `value` where the path leads to.
///
/// # Errors
/// The document is a scalar, a step into an array is not a number, or a member is there that is to be new.
pub fn with_path<'a>(mut node: Node<'a>, path: &[&str], value: &Node<'a>, put: Put) -> SqlResult<Node<'a>> {
    if matches!(node, Node::Plain(_) | Node::Text(_)) {
        return Err(refused("cannot set path in scalar"));
    }
    put_at(&mut node, path, 0, value, put)?;
    Ok(node)
}

fn put_at<'a>(
    node: &mut Node<'a>,
    path: &[&str],
    position: usize,
    value: &Node<'a>,
    put: Put,
) -> SqlResult<()> {
    let Some(step) = path.get(position) else {
        return Ok(());
    };
    let is_last = position + 1 == path.len();
    let is_new = put != Put::There;
    match node {
        Node::Object(members) => match members.iter().position(|(name, _)| name == step) {
            Some(_) if is_last && matches!(put, Put::Before | Put::After) => {
                return Err(
                    SqlError::new(SqlState::InvalidParameterValue, "cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."),
                );
            }
            Some(at) if is_last => members[at].1 = value.clone(),
            Some(at) => put_at(&mut members[at].1, path, position + 1, value, put)?,
            None if is_last && is_new => {
                members.push(((*step).to_string(), value.clone()));
                *node = object(std::mem::take(members));
            }
            None => {}
        },
        Node::Array(items) => {
            let index = index_of(step, position)?;
            match element_place(index, items.len()) {
                Some(at) if is_last => match put {
                    Put::There | Put::Always => items[at] = value.clone(),
                    Put::Before => items.insert(at, value.clone()),
                    Put::After => items.insert(at + 1, value.clone()),
                },
                Some(at) => put_at(&mut items[at], path, position + 1, value, put)?,
                None if is_last && is_new && index < 0 => items.insert(0, value.clone()),
                None if is_last && is_new => items.push(value.clone()),
                None => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// Without the members that are null, at every depth. Elements of arrays stay.
pub fn without_nulls(node: Node<'_>) -> Node<'_> {
    match node {
        Node::Object(members) => Node::Object(
            members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Node::Array(items) => Node::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// The value over several lines, four spaces to the level.
///
/// # Errors
/// It is too large: each line of a value that is nested deeply begins with very many spaces.
pub fn pretty(node: &Node<'_>) -> SqlResult<String> {
    let mut out = String::new();
    put_pretty(node, 0, &mut out)?;
    Ok(out)
}

fn put_pretty(node: &Node<'_>, level: usize, out: &mut String) -> SqlResult<()> {
    may_be_as_large("jsonb_pretty", out.len())?;
    let line = |level: usize, out: &mut String| {
        out.push('\n');
        out.push_str(&"    ".repeat(level));
    };
    match node {
        Node::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(level + 1, out);
                put_pretty(item, level + 1, out)?;
            }
            line(level, out);
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(level + 1, out);
                millrace_postgres::types::json::quote(key, out);
                out.push_str(": ");
                put_pretty(value, level + 1, out)?;
            }
            line(level, out);
            out.push('}');
        }
        scalar => out.push_str(&scalar.written()),
    }
    Ok(())
}

/// The number of elements of an array.
///
/// # Errors
/// The value is not an array.
pub fn array_length(node: &Node<'_>) -> SqlResult<usize> {
    match node {
        Node::Array(items) => Ok(items.len()),
        Node::Object(_) => Err(refused("cannot get array length of a non-array")),
        _ => Err(refused("cannot get array length of a scalar")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::types::json::parse;

    fn node(text: &str) -> Node<'_> {
        parse(text).unwrap()
    }

    #[test]
    fn containment_is_postgresqls() {
        let cases = [
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[2]}"#, true),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
            (r#"{"a":1.0}"#, r#"{"a":1}"#, true),
            ("[1,2,3]", "[3,1]", true),
            ("[1,2]", "1", true),
            ("1", "[1]", false),
            ("[[1]]", "[1]", false),
            (r#"[{"a":1}]"#, r#"{"a":1}"#, false),
        ];
        for (whole, part, expected) in cases {
            assert_eq!(
                contains(&node(whole), &node(part)).unwrap(),
                expected,
                "{whole} @> {part}"
            );
        }
    }

    #[test]
    fn values_are_ordered_as_in_postgresql() {
        let ordered = [
            "[]",
            "null",
            r#""""#,
            r#""a""#,
            r#""ab""#,
            "-100",
            "-10.5",
            "-10",
            "-0.01",
            "0",
            "0.001",
            "0.01",
            "1",
            "1.5",
            "9",
            "10",
            "false",
            "true",
            "[2]",
            "[1, 1]",
            "{}",
            r#"{"a": 2}"#,
            r#"{"b": 1}"#,
            r#"{"a": 1, "b": 1}"#,
        ];
        for pair in ordered.windows(2) {
            assert!(
                sort_key(&node(pair[0])) < sort_key(&node(pair[1])),
                "{} < {}",
                pair[0],
                pair[1]
            );
        }
        for (left, right) in [("1", "1.0"), ("0", "-0.00"), ("100", "1e2"), ("[1]", "[1.00]")] {
            assert_eq!(sort_key(&node(left)), sort_key(&node(right)), "{left} = {right}");
        }
    }

    #[test]
    fn values_are_changed_along_a_path() {
        let set = |text: &'static str, path: &[&str], put| {
            with_path(node(text), path, &node("9"), put).unwrap().written()
        };
        assert_eq!(
            set(r#"{"a": {"b": 1}}"#, &["a", "b"], Put::There),
            r#"{"a": {"b": 9}}"#
        );
        assert_eq!(set(r#"{"bb": 1}"#, &["a"], Put::Always), r#"{"a": 9, "bb": 1}"#);
        assert_eq!(set(r#"{"b": 1}"#, &["a"], Put::There), r#"{"b": 1}"#);
        assert_eq!(set("[1, 2]", &["-1"], Put::Always), "[1, 9]");
        assert_eq!(set("[1, 2]", &["5"], Put::Always), "[1, 2, 9]");
        assert!(with_path(node("1"), &["a"], &node("2"), Put::Always).is_err());
        let removed = without_path(node(r#"{"a": [1, {"b": 2}]}"#), &["a", "1", "b"]);
        assert_eq!(removed.unwrap().written(), r#"{"a": [1, {}]}"#);
        assert!(without_path(node("[1]"), &["x"]).is_err());
    }

    #[test]
    fn pretty_is_postgresqls() {
        assert_eq!(
            pretty(&node(r#"{"a": [1, {}], "b": null}"#)).unwrap(),
            "{\n    \"a\": [\n        1,\n        {\n        }\n    ],\n    \"b\": null\n}"
        );
        assert_eq!(pretty(&node("[]")).unwrap(), "[\n]");
    }
}
