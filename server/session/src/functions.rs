//! Functions of users in what tables and domains say of their values: they stay as long as that is said.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::Expr;
use millrace_catalog::user_type::TypeDef;
use millrace_catalog::{CatalogSnapshot, DEFAULT_SCHEMA, Definition, Object};
use millrace_parser::fold;
use millrace_parser::walk::walk_expressions;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

/// Refuses to drop a function that a constraint, a default or a generated column calls of what stays.
///
/// # Errors
/// 2BP01, which names them.
pub(crate) fn check_unused(catalog: &CatalogSnapshot, all: &BTreeSet<ObjectId>) -> SqlResult<()> {
    let gone = all.iter().filter_map(|id| catalog.object(*id));
    for function in gone.filter(|object| object.kind == ObjectKind::Function) {
        let stays = catalog.objects().filter(|object| !all.contains(&object.id));
        let users: Vec<String> = stays
            .filter(|object| object.database == function.database)
            .flat_map(|object| users_of(function, object, is_meant(catalog, function, object)))
            .collect();
        if !users.is_empty() {
            return Err(SqlError::new(
                SqlState::DependentObjectsStillExist,
                format!(
                    "cannot drop {} because other objects depend on it",
                    function.described()
                ),
            )
            .with_detail(users.join("\n"))
            .with_hint("Drop the constraints, defaults and columns that call it first."));
        }
    }
    Ok(())
}

/// Whether the bare name of a function means it where an object says it: not if one of that name is nearer.
fn is_meant(catalog: &CatalogSnapshot, function: &Object, object: &Object) -> bool {
    let nearer = [object.schema.as_str(), DEFAULT_SCHEMA];
    let mut known = nearer
        .iter()
        .filter_map(|schema| catalog.function(&function.database, schema, &function.name));
    known.next().is_none_or(|found| found.id == function.id)
}

/// What of an object calls a function, each with a line. `is_meant`: its bare name is enough.
fn users_of(function: &Object, object: &Object, is_meant: bool) -> Vec<String> {
    let calls = |expression: &Expr| calls(expression, function, is_meant);
    let on = function.described();
    let of = object.described();
    let mut lines = vec![];
    match &object.definition {
        Definition::Relation(relation) => {
            for column in &relation.columns {
                let name = column.field.name();
                if column.default.as_ref().is_some_and(&calls) {
                    lines.push(format!("default value for column {name} of {of} depends on {on}"));
                }
                if column.generated.as_ref().is_some_and(&calls) {
                    lines.push(format!("column {name} of {of} depends on {on}"));
                }
            }
            for check in &relation.checks {
                if calls(&check.expression) {
                    lines.push(format!("constraint {} on {of} depends on {on}", check.name));
                }
            }
        }
        Definition::Type(of_type) => {
            if let TypeDef::Domain(domain) = of_type.as_ref() {
                if domain.default.as_ref().is_some_and(&calls) {
                    lines.push(format!("default value of {of} depends on {on}"));
                }
                for check in &domain.checks {
                    if calls(&check.expression) {
                        lines.push(format!("constraint {} on {of} depends on {on}", check.name));
                    }
                }
            }
        }
        _ => {}
    }
    lines
}

/// Whether an expression calls a function.
fn calls(expression: &Expr, function: &Object, is_meant: bool) -> bool {
    let found = walk_expressions(expression, |expression| {
        let Expr::Function(call) = expression else {
            return ControlFlow::Continue(());
        };
        let parts: Vec<String> = (call.name.0.iter())
            .filter_map(|part| part.as_ident().map(fold))
            .collect();
        let is_it = match parts.as_slice() {
            [name] => is_meant && *name == function.name,
            [.., schema, name] => *name == function.name && *schema == function.schema,
            [] => false,
        };
        match is_it {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}
