//! COPY: FROM STDIN and TO STDOUT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use millrace_database::running::Running;
use millrace_parser::ast::{CopyDirection, CopyEnd, CopyFormat, CopyOptions, CopySource, CopyStatement};
use millrace_parser::quote_identifier;
use millrace_postgres::copy::layout::Layout;
use millrace_postgres::copy::{binary, encode};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;

use crate::copy_in::CopyIn;
use crate::names;
use crate::object_names;
use crate::outcome::{CopyOut, CopyRows, Outcome};
use crate::output_columns::OutputColumns;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::insert::conflict;
use crate::statement::{as_of, select, subscribe};
use crate::write::takes_rows;

/// Executes COPY.
pub async fn execute(session: &Arc<Session>, copy: CopyStatement, running: Running) -> SqlResult<Outcome> {
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
    takes_rows(&scope, &object, "copy to")?;
    let columns: Vec<String> = columns.iter().map(millrace_parser::fold).collect();
    let layout = layout(&copy.options)?;
    Ok(Outcome::CopyIn(Box::new(
        CopyIn::for_copy(session, object, &columns, layout, conflict::resolve_rows).await?,
    )))
}

/// How its lines look; `None`: it is in binary format.
///
/// # Errors
/// An option does not go with the format, or is not supported.
fn layout(options: &CopyOptions) -> SqlResult<Option<Layout>> {
    let layout = Layout::from_options(options)?;
    Ok((options.format != CopyFormat::Binary).then_some(layout))
}

async fn to(session: &Arc<Session>, copy: CopyStatement, running: Running) -> SqlResult<Outcome> {
    let layout = layout(&copy.options)?;
    let (schema, stream) = match copy.source {
        CopySource::Subscribe(subscribe) => {
            let rows = subscribe::rows(session, &subscribe).await?;
            session.guarded(rows, &OutputColumns::default(), running)
        }
        source => query(session, source, running).await?,
    };
    let columns = schema.fields().len();
    let rows = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&rows);
    let counted = stream.map(move |batch| {
        let batch = batch.map_err(from_internal::datafusion)?;
        counter.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
        Ok(batch)
    });
    let binary = layout.is_none();
    let stream = match layout {
        None => {
            // The header and what follows are one message, as PostgreSQL sends them.
            let mut header = Some(binary::header());
            let end = futures::stream::iter([None]);
            let pieces = counted
                .map(Some)
                .chain(end)
                .map(move |batch: Option<SqlResult<RecordBatch>>| {
                    let (rows, ends) = match batch {
                        Some(batch) => binary::batch(&schema, &batch?)?,
                        None => (binary::trailer(), vec![2]),
                    };
                    Ok(match header.take_if(|_| !ends.is_empty()) {
                        Some(header) => {
                            let ends = ends.into_iter().map(|end| end + header.len()).collect();
                            CopyRows::new([header, rows].concat().into(), ends)
                        }
                        None => CopyRows::new(rows, ends),
                    })
                });
            pieces.boxed()
        }
        Some(layout) => {
            let header = layout.header_line(&schema);
            let body = counted.map(move |batch| {
                let mut ends = vec![];
                let lines = encode::batch_with(&layout, &batch?, |end| ends.push(end))?;
                Ok(CopyRows::new(Bytes::from(lines), ends))
            });
            match header {
                Some(line) => {
                    let line = CopyRows::one(Bytes::from(line));
                    futures::stream::iter([Ok(line)]).chain(body).boxed()
                }
                None => body.boxed(),
            }
        }
    };
    Ok(Outcome::CopyOut(CopyOut {
        stream,
        columns,
        binary,
        rows,
    }))
}

/// The rows of a relation or a query.
async fn query(
    session: &Arc<Session>,
    source: CopySource,
    running: Running,
) -> SqlResult<(SchemaRef, SendableRecordBatchStream)> {
    let mut scope = session.scope();
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
    object_names::shown(&mut statement);
    as_of::resolve(session, &mut scope, &mut statement).await?;
    let (plan, columns) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    Ok(session.guarded(session.start(physical)?, &columns, running))
}
