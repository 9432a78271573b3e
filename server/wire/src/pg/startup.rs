//! From the first byte to ReadyForQuery: encryption offers, cancel requests, authentication, parameters.
//!
//! Without a password every client is let in (the server listens on loopback only, or was told to be insecure); with
//! one, SCRAM-SHA-256 is asked for, so that the password never crosses the network.

use bytes::{Buf, Bytes, BytesMut};
use millrace_postgres::error::{SqlError, SqlState};
use pgwire::api::auth::Password;
use pgwire::api::auth::sasl::SCRAM_SHA_256_METHOD;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramServerAuth, gen_salted_password};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::startup::{
    Authentication, NegotiateProtocolVersion, ParameterStatus, PasswordMessageFamily, Startup,
};
use pgwire::messages::{
    DecodeContext, Message, PgWireBackendMessage, PgWireFrontendMessage, ProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::frame;
use super::wire::{Closed, Wire};
use crate::tls::Encrypt;

/// The users that exist: ours, and RisingWave's.
pub const USERS: [&str; 3] = ["millrace", "dev", "root"];

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// What a new connection turned out to be.
pub enum Hello {
    /// It asks for another session's statement to be cancelled, and is then closed.
    Cancel(CancelRequest),
    /// A client that wants a session.
    Session(SessionRequest),
}

/// A client that wants a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The user's name.
    pub user: String,
    /// The database; the user's name if none was given.
    pub database: String,
    /// What the client calls itself.
    pub application: String,
    /// Everything else it said, to be applied as settings.
    pub options: Vec<(String, String)>,
    /// The version that both sides speak.
    pub version: ProtocolVersion,
}

/// The password, salted once at start-up as SCRAM needs it.
pub struct PasswordVerifier {
    salt: Vec<u8>,
    salted_password: Vec<u8>,
}

impl PasswordVerifier {
    /// Salts a password.
    pub fn new(password: &str) -> Self {
        let salt = uuid::Uuid::new_v4().into_bytes().to_vec();
        let salted_password = gen_salted_password(password, &salt, SCRAM_ITERATIONS);
        PasswordVerifier {
            salt,
            salted_password,
        }
    }
}

/// Answers offers of encryption until the client says what it wants.
pub async fn hello<S: Encrypt>(wire: &mut Wire<S>) -> Result<Hello, Closed> {
    loop {
        let mut packet = wire.receive_startup().await?;
        let code = (&packet[4..]).get_i32();
        match code {
            SSL_REQUEST => {
                let can = wire.stream().can_encrypt();
                let answer = if can {
                    SslResponse::Accept
                } else {
                    SslResponse::Refuse
                };
                wire.put(&PgWireBackendMessage::SslResponse(answer))?;
                wire.flush().await?;
                if can {
                    wire.encrypt()?;
                }
            }
            GSS_REQUEST => {
                wire.put(&PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse))?;
                wire.flush().await?;
            }
            CANCEL_REQUEST => {
                let decoded = CancelRequest::decode(&mut packet, &DecodeContext::default());
                return decoded
                    .ok()
                    .flatten()
                    .map(Hello::Cancel)
                    .ok_or_else(|| violation("malformed cancel request"));
            }
            version => return session_request(wire, version, &mut packet).map(Hello::Session),
        }
    }
}

fn session_request<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    code: i32,
    packet: &mut BytesMut,
) -> Result<SessionRequest, Closed> {
    let (major, minor) = ((code >> 16) as u16, code as u16);
    if major != 3 {
        return Err(violation(&format!(
            "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"
        )));
    }
    if let Err(error) = std::str::from_utf8(&packet[8..]) {
        let message = format!(
            "the start-up packet is not UTF-8 (byte {})",
            error.valid_up_to() + 9
        );
        return Err(Closed::Fatal(SqlError::new(
            SqlState::CharacterNotInRepertoire,
            message,
        )));
    }
    let startup = Startup::decode(packet, &DecodeContext::default())
        .ok()
        .flatten()
        .ok_or_else(|| violation("malformed start-up packet"))?;

    let mut parameters = startup.parameters;
    let unknown_options: Vec<String> = parameters
        .keys()
        .filter(|name| name.starts_with("_pq_."))
        .cloned()
        .collect();
    parameters.retain(|name, _| !name.starts_with("_pq_."));
    let version = ProtocolVersion::from_version_number(major, minor);
    if version.is_none() || !unknown_options.is_empty() {
        let newest = ProtocolVersion::PROTOCOL3_2;
        wire.put(&PgWireBackendMessage::NegotiateProtocolVersion(
            NegotiateProtocolVersion::new(version.unwrap_or(newest).into(), unknown_options),
        ))?;
    }

    let user = parameters
        .remove("user")
        .filter(|user| !user.is_empty())
        .ok_or_else(|| {
            Closed::Fatal(SqlError::new(
                SqlState::InvalidAuthorizationSpecification,
                "no PostgreSQL user name specified in startup packet",
            ))
        })?;
    if parameters
        .remove("replication")
        .is_some_and(|value| value != "false" && value != "off" && value != "0")
    {
        return Err(Closed::Fatal(SqlError::unsupported(
            "replication connections are not supported",
        )));
    }
    let database = parameters
        .remove("database")
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| user.clone());
    Ok(SessionRequest {
        user,
        database,
        application: parameters.remove("application_name").unwrap_or_default(),
        options: parameters.into_iter().collect(),
        version: version.unwrap_or(ProtocolVersion::PROTOCOL3_2),
    })
}

/// Makes sure that the client is who it says. Nothing is sent on success: the caller ends with [`welcome`].
pub async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    user: &str,
    verifier: Option<&PasswordVerifier>,
) -> Result<(), Closed> {
    if let Some(verifier) = verifier {
        scram(wire, user, verifier).await?;
    }
    if USERS.contains(&user) {
        return Ok(());
    }
    let error = SqlError::new(
        SqlState::InvalidAuthorizationSpecification,
        format!("role \"{user}\" does not exist"),
    )
    .with_hint("Connect as user \"millrace\", for example: psql -U millrace -d millrace");
    Err(Closed::Fatal(error))
}

async fn scram<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    user: &str,
    verifier: &PasswordVerifier,
) -> Result<(), Closed> {
    let wrong = |error| wrong_password(user, error);
    send(wire, Authentication::SASL(vec![SCRAM_SHA_256_METHOD.to_owned()])).await?;

    let body = receive_password(wire).await?;
    frame::check_sasl_initial(&body).map_err(Closed::Fatal)?;
    let first = PasswordMessageFamily::Raw(body)
        .into_sasl_initial_response()
        .map_err(wrong)?;
    if first.auth_method != SCRAM_SHA_256_METHOD {
        return Err(violation(
            "client selected an invalid SASL authentication mechanism",
        ));
    }
    let password = Password::new(Some(verifier.salt.clone()), verifier.salted_password.clone());
    let data = first.data.unwrap_or_default();
    let (server_first, waiting) = ScramServerAuth::new()
        .on_client_first_message(&data, password)
        .map_err(wrong)?;
    send(wire, Authentication::SASLContinue(Bytes::from(server_first))).await?;

    let body = receive_password(wire).await?;
    let server_final = waiting.on_client_final_message(&body).map_err(wrong)?;
    wire.put(&PgWireBackendMessage::Authentication(Authentication::SASLFinal(
        Bytes::from(server_final),
    )))
}

async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    message: Authentication,
) -> Result<(), Closed> {
    wire.put(&PgWireBackendMessage::Authentication(message))?;
    wire.flush().await
}

async fn receive_password<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>) -> Result<BytesMut, Closed> {
    match wire.receive().await? {
        PgWireFrontendMessage::PasswordMessageFamily(PasswordMessageFamily::Raw(body)) => Ok(body),
        PgWireFrontendMessage::Terminate(_) => Err(Closed::ByClient),
        _ => Err(violation("expected SASL response")),
    }
}

/// What failed in SCRAM is a wrong password unless pgwire has a more special code.
fn wrong_password(user: &str, error: PgWireError) -> Closed {
    if matches!(error, PgWireError::InvalidPassword(_)) {
        let message = format!("password authentication failed for user \"{user}\"");
        return Closed::Fatal(SqlError::new(SqlState::InvalidPassword, message));
    }
    violation(&ErrorInfo::from(error).message)
}

/// Tells the client that it is in: the parameters that drivers wait for, and how to cancel.
pub fn welcome<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    parameters: Vec<(String, String)>,
) -> Result<(), Closed> {
    for (name, value) in parameters {
        wire.put(&PgWireBackendMessage::ParameterStatus(ParameterStatus::new(
            name, value,
        )))?;
    }
    Ok(())
}

fn violation(message: &str) -> Closed {
    Closed::Fatal(SqlError::new(SqlState::ProtocolViolation, message))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn packet(code: i32, rest: &[u8]) -> Vec<u8> {
        [
            &(rest.len() as i32 + 8).to_be_bytes()[..],
            &code.to_be_bytes(),
            rest,
        ]
        .concat()
    }

    async fn hello_to(bytes: &[u8]) -> (Result<Hello, Closed>, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(4_096);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut wire = Wire::new(server, 1_000);
        let hello = hello(&mut wire).await;
        let _ = wire.flush().await;
        drop(wire);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        (hello, answer)
    }

    #[tokio::test]
    async fn encryption_is_declined_and_the_start_up_read() {
        let start_up = packet(
            196_608,
            b"user\0ann\0database\0d\0application_name\0psql\0client_encoding\0UTF8\0\0",
        );
        let (hello, answer) =
            hello_to(&[packet(GSS_REQUEST, b""), packet(SSL_REQUEST, b""), start_up].concat()).await;
        let Ok(Hello::Session(request)) = hello else {
            panic!("not a session")
        };
        assert_eq!(answer, b"NN");
        assert_eq!((request.user.as_str(), request.database.as_str()), ("ann", "d"));
        assert_eq!(request.application, "psql");
        assert_eq!(
            request.options,
            [("client_encoding".to_owned(), "UTF8".to_owned())]
        );
    }

    #[tokio::test]
    async fn a_newer_minor_version_is_negotiated_down() {
        let (hello, answer) = hello_to(&packet((3 << 16) | 9_999, b"user\0u\0_pq_.x\x001\0\0")).await;
        let Ok(Hello::Session(request)) = hello else {
            panic!("not a session")
        };
        assert_eq!(request.version, ProtocolVersion::PROTOCOL3_2);
        assert_eq!(request.database, "u");
        assert_eq!(answer[0], b'v');
        assert!(request.options.is_empty());
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        for bytes in [
            packet(131_072, b"user\0u\0\0"),
            packet(196_608, b"\0"),
            packet(CANCEL_REQUEST, b"\0\0"),
            b"GET / HTTP/1.1".to_vec(),
        ] {
            assert!(matches!(hello_to(&bytes).await.0, Err(Closed::Fatal(_))));
        }
    }
}
