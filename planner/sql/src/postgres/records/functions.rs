//! The functions that rows as values are asked by, and that of the item that stands for all attributes of one.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, make_comparator};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{Attributes, STAR};
use crate::error::{Fault, Faulty};

/// Whether all attributes of a row are NULL, or none.
pub(super) fn nulls(asks_for_none: bool) -> ScalarUDF {
    ScalarUDF::from(Nulls {
        asks_for_none,
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// A row whose attributes are called as these.
pub(super) fn renamed(to: Fields) -> ScalarUDF {
    ScalarUDF::from(Renamed {
        to,
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// How two rows stand to each other.
pub(super) fn ordered(order: Order) -> ScalarUDF {
    ScalarUDF::from(Ordered {
        order,
        signature: Signature::any(2, Volatility::Immutable),
    })
}

/// A function's values by its arguments as arrays; those of constants are a constant.
fn on_arrays(
    args: &ScalarFunctionArgs,
    apply: impl FnOnce(&[ArrayRef]) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = args
        .args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args.args.iter().map(|arg| arg.to_array(rows));
    let values = apply(&arrays.collect::<Result<Vec<_>>>()?)?;
    Ok(match is_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
        false => ColumnarValue::Array(values),
    })
}

/// The function of a name, if it is one of these.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    (name == STAR).then(|| {
        Arc::new(ScalarUDF::from(Star {
            signature: Signature::any(2, Volatility::Immutable),
        }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Star {
    signature: Signature,
}

impl ScalarUDFImpl for Star {
    fn name(&self) -> &str {
        STAR
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        exec_err!("{STAR} stands for no value of {types:?}")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let item = match args.scalar_arguments.get(1).copied().flatten() {
            Some(ScalarValue::Int64(Some(item))) => usize::try_from(*item).unwrap_or_default(),
            Some(ScalarValue::Int32(Some(item))) => usize::try_from(*item).unwrap_or_default(),
            _ => 0,
        };
        match args.arg_fields[0].data_type() {
            DataType::Struct(fields) => {
                let names = fields.iter().map(|field| field.name().clone()).collect();
                Err(DataFusionError::External(Box::new(Attributes { item, names })))
            }
            _ => Err(Faulty {
                fault: Fault::WrongObjectType,
                message: "all attributes are asked for of a value that is not composite".to_owned(),
            }
            .into()),
        }
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{STAR} has no value")
    }
}

/// Whether all attributes of a row are NULL, or none.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nulls {
    asks_for_none: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Nulls {
    fn name(&self) -> &str {
        match self.asks_for_none {
            true => "pg_row_is_not_null",
            false => "pg_row_is_null",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays| {
            let structs = arrays[0].as_struct();
            let is_null = |row: usize| {
                let mut attributes = structs.columns().iter();
                match self.asks_for_none {
                    true => structs.is_valid(row) && attributes.all(|column| column.is_valid(row)),
                    false => structs.is_null(row) || attributes.all(|column| column.is_null(row)),
                }
            };
            let answers = (0..structs.len()).map(|row| Some(is_null(row)));
            Ok(Arc::new(answers.collect::<BooleanArray>()))
        })
    }
}

/// A row whose attributes are called as those of another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Renamed {
    to: Fields,
    signature: Signature,
}

impl ScalarUDFImpl for Renamed {
    fn name(&self) -> &str {
        "pg_renamed_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(self.to.clone()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays| {
            let (_, columns, nulls) = arrays[0].as_struct().clone().into_parts();
            if self.to.is_empty() {
                return Ok(ArrayRef::clone(&arrays[0]));
            }
            let columns = columns.into_iter().zip(&self.to);
            let columns = columns.map(|(values, field)| cast(&values, field.data_type()));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new(self.to.clone(), columns, nulls)?))
        })
    }
}

/// How two rows are compared by their order, in which an attribute that is NULL is the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    pub fn of(op: Operator) -> Option<Order> {
        Some(match op {
            Operator::Lt => Order::Less,
            Operator::LtEq => Order::LessOrEqual,
            Operator::Gt => Order::Greater,
            Operator::GtEq => Order::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Order::Less => ordering.is_lt(),
            Order::LessOrEqual => ordering.is_le(),
            Order::Greater => ordering.is_gt(),
            Order::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered {
    order: Order,
    signature: Signature,
}

impl ScalarUDFImpl for Ordered {
    fn name(&self) -> &str {
        match self.order {
            Order::Less => "pg_row_lt",
            Order::LessOrEqual => "pg_row_le",
            Order::Greater => "pg_row_gt",
            Order::GreaterOrEqual => "pg_row_ge",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays| {
            let (left, right) = (&arrays[0], &arrays[1]);
            let options = SortOptions {
                descending: false,
                nulls_first: false,
            };
            let compare = make_comparator(left, right, options)?;
            let holds = |row: usize| {
                let is_known = left.is_valid(row) && right.is_valid(row);
                is_known.then(|| self.order.holds(compare(row, row)))
            };
            Ok(Arc::new((0..left.len()).map(holds).collect::<BooleanArray>()))
        })
    }
}
