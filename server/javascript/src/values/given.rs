//! Arguments: a column, row by row, as JavaScript's values.

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{
    DataType, Date32Type, Field, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use datafusion::error::Result as DfResult;
use millrace_functions::cast;
use millrace_postgres::types::json::{self, Node};
use rquickjs::{Array as JsArray, Ctx, Function, Object, String as JsString, TypedArray, Value};

use super::Kind;

const DAY_MS: f64 = 86_400_000.0;
/// Digits of numbers that a double always holds.
const SAFE_DIGITS: usize = 15;
const SAFE_MAX: u64 = 1 << 53;

/// A column of arguments.
pub struct Given {
    kind: Kind,
    array: ArrayRef,
    /// Of a type that goes by its text.
    texts: Option<StringArray>,
    /// The elements of an array; the columns of a record.
    inner: Vec<Given>,
    names: Vec<String>,
}

impl Given {
    /// A column of this type.
    ///
    /// # Errors
    /// The type has no text form.
    pub fn new(field: &Field, array: &ArrayRef) -> DfResult<Given> {
        let kind = Kind::of(field);
        let (mut inner, mut names, mut texts) = (vec![], vec![], None);
        match &kind {
            Kind::List(_, item) => inner.push(Given::new(item, array.as_list::<i32>().values())?),
            Kind::Record(fields) => {
                for ((_, field), column) in fields.iter().zip(array.as_struct().columns()) {
                    inner.push(Given::new(field, column)?);
                    names.push(field.name().clone());
                }
            }
            Kind::Other => texts = Some(cast::to_text(field, array)?),
            _ => {}
        }
        Ok(Given {
            kind,
            array: array.clone(),
            texts,
            inner,
            names,
        })
    }

    /// Whether a row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// The value of a row.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn value<'js>(
        &self,
        ctx: &Ctx<'js>,
        helpers: &Object<'js>,
        row: usize,
    ) -> rquickjs::Result<Value<'js>> {
        let array = &self.array;
        if array.is_null(row) {
            return Ok(Value::new_null(ctx.clone()));
        }
        let number = |value: f64| Ok(Value::new_number(ctx.clone(), value));
        let text = |text: &str| Ok(JsString::from_str(ctx.clone(), text)?.into_value());
        let date = |ms: f64| helpers.get::<_, Function>("date")?.call((ms,));
        match &self.kind {
            Kind::Boolean => Ok(Value::new_bool(ctx.clone(), array.as_boolean().value(row))),
            Kind::Integer(..) => number(match array.data_type() {
                DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
                _ => array.as_primitive::<Int32Type>().value(row).into(),
            }),
            Kind::Big => Value::new_big_int(ctx.clone(), array.as_primitive::<Int64Type>().value(row)),
            Kind::Float => number(match array.data_type() {
                DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
                _ => array.as_primitive::<Float64Type>().value(row),
            }),
            Kind::Text => text(array.as_string::<i32>().value(row)),
            Kind::Json => document(ctx, helpers, array.as_string::<i32>().value(row)),
            Kind::Bytes => {
                let bytes = array.as_binary::<i32>().value(row);
                Ok(TypedArray::<u8>::new_copy(ctx.clone(), bytes)?.into_value())
            }
            Kind::Date => date(f64::from(array.as_primitive::<Date32Type>().value(row)) * DAY_MS),
            Kind::Timestamp => {
                let us = array.as_primitive::<TimestampMicrosecondType>().value(row);
                date(us.div_euclid(1_000) as f64)
            }
            Kind::List(..) => {
                let offsets = array.as_list::<i32>().value_offsets();
                let made = JsArray::new(ctx.clone())?;
                for (place, at) in (offsets[row]..offsets[row + 1]).enumerate() {
                    made.set(place, self.inner[0].value(ctx, helpers, at as usize)?)?;
                }
                Ok(made.into_value())
            }
            Kind::Record(_) => {
                let made = Object::new(ctx.clone())?;
                for (name, column) in self.names.iter().zip(&self.inner) {
                    made.set(name, column.value(ctx, helpers, row)?)?;
                }
                Ok(made.into_value())
            }
            Kind::Other => match &self.texts {
                Some(texts) => text(texts.value(row)),
                None => Ok(Value::new_null(ctx.clone())),
            },
        }
    }
}

/// A document of json or jsonb.
fn document<'js>(ctx: &Ctx<'js>, helpers: &Object<'js>, text: &str) -> rquickjs::Result<Value<'js>> {
    let mut digits = 0;
    let is_long = text.bytes().any(|byte| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits > SAFE_DIGITS
    });
    if is_long && let Ok(node) = json::parse(text) {
        return from_node(ctx, helpers, &node);
    }
    ctx.json_parse(text)
}

fn from_node<'js>(ctx: &Ctx<'js>, helpers: &Object<'js>, node: &Node<'_>) -> rquickjs::Result<Value<'js>> {
    match node {
        Node::Plain(text) => {
            let is_whole = text
                .strip_prefix('-')
                .unwrap_or(text)
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            let is_large = text
                .strip_prefix('-')
                .unwrap_or(text)
                .parse::<u64>()
                .map_or(true, |value| value > SAFE_MAX);
            match is_whole && is_large {
                true => helpers.get::<_, Function>("big")?.call((text.as_ref(),)),
                false => ctx.json_parse(text.as_ref()),
            }
        }
        Node::Text(text) => Ok(JsString::from_str(ctx.clone(), text)?.into_value()),
        Node::Array(items) => {
            let made = JsArray::new(ctx.clone())?;
            for (place, item) in items.iter().enumerate() {
                made.set(place, from_node(ctx, helpers, item)?)?;
            }
            Ok(made.into_value())
        }
        Node::Object(members) => {
            let made = Object::new(ctx.clone())?;
            for (name, member) in members {
                made.set(name, from_node(ctx, helpers, member)?)?;
            }
            Ok(made.into_value())
        }
    }
}
