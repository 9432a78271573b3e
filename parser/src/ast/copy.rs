//! COPY and its options.

use sqlparser::ast::{Expr, Ident, ObjectName};

use super::cursor::Subscribe;

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
