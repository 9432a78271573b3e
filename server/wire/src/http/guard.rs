//! Who may ask: the password, and no web page of somebody else's.
//!
//! A browser lets any page send a plain POST to an address on its user's machine, and with an image or a link a GET. A server
//! on loopback without a password would obey, so a request that says that it comes from another site is refused, and so is
//! one that reached loopback under a foreign host name (DNS rebinding). Browsers say where a request comes from in `Origin`, or else
//! in `Sec-Fetch-Site`; one that says neither is refused. Programs that are no browsers say nothing of the kind.

use std::net::IpAddr;

use axum::extract::{Request, State as Extracted};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use millrace_postgres::error::{SqlError, SqlState};

use super::{State, error};

/// Where a browser says that a request comes from, if it sends no `Origin`.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets a request pass that knows the password, if there is one: `Authorization: Basic` (any user) or `Bearer`.
pub async fn password(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    if let Some(password) = &state.password
        && !knows_password(request.headers(), password)
    {
        let refusal = SqlError::new(SqlState::InvalidPassword, "the password is missing or wrong")
            .with_hint("Send it as \"Authorization: Bearer PASSWORD\", or with Basic and user millrace.");
        return error::response(&refusal);
    }
    next.run(request).await
}

/// Requests that are worked on at a time.
pub const REQUESTS_MAX: usize = 256;

/// Lets so many requests in at a time.
pub async fn crowd(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    match state.requests.try_acquire() {
        Ok(_place) => next.run(request).await,
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
    if state.loopback_only && !host.is_none_or(is_local_host) {
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

fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn knows_password(headers: &HeaderMap, password: &str) -> bool {
    let Some(given) = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let Some((scheme, credentials)) = given.split_once(' ') else {
        return false;
    };
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return same(credentials.as_bytes(), password.as_bytes());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return false;
    }
    let Some(decoded) = decode_base64(credentials) else {
        return false;
    };
    let Some(colon) = decoded.iter().position(|byte| *byte == b':') else {
        return false;
    };
    same(&decoded[colon + 1..], password.as_bytes())
}

/// Compares without telling by the time taken where the first difference is.
pub(super) fn same(given: &[u8], expected: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(expected)
        .fold(0, |differences, (a, b)| differences | (a ^ b));
    given.len() == expected.len() && differences == 0
}

pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_comes_as_basic_or_bearer() {
        let knows = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            knows_password(&headers, "secret")
        };
        assert!(knows("Bearer secret"));
        // millrace:secret
        assert!(knows("Basic bWlsbHJhY2U6c2VjcmV0"));
        // millrace:secre
        assert!(!knows("Basic bWlsbHJhY2U6c2VjcmU="));
        assert!(!knows("Bearer secrets"));
        assert!(!knows("Basic !!!"));
        assert!(!knows_password(&HeaderMap::new(), "secret"));
    }

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
