//! Arrays as rows with their numbers: `generate_subscripts`, and `information_schema._pg_expandarray`, for which clients ask in the
//! list of a SELECT.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Function, Ident, SelectItem, Value};

use crate::syntax::{arguments, call, text};

pub(super) fn is_called(function: &Function, name: &str) -> bool {
    let last = function.name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|last| millrace_parser::fold(last) == name)
}

/// `generate_subscripts(array, dimension)` and `_pg_expandarray(array)`; `None`: another call.
pub(super) fn subscripts(function: &Function) -> Option<Expr> {
    let arguments = arguments(function);
    match arguments.as_slice() {
        [array] if is_called(function, "_pg_expandarray") => {
            Some(call("unnest", vec![call(EXPANDED, vec![(*array).clone()])]))
        }
        [array, dimension] if is_called(function, "generate_subscripts") => Some(series(array, dimension)),
        _ => None,
    }
}

/// `(information_schema._pg_expandarray(array)).x`; `None`: another member.
pub(super) fn member(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    let (Expr::Nested(inner), [AccessExpr::Dot(Expr::Identifier(member))]) = (root, chain) else {
        return None;
    };
    let member = millrace_parser::fold(member);
    match inner.as_ref() {
        Expr::Function(function) => {
            let array = expanded(function)?;
            match member.as_str() {
                "x" => Some(call("unnest", vec![array.clone()])),
                "n" => Some(series(array, &Expr::value(Value::Number("1".into(), false)))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The columns of `_pg_expandarray(array)`; `None`: another call.
pub(super) fn all(function: &Function) -> Option<Vec<SelectItem>> {
    let pairs = subscripts(function).filter(|_| is_called(function, "_pg_expandarray"))?;
    let column = |name: &str| SelectItem::ExprWithAlias {
        expr: call("get_field", vec![pairs.clone(), text(name)]),
        alias: Ident::new(name),
    };
    Some(vec![column("x"), column("n")])
}

/// The array of which `_pg_expandarray` makes rows.
fn expanded(function: &Function) -> Option<&Expr> {
    let [argument] = arguments(function)[..] else {
        return None;
    };
    match argument {
        Expr::Function(inner) if is_called(function, "unnest") && is_called(inner, EXPANDED) => {
            arguments(inner).first().copied()
        }
        _ => None,
    }
}

fn series(array: &Expr, dimension: &Expr) -> Expr {
    let end = |name: &str| call(name, vec![array.clone(), dimension.clone()]);
    call(
        "unnest",
        vec![call(
            "generate_series",
            vec![end("array_lower"), end("array_upper")],
        )],
    )
}

/// What makes an array of pairs of an array: its elements, and their numbers.
pub const EXPANDED: &str = "numbered_elements";

/// The function.
pub(super) fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Expanded {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Expanded {
    signature: Signature,
}

fn pair(element: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("x", element.clone(), true),
        Field::new("n", DataType::Int32, true),
    ])
}

impl ScalarUDFImpl for Expanded {
    fn name(&self) -> &str {
        EXPANDED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [DataType::List(item)] => Ok(DataType::new_list(DataType::Struct(pair(item.data_type())), true)),
            _ => plan_err!("function _pg_expandarray takes an array"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let lists = arrays[0].as_list::<i32>();
        let offsets = lists.offsets();
        let mut numbers = vec![0; lists.values().len()];
        for ends in offsets.windows(2) {
            for (number, place) in (1..).zip(ends[0]..ends[1]) {
                numbers[place as usize] = number;
            }
        }
        let elements = Arc::clone(lists.values());
        let numbers: ArrayRef = Arc::new(Int32Array::from(numbers));
        let fields = pair(elements.data_type());
        let pairs = StructArray::try_new(fields, vec![elements, numbers], None)?;
        let item = Arc::new(Field::new_list_field(pairs.data_type().clone(), true));
        let list = ListArray::try_new(item, offsets.clone(), Arc::new(pairs), lists.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(list)))
    }
}
