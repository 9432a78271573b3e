//! `CREATE FUNCTION` and `CREATE AGGREGATE`, whose bodies are SQL expressions or texts in JavaScript, and `CREATE REDUCER`.

mod parameters;

use std::ops::ControlFlow;

use sqlparser::ast::{DataType, Expr, Ident, LimitClause, ObjectName, SelectItem, SetExpr, Value};
use sqlparser::tokenizer::Location;

use self::parameters::Parameters;
use super::{CreatePrefix, parse_statement};
use crate::ast::{CreateFunction, FunctionBody, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader, string_of};
use crate::text;
use crate::walk::walk_expressions_mut;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Aggregate,
    Reducer,
}

/// What a body was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Sql,
    Javascript,
}

/// After `CREATE FUNCTION`, `CREATE AGGREGATE` or `CREATE REDUCER`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix, kind: Kind) -> Parse<Statement> {
    let is_aggregate = kind != Kind::Function;
    let name = reader.name()?;
    let Parameters {
        parameters,
        defaults,
        out,
    } = parameters::listed(reader)?;
    let mut rows = vec![];
    let mut is_setof = false;
    let is_row = !out.is_empty();
    let record = || DataType::Custom(ObjectName::from(vec![Ident::new("record")]), vec![]);
    let returns = if is_row {
        let of_out = match out.as_slice() {
            [(_, only)] => only.clone(),
            _ => record(),
        };
        let at = reader.here();
        if reader.take(&["RETURNS"]) {
            let said = reader.parse_data_type()?;
            if said.to_string().to_lowercase() != of_out.to_string().to_lowercase() {
                let message = format!("function result type must be {of_out} because of OUT parameters");
                return Err(Failure::invalid(message, at));
            }
        }
        rows = out;
        of_out
    } else if !reader.take(&["RETURNS"]) {
        return Err(reader.unexpected("RETURNS"));
    } else if reader.take(&["TABLE"]) {
        rows = reader.parenthesised(|reader| Ok((reader.ident()?, reader.parse_data_type()?)))?;
        match rows.as_slice() {
            [(_, only)] => only.clone(),
            _ => record(),
        }
    } else if reader.take(&["SETOF"]) {
        is_setof = true;
        let data_type = reader.parse_data_type()?;
        let called = name.0.last().and_then(|part| part.as_ident().cloned());
        rows.extend(called.map(|called| (called, data_type.clone())));
        data_type
    } else {
        reader.parse_data_type()?
    };
    let mut body = None;
    let mut text = None;
    let mut language = None;
    let mut strict = None;
    while !reader.at_end() {
        let at = reader.here();
        if reader.take(&["LANGUAGE"]) {
            language = Some((self::language(reader, kind)?, at));
        } else if reader.take(&["STRICT"]) || reader.take(&["RETURNS", "NULL", "ON", "NULL", "INPUT"]) {
            strict = Some((true, at));
        } else if reader.take(&["CALLED", "ON", "NULL", "INPUT"]) {
            strict = Some((false, at));
        } else if reader.take(&["VOLATILE"]) {
            return Err(Failure::unsupported(
                "VOLATILE functions are not supported",
                at,
                "The same arguments must give the same value.",
            ));
        } else if reader.take_one_of(&["IMMUTABLE", "STABLE"]).is_some()
            || reader.take(&["PARALLEL", "SAFE"])
            || takes_cost(reader)?
        {
            // What the body is tells that.
        } else if reader.take(&["RETURN"]) {
            body = Some(reader.expr()?);
        } else if reader.take(&["AS"]) {
            match string_of(&reader.peek_token_ref().token) {
                Some(written) => {
                    reader.next_token();
                    text = Some((written, at));
                }
                None => body = Some(reader.expr()?),
            }
        } else {
            return Err(reader.unexpected("LANGUAGE SQL, IMMUTABLE, RETURN or AS"));
        }
    }
    if let (Kind::Function, None, Some((_, at))) = (kind, language, &text) {
        let failure = Failure::invalid("no language specified", *at);
        return Err(failure.with_hint("LANGUAGE sql and LANGUAGE javascript are there."));
    }
    let is_javascript = matches!(language, Some((Language::Javascript, _)));
    if kind == Kind::Reducer && !is_javascript {
        return Err(reader.unexpected("LANGUAGE javascript"));
    }
    if is_javascript && (is_row || !defaults.is_empty()) {
        return Err(Failure::unsupported(
            "OUT parameters and defaults of parameters are supported only of LANGUAGE sql",
            reader.here(),
            "",
        ));
    }
    let body = if is_javascript {
        match (text, body) {
            (Some((text, _)), None) => FunctionBody::Javascript(text),
            _ => return Err(reader.unexpected("AS 'text in JavaScript'")),
        }
    } else {
        let gives_rows = if is_row { rows.len() > 1 } else { !rows.is_empty() };
        if let Some((true, at)) = strict.filter(|_| gives_rows || is_aggregate) {
            let hint = "The body of a function of SQL says what NULL makes.";
            return Err(Failure::unsupported(
                "STRICT is not supported for a function of SQL that gives rows or aggregates",
                at,
                hint,
            ));
        }
        let mut body = match (body, text) {
            (Some(body), None) => body,
            (_, Some((text, at))) => body_of(&text, gives_rows, at)?,
            (None, None) => return Err(reader.unexpected("RETURN expression or AS 'expression'")),
        };
        if gives_rows && !matches!(body, Expr::Subquery(_)) {
            return Err(
                reader.unexpected("RETURN (SELECT ..) or AS 'SELECT ..' of a function that gives rows")
            );
        }
        by_name(&mut body, &parameters, reader.here())?;
        FunctionBody::Sql(Box::new(body))
    };
    Ok(Statement::CreateFunction(Box::new(CreateFunction {
        name,
        or_replace: prefix.or_replace,
        is_aggregate,
        parameters,
        returns,
        rows,
        is_setof,
        is_row,
        defaults,
        strict: strict.is_some_and(|(strict, _)| strict),
        body,
    })))
}

/// The name behind LANGUAGE.
fn language(reader: &mut Reader<'_>, kind: Kind) -> Parse<Language> {
    let at = reader.here();
    let language = match string_of(&reader.peek_token_ref().token) {
        Some(name) => {
            reader.next_token();
            name
        }
        None => reader.ident()?.value,
    };
    match (language.to_ascii_lowercase().as_str(), kind) {
        ("sql", Kind::Function | Kind::Aggregate) => Ok(Language::Sql),
        ("javascript", Kind::Function | Kind::Reducer) => Ok(Language::Javascript),
        ("javascript", Kind::Aggregate) => Err(Failure::unsupported(
            "an aggregate in JavaScript is a reducer",
            at,
            "Use CREATE REDUCER.",
        )),
        _ => Err(Failure::unsupported(
            format!("LANGUAGE {language} is not supported"),
            at,
            "The languages are sql and javascript; programs that embed the server register reducers.",
        )),
    }
}

/// `COST n` and `ROWS n`, which tell PostgreSQL's planner something.
fn takes_cost(reader: &mut Reader<'_>) -> Parse<bool> {
    let found = reader.take_one_of(&["COST", "ROWS"]).is_some();
    if found {
        reader.number()?;
    }
    Ok(found)
}

/// Gives the parameters that a body names by their places (`$1`) their names.
fn by_name(body: &mut Expr, parameters: &[(Ident, DataType)], at: Location) -> Parse<()> {
    let missing = walk_expressions_mut(body, |expr| {
        let Expr::Value(value) = &*expr else {
            return ControlFlow::Continue(());
        };
        let Value::Placeholder(written) = &value.value else {
            return ControlFlow::Continue(());
        };
        let place = written
            .strip_prefix('$')
            .and_then(|place| place.parse::<usize>().ok());
        match place.and_then(|place| parameters.get(place.checked_sub(1)?)) {
            Some((name, _)) => {
                *expr = Expr::Identifier(name.clone());
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(written.clone()),
        }
    });
    match missing {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(written) => Err(Failure::invalid(format!("there is no parameter {written}"), at)),
    }
}

/// The expression of a body: by itself, or behind SELECT. A query that reads relations, or is to give rows, is a subquery.
fn body_of(body: &str, gives_rows: bool, at: Location) -> Parse<Expr> {
    let wrong = |why: &str| Failure::invalid(format!("the body of a function is one expression: {why}"), at);
    let body = body.trim().trim_end_matches(';');
    let begins_query = ["select", "with", "values"].iter().any(|word| {
        let first = body.get(..word.len());
        first.is_some_and(|first| first.eq_ignore_ascii_case(word))
    });
    if !begins_query {
        return text::expression(body).map_err(|error| wrong(&error.message));
    }
    let mut parsed = text::statements(body, parse_statement).map_err(|error| wrong(&error.message))?;
    let statement = parsed.pop().map(|(_, statement)| statement);
    let (Some(Statement::Sql(statement)), true) = (statement, parsed.is_empty()) else {
        return Err(wrong("or one SELECT"));
    };
    let sqlparser::ast::Statement::Query(mut query) = *statement else {
        return Err(wrong("or one SELECT"));
    };
    if !gives_rows
        && let SetExpr::Select(select) = query.body.as_ref()
        && select.from.is_empty()
        && select.selection.is_none()
        && let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
            select.projection.as_slice()
    {
        return Ok(expr.clone());
    }
    // Of several rows the first is the result.
    if !gives_rows && query.limit_clause.is_none() && query.fetch.is_none() {
        query.limit_clause = Some(LimitClause::LimitOffset {
            limit: Some(Expr::value(Value::Number("1".into(), false))),
            offset: None,
            limit_by: vec![],
        });
    }
    Ok(Expr::Subquery(query))
}
