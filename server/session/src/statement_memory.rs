//! What statements take in memory before they run, charged by their number of tokens.
//!
//! A text of some megabytes becomes gigabytes of tokens, syntax trees and plans, which nobody else accounts for. Figures are measured:
//! lists of constants in VALUES, IN, ARRAY and CASE, the worst of them.

use datafusion::sql::sqlparser::ast::{self, SetExpr};
use millrace_parser::Parsed;
use millrace_parser::ast::Statement;
use millrace_postgres::error::SqlResult;
use millrace_resource::memory::Charge;

use crate::session::Session;

/// Statements of so few tokens are not charged for: there has to be room for them.
const SMALL_TOKENS: usize = 1_000;
/// Bytes for a token while a text is parsed: the token, what is made of it, and its place in the tree.
const PARSED_BYTES: usize = 400;
/// Bytes for a token in a syntax tree, and for a statement besides.
const TREE_BYTES: usize = 200;
const STATEMENT_BYTES: usize = 2 << 10;
/// Bytes for a token while its statement is planned: copies of the tree, expressions, and their copies.
const PLANNED_BYTES: usize = 6 << 10;
/// The same for rows of constants in INSERT, which are not planned.
const ROWS_BYTES: usize = 400;

impl Session {
    /// What it takes to parse a text, until that is done.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_parsing(&self, sql: &str) -> SqlResult<Option<Charge>> {
        self.keep_tokens(millrace_parser::count_tokens(sql), PARSED_BYTES)
    }

    /// The syntax trees of statements that wait for their turn.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_trees(&self, statements: &[Parsed]) -> SqlResult<Charge> {
        let bytes = |parsed: &Parsed| STATEMENT_BYTES + parsed.tokens * TREE_BYTES + parsed.text.len();
        self.keep(statements.iter().map(bytes).sum())
    }

    /// What it takes to plan a statement, until that is done.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_planning(&self, parsed: &Parsed) -> SqlResult<Option<Charge>> {
        let bytes = if is_rows(&parsed.statement) {
            ROWS_BYTES
        } else {
            PLANNED_BYTES
        };
        self.keep_tokens(parsed.tokens, bytes)
    }

    fn keep_tokens(&self, tokens: usize, bytes: usize) -> SqlResult<Option<Charge>> {
        if tokens <= SMALL_TOKENS {
            return Ok(None);
        }
        self.keep(tokens.saturating_mul(bytes)).map(Some)
    }
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
