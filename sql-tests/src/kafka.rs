//! A real broker of Kafka on loopback, from the jars of its release, and a client of it.
//!
//! [`JARS`] names the folder of the jars: those of `org.apache.kafka:kafka_2.13` and what it needs, as Maven's
//! `dependency:copy-dependencies` puts them there (`.ci/run` does). Without it the tests say that they were skipped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use krafka::Kafka;
use krafka::admin::NewTopic;
use krafka::consumer::{AutoOffsetReset, IsolationLevel};

use crate::Failure;

/// The variable that says where the jars are.
pub const JARS: &str = "MILLRACE_KAFKA_JARS";
/// The user that SASL lets in, and the password.
pub const USER: (&str, &str) = ("ann", "ann-secret");

/// A record of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<String>,
    pub value: Option<String>,
}

/// A broker, which is its own controller. It is killed when it is dropped.
pub struct Broker {
    jars: PathBuf,
    directory: PathBuf,
    port: u16,
    sasl_port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Starts one on a new directory; `None`: there are no jars.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(directory: &Path) -> Result<Option<Broker>, Failure> {
        let Some(jars) = std::env::var_os(JARS).map(PathBuf::from) else {
            return Ok(None);
        };
        let [port, control, sasl_port] = free_ports()?;
        let mut properties = String::new();
        for (key, value) in [
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", "1".to_owned()),
            ("controller.quorum.voters", format!("1@127.0.0.1:{control}")),
            (
                "listeners",
                format!(
                    "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control},SASL://127.0.0.1:{sasl_port}"
                ),
            ),
            (
                "advertised.listeners",
                format!("PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port}"),
            ),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT".to_owned(),
            ),
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512".to_owned()),
            (
                "listener.name.sasl.plain.sasl.jaas.config",
                format!(
                    "org.apache.kafka.common.security.plain.PlainLoginModule required user_{}=\"{}\";",
                    USER.0, USER.1
                ),
            ),
            (
                "listener.name.sasl.scram-sha-512.sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required;".to_owned(),
            ),
            ("log.dirs", directory.join("log").display().to_string()),
            ("offsets.topic.replication.factor", "1".to_owned()),
            ("transaction.state.log.replication.factor", "1".to_owned()),
            ("transaction.state.log.min.isr", "1".to_owned()),
            ("auto.create.topics.enable", "false".to_owned()),
            // Records of tests may be of any time.
            ("log.retention.ms", "-1".to_owned()),
        ] {
            writeln!(properties, "{key}={value}")?;
        }
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("server.properties"), properties)?;
        let mut broker = Broker {
            jars,
            directory: directory.to_owned(),
            port,
            sasl_port,
            child: None,
        };
        let scram = format!("SCRAM-SHA-512=[name={},password={}]", USER.0, USER.1);
        let formatted = broker
            .java(
                "kafka.tools.StorageTool",
                &[
                    "format",
                    "-t",
                    "millraceAAAAAAAAAAAAAA",
                    "--add-scram",
                    &scram,
                    "-c",
                ],
            )
            .output()?;
        if !formatted.status.success() {
            return Err(String::from_utf8_lossy(&formatted.stderr).into());
        }
        broker.run()?;
        Ok(Some(broker))
    }

    fn java(&self, class: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("java");
        command
            .args(["-Xmx384m", "-XX:+UseSerialGC", "-cp"])
            .arg(self.jars.join("*"))
            .arg(class)
            .args(arguments)
            .arg(self.directory.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Starts it again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Errors
    /// It does not within a minute.
    pub fn run(&mut self) -> Result<(), Failure> {
        let log = std::fs::File::create(self.directory.join("stderr"))?;
        self.child = Some(self.java("kafka.Kafka", &[]).stderr(log).spawn()?);
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let began = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err() {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten())
            {
                let said = std::fs::read_to_string(self.directory.join("stderr"))?;
                return Err(format!("the broker ended ({status}): {said}").into());
            }
            if began.elapsed() > Duration::from_secs(60) {
                return Err("the broker does not listen".into());
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Where it listens without a password.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it listens with one.
    pub fn sasl_address(&self) -> String {
        format!("127.0.0.1:{}", self.sasl_port)
    }

    /// What is committed in topics, read by Kafka's own client, in the order of each partition.
    ///
    /// # Errors
    /// There is no Java compiler, or the broker does not answer.
    pub fn read(&self, topics: &[&str]) -> Result<BTreeMap<String, Vec<Written>>, Failure> {
        let source = self.directory.join("Read.java");
        std::fs::write(&source, include_str!("kafka/Read.java"))?;
        let read = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(self.jars.join("*"))
            .arg(source)
            .arg(self.address())
            .args(topics)
            .output()?;
        if !read.status.success() {
            return Err(String::from_utf8_lossy(&read.stderr).into());
        }
        let given = |text: &str| (text != "\\N").then(|| text.to_owned());
        let text = String::from_utf8(read.stdout)?;
        let mut found: BTreeMap<String, Vec<Written>> = BTreeMap::new();
        for line in text.lines() {
            let mut parts = line.splitn(5, '\t');
            let mut part = || parts.next().ok_or_else(|| format!("no record: {line}"));
            found.entry(part()?.to_owned()).or_default().push(Written {
                partition: part()?.parse()?,
                offset: part()?.parse()?,
                key: given(part()?),
                value: given(part()?),
            });
        }
        Ok(found)
    }

    /// A client of it.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn client(&self) -> Result<Kafka, Failure> {
        let mut last = None;
        for _ in 0..100 {
            match Kafka::builder(self.address()).connect().await {
                Ok(kafka) => return Ok(kafka),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(last.map_or_else(|| "no answer".into(), Into::into))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // What cannot be killed is gone already.
        let _ = self.kill();
    }
}

pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N], Failure> {
    let listeners = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Makes a topic.
///
/// # Errors
/// The broker refuses.
pub async fn create_topic(kafka: &Kafka, topic: &str, partitions: i32) -> Result<(), Failure> {
    let admin = kafka.admin();
    let new = NewTopic::new(topic, partitions, 1)?;
    for (_, made) in admin.create_topics([new], Default::default()).await? {
        made?;
    }
    Ok(())
}

/// Keys and values of records, by partition and offset.
pub type Contents = BTreeMap<(i32, i64), (Option<String>, Option<String>)>;

/// All records of a topic that are committed.
///
/// # Errors
/// The broker does not answer.
pub async fn contents(kafka: &Kafka, topic: &str) -> Result<Contents, Failure> {
    let consumer = kafka
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .max_poll_records(10_000)
        .max_buffered_records(10_000)
        .build()
        .await?;
    let metadata = consumer.fetch_metadata(Some(topic)).await?;
    let partitions: Vec<i32> = metadata
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.keys().copied())
        .collect();
    consumer.assign(topic, partitions.clone()).await?;
    let mut found = BTreeMap::new();
    let mut quiet = 0;
    while quiet < 3 {
        let records = consumer.poll(Duration::from_millis(300)).await?;
        quiet = if records.is_empty() { quiet + 1 } else { 0 };
        for record in records {
            let text = |bytes: bytes::Bytes| String::from_utf8_lossy(&bytes).into_owned();
            let entry = (record.key.map(text), record.value.map(text));
            found.insert((record.partition, record.offset), entry);
        }
    }
    consumer.close().await?;
    Ok(found)
}
