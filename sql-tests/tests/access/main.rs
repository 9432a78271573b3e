//! Who may come in, and what they may do then: roles and their passwords over both protocols, and a matrix of every statement and
//! endpoint against every kind of user.

#![allow(clippy::unwrap_used)]

mod audit;
mod details;
mod directory;
mod following;
mod http;
mod limits;
mod login;
mod matrix;
mod privileges;
mod reading;
mod renamed;
mod secrets;
mod strangers;
mod tenants;
mod work;

use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// The password of the first role.
const PASSWORD: &str = "open sesame";

/// A server whose first role has a password, and the data directory.
pub(crate) struct Fixture {
    pub server: Server,
    pub directory: TempDir,
}

impl Fixture {
    pub async fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let server = start(&directory, Some(PASSWORD)).await;
        Fixture { server, directory }
    }

    /// A connection as somebody.
    pub async fn connect(&self, user: &str, password: &str) -> Result<Client, tokio_postgres::Error> {
        let address = self.server.pg_addr();
        let (client, connection) = tokio_postgres::Config::new()
            .host(address.ip().to_string())
            .port(address.port())
            .user(user)
            .password(password)
            .dbname("millrace")
            .connect(NoTls)
            .await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A connection as the first role.
    pub async fn first(&self) -> Client {
        self.connect("millrace", PASSWORD).await.unwrap()
    }

    /// A connection as one of the roles whose password is their name.
    pub async fn role(&self, user: &str) -> Client {
        self.connect(user, user).await.unwrap()
    }
}

pub(crate) async fn start(directory: &TempDir, password: Option<&str>) -> Server {
    let config = Config {
        password: password.map(str::to_owned),
        ..throw_away(&directory.path().join("data"))
    };
    Server::start(config).await.unwrap()
}

/// The rows of a statement, their values joined by `|`.
pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Vec<String>, String> {
    let messages = client.simple_query(sql).await.map_err(|error| code(&error))?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|index| row.get(index).unwrap_or("NULL"));
            Some(values.collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// The SQLSTATE and the message of an error.
pub(crate) fn code(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => format!("no SQLSTATE: {error}"),
    }
}
