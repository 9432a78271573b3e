//! COPY: FROM STDIN and TO STDOUT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use millrace_database::running::Running;
use millrace_parser::ast::{CopyDirection, CopyEnd, CopyFormat, CopySource, CopyStatement};
use millrace_parser::quote_identifier;
use millrace_postgres::copy::encode;
use millrace_postgres::copy::layout::Layout;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;

use crate::copy_in::CopyIn;
use crate::names;
use crate::outcome::{CopyOut, Outcome};
use crate::query::Providers;
use crate::session::Session;
use crate::statement::{select, subscribe};
use crate::write::writable;

/// Executes COPY.
pub async fn execute(session: &Arc<Session>, copy: CopyStatement, running: Running) -> SqlResult<Outcome> {
    if copy.options.format == CopyFormat::Binary {
        return Err(
            SqlError::unsupported("COPY in binary format is not supported").with_hint("Use text or csv.")
        );
    }
    let end = match &copy.direction {
        CopyDirection::From(end) | CopyDirection::To(end) => end,
    };
    match end {
        CopyEnd::Client => {}
        CopyEnd::File(_) | CopyEnd::Program(_) => {
            return Err(
                SqlError::unsupported("COPY of files and programs on the server is not supported")
                    .with_hint("Use psql's \\copy, which reads and writes files of the client."),
            );
        }
    }
    match copy.direction {
        CopyDirection::From(_) => from(session, copy).await,
        CopyDirection::To(_) => to(session, copy, running).await,
    }
}

async fn from(session: &Arc<Session>, copy: CopyStatement) -> SqlResult<Outcome> {
    let CopySource::Relation { name, columns } = &copy.source else {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "COPY FROM needs a relation, not a query",
        ));
    };
    if copy.filter.is_some() {
        return Err(SqlError::unsupported("COPY .. WHERE is not supported")
            .with_hint("Copy into a stream and filter in a view."));
    }
    let scope = session.scope();
    let object = names::resolve(session, &scope, name)?;
    writable(&object, "copy to")?;
    let columns: Vec<String> = columns.iter().map(millrace_parser::fold).collect();
    let layout = Layout::from_options(&copy.options)?;
    Ok(Outcome::CopyIn(Box::new(
        CopyIn::for_copy(session, object, &columns, layout).await?,
    )))
}

async fn to(session: &Arc<Session>, copy: CopyStatement, running: Running) -> SqlResult<Outcome> {
    let layout = Layout::from_options(&copy.options)?;
    let (schema, stream) = match copy.source {
        CopySource::Subscribe(subscribe) => {
            let rows = subscribe::rows(session, &subscribe).await?;
            session.guarded(rows, &[], running)
        }
        source => query(session, source, running).await?,
    };
    let columns = schema.fields().len();
    let rows = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&rows);
    let header = layout.header_line(&schema);
    let layout = Arc::new(layout);
    let body = stream.map(move |batch| {
        let batch = batch.map_err(from_internal::datafusion)?;
        let bytes = encode::batch(&layout, &batch)?;
        counter.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
        Ok(Bytes::from(bytes))
    });
    let stream = match header {
        Some(line) => futures::stream::iter([Ok(Bytes::from(line))]).chain(body).boxed(),
        None => body.boxed(),
    };
    Ok(Outcome::CopyOut(CopyOut {
        stream,
        columns,
        binary: false,
        rows,
    }))
}

/// The rows of a relation or a query.
async fn query(
    session: &Arc<Session>,
    source: CopySource,
    running: Running,
) -> SqlResult<(SchemaRef, SendableRecordBatchStream)> {
    let scope = session.scope();
    let mut statement = match source {
        CopySource::Relation { name, columns } => {
            let list: Vec<String> = columns
                .iter()
                .map(|column| quote_identifier(&millrace_parser::fold(column)))
                .collect();
            let list = if list.is_empty() {
                "*".to_string()
            } else {
                list.join(", ")
            };
            let text = format!("SELECT {list} FROM {name}");
            select::parse_query(&text)?
        }
        CopySource::Query(query) => {
            if !matches!(*query, ast::Statement::Query(_)) {
                return Err(SqlError::unsupported(
                    "COPY (INSERT, UPDATE or DELETE ..) is not supported",
                ));
            }
            *query
        }
        CopySource::Subscribe(_) => return Err(SqlError::internal("SUBSCRIBE is not a query")),
    };
    let (plan, names) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    Ok(session.guarded(session.start(physical)?, &names, running))
}
