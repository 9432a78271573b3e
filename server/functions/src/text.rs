//! Functions of texts that DataFusion has not, or whose values it writes otherwise than PostgreSQL: `format`, `concat`,
//! `concat_ws`, `quote_literal`, `quote_nullable`, `to_hex`, `like_escape`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;

use crate::bounded::{Budget, may_be_as_large};
use crate::cast;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Format,
    Concat,
    ConcatWithSeparator,
    QuoteLiteral,
    QuoteNullable,
    ToHex,
    LikeEscape,
}

/// What makes a pattern of LIKE with a backslash of one with another escape character.
pub const LIKE_ESCAPE: &str = "like_escape";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Text {
    function: Function,
    name: &'static str,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [
        (Function::Format, "format", TypeSignature::VariadicAny),
        (Function::Concat, "concat", TypeSignature::VariadicAny),
        (
            Function::ConcatWithSeparator,
            "concat_ws",
            TypeSignature::VariadicAny,
        ),
        (Function::ToHex, "to_hex", TypeSignature::Any(1)),
        (Function::LikeEscape, LIKE_ESCAPE, TypeSignature::Any(2)),
        (Function::QuoteLiteral, "quote_literal", TypeSignature::Any(1)),
        (Function::QuoteNullable, "quote_nullable", TypeSignature::Any(1)),
    ]
    .into_iter()
    .map(|(function, name, arguments)| {
        Arc::new(ScalarUDF::from(Text {
            function,
            name,
            signature: Signature::new(arguments, Volatility::Immutable),
        }))
    })
    .collect()
}

impl ScalarUDFImpl for Text {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match (self.function, arg_types) {
            (Function::ToHex, [given]) if !given.is_integer() && given != &DataType::Null => {
                let name = types::plain_name(&Field::new("", given.clone(), true));
                Err(SqlError::new(
                    SqlState::UndefinedFunction,
                    format!("function to_hex({name}) does not exist"),
                )
                .with_hint("You might need to add explicit type casts.")
                .into())
            }
            _ => Ok(DataType::Utf8),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let out: ArrayRef = match (self.function, arrays.first()) {
            (_, None) => {
                return Err(SqlError::new(
                    SqlState::UndefinedFunction,
                    format!("function {}() does not exist", self.name),
                )
                .into());
            }
            (Function::ToHex, Some(values)) => Arc::new(hexadecimal(values)?),
            (function, Some(_)) => {
                let texts = arrays
                    .iter()
                    .zip(&args.arg_fields)
                    .map(|(array, field)| match array.data_type() {
                        DataType::Null => Ok(StringArray::new_null(array.len())),
                        DataType::Boolean
                            if !matches!(function, Function::QuoteLiteral | Function::QuoteNullable) =>
                        {
                            letters(array)
                        }
                        _ => cast::to_text(field, array),
                    })
                    .collect::<Result<Vec<_>>>()?;
                let rows = texts[0].len();
                let mut budget = Budget::new(self.name);
                let out = (0..rows)
                    .map(|row| {
                        let row: Vec<Option<&str>> = texts
                            .iter()
                            .map(|column| column.is_valid(row).then(|| column.value(row)))
                            .collect();
                        let value = match function {
                            Function::Format => match row[0] {
                                Some(pattern) => Some(format(pattern, &row[1..])?),
                                None => None,
                            },
                            Function::Concat => Some(row.iter().flatten().copied().collect()),
                            Function::LikeEscape => match (row[0], row[1]) {
                                (Some(pattern), Some(escape)) => Some(like_escape(pattern, escape)?),
                                _ => None,
                            },
                            // NULLs are left out, separators and all.
                            Function::ConcatWithSeparator => row[0].map(|separator| {
                                let texts: Vec<&str> = row[1..].iter().flatten().copied().collect();
                                texts.join(separator)
                            }),
                            Function::QuoteNullable => Some(row[0].map_or("NULL".into(), literal)),
                            _ => row[0].map(literal),
                        };
                        budget.add(value.as_ref().map_or(0, String::len))?;
                        Ok(value)
                    })
                    .collect::<Result<StringArray>>()?;
                Arc::new(out)
            }
        };
        if scalar {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?))
        } else {
            Ok(ColumnarValue::Array(out))
        }
    }
}

/// Two's complement with as many digits as the type has.
fn hexadecimal(values: &ArrayRef) -> Result<StringArray> {
    let is_wide = values.data_type() == &DataType::Int64;
    let values = arrow::compute::cast(values, &DataType::Int64)?;
    Ok(values
        .as_primitive::<Int64Type>()
        .iter()
        .map(|value| {
            value.map(|value| match i32::try_from(value) {
                Ok(narrow) if !is_wide => format!("{narrow:x}"),
                _ => format!("{value:x}"),
            })
        })
        .collect())
}

fn letters(array: &ArrayRef) -> Result<StringArray> {
    let letter = |value: bool| if value { "t" } else { "f" };
    Ok(array.as_boolean().iter().map(|value| value.map(letter)).collect())
}

/// A text as an SQL literal.
fn literal(text: &str) -> String {
    let quotes = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quotes.replace('\\', "\\\\"))
    } else {
        format!("'{quotes}'")
    }
}

fn bad(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

/// A whole number at the beginning of a text, and what follows.
fn leading_number(text: &str) -> (Option<usize>, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (text[..end].parse().ok(), &text[end..])
}

/// `format`: `%s`, `%I`, `%L`, `%%`, with a position (`%2$s`) and a width (`%-10s`, `%*s`).
fn format(pattern: &str, values: &[Option<&str>]) -> SqlResult<String> {
    let mut out = String::new();
    let mut rest = pattern;
    let mut next = 0;
    let take = |position: usize| {
        values
            .get(position)
            .copied()
            .ok_or_else(|| bad("too few arguments for format()"))
    };
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut position = None;
        if let (Some(number), after) = leading_number(rest)
            && let Some(after) = after.strip_prefix('$')
        {
            if number == 0 {
                return Err(bad(
                    "format specifies argument 0, but arguments are numbered from 1",
                ));
            }
            position = Some(number - 1);
            rest = after;
        }
        let mut left = false;
        while let Some(after) = rest.strip_prefix('-') {
            left = true;
            rest = after;
        }
        let mut width = 0;
        if let Some(after) = rest.strip_prefix('*') {
            let given: i64 = match take(next)? {
                Some(text) => text
                    .parse()
                    .map_err(|_| bad("a width of format() is an integer"))?,
                None => 0,
            };
            next += 1;
            left |= given < 0;
            width = usize::try_from(given.unsigned_abs()).unwrap_or(usize::MAX);
            rest = after;
        } else if let (Some(number), after) = leading_number(rest) {
            width = number;
            rest = after;
        }
        const WIDTH_MAX: usize = 1 << 24;
        if width > WIDTH_MAX {
            return Err(bad("number is out of range"));
        }
        let Some(kind) = rest.chars().next() else {
            return Err(
                bad("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".")
            );
        };
        rest = &rest[kind.len_utf8()..];
        let value = take(position.unwrap_or(next))?;
        next = position.unwrap_or(next) + 1;
        let text = match (kind, value) {
            ('s', value) => Cow::Borrowed(value.unwrap_or_default()),
            ('L', value) => value.map_or("NULL".into(), |value| literal(value).into()),
            ('I', Some(value)) => quote_identifier(value).to_string().into(),
            ('I', None) => {
                return Err(SqlError::new(
                    SqlState::NullValueNotAllowed,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            (other, _) => {
                return Err(bad(format!("unrecognized format() type specifier \"{other}\""))
                    .with_hint("For a single \"%\" use \"%%\"."));
            }
        };
        let padding = width.saturating_sub(text.chars().count());
        may_be_as_large(
            "format",
            out.len().saturating_add(text.len()).saturating_add(padding),
        )?;
        let padding = " ".repeat(padding);
        if left {
            out.push_str(&text);
            out.push_str(&padding);
        } else {
            out.push_str(&padding);
            out.push_str(&text);
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// The pattern with backslashes where it has the escape character; without one, none of its characters is special but the two.
fn like_escape(pattern: &str, escape: &str) -> SqlResult<String> {
    let mut characters = escape.chars();
    let (escape, None) = (characters.next(), characters.next()) else {
        return Err(
            SqlError::new(SqlState::InvalidEscapeSequence, "invalid escape string")
                .with_hint("Escape string must be empty or one character."),
        );
    };
    let mut out = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for character in pattern.chars() {
        match character {
            _ if Some(character) == escape && !is_escaped => {
                out.push('\\');
                is_escaped = true;
                continue;
            }
            '\\' if !is_escaped => out.push_str("\\\\"),
            other => out.push(other),
        }
        is_escaped = false;
    }
    if is_escaped {
        return Err(SqlError::new(
            SqlState::InvalidEscapeSequence,
            "LIKE pattern must not end with escape character",
        ));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_filled_in() {
        let run = |pattern: &str, values: &[Option<&str>]| format(pattern, values);
        assert_eq!(run("%s has %s", &[Some("a"), Some("2")]).unwrap(), "a has 2");
        assert_eq!(run("%2$s %1$s", &[Some("a"), Some("b")]).unwrap(), "b a");
        assert_eq!(
            run("%I %L %%", &[Some("A b"), Some("it's")]).unwrap(),
            "\"A b\" 'it''s' %"
        );
        assert_eq!(run("%5s|%-5s|", &[Some("a"), Some("b")]).unwrap(), "    a|b    |");
        assert_eq!(run("%*s", &[Some("3"), None]).unwrap(), "   ");
        assert_eq!(run("%L", &[None]).unwrap(), "NULL");
        // Each value may be asked for again and again.
        let long = "x".repeat(1 << 20);
        let error = run(&"%1$s".repeat(300), &[Some(&long)]).unwrap_err();
        assert_eq!(error.code.code(), "54000");
        let error = run(&"%16000000s".repeat(20), &vec![Some(""); 20]).unwrap_err();
        assert_eq!(error.code.code(), "54000");
        for pattern in ["%s %s", "%", "%0$s", "%y"] {
            assert!(run(pattern, &[Some("a")]).is_err(), "{pattern}");
        }
        assert_eq!(run("%I", &[None]).unwrap_err().code.code(), "22004");
    }

    #[test]
    fn hexadecimal_digits_are_those_of_the_type() {
        let narrow: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![-1, 255]));
        assert_eq!(
            hexadecimal(&narrow).unwrap(),
            StringArray::from(vec!["ffffffff", "ff"])
        );
        let wide: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![-1]));
        assert_eq!(
            hexadecimal(&wide).unwrap(),
            StringArray::from(vec!["ffffffffffffffff"])
        );
    }

    #[test]
    fn literals_are_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
