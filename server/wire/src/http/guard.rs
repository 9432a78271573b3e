//! Who may ask: who shows who it is, and no web page of somebody else's.
//!
//! A browser lets any page send a plain POST to an address on its user's machine, and with an image or a link a GET. A server
//! on loopback without a password would obey, so a request that says that it comes from another site is refused, and so is
//! one that reached loopback under a foreign host name (DNS rebinding). Browsers say where a request comes from in `Origin`, or else
//! in `Sec-Fetch-Site`; one that says neither is refused. Programs that are no browsers say nothing of the kind.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State as Extracted};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use millrace_auth::token::TokenHash;
use millrace_database::sessions::Encryption;

use super::connections::Peer;
use super::patience::hold;
use super::{State, error};
use crate::login::token_in;

/// Where a browser says that a request comes from, if it sends no `Origin`.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who sent a request, once it was let in.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The user.
    pub user: String,
    /// The client's address.
    pub peer: String,
    /// How its connection is encrypted, if it is.
    pub encryption: Option<Encryption>,
    /// The token by which it was let in, if it was.
    pub token: Option<TokenHash>,
}

/// Lets a request pass whose sender shows who it is: a user with its password, or a token.
pub async fn login(Extracted(state): Extracted<State>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let peer = peer.map(|ConnectInfo(peer)| peer.clone());
    let encryption = peer.as_ref().and_then(|peer| peer.encryption.get().cloned());
    let db = match state.database.get() {
        Ok(db) => db,
        Err(error) => return error::response(&error),
    };
    let known = state
        .doors
        .of_request(
            &db,
            request.headers(),
            encryption
                .as_ref()
                .and_then(|encryption| encryption.client.as_deref()),
            peer.as_ref().map(|peer| peer.address.ip()),
        )
        .await;
    match known {
        Ok(user) => {
            let peer = peer.map_or_else(|| "http".to_owned(), |peer| peer.address.to_string());
            let token = token_in(request.headers());
            request.extensions_mut().insert(Sender {
                user,
                peer,
                encryption,
                token,
            });
            next.run(request).await
        }
        Err(refusal) => error::response(&refusal),
    }
}

/// The state of the server, for whoever sent the request.
pub struct Entered(pub State);

impl FromRequestParts<State> for Entered {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Entered, Infallible> {
        let mut state = state.clone();
        state.sender = parts.extensions.get().cloned();
        Ok(Entered(state))
    }
}

/// Requests that are worked on at a time.
pub const REQUESTS_MAX: usize = 256;

/// Lets so many requests in at a time, each until its answer is out.
pub async fn crowd(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    match Arc::clone(&state.requests).try_acquire_owned() {
        Ok(place) => hold(next.run(request).await, place),
        Err(_) => {
            let message = format!("too many requests: the limit is {REQUESTS_MAX}; try again in a moment");
            error::plain(StatusCode::TOO_MANY_REQUESTS, &message)
        }
    }
}

/// Refuses requests that another site's page makes a browser send.
pub async fn origin(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or(request.uri().authority().map(|a| a.as_str()));
    if !state.hosts.is_empty() && !host.is_some_and(|host| is_one_of(host, &state.hosts)) {
        return error::plain(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header is not a name of this server (http_hosts)",
        );
    }
    if state.hosts.is_empty() && state.loopback_only && !host.is_none_or(is_local_host) {
        return error::plain(
            StatusCode::FORBIDDEN,
            "the server listens on loopback only, and the Host header is not a name of this machine",
        );
    }
    if comes_from_another_site(headers, host) {
        return error::plain(
            StatusCode::FORBIDDEN,
            "requests from web pages of other sites are refused",
        );
    }
    next.run(request).await
}

/// Whether a page of another site made a browser send this.
fn comes_from_another_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(origin) = text(header::ORIGIN) {
        let origin = origin.split_once("://").map(|(_, host)| host);
        return origin.is_none() || origin != host;
    }
    match text(SEC_FETCH_SITE) {
        // `none`: the user typed the address.
        Some(site) => !matches!(site, "same-origin" | "none"),
        None => text(header::USER_AGENT).is_some_and(|agent| agent.starts_with("Mozilla/")),
    }
}

/// The name, without the port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_one_of(host: &str, names: &[String]) -> bool {
    let host = name_of(host);
    names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

fn is_local_host(host: &str) -> bool {
    let name = name_of(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        let refused = |headers: &[(&'static str, &str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            comes_from_another_site(&HeaderMap::from_iter(headers), Some("127.0.0.1:8033"))
        };
        assert!(!refused(&[]));
        assert!(!refused(&[("user-agent", "curl/8.5.0")]));
        assert!(!refused(&[("origin", "http://127.0.0.1:8033")]));
        assert!(refused(&[("origin", "http://evil.example")]));
        assert!(refused(&[("origin", "null")]));
        // An image, a link, and an address that the user typed.
        assert!(refused(&[BROWSER, ("sec-fetch-site", "cross-site")]));
        assert!(refused(&[BROWSER, ("sec-fetch-site", "same-site")]));
        assert!(!refused(&[BROWSER, ("sec-fetch-site", "same-origin")]));
        assert!(!refused(&[BROWSER, ("sec-fetch-site", "none")]));
        // Over plain HTTP to another machine browsers do not say it.
        assert!(refused(&[BROWSER]));
    }

    #[test]
    fn local_names_are_known() {
        for host in [
            "localhost:8033",
            "127.0.0.1:8033",
            "[::1]:8033",
            "localhost",
            "127.0.0.1",
        ] {
            assert!(is_local_host(host), "{host}");
        }
        for host in ["evil.example", "evil.example:8033", "localhost.evil.example"] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
