//! Certificate and key: from files, which are looked at again, or made; and who signs the certificates of clients.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Side, TlsError, binding};

/// How often the files are looked at, at most: whenever somebody connects, but not more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For which names a certificate is made that signs itself.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Where certificate and key come from.
#[derive(Debug)]
pub(super) enum Source {
    /// Two files, or three.
    Files(Files),
    /// They were made at the start.
    Made { configs: Configs, fingerprint: String },
}

/// Certificate and key in files, and those who sign the certificates of clients.
#[derive(Debug)]
pub(super) struct Files {
    paths: Paths,
    state: Mutex<Read>,
}

#[derive(Debug)]
struct Paths {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// What was read last.
#[derive(Debug)]
struct Read {
    looked_at: Instant,
    stamps: Stamps,
    configs: Configs,
}

/// When certificate, key and the third were changed last, as the file system says.
type Stamps = [Option<SystemTime>; 3];

/// What a handshake goes by, for each protocol.
#[derive(Debug, Clone)]
pub(super) struct Configs {
    postgres: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    cluster: Arc<ServerConfig>,
    /// The hash of the certificate.
    binding: Option<Arc<[u8]>>,
}

impl Configs {
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        clients: &Arc<dyn ClientCertVerifier>,
    ) -> Result<Configs, TlsError> {
        let config = |side: Side, key| {
            let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
            let built = builder.with_safe_default_protocol_versions().and_then(|builder| {
                builder
                    .with_client_cert_verifier(Arc::clone(clients))
                    .with_single_cert(chain.clone(), key)
            });
            let mut config =
                built.map_err(|error| TlsError(format!("certificate and key do not fit: {error}")))?;
            config.alpn_protocols = side.protocols().iter().map(|name| name.to_vec()).collect();
            Ok(Arc::new(config))
        };
        Ok(Configs {
            postgres: config(Side::Postgres, key.clone_key())?,
            http: config(Side::Http, key.clone_key())?,
            cluster: config(Side::Cluster, key)?,
            binding: chain.first().and_then(|first| binding::of(first)).map(Arc::from),
        })
    }

    fn of(&self, side: Side) -> (Arc<ServerConfig>, Option<Arc<[u8]>>) {
        let config = match side {
            Side::Postgres => &self.postgres,
            Side::Http => &self.http,
            Side::Cluster => &self.cluster,
        };
        (Arc::clone(config), self.binding.clone())
    }
}

impl Source {
    /// Certificate and key in files, which must be right now.
    pub(super) fn files(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Source, TlsError> {
        let paths = Paths {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_ca: client_ca.map(Path::to_owned),
        };
        let state = Read {
            looked_at: Instant::now(),
            stamps: stamps(&paths),
            configs: read(&paths)?,
        };
        Ok(Source::Files(Files {
            paths,
            state: Mutex::new(state),
        }))
    }

    /// Makes a certificate for this machine's own names that signs itself.
    pub(super) fn self_signed(client_ca: Option<&Path>) -> Result<Source, TlsError> {
        let names: Vec<String> = NAMES.into_iter().map(str::to_owned).collect();
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| TlsError(format!("cannot make a certificate: {error}")))?;
        let certificate = made.cert.der().clone();
        let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
        let digits: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Source::Made {
            configs: Configs::new(vec![certificate], key.into(), &clients(client_ca)?)?,
            fingerprint: digits.join(":"),
        })
    }

    pub(super) fn fingerprint(&self) -> Option<String> {
        match self {
            Source::Files(_) => None,
            Source::Made { fingerprint, .. } => Some(fingerprint.clone()),
        }
    }

    pub(super) fn config(&self, side: Side) -> (Arc<ServerConfig>, Option<Arc<[u8]>>) {
        match self {
            Source::Files(files) => files.configs(Instant::now()).of(side),
            Source::Made { configs, .. } => configs.of(side),
        }
    }
}

impl Files {
    /// Of the files as they are; where they are wrong, as they were.
    fn configs(&self, now: Instant) -> Configs {
        let mut state = self.state.lock();
        if now.duration_since(state.looked_at) < LOOK_EVERY {
            return state.configs.clone();
        }
        state.looked_at = now;
        let found = stamps(&self.paths);
        if found != state.stamps {
            state.stamps = found;
            match read(&self.paths) {
                Ok(configs) => {
                    tracing::info!(certificate = %self.paths.certificate.display(), "the certificate was read again");
                    state.configs = configs;
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate changed and cannot be used: the one before stays in use");
                }
            }
        }
        state.configs.clone()
    }
}

fn stamps(paths: &Paths) -> Stamps {
    let all = [
        Some(&paths.certificate),
        Some(&paths.key),
        paths.client_ca.as_ref(),
    ];
    all.map(|path| std::fs::metadata(path?).and_then(|data| data.modified()).ok())
}

fn wrong(path: &Path, why: impl Display) -> TlsError {
    TlsError(format!("{}: {why}", path.display()))
}

/// The certificates in a file, one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(|found| found.collect())
        .map_err(|error| wrong(path, error))?;
    match found.is_empty() {
        true => Err(wrong(path, "there is no certificate in it (PEM)")),
        false => Ok(found),
    }
}

/// Who looks at the certificates of clients. None has to have one, and one that nobody here has signed is refused.
fn clients(client_ca: Option<&Path>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let Some(path) = client_ca else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(path, error))
}

fn read(paths: &Paths) -> Result<Configs, TlsError> {
    let (certificate, key) = (&paths.certificate, &paths.key);
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => wrong(key, "there is no private key in it (PEM)"),
        error => wrong(key, error),
    })?;
    Configs::new(chain, private, &clients(paths.client_ca.as_deref())?)
        .map_err(|TlsError(why)| wrong(certificate, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("it can be made");
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        (certificate, key)
    }

    #[test]
    fn files_that_change_are_read_again_and_wrong_ones_are_not_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let (certificate, key) = write(directory.path());
        let Ok(Source::Files(files)) = Source::files(&certificate, &key, None) else {
            panic!("they are right")
        };
        let mut now = Instant::now();
        let mut later = || {
            now += LOOK_EVERY;
            // The file system may not tell two writes within one tick apart.
            files.state.lock().stamps = [None; 3];
            files.configs(now)
        };
        let first = files.configs(Instant::now());
        write(directory.path());
        let second = later();
        assert!(!Arc::ptr_eq(&first.http, &second.http));
        std::fs::write(&key, "nonsense").expect("a file");
        let third = later();
        assert!(Arc::ptr_eq(&second.http, &third.http));
        assert!(Source::files(&certificate, &key, None).is_err());
    }

    #[test]
    fn a_made_certificate_has_a_fingerprint() {
        let made = Source::self_signed(None).expect("it can be made");
        assert_eq!(made.fingerprint().map(|text| text.len()), Some(32 * 3 - 1));
    }
}
