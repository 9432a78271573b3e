//! `OVERRIDING SYSTEM | USER VALUE`, which the parser puts among the columns.

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::ObjectName;
use millrace_catalog::Relation;
use millrace_catalog::sequence::Takes;
use millrace_parser::ast::OVERRIDING;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;

use crate::names;

/// Whose values identity columns get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overriding {
    /// Those that are given, instead of the system's.
    System,
    /// Those of their sequences, instead of the user's.
    User,
}

/// The names of the columns that an INSERT lists, and whose values they get if it says that.
pub(crate) fn listed(columns: &[ObjectName]) -> (Vec<String>, Option<Overriding>) {
    let said = columns.last().and_then(|last| match last.0.as_slice() {
        [qualifier, which] if qualifier.as_ident()?.value == OVERRIDING => {
            Some(match which.as_ident()?.value.as_str() {
                "system" => Overriding::System,
                _ => Overriding::User,
            })
        }
        _ => None,
    });
    let columns = &columns[..columns.len() - usize::from(said.is_some())];
    (columns.iter().map(names::last).collect(), said)
}

/// Whether a column is an identity.
pub(crate) fn is_identity(relation: &Relation, column: usize) -> bool {
    let sequence = relation.columns[column].sequence;
    sequence.is_some_and(|sequence| sequence.takes != Takes::Default)
}

/// Leaves out the values for identity columns.
pub(crate) fn without_identities(
    relation: &Relation,
    given: &mut Vec<usize>,
    batches: &mut [RecordBatch],
) -> SqlResult<()> {
    let kept: Vec<usize> = (0..given.len())
        .filter(|index| !is_identity(relation, given[*index]))
        .collect();
    for batch in batches {
        *batch = batch.project(&kept).map_err(from_internal::arrow)?;
    }
    *given = kept.into_iter().map(|index| given[index]).collect();
    Ok(())
}
