//! `millrace sql`: a small client, for machines without psql.
//!
//! It sends one statement after the other and prints tables. Errors go to stderr; the first one ends it with exit status
//! 1, unless somebody types at a terminal.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use futures::{SinkExt, StreamExt};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use tokio_postgres::error::{DbError, ErrorPosition};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

use super::split::Splitter;
use super::table::ResultTable;
use crate::exit::fail;

/// Flags of `millrace sql`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SqlArgs {
    /// Run this SQL and exit; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Run this file and exit ("-" is stdin); may be given several times
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Host of the server
    #[arg(short = 'h', long, default_value = "127.0.0.1", env = "PGHOST")]
    host: String,
    /// Port of the server
    #[arg(short = 'p', long, default_value_t = 5433, env = "PGPORT")]
    port: u16,
    /// User name; a password is taken from PGPASSWORD
    #[arg(short = 'U', long = "username", default_value = "millrace", env = "PGUSER")]
    user: String,
    /// Database
    #[arg(short = 'd', long = "dbname", default_value = "millrace", env = "PGDATABASE")]
    database: String,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Why the client gives up.
enum Failure {
    /// The server refused a statement, and has been quoted.
    Statement,
    /// Something else, to be told.
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Other(error.to_string())
    }
}

/// Runs what was asked for, or stdin.
pub async fn run(args: SqlArgs) -> ExitCode {
    match run_all(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Statement) => ExitCode::from(1),
        Err(Failure::Other(message)) => fail(&message),
    }
}

async fn run_all(args: &SqlArgs) -> Result<(), Failure> {
    let client = connect(args).await?;
    let mut shell = Shell {
        client,
        interactive: false,
    };
    for command in &args.commands {
        shell.run_input(BufReader::new(command.as_bytes())).await?;
    }
    for file in &args.files {
        if file.as_os_str() == "-" {
            shell.run_input(stdin()?).await?;
            continue;
        }
        let opened = File::open(file).await;
        let opened =
            opened.map_err(|error| Failure::Other(format!("cannot read {}: {error}", file.display())))?;
        shell.run_input(BufReader::new(opened)).await?;
    }
    if args.commands.is_empty() && args.files.is_empty() {
        shell.interactive = io::stdin().is_terminal();
        shell.run_input(stdin()?).await?;
    }
    Ok(())
}

/// Stdin, read on the threads that files are read on.
fn stdin() -> io::Result<BufReader<File>> {
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(BufReader::new(File::from_std(descriptor.into())))
}

async fn connect(args: &SqlArgs) -> Result<Client, Failure> {
    let mut config = Config::new();
    config
        .host(&args.host)
        .port(args.port)
        .user(&args.user)
        .dbname(&args.database);
    config.application_name("millrace sql");
    if let Ok(password) = std::env::var("PGPASSWORD") {
        config.password(password);
    }
    let (client, mut connection) = config.connect(NoTls).await.map_err(|error| match error.as_db_error() {
        Some(error) => Failure::Other(quote(error, "")),
        None => {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let address = format!("{}:{}", args.host, args.port);
            Failure::Other(format!("cannot connect to {address}: {reason}\nIs a server running there? Start one with: millrace serve"))
        }
    })?;
    tokio::spawn(async move {
        let mut messages = pin!(futures::stream::poll_fn(
            move |context| connection.poll_message(context)
        ));
        while let Some(message) = messages.next().await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => eprintln!("{}", quote(&notice, "")),
                Ok(_) => {}
                // The statement that waits for an answer hears of it too.
                Err(_) => break,
            }
        }
    });
    Ok(client)
}

struct Shell {
    client: Client,
    interactive: bool,
}

impl Shell {
    /// Runs the statements of a text as they become whole.
    async fn run_input(&mut self, mut input: impl AsyncBufRead + Unpin) -> Result<(), Failure> {
        let mut splitter = Splitter::default();
        let mut line = String::new();
        loop {
            self.prompt(&splitter)?;
            line.clear();
            if input.read_line(&mut line).await? == 0 {
                break;
            }
            if splitter.is_empty() && matches!(line.trim(), "\\q" | "quit" | "exit") {
                return Ok(());
            }
            splitter.push(&line);
            while let Some(statement) = splitter.next_statement() {
                self.run_statement(&statement, &mut input).await?;
            }
        }
        match splitter.finish() {
            Some(statement) => self.run_statement(&statement, &mut input).await,
            None => Ok(()),
        }
    }

    fn prompt(&self, splitter: &Splitter) -> io::Result<()> {
        if self.interactive {
            let mut out = io::stdout();
            write!(
                out,
                "{}",
                if splitter.is_empty() {
                    "millrace=> "
                } else {
                    "millrace-> "
                }
            )?;
            out.flush()?;
        }
        Ok(())
    }

    async fn run_statement(
        &mut self,
        sql: &str,
        input: &mut (impl AsyncBufRead + Unpin),
    ) -> Result<(), Failure> {
        let done = match CopyDirection::of(sql) {
            Some(CopyDirection::In) => self.copy_in(sql, input).await,
            Some(CopyDirection::Out) => self.copy_out(sql).await,
            None => self.query(sql).await,
        };
        let Err(error) = done else { return Ok(()) };
        let closed = self.client.is_closed();
        match error {
            Error::Postgres(error) => match error.as_db_error() {
                Some(error) => eprintln!("{}", quote(error, sql)),
                None => eprintln!("ERROR:  {error}"),
            },
            Error::Io(error) => return Err(error.into()),
        }
        if closed {
            return Err(Failure::Other("the server closed the connection".to_owned()));
        }
        if self.interactive {
            Ok(())
        } else {
            Err(Failure::Statement)
        }
    }

    async fn query(&self, sql: &str) -> Result<(), Error> {
        let mut messages = pin!(self.client.simple_query_raw(sql).await?);
        let mut table: Option<ResultTable> = None;
        while let Some(message) = messages.next().await {
            match message? {
                SimpleQueryMessage::RowDescription(columns) => {
                    let columns = columns.iter().map(|column| column.name().to_owned()).collect();
                    table = Some(ResultTable {
                        columns,
                        rows: Vec::new(),
                    });
                }
                SimpleQueryMessage::Row(row) => {
                    let values = (0..row.len())
                        .map(|index| row.get(index).map(str::to_owned))
                        .collect();
                    table.get_or_insert_default().rows.push(values);
                }
                SimpleQueryMessage::CommandComplete(rows) => match table.take() {
                    Some(table) => println(&table.render())?,
                    None => println(&completion(sql, rows))?,
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// The data are the lines behind the statement, up to `\.` or the end.
    async fn copy_in(&self, sql: &str, input: &mut (impl AsyncBufRead + Unpin)) -> Result<(), Error> {
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(sql).await?);
        let mut line = Vec::new();
        // The rest of the statement's own line is not data.
        while input.read_until(b'\n', &mut line).await? > 0
            && line.strip_suffix(b"\n").unwrap_or(&line) != b"\\."
        {
            sink.send(Bytes::from(std::mem::take(&mut line))).await?;
        }
        let rows = sink.finish().await?;
        println(&format!("COPY {rows}"))?;
        Ok(())
    }

    async fn copy_out(&self, sql: &str) -> Result<(), Error> {
        let mut pieces = pin!(self.client.copy_out(sql).await?);
        let mut out = io::stdout();
        while let Some(piece) = pieces.next().await {
            out.write_all(&piece?)?;
        }
        out.flush()?;
        Ok(())
    }
}

enum Error {
    Postgres(tokio_postgres::Error),
    Io(io::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::Postgres(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

/// Prints without dying when the reader has gone (`millrace sql | head`).
fn println(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

enum CopyDirection {
    In,
    Out,
}

impl CopyDirection {
    fn of(sql: &str) -> Option<Self> {
        let words: Vec<String> = sql
            .split_ascii_whitespace()
            .map(|word| word.trim_end_matches(';').to_ascii_uppercase())
            .collect();
        if words.first().is_none_or(|word| word != "COPY") {
            return None;
        }
        let pair =
            |first: &str, second: &str| words.windows(2).any(|pair| pair[0] == first && pair[1] == second);
        if pair("FROM", "STDIN") {
            Some(CopyDirection::In)
        } else if pair("TO", "STDOUT") {
            Some(CopyDirection::Out)
        } else {
            None
        }
    }
}

/// What is said about a statement without rows. The protocol's own words are not handed on by the driver.
fn completion(sql: &str, rows: u64) -> String {
    let mut words = sql
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_ascii_uppercase();
    match first.as_str() {
        "INSERT" => format!("INSERT 0 {rows}"),
        "UPDATE" | "DELETE" => format!("{first} {rows}"),
        "CREATE" | "DROP" | "ALTER" => {
            let kinds = [
                "MATERIALIZED",
                "VIEW",
                "TABLE",
                "STREAM",
                "SOURCE",
                "SINK",
                "INDEX",
                "SCHEMA",
                "DATABASE",
                "FUNCTION",
            ];
            let skipped = ["OR", "REPLACE", "UNIQUE", "EXTERNAL"];
            let words = words
                .map(str::to_ascii_uppercase)
                .skip_while(|word| skipped.contains(&word.as_str()));
            let object: Vec<String> = words.take_while(|word| kinds.contains(&word.as_str())).collect();
            [vec![first], object].concat().join(" ")
        }
        _ => first,
    }
}

/// An error or notice as psql shows it, with a caret below the place.
fn quote(error: &DbError, sql: &str) -> String {
    let mut text = format!("{}:  {}", error.severity(), error.message());
    if let Some(ErrorPosition::Original(position)) = error.position() {
        text.push_str(&caret(sql, *position as usize));
    }
    let more = [
        ("DETAIL", error.detail()),
        ("HINT", error.hint()),
        ("CONTEXT", error.where_()),
    ];
    for (name, more) in more {
        if let Some(more) = more {
            text.push_str(&format!("\n{name}:  {more}"));
        }
    }
    text
}

fn caret(sql: &str, position: usize) -> String {
    let before: String = sql.chars().take(position.saturating_sub(1)).collect();
    let (number, column) = match before.rsplit_once('\n') {
        Some((lines, last)) => (lines.matches('\n').count() + 2, last.chars().count()),
        None => (1, before.chars().count()),
    };
    let Some(line) = sql.lines().nth(number - 1) else {
        return String::new();
    };
    let label = format!("LINE {number}: ");
    format!("\n{label}{line}\n{}^", " ".repeat(label.len() + column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_named_after_their_statements() {
        assert_eq!(completion("insert into t values (1)", 1), "INSERT 0 1");
        assert_eq!(
            completion("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1;", 0),
            "CREATE MATERIALIZED VIEW"
        );
        assert_eq!(completion("drop table if exists t", 0), "DROP TABLE");
        assert_eq!(completion("BEGIN;", 0), "BEGIN");
    }

    #[test]
    fn the_caret_stands_below_the_place() {
        assert_eq!(caret("select 1,\n  x;", 13), "\nLINE 2:   x;\n          ^");
        assert_eq!(caret("selec", 1), "\nLINE 1: selec\n        ^");
        assert_eq!(caret("", 1), "");
    }

    #[test]
    fn copy_is_recognised() {
        assert!(matches!(
            CopyDirection::of("copy t from stdin;"),
            Some(CopyDirection::In)
        ));
        assert!(matches!(
            CopyDirection::of("COPY (SELECT 1) TO STDOUT WITH (FORMAT csv)"),
            Some(CopyDirection::Out)
        ));
        assert!(CopyDirection::of("select 'copy t from stdin'").is_none());
    }
}
