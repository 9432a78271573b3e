//! Arrays as PostgreSQL has them, where DataFusion's lists are otherwise.
//!
//! | function | what |
//! |---|---|
//! | `array_subscript(a, i, ..)` | `a[i]`, `a[i][j]`: NULL outside of the array, also for negative places; of jsonb, a path |
//! | `array_part(a, l, u, ..)` | `a[l:u]`, `a[l:u][m:n]` |
//! | `array_flatten_all(a)` | what `unnest` makes rows of: the elements of all dimensions |
//! | `array_contains(a, b)`, `array_overlaps(a, b)` | `a @> b`, `a && b`, where NULL is equal to nothing |
//! | `array_equals_any(a, x)` | `x = ANY (a)` |
//! | `array_without(a, x)` | `array_remove` |
//! | `array_bounds(a)` | `array_dims` |
//! | `array_checked(a)` | `ARRAY[..]` of arrays, which must have one length |
//! | `array_with_element(a, v, i, ..)`, `array_with_part(a, v, l, u)` | what `SET a[i] = v` and `SET a[l:u] = v` make of `a` |
//! | `array_order(a)` | bytes that compare as the arrays do, NULL being the largest element |
//!
//! [`rewritten`] puts in the first ones by their syntax, [`crate::sql::bound`] the others in a bound plan.

pub mod acl;
pub mod assigned;
pub(crate) mod empty;
mod flat;
pub(crate) mod members;
mod numbered;
mod subscripts;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, StringArray, UInt32Array, make_comparator,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{self, AccessExpr, Subscript};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::enumeration::VALUES;

pub(crate) use self::flat::check_unnest;
pub use self::flat::flatten;
use self::flat::flattened;
use crate::arguments::on_arrays;
use crate::syntax::call;
use crate::{datetime, jsonb};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Subscript,
    Part,
    Flatten,
    Contains,
    Overlaps,
    EqualsAny,
    Without,
    Bounds,
    Checked,
    Order,
}

const ALL: [Function; 10] = [
    Function::Subscript,
    Function::Part,
    Function::Flatten,
    Function::Contains,
    Function::Overlaps,
    Function::EqualsAny,
    Function::Without,
    Function::Bounds,
    Function::Checked,
    Function::Order,
];

impl Function {
    fn name(self) -> &'static str {
        match self {
            Function::Subscript => "array_subscript",
            Function::Part => "array_part",
            Function::Flatten => "array_flatten_all",
            Function::Contains => "array_contains",
            Function::Overlaps => "array_overlaps",
            Function::EqualsAny => "array_equals_any",
            Function::Without => "array_without",
            Function::Bounds => "array_bounds",
            Function::Checked => "array_checked",
            Function::Order => "array_order",
        }
    }
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    ALL.into_iter()
        .map(udf)
        .chain([numbered::udf()])
        .chain(assigned::udfs())
        .collect()
}

fn udf(function: Function) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ArrayFunction {
        function,
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// Subscripts, slices and `unnest`, by their syntax; `None`: it is none of these.
pub fn rewritten(expr: &ast::Expr) -> Option<ast::Expr> {
    match expr {
        ast::Expr::CompoundFieldAccess { root, access_chain } => numbered::member(root, access_chain)
            .or_else(|| acl::member(root, access_chain))
            .or_else(|| subscripts::accessed(root, access_chain)),
        ast::Expr::Function(function) => numbered::subscripts(function)
            .or_else(|| acl::rows(function))
            .or_else(|| flattened(function)),
        _ => None,
    }
}

fn bound(number: &str) -> ast::Expr {
    ast::Expr::value(ast::Value::Number(number.into(), false))
}

fn subscripted(root: &ast::Expr, chain: &[AccessExpr]) -> Option<ast::Expr> {
    let subscripts = chain
        .iter()
        .map(|access| match access {
            AccessExpr::Subscript(subscript) => Some(subscript),
            AccessExpr::Dot(_) => None,
        })
        .collect::<Option<Vec<_>>>()?;
    let is_slice = subscripts
        .iter()
        .any(|subscript| matches!(subscript, Subscript::Slice { .. }));
    let mut arguments = vec![root.clone()];
    for subscript in subscripts {
        match subscript {
            Subscript::Index { index } if is_slice => arguments.extend([bound("1"), index.clone()]),
            Subscript::Index { index } => {
                // DataFusion looks for one element of an aggregate without making the array.
                let of_aggregate = matches!(root, ast::Expr::Function(function)
                    if function.name.to_string().eq_ignore_ascii_case("array_agg"));
                if of_aggregate && matches!(index, ast::Expr::Value(_)) && chain.len() == 1 {
                    return None;
                }
                arguments.push(index.clone());
            }
            Subscript::Slice { stride: Some(_), .. } => return None,
            Subscript::Slice {
                lower_bound,
                upper_bound,
                ..
            } => arguments.extend([
                lower_bound.clone().unwrap_or_else(|| bound("1")),
                upper_bound.clone().unwrap_or_else(|| bound("2147483647")),
            ]),
        }
    }
    let function = if is_slice {
        Function::Part
    } else {
        Function::Subscript
    };
    Some(call(function.name(), arguments))
}

/// An expression of a bound plan with these functions in the place of DataFusion's.
pub(crate) fn replaced(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_list = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::List(_)));
    let is_jsonb = |expr: &Expr| (expr.to_field(schema)).is_ok_and(|(_, field)| jsonb::is_jsonb(&field));
    match &expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let function = match (func.name(), args.as_slice()) {
                ("array_subscript", [document, ..]) if is_jsonb(document) => {
                    return Transformed::yes(jsonb::member(args));
                }
                ("array_has_all", [_, _]) => Function::Contains,
                ("array_has_any", [_, _]) => Function::Overlaps,
                ("array_has", [_, _]) => Function::EqualsAny,
                ("make_array", [first, ..]) if is_list(first) => {
                    return Transformed::yes(udf(Function::Checked).call(vec![expr]));
                }
                _ => return Transformed::no(expr),
            };
            if !args.first().is_some_and(is_list) {
                return Transformed::no(expr);
            }
            Transformed::yes(udf(function).call(args.clone()))
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq),
            right,
        }) if is_list(left) && is_list(right) => {
            let key = |side: &Expr| udf(Function::Order).call(vec![side.clone()]);
            Transformed::yes(datafusion::logical_expr::binary_expr(key(left), *op, key(right)))
        }
        _ => Transformed::no(expr),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayFunction {
    function: Function,
    signature: Signature,
}

fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) => Some(item),
        _ => None,
    }
}

/// The type of lists like that of a field, with elements of a type.
fn list_of(element: &FieldRef, data_type: DataType) -> DataType {
    if element.data_type() == &data_type {
        return DataType::List(Arc::clone(element));
    }
    DataType::new_list(data_type, true)
}

/// Dimensions of a type, and the field of its elements.
fn innermost(data_type: &DataType) -> Option<(usize, &FieldRef)> {
    let mut item = item_of(data_type)?;
    let mut depth = 1;
    while let Some(inner) = item_of(item.data_type()) {
        item = inner;
        depth += 1;
    }
    Some((depth, item))
}

impl ArrayFunction {
    /// What it gives of a first argument.
    fn field(&self, first: &FieldRef) -> Result<FieldRef> {
        let named = |data_type: DataType| Arc::new(Field::new(self.name(), data_type, true));
        if self.function == Function::Subscript && jsonb::is_jsonb(first) {
            return Ok(Arc::new(
                first.as_ref().clone().with_name(self.name()).with_nullable(true),
            ));
        }
        match (self.function, first.data_type(), innermost(first.data_type())) {
            (_, _, Some((_, item))) if self.function == Function::Subscript => Ok(Arc::new(
                item.as_ref().clone().with_name(self.name()).with_nullable(true),
            )),
            (Function::Flatten, _, Some((_, item))) => Ok(named(DataType::List(Arc::clone(item)))),
            (Function::Part | Function::Checked | Function::Without, data_type, Some(_)) => {
                Ok(named(data_type.clone()))
            }
            // Lists of other layouts, and NULL, are for DataFusion to unnest.
            (Function::Flatten, data_type, None) => Ok(named(data_type.clone())),
            (Function::Contains | Function::Overlaps | Function::EqualsAny, ..) => {
                Ok(named(DataType::Boolean))
            }
            (Function::Bounds, ..) => Ok(named(DataType::Utf8)),
            (Function::Order, ..) => Ok(named(DataType::Binary)),
            (_, DataType::Null, None) => Ok(named(DataType::Null)),
            (_, _, None) => Err(SqlError::new(
                SqlState::DatatypeMismatch,
                format!(
                    "cannot subscript type {} because it does not support subscripting",
                    types::plain_name(first)
                ),
            )
            .into()),
            (_, data_type, Some(_)) => Ok(named(data_type.clone())),
        }
    }
}

impl ScalarUDFImpl for ArrayFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let wrong = || {
            let names: Vec<String> = arg_types
                .iter()
                .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
                .collect();
            SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {}({}) does not exist", self.name(), names.join(", ")),
            )
            .with_hint("You might need to add explicit type casts.")
        };
        match (self.function, arg_types) {
            (Function::Subscript | Function::Part, [_, _, ..]) => Ok(arg_types.to_vec()),
            (Function::Flatten | Function::Bounds | Function::Checked | Function::Order, [_]) => {
                Ok(arg_types.to_vec())
            }
            (_, [DataType::Null, _]) => Ok(arg_types.to_vec()),
            // Elements are compared in the type that holds both.
            (Function::EqualsAny | Function::Without, [list, item]) => {
                let element = item_of(list).ok_or_else(wrong)?;
                let common = comparison_coercion(element.data_type(), item).ok_or_else(wrong)?;
                Ok(vec![list_of(element, common.clone()), common])
            }
            (Function::Contains | Function::Overlaps, [list, other]) => {
                let (Some((depth, element)), Some((other_depth, other))) =
                    (innermost(list), innermost(other))
                else {
                    return match other {
                        DataType::Null => Ok(arg_types.to_vec()),
                        _ => Err(wrong().into()),
                    };
                };
                let common = comparison_coercion(element.data_type(), other.data_type()).ok_or_else(wrong)?;
                let nested = |depth: usize, element: &FieldRef| {
                    (1..depth).fold(list_of(element, common.clone()), |inner, _| {
                        DataType::new_list(inner, true)
                    })
                };
                Ok(vec![nested(depth, element), nested(other_depth, other)])
            }
            _ => Err(wrong().into()),
        }
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by return_field_from_args",
            self.name()
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(first) = args.arg_fields.first() else {
            return Err(exec_datafusion_err!("{} takes an array", self.name()));
        };
        let field = self.field(first)?;
        // Which values elements can have is known beside the array.
        let values = first.metadata().get(VALUES);
        Ok(match (values, field.data_type()) {
            (Some(values), DataType::List(_) | DataType::Utf8) => {
                let mut metadata = field.metadata().clone();
                metadata.insert(VALUES.to_owned(), values.clone());
                Arc::new(field.as_ref().clone().with_metadata(metadata))
            }
            _ => field,
        })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // An array of one dimension is flat.
        if self.function == Function::Flatten
            && let [array] = args.as_slice()
            && matches!(innermost(&info.get_data_type(array)?), Some((1, _)))
        {
            return Ok(ExprSimplifyResult::Simplified(array.clone()));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = Arc::clone(&args.return_field);
        on_arrays(&args, |arrays, rows| {
            if arrays[0].data_type() == &DataType::Null {
                return Ok(arrow::array::new_null_array(field.data_type(), rows));
            }
            let Some(list) = arrays[0].as_list_opt::<i32>() else {
                return match self.function {
                    Function::Flatten => Ok(Arc::clone(&arrays[0])),
                    _ => Err(exec_datafusion_err!("{} takes arrays", self.name())),
                };
            };
            match self.function {
                Function::Subscript => subscript(list, &numbers(&arrays[1..])?, field.data_type()),
                Function::Part => part(list, &numbers(&arrays[1..])?),
                Function::Flatten => Ok(Arc::new(flattened_list(list)?)),
                Function::Contains | Function::Overlaps => {
                    let Some(other) = arrays[1].as_list_opt::<i32>() else {
                        return Ok(arrow::array::new_null_array(field.data_type(), rows));
                    };
                    compare_sets(list, other, self.function == Function::Contains)
                }
                Function::EqualsAny | Function::Without => {
                    let item = without_null_type(&arrays[1], list)?;
                    match self.function {
                        Function::EqualsAny => equals_any(list, &item),
                        _ => without(list, &item),
                    }
                }
                Function::Bounds => Ok(Arc::new(bounds(list))),
                Function::Checked => {
                    check_lengths(list)?;
                    Ok(Arc::clone(&arrays[0]))
                }
                Function::Order => order(&arrays[0]),
            }
        })
    }
}

/// A value as the elements of a list are: NULL of their type.
fn without_null_type(value: &ArrayRef, list: &ListArray) -> Result<ArrayRef> {
    match value.data_type() {
        DataType::Null => Ok(cast(value, list.values().data_type())?),
        _ => Ok(Arc::clone(value)),
    }
}

fn numbers(arrays: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    arrays
        .iter()
        .map(|array| Ok(cast(array, &DataType::Int64)?))
        .collect()
}

fn number(array: &ArrayRef, row: usize) -> Option<i64> {
    array
        .is_valid(row)
        .then(|| array.as_primitive::<Int64Type>().value(row))
}

/// Where a row's elements begin and how many there are; none if it is NULL.
fn extent(list: &ListArray, row: usize) -> Option<(usize, usize)> {
    if list.is_null(row) {
        return None;
    }
    let offsets = list.value_offsets();
    let (start, end) = (offsets[row], offsets[row + 1]);
    Some((usize::try_from(start).ok()?, usize::try_from(end - start).ok()?))
}

fn index(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

fn subscript(list: &ListArray, places: &[ArrayRef], result: &DataType) -> Result<ArrayRef> {
    // A number of places that is not that of the dimensions names no element.
    if innermost(list.data_type()).is_none_or(|(depth, _)| depth != places.len()) {
        return Ok(arrow::array::new_null_array(result, list.len()));
    }
    let mut level = list.clone();
    let mut rows: Vec<Option<usize>> = (0..list.len()).map(Some).collect();
    for places in places {
        for (original, row) in rows.iter_mut().enumerate() {
            *row = row.and_then(|row| {
                let (start, length) = extent(&level, row)?;
                let place = usize::try_from(number(places, original)?).ok()?;
                (1..=length).contains(&place).then(|| start + place - 1)
            });
        }
        let values = Arc::clone(level.values());
        if values.as_list_opt::<i32>().is_none() {
            let indices: UInt32Array = rows.iter().map(|row| row.and_then(index)).collect();
            return Ok(take(&values, &indices, None)?);
        }
        level = values.as_list::<i32>().clone();
    }
    Err(exec_datafusion_err!(
        "an array has fewer dimensions than its type"
    ))
}

fn part(list: &ListArray, bounds: &[ArrayRef]) -> Result<ArrayRef> {
    let rows: Vec<usize> = (0..list.len()).collect();
    Ok(Arc::new(sliced(list, bounds, &rows)?))
}

/// The parts of arrays between bounds; `rows` says of which row's bounds each is.
fn sliced(list: &ListArray, bounds: &[ArrayRef], rows: &[usize]) -> Result<ListArray> {
    let [lower, upper, rest @ ..] = bounds else {
        return Ok(list.clone());
    };
    let mut indices = vec![];
    let mut row_of = vec![];
    let mut lengths = vec![];
    let mut valid = vec![];
    for (at, row) in rows.iter().enumerate() {
        let known = extent(list, at).zip(number(lower, *row)).zip(number(upper, *row));
        let Some((((start, length), lower), upper)) = known else {
            valid.push(false);
            lengths.push(0);
            continue;
        };
        let low = usize::try_from(lower.max(1) - 1).unwrap_or(usize::MAX);
        let high = usize::try_from(upper.max(0)).unwrap_or(usize::MAX).min(length);
        let before = indices.len();
        for place in low..high {
            indices.push(index(start + place));
            row_of.push(*row);
        }
        lengths.push(indices.len() - before);
        valid.push(true);
    }
    let indices: UInt32Array = indices.into_iter().collect();
    let mut values = take(list.values(), &indices, None)?;
    if !rest.is_empty() {
        values = match values.as_list_opt::<i32>() {
            Some(inner) => Arc::new(sliced(inner, rest, &row_of)?),
            None => {
                // More bounds than dimensions: nothing is there.
                lengths = vec![0; lengths.len()];
                values.slice(0, 0)
            }
        };
    }
    let DataType::List(item) = list.data_type() else {
        return Err(exec_datafusion_err!("an array is not a list"));
    };
    Ok(ListArray::try_new(
        Arc::clone(item),
        OffsetBuffer::from_lengths(lengths),
        values,
        Some(NullBuffer::from(valid)),
    )?)
}

/// The elements of all dimensions in one.
fn flattened_list(list: &ListArray) -> Result<ListArray> {
    let Some(inner) = list.values().as_list_opt::<i32>() else {
        return Ok(list.clone());
    };
    let inner = flattened_list(inner)?;
    let mut indices: Vec<Option<u32>> = vec![];
    let mut lengths = vec![];
    for row in 0..list.len() {
        let before = indices.len();
        if let Some((start, length)) = extent(list, row) {
            for at in start..start + length {
                if let Some((from, count)) = extent(&inner, at) {
                    indices.extend((from..from + count).map(index));
                }
            }
        }
        lengths.push(indices.len() - before);
    }
    let indices: UInt32Array = indices.into_iter().collect();
    let DataType::List(item) = inner.data_type() else {
        return Err(exec_datafusion_err!("an array is not a list"));
    };
    Ok(ListArray::try_new(
        Arc::clone(item),
        OffsetBuffer::from_lengths(lengths),
        take(inner.values(), &indices, None)?,
        list.nulls().cloned(),
    )?)
}

/// Elements as what compares as they do.
fn comparable(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Interval(_) => datetime::sort_keys(values),
        _ => Ok(Arc::clone(values)),
    }
}

/// `a @> b` or `a && b`. A NULL element is equal to nothing.
fn compare_sets(list: &ListArray, other: &ListArray, contains: bool) -> Result<ArrayRef> {
    let (list, other) = (flattened_list(list)?, flattened_list(other)?);
    let (values, other_values) = (comparable(list.values())?, comparable(other.values())?);
    let equal = make_comparator(&values, &other_values, SortOptions::default())?;
    let out: BooleanArray = (0..list.len())
        .map(|row| {
            let (start, length) = extent(&list, row)?;
            let (other_start, other_length) = extent(&other, row)?;
            let is_there = |wanted: usize| {
                other.values().is_valid(wanted)
                    && (start..start + length)
                        .any(|at| list.values().is_valid(at) && equal(at, wanted).is_eq())
            };
            let mut wanted = other_start..other_start + other_length;
            Some(if contains {
                wanted.all(is_there)
            } else {
                wanted.any(is_there)
            })
        })
        .collect();
    Ok(Arc::new(out))
}

fn equals_any(list: &ListArray, items: &ArrayRef) -> Result<ArrayRef> {
    let equal = make_comparator(
        &comparable(list.values())?,
        &comparable(items)?,
        SortOptions::default(),
    )?;
    let out: BooleanArray = (0..list.len())
        .map(|row| {
            let (start, length) = extent(list, row)?;
            let mut unknown = items.is_null(row) && length > 0;
            for at in start..start + length {
                if list.values().is_null(at) || items.is_null(row) {
                    unknown = true;
                } else if equal(at, row).is_eq() {
                    return Some(true);
                }
            }
            (!unknown).then_some(false)
        })
        .collect();
    Ok(Arc::new(out))
}

/// The arrays without the elements that are not distinct from a value.
fn without(list: &ListArray, items: &ArrayRef) -> Result<ArrayRef> {
    let compare = make_comparator(
        &comparable(list.values())?,
        &comparable(items)?,
        SortOptions::default(),
    )?;
    let mut indices: Vec<Option<u32>> = vec![];
    let mut lengths = vec![];
    for row in 0..list.len() {
        let before = indices.len();
        if let Some((start, length)) = extent(list, row) {
            indices.extend(
                (start..start + length)
                    .filter(|at| compare(*at, row).is_ne())
                    .map(index),
            );
        }
        lengths.push(indices.len() - before);
    }
    let indices: UInt32Array = indices.into_iter().collect();
    let DataType::List(item) = list.data_type() else {
        return Err(exec_datafusion_err!("an array is not a list"));
    };
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(item),
        OffsetBuffer::from_lengths(lengths),
        take(list.values(), &indices, None)?,
        list.nulls().cloned(),
    )?))
}

/// `[1:2][1:3]`; NULL of an empty array.
fn bounds(list: &ListArray) -> StringArray {
    (0..list.len())
        .map(|row| {
            let (mut start, mut length) = extent(list, row)?;
            let mut level = list.clone();
            let mut out = String::new();
            loop {
                if length == 0 {
                    return (!out.is_empty()).then_some(out);
                }
                out.push_str(&format!("[1:{length}]"));
                let Some(inner) = level.values().as_list_opt::<i32>().cloned() else {
                    return Some(out);
                };
                (start, length) = extent(&inner, start)?;
                level = inner;
            }
        })
        .collect()
}

/// Arrays in an array are of one length.
fn check_lengths(list: &ListArray) -> SqlResult<()> {
    let Some(inner) = list.values().as_list_opt::<i32>() else {
        return Ok(());
    };
    for row in 0..list.len() {
        let Some((start, length)) = extent(list, row) else {
            continue;
        };
        let mut lengths = (start..start + length).map(|at| extent(inner, at).map_or(0, |(_, length)| length));
        if let Some(first) = lengths.next()
            && lengths.any(|length| length != first)
        {
            return Err(SqlError::new(
                SqlState::ArraySubscriptError,
                "multidimensional arrays must have array expressions with matching dimensions",
            ));
        }
    }
    Ok(())
}

fn order(arrays: &ArrayRef) -> Result<ArrayRef> {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let converter = RowConverter::new(vec![SortField::new_with_options(
        arrays.data_type().clone(),
        options,
    )])?;
    let rows = converter.convert_columns(&[Arc::clone(arrays)])?;
    let keys: BinaryArray = rows
        .iter()
        .enumerate()
        .map(|(row, key)| arrays.is_valid(row).then(|| key.data().to_vec()))
        .collect();
    Ok(Arc::new(keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use arrow::datatypes::Int32Type;

    fn lists(rows: Vec<Option<Vec<Option<i32>>>>) -> ListArray {
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows)
    }

    fn places(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    #[test]
    fn there_is_nothing_outside_of_an_array() {
        let list = lists(vec![Some(vec![Some(1), Some(2)]); 4]);
        let at = [places(vec![Some(2), Some(-1), Some(3), None])];
        let found = subscript(&list, &at, &DataType::Int32).unwrap();
        let found: Vec<Option<i32>> = found.as_primitive::<Int32Type>().iter().collect();
        assert_eq!(found, [Some(2), None, None, None]);
        let bounds = [
            places(vec![Some(0), Some(2), Some(5), None]),
            places(vec![Some(1), Some(9), Some(6), Some(1)]),
        ];
        let parts = part(&list, &bounds).unwrap();
        let expected = lists(vec![Some(vec![Some(1)]), Some(vec![Some(2)]), Some(vec![]), None]);
        assert_eq!(parts.as_list::<i32>(), &expected);
    }

    #[test]
    fn null_is_equal_to_nothing_in_sets_and_is_removed_by_name() {
        let one = lists(vec![Some(vec![Some(1), None]), Some(vec![Some(1), None])]);
        let other = lists(vec![Some(vec![None]), Some(vec![Some(1)])]);
        let contains = compare_sets(&one, &other, true).unwrap();
        assert_eq!(contains.as_boolean(), &BooleanArray::from(vec![false, true]));
        let items: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![None, Some(1)]));
        let left = without(&one, &items).unwrap();
        assert_eq!(
            left.as_list::<i32>(),
            &lists(vec![Some(vec![Some(1)]), Some(vec![None])])
        );
        let items: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(5), Some(1)]));
        let any = equals_any(&one, &items).unwrap();
        assert_eq!(any.as_boolean(), &BooleanArray::from(vec![None, Some(true)]));
    }

    #[test]
    fn null_is_the_largest_element() {
        let list: ArrayRef = Arc::new(lists(vec![
            Some(vec![Some(1), Some(9)]),
            Some(vec![Some(1), None]),
            Some(vec![Some(1)]),
        ]));
        let keys = order(&list).unwrap();
        let keys = keys.as_binary::<i32>();
        assert!(keys.value(0) < keys.value(1));
        assert!(keys.value(2) < keys.value(0));
    }
}
