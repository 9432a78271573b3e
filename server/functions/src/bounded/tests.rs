//! Limits around functions: what they refuse, what they let through, and that every function was looked at.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use datafusion::scalar::ScalarValue;
use millrace_postgres::from_internal;
use millrace_resource::memory::Resident;
use millrace_resource::query_memory::QueryMemory;

use super::limited::Limited;
use super::*;

fn budget(bytes: Option<usize>) -> MemoryBudget {
    let memory = Memory::new(bytes, Resident::Unknown);
    MemoryBudget::new(&memory, QueryMemory::new(&memory))
}

fn state() -> SessionState {
    let context = datafusion::prelude::SessionContext::new();
    let mut state = context.state();
    let budget = budget(None);
    crate::registry::register(&mut state, &budget).unwrap();
    register(&mut state, &budget).unwrap();
    state
}

/// Calls a function as an operator does.
fn call(function: &ScalarUDF, args: Vec<ColumnarValue>, rows: usize) -> Result<ColumnarValue> {
    let fields: Vec<_> = args
        .iter()
        .map(|value| Arc::new(Field::new("", value.data_type(), true)))
        .collect();
    let scalars: Vec<Option<&ScalarValue>> = args
        .iter()
        .map(|value| match value {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        })
        .collect();
    let return_field = function.return_field_from_args(ReturnFieldArgs {
        arg_fields: &fields,
        scalar_arguments: &scalars,
    })?;
    function.invoke_with_args(ScalarFunctionArgs {
        args,
        arg_fields: fields,
        number_rows: rows,
        return_field,
        config_options: Arc::new(ConfigOptions::default()),
    })
}

fn refused(result: Result<ColumnarValue>) -> String {
    let error = from_internal::datafusion(result.unwrap_err());
    assert_eq!(error.code, SqlState::ProgramLimitExceeded, "{error:?}");
    error.message
}

fn text(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(text))
}

fn number(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Int64(Some(number)))
}

#[test]
fn every_function_has_limits() {
    let state = state();
    for (name, function) in state.scalar_functions() {
        let limited = function.inner().is::<Limited>();
        assert!(limited || is_exempt(function.name()), "{name} has no limits");
    }
}

/// Functions of ours replace DataFusion's, some of which stay under another name.
#[test]
fn limits_change_no_function() {
    let context = datafusion::prelude::SessionContext::new();
    let mut before = context.state();
    let budget = budget(None);
    crate::registry::register(&mut before, &budget).unwrap();
    let mut after = before.clone();
    register(&mut after, &budget).unwrap();
    for (name, function) in before.scalar_functions() {
        let limited = &after.scalar_functions()[name];
        let inner = limited.inner().downcast_ref::<Limited>();
        let inner = inner.map_or(limited, |limited| limited.inner());
        assert!(Arc::ptr_eq(inner, function), "{name} is another function");
    }
}

/// The functions by name, so that a new one is looked at: how its result grows ([`growth`]), and its time ([`work`]).
#[test]
fn every_function_was_looked_at() {
    let state = state();
    let scalar = state.scalar_functions().values().map(|function| function.name());
    let aggregate = state
        .aggregate_functions()
        .values()
        .map(|function| function.name());
    let window = state.window_functions().values().map(|function| function.name());
    let higher = state
        .higher_order_functions()
        .values()
        .map(|function| function.name());
    let names: BTreeSet<&str> = scalar.chain(aggregate).chain(window).chain(higher).collect();
    let known: BTreeSet<&str> = include_str!("functions.txt").split_whitespace().collect();
    let new: Vec<&&str> = names.difference(&known).collect();
    let gone: Vec<&&str> = known.difference(&names).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "not looked at: {new:?}; not there: {gone:?}"
    );
}

#[test]
fn what_is_too_large_is_refused_by_name() {
    let state = state();
    let function = |name: &str| Arc::clone(&state.scalar_functions()[name]);
    let long = "a".repeat(1 << 20);
    for (name, args) in [
        ("repeat", vec![text("abc"), number(1 << 40)]),
        ("lpad", vec![text("abc"), number(1 << 40)]),
        ("replace", vec![text(&long), text("a"), text(&long)]),
        (
            "regexp_replace",
            vec![text(&long), text("a"), text(&"b".repeat(1_000)), text("g")],
        ),
        ("format", vec![text(&"%1$s".repeat(500)), text(&long)]),
        ("array_repeat", vec![text(&long), number(1_000)]),
        ("generate_series", vec![number(1), number(i64::MAX)]),
        ("concat_ws", std::iter::repeat_n(text(&long), 300).collect()),
    ] {
        let message = refused(call(&function(name), args, 1));
        assert!(message.contains(name) && message.contains("MB"), "{message}");
    }
    let made = call(&function("replace"), vec![text(&long), text("c"), text(&long)], 1).unwrap();
    assert!(matches!(made, ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))) if text == long));
}

#[test]
fn a_constant_counts_in_each_row() {
    let state = state();
    let concat = Arc::clone(&state.scalar_functions()["concat"]);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["x"; 8192]));
    let args = |length: usize| {
        vec![
            ColumnarValue::Array(Arc::clone(&column)),
            text(&"y".repeat(length)),
        ]
    };
    let message = refused(call(&concat, args(1 << 20), 8192));
    assert!(message.contains("concat"), "{message}");
    let made = call(&concat, args(10), 8192).unwrap().into_array(8192).unwrap();
    assert_eq!(made.as_string::<i32>().value(8191), "xyyyyyyyyyy");
    // The one result of constants becomes one a row.
    let repeat = Arc::clone(&state.scalar_functions()["repeat"]);
    refused(call(&repeat, vec![text("x"), number(1 << 20)], 8192));
    call(&repeat, vec![text("x"), number(1 << 20)], 1).unwrap();
}

#[test]
fn each_row_counts_for_itself() {
    let state = state();
    let repeat = Arc::clone(&state.scalar_functions()["repeat"]);
    let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(1 << 20), None, Some(-5), Some(3)]));
    let made = call(&repeat, vec![text("ab"), ColumnarValue::Array(times)], 4).unwrap();
    let made = made.into_array(4).unwrap();
    assert_eq!(made.as_string::<i32>().value_length(0), 2 << 20);
    assert_eq!(made.as_string::<i32>().value(3), "ababab");
    let times: ArrayRef = Arc::new(Int64Array::from(vec![100 << 20; 20]));
    let message = refused(call(&repeat, vec![text("ab"), ColumnarValue::Array(times)], 20));
    assert!(message.contains("batch"), "{message}");
}

#[test]
fn calls_in_plans_have_limits_and_large_constants_stay() {
    use datafusion::logical_expr::{Volatility, col, lit};
    let state = state();
    let fields = vec![Field::new("t", DataType::Utf8, true)];
    let schema = DFSchema::try_from(arrow::datatypes::Schema::new(fields)).unwrap();
    let limits = |expression: Expr| in_expression(&state, expression, &schema).unwrap();
    let volatility = |expression: &Expr| match expression {
        Expr::ScalarFunction(call) => {
            assert!(call.func.inner().is::<Limited>());
            call.func.signature().volatility
        }
        other => panic!("{other} is no call"),
    };
    let joined = Expr::BinaryExpr(BinaryExpr::new(
        Box::new(col("t")),
        Operator::StringConcat,
        Box::new(lit("x")),
    ));
    let name = joined.schema_name().to_string();
    let joined = limits(joined);
    assert_eq!(volatility(&joined), Volatility::Immutable);
    assert_eq!(joined.schema_name().to_string(), name);
    let repeat = Arc::clone(&state.scalar_functions()["repeat"]);
    let small = limits(repeat.call(vec![lit("x"), lit(10_i64)]));
    assert_eq!(volatility(&small), Volatility::Immutable);
    let large = limits(repeat.call(vec![lit("x"), lit(1_000_000_i64)]));
    assert_eq!(volatility(&large), Volatility::Volatile);
    // Over columns there is nothing to work out.
    let columns = limits(repeat.call(vec![col("t"), lit(1_000_000_i64)]));
    assert_eq!(volatility(&columns), Volatility::Immutable);
    let long = lit("y".repeat(100_000));
    assert_eq!(volatility(&limits(long.clone())), Volatility::Volatile);
    // A comparison repeats no constant, and what looks for constants finds it.
    assert_eq!(limits(col("t").eq(long.clone())), col("t").eq(long.clone()));
    // Neither does a function, which counts its arguments by itself.
    let length = Arc::clone(&state.scalar_functions()["length"]);
    let nested = limits(length.call(vec![repeat.call(vec![lit("x"), lit(1_000_000_i64)])]));
    let Expr::ScalarFunction(length) = &nested else {
        panic!("{nested} is no call");
    };
    assert_ne!(length.args[0], large);
    // Twice is as once.
    assert_eq!(limits(nested.clone()), nested);
    let once = limits(large);
    assert_eq!(limits(once.clone()), once);
}

/// What an aggregate grows by is asked for before it is there, by one for a single group and by one for all groups.
#[test]
fn aggregates_ask_before_they_grow() {
    let updated = |bytes: Option<usize>, name: &str, is_grouped: bool| {
        let mut state = datafusion::prelude::SessionContext::new().state();
        crate::registry::register(&mut state, &budget(bytes)).unwrap();
        let function = Arc::clone(&state.aggregate_functions()[name]);
        let field = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = arrow::datatypes::Schema::new(vec![field("t"), field("separator")]);
        let column = |at| datafusion::physical_expr::expressions::Column::new(schema.field(at).name(), at);
        let separator = datafusion::physical_expr::expressions::lit(",");
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(column(0))];
        let mut fields = vec![Arc::new(field("t"))];
        if name == "string_agg" {
            exprs.push(separator);
            fields.push(Arc::new(field("separator")));
        }
        let args = datafusion::logical_expr::function::AccumulatorArgs {
            return_field: function.return_field(&fields).unwrap(),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name,
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        };
        let values: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20).as_str(); 20]));
        let separators: ArrayRef = Arc::new(StringArray::from(vec![","; 20]));
        let columns = [values, separators];
        let columns = &columns[..exprs.len()];
        match is_grouped {
            true => {
                let mut groups = function.create_groups_accumulator(args).unwrap();
                groups.update_batch(columns, &[0; 20], None, 1)
            }
            false => function.accumulator(args).unwrap().update_batch(columns),
        }
    };
    for name in ["string_agg", "array_agg"] {
        for is_grouped in [false, true] {
            updated(None, name, is_grouped).unwrap();
            updated(Some(400 << 20), name, is_grouped).unwrap();
            let error = updated(Some(64 << 20), name, is_grouped).unwrap_err();
            let error = from_internal::datafusion(error);
            assert_eq!(error.code, SqlState::OutOfMemory, "{error:?}");
            assert!(error.message.contains(name), "{error:?}");
        }
    }
}

/// What is made of constants is made once, and not for each row: 100 lists of a million texts were 100 million.
#[test]
fn a_call_of_constants_is_made_once() {
    let state = state();
    let function = |name: &str| Arc::clone(&state.scalar_functions()[name]);
    let list = call(&function("array_repeat"), vec![text(""), number(1_000)], 8192).unwrap();
    let calls = [
        ("array_replace", vec![list.clone(), text("a"), text("b")]),
        ("array_append", vec![list.clone(), text("a")]),
        ("array_to_string", vec![list, text(",")]),
        ("replace", vec![text("a"), text("b"), text("c")]),
    ];
    for (name, args) in calls {
        let made = call(&function(name), args, 8192).unwrap();
        assert!(matches!(made, ColumnarValue::Scalar(_)), "{name}");
    }
    // Each row has a number of its own.
    let random = call(&function("random"), vec![], 3).unwrap();
    assert!(matches!(random, ColumnarValue::Array(values) if values.len() == 3));
}
