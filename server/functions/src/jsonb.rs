//! The functions over json and jsonb, among them those that stand for the operators.
//!
//! Each is a row of `FUNCTIONS`: its name, its result, and what it does with the values of one row. What it does to a
//! single value is in [`value`].

mod cell;
mod changed;
mod path;
pub mod value;
mod written;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Int32Array, Int64Array, ListArray, StringArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::json::Node;
use millrace_postgres::types::{ANNOTATION, SqlType};

use self::cell::{Cell, document, items, nodes, read, refused, step, steps, text, texts};
use self::path::Query;
use self::value::Put;
use self::written::JsonColumn;
use crate::arguments::on_arrays;
use crate::bounded::{Budget, work};
use crate::cast as pg_cast;
use crate::names;

/// What comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// The type of the first argument: json of json, else jsonb.
    Same,
    Jsonb,
    Text,
    Boolean,
    Integer,
    /// Bytes that compare as the values do.
    Key,
    Texts,
}

/// How the arguments come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// As they are; a NULL among them makes the result NULL.
    Strict,
    /// The same, with the NULLs among the elements of arrays.
    StrictWithNulls,
    /// As they are, with all NULLs.
    WithNulls,
    /// Values of any type, as JSON; a NULL is JSON's null.
    Any,
    /// Values of any type, as JSON; a NULL makes the result NULL.
    AnyStrict,
}

/// The result of one row.
enum Out {
    Null,
    Text(String),
    Boolean(bool),
    Integer(usize),
    Key(Vec<u8>),
    Texts(Vec<Option<String>>),
}

impl Out {
    fn bytes(&self) -> usize {
        match self {
            Out::Null | Out::Boolean(_) | Out::Integer(_) => 0,
            Out::Text(text) => text.len(),
            Out::Key(key) => key.len(),
            Out::Texts(texts) => texts
                .iter()
                .map(|text| size_of::<Option<String>>() + text.as_ref().map_or(0, String::len))
                .sum(),
        }
    }
}

type Apply = fn(&[Cell<'_>]) -> SqlResult<Out>;

struct Definition {
    name: &'static str,
    /// The least and the greatest number of arguments.
    arguments: (usize, usize),
    input: Input,
    output: Output,
    apply: Apply,
}

/// Keys and values of as many columns as a relation may have.
const MANY: usize = 3_200;

const fn strict(name: &'static str, arguments: (usize, usize), output: Output, apply: Apply) -> Definition {
    Definition {
        name,
        arguments,
        input: Input::Strict,
        output,
        apply,
    }
}

const fn with_nulls(
    name: &'static str,
    arguments: (usize, usize),
    output: Output,
    apply: Apply,
) -> Definition {
    Definition {
        input: Input::StrictWithNulls,
        ..strict(name, arguments, output, apply)
    }
}

const fn any(name: &'static str, arguments: (usize, usize), apply: Apply) -> Definition {
    Definition {
        name,
        arguments,
        input: Input::Any,
        output: Output::Jsonb,
        apply,
    }
}

/// The name of the function whose results compare as its arguments do.
pub const SORT_KEY: &str = "jsonb_sort_key";
/// The name of what `SET j[..] = v` makes of a document: `jsonb_with_subscripts(j, v, ..)`.
pub(crate) const WITH_SUBSCRIPTS: &str = "jsonb_with_subscripts";
/// The name of the function that gives what a path leads to, as an array.
pub const PATH_ITEMS: &str = "jsonb_path_items";

static FUNCTIONS: &[Definition] = &[
    strict("jsonb_get", (2, 2), Output::Same, |cells| {
        let node = document(cells)?;
        Ok(step(&node, &cells[1])?.map_or(Out::Null, |node| Out::Text(node.written())))
    }),
    strict("jsonb_get_text", (2, 2), Output::Text, |cells| {
        let node = document(cells)?;
        Ok(text_or_null(step(&node, &cells[1])?))
    }),
    with_nulls("jsonb_path", (2, 2), Output::Same, |cells| {
        let node = document(cells)?;
        Ok(changed::found(&node, &cells[1])?.map_or(Out::Null, |node| Out::Text(node.written())))
    }),
    with_nulls("jsonb_path_text", (2, 2), Output::Text, |cells| {
        let node = document(cells)?;
        Ok(text_or_null(changed::found(&node, &cells[1])?))
    }),
    strict("jsonb_extract_path", (1, MANY), Output::Same, |cells| {
        let node = document(cells)?;
        Ok(value::at_path(&node, &steps(&cells[1..])?).map_or(Out::Null, |node| Out::Text(node.written())))
    }),
    strict("jsonb_extract_path_text", (1, MANY), Output::Text, |cells| {
        let node = document(cells)?;
        Ok(text_or_null(value::at_path(&node, &steps(&cells[1..])?)))
    }),
    strict("jsonb_contains", (2, 2), Output::Boolean, |cells| {
        let (whole, part) = (document(cells)?, document(&cells[1..])?);
        Ok(Out::Boolean(value::contains(&whole, &part)?))
    }),
    strict("jsonb_exists", (2, 2), Output::Boolean, |cells| {
        Ok(Out::Boolean(value::has(&document(cells)?, text(&cells[1])?)))
    }),
    strict("jsonb_exists_any", (2, 2), Output::Boolean, |cells| {
        let node = document(cells)?;
        let keys = texts(&cells[1])?;
        may_search(&node, keys)?;
        let found = keys.iter().any(|key| value::has(&node, key));
        Ok(Out::Boolean(found))
    }),
    strict("jsonb_exists_all", (2, 2), Output::Boolean, |cells| {
        let node = document(cells)?;
        let keys = texts(&cells[1])?;
        may_search(&node, keys)?;
        let found = keys.iter().all(|key| value::has(&node, key));
        Ok(Out::Boolean(found))
    }),
    strict("jsonb_concat", (2, 2), Output::Jsonb, |cells| {
        let (left, right) = (document(cells)?, document(&cells[1..])?);
        Ok(Out::Text(value::concat(left, right).written()))
    }),
    strict("jsonb_delete", (2, 2), Output::Jsonb, |cells| {
        let node = document(cells)?;
        let node = match &cells[1] {
            Cell::Integer(index) => value::without_index(node, *index)?,
            Cell::Texts(keys) => {
                may_search(&node, keys)?;
                keys.iter()
                    .try_fold(node, |node, key| value::without_key(node, key))?
            }
            key => value::without_key(node, text(key)?)?,
        };
        Ok(Out::Text(node.written()))
    }),
    with_nulls("jsonb_delete_path", (2, 2), Output::Jsonb, changed::without),
    with_nulls("jsonb_set", (3, 4), Output::Jsonb, |cells| {
        let create = !matches!(cells.get(3), Some(Cell::Boolean(false)));
        changed::with_path(cells, if create { Put::Always } else { Put::There })
    }),
    Definition {
        input: Input::WithNulls,
        ..strict("jsonb_set_lax", (3, 5), Output::Jsonb, changed::set_lax)
    },
    Definition {
        input: Input::WithNulls,
        ..strict(
            WITH_SUBSCRIPTS,
            (3, MANY),
            Output::Jsonb,
            changed::with_subscripts,
        )
    },
    with_nulls("jsonb_insert", (3, 4), Output::Jsonb, |cells| {
        let after = matches!(cells.get(3), Some(Cell::Boolean(true)));
        changed::with_path(cells, if after { Put::After } else { Put::Before })
    }),
    strict("jsonb_strip_nulls", (1, 1), Output::Jsonb, |cells| {
        Ok(Out::Text(value::without_nulls(document(cells)?).written()))
    }),
    strict("jsonb_pretty", (1, 1), Output::Text, |cells| {
        Ok(Out::Text(value::pretty(&document(cells)?)?))
    }),
    strict("jsonb_typeof", (1, 1), Output::Text, |cells| {
        Ok(Out::Text(value::type_of(&document(cells)?).to_string()))
    }),
    strict("jsonb_array_length", (1, 1), Output::Integer, |cells| {
        Ok(Out::Integer(value::array_length(&document(cells)?)?))
    }),
    strict(SORT_KEY, (1, 1), Output::Key, |cells| {
        Ok(Out::Key(value::sort_key(&document(cells)?)))
    }),
    strict("jsonb_keys", (1, 1), Output::Texts, |cells| {
        match document(cells)? {
            Node::Object(members) => Ok(Out::Texts(
                members.into_iter().map(|(key, _)| Some(key)).collect(),
            )),
            Node::Array(_) => Err(refused("cannot call jsonb_object_keys on an array")),
            _ => Err(refused("cannot call jsonb_object_keys on a scalar")),
        }
    }),
    strict("jsonb_items", (1, 1), Output::Texts, |cells| {
        Ok(Out::Texts(
            items(cells)?.iter().map(|item| Some(item.written())).collect(),
        ))
    }),
    strict("jsonb_items_text", (1, 1), Output::Texts, |cells| {
        Ok(Out::Texts(items(cells)?.iter().map(value::as_text).collect()))
    }),
    Definition {
        name: "to_jsonb",
        arguments: (1, 1),
        input: Input::AnyStrict,
        output: Output::Jsonb,
        apply: |cells| Ok(Out::Text(document(cells)?.written())),
    },
    strict("jsonb_path_exists", (2, 4), Output::Boolean, |cells| {
        Ok(boolean_or_null(Query::of(cells, false)?.exists()?))
    }),
    strict("jsonb_path_match", (2, 4), Output::Boolean, |cells| {
        Ok(boolean_or_null(Query::of(cells, false)?.matches()?))
    }),
    // The operators say no errors.
    strict("jsonb_path_exists_opr", (2, 2), Output::Boolean, |cells| {
        Ok(boolean_or_null(Query::of(cells, true)?.exists()?))
    }),
    strict("jsonb_path_match_opr", (2, 2), Output::Boolean, |cells| {
        Ok(boolean_or_null(Query::of(cells, true)?.matches()?))
    }),
    strict(PATH_ITEMS, (2, 4), Output::Texts, |cells| {
        let query = Query::of(cells, false)?;
        Ok(Out::Texts(query.texts()?.into_iter().map(Some).collect()))
    }),
    strict("jsonb_path_query_array", (2, 4), Output::Jsonb, |cells| {
        let query = Query::of(cells, false)?;
        Ok(Out::Text(format!("[{}]", query.texts()?.join(", "))))
    }),
    strict("jsonb_path_query_first", (2, 4), Output::Jsonb, |cells| {
        let query = Query::of(cells, false)?;
        let first = query.all()?.into_iter().next();
        Ok(first.map_or(Out::Null, |item| Out::Text(item.written())))
    }),
    with_nulls("jsonb_object", (1, 2), Output::Jsonb, |cells| {
        Ok(Out::Text(of_texts(cells)?.written()))
    }),
    strict("jsonb_object_of_pairs", (1, 1), Output::Jsonb, |cells| {
        let pairs = texts(&cells[0])?.iter().map(|pair| match read(pair)? {
            Node::Array(pair) => {
                let mut pair = pair.into_iter();
                match (pair.next().as_ref().and_then(value::as_text), pair.next()) {
                    (Some(key), Some(value)) => Ok((key, value)),
                    _ => Err(refused("field name must not be null")),
                }
            }
            _ => Err(refused("expected a pair of a key and a value")),
        });
        Ok(Out::Text(
            value::object(pairs.collect::<SqlResult<_>>()?).written(),
        ))
    }),
    any("jsonb_of", (1, 1), |cells| {
        Ok(Out::Text(document(cells)?.written()))
    }),
    strict("jsonb_array_of", (1, 1), Output::Jsonb, |cells| {
        Ok(Out::Text(Node::Array(nodes(cells)?).written()))
    }),
    strict("jsonb_array_ascending", (1, 1), Output::Jsonb, |cells| {
        Ok(Out::Text(Node::Array(value::ascending(nodes(cells)?)).written()))
    }),
    strict("jsonb_array_descending", (1, 1), Output::Jsonb, |cells| {
        let mut nodes = value::ascending(nodes(cells)?);
        nodes.reverse();
        Ok(Out::Text(Node::Array(nodes).written()))
    }),
    any("jsonb_build_array", (0, MANY), |cells| {
        let items = (0..cells.len()).map(|at| document(&cells[at..]));
        Ok(Out::Text(Node::Array(items.collect::<SqlResult<_>>()?).written()))
    }),
    any("jsonb_build_object", (0, MANY), |cells| {
        if cells.len() % 2 != 0 {
            return Err(
                refused("argument list must have even number of elements").with_hint(
                    "The arguments of jsonb_build_object() must consist of alternating keys and values.",
                ),
            );
        }
        let mut members = Vec::with_capacity(cells.len() / 2);
        for at in (0..cells.len()).step_by(2) {
            let key = document(&cells[at..])?;
            if matches!(key, Node::Array(_) | Node::Object(_)) {
                return Err(refused("key value must be scalar, not array, composite, or json"));
            }
            let Some(key) = value::as_text(&key) else {
                return Err(refused(&format!("argument {}: key must not be null", at + 1)));
            };
            members.push((key, document(&cells[at + 1..])?));
        }
        Ok(Out::Text(value::object(members).written()))
    }),
];

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    (0..FUNCTIONS.len()).map(at).collect()
}

/// The function of a name.
///
/// # Panics
/// There is none.
pub fn udf(name: &str) -> Arc<ScalarUDF> {
    let index = FUNCTIONS.iter().position(|known| known.name == name);
    at(index.expect("the names of functions are those of the table"))
}

/// Whether values of a column are jsonb.
pub(crate) fn is_jsonb(field: &Field) -> bool {
    (field.metadata().get(ANNOTATION)).is_some_and(|name| name == "jsonb")
}

/// `document['a'][0]`: what stands at a path. The first argument is the document.
pub(crate) fn member(arguments: &[Expr]) -> Expr {
    let as_text = |key: &Expr| pg_cast::udf().call(vec![key.clone(), lit("text")]);
    let keys = arguments.iter().skip(1).map(as_text);
    let document = arguments.iter().take(1).cloned();
    udf("jsonb_extract_path").call(document.chain(keys).collect())
}

fn at(index: usize) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Jsonb {
        index,
        signature: Signature::one_of(
            vec![
                datafusion::logical_expr::TypeSignature::VariadicAny,
                datafusion::logical_expr::TypeSignature::Nullary,
            ],
            Volatility::Immutable,
        ),
    }))
}

/// Each key is looked for among all members.
fn may_search(node: &Node<'_>, keys: &[&str]) -> SqlResult<()> {
    let members = match node {
        Node::Array(items) => items.len(),
        Node::Object(members) => members.len(),
        _ => 1,
    };
    work::allowed("looking for keys in jsonb", members as u64, keys.len() as u64)
}

fn boolean_or_null(value: Option<bool>) -> Out {
    value.map_or(Out::Null, Out::Boolean)
}

/// An object of an array of keys and values, or of one of keys and one of values.
fn of_texts<'a>(cells: &[Cell<'a>]) -> SqlResult<Node<'a>> {
    let wrong = |message: &str| SqlError::new(SqlState::ArraySubscriptError, message);
    let pairs: Vec<(Option<&str>, Option<&str>)> = match cells {
        [Cell::Items(all)] if all.len() % 2 != 0 => {
            return Err(wrong("array must have even number of elements"));
        }
        [Cell::Items(all)] => all.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
        [Cell::Items(keys), Cell::Items(values)] if keys.len() != values.len() => {
            return Err(wrong("mismatched array dimensions"));
        }
        [Cell::Items(keys), Cell::Items(values)] => {
            keys.iter().copied().zip(values.iter().copied()).collect()
        }
        _ => return Err(refused("expected arrays of texts")),
    };
    let members = pairs.into_iter().map(|(key, value)| {
        let key = key.ok_or_else(|| {
            SqlError::new(
                SqlState::NullValueNotAllowed,
                "null value not allowed for object key",
            )
        })?;
        let value = value.map_or_else(Node::null, |value| Node::Text(value.to_owned()));
        Ok((key.to_owned(), value))
    });
    Ok(value::object(members.collect::<SqlResult<_>>()?))
}

fn text_or_null(node: Option<&Node<'_>>) -> Out {
    node.and_then(value::as_text).map_or(Out::Null, Out::Text)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Jsonb {
    /// Its place in [`FUNCTIONS`].
    index: usize,
    signature: Signature,
}

impl Jsonb {
    fn definition(&self) -> &'static Definition {
        &FUNCTIONS[self.index]
    }
}

impl ScalarUDFImpl for Jsonb {
    fn name(&self) -> &str {
        self.definition().name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by return_field_from_args",
            self.name()
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let definition = self.definition();
        let (least, most) = definition.arguments;
        if !(least..=most).contains(&args.arg_fields.len()) {
            let types: Vec<String> = args
                .arg_fields
                .iter()
                .map(|field| millrace_postgres::types::type_name(field))
                .collect();
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {}({}) does not exist", self.name(), types.join(", ")),
            )
            .into());
        }
        let annotated = |name: &str| SqlType::annotated(DataType::Utf8, name).field(self.name(), true);
        Ok(Arc::new(match definition.output {
            Output::Same => match args.arg_fields[0].metadata().get(ANNOTATION) {
                Some(name) if name == "json" => annotated("json"),
                _ => annotated("jsonb"),
            },
            Output::Jsonb => annotated("jsonb"),
            Output::Text => Field::new(self.name(), DataType::Utf8, true),
            Output::Boolean => Field::new(self.name(), DataType::Boolean, true),
            Output::Integer => Field::new(self.name(), DataType::Int32, true),
            Output::Key => Field::new(self.name(), DataType::Binary, true),
            Output::Texts => Field::new_list(self.name(), Field::new("item", DataType::Utf8, true), true),
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let definition = self.definition();
        on_arrays(&args, |arrays, rows| {
            let columns = arrays
                .iter()
                .zip(&args.arg_fields)
                .map(|(array, field)| Argument::new(array, field, definition.input))
                .collect::<Result<Vec<_>>>()?;
            let mut out = Vec::with_capacity(rows);
            let mut budget = Budget::new(definition.name);
            for row in 0..rows {
                let cells = columns.iter().map(|column| match definition.input {
                    Input::WithNulls => Some(column.cell(row).unwrap_or(Cell::Null)),
                    _ => column.cell(row),
                });
                let cells: Option<Vec<Cell<'_>>> = cells.collect();
                let value = match cells {
                    Some(cells) => (definition.apply)(&cells)?,
                    None => Out::Null,
                };
                budget.add(value.bytes())?;
                out.push(value);
            }
            Ok(collect(definition.output, out))
        })
    }
}

fn collect(output: Output, values: Vec<Out>) -> ArrayRef {
    let texts = |value: Out| match value {
        Out::Text(text) => Some(text),
        _ => None,
    };
    match output {
        Output::Same | Output::Jsonb | Output::Text => {
            Arc::new(values.into_iter().map(texts).collect::<StringArray>())
        }
        Output::Boolean => Arc::new(
            values
                .into_iter()
                .map(|value| match value {
                    Out::Boolean(value) => Some(value),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        Output::Integer => Arc::new(
            values
                .into_iter()
                .map(|value| match value {
                    Out::Integer(count) => i32::try_from(count).ok(),
                    _ => None,
                })
                .collect::<Int32Array>(),
        ),
        Output::Key => {
            let mut out = BinaryBuilder::new();
            for value in values {
                match value {
                    Out::Key(key) => out.append_value(key),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        Output::Texts => {
            let mut out = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
            for value in values {
                match value {
                    Out::Texts(texts) => out.append_value(texts),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
    }
}

/// A column of arguments, in the type in which they are read.
enum Argument {
    Null,
    Texts(StringArray),
    Integers(Int64Array),
    Booleans(BooleanArray),
    Lists(ListArray),
    /// The same with the NULLs among their elements.
    Items(ListArray),
}

impl Argument {
    fn new(array: &ArrayRef, field: &Field, input: Input) -> Result<Self> {
        if matches!(input, Input::Any | Input::AnyStrict) {
            let column = JsonColumn::new(field, array)?;
            let is_null = |row: usize| input == Input::AnyStrict && column.texts.is_null(row);
            let texts = (0..array.len())
                .map(|row| (!is_null(row)).then(|| column.json(row)).transpose())
                .collect::<SqlResult<Vec<_>>>()?;
            return Ok(Argument::Texts(StringArray::from(texts)));
        }
        Ok(match array.data_type() {
            DataType::Null => Argument::Null,
            DataType::Boolean => Argument::Booleans(array.as_boolean().clone()),
            integer if integer.is_integer() => {
                let wide = arrow::compute::cast(array, &DataType::Int64)?;
                Argument::Integers(wide.as_primitive::<Int64Type>().clone())
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                let item = Arc::new(Field::new("item", DataType::Utf8, true));
                let lists = arrow::compute::cast(array, &DataType::List(item)).map_err(|_| {
                    SqlError::unsupported("arrays of several dimensions are not supported here")
                })?;
                match input {
                    Input::StrictWithNulls | Input::WithNulls => {
                        Argument::Items(lists.as_list::<i32>().clone())
                    }
                    _ => Argument::Lists(lists.as_list::<i32>().clone()),
                }
            }
            _ => {
                let texts = arrow::compute::cast(array, &DataType::Utf8)?;
                Argument::Texts(texts.as_string::<i32>().clone())
            }
        })
    }

    /// The value of a row; `None`: it is NULL.
    fn cell(&self, row: usize) -> Option<Cell<'_>> {
        match self {
            Argument::Null => None,
            Argument::Texts(texts) => texts.is_valid(row).then(|| Cell::Text(texts.value(row))),
            Argument::Integers(values) => values.is_valid(row).then(|| Cell::Integer(values.value(row))),
            Argument::Booleans(values) => values.is_valid(row).then(|| Cell::Boolean(values.value(row))),
            // A NULL among the keys is none of them.
            Argument::Lists(lists) => {
                let texts = || texts_of(lists, row).flatten().collect();
                lists.is_valid(row).then(|| Cell::Texts(texts()))
            }
            Argument::Items(lists) => lists
                .is_valid(row)
                .then(|| Cell::Items(texts_of(lists, row).collect())),
        }
    }
}

/// The texts in a list.
fn texts_of(lists: &ListArray, row: usize) -> impl Iterator<Item = Option<&str>> {
    let offsets = lists.offsets();
    let place = |offset: i32| usize::try_from(offset).unwrap_or_default();
    let items = lists.values().as_string::<i32>();
    (place(offsets[row])..place(offsets[row + 1]))
        .map(move |index| items.is_valid(index).then(|| items.value(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(name: &str, cells: &[Cell<'_>]) -> Option<String> {
        let definition = FUNCTIONS.iter().find(|known| known.name == name).unwrap();
        match (definition.apply)(cells).unwrap() {
            Out::Text(text) => Some(text),
            Out::Boolean(value) => Some(value.to_string()),
            Out::Integer(value) => Some(value.to_string()),
            _ => None,
        }
    }

    #[test]
    fn operators_answer_as_postgresqls() {
        let object = || Cell::Text(r#"{"a": {"b": ["x", 1]}, "n": null}"#);
        assert_eq!(
            apply("jsonb_get", &[object(), Cell::Text("a")]).as_deref(),
            Some(r#"{"b": ["x", 1]}"#)
        );
        assert_eq!(apply("jsonb_get_text", &[object(), Cell::Text("n")]), None);
        assert_eq!(
            apply(
                "jsonb_path_text",
                &[object(), Cell::Items(vec![Some("a"), Some("b"), Some("0")])]
            )
            .as_deref(),
            Some("x")
        );
        assert_eq!(
            apply("jsonb_get_text", &[Cell::Text(r#""\u00fc""#), Cell::Integer(0)]).as_deref(),
            Some("ü")
        );
        assert_eq!(
            apply("jsonb_concat", &[Cell::Text("[1]"), Cell::Text("2")]).as_deref(),
            Some("[1, 2]")
        );
        assert_eq!(
            apply("jsonb_delete", &[Cell::Text("[1, 2, 3]"), Cell::Integer(-1)]).as_deref(),
            Some("[1, 2]")
        );
        assert_eq!(
            apply("jsonb_exists", &[Cell::Text(r#"["x", "y"]"#), Cell::Text("y")]).as_deref(),
            Some("true")
        );
    }
}
