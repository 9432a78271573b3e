//! `EXPLAIN`.

use sqlparser::tokenizer::Token;

use super::{statement_of, what_if};
use crate::ast::{Explain, ExplainFormat, ExplainOptions, ExplainTarget, ExplainType, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `EXPLAIN`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    let mut analyze = false;
    let mut options = ExplainOptions::default();
    loop {
        if reader.take_one_of(&["ANALYZE", "ANALYSE"]).is_some() {
            analyze = true;
        } else if reader.take(&["VERBOSE"]) {
            options.verbose = true;
        } else if reader.take(&["PREDICT"]) {
            options.predict = true;
        } else {
            break;
        }
    }
    if reader.peek_token_ref().token == Token::LParen && !parenthesised_query(reader) {
        reader.parenthesised(|reader| option(reader, &mut analyze, &mut options))?;
    }
    let target = target(reader)?;
    Ok(Statement::Explain(Box::new(Explain {
        analyze,
        options,
        target,
    })))
}

/// Whether the parenthesis that is next begins a query.
fn parenthesised_query(reader: &Reader<'_>) -> bool {
    use sqlparser::keywords::Keyword;
    match &reader.peek_nth_token_ref(1).token {
        Token::LParen => true,
        Token::Word(word) => {
            matches!(
                word.keyword,
                Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE
            )
        }
        _ => false,
    }
}

fn target(reader: &mut Reader<'_>) -> Parse<ExplainTarget> {
    if reader.take(&["MATERIALIZED", "VIEW"]) {
        return Ok(ExplainTarget::MaterializedView(reader.name()?));
    }
    if reader.take(&["MATERIALIZED", "VIEWS"]) {
        return Ok(ExplainTarget::MaterializedViews);
    }
    if reader.take(&["PROFILE"]) {
        return Ok(ExplainTarget::Profile(reader.number()?));
    }
    if reader.take(&["SINK"]) {
        return Ok(ExplainTarget::Sink(reader.name()?));
    }
    let at = reader.here();
    if reader.at_end() {
        return Err(reader.unexpected("a statement to explain"));
    }
    let tokens = reader.rest();
    let statement = statement_of(reader.over(tokens))?;
    if matches!(statement, Statement::Explain(_)) {
        return Err(Failure::invalid("EXPLAIN cannot be explained", at));
    }
    Ok(ExplainTarget::Statement(Box::new(statement)))
}

fn option(reader: &mut Reader<'_>, analyze: &mut bool, options: &mut ExplainOptions) -> Parse<()> {
    let at = reader.here();
    if reader.take(&["WHAT", "IF"]) {
        options.what_if = Some(what_if::parse(reader)?);
        return Ok(());
    }
    // ANALYZE and VERBOSE are reserved, so the name is read as an option's.
    let name = reader.option_name()?.value.to_lowercase();
    match name.as_str() {
        "analyze" | "analyse" => *analyze = reader.boolean()?,
        "verbose" => options.verbose = reader.boolean()?,
        "predict" => options.predict = reader.boolean()?,
        "duration" => options.duration = Some(reader.string()?),
        "type" => options.plan_type = plan_type(reader)?,
        "logical" => options.plan_type = ExplainType::Logical,
        "physical" => options.plan_type = ExplainType::Physical,
        "stages" | "distsql" => options.plan_type = ExplainType::Stages,
        "format" => options.format = format(reader)?,
        "costs" | "settings" | "buffers" | "wal" | "timing" | "summary" | "generic_plan" | "memory" => {
            reader.boolean()?;
        }
        _ => {
            return Err(
                Failure::invalid(format!("unrecognized EXPLAIN option \"{name}\""), at).with_hint(
                    "The options are ANALYZE, VERBOSE, TYPE, FORMAT, PREDICT, DURATION and WHAT IF.",
                ),
            );
        }
    }
    Ok(())
}

fn plan_type(reader: &mut Reader<'_>) -> Parse<ExplainType> {
    let at = reader.here();
    let value = reader.plain_value()?;
    match value.to_lowercase().as_str() {
        "logical" => Ok(ExplainType::Logical),
        "physical" => Ok(ExplainType::Physical),
        "stages" => Ok(ExplainType::Stages),
        _ => Err(Failure::invalid(
            format!("unrecognized value for EXPLAIN option \"type\": \"{value}\""),
            at,
        )
        .with_hint("The types are LOGICAL, PHYSICAL and STAGES.")),
    }
}

fn format(reader: &mut Reader<'_>) -> Parse<ExplainFormat> {
    let at = reader.here();
    let value = reader.plain_value()?;
    match value.to_lowercase().as_str() {
        "text" => Ok(ExplainFormat::Text),
        "json" => Ok(ExplainFormat::Json),
        "dot" => Ok(ExplainFormat::Dot),
        _ => Err(Failure::invalid(
            format!("unrecognized value for EXPLAIN option \"format\": \"{value}\""),
            at,
        )
        .with_hint("The formats are TEXT, JSON and DOT.")),
    }
}
