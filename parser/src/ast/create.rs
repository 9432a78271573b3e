//! CREATE STREAM, CREATE TABLE and CREATE EXTERNAL TABLE, and the columns that they define.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName, Query, SequenceOptions, TableConstraint};

use super::options::{FormatEncode, Options};

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
    /// `GENERATED ALWAYS | BY DEFAULT AS IDENTITY`.
    pub identity: Option<Identity>,
    /// `AS PROCTIME()`: the time at which the row arrives.
    pub proctime: bool,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
}

/// `GENERATED ALWAYS | BY DEFAULT AS IDENTITY (..)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// `ALWAYS`: no other values are inserted.
    pub always: bool,
    /// The options of its sequence.
    pub options: Vec<SequenceOptions>,
}

/// `WATERMARK FOR column AS expr`.
#[derive(Debug, Clone, PartialEq)]
pub struct Watermark {
    /// The event-time column.
    pub column: Ident,
    /// The watermark that a row lets one assume.
    pub expr: Expr,
}

/// `INCLUDE member AS column`: a column for what stands beside the value of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Include {
    /// `key`, `partition`, `offset`, `timestamp` or `headers`.
    pub member: Ident,
    /// The name of the column; that of the member if none was given.
    pub column: Ident,
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
    /// `*`: the columns that the records have, before the others.
    pub all_columns: bool,
    /// The columns, without constraints that are not per column.
    pub columns: Vec<ColumnDefinition>,
    /// The columns of `PRIMARY KEY`, empty without one.
    pub primary_key: Vec<Ident>,
    /// Every other constraint, of columns too.
    pub constraints: Vec<TableConstraint>,
    /// `WATERMARK FOR`.
    pub watermark: Option<Watermark>,
    /// `INCLUDE`, each.
    pub include: Vec<Include>,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
}

/// `LIKE relation [INCLUDING | EXCLUDING part] ..` among the columns of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableLike {
    /// How many of the columns that are written stand before it.
    pub at: usize,
    /// The relation whose columns it stands for.
    pub relation: ObjectName,
    /// What is taken over besides names, types and NOT NULL.
    pub including: Vec<LikePart>,
}

/// What LIKE may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LikePart {
    /// Comments of columns.
    Comments,
    /// How columns are compressed: nothing.
    Compression,
    /// CHECK constraints.
    Constraints,
    /// DEFAULT.
    Defaults,
    /// GENERATED ALWAYS AS.
    Generated,
    /// IDENTITY, with sequences of their own.
    Identity,
    /// PRIMARY KEY, UNIQUE and indexes.
    Indexes,
    /// What is known for plans: nothing.
    Statistics,
    /// How columns are stored: nothing.
    Storage,
}

impl LikePart {
    /// All of them, with the words that say them.
    pub const ALL: [(LikePart, &str); 9] = [
        (LikePart::Comments, "COMMENTS"),
        (LikePart::Compression, "COMPRESSION"),
        (LikePart::Constraints, "CONSTRAINTS"),
        (LikePart::Defaults, "DEFAULTS"),
        (LikePart::Generated, "GENERATED"),
        (LikePart::Identity, "IDENTITY"),
        (LikePart::Indexes, "INDEXES"),
        (LikePart::Statistics, "STATISTICS"),
        (LikePart::Storage, "STORAGE"),
    ];
}

/// What COMMIT does to a temporary table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCommit {
    /// `ON COMMIT PRESERVE ROWS`.
    PreserveRows,
    /// `ON COMMIT DELETE ROWS`.
    DeleteRows,
    /// `ON COMMIT DROP`.
    Drop,
}

/// What becomes of a row that is inserted under a key that is there, where the INSERT does not say: `ON CONFLICT` of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictRule {
    /// `DO NOTHING`: the row that is there stays.
    Keep,
    /// `DO UPDATE FULL`: the new one takes its place.
    Replace,
    /// `DO UPDATE IF NOT NULL`: the values of the new one that are not NULL take theirs.
    ReplaceNotNull,
}

impl ConflictRule {
    /// All of them.
    pub const ALL: [ConflictRule; 3] = [
        ConflictRule::Keep,
        ConflictRule::Replace,
        ConflictRule::ReplaceNotNull,
    ];

    /// What stands behind `ON CONFLICT`.
    pub fn clause(self) -> &'static str {
        match self {
            ConflictRule::Keep => "DO NOTHING",
            ConflictRule::Replace => "DO UPDATE FULL",
            ConflictRule::ReplaceNotNull => "DO UPDATE IF NOT NULL",
        }
    }
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
    /// `ON COMMIT`.
    pub on_commit: Option<OnCommit>,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `*`: the columns that the records have, before the others.
    pub all_columns: bool,
    /// The columns. With `AS SELECT` empty, or names alone (see `column_names`).
    pub columns: Vec<ColumnDefinition>,
    /// `LIKE relation`, each.
    pub like: Vec<TableLike>,
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
    /// `ON CONFLICT`.
    pub on_conflict: Option<ConflictRule>,
    /// `INCLUDE member AS column`.
    pub include: Vec<Include>,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
    /// `AS SELECT ..`.
    pub as_query: Option<Box<Query>>,
    /// `AS SELECT .. WITH NO DATA`.
    pub with_no_data: bool,
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
