//! Names of computed columns as a user would write them.

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Aggregate;

/// Functions of ours that are operators to who writes them.
pub const OPERATORS: [(&str, &str); 11] = [
    ("int_add", "+"),
    ("int_subtract", "-"),
    ("int_multiply", "*"),
    ("float_add", "+"),
    ("float_subtract", "-"),
    ("float_multiply", "*"),
    ("interval_multiply", "*"),
    ("divide", "/"),
    ("interval_divide", "/"),
    ("jsonb_get", "->"),
    ("jsonb_get_text", "->>"),
];

/// These columns of a schema.
pub(super) fn readable_names(schema: &SchemaRef, columns: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = columns
        .map(|column| schema.field(column).name())
        .filter(|name| *name != Aggregate::INTERNAL_GROUPING_ID)
        .map(|name| readable(name))
        .collect();
    names.join(", ")
}

/// The name of a computed column with its casts as one writes them: `t.ts::date`, which is `pg_cast(t.ts,Utf8("date"))`
/// inside, and its sums: `(t.n - 1)`, which is `int_subtract(t.n,Int64(1))`.
pub(super) fn readable(name: &str) -> String {
    let mut name = name.to_owned();
    while let Some(start) = name.rfind("pg_cast(") {
        let inside = start + "pg_cast(".len();
        let Some(comma) = name[inside..].find(",Utf8(\"").map(|at| inside + at) else {
            break;
        };
        let of_type = comma + ",Utf8(\"".len();
        let Some(end) = name[of_type..].find("\"))").map(|at| of_type + at) else {
            break;
        };
        let cast = format!("{}::{}", &name[inside..comma], &name[of_type..end]);
        name.replace_range(start..end + 3, &cast);
    }
    for (function, sign) in OPERATORS {
        let call = format!("{function}(");
        while let Some(start) = last_call(&name, &call) {
            let inside = start + call.len();
            let Some((comma, end)) = two_arguments(&name[inside..]) else {
                break;
            };
            let (left, right) = name[inside..inside + end].split_at(comma);
            let operation = format!("({left} {sign} {})", &right[1..]);
            name.replace_range(start..=inside + end, &operation);
        }
    }
    plain_literals(name)
}

/// Where a function is called last: its name, and not the end of another one's.
fn last_call(text: &str, call: &str) -> Option<usize> {
    let is_in_name =
        |before: &str| before.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_');
    let mut places = text.rmatch_indices(call).map(|(at, _)| at);
    places.find(|at| !is_in_name(&text[..*at]))
}

/// Where the comma between two arguments is, and the parenthesis behind them.
fn two_arguments(text: &str) -> Option<(usize, usize)> {
    let (mut depth, mut comma) = (0, None);
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return Some((comma?, position)),
            ')' => depth -= 1,
            ',' if depth == 0 => comma = comma.or(Some(position)),
            _ => {}
        }
    }
    None
}

/// Constants as one writes them: `0.5`, which is `Decimal128(0.5,1,1)` inside, and `','` for `Utf8(",")`.
fn plain_literals(mut name: String) -> String {
    for (kind, is_text) in [
        ("Utf8(\"", true),
        ("Int64(", false),
        ("Int32(", false),
        ("Float64(", false),
        ("Decimal128(", false),
    ] {
        let mut from = 0;
        while let Some(start) = name[from..].find(kind).map(|at| from + at) {
            let inside = start + kind.len();
            let close = if is_text { "\")" } else { ")" };
            let Some(end) = name[inside..].find(close).map(|at| inside + at) else {
                break;
            };
            let value = match is_text {
                true => format!("'{}'", &name[inside..end]),
                false => name[inside..end].split(',').next().unwrap_or_default().to_owned(),
            };
            name.replace_range(start..end + close.len(), &value);
            from = start + value.len();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_and_sums_are_shown_as_they_are_written() {
        assert_eq!(readable(r#"pg_cast(t.ts,Utf8("date"))"#), "t.ts::date");
        assert_eq!(
            readable(r#"f(pg_cast(pg_cast(t.a,Utf8("text")),Utf8("integer")))"#),
            "f(t.a::text::integer)"
        );
        assert_eq!(readable("t.k"), "t.k");
        assert_eq!(
            readable("divide(t.a,interval_divide(t.b,Int64(2)))"),
            "(t.a / (t.b / 2))"
        );
        assert_eq!(readable("my_divide(t.a,t.b)"), "my_divide(t.a,t.b)");
        assert_eq!(readable("int_subtract(x.n,Int64(1)) / Int64(3)"), "(x.n - 1) / 3");
        assert_eq!(
            readable("int_add(int_multiply(a.b,f(a.c,Int64(2))),int_subtract(a.d,int_subtract(a.e,a.f)))"),
            "((a.b * f(a.c,2)) + (a.d - (a.e - a.f)))"
        );
        assert_eq!(
            readable(
                r#"string_agg(pg_cast(o.id,Utf8("text")),Utf8(",")) FILTER (WHERE o.amount > Int64(5))"#
            ),
            "string_agg(o.id::text,',') FILTER (WHERE o.amount > 5)"
        );
        assert_eq!(
            readable("percentile_cont(Decimal128(0.5,1,1))"),
            "percentile_cont(0.5)"
        );
    }
}
