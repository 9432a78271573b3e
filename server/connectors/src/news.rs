//! Columns that records have, and the relation that they are for has not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

/// A column that is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    pub name: String,
    /// Its type in SQL; none: nobody says, and there were only nulls.
    pub sql_type: Option<String>,
    /// The place of the first record that has it.
    pub at: usize,
}

/// Collects them.
#[derive(Debug)]
pub(crate) struct News<'k> {
    known: &'k BTreeSet<String>,
    found: BTreeMap<String, (Option<String>, usize)>,
}

impl<'k> News<'k> {
    /// Beside the columns that there are.
    pub fn beside(known: &'k BTreeSet<String>) -> News<'k> {
        News {
            known,
            found: BTreeMap::new(),
        }
    }

    /// A record has a column, of this type if that is known.
    pub fn add(&mut self, at: usize, name: &str, sql_type: Option<&str>) {
        if self.known.contains(name) {
            return;
        }
        let (known, _) = self.found.entry(name.to_owned()).or_insert((None, at));
        *known = match (known.take(), sql_type) {
            (Some(before), Some(now)) => Some(common(&before, now).to_owned()),
            (before, now) => before.or_else(|| now.map(str::to_owned)),
        };
    }

    /// The members of a JSON object. What is none is told elsewhere.
    pub fn add_members(&mut self, at: usize, object: &[u8]) {
        // Not the members themselves: of these, others may be unknown, too.
        let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(object) else {
            return;
        };
        for (name, value) in members {
            self.add(at, &name, of_json(value.get()));
        }
    }

    /// All of them, by name.
    pub fn into_new(self) -> Vec<New> {
        let new = |(name, (sql_type, at))| New { name, sql_type, at };
        self.found.into_iter().map(new).collect()
    }
}

/// The type of SQL that has a value of JSON; none: it is null.
fn of_json(text: &str) -> Option<&'static str> {
    Some(match text.as_bytes().first()? {
        b'"' => "text",
        b't' | b'f' => "boolean",
        b'n' => return None,
        b'[' | b'{' => "jsonb",
        _ if text.parse::<i64>().is_ok() => "bigint",
        _ => "numeric",
    })
}

/// A type that has the values of both.
fn common<'t>(left: &'t str, right: &'t str) -> &'t str {
    match (left, right) {
        _ if left == right => left,
        ("bigint" | "numeric", "bigint" | "numeric") => "numeric",
        _ => "jsonb",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_column_has_a_type_for_all_of_its_values() {
        let known = BTreeSet::from(["a".to_owned()]);
        let mut news = News::beside(&known);
        for (at, object) in [
            r#"{"a": 1, "whole": 1, "number": 1, "text": "x", "yes": true, "list": [1], "mixed": 1, "late": null, "never": null}"#,
            r#"{"whole": -2, "number": 1.5, "text": null, "object": {}, "mixed": "x", "late": false, "large": 99999999999999999999}"#,
            "no object",
        ]
        .into_iter()
        .enumerate()
        {
            news.add_members(at, object.as_bytes());
        }
        let found: Vec<(String, Option<String>, usize)> = (news.into_new().into_iter())
            .map(|new| (new.name, new.sql_type, new.at))
            .collect();
        let expected = [
            ("large", Some("numeric"), 1),
            ("late", Some("boolean"), 0),
            ("list", Some("jsonb"), 0),
            ("mixed", Some("jsonb"), 0),
            ("never", None, 0),
            ("number", Some("numeric"), 0),
            ("object", Some("jsonb"), 1),
            ("text", Some("text"), 0),
            ("whole", Some("bigint"), 0),
            ("yes", Some("boolean"), 0),
        ];
        let expected = expected.map(|(name, of, at)| (name.to_owned(), of.map(str::to_owned), at));
        assert_eq!(found, expected);
    }
}
