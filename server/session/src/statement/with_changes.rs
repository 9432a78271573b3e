//! Changes and WITH: `WITH gone AS (DELETE .. RETURNING *) INSERT INTO kept SELECT * FROM gone`.
//!
//! The changes are made one after the other, in the open transaction or in one of their own. All parts see the tables as they were
//! before the statement, and learn of changed rows from RETURNING alone, as in PostgreSQL. The tables that are changed are locked
//! together, before anything is read.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::sql::sqlparser::ast::{self, SetExpr, Visitor, With};
use millrace_catalog::scope::Scope;
use millrace_database::running::Running;
use millrace_parser::walk::Walk;
use millrace_planner::RelationKind;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::{self, df};
use millrace_storage::ObjectId;

use crate::access;
use crate::changes::change_of;
use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::query::rows_of;
use crate::session::Session;
use crate::statement::returning::Changed;
use crate::statement::{delete, insert, merge, select, update};
use crate::write::writable;

/// The statement of a part: its WITH has what is only read.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// What stands before it and is only read.
    pub with: Option<With>,
    /// The change, or the query at the end.
    pub statement: ast::Statement,
}

/// A statement with changes in it.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The changes of WITH: how each calls its rows.
    pub before: Vec<(ast::TableAlias, Part)>,
    /// What comes last.
    pub last: Part,
}

impl Parts {
    /// Takes a statement apart.
    ///
    /// # Errors
    /// A change has a WITH of its own, or two of them have one name.
    pub fn of(query: &ast::Query) -> SqlResult<Self> {
        let mut read = With {
            with_token: ast::helpers::attached_token::AttachedToken::empty(),
            recursive: query.with.as_ref().is_some_and(|with| with.recursive),
            cte_tables: vec![],
        };
        let part = |read: &With, change: &ast::Statement| Part {
            with: Some(read.clone()).filter(|read| !read.cte_tables.is_empty()),
            statement: change.clone(),
        };
        let mut before: Vec<(ast::TableAlias, Part)> = vec![];
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let Some(change) = change_of(&table.query) else {
                read.cte_tables.push(table.clone());
                continue;
            };
            if table.query.with.is_some() {
                return Err(SqlError::unsupported(
                    "WITH inside of a data-modifying WITH item is not supported",
                )
                .with_hint("Put its items in front of the outermost statement."));
            }
            let name = millrace_parser::fold(&table.alias.name);
            if (before.iter()).any(|(alias, _)| millrace_parser::fold(&alias.name) == name) {
                return Err(SqlError::new(
                    SqlState::DuplicateAlias,
                    format!("WITH query name \"{name}\" specified more than once"),
                ));
            }
            before.push((table.alias.clone(), part(&read, change)));
        }
        let last = match change_of(query) {
            Some(change) => part(&read, change),
            None => {
                let mut query = query.clone();
                query.with = Some(read).filter(|read| !read.cte_tables.is_empty());
                Part {
                    with: None,
                    statement: ast::Statement::Query(Box::new(query)),
                }
            }
        };
        Ok(Parts { before, last })
    }
}

impl Part {
    /// The part as one statement, as it would be written.
    pub fn whole(self) -> SqlResult<ast::Statement> {
        let Some(with) = self.with else {
            return Ok(self.statement);
        };
        let mut query = select::parse_query("SELECT 1")?;
        if let ast::Statement::Query(query) = &mut query {
            query.with = Some(with);
            *query.body = match self.statement {
                change @ ast::Statement::Insert(_) => SetExpr::Insert(change),
                change @ ast::Statement::Update(_) => SetExpr::Update(change),
                change @ ast::Statement::Merge(_) => SetExpr::Merge(change),
                change => SetExpr::Delete(change),
            };
        }
        Ok(query)
    }

    /// The change, an INSERT's query with what stands before it.
    pub fn change(&self) -> SqlResult<ast::Statement> {
        let mut statement = self.statement.clone();
        if let (ast::Statement::Insert(insert), Some(with)) = (&mut statement, &self.with)
            && let Some(source) = &mut insert.source
        {
            match &mut source.with {
                // Names of the inner WITH hide those of the outer one.
                Some(inner) => {
                    let hidden = |table: &ast::Cte| {
                        let name = |table: &ast::Cte| millrace_parser::fold(&table.alias.name);
                        inner.cte_tables.iter().any(|inner| name(inner) == name(table))
                    };
                    if with.cte_tables.iter().any(hidden) {
                        return Err(SqlError::unsupported(
                            "two WITH items of one name around an INSERT are not supported",
                        ));
                    }
                    inner.recursive |= with.recursive;
                    inner.cte_tables.splice(0..0, with.cte_tables.iter().cloned());
                }
                none => *none = Some(with.clone()),
            }
        }
        Ok(statement)
    }
}

/// The scope in which the rows of a change have a name.
///
/// # Errors
/// The alias names more columns than there are.
pub(crate) fn with_rows(
    scope: &mut Scope,
    alias: &ast::TableAlias,
    columns: &SchemaRef,
    rows: Vec<RecordBatch>,
) -> SqlResult<()> {
    let name = millrace_parser::fold(&alias.name);
    if alias.columns.len() > columns.fields().len() {
        return Err(SqlError::new(
            SqlState::InvalidColumnReference,
            format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                columns.fields().len(),
                alias.columns.len()
            ),
        ));
    }
    let fields: Vec<Field> = columns
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| match alias.columns.get(index) {
            Some(column) => field
                .as_ref()
                .clone()
                .with_name(millrace_parser::fold(&column.name)),
            None => field.as_ref().clone(),
        })
        .map(|field| field.with_nullable(true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let rows = rows.into_iter();
    let rows = rows
        .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(from_internal::arrow)?;
    let rows: Arc<dyn TableProvider> = Arc::new(df(MemTable::try_new(schema, vec![rows]))?);
    scope.given.insert(name, rows);
    Ok(())
}

/// Executes a statement with changes in it.
pub async fn execute(session: &Arc<Session>, query: ast::Query, running: Running) -> SqlResult<Outcome> {
    let parts = Parts::of(&query)?;
    if parts.before.is_empty() {
        // A change by itself, behind what is only read.
        let changed = change(session, session.scope(), &parts.last).await?;
        return Ok(changed.outcome(session, running));
    }
    session.in_transaction(all(session, parts, running)).await
}

async fn all(session: &Arc<Session>, parts: Parts, running: Running) -> SqlResult<Outcome> {
    let mut scope = session.scope();
    lock(session, &mut scope, &parts).await?;
    for (place, (alias, part)) in parts.before.iter().enumerate() {
        let changed = change(session, scope.clone(), part).await?;
        if let Some(returned) = changed.returned {
            let (columns, rows) = returned.into_rows();
            with_rows(&mut scope, alias, &columns, rows)?;
        } else {
            let behind = parts.before[place + 1..].iter().map(|(_, part)| part);
            without_rows(alias, behind.chain([&parts.last]))?;
        }
    }
    if !matches!(parts.last.statement, ast::Statement::Query(_)) {
        let changed = change(session, scope, &parts.last).await?;
        return Ok(changed.outcome(session, running));
    }
    let mut statement = parts.last.statement;
    let (plan, columns) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &scope.before).await?;
    let schema = physical.schema();
    // All of them, before the changes are committed: a failure must take them back.
    let rows = session.collect_physical(physical).await?;
    let (schema, stream) = session.guarded(rows_of(schema, rows), &columns, running);
    Ok(Outcome::Rows {
        schema,
        stream,
        tag: CommandTag::sent("SELECT"),
    })
}

/// Refuses to read the rows of a change that gives none.
///
/// # Errors
/// 0A000.
pub(crate) fn without_rows<'a>(
    alias: &ast::TableAlias,
    mut behind: impl Iterator<Item = &'a Part>,
) -> SqlResult<()> {
    struct Reads(String);
    impl Visitor for Reads {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
            match name.0.as_slice() {
                [only]
                    if only
                        .as_ident()
                        .is_some_and(|only| millrace_parser::fold(only) == self.0) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let name = millrace_parser::fold(&alias.name);
    // What is changed is named as what is read is, and is a table.
    let is_read = |part: &Part| match &part.statement {
        ast::Statement::Query(query) => query.walk(&mut Reads(name.clone())).is_break(),
        ast::Statement::Insert(insert) => insert.source.walk(&mut Reads(name.clone())).is_break(),
        _ => false,
    };
    match behind.any(is_read) {
        true => Err(SqlError::unsupported(format!(
            "WITH query \"{name}\" does not have a RETURNING clause"
        ))),
        false => Ok(()),
    }
}

/// Makes one change.
async fn change(session: &Arc<Session>, scope: Scope, part: &Part) -> SqlResult<Changed> {
    match part.change()? {
        ast::Statement::Insert(insert) => Box::pin(insert::change(session, scope, insert)).await,
        ast::Statement::Update(update) => {
            Box::pin(update::change(session, scope, part.with.as_ref(), update)).await
        }
        ast::Statement::Delete(delete) => {
            Box::pin(delete::change(session, scope, part.with.as_ref(), delete)).await
        }
        ast::Statement::Merge(merge) => {
            Box::pin(merge::change(session, scope, part.with.as_ref(), merge)).await
        }
        other => Err(SqlError::internal(format!("not a change: {other}"))),
    }
}

/// Locks what will be changed, and notes how it was before.
async fn lock(session: &Arc<Session>, scope: &mut Scope, parts: &Parts) -> SqlResult<()> {
    let mut objects = vec![];
    let last = std::iter::once(&parts.last);
    for part in parts.before.iter().map(|(_, part)| part).chain(last) {
        objects.extend(match &part.statement {
            ast::Statement::Insert(insert) => Some(names::insert_target(session, scope, insert)?),
            ast::Statement::Update(update) => {
                let (name, _) = names::single_table(&update.table)?;
                Some(names::resolve(session, scope, &name)?)
            }
            ast::Statement::Delete(delete) => {
                let (name, _) = names::delete_target(delete)?;
                Some(names::resolve(session, scope, &name)?)
            }
            ast::Statement::Merge(merge) => {
                let (name, _) = names::single_factor(&merge.table)?;
                Some(names::resolve(session, scope, &name)?)
            }
            _ => None,
        });
    }
    let mut relations = vec![];
    for object in &objects {
        let relation = writable(object, "change")?;
        if relation.info.kind == RelationKind::Table {
            relations.push(relation);
        }
    }
    session.hold_tables(&relations).await?;
    for relation in relations {
        let rows = session.begin_write(relation).await?.current().await?;
        scope.before.insert(relation.info.id, rows);
    }
    Ok(())
}

/// The scope of a change: it may read what it changes.
pub(crate) fn scope_of(session: &Session, scope: &Scope, statement: &ast::Statement) -> Scope {
    match target(session, scope, statement) {
        Some(target) => access::changing(scope.clone(), target),
        None => scope.clone(),
    }
}

/// What an UPDATE or DELETE changes.
fn target(session: &Session, scope: &Scope, statement: &ast::Statement) -> Option<ObjectId> {
    let (name, _) = match statement {
        ast::Statement::Update(update) => names::single_table(&update.table).ok()?,
        ast::Statement::Delete(delete) => names::delete_target(delete).ok()?,
        ast::Statement::Merge(merge) => names::single_factor(&merge.table).ok()?,
        _ => return None,
    };
    names::resolve(session, scope, &name).ok().map(|object| object.id)
}
