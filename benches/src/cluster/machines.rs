//! Machines that are not: network namespaces with a share of a core each, or processes on loopback, or parts of this process.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_wire::Server;
use millrace_wire::cluster::{Worker as Joining, WorkerArgs};
use millrace_wire::config::Config;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::bed::serve;
use crate::client::Client;
use crate::error::BenchError;
use crate::size::Size;
use crate::target::Target;

/// What server and workers know.
const TOKEN: &str = "the token of a bench";
/// Microseconds of a period, and of it how many a machine may compute: a quarter of a core. With the usual period of 100 ms a machine
/// that has used its share would stand still for tens of milliseconds.
const PERIOD_US: u32 = 5_000;
const SHARE_US: u32 = 1_250;
const CGROUP: &str = "/sys/fs/cgroup/cpu";
const PG_PORT: u16 = 6433;
const HTTP_PORT: u16 = 6434;
const CLUSTER_PORT: u16 = 6435;
const PATIENCE: Duration = Duration::from_secs(60);

/// What machines are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Namespaces and control groups.
    Namespaces(PathBuf),
    /// Processes that share everything.
    Loopback(PathBuf),
    /// This process, for the tests.
    Here,
}

fn shell(line: &str) -> bool {
    let ran = Command::new("sh")
        .args(["-c", line])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}

impl Place {
    /// The best that there is.
    ///
    /// # Errors
    /// There is no binary.
    pub fn of(size: Size) -> Result<Place, BenchError> {
        let Target::Binary(binary) = Target::of(size)? else {
            return Ok(Place::Here);
        };
        let may = shell("ip netns add mrprobe && ip netns del mrprobe")
            && Path::new(CGROUP).join("cpu.cfs_quota_us").exists();
        Ok(match may {
            true => Place::Namespaces(binary),
            false => Place::Loopback(binary),
        })
    }

    pub fn says(&self) -> &'static str {
        match self {
            Place::Namespaces(_) => {
                "Each machine is a network namespace of one machine, joined with the others by a bridge, and may use a quarter of a core (1.25 ms of \
                 every 5 ms); what sends and reads has the rest."
            }
            Place::Loopback(_) => {
                "Namespaces or control groups are not allowed here: the machines are processes on loopback that share all cores, so that more of \
                 them cannot be faster."
            }
            Place::Here => "The machines are parts of this process.",
        }
    }
}

/// Namespaces while they are there.
struct Net {
    count: usize,
}

impl Net {
    fn make(count: usize) -> Result<Net, BenchError> {
        let net = Net { count };
        net.clear();
        let mut lines = vec![
            "ip link add mrbridge type bridge".to_owned(),
            "ip addr add 10.77.0.1/24 dev mrbridge".to_owned(),
            "ip link set mrbridge up".to_owned(),
        ];
        for machine in 0..count {
            let inside = format!("ip -n mr{machine}");
            lines.extend([
                format!("ip netns add mr{machine}"),
                format!("ip link add mrv{machine} type veth peer name eth0 netns mr{machine}"),
                format!("ip link set mrv{machine} master mrbridge up"),
                format!("{inside} addr add {}/24 dev eth0", address(machine)),
                format!("{inside} link set eth0 up"),
                format!("{inside} link set lo up"),
            ]);
        }
        match lines.iter().find(|line| !shell(line)) {
            None => Ok(net),
            Some(line) => Err(BenchError::Server(format!("`{line}` fails"))),
        }
    }

    fn clear(&self) {
        for machine in 0..self.count {
            let _ = shell(&format!("ip netns del mr{machine}"));
            let _ = shell(&format!("ip link del mrv{machine}"));
        }
        let _ = shell("ip link del mrbridge");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.clear();
    }
}

fn address(machine: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(
        10,
        77,
        0,
        10 + u8::try_from(machine).unwrap_or(u8::MAX),
    ))
}

/// A process of a machine; dropping it kills it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum Coordinator {
    Process(#[expect(dead_code, reason = "it lives as long as this")] Process),
    Here(Box<Server>),
}

enum Worker {
    Process(Process),
    Here(JoinHandle<()>),
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Worker::Here(working) = self {
            working.abort();
        }
    }
}

/// A worker in this process, until it is let go.
async fn work(cluster: SocketAddr) {
    let args = WorkerArgs {
        join: cluster.to_string(),
        listen: None,
        advertise: None,
    };
    let config = Config {
        cluster_token: Some(TOKEN.to_owned()),
        cores: Some(1),
        ..Config::default()
    };
    if let Ok(worker) = Joining::prepare(args, config).await
        && let Ok(joined) = worker.join().await
    {
        // It ends with the machines.
        let _ = joined.is_dismissed().await;
    }
}

/// A server, and workers on other machines.
pub struct Machines {
    place: Place,
    coordinator: Option<Coordinator>,
    workers: Vec<Worker>,
    pg: SocketAddr,
    cluster: SocketAddr,
    next: usize,
    directory: TempDir,
    /// Last, when nothing runs in it any more.
    _net: Option<Net>,
}

impl Machines {
    /// A server whose views are spread over all workers, without any but its own.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(place: &Place, machines_max: usize) -> Result<Machines, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::io("cannot make a directory"))?;
        let net = match place {
            Place::Namespaces(_) => Some(Net::make(machines_max)?),
            Place::Loopback(_) | Place::Here => None,
        };
        let at = match place {
            Place::Namespaces(_) => address(0),
            Place::Loopback(_) | Place::Here => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let mut machines = Machines {
            place: place.clone(),
            coordinator: None,
            workers: vec![],
            pg: SocketAddr::new(at, PG_PORT),
            cluster: SocketAddr::new(at, CLUSTER_PORT),
            next: 1,
            directory,
            _net: net,
        };
        let data = machines.directory.path().join("data");
        let coordinator = match place {
            Place::Here => {
                let server = serve(&data, |config| {
                    config.cluster = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
                    config.cluster_token = Some(TOKEN.to_owned());
                    config.tuning.pipeline_spread = millrace_schedule::driver::Spread::All;
                })
                .await?;
                machines.pg = server.pg_addr();
                machines.cluster = server.cluster_addr().unwrap_or(machines.cluster);
                Coordinator::Here(Box::new(server))
            }
            Place::Namespaces(binary) | Place::Loopback(binary) => {
                let config = machines.directory.path().join("millrace.toml");
                let text = format!("cluster = \"{}\"\npipeline_spread = \"all\"\n", machines.cluster);
                fs::write(&config, text).map_err(BenchError::io("cannot write a configuration"))?;
                let arguments = [
                    "serve".into(),
                    "--insecure".into(),
                    "--cores".into(),
                    "1".into(),
                    "--pg".into(),
                    machines.pg.to_string(),
                    "--http".into(),
                    SocketAddr::new(at, HTTP_PORT).to_string(),
                    "--data".into(),
                    data.display().to_string(),
                    "--config".into(),
                    config.display().to_string(),
                ];
                Coordinator::Process(machines.spawn(binary, 0, &arguments)?)
            }
        };
        machines.coordinator = Some(coordinator);
        let since = Instant::now();
        while Client::connect(machines.pg).await.is_err() {
            if since.elapsed() > PATIENCE {
                return Err(BenchError::Server("the coordinator does not start".into()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(machines)
    }

    fn spawn(&self, binary: &Path, machine: usize, arguments: &[String]) -> Result<Process, BenchError> {
        let mut command = match self.place {
            Place::Namespaces(_) => {
                let mut command = Command::new("ip");
                command
                    .args(["netns", "exec", &format!("mr{machine}")])
                    .arg(binary);
                command
            }
            Place::Loopback(_) | Place::Here => Command::new(binary),
        };
        let log = fs::File::create(self.directory.path().join(format!("log{machine}")));
        let log = log.map_err(BenchError::io("cannot write a log"))?;
        let child = command
            .args(arguments)
            .env("MILLRACE_CLUSTER_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        // `ip netns exec` becomes the program, under the same number.
        let process = Process(child.map_err(BenchError::io("cannot start a machine"))?);
        if matches!(self.place, Place::Namespaces(_)) {
            let group = Path::new(CGROUP).join(format!("mr{machine}"));
            let write = |file: &str, text: String| fs::write(group.join(file), text);
            fs::create_dir_all(&group)
                .and_then(|()| write("cpu.cfs_period_us", PERIOD_US.to_string()))
                .and_then(|()| write("cpu.cfs_quota_us", SHARE_US.to_string()))
                .and_then(|()| write("cgroup.procs", process.0.id().to_string()))
                .map_err(BenchError::io("cannot give a machine its share of a core"))?;
        }
        Ok(process)
    }

    /// Where PostgreSQL clients connect.
    pub fn pg(&self) -> SocketAddr {
        self.pg
    }

    /// Machines, that of the server counted.
    pub fn len(&self) -> usize {
        1 + self.workers.len()
    }

    /// Starts another worker, without waiting for it.
    ///
    /// # Errors
    /// It does not start.
    pub fn begin_worker(&mut self) -> Result<(), BenchError> {
        let machine = self.next;
        self.next += 1;
        let worker = match &self.place {
            Place::Here => Worker::Here(tokio::spawn(work(self.cluster))),
            Place::Namespaces(binary) | Place::Loopback(binary) => {
                let arguments =
                    ["worker", "--join", &self.cluster.to_string(), "--cores", "1"].map(str::to_owned);
                Worker::Process(self.spawn(binary, machine, &arguments)?)
            }
        };
        self.workers.push(worker);
        Ok(())
    }

    /// Starts workers until there are so many machines, and waits until all of them take part.
    ///
    /// # Errors
    /// They do not.
    pub async fn grow(&mut self, machines: usize) -> Result<(), BenchError> {
        while self.len() < machines {
            self.begin_worker()?;
        }
        self.until_all_take_part().await
    }

    /// Waits until each machine has partitions.
    ///
    /// # Errors
    /// That does not come about.
    pub async fn until_all_take_part(&self) -> Result<(), BenchError> {
        let client = Client::connect(self.pg).await?;
        let since = Instant::now();
        loop {
            let sql = "SELECT count(*) FROM mr_catalog.workers WHERE partitions > 0 AND state = 'running'";
            let rows = client.rows(sql).await?;
            let there = rows.first().and_then(|row| row.first().cloned().flatten());
            if there == Some(self.len().to_string()) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                return Err(BenchError::Server(format!(
                    "of {} machines {there:?} take part",
                    self.len()
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the newest worker, or (`is_stopped`) has it stand still for good.
    ///
    /// # Errors
    /// There is none.
    pub fn lose_one(&mut self, is_stopped: bool) -> Result<(), BenchError> {
        let none = || BenchError::Server("there is no worker to lose".into());
        if let (true, Some(Worker::Process(process))) = (is_stopped, self.workers.last()) {
            match shell(&format!("kill -STOP {}", process.0.id())) {
                true => return Ok(()),
                false => return Err(none()),
            }
        }
        self.workers.pop().map(drop).ok_or_else(none)
    }

    /// Ends all of it.
    ///
    /// # Errors
    /// The server does not stop.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        self.workers.clear();
        if let Some(Coordinator::Here(server)) = self.coordinator.take() {
            server.shutdown().await;
        }
        Ok(())
    }
}
