//! Parameters of statements: `$1` and its like, found, typed, and replaced by values.
//!
//! A statement is bound again at each execution, with its parameters in the AST as literals with their types. What a
//! parameter's type is when the client does not say is found out where it stands: beside what it is compared with, or in
//! the place of which column.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr, Value, VisitMut, VisitorMut};
use millrace_catalog::scope::Scope;
use millrace_database::database::rows::positions;
use millrace_functions::{cast, syntax};
use millrace_parser::Parsed;
use millrace_parser::ast::{CopySource, Explain, ExplainTarget, ShowTarget, Statement};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::{self, output};
use postgres_types::Type;

use crate::names;
use crate::query::{renamed, schema_of};
use crate::session::Session;
use crate::statement::{select, show, subscribe};

/// The types of a statement's parameters, and its columns if it answers with rows.
///
/// # Errors
/// Names or types do not bind.
pub fn describe(
    session: &Session,
    parsed: &Parsed,
    given: &[Option<Type>],
) -> SqlResult<(Vec<Type>, Option<SchemaRef>)> {
    let scope = session.scope();
    let mut found: BTreeMap<usize, Option<Type>> = BTreeMap::new();
    let mut statement = parsed.statement.clone();
    let mut placeholders = Placeholders::default();
    visit(&mut statement, &mut placeholders)?;
    for number in placeholders.numbers {
        found.insert(number, None);
    }
    if let Statement::Show(show) = &statement
        && let Some(select) = show::as_select(show)?
    {
        statement = Statement::Sql(Box::new(select));
    }
    let columns = match &mut statement {
        Statement::Sql(sql) => describe_sql(session, &scope, sql, &mut found)?,
        Statement::Explain(_) | Statement::Show(_) | Statement::Describe(_) => describe_listing(&statement),
        Statement::Subscribe(of) => Some(subscribe::columns(session, of)?),
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
    let count = found.keys().next_back().copied().unwrap_or(0).max(given.len());
    let types = (1..=count)
        .map(|number| {
            let said = given
                .get(number - 1)
                .cloned()
                .flatten()
                .filter(|pg| *pg != Type::UNKNOWN);
            said.or_else(|| found.get(&number).cloned().flatten())
                .unwrap_or(Type::TEXT)
        })
        .collect();
    Ok((types, columns))
}

fn describe_listing(statement: &Statement) -> Option<SchemaRef> {
    match statement {
        Statement::Explain(explain) => {
            let Explain { target, .. } = explain.as_ref();
            match target {
                ExplainTarget::Statement(_) | ExplainTarget::MaterializedView(_) | ExplainTarget::Sink(_) => {
                    Some(show::schema(&["QUERY PLAN"]))
                }
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
    sql: &mut ast::Statement,
    found: &mut BTreeMap<usize, Option<Type>>,
) -> SqlResult<Option<SchemaRef>> {
    if let ast::Statement::Query(query) = sql
        && let Some(insert) = crate::statement::insert::with_before(query)
    {
        *sql = insert;
    }
    match sql {
        ast::Statement::Query(_) => {
            let (plan, names) = select::bind(session, scope, sql, select::Purpose::Describe)?;
            learn(&plan, found)?;
            Ok(Some(renamed(&schema_of(&plan), &names)))
        }
        ast::Statement::Insert(insert) => {
            let object = names::insert_target(session, scope, insert)?;
            let relation = crate::write::writable(&object, "insert into")?;
            let columns: Vec<String> = insert.columns.iter().map(names::last).collect();
            let given = match columns.is_empty() {
                true => (0..relation.columns.len()).collect(),
                false => positions(relation, &columns)?,
            };
            if let Some(source) = &mut insert.source {
                if let SetExpr::Values(values) = source.body.as_ref() {
                    for row in &values.rows {
                        for (expr, position) in row.content.iter().zip(&given) {
                            if let Some(number) = placeholder(expr) {
                                let pg = types::pg_type(relation.schema().field(*position));
                                found.insert(number, Some(pg));
                            }
                        }
                    }
                } else {
                    let mut query = ast::Statement::Query(source.clone());
                    let (plan, _) = select::bind(session, scope, &mut query, select::Purpose::Describe)?;
                    learn(&plan, found)?;
                }
            }
            returning(
                session,
                scope,
                relation,
                &names::last_of_table(&insert.table),
                insert.returning.as_deref(),
            )
        }
        ast::Statement::Update(update) => {
            let (name, alias) = names::single_table(&update.table)?;
            let object = names::resolve(session, scope, &name)?;
            let relation = crate::write::table(&object, "update")?;
            for assignment in &update.assignments {
                if let (ast::AssignmentTarget::ColumnName(column), Some(number)) =
                    (&assignment.target, placeholder(&assignment.value))
                    && let Ok(field) = relation.schema().field_with_name(&names::last(column))
                {
                    found.insert(number, Some(types::pg_type(field)));
                }
            }
            learn_condition(
                session,
                scope,
                &name,
                alias.as_deref(),
                update.selection.as_ref(),
                found,
            )?;
            returning(
                session,
                scope,
                relation,
                &alias.unwrap_or_else(|| names::last(&name)),
                update.returning.as_deref(),
            )
        }
        ast::Statement::Delete(delete) => {
            let (name, alias) = names::delete_target(delete)?;
            let object = names::resolve(session, scope, &name)?;
            let relation = crate::write::table(&object, "delete from")?;
            learn_condition(
                session,
                scope,
                &name,
                alias.as_deref(),
                delete.selection.as_ref(),
                found,
            )?;
            returning(
                session,
                scope,
                relation,
                &alias.unwrap_or_else(|| names::last(&name)),
                delete.returning.as_deref(),
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

/// The types of parameters in the WHERE of an UPDATE or DELETE.
fn learn_condition(
    session: &Session,
    scope: &Scope,
    name: &ast::ObjectName,
    alias: Option<&str>,
    condition: Option<&Expr>,
    found: &mut BTreeMap<usize, Option<Type>>,
) -> SqlResult<()> {
    let Some(condition) = condition else { return Ok(()) };
    let alias = alias
        .map(|alias| format!(" AS {}", millrace_parser::quote_identifier(alias)))
        .unwrap_or_default();
    let text = format!("SELECT * FROM {name}{alias} WHERE {condition}");
    let mut query = select::parse_query(&text)?;
    match select::bind(session, scope, &mut query, select::Purpose::Describe) {
        Ok((plan, _)) => learn(&plan, found),
        // With FROM or USING there are more names than these; the parameters stay what the client says they are.
        Err(error) if matches!(error.code, SqlState::UndefinedColumn | SqlState::UndefinedTable) => Ok(()),
        Err(error) => Err(error),
    }
}

fn returning(
    session: &Session,
    scope: &Scope,
    relation: &millrace_catalog::Relation,
    name: &str,
    items: Option<&[ast::SelectItem]>,
) -> SqlResult<Option<SchemaRef>> {
    let Some(items) = items else { return Ok(None) };
    let (plan, names) = crate::statement::returning::bind(session, scope, relation, name, items, vec![])?;
    Ok(Some(renamed(&schema_of(&plan), &names)))
}

/// Keeps what a bound plan knows of its parameters.
fn learn(plan: &LogicalPlan, found: &mut BTreeMap<usize, Option<Type>>) -> SqlResult<()> {
    for (name, field) in df(plan.get_parameter_fields())? {
        if let (Some(number), Some(field)) = (number_of(&name), field)
            && field.data_type() != &DataType::Null
        {
            found.insert(number, Some(types::pg_type(&field)));
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

fn placeholder(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => number_of(name),
            _ => None,
        },
        Expr::Nested(inner) => placeholder(inner),
        _ => None,
    }
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
            sql => sql.visit(visitor),
        },
        Statement::Copy(copy) => match &mut copy.source {
            CopySource::Query(query) => query.visit(visitor),
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
    let name = types::type_name(&field);
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
