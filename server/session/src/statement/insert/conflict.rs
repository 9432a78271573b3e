//! Keys that exist already: the check inside transactions, and ON CONFLICT.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, filter_record_batch, take};
use arrow::row::OwnedRow;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Insert, OnConflict, OnConflictAction, OnInsert, Statement,
};
use futures::future::BoxFuture;
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_parser::ast::ConflictRule;
use millrace_parser::quote_identifier;
use millrace_planner::RelationKind;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_storage::{ChangeBatch, ObjectId};

use crate::keys::{Keys, check_unique, existing, is_complete};
use crate::names;
use crate::session::Session;
use crate::statement::insert::insertions;
use crate::statement::returning::{bind_over, table_of};
use crate::statement::select::parse_query;
use crate::statement::update::{Assigned, new_rows};
use crate::write::WriteScope;

/// What the rows that are there are called in the clause that a table's rule is: the table's own name may be `excluded`.
const THERE: &str = "__there";

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

/// What rows come to that are inserted without a word on keys that are there: the table's own rule says, or they are refused.
///
/// # Errors
/// A key is there, within a transaction. (Outside of one that is found when they are written.)
pub(crate) async fn of_rows(
    session: &Arc<Session>,
    scope: &Scope,
    relation: &Relation,
    write: &WriteScope,
    rows: Vec<RecordBatch>,
) -> SqlResult<Resolved> {
    if let Some(rule) = relation.on_conflict {
        let rows = one_each(relation, rule, &rows)?;
        let clause = clause(relation, rule)?;
        let table = relation.info.name.as_str();
        return resolve(session, scope, table, THERE, relation, write, rows, &clause).await;
    }
    let is_table = relation.info.kind == RelationKind::Table;
    if write.in_transaction() && is_table && !relation.key().is_empty() {
        check_unique(session, relation, write.current().await?, &rows, &[]).await?;
    }
    Ok(Resolved::inserted(rows))
}

/// The changes of [`of_rows`]: a [`crate::resolve::Resolve`].
pub(crate) fn resolve_rows<'a>(
    session: &'a Arc<Session>,
    scope: &'a Scope,
    relation: &'a Relation,
    write: &'a WriteScope,
    rows: Vec<RecordBatch>,
) -> BoxFuture<'a, SqlResult<Vec<ChangeBatch>>> {
    Box::pin(async move { Ok(of_rows(session, scope, relation, write, rows).await?.changes) })
}

/// What a table's rule is as a clause of INSERT.
fn clause(relation: &Relation, rule: ConflictRule) -> SqlResult<OnConflict> {
    let name = |position: usize| quote_identifier(relation.schema().field(position).name()).to_string();
    let key: Vec<String> = relation.key().iter().map(|position| name(*position)).collect();
    let others = (0..relation.columns.len()).filter(|position| {
        let column = &relation.columns[*position];
        let is_always = |of: &Takes| *of == Takes::IdentityAlways;
        let is_own =
            column.generated.is_some() || column.sequence.as_ref().is_some_and(|own| is_always(&own.takes));
        !relation.key().contains(position) && !is_own
    });
    let sets = others.map(|position| {
        let column = name(position);
        match rule {
            ConflictRule::ReplaceNotNull => {
                format!("{column} = coalesce(excluded.{column}, {THERE}.{column})")
            }
            _ => format!("{column} = excluded.{column}"),
        }
    });
    let sets: Vec<String> = sets.collect();
    let action = match rule {
        ConflictRule::Keep => "NOTHING".to_owned(),
        _ if sets.is_empty() => "NOTHING".to_owned(),
        _ => format!("UPDATE SET {}", sets.join(", ")),
    };
    let text = format!(
        "INSERT INTO {THERE} VALUES (1) ON CONFLICT ({}) DO {action}",
        key.join(", ")
    );
    match parse_query(&text)? {
        Statement::Insert(Insert {
            on: Some(OnInsert::OnConflict(clause)),
            ..
        }) => Ok(clause),
        _ => Err(SqlError::internal(format!("no clause was made of {rule:?}"))),
    }
}

/// One row of each key: what the table would hold if they came one by one.
fn one_each(relation: &Relation, rule: ConflictRule, rows: &[RecordBatch]) -> SqlResult<Vec<RecordBatch>> {
    let all = concat_batches(relation.schema(), rows).map_err(from_internal::arrow)?;
    let mut of_key: HashMap<OwnedRow, Vec<usize>> = HashMap::new();
    let mut first = vec![];
    for (row, key) in Keys::new(relation, relation.key())?.of(&all)?.iter().enumerate() {
        let rows = of_key.entry(key.owned()).or_default();
        if rows.is_empty() {
            first.push(key.owned());
        }
        rows.push(row);
    }
    if first.len() == all.num_rows() {
        return Ok(rows.to_vec());
    }
    let groups: Vec<&[usize]> = first
        .iter()
        .filter_map(|key| of_key.get(key).map(Vec::as_slice))
        .collect();
    let columns = all.columns().iter().map(|column| {
        let taken = groups.iter().map(|group| {
            let taken = match rule {
                ConflictRule::Keep => group.first(),
                ConflictRule::Replace => group.last(),
                ConflictRule::ReplaceNotNull => {
                    let last = group.iter().rev().find(|row| column.is_valid(**row));
                    last.or(group.last())
                }
            };
            taken.copied().unwrap_or_default() as u64
        });
        let taken = UInt64Array::from_iter_values(taken);
        take(column, &taken, None).map_err(from_internal::arrow)
    });
    let columns = columns.collect::<SqlResult<Vec<_>>>()?;
    let kept = RecordBatch::try_new(Arc::clone(relation.schema()), columns).map_err(from_internal::arrow)?;
    Ok(vec![kept])
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
    let targets = targets(scope, relation, object, clause)?;
    if rows.is_empty() {
        return Ok(Resolved::inserted(rows));
    }
    let mut known = vec![];
    let mut old = vec![];
    for columns in &targets {
        let keys = Keys::new(relation, columns)?;
        old = existing(session, relation, columns, write.current().await?, &rows).await?;
        let taken = keys.all(&old)?;
        known.push((columns, keys, taken));
    }
    let updates = matches!(clause.action, OnConflictAction::DoUpdate(_));
    let mut fresh = vec![];
    let mut conflicting = vec![];
    let mut seen: HashMap<OwnedRow, ()> = HashMap::new();
    for batch in &rows {
        let mut converted = vec![];
        for (columns, keys, _) in &known {
            let is_complete = is_complete(batch, columns);
            let rows = keys.of(batch)?;
            // A NULL is equal to nothing.
            let keys: Vec<Option<OwnedRow>> = rows
                .iter()
                .zip(is_complete)
                .map(|(key, is_complete)| is_complete.then(|| key.owned()))
                .collect();
            converted.push(keys);
        }
        let mut is_new = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            if updates
                && let Some(key) = converted.first().and_then(|keys| keys[row].clone())
                && seen.insert(key, ()).is_some()
            {
                return Err(SqlError::new(
                    SqlState::CardinalityViolation,
                    "ON CONFLICT DO UPDATE command cannot affect row a second time",
                )
                .with_hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values."));
            }
            let mut each = known.iter().zip(&converted);
            let conflicts =
                each.any(|((.., taken), keys)| keys[row].as_ref().is_some_and(|key| taken.contains(key)));
            if !conflicts {
                for ((.., taken), keys) in known.iter_mut().zip(&converted) {
                    taken.extend(keys[row].clone());
                }
            }
            is_new.push(!conflicts);
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
        let (before, after) = updated(session, scope, name, (relation, &targets[0]), update, tables).await?;
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
    (relation, target): (&Relation, &[usize]),
    update: &DoUpdate,
    tables: BTreeMap<String, Arc<dyn datafusion::catalog::TableProvider>>,
) -> SqlResult<(Vec<RecordBatch>, Vec<RecordBatch>)> {
    let assigned = Assigned::new(session, scope, relation, name, &update.assignments)?;
    let table = quote_identifier(name);
    let on: Vec<String> = target
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
    let batches = session.collect(plan, &scope.before).await?;
    new_rows(session, scope, relation, &assigned, &batches)
}

/// The columns of the constraints that a conflict may be with: those of the one that is named, or of all of them.
fn targets(
    scope: &Scope,
    relation: &Relation,
    object: &str,
    clause: &OnConflict,
) -> SqlResult<Vec<Vec<usize>>> {
    let no_constraint = || {
        SqlError::new(
            SqlState::InvalidColumnReference,
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        )
    };
    let mut known: Vec<(Option<&str>, Vec<usize>)> = vec![];
    if !relation.key().is_empty() {
        known.push((relation.key_name.as_deref(), relation.key().to_vec()));
    }
    let indexes = scope.catalog.indexes_of(ObjectId(relation.info.id.0));
    known.extend(
        indexes
            .filter(|(_, index)| index.is_unique)
            .map(|(object, index)| (Some(object.name.as_str()), index.columns.clone())),
    );
    match &clause.conflict_target {
        None if matches!(clause.action, OnConflictAction::DoNothing) => {
            Ok(known.into_iter().map(|(_, columns)| columns).collect())
        }
        None => Err(SqlError::new(
            SqlState::SyntaxError,
            "ON CONFLICT DO UPDATE requires inference specification or constraint name",
        )
        .with_hint("For example, ON CONFLICT (column_name).")),
        Some(ConflictTarget::Columns(columns)) => {
            let mut named: Vec<String> = columns.iter().map(millrace_parser::fold).collect();
            named.sort();
            let is_column = |name: &&String| relation.schema().index_of(name).is_ok();
            if let Some(unknown) = named.iter().find(|name| !is_column(name)) {
                let message = format!("column \"{unknown}\" does not exist");
                return Err(SqlError::new(SqlState::UndefinedColumn, message));
            }
            let is_named = |columns: &[usize]| {
                let mut names: Vec<String> = columns
                    .iter()
                    .map(|column| relation.schema().field(*column).name().clone())
                    .collect();
                names.sort();
                names == named
            };
            let found = known.into_iter().find(|(_, columns)| is_named(columns));
            found.map(|(_, columns)| vec![columns]).ok_or_else(no_constraint)
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = names::last(name);
            let found = known.into_iter().find(|(known, _)| *known == Some(name.as_str()));
            found.map(|(_, columns)| vec![columns]).ok_or_else(|| {
                SqlError::new(
                    SqlState::UndefinedObject,
                    format!("constraint \"{name}\" for table \"{object}\" does not exist"),
                )
            })
        }
    }
}
