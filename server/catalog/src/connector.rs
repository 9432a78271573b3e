//! Connectors of streams: from `WITH (connector = '..', ..)` to what makes the rows.
//!
//! `nexmark`, `ysb` and `datagen` make rows themselves, which are functions of their position. Those of a `webhook` are sent by others,
//! and those of `kafka` and `postgres-cdc` are fetched from where others keep them.

mod datagen;
pub mod delta;
pub mod encoding;
pub mod files;
pub mod kafka;
pub mod options;
pub mod postgres;
pub mod private_hosts;
pub mod registry;
pub mod secret;
pub mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_generator::{Generator, nexmark, ysb};
use millrace_parser::ast;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;
use serde::{Deserialize, Serialize};

pub(crate) use self::options::length;

use self::encoding::{ENVELOPE, ENVELOPES, RecordColumns, RecordFormat};
use self::files::FilesDef;
use self::kafka::KafkaDef;
use self::options::Given;
use self::postgres::Postgres;
use self::secret::KeptSecret;
use self::webhook::Webhook;
use crate::column::ColumnDef;
use crate::secret::Secrets;

/// The connectors that there are.
const CONNECTORS: [&str; 8] = [
    "kafka",
    "postgres-cdc",
    "file",
    "s3",
    "webhook",
    "datagen",
    "nexmark",
    "ysb",
];
/// Rows of one write.
const WRITE_ROWS: u64 = 8_192;
/// Writes in a second, if the rate is so low that they are smaller than that.
const WRITES_PER_SECOND: u64 = 100;
/// Where event time begins: Nexmark's own beginning.
const START_DEFAULT: &str = "2015-07-15 00:00:00+00";

/// A stream's connector, as it was given: names and values of all options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectorDef {
    options: BTreeMap<String, String>,
    #[serde(skip)]
    secrets: Secrets,
}

/// A connector that is ready to make rows.
#[derive(Debug, Clone)]
pub struct Source {
    pub generator: Arc<dyn Generator>,
    /// The columns of the stream that it gives, by position, in its order.
    pub given: Vec<usize>,
    /// Rows a second; `None`: as fast as views take them.
    pub rate: Option<u64>,
}

impl Source {
    /// Rows that are written together: always those between two multiples of this, so that what is late does not depend on
    /// where the server was stopped.
    pub fn write_rows(&self) -> u64 {
        self.rate
            .map_or(WRITE_ROWS, |rate| (rate / WRITES_PER_SECOND).clamp(1, WRITE_ROWS))
    }
}

impl ConnectorDef {
    /// The connector that the options name, if they do. All options are its own then.
    ///
    /// # Errors
    /// There is no such connector.
    pub fn new(options: &mut ast::Options) -> SqlResult<Option<ConnectorDef>> {
        if !options.0.iter().any(|option| name_of(option) == "connector") {
            return Ok(None);
        }
        let options = std::mem::take(&mut options.0);
        let options = options.into_iter().map(|option| (name_of(&option), option.value));
        let def = ConnectorDef {
            options: options.collect(),
            secrets: Secrets::default(),
        };
        if !CONNECTORS.contains(&def.name()) {
            return Err(
                SqlError::unsupported(format!("connector \"{}\" is not supported", def.name()))
                    .with_hint(format!("The connectors are {}.", CONNECTORS.join(", "))),
            );
        }
        Ok(Some(def))
    }

    /// Whether an option says what becomes of records that are not as they should be: that can be another thing later.
    pub fn is_policy(option: &str) -> bool {
        matches!(option, "on_error" | "schema_change")
    }

    /// The same with such options said anew.
    #[must_use]
    pub fn altered(mut self, policies: impl IntoIterator<Item = (String, String)>) -> ConnectorDef {
        self.options.extend(policies);
        self
    }

    /// The same, whose secrets are opened so.
    #[must_use]
    pub fn with_secrets(self, secrets: Secrets) -> ConnectorDef {
        ConnectorDef { secrets, ..self }
    }

    fn given(&self) -> Given<'_> {
        Given::new(self.name(), &self.options).with_secrets(&self.secrets)
    }

    /// Which connector it is.
    pub fn name(&self) -> &str {
        self.options.get("connector").map_or("", String::as_str)
    }

    /// Whether it makes the rows itself.
    pub fn is_generator(&self) -> bool {
        Self::makes_rows(self.name())
    }

    /// Whether a connector of this name makes the rows itself.
    pub fn makes_rows(name: &str) -> bool {
        !matches!(name, "webhook" | "kafka" | "postgres-cdc" | "file" | "s3")
    }

    /// Whether what a connector of this name reads is in parts that do not wait for each other.
    pub fn has_partitions(name: &str) -> bool {
        name == "kafka"
    }

    /// Whether it reads what others keep.
    pub fn is_read(&self) -> bool {
        matches!(self.name(), "kafka" | "postgres-cdc" | "file" | "s3")
    }

    /// Whether it reads files.
    pub fn has_files(&self) -> bool {
        matches!(self.name(), "file" | "s3")
    }

    /// The files that are read, if it is that.
    ///
    /// # Errors
    /// An option has a value that it cannot have.
    pub fn files(&self) -> SqlResult<Option<FilesDef>> {
        if !self.has_files() {
            return Ok(None);
        }
        let mut given = self.given();
        FilesDef::new(self.name(), &mut given).map(Some)
    }

    /// Whether a record that is no row stops the source.
    ///
    /// # Errors
    /// An option has a value that it cannot have.
    pub fn stops_on_error(&self) -> SqlResult<bool> {
        if let Some(kafka) = self.kafka()? {
            return Ok(kafka.stops_on_error);
        }
        Ok(self.files()?.is_some_and(|files| files.stops_on_error))
    }

    /// The server that is followed, or the table of one, if it is that.
    ///
    /// # Errors
    /// An option is unknown or has a value that it cannot have.
    pub fn postgres(&self) -> SqlResult<Option<Postgres>> {
        if self.name() != "postgres-cdc" {
            return Ok(None);
        }
        let mut given = self.given();
        let postgres = Postgres::new(&mut given)?;
        given.finish()?;
        Ok(Some(postgres))
    }

    /// How requests are checked, if rows come by them.
    ///
    /// # Errors
    /// An option is unknown or has a value that it cannot have.
    pub fn webhook(&self) -> SqlResult<Option<Webhook>> {
        if self.name() != "webhook" {
            return Ok(None);
        }
        let mut given = self.given();
        let webhook = Webhook::new(&mut given)?;
        given.finish()?;
        Ok(Some(webhook))
    }

    /// The topic that is read, if it is one.
    ///
    /// # Errors
    /// An option has a value that it cannot have.
    pub fn kafka(&self) -> SqlResult<Option<KafkaDef>> {
        if self.name() != "kafka" {
            return Ok(None);
        }
        let mut given = self.given();
        KafkaDef::new(&mut given).map(Some)
    }

    /// What the records are that are fetched, whatever columns there are, and of which topic.
    ///
    /// # Errors
    /// An option has a value that it cannot have.
    pub fn format(&self) -> SqlResult<Option<(RecordFormat, String)>> {
        if self.name() != "kafka" {
            return Ok(None);
        }
        let mut given = self.given();
        let topic = KafkaDef::new(&mut given)?.place.topic;
        Ok(Some((RecordFormat::new(&mut given, false)?, topic)))
    }

    /// How the records that are fetched become rows of a relation of these columns, if rows are fetched. `key` has the primary key of a
    /// table, which may be empty; `None`: it is a stream.
    ///
    /// # Errors
    /// An option is unknown or has a value that it cannot have; columns do not fit what records have.
    pub fn records(
        &self,
        columns: &[ColumnDef],
        key: Option<&[usize]>,
    ) -> SqlResult<Option<(RecordFormat, RecordColumns)>> {
        let mut given = self.given();
        let files = self.has_files();
        match self.name() {
            "kafka" => drop(KafkaDef::new(&mut given)?),
            name if files => drop(FilesDef::new(name, &mut given)?),
            _ => return Ok(None),
        }
        let format = RecordFormat::new(&mut given, files)?;
        let of = RecordColumns::new(&mut given, &format, columns, key, files)?;
        given.finish()?;
        Ok(Some((format, of)))
    }

    /// Says it as `FORMAT .. ENCODE ..` behind the options does.
    ///
    /// # Errors
    /// There is no such format, or it was said before.
    pub fn with_format(mut self, format: Option<&ast::FormatEncode>) -> SqlResult<ConnectorDef> {
        let Some(format) = format else { return Ok(self) };
        // RisingWave's statements say so of generated rows, too; rows have no bytes here that a format could be of.
        let is_plain_json =
            format.format == "plain" && format.encode == "json" && format.options.0.is_empty();
        if matches!(self.name(), "datagen" | "nexmark") && is_plain_json {
            return Ok(self);
        }
        if self.name() != "kafka" && !self.has_files() {
            return Err(SqlError::unsupported(format!(
                "FORMAT .. ENCODE .. is not supported with connector \"{}\"",
                self.name()
            )));
        }
        if !ENVELOPES.contains(&format.format.as_str()) {
            return Err(SqlError::unsupported(format!(
                "FORMAT {} is not supported",
                format.format.to_uppercase()
            ))
            .with_hint("There are PLAIN, UPSERT and DEBEZIUM."));
        }
        let entries = (format.options.0.iter()).map(|option| (name_of(option), option.value.clone()));
        let entries = entries.map(|(name, value)| match name.as_str() {
            "delimiter" | "header" => (format!("csv.{name}"), value),
            _ => (name, value),
        });
        let envelope = (format.format != "plain").then(|| (ENVELOPE.to_owned(), format.format.clone()));
        let said = [("format".to_owned(), format.encode.clone())];
        for (name, value) in entries.chain(said).chain(envelope) {
            if self.options.insert(name.clone(), value).is_some() {
                return Err(SqlError::new(
                    SqlState::SyntaxError,
                    format!("option \"{name}\" specified more than once"),
                ));
            }
        }
        Ok(self)
    }

    /// As CREATE STREAM has it: the options, the connector first.
    pub fn options(&self) -> Vec<String> {
        let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let quoted = |name: &str| match name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
        {
            true => name.to_owned(),
            false => literal(name),
        };
        let others = self.options.iter().filter(|(name, _)| *name != "connector");
        let others = others.map(|(name, value)| {
            let kept = (name.strip_suffix(KeptSecret::SUFFIX)).zip(KeptSecret::parse(value));
            match kept {
                Some((name, (_, secret))) => format!("{} = SECRET {secret}", quoted(name)),
                None => format!("{} = {}", quoted(name), literal(value)),
            }
        });
        std::iter::once(format!("connector = {}", literal(self.name())))
            .chain(others)
            .collect()
    }

    /// What makes rows for a stream of these columns; none if others send them.
    ///
    /// # Errors
    /// An option is unknown or has a value that it cannot have; the connector does not know a column.
    pub fn source(&self, columns: &[ColumnDef]) -> SqlResult<Option<Source>> {
        if !self.is_generator() {
            return Ok(None);
        }
        let mut given = self.given();
        let rate = match given.number("rate", 1..=10_000_000)? {
            None if self.name() == "datagen" => given.number("datagen.rows.per.second", 1..=10_000_000)?,
            rate => rate,
        };
        let rows = given.number("rows", 0..=u64::MAX >> 1)?;
        let (generator, positions) = match self.name() {
            "nexmark" => nexmark(&mut given, columns, rows)?,
            "ysb" => ysb(&mut given, columns, rows)?,
            _ => datagen::source(&mut given, columns, rows)?,
        };
        given.finish()?;
        if rate.is_none() && generator.rows_max().is_none() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("connector \"{}\" needs option \"rows\" or \"rate\"", self.name()),
            )
            .with_detail("An endless stream at full speed would soon fill the disk."));
        }
        Ok(Some(Source {
            generator,
            given: positions,
            rate,
        }))
    }
}

fn name_of(option: &ast::OptionEntry) -> String {
    option.name.value.to_ascii_lowercase()
}

type Made = (Arc<dyn Generator>, Vec<usize>);

fn nexmark(given: &mut Given<'_>, columns: &[ColumnDef], rows: Option<u64>) -> SqlResult<Made> {
    use nexmark::{Kind, Nexmark};
    let kind = given.one_of(
        "nexmark.table.type",
        &[
            ("person", Kind::Person),
            ("auction", Kind::Auction),
            ("bid", Kind::Bid),
        ],
    )?;
    let kind = kind.ok_or_else(|| given.missing("nexmark.table.type", "'person', 'auction' or 'bid'"))?;
    let events = given.number("nexmark.event.num", 0..=u64::MAX >> 1)?;
    let known: Vec<&str> = kind.columns().iter().map(|(name, _)| *name).collect();
    let positions = known_columns("nexmark", columns, &known)?;
    let mut nexmark = Nexmark::new(kind, &names(columns, &positions));
    nexmark.seed = given.seed()?;
    nexmark.start = given.time("start")?.unwrap_or(start()?);
    let gap = given.number("nexmark.min.event.gap.in.ns", 0..=u64::MAX >> 1)?;
    nexmark.gap_ns = gap.unwrap_or(nexmark.gap_ns);
    // The fewer of the two.
    nexmark.rows_max = events
        .map(|events| kind.rows_of(events))
        .into_iter()
        .chain(rows)
        .min();
    Ok((Arc::new(nexmark), positions))
}

fn ysb(given: &mut Given<'_>, columns: &[ColumnDef], rows: Option<u64>) -> SqlResult<Made> {
    use ysb::{Kind, Ysb};
    let kinds = [("events", Kind::Events), ("campaigns", Kind::Campaigns)];
    let kind = given.one_of("ysb.table.type", &kinds)?.unwrap_or(Kind::Events);
    let positions = known_columns("ysb", columns, kind.columns())?;
    let wanted = positions.iter().map(|position| {
        let field = &columns[*position].field;
        let is_text = millrace_postgres::types::is_text(field.data_type())
            || millrace_postgres::types::type_name(field) == "uuid";
        (field.name().clone(), !is_text)
    });
    let mut ysb = Ysb::new(kind, &wanted.collect::<Vec<_>>(), rows);
    ysb.seed = given.seed()?;
    ysb.start = given.time("start")?.unwrap_or(start()?);
    let gap = given.length("gap")?.map(|micros| micros.saturating_mul(1000));
    ysb.gap_ns = gap.unwrap_or(ysb.gap_ns);
    Ok((Arc::new(ysb), positions))
}

fn start() -> SqlResult<i64> {
    options::time(START_DEFAULT)
}

/// Whether a connector gives the column, and not the stream itself.
fn is_given(column: &ColumnDef) -> bool {
    column.generated.is_none() && !column.proctime && column.added.is_none()
}

/// The positions of the columns that a connector with these columns gives.
fn known_columns(connector: &str, columns: &[ColumnDef], known: &[&str]) -> SqlResult<Vec<usize>> {
    let mut positions = vec![];
    for (position, column) in columns.iter().enumerate().filter(|(_, column)| is_given(column)) {
        let name = column.field.name();
        if known.contains(&name.as_str()) {
            positions.push(position);
        } else if column.default.is_none() {
            return Err(SqlError::new(
                SqlState::UndefinedColumn,
                format!("connector \"{connector}\" has no column \"{name}\""),
            )
            .with_detail(format!("It has {}.", known.join(", ")))
            .with_hint_opt(did_you_mean(name, known.iter().copied())));
        }
    }
    Ok(positions)
}

fn names(columns: &[ColumnDef], positions: &[usize]) -> Vec<String> {
    positions
        .iter()
        .map(|position| columns[*position].field.name().clone())
        .collect()
}
