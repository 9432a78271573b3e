//! What a client asks for: one SQL text, or a list of statements with parameters, and settings for both.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use postgres_types::{Kind, Type};
use serde::Deserialize;
use serde_json::Value;

use super::error;

/// All of a request's body; a client that sends too much, or stops in between, is told.
pub struct Whole(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Whole, Response> {
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Whole(bytes)),
            Err(rejection) => Err(error::plain(rejection.status(), &rejection.body_text())),
        }
    }
}

/// The JSON body of `POST /api/sql`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    query: Option<String>,
    queries: Option<Vec<Query>>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    #[serde(default)]
    json: JsonValues,
}

/// How values of `json` and `jsonb` stand in a JSON answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonValues {
    /// As what they are; the value `null` cannot be told from NULL.
    #[default]
    Value,
    /// As texts.
    Text,
}

/// One statement of a list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The statement.
    pub query: String,
    /// The values of `$1`, `$2`, ...
    #[serde(default)]
    pub params: Vec<Value>,
}

/// A request for SQL to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlRequest {
    /// What to run, one after the other.
    pub parts: Vec<Part>,
    /// Settings for the session.
    pub settings: Vec<(String, String)>,
    /// Whether only statements that read are accepted.
    pub read_only: bool,
    /// How values of `json` and `jsonb` are answered.
    pub json: JsonValues,
}

/// A part of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A text with any number of statements.
    Text(String),
    /// One statement with parameters.
    Statement(Query),
}

impl SqlRequest {
    /// The SQL texts, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| match part {
            Part::Text(sql) => sql.as_str(),
            Part::Statement(statement) => statement.query.as_str(),
        })
    }

    /// A request to run one text.
    pub fn text(sql: String) -> Self {
        SqlRequest {
            parts: vec![Part::Text(sql)],
            settings: Vec::new(),
            read_only: false,
            json: JsonValues::default(),
        }
    }

    /// Reads the JSON body.
    ///
    /// # Errors
    /// It is not JSON or not of the shape that is documented.
    pub fn from_json(body: &[u8]) -> SqlResult<Self> {
        let invalid = |message: String| {
            SqlError::new(SqlState::InvalidParameterValue, message).with_hint(
                "Send {\"query\": \"...\"} or {\"queries\": [{\"query\": \"... $1\", \"params\": [1]}], \
                 \"settings\": {}}, or the bare SQL as text/plain.",
            )
        };
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body is not a valid request: {error}")))?;
        let parts = match (body.query, body.queries) {
            (Some(query), None) => vec![Part::Text(query)],
            (None, Some(queries)) => queries.into_iter().map(Part::Statement).collect(),
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "give either \"query\" or \"queries\", not both".to_owned(),
                ));
            }
            (None, None) => return Err(invalid("\"query\" or \"queries\" is missing".to_owned())),
        };
        let setting = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, text)),
            Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
            _ => Err(invalid(format!(
                "setting \"{name}\" must be a string, a number or a boolean"
            ))),
        };
        let settings = body.settings.into_iter().map(setting).collect::<SqlResult<_>>()?;
        Ok(SqlRequest {
            parts,
            settings,
            read_only: false,
            json: body.json,
        })
    }
}

/// A JSON value as the text of a parameter; `None` is NULL.
pub fn parameter_text(value: &Value, pg_type: &Type) -> Option<String> {
    match (value, pg_type.kind()) {
        (Value::Null, _) => None,
        (Value::String(text), _) => Some(text.clone()),
        (Value::Array(elements), Kind::Array(element_type)) => {
            let elements = elements
                .iter()
                .map(|element| match parameter_text(element, element_type) {
                    None => "NULL".to_owned(),
                    Some(text) if element.is_array() => text,
                    Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
                });
            Some(format!("{{{}}}", elements.collect::<Vec<_>>().join(",")))
        }
        (value, _) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_shapes_are_read() {
        let request = SqlRequest::from_json(br#"{"query": "a; b", "settings": {"x": 1, "y": "z"}}"#).unwrap();
        assert_eq!(request.parts, [Part::Text("a; b".into())]);
        assert_eq!(request.json, JsonValues::Value);
        let request = SqlRequest::from_json(br#"{"query": "a", "json": "text"}"#).unwrap();
        assert_eq!(request.json, JsonValues::Text);
        let request = SqlRequest::from_json(br#"{"query": "a; b", "settings": {"x": 1, "y": "z"}}"#).unwrap();
        assert_eq!(
            request.settings,
            [("x".to_owned(), "1".to_owned()), ("y".to_owned(), "z".to_owned())]
        );
        let request =
            SqlRequest::from_json(br#"{"queries": [{"query": "a $1", "params": [null]}, {"query": "b"}]}"#);
        let statement = |query: &str, params| {
            Part::Statement(Query {
                query: query.into(),
                params,
            })
        };
        assert_eq!(
            request.unwrap().parts,
            [statement("a $1", vec![Value::Null]), statement("b", vec![])]
        );
    }

    #[test]
    fn other_shapes_are_refused_with_the_right_ones() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"sql": "a"}"#,
            r#"{"query": "a", "queries": []}"#,
            r#"{"query": 1}"#,
            r#"{"query": "a", "json": "xml"}"#,
        ] {
            let error = SqlRequest::from_json(body.as_bytes()).unwrap_err();
            assert!(error.hint.is_some(), "{body}");
        }
    }

    #[test]
    fn values_become_texts_of_their_types() {
        let text = |value: Value, pg_type| parameter_text(&value, &pg_type);
        assert_eq!(text(json!(null), Type::INT4), None);
        assert_eq!(text(json!(1.5), Type::FLOAT8).unwrap(), "1.5");
        assert_eq!(text(json!("x"), Type::TEXT).unwrap(), "x");
        assert_eq!(
            text(json!([1, null, 3]), Type::INT4_ARRAY).unwrap(),
            r#"{"1",NULL,"3"}"#
        );
        assert_eq!(text(json!(["a\"b"]), Type::TEXT_ARRAY).unwrap(), r#"{"a\"b"}"#);
        assert_eq!(text(json!({"a": [1]}), Type::JSONB).unwrap(), r#"{"a":[1]}"#);
    }
}
