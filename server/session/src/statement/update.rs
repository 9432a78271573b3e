//! UPDATE: one query gives each row that changes and its new values; the change is the old row -1 and the new row +1.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Field, Int64Type};
use datafusion::sql::sqlparser::ast::{
    self, Assignment, AssignmentTarget, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    SelectItem, SetExpr, Update, UpdateTableFromKind, With,
};
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{Object, Relation};
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_database::running::Running;
use millrace_functions::arrays::assigned::assigned;
use millrace_functions::sql::{clock_words, set_places};
use millrace_functions::{own, records, syntax};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::{from_internal, types};
use millrace_storage::{ChangeBatch, rows_bytes};

use crate::access;
use crate::keys::check_unique;
use crate::outcome::{CommandTag, Outcome};
use crate::sequences;
use crate::session::Session;
use crate::statement::by_key;
use crate::statement::returning::{self, Beside, Changed, ROW};
use crate::statement::select;
use crate::statement_memory::check_columns;
use crate::{names, write};

/// The columns that a statement assigns, and to what.
pub(crate) struct Assigned {
    /// Positions in the table.
    columns: Vec<usize>,
    values: Vec<Expr>,
    /// The type and the name of each column.
    types: Vec<(String, String)>,
}

impl Assigned {
    /// Checks assignments. `shown`: what the table is called in the statement.
    ///
    /// # Errors
    /// A column is unknown, generated, or assigned twice.
    pub fn new(
        session: &Session,
        scope: &Scope,
        relation: &Relation,
        shown: &str,
        assignments: &[Assignment],
    ) -> SqlResult<Self> {
        for assignment in assignments {
            let targets = match &assignment.target {
                AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
                AssignmentTarget::Tuple(names) => names.as_slice(),
            };
            targets.iter().try_for_each(|name| unqualified(relation, name))?;
            set_places::check_assigned(&assignment.value)?;
        }
        let assignments = with_elements(relation, shown, one_by_one(assignments)?)?;
        let names: Vec<String> = assignments.iter().map(|(name, _)| name.clone()).collect();
        let columns = positions(relation, &names).map_err(|error| {
            if error.code == SqlState::DuplicateColumn {
                SqlError::new(
                    SqlState::SyntaxError,
                    error
                        .message
                        .replace("column ", "multiple assignments to same column ")
                        .replace(" specified more than once", ""),
                )
            } else {
                error
            }
        })?;
        let mut values = vec![];
        let mut types = vec![];
        for ((_, value), position) in assignments.into_iter().zip(&columns) {
            let column = &relation.columns[*position];
            types.push((types::sql_name(&column.field), column.field.name().clone()));
            let default = matches!(&value, Expr::Identifier(name)
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"));
            let is_always = column
                .sequence
                .is_some_and(|sequence| sequence.takes == Takes::IdentityAlways);
            if is_always && !default {
                return Err(always_identity(column.field.name(), "updated to DEFAULT"));
            }
            if column.generated.is_some() && !default {
                return Err(SqlError::new(
                    SqlState::GeneratedAlways,
                    format!(
                        "column \"{}\" can only be updated to DEFAULT",
                        column.field.name()
                    ),
                )
                .with_detail(format!(
                    "Column \"{}\" is a generated column.",
                    column.field.name()
                )));
            }
            values.push(if default {
                sequences::default_of(session, scope, column, None)?
            } else {
                clock_words::in_column(&value, &column.field).unwrap_or(value)
            });
        }
        Ok(Assigned {
            columns,
            values,
            types,
        })
    }

    /// The values, as their columns take them.
    pub(crate) fn values(&self) -> impl Iterator<Item = Expr> {
        let each = self.values.iter().zip(&self.types);
        each.map(|(value, (name, column))| as_column(value, name, column))
    }

    /// What follows the table's own columns in the select list.
    pub(crate) fn select_list(&self) -> String {
        let each = self.values().enumerate();
        each.map(|(index, value)| format!(", {value} AS \"assigned {index}\""))
            .collect()
    }

    /// Whether one of these columns is assigned.
    pub(crate) fn touches(&self, columns: &[usize]) -> bool {
        columns.iter().any(|column| self.columns.contains(column))
    }
}

/// A value as a column of this type and name takes it.
pub(crate) fn as_column(value: &Expr, type_name: &str, column: &str) -> Expr {
    syntax::assigned(value, type_name, column)
}

/// The error of a value for a column whose values are those of its sequence.
fn always_identity(column: &str, only: &str) -> SqlError {
    SqlError::new(
        SqlState::GeneratedAlways,
        format!("column \"{column}\" can only be {only}"),
    )
    .with_detail(format!(
        "Column \"{column}\" is an identity column defined as GENERATED ALWAYS."
    ))
}

/// Refuses `SET t.a = ..`: what is assigned is the column of a relation that is known.
fn unqualified(relation: &Relation, name: &ast::ObjectName) -> SqlResult<()> {
    let [first, _, ..] = name.0.as_slice() else {
        return Ok(());
    };
    let first = (first.as_ident()).map_or_else(|| first.to_string(), millrace_parser::fold);
    if relation
        .columns
        .iter()
        .any(|column| *column.field.name() == first)
    {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::UndefinedColumn,
        format!(
            "column \"{first}\" of relation \"{}\" does not exist",
            relation.info.name
        ),
    )
    .with_hint("A column that is assigned stands without the name of its relation."))
}

/// Assignments of single columns: `(a, b) = (1, 2)` is two of them.
fn one_by_one(assignments: &[Assignment]) -> SqlResult<Vec<(String, Expr)>> {
    let mut all = vec![];
    for assignment in assignments {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => all.push(of_column(name, assignment.value.clone())),
            AssignmentTarget::Tuple(columns) => {
                let values = row_values(&assignment.value)?;
                if values.len() != columns.len() {
                    return Err(SqlError::new(
                        SqlState::SyntaxError,
                        "number of columns does not match number of values",
                    ));
                }
                let columns = columns.iter().zip(values);
                all.extend(columns.map(|(name, value)| of_column(name, value)));
            }
        }
    }
    Ok(all)
}

/// An assignment by the name of its column; one to an attribute of the column says so.
fn of_column(name: &ast::ObjectName, value: Expr) -> (String, Expr) {
    let parts = name.0.iter();
    let parts = parts.map(|part| {
        part.as_ident()
            .map_or_else(|| part.to_string(), millrace_parser::fold)
    });
    let parts: Vec<String> = parts.collect();
    match parts.as_slice() {
        [column, attributes @ ..] if !attributes.is_empty() => {
            (column.clone(), records::assignment(value, attributes))
        }
        _ => (names::last(name), value),
    }
}

/// Assignments to elements of arrays, and to attributes of rows, as ones of whole columns; those to one column are one.
fn with_elements(
    relation: &Relation,
    shown: &str,
    assignments: Vec<(String, Expr)>,
) -> SqlResult<Vec<(String, Expr)>> {
    let mut all: Vec<(String, Expr, bool)> = vec![];
    for (name, value) in assignments {
        let column = relation
            .columns
            .iter()
            .find(|column| *column.field.name() == name);
        let earlier = all
            .iter()
            .position(|(known, _, of_element)| *of_element && *known == name);
        let before = match earlier {
            Some(index) => all[index].1.clone(),
            None => {
                Expr::CompoundIdentifier(vec![Ident::with_quote('"', shown), Ident::with_quote('"', &name)])
            }
        };
        let of_element = match column {
            Some(column) => match records::assigned(&value, &before, &column.field)? {
                Some(value) => Some(value),
                None => assigned(&value, &before, &column.field)?,
            },
            None => None,
        };
        match (of_element, earlier) {
            (Some(value), Some(index)) => all[index].1 = value,
            (Some(value), None) => all.push((name, value, true)),
            (None, _) => all.push((name, value, false)),
        }
    }
    Ok(all.into_iter().map(|(name, value, _)| (name, value)).collect())
}

/// The values of a row that is assigned: `(1, 2)`, `ROW(1, 2)`, or a subquery for each of its columns.
fn row_values(value: &Expr) -> SqlResult<Vec<Expr>> {
    match value {
        Expr::Tuple(values) => return Ok(values.clone()),
        Expr::Nested(inner) => return Ok(vec![inner.as_ref().clone()]),
        Expr::Function(function) if names::last(&function.name) == "row" => {
            if let FunctionArguments::List(list) = &function.args {
                return Ok(list
                    .args
                    .iter()
                    .filter_map(|argument| match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                        _ => None,
                    })
                    .collect());
            }
        }
        Expr::Subquery(query) => {
            if let SetExpr::Select(select) = query.body.as_ref()
                && select.distinct.is_none()
            {
                let one = |item: &SelectItem| {
                    let mut query = query.clone();
                    if let SetExpr::Select(select) = query.body.as_mut() {
                        select.projection = vec![item.clone()];
                    }
                    Expr::Subquery(query)
                };
                return Ok(select.projection.iter().map(one).collect());
            }
        }
        _ => {}
    }
    Err(SqlError::unsupported(
        "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
    )
    .with_hint("Assign the columns one by one."))
}

/// Executes UPDATE.
pub async fn execute(session: &Arc<Session>, update: Update, running: Running) -> SqlResult<Outcome> {
    let changed = change(session, session.scope(), None, update).await?;
    Ok(changed.outcome(session, running))
}

/// Makes the change of an UPDATE behind a WITH clause.
///
/// # Errors
/// Whatever is wrong with it; nothing was changed then.
pub(crate) async fn change(
    session: &Arc<Session>,
    scope: Scope,
    with: Option<&With>,
    update: Update,
) -> SqlResult<Changed> {
    let object = target(session, &scope, &update)?;
    let scope = access::changing(scope, object.id);
    let relation = write::table(&object, "update")?;
    let Bound {
        shown,
        assigned,
        mut beside,
        text,
        is_joined,
    } = bind(session, &scope, with, &update, relation)?;
    let write = session.begin_write(relation).await?;
    let by_key = match is_joined || with.is_some() {
        true => None,
        false => {
            let values = assigned
                .columns
                .iter()
                .zip(&assigned.values)
                .zip(assigned.values());
            let change = by_key::Change {
                relation,
                called: &shown,
                condition: update.selection.as_ref(),
                assigned: values
                    .map(|((column, value), as_column)| (*column, value, as_column))
                    .collect(),
            };
            by_key::rows(session, &scope, &change, &write).await?
        }
    };
    let batches = match by_key {
        Some(batches) => batches,
        None => changing_rows(session, &scope, relation, &text, write.current().await?).await?,
    };
    // Rows before and after, each as a whole, and both.
    let bytes: usize = batches.iter().map(rows_bytes).sum();
    check_columns(&batches)?;
    let _charge = session.keep_rows(bytes * 2)?;
    let batches = once_each(batches, is_joined)?;
    Beside::take(
        &mut beside,
        relation.columns.len() + assigned.columns.len(),
        &batches,
    )?;
    let (old, new) = new_rows(session, &scope, relation, &assigned, &batches)?;
    if write.in_transaction() && assigned.touches(relation.key()) {
        check_unique(session, relation, write.current().await?, &new, &old).await?;
    }
    let count: usize = new.iter().map(RecordBatch::num_rows).sum();
    let mut changes = vec![];
    if count > 0 {
        // All in one batch: a key that moves from one row to another must not meet itself half way.
        let old = concat_batches(relation.schema(), &old).map_err(from_internal::arrow)?;
        let new = concat_batches(relation.schema(), &new).map_err(from_internal::arrow)?;
        let both = concat_batches(relation.schema(), [&old, &new]).map_err(from_internal::arrow)?;
        let weights =
            Int64Array::from_iter_values((0..2 * count).map(|row| if row < count { -1 } else { 1 }));
        changes.push(ChangeBatch::new(both, Some(weights))?);
    }
    let items = update.returning.as_deref();
    let returned = returning::evaluate(session, &scope, relation, &shown, items, new, beside).await?;
    write.finish(changes).await?;
    let tag = CommandTag::rows("UPDATE", count as u64);
    Ok(Changed { returned, tag })
}

/// What an UPDATE is about to do.
struct Bound {
    /// What the table is called in the statement.
    shown: String,
    assigned: Assigned,
    beside: Vec<Beside>,
    /// The query for the rows that change, and their new values.
    text: String,
    /// Whether a row of the table may come more than once.
    is_joined: bool,
}

fn target(session: &Session, scope: &Scope, update: &Update) -> SqlResult<Arc<Object>> {
    let (name, _) = names::single_table(&update.table)?;
    names::resolve(session, scope, &name)
}

fn bind(
    session: &Session,
    scope: &Scope,
    with: Option<&With>,
    update: &Update,
    relation: &Relation,
) -> SqlResult<Bound> {
    let (name, alias) = names::single_table(&update.table)?;
    if !update.order_by.is_empty() || update.limit.is_some() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "ORDER BY and LIMIT are not supported in UPDATE",
        ));
    }
    let shown = alias.unwrap_or_else(|| names::last(&name));
    let assigned = Assigned::new(session, scope, relation, &shown, &update.assignments)?;
    let tables = match &update.from {
        None => None,
        Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) => Some(tables),
    };
    let from = tables.map(|tables| names::joined(tables));
    let beside = match (tables, &update.returning) {
        (Some(tables), Some(_)) => Beside::of(session, scope, with, tables)?,
        _ => vec![],
    };
    let text = changing_query(
        with,
        relation,
        &name,
        &shown,
        &(assigned.select_list() + &Beside::select_list(&beside)),
        from.as_deref(),
        update.selection.as_ref(),
    );
    Ok(Bound {
        shown,
        assigned,
        beside,
        text,
        is_joined: from.is_some(),
    })
}

/// The table of an UPDATE, and the query for the rows that change with their new values.
///
/// # Errors
/// Whatever is wrong with it.
pub(crate) fn query(
    session: &Session,
    scope: &Scope,
    update: &Update,
) -> SqlResult<(Arc<Object>, ast::Statement)> {
    let object = target(session, scope, update)?;
    let relation = write::table(&object, "update")?;
    let bound = bind(session, scope, None, update, relation)?;
    Ok((object, changing_statement(&bound.text)?))
}

/// The columns of a relation that is called `table`.
fn columns(relation: &Relation, table: &str) -> String {
    let columns = relation.columns.iter();
    let names: Vec<String> = columns
        .map(|column| format!("{table}.{}", quote_identifier(column.field.name())))
        .collect();
    names.join(", ")
}

/// The query for the rows that a statement changes.
pub(crate) fn changing_query(
    with: Option<&With>,
    relation: &Relation,
    name: &datafusion::sql::sqlparser::ast::ObjectName,
    shown: &str,
    more: &str,
    from: Option<&str>,
    condition: Option<&Expr>,
) -> String {
    let table = quote_identifier(shown);
    let condition = condition
        .map(|condition| format!(" WHERE {condition}"))
        .unwrap_or_default();
    let with = with.map(|with| format!("{with} ")).unwrap_or_default();
    match from {
        None => format!("{with}SELECT {table}.*{more} FROM {name} AS {table}{condition}"),
        // Rows are numbered, so that one that is joined with several is known again.
        Some(from) => format!(
            "{with}SELECT {}{more}, {table}.\"{ROW}\" FROM (SELECT *, row_number() OVER () AS \"{ROW}\" FROM {name}) \
             AS {table}, {from}{condition}",
            columns(relation, &table)
        ),
    }
}

pub(crate) fn changing_statement(text: &str) -> SqlResult<ast::Statement> {
    let mut statement = select::parse_query(text)?;
    own::mark(&mut statement);
    Ok(statement)
}

/// The rows that a statement changes, read from the locked state.
pub(crate) async fn changing_rows(
    session: &Arc<Session>,
    scope: &Scope,
    relation: &Relation,
    text: &str,
    current: Arc<dyn datafusion::catalog::TableProvider>,
) -> SqlResult<Vec<RecordBatch>> {
    let mut statement = changing_statement(text)?;
    let (plan, _) = select::bind(session, scope, &mut statement, select::Purpose::Run)?;
    let mut instead = scope.before.clone();
    instead.insert(relation.info.id, current);
    session.collect(plan, &instead).await
}

/// Each row of the table at most once, however many rows it was joined with. Its number, the last column, goes.
pub(crate) fn once_each(batches: Vec<RecordBatch>, joined: bool) -> SqlResult<Vec<RecordBatch>> {
    if !joined {
        return Ok(batches);
    }
    let mut seen = HashSet::new();
    batches
        .into_iter()
        .map(|batch| {
            let last = batch.num_columns().saturating_sub(1);
            let numbers = batch.column(last).as_primitive::<Int64Type>();
            let first: BooleanArray = numbers.iter().map(|number| Some(seen.insert(number))).collect();
            let columns: Vec<usize> = (0..last).collect();
            batch
                .project(&columns)
                .and_then(|batch| filter_record_batch(&batch, &first))
                .map_err(from_internal::arrow)
        })
        .collect()
}

/// The rows before and after, from batches of the table's columns followed by the assigned values.
pub(crate) fn new_rows(
    session: &Session,
    scope: &Scope,
    relation: &Relation,
    assigned: &Assigned,
    batches: &[RecordBatch],
) -> SqlResult<(Vec<RecordBatch>, Vec<RecordBatch>)> {
    let width = relation.columns.len();
    let given = positions(relation, &[])?;
    let builder = RowBuilder::new(session.database(), scope, relation, &given)?;
    let mut old = vec![];
    let mut new = vec![];
    for batch in batches {
        let schema = batch.schema();
        let before = RecordBatch::try_new(Arc::clone(relation.schema()), batch.columns()[..width].to_vec())
            .map_err(from_internal::arrow)?;
        let columns: Vec<(Arc<Field>, ArrayRef)> = given
            .iter()
            .map(
                |column| match assigned.columns.iter().position(|target| target == column) {
                    Some(index) => {
                        let at = width + index;
                        (
                            Arc::clone(&schema.fields()[at]),
                            ArrayRef::clone(batch.column(at)),
                        )
                    }
                    None => (
                        Arc::clone(&relation.schema().fields()[*column]),
                        ArrayRef::clone(batch.column(*column)),
                    ),
                },
            )
            .collect();
        new.push(
            builder
                .build(&columns, batch.num_rows())
                .map_err(|failure| *failure.error)?,
        );
        old.push(before);
    }
    Ok((old, new))
}
