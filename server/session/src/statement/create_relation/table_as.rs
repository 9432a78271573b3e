//! CREATE TABLE .. AS: a table with the rows of a query.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::retention::Retention;
use millrace_catalog::{ColumnDef, Object};
use millrace_database::database::rows::RowBuilder;
use millrace_functions::sql::output_types;
use millrace_parser::ast::CreateTable;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{self, SqlType};
use millrace_storage::{ChangeBatch, ObjectKind};

use super::constraints::Constraints;
use super::{New, check_columns, make};
use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::query::{Providers, schema_of};
use crate::session::Session;
use crate::statement::insert::whole_rows;
use crate::statement::{done, select};

pub(super) async fn table_as(
    session: &Arc<Session>,
    create: &CreateTable,
    query: ast::Query,
    keeping: Retention,
    text: &str,
) -> SqlResult<Outcome> {
    let scope = session.scope();
    let mut statement = ast::Statement::Query(Box::new(query));
    let (plan, output) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
    let given: Vec<String> = create.column_names.iter().map(millrace_parser::fold).collect();
    if given.len() > plan.schema().fields().len() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "too many column names were specified",
        ));
    }
    let columns: Vec<ColumnDef> = output
        .applied(&schema_of(&plan))
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let name = given.get(index).unwrap_or(field.name()).clone();
            let mut column = SqlType::of(&types::stored(field));
            // What is noted of names and of the elements of an array only clients are told.
            column.annotation.take_if(|note| output_types::is_told_only(note));
            ColumnDef::plain(Arc::new(column.field(name, true)))
        })
        .collect();
    check_columns(columns.iter().map(|column| column.field.name().as_str()))?;
    let positions: Vec<usize> = (0..columns.len()).collect();
    let new = New {
        kind: ObjectKind::Table,
        name: &create.name,
        if_not_exists: create.if_not_exists,
        columns,
        key: vec![],
        constraints: Constraints::default(),
        sequences: vec![],
        event_time: None,
        connector: None,
        secrets: vec![],
        on_conflict: None,
        keeping,
        temporary: create.temporary,
        on_commit: create.on_commit,
        text,
    };
    let (schema, name, _) = names::new_table_name(session, &scope, &create.name, create.temporary)?;
    let exists = scope.catalog.relation(&scope.database, &schema, &name).is_some();
    // The rows first: from the table's being made on, the statement is not ended any more.
    let batches = match create.with_no_data || exists {
        true => vec![],
        false => session.collect(plan, &Providers::new()).await?,
    };
    let Some(object) = make(session, new).await? else {
        return done("CREATE TABLE AS");
    };
    if create.with_no_data {
        return done("CREATE TABLE AS");
    }
    let filled = fill(session, &object, batches, &positions).await;
    match filled {
        Ok(rows) => Ok(Outcome::Done {
            tag: CommandTag::rows("SELECT", rows),
        }),
        Err(error) => {
            let guard = session.ddl().await?;
            guard.drop(&[object.id].into()).await?;
            Err(error)
        }
    }
}

async fn fill(
    session: &Arc<Session>,
    object: &Object,
    batches: Vec<RecordBatch>,
    positions: &[usize],
) -> SqlResult<u64> {
    let relation = object
        .relation()
        .ok_or_else(|| SqlError::internal("a table that was just created is not a relation"))?;
    let scope = session.scope();
    let builder = RowBuilder::new(session.database(), &scope, relation, positions)?;
    let whole = whole_rows(session, &builder, &batches)?;
    drop(batches);
    let rows = whole.iter().map(|batch| batch.num_rows() as u64).sum();
    let changes = whole.into_iter().map(ChangeBatch::insertions).collect();
    let write = session.begin_write(relation).await?;
    write.finish(changes).await?;
    Ok(rows)
}
