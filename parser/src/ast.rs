//! What the parser hands on: one enum of statements.
//!
//! Statements that are PostgreSQL's own stay in sqlparser's AST ([`Statement::Sql`]); the streaming statements, and
//! those whose sqlparser form would force every reader to know many spellings (COPY, SHOW, DROP, SET, CREATE TABLE),
//! have a normalised type here. Nothing here knows a catalog: names are what the user wrote, and they are folded only
//! by [`fold`](crate::fold).
//!
//! Every statement has a `Display` (in `display/`) that prints SQL which parses back to an equal statement, because
//! the catalog stores SQL text. Equality ignores source spans, as sqlparser's does.
//!
//! Four streaming constructs inside queries have no node in sqlparser and are normalised into ones that it has:
//!
//! | written | in the AST |
//! |---|---|
//! | `TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), ..))` | the table function `TUMBLE(s, ts, ..)` |
//! | `SESSION(s PARTITION BY a, b, ts, gap)` | `SESSION(s, ts, gap, partition_by => ARRAY[a, b])` |
//! | `t FOR SYSTEM_TIME AS OF e` | `TableFactor::Table { version: Some(TableVersion::ForSystemTimeAsOf(e)), .. }` |
//! | `ASOF [LEFT] JOIN t ON c` | `JoinOperator::AsOf { match_condition, constraint }`, where the match condition is the identifier [`ASOF_INNER`] or [`ASOF_LEFT`] |
//! | `ASOF LEFT JOIN t MATCH_CONDITION (m) ON c` | the same with the match condition `m AND asof_left` |

pub use sqlparser::ast::{
    DataType, Expr, FetchDirection, Ident, IndexColumn, ObjectName, Query, TableConstraint,
};

/// The `match_condition` of a normalised `ASOF JOIN .. ON ..`.
pub const ASOF_INNER: &str = "asof_inner";
/// The `match_condition` of a normalised `ASOF LEFT JOIN .. ON ..`.
pub const ASOF_LEFT: &str = "asof_left";

/// One SQL statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// A statement that sqlparser's AST expresses well: queries, INSERT, UPDATE, DELETE, TRUNCATE, PREPARE, EXECUTE,
    /// DEALLOCATE, DECLARE (over a query), CLOSE, transaction control, DISCARD, COMMENT, CREATE SCHEMA, DATABASE,
    /// INDEX and VIEW (not materialized), and everything else that PostgreSQL's dialect has.
    Sql(Box<sqlparser::ast::Statement>),
    /// `CREATE STREAM` or its synonym `CREATE SOURCE`.
    CreateStream(Box<CreateStream>),
    /// `CREATE TABLE`, with columns or `AS SELECT`.
    CreateTable(Box<CreateTable>),
    /// `CREATE MATERIALIZED VIEW`.
    CreateMaterializedView(Box<CreateMaterializedView>),
    /// `CREATE SINK`.
    CreateSink(Box<CreateSink>),
    /// `CREATE SUBSCRIPTION`.
    CreateSubscription(Box<CreateSubscription>),
    /// `CREATE EXTERNAL TABLE .. STORED AS .. LOCATION ..`.
    CreateExternalTable(Box<CreateExternalTable>),
    /// `CREATE FUNCTION` or `CREATE AGGREGATE`.
    CreateFunction(Box<CreateFunction>),
    /// `COPY`, in PostgreSQL's new and old spelling.
    Copy(Box<CopyStatement>),
    /// `SUBSCRIBE`.
    Subscribe(Box<Subscribe>),
    /// `DECLARE c CURSOR FOR SUBSCRIBE ..`.
    DeclareSubscribeCursor(Box<DeclareSubscribeCursor>),
    /// `DECLARE c SUBSCRIPTION CURSOR FOR s [SINCE ..]`.
    DeclareSubscriptionCursor(Box<DeclareSubscriptionCursor>),
    /// `FETCH`, from any kind of cursor.
    Fetch(Box<Fetch>),
    /// `EXPLAIN`, with or without `ANALYZE`.
    Explain(Box<Explain>),
    /// `SHOW`, of objects or of a setting.
    Show(ShowStatement),
    /// `DESCRIBE x`.
    Describe(ObjectName),
    /// `SET [SESSION | LOCAL] name TO | = value`. (`SET TRANSACTION`, `SET ROLE` and the like stay in `Sql`.)
    SetVariable(SetVariable),
    /// `RESET name`, or `None` for `RESET ALL`.
    ResetVariable(Option<String>),
    /// `DROP` of the kinds in [`ObjectKind`]. (Others, such as `DROP ROLE`, stay in `Sql`.)
    Drop(DropStatement),
    /// `ALTER` of the kinds in [`ObjectKind`]. (Others stay in `Sql`.)
    AlterRelation(Box<AlterRelation>),
    /// `ALTER SYSTEM SET name TO | = value`, `ALTER SYSTEM RESET name`.
    AlterSystemSet(AlterSystemSet),
    /// `CANCEL JOB n`.
    CancelJob(u64),
    /// `PAUSE MATERIALIZED VIEW | SINK | STREAM name`.
    Pause(ObjectReference),
    /// `RESUME MATERIALIZED VIEW | SINK | STREAM name`.
    Resume(ObjectReference),
    /// `WAIT`: until background DDL is done.
    Wait,
    /// `FLUSH`: until everything written before is visible.
    Flush,
    /// `CHECKPOINT`: until everything committed before is in a checkpoint.
    Checkpoint,
    /// `ADD WORKER`.
    AddWorker,
    /// `DROP WORKER n`: its partitions move to the others first.
    DropWorker(u64),
    /// `KILL WORKER n`.
    KillWorker(u64),
    /// `BACKUP TO 'directory'`.
    Backup {
        /// Where the backup goes.
        to: String,
    },
}

/// A kind of object in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// An append-only stream (a source is one).
    Stream,
    /// A table.
    Table,
    /// A view that is not materialized.
    View,
    /// A materialized view.
    MaterializedView,
    /// A sink.
    Sink,
    /// An index.
    Index,
    /// A schema.
    Schema,
    /// A database.
    Database,
    /// A subscription.
    Subscription,
    /// A function.
    Function,
}

/// An object, by kind and name.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectReference {
    /// What it is said to be.
    pub kind: ObjectKind,
    /// Its name.
    pub name: ObjectName,
}

/// `CREATE FUNCTION` and `CREATE AGGREGATE`: the body is an SQL expression over the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// Its name.
    pub name: ObjectName,
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// `AGGREGATE`: it is computed from the rows of a group.
    pub is_aggregate: bool,
    /// Names and types.
    pub parameters: Vec<(Ident, DataType)>,
    /// The type of the result.
    pub returns: DataType,
    /// The expression.
    pub body: Expr,
}

/// The entries of a `WITH (..)` list in the order written. Keys are lower case unless they were quoted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options(pub Vec<OptionEntry>);

/// One `key = value`.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionEntry {
    /// The key: bare (folded to lower case), dotted, or quoted with single or double quotes.
    pub name: Ident,
    /// The value as text: a string's content, a number, a word (`true`, `auto`) in lower case.
    pub value: String,
}

/// A column of a stream or table.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    /// Its name; `name.span` says where it stands.
    pub name: Ident,
    /// Its type.
    pub data_type: DataType,
    /// `NOT NULL` was written, or the column is in the primary key.
    pub not_null: bool,
    /// The column is (part of) the primary key.
    pub primary_key: bool,
    /// `DEFAULT expr`.
    pub default: Option<Expr>,
    /// `GENERATED ALWAYS AS (expr) [STORED]`, or `AS expr`.
    pub generated: Option<Expr>,
    /// `AS PROCTIME()`: the time at which the row arrives.
    pub proctime: bool,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
}

/// `WATERMARK FOR column AS expr`.
#[derive(Debug, Clone, PartialEq)]
pub struct Watermark {
    /// The event-time column.
    pub column: Ident,
    /// The watermark that a row lets one assume.
    pub expr: Expr,
}

/// `FORMAT f ENCODE e [(options)]`.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatEncode {
    /// `plain`, `upsert`, `debezium`, ... in lower case.
    pub format: String,
    /// `json`, `csv`, `avro`, ... in lower case.
    pub encode: String,
    /// The list in parentheses after the encoding.
    pub options: Options,
}

/// `CREATE STREAM`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateStream {
    /// The stream's name.
    pub name: ObjectName,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The columns, without constraints that are not per column.
    pub columns: Vec<ColumnDefinition>,
    /// The columns of `PRIMARY KEY`, empty without one.
    pub primary_key: Vec<Ident>,
    /// Every other constraint, of columns too.
    pub constraints: Vec<TableConstraint>,
    /// `WATERMARK FOR`.
    pub watermark: Option<Watermark>,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
}

/// `CREATE TABLE`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// The table's name.
    pub name: ObjectName,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `TEMP` or `TEMPORARY`.
    pub temporary: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The columns. With `AS SELECT` empty, or names alone (see `column_names`).
    pub columns: Vec<ColumnDefinition>,
    /// The names in `CREATE TABLE t (a, b) AS SELECT ..`.
    pub column_names: Vec<Ident>,
    /// The columns of `PRIMARY KEY`, whether written on the column or apart; empty without one.
    pub primary_key: Vec<Ident>,
    /// Every other constraint; those of columns are written as constraints of the table.
    pub constraints: Vec<TableConstraint>,
    /// `WATERMARK FOR`.
    pub watermark: Option<Watermark>,
    /// `APPEND ONLY`.
    pub append_only: bool,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
    /// `AS SELECT ..`.
    pub as_query: Option<Box<Query>>,
    /// `AS SELECT .. WITH NO DATA`.
    pub with_no_data: bool,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterializedView {
    /// The view's name.
    pub name: ObjectName,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The names in parentheses after the view's name.
    pub columns: Vec<Ident>,
    /// `WITH (..)`.
    pub options: Options,
    /// The query.
    pub query: Box<Query>,
    /// The query as it was written, without the EMIT clause. `Display` prints this.
    pub query_text: String,
    /// When results are emitted.
    pub emit: Emit,
}

/// When a view hands on its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Emit {
    /// Every change at once; the default.
    #[default]
    Changes,
    /// Once a window is closed, each result once.
    OnWindowClose {
        /// `WITH DELAY`: how much later than the watermark says.
        delay: Option<Expr>,
    },
    /// At this interval.
    Every(Expr),
}

/// `CREATE SINK`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSink {
    /// The sink's name.
    pub name: ObjectName,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// What it reads.
    pub input: SinkInput,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
    /// When results are emitted.
    pub emit: Emit,
}

/// What a sink reads.
#[derive(Debug, Clone, PartialEq)]
pub enum SinkInput {
    /// `FROM name`.
    Relation(ObjectName),
    /// `AS query`.
    Query(Box<Query>),
}

/// `CREATE SUBSCRIPTION s FROM mv WITH (retention = ..)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSubscription {
    /// The subscription's name.
    pub name: ObjectName,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// What it reads.
    pub from: ObjectName,
    /// `WITH (..)`.
    pub options: Options,
}

/// `CREATE EXTERNAL TABLE`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateExternalTable {
    /// The table's name.
    pub name: ObjectName,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The columns; empty: as the files say.
    pub columns: Vec<ColumnDefinition>,
    /// `STORED AS`, in lower case.
    pub stored_as: String,
    /// `PARTITIONED BY (..)`.
    pub partitioned_by: Vec<Ident>,
    /// `LOCATION`.
    pub location: String,
    /// `OPTIONS (..)` or `WITH (..)`; `WITH HEADER ROW` is the option `header`.
    pub options: Options,
}

/// `COPY`.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyStatement {
    /// What is copied.
    pub source: CopySource,
    /// To or from where.
    pub direction: CopyDirection,
    /// How the bytes look.
    pub options: CopyOptions,
    /// `WHERE condition` of COPY FROM.
    pub filter: Option<Expr>,
}

/// What is copied.
#[derive(Debug, Clone, PartialEq)]
pub enum CopySource {
    /// `COPY name [(columns)]`.
    Relation {
        /// The relation.
        name: ObjectName,
        /// The columns; empty for all of them.
        columns: Vec<Ident>,
    },
    /// `COPY (query) TO`. INSERT, UPDATE and DELETE with RETURNING are allowed here.
    Query(Box<sqlparser::ast::Statement>),
    /// `COPY (SUBSCRIBE ..) TO`.
    Subscribe(Box<Subscribe>),
}

/// The direction of a COPY and its other end.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyDirection {
    /// `FROM`.
    From(CopyEnd),
    /// `TO`.
    To(CopyEnd),
}

/// The end of a COPY that is not the relation.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyEnd {
    /// `STDIN` or `STDOUT`: the client's connection.
    Client,
    /// `'file'`.
    File(String),
    /// `PROGRAM 'command'`.
    Program(String),
}

/// The format of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyFormat {
    /// Tab-separated with backslash escapes; the default.
    #[default]
    Text,
    /// Comma-separated with quotes.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
}

/// What a COPY says of header lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyHeader {
    /// There is none.
    #[default]
    Absent,
    /// The first line is one; its names are not looked at.
    Present,
    /// The first line is one, and its names must be the columns'.
    Match,
}

/// The columns that a FORCE option of COPY names.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum CopyColumns {
    /// The option was not given.
    #[default]
    None,
    /// `*`.
    All,
    /// `(a, b)`.
    Some(Vec<Ident>),
}

/// The options of a COPY. `None` means the format's default; see the accessors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopyOptions {
    /// `FORMAT`.
    pub format: CopyFormat,
    /// `HEADER`.
    pub header: CopyHeader,
    /// `DELIMITER`.
    pub delimiter: Option<char>,
    /// `NULL 'text'`.
    pub null: Option<String>,
    /// `DEFAULT 'text'`.
    pub default: Option<String>,
    /// `QUOTE`.
    pub quote: Option<char>,
    /// `ESCAPE`.
    pub escape: Option<char>,
    /// `FORCE_QUOTE`.
    pub force_quote: CopyColumns,
    /// `FORCE_NOT_NULL`.
    pub force_not_null: CopyColumns,
    /// `FORCE_NULL`.
    pub force_null: CopyColumns,
    /// `ENCODING`.
    pub encoding: Option<String>,
    /// `FREEZE`, which changes nothing here.
    pub freeze: bool,
}

impl CopyOptions {
    /// The delimiter in effect: a tab in text, a comma in CSV.
    pub fn delimiter(&self) -> char {
        self.delimiter
            .unwrap_or(if self.format == CopyFormat::Csv { ',' } else { '\t' })
    }

    /// The text that stands for NULL: `\N` in text, nothing in CSV.
    pub fn null(&self) -> &str {
        self.null
            .as_deref()
            .unwrap_or(if self.format == CopyFormat::Csv { "" } else { "\\N" })
    }

    /// The quote in effect in CSV.
    pub fn quote(&self) -> char {
        self.quote.unwrap_or('"')
    }

    /// The escape in effect in CSV: the quote unless given.
    pub fn escape(&self) -> char {
        self.escape.unwrap_or_else(|| self.quote())
    }
}

/// `SUBSCRIBE [TO] x | (query) [WITH (SNAPSHOT, PROGRESS)] [AS OF epoch]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// What is watched.
    pub target: SubscribeTarget,
    /// Whether the rows that exist come first; the default.
    pub snapshot: bool,
    /// Whether epochs without a change are told, too.
    pub progress: bool,
    /// `AS OF`: the epoch to begin after.
    pub as_of: Option<Expr>,
}

/// What a SUBSCRIBE watches.
#[derive(Debug, Clone, PartialEq)]
pub enum SubscribeTarget {
    /// A relation.
    Relation(ObjectName),
    /// A query.
    Query(Box<Query>),
}

/// `DECLARE c [NO SCROLL] CURSOR [WITH HOLD] FOR SUBSCRIBE ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclareSubscribeCursor {
    /// The cursor's name.
    pub name: Ident,
    /// `WITH HOLD`.
    pub hold: bool,
    /// The subscription that it reads.
    pub subscribe: Subscribe,
}

/// `DECLARE c SUBSCRIPTION CURSOR FOR s [SINCE .. | FULL]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclareSubscriptionCursor {
    /// The cursor's name.
    pub name: Ident,
    /// The subscription.
    pub subscription: ObjectName,
    /// Where it begins.
    pub start: SubscriptionStart,
}

/// Where a cursor over a subscription begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SubscriptionStart {
    /// With what changes from now on.
    #[default]
    Now,
    /// `FULL`: with the rows that exist.
    Full,
    /// `SINCE expr`.
    Since(Box<Expr>),
}

/// `FETCH [direction] [FROM | IN] cursor [WITH (timeout = ..)]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// The cursor's name.
    pub cursor: Ident,
    /// How many rows, and which.
    pub direction: FetchDirection,
    /// `timeout`: how long to wait for a row of a subscription.
    pub timeout: Option<String>,
}

/// `EXPLAIN`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// `ANALYZE`: run it, or look at the running view, and say what it took.
    pub analyze: bool,
    /// The list in parentheses.
    pub options: ExplainOptions,
    /// What is explained.
    pub target: ExplainTarget,
}

/// The options of EXPLAIN.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExplainOptions {
    /// `VERBOSE`.
    pub verbose: bool,
    /// `TYPE`.
    pub plan_type: ExplainType,
    /// `FORMAT`.
    pub format: ExplainFormat,
    /// `PREDICT`: expected times, before anything runs.
    pub predict: bool,
    /// `DURATION '10s'`: how long to watch a running view.
    pub duration: Option<String>,
    /// `WHAT IF (cores = 8, ..)`.
    pub what_if: Option<WhatIf>,
}

/// What EXPLAIN is to take for different; `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WhatIf {
    /// `cores = 8`: this many in all.
    pub cores: Option<usize>,
    /// `disks = 2`: this many.
    pub disks: Option<usize>,
    /// `disk = 'x2'`: every disk so fast.
    pub disk: Option<Speed>,
    /// `network = 'x2'`.
    pub network: Option<Speed>,
    /// `input = 'memory'`: it need be neither read nor decoded.
    pub input_in_memory: bool,
}

/// How fast a device is, next to what it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// `'x2'`: twice as fast. Positive and finite.
    Times(f64),
    /// `'infinite'`: it takes no time.
    Infinite,
}

/// Which plan EXPLAIN shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExplainType {
    /// The optimized logical plan.
    Logical,
    /// The physical plan of a query, the operators of a view; the default.
    #[default]
    Physical,
    /// The stages, cut at the exchanges.
    Stages,
}

/// How EXPLAIN's answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExplainFormat {
    /// Indented text; the default.
    #[default]
    Text,
    /// JSON.
    Json,
    /// A Graphviz graph.
    Dot,
}

/// What is explained.
#[derive(Debug, Clone, PartialEq)]
pub enum ExplainTarget {
    /// A statement.
    Statement(Box<Statement>),
    /// A running materialized view.
    MaterializedView(ObjectName),
    /// A running sink.
    Sink(ObjectName),
}

/// `SHOW ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct ShowStatement {
    /// What is shown.
    pub target: ShowTarget,
    /// `FROM schema` of the lists of relations.
    pub schema: Option<ObjectName>,
    /// `LIKE 'pattern'`.
    pub like: Option<String>,
}

/// What SHOW shows.
#[derive(Debug, Clone, PartialEq)]
pub enum ShowTarget {
    /// `SHOW STREAMS`.
    Streams,
    /// `SHOW SOURCES`.
    Sources,
    /// `SHOW TABLES`.
    Tables,
    /// `SHOW VIEWS`.
    Views,
    /// `SHOW MATERIALIZED VIEWS`.
    MaterializedViews,
    /// `SHOW SINKS`.
    Sinks,
    /// `SHOW INDEXES [FROM relation]`.
    Indexes(Option<ObjectName>),
    /// `SHOW SUBSCRIPTIONS`.
    Subscriptions,
    /// `SHOW FUNCTIONS`.
    Functions,
    /// `SHOW DATABASES`.
    Databases,
    /// `SHOW SCHEMAS`.
    Schemas,
    /// `SHOW CURSORS`.
    Cursors,
    /// `SHOW COLUMNS FROM x`.
    Columns(ObjectName),
    /// `SHOW CREATE kind x`.
    Create(ObjectReference),
    /// `SHOW JOBS`.
    Jobs,
    /// `SHOW PROCESSLIST`.
    Processlist,
    /// `SHOW WATERMARKS`.
    Watermarks,
    /// `SHOW BACKPRESSURE`.
    Backpressure,
    /// `SHOW BATCHES`.
    Batches,
    /// `SHOW SUSPENDED`.
    Suspended,
    /// `SHOW WORKERS`.
    Workers,
    /// `SHOW PARAMETERS`: settings of the whole system.
    Parameters,
    /// `SHOW ALL`: settings of the session.
    All,
    /// `SHOW name`: one setting, in lower case; `SHOW TIME ZONE` is `timezone` and
    /// `SHOW TRANSACTION ISOLATION LEVEL` is `transaction_isolation`.
    Variable(String),
}

/// `SET [SESSION | LOCAL] name TO | = value, ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct SetVariable {
    /// `LOCAL`: for this transaction only.
    pub local: bool,
    /// The setting's name in lower case; `SET TIME ZONE` is `timezone`, `SET NAMES` is `client_encoding`.
    pub name: String,
    /// Its new value.
    pub value: SetValue,
}

/// The value of a SET.
#[derive(Debug, Clone, PartialEq)]
pub enum SetValue {
    /// `DEFAULT`.
    Default,
    /// One value or a list (`search_path`, `DateStyle`). Each is the text: a string's content, a number with its
    /// sign, a word in lower case unless it was quoted.
    Values(Vec<String>),
}

/// `ALTER SYSTEM SET`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterSystemSet {
    /// The setting's name in lower case.
    pub name: String,
    /// Its new value; `RESET` is [`SetValue::Default`].
    pub value: SetValue,
}

/// `DROP kind [IF EXISTS] names [CASCADE | RESTRICT]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropStatement {
    /// What the objects are said to be.
    pub kind: ObjectKind,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The objects. A function's argument types are not kept.
    pub names: Vec<ObjectName>,
    /// What happens to dependents.
    pub behavior: DropBehavior,
}

/// What a DROP does about dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DropBehavior {
    /// It refuses; the default.
    #[default]
    Restrict,
    /// It drops them, too.
    Cascade,
}

/// `ALTER kind [IF EXISTS] name operation`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterRelation {
    /// What the object is said to be.
    pub kind: ObjectKind,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The object.
    pub name: ObjectName,
    /// What is done to it.
    pub operation: AlterOperation,
}

/// What an ALTER does.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterOperation {
    /// `RENAME TO name`.
    RenameTo(Ident),
    /// `RENAME [COLUMN] from TO to`.
    RenameColumn {
        /// The column's name.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// `ADD [COLUMN] [IF NOT EXISTS] column`.
    AddColumn {
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// The column.
        column: Box<ColumnDefinition>,
    },
    /// `DROP [COLUMN] [IF EXISTS] name [CASCADE | RESTRICT]`.
    DropColumn {
        /// `IF EXISTS`.
        if_exists: bool,
        /// The column.
        name: Ident,
        /// What happens to dependents.
        behavior: DropBehavior,
    },
    /// `ALTER [COLUMN] name SET DEFAULT expr | DROP DEFAULT`.
    SetColumnDefault {
        /// The column.
        name: Ident,
        /// The default, or none.
        default: Option<Expr>,
    },
    /// `ALTER [COLUMN] name SET | DROP NOT NULL`.
    SetColumnNotNull {
        /// The column.
        name: Ident,
        /// Whether NULL is refused from now on.
        not_null: bool,
    },
    /// `ALTER [COLUMN] name [SET DATA] TYPE type [USING expr]`.
    SetColumnType {
        /// The column.
        name: Ident,
        /// Its new type.
        data_type: DataType,
        /// How values are converted.
        using: Option<Expr>,
    },
    /// `SET (key = value, ..)`, and RisingWave's `SET key = value`.
    SetOptions(Options),
    /// `RESET (key, ..)`.
    ResetOptions(Vec<Ident>),
    /// `SWAP WITH other`.
    SwapWith(ObjectName),
    /// `SET SCHEMA name`.
    SetSchema(Ident),
    /// `OWNER TO name`.
    OwnerTo(Ident),
}
