//! What is written down: each kind of event with who, from where and which statement; and nothing of it, nor of anything else that others
//! can read, has a password or a secret.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use millrace_auth::seal::SealingKey;
use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use parking_lot::Mutex;
use tokio_postgres::Client;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::http::{basic, request};
use crate::{Fixture, PASSWORD, rows};

/// What every password and secret here begins with.
const SECRET: &str = "abracadabra";

/// The log of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

impl Log {
    /// Everything that millrace logs from now on, whatever the level.
    fn begin() -> Log {
        let log = Log::default();
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("off,millrace=trace"))
            .with_ansi(false)
            .with_writer(log.clone())
            .init();
        log
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// The first line of the audit that has all of these, which comes soon if it is not there.
    async fn line(&self, event: &str, has: &[&str]) -> String {
        let event = format!("millrace::audit: event=\"{event}\" ");
        let find = || {
            let text = self.text();
            let mut lines = text.lines();
            let found =
                lines.find(|line| line.contains(&event) && has.iter().all(|part| line.contains(part)));
            found.map(str::to_owned)
        };
        let wait = async {
            loop {
                if let Some(line) = find() {
                    return line;
                }
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(30), wait).await;
        found.unwrap_or_else(|_| panic!("no line {event} with {has:?} in\n{}", self.text()))
    }
}

async fn start() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        password: Some(PASSWORD.to_owned()),
        secrets_key: Some(SealingKey::parse(&"ab".repeat(32)).unwrap()),
        ..throw_away(&directory.path().join("data"))
    };
    Fixture {
        server: Server::start(config).await.unwrap(),
        directory,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_written_down_and_secrets_are_not() {
    let log = Log::begin();
    let fixture = start().await;
    let first = fixture.first().await;
    let http = fixture.server.http_addr();
    let password = format!("{SECRET}-ann");
    let setup = [
        format!("CREATE USER audit_ann PASSWORD '{password}'"),
        format!("CREATE ROLE audit_closed PASSWORD '{password}'"),
        "GRANT CREATE ON SCHEMA public TO audit_ann".to_owned(),
        "ALTER SYSTEM SET access_control = on".to_owned(),
    ];
    for statement in &setup {
        rows(&first, statement).await.unwrap();
    }

    // Who comes and goes, and who may not come in.
    let ann = fixture.connect("audit_ann", &password).await.unwrap();
    let here = "peer=\"127.0.0.1:";
    log.line("connected", &["user=\"audit_ann\"", here, "session="])
        .await;
    assert!(fixture.connect("audit_ann", "wrong").await.is_err());
    assert!(fixture.connect("audit_eve", "wrong").await.is_err());
    assert!(fixture.connect("audit_closed", &password).await.is_err());
    let ask = async |authorization: &str| {
        let sql = "SELECT 1";
        request(http, "POST", "/api/sql", Some(authorization), "text/plain", sql)
            .await
            .status
    };
    assert_eq!(ask(&basic("audit_bob", "wrong")).await, 401);
    assert_eq!(ask("Bearer millrace_nonsense").await, 401);
    let here_alone = "peer=127.0.0.1";
    log.line("login failed", &["user=\"audit_ann\"", here_alone])
        .await;
    log.line("login failed", &["user=\"audit_eve\"", here_alone])
        .await;
    log.line("login failed", &["user=\"audit_bob\"", here_alone])
        .await;
    log.line("login failed", &["user=\"a token\"", here_alone]).await;
    log.line("login failed", &["user=\"audit_closed\"", here, "code=\"28000\""])
        .await;

    // What they do: the statement, what it is written down as, and what became of it.
    let backup = fixture.directory.path().join("backup");
    let backup = format!("BACKUP TO '{}'", backup.display());
    let cases = [
        (&ann, "CREATE TABLE audited (a int)", "ddl", "00000"),
        (
            &ann,
            "CREATE VIEW audited_view AS SELECT a FROM audited",
            "ddl",
            "00000",
        ),
        (&ann, "COMMENT ON TABLE audited IS 'x'", "ddl", "00000"),
        (&ann, "ALTER TABLE audited ADD COLUMN b int", "ddl", "00000"),
        (&ann, "GRANT SELECT ON audited TO audit_closed", "grant", "00000"),
        (
            &ann,
            "REVOKE SELECT ON audited FROM audit_closed",
            "grant",
            "00000",
        ),
        (&ann, "GRANT audit_closed TO audit_ann", "grant", "42501"),
        (&ann, "ALTER SYSTEM SET durability = off", "alter system", "42501"),
        (
            &first,
            "ALTER SYSTEM SET durability = group",
            "alter system",
            "00000",
        ),
        (&ann, backup.as_str(), "backup", "42501"),
        (&first, backup.as_str(), "backup", "00000"),
        (
            &ann,
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/nowhere'",
            "files",
            "42501",
        ),
        (
            &ann,
            "CREATE STREAM x (a int) WITH (connector = 'file', path = '/nowhere')",
            "files",
            "42501",
        ),
        (
            &ann,
            "CREATE SINK x FROM audited WITH (connector = 'file', path = '/nowhere')",
            "files",
            "42501",
        ),
        (&ann, "COPY audited TO '/nowhere'", "files", "42501"),
        (&first, "COPY audited FROM PROGRAM 'true'", "files", "0A000"),
        (&ann, "CREATE ROLE audit_new", "role", "42501"),
        (&first, "ALTER ROLE audit_closed LOGIN", "role", "00000"),
        (&first, "CREATE TOKEN audit_token FOR audit_ann", "role", "00000"),
        (&first, "KILL WORKER 99", "workers", "42704"),
        (&ann, "DROP VIEW audited_view", "ddl", "00000"),
    ];
    for (client, sql, event, code) in cases {
        let outcome = rows(client, sql).await;
        let is_told = outcome.as_ref().err().map_or("00000", |error| &error[..5]);
        let user = if std::ptr::eq(client, &ann) {
            "audit_ann"
        } else {
            "millrace"
        };
        let user = format!("user=\"{user}\"");
        let role = user.replace("user", "role");
        let statement = format!("statement=\"{sql}\"");
        let result = format!("code=\"{is_told}\"");
        let has = [
            &user,
            &role,
            "database=\"millrace\"",
            here,
            "session=",
            "statement_id=",
            &result,
            &statement,
        ];
        let line = log.line(event, &has.map(|part: &str| part)).await;
        assert_eq!(is_told, code, "{sql}: {outcome:?}: {line}");
    }
    let over_http = "CREATE TABLE audited_too (a int)";
    let authorization = basic("audit_ann", &password);
    request(
        http,
        "POST",
        "/api/sql",
        Some(&authorization),
        "text/plain",
        over_http,
    )
    .await;
    log.line("ddl", &["user=\"audit_ann\"", here, "statement_id=1 ", over_http])
        .await;

    // A secret: when it is made, and when it is used for the first time.
    for sql in [
        format!("CREATE SECRET audit_key AS '{SECRET}-key'"),
        "CREATE STREAM audit_hook (a INT) WITH (connector = 'webhook', signature = 'token', secret = SECRET audit_key)"
            .to_owned(),
    ] {
        rows(&first, &sql).await.unwrap();
    }
    log.line(
        "secret",
        &["user=\"millrace\"", "CREATE SECRET audit_key AS '********'"],
    )
    .await;
    let bearer = format!("Bearer {SECRET}-key");
    let row = "{\"a\": 1}";
    let delivered = request(
        http,
        "POST",
        "/api/webhook/audit_hook",
        Some(&bearer),
        "application/json",
        row,
    )
    .await;
    assert_eq!(delivered.status, 200, "{}", delivered.body);
    log.line("secret", &["secret=\"audit_key\"", "used_by=", "code=\"00000\""])
        .await;
    drop(ann);
    log.line("disconnected", &["user=\"audit_ann\"", here]).await;

    nothing_shows_a_secret(&fixture, &first).await;
    fixture.server.shutdown().await;
    let text = log.text();
    let mut leaks = text
        .lines()
        .filter(|line| line.contains(SECRET) || line.contains(PASSWORD));
    assert_eq!(leaks.next(), None);
}

/// Statements with secrets, right ones and wrong ones; and then whatever shows statements or definitions.
async fn nothing_shows_a_secret(fixture: &Fixture, first: &Client) {
    let other = fixture.first().await;
    let over_http = basic("millrace", PASSWORD);
    let given = [
        "CREATE USER audit_1 PASSWORD 'abracadabra'",
        "CREATE USER audit_2 PASSWORD 'abracadabra' nonsense",
        "CREATE USER audit_3 PASSWORD 'abracadabra' VALID UNTIL 'never'",
        "ALTER ROLE nobody PASSWORD 'abracadabra'",
        "ALTER ROLE audit_1 PASSWORD 'abracadabra' CONNECTION LIMIT -5",
        "ALTER ROLE audit_1 SET password = 'abracadabra'",
        "ALTER SYSTEM SET password = 'abracadabra'",
        "CREATE SECRET audit_key AS 'abracadabra'",
        "CREATE SECRET audit_4 AS 'abracadabra' x",
        "ALTER SECRET nothing AS 'abracadabra'",
        "ALTER SECRET audit_key AS 'abracadabra'",
        "CREATE TABLE audit_5 (a int primary key) WITH (connector = 'postgres-cdc', password = 'abracadabra')",
        "CREATE STREAM audit_6 (a int) WITH (connector = 's3', s3.bucket_name = 'b', s3.region_name = 'r', s3.credentials.secret = 'abracadabra')",
        "CREATE SINK audit_7 FROM audited WITH (connector = 'kafka', topic = 'x', properties.sasl.password = 'abracadabra') FORMAT PLAIN ENCODE JSON",
        "ALTER STREAM audit_hook SET (properties.sasl.password = 'abracadabra')",
        "CREATE EXTERNAL TABLE audit_8 (a int) STORED AS CSV LOCATION '/nowhere' OPTIONS ('secret' 'abracadabra')",
        "CREATE STREAM audit_9 (a int) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') \
         FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://ann:abracadabra@h')",
        "EXPLAIN ALTER ROLE audit_1 PASSWORD 'abracadabra'",
        "PREPARE p AS ALTER ROLE audit_1 PASSWORD 'abracadabra'",
        "SELECT 1; ALTER ROLE audit_1 PASSWORD 'abracadabra'; SELECT 2",
    ];
    for sql in given {
        if let Err(error) = first.simple_query(sql).await {
            let error = error.as_db_error().unwrap();
            let told = [Some(error.message()), error.detail(), error.hint()];
            assert!(
                !told.iter().flatten().any(|text| text.contains(SECRET)),
                "{sql}: {error:?}"
            );
        }
        // By parameters' protocol, and over HTTP, too.
        let _ = first.execute(sql, &[]).await;
        let shown = rows(&other, "SELECT query FROM pg_stat_activity")
            .await
            .unwrap()
            .join("\n");
        assert!(!shown.contains(SECRET), "{sql}: {shown}");
        let http = fixture.server.http_addr();
        let answer = request(http, "POST", "/api/sql", Some(&over_http), "text/plain", sql).await;
        assert!(!answer.body.contains(SECRET), "{sql}: {}", answer.body);
    }
    let system = "SELECT n.nspname || '.' || quote_ident(c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                  WHERE n.nspname IN ('mr_catalog')";
    let mut all: Vec<String> = rows(&other, system).await.unwrap();
    assert!(all.len() > 20, "{all:?}");
    let more = [
        "pg_catalog.pg_authid",
        "pg_catalog.pg_roles",
        "pg_catalog.pg_shadow",
        "pg_catalog.pg_user",
        "pg_catalog.pg_settings",
        "pg_catalog.pg_db_role_setting",
        "pg_catalog.pg_stat_activity",
        "pg_catalog.pg_prepared_statements",
        "pg_catalog.pg_proc",
    ];
    all.extend(more.map(str::to_owned));
    let mut shows: Vec<String> = all
        .iter()
        .map(|relation| format!("SELECT * FROM {relation}"))
        .collect();
    let more = [
        "SHOW PROCESSLIST",
        "SHOW ALL",
        "SHOW PARAMETERS",
        "SHOW SECRETS",
        "SHOW SOURCES",
        "SHOW SINKS",
        "SHOW CREATE SECRET audit_key",
        "SHOW CREATE STREAM audit_hook",
        "EXPLAIN SELECT * FROM audit_hook",
    ];
    shows.extend(more.map(str::to_owned));
    for sql in shows {
        for client in [first, &other] {
            let shown = rows(client, &sql)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
            let leak = shown.iter().find(|row| row.contains(SECRET));
            assert_eq!(leak, None, "{sql}");
        }
    }
}
