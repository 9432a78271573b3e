//! Rows that come in a request: which columns they have, and how they are decoded.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use millrace_catalog::Object;
use millrace_catalog::connector::webhook::Webhook;
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_database::database::rows::positions;
use millrace_postgres::copy::json;
use millrace_postgres::copy::layout::{Header, Layout};
use millrace_postgres::copy::split::{Columns, Splitter};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::copy_in::{CopyIn, Decoder, IngestFormat, relation_of};
use crate::resolve::Resolve;
use crate::session::Session;
use crate::{names, write};

/// What a request names: `name` or `schema.name`.
fn named(session: &Session, scope: &Scope, relation: &str) -> SqlResult<Arc<Object>> {
    let parts = relation
        .splitn(2, '.')
        .map(|part| ObjectNamePart::Identifier(Ident::with_quote('"', part)));
    names::resolve(session, scope, &ObjectName(parts.collect()))
}

/// How requests for a stream are checked.
///
/// # Errors
/// It does not take rows by webhook.
fn webhook(object: &Object) -> SqlResult<Webhook> {
    object.check_up()?;
    let connector = object.relation().and_then(|relation| relation.connector.as_ref());
    let webhook = connector
        .map(|connector| connector.webhook())
        .transpose()?
        .flatten();
    webhook.ok_or_else(|| {
        let message = format!("{} does not take rows by webhook", object.described());
        SqlError::new(SqlState::WrongObjectType, message)
    })
}

/// How requests for a stream of this name are checked.
///
/// # Errors
/// There is none, or it does not take rows by webhook.
pub(crate) fn webhook_of(session: &Session, stream: &str) -> SqlResult<Webhook> {
    webhook(&*named(session, &session.scope(), stream)?)
}

impl CopyIn {
    /// Rows of a request for a relation: `name` or `schema.name`.
    pub(crate) async fn for_ingest(
        session: &Arc<Session>,
        relation: &str,
        format: IngestFormat,
        resolve: Resolve,
    ) -> SqlResult<Self> {
        let scope = session.scope();
        let object = named(session, &scope, relation)?;
        scope.check(&object, Privileges::INSERT)?;
        write::takes_rows(&scope, &object, "insert into")?;
        Self::into_object(session, &object, format, resolve)
    }

    /// Rows of a request that was checked, for a stream that takes them by webhook.
    pub(crate) fn for_webhook(
        session: &Arc<Session>,
        stream: &str,
        format: IngestFormat,
        resolve: Resolve,
    ) -> SqlResult<Self> {
        let object = named(session, &session.scope(), stream)?;
        webhook(&object)?;
        Self::into_object(session, &object, format, resolve)
    }

    fn into_object(
        session: &Arc<Session>,
        object: &Arc<Object>,
        format: IngestFormat,
        resolve: Resolve,
    ) -> SqlResult<Self> {
        let relation = relation_of(object)?;
        let positions = positions(relation, &[])?;
        let given: Vec<Arc<Field>> = positions
            .iter()
            .map(|position| Arc::clone(&relation.schema().fields()[*position]))
            .collect();
        let what = format!("ingest into {}", object.name);
        let decoder = match format {
            IngestFormat::NdJson | IngestFormat::JsonArray => {
                let decoder = json::Decoder::new(format == IngestFormat::JsonArray, &given);
                let given = decoder.read_fields();
                return CopyIn::new(
                    session,
                    object,
                    &positions,
                    given,
                    Decoder::Json(decoder),
                    what,
                    resolve,
                );
            }
            IngestFormat::Csv { header } => {
                let layout = Layout::csv(if header { Header::Match } else { Header::Absent });
                let names = given.iter().map(|field| field.name().clone()).collect();
                let splitter = Splitter::new(&layout, names);
                Decoder::Split {
                    splitter,
                    columns: Columns::new(given.len()),
                    layout,
                }
            }
        };
        CopyIn::new(session, object, &positions, given, decoder, what, resolve)
    }
}
