//! RETURNING, and other queries over rows that a statement has in its hands.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_database::running::Running;
use millrace_functions::sql::{column_names, output_types};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::{self, df};

use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::output_columns::OutputColumns;
use crate::query::rows_of;
use crate::session::Session;
use crate::statement::select;

/// Binds the text of a query in which `tables` are names of given rows.
///
/// # Errors
/// It does not bind.
pub fn bind_over(
    session: &Session,
    scope: &Scope,
    text: &str,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
) -> SqlResult<LogicalPlan> {
    let mut statement = select::parse_query(text)?;
    select::prepare(session, &mut statement)?;
    let ast::Statement::Query(query) = &statement else {
        return Err(SqlError::internal(format!("not a query: {text}")));
    };
    let mut scope = scope.clone();
    scope.given.extend(tables);
    session.database().reader(&scope).bind_query(query)
}

/// What the changed rows are called in the query that RETURNING is.
const CHANGED: &str = "changed rows";

/// The number of a row among those that a statement joins with others.
pub(crate) const ROW: &str = "number of the row";

/// Rows of a relation as a table.
///
/// # Errors
/// The rows have another schema.
pub fn table_of(relation: &Relation, rows: Vec<RecordBatch>) -> SqlResult<Arc<dyn TableProvider>> {
    Ok(Arc::new(df(MemTable::try_new(
        Arc::clone(relation.schema()),
        vec![rows],
    ))?))
}

/// What RETURNING may name beside the rows that change: a relation of FROM or USING, with its row for each of them.
pub struct Beside {
    /// As the statement calls it.
    name: String,
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
}

impl Beside {
    /// The relations of FROM or USING, without rows.
    ///
    /// # Errors
    /// They do not bind.
    pub fn of(
        session: &Session,
        scope: &Scope,
        with: Option<&ast::With>,
        tables: &[ast::TableWithJoins],
    ) -> SqlResult<Vec<Beside>> {
        let mut names = vec![];
        for table in tables {
            let factors = [&table.relation]
                .into_iter()
                .chain(table.joins.iter().map(|join| &join.relation));
            factors.for_each(|factor| names_of(factor, &mut names));
        }
        let with = with.map(|with| format!("{with} ")).unwrap_or_default();
        let from = names::joined(tables);
        let one = |name: String| {
            let text = format!("{with}SELECT {}.* FROM {from}", quote_identifier(&name));
            let mut statement = select::parse_query(&text)?;
            let (plan, _) = select::bind(session, scope, &mut statement, select::Purpose::Describe)?;
            Ok(Beside {
                name,
                schema: Arc::new(plan.schema().as_arrow().clone()),
                rows: vec![],
            })
        };
        names.into_iter().map(one).collect()
    }

    /// What the select list of the rows has for these relations.
    pub fn select_list(all: &[Beside]) -> String {
        let each = all.iter();
        each.map(|beside| format!(", {}.*", quote_identifier(&beside.name)))
            .collect()
    }

    /// Takes the rows: the columns of a select list that stand behind so many others.
    ///
    /// # Errors
    /// The columns are not there.
    pub fn take(all: &mut [Beside], behind: usize, batches: &[RecordBatch]) -> SqlResult<()> {
        let mut at = behind;
        for beside in all {
            let columns: Vec<usize> = (at..at + beside.schema.fields().len()).collect();
            at += columns.len();
            let rows = batches.iter().map(|batch| batch.project(&columns));
            beside.rows = rows.collect::<Result<_, _>>().map_err(from_internal::arrow)?;
            if let Some(batch) = beside.rows.first() {
                beside.schema = batch.schema();
            }
        }
        Ok(())
    }
}

/// What the relations of a FROM are called.
fn names_of(factor: &ast::TableFactor, names: &mut Vec<String>) {
    match factor {
        ast::TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => {
            names_of(&table_with_joins.relation, names);
            for join in &table_with_joins.joins {
                names_of(&join.relation, names);
            }
        }
        ast::TableFactor::Table {
            name, alias: None, ..
        }
        | ast::TableFactor::Function {
            name, alias: None, ..
        } => names.push(names::last(name)),
        ast::TableFactor::Table { alias, .. }
        | ast::TableFactor::Function { alias, .. }
        | ast::TableFactor::Derived { alias, .. }
        | ast::TableFactor::UNNEST { alias, .. }
        | ast::TableFactor::NestedJoin { alias, .. } => {
            names.extend(alias.as_ref().map(|alias| millrace_parser::fold(&alias.name)));
        }
        _ => {}
    }
}

/// Rows with their numbers in a column behind the others.
fn numbered(schema: &SchemaRef, rows: Vec<RecordBatch>) -> SqlResult<Arc<dyn TableProvider>> {
    let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ROW, DataType::Int64, false)));
    let schema = Arc::new(Schema::new(fields));
    let mut next = 0;
    let rows = rows.into_iter().map(|batch| {
        let end = next + batch.num_rows() as i64;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(next..end)));
        next = end;
        RecordBatch::try_new(Arc::clone(&schema), columns)
    });
    let rows = rows.collect::<Result<_, _>>().map_err(from_internal::arrow)?;
    Ok(Arc::new(df(MemTable::try_new(schema, vec![rows]))?))
}

/// The items of RETURNING over relations of these names and columns, in which a wildcard leaves out the numbers of rows.
fn listed(items: &[ast::SelectItem], relations: &[(String, SchemaRef)]) -> String {
    let all_of = |(name, schema): &(String, SchemaRef)| {
        let table = quote_identifier(name);
        let columns = schema.fields().iter();
        let columns: Vec<String> = columns
            .map(|field| format!("{table}.{}", quote_identifier(field.name())))
            .collect();
        columns.join(", ")
    };
    let item = |item: &ast::SelectItem| match item {
        ast::SelectItem::Wildcard(_) => {
            let each: Vec<String> = relations.iter().map(all_of).collect();
            each.join(", ")
        }
        ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            let meant = names::last(name);
            let relation = relations.iter().find(|(known, _)| *known == meant);
            relation.map_or_else(|| item.to_string(), all_of)
        }
        item => item.to_string(),
    };
    let list: Vec<String> = items.iter().map(item).collect();
    list.join(", ")
}

/// Binds the items of RETURNING over rows of a relation that the statement calls `name`, and over those beside them.
///
/// # Errors
/// The items do not bind.
pub fn bind(
    session: &Session,
    scope: &Scope,
    relation: &Relation,
    name: &str,
    items: &[ast::SelectItem],
    rows: Vec<RecordBatch>,
    beside: Vec<Beside>,
) -> SqlResult<(LogicalPlan, OutputColumns)> {
    let table = quote_identifier(name);
    let list: Vec<String> = items.iter().map(ToString::to_string).collect();
    let named = format!("SELECT {} FROM {table}", list.join(", "));
    let names = match select::parse_query(&named)? {
        ast::Statement::Query(query) => column_names::output_names(&query),
        _ => vec![],
    };
    // The table's own name means the table, as it was before, in subqueries.
    let mut text = format!("FROM {} AS {table}", quote_identifier(CHANGED));
    let mut tables = BTreeMap::new();
    if beside.is_empty() {
        text = format!("SELECT {} {text}", list.join(", "));
        tables.insert(CHANGED.to_string(), table_of(relation, rows)?);
    } else {
        tables.insert(CHANGED.to_string(), numbered(relation.schema(), rows)?);
        let others = beside
            .iter()
            .map(|beside| (beside.name.clone(), SchemaRef::clone(&beside.schema)));
        let mut relations = vec![(name.to_owned(), SchemaRef::clone(relation.schema()))];
        relations.extend(others);
        let row = quote_identifier(ROW);
        for (index, beside) in beside.into_iter().enumerate() {
            let (given, other) = (format!("{CHANGED} {index}"), quote_identifier(&beside.name));
            text += &format!(
                " JOIN {} AS {other} ON {table}.{row} = {other}.{row}",
                quote_identifier(&given)
            );
            tables.insert(given, numbered(&beside.schema, beside.rows)?);
        }
        text = format!("SELECT {} {text}", listed(items, &relations));
    }
    let plan = bind_over(session, scope, &text, tables)?;
    check_rows(&plan)?;
    let notes = output_types::of_plan(&plan);
    Ok((plan, OutputColumns { names, notes }))
}

/// RETURNING says one row for each that changes.
fn check_rows(plan: &LogicalPlan) -> SqlResult<()> {
    let mut plan = plan;
    loop {
        let (code, what) = match plan {
            LogicalPlan::Aggregate(_) => (SqlState::GroupingError, "aggregate"),
            LogicalPlan::Window(_) => (SqlState::WindowingError, "window"),
            LogicalPlan::Unnest(_) => (SqlState::FeatureNotSupported, "set-returning"),
            _ => match plan.inputs().as_slice() {
                [input] => {
                    plan = input;
                    continue;
                }
                _ => return Ok(()),
            },
        };
        return Err(SqlError::new(
            code,
            format!("{what} functions are not allowed in RETURNING"),
        ));
    }
}

/// What a statement says of the rows that it is about to change.
pub struct Returned {
    columns: OutputColumns,
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
}

/// Evaluates RETURNING over `rows`, if there is one: before they are changed, because an error means that nothing was.
///
/// # Errors
/// RETURNING does not bind or fails.
pub async fn evaluate(
    session: &Arc<Session>,
    scope: &Scope,
    relation: &Relation,
    name: &str,
    items: Option<&[ast::SelectItem]>,
    rows: Vec<RecordBatch>,
    beside: Vec<Beside>,
) -> SqlResult<Option<Returned>> {
    let Some(items) = items else {
        return Ok(None);
    };
    let (plan, columns) = bind(session, scope, relation, name, items, rows, beside)?;
    let physical = session.physical_plan(plan, &scope.before).await?;
    let schema = physical.schema();
    let rows = session.collect_physical(physical).await?;
    Ok(Some(Returned {
        columns,
        schema,
        rows,
    }))
}

/// What a change did: what it says of its rows, and its tag.
pub struct Changed {
    /// Its rows; `None`: it has no RETURNING.
    pub returned: Option<Returned>,
    /// What to say when it is done.
    pub tag: CommandTag,
}

impl Changed {
    /// What the statement answers with.
    pub fn outcome(self, session: &Arc<Session>, running: Running) -> Outcome {
        outcome(session, self.returned, self.tag, running)
    }
}

impl Returned {
    /// The columns as they are announced, and the rows.
    pub fn into_rows(self) -> (SchemaRef, Vec<RecordBatch>) {
        (self.columns.applied(&self.schema), self.rows)
    }
}

/// What a statement answers with when it has changed the rows.
fn outcome(session: &Arc<Session>, returned: Option<Returned>, tag: CommandTag, running: Running) -> Outcome {
    let Some(Returned {
        columns,
        schema,
        rows,
    }) = returned
    else {
        return Outcome::Done { tag };
    };
    let (schema, stream) = session.guarded(rows_of(schema, rows), &columns, running);
    Outcome::Rows { schema, stream, tag }
}
