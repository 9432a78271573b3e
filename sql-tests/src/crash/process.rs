//! The server runs in a child process: this program again, told so by an environment variable. The child prints where it
//! listens, and ends when its standard input does, so that none outlives the test.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_cli::test::throw_away;
use millrace_schedule::driver::Spread;
use millrace_wire::Server;

use super::machines;
use crate::Failure;
use tokio::runtime::Runtime;

/// The variable that makes this program the server, and says on which directory.
const CHILD: &str = "MILLRACE_CRASH_TEST_DATA";
/// The variable that says how many workers the server has: after each kill another number.
const WORKERS: &str = "MILLRACE_CRASH_TEST_WORKERS";
/// The variable that is there if parts of the views' state leave memory now and then.
const SPILLS: &str = "MILLRACE_CRASH_TEST_SPILLS";
/// The variable that says where the server takes in workers of other processes.
pub const CLUSTER: &str = "MILLRACE_CRASH_TEST_CLUSTER";
/// The variable that names a binary to start in this program's place.
const SERVER: &str = "MILLRACE_SERVER";
/// The variable that says where the server keeps a copy of all that is written.
pub const LOG_URL: &str = "MILLRACE_CRASH_TEST_LOG_URL";
/// The variable that is there if it takes over a copy that is another server's.
pub const TAKE_OVER: &str = "MILLRACE_CRASH_TEST_TAKE_OVER";
const SHIP_INTERVAL: Duration = Duration::from_millis(100);
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(200);

/// Whether this is a child, which has served then.
pub fn serve_if_child() -> bool {
    if machines::work_if_child() {
        return true;
    }
    let directory = std::env::var_os(CHILD);
    if let Some(directory) = &directory {
        serve(Path::new(directory));
    }
    directory.is_some()
}

/// The child: a server until standard input ends.
fn serve(directory: &Path) {
    let runtime = Runtime::new().expect("a thread and an epoll instance can be had");
    let server = runtime
        .block_on(async {
            let mut config = throw_away(directory);
            config.tuning.checkpoint_interval = Some(CHECKPOINT_INTERVAL);
            config.webhook_private_hosts = PrivateHosts::parse("127.0.0.1").expect("it is an address");
            config.cores = Some(1);
            if let Ok(address) = std::env::var(CLUSTER) {
                config.cluster = address.parse().ok();
                config.cluster_token = Some(machines::TOKEN.to_owned());
                // Wherever a worker is something of every view is to be.
                config.tuning.pipeline_spread = Spread::All;
            }
            config.log_url = std::env::var(LOG_URL).ok();
            config.log_ship_interval = SHIP_INTERVAL;
            config.take_over = std::env::var_os(TAKE_OVER).is_some();
            config.workers = std::env::var(WORKERS).ok().and_then(|text| text.parse().ok());
            let spills = std::env::var_os(SPILLS).is_some();
            Server::start_as(config, |options| options.spill_by_chance = spills).await
        })
        .expect("the server starts again after any crash");
    println!("{} {}", server.pg_addr(), server.http_addr());
    std::io::stdout().flush().expect("the parent listens");
    let mut line = String::new();
    // Nothing is ever sent: this returns when the parent is gone.
    let _ = std::io::stdin().read_line(&mut line);
}

/// Where a server listens: what a child says, or the line with which a binary says that it is ready.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = line.split_whitespace();
    if let Some(Ok(pg)) = words.clone().next().map(str::parse) {
        return Some((pg, words.nth(1)?.parse().ok()?));
    }
    let port = words.by_ref().skip_while(|word| *word != "-p").nth(1)?;
    let http = words.find_map(|word| word.strip_prefix("http://"))?;
    Some((
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)),
        http.trim_end_matches('/').parse().ok()?,
    ))
}

/// A running child; dropping it kills it.
pub struct Process {
    child: Child,
    pub pg: SocketAddr,
    pub http: SocketAddr,
}

impl Process {
    /// Starts a server on the directory. `spills`: parts of the views' state are on disk now and then, as if memory were short.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(directory: &Path, workers: u64, spills: bool) -> Result<Process, Failure> {
        Self::start_in(directory, workers, spills, [])
    }

    /// The same with these variables in its environment.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_in(
        directory: &Path,
        workers: u64,
        spills: bool,
        environment: impl IntoIterator<Item = (&'static str, PathBuf)>,
    ) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(WORKERS, workers.to_string())
            .envs(spills.then_some((SPILLS, "1")))
            .envs(environment);
        Self::run(command, directory)
    }

    /// Starts a server that may have so much address space besides its program: whatever takes more without asking before ends the
    /// process. It is the one that `MILLRACE_SERVER` names, if it does.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_confined(directory: &Path, address_space: u64) -> Result<Process, Failure> {
        let binary = std::env::var_os(SERVER).map(PathBuf::from);
        let program = binary.clone().map_or_else(std::env::current_exe, Ok)?;
        let bytes = address_space + program.metadata()?.len();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {}; exec \"$0\" \"$@\"", bytes >> 10)])
            .arg(&program);
        if binary.is_some() {
            command
                .args(["serve", "--pg", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
                .arg(directory.join("data"));
        }
        Self::run(command, directory)
    }

    fn run(mut command: Command, directory: &Path) -> Result<Process, Failure> {
        let mut child = command
            .env(CHILD, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the child has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if let Some((pg, http)) = addresses(&line) {
            return Ok(Process { child, pg, http });
        }
        child.kill()?;
        child.wait()?;
        Err(format!("the server did not start: {line:?}").into())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL: nothing is flushed, nothing is said.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
