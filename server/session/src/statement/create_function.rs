//! CREATE FUNCTION and CREATE AGGREGATE: bodies are SQL expressions, which calls are replaced by.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{self, Visitor};
use millrace_catalog::function::FunctionDef;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object};
use millrace_database::clock::now_ms;
use millrace_functions::sql::named_types;
use millrace_parser::ast::CreateFunction;
use millrace_parser::walk::Walk;
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types;
use millrace_postgres::types::named::{qualified, resolved};
use millrace_storage::ObjectKind;

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;
use crate::statement::drop::dependents_error;

/// Executes CREATE FUNCTION and CREATE AGGREGATE.
pub async fn execute(session: &Arc<Session>, create: CreateFunction, text: &str) -> SqlResult<Outcome> {
    let db = session.database();
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = names::new_name(session, &scope, &create.name)?;
    let state = db.state();
    let is_built_in = state.scalar_functions().contains_key(&name)
        || state.aggregate_functions().contains_key(&name)
        || state.window_functions().contains_key(&name);
    if is_built_in {
        let message = format!("function \"{name}\" is built in");
        return Err(SqlError::new(SqlState::DuplicateObject, message).with_hint("Use another name."));
    }
    let reader = db.reader(&scope);
    let mut body = create.body;
    named_types::qualify(&mut body, &reader)?;
    let parameters = create.parameters.into_iter().map(|(name, data_type)| {
        let data_type = qualified(&data_type, &reader)?;
        Ok((millrace_parser::fold(&name), data_type))
    });
    let def = FunctionDef {
        is_aggregate: create.is_aggregate,
        parameters: parameters.collect::<SqlResult<_>>()?,
        returns: qualified(&create.returns, &reader)?,
        body,
    };
    let before = scope.catalog.function(&scope.database, &schema, &name);
    if let Some(before) = before {
        let message = format!("function \"{name}\" already exists");
        if create.or_replace {
            scope.check_owner(before)?;
        } else {
            return Err(SqlError::new(SqlState::DuplicateObject, message));
        }
        if !scope.catalog.dependents(&BTreeSet::from([before.id])).is_empty() {
            let message = format!(
                "cannot replace {} because other objects depend on it",
                before.described()
            );
            return Err(dependents_error(&message, before, &scope.catalog));
        }
    }
    let depends = check(session, &scope, &def)?;
    let id = match before {
        Some(before) => before.id,
        None => guard.next_id()?,
    };
    let command = if def.is_aggregate {
        "CREATE AGGREGATE"
    } else {
        "CREATE FUNCTION"
    };
    let rights = match before {
        Some(before) => before.rights.clone(),
        None => scope.rights_of_new(ObjectKind::Function, &schema),
    };
    guard.put(Object {
        id,
        kind: ObjectKind::Function,
        database: scope.database.clone(),
        schema,
        name,
        sql: text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends,
        definition: Definition::Function(Arc::new(def)),
        rights,
    })?;
    done(command)
}

/// Refuses a body that cannot be one; tells which functions it calls.
fn check(session: &Session, scope: &Scope, def: &FunctionDef) -> SqlResult<Vec<millrace_storage::ObjectId>> {
    let invalid = |message: &str| SqlError::new(SqlState::InvalidFunctionDefinition, message);
    let mut seen = BTreeSet::new();
    if let Some((name, _)) = def
        .parameters
        .iter()
        .find(|(name, _)| !seen.insert(name.as_str()))
    {
        return Err(invalid(&format!("parameter \"{name}\" specified more than once")));
    }
    if def.body.walk(&mut Queries).is_break() {
        return Err(SqlError::unsupported(
            "a subquery in the body of a function is not supported",
        ));
    }
    let reader = session.database().reader(scope);
    let fields = def.parameters.iter().map(|(name, data_type)| {
        let data_type = types::from_sql(&resolved(data_type, &reader)?.data_type)?;
        Ok(data_type.field(name, true))
    });
    let fields = fields.collect::<SqlResult<Vec<Field>>>()?;
    let schema = df(DFSchema::try_from(Schema::new(fields)))?;
    let function = def.inlined(&reader)?;
    let bound = df(Binder::new(session.database().state(), &reader).expression(&function.body, &schema))?;
    let (mut has_aggregate, mut has_window, mut has_column) = (false, false, false);
    df(bound.apply(|node| {
        Ok(match node {
            Expr::AggregateFunction(_) => {
                has_aggregate = true;
                TreeNodeRecursion::Jump
            }
            Expr::WindowFunction(_) => {
                has_window = true;
                TreeNodeRecursion::Jump
            }
            Expr::Column(_) => {
                has_column = true;
                TreeNodeRecursion::Continue
            }
            _ => TreeNodeRecursion::Continue,
        })
    }))?;
    if has_window {
        return Err(SqlError::unsupported(
            "OVER in the body of a function is not supported",
        ));
    }
    match (def.is_aggregate, has_aggregate) {
        (false, true) => {
            Err(invalid("the body of a function cannot aggregate").with_hint("Use CREATE AGGREGATE."))
        }
        (true, false) => {
            Err(invalid("the body of an aggregate must aggregate").with_hint("Use CREATE FUNCTION."))
        }
        (true, true) if has_column => Err(invalid(
            "the parameters of an aggregate can only be used inside of aggregates in its body",
        )),
        _ => Ok(reader.names().into_iter().map(|name| name.object).collect()),
    }
}

/// Stops at the first query.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
