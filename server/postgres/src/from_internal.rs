//! The one place where errors of the layers below become what a user sees.
//!
//! Every `match` here is exhaustive over the enums that are ours; for DataFusion and Arrow every variant is named, so
//! that a new version makes itself noticed. What only a defect can cause is `XX000` with its text.

mod definitions;
mod numbers;
mod planning;
mod schema;
mod views;
mod windows;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millrace_engine::RuntimeError;
use millrace_operator::error::OperatorError;
use millrace_parser::{ParseError, ParseErrorKind};
use millrace_planner::PlanError;
use millrace_resource::error::ResourceError;
use millrace_sql::{Fault, Faulty};
use millrace_storage::StorageError;

use self::definitions::invalid_definition;
use self::numbers::{cast, numeric_overflow, overflow};
use self::planning::{known_plan_error, no_operator, of_grouping, of_limit};
use self::schema::schema;
pub use self::views::view_message;
use self::windows::of_window;
use crate::error::input::shortened;
use crate::error::{SqlError, SqlResult, SqlState};

/// A statement that does not parse.
pub fn parse(error: ParseError) -> SqlError {
    let code = match error.kind {
        ParseErrorKind::Syntax => invalid_definition(&error.message).unwrap_or(SqlState::SyntaxError),
        ParseErrorKind::Unsupported => SqlState::FeatureNotSupported,
        ParseErrorKind::TooComplex => SqlState::StatementTooComplex,
    };
    SqlError::new(code, error.message)
        .with_hint_opt(error.hint)
        .at(error.position)
}

/// A query that cannot be planned.
pub fn plan(error: PlanError) -> SqlError {
    match error {
        PlanError::NotIncremental { construct, hint } => {
            SqlError::unsupported(format!("{construct} is not supported in a materialized view"))
                .with_hint_opt(hint)
        }
        PlanError::DataFusion(error) => datafusion(error),
        PlanError::Internal(message) => SqlError::internal(message),
    }
}

/// A statement that says what cannot be.
fn faulty(Faulty { fault, message }: Faulty) -> SqlError {
    let code = match fault {
        Fault::InvalidParameter => SqlState::InvalidParameterValue,
        Fault::DatatypeMismatch => SqlState::DatatypeMismatch,
        Fault::DatetimeOverflow => SqlState::DatetimeFieldOverflow,
        Fault::UndefinedColumn => SqlState::UndefinedColumn,
        Fault::UndefinedTable => SqlState::UndefinedTable,
        Fault::UndefinedFunction => SqlState::UndefinedFunction,
        Fault::WrongObjectType => SqlState::WrongObjectType,
        Fault::TooComplex => SqlState::StatementTooComplex,
        Fault::LimitExceeded => SqlState::ProgramLimitExceeded,
        Fault::AmbiguousColumn => SqlState::AmbiguousColumn,
        Fault::DuplicateAlias => SqlState::DuplicateAlias,
        Fault::InvalidColumnReference => SqlState::InvalidColumnReference,
        Fault::InvalidFrameOffset => SqlState::InvalidPrecedingOrFollowingSize,
        Fault::NullNotAllowed => SqlState::NullValueNotAllowed,
        Fault::InvalidRecursion => SqlState::InvalidRecursion,
        Fault::SyntaxError => SqlState::SyntaxError,
    };
    SqlError::new(code, message)
}

/// What to do where memory is short.
const MEMORY_HINT: &str = "Raise memory_limit (ALTER SYSTEM SET memory_limit), or read less at once; mr_catalog.memory \
                           lists what uses the memory.";

/// A failure while running.
pub fn runtime(error: RuntimeError) -> SqlError {
    match error {
        RuntimeError::Storage(error) => storage(error),
        RuntimeError::DataFusion(error) => datafusion(error),
        RuntimeError::Resource(error) => resource(error),
        RuntimeError::UnknownRelation(id) => SqlError::new(
            SqlState::UndefinedTable,
            format!("a relation of the statement was dropped while it ran (relation {id})"),
        ),
        RuntimeError::DuplicateKey { key, .. } => duplicate_key(&key),
        RuntimeError::ViewFailed { view, why } => SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            format!("materialized view \"{view}\" failed"),
        )
        .with_detail(view_message(&why))
        .with_hint("Drop it and create it again."),
        RuntimeError::Operator(error) => operator(error),
        error @ RuntimeError::UnknownWorker(_) => SqlError::new(SqlState::UndefinedObject, error.to_string())
            .with_hint("SHOW WORKERS lists the workers."),
        error @ RuntimeError::LastWorker(_) => {
            SqlError::new(SqlState::ObjectNotInPrerequisiteState, error.to_string())
                .with_hint("Use ADD WORKER first.")
        }
        RuntimeError::WriteTimedOut { waited, cause, why } => SqlError::new(
            SqlState::OutOfMemory,
            format!(
                "write timed out after {} s: {cause} (backpressure)",
                waited.as_secs()
            ),
        )
        .with_detail(why)
        .with_hint("Nothing was stored. Retry later; SHOW BACKPRESSURE lists what is behind."),
        error @ RuntimeError::RowsLost { .. } => SqlError::new(SqlState::CrashShutdown, error.to_string()),
        error @ RuntimeError::Ended => SqlError::new(SqlState::QueryCanceled, error.to_string()),
        RuntimeError::Internal(message) => SqlError::internal(message),
    }
}

/// A failure of an operator of a view.
fn operator(error: OperatorError) -> SqlError {
    match error {
        OperatorError::Storage(error) => storage(error),
        OperatorError::DataFusion(error) => datafusion(error),
        OperatorError::Resource(error) => resource(error),
        error @ OperatorError::ExpressionFailed(_) => {
            let message = view_message(&error.to_string());
            SqlError::new(SqlState::ObjectNotInPrerequisiteState, message)
        }
        error @ OperatorError::EndlessRecursion { .. } => {
            SqlError::new(SqlState::ProgramLimitExceeded, error.to_string())
        }
        OperatorError::Internal(message) => SqlError::internal(message),
    }
}

/// A failure of a resource: slots, memory, a disk.
pub fn resource(error: ResourceError) -> SqlError {
    match error {
        ResourceError::DataFusion(error) => datafusion(error),
        error @ ResourceError::WorkerLost(_) => {
            SqlError::new(SqlState::CrashShutdown, error.to_string()).with_hint("Run it again.")
        }
        ResourceError::OutOfMemory { who, held } => SqlError::new(
            SqlState::OutOfMemory,
            format!("out of memory: {who} exceeded memory_limit"),
        )
        .with_detail(held)
        .with_hint(MEMORY_HINT),
        ResourceError::ShuttingDown => SqlError::new(SqlState::AdminShutdown, "the server is shutting down"),
        error @ ResourceError::Spill(_) => SqlError::new(SqlState::IoError, error.to_string()),
        ResourceError::Internal(message) => SqlError::internal(message),
    }
}

/// A key that exists already; `key` is `(id)=(1)`.
pub fn duplicate_key(key: &str) -> SqlError {
    SqlError::new(
        SqlState::UniqueViolation,
        "duplicate key value violates unique constraint",
    )
    .with_detail(format!("Key {key} already exists."))
}

/// A failure of the data directory.
pub fn storage(error: StorageError) -> SqlError {
    SqlError::new(storage_state(&error), error.to_string())
}

fn storage_state(error: &StorageError) -> SqlState {
    match error {
        StorageError::NotFilled { error, .. } | StorageError::LeftBehind { error, .. } => {
            storage_state(error)
        }
        StorageError::InUse { .. } => SqlState::ObjectInUse,
        StorageError::NewerFormat { .. }
        | StorageError::NotADataDirectory { .. }
        | StorageError::NoData { .. }
        | StorageError::NotEmpty { .. }
        | StorageError::NoBackup { .. }
        | StorageError::NothingOffsite { .. }
        | StorageError::CopyGone { .. }
        | StorageError::NotOurs { .. }
        | StorageError::Fenced { .. } => SqlState::ObjectNotInPrerequisiteState,
        StorageError::OffsiteDamaged { .. }
        | StorageError::Corrupt { .. }
        | StorageError::Damaged { .. }
        | StorageError::CorruptJournal { .. } => SqlState::DataCorrupted,
        StorageError::Full { .. } => SqlState::DiskFull,
        StorageError::Offsite { .. } | StorageError::Io { .. } | StorageError::Poisoned { .. } => {
            SqlState::IoError
        }
        StorageError::UnknownRelation { .. } => SqlState::UndefinedTable,
        StorageError::UnsupportedType { .. } => SqlState::FeatureNotSupported,
        StorageError::TooLarge { .. } => SqlState::ProgramLimitExceeded,
        StorageError::Closed => SqlState::AdminShutdown,
        StorageError::RelationExists { .. }
        | StorageError::SchemaMismatch { .. }
        | StorageError::InvalidChange { .. }
        | StorageError::Index { .. } => SqlState::InternalError,
    }
}

/// An error of DataFusion, at planning or while running.
pub fn datafusion(error: DataFusionError) -> SqlError {
    match error {
        DataFusionError::ArrowError(error, _) => arrow(*error),
        DataFusionError::SQL(error, _) => SqlError::new(SqlState::SyntaxError, error.to_string()),
        DataFusionError::NotImplemented(message) => not_implemented(&message),
        DataFusionError::Plan(message) => planning(&message),
        DataFusionError::Configuration(message) => {
            SqlError::new(SqlState::InvalidParameterValue, plain(&message))
        }
        DataFusionError::SchemaError(error, _) => schema(*error),
        DataFusionError::Execution(message) => execution(&message),
        DataFusionError::ResourcesExhausted(message) => exhausted(&message),
        DataFusionError::External(error) => external(error),
        DataFusionError::Context(_, inner) => datafusion(*inner),
        DataFusionError::Diagnostic(_, inner) => datafusion(*inner),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => datafusion(first),
            None => SqlError::internal("an empty collection of errors"),
        },
        DataFusionError::Shared(shared) => match shared.find_root() {
            DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
                Some(error) => error.clone(),
                None => foreign(inner.to_string()),
            },
            DataFusionError::ArrowError(inner, _) => arrow_ref(inner),
            DataFusionError::Plan(message) => planning(message),
            DataFusionError::Execution(message) => execution(message),
            DataFusionError::NotImplemented(message) => not_implemented(message),
            DataFusionError::Internal(message) => internal(message),
            DataFusionError::ResourcesExhausted(message) => exhausted(message),
            other => SqlError::internal(other.to_string()),
        },
        DataFusionError::IoError(error) => SqlError::new(io_state(&error), error.to_string()),
        DataFusionError::ObjectStore(error) => SqlError::new(SqlState::IoError, error.to_string()),
        DataFusionError::ParquetError(error) => SqlError::new(SqlState::DataCorrupted, error.to_string()),
        DataFusionError::Internal(message) => internal(&message),
        DataFusionError::ExecutionJoin(error) => {
            SqlError::internal(format!("a task of the query ended: {error}"))
        }
        DataFusionError::Substrait(message) | DataFusionError::Ffi(message) => SqlError::internal(message),
    }
}

/// Not enough of something: memory, or time of a call in JavaScript, whose messages name the setting.
fn exhausted(message: &str) -> SqlError {
    let error = |state| SqlError::new(state, plain(message));
    if message.contains("javascript_call_timeout") {
        return error(SqlState::ProgramLimitExceeded)
            .with_hint("A superuser can raise it: ALTER SYSTEM SET javascript_call_timeout = '1s'.");
    }
    if message.contains("javascript_memory") {
        return error(SqlState::OutOfMemory)
            .with_hint("A superuser can raise it: ALTER SYSTEM SET javascript_memory = '128MB'.");
    }
    error(SqlState::OutOfMemory).with_hint(MEMORY_HINT)
}

/// What DataFusion takes for a fault of its own. Some are the statement's, or another error's.
fn internal(message: &str) -> SqlError {
    if message.contains("array_resize: failed to convert size") {
        return SqlError::new(
            SqlState::InvalidParameterValue,
            "array size of array_resize must not be negative",
        );
    }
    // A nested loop join that has run out of memory reads its left side again, and of a recursive query that is gone.
    if message.contains("Unexpected empty work table") {
        return SqlError::new(
            SqlState::OutOfMemory,
            "out of memory: a join within a recursive query exceeded memory_limit",
        )
        .with_hint(MEMORY_HINT);
    }
    SqlError::internal(plain(message))
}

/// An error of DataFusion, in the words of the user's world.
pub fn df<T>(result: datafusion::error::Result<T>) -> SqlResult<T> {
    result.map_err(datafusion)
}

/// An error of an Arrow kernel.
pub fn arrow(error: ArrowError) -> SqlError {
    match error {
        ArrowError::ExternalError(inner) => external(inner),
        other => arrow_ref(&other),
    }
}

fn arrow_ref(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(SqlState::DivisionByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => overflow(message),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => cast(message),
        ArrowError::ComputeError(message) | ArrowError::InvalidArgumentError(message) => execution(message),
        ArrowError::NotYetImplemented(message) => SqlError::unsupported(plain(message)),
        ArrowError::MemoryError(message) => SqlError::new(SqlState::OutOfMemory, plain(message)),
        ArrowError::CsvError(message) => SqlError::new(SqlState::BadCopyFileFormat, plain(message)),
        ArrowError::JsonError(message) => SqlError::new(SqlState::InvalidTextRepresentation, plain(message)),
        ArrowError::IoError(message, error) => SqlError::new(io_state(error), plain(message)),
        ArrowError::OffsetOverflowError(_) => SqlError::new(
            SqlState::ProgramLimitExceeded,
            "a column of one batch holds more than 2 GB of text",
        ),
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<SqlError>() {
            Some(error) => error.clone(),
            None => foreign(inner.to_string()),
        },
        ArrowError::SchemaError(message)
        | ArrowError::AvroError(message)
        | ArrowError::IpcError(message)
        | ArrowError::ParquetError(message)
        | ArrowError::CDataInterface(message) => SqlError::internal(plain(message)),
        ArrowError::DictionaryKeyOverflowError | ArrowError::RunEndIndexOverflowError => {
            SqlError::internal(error.to_string())
        }
    }
}

/// An error of ours, or of a layer of ours, that travelled inside one of theirs.
fn external(error: Box<dyn std::error::Error + Send + Sync>) -> SqlError {
    let error = match error.downcast::<SqlError>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    let error = match error.downcast::<DataFusionError>() {
        Ok(error) => return datafusion(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<PlanError>() {
        Ok(error) => return plan(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<Faulty>() {
        Ok(error) => return faulty(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<RuntimeError>() {
        Ok(error) => return runtime(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<ResourceError>() {
        Ok(error) => return resource(*error),
        Err(error) => error,
    };
    match error.downcast::<ArrowError>() {
        Ok(error) => arrow(*error),
        Err(error) => foreign(error.to_string()),
    }
}

/// An error of a library below theirs, of which only the words are known: patterns are compiled by one.
fn foreign(message: String) -> SqlError {
    if message.starts_with("regex parse error") || message.starts_with("Compiled regex exceeds size limit") {
        return pattern(&message);
    }
    SqlError::internal(message)
}

fn pattern(message: &str) -> SqlError {
    let message = message.trim_start_matches("regex parse error:").trim();
    let place = shortened(message.lines().last().unwrap_or_default());
    SqlError::new(
        SqlState::InvalidRegularExpression,
        format!(
            "invalid regular expression: {}",
            place.trim_start_matches("error: ")
        ),
    )
}

/// What DataFusion's planner has no way for.
fn not_implemented(message: &str) -> SqlError {
    let text = plain(message);
    if text.contains("does not support logical expression WindowFunction") {
        return SqlError::new(
            SqlState::WindowingError,
            "window functions are allowed only in the select list and in ORDER BY",
        )
        .with_hint("Compute it in a subquery in FROM.");
    }
    if text.contains("does not support logical expression AggregateFunction") {
        return SqlError::new(
            SqlState::GroupingError,
            "aggregate functions are not allowed here",
        );
    }
    let is_left_over = |kind: &str| text.contains(&format!("does not support logical expression {kind}"));
    if ["OuterReferenceColumn", "ScalarSubquery", "InSubquery", "Exists"]
        .into_iter()
        .any(is_left_over)
    {
        return SqlError::unsupported("a correlated subquery of this form is not supported")
            .with_hint("Write it as a join, or move it to the list of columns.");
    }
    if text.contains("Unnest should be rewritten") {
        return SqlError::unsupported("set-returning functions are not allowed here")
            .with_hint("You might be able to move the set-returning function into a LATERAL FROM item.");
    }
    if text.starts_with("Query ") && text.ends_with("not implemented yet") {
        return SqlError::unsupported("INSERT, UPDATE, DELETE and MERGE cannot stand here")
            .with_hint("They may stand in the WITH of the outermost statement.");
    }
    if text.starts_with("Unsupported CAST from ") {
        return SqlError::new(SqlState::CannotCoerce, text);
    }
    if text.starts_with("Decimal scale ") || text.contains("exceeds the maximum supported precision") {
        return numeric_overflow();
    }
    if let Some(error) = of_limit(&text) {
        return error;
    }
    // It is known to the parser, but for no types that there are.
    let operator = (text
        .strip_prefix("Operator ")
        .and_then(|rest| rest.strip_suffix(" is not yet supported")))
    .or_else(|| text.strip_prefix("Unsupported binary operator: "))
    .or_else(|| text.strip_prefix("Unsupported SQL unary operator "));
    if let Some(operator) = operator {
        let operator = match operator {
            "PGOverlap" => "&&",
            "PGStartsWith" => "^@",
            "PGPrefixFactorial" => "!!",
            // `Custom("|-")`.
            other => other.split('"').nth(1).unwrap_or(other),
        };
        return SqlError::new(
            SqlState::UndefinedFunction,
            format!("operator does not exist: {operator}"),
        )
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.");
    }
    SqlError::unsupported(text)
}

/// What DataFusion's binder says in words only.
fn planning(message: &str) -> SqlError {
    let text = plain(message);
    let lower = text.to_lowercase();
    if lower.starts_with("invalid function") {
        let name = text.split('\'').nth(1).unwrap_or_default().to_string();
        let hint = text.split("Did you mean").nth(1).map(|rest| {
            let suggestion =
                rest.trim_matches(|character: char| !character.is_alphanumeric() && character != '_');
            format!("Perhaps you meant \"{suggestion}\".")
        });
        return SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {name} does not exist"),
        )
        .with_hint_opt(hint);
    }
    let known = of_limit(&text)
        .or_else(|| of_window(&text))
        .or_else(|| of_grouping(&text))
        .or_else(|| no_operator(&text));
    if let Some(error) = known.or_else(|| known_plan_error(&text, &lower)) {
        return error;
    }
    let code = if lower.contains("must appear in the group by") {
        SqlState::GroupingError
    } else if lower.contains("no function matches") || lower.contains("failed to coerce arguments") {
        SqlState::UndefinedFunction
    } else if lower.contains("cannot coerce") || lower.contains("cannot infer common argument type") {
        SqlState::DatatypeMismatch
    } else if lower.contains("table") && lower.contains("not found") {
        SqlState::UndefinedTable
    } else if lower.contains("placeholder") {
        SqlState::UndefinedParameter
    } else if lower.contains("cannot cast") {
        SqlState::CannotCoerce
    } else if lower.contains("projections require unique expression names") {
        SqlState::DuplicateColumn
    } else if lower.contains("divide by zero") {
        return SqlError::new(SqlState::DivisionByZero, "division by zero");
    } else {
        SqlState::SyntaxError
    };
    SqlError::new(code, text)
}

/// What a kernel says in words only.
fn execution(message: &str) -> SqlError {
    let text = plain(message);
    let lower = text.to_lowercase();
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        SqlError::new(SqlState::DivisionByZero, "division by zero")
    } else if let Some(error) = of_grouping(&text) {
        error
    } else if let Some(name) = without_value(&text) {
        // Statements that take no parameters are planned with what is written.
        SqlError::new(
            SqlState::UndefinedParameter,
            format!("there is no parameter {name}"),
        )
    } else if lower.contains("subquery") && lower.contains("more than one row") {
        SqlError::new(
            SqlState::CardinalityViolation,
            "more than one row returned by a subquery used as an expression",
        )
    } else if lower.contains("overflow")
        || lower.contains("too large to store")
        || lower.contains("out of range")
    {
        overflow(&text)
    } else if let Some(why) = text.strip_prefix("Regular expression did not compile: ") {
        pattern(why)
    } else if lower.contains("cast") || lower.contains("parsing") || lower.contains("cannot parse") {
        cast(&text)
    } else {
        SqlError::new(SqlState::InvalidParameterValue, text)
    }
}

/// The parameter that has no value, if that is what is wrong.
fn without_value(message: &str) -> Option<&str> {
    let (name, _) = message
        .strip_prefix("Placeholder '")?
        .split_once("' was not provided a value")?;
    Some(name)
}

/// A message without DataFusion's prefixes and advice to report a bug.
fn plain(message: &str) -> String {
    let message = message.split("\n\nbacktrace:").next().unwrap_or(message);
    let message = message
        .split(".\nThis issue was likely caused by a bug")
        .next()
        .unwrap_or(message);
    let mut text = message.trim();
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "This feature is not implemented: ",
        "Arrow error: ",
    ] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    text.trim_end_matches('.').to_string()
}

macro_rules! from {
    ($($error:ty => $function:ident,)*) => {
        $(impl From<$error> for SqlError {
            fn from(error: $error) -> Self {
                $function(error)
            }
        })*
    };
}

from! {
    ParseError => parse,
    PlanError => plan,
    RuntimeError => runtime,
    ResourceError => resource,
    StorageError => storage,
    DataFusionError => datafusion,
    ArrowError => arrow,
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

/// A full disk is told apart: something can be done about it.
fn io_state(error: &std::io::Error) -> SqlState {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SqlState::DiskFull,
        _ => SqlState::IoError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn arithmetic_errors_have_their_codes() {
        let zero = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert_eq!(datafusion(zero).code, SqlState::DivisionByZero);
        let shared = DataFusionError::Shared(Arc::new(DataFusionError::ArrowError(
            Box::new(ArrowError::ArithmeticOverflow(
                "Overflow happened on: 2147483647 + 1".into(),
            )),
            None,
        )));
        assert_eq!(datafusion(shared).code, SqlState::NumericValueOutOfRange);
    }

    #[test]
    fn operators_that_are_not_there_read_as_in_postgresql() {
        for (theirs, ours) in [
            (
                "Cannot infer common type for bitwise operation Timestamp(µs, \"UTC\") | Interval(MonthDayNano)",
                "operator does not exist: timestamp with time zone | interval",
            ),
            (
                "Cannot coerce arithmetic expression Decimal128(6, 2) % List(Int32) to valid types",
                "operator does not exist: numeric % integer[]",
            ),
            (
                "Cannot infer common argument type for comparison operation Utf8 IS DISTINCT FROM Boolean",
                "operator does not exist: text = boolean",
            ),
        ] {
            let error = planning(theirs);
            assert_eq!(
                (error.code, error.message.as_str()),
                (SqlState::UndefinedFunction, ours)
            );
        }
        let error = planning("Unary operator 'NOT' requires a boolean expression, got Int64");
        assert_eq!(error.code, SqlState::DatatypeMismatch);
    }

    #[test]
    fn bad_casts_read_as_in_postgresql() {
        let error = arrow(ArrowError::CastError(
            "Cannot cast string 'abc' to value of Int32 type".into(),
        ));
        assert_eq!(error.code, SqlState::InvalidTextRepresentation);
        assert_eq!(error.message, "invalid input syntax for type integer: \"abc\"");
    }

    #[test]
    fn our_errors_pass_through_theirs() {
        let ours = SqlError::new(SqlState::UndefinedTable, "relation \"x\" does not exist").with_hint("h");
        let wrapped = DataFusionError::Context("while".into(), Box::new(ours.clone().into()));
        assert_eq!(datafusion(wrapped), ours);
        let in_arrow =
            DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(Box::new(ours.clone()))), None);
        assert_eq!(datafusion(in_arrow), ours);
        assert_eq!(
            datafusion(DataFusionError::Shared(Arc::new(ours.clone().into()))),
            ours
        );
    }
}
