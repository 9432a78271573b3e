//! A script as a sqllogictest file, which `millrace test` runs.
//!
//! What a view must show is asked of the server itself, as a SELECT: ad hoc queries are plain DataFusion's.

use std::fmt::Write;
use std::sync::Arc;

use chrono::DateTime;
use millrace_engine::clock::VirtualClock;
use millrace_oracle::text::TextRow;
use millrace_planner::OnError;

use super::schema::FIRST_TIME;
use super::script::{Model, Script, Step};
use crate::{Failure, connect, rows, run, start_on};

/// The file, and whether a server fails it.
#[derive(Debug)]
pub struct Rendered {
    pub text: String,
    pub fails: bool,
}

/// Writes the script as a file. `title` says what it shows, one comment line for each of its lines.
///
/// # Errors
/// A server cannot be started, or does not take one of the statements: its answer is in the error.
pub async fn render(script: &Script, title: &str) -> Result<Rendered, Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Arc::new(VirtualClock::new(FIRST_TIME));
    let server = start_on(directory.path(), &clock).await?;
    let outcome = async {
        let client = connect(server.pg_addr()).await?;
        let mut file = File {
            client,
            text: title.lines().map(|line| format!("# {line}\n")).collect(),
            fails: false,
        };
        file.script(script).await?;
        Ok(Rendered {
            text: file.text,
            fails: file.fails,
        })
    };
    let rendered = outcome.await;
    server.shutdown().await;
    rendered
}

struct File {
    client: tokio_postgres::Client,
    text: String,
    fails: bool,
}

impl File {
    async fn script(&mut self, script: &Script) -> Result<(), Failure> {
        let mut model = Model::new(&script.relations);
        self.clock(FIRST_TIME).await?;
        for relation in &script.relations {
            self.statement(&relation.create()).await?;
        }
        let mut made: Vec<usize> = vec![];
        for step in &script.steps {
            match step {
                Step::Write(changes) => {
                    let mut statements = vec![];
                    for change in changes {
                        let effects = model.apply(change);
                        if effects.is_empty() {
                            continue;
                        }
                        let relation = &script.relations[change.relation];
                        let name = &relation.name;
                        statements.push(if change.insert {
                            let values: Vec<String> = change.row.iter().map(ToString::to_string).collect();
                            format!("INSERT INTO {name} VALUES ({})", values.join(", "))
                        } else {
                            format!("DELETE FROM {name} WHERE {}", relation.is_row(&change.row))
                        });
                    }
                    if statements.len() > 1 {
                        statements.insert(0, "BEGIN".to_owned());
                        statements.push("COMMIT".to_owned());
                    }
                    for statement in statements {
                        self.statement(&statement).await?;
                    }
                }
                Step::Create(view) => {
                    let made_of = &script.views[*view];
                    let (name, query) = (&made_of.name, &made_of.query);
                    let with = match made_of.on_error() {
                        OnError::Null => String::new(),
                        other => format!(" WITH (on_error = '{}')", other.name()),
                    };
                    let sql = format!("CREATE MATERIALIZED VIEW {name}{with} AS {query}");
                    if run(&self.client, &sql).await.is_err() {
                        self.fails = true;
                    } else {
                        made.push(*view);
                    }
                    let _ = write!(self.text, "\nstatement ok\n{sql}\n");
                }
                Step::Clock(time) => self.clock(*time).await?,
                Step::Checkpoint => self.text.push_str("\n# Here there was a checkpoint.\n"),
                Step::Restart => self.text.push_str("\n# Here the engine was started again.\n"),
                Step::Check => {
                    for view in &made {
                        self.check(script, *view).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn clock(&mut self, time: i64) -> Result<(), Failure> {
        let time = DateTime::from_timestamp_micros(time).unwrap_or_default();
        self.statement(&format!("ALTER SYSTEM SET clock = '{time}'"))
            .await
    }

    async fn statement(&mut self, sql: &str) -> Result<(), Failure> {
        let _ = write!(self.text, "\nstatement ok\n{sql}\n");
        run(&self.client, sql).await
    }

    /// What the view must show, and whether it does.
    async fn check(&mut self, script: &Script, view: usize) -> Result<(), Failure> {
        let (name, query) = (&script.views[view].name, script.views[view].expected());
        let expected = shown(rows(&self.client, &format!("SELECT * FROM ({query}) AS q")).await?);
        let sql = format!("SELECT * FROM {name}");
        let columns = self.client.prepare(&sql).await?.columns().len();
        self.fails |= rows(&self.client, &sql).await.map(shown).ok().as_ref() != Some(&expected);
        let types = "T".repeat(columns);
        let _ = write!(self.text, "\nquery {types} rowsort\n{sql}\n----\n");
        for row in expected {
            let _ = writeln!(self.text, "{row}");
        }
        Ok(())
    }
}

/// Rows as the files write them, sorted.
fn shown(rows: Vec<TextRow>) -> Vec<String> {
    let value = |value: Option<String>| match value {
        None => "NULL".to_owned(),
        Some(text) if text.is_empty() => "(empty)".to_owned(),
        Some(text) => text,
    };
    let mut rows: Vec<String> = rows
        .into_iter()
        .map(|row| row.into_iter().map(value).collect::<Vec<_>>().join(" "))
        .collect();
    rows.sort();
    rows
}
