//! What DataFusion's planner says of operators, functions and names, in PostgreSQL's words.

use crate::error::{SqlError, SqlState};

/// An operator that there is not for types, in which case DataFusion says that they have nothing in common.
pub(super) fn no_operator(text: &str) -> Option<SqlError> {
    let missing = |what: &str| {
        SqlError::new(
            SqlState::UndefinedFunction,
            format!("operator does not exist: {what}"),
        )
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
    };
    if let Some(rest) = text.strip_prefix("Unary operator '") {
        let (operator, rest) = rest.split_once('\'')?;
        if operator != "NOT" {
            return Some(missing(operator));
        }
        let got = rest.rsplit(" got ").next().unwrap_or_default();
        return Some(SqlError::new(
            SqlState::DatatypeMismatch,
            format!("argument of NOT must be type boolean, not type {}", sql_name(got)),
        ));
    }
    let starts = [
        "Cannot infer common type for bitwise operation ",
        "Cannot infer common argument type for ",
        "Cannot infer common string type for ",
        "Cannot coerce arithmetic expression ",
    ];
    let rest = starts.into_iter().find_map(|start| text.split(start).nth(1))?;
    let rest = rest.split(" to valid types").next().unwrap_or(rest);
    let is_boolean = rest.starts_with("logical boolean");
    let rest = rest.split("operation ").last().unwrap_or(rest);
    let parts = parts(rest, ' ');
    let (first, last) = (parts.first()?, parts.last()?);
    let operator = match parts.len() {
        3 if parts[1] == "BIT_XOR" => "#",
        3 => parts[1],
        // IS DISTINCT FROM
        _ => "=",
    };
    if is_boolean {
        let wrong = [first, last].into_iter().find(|name| **name != "Boolean")?;
        return Some(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "argument of {operator} must be type boolean, not type {}",
                sql_name(wrong)
            ),
        ));
    }
    Some(missing(&format!(
        "{} {operator} {}",
        sql_name(first),
        sql_name(last)
    )))
}

/// The parts of a text between separators; what stands in parentheses is part of a part.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0, 0, vec![]);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if character == separator && depth == 0 => {
                all.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(text[start..].trim());
    all.retain(|part| !part.is_empty());
    all
}

/// What a type of Arrow is called in SQL.
fn sql_name(arrow: &str) -> String {
    if let Some(item) = arrow
        .strip_prefix("List(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        let item = item.split(", metadata").next().unwrap_or(item);
        return format!("{}[]", sql_name(item).trim_end_matches("[]"));
    }
    let names = [
        ("Int16", "smallint"),
        ("Int32", "integer"),
        ("Int64", "bigint"),
        ("Float32", "real"),
        ("Float64", "double precision"),
        ("Decimal", "numeric"),
        ("Utf8", "text"),
        ("LargeUtf8", "text"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("Time64", "time without time zone"),
        ("Timestamp", "timestamp without time zone"),
        ("Interval", "interval"),
        ("Duration", "interval"),
        ("Binary", "bytea"),
        ("Null", "unknown"),
        ("Struct", "record"),
    ];
    if arrow.starts_with("Timestamp") && arrow.contains('"') {
        return "timestamp with time zone".to_owned();
    }
    let known = names.into_iter().find(|(name, _)| arrow.starts_with(name));
    known.map_or_else(|| arrow.to_owned(), |(_, name)| name.to_owned())
}

/// Errors of the binder that PostgreSQL has other words for.
pub(super) fn known_plan_error(text: &str, lower: &str) -> Option<SqlError> {
    // The number after a word of DataFusion's message.
    let number = |after: &str| -> Option<&str> {
        let rest = text.split(after).nth(1)?;
        let rest = rest.trim_start();
        Some(&rest[..rest.bytes().take_while(u8::is_ascii_digit).count()])
    };
    let error = |code, message: &str| Some(SqlError::new(code, message));
    // What a function of ours says of the types of its arguments.
    if let Some(said) = text
        .split("user-defined coercion failed with: External error: ")
        .nth(1)
    {
        let said = said.split(". No function matches").next().unwrap_or(said);
        let code = match said.ends_with("is not unique") {
            true => SqlState::AmbiguousFunction,
            false => SqlState::UndefinedFunction,
        };
        let hint = "You might need to add explicit type casts.";
        return Some(SqlError::new(code, said).with_hint(hint));
    }
    if let Some(rest) = text.strip_prefix("Failed to coerce arguments to satisfy a call to '") {
        let (name, rest) = rest.split_once('\'')?;
        let given = rest
            .split_once("coercion from ")?
            .1
            .split(" to the signature ")
            .next()?;
        let given: Vec<String> = parts(given, ',').into_iter().map(sql_name).collect();
        let message = format!("function {name}({}) does not exist", given.join(", "));
        let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
        return Some(SqlError::new(SqlState::UndefinedFunction, message).with_hint(hint));
    }
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        let message = format!("missing FROM-clause entry for table \"{name}\"");
        return error(SqlState::UndefinedTable, &message);
    }
    if lower.starts_with("range requires exactly one order by column") {
        let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
        return error(SqlState::WindowingError, message);
    }
    if lower.starts_with("for select distinct, order by expressions") {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return error(SqlState::InvalidColumnReference, message);
    }
    if let Some(rest) = text.split("While expanding wildcard, column \"").nth(1) {
        let column = rest.split('"').next().unwrap_or_default();
        let message = format!(
            "column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
        );
        error(SqlState::GroupingError, &message)
    } else if lower.contains("aggregate functions are not allowed in the where") {
        error(
            SqlState::GroupingError,
            "aggregate functions are not allowed in WHERE",
        )
    } else if lower.contains("aggregate function calls cannot be nested") {
        error(
            SqlState::GroupingError,
            "aggregate function calls cannot be nested",
        )
    } else if lower.contains("cannot find column with position") {
        let message = format!("GROUP BY position {} is not in select list", number("position")?);
        error(SqlState::InvalidColumnReference, &message)
    } else if lower.contains("order by column out of bounds") {
        let message = format!(
            "ORDER BY position {} is not in select list",
            number("specified:")?
        );
        error(SqlState::InvalidColumnReference, &message)
    } else if lower.starts_with("limit must be >=") {
        error(
            SqlState::InvalidRowCountInLimitClause,
            "LIMIT must not be negative",
        )
    } else if lower.starts_with("offset must be >=") {
        error(
            SqlState::InvalidRowCountInResultOffsetClause,
            "OFFSET must not be negative",
        )
    } else if lower.starts_with("with query name") && lower.ends_with("specified more than once") {
        error(SqlState::DuplicateAlias, text)
    } else if lower.contains("cannot create filter with non-boolean predicate") {
        error(
            SqlState::DatatypeMismatch,
            "argument of WHERE must be type boolean",
        )
    } else if lower.contains("failed to match any signature") {
        let name = text.split('\'').nth(1).unwrap_or_default();
        let message = format!("function {name} does not exist for arguments of this type");
        Some(
            SqlError::new(SqlState::UndefinedFunction, message)
                .with_hint("You might need to add explicit type casts."),
        )
    } else {
        None
    }
}

/// An error about aggregates, grouping and DISTINCT ON; none: it is about something else.
pub(super) fn of_grouping(text: &str) -> Option<SqlError> {
    let error = |code, message: &str| Some(SqlError::new(code, message));
    if text.starts_with("In an aggregate with DISTINCT, ORDER BY expressions") {
        let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
        return error(SqlState::InvalidColumnReference, message);
    }
    if text.starts_with("SELECT DISTINCT ON expressions must match") {
        return error(SqlState::InvalidColumnReference, text);
    }
    if text.starts_with("Argument ") && text.contains(" to grouping function is not in grouping columns") {
        let message = "arguments to GROUPING must be grouping expressions of the associated query level";
        return error(SqlState::GroupingError, message);
    }
    if let Some(rest) = text.strip_prefix("Percentile value must be between 0.0 and 1.0 inclusive, ") {
        let value = rest.trim_end_matches(" is invalid");
        let message = format!("percentile value {value} is not between 0 and 1");
        return error(SqlState::NumericValueOutOfRange, &message);
    }
    let rest = text.strip_prefix("Cannot automatically convert ")?;
    let (given, wanted) = rest.split_once(" to ")?;
    let message = format!("a value of type {} is no {}", sql_name(given), sql_name(wanted));
    error(SqlState::DatatypeMismatch, &message)
}

/// An error about LIMIT or OFFSET; none: it is about something else.
pub(super) fn of_limit(text: &str) -> Option<SqlError> {
    let is_about = |clause: &&str| {
        let unsupported = text.strip_prefix("Unsupported ");
        let rest = unsupported.or_else(|| text.strip_prefix("Expected "));
        rest.and_then(|rest| rest.strip_prefix(*clause)).is_some()
    };
    let clause = ["LIMIT", "OFFSET"].into_iter().find(is_about)?;
    Some(match text.split_once("but got ") {
        Some((_, given)) => {
            let given = sql_name(given);
            let message = format!("argument of {clause} must be type bigint, not type {given}");
            SqlError::new(SqlState::DatatypeMismatch, message)
        }
        None => SqlError::unsupported(format!(
            "{clause} takes only what can be computed without reading rows: no subqueries, aggregates and columns"
        )),
    })
}
