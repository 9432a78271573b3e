//! Parameters of statements: `$1` and its like, found, typed, and replaced by values.
//!
//! A statement is bound again at each execution, with its parameters in the AST as literals with their types. What a
//! parameter's type is when the client does not say is found out by [`inference`] from where it stands.

mod inference;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr, UpdateTableFromKind, Value, VisitorMut};
use millrace_catalog::scope::Scope;
use millrace_functions::{cast, syntax};
use millrace_parser::Parsed;
use millrace_parser::ast::{CopySource, Explain, ExplainTarget, ShowTarget, Statement};
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::{self, output};
use postgres_types::Type;

use self::inference::Found;
use crate::changes;
use crate::names;
use crate::object_names;
use crate::query::schema_of;
use crate::session::Session;
use crate::statement::returning::{self, Beside};
use crate::statement::with_changes::{self, Parts};
use crate::statement::{select, show, subscribe, token};

/// The types of a statement's parameters, and its columns if it answers with rows.
///
/// # Errors
/// Names or types do not bind, or the type of a parameter is not to be found out.
pub fn describe(
    session: &Session,
    parsed: &Parsed,
    given: &[Option<Type>],
) -> SqlResult<(Vec<Type>, Option<SchemaRef>)> {
    let scope = session.scope();
    let mut statement = parsed.statement.clone();
    let mut placeholders = Placeholders::default();
    crate::types::resolve(session, &mut statement)?;
    visit(&mut statement, &mut placeholders)?;
    let numbers: BTreeSet<usize> = placeholders.numbers.into_iter().collect();
    let mut found = Found::default();
    for (index, said) in given.iter().enumerate() {
        if let Some(pg) = said.as_ref().filter(|pg| **pg != Type::UNKNOWN) {
            found.types.insert(index + 1, pg.clone());
        }
    }
    if let Statement::Show(show) = &statement
        && let Some(select) = show::as_select(show)?
    {
        statement = Statement::Sql(Box::new(select));
    }
    let columns = match &statement {
        Statement::Sql(sql) => match sql.as_ref() {
            ast::Statement::Query(query) if changes::has_changes(query) => {
                describe_parts(session, scope, query, &numbers, &mut found)?
            }
            sql => describe_one(session, &scope, sql, sql, &numbers, &mut found)?,
        },
        Statement::Explain(_) | Statement::Show(_) | Statement::Describe(_) => {
            if let Some(sql) = inner_sql(&statement) {
                find_types(session, &scope, sql, &numbers, &mut found)?;
            }
            describe_listing(&statement)
        }
        Statement::Subscribe(of) => Some(subscribe::columns(session, of)?),
        Statement::CreateToken(_) => Some(show::schema(&[token::COLUMN])),
        Statement::Fetch(fetch) if fetch.only_moves => None,
        Statement::Fetch(fetch) => {
            let name = millrace_parser::fold(&fetch.cursor);
            session
                .cursors
                .lock()
                .get(&name)
                .map(|cursor| cursor.schema.clone())
        }
        _ => None,
    };
    let count = numbers.last().copied().unwrap_or(0).max(given.len());
    let mut types = vec![];
    for number in 1..=count {
        types.push(match found.types.get(&number) {
            Some(pg) => pg.clone(),
            None if found.hidden.contains(&number) => Type::TEXT,
            None => return Err(undetermined(number)),
        });
    }
    Ok((types, columns))
}

/// Finds out the types of a statement's parameters that are not known yet.
fn find_types(
    session: &Session,
    scope: &Scope,
    sql: &ast::Statement,
    numbers: &BTreeSet<usize>,
    found: &mut Found,
) -> SqlResult<()> {
    if numbers.iter().all(|number| found.types.contains_key(number)) {
        return Ok(());
    }
    let hidden = std::mem::take(&mut found.hidden);
    *found = inference::infer(session, scope, sql, std::mem::take(&mut found.types))?;
    found.hidden.extend(hidden);
    Ok(())
}

/// The columns of a statement. `whole` is the same with what stands before it.
fn describe_one(
    session: &Session,
    scope: &Scope,
    whole: &ast::Statement,
    sql: &ast::Statement,
    numbers: &BTreeSet<usize>,
    found: &mut Found,
) -> SqlResult<Option<SchemaRef>> {
    // Whether it may change what it changes is looked at when it runs.
    let scope = with_changes::scope_of(session, scope, sql);
    find_types(session, &scope, whole, numbers, found)?;
    let with = match whole {
        ast::Statement::Query(query) => query.with.as_ref(),
        _ => None,
    };
    describe_sql(session, &scope, with, sql, found)
}

/// The columns of a statement with changes in it, part by part.
fn describe_parts(
    session: &Session,
    mut scope: Scope,
    query: &ast::Query,
    numbers: &BTreeSet<usize>,
    found: &mut Found,
) -> SqlResult<Option<SchemaRef>> {
    let Parts { before, last } = Parts::of(query)?;
    for (place, (alias, part)) in before.iter().enumerate() {
        let sql = part.change()?;
        match describe_one(session, &scope, &part.clone().whole()?, &sql, numbers, found)? {
            Some(columns) => with_changes::with_rows(&mut scope, alias, &columns, vec![])?,
            None => {
                let behind = before[place + 1..].iter().map(|(_, part)| part);
                with_changes::without_rows(alias, behind.chain([&last]))?;
            }
        }
    }
    let sql = last.change()?;
    describe_one(session, &scope, &last.whole()?, &sql, numbers, found)
}

/// The query or change of rows in a statement.
fn inner_sql(statement: &Statement) -> Option<&ast::Statement> {
    match statement {
        Statement::Sql(sql) => Some(sql.as_ref()),
        Statement::Explain(explain) => match &explain.target {
            ExplainTarget::Statement(inner) => inner_sql(inner),
            _ => None,
        },
        _ => None,
    }
}

fn undetermined(number: usize) -> SqlError {
    SqlError::new(
        SqlState::IndeterminateDatatype,
        format!("could not determine data type of parameter ${number}"),
    )
    .with_hint(format!("Say it with a cast, as in ${number}::text."))
}

/// The statement with NULLs of their types in the place of the parameters that are known, and without LIMIT clauses that have some:
/// what columns it has does not depend on them.
fn for_description(statement: ast::Statement, types: &BTreeMap<usize, Type>) -> SqlResult<ast::Statement> {
    let literals = types
        .iter()
        .map(|(number, pg)| Ok((*number, typed_null(pg)?)))
        .collect::<SqlResult<_>>()?;
    let mut statement = Statement::Sql(Box::new(statement));
    visit(&mut statement, &mut Described { literals })?;
    match statement {
        Statement::Sql(sql) => Ok(*sql),
        _ => Err(SqlError::internal("a statement of SQL became another")),
    }
}

/// NULL of a type.
fn typed_null(pg: &Type) -> SqlResult<Expr> {
    let data_type = types::from_pg(pg).map_or(DataType::Utf8, |sql_type| sql_type.data_type);
    literal(&df(ScalarValue::try_from(&data_type))?, Some(pg))
}

fn describe_listing(statement: &Statement) -> Option<SchemaRef> {
    match statement {
        Statement::Explain(explain) => {
            let Explain { target, .. } = explain.as_ref();
            match target {
                ExplainTarget::Statement(_)
                | ExplainTarget::MaterializedView(_)
                | ExplainTarget::MaterializedViews
                | ExplainTarget::Profile(_)
                | ExplainTarget::Sink(_) => Some(show::schema(&["QUERY PLAN"])),
            }
        }
        Statement::Show(show_statement) => Some(show::columns(&show_statement.target)),
        Statement::Describe(name) => Some(show::columns(&ShowTarget::Columns(name.clone()))),
        _ => None,
    }
}

fn describe_sql(
    session: &Session,
    scope: &Scope,
    with: Option<&ast::With>,
    sql: &ast::Statement,
    found: &mut Found,
) -> SqlResult<Option<SchemaRef>> {
    match sql {
        ast::Statement::Query(_) => {
            let bind = |mut query: ast::Statement| {
                object_names::shown(&mut query);
                select::bind(session, scope, &mut query, select::Purpose::Describe)
            };
            // Where a function wants a constant, a parameter may stand and NULL may not.
            let bound = for_description(sql.clone(), &found.types).and_then(bind);
            let (plan, columns) = bound.or_else(|error| bind(sql.clone()).map_err(|_| error))?;
            learn(&plan, found)?;
            Ok(Some(columns.applied(&schema_of(&plan))))
        }
        ast::Statement::Insert(insert) => {
            let object = names::insert_target(session, scope, insert)?;
            let relation = crate::write::writable(&object, "insert into")?;
            if let Some(source) = &insert.source
                && !matches!(source.body.as_ref(), SetExpr::Values(_))
            {
                let mut query = for_description(ast::Statement::Query(source.clone()), &found.types)?;
                if let Ok((plan, _)) = select::bind(session, scope, &mut query, select::Purpose::Describe) {
                    learn(&plan, found)?;
                }
            }
            let name = match &insert.table_alias {
                Some(alias) => millrace_parser::fold(&alias.alias),
                None => names::last_of_table(&insert.table),
            };
            let items = insert.returning.as_deref();
            returning_columns(session, scope, relation, &name, (items, with), &[], found)
        }
        ast::Statement::Update(update) => {
            let (name, alias) = names::single_table(&update.table)?;
            let object = names::resolve(session, scope, &name)?;
            let relation = crate::write::table(&object, "update")?;
            let items = update.returning.as_deref();
            returning_columns(
                session,
                scope,
                relation,
                &alias.unwrap_or_else(|| names::last(&name)),
                (items, with),
                match &update.from {
                    Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) => {
                        tables
                    }
                    None => &[],
                },
                found,
            )
        }
        ast::Statement::Delete(delete) => {
            let (name, alias) = names::delete_target(delete)?;
            let object = names::resolve(session, scope, &name)?;
            let relation = crate::write::table(&object, "delete from")?;
            let items = delete.returning.as_deref();
            returning_columns(
                session,
                scope,
                relation,
                &alias.unwrap_or_else(|| names::last(&name)),
                (items, with),
                delete.using.as_deref().unwrap_or_default(),
                found,
            )
        }
        ast::Statement::Execute { name: Some(name), .. } => {
            let name = names::last(name);
            Ok(session
                .prepared
                .lock()
                .get(&name)
                .and_then(|prepared| prepared.columns.clone()))
        }
        _ => Ok(None),
    }
}

fn returning_columns(
    session: &Session,
    scope: &Scope,
    relation: &millrace_catalog::Relation,
    name: &str,
    (items, with): (Option<&[ast::SelectItem]>, Option<&ast::With>),
    beside: &[ast::TableWithJoins],
    found: &Found,
) -> SqlResult<Option<SchemaRef>> {
    let Some(items) = items else { return Ok(None) };
    // A list of columns is part of a query, and so are the relations that it may name.
    let mut query = select::parse_query("SELECT 1")?;
    if let ast::Statement::Query(body) = &mut query
        && let SetExpr::Select(select) = body.body.as_mut()
    {
        select.projection = items.to_vec();
        select.from = beside.to_vec();
        body.with = with.cloned();
    }
    let ast::Statement::Query(query) = for_description(query, &found.types)? else {
        return Ok(None);
    };
    let SetExpr::Select(select) = *query.body else {
        return Ok(None);
    };
    let (items, tables) = (select.projection, select.from);
    let beside = Beside::of(session, scope, query.with.as_ref(), &tables)?;
    let (plan, columns) = returning::bind(session, scope, relation, name, &items, vec![], beside)?;
    Ok(Some(columns.applied(&schema_of(&plan))))
}

/// Keeps what a bound plan knows of parameters whose places are not known here.
fn learn(plan: &LogicalPlan, found: &mut Found) -> SqlResult<()> {
    if found.hidden.is_empty() {
        return Ok(());
    }
    for (name, field) in df(plan.get_parameter_fields())? {
        if let (Some(number), Some(field)) = (number_of(&name), field)
            && field.data_type() != &DataType::Null
            && found.hidden.contains(&number)
        {
            found
                .types
                .entry(number)
                .or_insert_with(|| types::pg_type(&field));
        }
    }
    Ok(())
}

/// The most parameters that a statement has: the protocol counts them with 16 bits.
const PARAMETERS_MAX: usize = 65_535;

fn no_parameter(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedParameter,
        format!("there is no parameter {name}"),
    )
}

fn number_of(placeholder: &str) -> Option<usize> {
    placeholder
        .strip_prefix('$')?
        .parse()
        .ok()
        .filter(|number| *number > 0)
}

/// Replaces the parameters of a statement by their values.
///
/// # Errors
/// A parameter has no value.
pub fn substitute(statement: &mut Statement, types: &[Type], params: &[ScalarValue]) -> SqlResult<()> {
    let literals = params
        .iter()
        .enumerate()
        .map(|(index, value)| literal(value, types.get(index)))
        .collect::<SqlResult<_>>()?;
    visit(statement, &mut Substitution { literals })
}

/// Runs a visitor over the queries and expressions in a statement.
fn visit<V: VisitorMut<Break = Box<SqlError>>>(statement: &mut Statement, visitor: &mut V) -> SqlResult<()> {
    let flow = match statement {
        // What PREPARE prepares has parameters of its own.
        Statement::Sql(sql) => match sql.as_mut() {
            ast::Statement::Prepare { .. } => ControlFlow::Continue(()),
            sql => sql.walk_mut(visitor),
        },
        Statement::Copy(copy) => match &mut copy.source {
            CopySource::Query(query) => query.walk_mut(visitor),
            _ => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => match &mut explain.target {
            ExplainTarget::Statement(inner) => return visit(inner, visitor),
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[derive(Default)]
struct Placeholders {
    numbers: Vec<usize>,
}

impl VisitorMut for Placeholders {
    type Break = Box<SqlError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
        {
            match number_of(name).filter(|number| *number <= PARAMETERS_MAX) {
                Some(number) => self.numbers.push(number),
                None => return ControlFlow::Break(Box::new(no_parameter(name))),
            }
        }
        ControlFlow::Continue(())
    }
}

struct Described {
    literals: BTreeMap<usize, Expr>,
}

impl VisitorMut for Described {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Self::Break> {
        let has_some = |clause: &dyn Display| clause.to_string().contains('$');
        if query.limit_clause.as_ref().is_some_and(|clause| has_some(clause)) {
            query.limit_clause = None;
        }
        if query.fetch.as_ref().is_some_and(|fetch| has_some(fetch)) {
            query.fetch = None;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
            && let Some(literal) = number_of(name).and_then(|number| self.literals.get(&number))
        {
            *expr = literal.clone();
        }
        ControlFlow::Continue(())
    }
}

struct Substitution {
    literals: Vec<Expr>,
}

impl VisitorMut for Substitution {
    type Break = Box<SqlError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
        {
            match number_of(name).and_then(|number| self.literals.get(number - 1)) {
                Some(literal) => *expr = literal.clone(),
                None => return ControlFlow::Break(Box::new(no_parameter(name))),
            }
        }
        ControlFlow::Continue(())
    }
}

/// A value as a literal that has its type when it is bound.
///
/// # Errors
/// The value has no text form.
pub fn literal(value: &ScalarValue, pg: Option<&Type>) -> SqlResult<Expr> {
    let annotated = pg.and_then(types::from_pg);
    let data_type = value.data_type();
    let field = match annotated {
        Some(sql_type) if sql_type.data_type == data_type => sql_type.field("parameter", true),
        _ => Field::new("parameter", data_type, true),
    };
    let name = types::sql_name(&field);
    if value.is_null() {
        return Ok(syntax::call(
            cast::NAME,
            vec![Expr::value(Value::Null), syntax::text(&name)],
        ));
    }
    match value {
        ScalarValue::Utf8(Some(text))
            if pg.is_none_or(|pg| matches!(*pg, Type::TEXT | Type::VARCHAR | Type::UNKNOWN)) =>
        {
            Ok(syntax::text(text))
        }
        // char(n) is held without its padding.
        ScalarValue::Utf8(Some(text)) if pg == Some(&Type::BPCHAR) => {
            Ok(syntax::text(text.trim_end_matches(' ')))
        }
        ScalarValue::Boolean(Some(value)) => Ok(Expr::value(Value::Boolean(*value))),
        ScalarValue::Int64(Some(value)) if *value >= 0 => {
            Ok(Expr::value(Value::Number(value.to_string(), false)))
        }
        other => {
            let array = df(other.to_array())?;
            let text = output::text(&field, &array, 0);
            Ok(syntax::call(
                cast::NAME,
                vec![syntax::text(&text), syntax::text(&name)],
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_literals_of_their_type() {
        let show = |value: ScalarValue, pg: Type| literal(&value, Some(&pg)).unwrap().to_string();
        assert_eq!(
            show(ScalarValue::Utf8(Some("it's".into())), Type::TEXT),
            "'it''s'"
        );
        assert_eq!(
            show(ScalarValue::Int32(Some(-7)), Type::INT4),
            "pg_cast('-7', 'integer')"
        );
        assert_eq!(show(ScalarValue::Int64(Some(7)), Type::INT8), "7");
        assert_eq!(
            show(ScalarValue::Float64(None), Type::FLOAT8),
            "pg_cast(NULL, 'double precision')"
        );
        assert_eq!(
            show(ScalarValue::Utf8(Some("{}".into())), Type::JSONB),
            "pg_cast('{}', 'jsonb')"
        );
    }

    #[test]
    fn a_missing_parameter_is_an_error() {
        let mut statement = millrace_parser::parse("select $1, $2")
            .unwrap()
            .remove(0)
            .statement;
        let error = substitute(&mut statement, &[], &[ScalarValue::Int64(Some(1))]).unwrap_err();
        assert_eq!(error.code, SqlState::UndefinedParameter);
    }
}
