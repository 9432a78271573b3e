//! The server under test.
//!
//! Real runs start the release binary as a child process, so that its start-up, memory and CPU time are its own. Small
//! runs start a server inside this process, so that the tests need no binary.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use millrace_sql_tests::soak::bytes_below;
use millrace_wire::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bed::{Place, serve};
use crate::client::Client;
use crate::error::BenchError;
use crate::size::Size;

/// Any free port on loopback.
const ANY_PORT: &str = "127.0.0.1:0";

/// How servers under test are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This binary, as a child process.
    Binary(PathBuf),
    /// The server that this program is linked with, on this program's threads.
    InProcess,
}

impl Target {
    /// What runs of a size are about.
    ///
    /// # Errors
    /// There is no binary.
    pub fn of(size: Size) -> Result<Self, BenchError> {
        match size {
            Size::Real => Self::beside_this_executable(),
            Size::Small => Ok(Target::InProcess),
        }
    }

    /// The `millrace` binary of the same build as this program.
    ///
    /// # Errors
    /// There is none.
    fn beside_this_executable() -> Result<Self, BenchError> {
        let this = std::env::current_exe().map_err(BenchError::io("cannot find this program's own file"))?;
        let binary = this.with_file_name("millrace");
        if binary.is_file() {
            return Ok(Target::Binary(binary));
        }
        Err(BenchError::Server(format!(
            "there is no server at {}: build it with `cargo build --release -p millrace-cli`",
            binary.display()
        )))
    }

    /// Starts a server on an empty or used data directory; returns when it says that it is ready.
    pub async fn start(&self, data: &Path) -> Result<RunningServer, BenchError> {
        let begin = Instant::now();
        match self {
            Target::Binary(binary) => {
                let (binary, data) = (binary.clone(), data.to_owned());
                let child = tokio::task::spawn_blocking(move || ChildServer::start(&binary, &data));
                let child = child
                    .await
                    .map_err(|error| BenchError::Server(error.to_string()))??;
                Ok(RunningServer {
                    pg: child.pg,
                    begin,
                    kind: Kind::Child(child),
                })
            }
            Target::InProcess => {
                let server = serve(data, |_| {}).await?;
                Ok(RunningServer {
                    pg: server.pg_addr(),
                    begin,
                    kind: Kind::InProcess(Box::new(server)),
                })
            }
        }
    }
}

/// A server that runs; dropping it without [`RunningServer::stop`] kills it.
pub struct RunningServer {
    pg: SocketAddr,
    begin: Instant,
    kind: Kind,
}

enum Kind {
    Child(ChildServer),
    InProcess(Box<Server>),
}

impl RunningServer {
    /// Where PostgreSQL clients connect.
    pub fn pg(&self) -> SocketAddr {
        self.pg
    }

    /// When it was asked to start.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// The process that it runs in.
    pub fn pid(&self) -> u32 {
        match &self.kind {
            Kind::Child(child) => child.process.id(),
            Kind::InProcess(_) => std::process::id(),
        }
    }

    /// Kills it, as a crash would; one in this process is stopped.
    ///
    /// # Errors
    /// It does not stop.
    pub async fn kill(self) -> Result<(), BenchError> {
        match self.kind {
            Kind::Child(child) => tokio::task::spawn_blocking(move || drop(child))
                .await
                .map_err(|error| BenchError::Server(error.to_string())),
            Kind::InProcess(server) => {
                server.shutdown().await;
                Ok(())
            }
        }
    }

    /// Stops it as an operator would.
    pub async fn stop(self) -> Result<(), BenchError> {
        match self.kind {
            Kind::Child(child) => {
                let stopped = tokio::task::spawn_blocking(move || child.stop());
                stopped
                    .await
                    .map_err(|error| BenchError::Server(error.to_string()))?
            }
            Kind::InProcess(server) => {
                server.shutdown().await;
                Ok(())
            }
        }
    }
}

/// A server on a directory of its own, with one connection.
pub struct FreshServer {
    pub client: Client,
    pub server: RunningServer,
    directory: TempDir,
}

impl FreshServer {
    /// Starts a server on an empty directory and connects.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(target: &Target) -> Result<Self, BenchError> {
        Self::start_on(target, Place::Disk.directory()?).await
    }

    async fn start_on(target: &Target, directory: TempDir) -> Result<Self, BenchError> {
        let server = target.start(&directory.path().join("data")).await?;
        Ok(FreshServer {
            client: Client::connect(server.pg()).await?,
            server,
            directory,
        })
    }

    /// Bytes in the files of its data directory.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn disk_bytes(&self) -> Result<u64, BenchError> {
        bytes_below(self.directory.path()).map_err(BenchError::io("cannot list the data directory"))
    }

    /// Kills it (one in this process is stopped) and starts it again on its directory. [`RunningServer::begin`] of what is
    /// returned is after the end of the one before.
    ///
    /// # Errors
    /// It does not end, or does not start.
    pub async fn kill_and_start(self, target: &Target) -> Result<Self, BenchError> {
        let FreshServer {
            client,
            server,
            directory,
        } = self;
        drop(client);
        server.kill().await?;
        Self::start_on(target, directory).await
    }

    /// Stops it as an operator would.
    ///
    /// # Errors
    /// It does not stop.
    pub async fn stop(self) -> Result<(), BenchError> {
        drop(self.client);
        self.server.stop().await
    }
}

/// A server in a process of its own.
struct ChildServer {
    process: Child,
    pg: SocketAddr,
    log: PathBuf,
}

impl ChildServer {
    fn start(binary: &Path, data: &Path) -> Result<Self, BenchError> {
        let failed = || BenchError::io(format!("cannot start {}", binary.display()));
        let log = data.with_extension("log");
        let process = Command::new(binary)
            .args(["serve", "--pg", ANY_PORT, "--http", ANY_PORT, "--data"])
            .arg(data)
            .env("MILLRACE_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).map_err(failed())?)
            .spawn()
            .map_err(failed())?;
        // From here on the process is killed when something fails.
        let mut server = ChildServer {
            process,
            pg: ANY_PORT.parse().expect("it is an address"),
            log,
        };
        let mut ready = String::new();
        let stdout = server.process.stdout.take().expect("it was asked for");
        BufReader::new(stdout).read_line(&mut ready).map_err(failed())?;
        match ready_port(&ready) {
            Some(port) => server.pg.set_port(port),
            None => return Err(server.wrong("the server did not become ready")),
        }
        Ok(server)
    }

    fn stop(mut self) -> Result<(), BenchError> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)
                .map_err(|error| BenchError::Server(format!("cannot stop the server: {error}")))?;
        }
        let status = self
            .process
            .wait()
            .map_err(BenchError::io("cannot wait for the server"))?;
        if status.success() {
            Ok(())
        } else {
            Err(self.wrong(&format!("the server ended with {status}")))
        }
    }

    fn wrong(&self, what: &str) -> BenchError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        BenchError::Server(format!("{what}; its log: {}", log.trim()))
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port in the line that says that a server is ready, which tells how to connect with psql.
fn ready_port(line: &str) -> Option<u16> {
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "-p");
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_the_ready_line() {
        let line = "millrace 0.1.0 is ready: psql -h 127.0.0.1 -p 40123 -U millrace millrace   http://127.0.0.1:1/\n";
        assert_eq!(ready_port(line), Some(40123));
        assert_eq!(ready_port(""), None);
    }

    #[test]
    fn a_server_that_does_not_start_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let error = ChildServer::start(Path::new("/bin/false"), &directory.path().join("data")).err();
        assert!(error.unwrap().to_string().contains("did not become ready"));
    }
}
