//! What the parser hands on: one enum of statements, with a file for each kind of them.
//!
//! Statements that are PostgreSQL's own stay in sqlparser's AST ([`Statement::Sql`]); the streaming statements, and
//! those whose sqlparser form would force every reader to know many spellings (COPY, SHOW, DROP, SET, CREATE TABLE),
//! have a normalised type here. Nothing here knows a catalog: names are what the user wrote, and they are folded only
//! by [`fold`](crate::fold).
//!
//! Every statement has a `Display` (in `display/`) that prints SQL which parses back to an equal statement, because
//! the catalog stores SQL text. Equality ignores source spans, as sqlparser's does.
//!
//! Some constructs inside queries have no node in sqlparser and are normalised into ones that it has:
//!
//! | written | in the AST |
//! |---|---|
//! | `TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), ..))` | the table function `TUMBLE(s, ts, ..)` |
//! | `SESSION(s PARTITION BY a, b, ts, gap)` | `SESSION(s, ts, gap, partition_by => ARRAY[a, b])` |
//! | `t FOR SYSTEM_TIME AS OF e` | `TableFactor::Table { version: Some(TableVersion::ForSystemTimeAsOf(e)), .. }` |
//! | `ASOF [LEFT] JOIN t ON c` | `JoinOperator::AsOf { match_condition, constraint }`, where the match condition is the identifier [`ASOF_INNER`] or [`ASOF_LEFT`] |
//! | `OVER (.. ROWS .. EXCLUDE TIES)` | a text among the columns of PARTITION BY, see [`Exclusion`] |
//! | `ASOF LEFT JOIN t MATCH_CONDITION (m) ON c` | the same with the match condition `m AND asof_left` |

mod alter;
mod copy;
mod create;
mod cursor;
mod explain;
mod function;
mod grant;
mod hidden;
mod object;
mod options;
mod role;
mod secret;
mod settings;
mod show;
mod sink;
mod user_type;
mod view;
mod window;

pub use alter::{AlterOperation, AlterRelation, DropBehavior, DropStatement, SequenceClauses};
pub use copy::{
    CopyColumns, CopyDirection, CopyEnd, CopyFormat, CopyHeader, CopyOptions, CopySource, CopyStatement,
};
pub use create::{
    ColumnDefinition, ConflictRule, CreateExternalTable, CreateStream, CreateTable, Identity, Include,
    LikePart, OnCommit, TableLike, Watermark,
};
pub use cursor::{
    DeclareSubscribeCursor, DeclareSubscriptionCursor, Fetch, Subscribe, SubscribeTarget, SubscriptionStart,
};
pub use explain::{Explain, ExplainFormat, ExplainOptions, ExplainTarget, ExplainType, Speed, WhatIf};
pub use function::{CreateFunction, FunctionBody};
pub use grant::{AlterDefaultPrivileges, Grant, GrantKind, GrantTarget};
pub(crate) use hidden::STARS;
pub use hidden::{is_secret_name, without_passwords};
pub use object::{ObjectKind, ObjectReference};
pub use options::{FormatEncode, OptionEntry, Options};
pub use role::{
    AlterRole, CreateRole, CreateToken, DropOwned, DropRole, DropToken, GrantRole, ReassignOwned, RoleChange,
    RoleName, RoleOption, Secret,
};
pub use secret::{AlterSecret, CreateSecret};
pub use settings::{AlterSystemSet, SetValue, SetVariable};
pub use show::{ShowStatement, ShowTarget};
pub use sink::{CreateSink, CreateSubscription, SinkInput};
pub use sqlparser::ast::{
    DataType, Expr, FetchDirection, Ident, IndexColumn, ObjectName, Query, TableConstraint,
};
pub use user_type::{CreateComposite, CreateDomain, CreateEnum, DomainChange, EnumChange};
pub use view::{CreateMaterializedView, Emit};
pub use window::Exclusion;

/// The `match_condition` of a normalised `ASOF JOIN .. ON ..`.
pub const ASOF_INNER: &str = "asof_inner";
/// The `match_condition` of a normalised `ASOF LEFT JOIN .. ON ..`.
pub const ASOF_LEFT: &str = "asof_left";

/// What qualifies the alias of a join among the columns of its USING: `USING (k) AS u` is `USING (k, "join alias".u)`.
pub const JOIN_ALIAS: &str = "join alias";
/// The table function that `ROWS FROM (..)` becomes.
pub const ROWS_FROM: &str = "rows from";
/// The query of WITH that is what SEARCH says of the one before it.
pub const SEARCH_OF_WITH: &str = "SEARCH of WITH";
/// The same of CYCLE.
pub const CYCLE_OF_WITH: &str = "CYCLE of WITH";
/// The function that is the first key of GROUP BY DISTINCT.
pub const GROUP_DISTINCT: &str = "group by distinct";
/// What qualifies `system` or `user` among the columns of an INSERT with OVERRIDING.
pub const OVERRIDING: &str = "overriding";
/// The type that `STRUCT<a INT, b TEXT>` is read as, whose words are the names and types of its attributes by turns.
pub const STRUCT: &str = "millrace struct";
/// The function around the last argument of `f(VARIADIC a)`.
pub const VARIADIC: &str = "variadic";
/// The function around the value of `SET a[i][j] = v`, whose other arguments are the subscripts.
pub const ASSIGN_ELEMENT: &str = "assign element";
/// The function around the value of `SET a[i:j] = v`, whose other arguments are the ends.
pub const ASSIGN_SLICE: &str = "assign slice";

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
    /// `CREATE TYPE .. AS ENUM`.
    CreateEnum(Box<CreateEnum>),
    /// `CREATE TYPE .. AS (..)`.
    CreateComposite(Box<CreateComposite>),
    /// `CREATE DOMAIN`.
    CreateDomain(Box<CreateDomain>),
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
    /// `SET [SESSION | LOCAL] name TO | = value`; `SET ROLE` and `SET SESSION AUTHORIZATION` are the settings `role` and
    /// `session_authorization`. (`SET TRANSACTION` and the like stay in `Sql`.)
    SetVariable(SetVariable),
    /// `RESET name`, or `None` for `RESET ALL`.
    ResetVariable(Option<String>),
    /// `DROP` of the kinds in [`ObjectKind`]. (Others stay in `Sql`.)
    Drop(DropStatement),
    /// `ALTER` of the kinds in [`ObjectKind`]. (Others stay in `Sql`.)
    AlterRelation(Box<AlterRelation>),
    /// `ALTER SYSTEM SET name TO | = value`, `ALTER SYSTEM RESET name`.
    AlterSystemSet(AlterSystemSet),
    /// `CREATE ROLE | USER | GROUP`.
    CreateRole(Box<CreateRole>),
    /// `ALTER ROLE | USER`.
    AlterRole(Box<AlterRole>),
    /// `DROP ROLE | USER | GROUP`.
    DropRole(DropRole),
    /// `REASSIGN OWNED`.
    ReassignOwned(Box<ReassignOwned>),
    /// `DROP OWNED`.
    DropOwned(DropOwned),
    /// `GRANT` and `REVOKE` of roles.
    GrantRole(Box<GrantRole>),
    /// `GRANT` and `REVOKE` of privileges.
    Grant(Box<Grant>),
    /// `ALTER DEFAULT PRIVILEGES`.
    AlterDefaultPrivileges(Box<AlterDefaultPrivileges>),
    /// `CREATE TOKEN`.
    CreateToken(Box<CreateToken>),
    /// `DROP TOKEN`.
    DropToken(DropToken),
    /// `CREATE SECRET`.
    CreateSecret(Box<CreateSecret>),
    /// `ALTER SECRET .. AS`. (Its owner is changed by [`Statement::AlterRelation`].)
    AlterSecret(Box<AlterSecret>),
    /// `CANCEL JOB n`.
    CancelJob(u64),
    /// `PAUSE MATERIALIZED VIEW | SINK | STREAM name`.
    Pause(ObjectReference),
    /// `RESUME MATERIALIZED VIEW | SINK | STREAM name`.
    Resume(ObjectReference),
    /// `WAIT`: until background DDL is done.
    Wait,
    /// `REFRESH MATERIALIZED VIEW [CONCURRENTLY] name`: until it has everything written before.
    Refresh(ObjectName),
    /// `SET CONSTRAINTS ALL DEFERRED | IMMEDIATE`: of constraints that can be deferred, of which there are none.
    SetConstraintsAll { deferred: bool },
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
