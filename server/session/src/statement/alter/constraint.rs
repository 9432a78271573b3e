//! ADD, DROP and RENAME CONSTRAINT.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{Expr, Ident, PrimaryKeyConstraint, TableConstraint};
use millrace_catalog::{Definition, ForeignKeyDef, Object};
use millrace_database::database::rows::positions;
use millrace_parser::ast::DropBehavior;
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::plain_name;
use millrace_storage::ObjectId;

use crate::keys::check_distinct;
use crate::notice::Severity;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::alter::form::Altering;
use crate::statement::create_relation::constraints::{Constraints, names_of};
use crate::statement::select;
use crate::write::foreign_keys::{fits, not_there};

/// What a constraint is in the catalog.
enum Found {
    Key,
    Check(usize),
    ForeignKey(usize),
    Unique(Arc<Object>),
}

impl Altering<'_> {
    /// The object with other constraints.
    fn changed(&self, change: impl FnOnce(&mut millrace_catalog::Relation)) -> Object {
        let mut new = self.object.as_ref().clone();
        if let Definition::Relation(relation) = &mut new.definition {
            change(relation);
        }
        new.restate();
        new
    }

    /// ADD CONSTRAINT.
    pub async fn add_constraint(&self, constraint: TableConstraint) -> SqlResult<()> {
        if let TableConstraint::PrimaryKey(key) = constraint {
            return self.add_key(&key).await;
        }
        let mut all = vec![constraint];
        let constraints = Constraints::taken_from(&mut all)?;
        if let Some(other) = all.first() {
            return Err(SqlError::unsupported(format!("{other} is not supported")));
        }
        let (session, scope, relation) = (self.session, self.scope, self.relation);
        let checks = constraints.checks(session, scope, relation)?;
        for check in &checks {
            let text = format!(
                "SELECT 1 FROM {} WHERE NOT ({}) LIMIT 1",
                named(self.object),
                check.expression
            );
            if !self.query(&text).await?.is_empty() {
                return Err(SqlError::new(
                    SqlState::CheckViolation,
                    format!(
                        "check constraint \"{}\" of relation \"{}\" is violated by some row",
                        check.name, self.object.name
                    ),
                )
                .about_constraint(&self.object.schema, &self.object.name, &check.name));
            }
        }
        let keys = constraints.foreign_keys(session, scope, &self.object.schema, relation)?;
        for key in &keys {
            self.check_references(key).await?;
        }
        let indexes = constraints.indexes(self.guard, self.object, relation)?;
        for index in &indexes {
            let Definition::Index(definition) = &index.definition else {
                continue;
            };
            let rows = self
                .query(&format!("SELECT * FROM {}", named(self.object)))
                .await?;
            check_distinct(relation, &index.name, &definition.columns, &rows)?;
        }
        if !checks.is_empty() || !keys.is_empty() {
            self.guard.put(self.changed(|relation| {
                relation.checks.extend(checks);
                relation.foreign_keys.extend(keys);
            }))?;
        }
        self.guard.create_all(indexes).await
    }

    async fn add_key(&self, key: &PrimaryKeyConstraint) -> SqlResult<()> {
        let (object, relation) = (self.object, self.relation);
        if !relation.key().is_empty() {
            return Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    object.name
                ),
            ));
        }
        if key.characteristics.is_some() || key.index_type.is_some() || !key.index_options.is_empty() {
            return Err(SqlError::unsupported(
                "options of a PRIMARY KEY are not supported",
            ));
        }
        let columns = key.columns.iter().map(|column| match &column.column.expr {
            Expr::Identifier(name) => Ok(millrace_parser::fold(name)),
            _ => Err(SqlError::new(
                SqlState::SyntaxError,
                "a primary key can contain only column names",
            )),
        });
        let columns = columns.collect::<SqlResult<Vec<String>>>()?;
        let columns = positions(relation, &columns)?;
        let name = match &key.name {
            Some(name) => millrace_parser::fold(name),
            None => format!("{}_pkey", object.name),
        };
        self.check_name(&name)?;
        self.set_key(name, columns).await
    }

    /// Refuses the name of another relation, or of another constraint of the table.
    fn check_name(&self, name: &str) -> SqlResult<()> {
        self.guard
            .check_free(&self.object.database, &self.object.schema, name)?;
        match names_of(&self.guard.catalog(), self.relation).contains(name) {
            false => Ok(()),
            true => Err(SqlError::new(
                SqlState::DuplicateObject,
                format!(
                    "constraint \"{name}\" for relation \"{}\" already exists",
                    self.object.name
                ),
            )),
        }
    }

    /// Rows of a query, in batches that are not empty.
    async fn query(&self, text: &str) -> SqlResult<Vec<RecordBatch>> {
        let mut statement = select::parse_query(text)?;
        let (plan, _) = select::bind(self.session, self.scope, &mut statement, select::Purpose::Run)?;
        let mut rows = self.session.collect(plan, &Providers::new()).await?;
        rows.retain(|batch| batch.num_rows() > 0);
        Ok(rows)
    }

    /// Refuses a foreign key of which a value is not there.
    async fn check_references(&self, key: &ForeignKeyDef) -> SqlResult<()> {
        let catalog = self.guard.catalog();
        let parent = catalog
            .object(key.table)
            .ok_or_else(|| SqlError::internal("a foreign key refers to no table"))?;
        let names = |object: &Object, columns: &[usize], table: &str| -> Vec<String> {
            let relation = object.relation();
            let columns = columns
                .iter()
                .filter_map(|column| relation?.columns.get(*column))
                .map(|column| format!("{table}.{}", quote_identifier(column.field.name())));
            columns.collect()
        };
        let here = names(self.object, &key.columns, "child");
        let there = names(parent, &key.referenced, "parent");
        let equal: Vec<String> = here
            .iter()
            .zip(&there)
            .map(|(here, there)| format!("{here} = {there}"))
            .collect();
        let are_there: Vec<String> = here.iter().map(|here| format!("{here} IS NOT NULL")).collect();
        let text = format!(
            "SELECT {} FROM {} AS child WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS parent WHERE {}) LIMIT 1",
            here.join(", "),
            named(self.object),
            are_there.join(" AND "),
            named(parent),
            equal.join(" AND ")
        );
        match self.query(&text).await?.first() {
            None => Ok(()),
            Some(keys) => Err(not_there(
                Some(self.object),
                self.relation,
                key,
                (keys, 0),
                &parent.name,
            )),
        }
    }

    fn find(&self, name: &str) -> SqlResult<Found> {
        let relation = self.relation;
        if relation.key_name.as_deref() == Some(name) {
            return Ok(Found::Key);
        }
        if let Some(at) = relation.checks.iter().position(|check| check.name == name) {
            return Ok(Found::Check(at));
        }
        if let Some(at) = relation.foreign_keys.iter().position(|key| key.name == name) {
            return Ok(Found::ForeignKey(at));
        }
        let catalog = self.guard.catalog();
        let mut indexes = catalog.indexes_of(self.object.id);
        let unique = indexes.find(|(object, index)| index.is_constraint && object.name == name);
        match unique {
            Some((object, _)) => Ok(Found::Unique(Arc::clone(object))),
            None => Err(SqlError::new(
                SqlState::UndefinedObject,
                format!(
                    "constraint \"{name}\" of relation \"{}\" does not exist",
                    self.object.name
                ),
            )),
        }
    }

    /// DROP CONSTRAINT.
    pub async fn drop_constraint(
        &self,
        name: &Ident,
        if_exists: bool,
        behavior: DropBehavior,
    ) -> SqlResult<()> {
        let name = millrace_parser::fold(name);
        let found = match self.find(&name) {
            Err(error) if if_exists => {
                let notice = format!("{}, skipping", error.message);
                self.session.notice(Severity::Notice, notice);
                return Ok(());
            }
            found => found?,
        };
        match found {
            Found::Check(at) => self.guard.put(self.changed(|relation| {
                relation.checks.remove(at);
            })),
            Found::ForeignKey(at) => self.guard.put(self.changed(|relation| {
                relation.foreign_keys.remove(at);
            })),
            Found::Key => {
                let own = self.drop_users(&name, self.relation.key(), behavior)?;
                self.drop_key(&own).await
            }
            Found::Unique(index) => {
                if let Definition::Index(definition) = &index.definition {
                    let own = self.drop_users(&name, &definition.columns, behavior)?;
                    if !own.is_empty() {
                        self.guard.put(self.changed(|relation| {
                            relation.foreign_keys.retain(|key| !own.contains(&key.name));
                        }))?;
                    }
                }
                self.guard.drop(&[index.id].into()).await
            }
        }
    }

    /// Drops the foreign keys that need a constraint, or refuses to drop it. Returns the names of those that are the table's own.
    fn drop_users(
        &self,
        name: &str,
        columns: &[usize],
        behavior: DropBehavior,
    ) -> SqlResult<BTreeSet<String>> {
        let catalog = self.guard.catalog();
        let users: Vec<(&Arc<Object>, &ForeignKeyDef)> = catalog
            .references_to(self.object.id)
            .filter(|(_, key)| key.needs(columns, &catalog.uniques_of(self.object)))
            .collect();
        if users.is_empty() {
            return Ok(BTreeSet::new());
        }
        let table = self.object.display_name();
        if behavior == DropBehavior::Restrict {
            let lines = users.iter().map(|(child, key)| {
                let child = child.display_name();
                format!("constraint {} on table {child} depends on index {name}", key.name)
            });
            return Err(SqlError::new(
                SqlState::DependentObjectsStillExist,
                format!("cannot drop constraint {name} on table {table} because other objects depend on it"),
            )
            .with_detail(lines.collect::<Vec<_>>().join("\n"))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        self.say_cascade(users.len());
        let (own, others): (Vec<_>, Vec<_>) =
            (users.into_iter()).partition(|(child, _)| child.id == self.object.id);
        let others: BTreeSet<(ObjectId, String)> = (others.into_iter())
            .map(|(child, key)| (child.id, key.name.clone()))
            .collect();
        self.drop_references(&others)?;
        Ok(own.into_iter().map(|(_, key)| key.name.clone()).collect())
    }

    /// Takes foreign keys from the tables whose they are.
    pub fn drop_references(&self, keys: &BTreeSet<(ObjectId, String)>) -> SqlResult<()> {
        let catalog = self.guard.catalog();
        let tables: BTreeSet<ObjectId> = keys.iter().map(|(table, _)| *table).collect();
        for table in tables {
            let Some(mut child) = catalog.object(table).map(|child| child.as_ref().clone()) else {
                continue;
            };
            if let Definition::Relation(relation) = &mut child.definition {
                relation
                    .foreign_keys
                    .retain(|key| !keys.contains(&(table, key.name.clone())));
            }
            child.restate();
            self.guard.put(child)?;
        }
        Ok(())
    }

    /// Refuses a type for a column that the foreign keys over it do not allow.
    pub fn check_keys_fit(&self, position: usize, field: &Field, has_using: bool) -> SqlResult<()> {
        let catalog = self.guard.catalog();
        let own = self.relation.foreign_keys.iter().map(|key| (self.object, key));
        let keys = own.chain(catalog.references_to(self.object.id));
        for (child, key) in keys {
            let parent = catalog.object(key.table).and_then(|object| object.relation());
            let (Some(of_child), Some(parent)) = (child.relation(), parent) else {
                continue;
            };
            for (column, referenced) in key.columns.iter().zip(&key.referenced) {
                let is_child = child.id == self.object.id && *column == position;
                let is_parent = key.table == self.object.id && *referenced == position;
                if !is_child && !is_parent {
                    continue;
                }
                if has_using {
                    return Err(SqlError::unsupported(format!(
                        "TYPE .. USING of a column of foreign key constraint \"{}\" is not supported",
                        key.name
                    ))
                    .with_hint("Drop the constraint, and add it again."));
                }
                let of_child = of_child.schema().field(*column);
                let of_parent = parent.schema().field(*referenced);
                let of_child = if is_child { field } else { of_child };
                let of_parent = if is_parent { field } else { of_parent };
                if !fits(of_child, of_parent) {
                    return Err(SqlError::new(
                        SqlState::DatatypeMismatch,
                        format!("foreign key constraint \"{}\" cannot be implemented", key.name),
                    )
                    .with_detail(format!(
                        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                        of_child.name(),
                        of_parent.name(),
                        plain_name(of_child),
                        plain_name(of_parent)
                    )));
                }
            }
        }
        Ok(())
    }

    /// RENAME CONSTRAINT.
    pub fn rename_constraint(&self, from: &Ident, to: &Ident) -> SqlResult<()> {
        let (from, to) = (millrace_parser::fold(from), millrace_parser::fold(to));
        let found = self.find(&from)?;
        match found {
            Found::Key | Found::Unique(_) => self.check_name(&to)?,
            Found::Check(_) | Found::ForeignKey(_) => {
                if names_of(&self.guard.catalog(), self.relation).contains(&to) {
                    return Err(SqlError::new(
                        SqlState::DuplicateObject,
                        format!(
                            "constraint \"{to}\" for relation \"{}\" already exists",
                            self.object.name
                        ),
                    ));
                }
            }
        }
        match found {
            Found::Key => self
                .guard
                .put(self.changed(|relation| relation.key_name = Some(to))),
            Found::Check(at) => self
                .guard
                .put(self.changed(|relation| relation.checks[at].name = to)),
            Found::ForeignKey(at) => self
                .guard
                .put(self.changed(|relation| relation.foreign_keys[at].name = to)),
            Found::Unique(index) => {
                let mut index = index.as_ref().clone();
                index.name = to;
                index.restate();
                self.guard.put(index)
            }
        }
    }
}

fn named(object: &Object) -> String {
    format!(
        "{}.{}",
        quote_identifier(&object.schema),
        quote_identifier(&object.name)
    )
}

/// The table to which a constraint refers, which is to be locked as well.
pub(super) fn referenced(session: &Session, constraint: &TableConstraint) -> Option<Arc<Object>> {
    match constraint {
        TableConstraint::ForeignKey(key) => {
            crate::names::resolve(session, &session.scope(), &key.foreign_table).ok()
        }
        _ => None,
    }
}
