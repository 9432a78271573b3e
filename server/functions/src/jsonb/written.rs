//! Values of any type as JSON.

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::datatypes::{DataType, Field};
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::output::TextColumn;
use millrace_postgres::types::{ANNOTATION, json};

/// A column of any type whose values are written as JSON.
pub(super) struct JsonColumn {
    pub texts: TextColumn,
    form: JsonForm,
}

enum JsonForm {
    /// The text is JSON: booleans aside, numbers and jsonb.
    Plain,
    Boolean,
    /// A string.
    Quoted,
    /// A string in which the `T` stands between date and time, and the zone has its minutes.
    Instant {
        zoned: bool,
    },
    List(ListArray, Box<JsonColumn>),
    /// The members with their names.
    Row(Vec<(String, JsonColumn)>),
}

impl JsonColumn {
    /// # Errors
    /// Values of the type are not written.
    pub fn new(field: &Field, array: &ArrayRef) -> SqlResult<Self> {
        let is_json = field
            .metadata()
            .get(ANNOTATION)
            .is_some_and(|name| name == "json" || name == "jsonb");
        let form = match array.data_type() {
            DataType::Boolean => JsonForm::Boolean,
            DataType::Utf8 if is_json => JsonForm::Plain,
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                JsonForm::List(list.clone(), Box::new(JsonColumn::new(item, list.values())?))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns()).enumerate();
                let members = columns.map(|(index, (field, column))| {
                    // The values of ROW(..) have no names.
                    let name = match field.name() {
                        name if *name == format!("c{index}") => format!("f{}", index + 1),
                        name => name.clone(),
                    };
                    Ok((name, JsonColumn::new(field, column)?))
                });
                JsonForm::Row(members.collect::<SqlResult<Vec<_>>>()?)
            }
            number if number.is_numeric() => JsonForm::Plain,
            DataType::Timestamp(_, zone) => JsonForm::Instant {
                zoned: zone.is_some(),
            },
            _ => JsonForm::Quoted,
        };
        Ok(JsonColumn {
            texts: TextColumn::new(field, array)?,
            form,
        })
    }

    /// The value of a row.
    ///
    /// # Errors
    /// It is not written.
    pub fn json(&self, row: usize) -> SqlResult<String> {
        if self.texts.is_null(row) {
            return Ok("null".to_string());
        }
        if let JsonForm::List(list, items) = &self.form {
            let offsets = list.offsets();
            let (start, end) = (offsets[row], offsets[row + 1]);
            let items = (start..end)
                .map(|index| items.json(usize::try_from(index).unwrap_or_default()))
                .collect::<SqlResult<Vec<_>>>()?;
            return Ok(format!("[{}]", items.join(", ")));
        }
        if let JsonForm::Row(members) = &self.form {
            let mut out = String::from("{");
            for (index, (name, column)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                json::quote(name, &mut out);
                out.push_str(": ");
                out.push_str(&column.json(row)?);
            }
            out.push('}');
            return Ok(out);
        }
        let mut text = vec![];
        self.texts.write(row, &mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let quoted = |text: &str| {
            let mut out = String::new();
            json::quote(text, &mut out);
            out
        };
        Ok(match self.form {
            JsonForm::Boolean => if text == "t" { "true" } else { "false" }.to_string(),
            // NaN and the infinities are strings in JSON.
            JsonForm::Plain if text.ends_with(['N', 'y']) => quoted(&text),
            JsonForm::Plain => text,
            JsonForm::Instant { zoned } => {
                let mut text = text.replacen(' ', "T", 1);
                if zoned
                    && text
                        .as_bytes()
                        .iter()
                        .rev()
                        .nth(2)
                        .is_some_and(|byte| matches!(byte, b'+' | b'-'))
                {
                    text.push_str(":00");
                }
                quoted(&text)
            }
            _ => quoted(&text),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::BooleanArray;

    use super::*;

    #[test]
    fn values_of_any_type_become_json() {
        let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
        let column = JsonColumn::new(&Field::new("b", DataType::Boolean, true), &booleans).unwrap();
        assert_eq!(column.json(0).unwrap(), "true");
        assert_eq!(column.json(1).unwrap(), "null");
        let floats: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![1.5, f64::NAN]));
        let column = JsonColumn::new(&Field::new("f", DataType::Float64, true), &floats).unwrap();
        assert_eq!(column.json(0).unwrap(), "1.5");
        assert_eq!(column.json(1).unwrap(), "\"NaN\"");
    }
}
