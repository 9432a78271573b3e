//! `connector = 'webhook'`: rows that another service sends over HTTP, and rows that are sent to one, signed with a secret that both know.
//!
//! The definition has the place of the secret (see [`super::secret`]), and never the secret.

use std::path::PathBuf;
use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use url::{Host, Url};

use super::options::{Given, invalid};
use super::secret::Secret;

/// How requests for a stream are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub signature: Signature,
    /// The header that tells two deliveries apart, in lower case; without it, each request is another one.
    pub id_header: Option<String>,
}

/// What shows that a request comes from somebody who knows a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub secret: Secret,
    pub check: Check,
    /// The header with the signature or the token, in lower case.
    pub header: String,
    /// What stands before it in the header.
    pub prefix: String,
}

/// How the secret is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// HMAC-SHA256 of the body, in hexadecimal digits.
    HmacHex,
    /// The same in base64.
    HmacBase64,
    /// The secret itself.
    Token,
}

/// Where the rows of a sink are sent, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    pub url: Url,
    /// None: requests are not signed.
    pub signature: Option<Signature>,
    pub body: Body,
    /// How long one request may take, from its beginning to the end of the answer.
    pub timeout: Duration,
    /// The authority that signed the server's certificate, a PEM file; none: one that the system knows.
    pub tls_roots: Option<PathBuf>,
    /// What one request has at most.
    pub rows_max: u64,
    pub bytes_max: u64,
}

/// The form of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// An array of objects.
    Json,
    /// An object a line.
    Lines,
}

const ROWS_MAX_DEFAULT: u64 = 1_000;
const BYTES_MAX_DEFAULT: u64 = 1 << 20;
const TIMEOUT_DEFAULT_MICROS: u64 = 10_000_000;

impl Webhook {
    pub(super) fn new(given: &mut Given<'_>) -> SqlResult<Webhook> {
        let signature = Signature::given(given)?.ok_or_else(|| {
            given.missing(
                "secret",
                "SECRET and the name of a secret; or use secret.env or secret.file",
            )
        })?;
        Ok(Webhook {
            signature,
            id_header: given
                .text("id.header")
                .map(|name| name_of_header("id.header", name))
                .transpose()?,
        })
    }
}

impl Signature {
    /// What the options say, if there is a secret.
    fn given(given: &mut Given<'_>) -> SqlResult<Option<Signature>> {
        let secret = Secret::given(given, "secret")?;
        let checks = [
            ("hmac-sha256", Check::HmacHex),
            ("hmac-sha256-base64", Check::HmacBase64),
            ("token", Check::Token),
        ];
        let named = given.one_of("signature", &checks)?;
        let (own, own_prefix) = (given.text("signature.header"), given.text("signature.prefix"));
        let Some(secret) = secret else {
            return match named.is_some() || own.is_some() || own_prefix.is_some() {
                true => Err(given.missing(
                    "secret",
                    "SECRET and the name of a secret; or use secret.env or secret.file",
                )),
                false => Ok(None),
            };
        };
        let check = named.unwrap_or(Check::HmacHex);
        let (header, prefix) = match check {
            Check::HmacHex => ("x-hub-signature-256", "sha256="),
            Check::HmacBase64 => ("x-signature", ""),
            Check::Token => ("authorization", "Bearer "),
        };
        // A header of another name has nothing in front, unless it is said.
        let prefix = own_prefix.unwrap_or(if own.is_some() { "" } else { prefix });
        if !prefix.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(invalid(
                "signature.prefix",
                prefix,
                "it must be visible ASCII characters",
            ));
        }
        Ok(Some(Signature {
            secret,
            check,
            header: name_of_header("signature.header", own.unwrap_or(header))?,
            prefix: prefix.to_owned(),
        }))
    }
}

impl WebhookTarget {
    /// What the options say.
    ///
    /// # Errors
    /// One is missing, or has a value that it cannot have.
    pub(crate) fn new(given: &mut Given<'_>) -> SqlResult<WebhookTarget> {
        const TIMEOUT: &str = "timeout";
        const ROOTS: &str = "ssl.root.cert";
        let url = given.text("url");
        let url = address(url.ok_or_else(|| given.missing("url", "'https://host/path'"))?)?;
        let timeout = given.length(TIMEOUT)?.unwrap_or(TIMEOUT_DEFAULT_MICROS);
        if !(100_000..=300_000_000).contains(&timeout) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("option \"{TIMEOUT}\" must be from 100 ms to 5 minutes"),
            ));
        }
        let tls_roots = given.text(ROOTS);
        if let Some(path) = tls_roots.filter(|path| !path.starts_with('/')) {
            return Err(invalid(ROOTS, path, "it must be an absolute path"));
        }
        let signature = Signature::given(given)?;
        if let Some(signature) = &signature
            && RESERVED.contains(&signature.header.as_str())
        {
            let why = "it is a header that the sink itself sends";
            return Err(invalid("signature.header", &signature.header, why));
        }
        let bodies = [("json", Body::Json), ("ndjson", Body::Lines)];
        let bytes_max = match given.text("max_request_size") {
            None => BYTES_MAX_DEFAULT,
            Some(text) => units::size(text)
                .ok()
                .filter(|bytes| (1..=64 << 20).contains(bytes))
                .ok_or_else(|| {
                    invalid(
                        "max_request_size",
                        text,
                        "it must be a size of at most 64MB, such as '1MB'",
                    )
                })?,
        };
        Ok(WebhookTarget {
            url,
            signature,
            body: given.one_of("body", &bodies)?.unwrap_or(Body::Json),
            timeout: Duration::from_micros(timeout),
            tls_roots: tls_roots.map(PathBuf::from),
            rows_max: given
                .number("max_row_count", 1..=100_000)?
                .unwrap_or(ROWS_MAX_DEFAULT),
            bytes_max,
        })
    }

    /// The address without what may be secret in it.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }
}

/// Headers of a sink's requests that no signature may take the place of.
const RESERVED: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "millrace-sink",
    "millrace-step",
    "transfer-encoding",
];

fn address(text: &str) -> SqlResult<Url> {
    let wrong = |why: &str| Err(invalid("url", text, why));
    // What somebody wrote by mistake as a password must not be said again.
    let Ok(url) = Url::parse(text) else {
        return wrong("it must be like https://host/path");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "option \"url\" must not have a user or a password: everybody who sees the catalog would see them",
        )
        .with_hint("Use signature = 'token' and secret = SECRET s, which are sent in a header."));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return wrong("it must begin with https:// or http://");
    }
    if url.fragment().is_some() {
        return wrong("the part after # would not be sent");
    }
    match url.host() {
        Some(Host::Domain("")) => wrong("it must have the name of a host"),
        Some(_) => Ok(url),
        None => wrong("it must have the name of a host"),
    }
}

fn name_of_header(option: &str, name: &str) -> SqlResult<String> {
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match is_name {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(invalid(option, name, "it must be the name of a header")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn target(options: &[(&str, &str)]) -> SqlResult<WebhookTarget> {
        let all: BTreeMap<String, String> = (options.iter())
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut given = Given::new("webhook", &all);
        let target = WebhookTarget::new(&mut given)?;
        given.finish()?;
        Ok(target)
    }

    #[test]
    fn options_say_where_it_goes() {
        let url = ("url", "https://hooks.example.com/in?key=hidden");
        let plain = target(&[url]).unwrap();
        assert_eq!(plain.shown(), "https://hooks.example.com/in");
        assert_eq!((plain.signature, plain.body), (None, Body::Json));
        let signed = target(&[url, ("secret.env", "HOOK"), ("body", "ndjson")]).unwrap();
        assert_eq!(signed.body, Body::Lines);
        let signature = signed.signature.unwrap();
        assert_eq!(
            (signature.header.as_str(), signature.prefix.as_str()),
            ("x-hub-signature-256", "sha256=")
        );
        for wrong in [
            vec![],
            vec![("url", "hooks.example.com")],
            vec![("url", "ftp://hooks.example.com")],
            vec![("url", "https://")],
            vec![("url", "https://hooks.example.com/#a")],
            vec![url, ("timeout", "1 ms")],
            vec![url, ("body", "xml")],
            vec![url, ("signature", "token")],
            vec![url, ("secret.env", "HOOK"), ("signature.header", "Host")],
            vec![url, ("secret.env", "HOOK"), ("signature.prefix", "a\nb")],
            vec![url, ("max_request_size", "1TB")],
            vec![url, ("ssl.root.cert", "ca.pem")],
        ] {
            assert!(target(&wrong).is_err(), "{wrong:?}");
        }
        for hidden in [
            vec![("url", "https://ann:hidden@hooks.example.com/")],
            vec![url, ("secret", "hidden")],
        ] {
            assert!(!format!("{:?}", target(&hidden).unwrap_err()).contains("hidden"));
        }
        let misspelt = target(&[url, ("time_out", "1 s")]).unwrap_err();
        assert!(misspelt.hint.unwrap().contains("\"timeout\""));
    }
}
