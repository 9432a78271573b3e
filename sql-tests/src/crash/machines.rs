//! Workers in processes of their own beside the server: killed, stopped for a while and started again while others write, and left
//! alone by a server that is killed, until it is there again.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_cli::test::throw_away;
use millrace_wire::cluster::{Worker, WorkerArgs};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;

use crate::{Failure, connect, rows};

/// The variable that makes this program a worker, and says of which server.
const JOIN: &str = "MILLRACE_CRASH_TEST_JOIN";
/// What workers and server know.
pub const TOKEN: &str = "the token of a test";
/// Workers at a time.
const WORKERS: usize = 2;
/// The longest time between two disturbances, and the longest for which a worker is stopped, in milliseconds.
const UNDISTURBED_MS_MAX: u64 = 400;
const STOPPED_MS_MAX: u64 = 3_500;
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How long it may take until a worker takes part.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this is such a child, which has worked then.
pub fn work_if_child() -> bool {
    let Ok(join) = std::env::var(JOIN) else {
        return false;
    };
    let runtime = Runtime::new().expect("a thread and an epoll instance can be had");
    runtime.spawn(async move {
        let args = WorkerArgs {
            join,
            listen: None,
            advertise: None,
        };
        let mut config = throw_away(&std::env::temp_dir());
        config.cluster_token = Some(TOKEN.to_owned());
        config.cores = Some(1);
        let worker = Worker::prepare(args, config).await.expect("a planner can be had");
        loop {
            match worker.join().await {
                Ok(joined) => _ = joined.is_dismissed().await,
                Err(_) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    });
    let mut line = String::new();
    // Nothing is ever sent: this returns when the parent is gone.
    let _ = std::io::stdin().read_line(&mut line);
    true
}

/// A worker's process; dropping it kills it.
struct Machine(Child);

impl Machine {
    fn start(address: SocketAddr) -> Result<Machine, Failure> {
        let child = Command::new(std::env::current_exe()?)
            .env(JOIN, address.to_string())
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Machine(child))
    }

    fn signal(&self, signal: &str) -> Result<(), Failure> {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status()?;
        match sent.success() {
            true => Ok(()),
            false => Err(format!("kill {signal} {pid} fails").into()),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something of the views is on a worker in a process of its own.
///
/// # Errors
/// That does not come about.
pub async fn until_they_take_part(address: SocketAddr) -> Result<(), Failure> {
    let client = connect(address).await?;
    let placed = "SELECT count(*) FROM mr_catalog.workers WHERE address <> 'in process' AND partitions > 0";
    let since = Instant::now();
    while rows(&client, placed).await? == [[Some("0".to_owned())]] {
        if since.elapsed() > PATIENCE {
            return Err("no worker of another process takes part".into());
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
    Ok(())
}

/// Where workers join one server after the other.
pub struct Machines {
    address: SocketAddr,
    machines: Vec<Machine>,
}

impl Machines {
    pub fn start() -> Result<Machines, Failure> {
        // Free now; the server listens there again and again.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let machines = (0..WORKERS).map(|_| Machine::start(address));
        Ok(Machines {
            address,
            machines: machines.collect::<Result<_, _>>()?,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills and stops workers at random until `is_over`; returns how many it killed and stopped.
    pub async fn disturb(&mut self, seed: u64, is_over: Arc<AtomicBool>) -> Result<(u64, u64), Failure> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut killed, mut stopped) = (0, 0);
        loop {
            let wait = Duration::from_millis(random.random_range(0..UNDISTURBED_MS_MAX));
            tokio::time::sleep(wait).await;
            if is_over.load(Ordering::Acquire) {
                return Ok((killed, stopped));
            }
            let at = random.random_range(0..self.machines.len());
            if random.random_bool(0.6) {
                self.machines[at] = Machine::start(self.address)?;
                killed += 1;
            } else {
                self.machines[at].signal("-STOP")?;
                let wait = Duration::from_millis(random.random_range(0..STOPPED_MS_MAX));
                tokio::time::sleep(wait).await;
                self.machines[at].signal("-CONT")?;
                stopped += 1;
            }
        }
    }
}
