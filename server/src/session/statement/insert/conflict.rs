//! Keys that exist already: the check inside transactions, and ON CONFLICT.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::catalog::MemTable;
use datafusion::common::{Column, JoinType};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{ConflictTarget, DoUpdate, OnConflict, OnConflictAction};
use millrace_parser::quote_identifier;
use millrace_storage::ChangeBatch;

use crate::catalog::Relation;
use crate::database::df;
use crate::error::{SqlError, SqlResult, SqlState, from_internal};
use crate::session::query::Providers;
use crate::session::statement::insert::insertions;
use crate::session::statement::names;
use crate::session::statement::returning::{bind_over, table_of};
use crate::session::statement::update::{Assigned, new_rows};
use crate::session::write::{WriteScope, duplicate_key};
use crate::session::{Scope, Session};
use crate::types::output;

/// Up to this many keys are looked up one by one, through the key's index; more are joined with the table.
const LOOKUP_KEYS_MAX: usize = 64;

/// What an INSERT comes to.
pub struct Resolved {
    /// The changes to make.
    pub changes: Vec<ChangeBatch>,
    /// The rows that were inserted or updated, as they are now.
    pub rows: Vec<RecordBatch>,
}

impl Resolved {
    /// Rows without any conflict.
    pub fn inserted(rows: Vec<RecordBatch>) -> Self {
        Resolved {
            changes: insertions(&rows),
            rows,
        }
    }
}

/// Keys of rows in a form that compares.
struct Keys {
    converter: RowConverter,
    columns: Vec<usize>,
}

impl Keys {
    fn new(relation: &Relation) -> SqlResult<Self> {
        let columns = relation.key().to_vec();
        let schema = relation.schema();
        let fields = columns
            .iter()
            .map(|column| SortField::new(schema.field(*column).data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields).map_err(from_internal::arrow)?;
        Ok(Keys { converter, columns })
    }

    fn arrays(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.columns
            .iter()
            .map(|column| ArrayRef::clone(batch.column(*column)))
            .collect()
    }

    fn of(&self, batch: &RecordBatch) -> SqlResult<Rows> {
        self.converter
            .convert_columns(&self.arrays(batch))
            .map_err(from_internal::arrow)
    }

    fn all(&self, batches: &[RecordBatch]) -> SqlResult<HashSet<OwnedRow>> {
        let mut all = HashSet::new();
        for batch in batches {
            all.extend(self.of(batch)?.iter().map(|row| row.owned()));
        }
        Ok(all)
    }
}

/// `(id)=(1)`.
fn key_text(relation: &Relation, batch: &RecordBatch, row: usize) -> String {
    let schema = relation.schema();
    let names: Vec<&str> = relation
        .key()
        .iter()
        .map(|column| schema.field(*column).name().as_str())
        .collect();
    let values: Vec<String> = relation
        .key()
        .iter()
        .map(|column| output::text(schema.field(*column), batch.column(*column), row))
        .collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

/// Checks that no key of `rows` exists, or comes twice. `gone` are rows that the same statement takes away.
///
/// # Errors
/// 23505 with the key.
pub(crate) async fn check_unique(
    session: &Arc<Session>,
    relation: &Relation,
    write: &WriteScope,
    rows: &[RecordBatch],
    gone: &[RecordBatch],
) -> SqlResult<()> {
    let keys = Keys::new(relation)?;
    let mut taken: HashSet<OwnedRow> = keys.all(&existing(session, relation, write, rows).await?)?;
    for key in keys.all(gone)? {
        taken.remove(&key);
    }
    for batch in rows {
        for (row, key) in keys.of(batch)?.iter().enumerate() {
            if !taken.insert(key.owned()) {
                let catalog = session.database().catalog();
                return Err(duplicate_key(
                    &catalog,
                    relation.info.id,
                    &key_text(relation, batch, row),
                ));
            }
        }
    }
    Ok(())
}

/// The rows of the table whose keys are among those of `rows`.
async fn existing(
    session: &Arc<Session>,
    relation: &Relation,
    write: &WriteScope,
    rows: &[RecordBatch],
) -> SqlResult<Vec<RecordBatch>> {
    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
    if count == 0 {
        return Ok(vec![]);
    }
    let provider = write.current().await?;
    let names: Vec<String> = relation
        .key()
        .iter()
        .map(|column| relation.schema().field(*column).name().clone())
        .collect();
    let table = df(LogicalPlanBuilder::scan(
        "existing",
        provider_as_source(provider),
        None,
    ))?;
    let plan = if count <= LOOKUP_KEYS_MAX {
        let mut condition: Option<Expr> = None;
        for batch in rows {
            for row in 0..batch.num_rows() {
                let equal = one_key(relation, &names, batch, row)?;
                condition = Some(match condition {
                    Some(before) => before.or(equal),
                    None => equal,
                });
            }
        }
        match condition {
            Some(condition) => df(table.filter(condition).and_then(LogicalPlanBuilder::build))?,
            None => return Ok(vec![]),
        }
    } else {
        join_keys(relation, table, &names, rows)?
    };
    session.collect(plan, &Providers::new()).await
}

fn one_key(relation: &Relation, names: &[String], batch: &RecordBatch, row: usize) -> SqlResult<Expr> {
    let mut all: Option<Expr> = None;
    for (name, column) in names.iter().zip(relation.key()) {
        let value = df(ScalarValue::try_from_array(batch.column(*column), row))?;
        let equal = Expr::Column(Column::new(Some("existing"), name)).eq(Expr::Literal(value, None));
        all = Some(match all {
            Some(before) => before.and(equal),
            None => equal,
        });
    }
    all.ok_or_else(|| SqlError::internal("a key without columns was looked up"))
}

fn join_keys(
    relation: &Relation,
    table: LogicalPlanBuilder,
    names: &[String],
    rows: &[RecordBatch],
) -> SqlResult<LogicalPlan> {
    let projected = rows
        .iter()
        .map(|batch| batch.project(relation.key()).map_err(from_internal::arrow))
        .collect::<SqlResult<Vec<_>>>()?;
    let schema = projected
        .first()
        .map(RecordBatch::schema)
        .ok_or_else(|| SqlError::internal("no keys to join"))?;
    let keys = Arc::new(df(MemTable::try_new(schema, vec![projected]))?);
    let keys =
        df(LogicalPlanBuilder::scan("keys", provider_as_source(keys), None)
            .and_then(LogicalPlanBuilder::build))?;
    let left: Vec<Column> = names
        .iter()
        .map(|name| Column::new(Some("existing"), name))
        .collect();
    let right: Vec<Column> = names.iter().map(|name| Column::new(Some("keys"), name)).collect();
    df(table
        .join(keys, JoinType::LeftSemi, (left, right), None)
        .and_then(LogicalPlanBuilder::build))
}

/// Resolves ON CONFLICT.
///
/// # Errors
/// The target is not the key, or the update fails.
#[expect(
    clippy::too_many_arguments,
    reason = "each is something that only the statement knows"
)]
pub async fn resolve(
    session: &Arc<Session>,
    scope: &Scope,
    object: &str,
    name: &str,
    relation: &Relation,
    write: &WriteScope,
    rows: Vec<RecordBatch>,
    clause: &OnConflict,
) -> SqlResult<Resolved> {
    check_target(relation, object, clause)?;
    if rows.is_empty() {
        return Ok(Resolved::inserted(rows));
    }
    let keys = Keys::new(relation)?;
    let old = existing(session, relation, write, &rows).await?;
    let mut taken = keys.all(&old)?;
    let updates = matches!(clause.action, OnConflictAction::DoUpdate(_));
    let mut fresh = vec![];
    let mut conflicting = vec![];
    let mut seen: HashMap<OwnedRow, ()> = HashMap::new();
    for batch in &rows {
        let converted = keys.of(batch)?;
        let mut is_new = Vec::with_capacity(batch.num_rows());
        for key in &converted {
            let key = key.owned();
            if updates && seen.insert(key.clone(), ()).is_some() {
                return Err(SqlError::new(
                    SqlState::CardinalityViolation,
                    "ON CONFLICT DO UPDATE command cannot affect row a second time",
                )
                .with_hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values."));
            }
            is_new.push(taken.insert(key));
        }
        let is_new = BooleanArray::from(is_new);
        fresh.push(filter_record_batch(batch, &is_new).map_err(from_internal::arrow)?);
        let not_new = arrow::compute::not(&is_new).map_err(from_internal::arrow)?;
        conflicting.push(filter_record_batch(batch, &not_new).map_err(from_internal::arrow)?);
    }
    let mut resolved = Resolved::inserted(fresh);
    if let OnConflictAction::DoUpdate(update) = &clause.action {
        let tables = BTreeMap::from([
            (name.to_string(), table_of(relation, old)?),
            ("excluded".to_string(), table_of(relation, conflicting)?),
        ]);
        let (before, after) = updated(session, scope, name, relation, update, tables).await?;
        for (before, after) in before.into_iter().zip(after) {
            let count = before.num_rows();
            let both = concat_batches(relation.schema(), [&before, &after]).map_err(from_internal::arrow)?;
            let weights =
                Int64Array::from_iter_values((0..2 * count).map(|row| if row < count { -1 } else { 1 }));
            resolved.changes.push(ChangeBatch::new(both, Some(weights))?);
            resolved.rows.push(after);
        }
    }
    Ok(resolved)
}

/// The rows that DO UPDATE changes, before and after.
async fn updated(
    session: &Arc<Session>,
    scope: &Scope,
    name: &str,
    relation: &Relation,
    update: &DoUpdate,
    tables: BTreeMap<String, Arc<dyn datafusion::catalog::TableProvider>>,
) -> SqlResult<(Vec<RecordBatch>, Vec<RecordBatch>)> {
    let assigned = Assigned::new(relation, &update.assignments)?;
    let table = quote_identifier(name);
    let on: Vec<String> = relation
        .key()
        .iter()
        .map(|column| quote_identifier(relation.schema().field(*column).name()).to_string())
        .map(|column| format!("{table}.{column} = excluded.{column}"))
        .collect();
    let condition = update
        .selection
        .as_ref()
        .map(|condition| format!(" WHERE {condition}"))
        .unwrap_or_default();
    let text = format!(
        "SELECT {table}.*{} FROM {table} JOIN excluded ON {}{condition}",
        assigned.select_list(),
        on.join(" AND ")
    );
    let plan = bind_over(session, scope, &text, tables)?;
    let batches = session.collect(plan, &Providers::new()).await?;
    new_rows(session, scope, relation, &assigned, &batches)
}

fn check_target(relation: &Relation, object: &str, clause: &OnConflict) -> SqlResult<()> {
    let no_constraint = || {
        SqlError::new(
            SqlState::InvalidColumnReference,
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        )
    };
    if relation.key().is_empty() {
        return Err(no_constraint().with_detail(format!("\"{object}\" has no primary key.")));
    }
    match &clause.conflict_target {
        None if matches!(clause.action, OnConflictAction::DoNothing) => Ok(()),
        None => Err(SqlError::new(
            SqlState::SyntaxError,
            "ON CONFLICT DO UPDATE requires inference specification or constraint name",
        )
        .with_hint("For example, ON CONFLICT (column_name).")),
        Some(ConflictTarget::Columns(columns)) => {
            let mut named: Vec<String> = columns.iter().map(millrace_parser::fold).collect();
            let mut key: Vec<String> = relation
                .key()
                .iter()
                .map(|column| relation.schema().field(*column).name().clone())
                .collect();
            named.sort();
            key.sort();
            if named == key {
                Ok(())
            } else {
                Err(no_constraint())
            }
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = names::last(name);
            if relation.key_name.as_deref() == Some(name.as_str()) {
                Ok(())
            } else {
                Err(SqlError::new(
                    SqlState::UndefinedObject,
                    format!("constraint \"{name}\" for table \"{object}\" does not exist"),
                ))
            }
        }
    }
}
