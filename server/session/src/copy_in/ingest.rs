//! Rows that come in a request: which columns they have, and how they are decoded.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use millrace_database::database::rows::positions;
use millrace_postgres::copy::json;
use millrace_postgres::copy::layout::{Header, Layout};
use millrace_postgres::copy::split::{Columns, Splitter};
use millrace_postgres::error::SqlResult;

use crate::copy_in::{CopyIn, Decoder, IngestFormat, relation_of};
use crate::session::Session;
use crate::{names, write};

impl CopyIn {
    /// Rows of a request for a relation: `name` or `schema.name`.
    pub(crate) async fn for_ingest(
        session: &Arc<Session>,
        relation: &str,
        format: IngestFormat,
    ) -> SqlResult<Self> {
        let scope = session.scope();
        let parts = relation
            .splitn(2, '.')
            .map(|part| ObjectNamePart::Identifier(Ident::with_quote('"', part)));
        let object = names::resolve(session, &scope, &ObjectName(parts.collect()))?;
        write::writable(&object, "insert into")?;
        let relation = relation_of(&object)?;
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
                return CopyIn::new(session, &object, &positions, given, Decoder::Json(decoder), what);
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
        CopyIn::new(session, &object, &positions, given, decoder, what)
    }
}
