//! `SHOW`, of objects, of what runs, and of settings.

use sqlparser::tokenizer::Token;

use super::{object, set};
use crate::ast::{ObjectReference, ShowStatement, ShowTarget, Statement};
use crate::reader::{Parse, Reader};

/// What one word after SHOW means when LIKE may follow it, and FROM where it lists what is in schemas.
const LISTS: [(&str, ShowTarget); 20] = [
    ("STREAMS", ShowTarget::Streams),
    ("SOURCES", ShowTarget::Sources),
    ("TABLES", ShowTarget::Tables),
    ("VIEWS", ShowTarget::Views),
    ("SINKS", ShowTarget::Sinks),
    ("SUBSCRIPTIONS", ShowTarget::Subscriptions),
    ("SECRETS", ShowTarget::Secrets),
    ("FUNCTIONS", ShowTarget::Functions),
    ("DATABASES", ShowTarget::Databases),
    ("SCHEMAS", ShowTarget::Schemas),
    ("CURSORS", ShowTarget::Cursors),
    ("JOBS", ShowTarget::Jobs),
    ("PROCESSLIST", ShowTarget::Processlist),
    ("WATERMARKS", ShowTarget::Watermarks),
    ("BACKPRESSURE", ShowTarget::Backpressure),
    ("BATCHES", ShowTarget::Batches),
    ("SUSPENDED", ShowTarget::Suspended),
    ("WORKERS", ShowTarget::Workers),
    ("PARAMETERS", ShowTarget::Parameters),
    ("ALL", ShowTarget::All),
];

/// Lists of RisingWave and Materialize, which `refused` says something of: they are no settings.
const OF_OTHERS: [&str; 6] = ["CONNECTIONS", "CLUSTER", "CLUSTERS", "OBJECTS", "TYPES", "ROLES"];

/// After `SHOW`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    let target = target(reader)?;
    let mut show = ShowStatement {
        target,
        schema: None,
        like: None,
    };
    let filtered = !matches!(show.target, ShowTarget::Variable(_) | ShowTarget::Create(_));
    if filtered {
        if show.target.is_of_schemas() && reader.take_one_of(&["FROM", "IN"]).is_some() {
            show.schema = Some(reader.name()?);
        }
        if reader.take(&["LIKE"]) {
            show.like = Some(reader.string()?);
        }
    }
    Ok(Statement::Show(show))
}

fn target(reader: &mut Reader<'_>) -> Parse<ShowTarget> {
    if reader.take(&["MATERIALIZED", "VIEWS"]) {
        return Ok(ShowTarget::MaterializedViews);
    }
    let _ = reader.at(&["FULL", "PROCESSLIST"]) && reader.take(&["FULL"]);
    if reader.take(&["COLUMNS"]) {
        if reader.take_one_of(&["FROM", "IN"]).is_none() {
            return Err(reader.unexpected("FROM and a name"));
        }
        return Ok(ShowTarget::Columns(reader.name()?));
    }
    if reader.take_one_of(&["INDEXES", "INDICES"]).is_some() {
        let of = reader.take_one_of(&["FROM", "IN", "ON"]).is_some();
        return Ok(ShowTarget::Indexes(if of { Some(reader.name()?) } else { None }));
    }
    if reader.take(&["CREATE"]) {
        let kind = object::need_kind(reader)?;
        return Ok(ShowTarget::Create(ObjectReference {
            kind,
            name: reader.name()?,
        }));
    }
    if reader.take(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        return Ok(ShowTarget::Variable("transaction_isolation".into()));
    }
    if reader.take(&["TIME", "ZONE"]) {
        return Ok(ShowTarget::Variable("timezone".into()));
    }
    if reader.take(&["SESSION", "AUTHORIZATION"]) {
        return Ok(ShowTarget::Variable("session_authorization".into()));
    }
    if OF_OTHERS.iter().any(|word| reader.at(&[word])) {
        return Err(reader.unexpected("what there is, or a setting"));
    }
    let dotted = reader.peek_nth_token_ref(1).token == Token::Period;
    let list = LISTS.iter().find(|(word, _)| !dotted && reader.at(&[word]));
    if let Some((_, target)) = list {
        reader.advance_token();
        return Ok(target.clone());
    }
    Ok(ShowTarget::Variable(set::variable_name(reader)?))
}
