//! Where the server listens, and what it sends to.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use millrace_storage::offsite::Place;
use millrace_wire::config::Config;

use super::Finding;
use super::directory::existing_parent;

/// How long another machine may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The variables that name another endpoint than Amazon's for buckets, as the client of buckets reads them.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
/// With one of these it is a proxy that has to be reached.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// An address to listen on.
struct Listener {
    subject: &'static str,
    /// How another one is chosen.
    choose: &'static str,
    address: SocketAddr,
}

/// Whether the ports are free, and each is asked for once.
pub fn ports(config: &Config, is_running: bool) -> Vec<Finding> {
    let mut listeners = vec![
        Listener {
            subject: "pg port",
            choose: "--pg",
            address: config.pg,
        },
        Listener {
            subject: "http port",
            choose: "--http",
            address: config.http,
        },
    ];
    listeners.extend(config.cluster.map(|address| Listener {
        subject: "cluster port",
        choose: "cluster in the configuration",
        address,
    }));
    (0..listeners.len())
        .map(|index| {
            let own = &listeners[index];
            let other = listeners[..index]
                .iter()
                .find(|other| excludes(own.address, other.address));
            match other {
                Some(other) => Finding::bad(
                    own.subject,
                    format!(
                        "{} is where the {} is, too ({}); choose another with {}",
                        own.address, other.subject, other.address, own.choose
                    ),
                ),
                None => port(own, is_running),
            }
        })
        .collect()
}

/// Whether who listens on the one takes the other, too.
fn excludes(one: SocketAddr, other: SocketAddr) -> bool {
    // Every address of IPv6 includes those of IPv4.
    let takes = |all: IpAddr, part: IpAddr| all.is_unspecified() && (all.is_ipv6() || part.is_ipv4());
    let (ip, other_ip) = (one.ip(), other.ip());
    one.port() == other.port()
        && one.port() != 0
        && (ip == other_ip || takes(ip, other_ip) || takes(other_ip, ip))
}

fn port(listener: &Listener, is_running: bool) -> Finding {
    let (subject, address, choose) = (listener.subject, listener.address, listener.choose);
    let error = match TcpListener::bind(address) {
        Ok(_) => return Finding::good(subject, format!("{address} is free")),
        Err(error) => error,
    };
    let what_to_do = match error.kind() {
        ErrorKind::AddrInUse if is_running => {
            let why = format!("{address} is taken, as it seems by the server that uses the directory");
            return Finding::doubtful(subject, why);
        }
        ErrorKind::PermissionDenied => format!("choose a port above 1023 with {choose}"),
        ErrorKind::AddrNotAvailable => {
            format!("no interface of this machine has that address; choose another with {choose}")
        }
        _ => format!("stop who uses it, or choose another with {choose}"),
    };
    Finding::bad(
        subject,
        format!("cannot listen on {address}: {error}; {what_to_do}"),
    )
}

/// Whether workers of other processes have something to know.
pub fn cluster_token(config: &Config) -> Option<Finding> {
    const SUBJECT: &str = "cluster token";
    match (config.cluster, &config.cluster_token) {
        (None, None) => None,
        (None, Some(_)) => Some(Finding::doubtful(
            SUBJECT,
            "cluster_token is set but cluster is not: no workers of other processes can join",
        )),
        (Some(_), None) => Some(Finding::bad(
            SUBJECT,
            "cluster needs cluster_token: set MILLRACE_CLUSTER_TOKEN for the server and its workers",
        )),
        (Some(address), Some(_)) if !config.cluster_tls && !address.ip().is_loopback() => {
            Some(Finding::doubtful(
                SUBJECT,
                "cluster_token is set but cluster_tls is off: traffic between machines can be read on the network",
            ))
        }
        (Some(_), Some(_)) => Some(Finding::good(SUBJECT, "it is set")),
    }
}

/// Whether what is sent away arrives somewhere.
pub fn targets(config: &Config) -> Vec<Finding> {
    let mut findings = vec![];
    if let Some(url) = &config.log_url {
        findings.push(match Place::directory_of(url) {
            Some(directory) => copy_in(&directory, &config.data),
            None => bucket(url),
        });
    }
    if let Some(endpoint) = &config.otlp_endpoint {
        let host = endpoint.host_str().unwrap_or_default();
        let port = endpoint.port_or_known_default().unwrap_or(4318);
        findings.push(match reach(host, port) {
            Ok(()) => Finding::good("otlp_endpoint", format!("{endpoint} can be reached")),
            Err(error) => Finding::doubtful(
                "otlp_endpoint",
                format!("{endpoint} cannot be reached: {error}; traces are lost until a collector is there"),
            ),
        });
    }
    findings
}

/// A directory that is to have the copy. It is made when the server starts.
fn copy_in(copy: &Path, data: &Path) -> Finding {
    const SUBJECT: &str = "log_url";
    let shown = copy.display();
    let Some(place) = existing_parent(copy) else {
        return Finding::bad(
            SUBJECT,
            format!("{shown} cannot be made: no directory above it exists"),
        );
    };
    if copy.exists() && !copy.is_dir() {
        let why = format!("{shown} is a file: choose a directory");
        return Finding::bad(SUBJECT, why);
    }
    // The copy reads nothing but its own folders.
    let written = tempfile::Builder::new()
        .prefix(".millrace-doctor-")
        .tempfile_in(&place);
    if let Err(error) = written {
        let why = format!(
            "{shown} cannot be written: {error}; let this user write to {}, or choose another place",
            place.display()
        );
        return Finding::bad(SUBJECT, why);
    }
    if !copy.exists() {
        let why =
            format!("{shown} does not exist, and will be made; if it is a disk of its own, mount it first");
        return Finding::doubtful(SUBJECT, why);
    }
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    match existing_parent(data) {
        Some(data) if device(&data) == device(&place) => Finding::doubtful(
            SUBJECT,
            format!("{shown} is on the same disk as the data, and is lost with it"),
        ),
        _ => Finding::good(SUBJECT, format!("{shown} can be written")),
    }
}

/// A bucket: whether its endpoint is there, and there is a key. Whether the key may write there is seen when the server starts.
fn bucket(url: &str) -> Finding {
    const SUBJECT: &str = "log_url";
    let variable = |names: &[&str]| {
        let given = names.iter().find_map(|name| std::env::var(name).ok());
        given.filter(|value| !value.is_empty())
    };
    if variable(&PROXIES).is_some() {
        return Finding::doubtful(
            SUBJECT,
            format!("{url} is behind a proxy, and was not looked for"),
        );
    }
    let endpoint = variable(&ENDPOINTS).unwrap_or_else(|| {
        let region = variable(&REGIONS).unwrap_or_else(|| "us-east-1".to_owned());
        format!("https://s3.{region}.amazonaws.com")
    });
    let Some((host, port)) = host_of(&endpoint) else {
        return Finding::bad(
            SUBJECT,
            format!(
                "{endpoint} is no address of a server of buckets; correct {}",
                ENDPOINTS[1]
            ),
        );
    };
    match reach(&host, port) {
        Err(error) => Finding::bad(
            SUBJECT,
            format!(
                "{endpoint}, which has {url}, cannot be reached: {error}; start it, or correct {} or AWS_REGION",
                ENDPOINTS[1]
            ),
        ),
        Ok(())
            if variable(&[
                "AWS_ACCESS_KEY_ID",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            ])
            .is_none() =>
        {
            let why = format!(
                "{endpoint} can be reached, but there is no AWS_ACCESS_KEY_ID in the environment: only the role of a machine could write to {url}"
            );
            Finding::doubtful(SUBJECT, why)
        }
        Ok(()) => Finding::good(SUBJECT, format!("{endpoint} can be reached")),
    }
}

/// Host and port of an address like `https://s3.example.com:9000/`.
fn host_of(endpoint: &str) -> Option<(String, u16)> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let place = rest.split('/').next().filter(|place| !place.is_empty())?;
    match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host.to_owned(), port.parse().ok()?)),
        _ => Some((place.to_owned(), default)),
    }
}

fn reach(host: &str, port: u16) -> io::Result<()> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn states(findings: &[Finding]) -> Vec<State> {
        findings.iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn ports_in_conflict_are_told() {
        let at = |text: &str| text.parse().unwrap();
        assert!(excludes(at("127.0.0.1:5433"), at("127.0.0.1:5433")));
        assert!(excludes(at("0.0.0.0:5433"), at("127.0.0.1:5433")));
        assert!(excludes(at("127.0.0.1:5433"), at("[::]:5433")));
        assert!(!excludes(at("0.0.0.0:5433"), at("[::1]:5433")));
        assert!(!excludes(at("127.0.0.1:5433"), at("127.0.0.2:5433")));
        assert!(!excludes(at("127.0.0.1:0"), at("127.0.0.1:0")));

        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let free = at("127.0.0.1:0");
        let config = |pg, http, cluster| Config {
            pg,
            http,
            cluster,
            ..Config::default()
        };
        use State::{Bad, Doubtful, Good};
        assert_eq!(states(&ports(&config(address, free, None), false)), [Bad, Good]);
        assert_eq!(
            states(&ports(&config(address, free, None), true)),
            [Doubtful, Good]
        );
        assert_eq!(
            states(&ports(&config(free, free, Some(address)), false)),
            [Good, Good, Bad]
        );
        drop(held);
        let found = ports(&config(address, address, Some(address)), false);
        assert_eq!(states(&found), [Good, Bad, Bad]);
        assert!(found[1].text.contains("where the pg port is") && found[1].text.contains("--http"));
        assert!(found[2].text.contains("cluster in the configuration"));
    }

    #[test]
    fn a_cluster_needs_a_token() {
        let mut config = Config::default();
        assert!(cluster_token(&config).is_none());
        config.cluster = Some("127.0.0.1:0".parse().unwrap());
        assert_eq!(cluster_token(&config).unwrap().state, State::Bad);
        config.cluster_token = Some("0123456789abcdef".into());
        assert_eq!(cluster_token(&config).unwrap().state, State::Good);
        config.cluster_tls = false;
        assert_eq!(cluster_token(&config).unwrap().state, State::Good);
        config.cluster = Some("0.0.0.0:0".parse().unwrap());
        assert_eq!(cluster_token(&config).unwrap().state, State::Doubtful);
    }

    #[test]
    fn targets_that_are_not_there_are_told() {
        let root = tempfile::tempdir().unwrap();
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let mut config = Config {
            data: root.path().join("data"),
            otlp_endpoint: Some(format!("http://{address}").parse().unwrap()),
            log_url: Some(format!("file://{}/copy", root.path().display())),
            ..Config::default()
        };
        use State::{Bad, Doubtful, Good};
        // It is not there; then it is on the disk of the data.
        assert_eq!(states(&targets(&config)), [Doubtful, Good]);
        fs::create_dir(root.path().join("copy")).unwrap();
        let found = targets(&config);
        assert!(found[0].text.contains("same disk"), "{found:?}");
        fs::write(root.path().join("file"), "").unwrap();
        config.log_url = Some(format!("file://{}/file", root.path().display()));
        drop(held);
        assert_eq!(states(&targets(&config)), [Bad, Doubtful]);
        assert!(reach("127.0.0.1", address.port()).is_err());
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let of = |text| host_of(text).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(of("http://127.0.0.1:9000").as_deref(), Some("127.0.0.1 9000"));
        assert_eq!(
            of("https://s3.example.com/x").as_deref(),
            Some("s3.example.com 443")
        );
        assert_eq!(of("http://[::1]:9000/").as_deref(), Some("[::1] 9000"));
        assert_eq!(of("s3.example.com"), None);
        assert_eq!(of("ftp://x"), None);
    }
}
