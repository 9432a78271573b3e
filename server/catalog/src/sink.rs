//! Sinks as they are declared: what CREATE SINK says, read and kept. Who writes the files is a layer above
//! (`millrace-database`, `sinks` and `sink_files`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millrace_parser::ast::{self, FormatEncode};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

use crate::connector::options::{Given, invalid};

/// The column of a changelog that says what happened to the row.
pub(crate) const OP: &str = "op";
/// The time between two commits, rows and bytes of a file, unless options say otherwise.
const ROLLOVER_DEFAULT: Duration = Duration::from_secs(10);
const ROWS_MAX_DEFAULT: u64 = 1_000_000;
const BYTES_MAX_DEFAULT: u64 = 128 << 20;

/// What files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// An object a line, named and written as HTTP does.
    Json,
    /// A line with names, then rows as COPY writes them.
    Csv,
    Parquet,
}

/// Which changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkType {
    /// Rows that come. The relation loses none.
    AppendOnly,
    /// Rows that come, of a relation that may lose some.
    ForcedAppendOnly,
    /// Rows that come and go, with a first column that says which: `insert` or `delete`.
    Changelog,
}

/// A file sink: the lasting form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkDef {
    /// What it reads.
    pub relation: ObjectId,
    /// The view that was made for it, if it was given a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ObjectId>,
    /// What the files' columns are called: those that the relation had first.
    pub columns: Vec<String>,
    pub path: PathBuf,
    /// What the files' names begin with.
    pub prefix: String,
    pub format: FileFormat,
    #[serde(rename = "type")]
    pub sink_type: SinkType,
    pub rollover_ms: u64,
    pub rows_max: u64,
    pub bytes_max: u64,
}

impl FileFormat {
    /// Its name, which is also what the files' names end with.
    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Json => "json",
            FileFormat::Csv => "csv",
            FileFormat::Parquet => "parquet",
        }
    }

    fn parse(text: &str) -> SqlResult<FileFormat> {
        let all = [FileFormat::Json, FileFormat::Csv, FileFormat::Parquet];
        let found = all.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            SqlError::unsupported(format!(
                "format {} is not supported for a sink",
                text.to_uppercase()
            ))
            .with_hint("The formats are JSON, CSV and PARQUET.")
        })
    }
}

impl SinkType {
    pub fn name(self) -> &'static str {
        match self {
            SinkType::AppendOnly | SinkType::ForcedAppendOnly => "append-only",
            SinkType::Changelog => "changelog",
        }
    }
}

/// What the options of CREATE SINK say.
#[derive(Debug)]
pub struct SinkOptions {
    path: PathBuf,
    format: FileFormat,
    sink_type: Option<&'static str>,
    is_forced: bool,
    rollover: Duration,
    rows_max: u64,
    bytes_max: u64,
}

impl SinkOptions {
    /// Reads them.
    ///
    /// # Errors
    /// An option is missing, not known, or has a value that it cannot have.
    pub fn new(options: &ast::Options, format: Option<&FormatEncode>) -> SqlResult<SinkOptions> {
        let of_format = format
            .map(|format| format.options.0.as_slice())
            .unwrap_or_default();
        let all: BTreeMap<String, String> = (options.0.iter().chain(of_format))
            .map(|option| (option.name.value.to_ascii_lowercase(), option.value.clone()))
            .collect();
        let needs = |option: &str, hint: &str| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("a sink needs option \"{option}\""),
            )
            .with_hint(hint.to_owned())
        };
        match all.get("connector").map(|name| name.to_ascii_lowercase()) {
            None => {
                return Err(needs(
                    "connector",
                    "Use WITH (connector = 'file', path = '/directory').",
                ));
            }
            Some(name) if name != "file" && name != "fs" => {
                return Err(SqlError::unsupported(format!(
                    "connector \"{name}\" is not supported for a sink"
                ))
                .with_hint("The only connector for sinks is file."));
            }
            Some(_) => {}
        }
        let mut given = Given::new("file", &all);
        let path = given.text("path").or(given.text("fs.path"));
        let path =
            path.ok_or_else(|| needs("path", "It is the path of an existing directory on the server."))?;
        let named = given.text("format");
        let format = match (format, named) {
            (Some(format), None) => {
                if format.format != "plain" {
                    return Err(SqlError::unsupported(format!(
                        "FORMAT {} is not supported",
                        format.format.to_uppercase()
                    ))
                    .with_hint(
                        "Use FORMAT PLAIN; with type = 'changelog', files contain every change of each row.",
                    ));
                }
                FileFormat::parse(&format.encode)?
            }
            (None, Some(named)) => FileFormat::parse(&named.to_ascii_lowercase())?,
            (Some(_), Some(_)) => {
                return Err(SqlError::new(
                    SqlState::SyntaxError,
                    "option \"format\" and FORMAT .. ENCODE .. cannot be combined",
                ));
            }
            (None, None) => {
                return Err(
                    SqlError::new(SqlState::InvalidParameterValue, "a sink needs a format")
                        .with_hint("Add FORMAT PLAIN ENCODE JSON (or CSV, or PARQUET) at the end."),
                );
            }
        };
        let types = [("append-only", "append-only"), ("changelog", "changelog")];
        let sink_type = given.one_of("type", &types)?;
        let is_forced = given.one_of("force_append_only", &[("true", true), ("false", false)])?;
        // Files are written once whichever is asked for.
        given.one_of("delivery", &[("exactly_once", ()), ("at_least_once", ())])?;
        let rollover = match given.text("rollover_seconds") {
            None => ROLLOVER_DEFAULT,
            Some(text) => {
                let seconds = text
                    .parse()
                    .ok()
                    .filter(|seconds| (0.0..=86_400.0).contains(seconds));
                let why = "it must be a number of seconds from 0 to 86400";
                Duration::from_secs_f64(seconds.ok_or_else(|| invalid("rollover_seconds", text, why))?)
            }
        };
        let rows_max = given
            .number("max_row_count", 1..=1 << 40)?
            .unwrap_or(ROWS_MAX_DEFAULT);
        let bytes_max = match given.text("max_file_size") {
            None => BYTES_MAX_DEFAULT,
            Some(text) => units::size(text)
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| invalid("max_file_size", text, "it must be a size, such as '64MB'"))?,
        };
        given.finish()?;
        Ok(SinkOptions {
            path: PathBuf::from(path),
            format,
            sink_type,
            is_forced: is_forced.unwrap_or(false),
            rollover,
            rows_max,
            bytes_max,
        })
    }

    /// The sink of a relation with these columns. `name`: what it is called.
    ///
    /// # Errors
    /// The relation may lose rows and nothing was said about that; a column has a name that the files cannot have.
    pub fn sink(
        self,
        name: &str,
        relation: ObjectId,
        view: Option<ObjectId>,
        schema: &Schema,
        is_append_only: bool,
    ) -> SqlResult<SinkDef> {
        let sink_type =
            match (self.sink_type, self.is_forced) {
                (Some("changelog"), true) => {
                    return Err(SqlError::new(
                        SqlState::InvalidParameterValue,
                        "option \"force_append_only\" cannot be combined with type = 'changelog'",
                    ));
                }
                (Some("changelog"), false) => SinkType::Changelog,
                _ if is_append_only => SinkType::AppendOnly,
                (_, true) => SinkType::ForcedAppendOnly,
                (_, false) => {
                    return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("sink \"{name}\" cannot be append-only, because rows of its source can change \
                             or be deleted"),
                )
                .with_hint(
                    "Use type = 'changelog', which writes every change of each row, or force_append_only = \
                     'true', which omits deletions.",
                ));
                }
            };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let def = SinkDef {
            relation,
            view,
            columns: schema.fields().iter().map(|field| field.name().clone()).collect(),
            path: self.path,
            prefix: name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect(),
            format: self.format,
            sink_type,
            rollover_ms: u64::try_from(self.rollover.as_millis()).unwrap_or(u64::MAX),
            rows_max: self.rows_max,
            bytes_max: self.bytes_max,
        };
        if def.sink_type == SinkType::Changelog && def.columns.iter().any(|column| column == OP) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column name \"{OP}\" specified more than once"),
            )
            .with_detail("The first column of a changelog has that name.")
            .with_hint("Rename the column in a query: CREATE SINK .. AS SELECT .."));
        }
        Ok(def)
    }
}

impl SinkDef {
    /// The columns of the files, given those of the relation.
    pub fn schema(&self, relation: &Schema) -> SchemaRef {
        let op =
            (self.sink_type == SinkType::Changelog).then(|| Arc::new(Field::new(OP, DataType::Utf8, false)));
        let columns = self.columns.iter().zip(relation.fields());
        let columns = columns.map(|(name, field)| Arc::new(field.as_ref().clone().with_name(name)));
        Arc::new(Schema::new(op.into_iter().chain(columns).collect::<Vec<_>>()))
    }
}
