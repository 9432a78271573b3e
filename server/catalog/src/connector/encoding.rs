//! What the bytes of a record mean: `FORMAT PLAIN ENCODE JSON`, and which columns stand for what is beside them.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::type_name;

use super::options::{Given, invalid};
use super::registry::RegistryPlace;
use crate::column::ColumnDef;

/// How records become rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFormat {
    pub envelope: Envelope,
    pub encoding: Encoding,
    pub schema_change: SchemaChange,
}

/// What becomes of columns that records have and their relation has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaChange {
    #[default]
    Ignore,
    /// The source fails.
    Stop,
    /// They are added.
    Add,
}

impl SchemaChange {
    /// What the option says.
    ///
    /// # Errors
    /// It says something else.
    pub(super) fn given(given: &mut Given<'_>) -> SqlResult<Option<SchemaChange>> {
        let all = [
            ("ignore", SchemaChange::Ignore),
            ("stop", SchemaChange::Stop),
            ("add", SchemaChange::Add),
        ];
        given.one_of("schema_change", &all)
    }
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// A row: of a table with a key the one that the key has from then on.
    Plain,
    /// The row of a key; without a value it is gone.
    Upsert(KeyFormat),
    /// A change of a row, as Debezium tells it.
    Debezium,
}

/// What the key of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// Encoded as the value is, with the columns of the primary key; of a single one also its value.
    AsValue,
    /// The same as JSON.
    Json,
    /// The text of the one column.
    Text,
}

/// The option that an envelope is, and what it can be.
pub const ENVELOPE: &str = "envelope";
pub const ENVELOPES: [&str; 3] = ["plain", "upsert", "debezium"];

/// What a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// One JSON object.
    Json,
    /// One line of comma-separated values.
    Csv {
        delimiter: u8,
        /// Whether the first line of a file has the names.
        has_header: bool,
    },
    /// Files of columns.
    Parquet,
    /// Bytes that are one column as they are.
    Bytes,
    /// A record of Avro behind the number of its schema.
    Avro(RegistryPlace),
    /// A message of Protobuf behind the number of its schema.
    Protobuf {
        registry: RegistryPlace,
        /// The message's full name; none: what the record says.
        message: Option<String>,
    },
}

impl Encoding {
    /// The registry that has the schemas of records.
    pub fn registry(&self) -> Option<&RegistryPlace> {
        match self {
            Encoding::Avro(registry) | Encoding::Protobuf { registry, .. } => Some(registry),
            Encoding::Json | Encoding::Csv { .. } | Encoding::Parquet | Encoding::Bytes => None,
        }
    }

    /// As options call it.
    fn name(&self) -> &'static str {
        match self {
            Encoding::Json => "json",
            Encoding::Csv { .. } => "csv",
            Encoding::Parquet => "parquet",
            Encoding::Bytes => "bytes",
            Encoding::Avro(_) => "avro",
            Encoding::Protobuf { .. } => "protobuf",
        }
    }

    /// Whether values have members with names, so that a column that is added later has its values, too.
    fn has_names(&self) -> bool {
        !matches!(
            self,
            Encoding::Csv {
                has_header: false,
                ..
            } | Encoding::Bytes
        )
    }
}

/// What stands beside the value of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    Key,
    Partition,
    Offset,
    Timestamp,
    Headers,
    /// The path of a file.
    File,
}

impl Member {
    pub const ALL: [(&'static str, Member); 6] = [
        ("key", Member::Key),
        ("partition", Member::Partition),
        ("offset", Member::Offset),
        ("timestamp", Member::Timestamp),
        ("headers", Member::Headers),
        ("file", Member::File),
    ];

    /// Whether what the records are in has it: files, or a topic.
    fn is_of(self, files: bool) -> bool {
        match self {
            Member::Offset | Member::Timestamp => true,
            Member::File => files,
            Member::Key | Member::Partition | Member::Headers => !files,
        }
    }

    /// The option that names its column.
    pub fn option(name: &str) -> String {
        format!("include.{name}")
    }

    /// The types that its column may have.
    fn types(self) -> &'static [&'static str] {
        match self {
            Member::Key => &["bytea", "text"],
            Member::Partition => &["integer", "bigint"],
            Member::Offset => &["bigint"],
            Member::Timestamp => &["timestamp with time zone"],
            Member::Headers => &["jsonb", "json", "text"],
            Member::File => &["text"],
        }
    }
}

impl RecordFormat {
    /// What the options say, of records of files or of a topic.
    ///
    /// # Errors
    /// There is no such format, or its options are not for it.
    pub(super) fn new(given: &mut Given<'_>, files: bool) -> SqlResult<RecordFormat> {
        let of_files = [("json", 0), ("csv", 1), ("parquet", 5)];
        let of_topics = [
            ("json", 0),
            ("csv", 1),
            ("bytes", 2),
            ("avro", 3),
            ("protobuf", 4),
        ];
        let which = match files {
            true => given.one_of("format", &of_files)?,
            false => given.one_of("format", &of_topics)?,
        };
        let which = which.ok_or_else(|| {
            let all = match files {
                true => "'json', 'csv' or 'parquet'",
                false => "'json', 'csv', 'bytes', 'avro' or 'protobuf'",
            };
            given.missing("format", all)
        })?;
        let delimiter = given.text("csv.delimiter");
        let header = match files {
            true => given.one_of("csv.header", &[("true", true), ("false", false)])?,
            false => None,
        };
        let registry = RegistryPlace::given(given, matches!(which, 3 | 4))?;
        let message = given.text("message");
        if message.is_some() && which != 4 {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "option \"message\" is for ENCODE PROTOBUF",
            ));
        }
        let encoding = match (which, registry) {
            (3, Some(registry)) => Encoding::Avro(registry),
            (4, Some(registry)) => Encoding::Protobuf {
                registry,
                message: message.map(str::to_owned),
            },
            (0, _) => Encoding::Json,
            (5, _) => Encoding::Parquet,
            (1, _) => Encoding::Csv {
                has_header: header.unwrap_or(false),
                delimiter: match delimiter.unwrap_or(",").as_bytes() {
                    [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r' | 0) => *byte,
                    _ => {
                        let given = delimiter.unwrap_or_default();
                        return Err(invalid(
                            "csv.delimiter",
                            given,
                            "it must be a single one-byte character",
                        ));
                    }
                },
            },
            _ => Encoding::Bytes,
        };
        if (delimiter.is_some() || header.is_some()) && which != 1 {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "options \"csv.delimiter\" and \"csv.header\" are for format 'csv'",
            ));
        }
        let schema_change = SchemaChange::given(given)?;
        if schema_change.is_some() && !encoding.has_names() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "option \"schema_change\" is for formats that name their columns",
            )
            .with_detail("BYTES, and CSV without a header, have none that could be new."));
        }
        let schema_change = schema_change.unwrap_or_default();
        let envelopes = ENVELOPES.map(|name| (name, name));
        let key_formats = [
            (encoding.name(), KeyFormat::AsValue),
            ("json", KeyFormat::Json),
            ("text", KeyFormat::Text),
        ];
        if files {
            let only = given.one_of(ENVELOPE, &[("plain", ())]);
            only.map_err(|error| error.with_hint("FORMAT UPSERT and DEBEZIUM are for topics of Kafka."))?;
            return Ok(RecordFormat {
                envelope: Envelope::Plain,
                encoding,
                schema_change,
            });
        }
        let key_format = given.one_of("key.format", &key_formats)?;
        let envelope = match given.one_of(ENVELOPE, &envelopes)?.unwrap_or("plain") {
            "upsert" => Envelope::Upsert(key_format.unwrap_or(KeyFormat::AsValue)),
            "debezium" => Envelope::Debezium,
            _ => Envelope::Plain,
        };
        if key_format.is_some() && !matches!(envelope, Envelope::Upsert(_)) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "option \"key.format\" is for FORMAT UPSERT",
            ));
        }
        if envelope != Envelope::Plain && !encoding.has_names() {
            return Err(SqlError::unsupported(
                "FORMAT UPSERT and DEBEZIUM are supported with encodings that name the columns: JSON, AVRO, PROTOBUF",
            ));
        }
        if envelope == Envelope::Debezium && matches!(encoding, Encoding::Protobuf { .. }) {
            return Err(SqlError::unsupported(
                "FORMAT DEBEZIUM is supported with ENCODE JSON and AVRO",
            ));
        }
        Ok(RecordFormat {
            envelope,
            encoding,
            schema_change,
        })
    }
}

fn is_plain_text(type_name: &str) -> bool {
    type_name == "text" || type_name.starts_with("character varying")
}

/// Which columns of a stream come from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordColumns {
    /// Those of the values, by position.
    pub values: Vec<usize>,
    /// Those of what stands beside, by position.
    pub members: Vec<(usize, Member)>,
    /// Those of the primary key, by position; none of a stream.
    pub key: Vec<usize>,
}

impl RecordColumns {
    /// For a relation of these columns, of which some are named by options. `key` has the primary key of a table, which may be empty;
    /// `None`: it is a stream.
    ///
    /// # Errors
    /// An option names no column, or one of another type; the format needs other columns.
    pub(super) fn new(
        given: &mut Given<'_>,
        format: &RecordFormat,
        columns: &[ColumnDef],
        key: Option<&[usize]>,
        files: bool,
    ) -> SqlResult<RecordColumns> {
        let is_given = |column: &ColumnDef| match format.encoding.has_names() {
            true => column.generated.is_none() && !column.proctime,
            false => super::is_given(column),
        };
        let mut members: Vec<(usize, Member)> = vec![];
        for (name, member) in Member::ALL.into_iter().filter(|(_, member)| member.is_of(files)) {
            let option = Member::option(name);
            let Some(column) = given.text(&option) else {
                continue;
            };
            let position = columns.iter().position(|known| known.field.name() == column);
            let position =
                position.ok_or_else(|| invalid(&option, column, "it must be the name of a column"))?;
            let field = &columns[position].field;
            let found = type_name(field);
            let is_right = member.types().contains(&found.as_str())
                || (member.types().contains(&"text") && is_plain_text(&found));
            if !is_right {
                return Err(SqlError::new(
                    SqlState::DatatypeMismatch,
                    format!("column \"{column}\" of option \"{option}\" is of type {found}"),
                )
                .with_hint(format!("It can be of type {}.", member.types().join(" or "))));
            }
            if members.iter().any(|(other, _)| *other == position) || !is_given(&columns[position]) {
                return Err(invalid(
                    &option,
                    column,
                    "the column has its values from elsewhere",
                ));
            }
            members.push((position, member));
        }
        let values: Vec<usize> = (columns.iter().enumerate())
            .filter(|(position, column)| {
                is_given(column) && !members.iter().any(|(member, _)| member == position)
            })
            .map(|(position, _)| position)
            .collect();
        match (&format.encoding, values.as_slice()) {
            (Encoding::Bytes, [one]) => {
                let field = &columns[*one].field;
                let found = type_name(field);
                if found != "bytea" && !is_plain_text(&found) {
                    return Err(SqlError::new(
                        SqlState::DatatypeMismatch,
                        format!("column \"{}\" is of type {found}", field.name()),
                    )
                    .with_hint("With format 'bytes' the column of the value is of type bytea or text."));
                }
            }
            (Encoding::Bytes, _) => {
                return Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    format!(
                        "format 'bytes' needs one column for the value, and there are {}",
                        values.len()
                    ),
                ));
            }
            (_, []) => {
                return Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    "the stream has no column for the values of records",
                ));
            }
            _ => {}
        }
        let key = key.unwrap_or_default().to_vec();
        if format.envelope != Envelope::Plain && key.is_empty() {
            return Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                "FORMAT UPSERT and DEBEZIUM need a table with a primary key",
            )
            .with_hint("Use CREATE TABLE .. (.., PRIMARY KEY (..)): it keeps the current row of each key."));
        }
        let is_value = |column: &usize| values.contains(column);
        let is_record_key = members
            .iter()
            .any(|member| key == [member.0] && member.1 == Member::Key);
        match format.envelope {
            Envelope::Upsert(KeyFormat::Text) if key.len() > 1 => {
                return Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    "key.format 'text' is for a primary key of one column",
                ));
            }
            Envelope::Upsert(_) if is_record_key => {}
            Envelope::Upsert(_) | Envelope::Debezium if !key.iter().all(is_value) => {
                return Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    "a column of the primary key does not come from the record's key",
                ));
            }
            _ => {}
        }
        Ok(RecordColumns { values, members, key })
    }
}
