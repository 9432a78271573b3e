//! `CREATE FUNCTION` and `CREATE AGGREGATE`, whose bodies are SQL expressions.

use sqlparser::ast::{Expr, SelectItem, SetExpr};
use sqlparser::tokenizer::{Location, Token};

use super::{CreatePrefix, parse_statement};
use crate::ast::{CreateFunction, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader, string_of};
use crate::text;

/// After `CREATE FUNCTION` or `CREATE AGGREGATE`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix, is_aggregate: bool) -> Parse<Statement> {
    let name = reader.name()?;
    reader.need_token(&Token::LParen)?;
    let mut parameters = vec![];
    if !reader.take_token(&Token::RParen) {
        parameters = reader.list(|reader| Ok((reader.ident()?, reader.parse_data_type()?)))?;
        reader.need_token(&Token::RParen)?;
    }
    reader.need(&["RETURNS"])?;
    let returns = reader.parse_data_type()?;
    let mut body = None;
    while !reader.at_end() {
        let at = reader.here();
        if reader.take(&["LANGUAGE"]) {
            let language = reader.ident()?.value;
            if !language.eq_ignore_ascii_case("sql") {
                let hint = "The body is an SQL expression; programs that embed the server register reducers.";
                return Err(Failure::unsupported(
                    format!("LANGUAGE {language} is not supported"),
                    at,
                    hint,
                ));
            }
        } else if reader.take_one_of(&["IMMUTABLE", "STABLE"]).is_some() || reader.take(&["PARALLEL", "SAFE"])
        {
            // What the body is tells that.
        } else if reader.take(&["RETURN"]) {
            body = Some(reader.expr()?);
        } else if reader.take(&["AS"]) {
            body = Some(match string_of(&reader.peek_token_ref().token) {
                Some(text) => {
                    reader.next_token();
                    body_of(&text, at)?
                }
                None => reader.expr()?,
            });
        } else {
            return Err(reader.unexpected("LANGUAGE SQL, IMMUTABLE, RETURN or AS"));
        }
    }
    let body = body.ok_or_else(|| reader.unexpected("RETURN expression or AS 'expression'"))?;
    Ok(Statement::CreateFunction(Box::new(CreateFunction {
        name,
        or_replace: prefix.or_replace,
        is_aggregate,
        parameters,
        returns,
        body,
    })))
}

/// The expression of a body: by itself, or behind SELECT.
fn body_of(body: &str, at: Location) -> Parse<Expr> {
    let wrong = |why: &str| Failure::invalid(format!("the body of a function is one expression: {why}"), at);
    let body = body.trim().trim_end_matches(';');
    if !body
        .get(..6)
        .is_some_and(|word| word.eq_ignore_ascii_case("select"))
    {
        return text::expression(body).map_err(|error| wrong(&error.message));
    }
    let mut parsed = text::statements(body, parse_statement).map_err(|error| wrong(&error.message))?;
    let statement = parsed.pop().map(|(_, statement)| statement);
    if let (Some(Statement::Sql(statement)), true) = (statement, parsed.is_empty())
        && let sqlparser::ast::Statement::Query(query) = *statement
        && let SetExpr::Select(select) = *query.body
        && select.from.is_empty()
        && select.selection.is_none()
        && let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
            select.projection.as_slice()
    {
        return Ok(expr.clone());
    }
    Err(wrong("SELECT expression, without FROM"))
}
