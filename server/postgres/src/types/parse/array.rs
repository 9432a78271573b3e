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
    let mut current = String::new();
    let mut quoted = false;
    let mut in_quotes = false;
    let mut depth = 0_usize;
    let mut characters = body.chars();
    loop {
        let next = characters.next();
        match next {
            Some('\\') => {
                if depth > 0 {
                    current.push('\\');
                } else {
                    quoted = true;
                }
                current.push(characters.next().ok_or_else(|| bad("Unexpected end of input."))?);
            }
            Some('"') => {
                in_quotes = !in_quotes;
                if depth > 0 {
                    current.push('"');
                } else {
                    if in_quotes && !quoted && !current.trim().is_empty() {
                        return Err(bad("Incorrectly quoted array element."));
                    }
                    if in_quotes && !quoted {
                        current.clear();
                    }
                    quoted = true;
                }
            }
            Some(character) if in_quotes => current.push(character),
            Some('{') if nested => {
                depth += 1;
                current.push('{');
            }
            Some('}') if depth > 0 => {
                depth -= 1;
                current.push('}');
            }
            Some('{' | '}') => return Err(bad("Unexpected brace.")),
            Some(',') | None if depth == 0 => {
                if in_quotes {
                    return Err(bad("Unexpected end of input."));
                }
                let element = if quoted {
                    std::mem::take(&mut current)
                } else {
                    current.trim().to_string()
                };
                if element.is_empty() && !quoted {
                    return Err(bad("Unexpected \",\" or \"}\"."));
                }
                let null = !quoted && element.eq_ignore_ascii_case("null");
                elements.push((!null).then_some(element));
                current.clear();
                quoted = false;
                if next.is_none() {
                    return Ok(());
                }
            }
            // White space between a quoted element and the comma after it.
            Some(character) if quoted && depth == 0 && character.is_whitespace() => {}
            Some(character) => current.push(character),
            None => return Err(bad("Unexpected end of input.")),
        }
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
