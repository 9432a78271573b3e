//! MERGE: one query joins the source with the table and says of each pair what is done with it, with the values for that.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::Int64Type;
use datafusion::sql::sqlparser::ast::{
    Expr, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, With,
};
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_database::running::Running;
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::{from_internal, types};
use millrace_storage::ChangeBatch;

use crate::keys::check_unique;
use crate::outcome::{CommandTag, Outcome};
use crate::overriding::{self, Overriding};
use crate::session::Session;
use crate::statement::insert;
use crate::statement::returning::Changed;
use crate::statement::returning::ROW;
use crate::statement::update::{Assigned, as_column, changing_rows, new_rows};
use crate::{access, names, write};

/// The column that says which clause a pair falls under, from 1 on.
const CLAUSE: &str = "number of the clause";

/// Executes MERGE.
pub async fn execute(session: &Arc<Session>, merge: Merge, running: Running) -> SqlResult<Outcome> {
    let changed = change(session, session.scope(), None, merge).await?;
    Ok(changed.outcome(session, running))
}

/// What a clause does, checked.
enum Action {
    Nothing,
    Delete,
    Update(Assigned),
    /// The columns that get values, and the values.
    Insert(Vec<usize>, Vec<Expr>),
}

/// Makes the change of a MERGE behind a WITH clause.
///
/// # Errors
/// Whatever is wrong with it; nothing was changed then.
pub(crate) async fn change(
    session: &Arc<Session>,
    scope: Scope,
    with: Option<&With>,
    merge: Merge,
) -> SqlResult<Changed> {
    let (name, alias) = names::single_factor(&merge.table)?;
    let object = names::resolve(session, &scope, &name)?;
    let scope = access::changing(scope, object.id);
    let relation = write::table(&object, "merge into")?;
    let shown = alias.unwrap_or_else(|| names::last(&name));
    let actions = merge
        .clauses
        .iter()
        .map(|clause| action(session, &scope, relation, &shown, clause))
        .collect::<SqlResult<Vec<_>>>()?;
    let table = quote_identifier(&shown);
    let which = which(&merge.clauses, &format!("{table}.\"{ROW}\""));
    let mut columns: Vec<String> = (relation.columns.iter())
        .map(|column| format!("{table}.{}", quote_identifier(column.field.name())))
        .collect();
    columns.push(format!("{table}.\"{ROW}\""));
    columns.push(format!("{which} AS \"{CLAUSE}\""));
    for (number, action) in (1..).zip(&actions) {
        // A value is only computed for the pairs that it is for.
        let mut only = |value: Expr| {
            let index = columns.len();
            columns.push(format!(
                "CASE {which} WHEN {number} THEN {value} END AS \"value {index}\""
            ));
        };
        match action {
            Action::Update(assigned) => assigned.values().for_each(&mut only),
            Action::Insert(_, values) => values.iter().cloned().for_each(&mut only),
            Action::Nothing | Action::Delete => {}
        }
    }
    let with = with.map(|with| format!("{with} ")).unwrap_or_default();
    let text = format!(
        "{with}SELECT {} FROM {} LEFT JOIN (SELECT *, row_number() OVER () AS \"{ROW}\" FROM {name}) AS {table} ON {} \
         WHERE {which} > 0",
        columns.join(", "),
        merge.source,
        merge.on
    );
    let write = session.begin_write(relation).await?;
    let pairs = changing_rows(session, &scope, relation, &text, write.current().await?).await?;
    check_once(relation, &pairs, &actions)?;
    let Rows { gone, come, inserted } = rows(session, &scope, relation, &actions, &pairs)?;
    let count = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let total = count(&gone) + count(&inserted);
    let added: Vec<RecordBatch> = come.into_iter().chain(inserted).collect();
    if write.in_transaction() && !relation.key().is_empty() {
        check_unique(session, relation, write.current().await?, &added, &gone).await?;
    }
    let mut changes = vec![];
    if total > 0 {
        // All in one batch: a key that moves from one row to another must not meet itself half way.
        let weights = std::iter::repeat_n(-1, count(&gone)).chain(std::iter::repeat_n(1, count(&added)));
        let weights = Int64Array::from_iter_values(weights);
        let all =
            concat_batches(relation.schema(), gone.iter().chain(&added)).map_err(from_internal::arrow)?;
        changes.push(ChangeBatch::new(all, Some(weights))?);
    }
    write.finish(changes).await?;
    Ok(Changed {
        returned: None,
        tag: CommandTag::rows("MERGE", total as u64),
    })
}

/// The expression that says which clause a pair falls under; 0: none.
fn which(clauses: &[MergeClause], row: &str) -> String {
    let mut text = "CASE".to_owned();
    for (number, clause) in (1..).zip(clauses) {
        let matched = match clause.clause_kind {
            MergeClauseKind::Matched => "IS NOT NULL",
            _ => "IS NULL",
        };
        let condition = clause.predicate.as_ref();
        let condition = condition
            .map(|condition| format!(" AND ({condition})"))
            .unwrap_or_default();
        text += &format!(" WHEN {row} {matched}{condition} THEN {number}");
    }
    text + " ELSE 0 END"
}

fn action(
    session: &Session,
    scope: &Scope,
    relation: &Relation,
    shown: &str,
    clause: &MergeClause,
) -> SqlResult<Action> {
    Ok(match &clause.action {
        MergeAction::Delete { .. } => Action::Delete,
        MergeAction::Update(update) if update.assignments.is_empty() => Action::Nothing,
        MergeAction::Update(update) => {
            let assigned = Assigned::new(session, scope, relation, shown, &update.assignments)?;
            Action::Update(assigned)
        }
        MergeAction::Insert(insert) => inserting(relation, insert)?,
    })
}

fn inserting(relation: &Relation, inserted: &MergeInsertExpr) -> SqlResult<Action> {
    let MergeInsertKind::Values(values) = &inserted.kind else {
        return Err(SqlError::unsupported("INSERT ROW is not supported in MERGE"));
    };
    let values = values
        .rows
        .first()
        .map(|row| row.content.clone())
        .unwrap_or_default();
    let (listed, overrides) = overriding::listed(&inserted.columns);
    let mut given = match listed.is_empty() {
        true => (0..relation.columns.len()).collect(),
        false => positions(relation, &listed)?,
    };
    if values.is_empty() {
        return Ok(Action::Insert(vec![], vec![]));
    }
    insert::fit(&mut given, values.len(), !listed.is_empty())?;
    let given_values = given.into_iter().zip(values);
    // A column without a value gets its default anyway.
    let (given, values): (Vec<usize>, Vec<Expr>) = given_values
        .filter(|(_, value)| !insert::is_default(value))
        .map(|(position, value)| {
            let field = relation.schema().field(position);
            (position, as_column(&value, &types::sql_name(field), field.name()))
        })
        .unzip();
    match overrides {
        None => insert::check_identity(relation, &given)?,
        Some(Overriding::System) => {}
        Some(Overriding::User) => {
            let kept = |(position, _): &(usize, Expr)| !overriding::is_identity(relation, *position);
            let (given, values) = given.into_iter().zip(values).filter(kept).unzip();
            return Ok(Action::Insert(given, values));
        }
    }
    Ok(Action::Insert(given, values))
}

/// Refuses to change or delete one row twice.
fn check_once(relation: &Relation, pairs: &[RecordBatch], actions: &[Action]) -> SqlResult<()> {
    let width = relation.columns.len();
    let mut seen = HashSet::new();
    for batch in pairs {
        let rows = batch.column(width).as_primitive::<Int64Type>();
        for (row, number) in clauses(batch, width).into_iter().enumerate() {
            let changes = matches!(actions.get(number - 1), Some(Action::Update(_) | Action::Delete));
            if changes && rows.is_valid(row) && !seen.insert(rows.value(row)) {
                return Err(SqlError::new(
                    SqlState::CardinalityViolation,
                    "MERGE command cannot affect row a second time",
                )
                .with_hint("Ensure that not more than one source row matches any one target row."));
            }
        }
    }
    Ok(())
}

/// The clause of each pair of a batch.
fn clauses(batch: &RecordBatch, width: usize) -> Vec<usize> {
    let numbers = arrow::compute::cast(batch.column(width + 1), &arrow::datatypes::DataType::Int64);
    let numbers = numbers.map(|numbers| {
        let numbers = numbers.as_primitive::<Int64Type>().clone();
        let each = numbers
            .iter()
            .map(|number| number.and_then(|number| usize::try_from(number).ok()));
        each.map(Option::unwrap_or_default).collect()
    });
    numbers.unwrap_or_default()
}

/// What a MERGE does with the table.
struct Rows {
    /// Rows that go, and those that come in their place.
    gone: Vec<RecordBatch>,
    come: Vec<RecordBatch>,
    /// Rows that are new.
    inserted: Vec<RecordBatch>,
}

fn rows(
    session: &Session,
    scope: &Scope,
    relation: &Relation,
    actions: &[Action],
    pairs: &[RecordBatch],
) -> SqlResult<Rows> {
    let width = relation.columns.len();
    let mut all = Rows {
        gone: vec![],
        come: vec![],
        inserted: vec![],
    };
    let mut at = width + 2;
    for (number, action) in (1..).zip(actions) {
        let of_clause = pairs
            .iter()
            .map(|batch| {
                let is_its = clauses(batch, width)
                    .into_iter()
                    .map(|clause| Some(clause == number));
                filter_record_batch(batch, &is_its.collect::<BooleanArray>())
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(from_internal::arrow)?;
        let with_values = |count: usize| {
            let columns: Vec<usize> = (0..width).chain(at..at + count).collect();
            let batches = of_clause.iter().map(|batch| batch.project(&columns));
            batches
                .collect::<Result<Vec<_>, _>>()
                .map_err(from_internal::arrow)
        };
        match action {
            Action::Nothing => {}
            Action::Delete => {
                for batch in with_values(0)? {
                    let own = RecordBatch::try_new(Arc::clone(relation.schema()), batch.columns().to_vec());
                    all.gone.push(own.map_err(from_internal::arrow)?);
                }
            }
            Action::Update(assigned) => {
                let count = assigned.values().count();
                let (gone, come) = new_rows(session, scope, relation, assigned, &with_values(count)?)?;
                all.gone.extend(gone);
                all.come.extend(come);
                at += count;
            }
            Action::Insert(given, values) => {
                let builder = RowBuilder::new(session.database(), scope, relation, given)?;
                for batch in &of_clause {
                    let columns: Vec<usize> = (at..at + values.len()).collect();
                    let schema = batch.schema();
                    let cells: Vec<_> = (columns.iter())
                        .map(|column| {
                            (
                                Arc::clone(&schema.fields()[*column]),
                                Arc::clone(batch.column(*column)),
                            )
                        })
                        .collect();
                    let built = builder.build(&cells, batch.num_rows());
                    all.inserted.push(built.map_err(|failure| *failure.error)?);
                }
                at += values.len();
            }
        }
    }
    Ok(all)
}
