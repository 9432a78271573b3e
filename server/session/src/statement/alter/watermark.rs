//! `ALTER STREAM .. SET WATERMARK TO ..`: the way out when one row of a time to come has made all others late.
//!
//! What was final was shown as final, and is never opened again: a view that goes by the watermark has forgotten what it was made of. So
//! there may be none; one that is made afterwards is made from all rows, and closes by the watermark that there is then.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::{Definition, Object};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::maintenance::watermark_fact;
use millrace_engine::SetBack;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::parse;
use millrace_storage::{CatalogChange, ObjectKind};

use crate::notice::Severity;
use crate::session::Session;

/// Sets the watermark of a stream back to a time.
///
/// # Errors
/// The stream has none, or one that is not later, or views go by it; the text is no time.
pub(super) async fn set_back(
    session: &Arc<Session>,
    guard: &DdlGuard<'_>,
    stream: &Arc<Object>,
    text: &str,
) -> SqlResult<()> {
    let db = session.database();
    let not_now = |message: String| SqlError::new(SqlState::ObjectNotInPrerequisiteState, message);
    let mut new = stream.as_ref().clone();
    let name = &stream.name;
    let id = RelationId(stream.id.0);
    let relation = match &mut new.definition {
        Definition::Relation(relation) => relation,
        _ => return Err(SqlError::internal("a stream is not a relation")),
    };
    let field = match &relation.event_time {
        Some(event_time)
            if !relation
                .connector
                .as_ref()
                .is_some_and(ConnectorDef::is_generator) =>
        {
            relation.schema().field(event_time.column).clone()
        }
        Some(_) => {
            return Err(SqlError::unsupported(
                "the watermark of a generator's stream cannot be set",
            ));
        }
        None => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("stream \"{name}\" has no watermark"),
            ));
        }
    };
    let watermark = micros(&field, text)?;
    let shown = |micros: i64| {
        let time = chrono::DateTime::from_timestamp_micros(micros);
        time.map_or_else(
            || format!("{micros} us"),
            |time| time.format("%Y-%m-%d %H:%M:%S%.f").to_string(),
        )
    };
    let statuses = db.runtime().watermarks();
    let status = statuses.iter().find(|status| status.relation == id);
    let before = match status.and_then(|status| status.watermark) {
        Some(before) if watermark < before => before,
        Some(before) => {
            return Err(not_now(format!(
                "the watermark of stream \"{name}\" is {} and can only be set back: rows move it forward",
                shown(before)
            )));
        }
        None => {
            return Err(not_now(format!(
                "stream \"{name}\" has no watermark yet, because it has no rows"
            )));
        }
    };
    refuse_views(session, stream)?;
    db.store().catalog().apply(vec![CatalogChange::RemoveFact {
        key: watermark_fact(id.0),
    }])?;
    // Whatever feeds it judges the watermarks of its splits anew.
    let setting = async || loop {
        let offset = db.runtime().settled(id).await?;
        let set = SetBack { offset, watermark };
        if let Definition::Relation(relation) = &mut new.definition
            && let Some(event_time) = &mut relation.event_time
        {
            event_time.set_back = Some(set);
        }
        guard.put(new.clone())?;
        // Rows may have come in between: then they are in front of the place, too.
        if db.runtime().set_watermark_back(id, set)? {
            return Ok(());
        }
    };
    db.restart_source(stream, setting).await?;
    session.notice(
        Severity::Warning,
        format!(
            "the watermark of stream \"{name}\" was set back from {} to {}: rows from that time on are \
             accepted again",
            shown(before),
            shown(watermark)
        ),
    );
    Ok(())
}

/// A time of the event time's type, in microseconds.
fn micros(field: &arrow::datatypes::Field, text: &str) -> SqlResult<i64> {
    let texts = StringArray::from(vec![text]);
    let time = parse::column(field, &texts).map_err(|cell| *cell.error)?;
    let zone = match field.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let time =
        cast(&time, &DataType::Timestamp(TimeUnit::Microsecond, zone)).map_err(from_internal::arrow)?;
    let time = cast(&time, &DataType::Int64).map_err(from_internal::arrow)?;
    Ok(time.as_primitive::<Int64Type>().value(0))
}

/// Refuses while a view has closed something by the watermark, or is being made.
fn refuse_views(session: &Session, stream: &Arc<Object>) -> SqlResult<()> {
    let db = session.database();
    let catalog = db.catalog();
    let jobs = db.jobs().over(std::slice::from_ref(stream));
    let views: Vec<String> = (catalog.closure(&[stream.id]).into_iter())
        .filter_map(|id| catalog.object(id))
        .filter(|object| object.kind == ObjectKind::MaterializedView)
        .filter(|view| view.check_up().is_err() || db.runtime().goes_by_watermarks(RelationId(view.id.0)))
        .map(|view| view.described())
        .collect();
    if views.is_empty() && jobs.is_empty() {
        return Ok(());
    }
    let error = SqlError::new(
        SqlState::DependentObjectsStillExist,
        format!(
            "cannot set the watermark of stream \"{}\" back because views depend on it",
            stream.name
        ),
    );
    let detail = match views.is_empty() {
        true => "A view that reads the stream is being created.".to_owned(),
        false => format!(
            "These views cannot reopen what they have closed: {}.",
            views.join(", ")
        ),
    };
    Err(error.with_detail(detail).with_hint(
        "Drop them, set the watermark, and create them again: they are then filled from all rows of the \
         stream.",
    ))
}
