//! From the first byte to ReadyForQuery: encryption offers, cancel requests, authentication, parameters.
//!
//! Who has to show a password ([`Doors`]) does it by SCRAM-SHA-256, so that the password never crosses the network; over TLS also
//! with channel binding, so that nobody in between can use the exchange. A certificate of the client's takes its place.

use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use millrace_auth::scram::{self, Channel, Fault};
use millrace_auth::{Verifier, random};
use millrace_database::Database;
use millrace_postgres::error::{SqlError, SqlState};
use pgwire::error::ErrorInfo;
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
use crate::login::{Challenge, Doors};
use crate::tls::Encrypt;

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
pub async fn authenticate<S: Encrypt>(
    wire: &mut Wire<S>,
    user: &str,
    doors: &Doors,
    db: &Database,
    peer: &str,
) -> Result<(), Closed> {
    let shown = wire
        .stream()
        .encryption()
        .and_then(|encryption| encryption.client);
    if doors.is_shown_by(db, user, shown.as_deref()) {
        return Ok(());
    }
    let Challenge::Password { verifier, is_real } = doors.challenge(db, user).map_err(Closed::Fatal)? else {
        return Ok(());
    };
    match scram(wire, verifier).await? {
        Ok(last) if is_real => {
            let last = Authentication::SASLFinal(Bytes::from(last));
            wire.put(&PgWireBackendMessage::Authentication(last))
        }
        Err(fault @ (Fault::Malformed(_) | Fault::Binding(_))) => Err(violation(&fault.to_string())),
        Ok(_) | Err(Fault::Wrong) => {
            let peer = peer.parse().ok().map(|peer: SocketAddr| peer.ip());
            doors.refused(peer, user).await;
            let message = format!("password authentication failed for user \"{user}\"");
            Err(Closed::Fatal(SqlError::new(SqlState::InvalidPassword, message)))
        }
    }
}

/// The exchange by which the client shows that it knows the password. Its last message is not sent yet.
async fn scram<S: Encrypt>(wire: &mut Wire<S>, verifier: Verifier) -> Result<Result<String, Fault>, Closed> {
    let certificate = wire.stream().certificate_hash();
    let plain = scram::PLAIN.to_owned();
    let mechanisms = match certificate {
        Some(_) => vec![scram::PLUS.to_owned(), plain],
        None => vec![plain],
    };
    send(wire, Authentication::SASL(mechanisms)).await?;

    let body = receive_password(wire).await?;
    frame::check_sasl_initial(&body).map_err(Closed::Fatal)?;
    let first = PasswordMessageFamily::Raw(body)
        .into_sasl_initial_response()
        .map_err(|error| violation(&ErrorInfo::from(error).message))?;
    let channel = match (first.auth_method.as_str(), &certificate) {
        (scram::PLAIN, _) => Channel::Unbound {
            was_offered: certificate.is_some(),
        },
        (scram::PLUS, Some(certificate)) => Channel::Bound(certificate),
        _ => {
            return Err(violation(
                "client selected an invalid SASL authentication mechanism",
            ));
        }
    };
    let data = first.data.unwrap_or_default();
    let (server_first, waiting) = match scram::begin(&data, verifier, random(), channel) {
        Ok(begun) => begun,
        Err(fault) => return Ok(Err(fault)),
    };
    send(wire, Authentication::SASLContinue(Bytes::from(server_first))).await?;

    let body = receive_password(wire).await?;
    Ok(waiting.finish(&body))
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
