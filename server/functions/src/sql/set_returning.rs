//! Set-returning functions in FROM that DataFusion has not, as subqueries with such a function in their select list.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, SelectItem,
    SetExpr, Value,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_sql::called::Called;

use crate::arrays::acl;
use crate::jsonb;
use crate::sql::call_clauses;
use crate::syntax::{self, call, number, parsed_query, text};

/// A function in FROM that has no rows, since no table has partitions: `generate_series(1, 0)`.
fn without_rows(factor: &ast::TableFactor) -> ast::TableFactor {
    let mut factor = factor.clone();
    let ends = ["1", "0"].map(|end| FunctionArg::Unnamed(FunctionArgExpr::Expr(number(end.to_owned()))));
    let series = ObjectName::from(vec![Ident::new("generate_series")]);
    match &mut factor {
        ast::TableFactor::Table {
            name,
            args: Some(args),
            ..
        } => (*name, args.args) = (series, ends.to_vec()),
        ast::TableFactor::Function { name, args, .. } => (*name, *args) = (series, ends.to_vec()),
        _ => {}
    }
    factor
}

/// Set-returning functions that DataFusion has not, in FROM: `f(x) AS a` is `LATERAL (SELECT f(x)) AS a`.
pub(super) fn rows_in_from(factor: &ast::TableFactor) -> SqlResult<Option<ast::TableFactor>> {
    let Some(Called {
        name,
        arguments: given,
        alias,
        with_ordinality,
    }) = Called::of(factor)
    else {
        return Ok(None);
    };
    let Some(ObjectNamePart::Identifier(function)) = name.0.last() else {
        return Ok(None);
    };
    let function = millrace_parser::fold(function);
    if function == "pg_partition_ancestors" {
        return Ok(Some(without_rows(factor)));
    }
    // The elements of a JSON array are a column called value, whatever the relation is called.
    let column = match function.as_str() {
        "jsonb_array_elements"
        | "json_array_elements"
        | "jsonb_array_elements_text"
        | "json_array_elements_text" => Ident::new("value"),
        // It has two, with names of their own.
        "pg_options_to_table" => Ident::new("option_name"),
        "jsonb_each" | "json_each" | "jsonb_each_text" | "json_each_text" => Ident::new("key"),
        "aclexplode" => Ident::new("grantor"),
        "generate_series"
        | "generate_subscripts"
        | "jsonb_object_keys"
        | "json_object_keys"
        | "string_to_table"
        | "jsonb_path_query"
        | "regexp_matches"
        | "regexp_split_to_table" => match alias {
            Some(alias) => alias.name.clone(),
            None => Ident::new(function.as_str()),
        },
        "jsonb_to_record" | "json_to_record" | "jsonb_to_recordset" | "json_to_recordset" => {
            Ident::new(function.as_str())
        }
        _ => return value_in_from(&function, given, alias, with_ordinality),
    };
    let expressions: Vec<Expr> = given
        .iter()
        .filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        })
        .collect();
    if function == "generate_series" && !is_of_times(&expressions) {
        return Ok(None);
    }
    if with_ordinality {
        let array = array_of(&function, expressions).ok_or_else(|| {
            SqlError::unsupported(format!("{function}() WITH ORDINALITY is not supported"))
                .with_hint("unnest() WITH ORDINALITY is.")
        })?;
        return Ok(Some(numbered(array, &function, column, alias)));
    }
    let mut query = parsed_query("SELECT 1")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = match (function.as_str(), expressions.as_slice()) {
            ("pg_options_to_table", [options]) => options_columns(options),
            ("aclexplode", list) => acl::columns(list),
            ("generate_series", series) => vec![SelectItem::ExprWithAlias {
                expr: call("unnest", vec![call(crate::zoned_shift::SERIES, series.to_vec())]),
                alias: column,
            }],
            ("jsonb_to_record" | "json_to_record", [object]) => record(&function, object, alias)?,
            ("jsonb_to_recordset" | "json_to_recordset", [array]) => {
                let items = call("unnest", vec![call("jsonb_items", vec![array.clone()])]);
                let item = call(crate::cast::NAME, vec![items, text("jsonb")]);
                record(&function, &item, alias)?
            }
            ("jsonb_each" | "json_each", [object]) => members(object, BinaryOperator::Arrow),
            ("jsonb_each_text" | "json_each_text", [object]) => members(object, BinaryOperator::LongArrow),
            _ => vec![SelectItem::ExprWithAlias {
                expr: call(&function, expressions),
                alias: column,
            }],
        };
    }
    let mut alias = alias.cloned().unwrap_or_else(|| unnamed(&function));
    // The columns of a record have their names already.
    if alias.columns.iter().any(|column| column.data_type.is_some()) {
        alias.columns.clear();
    }
    Ok(Some(ast::TableFactor::Derived {
        lateral: true,
        subquery: query,
        alias: Some(alias),
        sample: None,
    }))
}

/// Functions in FROM that are read elsewhere, though they are in the list of functions.
const OF_ROWS: [&str; 4] = [
    "unnest",
    "pg_get_keywords",
    "jsonb_populate_record",
    "jsonb_populate_recordset",
];

/// A function of single values in FROM: one row of one column, which is called as the relation is.
fn value_in_from(
    function: &str,
    arguments: &[FunctionArg],
    alias: Option<&ast::TableAlias>,
    with_ordinality: bool,
) -> SqlResult<Option<ast::TableFactor>> {
    const EXPRESSIONS: [&str; 4] = ["coalesce", "greatest", "least", "nullif"];
    if call_clauses::is_aggregate(function) {
        let message = "aggregate functions are not allowed in functions in FROM";
        return Err(SqlError::new(SqlState::GroupingError, message));
    }
    let is_value = call_clauses::is_plain(function) || EXPRESSIONS.contains(&function);
    if !is_value || OF_ROWS.contains(&function) {
        return Ok(None);
    }
    let mut value = call(function, vec![]);
    if let Expr::Function(called) = &mut value
        && let ast::FunctionArguments::List(list) = &mut called.args
    {
        list.args = arguments.to_vec();
    }
    one_row(value, function, alias, with_ordinality).map(Some)
}

/// `current_date` and its like in FROM, which are calls without parentheses; `None`: it is a relation.
pub(super) fn word_in_from(factor: &ast::TableFactor) -> SqlResult<Option<ast::TableFactor>> {
    const WORDS: [&str; 9] = [
        "current_catalog",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    ];
    let ast::TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = factor
    else {
        return Ok(None);
    };
    let [ObjectNamePart::Identifier(word)] = name.0.as_slice() else {
        return Ok(None);
    };
    let function = millrace_parser::fold(word);
    if word.quote_style.is_some() || !WORDS.contains(&function.as_str()) {
        return Ok(None);
    }
    let mut value = call(&function, vec![]);
    if let Expr::Function(called) = &mut value {
        called.args = ast::FunctionArguments::None;
    }
    one_row(value, &function, alias.as_ref(), false).map(Some)
}

/// `LATERAL (SELECT f(x) AS a) AS a`.
fn one_row(
    value: Expr,
    function: &str,
    alias: Option<&ast::TableAlias>,
    with_ordinality: bool,
) -> SqlResult<ast::TableFactor> {
    let alias = alias.cloned().unwrap_or_else(|| unnamed(function));
    let mut query = parsed_query(match with_ordinality {
        true => "SELECT 1, CAST(1 AS BIGINT) AS ordinality",
        false => "SELECT 1",
    })?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(first) = select.projection.first_mut()
    {
        *first = SelectItem::ExprWithAlias {
            expr: value,
            alias: alias.name.clone(),
        };
    }
    Ok(ast::TableFactor::Derived {
        lateral: true,
        subquery: query,
        alias: Some(alias),
        sample: None,
    })
}

/// The alias of a function that has none.
fn unnamed(function: &str) -> ast::TableAlias {
    ast::TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: vec![],
        at: None,
    }
}

/// The array whose elements are the rows of a function; `None`: there is none.
fn array_of(function: &str, arguments: Vec<Expr>) -> Option<Expr> {
    let array = match function {
        "jsonb_array_elements" | "json_array_elements" => {
            let items = call("jsonb_items", arguments);
            return Some(call(crate::cast::NAME, vec![items, text("jsonb[]")]));
        }
        "jsonb_path_query" => {
            let items = call(jsonb::PATH_ITEMS, arguments);
            return Some(call(crate::cast::NAME, vec![items, text("jsonb[]")]));
        }
        "jsonb_array_elements_text" | "json_array_elements_text" => "jsonb_items_text",
        "jsonb_object_keys" | "json_object_keys" => "jsonb_keys",
        "string_to_table" => "string_to_array",
        "regexp_split_to_table" => "regexp_split_to_array",
        _ => return None,
    };
    Some(call(array, arguments))
}

/// The elements of an array with their numbers.
fn numbered(array: Expr, function: &str, column: Ident, alias: Option<&ast::TableAlias>) -> ast::TableFactor {
    let mut alias = alias.cloned().unwrap_or_else(|| unnamed(function));
    let names = [column, Ident::new("ordinality")];
    let missing = names.into_iter().skip(alias.columns.len());
    let missing: Vec<_> = missing
        .map(|name| ast::TableAliasColumnDef {
            name,
            data_type: None,
        })
        .collect();
    alias.columns.extend(missing);
    ast::TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![array],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: true,
    }
}

/// The members of a JSON object that the columns of an alias name, as values of their types.
fn record(function: &str, object: &Expr, alias: Option<&ast::TableAlias>) -> SqlResult<Vec<SelectItem>> {
    let columns = alias.map(|alias| alias.columns.as_slice()).unwrap_or_default();
    if columns.is_empty() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "a column definition list is required for functions returning \"record\"",
        )
        .with_hint(format!("Write {function}(..) AS t(a int, b text).")));
    }
    let member = |column: &ast::TableAliasColumnDef| {
        let data_type = column.data_type.clone().ok_or_else(|| {
            SqlError::new(
                SqlState::SyntaxError,
                format!("column \"{}\" of {function} has no type", column.name.value),
            )
        })?;
        let op = match &data_type {
            ast::DataType::JSON | ast::DataType::JSONB => BinaryOperator::Arrow,
            ast::DataType::Array(_) => {
                return Err(SqlError::unsupported(format!(
                    "columns of type {data_type} are not supported in {function}"
                ))
                .with_hint("Declare the column as jsonb."));
            }
            _ => BinaryOperator::LongArrow,
        };
        let value = Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(object.clone()))),
            op,
            right: Box::new(text(&millrace_parser::fold(&column.name))),
        };
        Ok(SelectItem::ExprWithAlias {
            expr: Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(Expr::Nested(Box::new(value))),
                data_type,
                array: false,
                format: None,
            },
            alias: column.name.clone(),
        })
    };
    columns.iter().map(member).collect()
}

/// Whether it is a series of times that has these arguments: its step is a length of time.
pub(super) fn is_of_times(arguments: &[Expr]) -> bool {
    matches!(arguments, [_, _, step] if is_length(step))
}

/// Whether an expression is a length of time, as it is written.
fn is_length(step: &Expr) -> bool {
    match step {
        Expr::Interval(_) => true,
        Expr::Nested(inner) => is_length(inner),
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)
        ),
        Expr::Cast { data_type, .. } => matches!(data_type, ast::DataType::Interval { .. }),
        Expr::TypedString(typed) => matches!(typed.data_type, ast::DataType::Interval { .. }),
        // What a cast has become.
        Expr::Function(function) => match syntax::arguments(function).as_slice() {
            [_, Expr::Value(name)] if function.name.to_string() == crate::cast::NAME => {
                matches!(&name.value, Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name) if name.starts_with("interval"))
            }
            _ => false,
        },
        _ => false,
    }
}

/// The names and values of options, which are texts such as `name=value`.
fn options_columns(options: &Expr) -> Vec<SelectItem> {
    let option = || call("unnest", vec![options.clone()]);
    let column = |name: &str, expr| SelectItem::ExprWithAlias {
        expr,
        alias: Ident::new(name),
    };
    let name = call(
        "split_part",
        vec![option(), text("="), Expr::value(Value::Number("1".into(), false))],
    );
    let value = call("regexp_replace", vec![option(), text("^[^=]*=?"), text("")]);
    vec![column("option_name", name), column("option_value", value)]
}

/// The keys of a JSON object, and beside each its value.
fn members(object: &Expr, operator: BinaryOperator) -> Vec<SelectItem> {
    let key = || call("unnest", vec![call("jsonb_keys", vec![object.clone()])]);
    let value = Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(object.clone()))),
        op: operator,
        right: Box::new(key()),
    };
    let column = |name: &str, expr| SelectItem::ExprWithAlias {
        expr,
        alias: Ident::new(name),
    };
    vec![column("key", key()), column("value", value)]
}
