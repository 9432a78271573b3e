//! Types that somebody made, in statements.

use datafusion::sql::sqlparser::ast;
use millrace_catalog::user_type::id_of;
use millrace_functions::sql::{clock_words, literal_casts, named_types};
use millrace_parser::ast::{CopySource, ExplainTarget, SinkInput, Statement, SubscribeTarget};
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::enumeration::EnumType;
use millrace_postgres::types::named::{NamedType, resolved};
use postgres_types::{Kind, Type};

use crate::session::Session;

/// Replaces the names of types, and the words that need a clock, in what is run at once. A definition keeps names, and has them
/// replaced where it is read.
///
/// # Errors
/// A name cannot be looked up; an array of a domain is meant.
pub(crate) fn resolve(session: &Session, statement: &mut Statement) -> SqlResult<()> {
    at_once(statement);
    check_definition(statement)?;
    if !session.catalog().has_user_types() {
        return Ok(());
    }
    let scope = session.scope();
    let reader = session.database().reader(&scope);
    let names = &reader;
    match statement {
        Statement::Sql(sql) => match sql.as_mut() {
            ast::Statement::CreateView(_) => Ok(()),
            // What it prepares is looked at when it runs.
            ast::Statement::Prepare { data_types, .. } => {
                for data_type in data_types {
                    *data_type = resolved(data_type, names)?.data_type;
                }
                Ok(())
            }
            sql => named_types::resolve(sql, names),
        },
        Statement::CreateTable(create) => named_types::resolve(&mut create.as_query, names),
        Statement::Copy(copy) => match &mut copy.source {
            CopySource::Query(query) => named_types::resolve(query.as_mut(), names),
            _ => Ok(()),
        },
        Statement::Explain(explain) => match &mut explain.target {
            ExplainTarget::Statement(inner) => resolve(session, inner),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses a definition with a text that is no input of the type that it is cast to.
fn check_definition(statement: &Statement) -> SqlResult<()> {
    match statement {
        Statement::Sql(sql) if matches!(sql.as_ref(), ast::Statement::CreateView(_)) => {
            literal_casts::check(sql.as_ref())
        }
        Statement::CreateMaterializedView(create) => literal_casts::check(create.query.as_ref()),
        Statement::CreateSink(create) => check_input(&create.input),
        Statement::CreateSubscription(create) => check_input(&create.input),
        Statement::Subscribe(subscribe) => match &subscribe.target {
            SubscribeTarget::Query(query) => literal_casts::check(query.as_ref()),
            SubscribeTarget::Relation(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_input(input: &SinkInput) -> SqlResult<()> {
    match input {
        SinkInput::Query(query) => literal_casts::check(query.as_ref()),
        SinkInput::Relation(_) => Ok(()),
    }
}

fn at_once(statement: &mut Statement) {
    match statement {
        Statement::Sql(sql) => match sql.as_mut() {
            ast::Statement::CreateView(_) | ast::Statement::Prepare { .. } => {}
            sql => clock_words::replace(sql),
        },
        Statement::CreateTable(create) => clock_words::replace(&mut create.as_query),
        Statement::Copy(copy) => {
            if let CopySource::Query(query) = &mut copy.source {
                clock_words::replace(query.as_mut());
            }
        }
        Statement::Explain(explain) => {
            if let ExplainTarget::Statement(inner) = &mut explain.target {
                at_once(inner);
            }
        }
        _ => {}
    }
}

impl Session {
    /// Types of parameters as they are now: an enum has got values since a statement was prepared.
    pub fn types_now(&self, types: &[Type]) -> Vec<Type> {
        let catalog = self.catalog();
        let now = |pg: &Type| {
            let (of_array, element) = match pg.kind() {
                Kind::Array(element) => (true, element),
                _ => (false, pg),
            };
            let known = EnumType::from_pg(element)?;
            let object = id_of(known.oid).and_then(|id| catalog.object(id))?;
            match object.named_type()? {
                NamedType::Enum(known) if of_array => Some(known.array_pg_type()),
                NamedType::Enum(known) => Some(known.pg_type()),
                NamedType::Domain(_) => None,
            }
        };
        types
            .iter()
            .map(|pg| now(pg).unwrap_or_else(|| pg.clone()))
            .collect()
    }
}
