//! The catalog at one moment: immutable, and found by name, by identity and by what depends on what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_storage::{ObjectId, ObjectKind};

use crate::constraint::ForeignKeyDef;
use crate::names::SYSTEM_SCHEMAS;
use crate::object::built_in;
use crate::object::{Definition, IndexDef, Object, QueryDef};

/// The catalog at one moment.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    /// Counts the changes since the server started.
    pub version: u64,
    objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Relations and indexes: they share one name space per schema.
    relations: BTreeMap<(String, String, String), ObjectId>,
    functions: BTreeMap<(String, String, String), ObjectId>,
    secrets: BTreeMap<(String, String, String), ObjectId>,
    types: BTreeMap<(String, String, String), ObjectId>,
    schemas: BTreeMap<(String, String), ObjectId>,
    databases: BTreeMap<String, ObjectId>,
    roles: BTreeMap<String, ObjectId>,
    /// Materialized views that a transaction has made and COMMIT fills: to read one is to run its query.
    unfilled: BTreeSet<ObjectId>,
}

impl CatalogSnapshot {
    /// A catalog of these objects.
    pub fn new(version: u64, objects: impl IntoIterator<Item = Arc<Object>>) -> Self {
        let mut snapshot = CatalogSnapshot {
            version,
            ..Default::default()
        };
        for object in objects {
            snapshot.insert(object);
        }
        snapshot
    }

    fn insert(&mut self, object: Arc<Object>) {
        let (database, schema, name) = (
            object.database.clone(),
            object.schema.clone(),
            object.name.clone(),
        );
        match object.kind {
            ObjectKind::Database => {
                self.databases.insert(name, object.id);
            }
            ObjectKind::Schema => {
                self.schemas.insert((database, name), object.id);
            }
            ObjectKind::User => {
                self.roles.insert(name, object.id);
            }
            ObjectKind::Secret => {
                self.secrets.insert((database, schema, name), object.id);
            }
            ObjectKind::Type | ObjectKind::Domain => {
                self.types.insert((database, schema, name), object.id);
            }
            ObjectKind::Function => {
                self.functions.insert((database, schema, name), object.id);
            }
            _ => {
                self.relations.insert((database, schema, name), object.id);
            }
        }
        self.objects.insert(object.id, object);
    }

    /// This catalog with some objects put (added or replaced) and others removed.
    #[must_use]
    pub fn with(&self, put: impl IntoIterator<Item = Arc<Object>>, removed: &[ObjectId]) -> Self {
        let mut objects: BTreeMap<ObjectId, Arc<Object>> = self
            .objects
            .iter()
            .filter(|(id, _)| !removed.contains(id))
            .map(|(id, object)| (*id, Arc::clone(object)))
            .collect();
        for object in put {
            objects.insert(object.id, object);
        }
        let mut next = CatalogSnapshot::new(self.version + 1, objects.into_values());
        next.unfilled.clone_from(&self.unfilled);
        next
    }

    /// This catalog, in which a materialized view has no rows of its own yet.
    #[must_use]
    pub fn with_unfilled(&self, id: ObjectId) -> Self {
        let mut next = self.with([], &[]);
        next.unfilled.insert(id);
        next
    }

    /// Whether a materialized view has no rows of its own yet.
    pub fn is_unfilled(&self, id: ObjectId) -> bool {
        self.unfilled.contains(&id)
    }

    /// The catalog as it is once every materialized view has its rows; `None`: it is so.
    pub fn filled(&self) -> Option<Self> {
        (!self.unfilled.is_empty()).then(|| CatalogSnapshot {
            unfilled: BTreeSet::new(),
            ..self.with([], &[])
        })
    }

    /// An object by its identity.
    pub fn object(&self, id: ObjectId) -> Option<&Arc<Object>> {
        self.objects.get(&id)
    }

    /// All objects, in the order in which they were made.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// The subscription that has the history of a view, if it has one.
    pub fn history_of(&self, view: ObjectId) -> Option<&Arc<Object>> {
        self.dependents(&BTreeSet::from([view]))
            .into_iter()
            .find(|object| matches!(&object.definition, Definition::Sink(def) if def.is_history_of(view)))
    }

    /// A relation or index by its full name.
    pub fn relation(&self, database: &str, schema: &str, name: &str) -> Option<&Arc<Object>> {
        let id = self
            .relations
            .get(&(database.to_string(), schema.to_string(), name.to_string()))?;
        self.objects.get(id)
    }

    /// Relations and indexes of a database, by schema and name.
    pub fn relations<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.relations
            .iter()
            .filter(move |((in_database, _, _), _)| in_database == database)
            .filter_map(|(_, id)| self.objects.get(id))
    }

    /// A function by its full name.
    pub fn function(&self, database: &str, schema: &str, name: &str) -> Option<&Arc<Object>> {
        if self.functions.is_empty() {
            return None;
        }
        let id = self
            .functions
            .get(&(database.to_string(), schema.to_string(), name.to_string()))?;
        self.objects.get(id)
    }

    /// The functions of a database, by schema and name.
    pub fn functions<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.functions
            .iter()
            .filter(move |((in_database, _, _), _)| in_database == database)
            .filter_map(|(_, id)| self.objects.get(id))
    }

    /// A secret by its full name.
    pub fn secret(&self, database: &str, schema: &str, name: &str) -> Option<&Arc<Object>> {
        let id = self
            .secrets
            .get(&(database.to_string(), schema.to_string(), name.to_string()))?;
        self.objects.get(id)
    }

    /// The secrets of a database, by schema and name.
    pub fn secrets<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.secrets
            .iter()
            .filter(move |((in_database, _, _), _)| in_database == database)
            .filter_map(|(_, id)| self.objects.get(id))
    }

    /// A type that somebody made, by its full name.
    pub fn user_type(&self, database: &str, schema: &str, name: &str) -> Option<&Arc<Object>> {
        if self.types.is_empty() {
            return None;
        }
        let id = self
            .types
            .get(&(database.to_string(), schema.to_string(), name.to_string()))?;
        self.objects.get(id)
    }

    /// The types of a database that somebody made, by schema and name.
    pub fn user_types<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.types
            .iter()
            .filter(move |((in_database, _, _), _)| in_database == database)
            .filter_map(|(_, id)| self.objects.get(id))
    }

    /// Whether somebody made a type.
    pub fn has_user_types(&self) -> bool {
        !self.types.is_empty()
    }

    /// What is in the schemas of a database.
    pub fn contents<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.relations(database)
            .chain(self.functions(database))
            .chain(self.secrets(database))
            .chain(self.user_types(database))
    }

    /// Whether a schema exists, a system schema included.
    pub fn has_schema(&self, database: &str, schema: &str) -> bool {
        SYSTEM_SCHEMAS.contains(&schema)
            || self
                .schemas
                .contains_key(&(database.to_string(), schema.to_string()))
    }

    /// A schema that was made by a user.
    pub fn schema(&self, database: &str, schema: &str) -> Option<&Arc<Object>> {
        self.objects
            .get(self.schemas.get(&(database.to_string(), schema.to_string()))?)
    }

    /// The schemas of a database, without the system's.
    pub fn schemas<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.schemas
            .iter()
            .filter(move |((in_database, _), _)| in_database == database)
            .filter_map(|(_, id)| self.objects.get(id))
    }

    /// A database by its name.
    pub fn database(&self, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(self.databases.get(name)?)
    }

    /// The databases, by name.
    pub fn databases(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.databases.values().filter_map(|id| self.objects.get(id))
    }

    /// A role by its name, be it stored or one that is there without being made.
    pub fn role(&self, name: &str) -> Option<&Arc<Object>> {
        match self.roles.get(name) {
            Some(id) => self.objects.get(id),
            None => built_in()
                .iter()
                .find(|role| role.name == name && !self.objects.contains_key(&role.id)),
        }
    }

    /// A role by its identity.
    pub fn role_by_id(&self, id: ObjectId) -> Option<&Arc<Object>> {
        self.objects
            .get(&id)
            .filter(|object| object.kind == ObjectKind::User)
            .or_else(|| built_in().iter().find(|role| role.id == id))
    }

    /// The roles, in order of their identities.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Object>> {
        let is_stored = |role: &&Arc<Object>| self.objects.contains_key(&role.id);
        let built_in = built_in().iter().filter(move |role| !is_stored(role));
        let stored = self.roles.values().filter_map(|id| self.objects.get(id));
        let mut roles: Vec<_> = built_in.chain(stored).collect();
        roles.sort_by_key(|role| role.id);
        roles.into_iter()
    }

    /// The indexes of a relation.
    pub fn indexes_of(&self, relation: ObjectId) -> impl Iterator<Item = (&Arc<Object>, &IndexDef)> {
        self.objects
            .values()
            .filter_map(move |object| match &object.definition {
                Definition::Index(index) if index.relation == relation => Some((object, index)),
                _ => None,
            })
    }

    /// The foreign keys that refer to a table, each with the table whose it is.
    pub fn references_to(&self, table: ObjectId) -> impl Iterator<Item = (&Arc<Object>, &ForeignKeyDef)> {
        let objects = self.objects.values();
        let all = objects.filter_map(|object| Some((object, object.relation()?)));
        all.flat_map(|(object, relation)| relation.foreign_keys.iter().map(move |key| (object, key)))
            .filter(move |(_, key)| key.table == table)
    }

    /// The tables that are concerned when rows of one change: those to which its foreign keys refer, those whose foreign keys refer
    /// to it, and what is concerned when rows of the latter change.
    pub fn connected_by_keys(&self, table: ObjectId) -> BTreeSet<ObjectId> {
        let (mut found, mut changing, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![table]);
        while let Some(id) = next.pop() {
            let Some(relation) = self.object(id).and_then(|object| object.relation()) else {
                continue;
            };
            if changing.insert(id) {
                found.extend(relation.foreign_keys.iter().map(|key| key.table));
                next.extend(self.references_to(id).map(|(object, _)| object.id));
            }
        }
        found.extend(changing);
        found.remove(&table);
        found
    }

    /// The sets of columns of a table that are unique, each with the name of its index.
    pub fn uniques_of<'a>(&'a self, table: &'a Object) -> Vec<(&'a str, &'a [usize])> {
        let key = table
            .relation()
            .and_then(|relation| Some((relation.key_name.as_deref()?, relation.key())));
        let indexes = self.indexes_of(table.id).filter(|(_, index)| index.is_unique);
        let indexes = indexes.map(|(object, index)| (object.name.as_str(), index.columns.as_slice()));
        key.into_iter().chain(indexes).collect()
    }

    /// The objects that name one of `ids` directly, without those in `ids`.
    pub fn dependents(&self, ids: &BTreeSet<ObjectId>) -> Vec<&Arc<Object>> {
        self.objects
            .values()
            .filter(|object| !ids.contains(&object.id) && object.needs().any(|id| ids.contains(&id)))
            .collect()
    }

    /// The relation beside which a stream was made to keep something of it: bad records, files that were read, late rows.
    pub fn kept_for(&self, stream: &Object) -> Option<&Arc<Object>> {
        // Their names are made of two parts; others need not be looked for.
        if stream.kind != ObjectKind::Stream || !stream.name.contains('$') {
            return None;
        }
        let keeps = |object: &&Arc<Object>| {
            let relation = object.relation();
            relation.is_some_and(|relation| relation.beside().any(|id| id == stream.id))
        };
        self.objects.values().find(keeps)
    }

    /// Objects so that each comes after those that it names, and otherwise in order of identity.
    pub fn in_order(&self, ids: &BTreeSet<ObjectId>) -> Vec<&Arc<Object>> {
        let (mut ordered, mut done) = (vec![], BTreeSet::new());
        // What is still to be done before an object, and the object: views may be nested deeper than a stack of calls.
        let mut stack: Vec<(ObjectId, bool)> = ids.iter().rev().map(|id| (*id, false)).collect();
        while let Some((id, is_ready)) = stack.pop() {
            let Some(object) = self.objects.get(&id).filter(|_| ids.contains(&id)) else {
                continue;
            };
            if is_ready {
                ordered.push(object);
            } else if done.insert(id) {
                stack.push((id, true));
                stack.extend(object.depends.iter().rev().map(|id| (*id, false)));
            }
        }
        ordered
    }

    /// The materialized views that have epochs in common with one that reads `ids`: inputs connect them.
    pub fn connected(&self, ids: &[ObjectId]) -> Vec<(&Arc<Object>, &Arc<QueryDef>)> {
        let (mut found, mut next) = (BTreeSet::new(), ids.to_vec());
        while let Some(id) = next.pop() {
            let Some(object) = self.objects.get(&id) else {
                continue;
            };
            let is_read = matches!(object.definition, Definition::Relation(_) | Definition::View(_));
            if is_read && found.insert(id) {
                next.extend(&object.depends);
                let dependents = self.dependents(&BTreeSet::from([id]));
                next.extend(dependents.iter().map(|object| object.id));
            }
        }
        let objects = found.iter().filter_map(|id| self.objects.get(id));
        objects
            .filter_map(|object| Some((object, object.relation()?.query.as_ref()?)))
            .collect()
    }

    /// `ids` and all that depends on them, directly or not, in order of identity.
    pub fn closure(&self, ids: &[ObjectId]) -> BTreeSet<ObjectId> {
        let mut found: BTreeSet<ObjectId> = ids.iter().copied().collect();
        loop {
            let more: Vec<ObjectId> = self.dependents(&found).iter().map(|object| object.id).collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{DEFAULT_DATABASE, DEFAULT_SCHEMA};
    use crate::rights::Rights;

    fn view(id: u64, name: &str, depends: &[u64]) -> Arc<Object> {
        Arc::new(Object {
            id: ObjectId(id),
            kind: ObjectKind::View,
            database: DEFAULT_DATABASE.into(),
            schema: DEFAULT_SCHEMA.into(),
            name: name.into(),
            sql: String::new(),
            comment: None,
            created_at_ms: 0,
            depends: depends.iter().copied().map(ObjectId).collect(),
            definition: Definition::Other,
            rights: Rights::default(),
        })
    }

    #[test]
    fn dependents_are_found_through_others() {
        let catalog = CatalogSnapshot::new(
            0,
            [
                view(1, "a", &[]),
                view(2, "b", &[1]),
                view(3, "c", &[2]),
                view(4, "d", &[]),
            ],
        );
        let names: Vec<u64> = catalog
            .closure(&[ObjectId(1)])
            .into_iter()
            .map(|id| id.0)
            .collect();
        assert_eq!(names, [1, 2, 3]);
        let direct: Vec<&str> = catalog
            .dependents(&BTreeSet::from([ObjectId(1)]))
            .iter()
            .map(|object| object.name.as_str())
            .collect();
        assert_eq!(direct, ["b"]);
    }

    #[test]
    fn what_is_named_comes_first() {
        let catalog = CatalogSnapshot::new(
            0,
            [
                view(1, "a", &[4]),
                view(2, "b", &[1]),
                view(3, "c", &[]),
                view(4, "d", &[3, 9]),
            ],
        );
        let order = |ids: &[u64]| -> Vec<u64> {
            let ids = ids.iter().copied().map(ObjectId).collect();
            catalog.in_order(&ids).iter().map(|object| object.id.0).collect()
        };
        assert_eq!(order(&[1, 2, 3, 4]), [3, 4, 1, 2]);
        assert_eq!(order(&[2, 4]), [2, 4]);
    }

    #[test]
    fn a_change_leaves_the_old_snapshot_alone() {
        let old = CatalogSnapshot::new(0, [view(1, "a", &[])]);
        let new = old.with([view(2, "b", &[])], &[ObjectId(1)]);
        assert!(old.relation("millrace", "public", "a").is_some());
        assert!(new.relation("millrace", "public", "a").is_none());
        assert!(new.relation("millrace", "public", "b").is_some());
        assert_eq!(new.version, 1);
    }
}
