//! A real PostgreSQL server on loopback, and a client of it.
//!
//! [`BIN`] names the folder of its programs (`initdb`, `postgres`; `.ci/run` looks for it). Without it the tests say that they were
//! skipped. Where the tests run as root, a user called `postgres` runs it, as it does not run as root.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_postgres::{Client, NoTls};

use crate::Failure;

/// The variable that says where the programs are.
pub const BIN: &str = "MILLRACE_POSTGRES_BIN";

/// A server. It is killed when it is dropped.
pub struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    port: u16,
    /// Who runs it, if not we.
    user: Option<(u32, u32)>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts one on a new directory; `None`: there are no programs.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(directory: &Path) -> Result<Option<Postgres>, Failure> {
        let Some(bin) = std::env::var_os(BIN).map(PathBuf::from) else {
            return Ok(None);
        };
        std::fs::create_dir_all(directory)?;
        let id = |arguments: &[&str]| -> Result<u32, Failure> {
            let output = Command::new("id").args(arguments).output()?;
            Ok(String::from_utf8(output.stdout)?.trim().parse()?)
        };
        let user = match id(&["-u"])? {
            0 => Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)),
            _ => None,
        };
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(directory, Some(uid), Some(gid))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut server = Postgres {
            bin,
            data: directory.join("data"),
            port,
            user,
            child: None,
        };
        let output = server
            .program("initdb")
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
                "-D",
            ])
            .arg(&server.data)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        server.run()?;
        Ok(Some(server))
    }

    /// Has it take TLS connections alone, with a certificate for `localhost` that a new authority has signed, or that it has signed itself;
    /// the certificate that is to be trusted.
    ///
    /// # Errors
    /// It does not.
    pub fn require_tls(&self, is_self_signed: bool) -> Result<PathBuf, Failure> {
        let authority_key = KeyPair::generate()?;
        // As openssl makes them: one that has signed itself may sign others.
        let mut authority = CertificateParams::new(vec!["localhost".to_owned()])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let trusted = authority.self_signed(&authority_key)?;
        let roots = self
            .data
            .with_extension(format!("{}.pem", if is_self_signed { "self" } else { "roots" }));
        std::fs::write(&roots, trusted.pem())?;
        let (certificate, key) = match is_self_signed {
            true => (trusted, authority_key),
            false => {
                let issuer = Issuer::new(authority, authority_key);
                let key = KeyPair::generate()?;
                let certificate = CertificateParams::new(vec!["localhost".to_owned()])?;
                (certificate.signed_by(&key, &issuer)?, key)
            }
        };
        self.write("server.crt", &certificate.pem())?;
        self.write("server.key", &key.serialize_pem())?;
        let allowed = "hostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust\n";
        // Not by way of a client, who would need TLS himself the second time.
        self.write("pg_hba.conf", allowed)?;
        self.write("postgresql.auto.conf", "ssl = on\n")?;
        self.read_again()?;
        Ok(roots)
    }

    /// Has it ask one role for its password, and nobody else.
    ///
    /// # Errors
    /// It does not.
    pub fn wants_password_of(&self, role: &str) -> Result<(), Failure> {
        let allowed = format!(
            "host all {role} 127.0.0.1/32 scram-sha-256\nhost replication {role} 127.0.0.1/32 scram-sha-256\n\
             host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
        );
        self.write("pg_hba.conf", &allowed)?;
        self.read_again()
    }

    /// Has it read its configuration again.
    fn read_again(&self) -> Result<(), Failure> {
        let child = self.child.as_ref().ok_or("the server does not run")?;
        Command::new("kill")
            .args(["-HUP", &child.id().to_string()])
            .status()?;
        Ok(())
    }

    /// Writes a file of its directory, which nobody else may read.
    fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        let path = self.data.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        if let Some((uid, gid)) = self.user {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Starts it again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Errors
    /// It does not within a minute.
    pub fn run(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        loop {
            let log = std::fs::File::create(self.data.with_extension("log"))?;
            let port = self.port.to_string();
            let child = self
                .program("postgres")
                .args([
                    "-p",
                    &port,
                    "-c",
                    "listen_addresses=127.0.0.1",
                    "-c",
                    "unix_socket_directories=",
                ])
                .args([
                    "-c",
                    "wal_level=logical",
                    "-c",
                    "max_wal_senders=20",
                    "-c",
                    "max_replication_slots=20",
                ])
                .arg("-D")
                .arg(&self.data)
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()?;
            let child = self.child.insert(child);
            // What a killed one has left may take a moment to go.
            while child.try_wait()?.is_none() {
                if answers(address) {
                    return Ok(());
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            if began.elapsed() > Duration::from_secs(60) {
                let said = std::fs::read_to_string(self.data.with_extension("log"))?;
                return Err(format!("PostgreSQL does not start: {said}").into());
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// SIGKILL, to all of its processes.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut child) = self.child.take() {
            // Each of its processes has a group of its own, and may outlive it for a while.
            let pid = child.id();
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            Command::new("kill")
                .args(["-9", &pid.to_string()])
                .args(children.split_whitespace())
                .stderr(Stdio::null())
                .status()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of it, as soon as it lets one in.
    ///
    /// # Errors
    /// It does not within a minute.
    pub async fn client(&self) -> Result<Client, Failure> {
        let began = Instant::now();
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(self.port)
            .user("postgres")
            .dbname("postgres");
        loop {
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return Ok(client);
                }
                Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Whether it answers: it listens before it knows whether it can start.
fn answers(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(100))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        // Whether it speaks TLS.
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    };
    matches!(asked(), Ok(b'N' | b'S'))
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
