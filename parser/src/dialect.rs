//! The dialect that the tokenizer and sqlparser's parser run with: PostgreSQL's, and temporal tables.
//!
//! sqlparser asks a dialect two kinds of questions: methods, which are passed on here, and "are you PostgreSQL?",
//! which [`Dialect::dialect`] answers with yes.
//!
//! Some answers differ on purpose. What begins with a word as `EXTRACT (` does and is no such expression is parsed again, as a call of
//! a function of that name; if it has a fault, so is each such word within it, and the time doubles with each level. Words that
//! PostgreSQL reserves name no functions, and for the others there is a limit: see [`begin`]. Names of arguments are identifiers or strings, never expressions: sqlparser parses
//! every argument twice to tell an expression's name from its value, which doubles the time with each nested call. And
//! `IS DISTINCT FROM` binds as tightly as PostgreSQL has it: sqlparser takes all that follows, `AND` included, for its
//! right side.

mod aliases;

use std::any::TypeId;
use std::cell::Cell;
use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, CastKind, Expr, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::walk::walk_expressions;

/// PostgreSQL's dialect with `FOR SYSTEM_TIME AS OF`.
#[derive(Debug)]
pub(crate) struct MillraceDialect;

/// The one instance, for parsers that outlive their caller's frame.
pub(crate) static DIALECT: MillraceDialect = MillraceDialect;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// How many expressions may be begun for each token, and for any statement.
const STEPS_PER_TOKEN: u64 = 16;
const STEPS_ALWAYS: u64 = 100_000;

/// How many expressions the statement that this thread parses may still begin.
struct Steps(Cell<u64>);

impl Steps {
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

thread_local! {
    static STEPS: Steps = const { Steps(Cell::new(0)) };
}

/// Says that a statement of so many tokens is parsed now, on this thread: beginning many times as many expressions as it has tokens,
/// which only faults within faults need, ends it as being nested too deeply.
pub(crate) fn begin(tokens: usize) {
    STEPS.with(|steps| steps.0.set(STEPS_ALWAYS + STEPS_PER_TOKEN * tokens as u64));
}

/// Passes methods without arguments on to PostgreSQL's dialect.
macro_rules! as_postgres {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            POSTGRES.$method()
        })*
    };
}

impl Dialect for MillraceDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    /// `* EXCEPT (a, b)`, RisingWave's.
    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(keyword)
            || matches!(
                keyword,
                Keyword::ARRAY | Keyword::CASE | Keyword::CAST | Keyword::NOT | Keyword::NULL
            )
    }

    fn is_select_item_alias(&self, explicit: bool, keyword: &Keyword, _parser: &mut Parser) -> bool {
        explicit || aliases::of_expression(*keyword)
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        explicit || aliases::of_relation(*keyword, parser)
    }

    /// No sign and no beginning of a comment: `a>-1` has two operators, and `a>/* .. */1` one. Signs that belong to an operator are
    /// put behind it afterwards (see [`crate::tokens`]).
    fn is_custom_operator_part(&self, ch: char) -> bool {
        POSTGRES.is_custom_operator_part(ch) && !matches!(ch, '+' | '-' | '*' | '/')
    }

    /// Operators without a level of their own bind as tightly as `||` does: sqlparser has those that match patterns beside `=`.
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Word(_) if aliases::is_no_operator(parser) => Some(Ok(self.prec_unknown())),
            // No operator stands behind its operand since PostgreSQL 14.
            Token::ExclamationMark => Some(Ok(self.prec_unknown())),
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Some(Ok(POSTGRES.prec_value(Precedence::PgOther))),
            Token::Word(word) if word.keyword == Keyword::OPERATOR => {
                Some(Ok(POSTGRES.prec_value(Precedence::PgOther)))
            }
            Token::Word(word) if is_null_test(word) => Some(Ok(POSTGRES.prec_value(Precedence::Is))),
            _ => POSTGRES.get_next_precedence(parser),
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if !STEPS.with(Steps::take) {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        if let Some(interval) = interval_with_digits(parser).or_else(|| keyword_as_name(parser)) {
            return Some(interval);
        }
        if let Some(subquery) = values_as_subquery(parser) {
            return Some(subquery);
        }
        if let Some(signed) = signed(parser) {
            return Some(signed);
        }
        POSTGRES.parse_prefix(parser)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(symmetric) = between_symmetric(parser, expr) {
            return Some(symmetric);
        }
        if parser.parse_keyword(Keyword::COLLATE) {
            let collation = parser.parse_object_name(false);
            return Some(collation.map(|collation| Expr::Collate {
                expr: Box::new(expr.clone()),
                collation,
            }));
        }
        if matches!(&parser.peek_token_ref().token, Token::Word(word) if is_null_test(word)) {
            parser.advance_token();
            return Some(Ok(Expr::IsNull(Box::new(expr.clone()))));
        }
        let make = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            Expr::IsDistinctFrom
        } else if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            Expr::IsNotDistinctFrom
        } else {
            return POSTGRES.parse_infix(parser, expr, precedence);
        };
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| make(Box::new(expr.clone()), Box::new(right))))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        POSTGRES.prec_value(precedence)
    }

    as_postgres! {
        supports_unicode_string_literal, supports_filter_during_aggregation, supports_group_by_expr,
        allow_extract_custom, allow_extract_single_quotes, supports_create_index_with_clause,
        supports_explain_with_utility_options, supports_listen_notify, supports_factorial_operator,
        supports_bitwise_shift_operators, supports_comment_on, supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections, supports_nested_comments, supports_string_escape_constant,
        supports_numeric_literal_underscores, supports_array_typedef_with_brackets, supports_geometric_types,
        supports_set_names, supports_alter_column_type_using, supports_notnull_operator,
        supports_interval_options, supports_insert_table_alias, supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias, supports_comma_separated_trim, supports_xml_expressions,
    }
}

/// Whether a word is `ISNULL`, which sqlparser does not know as it does NOTNULL.
fn is_null_test(word: &Word) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull")
}

/// How many BETWEEN SYMMETRIC may be within the operands of another one: each is written twice.
const SYMMETRIC_MAX: usize = 8;

/// `x BETWEEN SYMMETRIC a AND b` is `(x BETWEEN a AND b OR x BETWEEN b AND a)`; ASYMMETRIC says nothing.
fn between_symmetric(parser: &mut Parser, expr: &Expr) -> Option<Result<Expr, ParserError>> {
    let tokens: [Token; 3] = parser.peek_tokens();
    let is = |token: &Token, keyword: Keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    let negated = is(&tokens[0], Keyword::NOT);
    let rest = &tokens[usize::from(negated)..];
    let symmetric = is(&rest[1], Keyword::SYMMETRIC);
    if !is(&rest[0], Keyword::BETWEEN) || !(symmetric || is(&rest[1], Keyword::ASYMMETRIC)) {
        return None;
    }
    for _ in 0..2 + usize::from(negated) {
        parser.advance_token();
    }
    let between = match parser.parse_between(expr.clone(), negated) {
        Ok(Expr::Between {
            expr,
            negated,
            low,
            high,
        }) if symmetric => (expr, negated, low, high),
        other => return Some(other),
    };
    let (expr, negated, low, high) = between;
    let inner: usize = [&expr, &low, &high]
        .into_iter()
        .map(|operand| symmetric_in(operand))
        .sum();
    if inner > SYMMETRIC_MAX {
        let message = "BETWEEN SYMMETRIC is nested too deeply";
        return Some(Err(ParserError::ParserError(message.to_owned())));
    }
    let one = |low: &Expr, high: &Expr| {
        Box::new(Expr::Between {
            expr: expr.clone(),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        })
    };
    let op = match negated {
        true => BinaryOperator::And,
        false => BinaryOperator::Or,
    };
    Some(Ok(Expr::Nested(Box::new(Expr::BinaryOp {
        left: one(&low, &high),
        op,
        right: one(&high, &low),
    }))))
}

/// How many there are in an expression, as they are written there.
fn symmetric_in(expr: &Expr) -> usize {
    let mut count = 0;
    let _ = walk_expressions(expr, |expr| {
        if let Expr::BinaryOp { left, right, .. } = expr
            && let (Expr::Between { low, .. }, Expr::Between { high, .. }) = (left.as_ref(), right.as_ref())
            && low == high
        {
            count += 1;
        }
        ControlFlow::<()>::Continue(())
    });
    count
}

/// `(VALUES (1))`, which sqlparser takes for a call.
fn values_as_subquery(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let [open, word, next]: [Token; 3] = parser.peek_tokens();
    let is_values = matches!(&word, Token::Word(word) if word.keyword == Keyword::VALUES);
    if !is_values || open != Token::LParen || next != Token::LParen {
        return None;
    }
    parser.advance_token();
    let query = parser.parse_query();
    Some(query.and_then(|query| {
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::Subquery(query))
    }))
}

/// `INTERVAL(3) '1 s'`, whose digits sqlparser forgets.
fn interval_with_digits(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let tokens: [Token; 5] = parser.peek_tokens();
    match &tokens {
        [
            Token::Word(word),
            Token::LParen,
            Token::Number(..),
            Token::RParen,
            Token::SingleQuotedString(_),
        ] if word.keyword == Keyword::INTERVAL => {}
        _ => return None,
    }
    let data_type = match parser.parse_data_type() {
        Ok(data_type) => data_type,
        Err(error) => return Some(Err(error)),
    };
    Some(parser.parse_value().map(|value| Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Value(value)),
        data_type,
        array: false,
        format: None,
    }))
}

/// `interval + 1`, `trim`, `exists`: where nothing follows that the keyword stands for, it is the name of a column. sqlparser takes the
/// next operand for the literal of an interval, and never takes the others for names.
fn keyword_as_name(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let [name, next]: [&TokenWithSpan; 2] = parser.peek_tokens_ref();
    let Token::Word(word) = &name.token else {
        return None;
    };
    let is_literal = matches!(
        next.token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::Placeholder(_)
    );
    let is_keyword = match word.keyword {
        Keyword::INTERVAL => is_literal,
        Keyword::TRIM | Keyword::EXISTS => false,
        _ => return None,
    };
    if is_keyword || next.token == Token::LParen {
        return None;
    }
    let name = word.to_ident(name.span);
    parser.advance_token();
    Some(Ok(Expr::Identifier(name)))
}

/// How tightly a sign binds: more than COLLATE and less than a subscript.
const SIGN: u8 = 125;

/// The operator that a token is before its operand, and how it binds.
fn prefix_operator(token: &Token) -> Option<(UnaryOperator, u8)> {
    let other = POSTGRES.prec_value(Precedence::PgOther);
    Some(match token {
        Token::Minus => (UnaryOperator::Minus, SIGN),
        Token::Plus => (UnaryOperator::Plus, SIGN),
        Token::Tilde => (UnaryOperator::BitwiseNot, other),
        Token::AtSign => (UnaryOperator::PGAbs, other),
        Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, other),
        Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, other),
        _ => return None,
    })
}

/// `-2 ^ 2` is `(-2) ^ 2`, and `~1 + 2` is `~(1 + 2)`: sqlparser has both otherwise. `- -1` becomes `-(-1)`, since sqlparser writes signs
/// without a space, and two of them are a comment.
fn signed(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let (op, precedence) = prefix_operator(&parser.peek_token_ref().token)?;
    let is_before_another = prefix_operator(&parser.peek_nth_token_ref(1).token).is_some();
    parser.next_token();
    Some(parser.parse_subexpr(precedence).map(|operand| {
        let operand = match is_before_another {
            true => Expr::Nested(Box::new(operand)),
            false => operand,
        };
        Expr::UnaryOp {
            op,
            expr: Box::new(operand),
        }
    }))
}

#[cfg(test)]
mod tests {
    use crate::{ParseErrorKind, parse};

    /// Without a limit this takes as many steps as two to the power of the depth. Where a word is reserved, the fault is still told.
    #[test]
    fn a_fault_within_many_levels_is_told_or_refused() {
        let reserved = [
            "(NOT {})",
            "CASE WHEN {} THEN 1 END",
            "CASE WHEN a THEN 1 ELSE {} END",
            "CAST({} AS int)",
            "ARRAY[{}]",
        ];
        let others = [
            "extract(day from {})",
            "substring({} from 1 for 2)",
            "position('a' in {})",
            "overlay({} placing 'a' from 1)",
            "ceil({})",
            "floor({})",
            "trim({})",
            "abs({})",
            "convert({}, 'a')",
            "interval({})",
            "(SELECT a FROM ({}) x)",
        ];
        for step in reserved.into_iter().chain(others) {
            for (fault, depth) in [("1 1", 30), ("1 +", 30), ("'a", 30), ("(a IS NULL)", 60)] {
                let nested = (0..depth).fold(fault.to_owned(), |inner, _| step.replace("{}", &inner));
                let Err(error) = parse(&format!("SELECT {nested}")) else {
                    continue;
                };
                let is_told = error.kind != ParseErrorKind::TooComplex;
                assert!(is_told || depth > 30 || others.contains(&step), "{step}: {error}");
            }
        }
        // Words that name expressions are names as well.
        for sql in [
            "SELECT interval, position, extract, ceil FROM t",
            "SELECT max(interval) FROM t",
            "SELECT interval + 1, interval - interval '1 s', id, interval FROM t GROUP BY interval ORDER BY interval",
            "UPDATE t SET interval = interval + 1 WHERE interval = 1",
            "SELECT CASE WHEN interval = 1 THEN interval END, interval::int, t.interval FROM t",
            "SELECT trim, trim + 1, exists, top, top + 1, sum(trim) FROM t GROUP BY cube, rollup ORDER BY exists",
            "SELECT DISTINCT top FROM unnest, unnest(a) WHERE unnest.b = 1",
        ] {
            assert!(parse(sql).is_ok(), "{sql}");
        }
    }
}
