//! `x = ANY (array)` and the other comparisons with ANY and ALL of an array, in three-valued logic; `ARRAY(SELECT ..)`.
//!
//! * A quoted array, `x = ANY ('{1,2}')`, has elements of the type of the other side, which is known only when the
//!   comparison is bound. It becomes one comparison with each element, as `ARRAY[..]` does.
//! * Any other array is compared by a function: `any_eq(x, array)`, `all_lt(x, array)`.
//! * `ARRAY(SELECT x .. ORDER BY y)` becomes `(SELECT array_or_empty(array_agg(x ORDER BY y)) FROM ..)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, Scalar, make_comparator};
use arrow::compute::SortOptions;
use arrow::compute::kernels::{boolean, cmp, zip};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::logical_expr_common::type_coercion::binary::comparison_coercion;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    OrderByKind, SelectItem, SetExpr, TableAliasColumnDef, TableFactor, Value,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::array;
use millrace_sql::template::ROWS_OF_ARRAY;

use crate::arguments::on_arrays;
use crate::sql::row_values;
use crate::syntax::{self, parsed_query};

/// A comparison: the operator, the function for ANY, the function for ALL.
type Comparison = (BinaryOperator, &'static str, &'static str);

const COMPARISONS: [Comparison; 6] = [
    (BinaryOperator::Eq, "any_eq", "all_eq"),
    (BinaryOperator::NotEq, "any_ne", "all_ne"),
    (BinaryOperator::Lt, "any_lt", "all_lt"),
    (BinaryOperator::LtEq, "any_le", "all_le"),
    (BinaryOperator::Gt, "any_gt", "all_gt"),
    (BinaryOperator::GtEq, "any_ge", "all_ge"),
];

/// What a comparison becomes; `None`: it is not one with the elements of an array.
///
/// # Errors
/// The text is not an array.
pub fn compared_with_each(expr: &Expr) -> SqlResult<Option<Expr>> {
    let (left, comparison, right, is_any) = match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => (left, compare_op, right, true),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => (left, compare_op, right, false),
        Expr::Like {
            any: true, pattern, ..
        }
        | Expr::ILike {
            any: true, pattern, ..
        } => {
            let Some(patterns) = elements(pattern)? else {
                return Err(SqlError::unsupported(
                    "LIKE ANY is supported only with an array that is written as a list of elements",
                ));
            };
            let each = patterns.into_iter().map(|pattern| like(expr, pattern)).collect();
            return Ok(Some(row_values::joined(each, &BinaryOperator::Or)));
        }
        Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } => return like_all(expr, pattern),
        _ => return Ok(None),
    };
    if matches!(right.as_ref(), Expr::Subquery(_)) {
        return Ok(None);
    }
    let left = left.as_ref();
    if let Some(elements) = elements(right)? {
        return Ok(Some(with_each(left, comparison, elements, is_any)));
    }
    let known = COMPARISONS.iter().find(|(operator, ..)| operator == comparison);
    Ok(known.map(|(_, any, all)| {
        let function = if is_any { any } else { all };
        syntax::call(function, vec![left.clone(), right.as_ref().clone()])
    }))
}

/// `x LIKE ALL (..)`, which sqlparser reads as a call.
fn like_all(expr: &Expr, pattern: &Expr) -> SqlResult<Option<Expr>> {
    let Expr::Function(function) = pattern else {
        return Ok(None);
    };
    let ([ObjectNamePart::Identifier(name)], FunctionArguments::List(list)) =
        (function.name.0.as_slice(), &function.args)
    else {
        return Ok(None);
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = list.args.as_slice() else {
        return Ok(None);
    };
    if !name.value.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    let Some(patterns) = elements(array)? else {
        return Err(SqlError::unsupported(
            "LIKE ALL is supported only with an array that is written as a list of elements",
        ));
    };
    let each = patterns.into_iter().map(|pattern| like(expr, pattern)).collect();
    Ok(Some(Expr::Nested(Box::new(row_values::joined(
        each,
        &BinaryOperator::And,
    )))))
}

/// `x LIKE ANY (..)` with one of its patterns.
fn like(expr: &Expr, of_any: Expr) -> Expr {
    let mut one = expr.clone();
    if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut one {
        *any = false;
        **pattern = of_any;
    }
    one
}

fn with_each(left: &Expr, comparison: &BinaryOperator, elements: Vec<Expr>, is_any: bool) -> Expr {
    let is_membership = matches!(
        (comparison, is_any),
        (BinaryOperator::Eq, true) | (BinaryOperator::NotEq, false)
    );
    if is_membership && !elements.is_empty() {
        return Expr::Nested(Box::new(Expr::InList {
            expr: Box::new(left.clone()),
            list: elements,
            negated: !is_any,
        }));
    }
    let each = elements
        .into_iter()
        .map(|element| Expr::BinaryOp {
            left: Box::new(left.clone()),
            op: comparison.clone(),
            right: Box::new(element),
        })
        .collect();
    let joined = match is_any {
        true => row_values::joined(each, &BinaryOperator::Or),
        false => row_values::joined(each, &BinaryOperator::And),
    };
    Expr::Nested(Box::new(joined))
}

/// The elements of an array that is written out.
fn elements(expr: &Expr) -> SqlResult<Option<Vec<Expr>>> {
    Ok(match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                let elements = array::elements(text)?.into_iter();
                Some(
                    elements
                        .map(|element| element.map_or(Expr::value(Value::Null), |text| syntax::text(&text)))
                        .collect(),
                )
            }
            _ => None,
        },
        Expr::Array(array) if !array.elem.is_empty() => {
            let is_flat = !array.elem.iter().any(|element| matches!(element, Expr::Array(_)));
            is_flat.then(|| array.elem.clone())
        }
        Expr::Nested(inner) => elements(inner)?,
        _ => None,
    })
}

/// `ARRAY(SELECT ..)` as what computes it; `None`: it is something else.
///
/// # Errors
/// The query has not one column.
pub fn array_of_query(expr: &Expr) -> SqlResult<Option<Expr>> {
    let Expr::Function(function) = expr else {
        return Ok(None);
    };
    let ([ObjectNamePart::Identifier(name)], FunctionArguments::Subquery(query)) =
        (function.name.0.as_slice(), &function.args)
    else {
        return Ok(None);
    };
    if !name.value.eq_ignore_ascii_case("array") {
        return Ok(None);
    }
    let mut query = query.as_ref().clone();
    let mut names = vec![Ident::new("__element")];
    let order = match &mut query.order_by {
        Some(order_by) => order_of(&order_by.kind, &mut query.body, &mut names)?,
        None => String::new(),
    };
    // Which rows there are depends on their order only with a limit.
    if query.limit_clause.is_none() && query.fetch.is_none() {
        query.order_by = None;
    }
    let text = format!(
        "SELECT array_or_empty(array_agg({ROWS_OF_ARRAY}.__element{order})) FROM (SELECT 1) AS {ROWS_OF_ARRAY} (__element)"
    );
    let mut outer = parsed_query(&text)?;
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived {
            subquery,
            alias: Some(alias),
            ..
        } = &mut from.relation
    {
        **subquery = query;
        alias.columns = names
            .into_iter()
            .map(|name| TableAliasColumnDef {
                name,
                data_type: None,
            })
            .collect();
    }
    Ok(Some(Expr::Subquery(outer)))
}

/// The ORDER BY of the aggregate. Keys that the query does not put out become further columns of it.
fn order_of(kind: &OrderByKind, body: &mut SetExpr, names: &mut Vec<Ident>) -> SqlResult<String> {
    let OrderByKind::Expressions(keys) = kind else {
        return Ok(String::new());
    };
    let mut order = vec![];
    for key in keys {
        let column = match body {
            SetExpr::Select(select) => {
                let is_element = match (&key.expr, select.projection.first()) {
                    (Expr::Value(value), _) => matches!(&value.value, Value::Number(..)),
                    (Expr::Identifier(name), Some(SelectItem::ExprWithAlias { alias, .. })) => name == alias,
                    (key, Some(SelectItem::UnnamedExpr(element))) => key == element,
                    _ => false,
                };
                if is_element {
                    "__element".to_string()
                } else if select.distinct.is_some() {
                    return Err(SqlError::new(
                        SqlState::InvalidColumnReference,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    ));
                } else {
                    let name = format!("__key_{}", names.len());
                    select.projection.push(SelectItem::ExprWithAlias {
                        expr: key.expr.clone(),
                        alias: Ident::new(name.as_str()),
                    });
                    names.push(Ident::new(name.as_str()));
                    name
                }
            }
            _ => "__element".to_string(),
        };
        order.push(format!("{ROWS_OF_ARRAY}.{column}{}", key.options));
    }
    Ok(format!(" ORDER BY {}", order.join(", ")))
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![Arc::new(ScalarUDF::from(OrEmpty {
        signature: Signature::any(1, Volatility::Immutable),
    }))];
    for (operator, any, all) in COMPARISONS {
        for (name, is_any) in [(any, true), (all, false)] {
            functions.push(Arc::new(ScalarUDF::from(Quantified {
                name,
                operator: operator.clone(),
                is_any,
                signature: Signature::user_defined(Volatility::Immutable),
            })));
        }
    }
    functions
}

/// The operator of a comparison with ANY or ALL, by the name of its function.
pub fn operator_of(name: &str) -> Option<BinaryOperator> {
    let found = COMPARISONS
        .iter()
        .find(|(_, any, all)| *any == name || *all == name);
    found.map(|(operator, ..)| operator.clone())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    name: &'static str,
    operator: BinaryOperator,
    is_any: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = types else {
            return Err(exec_datafusion_err!("{} takes two arguments", self.name));
        };
        let list = |element: DataType| DataType::List(Arc::new(Field::new_list_field(element, true)));
        let element = match right {
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                field.data_type()
            }
            DataType::Null => return Ok(vec![left.clone(), list(left.clone())]),
            _ => {
                return Err(SqlError::new(
                    SqlState::WrongObjectType,
                    "op ANY/ALL (array) requires array on right side",
                )
                .into());
            }
        };
        let common = match (left, element) {
            (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
            // An array is compared with no part of another one.
            (DataType::List(_), _) | (_, DataType::List(_)) => None,
            (left, element) if left == element => Some(left.clone()),
            (left, element) => comparison_coercion(left, element),
        };
        let common = common.ok_or_else(|| {
            let name = |data_type: &DataType| {
                millrace_postgres::types::plain_name(&Field::new("", data_type.clone(), true))
            };
            let (left, element) = (name(left), name(element));
            SqlError::new(
                SqlState::UndefinedFunction,
                format!("operator does not exist: {left} {} {element}", self.operator),
            )
        })?;
        Ok(vec![common.clone(), list(common)])
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // One array for all rows: its elements one after the other, each compared with all of them.
        if let [ColumnarValue::Array(left), ColumnarValue::Scalar(list)] = args.args.as_slice() {
            return Ok(ColumnarValue::Array(Arc::new(self.with_one_list(left, list)?)));
        }
        on_arrays(&args, |arrays, _| {
            let list = arrays[1].as_list::<i32>();
            Ok(Arc::new(self.row_by_row(&arrays[0], list)?))
        })
    }
}

impl Quantified {
    fn compare(&self, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray> {
        if left.get().0.data_type().is_nested() {
            return self.compare_nested(left, right);
        }
        Ok(match self.operator {
            BinaryOperator::Eq => cmp::eq(left, right)?,
            BinaryOperator::NotEq => cmp::neq(left, right)?,
            BinaryOperator::Lt => cmp::lt(left, right)?,
            BinaryOperator::LtEq => cmp::lt_eq(left, right)?,
            BinaryOperator::Gt => cmp::gt(left, right)?,
            _ => cmp::gt_eq(left, right)?,
        })
    }

    /// Rows and arrays, by their parts: within them NULL is equal to NULL, and greater than all else.
    fn compare_nested(&self, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let rows = if left_is_one { right.len() } else { left.len() };
        let nulls_last = SortOptions::default().asc().nulls_last();
        let order = make_comparator(left, right, nulls_last)?;
        let compared = (0..rows).map(|row| {
            let (one, other) = (
                if left_is_one { 0 } else { row },
                if right_is_one { 0 } else { row },
            );
            (left.is_valid(one) && right.is_valid(other)).then(|| {
                let order = order(one, other);
                match self.operator {
                    BinaryOperator::Eq => order.is_eq(),
                    BinaryOperator::NotEq => order.is_ne(),
                    BinaryOperator::Lt => order.is_lt(),
                    BinaryOperator::LtEq => order.is_le(),
                    BinaryOperator::Gt => order.is_gt(),
                    _ => order.is_ge(),
                }
            })
        });
        Ok(compared.collect())
    }

    fn with_one_list(&self, left: &ArrayRef, list: &ScalarValue) -> Result<BooleanArray> {
        let list = list.to_array()?;
        let list = list.as_list::<i32>();
        if list.is_null(0) {
            return Ok(BooleanArray::new_null(left.len()));
        }
        let elements = list.value(0);
        let mut whole = BooleanArray::from(vec![!self.is_any; left.len()]);
        for index in 0..elements.len() {
            let one = self.compare(left, &Scalar::new(elements.slice(index, 1)))?;
            whole = match self.is_any {
                true => boolean::or_kleene(&whole, &one)?,
                false => boolean::and_kleene(&whole, &one)?,
            };
        }
        Ok(whole)
    }

    fn row_by_row(&self, left: &ArrayRef, list: &arrow::array::ListArray) -> Result<BooleanArray> {
        let mut out = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            if list.is_null(row) {
                out.push(None);
                continue;
            }
            let elements = list.value(row);
            let compared = self.compare(&Scalar::new(left.slice(row, 1)), &elements)?;
            // What decides: a true one for ANY, a false one for ALL.
            let decided = compared.iter().any(|one| one == Some(self.is_any));
            out.push(match (decided, compared.null_count() > 0) {
                (true, _) => Some(self.is_any),
                (false, true) => None,
                (false, false) => Some(!self.is_any),
            });
        }
        Ok(BooleanArray::from(out))
    }
}

/// An array, and an empty one for NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrEmpty {
    signature: Signature,
}

impl ScalarUDFImpl for OrEmpty {
    fn name(&self) -> &'static str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = args.arg_fields[0].as_ref().clone();
        Ok(Arc::new(field.with_name(self.name()).with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, _| {
            let array = &arrays[0];
            if array.null_count() == 0 {
                return Ok(Arc::clone(array));
            }
            let DataType::List(element) = array.data_type() else {
                return Err(exec_datafusion_err!("{} takes an array", self.name()));
            };
            let nothing = arrow::array::new_empty_array(element.data_type());
            let offsets = arrow::buffer::OffsetBuffer::from_lengths([0]);
            let empty = arrow::array::ListArray::new(Arc::clone(element), offsets, nothing, None);
            let is_null = arrow::compute::is_null(array)?;
            Ok(zip::zip(&is_null, &Scalar::new(empty), array)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, ListArray};
    use arrow::datatypes::Int32Type;

    fn quantified(operator: BinaryOperator, is_any: bool) -> Quantified {
        Quantified {
            name: "any_eq",
            operator,
            is_any,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    #[test]
    fn a_comparison_with_elements_is_unknown_where_one_of_them_could_decide() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(1), None]),
            Some(vec![Some(5), None]),
            Some(vec![Some(1), Some(2)]),
            Some(vec![]),
            None,
        ]);
        let left: ArrayRef = Arc::new(Int32Array::from(vec![5; 5]));
        let any = quantified(BinaryOperator::Eq, true)
            .row_by_row(&left, &list)
            .unwrap();
        let expected = vec![None, Some(true), Some(false), Some(false), None];
        assert_eq!(any, BooleanArray::from(expected));
        let all = quantified(BinaryOperator::GtEq, false)
            .row_by_row(&left, &list)
            .unwrap();
        let expected = vec![None, None, Some(true), Some(true), None];
        assert_eq!(all, BooleanArray::from(expected));
        let one = ScalarValue::try_from_array(&list, 0).unwrap();
        let left: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(7), None]));
        let any = quantified(BinaryOperator::Eq, true)
            .with_one_list(&left, &one)
            .unwrap();
        assert_eq!(any, BooleanArray::from(vec![Some(true), None, None]));
    }
}
