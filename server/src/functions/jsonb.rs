//! Functions over jsonb that the JSON crate does not have.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use serde_json::Value;

use crate::types::parse::json_normalized;

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let text = DataType::Utf8;
    let unary = |name: &str, apply: fn(&str) -> Result<Option<String>>| {
        let body = move |args: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(args)?;
            let inputs = arrays[0].as_string::<i32>();
            let out: StringArray = inputs
                .iter()
                .map(|input| input.map_or(Ok(None), apply))
                .collect::<Result<Vec<_>>>()?
                .into();
            Ok(ColumnarValue::Array(Arc::new(out)))
        };
        Arc::new(create_udf(
            name,
            vec![DataType::Utf8],
            DataType::Utf8,
            Volatility::Immutable,
            Arc::new(body),
        ))
    };
    let contains = |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let (wholes, parts) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let out: BooleanArray = wholes
            .iter()
            .zip(parts)
            .map(|(whole, part)| match (whole, part) {
                (Some(whole), Some(part)) => Ok(Some(holds(&read(whole)?, &read(part)?))),
                _ => Ok(None),
            })
            .collect::<Result<Vec<_>>>()?
            .into();
        Ok(ColumnarValue::Array(Arc::new(out)))
    };
    vec![
        unary("jsonb_typeof", |input| {
            Ok(Some(type_of(&read(input)?).to_string()))
        }),
        unary("jsonb_pretty", |input| {
            Ok(serde_json::to_string_pretty(&read(input)?).ok())
        }),
        unary("to_jsonb", |input| {
            let mut out = String::new();
            crate::types::json::quote(input, &mut out);
            Ok(Some(out))
        }),
        Arc::new(create_udf(
            "jsonb_contains",
            vec![text.clone(), text],
            DataType::Boolean,
            Volatility::Immutable,
            Arc::new(contains),
        )),
    ]
}

fn read(text: &str) -> Result<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => {
            // Our own reader words the error as PostgreSQL does; where it has none, serde's stands.
            json_normalized(text, "jsonb")?;
            Err(crate::types::parse::invalid("jsonb", text)
                .with_detail(error.to_string())
                .into())
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Containment: an object holds one whose members it has, an array one whose elements it has in any order, and an array
/// also a bare scalar that is an element.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part))),
        (Value::Array(whole), Value::Array(part)) => part
            .iter()
            .all(|part| whole.iter().any(|whole| holds(whole, part))),
        (Value::Array(whole), scalar) if !scalar.is_object() => whole.contains(scalar),
        (whole, part) => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containment_is_postgresqls() {
        let cases = [
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[2]}"#, true),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
            ("[1,2,3]", "[3,1]", true),
            ("[1,2]", "1", true),
            ("1", "[1]", false),
            (r#"[{"a":1}]"#, r#"{"a":1}"#, false),
        ];
        for (whole, part, expected) in cases {
            assert_eq!(
                holds(&read(whole).unwrap(), &read(part).unwrap()),
                expected,
                "{whole} @> {part}"
            );
        }
    }
}
