//! The functions over enums.
//!
//! `enum_first`, `enum_last` and `enum_range` ask a type for its values, and `pg_held(text, 'type')` is a held value whose type was
//! forgotten on the way (see [`millrace_postgres::types::enumeration`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::enumeration::EnumType;
use millrace_postgres::types::plain_name;

use crate::arguments::{constant, on_arrays};
use crate::cast;

/// The name of the function that says the type of a held value.
pub const HELD: &str = "pg_held";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    First,
    Last,
    Range,
    Held,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct EnumFunction {
    kind: Kind,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let range = TypeSignature::OneOf(vec![TypeSignature::Any(1), TypeSignature::Any(2)]);
    [
        (Kind::First, TypeSignature::Any(1)),
        (Kind::Last, TypeSignature::Any(1)),
        (Kind::Range, range),
        (Kind::Held, TypeSignature::Any(2)),
    ]
    .into_iter()
    .map(|(kind, signature)| function(kind, signature))
    .collect()
}

fn function(kind: Kind, signature: TypeSignature) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(EnumFunction {
        kind,
        signature: Signature::new(signature, Volatility::Immutable),
    }))
}

/// `pg_held`.
pub fn held() -> Arc<ScalarUDF> {
    function(Kind::Held, TypeSignature::Any(2))
}

impl EnumFunction {
    /// The type of the arguments.
    fn asked(&self, fields: &[FieldRef]) -> Result<EnumType> {
        match fields.iter().find_map(|field| EnumType::of(field)) {
            Some(known) => Ok(known),
            None => {
                let name = |field: &FieldRef| match field.data_type().is_null() {
                    true => "unknown".to_owned(),
                    false => plain_name(field),
                };
                let types: Vec<String> = fields.iter().map(name).collect();
                Err(SqlError::new(
                    SqlState::UndefinedFunction,
                    format!("function {}({}) does not exist", self.name(), types.join(", ")),
                )
                .into())
            }
        }
    }
}

impl ScalarUDFImpl for EnumFunction {
    fn name(&self) -> &str {
        match self.kind {
            Kind::First => "enum_first",
            Kind::Last => "enum_last",
            Kind::Range => "enum_range",
            Kind::Held => HELD,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by its arguments",
            self.name()
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = match self.kind {
            Kind::Held => match args.scalar_arguments.get(1).copied().flatten() {
                Some(ScalarValue::Utf8(Some(name))) => {
                    let field = cast::named(name)?.field(HELD, true);
                    match args.arg_fields[0].data_type() {
                        // The elements say the type.
                        DataType::List(_) => field,
                        data_type => field.with_data_type(data_type.clone()),
                    }
                }
                _ => return Err(exec_datafusion_err!("the second argument of {HELD} is a type")),
            },
            Kind::First | Kind::Last => self.asked(args.arg_fields)?.sql_type().field(self.name(), true),
            Kind::Range => (self.asked(args.arg_fields)?.sql_type())
                .array()
                .field(self.name(), true),
        };
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.kind == Kind::Held {
            let DataType::List(item) = args.return_field.data_type() else {
                return Ok(args.args[0].clone());
            };
            let item = Arc::clone(item);
            return on_arrays(&args, |arrays, _| {
                let lists = arrays[0].as_list::<i32>();
                let values = arrow::compute::cast(lists.values(), item.data_type())?;
                let nulls = lists.nulls().cloned();
                let lists = ListArray::try_new(item, lists.offsets().clone(), values, nulls)?;
                Ok(Arc::new(lists))
            });
        }
        let known = self.asked(&args.arg_fields)?;
        let one = |value: Option<&String>| ColumnarValue::Scalar(ScalarValue::Utf8(value.cloned()));
        match (self.kind, args.args.len()) {
            (Kind::First, _) => return Ok(one(known.values.first())),
            (Kind::Last, _) => return Ok(one(known.values.last())),
            (_, 1) => {
                let all = list(&args.return_field, vec![known.values.clone()])?;
                return Ok(ColumnarValue::Scalar(constant(&all)?));
            }
            _ => {}
        }
        let field = Arc::clone(&args.return_field);
        on_arrays(&args, |arrays, rows| {
            let sides = arrays
                .iter()
                .map(|side| arrow::compute::cast(side, &DataType::Utf8));
            let sides = sides.collect::<std::result::Result<Vec<_>, _>>()?;
            let bound = |side: &ArrayRef, row: usize| {
                let texts = side.as_string::<i32>();
                texts.is_valid(row).then(|| texts.value(row).to_owned())
            };
            let ranges = (0..rows).map(|row| {
                let (from, to) = (bound(&sides[0], row), bound(&sides[1], row));
                let within = |value: &&String| {
                    from.as_ref().is_none_or(|from| from <= *value)
                        && to.as_ref().is_none_or(|to| *value <= to)
                };
                known.values.iter().filter(within).cloned().collect()
            });
            list(&field, ranges.collect())
        })
    }
}

/// Lists of values.
fn list(field: &Field, rows: Vec<Vec<String>>) -> Result<ArrayRef> {
    let DataType::List(item) = field.data_type() else {
        return Err(exec_datafusion_err!(
            "a list of values is not of type {}",
            field.data_type()
        ));
    };
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(Vec::len));
    let values: StringArray = rows.into_iter().flatten().map(Some).collect();
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(item),
        offsets,
        Arc::new(values),
        None,
    )?))
}
