//! Paths of SQL/JSON over a value of jsonb: `jsonb_path_query` and its like.
//!
//! As in PostgreSQL an error within a condition makes it unknown, and one outside of conditions ends the query, or its rows if it is
//! silent. A variable that is not there is always an error.

mod condition;
mod evaluation;
mod number;

use std::borrow::Cow;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::json::Node;
use millrace_postgres::types::jsonpath::{self, JsonPath};

use self::evaluation::{Evaluation, Failure, Found, Item, Place};
use super::cell::{Cell, read, refused, text};
use crate::bounded::work::Work;

/// Bytes of the texts that a path leads to; a value within another one is in both.
const TEXTS_BYTES_MAX: usize = 64 << 20;

/// The result of a query.
struct Answer<'n> {
    items: Vec<Item<'n>>,
    /// Why it ended before its end.
    error: Option<SqlError>,
}

/// The arguments of a function: what is queried, the path, its variables, whether errors are not said.
pub(super) struct Query<'n> {
    document: Node<'n>,
    path: JsonPath,
    vars: Option<Node<'n>>,
    is_silent: bool,
}

impl<'n> Query<'n> {
    /// From the arguments of a row; an operator is silent.
    ///
    /// # Errors
    /// The path is none, or the variables are no object.
    pub fn of(cells: &[Cell<'n>], is_operator: bool) -> SqlResult<Self> {
        let (Some(Cell::Text(document)), Some(path)) = (cells.first(), cells.get(1)) else {
            return Err(refused("expected a jsonb value and a path"));
        };
        let vars = match cells.get(2) {
            Some(Cell::Text(vars)) => Some(read(vars)?),
            _ => None,
        };
        if vars.as_ref().is_some_and(|vars| !matches!(vars, Node::Object(_))) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "\"vars\" argument is not an object",
            )
            .with_detail("Jsonpath parameters should be encoded as key-value pairs of \"vars\" object."));
        }
        Ok(Query {
            document: read(document)?,
            path: jsonpath::parse(text(path)?)?,
            vars,
            is_silent: is_operator || matches!(cells.get(3), Some(Cell::Boolean(true))),
        })
    }

    fn run(&self, only_first: bool) -> SqlResult<Answer<'_>> {
        let mut evaluation = Evaluation {
            root: &self.document,
            vars: self.vars.as_ref(),
            is_strict: self.path.is_strict,
            ignores_structure: !self.path.is_strict,
            work: Work::new("a jsonpath"),
        };
        let mut found = Found {
            items: vec![],
            only_first,
        };
        let root = Cow::Borrowed(&self.document);
        let place = Place {
            current: &root,
            length: 0,
        };
        let error = match evaluation.expression(&self.path.root, place, &mut found) {
            Ok(()) => None,
            Err(Failure::Soft(error)) => Some(error),
            Err(Failure::Hard(error)) => return Err(error),
        };
        Ok(Answer {
            items: found.items,
            error,
        })
    }

    /// All that the path leads to.
    ///
    /// # Errors
    /// The query fails and is not silent.
    pub fn all(&self) -> SqlResult<Vec<Item<'_>>> {
        let answer = self.run(false)?;
        match answer.error {
            Some(error) if !self.is_silent => Err(error),
            _ => Ok(answer.items),
        }
    }

    /// The texts of all that the path leads to.
    ///
    /// # Errors
    /// As [`Query::all`]; they are too long.
    pub fn texts(&self) -> SqlResult<Vec<String>> {
        let mut bytes = 0;
        let written = self.all()?.into_iter().map(|item| {
            let text = item.written();
            bytes += text.len();
            match bytes > TEXTS_BYTES_MAX {
                true => Err(SqlError::new(
                    SqlState::ProgramLimitExceeded,
                    format!(
                        "what a jsonpath finds is too large: the limit is {} MB",
                        TEXTS_BYTES_MAX >> 20
                    ),
                )),
                false => Ok(text),
            }
        });
        written.collect()
    }

    /// Whether the path leads to something; `None`: it failed silently.
    ///
    /// # Errors
    /// As [`Query::all`].
    pub fn exists(&self) -> SqlResult<Option<bool>> {
        let answer = self.run(!self.path.is_strict)?;
        match answer.error {
            Some(_) if self.is_silent => Ok(None),
            Some(error) => Err(error),
            None => Ok(Some(!answer.items.is_empty())),
        }
    }

    /// What the path says of the value; `None`: nothing.
    ///
    /// # Errors
    /// As [`Query::all`]; it gives no boolean.
    pub fn matches(&self) -> SqlResult<Option<bool>> {
        let items = self.all()?;
        if let [item] = items.as_slice()
            && let Node::Plain(word) = item.as_ref()
        {
            match word.as_ref() {
                "true" => return Ok(Some(true)),
                "false" => return Ok(Some(false)),
                "null" => return Ok(None),
                _ => {}
            }
        }
        match self.is_silent {
            true => Ok(None),
            false => Err(SqlError::new(
                SqlState::SingletonSqlJsonItemRequired,
                "single boolean result is expected",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(document: &str, path: &str) -> SqlResult<Vec<String>> {
        let query = Query::of(&[Cell::Text(document), Cell::Text(path)], false)?;
        let items = query.all()?;
        Ok(items.iter().map(|item| item.written()).collect())
    }

    #[test]
    fn a_lax_path_unwraps_arrays_and_passes_over_what_is_not_there() {
        let document = r#"{"a": [{"b": 1}, {"b": [2, 3]}, 4], "c": null}"#;
        for (path, found) in [
            ("$.a.b", vec!["1", "[2, 3]"]),
            ("$.a[*].b[*]", vec!["1", "2", "3"]),
            ("$.nosuch", vec![]),
            ("$.a[last]", vec!["4"]),
            ("$.a[0 to 1].b", vec!["1", "[2, 3]"]),
            ("$.a[9]", vec![]),
            ("$.c.x", vec![]),
            ("$.a.size()", vec!["3"]),
            ("$.a[*] ? (@.b > 1).b", vec!["[2, 3]"]),
            ("$.** ? (@ == 3)", vec!["3", "3"]),
            ("$.a[*].b + 1", vec![]),
            ("$.a[0].b + 1", vec!["2"]),
            ("-$.a[1].b", vec!["-2", "-3"]),
            ("$.c == null", vec!["true"]),
            ("$.c < 1", vec!["false"]),
            ("$.a[2] == \"x\"", vec!["null"]),
        ] {
            let answer = all(document, path);
            if path == "$.a[*].b + 1" {
                assert_eq!(answer.unwrap_err().code, SqlState::SingletonSqlJsonItemRequired);
                continue;
            }
            assert_eq!(answer.unwrap(), found, "{path}");
        }
    }

    #[test]
    fn a_strict_path_says_what_is_not_there() {
        let document = r#"{"a": [1, 2]}"#;
        for (path, code) in [
            ("strict $.b", SqlState::SqlJsonMemberNotFound),
            ("strict $.a.b", SqlState::SqlJsonMemberNotFound),
            ("strict $.a[5]", SqlState::InvalidSqlJsonSubscript),
            ("strict $[0]", SqlState::SqlJsonArrayNotFound),
            ("strict $.a.*", SqlState::SqlJsonObjectNotFound),
            ("$.a[\"x\"]", SqlState::InvalidSqlJsonSubscript),
            ("$ + 1", SqlState::SingletonSqlJsonItemRequired),
            ("-$", SqlState::SqlJsonNumberNotFound),
            ("$.a[0] / 0", SqlState::DivisionByZero),
            ("$.abs()", SqlState::NonNumericSqlJsonItem),
            ("$v", SqlState::UndefinedObject),
        ] {
            assert_eq!(all(document, path).unwrap_err().code, code, "{path}");
        }
    }

    #[test]
    fn a_path_that_finds_the_same_in_many_ways_is_refused() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(400), "}".repeat(400));
        let long = format!("[{}1]", "1,".repeat(1_100_000));
        for (document, path) in [
            (&deep, "$.**.**.**.**.**"),
            (&deep, "$.** ? (exists (@.**.**.** ? (@ == 2)))"),
            (&long, "$[*]"),
        ] {
            let error = all(document, path).unwrap_err();
            assert_eq!(error.code, SqlState::ProgramLimitExceeded, "{path}");
        }
        let wide = format!("[\"{}\"]", "x".repeat(8 << 20));
        let cells = [
            Cell::Text(&wide),
            Cell::Text("$.**.**.**.**.**.**.**.**.**.**.**"),
        ];
        let query = Query::of(&cells, false).unwrap();
        assert!(query.all().is_ok());
        let code = query.texts().err().map(|error| error.code);
        assert_eq!(code, Some(SqlState::ProgramLimitExceeded));
    }
}
