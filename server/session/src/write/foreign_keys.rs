//! FOREIGN KEY: what a statement's changes mean for the tables that refer to its table, and whether what is referred to is there.
//!
//! ```text
//!  changes of a table ─> for each key that refers to it: rows that refer to a row that is gone, or has another key
//!        ^                    RESTRICT: an error     CASCADE, SET NULL, SET DEFAULT: changes of their table ─┐
//!        └──────────────────────────────────────────────────────────────────────────────────────────────────┘
//!  at the end: UNIQUE and PRIMARY KEY of what was changed on the way, NO ACTION, and that every new value is there
//! ```
//!
//! All tables concerned are locked before, so that nothing of what was found changes until the write is done.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::{
    CastOptions, cast_with_options, concat_batches, filter_record_batch, take_record_batch,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use millrace_catalog::{Action, CatalogSnapshot, ForeignKeyDef, Object, Relation};
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::output;
use millrace_storage::{ChangeBatch, ObjectId};

use crate::keys::{check_index, having, is_complete};
use crate::write::WriteScope;

/// How often changes may lead to changes of other tables, or of the same one: a chain of rows that refer to each other is as long at most.
const STEPS_MAX: usize = 10_000;

/// Changes by table.
pub(super) type Changes = BTreeMap<RelationId, Vec<ChangeBatch>>;

/// Rows of a table that are not there any more, or not under the same key.
struct Lost {
    /// The keys that were deleted.
    deleted: RecordBatch,
    /// The keys that were changed.
    before: RecordBatch,
    /// What they were changed to, row by row.
    after: RecordBatch,
}

/// A key of which nothing may be left that refers to it.
struct Unreferenced<'a> {
    child: &'a Arc<Object>,
    key: &'a ForeignKeyDef,
    lost: RecordBatch,
}

struct Following<'a> {
    write: &'a WriteScope,
    catalog: &'a CatalogSnapshot,
    changed: Changes,
}

/// What becomes of the statement's changes of its table, foreign keys followed: changes of this and of other tables.
///
/// # Errors
/// 23503, or a row that changes on the way breaks another constraint.
pub(super) async fn follow(write: &WriteScope, changes: Vec<ChangeBatch>) -> SqlResult<Changes> {
    let catalog = write.session.catalog();
    let mut following = Following {
        write,
        catalog: &catalog,
        changed: BTreeMap::from([(write.relation, changes.clone())]),
    };
    let mut next = VecDeque::from([(write.relation, changes)]);
    let mut unreferenced = vec![];
    let mut steps = 0;
    while let Some((table, changes)) = next.pop_front() {
        steps += 1;
        if steps > STEPS_MAX {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("foreign keys lead from row to row more than {STEPS_MAX} times"),
            ));
        }
        for (child, key) in catalog.references_to(ObjectId(table.0)) {
            let lost = lost(relation_of(&catalog, table)?, key, &changes)?;
            let (more, left) = following.act(child, key, lost).await?;
            if !more.is_empty() {
                // At once: another key finds the rows as they are now.
                let id = RelationId(child.id.0);
                let changed = following.changed.entry(id).or_default();
                changed.extend(more.iter().cloned());
                next.push_back((id, more));
            }
            unreferenced.extend(left.into_iter().map(|lost| Unreferenced { child, key, lost }));
        }
    }
    following.check(unreferenced).await?;
    Ok(following.changed)
}

fn relation_of(catalog: &CatalogSnapshot, id: RelationId) -> SqlResult<&Relation> {
    let object = catalog.object(ObjectId(id.0));
    object
        .and_then(|object| object.relation())
        .ok_or_else(|| SqlError::internal("a foreign key refers to no table"))
}

/// Columns of rows, without the rows that have a NULL in them.
fn keys_of(rows: &RecordBatch, columns: &[usize]) -> SqlResult<RecordBatch> {
    let complete = BooleanArray::from(is_complete(rows, columns));
    rows.project(columns)
        .and_then(|keys| filter_record_batch(&keys, &complete))
        .map_err(from_internal::arrow)
}

fn schema_of(relation: &Relation, columns: &[usize]) -> SqlResult<Arc<Schema>> {
    let schema = relation.schema().project(columns).map_err(from_internal::arrow)?;
    Ok(Arc::new(schema))
}

fn rows_where(rows: &RecordBatch, which: impl Fn(usize) -> bool) -> SqlResult<RecordBatch> {
    let which: BooleanArray = (0..rows.num_rows()).map(|row| Some(which(row))).collect();
    filter_record_batch(rows, &which).map_err(from_internal::arrow)
}

/// The rows before and after, if the changes are an UPDATE: the first half goes, and each of the other half comes in its place.
fn as_update(change: &ChangeBatch) -> Option<(RecordBatch, RecordBatch)> {
    let (rows, half) = (change.num_rows(), change.num_rows() / 2);
    let is_update = rows > 0
        && rows % 2 == 0
        && (0..half).all(|row| change.weight(row) == -1)
        && (half..rows).all(|row| change.weight(row) == 1);
    is_update.then(|| (change.rows.slice(0, half), change.rows.slice(half, half)))
}

/// The keys of a table that are gone after changes.
fn lost(parent: &Relation, key: &ForeignKeyDef, changes: &[ChangeBatch]) -> SqlResult<Lost> {
    let schema = schema_of(parent, &key.referenced)?;
    let (mut deleted, mut before, mut after) = (vec![], vec![], vec![]);
    for change in changes {
        let Some((old, new)) = as_update(change) else {
            let gone = rows_where(&change.rows, |row| change.weight(row) < 0)?;
            deleted.push(keys_of(&gone, &key.referenced)?);
            continue;
        };
        let complete = is_complete(&old, &key.referenced);
        let project = |rows: &RecordBatch| rows.project(&key.referenced).map_err(from_internal::arrow);
        let (old, new) = (project(&old)?, project(&new)?);
        let rows = Comparable::new(&schema)?;
        let (of_old, of_new) = (rows.of(&old)?, rows.of(&new)?);
        let is_changed = |row: usize| complete[row] && of_old[row] != of_new[row];
        before.push(rows_where(&old, is_changed)?);
        after.push(rows_where(&new, is_changed)?);
    }
    let all = |batches: &[RecordBatch]| concat_batches(&schema, batches).map_err(from_internal::arrow);
    Ok(Lost {
        deleted: all(&deleted)?,
        before: all(&before)?,
        after: all(&after)?,
    })
}

/// Rows in a form that compares.
struct Comparable(RowConverter);

impl Comparable {
    fn new(schema: &Schema) -> SqlResult<Self> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Comparable(
            RowConverter::new(fields.collect()).map_err(from_internal::arrow)?,
        ))
    }

    fn of(&self, rows: &RecordBatch) -> SqlResult<Vec<OwnedRow>> {
        let rows = self
            .0
            .convert_columns(rows.columns())
            .map_err(from_internal::arrow)?;
        Ok(rows.iter().map(|row| row.owned()).collect())
    }
}

/// Keys as columns of another table have them. A number that does not fit there is NULL, which is equal to nothing.
fn as_columns_of(keys: &RecordBatch, relation: &Relation, columns: &[usize]) -> SqlResult<RecordBatch> {
    let schema = schema_of(relation, columns)?;
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let arrays = keys
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(keys, field)| cast_with_options(keys, field.data_type(), &options))
        .collect::<Result<Vec<ArrayRef>, _>>()
        .map_err(from_internal::arrow)?;
    let nullable: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(nullable)), arrays).map_err(from_internal::arrow)
}

fn names(relation: &Relation, columns: &[usize]) -> Vec<String> {
    let schema = relation.schema();
    columns
        .iter()
        .map(|column| schema.field(*column).name().clone())
        .collect()
}

/// `(a, b)=(1, 2)`.
fn key_text(relation: &Relation, columns: &[usize], keys: &RecordBatch, row: usize) -> String {
    let schema = relation.schema();
    let values: Vec<String> = columns
        .iter()
        .zip(keys.columns())
        .map(|(column, values)| output::text(schema.field(*column), values, row))
        .collect();
    format!(
        "({})=({})",
        names(relation, columns).join(", "),
        values.join(", ")
    )
}

impl<'a> Following<'a> {
    /// The rows of a table as they are after the changes so far, if their `columns` have one of `keys`, which are of the same types.
    async fn rows_with(
        &self,
        relation: &Relation,
        columns: &[usize],
        keys: &RecordBatch,
    ) -> SqlResult<RecordBatch> {
        let changed = self.changed.get(&relation.info.id);
        let changed = changed.map(Vec::as_slice).unwrap_or_default();
        let rows = match keys.num_rows() {
            0 => vec![],
            _ => {
                let current = self.write.rows_of(relation, changed).await?;
                let keys = std::slice::from_ref(keys);
                having(&self.write.session, &names(relation, columns), current, keys).await?
            }
        };
        let rows = rows
            .into_iter()
            .map(|batch| RecordBatch::try_new(Arc::clone(relation.schema()), batch.columns().to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|rows| concat_batches(relation.schema(), &rows));
        rows.map_err(from_internal::arrow)
    }

    /// What becomes of the rows that refer to what is lost: their changes, and the keys that nothing may refer to at the end.
    async fn act(
        &self,
        child: &'a Arc<Object>,
        key: &'a ForeignKeyDef,
        lost: Lost,
    ) -> SqlResult<(Vec<ChangeBatch>, Vec<RecordBatch>)> {
        let relation = relation_of(self.catalog, RelationId(child.id.0))?;
        let mut changes = vec![];
        let mut left = vec![];
        for (action, keys, new) in [
            (key.on_delete, lost.deleted, None),
            (key.on_update, lost.before, Some(lost.after)),
        ] {
            if keys.num_rows() == 0 {
                continue;
            }
            if action == Action::NoAction {
                left.push(keys);
                continue;
            }
            let here = as_columns_of(&keys, relation, &key.columns)?;
            let old = self.rows_with(relation, &key.columns, &here).await?;
            if old.num_rows() == 0 {
                continue;
            }
            match (action, new) {
                (Action::Restrict, _) => {
                    return Err(self.still_referenced(child, key, &keys, &old)?);
                }
                (Action::Cascade, None) => {
                    let weights = Int64Array::from_value(-1, old.num_rows());
                    changes.push(ChangeBatch::new(old, Some(weights))?);
                }
                (action, new) => {
                    let values = match new {
                        Some(new) if action == Action::Cascade => {
                            let new = as_columns_of(&new, relation, &key.columns)?;
                            Some(replaced(&old, key, &here, &new)?)
                        }
                        _ if action == Action::SetNull => Some(
                            (key.columns.iter())
                                .map(|column| {
                                    new_null_array(
                                        relation.schema().field(*column).data_type(),
                                        old.num_rows(),
                                    )
                                })
                                .collect(),
                        ),
                        _ => None,
                    };
                    changes.push(self.changed_rows(relation, key, &old, values)?);
                    if action == Action::SetDefault {
                        // The default may be the key that is gone.
                        left.push(keys);
                    }
                }
            }
        }
        Ok((changes, left))
    }

    /// The change of rows whose columns get these values, or their defaults.
    fn changed_rows(
        &self,
        relation: &Relation,
        key: &ForeignKeyDef,
        old: &RecordBatch,
        values: Option<Vec<ArrayRef>>,
    ) -> SqlResult<ChangeBatch> {
        let mut given = positions(relation, &[])?;
        if values.is_none() {
            given.retain(|position| !key.columns.contains(position));
        }
        let session = &self.write.session;
        let builder = RowBuilder::new(session.database(), &session.scope(), relation, &given)?;
        let schema = relation.schema();
        let columns: Vec<(Arc<Field>, ArrayRef)> = given
            .iter()
            .map(|position| {
                let at = key.columns.iter().position(|column| column == position);
                let value = match (&values, at) {
                    (Some(values), Some(at)) => &values[at],
                    _ => old.column(*position),
                };
                (Arc::clone(&schema.fields()[*position]), ArrayRef::clone(value))
            })
            .collect();
        let new = builder
            .build(&columns, old.num_rows())
            .map_err(|failure| *failure.error)?;
        let both = concat_batches(schema, [old, &new]).map_err(from_internal::arrow)?;
        let count = old.num_rows();
        let weights =
            Int64Array::from_iter_values((0..2 * count).map(|row| if row < count { -1 } else { 1 }));
        Ok(ChangeBatch::new(both, Some(weights))?)
    }

    fn still_referenced(
        &self,
        child: &Object,
        key: &ForeignKeyDef,
        lost: &RecordBatch,
        rows: &RecordBatch,
    ) -> SqlResult<SqlError> {
        let parent = relation_of(self.catalog, RelationId(key.table.0))?;
        let schema = schema_of(parent, &key.referenced)?;
        let comparable = Comparable::new(&schema)?;
        let there = keys_of(rows, &key.columns)?;
        let there = as_columns_of(&there, parent, &key.referenced)?;
        let there: HashSet<OwnedRow> = comparable.of(&there)?.into_iter().collect();
        let lost_keys = comparable.of(lost)?;
        let row = lost_keys
            .iter()
            .position(|key| there.contains(key))
            .unwrap_or_default();
        let text = key_text(parent, &key.referenced, lost, row);
        Ok(SqlError::new(
            SqlState::ForeignKeyViolation,
            format!(
                "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
                parent.info.name, key.name, child.name
            ),
        )
        .with_detail(format!(
            "Key {text} is still referenced from table \"{}\".",
            child.name
        ))
        .about_constraint(&child.schema, &child.name, &key.name))
    }

    /// What can only be said at the end of the statement.
    async fn check(&self, unreferenced: Vec<Unreferenced<'a>>) -> SqlResult<()> {
        for (table, changes) in &self.changed {
            self.check_uniques(*table, changes).await?;
        }
        for Unreferenced { child, key, lost } in unreferenced {
            let relation = relation_of(self.catalog, RelationId(child.id.0))?;
            let parent = relation_of(self.catalog, RelationId(key.table.0))?;
            // Another row may have the key by now.
            let back = self.rows_with(parent, &key.referenced, &lost).await?;
            let comparable = Comparable::new(schema_of(parent, &key.referenced)?.as_ref())?;
            let back: HashSet<OwnedRow> = comparable
                .of(&keys_of(&back, &key.referenced)?)?
                .into_iter()
                .collect();
            let keys = comparable.of(&lost)?;
            let lost = rows_where(&lost, |row| !back.contains(&keys[row]))?;
            let here = as_columns_of(&lost, relation, &key.columns)?;
            let rows = self.rows_with(relation, &key.columns, &here).await?;
            if rows.num_rows() > 0 {
                return Err(self.still_referenced(child, key, &lost, &rows)?);
            }
        }
        for (table, changes) in &self.changed {
            let relation = relation_of(self.catalog, *table)?;
            for key in &relation.foreign_keys {
                self.check_there(relation, key, changes).await?;
            }
        }
        Ok(())
    }

    /// Refuses values that are twice in a table.
    async fn check_uniques(&self, table: RelationId, changes: &[ChangeBatch]) -> SqlResult<()> {
        let relation = relation_of(self.catalog, table)?;
        let object = self.catalog.object(ObjectId(table.0));
        for (name, columns) in object
            .map(|object| self.catalog.uniques_of(object))
            .into_iter()
            .flatten()
        {
            let is_key = relation.key_name.as_deref() == Some(name);
            // Of its own table the statement has looked at it, or the runtime does; which is too late where there are foreign keys.
            let mut references = self.catalog.references_to(ObjectId(table.0));
            let has_keys = !relation.foreign_keys.is_empty() || references.next().is_some();
            let is_seen = self.write.in_transaction || !has_keys;
            if is_key && table == self.write.relation && is_seen {
                continue;
            }
            let current = self.write.rows_of(relation, &[]).await?;
            check_index(&self.write.session, relation, (name, columns), current, changes).await?;
        }
        Ok(())
    }

    /// Refuses values of a foreign key that are not there. Those that the table has had before are there: else the statement has taken
    /// them away, and was asked about that.
    async fn check_there(
        &self,
        relation: &Relation,
        key: &ForeignKeyDef,
        changes: &[ChangeBatch],
    ) -> SqlResult<()> {
        let comparable = Comparable::new(schema_of(relation, &key.columns)?.as_ref())?;
        let mut counts: HashMap<OwnedRow, i64> = HashMap::new();
        let mut known: HashMap<OwnedRow, (usize, usize)> = HashMap::new();
        let mut batches = vec![];
        for (at, change) in changes.iter().enumerate() {
            let keys = change.rows.project(&key.columns).map_err(from_internal::arrow)?;
            let complete = is_complete(&change.rows, &key.columns);
            for (row, value) in comparable.of(&keys)?.into_iter().enumerate() {
                if complete[row] {
                    *counts.entry(value.clone()).or_default() += change.weight(row);
                    known.entry(value).or_insert((at, row));
                }
            }
            batches.push(keys);
        }
        let mut wanted: Vec<(usize, usize)> = (known.into_iter())
            .filter(|(value, _)| counts.get(value).is_some_and(|count| *count > 0))
            .map(|(_, place)| place)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort_unstable();
        let mut keys = vec![];
        for (at, batch) in batches.iter().enumerate() {
            let rows = wanted.iter().filter(|(of, _)| *of == at);
            let rows = UInt64Array::from_iter_values(rows.map(|(_, row)| *row as u64));
            keys.push(take_record_batch(batch, &rows).map_err(from_internal::arrow)?);
        }
        let keys = concat_batches(&keys[0].schema(), &keys).map_err(from_internal::arrow)?;
        let parent_object = self
            .catalog
            .object(key.table)
            .ok_or_else(|| SqlError::internal("a foreign key refers to no table"))?;
        let parent = relation_of(self.catalog, RelationId(key.table.0))?;
        let there = as_columns_of(&keys, parent, &key.referenced)?;
        let found = self.rows_with(parent, &key.referenced, &there).await?;
        let comparable = Comparable::new(schema_of(parent, &key.referenced)?.as_ref())?;
        let found: BTreeSet<OwnedRow> = comparable
            .of(&keys_of(&found, &key.referenced)?)?
            .into_iter()
            .collect();
        let there_keys = comparable.of(&there)?;
        let missing = (0..there.num_rows()).find(|row| !found.contains(&there_keys[*row]));
        match missing {
            None => Ok(()),
            Some(row) => Err(not_there(
                self.catalog.object(ObjectId(relation.info.id.0)),
                relation,
                key,
                (&keys, row),
                &parent_object.name,
            )),
        }
    }
}

/// A value that is not in the table to which a foreign key refers. `keys` are the values of its columns.
pub(crate) fn not_there(
    child: Option<&Arc<Object>>,
    relation: &Relation,
    key: &ForeignKeyDef,
    (keys, row): (&RecordBatch, usize),
    parent: &str,
) -> SqlError {
    let schema = child.map(|child| child.schema.as_str()).unwrap_or_default();
    SqlError::new(
        SqlState::ForeignKeyViolation,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            relation.info.name, key.name
        ),
    )
    .with_detail(format!(
        "Key {} is not present in table \"{parent}\".",
        key_text(relation, &key.columns, keys, row)
    ))
    .about_constraint(schema, &relation.info.name, &key.name)
}

/// The columns of rows with new keys: `before` became `after`, row by row.
fn replaced(
    rows: &RecordBatch,
    key: &ForeignKeyDef,
    before: &RecordBatch,
    after: &RecordBatch,
) -> SqlResult<Vec<ArrayRef>> {
    let comparable = Comparable::new(&before.schema())?;
    let places: HashMap<OwnedRow, u64> = comparable.of(before)?.into_iter().zip(0..).collect();
    let here = rows.project(&key.columns).map_err(from_internal::arrow)?;
    let places: UInt64Array = (comparable.of(&here)?.iter())
        .map(|value| places.get(value).copied())
        .collect();
    let taken = take_record_batch(after, &places).map_err(from_internal::arrow)?;
    Ok(taken.columns().to_vec())
}

/// Whether values of the one type can be those of the other's: they are the same, or integers.
pub(crate) fn fits(child: &Field, parent: &Field) -> bool {
    let (child, parent): (&DataType, &DataType) = (child.data_type(), parent.data_type());
    child == parent || (child.is_signed_integer() && parent.is_signed_integer())
}
