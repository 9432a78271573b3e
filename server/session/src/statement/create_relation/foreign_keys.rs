//! FOREIGN KEY of CREATE TABLE and ALTER TABLE: what it refers to, and whether it can.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    ConstraintCharacteristics, ConstraintReferenceMatchKind, DeferrableInitial, ForeignKeyConstraint,
    ReferentialAction,
};
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{Action, ForeignKeyDef, Object, Relation};
use millrace_functions::sql::equality;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::plain_name;
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::session::Session;
use crate::write::foreign_keys::fits;

/// The table whose keys are to be made.
pub(in crate::statement) struct Table<'a> {
    pub schema: &'a str,
    pub relation: &'a Relation,
    /// Its sets of columns that are unique.
    pub uniques: Vec<Vec<usize>>,
}

/// Refuses a constraint that is to be checked at another time than the end of each statement, or not at all.
///
/// # Errors
/// 0A000.
pub(in crate::statement) fn check_characteristics(
    characteristics: Option<&ConstraintCharacteristics>,
) -> SqlResult<()> {
    let Some(said) = characteristics else {
        return Ok(());
    };
    if said.deferrable == Some(true) || said.initially == Some(DeferrableInitial::Deferred) {
        return Err(SqlError::unsupported("deferrable constraints are not supported"));
    }
    if said.enforced == Some(false) {
        return Err(SqlError::unsupported(
            "constraints that are NOT ENFORCED are not supported",
        ));
    }
    Ok(())
}

/// A foreign key, with its name, which must not be in `taken`.
///
/// # Errors
/// A column is unknown, what it refers to is no table, or is not unique there, the types do not fit, or whoever acts may not refer to it.
pub(in crate::statement) fn foreign_key(
    session: &Session,
    scope: &Scope,
    table: &Table<'_>,
    key: &ForeignKeyConstraint,
    taken: &BTreeSet<String>,
) -> SqlResult<ForeignKeyDef> {
    check_characteristics(key.characteristics.as_ref())?;
    match key.match_kind {
        None | Some(ConstraintReferenceMatchKind::Simple) => {}
        Some(ConstraintReferenceMatchKind::Full) if key.columns.len() == 1 => {}
        Some(ConstraintReferenceMatchKind::Full) => {
            return Err(SqlError::unsupported("MATCH FULL is not supported"));
        }
        Some(ConstraintReferenceMatchKind::Partial) => {
            return Err(SqlError::unsupported("MATCH PARTIAL not yet implemented"));
        }
    }
    let columns: Vec<String> = key.columns.iter().map(millrace_parser::fold).collect();
    let places = places(table.relation, &columns)?;
    let parent = parent(session, scope, table, key)?;
    let is_own = is_temporary(table.schema);
    if parent
        .as_ref()
        .is_some_and(|parent| is_temporary(&parent.schema) != is_own)
    {
        let which = if is_own { "temporary" } else { "permanent" };
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            format!("constraints on {which} tables may reference only {which} tables"),
        ));
    }
    let (of_parent, id) = match &parent {
        None => (table.relation, ObjectId(table.relation.info.id.0)),
        Some(object) => (
            object
                .relation()
                .ok_or_else(|| SqlError::internal("a table is not a relation"))?,
            object.id,
        ),
    };
    let named: Vec<String> = key.referred_columns.iter().map(millrace_parser::fold).collect();
    let referenced = match named.is_empty() {
        true if of_parent.key().is_empty() => {
            return Err(SqlError::new(
                SqlState::UndefinedObject,
                format!(
                    "there is no primary key for referenced table \"{}\"",
                    of_parent.info.name
                ),
            ));
        }
        true => of_parent.key().to_vec(),
        false => self::places(of_parent, &named)?,
    };
    if referenced.len() != places.len() {
        return Err(SqlError::new(
            SqlState::InvalidForeignKey,
            "number of referencing and referenced columns for foreign key disagree",
        ));
    }
    let sorted = |columns: &[usize]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns
    };
    let mut uniques: Vec<Vec<usize>> = match &parent {
        None => table.uniques.clone(),
        Some(object) => (scope.catalog.uniques_of(object).into_iter())
            .map(|(_, columns)| columns.to_vec())
            .collect(),
    };
    uniques.push(of_parent.key().to_vec());
    if !uniques.iter().any(|unique| sorted(unique) == sorted(&referenced)) {
        return Err(SqlError::new(
            SqlState::InvalidForeignKey,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                of_parent.info.name
            ),
        ));
    }
    let name = match &key.name {
        Some(name) => {
            let name = millrace_parser::fold(name);
            if taken.contains(&name) {
                return Err(SqlError::new(
                    SqlState::DuplicateObject,
                    format!(
                        "constraint \"{name}\" for relation \"{}\" already exists",
                        table.relation.info.name
                    ),
                ));
            }
            name
        }
        None => {
            let base = format!("{}_{}_fkey", table.relation.info.name, columns.join("_"));
            names::free(&base, |name| taken.contains(name))
        }
    };
    for (column, of) in places.iter().zip(&referenced) {
        let child = table.relation.schema().field(*column);
        let parent = of_parent.schema().field(*of);
        if !fits(child, parent) {
            return Err(SqlError::new(
                SqlState::DatatypeMismatch,
                format!("foreign key constraint \"{name}\" cannot be implemented"),
            )
            .with_detail(format!(
                "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                child.name(),
                parent.name(),
                plain_name(child),
                plain_name(parent)
            )));
        }
        equality::check_key(child)?;
    }
    let def = ForeignKeyDef {
        name,
        columns: places,
        table: id,
        referenced,
        on_delete: action(key.on_delete),
        on_update: action(key.on_update),
    };
    check_assignable(table.relation, &def)?;
    Ok(def)
}

/// The positions of the columns of a key.
fn places(relation: &Relation, columns: &[String]) -> SqlResult<Vec<usize>> {
    let mut places = vec![];
    for name in columns {
        let place = relation
            .columns
            .iter()
            .position(|column| column.field.name() == name);
        let place = place.ok_or_else(|| {
            SqlError::new(
                SqlState::UndefinedColumn,
                format!("column \"{name}\" referenced in foreign key constraint does not exist"),
            )
        })?;
        if places.contains(&place) {
            return Err(SqlError::new(
                SqlState::InvalidForeignKey,
                "foreign key referenced-columns list must not contain duplicates",
            ));
        }
        places.push(place);
    }
    Ok(places)
}

/// The table that a key refers to; `None`: its own.
///
/// # Errors
/// There is no such table, it cannot be referred to, or whoever acts may not (42501).
fn parent(
    session: &Session,
    scope: &Scope,
    table: &Table<'_>,
    key: &ForeignKeyConstraint,
) -> SqlResult<Option<std::sync::Arc<Object>>> {
    let reference = names::parts(&key.foreign_table)?;
    let own_schema = reference.schema().is_none_or(|schema| schema == table.schema);
    if reference.table() == table.relation.info.name && own_schema {
        return Ok(None);
    }
    let object = names::resolve(session, scope, &key.foreign_table)?;
    if object.kind != ObjectKind::Table {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("referenced relation \"{}\" is not a table", object.name),
        ));
    }
    scope.check(&object, Privileges::REFERENCES)?;
    object.check_up()?;
    if object
        .relation()
        .is_some_and(|relation| relation.connector.is_some())
    {
        return Err(SqlError::unsupported(format!(
            "a foreign key that refers to {} is not supported",
            object.described()
        ))
        .with_detail("Its rows come from a connector, and are taken as they are."));
    }
    Ok(Some(object))
}

fn action(said: Option<ReferentialAction>) -> Action {
    match said {
        None | Some(ReferentialAction::NoAction) => Action::NoAction,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

/// Refuses an action that would give a value to a column that is computed.
fn check_assignable(relation: &Relation, key: &ForeignKeyDef) -> SqlResult<()> {
    let is_computed = |column: &usize| relation.columns[*column].generated.is_some();
    if !key.columns.iter().any(is_computed) {
        return Ok(());
    }
    for (what, action) in [("DELETE", key.on_delete), ("UPDATE", key.on_update)] {
        let is_wrong = match what {
            "UPDATE" => matches!(action, Action::Cascade | Action::SetNull | Action::SetDefault),
            _ => matches!(action, Action::SetNull | Action::SetDefault),
        };
        if is_wrong {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("invalid ON {what} action for foreign key constraint containing generated column"),
            ));
        }
    }
    Ok(())
}
