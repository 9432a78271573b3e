//! `connector = 'webhook'`: rows that another service sends over HTTP, signed with a secret that both know.
//!
//! The definition has the place of the secret (see [`super::secret`]), and never the secret.

use millrace_postgres::error::SqlResult;

use super::options::{Given, invalid};
use super::secret::Secret;

/// How requests for a stream are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub secret: Secret,
    pub check: Check,
    /// The header with the signature or the token, in lower case.
    pub header: String,
    /// What stands before it in the header.
    pub prefix: String,
    /// The header that tells two deliveries apart, in lower case; without it, each request is another one.
    pub id_header: Option<String>,
}

/// What shows that a request comes from somebody who knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// HMAC-SHA256 of the body, in hexadecimal digits.
    HmacHex,
    /// The same in base64.
    HmacBase64,
    /// The secret itself.
    Token,
}

impl Webhook {
    pub(super) fn new(given: &mut Given<'_>) -> SqlResult<Webhook> {
        let secret = Secret::given(given, "secret")?.ok_or_else(|| {
            given.missing(
                "secret",
                "SECRET and the name of a secret; or use secret.env or secret.file",
            )
        })?;
        let checks = [
            ("hmac-sha256", Check::HmacHex),
            ("hmac-sha256-base64", Check::HmacBase64),
            ("token", Check::Token),
        ];
        let check = given.one_of("signature", &checks)?.unwrap_or(Check::HmacHex);
        let (header, prefix) = match check {
            Check::HmacHex => ("x-hub-signature-256", "sha256="),
            Check::HmacBase64 => ("x-signature", ""),
            Check::Token => ("authorization", "Bearer "),
        };
        let own = given.text("signature.header");
        // A header of another name has nothing in front, unless it is said.
        let prefix = given
            .text("signature.prefix")
            .unwrap_or(if own.is_some() { "" } else { prefix });
        Ok(Webhook {
            secret,
            check,
            header: name_of_header("signature.header", own.unwrap_or(header))?,
            prefix: prefix.to_owned(),
            id_header: given
                .text("id.header")
                .map(|name| name_of_header("id.header", name))
                .transpose()?,
        })
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
