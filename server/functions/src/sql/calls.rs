//! Calls of PostgreSQL's functions as calls of others.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Value,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_sql::postgres::records::NAMED_ROW;

use crate::ordered_set::EACH_PERCENTILE_CONT;
use crate::sql::named_arguments::{interval_of_parts, path_of_names};
use crate::sql::rewrite::without_schema;
use crate::sql::{hypothetical, json_aggregates, literals, set_returning};
use crate::syntax::{self, call, number, text};
use crate::{buckets, cast, jsonb, regex};

/// What a call becomes; `None`: it stays, under the name that it has here.
///
/// # Errors
/// It has what is not supported.
pub(super) fn rewritten(function: &mut Function) -> SqlResult<Option<Expr>> {
    if let Some(counts) = hypothetical::counted(function)? {
        return Ok(Some(counts));
    }
    if syntax::name_of(function).as_deref() == Some("setseed") {
        return Err(SqlError::unsupported(
            "setseed is not supported: random() has no seed",
        ));
    }
    rename(function);
    of_each_fraction(function);
    if let Some(null) = nothing_beside(function) {
        return Ok(Some(null));
    }
    match json_aggregates::rewritten(function)? {
        Some(aggregate) => Ok(Some(aggregate)),
        None => Ok(modulo(function).or_else(|| special_call(function))),
    }
}

/// `jsonb_agg(t.*)` as `jsonb_agg(t)`, which is rewritten before names are looked up.
pub(super) fn rows_by_name(function: &mut Function) {
    const OF_JSON: [&str; 5] = ["json_agg", "jsonb_agg", "to_json", "to_jsonb", "row_to_json"];
    if !syntax::name_of(function).is_some_and(|name| OF_JSON.contains(&name.as_str())) {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args {
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(argument) = argument
                && let FunctionArgExpr::QualifiedWildcard(name) = argument
                && let [ObjectNamePart::Identifier(relation)] = name.0.as_slice()
            {
                *argument = FunctionArgExpr::Expr(Expr::Identifier(relation.clone()));
            }
        }
    }
}

/// PostgreSQL's names of functions that DataFusion has under another name.
const RENAMED: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("first", "first_value"),
    ("last", "last_value"),
    ("gen_random_uuid", "uuid"),
    ("json_array_length", "jsonb_array_length"),
    ("json_build_array", "jsonb_build_array"),
    ("json_build_object", "jsonb_build_object"),
    ("json_extract_path", "jsonb_extract_path"),
    ("json_extract_path_text", "jsonb_extract_path_text"),
    ("json_strip_nulls", "jsonb_strip_nulls"),
    ("json_typeof", "jsonb_typeof"),
    ("to_json", "to_jsonb"),
    ("array_to_json", "to_jsonb"),
    ("row_to_json", "to_jsonb"),
    ("array_remove", "array_without"),
    ("array_dims", "array_bounds"),
    ("array_replace", "array_replace_all"),
    ("statement_timestamp", "now"),
    ("transaction_timestamp", "now"),
    ("proctime", "now"),
    ("mz_now", "now"),
    ("approx_count_distinct", "approx_distinct"),
];

fn rename(function: &mut Function) {
    without_schema(&mut function.name);
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() {
        let folded = millrace_parser::fold(name);
        if let Some((_, renamed)) = RENAMED.iter().find(|(from, _)| *from == folded) {
            function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(*renamed))]);
        }
    }
}

/// Functions that there are of windows alone.
const OF_WINDOWS: [&str; 8] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
];

/// Refuses a function of windows that has none. `rank(x) WITHIN GROUP (..)` is an aggregate.
///
/// # Errors
/// 42809.
pub(super) fn window_functions_have_windows(function: &Function) -> SqlResult<()> {
    match syntax::name_of(function) {
        Some(name)
            if function.over.is_none()
                && function.within_group.is_empty()
                && OF_WINDOWS.contains(&name.as_str()) =>
        {
            let message = format!("window function {name} requires an OVER clause");
            Err(SqlError::new(SqlState::WrongObjectType, message))
        }
        _ => Ok(()),
    }
}

/// `lag(x, NULL)`: NULL, as `x` has it.
fn nothing_beside(function: &Function) -> Option<Expr> {
    let name = syntax::name_of(function)?;
    match syntax::arguments(function).as_slice() {
        [value, Expr::Value(offset), ..]
            if matches!(name.as_str(), "lag" | "lead") && offset.value == Value::Null =>
        {
            Some(call("nullif", vec![(*value).clone(), (*value).clone()]))
        }
        _ => None,
    }
}

/// `percentile_cont(ARRAY[..])` has another name here.
fn of_each_fraction(function: &mut Function) {
    let is_array = |argument: &Expr| match argument {
        Expr::Array(_) => true,
        Expr::Function(_) => syntax::cast_literal(argument).is_some_and(|(_, name)| name.ends_with("[]")),
        _ => false,
    };
    if !function.within_group.is_empty()
        && syntax::name_of(function).as_deref() == Some("percentile_cont")
        && matches!(syntax::arguments(function).as_slice(), [fractions] if is_array(fractions))
    {
        function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(EACH_PERCENTILE_CONT))]);
    }
}

/// `mod(a, b)` is `a % b`.
fn modulo(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let (
        [ObjectNamePart::Identifier(name)],
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
        ],
    ) = (function.name.0.as_slice(), list.args.as_slice())
    else {
        return None;
    };
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    (millrace_parser::fold(name) == "mod").then(|| {
        Expr::Nested(Box::new(Expr::BinaryOp {
            left: nested(left),
            op: BinaryOperator::Modulo,
            right: nested(right),
        }))
    })
}

/// Functions that become something else than a call of another name.
fn special_call(function: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    if millrace_parser::fold(name) == "make_interval"
        && let Some(call) = interval_of_parts(function)
    {
        return Some(call);
    }
    if millrace_parser::fold(name).starts_with("jsonb_path_")
        && let Some(unnamed) = path_of_names(function)
    {
        return Some(special_call(&unnamed).unwrap_or(Expr::Function(unnamed)));
    }
    let arguments: Vec<Expr> = match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect(),
        _ => vec![],
    };
    // One row for each element of a list.
    let rows_of = |name: &str, arguments: Vec<Expr>| Some(call("unnest", vec![call(name, arguments)]));
    let folded = millrace_parser::fold(name);
    if let Some(list) = regex::spelling::list_of(&folded) {
        return rows_of(list, arguments);
    }
    match (folded.as_str(), arguments.len()) {
        ("generate_series", 3) if set_returning::is_of_times(&arguments) => {
            rows_of(crate::zoned_shift::SERIES, arguments)
        }
        ("generate_series", 2 | 3) => rows_of("generate_series", arguments),
        // No table has partitions.
        ("pg_partition_ancestors", 1) => rows_of(
            "generate_series",
            vec![number("1".to_owned()), number("0".to_owned())],
        ),
        // The functions of operators.
        (
            "jsonb_object_field"
            | "json_object_field"
            | "jsonb_array_element"
            | "json_array_element"
            | "jsonb_object_field_text"
            | "json_object_field_text"
            | "jsonb_array_element_text"
            | "json_array_element_text",
            2,
        ) => {
            let [mut left, right] = <[Expr; 2]>::try_from(arguments).ok()?;
            if literals::quoted(&left) {
                let of = if folded.starts_with("jsonb") {
                    "jsonb"
                } else {
                    "json"
                };
                left = call(cast::NAME, vec![left, text(of)]);
            }
            let op = match folded.ends_with("_text") {
                true => BinaryOperator::LongArrow,
                false => BinaryOperator::Arrow,
            };
            Some(Expr::Nested(Box::new(Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(left))),
                op,
                right: Box::new(Expr::Nested(Box::new(right))),
            })))
        }
        ("approx_percentile", 1) => {
            let mut called = function.clone();
            called.name = ObjectName::from(vec![Ident::new("approx_percentile_cont")]);
            Some(Expr::Function(called))
        }
        ("string_to_table", 2 | 3) => rows_of("string_to_array", arguments),
        // A row of each member; in FROM it is two columns.
        ("jsonb_each" | "json_each" | "jsonb_each_text" | "json_each_text", 1) => {
            let [object] = <[Expr; 1]>::try_from(arguments).ok()?;
            let object = match (literals::quoted(&object), folded.starts_with("jsonb")) {
                (true, true) => call(cast::NAME, vec![object, text("jsonb")]),
                (true, false) => call(cast::NAME, vec![object, text("json")]),
                (false, _) => object,
            };
            let op = match folded.ends_with("_text") {
                true => BinaryOperator::LongArrow,
                false => BinaryOperator::Arrow,
            };
            let key = rows_of("jsonb_keys", vec![object.clone()])?;
            let value = Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(object))),
                op,
                right: Box::new(Expr::Nested(Box::new(key.clone()))),
            };
            let value = Expr::Nested(Box::new(value));
            Some(call(NAMED_ROW, vec![text("key"), key, text("value"), value]))
        }
        ("jsonb_object_keys" | "json_object_keys", 1) => rows_of("jsonb_keys", arguments),
        ("jsonb_path_query" | "jsonb_path_query_tz", 2..=4) => {
            rows_of(jsonb::PATH_ITEMS, arguments).map(|rows| call(cast::NAME, vec![rows, text("jsonb")]))
        }
        // The name of a type as a function casts to it.
        ("date" | "timestamptz" | "text" | "bool" | "int2" | "int4" | "int8" | "float4" | "float8", 1) => {
            Some(call(cast::NAME, [arguments, vec![text(&folded)]].concat()))
        }
        // Quoted bytes are read as such.
        ("get_byte" | "set_byte" | "get_bit" | "set_bit" | "encode", 2 | 3)
            if literals::quoted(&arguments[0]) =>
        {
            let mut arguments = arguments;
            arguments[0] = call(cast::NAME, vec![arguments[0].clone(), text("bytea")]);
            Some(call(&folded, arguments))
        }
        // A quoted array is one of texts here.
        ("jsonb_object" | "json_object", 1 | 2) => {
            let read = |argument: Expr| match literals::quoted(&argument) {
                true => call(cast::NAME, vec![argument, text("text[]")]),
                false => argument,
            };
            Some(call("jsonb_object", arguments.into_iter().map(read).collect()))
        }
        ("jsonb_array_elements" | "json_array_elements", 1) => {
            rows_of("jsonb_items", arguments).map(|rows| call(cast::NAME, vec![rows, text("jsonb")]))
        }
        ("jsonb_array_elements_text" | "json_array_elements_text", 1) => {
            rows_of("jsonb_items_text", arguments)
        }
        // The age of one timestamp is its distance from midnight of today.
        ("age", 1) => {
            let today = call(
                cast::NAME,
                vec![call("current_date", vec![]), text("timestamp without time zone")],
            );
            Some(call("age", [vec![today], arguments].concat()))
        }
        ("width_bucket", 2) => Some(call(buckets::NAME, arguments)),
        ("normalize", 2) => {
            let mut arguments = arguments;
            if let Expr::Identifier(form) = &arguments[1] {
                arguments[1] = text(&form.value);
            }
            Some(call("normalize", arguments))
        }
        ("array_fill", 2) => filled(&arguments),
        // What is quoted has no type, and NULL has none.
        ("pg_typeof", 1) if literals::is_unknown(&arguments[0]) => Some(text("unknown")),
        ("date_trunc", 3) => {
            let [unit, time, zone] = <[Expr; 3]>::try_from(arguments).ok()?;
            let instant = call(cast::NAME, vec![time, text("timestamp with time zone")]);
            let local = call("timezone", vec![zone.clone(), instant]);
            let cut = call("date_trunc", vec![unit, local]);
            Some(call("timezone", vec![zone, cut]))
        }
        ("uuid", 0) => Some(call(
            cast::NAME,
            vec![Expr::Function(function.clone()), text("uuid")],
        )),
        ("num_nulls", 1..) => Some(counted(&arguments, |argument| Expr::IsNull(Box::new(argument)))),
        ("num_nonnulls", 1..) => Some(counted(&arguments, |argument| {
            Expr::IsNotNull(Box::new(argument))
        })),
        ("to_timestamp", 1) => Some(call("timestamp_of_epoch", arguments)),
        ("to_timestamp", 2) => Some(call(crate::by_pattern::TO_TIMESTAMP, arguments)),
        // DataFusion counts with unsigned numbers, which PostgreSQL has not.
        ("cardinality" | "array_ndims" | "array_position", _) => signed(function, "integer"),
        ("array_positions", _) => signed(function, "integer[]"),
        ("regr_count", _) => signed(function, "bigint"),
        ("timeofday", 0) => Some(call(
            "to_char",
            vec![call("now", vec![]), text("Dy Mon DD HH24:MI:SS.US YYYY TZ")],
        )),
        ("localtimestamp", 0) => Some(call(
            cast::NAME,
            vec![call("now", vec![]), text("timestamp without time zone")],
        )),
        ("localtime", 0) => Some(call(
            cast::NAME,
            vec![call("now", vec![]), text("time without time zone")],
        )),
        ("localtime" | "localtimestamp" | "current_time" | "current_timestamp", 1) => {
            let digits = literals::number_text(&arguments[0])?;
            let target = match folded.as_str() {
                "localtime" | "current_time" => format!("time({digits}) without time zone"),
                "localtimestamp" => format!("timestamp({digits}) without time zone"),
                _ => format!("timestamp({digits}) with time zone"),
            };
            let target = text(&target);
            Some(call(cast::NAME, vec![call("now", vec![]), target]))
        }
        _ => None,
    }
}

/// An array of equal values: one in each other, of the length of each dimension.
fn filled(arguments: &[Expr]) -> Option<Expr> {
    let Expr::Array(dimensions) = &arguments[1] else {
        return None;
    };
    let lengths = dimensions.elem.iter().rev();
    lengths.fold(None, |inner, length| {
        let value = inner.unwrap_or_else(|| arguments[0].clone());
        Some(call("array_repeat", vec![value, length.clone()]))
    })
}

/// How many of the arguments are so.
fn counted(arguments: &[Expr], is_so: impl Fn(Expr) -> Expr) -> Expr {
    let one = |argument: &Expr| {
        let is_so = is_so(Expr::Nested(Box::new(argument.clone())));
        call(cast::NAME, vec![Expr::Nested(Box::new(is_so)), text("integer")])
    };
    let each = arguments.iter().map(one);
    let sum = each.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Plus,
        right: Box::new(right),
    });
    Expr::Nested(Box::new(sum.unwrap_or_else(|| number("0".to_owned()))))
}

/// The call, with the type that PostgreSQL gives it.
fn signed(function: &Function, name: &str) -> Option<Expr> {
    Some(call(
        cast::NAME,
        vec![Expr::Function(function.clone()), text(name)],
    ))
}
