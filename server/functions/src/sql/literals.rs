//! The types of literals, found in the AST before it is bound.
//!
//! An integer literal is an `integer` if it fits and a `bigint` otherwise, and a quoted literal has no type of its own:
//! beside other expressions - in CASE, in `coalesce`, in a column of VALUES or of a UNION - it is of their type. DataFusion
//! has 64 bits for every integer and text for everything in quotes, so both are told here what they are.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Query, SelectItem, SetExpr,
    TableFactor, UnaryOperator, Value,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::parse::number::exact_digits;

use super::quoted_arguments;
use crate::{cast, syntax};

/// What can be told of an expression's type without binding it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// A type by name.
    Type(String),
    /// A quoted literal.
    Quoted,
    /// NULL.
    Null,
    /// It depends on what names mean.
    Nothing,
}

/// Functions that give what they are given.
const ALIKE: &[&str] = &["coalesce", "greatest", "least", "nullif"];
/// Functions whose integer arguments are to be of the type that PostgreSQL gives them.
const TYPED_ARGUMENTS: &[&str] = &[
    "row",
    "pg_typeof",
    "abs",
    "min",
    "max",
    "make_array",
    "pg_encoding_to_char",
    "array_agg",
    "array_fill",
    "array_append",
    "array_prepend",
    "array_remove",
    "array_replace",
    "bit_and",
    "bit_or",
    "bit_xor",
    "first_value",
    "last_value",
    "to_hex",
    "gcd",
    "lcm",
    "generate_series",
];

/// The expression, as a cast to the type.
pub(super) fn typed(expr: Expr, name: &str) -> Expr {
    syntax::call(cast::NAME, vec![expr, syntax::text(name)])
}

fn number(expr: &Expr) -> Option<(bool, &str)> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => Some((false, text)),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => number(expr).map(|(negative, text)| (!negative, text)),
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr: inner,
        }
        | Expr::Nested(inner) => number(inner),
        _ => None,
    }
}

/// The text of a number literal, with its sign.
pub fn number_text(expr: &Expr) -> Option<String> {
    let (negative, text) = number(expr)?;
    Some(if negative {
        format!("-{text}")
    } else {
        text.to_string()
    })
}

/// Refuses a number literal that no numeric of PostgreSQL holds, before anybody makes one of it: that takes time by the square of
/// its digits.
///
/// # Errors
/// It has too many digits.
pub fn check_number(expr: &Expr) -> SqlResult<()> {
    /// Digits before the point, and behind it.
    const DIGITS_MAX: (usize, usize) = (131_072, 16_383);
    let Some((_, text)) = number(expr) else {
        return Ok(());
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let (is_negative, exponent) = match exponent.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, exponent.trim_start_matches('+')),
    };
    let exponent = match exponent {
        "" => 0,
        digits => digits.parse().unwrap_or(usize::MAX),
    };
    let exponent_max = if is_negative { DIGITS_MAX.1 } else { DIGITS_MAX.0 };
    if exponent > exponent_max || mantissa.len() > DIGITS_MAX.0 + DIGITS_MAX.1 {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "value overflows numeric format",
        ));
    }
    Ok(())
}

/// A number literal with an exponent as one without: DataFusion makes a decimal of negative scale of it, over which Arrow divides by
/// zero. One that no decimal holds is a double precision.
pub fn without_exponent(expr: &mut Expr) {
    /// Digits of the widest decimal.
    const DIGITS_MAX: i64 = 76;
    let Expr::Value(value) = &mut *expr else { return };
    let Value::Number(text, _) = &mut value.value else {
        return;
    };
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else {
        return;
    };
    let Ok(exponent) = exponent.parse::<i64>() else {
        return;
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let behind = fraction.len() as i64 - exponent;
    let all = (digits.len() as i64 - behind.min(0)).max(behind);
    if digits.is_empty() || all <= DIGITS_MAX {
        if behind <= 0 {
            let zeros = if digits.is_empty() { 1 } else { -behind };
            // With a point it is no integer.
            *text = format!("{digits}{}.", "0".repeat(usize::try_from(zeros).unwrap_or(0)));
        }
    } else if text
        .parse::<f64>()
        .is_ok_and(|value| value.is_finite() && value != 0.0)
    {
        *expr = typed(syntax::text(text.as_str()), "double precision");
    }
}

/// Whether the expression is an integer literal of the type `integer`.
fn is_small(expr: &Expr) -> bool {
    number_text(expr).is_some_and(|text| text.parse::<i32>().is_ok())
}

/// Whether it is a literal without a type.
pub(super) fn is_unknown(expr: &Expr) -> bool {
    quoted(expr) || matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

pub(super) fn quoted(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)
        ),
        _ => false,
    }
}

/// The numeric type that holds a number's text exactly: `2.50` is a numeric(3,2).
fn exact_numeric(text: &str) -> Option<String> {
    exact_digits(text).map(|(precision, scale)| format!("numeric({precision},{scale})"))
}

fn known(expr: &Expr) -> Known {
    if let Some(text) = number_text(expr) {
        return Known::Type(
            if text.parse::<i32>().is_ok() {
                "integer"
            } else if text.parse::<i64>().is_ok() {
                "bigint"
            } else {
                "numeric"
            }
            .into(),
        );
    }
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Null => Known::Null,
            Value::Boolean(_) => Known::Type("boolean".into()),
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) => Known::Quoted,
            _ => Known::Nothing,
        },
        Expr::Nested(inner) => known(inner),
        // A sign before a cast, `-1.5::float8`.
        Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr: inner,
        } => match known(inner) {
            Known::Type(name) if NUMBERS.contains(&name.as_str()) => Known::Type(name),
            _ => Known::Nothing,
        },
        Expr::Interval(_) => Known::Type("interval".into()),
        Expr::Array(array) => match common(&array.elem.iter().map(known).collect::<Vec<_>>()) {
            Some(element) => Known::Type(format!("{element}[]")),
            None => Known::Nothing,
        },
        Expr::Function(function) => match (function.name.0.as_slice(), &function.args) {
            ([ObjectNamePart::Identifier(name)], FunctionArguments::List(list))
                if name.value == cast::NAME =>
            {
                match list.args.get(1) {
                    Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) => {
                        match &value.value {
                            // A numeric that is exactly as wide as a literal is one among numerics.
                            Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name)
                                if name.starts_with("numeric") =>
                            {
                                Known::Type("numeric".into())
                            }
                            Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name) => {
                                Known::Type(without_length(name))
                            }
                            _ => Known::Nothing,
                        }
                    }
                    _ => Known::Nothing,
                }
            }
            _ => Known::Nothing,
        },
        _ => Known::Nothing,
    }
}

/// Numbers, each of which can be written as those that follow.
const NUMBERS: &[&str] = &[
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "real",
    "double precision",
];

/// The type of expressions that are to have one type, if any of them tells and the others do not stand against it.
fn common(all: &[Known]) -> Option<String> {
    let mut found: Option<&str> = None;
    for one in all {
        let Known::Type(name) = one else {
            if *one == Known::Nothing {
                return None;
            }
            continue;
        };
        let rank = |name: &str| NUMBERS.iter().position(|number| *number == name);
        found = match found {
            None => Some(name),
            Some(before) if before == name => Some(before),
            Some(before) => match (rank(before), rank(name)) {
                (Some(left), Some(right)) => Some(NUMBERS[left.max(right)]),
                _ => return None,
            },
        };
    }
    found.map(str::to_string)
}

/// Gives expressions that are to have one type that type, where they do not have it by themselves.
fn unify(mut all: Vec<&mut Expr>, with_nulls: bool) {
    let kinds: Vec<Known> = all.iter().map(|expr| known(expr)).collect();
    if let Some(name) = common(&kinds) {
        for (expr, kind) in all.iter_mut().zip(&kinds) {
            let target = match kind {
                Known::Quoted if name == "numeric" => literal_text(expr)
                    .and_then(|text| exact_numeric(&text))
                    .unwrap_or_else(|| name.clone()),
                Known::Quoted => name.clone(),
                Known::Null if with_nulls && name != "numeric" => name.clone(),
                // Among floats a numeric literal is a float.
                Known::Type(own) if *own != name && matches!(name.as_str(), "real" | "double precision") => {
                    name.clone()
                }
                _ => continue,
            };
            let old = std::mem::replace(*expr, Expr::value(Value::Null));
            **expr = typed(old, &target);
        }
    }
    all.into_iter().for_each(narrow);
}

/// A type's name without the length of its texts: those beside one of such a type may be longer. Without one `char` would be `char(1)`.
fn without_length(name: &str) -> String {
    let Some((before, rest)) = name.split_once('(') else {
        return name.to_owned();
    };
    let after = rest.split_once(')').map_or("", |(_, after)| after);
    match before {
        "char" | "character" => format!("text{after}"),
        "varchar" | "character varying" => format!("{before}{after}"),
        _ => name.to_owned(),
    }
}

fn literal_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Makes an integer literal that fits an `integer`.
fn narrow(expr: &mut Expr) {
    if is_small(expr) {
        let old = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = typed(old, "integer");
    }
}

/// Types the literals among the parts of an expression.
pub fn in_expression(expr: &mut Expr) {
    quoted_arguments::in_special(expr);
    match expr {
        Expr::Case {
            conditions,
            else_result,
            ..
        } => {
            let mut all: Vec<&mut Expr> = conditions.iter_mut().map(|when| &mut when.result).collect();
            all.extend(else_result.as_deref_mut());
            unify(all, false);
        }
        Expr::Array(array) => {
            let only_literals = array.elem.iter().any(|element| known(element) != Known::Nothing);
            if only_literals {
                unify(array.elem.iter_mut().collect(), false);
            }
        }
        Expr::Tuple(members) => members.iter_mut().for_each(narrow),
        Expr::Function(function) => {
            let Some(ObjectNamePart::Identifier(name)) = function.name.0.last() else {
                return;
            };
            let name = millrace_parser::fold(name);
            let FunctionArguments::List(list) = &mut function.args else {
                return;
            };
            let count = list.args.len();
            let mut arguments: Vec<&mut Expr> = list
                .args
                .iter_mut()
                .filter_map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                    _ => None,
                })
                .collect();
            if arguments.len() == count {
                quoted_arguments::read(&name, &mut arguments);
            }
            if ALIKE.contains(&name.as_str()) {
                unify(arguments, false);
            } else if TYPED_ARGUMENTS.contains(&name.as_str()) {
                arguments.into_iter().for_each(narrow);
            }
        }
        _ => {}
    }
}

/// Types the integers among the arguments of a series in FROM.
pub fn in_series(factor: &mut TableFactor) {
    let (name, arguments) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            ..
        } => (name, &mut args.args),
        TableFactor::Function { name, args, .. } => (name, args),
        _ => return,
    };
    let last = name.0.last().and_then(|part| part.as_ident());
    if last.is_none_or(|name| millrace_parser::fold(name) != "generate_series") {
        return;
    }
    for argument in arguments {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
            narrow(expr);
        }
    }
}

/// Types the literals in the select lists and VALUES of a query.
pub fn in_query(query: &mut Query) {
    in_body(&mut query.body);
}

fn in_body(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            let width = values.rows.iter().map(|row| row.content.len()).max().unwrap_or(0);
            for column in 0..width {
                let cells = values
                    .rows
                    .iter_mut()
                    .filter_map(|row| row.content.get_mut(column));
                unify(cells.collect(), true);
            }
        }
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                    narrow(expr);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            let mut branches = vec![];
            select_lists(left, &mut branches);
            select_lists(right, &mut branches);
            let width = branches.iter().map(Vec::len).max().unwrap_or(0);
            let mut columns: Vec<Vec<&mut Expr>> = (0..width).map(|_| vec![]).collect();
            let plain = branches.iter().all(|branch| branch.len() == width);
            for branch in branches {
                for (column, expr) in columns.iter_mut().zip(branch) {
                    column.push(expr);
                }
            }
            for column in columns {
                match plain {
                    true => unify(column, false),
                    false => column.into_iter().for_each(narrow),
                }
            }
        }
        _ => {}
    }
}

/// The select lists of the branches of a UNION, and rows of VALUES; one with a wildcard is empty, so that nothing is told from it.
fn select_lists<'a>(body: &'a mut SetExpr, into: &mut Vec<Vec<&'a mut Expr>>) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            select_lists(left, into);
            select_lists(right, into);
        }
        SetExpr::Query(query) => select_lists(&mut query.body, into),
        SetExpr::Select(select) => {
            let mut list = vec![];
            let mut has_wildcard = false;
            for item in &mut select.projection {
                match item {
                    SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => list.push(expr),
                    _ => has_wildcard = true,
                }
            }
            // Which column an expression is, is not known: each is what it is by itself.
            if has_wildcard {
                list.drain(..).for_each(narrow);
            }
            into.push(list);
        }
        SetExpr::Values(values) => {
            into.extend(values.rows.iter_mut().map(|row| row.content.iter_mut().collect()))
        }
        _ => into.push(vec![]),
    }
}

/// The name of the type that a literal is cast to, and the literal as that cast is to see it: numbers by their text, so
/// that none loses digits on its way, and numerics without a precision with the digits that are written.
pub fn cast_of_literal(inner: Expr, sql_type: &types::SqlType, name: &str) -> (Expr, String) {
    use arrow::datatypes::DataType;
    let text = number_text(&inner);
    match &sql_type.data_type {
        DataType::Float32 | DataType::Float64 => match text {
            Some(text) => (syntax::text(&text), name.to_string()),
            None => (inner, name.to_string()),
        },
        DataType::Decimal128(..) if sql_type.annotation.is_some() => {
            let literal = text.or_else(|| {
                if quoted(&inner) {
                    literal_text(&inner)
                } else {
                    None
                }
            });
            // What is no numeric, or has too many digits, is for the type's input to refuse.
            match literal {
                Some(text) => {
                    let exact = exact_numeric(&text).unwrap_or_else(|| name.to_string());
                    (syntax::text(&text), exact)
                }
                None => (inner, name.to_string()),
            }
        }
        // `int[]` is the type of arrays of any number of dimensions: the text says how many there are.
        DataType::List(_) if quoted(&inner) => {
            let dimensions = literal_text(&inner).map_or(1, |text| types::parse::array::dimensions(&text));
            let missing = dimensions.saturating_sub(name.matches("[]").count());
            (inner, format!("{name}{}", "[]".repeat(missing)))
        }
        // The digits of 1e300 are more than a numeric holds; as a float it is merely too large.
        data_type if data_type.is_integer() => match text {
            Some(text) if text.contains(['e', 'E']) => {
                (typed(syntax::text(&text), "double precision"), name.to_string())
            }
            _ => (inner, name.to_string()),
        },
        _ => (inner, name.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::rewrite;

    fn rewritten(sql: &str) -> String {
        let parsed = millrace_parser::parse(sql).unwrap().remove(0);
        let millrace_parser::ast::Statement::Sql(mut statement) = parsed.statement else {
            panic!("{sql}")
        };
        rewrite::statement(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn numerics_keep_the_digits_that_are_written() {
        for (text, name) in [
            ("2.50", Some("numeric(3,2)")),
            ("-0.001", Some("numeric(3,3)")),
            ("0", Some("numeric(1,0)")),
            ("1e3", Some("numeric(4,0)")),
            ("1.5e-3", Some("numeric(4,4)")),
            ("1e300", None),
            ("NaN", None),
            ("", None),
        ] {
            assert_eq!(exact_numeric(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn integers_are_as_wide_as_they_need_to_be() {
        assert_eq!(
            rewritten("SELECT 1 AS a, -1 AS b, 2147483648 AS c"),
            "SELECT pg_cast(1, 'integer') AS a, pg_cast(-1, 'integer') AS b, 2147483648 AS c"
        );
    }

    #[test]
    fn quoted_literals_take_the_type_beside_them() {
        assert_eq!(
            rewritten("VALUES ('NaN'::float8), ('1'), (0.5)"),
            "VALUES (pg_cast('NaN', 'double precision')), (pg_cast('1', 'double precision')), \
             (pg_cast(0.5, 'double precision'))"
        );
        assert_eq!(
            rewritten("SELECT CASE WHEN a THEN true ELSE 'off' END AS c FROM t"),
            "SELECT CASE WHEN a THEN true ELSE pg_cast('off', 'boolean') END AS c FROM t"
        );
        assert_eq!(
            rewritten("SELECT 1 AS a UNION SELECT '2' AS a"),
            "SELECT pg_cast(1, 'integer') AS a UNION SELECT pg_cast('2', 'integer') AS a"
        );
        assert_eq!(
            rewritten("SELECT coalesce(a, 'x') AS c FROM t"),
            "SELECT coalesce(a, 'x') AS c FROM t"
        );
    }
}
