//! VACUUM with PostgreSQL's options, in parentheses and as words. There is nothing that they could change.

use sqlparser::ast::{Statement, VacuumStatement};
use sqlparser::tokenizer::Token;

use crate::reader::{Parse, Reader};

const OPTIONS: [&str; 11] = [
    "FULL",
    "FREEZE",
    "VERBOSE",
    "ANALYZE",
    "DISABLE_PAGE_SKIPPING",
    "SKIP_LOCKED",
    "INDEX_CLEANUP",
    "PROCESS_TOAST",
    "TRUNCATE",
    "PARALLEL",
    "ANALYSE",
];

/// After `VACUUM`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    let mut full = false;
    if reader.take_token(&Token::LParen) {
        reader.list(|reader| {
            let option = reader.take_one_of(&OPTIONS);
            let option = option.ok_or_else(|| reader.unexpected("an option of VACUUM"))?;
            if option == "PARALLEL" {
                reader.number()?;
            } else if option != "INDEX_CLEANUP" || !reader.take(&["AUTO"]) {
                full |= reader.boolean()? && option == "FULL";
            }
            Ok(())
        })?;
        reader.need_token(&Token::RParen)?;
    } else {
        for word in ["FULL", "FREEZE", "VERBOSE", "ANALYZE"] {
            full |= reader.take(&[word]) && word == "FULL";
        }
    }
    let table_name = match reader.at_end() {
        true => None,
        false => Some(reader.name()?),
    };
    Ok(Statement::Vacuum(VacuumStatement {
        full,
        sort_only: false,
        delete_only: false,
        reindex: false,
        recluster: false,
        table_name,
        threshold: None,
        boost: false,
    }))
}
