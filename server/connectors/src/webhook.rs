//! A service that takes the rows of a sink over HTTP: one request a step, the same and with the same number however often it is sent.
//!
//! ```text
//!  step 7 --> POST <url>  Idempotency-Key: <sink>-7, signature of the body --> 2xx: it has it
//!                                 | 408, 425, 429, 5xx, no answer: again, a little later
//!                                 ` 3xx, other 4xx: the sink has failed
//! ```
//! Nobody says how far it is, so a request whose answer was lost is sent again. It must not be led where only this machine can go: names are
//! resolved once for each connection, and what is connected to is an address that was looked at. Redirects are not followed, proxies not used.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use chrono::{DateTime, FixedOffset};
use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_catalog::connector::webhook::{Body, Check, Signature, WebhookTarget};
use millrace_catalog::sink::WebhookSink;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use ring::hmac;
use url::Host;

use crate::source::ConnectorError;
use crate::target::{Message, Reached, Said, Writer};
use crate::trusting::trusting;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How much of an answer is read, and how much of that is told.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const ANSWER_CHARS_SHOWN: usize = 200;
/// The longest that a service may ask to be left alone.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// See the module.
pub struct WebhookWriter {
    target: WebhookTarget,
    id: String,
    client: Client,
}

impl WebhookWriter {
    /// Makes ready to send. Nothing is sent yet.
    ///
    /// # Errors
    /// The address is one that may not be written to; the authority's certificate cannot be read.
    pub async fn open(
        sink: &WebhookSink,
        hosts: &Arc<PrivateHosts>,
    ) -> Result<WebhookWriter, ConnectorError> {
        let target = sink
            .target()
            .map_err(|error| ConnectorError::lasting(error.message, "Create the sink again."))?;
        // An address itself is not resolved.
        let literal = match target.url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            Some(Host::Domain(_)) | None => None,
        };
        if let Some(address) = literal
            && !hosts.may_reach(&address.to_string(), address)
        {
            return Err(Private(format!("{address} is")).into());
        }
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .timeout(target.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Resolver(Arc::clone(hosts))));
        let client = trusting(client, target.tls_roots.as_deref()).await?;
        let client = client.build();
        Ok(WebhookWriter {
            client: client.map_err(|error| ConnectorError::passing(error.to_string()))?,
            target,
            id: sink.id.clone(),
        })
    }

    /// Looks whether somebody answers, without sending anything. What they answer to that is not what they answer to rows: only a redirect
    /// is the same.
    ///
    /// # Errors
    /// Nobody answers, or the address may not be written to; the secret cannot be read.
    pub async fn check(sink: &WebhookSink, hosts: &Arc<PrivateHosts>) -> Result<(), ConnectorError> {
        let writer = Self::open(sink, hosts).await?;
        writer.signed(HeaderMap::new(), &Bytes::new()).await?;
        let request = writer.client.request(Method::OPTIONS, writer.target.url.clone());
        let answer = writer.send(request).await?;
        match answer.status().is_redirection() {
            true => Err(writer.judge(answer).await),
            false => Ok(()),
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ConnectorError> {
        request.send().await.map_err(|error| self.failed(&error))
    }

    /// Headers with what shows who sends. The secret is read each time: it may be another one by now.
    async fn signed(&self, mut headers: HeaderMap, body: &Bytes) -> Result<HeaderMap, ConnectorError> {
        let Some(signature) = &self.target.signature else {
            return Ok(headers);
        };
        let (secret, shown) = (signature.secret.clone(), signature.clone());
        let body = body.clone();
        // A secret may be in a file, and hashing is long for a processor that others wait for.
        let made = tokio::task::spawn_blocking(move || Ok(sign(&shown, &secret.read()?, &body)));
        let value = made
            .await
            .map_err(|error| ConnectorError::passing(error.to_string()))?
            .map_err(|error: millrace_postgres::error::SqlError| ConnectorError::passing(error.message))?;
        let value = value.and_then(|value| {
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            let name = reqwest::header::HeaderName::try_from(signature.header.as_str()).ok()?;
            Some((name, value))
        });
        let Some((name, value)) = value else {
            return Err(ConnectorError::lasting(
                "the secret has characters that a header cannot have",
                "Use signature = 'hmac-sha256', or a secret of visible ASCII characters.",
            ));
        };
        headers.insert(name, value);
        Ok(headers)
    }

    /// What an answer means that is no success.
    async fn judge(&self, answer: Response) -> ConnectorError {
        let (status, url) = (answer.status(), self.target.shown());
        if status.is_redirection() {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            return ConnectorError::lasting(
                format!(
                    "{url} redirects to {}, which is not followed",
                    cut(to.unwrap_or("nowhere"), ANSWER_CHARS_SHOWN)
                ),
                "Create the sink again with the address that takes the rows.",
            );
        }
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = header(RETRY_AFTER).and_then(|value| wait(value, header(DATE)));
        let said = beginning(answer).await;
        let message = match cut(said.trim(), ANSWER_CHARS_SHOWN).as_str() {
            "" => format!("{url} answers {status}"),
            said => format!("{url} answers {status}: {said}"),
        };
        if !may_pass(status) {
            let hint = "Find out why it refuses the rows, and run RESUME SINK; or drop the sink.";
            return ConnectorError::lasting(message, hint);
        }
        ConnectorError {
            retry_after: retry_after.unwrap_or_default(),
            ..ConnectorError::passing(message)
        }
    }

    /// Why there is no answer.
    fn failed(&self, error: &reqwest::Error) -> ConnectorError {
        let url = self.target.shown();
        let mut bottom: &dyn Error = error;
        while let Some(deeper) = bottom.source() {
            if let Some(private) = deeper.downcast_ref::<Private>() {
                return private.clone().into();
            }
            bottom = deeper;
        }
        if error.is_connect() && error.is_timeout() {
            return ConnectorError::passing(format!(
                "{url}: no connection within {} seconds",
                CONNECT.as_secs()
            ));
        }
        if error.is_timeout() {
            return ConnectorError::passing(format!(
                "{url}: no answer within {} seconds",
                self.target.timeout.as_secs_f64()
            ));
        }
        ConnectorError::passing(format!("{url}: {bottom}"))
    }
}

#[async_trait]
impl Writer for WebhookWriter {
    fn reached(&self) -> Said {
        Said::AtLeast(None)
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let step = reached.next - 1;
        let lines = messages
            .into_iter()
            .find_map(|message| message.value)
            .unwrap_or_default();
        let (content_type, body) = match self.target.body {
            Body::Lines => ("application/x-ndjson", lines),
            Body::Json => ("application/json", array(&lines)),
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        for (name, value) in [
            ("idempotency-key", format!("{}-{step}", self.id)),
            ("millrace-sink", self.id.clone()),
            ("millrace-step", step.to_string()),
        ] {
            let value =
                HeaderValue::try_from(value).map_err(|error| ConnectorError::passing(error.to_string()))?;
            headers.insert(name, value);
        }
        let headers = self.signed(headers, &body).await?;
        let request = self
            .client
            .post(self.target.url.clone())
            .headers(headers)
            .body(body);
        let answer = self.send(request).await?;
        if !answer.status().is_success() {
            return Err(self.judge(answer).await);
        }
        // Read to its end, so that the connection can be used again; that it was taken is known already.
        beginning(answer).await;
        Ok(())
    }

    async fn close(&self) {}
}

/// Whether it makes sense to ask again after such an answer.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// What stands in the header of a signature; none: the secret cannot be in one.
fn sign(signature: &Signature, secret: &[u8], body: &[u8]) -> Option<String> {
    let mac = || hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    let mut value = signature.prefix.clone();
    match signature.check {
        Check::Token => value.push_str(std::str::from_utf8(secret).ok()?),
        Check::HmacHex => {
            for byte in mac().as_ref() {
                let _ = write!(value, "{byte:02x}");
            }
        }
        Check::HmacBase64 => STANDARD.encode_string(mac(), &mut value),
    }
    Some(value)
}

/// Lines with an object each as one array.
fn array(lines: &Bytes) -> Bytes {
    let mut array = BytesMut::with_capacity(lines.len() + 2);
    let mut before = b'[';
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        array.put_u8(before);
        array.put_slice(line);
        before = b',';
    }
    if array.is_empty() {
        array.put_u8(b'[');
    }
    array.put_u8(b']');
    array.freeze()
}

/// How long is to be waited by a Retry-After: seconds, or a moment by the clock of whoever answers.
fn wait(value: &str, their_now: Option<&str>) -> Option<Duration> {
    let moment =
        |text: &str| -> Option<DateTime<FixedOffset>> { DateTime::parse_from_rfc2822(text.trim()).ok() };
    let wait = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let wait = moment(value)?.signed_duration_since(moment(their_now?)?);
            wait.to_std().unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// What an answer begins with.
async fn beginning(mut answer: Response) -> String {
    let mut body = vec![];
    while let Ok(Some(piece)) = answer.chunk().await {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// The beginning of a text, on one line.
fn cut(text: &str, chars: usize) -> String {
    let mut shown: String = (text.chars().take(chars))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(chars).is_some() {
        shown.push_str("..");
    }
    shown
}

/// Names are resolved to addresses that may be connected to, and to no others.
struct Resolver(Arc<PrivateHosts>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let hosts = Arc::clone(&self.0);
        Box::pin(async move {
            let name = name.as_str();
            // The port is put there by whoever connects.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            let (may, private): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|address| hosts.may_reach(name, address.ip()));
            match (may.is_empty(), private.first()) {
                (true, Some(address)) => {
                    let refused = Private(format!("{name} is at {}, which is", address.ip()));
                    Err(Box::new(refused) as Box<dyn Error + Send + Sync>)
                }
                _ => Ok(Box::new(may.into_iter()) as Addrs),
            }
        })
    }
}

/// A host may not be written to: where it is.
#[derive(Debug, Clone)]
struct Private(String);

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} an address of this machine or its network, to which sinks may not send",
            self.0
        )
    }
}

impl Error for Private {}

impl From<Private> for ConnectorError {
    fn from(private: Private) -> Self {
        ConnectorError::lasting(
            private.to_string(),
            "The server's administrator can allow hosts: webhook_private_hosts in its configuration.",
        )
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::connector::secret::Secret;

    use super::*;

    #[test]
    fn a_signature_is_what_others_compute() {
        // From GitHub's documentation of webhooks.
        let (secret, body) = (b"It's a Secret to Everybody", b"Hello, World!");
        let signed = |check, prefix: &str| {
            let signature = Signature {
                secret: Secret::Env(String::new()),
                check,
                header: "x".to_owned(),
                prefix: prefix.to_owned(),
            };
            sign(&signature, secret, body).unwrap()
        };
        let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(signed(Check::HmacHex, "sha256="), format!("sha256={hex}"));
        assert_eq!(
            signed(Check::HmacBase64, ""),
            "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc="
        );
        assert_eq!(
            signed(Check::Token, "Bearer "),
            "Bearer It's a Secret to Everybody"
        );
    }

    #[test]
    fn lines_become_an_array() {
        let array = |text: &'static str| String::from_utf8(array(&Bytes::from(text)).to_vec()).unwrap();
        assert_eq!(array("{\"a\":1}\n{\"a\":2}\n"), "[{\"a\":1},{\"a\":2}]");
        assert_eq!(array("{}\n"), "[{}]");
        assert_eq!(array(""), "[]");
    }

    #[test]
    fn who_asks_for_time_gets_it() {
        let now = Some("Wed, 21 Oct 2015 07:27:00 GMT");
        let wait = |value: &str| super::wait(value, now).map(|wait| wait.as_secs());
        assert_eq!(wait(" 7 "), Some(7));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60));
        assert_eq!(wait("Wed, 21 Oct 2015 07:20:00 GMT"), Some(0));
        assert_eq!(wait("99999999"), Some(3_600));
        assert_eq!(super::wait("Wed, 21 Oct 2015 07:28:00 GMT", None), None);
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
    }

    #[test]
    fn what_is_told_of_an_answer_is_short_and_one_line() {
        assert_eq!(cut("a\nb\u{1b}c", 10), "a b c");
        assert_eq!(cut("äöü", 2), "äö..");
        for (status, passes) in [
            (500, true),
            (503, true),
            (429, true),
            (408, true),
            (400, false),
            (401, false),
            (410, false),
        ] {
            assert_eq!(
                may_pass(StatusCode::from_u16(status).unwrap()),
                passes,
                "{status}"
            );
        }
    }
}
