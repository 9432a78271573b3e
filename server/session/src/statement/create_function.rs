//! CREATE FUNCTION, CREATE AGGREGATE and CREATE REDUCER: bodies are SQL expressions, which calls are replaced by, or texts in
//! JavaScript.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr::Expr as Bound;
use datafusion::sql::sqlparser::ast::{self, Expr, Visitor};
use millrace_catalog::function::FunctionDef;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object, Reader};
use millrace_database::clock::now_ms;
use millrace_functions::sql::named_types;
use millrace_parser::ast::{CreateFunction, FunctionBody};
use millrace_parser::walk::{Walk, walk_expressions_mut};
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types;
use millrace_postgres::types::named::{qualified, resolved};
use millrace_sql::{CatalogReader, SqlFunction};
use millrace_storage::ObjectKind;

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::drop::dependents_error;
use crate::statement::{done, select};

/// Executes CREATE FUNCTION, CREATE AGGREGATE and CREATE REDUCER.
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
    if let FunctionBody::Sql(body) = &mut body {
        named_types::qualify(body.as_mut(), &reader)?;
    }
    let mut defaults = create.defaults;
    for default in &mut defaults {
        named_types::qualify(default, &reader)?;
    }
    let parameters = create.parameters.into_iter().map(|(name, data_type)| {
        let data_type = qualified(&data_type, &reader)?;
        Ok((millrace_parser::fold(&name), data_type))
    });
    let def = FunctionDef {
        is_aggregate: create.is_aggregate,
        parameters: parameters.collect::<SqlResult<_>>()?,
        returns: qualified(&create.returns, &reader)?,
        rows: (create.rows.into_iter())
            .map(|(name, data_type)| Ok((millrace_parser::fold(&name), qualified(&data_type, &reader)?)))
            .collect::<SqlResult<_>>()?,
        defaults,
        is_setof: create.is_setof,
        is_row: create.is_row,
        strict: create.strict,
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
    let depends = match def.is_javascript() {
        true => check_javascript(session, &scope, &name, &def)?,
        false => check(session, &scope, &name, &def)?,
    };
    let id = match before {
        Some(before) => before.id,
        None => guard.next_id()?,
    };
    let command = match (def.is_aggregate, def.is_javascript()) {
        (true, true) => "CREATE REDUCER",
        (true, false) => "CREATE AGGREGATE",
        (false, _) => "CREATE FUNCTION",
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

/// Refuses a name that two parameters have.
fn check_parameters(def: &FunctionDef) -> SqlResult<()> {
    let mut seen = BTreeSet::new();
    let twice = (def.parameters.iter()).find(|(name, _)| !seen.insert(name.as_str()));
    match twice {
        Some((name, _)) => {
            let message = format!("parameter \"{name}\" specified more than once");
            Err(SqlError::new(SqlState::InvalidFunctionDefinition, message))
        }
        None => Ok(()),
    }
}

/// Refuses a text in JavaScript that cannot be one; tells which types it takes and gives.
fn check_javascript(
    session: &Session,
    scope: &Scope,
    name: &str,
    def: &FunctionDef,
) -> SqlResult<Vec<millrace_storage::ObjectId>> {
    check_parameters(def)?;
    if def.is_aggregate && !def.rows.is_empty() {
        return Err(
            SqlError::unsupported("a reducer that RETURNS TABLE or SETOF is not supported")
                .with_hint("Use RETURNS of an array (jsonb[], say), and UNNEST it in FROM."),
        );
    }
    if def.is_aggregate && def.strict {
        return Err(SqlError::unsupported("STRICT is not supported for a reducer")
            .with_hint("Its process can look for null, and a call can have FILTER (WHERE ..)."));
    }
    let reader = session.database().reader(scope);
    let program = def.program(name, &reader)?;
    session.database().javascript().check(&program)?;
    Ok(reader.names().into_iter().map(|name| name.object).collect())
}

/// Refuses a body that cannot be one; tells which functions it calls.
fn check(
    session: &Session,
    scope: &Scope,
    name: &str,
    def: &FunctionDef,
) -> SqlResult<Vec<millrace_storage::ObjectId>> {
    let invalid = |message: &str| SqlError::new(SqlState::InvalidFunctionDefinition, message);
    check_parameters(def)?;
    let Some(body) = def.expression() else {
        return Err(SqlError::internal("the body of a function is not in SQL"));
    };
    if body.walk(&mut Queries).is_break() {
        return match (body, def.is_aggregate) {
            (Expr::Subquery(_), false) => check_query(session, scope, name, def),
            _ => Err(
                SqlError::unsupported("a subquery in the body of a function is not supported")
                    .with_hint("The whole body can be one query: AS 'SELECT ..'."),
            ),
        };
    }
    let reader = session.database().reader(scope);
    let fields = def.parameters.iter().map(|(name, data_type)| {
        let data_type = types::from_sql(&resolved(data_type, &reader)?.data_type)?;
        Ok(data_type.field(name, true))
    });
    let fields = fields.collect::<SqlResult<Vec<Field>>>()?;
    let schema = df(DFSchema::try_from(Schema::new(fields)))?;
    let function = reader.inlined(def, name)?;
    check_defaults(&reader, session, &function)?;
    let bound = df(Binder::new(session.database().state(), &reader).expression(&function.body, &schema))?;
    let (mut has_aggregate, mut has_window, mut has_column) = (false, false, false);
    df(bound.apply(|node| {
        Ok(match node {
            Bound::AggregateFunction(_) => {
                has_aggregate = true;
                TreeNodeRecursion::Jump
            }
            Bound::WindowFunction(_) => {
                has_window = true;
                TreeNodeRecursion::Jump
            }
            Bound::Column(_) => {
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

/// Refuses defaults that are no expressions of constants.
fn check_defaults(reader: &Reader<'_>, session: &Session, function: &SqlFunction) -> SqlResult<()> {
    for default in &function.defaults {
        if default.walk(&mut Queries).is_break() {
            let message = "a subquery in the default of a parameter is not supported";
            return Err(SqlError::unsupported(message));
        }
        df(Binder::new(session.database().state(), reader).expression(default, &DFSchema::empty()))?;
    }
    Ok(())
}

/// The same of a body that is a query. It is read again whenever it is called, so that the relations that it names may come and go.
fn check_query(
    session: &Session,
    scope: &Scope,
    name: &str,
    def: &FunctionDef,
) -> SqlResult<Vec<millrace_storage::ObjectId>> {
    let reader = session.database().reader(scope);
    if let Some(body) = def.expression() {
        check_names(&reader, def, body)?;
    }
    let function = reader.inlined(def, name)?;
    check_defaults(&reader, session, &function)?;
    let mut body = function.body;
    let _ = walk_expressions_mut(&mut body, |expr| {
        if let Expr::Identifier(parameter) = &*expr {
            let name = millrace_parser::fold(parameter);
            if def.parameters.iter().any(|(parameter, _)| *parameter == name) {
                *expr = Expr::value(ast::Value::Null);
            }
        }
        ControlFlow::<()>::Continue(())
    });
    let query = match body {
        Expr::Subquery(query) => query,
        value => {
            let mut statement = select::parse_query("SELECT 1")?;
            if let ast::Statement::Query(query) = &mut statement
                && let ast::SetExpr::Select(select) = query.body.as_mut()
            {
                select.projection = vec![ast::SelectItem::UnnamedExpr(value)];
            }
            match statement {
                ast::Statement::Query(query) => query,
                _ => return Err(SqlError::internal("SELECT 1 is no query")),
            }
        }
    };
    reader.bind_query(&query).map_err(
        |error| match error.message.starts_with("Source table contains ") {
            true => SqlError::new(
                SqlState::InvalidFunctionDefinition,
                "the body does not have as many columns as the function returns",
            ),
            false => error,
        },
    )?;
    let is_relation = |id: &millrace_storage::ObjectId| {
        let object = scope.catalog.object(*id);
        object.is_some_and(|object| {
            !matches!(
                object.kind,
                ObjectKind::Function | ObjectKind::Type | ObjectKind::Domain
            )
        })
    };
    let names = reader.names().into_iter().map(|name| name.object);
    Ok(names.filter(|id| !is_relation(id)).collect())
}

/// Refuses a parameter that is called as a column of a relation in the body: PostgreSQL means the column by it.
fn check_names(reader: &Reader<'_>, def: &FunctionDef, body: &Expr) -> SqlResult<()> {
    struct Relations(Vec<String>);
    impl Visitor for Relations {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
            self.0.push(name.to_string());
            ControlFlow::Continue(())
        }
    }
    let mut relations = Relations(vec![]);
    let _ = body.walk(&mut relations);
    for name in relations.0 {
        // What is not there, or is a query of WITH, the binder knows of.
        let Ok(table) = CatalogReader::table(reader, &TableReference::parse_str(&name)) else {
            continue;
        };
        let has = |parameter: &String| table.schema().field_with_name(parameter).is_ok();
        if let Some((parameter, _)) = def.parameters.iter().find(|(parameter, _)| has(parameter)) {
            return Err(SqlError::unsupported(format!(
                "parameter \"{parameter}\" of a function is called as a column of \"{name}\" in its body"
            ))
            .with_hint("Give the parameter another name, or none and write $1."));
        }
    }
    Ok(())
}

/// Stops at the first query.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
