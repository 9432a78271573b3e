//! `connector = 'postgres-cdc'`: a PostgreSQL server whose changes are followed, and tables of it. Options are called as RisingWave has them.

use std::path::PathBuf;

use millrace_postgres::error::SqlResult;

use super::encoding::SchemaChange;
use super::options::{Given, invalid};
use super::secret::Secret;

/// What the connector is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Postgres {
    /// A stream of the server's transactions, which feeds the tables.
    Server(Box<PostgresDef>),
    Table(UpstreamTable),
}

/// A database of a server, and who one is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresPlace {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<Secret>,
    pub database: String,
    pub tls: TlsMode,
    /// The certificates of the authorities that are trusted; none: the public ones.
    pub tls_roots: Option<PathBuf>,
}

/// How a connection is protected: what libpq calls sslmode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    Disable,
    /// TLS if the server has it, whoever it is.
    #[default]
    Prefer,
    /// TLS, with whomever.
    Require,
    /// TLS with a server whose certificate an authority has signed.
    VerifyCa,
    /// The same, and the certificate is for this host.
    VerifyFull,
}

/// A table that a sink writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresTarget {
    pub place: PostgresPlace,
    pub schema: String,
    pub table: String,
}

/// A server, and where in it one reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresDef {
    pub place: PostgresPlace,
    /// The replication slot, which is made with the stream.
    pub slot: String,
    /// The publication, which gets the tables.
    pub publication: String,
    /// Whether the publication is changed when tables need it.
    pub publishes: bool,
    /// Whether a row that does not fit stops the source.
    pub stops_on_error: bool,
    /// What becomes of columns that a table has there and not here.
    pub schema_change: SchemaChange,
}

/// A table of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTable {
    /// The stream of the server, as it was named.
    pub source: String,
    pub schema: String,
    pub name: String,
}

const TABLE: &str = "table.name";

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let starts = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    starts
        && name.len() <= 63
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

impl Postgres {
    pub(super) fn new(given: &mut Given<'_>) -> SqlResult<Postgres> {
        if let Some(source) = given.text("source") {
            let table = given
                .text(TABLE)
                .ok_or_else(|| given.missing(TABLE, "the name of a table there, 'schema.table'"))?;
            return Ok(Postgres::Table(UpstreamTable::new(source, table)?));
        }
        let place = PostgresPlace::new(given)?;
        let slot = needed(given, &["slot.name"], "the name of a replication slot to be made")?;
        if !is_identifier(&slot) {
            return Err(invalid(
                "slot.name",
                &slot,
                "it must be of small letters, digits and underscores",
            ));
        }
        let publication = given.text("publication.name").unwrap_or("millrace").to_owned();
        if !is_identifier(&publication) {
            let what = "it must be of small letters, digits and underscores";
            return Err(invalid("publication.name", &publication, what));
        }
        let switch = [("true", true), ("false", false)];
        let on_error = [("skip", false), ("fail", true)];
        Ok(Postgres::Server(Box::new(PostgresDef {
            place,
            slot,
            publication,
            publishes: given
                .one_of("publication.create.enable", &switch)?
                .unwrap_or(true),
            stops_on_error: given.one_of("on_error", &on_error)?.unwrap_or(false),
            schema_change: SchemaChange::given(given)?.unwrap_or_default(),
        })))
    }
}

/// What an option says that has to be there. The first of its names is what messages call it.
fn needed(given: &mut Given<'_>, names: &[&str], what: &str) -> SqlResult<String> {
    match given.one_name(names)? {
        Some("") => Err(invalid(names[0], "", &format!("it must be {what}"))),
        Some(text) => Ok(text.to_owned()),
        None => Err(given.missing(names[0], what)),
    }
}

impl PostgresPlace {
    fn new(given: &mut Given<'_>) -> SqlResult<PostgresPlace> {
        let host = needed(given, &["hostname", "host"], "the name or address of a server")?;
        let user = needed(given, &["username", "user"], "the name of a role there")?;
        let database = needed(given, &["database.name", "database"], "the name of a database")?;
        let port = given.number("port", 1..=65_535)?.unwrap_or(5432) as u16;
        let (tls, tls_roots) = tls(given)?;
        Ok(PostgresPlace {
            host,
            port,
            user,
            password: Secret::given(given, "password")?,
            database,
            tls,
            tls_roots,
        })
    }
}

fn tls(given: &mut Given<'_>) -> SqlResult<(TlsMode, Option<PathBuf>)> {
    const MODE: &str = "ssl.mode";
    const ROOTS: &str = "ssl.root.cert";
    let modes = [
        ("disable", TlsMode::Disable),
        ("prefer", TlsMode::Prefer),
        ("require", TlsMode::Require),
        ("verify-ca", TlsMode::VerifyCa),
        ("verify-full", TlsMode::VerifyFull),
        // RisingWave's words for the same.
        ("disabled", TlsMode::Disable),
        ("preferred", TlsMode::Prefer),
        ("required", TlsMode::Require),
    ];
    let mode = given.one_of(MODE, &modes)?.unwrap_or_default();
    let verifies = matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull);
    let roots = match given.text(ROOTS) {
        None => None,
        Some(path) if !verifies => {
            return Err(invalid(
                ROOTS,
                path,
                "it is for ssl.mode = 'verify-ca' or 'verify-full'",
            ));
        }
        Some(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Some(path) => return Err(invalid(ROOTS, path, "it must be an absolute path")),
    };
    Ok((mode, roots))
}

impl PostgresTarget {
    pub(crate) fn new(given: &mut Given<'_>) -> SqlResult<PostgresTarget> {
        let place = PostgresPlace::new(given)?;
        let name = needed(given, &["table.name", "table"], "the name of a table there")?;
        let schema = given.one_name(&["schema.name", "schema"])?;
        let (schema, table) = match (schema, name.split_once('.')) {
            (Some(schema), None) => (schema.to_owned(), name),
            (None, None) => ("public".to_owned(), name),
            (None, Some((schema, table))) => (schema.to_owned(), table.to_owned()),
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "table.name",
                    &name,
                    "the schema is named in option \"schema\" already",
                ));
            }
        };
        if schema.is_empty() || table.is_empty() || table.contains('.') {
            return Err(invalid(
                "table.name",
                &table,
                "it must be 'schema.table' or 'table'",
            ));
        }
        Ok(PostgresTarget { place, schema, table })
    }
}

impl UpstreamTable {
    /// `schema.table`, or `table` of `public`.
    fn new(source: &str, table: &str) -> SqlResult<UpstreamTable> {
        let (schema, name) = table.split_once('.').unwrap_or(("public", table));
        if schema.is_empty() || name.is_empty() || name.contains('.') {
            return Err(invalid(TABLE, table, "it must be 'schema.table'"));
        }
        Ok(UpstreamTable {
            source: source.to_owned(),
            schema: schema.to_owned(),
            name: name.to_owned(),
        })
    }
}
