//! Enums as arguments of functions and beside literals.
//!
//! A function that takes anything and is not told here gets labels, so that none sees how a value is held (see
//! [`millrace_postgres::types::enumeration`]).

use arrow::datatypes::Field;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, Operator, Values, lit};
use millrace_postgres::types::enumeration::is_enum;
use millrace_postgres::types::{element, sql_name};

use crate::quoted::read_as;
use crate::sql::output_types::field_of;
use crate::sql::quantified;
use crate::{cast, domain, enums};

/// Functions that give one of their arguments.
const GIVES: [&str; 4] = ["coalesce", "nullif", "greatest", "least"];

/// Whether a function knows values as they are held.
fn is_known(name: &str) -> bool {
    matches!(
        name,
        cast::NAME
            | cast::ASSIGN
            | enums::HELD
            | "enum_first"
            | "enum_last"
            | "enum_range"
            | "pg_typeof"
            | "unnest"
            | "array_element"
            | "array_has"
            | "array_has_all"
            | "array_has_any"
            | "array_subscript"
            | "array_part"
            | "array_flatten_all"
            | "array_contains"
            | "array_overlaps"
            | "array_checked"
            | "array_order"
            | "array_length"
            | "cardinality"
            | "array_ndims"
            | domain::NAME
    ) || GIVES.contains(&name)
        || quantified::operator_of(name).is_some()
}

/// Whether an aggregate or window function gives one of its values, or looks at none.
fn is_known_aggregate(name: &str) -> bool {
    matches!(
        name,
        "min"
            | "max"
            | "count"
            | "array_agg"
            | "first_value"
            | "last_value"
            | "nth_value"
            | "any_value"
            | "mode"
            | "lag"
            | "lead"
    )
}

/// The enum that an expression is.
fn enum_of(expr: &Expr, schema: &DFSchema) -> Option<Field> {
    field_of(expr, schema).ok().filter(is_enum)
}

/// The values of an expression as labels, if it is an enum or an array of one.
fn labelled(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let field = field_of(expr, schema).ok()?;
    let name = match element(&field) {
        None if is_enum(&field) => "text",
        Some(element) if is_enum(&element) => {
            return Some(cast::udf().call(vec![expr.clone(), lit("text[]")]));
        }
        _ => return None,
    };
    Some(cast::udf().call(vec![as_held(expr, &field), lit(name)]))
}

/// A held value that says its type, wherever its plan goes.
fn as_held(expr: &Expr, field: &Field) -> Expr {
    enums::held().call(vec![expr.clone(), lit(sql_name(field))])
}

/// The source of a cast says its type.
fn read_from(args: &mut [Expr], schema: &DFSchema) -> bool {
    let Some(value) = args.first_mut() else {
        return false;
    };
    let says_it = matches!(value, Expr::Literal(..))
        || matches!(value, Expr::ScalarFunction(call) if matches!(call.func.name(), cast::NAME | enums::HELD));
    match enum_of(value, schema) {
        Some(field) if !says_it => {
            *value = as_held(value, &field);
            true
        }
        _ => false,
    }
}

/// Expressions that go to a function which takes them as labels.
fn all_labelled(args: &mut [Expr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for arg in args {
        if let Some(labels) = labelled(arg, schema) {
            *arg = labels;
            changed = true;
        }
    }
    changed
}

/// Reads the quoted literals among expressions of which one is an enum.
fn read_beside<'a>(all: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> Result<bool> {
    let all: Vec<&mut Expr> = all.collect();
    let Some(field) = all.iter().find_map(|expr| enum_of(expr, schema)) else {
        return Ok(false);
    };
    let mut changed = false;
    for expr in all {
        if let Some(read) = read_as(expr, &field)? {
            *expr = read;
            changed = true;
        }
    }
    Ok(changed)
}

/// The rows of VALUES, whose literals are of the type of the enum in their column.
///
/// # Errors
/// A literal is no value of the enum.
pub(crate) fn in_values(values: &mut Values) -> Result<bool> {
    let width = values.values.first().map_or(0, Vec::len);
    let empty = DFSchema::empty();
    let mut changed = false;
    for column in 0..width {
        changed |= read_beside(
            values.values.iter_mut().filter_map(|row| row.get_mut(column)),
            &empty,
        )?;
    }
    Ok(changed)
}

/// What an expression becomes, where it has to do with enums.
///
/// # Errors
/// A literal is no value of the enum beside it.
pub fn replaced(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let changed = match &mut expr {
        Expr::ScalarFunction(call) => {
            let name = call.func.name().to_owned();
            if GIVES.contains(&name.as_str()) {
                read_beside(call.args.iter_mut(), schema)?
            } else if quantified::operator_of(&name).is_some()
                && let [value, list] = call.args.as_mut_slice()
            {
                let of = field_of(list, schema).ok().and_then(|list| element(&list));
                let read = match of.filter(|of| is_enum(of)) {
                    Some(of) => read_as(value, &of)?,
                    None => None,
                };
                let is_read = read.is_some();
                if let Some(read) = read {
                    *value = read;
                }
                is_read
            } else if name == "make_array"
                && let Some(of) = call.args.iter().find_map(|arg| enum_of(arg, schema))
            {
                all_labelled(&mut call.args, schema);
                let array = Expr::ScalarFunction(call.clone());
                let target = format!("{}[]", sql_name(&of));
                expr = cast::udf().call(vec![array, lit(target)]);
                true
            } else if matches!(name.as_str(), cast::NAME | cast::ASSIGN) {
                read_from(&mut call.args, schema)
            } else if is_known(&name) {
                false
            } else {
                all_labelled(&mut call.args, schema)
            }
        }
        Expr::Case(case) => {
            let mut changed = false;
            if let Some(of) = case.expr.as_ref().and_then(|of| enum_of(of, schema)) {
                for (when, _) in &mut case.when_then_expr {
                    if let Some(read) = read_as(when, &of)? {
                        **when = read;
                        changed = true;
                    }
                }
            }
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            let results = results.chain(case.else_expr.as_deref_mut());
            read_beside(results, schema)? || changed
        }
        Expr::AggregateFunction(call) if is_known_aggregate(call.func.name()) => false,
        Expr::AggregateFunction(call) => all_labelled(&mut call.params.args, schema),
        Expr::WindowFunction(call) if is_known_aggregate(call.fun.name()) => {
            // The third of lag and lead is what is taken where there is no row.
            let args = &mut call.params.args;
            args.len() == 3 && read_beside(args.iter_mut().step_by(2), schema)?
        }
        Expr::WindowFunction(call) => all_labelled(&mut call.params.args, schema),
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => {
            let mut changed = false;
            for side in [&mut binary.left, &mut binary.right] {
                if let Some(labels) = labelled(side, schema) {
                    **side = labels;
                    changed = true;
                }
            }
            changed
        }
        _ => false,
    };
    Ok(match changed {
        true => Transformed::yes(expr),
        false => Transformed::no(expr),
    })
}
