//! The demo's server: `millrace serve` as a process of its own, as a user starts it, so that it can be killed and started
//! again over the same data.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_wire::config::Config;
use tempfile::TempDir;

use super::DemoError;
use super::frame::Addresses;
use crate::logging::{FILTER_VARIABLE, FORMAT_VARIABLE};

/// How long an orderly stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines of the server's log that are shown when it failed.
const LOG_LINES: usize = 10;

/// A server on a directory of its own. Dropping it kills the process and removes the directory.
pub struct ServerProcess {
    directory: TempDir,
    addresses: Addresses,
    child: Child,
}

impl ServerProcess {
    /// Starts a server, on the addresses that a server has by default where these are free.
    ///
    /// # Errors
    /// There is no place for the data, or the server did not get ready.
    pub async fn start() -> Result<Self, DemoError> {
        let directory = tempfile::Builder::new()
            .prefix("millrace-demo-")
            .tempdir()
            .map_err(DemoError::Directory)?;
        let defaults = Config::default();
        let mut taken = vec![];
        let mut free = |address| free_address(address, &mut taken).map_err(DemoError::Process);
        let (pg, http) = (free(defaults.pg)?, free(defaults.http)?);
        let addresses = Addresses { pg, http, taken };
        let child = spawn(&directory, &addresses).await?;
        Ok(ServerProcess {
            directory,
            addresses,
            child,
        })
    }

    /// How to reach it; the same after a restart.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Kills the process (SIGKILL) and says which it was.
    ///
    /// # Errors
    /// The system refused.
    pub fn kill(&mut self) -> Result<u32, DemoError> {
        let id = self.child.id();
        self.child.kill().map_err(DemoError::Process)?;
        self.child.wait().map_err(DemoError::Process)?;
        Ok(id)
    }

    /// Starts the server again over the same data; says after how long it was ready.
    ///
    /// # Errors
    /// The server did not get ready.
    pub async fn restart(&mut self) -> Result<Duration, DemoError> {
        let started = Instant::now();
        self.child = spawn(&self.directory, &self.addresses).await?;
        Ok(started.elapsed())
    }

    /// Stops the server in order.
    pub async fn stop(mut self) {
        // Its input ends, and it with it.
        drop(self.child.stdin.take());
        let mut this = self;
        let ended = tokio::task::spawn_blocking(move || {
            // Whatever came of it, the demo is over.
            let _ = this.child.wait();
        });
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It has ended already, or there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process and returns when it is ready.
async fn spawn(directory: &TempDir, addresses: &Addresses) -> Result<Child, DemoError> {
    let log_path = directory.path().join("server.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(DemoError::Directory)?;
    let mut child = command(directory, addresses, log)
        .and_then(|mut command| command.spawn())
        .map_err(DemoError::Process)?;
    let Some(output) = child.stdout.take() else {
        return Err(DemoError::NotReady(String::new()));
    };
    let mut output = BufReader::new(output);
    let ready = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        output.read_line(&mut line).map(|_| line)
    });
    match ready.await {
        Ok(Ok(line)) if line.contains(" is ready") => Ok(child),
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            Err(DemoError::NotReady(log_end(log_path)))
        }
    }
}

fn command(directory: &TempDir, addresses: &Addresses, log: File) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // What is set for a server of the user's is not meant for this one.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MILLRACE_")
            && ![FILTER_VARIABLE, FORMAT_VARIABLE]
                .map(Some)
                .contains(&name.to_str())
        {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--stop-at-eof", "--data"])
        .arg(directory.path().join("data"))
        .args(["--pg", &addresses.pg.to_string()])
        .args(["--http", &addresses.http.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        // A ctrl-C in the terminal is for the demo, which stops its server itself.
        .process_group(0);
    Ok(command)
}

/// The address, or one with a free port where it is taken.
fn free_address(address: SocketAddr, taken: &mut Vec<SocketAddr>) -> io::Result<SocketAddr> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(address),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            taken.push(address);
            TcpListener::bind((address.ip(), 0))?.local_addr()
        }
        Err(error) => Err(error),
    }
}

fn log_end(path: PathBuf) -> String {
    let log = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_told_and_another_found() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let mut taken = vec![];
        let other = free_address(address, &mut taken).unwrap();
        assert_eq!(taken, [address]);
        assert!(other.port() != 0 && other != address);
        drop(held);
        assert_eq!(free_address(address, &mut taken).unwrap(), address);
    }
}
