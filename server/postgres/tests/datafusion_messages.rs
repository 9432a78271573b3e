//! The messages of DataFusion and Arrow that are recognised by their words (`from_internal`), each provoked from plain DataFusion, so
//! that an upgrade that rewords one fails here and not in front of a user.

use datafusion::common::config::Dialect;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{SessionConfig, SessionContext};
use millrace_postgres::error::{SqlError, SqlState};

/// A message that is recognised.
struct Recognised {
    /// The words that are looked for, in small letters.
    words: &'static str,
    /// What makes DataFusion say them.
    sql: &'static str,
    code: SqlState,
    /// What the user reads, or how it begins.
    says: &'static str,
}

const fn recognised(
    words: &'static str,
    sql: &'static str,
    code: SqlState,
    says: &'static str,
) -> Recognised {
    Recognised {
        words,
        sql,
        code,
        says,
    }
}

const RECOGNISED: &[Recognised] = &[
    // Of the planner.
    recognised(
        "does not support logical expression windowfunction",
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE row_number() OVER () > 1",
        SqlState::WindowingError,
        "window functions are allowed only in the select list and in ORDER BY",
    ),
    recognised(
        "range requires exactly one order by column",
        "SELECT sum(x) OVER (PARTITION BY x RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1)) AS t(x)",
        SqlState::WindowingError,
        "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
    ),
    recognised(
        "invalid function",
        "SELECT subst(1)",
        SqlState::UndefinedFunction,
        "function subst does not exist",
    ),
    recognised(
        "while expanding wildcard, column \"",
        "SELECT x FROM (VALUES (1, 2)) AS t(x, y) GROUP BY y",
        SqlState::GroupingError,
        "column \"t.x\" must appear in the GROUP BY clause or be used in an aggregate function",
    ),
    recognised(
        "invalid qualifier",
        "SELECT a.* FROM (VALUES (1)) AS b(x)",
        SqlState::UndefinedTable,
        "missing FROM-clause entry for table \"a\"",
    ),
    recognised(
        "for select distinct, order by expressions",
        "SELECT DISTINCT x FROM (VALUES (1, 2)) AS t(x, y) ORDER BY y",
        SqlState::InvalidColumnReference,
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    ),
    recognised(
        "must appear in the group by",
        "SELECT y FROM (VALUES (1, 2)) AS t(x, y) HAVING x > 1",
        SqlState::GroupingError,
        "HAVING clause references",
    ),
    recognised(
        "aggregate functions are not allowed in the where",
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE sum(x) > 1",
        SqlState::GroupingError,
        "aggregate functions are not allowed in WHERE",
    ),
    recognised(
        "aggregate function calls cannot be nested",
        "SELECT sum(sum(x)) FROM (VALUES (1)) AS t(x)",
        SqlState::GroupingError,
        "aggregate function calls cannot be nested",
    ),
    recognised(
        "cannot find column with position",
        "SELECT x FROM (VALUES (1)) AS t(x) GROUP BY 2",
        SqlState::InvalidColumnReference,
        "GROUP BY position 2 is not in select list",
    ),
    recognised(
        "order by column out of bounds, specified:",
        "SELECT x FROM (VALUES (1)) AS t(x) ORDER BY 2",
        SqlState::InvalidColumnReference,
        "ORDER BY position 2 is not in select list",
    ),
    recognised(
        "limit must be >=",
        "SELECT x FROM (VALUES (1)) AS t(x) LIMIT -1",
        SqlState::InvalidRowCountInLimitClause,
        "LIMIT must not be negative",
    ),
    recognised(
        "offset must be >=",
        "SELECT x FROM (VALUES (1)) AS t(x) OFFSET -1",
        SqlState::InvalidRowCountInResultOffsetClause,
        "OFFSET must not be negative",
    ),
    recognised(
        "cannot create filter with non-boolean predicate",
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE x",
        SqlState::DatatypeMismatch,
        "argument of WHERE must be type boolean",
    ),
    recognised(
        "failed to match any signature",
        "SELECT sum(x) FROM (VALUES ('a')) AS t(x)",
        SqlState::UndefinedFunction,
        "function sum does not exist for arguments of this type",
    ),
    recognised(
        "no function matches",
        "SELECT strpos(1)",
        SqlState::UndefinedFunction,
        "Function 'strpos' expects 2 arguments",
    ),
    recognised(
        "failed to coerce arguments",
        "SELECT chr(DATE '2020-01-01')",
        SqlState::UndefinedFunction,
        "function chr(date) does not exist",
    ),
    recognised(
        "cannot coerce",
        "SELECT true + 1",
        SqlState::UndefinedFunction,
        "operator does not exist: boolean + bigint",
    ),
    recognised(
        "cannot infer common argument type",
        "SELECT 1 = true",
        SqlState::UndefinedFunction,
        "operator does not exist: bigint = boolean",
    ),
    recognised(
        "not found",
        "SELECT * FROM absent",
        SqlState::UndefinedTable,
        "table 'datafusion.public.absent' not found",
    ),
    recognised(
        "placeholder",
        "SELECT $0",
        SqlState::UndefinedParameter,
        "Invalid placeholder, zero is not a valid index: $0",
    ),
    recognised(
        "projections require unique expression names",
        "SELECT 1 AS x, 2 AS x",
        SqlState::DuplicateColumn,
        "Projections require unique expression names",
    ),
    recognised(
        "does not support logical expression aggregatefunction",
        "SELECT 1 FROM (VALUES (1)) AS t(x) JOIN (VALUES (1)) AS u(y) ON sum(x) = y",
        SqlState::GroupingError,
        "aggregate functions are not allowed here",
    ),
    recognised(
        "does not support logical expression scalarsubquery",
        "SELECT (SELECT max(y) FROM (SELECT y FROM (VALUES (1)) AS u(y) WHERE y < x LIMIT 1) AS v) FROM (VALUES (1)) AS t(x)",
        SqlState::FeatureNotSupported,
        "a correlated subquery of this form is not supported",
    ),
    recognised(
        "decimal scale ",
        "SELECT 1e200",
        SqlState::NumericValueOutOfRange,
        "value overflows numeric format",
    ),
    recognised(
        "exceeds the maximum supported precision",
        "SELECT 1e-100",
        SqlState::NumericValueOutOfRange,
        "value overflows numeric format",
    ),
    recognised(
        "unsupported binary operator: pgoverlap",
        "SELECT x && x FROM (VALUES (1)) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: &&",
    ),
    recognised(
        "unsupported sql unary operator ",
        "SELECT @ x FROM (VALUES (1)) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: ",
    ),
    recognised(
        "operator -> is not yet supported",
        "SELECT x -> 'a' FROM (VALUES ('a')) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: ->",
    ),
    recognised(
        "unary operator '",
        "SELECT - x FROM (VALUES ('a')) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: -",
    ),
    recognised(
        "unary operator 'not'",
        "SELECT NOT x FROM (VALUES ('a')) AS t(x)",
        SqlState::DatatypeMismatch,
        "argument of NOT must be type boolean, not type text",
    ),
    recognised(
        "cannot infer common type for bitwise operation ",
        "SELECT x & x FROM (VALUES (1.5::real)) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: real & real",
    ),
    recognised(
        "cannot infer common string type for ",
        "SELECT x || x FROM (VALUES (true)) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: boolean || boolean",
    ),
    recognised(
        "cannot coerce arithmetic expression ",
        "SELECT x * x FROM (VALUES (DATE '2020-01-01')) AS t(x)",
        SqlState::UndefinedFunction,
        "operator does not exist: date * date",
    ),
    recognised(
        "for logical boolean operation ",
        "SELECT x AND x FROM (VALUES (DATE '2020-01-01')) AS t(x)",
        SqlState::DatatypeMismatch,
        "argument of AND must be type boolean, not type date",
    ),
    recognised(
        "with query name",
        "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a",
        SqlState::DuplicateAlias,
        "WITH query name \"a\" specified more than once",
    ),
    recognised(
        "invalid window frame: frame offsets for rows",
        "SELECT sum(x) OVER (ORDER BY x ROWS -1 PRECEDING) FROM (VALUES (1)) AS t(x)",
        SqlState::InvalidPrecedingOrFollowingSize,
        "frame offsets of ROWS and GROUPS must be integers that are not negative",
    ),
    recognised(
        "expected limit",
        "SELECT x FROM (VALUES (1)) AS t(x) LIMIT true",
        SqlState::DatatypeMismatch,
        "argument of LIMIT must be type bigint, not type boolean",
    ),
    recognised(
        "unsupported limit",
        "SELECT x FROM (VALUES (1)) AS t(x) LIMIT CAST(random() * 2 AS BIGINT)",
        SqlState::FeatureNotSupported,
        "LIMIT takes only what can be computed without reading rows",
    ),
    recognised(
        "unsupported cast",
        "SELECT CAST(x AS INT) FROM (VALUES (make_array(1))) AS t(x)",
        SqlState::CannotCoerce,
        "Unsupported CAST",
    ),
    recognised(
        "was not provided a value",
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE x = $1",
        SqlState::UndefinedParameter,
        "there is no parameter $1",
    ),
    recognised(
        "array_resize: failed to convert size",
        "SELECT array_resize(make_array(x), -1, 0) FROM (VALUES (1)) AS t(x)",
        SqlState::InvalidParameterValue,
        "array size of array_resize must not be negative",
    ),
    recognised(
        "overflowing on",
        "SELECT CAST(x AS DECIMAL(38, 30)) FROM (VALUES (CAST(1e30 AS DOUBLE PRECISION))) AS t(x)",
        SqlState::NumericValueOutOfRange,
        "numeric field overflow",
    ),
    recognised(
        "overflows for output scale",
        "SELECT CAST(x AS DECIMAL(38, 30)) FROM (VALUES (1e30)) AS t(x)",
        SqlState::NumericValueOutOfRange,
        "numeric field overflow",
    ),
    // Of kernels, as a query runs.
    recognised(
        "divide by zero",
        "SELECT x / 0 FROM (VALUES (1)) AS t(x)",
        SqlState::DivisionByZero,
        "division by zero",
    ),
    recognised(
        "subquery returned more than one row",
        "SELECT (SELECT x FROM (VALUES (1), (2)) AS t(x))",
        SqlState::CardinalityViolation,
        "more than one row returned by a subquery used as an expression",
    ),
    recognised(
        "overflow",
        "SELECT factorial(100)",
        SqlState::NumericValueOutOfRange,
        "value out of range",
    ),
    recognised(
        "too large to store",
        "SELECT CAST(x AS DECIMAL(3, 1)) FROM (VALUES (1000)) AS t(x)",
        SqlState::NumericValueOutOfRange,
        "value out of range",
    ),
    recognised(
        "out of range",
        "SELECT make_date(2020, 13, 1)",
        SqlState::NumericValueOutOfRange,
        "value out of range",
    ),
    recognised(
        "int64array overflow",
        "SELECT abs(CAST(-9223372036854775808 AS BIGINT))",
        SqlState::NumericValueOutOfRange,
        "bigint out of range",
    ),
    recognised(
        "can't cast value",
        "SELECT CAST(x AS SMALLINT) FROM (VALUES (300000)) AS t(x)",
        SqlState::NumericValueOutOfRange,
        "smallint out of range",
    ),
    recognised(
        "cannot cast string 'x' to value of int32",
        "SELECT CAST(x AS INT) FROM (VALUES ('x')) AS t(x)",
        SqlState::InvalidTextRepresentation,
        "invalid input syntax for type integer: \"x\"",
    ),
    recognised(
        "cannot cast value 'x' to value of boolean",
        "SELECT CAST(x AS BOOLEAN) FROM (VALUES ('x')) AS t(x)",
        SqlState::InvalidTextRepresentation,
        "invalid input syntax for type boolean: \"x\"",
    ),
    recognised(
        "parsing timestamp from 'x'",
        "SELECT CAST(x AS TIMESTAMP) FROM (VALUES ('x')) AS t(x)",
        SqlState::InvalidDatetimeFormat,
        "invalid input syntax for type timestamp: \"x\"",
    ),
    recognised(
        "regular expression did not compile: ",
        "SELECT x ~ y FROM (VALUES ('a', '(')) AS t(x, y)",
        SqlState::InvalidRegularExpression,
        "invalid regular expression",
    ),
    recognised(
        "regex parse error",
        "SELECT regexp_replace('a', '(', 'b')",
        SqlState::InvalidRegularExpression,
        "invalid regular expression",
    ),
    recognised(
        "compiled regex exceeds size limit",
        "SELECT regexp_replace('a', 'a{1000}{1000}', 'b')",
        SqlState::InvalidRegularExpression,
        "invalid regular expression",
    ),
];

async fn fails(sql: &str) -> Result<DataFusionError> {
    let mut config = SessionConfig::new().with_target_partitions(1);
    config.options_mut().sql_parser.dialect = Dialect::PostgreSQL;
    config.options_mut().sql_parser.parse_float_as_decimal = true;
    let context = SessionContext::new_with_config(config);
    let plan = match context.sql(sql).await {
        Ok(plan) => plan,
        Err(error) => return Ok(error),
    };
    match plan.collect().await {
        Ok(_) => datafusion::common::internal_err!("it has an answer"),
        Err(error) => Ok(error),
    }
}

#[tokio::test]
async fn datafusion_says_what_it_is_recognised_by() {
    let mut wrong = vec![];
    for Recognised {
        words,
        sql,
        code,
        says,
    } in RECOGNISED
    {
        let error = match fails(sql).await {
            Ok(error) => error,
            Err(error) => {
                wrong.push(format!("{sql}: {}", error.strip_backtrace()));
                continue;
            }
        };
        let text = error.to_string();
        if !text.to_lowercase().contains(words) {
            wrong.push(format!("{sql}: instead of \"{words}\" it says: {text}"));
        }
        let shown = SqlError::from(error);
        if shown.code != *code || !shown.message.starts_with(says) {
            wrong.push(format!(
                "{sql}: {:?} {:?}, instead of {code:?} {says:?}",
                shown.code, shown.message
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The name that it suggests is a part of the message.
#[tokio::test]
async fn a_function_that_is_meant_is_suggested() {
    let error = fails("SELECT subst(1)").await.unwrap();
    assert!(error.to_string().contains("Did you mean"), "{error}");
    let hint = SqlError::from(error).hint;
    assert_eq!(hint.as_deref(), Some("Perhaps you meant \"substr\"."));
}

/// What a message begins with, and what stands behind it, is not shown.
#[tokio::test]
async fn prefixes_and_backtraces_are_left_out() {
    for (prefix, sql) in [
        ("Error during planning: ", "SELECT * FROM absent"),
        ("Execution error: ", "SELECT chr(-1)"),
        ("This feature is not implemented: ", "SELECT CAST(true AS DATE)"),
    ] {
        let error = fails(sql).await.unwrap();
        assert!(error.to_string().contains(prefix), "{sql}: {error}");
        let shown = SqlError::from(error).message;
        assert!(!shown.contains(prefix) && !shown.contains("backtrace"), "{shown}");
    }
}
