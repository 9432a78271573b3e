//! What statements take in memory before they run, charged by the size of their text.
//!
//! A text of some megabytes becomes gigabytes of tokens, syntax trees and plans, which nobody else accounts for. Figures are measured:
//! lists of constants in VALUES, IN, ARRAY and CASE, the worst of them, and texts of very many short statements.

use datafusion::sql::sqlparser::ast::{self, SetExpr};
use millrace_parser::ast::Statement;
use millrace_parser::{Parsed, TextSize};
use millrace_postgres::error::SqlResult;
use millrace_resource::memory::Charge;

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

/// Bytes of the syntax trees of a text, with so many for each token.
fn tree_bytes(sql: &str, token_bytes: usize) -> usize {
    let size = TextSize::of(sql);
    let tokens = size.tokens.saturating_mul(token_bytes);
    tokens.saturating_add(size.queries.saturating_mul(QUERY_BYTES))
}

impl Session {
    /// What it takes to parse a text, until that is done.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_parsing(&self, sql: &str) -> SqlResult<Charge> {
        self.keep(tree_bytes(sql, PARSED_BYTES))
    }

    /// The syntax trees of statements that wait for their turn.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn keep_trees(&self, statements: &[Parsed]) -> SqlResult<Charge> {
        let bytes = |parsed: &Parsed| tree_bytes(&parsed.text, TREE_BYTES) + parsed.text.len();
        self.keep(statements.iter().map(bytes).sum())
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
        self.keep(tokens.saturating_mul(token_bytes)).map(Some)
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
