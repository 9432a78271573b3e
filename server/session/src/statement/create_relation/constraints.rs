//! CHECK, UNIQUE and FOREIGN KEY of CREATE TABLE and ALTER TABLE: their names, and the indexes by which values are known to be unique.

use std::collections::BTreeSet;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{
    Expr, ForeignKeyConstraint, KeyOrIndexDisplay, NullsDistinctOption, TableConstraint,
};
use millrace_catalog::scope::Scope;
use millrace_catalog::{CatalogSnapshot, CheckDef, ForeignKeyDef, IndexDef, Object, Relation};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::rows::positions;
use millrace_functions::sql::{equality, named_types, rewrite};
use millrace_parser::quote_identifier;
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::plain_name;
use millrace_storage::ObjectId;

use super::foreign_keys::{self, check_characteristics};
use crate::names;
use crate::session::Session;
use crate::statement::create_index;

/// The constraints that are kept, with the names that were given.
#[derive(Debug, Default)]
pub(in crate::statement) struct Constraints {
    checks: Vec<(Option<String>, Expr)>,
    uniques: Vec<(Option<String>, Vec<String>)>,
    foreign_keys: Vec<ForeignKeyConstraint>,
}

impl Constraints {
    pub(super) fn has_unique(&self) -> bool {
        !self.uniques.is_empty()
    }

    pub(super) fn has_foreign_keys(&self) -> bool {
        !self.foreign_keys.is_empty()
    }

    /// Takes what is kept out of all constraints, and leaves the rest.
    ///
    /// # Errors
    /// One has a clause that is not supported.
    pub(in crate::statement) fn taken_from(all: &mut Vec<TableConstraint>) -> SqlResult<Self> {
        let mut constraints = Constraints::default();
        let mut rest = vec![];
        for constraint in std::mem::take(all) {
            match constraint {
                TableConstraint::Check(check) => {
                    if check.enforced == Some(false) {
                        return Err(SqlError::unsupported(
                            "constraints that are NOT ENFORCED are not supported",
                        ));
                    }
                    let name = check.name.as_ref().map(millrace_parser::fold);
                    constraints.checks.push((name, *check.expr));
                }
                TableConstraint::Unique(unique) => {
                    check_characteristics(unique.characteristics.as_ref())?;
                    if unique.nulls_distinct == NullsDistinctOption::NotDistinct {
                        return Err(SqlError::unsupported(
                            "UNIQUE NULLS NOT DISTINCT is not supported",
                        ));
                    }
                    if unique.index_type.is_some()
                        || !unique.index_options.is_empty()
                        || unique.index_type_display != KeyOrIndexDisplay::None
                    {
                        return Err(SqlError::unsupported(
                            "options of a UNIQUE constraint are not supported",
                        ));
                    }
                    let columns = unique.columns.iter().map(|column| match &column.column.expr {
                        Expr::Identifier(name) => Ok(millrace_parser::fold(name)),
                        _ => Err(SqlError::new(
                            SqlState::SyntaxError,
                            "a UNIQUE constraint can contain only column names",
                        )),
                    });
                    let columns = columns.collect::<SqlResult<Vec<String>>>()?;
                    let name = unique.name.as_ref().map(millrace_parser::fold);
                    constraints.uniques.push((name, columns));
                }
                TableConstraint::ForeignKey(key) => constraints.foreign_keys.push(key),
                other => rest.push(other),
            }
        }
        *all = rest;
        Ok(constraints)
    }

    /// The CHECK constraints with their names.
    ///
    /// # Errors
    /// An expression does not bind, or is no condition.
    pub(in crate::statement) fn checks(
        &self,
        session: &Session,
        scope: &Scope,
        relation: &Relation,
    ) -> SqlResult<Vec<CheckDef>> {
        let reader = session.database().reader(scope);
        let schema = df(DFSchema::try_from(relation.schema().as_ref().clone()))?;
        let mut taken = names_of(&scope.catalog, relation);
        let mut checks = vec![];
        for (given, expression) in &self.checks {
            let mut expression = expression.clone();
            named_types::qualify(&mut expression, &reader)?;
            let mut rewritten = expression.clone();
            named_types::resolve(&mut rewritten, &reader)?;
            rewrite::expression(&mut rewritten)?;
            let bound = df(Binder::new(session.database().state(), &reader).expression(&rewritten, &schema))?;
            let is_of_rows = |expr: &datafusion::logical_expr::Expr| {
                use datafusion::logical_expr::Expr;
                Ok(matches!(
                    expr,
                    Expr::AggregateFunction(_) | Expr::WindowFunction(_)
                ))
            };
            if df(bound.exists(is_of_rows))? {
                return Err(SqlError::new(
                    SqlState::GroupingError,
                    "aggregate functions are not allowed in check constraints",
                ));
            }
            let field = df(bound.to_field(&schema))?.1;
            if !field.data_type().is_null() && field.data_type() != &arrow::datatypes::DataType::Boolean {
                return Err(SqlError::new(
                    SqlState::DatatypeMismatch,
                    format!(
                        "argument of CHECK must be type boolean, not type {}",
                        plain_name(&field)
                    ),
                ));
            }
            let name = match given {
                Some(name) if taken.contains(name) => {
                    return Err(SqlError::new(
                        SqlState::DuplicateObject,
                        match relation.checks.is_empty() {
                            true => format!("check constraint \"{name}\" already exists"),
                            false => already_exists(name, relation),
                        },
                    ));
                }
                Some(name) => name.clone(),
                None => {
                    let columns: BTreeSet<&str> = bound
                        .column_refs()
                        .into_iter()
                        .map(|column| column.name.as_str())
                        .collect();
                    let column = match columns.len() {
                        1 => columns.into_iter().next().map(|column| format!("{column}_")),
                        _ => None,
                    };
                    let base = format!("{}_{}check", relation.info.name, column.unwrap_or_default());
                    names::free(&base, |name| taken.contains(name))
                }
            };
            taken.insert(name.clone());
            checks.push(CheckDef {
                name,
                expression: expression.clone(),
            });
        }
        Ok(checks)
    }

    /// The FOREIGN KEY constraints with their names, of a table in this schema that has its other constraints.
    ///
    /// # Errors
    /// One refers to something that it cannot refer to.
    pub(in crate::statement) fn foreign_keys(
        &self,
        session: &Session,
        scope: &Scope,
        schema: &str,
        relation: &Relation,
    ) -> SqlResult<Vec<ForeignKeyDef>> {
        let mut taken = names_of(&scope.catalog, relation);
        let mut uniques = vec![];
        for (_, columns) in &self.uniques {
            uniques.push(positions(relation, columns)?);
        }
        let id = ObjectId(relation.info.id.0);
        let indexes = scope.catalog.indexes_of(id).filter(|(_, index)| index.is_unique);
        uniques.extend(indexes.map(|(_, index)| index.columns.clone()));
        let table = foreign_keys::Table {
            schema,
            relation,
            uniques,
        };
        let mut all = vec![];
        for key in &self.foreign_keys {
            let key = foreign_keys::foreign_key(session, scope, &table, key, &taken)?;
            taken.insert(key.name.clone());
            all.push(key);
        }
        Ok(all)
    }

    /// The indexes of the UNIQUE constraints.
    ///
    /// # Errors
    /// A column is unknown or has a type whose equal values are not held alike, or a name is taken.
    pub(in crate::statement) fn indexes(
        &self,
        guard: &DdlGuard<'_>,
        table: &Object,
        relation: &Relation,
    ) -> SqlResult<Vec<Object>> {
        let mut indexes: Vec<Object> = vec![];
        for (given, columns) in &self.uniques {
            let places = positions(relation, columns)?;
            for place in &places {
                equality::check_key(relation.schema().field(*place))?;
            }
            let base = format!("{}_{}_key", table.name, columns.join("_"));
            let exists = |name: &str| {
                indexes.iter().any(|index| index.name == name)
                    || relation.key_name.as_deref() == Some(name)
                    || guard.check_free(&table.database, &table.schema, name).is_err()
            };
            let name = match given {
                Some(name) if exists(name) => {
                    return Err(SqlError::new(
                        SqlState::DuplicateTable,
                        format!("relation \"{name}\" already exists"),
                    ));
                }
                Some(name) => name.clone(),
                None => names::free(&base, exists),
            };
            indexes.push(unique_index(guard, table, name, places, columns)?);
        }
        Ok(indexes)
    }
}

/// The names of a table's constraints.
pub(in crate::statement) fn names_of(catalog: &CatalogSnapshot, relation: &Relation) -> BTreeSet<String> {
    let indexes = catalog.indexes_of(ObjectId(relation.info.id.0));
    let indexes = indexes.filter(|(_, index)| index.is_constraint);
    let checks = relation.checks.iter().map(|check| check.name.clone());
    let foreign_keys = relation.foreign_keys.iter().map(|key| key.name.clone());
    (relation.key_name.iter().cloned())
        .chain(indexes.map(|(object, _)| object.name.clone()))
        .chain(checks)
        .chain(foreign_keys)
        .collect()
}

fn already_exists(name: &str, relation: &Relation) -> String {
    format!(
        "constraint \"{name}\" for relation \"{}\" already exists",
        relation.info.name
    )
}

/// An index of a table whose values are unique.
///
/// # Errors
/// The catalog cannot be written.
fn unique_index(
    guard: &DdlGuard<'_>,
    table: &Object,
    name: String,
    places: Vec<usize>,
    columns: &[String],
) -> SqlResult<Object> {
    let columns: Vec<String> = columns
        .iter()
        .map(|column| quote_identifier(column).to_string())
        .collect();
    let sql = format!(
        "CREATE UNIQUE INDEX {} ON {} ({})",
        quote_identifier(&name),
        quote_identifier(&table.name),
        columns.join(", ")
    );
    let definition = IndexDef {
        relation: table.id,
        columns: places,
        is_unique: true,
        is_constraint: true,
    };
    create_index::index(guard, table, name, sql, definition)
}
