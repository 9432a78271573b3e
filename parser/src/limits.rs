//! Limits on what is parsed, checked on the tokens, so that no input can overflow the stack.
//!
//! sqlparser counts its own recursion, but a chain such as `1 + 1 + 1 ..` is parsed by a loop into a tree that is as
//! deep as the chain is long, and everything that later walks or frees the tree recurses. So an upper bound of the
//! tree's depth is computed here: operators between two commas of one parenthesis, plus the deepest of what is inside
//! parentheses among them.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Failure, ParseError, ParseErrorKind};

/// The longest SQL text that is parsed at once, in bytes.
pub const MAX_SQL_BYTES: usize = 16 << 20;
/// How deep parentheses and brackets may be nested.
pub const MAX_NESTING: usize = 64;
/// How many operators may stand in one chain.
pub const MAX_OPERATORS: usize = 1000;
/// The most columns of a SELECT list, of GROUP BY and of ORDER BY, as in PostgreSQL.
pub const MAX_LIST: usize = 1_664;
/// The most relations in one FROM, and WITH queries in one WITH.
pub const MAX_RELATIONS: usize = 500;
/// How deep subqueries may be nested in expressions: what is done with them doubles with each level.
pub const MAX_SUBQUERIES: usize = 12;
/// How deep rows may be nested: the text of one doubles the quotes of one within it.
pub const MAX_ROWS: usize = 12;
/// How much deeper a tree becomes by EXCEPT ALL or INTERSECT ALL: a query in FROM, of a query.
const COUNTED_SET_DEPTH: usize = 10;
/// Entries in the parentheses of CREATE TABLE: more columns than a table can have, and as many constraints.
const MAX_DEFINITIONS: usize = 3_200;

/// Refuses a text that is too long.
pub(crate) fn check_length(sql: &str) -> Result<(), ParseError> {
    if sql.len() <= MAX_SQL_BYTES {
        return Ok(());
    }
    Err(ParseError {
        message: format!(
            "the SQL text is {} bytes long; at most {MAX_SQL_BYTES} are accepted",
            sql.len()
        ),
        position: None,
        hint: Some("Send fewer statements at once, or load rows with COPY.".into()),
        kind: ParseErrorKind::TooComplex,
    })
}

/// What has been seen inside one pair of parentheses.
#[derive(Default)]
struct Frame {
    /// Operators since the last comma or clause.
    chain: usize,
    /// The deepest parenthesis since the last comma or clause.
    inner: usize,
    /// The deepest chain that is finished.
    finished: usize,
    /// Set operations, which chain across clauses.
    set_operations: usize,
    /// What the commas stand between, and how many entries there are.
    list: Option<List>,
    entries: usize,
    /// It is the arguments of a call, or another thing behind a name.
    is_named: bool,
    /// It is a row: `ROW (..)`, or there is a comma in what is no call.
    is_row: bool,
    /// The deepest nesting of rows inside.
    rows: usize,
    /// It stands where a relation does: a query there is no subquery of an expression.
    is_relation: bool,
    has_query: bool,
    /// Subqueries of expressions around.
    subqueries: usize,
}

/// A list whose length is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Select,
    By,
    From,
    With,
    Definitions,
}

impl List {
    /// The most entries, and what is said of more.
    fn limit(self) -> (usize, String) {
        match self {
            List::Select => (
                MAX_LIST,
                format!("target lists can have at most {MAX_LIST} entries"),
            ),
            List::By => (
                MAX_LIST,
                format!("GROUP BY and ORDER BY can have at most {MAX_LIST} entries"),
            ),
            List::From => (
                MAX_RELATIONS,
                format!("FROM can have at most {MAX_RELATIONS} relations"),
            ),
            List::With => (
                MAX_RELATIONS,
                format!("a statement can have at most {MAX_RELATIONS} WITH queries"),
            ),
            List::Definitions => (MAX_DEFINITIONS, "tables can have at most 1600 columns".into()),
        }
    }
}

impl Frame {
    fn finish_chain(&mut self) {
        self.finished = self.finished.max(self.depth_of_chain());
        self.chain = 0;
        self.inner = 0;
    }

    fn depth_of_chain(&self) -> usize {
        self.chain + self.inner
    }

    fn begin(&mut self, list: List) {
        (self.list, self.entries) = (Some(list), 1);
    }

    /// What stands between parentheses or brackets inside.
    fn inside(&self, opening: &Token, before: Option<&Token>) -> Frame {
        let keyword = match before {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.keyword),
            _ => None,
        };
        let is_name = matches!(before, Some(Token::Word(_)))
            && keyword.is_none_or(|keyword| !comes_before_values(keyword));
        let is_row = keyword == Some(Keyword::ROW);
        Frame {
            is_named: *opening != Token::LParen || is_name && !is_row,
            is_row,
            is_relation: match (before, keyword) {
                (Some(Token::LParen), _) => self.is_relation,
                (Some(Token::Comma), _) => matches!(self.list, Some(List::From)),
                (_, Some(keyword)) => matches!(
                    keyword,
                    Keyword::FROM
                        | Keyword::JOIN
                        | Keyword::LATERAL
                        | Keyword::UNION
                        | Keyword::EXCEPT
                        | Keyword::INTERSECT
                        | Keyword::AS
                        | Keyword::MATERIALIZED
                ),
                _ => false,
            },
            subqueries: self.subqueries,
            ..Frame::default()
        }
    }

    fn depth(&self) -> usize {
        self.finished.max(self.depth_of_chain()) + self.set_operations
    }
}

/// Refuses a statement whose tree would be too deep, or whose lists are too long.
pub(crate) fn check_tokens(tokens: &[TokenWithSpan]) -> Result<(), Failure> {
    let mut frames = vec![Frame::default()];
    // The token before, white space apart, and whether the statement makes a relation with columns.
    let mut before: Option<&Token> = None;
    let mut is_definition = false;
    let is_grant = tokens.iter().find(|token| !is_space(token)).is_some_and(|first| {
        is_word(Some(&first.token), Keyword::GRANT) || is_word(Some(&first.token), Keyword::REVOKE)
    });
    for (at, token) in tokens.iter().enumerate() {
        if is_space(token) {
            continue;
        }
        let last = before.replace(&token.token);
        let is_outermost = frames.len() == 1;
        let frame = frames
            .last_mut()
            .expect("the outermost frame is never taken away");
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                if token.token == Token::LBracket {
                    frame.chain += 1; // A subscript, or `[]` after a type, is an operator too.
                }
                let mut inside = frame.inside(&token.token, last);
                if std::mem::take(&mut is_definition) {
                    inside.begin(List::Definitions);
                }
                if frames.len() > MAX_NESTING {
                    let message = format!("parentheses are nested more than {MAX_NESTING} deep");
                    let hint = "Name the inner queries with WITH, or remove parentheses.";
                    return Err(Failure::too_complex(message, Some(token.span.start), hint));
                }
                frames.push(inside);
                continue;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let depth = frame.depth() + 1;
                let rows = frame.rows + usize::from(frame.is_row);
                if rows > MAX_ROWS {
                    let message = format!("rows are nested more than {MAX_ROWS} deep");
                    let hint = "Name the inner values, or put them into columns.";
                    return Err(Failure::too_complex(message, Some(token.span.start), hint));
                }
                if frames.len() > 1 {
                    frames.pop();
                    let outer = frames
                        .last_mut()
                        .expect("the outermost frame is never taken away");
                    outer.inner = outer.inner.max(depth);
                    outer.rows = outer.rows.max(rows);
                }
            }
            Token::Comma => {
                frame.finish_chain();
                frame.entries += 1;
                frame.is_row |= !frame.is_named && frame.list.is_none() && !is_outermost;
                if let Some((limit, message)) = frame.list.map(List::limit)
                    && frame.entries > limit
                {
                    let hint = "Divide the statement, or load rows with COPY.";
                    return Err(Failure::too_complex(message, Some(token.span.start), hint));
                }
            }
            Token::SemiColon => frame.finish_chain(),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                keyword @ (Keyword::SELECT
                | Keyword::WHERE
                | Keyword::HAVING
                | Keyword::ON
                | Keyword::VALUES) => {
                    frame.finish_chain();
                    // What a join is made on stands in FROM.
                    if keyword != Keyword::ON {
                        frame.list = None;
                    }
                    if keyword == Keyword::SELECT && !is_grant {
                        frame.begin(List::Select);
                        if !std::mem::replace(&mut frame.has_query, true)
                            && !is_outermost
                            && !frame.is_relation
                        {
                            frame.subqueries += 1;
                        }
                        if frame.subqueries > MAX_SUBQUERIES {
                            let message = format!(
                                "subqueries are nested more than {MAX_SUBQUERIES} deep in expressions"
                            );
                            let hint = "Name the inner queries with WITH, or join them.";
                            return Err(Failure::too_complex(message, Some(token.span.start), hint));
                        }
                    }
                }
                Keyword::FROM if frame.has_query && !is_word(last, Keyword::DISTINCT) => {
                    frame.begin(List::From)
                }
                Keyword::BY => frame.begin(List::By),
                Keyword::WITH if frame.list.is_none() && begins_queries(&tokens[at + 1..]) => {
                    frame.begin(List::With);
                }
                Keyword::TABLE if is_outermost && !frame.has_query => is_definition = true,
                Keyword::UNION => frame.set_operations += 1,
                Keyword::EXCEPT | Keyword::INTERSECT => {
                    let counts = is_word(behind(&tokens[at + 1..]).next(), Keyword::ALL);
                    frame.set_operations += if counts { COUNTED_SET_DEPTH } else { 1 };
                }
                keyword if is_operator_word(keyword) => frame.chain += 1,
                _ => {}
            },
            other if is_operand(other) => {}
            _ => frame.chain += 1,
        }
        let frame = frames.last().expect("the outermost frame is never taken away");
        if frame.depth() > MAX_OPERATORS {
            let message = format!("more than {MAX_OPERATORS} operators in one expression");
            let hint =
                "Use IN (..), = ANY (..) or a join with VALUES instead of a long chain of AND, OR or UNION.";
            return Err(Failure::too_complex(message, Some(token.span.start), hint));
        }
    }
    Ok(())
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The tokens that are no white space.
fn behind(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &Token> {
    let tokens = tokens.iter().filter(|token| !is_space(token));
    tokens.map(|token| &token.token)
}

/// Whether queries are named behind a WITH, which stands before options and in types, too.
fn begins_queries(tokens: &[TokenWithSpan]) -> bool {
    let mut behind = behind(tokens);
    let (next, after) = (behind.next(), behind.next());
    is_word(next, Keyword::RECURSIVE)
        || matches!(next, Some(Token::Word(_)))
            && (is_word(after, Keyword::AS) || matches!(after, Some(Token::LParen)))
}

fn is_word(token: Option<&Token>, keyword: Keyword) -> bool {
    matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == keyword)
}

/// Whether what stands in parentheses behind it is a value, and not what it is called with.
fn comes_before_values(keyword: Keyword) -> bool {
    use Keyword::*;
    matches!(
        keyword,
        SELECT
            | WHERE
            | HAVING
            | ON
            | AND
            | OR
            | NOT
            | IS
            | THEN
            | ELSE
            | WHEN
            | CASE
            | DISTINCT
            | ALL
            | LIKE
            | BETWEEN
            | BY
            | RETURNING
    )
}

fn is_operator_word(keyword: Keyword) -> bool {
    use Keyword::*;
    matches!(
        keyword,
        AND | OR
            | NOT
            | IS
            | NOTNULL
            | IN
            | LIKE
            | ILIKE
            | SIMILAR
            | BETWEEN
            | COLLATE
            | AT
            | OPERATOR
            | OVERLAPS
            | XOR
            | REGEXP
            | RLIKE
            | ARRAY
            | CASE
            | EXPLAIN
            | JOIN
    )
}

/// Whether a token cannot add a level to the tree. Periods can, but names of more than a few parts are refused later.
fn is_operand(token: &Token) -> bool {
    matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::Placeholder(_)
            | Token::Whitespace(_)
            | Token::EOF
    )
}

#[cfg(test)]
mod tests {
    use crate::{MAX_OPERATORS, ParseErrorKind, parse};

    fn refused(sql: &str) -> bool {
        parse(sql).is_err_and(|error| error.kind == ParseErrorKind::TooComplex)
    }

    #[test]
    fn chains_and_nesting_are_refused_not_overflowed() {
        for n in [2_000, 100_000] {
            assert!(refused(&format!("SELECT 1{}", " + 1".repeat(n))));
            assert!(refused(&format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n))));
            assert!(refused(&format!(
                "SELECT 1{}",
                " EXCEPT ALL SELECT 1".repeat(n / 10)
            )));
            assert!(refused(&format!(
                "TABLE a{}",
                " INTERSECT ALL TABLE a".repeat(n / 10)
            )));
            assert!(refused(&format!("SELECT {}1", "- ".repeat(n))));
            assert!(refused(&format!("SELECT {}true", "NOT ".repeat(n))));
            assert!(refused(&format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n))));
            assert!(refused(&format!("SELECT 1{}", "::int".repeat(n))));
            assert!(refused(&format!("SELECT a{}", "[1]".repeat(n))));
            assert!(refused(&format!("SELECT 1::int{}", "[]".repeat(n))));
            assert!(refused(&format!("SELECT 1{}", " IS NULL".repeat(n))));
            assert!(refused(&format!("{}SELECT 1", "EXPLAIN ".repeat(n))));
            assert!(refused(&format!("SELECT {}1", "CASE WHEN a THEN ".repeat(n))));
            assert!(refused(&format!("SELECT a{}", ".b".repeat(n))));
            assert!(refused(&format!("SELECT * FROM a {}", " JOIN a ".repeat(n))));
        }
    }

    #[test]
    fn what_the_limits_allow_fits_a_small_stack() {
        let worst = [
            format!("SELECT 1{}", " + 1".repeat(MAX_OPERATORS - 1)),
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(MAX_OPERATORS - 1)),
            format!("SELECT 1{}", " EXCEPT SELECT 1".repeat(MAX_OPERATORS - 1)),
            format!("SELECT 1{}", " EXCEPT ALL SELECT 1".repeat(MAX_OPERATORS / 10)),
            format!("SELECT {}1{}", "(".repeat(40), ")".repeat(40)),
            format!("SELECT {}1{}", "(1 + ".repeat(40), ")".repeat(40)),
            format!("SELECT {}1{}", "coalesce(".repeat(40), ")".repeat(40)),
            format!("SELECT {}1{}", "(SELECT ".repeat(20), ")".repeat(20)),
            format!(
                "SELECT * FROM {}a JOIN b ON true{}",
                "(".repeat(20),
                ")".repeat(20)
            ),
            format!("SELECT 1 WHERE a = 1{}", " OR a = 1 AND b = 2".repeat(190)),
        ];
        let run = move || {
            for sql in worst {
                match parse(&sql) {
                    Ok(parsed) => assert!(!parsed[0].statement.to_string().is_empty()),
                    Err(error) => {
                        assert_eq!(error.kind, ParseErrorKind::TooComplex, "{}: {error}", &sql[..60])
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
        thread.expect("a thread starts").join().expect("nothing panics");
    }

    #[test]
    fn lists_and_nesting_have_limits() {
        let list = |count: usize| vec!["x"; count].join(", ");
        let nested = |before: &str, count: usize, after: &str| {
            format!("SELECT {}1{}", before.repeat(count), after.repeat(count))
        };
        let with = |count: usize| {
            let queries: Vec<String> = (0..count).map(|n| format!("q{n} AS (SELECT 1, 2)")).collect();
            format!("WITH {} SELECT 1", queries.join(", "))
        };
        let cases: [(&dyn Fn(usize) -> String, usize); 17] = [
            (&|count| format!("SELECT {}", list(count)), 1_664),
            (
                &|count| format!("SELECT 1 UNION SELECT {} FROM a, b", list(count)),
                1_664,
            ),
            (
                &|count| format!("SELECT a IS DISTINCT FROM {}", list(count)),
                1_664,
            ),
            (
                &|count| format!("SELECT 1 FROM t ORDER BY {}", list(count)),
                1_664,
            ),
            (
                &|count| format!("SELECT 1 FROM t GROUP BY {} HAVING true", list(count)),
                1_664,
            ),
            (
                &|count| format!("SELECT 1 FROM {} WHERE a IN (1, 2)", list(count)),
                500,
            ),
            (
                &|count| format!("SELECT 1 FROM a JOIN b ON true, {}", list(count - 1)),
                500,
            ),
            (&with, 500),
            (&|count| format!("SELECT * FROM ({}) y", with(count)), 500),
            (&|count| format!("EXPLAIN {}", with(count)), 500),
            (&|count| format!("CREATE VIEW v AS {}", with(count)), 500),
            (&|count| format!("INSERT INTO t (a, b) {}", with(count)), 500),
            (&|count| with(count).replacen("q0", "RECURSIVE q0 (a, b)", 1), 500),
            (
                &|count| format!("GRANT {} ON t TO u; SELECT {}", list(3_000), list(count)),
                1_664,
            ),
            (&|count| nested("(SELECT ", count, ")"), 12),
            (&|count| nested("1 IN (SELECT 1 WHERE ", count, ")"), 12),
            (&|count| nested("row(", count, ")"), 12),
        ];
        for (number, (text, limit)) in cases.into_iter().enumerate() {
            assert!(
                !refused(&text(limit)),
                "{number}: {:?}",
                parse(&text(limit)).err()
            );
            assert!(refused(&text(limit + 1)), "{number}");
        }
        assert!(refused(&format!(
            "SELECT {}1{}",
            "(".repeat(13),
            ", 2)".repeat(13)
        )));
        assert!(refused(&format!(
            "CREATE TABLE t ({})",
            vec!["x int"; 10_000].join(", ")
        )));
        // What is no expression may be nested, and what is no list may be long.
        for fine in [
            nested("(", 40, ")"),
            nested("abs(", 40, ")"),
            format!(
                "SELECT * FROM {}a{}",
                "(SELECT * FROM ".repeat(20),
                ") q".repeat(20)
            ),
            format!("INSERT INTO t ({}) VALUES ({})", list(1_600), list(1_600)),
            format!("SELECT 1 IN ({})", list(10_000)),
            format!("SELECT f({}) FROM t", list(3_000)),
            format!("GRANT SELECT ON t TO {}", list(3_000)),
            format!(
                "CREATE TABLE t (a timestamp with time zone, {})",
                vec!["x int"; 1_500].join(", ")
            ),
        ] {
            assert!(!refused(&fine), "{}", &fine[..40]);
        }
    }

    #[test]
    fn long_lists_are_fine() {
        let values = vec!["(1, 'a', -2.5, now() - interval '1 day')"; 5_000].join(", ");
        assert!(parse(&format!("INSERT INTO t VALUES {values}")).is_ok());
        let list = vec!["a.b + 1"; 3_000].join(", ");
        assert!(parse(&format!("SELECT f({list}) FROM t WHERE x IN ({list})")).is_ok());
    }
}
