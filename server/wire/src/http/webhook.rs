//! `POST /api/webhook/{stream}`: rows that another service sends, JSON objects, with a signature in place of the password.
//!
//! A stream that does not exist and a signature that is wrong have the same answer: who does not know the secret learns nothing.
//! Everything after the check is as in [`super::ingest`]: all or nothing, durable when it is answered, and a delivery that comes again
//! with the same id is not taken twice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, State as Extracted};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use millrace_catalog::connector::webhook::{Check, Signature};
use millrace_database::ingest_keys::KEY_BYTES_MAX;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_session::copy_in::IngestFormat;
use parking_lot::Mutex;
use ring::hmac;

use super::ingest::{Door, Request, Wait, answer, session};
use super::negotiate::media_type;
use super::request::Whole;
use super::{State, error};
use crate::login::decode_base64;
use millrace_auth::same;

/// How often it is told of a stream that its deliveries cannot be checked.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Takes a delivery.
pub async fn post(
    Extracted(state): Extracted<State>,
    Path(stream): Path<String>,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Response {
    let session = match session(&state) {
        Ok(session) => session,
        Err(error) => return error::response(&error),
    };
    let webhook = match session.webhook(&stream) {
        Ok(webhook) => webhook,
        Err(why) => {
            // That there is none is no news.
            if !matches!(why.code, SqlState::UndefinedTable | SqlState::WrongObjectType) {
                cannot_check(&stream, &why);
            }
            return refused();
        }
    };
    let secret = {
        let secret = webhook.signature.secret.clone();
        session.compute(move || secret.read()).await
    };
    let secret = match secret {
        Ok(secret) => secret,
        Err(why) => {
            cannot_check(&stream, &why);
            return refused();
        }
    };
    if !is_signed(&webhook.signature, &secret, &headers, &body) {
        tracing::debug!(
            stream,
            "a request to a webhook was refused: its signature is missing or wrong"
        );
        return refused();
    }
    let key = match &webhook.id_header {
        None => None,
        Some(name) => match headers.get(name).map(|id| id.to_str()) {
            Some(Ok(id)) if (1..=KEY_BYTES_MAX).contains(&id.len()) => Some(id.to_owned()),
            _ => {
                let message =
                    format!("header {name} must have 1 to {KEY_BYTES_MAX} visible ASCII characters");
                return error::plain(StatusCode::BAD_REQUEST, &message);
            }
        },
    };
    let content_type = media_type(&headers, header::CONTENT_TYPE);
    if content_type != "application/json" && !content_type.ends_with("+json") {
        let message = format!("Content-Type must be application/json, not \"{content_type}\"");
        return error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
    }
    let request = Request {
        state,
        relation: stream,
        format: IngestFormat::JsonArray,
        wait: Wait::Durable,
        key,
        door: Door::Webhook,
    };
    answer(request, Body::from(as_array(&body))).await
}

/// Says why deliveries are refused that may be sound, and once a minute of each stream: whoever sends them tries again and again.
fn cannot_check(stream: &str, why: &SqlError) {
    static TOLD: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());
    let now = Instant::now();
    let mut told = TOLD.lock();
    told.retain(|_, at| now.duration_since(*at) < TOLD_EVERY);
    if let Entry::Vacant(entry) = told.entry(stream.to_owned()) {
        entry.insert(now);
        tracing::warn!(
            stream,
            error = why.message,
            "deliveries to a webhook are answered 401: its secret cannot be read"
        );
    }
}

fn refused() -> Response {
    let refusal = SqlError::new(
        SqlState::InvalidAuthorizationSpecification,
        "there is no such webhook, or the signature is missing or wrong",
    );
    error::response(&refusal)
}

/// Whether the sender knows the secret.
fn is_signed(signature: &Signature, secret: &[u8], headers: &HeaderMap, body: &[u8]) -> bool {
    let given = headers
        .get(&signature.header)
        .and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|given| given.strip_prefix(signature.prefix.as_str())) else {
        return false;
    };
    let tag = match signature.check {
        Check::Token => return same(given.as_bytes(), secret),
        Check::HmacHex => decode_hex(given),
        Check::HmacBase64 => decode_base64(given),
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    tag.is_some_and(|tag| hmac::verify(&key, body, &tag).is_ok())
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?).ok()
    };
    text.as_bytes().chunks(2).map(digits).collect()
}

/// An object is one row; an array is one for each of its objects.
fn as_array(body: &Bytes) -> Bytes {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {
            let mut array = BytesMut::with_capacity(body.len() + 2);
            array.extend_from_slice(b"[");
            array.extend_from_slice(body);
            array.extend_from_slice(b"]");
            array.freeze()
        }
        _ => body.clone(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use millrace_catalog::connector::secret::Secret;

    use super::*;

    fn signed(check: Check, prefix: &str, value: &str, body: &str) -> bool {
        let signature = Signature {
            secret: Secret::Env("S".to_owned()),
            check,
            header: "x-s".to_owned(),
            prefix: prefix.to_owned(),
        };
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-s"), value.parse().unwrap())]);
        is_signed(
            &signature,
            b"It's a Secret to Everybody",
            &headers,
            body.as_bytes(),
        )
    }

    #[test]
    fn a_signature_is_checked_as_github_documents_it() {
        const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(signed(Check::HmacHex, "sha256=", SIGNATURE, "Hello, World!"));
        assert!(!signed(Check::HmacHex, "sha256=", SIGNATURE, "Hello, World?"));
        assert!(!signed(Check::HmacHex, "", SIGNATURE, "Hello, World!"));
        assert!(!signed(Check::HmacHex, "sha256=", "sha256=", "Hello, World!"));
        assert!(!signed(Check::HmacHex, "sha256=", "sha256=757", "Hello, World!"));
        assert!(signed(
            Check::HmacBase64,
            "",
            "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc=",
            "Hello, World!"
        ));
        assert!(signed(
            Check::Token,
            "Bearer ",
            "Bearer It's a Secret to Everybody",
            "x"
        ));
        assert!(!signed(Check::Token, "Bearer ", "Bearer It's", "x"));
    }

    #[test]
    fn one_object_is_one_row() {
        assert_eq!(as_array(&Bytes::from_static(b" {\"a\":1}")), "[ {\"a\":1}]");
        assert_eq!(as_array(&Bytes::from_static(b"[]")), "[]");
    }
}
