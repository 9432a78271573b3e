//! Text input of arrays: `{1, 2, NULL}`, `{"a b", c\,d}`, `{{1,2},{3,4}}`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use millrace_sql::complexity::DIMENSIONS_MAX;

use crate::error::input::invalid;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::parse::CellError;
use crate::types::type_name;

/// Converts a column of array texts whose elements are `item`; `element` is the same with all that is known of it.
///
/// # Errors
/// The first row that is not an array of that type.
pub fn column(item: &FieldRef, element: &Field, texts: &StringArray) -> Result<ArrayRef, CellError> {
    let mut elements: Vec<Option<String>> = vec![];
    let mut lengths = Vec::with_capacity(texts.len());
    let mut row_of_element = vec![];
    for (row, text) in texts.iter().enumerate() {
        let before = elements.len();
        if let Some(text) = text {
            split(text, item, &mut elements).map_err(|error| CellError::new(row, error))?;
            row_of_element.resize(elements.len(), row);
        }
        lengths.push(elements.len() - before);
    }
    let values = super::column(element, &StringArray::from(elements)).map_err(|cell| CellError {
        row: row_of_element.get(cell.row).copied().unwrap_or(0),
        error: cell.error,
    })?;
    if let Some(inner) = values.as_any().downcast_ref::<ListArray>() {
        check_lengths(inner, &row_of_element)?;
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls: Option<NullBuffer> = texts.nulls().cloned();
    let list = ListArray::try_new(Arc::clone(item), offsets, values, nulls)
        .map_err(|error| CellError::new(0, SqlError::internal(format!("array input: {error}"))))?;
    Ok(Arc::new(list))
}

/// How many dimensions the text of an array has, by the braces that it begins with; at least one, and of too many
/// ([`DIMENSIONS_MAX`]) one too many.
pub fn dimensions(text: &str) -> usize {
    let braces = text.chars().filter(|character| !character.is_whitespace());
    let braces = braces
        .take_while(|character| *character == '{')
        .take(DIMENSIONS_MAX + 1);
    braces.count().max(1)
}

fn ragged() -> SqlError {
    SqlError::new(SqlState::InvalidTextRepresentation, "malformed array literal").with_detail(
        "Multidimensional arrays must have sub-arrays with matching dimensions, and elements in them.",
    )
}

/// Refuses rows whose arrays have elements of different lengths: a dimension has one length.
fn check_lengths(inner: &ListArray, row_of_element: &[usize]) -> Result<(), CellError> {
    let mut first: Option<(usize, i32)> = None;
    for (element, row) in row_of_element.iter().enumerate() {
        let length = inner.value_length(element);
        match first {
            Some((known, before)) if known == *row => {
                if before != length || inner.is_null(element) {
                    return Err(CellError::new(*row, ragged()));
                }
            }
            _ if length == 0 => return Err(CellError::new(*row, ragged())),
            _ => first = Some((*row, length)),
        }
    }
    Ok(())
}

/// The elements of an array of texts; a NULL among them is left out.
///
/// # Errors
/// The text is not an array.
pub fn texts(text: &str) -> SqlResult<Vec<String>> {
    Ok(elements(text)?.into_iter().flatten().collect())
}

/// The elements of an array as texts, `None` for NULL.
///
/// # Errors
/// The text is not an array.
pub fn elements(text: &str) -> SqlResult<Vec<Option<String>>> {
    let mut elements = vec![];
    let item: FieldRef = Arc::new(Field::new("item", DataType::Utf8, true));
    split(text, &item, &mut elements)?;
    Ok(elements)
}

/// Appends the texts of an array's elements. An element of a nested array is the text of the inner array.
fn split(text: &str, item: &FieldRef, elements: &mut Vec<Option<String>>) -> SqlResult<()> {
    let bad = |detail: &str| invalid(&format!("{}[]", type_name(item)), text).with_detail(detail.to_string());
    let body = text
        .trim()
        .strip_prefix('{')
        .ok_or_else(|| bad("Array value must start with \"{\"."))?
        .strip_suffix('}')
        .ok_or_else(|| bad("Unexpected end of input."))?;
    let nested = matches!(item.data_type(), DataType::List(_));
    if body.trim().is_empty() {
        return Ok(());
    }
    let junk = || bad("Unexpected array element.");
    let mut element = Element::default();
    let mut in_quotes = false;
    let mut depth = 0_usize;
    let mut characters = body.chars();
    loop {
        let next = characters.next();
        match next {
            Some('\\') => {
                if depth > 0 {
                    element.text.push('\\');
                } else if !in_quotes && element.is_quoted {
                    return Err(junk());
                }
                let escaped = characters.next().ok_or_else(|| bad("Unexpected end of input."))?;
                element.push(escaped);
                element.is_escaped = true;
            }
            Some('"') if depth > 0 => {
                in_quotes = !in_quotes;
                element.push('"');
            }
            Some('"') if in_quotes => in_quotes = false,
            Some('"') => {
                if element.is_quoted || !element.text.is_empty() {
                    return Err(junk());
                }
                (element.is_quoted, in_quotes) = (true, true);
            }
            Some(character) if in_quotes => element.push(character),
            Some('{') if nested => {
                depth += 1;
                element.push('{');
            }
            Some('}') if depth > 0 => {
                depth -= 1;
                element.push('}');
            }
            Some('{' | '}') => return Err(bad("Unexpected brace.")),
            Some(',') | None if depth == 0 => {
                if in_quotes {
                    return Err(bad("Unexpected end of input."));
                }
                let value = std::mem::take(&mut element).value();
                elements.push(value.ok_or_else(|| bad("Unexpected \",\" or \"}\"."))?);
                if next.is_none() {
                    return Ok(());
                }
            }
            Some(character) if depth == 0 && character.is_whitespace() => element.space(character),
            Some(_) if depth == 0 && element.is_quoted => return Err(junk()),
            Some(character) => element.push(character),
            None => return Err(bad("Unexpected end of input.")),
        }
    }
}

/// An element that is read.
#[derive(Debug, Default)]
struct Element {
    text: String,
    /// The length of the text without white space at its end, unless that is quoted or escaped.
    length: usize,
    is_quoted: bool,
    is_escaped: bool,
}

impl Element {
    fn push(&mut self, character: char) {
        self.text.push(character);
        self.length = self.text.len();
    }

    /// White space outside of quotes, which counts between other characters.
    fn space(&mut self, character: char) {
        if !self.is_quoted && !self.text.is_empty() {
            self.text.push(character);
        }
    }

    /// Its text, or NULL; `None`: there is none.
    fn value(mut self) -> Option<Option<String>> {
        self.text.truncate(self.length);
        if self.text.is_empty() && !self.is_quoted {
            return None;
        }
        let is_null = !self.is_quoted && !self.is_escaped && self.text.eq_ignore_ascii_case("null");
        Some((!is_null).then_some(self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Int32Type};

    fn texts(text: &str) -> SqlResult<Vec<Option<String>>> {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let mut elements = vec![];
        split(text, &item, &mut elements).map(|()| elements)
    }

    #[test]
    fn elements_are_split_and_unquoted() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(texts("{}").unwrap(), vec![]);
        assert_eq!(
            texts("{a, b c ,NULL}").unwrap(),
            vec![some("a"), some("b c"), None]
        );
        assert_eq!(
            texts(r"{ ab\c , \x, b\  ,\null }").unwrap(),
            vec![some("abc"), some("x"), some("b "), some("null")]
        );
        for wrong in [r#"{"1 2" x,3}"#, r#"{a"b"}"#, r#"{"a"\b}"#, r#"{"a""b"}"#] {
            assert!(texts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            texts(r#"{"a,b","q\"q", "NULL" ,x\,y}"#).unwrap(),
            vec![some("a,b"), some("q\"q"), some("NULL"), some("x,y")]
        );
        assert_eq!(texts(r#"{""}"#).unwrap(), vec![some("")]);
    }

    #[test]
    fn dimensions_have_one_length() {
        assert_eq!(dimensions(" {{1,2}}"), 2);
        assert_eq!(dimensions("{\"{\"}"), 1);
        assert_eq!(dimensions("x"), 1);
        let inner = Arc::new(Field::new_list_field(DataType::Int32, true));
        let item = Arc::new(Field::new_list_field(DataType::List(inner), true));
        let read = |text: &str| column(&item, &item, &StringArray::from(vec![Some("{}"), Some(text)]));
        assert!(read("{{1,2},{3,4}}").is_ok());
        for text in ["{{1,2},{3}}", "{{}}", "{{1},NULL}", "{1}"] {
            assert_eq!(read(text).unwrap_err().row, 1, "{text}");
        }
    }

    #[test]
    fn broken_arrays_are_refused() {
        for text in ["", "1,2", "{1", "{1,}", "{,}", "{\"a}", "{{1}}", "{a\\"] {
            assert!(texts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_in_an_element_names_its_row() {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let good = column(
            &item,
            &item,
            &StringArray::from(vec![Some("{1,2}"), None, Some("{}")]),
        )
        .unwrap();
        let list = good.as_list::<i32>();
        assert_eq!(list.value(0).as_primitive::<Int32Type>().values(), &[1, 2]);
        assert!(list.is_null(1));
        let error = column(
            &item,
            &item,
            &StringArray::from(vec![Some("{1,2}"), Some("{3,x}")]),
        )
        .unwrap_err();
        assert_eq!(error.row, 1);
    }
}
