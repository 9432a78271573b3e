//! What CREATE SINK says.

mod delta;
mod webhook;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use millrace_parser::ast::{self, FormatEncode};
use millrace_planner::RelationInfo;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;
use millrace_postgres::units;
use millrace_storage::ObjectId;

use super::avro::AvroSchemas;
use super::{
    BucketSink, Delivery, DeltaSink, FileFormat, FileTarget, KafkaSink, OP, PostgresSink, SinkDef, SinkType,
    Target, WebhookSink,
};
use crate::connector::files::BucketPlace;
use crate::connector::kafka::KafkaTarget;
use crate::connector::options::{Given, invalid};
use crate::connector::postgres::PostgresTarget;
use crate::secret::Secrets;

/// The time between two steps, rows and bytes of a file, unless options say otherwise.
const FILE_ROLLOVER: Duration = Duration::from_secs(10);
const REMOTE_ROLLOVER: Duration = Duration::from_millis(100);
const ROWS_MAX_DEFAULT: u64 = 1_000_000;
const BYTES_MAX_DEFAULT: u64 = 128 << 20;

/// What the options of CREATE SINK say.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    target: Wanted,
    sink_type: Option<SinkType>,
    is_forced: bool,
    rollover: Duration,
}

/// Where rows are to go.
#[derive(Debug, Clone)]
enum Wanted {
    Files {
        path: PathBuf,
        format: FileFormat,
        rows_max: u64,
        bytes_max: u64,
    },
    Bucket {
        s3: BTreeMap<String, String>,
        format: FileFormat,
        rows_max: u64,
        bytes_max: u64,
    },
    Kafka {
        sink: KafkaSink,
        primary_key: Option<String>,
        /// The topic, if its records are Avro.
        avro_of: Option<String>,
    },
    Postgres {
        sink: PostgresSink,
        primary_key: Option<String>,
    },
    Webhook(WebhookSink),
    Delta(DeltaSink),
}

fn refused(message: String) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

fn needs(option: &str, hint: &str) -> SqlError {
    refused(format!("a sink needs option \"{option}\"")).with_hint(hint.to_owned())
}

/// What the options of files say, wherever they are.
struct FileOptions {
    format: FileFormat,
    sink_type: Option<SinkType>,
    rows_max: u64,
    bytes_max: u64,
}

impl FileOptions {
    fn new(given: &mut Given<'_>, format: Option<&FormatEncode>) -> SqlResult<FileOptions> {
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
                return Err(refused("a sink needs a format".to_owned())
                    .with_hint("Add FORMAT PLAIN ENCODE JSON (or CSV, or PARQUET) at the end."));
            }
        };
        Self::limits(given, format)
    }

    /// The same of files whose format is known.
    fn limits(given: &mut Given<'_>, format: FileFormat) -> SqlResult<FileOptions> {
        let types = [
            ("append-only", SinkType::AppendOnly),
            ("changelog", SinkType::Changelog),
        ];
        let sink_type = given.one_of("type", &types)?;
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
        Ok(FileOptions {
            format,
            sink_type,
            rows_max,
            bytes_max,
        })
    }
}

impl SinkOptions {
    /// Reads them. `id`: what no other sink anywhere is called.
    ///
    /// # Errors
    /// An option is missing, not known, or has a value that it cannot have.
    pub fn new(options: &ast::Options, format: Option<&FormatEncode>, id: String) -> SqlResult<SinkOptions> {
        let of_format = format
            .map(|format| format.options.0.as_slice())
            .unwrap_or_default();
        let all: BTreeMap<String, String> = (options.0.iter().chain(of_format))
            .map(|option| (option.name.value.to_ascii_lowercase(), option.value.clone()))
            .collect();
        match all.get("connector").map(|name| name.to_ascii_lowercase()) {
            None => Err(needs(
                "connector",
                "Use WITH (connector = 'file', path = '/directory'), or connector = 's3', 'kafka', 'postgres', 'delta' or 'webhook'.",
            )),
            Some(name) if name == "file" || name == "fs" => Self::files(&all, format),
            Some(name) if name == "s3" => Self::bucket(&all, format),
            Some(name) if name == "kafka" => Self::kafka(&all, format, id),
            Some(name) if name == "postgres" => Self::postgres(&all, format, id),
            Some(name) if name == "delta" => Self::delta(&all, format, id),
            Some(name) if name == "webhook" => Self::webhook(&all, format, id),
            Some(name) => Err(SqlError::unsupported(format!(
                "connector \"{name}\" is not supported for a sink"
            ))
            .with_hint("The connectors for sinks are file, s3, kafka, postgres, delta and webhook.")),
        }
    }

    fn files(all: &BTreeMap<String, String>, format: Option<&FormatEncode>) -> SqlResult<SinkOptions> {
        let mut given = Given::new("file", all);
        let path = given.text("path").or(given.text("fs.path"));
        let path =
            path.ok_or_else(|| needs("path", "It is the path of an existing directory on the server."))?;
        let of_files = FileOptions::new(&mut given, format)?;
        let target = Wanted::Files {
            path: PathBuf::from(path),
            format: of_files.format,
            rows_max: of_files.rows_max,
            bytes_max: of_files.bytes_max,
        };
        Self::common(given, target, of_files.sink_type, FILE_ROLLOVER)
    }

    fn bucket(all: &BTreeMap<String, String>, format: Option<&FormatEncode>) -> SqlResult<SinkOptions> {
        let mut given = Given::new("s3", all);
        BucketPlace::new(&mut given)?;
        let of_files = FileOptions::new(&mut given, format)?;
        let target = Wanted::Bucket {
            s3: all.clone(),
            format: of_files.format,
            rows_max: of_files.rows_max,
            bytes_max: of_files.bytes_max,
        };
        Self::common(given, target, of_files.sink_type, FILE_ROLLOVER)
    }

    fn kafka(
        all: &BTreeMap<String, String>,
        format: Option<&FormatEncode>,
        id: String,
    ) -> SqlResult<SinkOptions> {
        const FORMATS: &str = "Add FORMAT PLAIN ENCODE JSON (or UPSERT, or DEBEZIUM; or AVRO) at the end.";
        let format = format.ok_or_else(|| refused("a sink needs a format".to_owned()).with_hint(FORMATS))?;
        let sink_type = match format.format.as_str() {
            "plain" => SinkType::AppendOnly,
            "upsert" => SinkType::Upsert,
            "debezium" => SinkType::Debezium,
            other => {
                let message = format!("FORMAT {} is not supported", other.to_uppercase());
                return Err(SqlError::unsupported(message).with_hint(FORMATS));
            }
        };
        let is_avro = match format.encode.as_str() {
            "json" => false,
            "avro" => true,
            other => {
                let message = format!(
                    "ENCODE {} is not supported for a sink to Kafka",
                    other.to_uppercase()
                );
                return Err(SqlError::unsupported(message).with_hint("Use ENCODE JSON or ENCODE AVRO."));
            }
        };
        let mut given = Given::new("kafka", all);
        let topic = KafkaTarget::new(&mut given, is_avro)?.place.topic;
        let types = [SinkType::AppendOnly, SinkType::Upsert, SinkType::Debezium];
        let named = given.one_of("type", &types.map(|named| (named.name(), named)))?;
        if let Some(named) = named
            && named != sink_type
        {
            return Err(refused(format!(
                "type = '{}' and FORMAT {} cannot be combined",
                named.name(),
                format.format.to_uppercase()
            ))
            .with_detail("FORMAT PLAIN is append-only."));
        }
        let target = Wanted::Kafka {
            primary_key: given.text("primary_key").map(str::to_owned),
            sink: KafkaSink {
                kafka: all.clone(),
                secrets: Secrets::default(),
                id,
                key: None,
                avro: None,
            },
            avro_of: is_avro.then_some(topic),
        };
        Self::common(given, target, Some(sink_type), REMOTE_ROLLOVER)
    }

    fn postgres(
        all: &BTreeMap<String, String>,
        format: Option<&FormatEncode>,
        id: String,
    ) -> SqlResult<SinkOptions> {
        if format.is_some() {
            return Err(SqlError::unsupported(
                "FORMAT .. ENCODE .. is not supported for a sink to PostgreSQL",
            )
            .with_hint("Rows are rows there. Use type = 'append-only' or type = 'upsert'."));
        }
        let mut given = Given::new("postgres", all);
        PostgresTarget::new(&mut given)?;
        let types = [SinkType::AppendOnly, SinkType::Upsert];
        let sink_type = given.one_of("type", &types.map(|named| (named.name(), named)))?;
        let target = Wanted::Postgres {
            primary_key: given.text("primary_key").map(str::to_owned),
            sink: PostgresSink {
                postgres: all.clone(),
                secrets: Secrets::default(),
                id,
                key: None,
            },
        };
        Self::common(given, target, sink_type, REMOTE_ROLLOVER)
    }

    /// What all sinks have.
    fn common(
        mut given: Given<'_>,
        target: Wanted,
        sink_type: Option<SinkType>,
        rollover: Duration,
    ) -> SqlResult<SinkOptions> {
        let is_forced = given.one_of("force_append_only", &[("true", true), ("false", false)])?;
        let deliveries = [Delivery::ExactlyOnce, Delivery::AtLeastOnce];
        let delivery = given.one_of(
            "delivery",
            &deliveries.map(|delivery| (delivery.name(), delivery)),
        )?;
        if delivery == Some(Delivery::ExactlyOnce) && matches!(target, Wanted::Webhook(_)) {
            return Err(SqlError::unsupported(
                "a webhook cannot be delivered to exactly once: after a crash a request may be sent again",
            )
            .with_hint("Omit the option. A request that is sent again has the same Idempotency-Key."));
        }
        if delivery == Some(Delivery::AtLeastOnce) && !matches!(target, Wanted::Webhook(_)) {
            return Err(SqlError::unsupported(
                "this sink delivers exactly once: delivery = 'at_least_once' would change nothing",
            )
            .with_hint("Omit the option."));
        }
        let rollover = match given.text("rollover_seconds") {
            None => rollover,
            Some(text) => {
                let seconds = text
                    .parse()
                    .ok()
                    .filter(|seconds| (0.0..=86_400.0).contains(seconds));
                let why = "it must be a number of seconds from 0 to 86400";
                Duration::from_secs_f64(seconds.ok_or_else(|| invalid("rollover_seconds", text, why))?)
            }
        };
        given.finish()?;
        Ok(SinkOptions {
            target,
            sink_type,
            is_forced: is_forced.unwrap_or(false),
            rollover,
        })
    }

    /// Whether it goes to another system, at which is to be looked before there can be such a sink.
    pub fn is_remote(&self) -> bool {
        !matches!(self.target, Wanted::Files { .. })
    }

    /// The sink of a relation. `name`: what it is called.
    ///
    /// # Errors
    /// The relation may lose rows and nothing was said about that, or has no such key; a column has a name that the files cannot have.
    pub fn sink(
        self,
        name: &str,
        relation: ObjectId,
        view: Option<ObjectId>,
        info: &RelationInfo,
    ) -> SqlResult<SinkDef> {
        let sink_type = match (self.sink_type, self.is_forced) {
            (Some(named), true) if named.has_deletions() => {
                return Err(refused(format!(
                    "option \"force_append_only\" cannot be combined with type = '{}'",
                    named.name()
                )));
            }
            (Some(named), false) if named.has_deletions() => named,
            _ if info.append_only => SinkType::AppendOnly,
            (_, true) => SinkType::ForcedAppendOnly,
            (_, false) => {
                let others = match self.target {
                    Wanted::Files { .. } | Wanted::Bucket { .. } | Wanted::Webhook(_) | Wanted::Delta(_) => {
                        "type = 'changelog', which writes every change of each row"
                    }
                    Wanted::Kafka { .. } => "FORMAT UPSERT or FORMAT DEBEZIUM",
                    Wanted::Postgres { .. } => "type = 'upsert'",
                };
                return Err(refused(format!(
                    "sink \"{name}\" cannot be append-only, because rows of its source can change or be deleted"
                ))
                .with_hint(format!(
                    "Use {others}, or force_append_only = 'true', which omits deletions."
                )));
            }
        };
        let columns: Vec<String> = (info.schema.fields().iter())
            .map(|field| field.name().clone())
            .collect();
        if sink_type == SinkType::Changelog && columns.iter().any(|column| column == OP) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column name \"{OP}\" specified more than once"),
            )
            .with_detail("The first column of a changelog has that name.")
            .with_hint("Rename the column in a query: CREATE SINK .. AS SELECT .."));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let plain_name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let target = match self.target {
            Wanted::Files {
                path,
                format,
                rows_max,
                bytes_max,
            } => Target::Files(FileTarget {
                path,
                prefix: plain_name,
                format,
                rows_max,
                bytes_max,
            }),
            Wanted::Bucket {
                s3,
                format,
                rows_max,
                bytes_max,
            } => Target::Bucket(BucketSink {
                s3,
                secrets: Secrets::default(),
                name: plain_name,
                format,
                rows_max,
                bytes_max,
            }),
            Wanted::Webhook(sink) => Target::Webhook(sink),
            Wanted::Delta(sink) => Target::Delta(sink),
            Wanted::Kafka {
                sink,
                primary_key,
                avro_of,
            } => {
                let key = key(sink_type, primary_key.as_deref(), &columns, info)?;
                let schemas = |topic: String| {
                    AvroSchemas::new(&topic, sink_type, &columns, key.as_deref(), &info.schema)
                };
                let avro = avro_of.map(schemas).transpose()?;
                Target::Kafka(KafkaSink { key, avro, ..sink })
            }
            Wanted::Postgres { sink, primary_key } => {
                if primary_key.is_some() && !sink_type.has_deletions() {
                    return Err(refused(
                        "option \"primary_key\" is for type = 'upsert'".to_owned(),
                    ));
                }
                Target::Postgres(PostgresSink {
                    key: key(sink_type, primary_key.as_deref(), &columns, info)?,
                    ..sink
                })
            }
        };
        let mut def = SinkDef {
            relation,
            view,
            columns,
            sink_type,
            rollover_ms: u64::try_from(self.rollover.as_millis()).unwrap_or(u64::MAX),
            target,
        };
        let schema = def.schema(&info.schema);
        if let Target::Delta(sink) = &mut def.target {
            sink.schema = crate::connector::delta::schema(&schema)?.to_string();
        }
        Ok(def)
    }
}

/// The columns of the key of records. Where a record takes the place of the one before, no two rows may have the same key.
fn key(
    sink_type: SinkType,
    given: Option<&str>,
    columns: &[String],
    info: &RelationInfo,
) -> SqlResult<Option<Vec<usize>>> {
    const OPTION: &str = "primary_key";
    let mut key: Vec<usize> = vec![];
    for name in given
        .into_iter()
        .flat_map(|given| given.split(','))
        .map(str::trim)
    {
        let position = columns.iter().position(|column| column == name);
        let position = position.ok_or_else(|| {
            SqlError::new(
                SqlState::UndefinedColumn,
                format!("column \"{name}\" of option \"{OPTION}\" does not exist"),
            )
            .with_hint_opt(did_you_mean(name, columns.iter().map(String::as_str)))
        })?;
        if key.contains(&position) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{name}\" specified more than once in option \"{OPTION}\""),
            ));
        }
        key.push(position);
    }
    if !sink_type.has_deletions() {
        return Ok(given.map(|_| key));
    }
    let Some(known) = &info.key else {
        return Err(refused(format!(
            "the rows of \"{}\" have no key that is known to be unique",
            info.name
        ))
        .with_hint(
            "Such a sink is for tables with a primary key and for views with one row for each group.",
        ));
    };
    if given.is_none() {
        return Ok(Some(known.clone()));
    }
    if known.iter().all(|column| key.contains(column)) {
        return Ok(Some(key));
    }
    let names: Vec<&str> = known.iter().map(|column| columns[*column].as_str()).collect();
    Err(refused(format!(
        "two rows of \"{}\" may have the same ({})",
        info.name,
        given.unwrap_or_default()
    ))
    .with_detail("One of them would take the place of the other.")
    .with_hint(format!("{OPTION} must have the columns {}.", names.join(", "))))
}
