//! What statements take in memory before they run, charged by the size of their text.
//!
//! A text of some megabytes becomes gigabytes of tokens, syntax trees and plans, which nobody else accounts for. Figures are measured:
//! lists of constants in VALUES, IN, ARRAY and CASE, the worst of them, and texts of very many short statements.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{self, SetExpr};
use millrace_parser::ast::Statement;
use millrace_parser::{Parsed, TextSize};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Account, Charge, Use};
use millrace_storage::{ChangeBatch, column_bytes, rows_bytes};

use crate::session::Session;

/// Statements of so few bytes are planned without being charged for: there has to be room for them.
const SMALL_BYTES: usize = 1_000;
/// Bytes for a token while a text is parsed: the token, and its place in the tree.
const PARSED_BYTES: usize = 400;
/// Bytes for a token in a syntax tree.
const TREE_BYTES: usize = 200;
/// Bytes for a statement or a query in a syntax tree, besides those of its tokens.
const QUERY_BYTES: usize = 8 << 10;
/// Bytes for a token while its statement is planned: copies of the tree, expressions, and their copies.
const PLANNED_BYTES: usize = 6 << 10;
/// The same for rows of constants in INSERT, which are not planned.
const ROWS_BYTES: usize = 400;

/// Copies of its rows that a write has at a time, on their way to the log.
const WRITTEN_COPIES: usize = 3;
/// Bytes for each row of a change that takes rows away: what finds those that are equal.
const CHANGED_BYTES: usize = 256;

/// Bytes of the syntax trees of a text, with so many for each token.
fn tree_bytes(sql: &str, token_bytes: usize) -> usize {
    let size = TextSize::of(sql);
    let tokens = size.tokens.saturating_mul(token_bytes);
    tokens.saturating_add(size.queries.saturating_mul(QUERY_BYTES))
}

impl Session {
    /// Rows that a statement keeps; none yet.
    pub(crate) fn kept_rows(&self) -> KeptRows {
        let account = self.clients_account();
        KeptRows {
            limit: self.database().runtime().memory().limit(),
            charge: account.charge(Use::Input, 0),
            account,
        }
    }

    /// So many bytes of rows that a statement keeps.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_rows(&self, bytes: usize) -> SqlResult<KeptRows> {
        let mut kept = self.kept_rows();
        kept.add(bytes)?;
        Ok(kept)
    }

    /// What a change takes beside its rows, until it is written.
    ///
    /// # Errors
    /// There is not so much memory, or a column of it is larger than a write may be.
    pub(crate) fn keep_change<'a>(
        &self,
        changes: impl Iterator<Item = &'a ChangeBatch> + Clone,
    ) -> SqlResult<KeptRows> {
        let width = changes.clone().map(|change| change.rows.num_columns()).max();
        for column in 0..width.unwrap_or(0) {
            let bytes = |change: &ChangeBatch| {
                change
                    .rows
                    .columns()
                    .get(column)
                    .map_or(0, |column| column_bytes(column))
            };
            check_column(changes.clone().map(bytes).sum())?;
        }
        let bytes = |change: &ChangeBatch| {
            let found = match change.weights {
                Some(_) => change.num_rows() * CHANGED_BYTES,
                None => 0,
            };
            found + rows_bytes(&change.rows) * WRITTEN_COPIES
        };
        self.keep_rows(changes.map(bytes).sum())
    }

    /// What it takes to parse a text, until that is done.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_parsing(&self, sql: &str) -> SqlResult<Charge> {
        self.hold(tree_bytes(sql, PARSED_BYTES))
    }

    /// The syntax trees of statements that wait for their turn.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_trees(&self, statements: &[Parsed]) -> SqlResult<Charge> {
        let bytes = |parsed: &Parsed| tree_bytes(&parsed.text, TREE_BYTES) + parsed.text.len();
        self.hold(statements.iter().map(bytes).sum())
    }

    /// What it takes to plan a statement, until that is done.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_planning(&self, parsed: &Parsed) -> SqlResult<Option<Charge>> {
        if parsed.text.len() <= SMALL_BYTES {
            return Ok(None);
        }
        let token_bytes = match is_rows(&parsed.statement) {
            true => ROWS_BYTES,
            false => PLANNED_BYTES,
        };
        let tokens = TextSize::of(&parsed.text).tokens;
        self.hold(tokens.saturating_mul(token_bytes)).map(Some)
    }
}

/// Rows that a statement keeps, charged to what clients have.
pub(crate) struct KeptRows {
    account: Arc<Account>,
    charge: Charge,
    limit: usize,
}

impl KeptRows {
    /// It keeps so many bytes more. Few are not refused: writes wait where memory is short. From nine tenths of it on they do, and one
    /// that keeps many would wait for itself.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn add(&mut self, bytes: usize) -> SqlResult<()> {
        let all = self.charge.bytes().saturating_add(bytes);
        if all > self.limit / 16 {
            let room = self.account.room(bytes.saturating_add(self.limit / 10));
            room.map_err(from_internal::resource)?;
        }
        self.charge.resize(all);
        Ok(())
    }
}

/// Refuses to write more of a column at once than fits one of Arrow's arrays.
///
/// # Errors
/// It is more.
pub(crate) fn check_column(bytes: usize) -> SqlResult<()> {
    const BYTES_MAX: usize = i32::MAX as usize;
    match bytes > BYTES_MAX {
        true => Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!("a write of {bytes} bytes of a column exceeds the limit of {BYTES_MAX} bytes"),
        )
        .with_hint("Write fewer rows at a time.")),
        false => Ok(()),
    }
}

/// The same of rows before and after a change.
///
/// # Errors
/// It is more.
pub(crate) fn check_columns(rows: &[RecordBatch]) -> SqlResult<()> {
    let width = rows.first().map_or(0, RecordBatch::num_columns);
    (0..width).try_for_each(|column| {
        let bytes = rows.iter().map(|rows| column_bytes(rows.column(column)));
        check_column(bytes.sum::<usize>().saturating_mul(2))
    })
}

/// Whether a statement inserts rows that stand in its text.
fn is_rows(statement: &Statement) -> bool {
    let Statement::Sql(sql) = statement else {
        return false;
    };
    let ast::Statement::Insert(insert) = sql.as_ref() else {
        return false;
    };
    let query = insert.source.as_ref();
    query.is_some_and(|query| query.with.is_none() && matches!(*query.body, SetExpr::Values(_)))
}
