//! What a user is told when something fails: a message, its SQLSTATE, and where known a detail, a hint, the context
//! and the position in the SQL text.
//!
//! Everything that may go wrong below the server arrives here as one of a few error types and becomes a [`SqlError`]
//! in exactly one place: [`crate::from_internal`]. The wire protocols only print what they are given.

pub mod input;

use std::fmt;

/// Result of everything in the server that answers a user.
pub type SqlResult<T> = Result<T, SqlError>;

/// Declares the SQLSTATEs that millrace uses, each with PostgreSQL's name and code.
macro_rules! sql_states {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The SQLSTATEs that millrace answers with. The names are those of PostgreSQL's appendix A.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum SqlState {
            $($(#[$doc])* $name,)*
        }

        impl SqlState {
            /// The five characters that go over the wire.
            pub fn code(self) -> &'static str {
                match self {
                    $(SqlState::$name => $code,)*
                }
            }
        }
    };
}

sql_states! {
    /// Only a note; nothing failed.
    SuccessfulCompletion = "00000",
    /// A warning, for example COMMIT outside a transaction.
    Warning = "01000",
    /// The protocol was broken by the client.
    ProtocolViolation = "08P01",
    /// The construct is known, but millrace does not do it.
    FeatureNotSupported = "0A000",
    /// A value is too long for varchar(n) or char(n).
    StringDataRightTruncation = "22001",
    /// A number does not fit its type.
    NumericValueOutOfRange = "22003",
    /// A date or time does not exist or does not fit.
    DatetimeFieldOverflow = "22008",
    /// A time zone is not known.
    InvalidTimeZone = "22009",
    /// Division by zero.
    DivisionByZero = "22012",
    /// NULL where a function takes none.
    NullValueNotAllowed = "22004",
    /// SQL's regular expressions have no such use of the escape character.
    InvalidUseOfEscapeCharacter = "2200C",
    /// The escape of LIKE or SIMILAR TO is no single character.
    InvalidEscapeSequence = "22025",
    /// A regular expression is none.
    InvalidRegularExpression = "2201B",
    /// The parts of an array have different lengths.
    ArraySubscriptError = "2202E",
    /// The length of a part of a text is negative.
    SubstringError = "22011",
    /// A number without a logarithm.
    InvalidArgumentForLogarithm = "2201E",
    /// A number without a root or a power.
    InvalidArgumentForPowerFunction = "2201F",
    /// A field of an interval is too large.
    IntervalFieldOverflow = "22015",
    /// A number of parts that is not positive.
    InvalidArgumentForNtile = "22014",
    /// A frame that begins or ends a negative number of rows away.
    InvalidPrecedingOrFollowingSize = "22013",
    /// A place of nth_value that is no row's.
    InvalidArgumentForNthValue = "22016",
    /// Bounds or a count that make no buckets.
    InvalidArgumentForWidthBucket = "2201G",
    /// LIMIT is negative.
    InvalidRowCountInLimitClause = "2201W",
    /// OFFSET is negative.
    InvalidRowCountInResultOffsetClause = "2201X",
    /// One statement would change a row twice.
    CardinalityViolation = "21000",
    /// An argument of a function is outside of what the function accepts.
    InvalidParameterValue = "22023",
    /// Bytes are not UTF-8.
    CharacterNotInRepertoire = "22021",
    /// A value is wrong in a way that has no more special code.
    DataException = "22000",
    /// A text is not an input of its type.
    InvalidTextRepresentation = "22P02",
    /// A parameter of the extended protocol has a broken binary form.
    InvalidBinaryRepresentation = "22P03",
    /// COPY or ingest data has the wrong shape.
    BadCopyFileFormat = "22P04",
    /// A text is not a date or a time.
    InvalidDatetimeFormat = "22007",
    /// A JSON document is malformed.
    InvalidJsonText = "22032",
    /// A subscript of a path of SQL/JSON is none.
    InvalidSqlJsonSubscript = "22033",
    NonNumericSqlJsonItem = "22036",
    SingletonSqlJsonItemRequired = "22038",
    SqlJsonArrayNotFound = "22039",
    SqlJsonMemberNotFound = "2203A",
    SqlJsonNumberNotFound = "2203B",
    SqlJsonObjectNotFound = "2203C",
    /// NULL where NOT NULL is declared.
    NotNullViolation = "23502",
    /// A row names one that is not there.
    ForeignKeyViolation = "23503",
    /// A key exists already.
    UniqueViolation = "23505",
    CheckViolation = "23514",
    SequenceGeneratorLimitExceeded = "2200H",
    /// A statement is not allowed in the state of the transaction.
    ActiveSqlTransaction = "25001",
    /// A write inside a read-only transaction.
    ReadOnlySqlTransaction = "25006",
    /// A statement needs a transaction and there is none.
    NoActiveSqlTransaction = "25P01",
    /// The transaction failed; only its end is accepted.
    InFailedSqlTransaction = "25P02",
    /// A transaction did nothing for too long.
    IdleInTransactionSessionTimeout = "25P03",
    /// No prepared statement of that name.
    InvalidSqlStatementName = "26000",
    /// The user is not known.
    InvalidAuthorizationSpecification = "28000",
    /// The password is wrong.
    InvalidPassword = "28P01",
    /// A privilege or a membership that cannot be granted.
    InvalidGrantOperation = "0LP01",
    /// The object is needed by others.
    DependentObjectsStillExist = "2BP01",
    /// No cursor of that name.
    InvalidCursorName = "34000",
    /// No savepoint of that name.
    InvalidSavepointSpecification = "3B001",
    /// No database of that name.
    InvalidCatalogName = "3D000",
    /// No schema of that name.
    InvalidSchemaName = "3F000",
    /// Two transactions wait for each other.
    DeadlockDetected = "40P01",
    /// The writer of a table was in the way of another.
    SerializationFailure = "40001",
    /// Something is not permitted.
    InsufficientPrivilege = "42501",
    /// Broken SQL.
    SyntaxError = "42601",
    /// What cannot be a name.
    InvalidName = "42602",
    /// The name is kept for the system.
    ReservedName = "42939",
    /// A column is listed more than once.
    DuplicateColumn = "42701",
    /// A value is given for a column that is computed.
    GeneratedAlways = "428C9",
    /// A function in another language failed.
    ExternalRoutineException = "38000",
    /// A column name fits several columns.
    AmbiguousColumn = "42702",
    /// No column of that name.
    UndefinedColumn = "42703",
    /// No object (type, index, setting) of that name.
    UndefinedObject = "42704",
    /// The object (schema, setting, type) exists already.
    DuplicateObject = "42710",
    /// Two relations or WITH queries of one statement have one name.
    DuplicateAlias = "42712",
    /// A column cannot be so.
    InvalidColumnDefinition = "42611",
    /// A foreign key does not fit what it refers to.
    InvalidForeignKey = "42830",
    /// A name fits several functions.
    AmbiguousFunction = "42725",
    /// A window function where none may be.
    WindowingError = "42P20",
    /// A column is neither grouped nor aggregated.
    GroupingError = "42803",
    /// Types do not fit each other.
    DatatypeMismatch = "42804",
    /// The object is of the wrong kind for the statement.
    WrongObjectType = "42809",
    /// A type cannot be cast to another.
    CannotCoerce = "42846",
    /// No function of that name for these arguments.
    UndefinedFunction = "42883",
    /// No relation of that name.
    UndefinedTable = "42P01",
    /// No parameter of that number.
    UndefinedParameter = "42P02",
    /// Two places ask for different types of one parameter.
    AmbiguousParameter = "42P08",
    /// The cursor exists already.
    DuplicateCursor = "42P03",
    /// The database exists already.
    DuplicateDatabase = "42P04",
    /// The prepared statement exists already.
    DuplicatePreparedStatement = "42P05",
    /// The schema exists already.
    DuplicateSchema = "42P06",
    /// The relation exists already.
    DuplicateTable = "42P07",
    /// A column reference is not allowed here.
    InvalidColumnReference = "42P10",
    /// The type of a parameter cannot be found out.
    IndeterminateDatatype = "42P18",
    /// A function's definition contradicts itself.
    InvalidFunctionDefinition = "42P13",
    /// A table definition contradicts itself.
    InvalidTableDefinition = "42P16",
    /// A definition says what an object of its kind cannot be.
    InvalidObjectDefinition = "42P17",
    /// A recursive query refers to itself where it must not.
    InvalidRecursion = "42P19",
    /// Not enough of something.
    InsufficientResources = "53000",
    /// The disk is full.
    DiskFull = "53100",
    /// The memory limit was reached.
    OutOfMemory = "53200",
    /// There are as many connections as there may be.
    TooManyConnections = "53300",
    /// A limit of the program was exceeded (rows, statement length, nesting).
    ProgramLimitExceeded = "54000",
    /// A statement is nested too deeply.
    StatementTooComplex = "54001",
    TooManyColumns = "54011",
    /// The object is not in the state that the statement needs.
    ObjectNotInPrerequisiteState = "55000",
    /// The object is in use.
    ObjectInUse = "55006",
    /// The setting cannot be changed now.
    CantChangeRuntimeParam = "55P02",
    /// A lock was not to be had in time.
    LockNotAvailable = "55P03",
    /// The statement was cancelled, or timed out.
    QueryCanceled = "57014",
    /// The server is shutting down.
    AdminShutdown = "57P01",
    CrashShutdown = "57P02",
    /// The server is not ready.
    CannotConnectNow = "57P03",
    /// A session did nothing for too long.
    IdleSessionTimeout = "57P05",
    /// A file could not be read or written.
    IoError = "58030",
    /// There is no such file.
    UndefinedFile = "58P01",
    /// What changed since a moment is not kept any more.
    SnapshotTooOld = "72000",
    /// The data directory or a file in it is damaged.
    DataCorrupted = "XX001",
    /// A defect of millrace.
    InternalError = "XX000",
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An error as a user sees it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// What is wrong: one sentence, no full stop, names in double quotes.
    pub message: String,
    /// More about what is wrong.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the data it happened, for example `COPY t, line 3, column v: "abc"`.
    pub context: Option<Box<str>>,
    /// The SQLSTATE.
    pub code: SqlState,
    /// Where in the SQL text, in characters, the first being 1.
    pub position: Option<usize>,
    /// What of the catalog or of the statement it is about.
    pub about: Option<Box<About>>,
}

/// What an error is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The schema of the relation.
    pub schema: String,
    /// The relation.
    pub table: String,
    /// Its column.
    pub column: Option<String>,
    /// Its constraint.
    pub constraint: Option<String>,
    /// A literal of the statement instead of all that: its place is not known where it is read.
    pub literal: Option<String>,
}

impl SqlError {
    /// The same about a constraint of a relation.
    #[must_use]
    pub fn about_constraint(mut self, schema: &str, table: &str, constraint: &str) -> Self {
        self.about = Some(Box::new(About {
            schema: schema.to_owned(),
            table: table.to_owned(),
            column: None,
            constraint: Some(constraint.to_owned()),
            literal: None,
        }));
        self
    }

    /// The same about a column of a relation.
    #[must_use]
    pub fn about_column(mut self, schema: &str, table: &str, column: &str) -> Self {
        self.about = Some(Box::new(About {
            schema: schema.to_owned(),
            table: table.to_owned(),
            column: Some(column.to_owned()),
            constraint: None,
            literal: None,
        }));
        self
    }

    /// An error with a code and a message only.
    pub fn new(code: SqlState, message: impl Into<String>) -> Self {
        SqlError {
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            code,
            position: None,
            about: None,
        }
    }

    /// A defect of millrace, with what was found.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::InternalError, message)
    }

    /// A known construct that millrace does not do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(SqlState::FeatureNotSupported, message)
    }

    /// Adds the detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the detail when there is one.
    #[must_use]
    pub fn with_detail_opt(mut self, detail: Option<String>) -> Self {
        if detail.is_some() {
            self.detail = detail;
        }
        self
    }

    /// Adds the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the hint when there is one.
    #[must_use]
    pub fn with_hint_opt(mut self, hint: Option<String>) -> Self {
        if hint.is_some() {
            self.hint = hint;
        }
        self
    }

    /// Adds the context.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into().into_boxed_str());
        self
    }

    /// Adds the literal of the statement that is wrong.
    #[must_use]
    pub fn of_literal(mut self, text: &str) -> Self {
        self.about = Some(Box::new(About {
            literal: Some(text.to_owned()),
            ..About::default()
        }));
        self
    }

    /// The literal of the statement that is wrong.
    pub fn literal(&self) -> Option<&str> {
        self.about.as_ref()?.literal.as_deref()
    }

    /// Adds the position, in characters, the first being 1.
    #[must_use]
    pub fn at(mut self, position: Option<usize>) -> Self {
        if position.is_some() {
            self.position = position;
        }
        self
    }
}
