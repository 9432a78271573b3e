//! `CREATE EXTERNAL TABLE`, as DataFusion spells it.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

use super::{CreatePrefix, columns, object};
use crate::ast::{CreateExternalTable, OptionEntry, Options, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE EXTERNAL TABLE`. The clauses come in any order.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let at = reader.here();
    let name = reader.name()?;
    let mut table = CreateExternalTable {
        name,
        or_replace: prefix.or_replace,
        if_not_exists,
        columns: Vec::new(),
        stored_as: String::new(),
        partitioned_by: Vec::new(),
        location: String::new(),
        options: Options::default(),
    };
    if reader.peek_token_ref().token == Token::LParen {
        let (elements, include) = columns::elements(reader, false)?;
        if let Some(include) = include.first() {
            let at = include.column.span.start;
            return Err(Failure::unsupported("INCLUDE of a file is not supported", at, ""));
        }
        if !elements.primary_key.is_empty()
            || !elements.constraints.is_empty()
            || elements.watermark.is_some()
        {
            let message = "an external table has no keys, constraints or watermark";
            return Err(Failure::unsupported(
                message,
                at,
                "Copy it into a table with CREATE TABLE .. AS SELECT.",
            ));
        }
        table.columns = elements.columns;
    }
    while !reader.at_end() {
        clause(reader, &mut table)?;
    }
    if table.stored_as.is_empty() || table.location.is_empty() {
        return Err(reader.unexpected("STORED AS and LOCATION"));
    }
    Ok(Statement::CreateExternalTable(Box::new(table)))
}

fn clause(reader: &mut Reader<'_>, table: &mut CreateExternalTable) -> Parse<()> {
    if reader.take(&["STORED", "AS"]) {
        table.stored_as = reader.ident()?.value.to_lowercase();
    } else if reader.take(&["LOCATION"]) {
        table.location = reader.string()?;
    } else if reader.take(&["PARTITIONED", "BY"]) {
        table.partitioned_by = reader.parenthesised(|reader| reader.ident())?;
    } else if reader.take(&["WITH", "HEADER", "ROW"]) {
        table.options.0.push(OptionEntry {
            name: Ident::new("header"),
            value: "true".into(),
        });
    } else if reader.take_one_of(&["OPTIONS", "WITH"]).is_some() {
        table.options.0.extend(reader.option_list()?);
    } else {
        return Err(reader.unexpected("STORED AS, LOCATION, PARTITIONED BY or OPTIONS"));
    }
    Ok(())
}
