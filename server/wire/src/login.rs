//! Who may come in, on both listeners: what somebody who gives a name has to show, and what becomes of who cannot.
//!
//! | the role | a server with a password | a server without one |
//! |---|---|---|
//! | `millrace` | that password | its own password; none: let in |
//! | another, with a password of its own | its own password | its own password |
//! | another, without one | refused | let in, until `access_control` is on |
//! | unknown | refused, after an exchange like any other | refused |
//!
//! A client that has shown a certificate, signed by one of `tls_client_ca`, is let in as the role of that name, and shows nothing else.
//!
//! A wrong password is answered late, and later each time; it is the one thing that is logged at `warn` of the audit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use axum::http::{HeaderMap, header};
use millrace_auth::failures::Failures;
use millrace_auth::token::{PREFIX, TokenHash};
use millrace_auth::{Verifier, random};
use millrace_catalog::DEFAULT_USER;
use millrace_catalog::role::BOOTSTRAP;
use millrace_database::Database;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use ring::hmac;

/// Right passwords over HTTP that are remembered, so that not each request hashes one thousands of times.
const KNOWN_MAX: usize = 1_024;

/// What somebody has to show.
pub enum Challenge {
    /// Nothing.
    Open,
    /// The password of this verifier. Whoever is not `real` is refused in the end: it is asked so that nobody learns that.
    Password { verifier: Verifier, is_real: bool },
}

/// Who may come in.
pub struct Doors {
    /// The password of the configuration.
    password: Option<Verifier>,
    failures: Mutex<Failures>,
    key: hmac::Key,
    /// The hashes of users with their right passwords, and what these were checked by.
    known: Mutex<HashMap<Vec<u8>, Verifier>>,
}

impl Doors {
    /// Those of a server with this password of its configuration.
    pub fn new(password: Option<&str>) -> Self {
        Doors {
            password: password.map(Verifier::of),
            failures: Mutex::default(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()),
            known: Mutex::default(),
        }
    }

    /// Whether the name in a client's certificate lets it in as this user: it is the name of that role.
    pub fn is_shown_by(&self, db: &Database, user: &str, certificate: Option<&str>) -> bool {
        certificate == Some(user) && db.catalog().role(user).is_some()
    }

    /// What somebody who gives this name has to show.
    ///
    /// # Errors
    /// There is no such role, and nobody is kept from knowing it.
    pub fn challenge(&self, db: &Database, user: &str) -> SqlResult<Challenge> {
        let catalog = db.catalog();
        let role = catalog.login_role(user);
        let own = role.and_then(|role| role.role());
        let is_first = role.is_some_and(|role| role.id == BOOTSTRAP);
        let is_open = self.password.is_none() && !db.tuning().access_control;
        // It is made for everybody, so that it costs nobody more.
        let nobody = Verifier::of_nobody(user, &db.login_secret()?);
        let verifier = match (&self.password, own) {
            (Some(password), Some(_)) if is_first => Some((password, true)),
            (_, Some(own)) => own
                .verifier
                .as_ref()
                .map(|verifier| (verifier, own.is_valid_at(db.runtime().now()))),
            _ => None,
        };
        match (verifier, role) {
            (Some((verifier, is_real)), _) => Ok(Challenge::Password {
                verifier: verifier.clone(),
                is_real,
            }),
            (None, Some(_)) if is_open => Ok(Challenge::Open),
            (None, None) if is_open => Err(no_role(user)),
            (None, _) => Ok(Challenge::Password {
                verifier: nobody,
                is_real: false,
            }),
        }
    }

    /// Notes that somebody could not show what it had to, and holds the answer back.
    pub async fn refused(&self, peer: Option<IpAddr>, user: &str) {
        let peer = peer.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        tracing::warn!(target: "millrace::audit", event = "login failed", user, %peer);
        let wait = self.failures.lock().failed(peer, Instant::now());
        tokio::time::sleep(wait).await;
    }

    /// Who sends a request of HTTP, by its headers.
    ///
    /// # Errors
    /// It does not show what it has to.
    pub async fn of_request(
        &self,
        db: &Database,
        headers: &HeaderMap,
        certificate: Option<&str>,
        peer: Option<IpAddr>,
    ) -> SqlResult<String> {
        match self.known_by(db, headers, certificate)? {
            Ok(user) => Ok(user),
            Err(user) => {
                // Whoever shows nothing guesses nothing: a browser asks like that before it asks its user.
                if headers.contains_key(header::AUTHORIZATION) {
                    self.refused(peer, &user).await;
                }
                Err(
                    SqlError::new(SqlState::InvalidPassword, "the password is missing or wrong").with_hint(
                        "Send a user and its password with Basic, or a token or the server's password as \
                         \"Authorization: Bearer ..\".",
                    ),
                )
            }
        }
    }

    /// The user, or the name of whoever is not let in.
    fn known_by(
        &self,
        db: &Database,
        headers: &HeaderMap,
        certificate: Option<&str>,
    ) -> SqlResult<Result<String, String>> {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let Some((scheme, credentials)) = given.and_then(|given| given.split_once(' ')) else {
            // Whoever shows a certificate need not say a name.
            if let Some(user) = certificate.filter(|name| self.is_shown_by(db, name, certificate)) {
                return Ok(Ok(user.to_owned()));
            }
            return Ok(match self.challenge(db, DEFAULT_USER)? {
                Challenge::Open => Ok(DEFAULT_USER.to_owned()),
                Challenge::Password { .. } => Err(String::new()),
            });
        };
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return Ok(self.of_bearer(db, credentials));
        }
        let decoded = match scheme.eq_ignore_ascii_case("basic") {
            true => decode_base64(credentials).and_then(|bytes| String::from_utf8(bytes).ok()),
            false => None,
        };
        let Some((user, password)) = decoded.as_deref().and_then(|decoded| decoded.split_once(':')) else {
            return Ok(Err(String::new()));
        };
        let user = if user.is_empty() { DEFAULT_USER } else { user };
        Ok(match self.challenge(db, user)? {
            Challenge::Open => Ok(user.to_owned()),
            Challenge::Password { verifier, is_real } => {
                match self.is_right(user, password, &verifier) && is_real {
                    true => Ok(user.to_owned()),
                    false => Err(user.to_owned()),
                }
            }
        })
    }

    /// The bearer of a token, or of the password of the configuration.
    fn of_bearer(&self, db: &Database, given: &str) -> Result<String, String> {
        if given.starts_with(PREFIX) {
            return role_of(db, &TokenHash::of(given)).ok_or_else(|| "a token".to_owned());
        }
        match &self.password {
            Some(password) if self.is_right(DEFAULT_USER, given, password) => Ok(DEFAULT_USER.to_owned()),
            _ => Err("a token".to_owned()),
        }
    }

    fn is_right(&self, user: &str, password: &str, verifier: &Verifier) -> bool {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [user.as_bytes(), &[0], password.as_bytes()] {
            context.update(part);
        }
        let hash = context.sign().as_ref().to_vec();
        if self
            .known
            .lock()
            .get(&hash)
            .is_some_and(|known| known == verifier)
        {
            return true;
        }
        let is_right = verifier.accepts(password);
        if is_right {
            let mut known = self.known.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(hash, verifier.clone());
        }
        is_right
    }
}

/// The token that a request shows, if it shows one.
pub fn token_in(headers: &HeaderMap) -> Option<TokenHash> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    let is_token = scheme.eq_ignore_ascii_case("bearer") && token.trim().starts_with(PREFIX);
    is_token.then(|| TokenHash::of(token.trim()))
}

/// The role whose token it is, as long as it is valid.
pub fn role_of(db: &Database, token: &TokenHash) -> Option<String> {
    let now = db.runtime().now();
    let catalog = db.catalog();
    let role = catalog.roles().find(|role| {
        let mut tokens = role.role().into_iter().flat_map(|role| &role.tokens);
        tokens.any(|known| known.hash == *token && known.valid_until_us.is_none_or(|until| now < until))
    });
    role.map(|role| role.name.clone())
}

/// The error of a name that is no role's.
fn no_role(user: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidAuthorizationSpecification,
        format!("role \"{user}\" does not exist"),
    )
    .with_hint("Connect as user \"millrace\", for example: psql -U millrace -d millrace")
}

/// What a text in base64 says.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
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
