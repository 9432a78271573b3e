//! CREATE OR REPLACE of a view on which others depend, and ALTER TABLE where rows get another form.
//!
//! The new definition gets a new identity, and so do the materialized views over it, which are planned again over it and
//! filled beside the old ones; all of them appear, and the old ones go, in one step of the catalog. Plain views and indexes
//! between them keep theirs. A dependent keeps the columns that it knows, by their names: columns may be added and change
//! their places, but what a dependent uses must stay, with its type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millrace_catalog::bound::BoundName;
use millrace_catalog::{CatalogSnapshot, Definition, IndexDef, Object, QueryDef, Reader, Relation};
use millrace_engine::ViewSpec;
use millrace_planner::StageGraph;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_storage::{ObjectId, ObjectKind};

use crate::database::Database;
use crate::database::ddl::DdlGuard;
use crate::database::jobs::Making;

/// A replacement being planned.
struct Replacement<'a> {
    guard: &'a DdlGuard<'a>,
    /// The catalog as it is.
    before: Arc<CatalogSnapshot>,
    /// The catalog as it will be.
    after: CatalogSnapshot,
    /// What stands for what: the new object and its columns, by the old object's identity.
    replaced: BTreeMap<ObjectId, (Arc<Object>, SchemaRef)>,
    making: Making,
}

impl DdlGuard<'_> {
    /// What it takes to put `new` in the place of `old`: the views to fill, and what the catalog gets. `graph` is the plan
    /// of a materialized view.
    ///
    /// # Errors
    /// A dependent uses a column that `new` does not have, or has with another type.
    pub fn replace(&self, old: &Arc<Object>, new: Object, graph: Option<StageGraph>) -> SqlResult<Making> {
        let before = self.catalog();
        let mut replacement = Replacement {
            guard: self,
            after: before.with([], &[]),
            before: Arc::clone(&before),
            replaced: BTreeMap::new(),
            making: Making {
                specs: vec![],
                put: vec![],
                removed: vec![],
            },
        };
        replacement.put(old, new, graph)?;
        let mut dependents = before.closure(&[old.id]);
        dependents.remove(&old.id);
        let mut concerned: Vec<Arc<Object>> = vec![Arc::clone(old)];
        concerned.extend(dependents.iter().filter_map(|id| before.object(*id).cloned()));
        if let Some(job) = self.database().jobs().over(&concerned).first() {
            return Err(SqlError::new(
                SqlState::ObjectInUse,
                format!("cannot {} {} because a job needs it", verb(old), old.described()),
            )
            .with_detail(format!("{}.", job.described()))
            .with_hint(format!("Wait for it, or use CANCEL JOB {}.", job.id)));
        }
        for dependent in before.in_order(&dependents) {
            replacement.follow(old, dependent)?;
        }
        Ok(replacement.making)
    }
}

impl DdlGuard<'_> {
    /// The views whose queries use a column of a table, and the sinks of the table.
    pub fn users_of(&self, table: &Object, column: usize) -> Vec<Arc<Object>> {
        let catalog = self.catalog();
        let db: &Database = self.database();
        let dependents = catalog.dependents(&BTreeSet::from([table.id]));
        let uses_it = |dependent: &Object| match query_of(dependent) {
            Some(query) => query.names.iter().any(|bound| {
                let known = bound.columns.iter().find(|(_, position)| *position == column);
                bound.object == table.id
                    && known.is_some_and(|(known, _)| uses(db, &catalog, dependent, query, bound, known))
            }),
            None => matches!(dependent.definition, Definition::Sink(_)),
        };
        dependents
            .into_iter()
            .filter(|dependent| uses_it(dependent))
            .cloned()
            .collect()
    }
}

fn query_of(object: &Object) -> Option<&QueryDef> {
    match &object.definition {
        Definition::View(query) => Some(query),
        Definition::Relation(relation) => relation.query.as_deref(),
        _ => None,
    }
}

/// What is done to an object that another takes the place of.
fn verb(object: &Object) -> &'static str {
    match object.kind {
        ObjectKind::Table => "alter",
        _ => "replace",
    }
}

impl Replacement<'_> {
    fn db(&self) -> &Database {
        self.guard.database()
    }

    /// Puts an object in the place of another.
    fn put(&mut self, old: &Arc<Object>, new: Object, graph: Option<StageGraph>) -> SqlResult<()> {
        if let (Some(graph), Some(relation)) = (graph, new.relation()) {
            self.making.specs.push(ViewSpec {
                id: relation.info.id,
                name: new.name.clone(),
                graph,
                definition: self.db().definition_of(&self.after, &new),
            });
        }
        let removed = if new.id == old.id { vec![] } else { vec![old.id] };
        self.after = self.after.with([Arc::new(new.clone())], &removed);
        let reader = Reader::new(self.db(), self.db().state(), &self.after, &new.database, &[]);
        // An index or a sequence has no columns that anybody could name.
        let has_columns = !matches!(
            new.definition,
            Definition::Index(_) | Definition::Sequence(_) | Definition::Sink(_)
        );
        if has_columns {
            let schema = reader.provider(&new)?.schema();
            drop(reader);
            self.replaced.insert(old.id, (Arc::new(new.clone()), schema));
        }
        self.making.removed.extend(removed);
        self.making.put.push(new);
        Ok(())
    }

    /// Plans a dependent again over what it depends on now.
    fn follow(&mut self, root: &Arc<Object>, dependent: &Arc<Object>) -> SqlResult<()> {
        let mut new: Object = dependent.as_ref().clone();
        let mut plan = None;
        match &dependent.definition {
            Definition::Index(index) => {
                let Some((relation, schema)) = self.replaced.get(&index.relation) else {
                    return Ok(());
                };
                let before = self.columns(index.relation)?;
                if root.kind == ObjectKind::Table
                    && !(index.columns.iter())
                        .all(|position| schema.index_of(before.field(*position).name()).is_ok())
                {
                    // It goes with its column.
                    self.after = self.after.with([], &[dependent.id]);
                    self.making.removed.push(dependent.id);
                    return Ok(());
                }
                let columns = index
                    .columns
                    .iter()
                    .map(|position| {
                        let name = before.field(*position).name();
                        schema
                            .index_of(name)
                            .map_err(|_| misfit(root, dependent, name, "it does not exist".into()))
                    })
                    .collect::<SqlResult<Vec<usize>>>()?;
                new.depends = vec![relation.id];
                new.definition = Definition::Index(IndexDef {
                    relation: relation.id,
                    columns,
                    is_unique: index.is_unique,
                    is_constraint: index.is_constraint,
                });
            }
            Definition::View(query) => {
                let query = self.rebind(root, dependent, query)?;
                new.depends = query.depends();
                new.definition = Definition::View(Arc::new(query));
            }
            Definition::Relation(relation) => {
                let Some(query) = &relation.query else {
                    return Err(SqlError::internal(format!(
                        "{} depends on a view",
                        dependent.described()
                    )));
                };
                let query = self.rebind(root, dependent, query)?;
                let planned = self
                    .db()
                    .plan_materialized(&self.after, &dependent.database, &query)?;
                new.id = self.guard.next_id()?;
                new.depends = planned.query.depends();
                let made = Relation::of_view(new.id, &new.name, &planned, &relation.columns)
                    .with_errors(relation.errors);
                new.definition = Definition::Relation(Box::new(made));
                plan = Some(planned.graph);
            }
            // What it was made of is over; the new definition says whether there is another.
            Definition::Sink(def) if def.is_history_of(root.id) => {
                self.after = self.after.with([], &[dependent.id]);
                self.making.removed.push(dependent.id);
                return Ok(());
            }
            Definition::Sink(def) if def.kept().is_some() => {
                let Some((relation, schema)) = self.replaced.get(&def.relation) else {
                    return Ok(());
                };
                let before = self.columns(def.relation)?;
                for (position, old) in before.fields().iter().take(def.columns.len()).enumerate() {
                    let why = match schema.fields().get(position) {
                        Some(now) if now.name() != old.name() => {
                            format!("\"{}\" is in its place", now.name())
                        }
                        Some(now) if now.data_type() != old.data_type() => format!(
                            "its type changes from {} to {}",
                            types::type_name(old),
                            types::type_name(now)
                        ),
                        Some(_) => continue,
                        None => "it does not exist".to_owned(),
                    };
                    return Err(misfit(root, dependent, old.name(), why));
                }
                let mut def = def.as_ref().clone();
                def.view = def.view.map(|_| relation.id);
                def.relation = relation.id;
                let others = dependent
                    .depends
                    .iter()
                    .filter(|id| !self.replaced.contains_key(id));
                new.depends = std::iter::once(relation.id).chain(others.copied()).collect();
                new.definition = Definition::Sink(Arc::new(def));
            }
            Definition::Sink(_) => {
                return Err(SqlError::unsupported(format!(
                    "cannot {} {} because {} writes its rows",
                    verb(root),
                    root.described(),
                    dependent.described()
                ))
                .with_hint("Drop the sink and create it again."));
            }
            Definition::Sequence(sequence) => {
                let mut sequence = sequence.as_ref().clone();
                let place = |id: &ObjectId| self.replaced.get(id).map_or(*id, |(object, _)| object.id);
                sequence.owner = sequence.owner.as_ref().map(place);
                new.depends = dependent.depends.iter().map(place).collect();
                new.definition = Definition::Sequence(Arc::new(sequence));
            }
            Definition::External(_)
            | Definition::Function(_)
            | Definition::Role(_)
            | Definition::Secret(_)
            | Definition::Type(_)
            | Definition::FailedToLoad(_)
            | Definition::Other => {
                return Err(SqlError::new(
                    SqlState::ObjectNotInPrerequisiteState,
                    format!(
                        "cannot {} {} because {} failed to load",
                        verb(root),
                        root.described(),
                        dependent.described()
                    ),
                )
                .with_hint("Drop it and create it again."));
            }
        }
        self.put(dependent, new, plan)
    }

    fn columns(&self, id: ObjectId) -> SqlResult<SchemaRef> {
        let object = self
            .before
            .object(id)
            .ok_or_else(|| SqlError::internal(format!("object {id} is not in the catalog")))?;
        let reader = Reader::new(self.db(), self.db().state(), &self.before, &object.database, &[]);
        Ok(reader.provider(object)?.schema())
    }

    /// The dependent's query over the new objects. What has changed about columns that it does not use does not matter.
    fn rebind(&self, root: &Arc<Object>, dependent: &Arc<Object>, query: &QueryDef) -> SqlResult<QueryDef> {
        let mut names = vec![];
        for bound in &query.names {
            let Some((object, schema)) = self.replaced.get(&bound.object) else {
                names.push(bound.clone());
                continue;
            };
            let before = self.columns(bound.object)?;
            let mut columns = vec![];
            for (known, position) in &bound.columns {
                let old = before.field(*position);
                let why = match schema.index_of(old.name()) {
                    Ok(now) if schema.field(now).data_type() == old.data_type() => {
                        columns.push((known.clone(), now));
                        continue;
                    }
                    Ok(now) => format!(
                        "its type changes from {} to {}",
                        types::type_name(old),
                        types::type_name(schema.field(now))
                    ),
                    Err(_) => "it does not exist".to_string(),
                };
                if uses(self.db(), &self.before, dependent, query, bound, known) {
                    return Err(misfit(root, dependent, old.name(), why));
                }
            }
            names.push(BoundName {
                name: bound.name.clone(),
                object: object.id,
                columns,
            });
        }
        Ok(query.with_names(names))
    }
}

/// Whether a query answers something else, or nothing, without one of the columns that it knows.
fn uses(
    db: &Database,
    catalog: &CatalogSnapshot,
    dependent: &Object,
    query: &QueryDef,
    bound: &BoundName,
    column: &str,
) -> bool {
    let schema_of = |query: &QueryDef| -> Option<Vec<String>> {
        let reader = Reader::of_query(db, db.state(), catalog, &dependent.database, query);
        let plan = reader.bind_query_text(query).ok()?;
        let fields = plan.schema().fields();
        Some(fields.iter().map(|field| field.name().clone()).collect())
    };
    let mut names = query.names.clone();
    for name in names.iter_mut().filter(|name| name.name == bound.name) {
        name.columns.retain(|(known, _)| known != column);
    }
    let without = schema_of(&query.with_names(names));
    without.is_none() || without != schema_of(query)
}

fn misfit(root: &Object, dependent: &Object, column: &str, why: String) -> SqlError {
    SqlError::new(
        SqlState::DependentObjectsStillExist,
        format!(
            "cannot {} {} because {} uses its column \"{column}\"",
            verb(root),
            root.described(),
            dependent.described()
        ),
    )
    .with_detail(format!("In the new definition, {why}."))
    .with_hint("Keep the column, or drop what uses it first.")
}

/// Whether a view would read itself.
///
/// # Errors
/// 42P16.
pub fn check_no_circle(catalog: &CatalogSnapshot, old: &Arc<Object>, depends: &[ObjectId]) -> SqlResult<()> {
    let closure: BTreeSet<ObjectId> = catalog.closure(&[old.id]);
    if depends.iter().any(|id| closure.contains(id)) {
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            format!("{} would depend on itself", old.described()),
        ));
    }
    Ok(())
}
