//! Where a message of the client ends, and whether its body is what its type promises.
//!
//! The bytes of a message are checked here before pgwire decodes them, so that a lying length, a cut field or garbage
//! becomes an error that the client is told, and never more than that: nothing is read past a message's end and no
//! memory is reserved for a length that nobody sent.

use bytes::Buf;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// The longest start-up packet, as in PostgreSQL.
const STARTUP_BYTES_MAX: usize = 10_000;
/// The shortest: length and code.
const STARTUP_BYTES_MIN: usize = 8;

/// Length of the start-up packet at the head of `bytes`, once its length field is there.
///
/// # Errors
/// The length is impossible: what is at the port does not speak PostgreSQL's protocol.
pub fn startup_length(bytes: &[u8]) -> SqlResult<Option<usize>> {
    let Some(mut header) = bytes.get(..4) else {
        return Ok(None);
    };
    let length = header.get_u32() as usize;
    if (STARTUP_BYTES_MIN..=STARTUP_BYTES_MAX).contains(&length) {
        return Ok(Some(length));
    }
    Err(violation(format!("invalid length of start-up packet: {length}"))
        .with_hint("This port is for the PostgreSQL protocol; HTTP has its own port."))
}

/// Length of the message at the head of `bytes`, its type included, once the length field is there.
///
/// # Errors
/// The type is unknown or the length is impossible or above `bytes_max`; the end of the message cannot be found then.
pub fn message_length(bytes: &[u8], bytes_max: usize) -> SqlResult<Option<usize>> {
    let Some(kind) = bytes.first() else {
        return Ok(None);
    };
    if !b"QPBDECHSXdcfp".contains(kind) {
        return Err(violation(format!("invalid frontend message type {kind}")));
    }
    let Some(mut header) = bytes.get(1..5) else {
        return Ok(None);
    };
    let length = header.get_u32() as usize;
    if length < 4 {
        return Err(violation(format!("invalid message length {length}")));
    }
    if length > bytes_max {
        return Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!("a message of {length} bytes exceeds the limit of {bytes_max} bytes"),
        )
        .with_hint("Send the data in smaller pieces, or raise message_bytes_max."));
    }
    Ok(Some(length + 1))
}

/// Checks that the body of a whole message has the fields of its type, and that its texts are UTF-8.
///
/// # Errors
/// A field is cut, something is left over, or a text is not UTF-8.
pub fn check_body(kind: u8, body: &[u8]) -> SqlResult<()> {
    let mut fields = Fields { kind, rest: body };
    match kind {
        b'Q' | b'f' => fields.text()?,
        b'P' => {
            fields.text()?;
            fields.text()?;
            let types = fields.count()?;
            fields.skip(4 * types)?;
        }
        b'B' => {
            fields.text()?;
            fields.text()?;
            let formats = fields.count()?;
            fields.skip(2 * formats)?;
            for _ in 0..fields.count()? {
                fields.value()?;
            }
            let formats = fields.count()?;
            fields.skip(2 * formats)?;
        }
        b'D' | b'C' => {
            fields.skip(1)?;
            fields.text()?;
        }
        b'E' => {
            fields.text()?;
            fields.skip(4)?;
        }
        // Data of COPY and of the authentication have no fields that everyone agrees on.
        b'd' | b'p' => return Ok(()),
        _ => {}
    }
    match fields.rest {
        [] => Ok(()),
        _ => Err(fields.malformed()),
    }
}

/// Checks the first message of SASL: a mechanism and the client's first data.
///
/// # Errors
/// As for [`check_body`].
pub fn check_sasl_initial(body: &[u8]) -> SqlResult<()> {
    let mut fields = Fields {
        kind: b'p',
        rest: body,
    };
    fields.text()?;
    fields.value()?;
    match fields.rest {
        [] => Ok(()),
        _ => Err(fields.malformed()),
    }
}

/// Walks over the fields of a body.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn malformed(&self) -> SqlError {
        violation(format!("malformed message of type '{}'", char::from(self.kind)))
    }

    fn skip(&mut self, count: usize) -> SqlResult<()> {
        self.rest = self.rest.get(count..).ok_or_else(|| self.malformed())?;
        Ok(())
    }

    fn count(&mut self) -> SqlResult<usize> {
        let mut count = self.rest.get(..2).ok_or_else(|| self.malformed())?;
        self.skip(2)?;
        Ok(count.get_u16().into())
    }

    fn text(&mut self) -> SqlResult<()> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| self.malformed())?;
        if let Err(error) = std::str::from_utf8(&self.rest[..end]) {
            let byte = self.rest[error.valid_up_to()];
            return Err(SqlError::new(
                SqlState::CharacterNotInRepertoire,
                format!(
                    "invalid byte for encoding \"UTF8\": 0x{byte:02x} (byte {} of the text)",
                    error.valid_up_to() + 1
                ),
            ));
        }
        self.skip(end + 1)
    }

    /// A length and as many bytes; -1 is NULL.
    fn value(&mut self) -> SqlResult<()> {
        let mut length = self.rest.get(..4).ok_or_else(|| self.malformed())?;
        self.skip(4)?;
        match length.get_i32() {
            -1 => Ok(()),
            length => self.skip(usize::try_from(length).map_err(|_| self.malformed())?),
        }
    }
}

fn violation(message: String) -> SqlError {
    SqlError::new(SqlState::ProtocolViolation, message)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use pgwire::messages::PgWireFrontendMessage;
    use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
    use pgwire::messages::simplequery::Query;

    use super::*;

    fn messages() -> Vec<BytesMut> {
        let text = |text: &str| Some(text.to_owned());
        let parameters = vec![None, Some(vec![1, 2, 3].into())];
        [
            PgWireFrontendMessage::Query(Query::new("select 'ä'".into())),
            PgWireFrontendMessage::Parse(Parse::new(text("s"), "select $1".into(), vec![23])),
            PgWireFrontendMessage::Bind(Bind::new(None, text("s"), vec![1], parameters, vec![0, 1])),
            PgWireFrontendMessage::Describe(Describe::new(b'S', text("s"))),
            PgWireFrontendMessage::Execute(Execute::new(None, 10)),
            PgWireFrontendMessage::Close(Close::new(b'P', None)),
        ]
        .iter()
        .map(|message| {
            let mut bytes = BytesMut::new();
            message.encode(&mut bytes).unwrap();
            bytes
        })
        .collect()
    }

    #[test]
    fn whole_messages_are_accepted() {
        for bytes in messages() {
            assert_eq!(message_length(&bytes, 1_000).unwrap(), Some(bytes.len()));
            check_body(bytes[0], &bytes[5..]).unwrap();
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_refused() {
        for bytes in messages() {
            for end in 5..bytes.len() {
                assert!(
                    check_body(bytes[0], &bytes[5..end]).is_err(),
                    "{} cut at {end}",
                    char::from(bytes[0])
                );
            }
        }
    }

    #[test]
    fn lengths_are_believed_only_within_limits() {
        assert_eq!(message_length(b"Q\0\0", 100).unwrap(), None);
        assert_eq!(
            message_length(&[b'Q', 0, 0, 0, 3], 100).unwrap_err().code,
            SqlState::ProtocolViolation
        );
        assert_eq!(
            message_length(&[b'Q', 0xff, 0, 0, 3], 100).unwrap_err().code,
            SqlState::ProgramLimitExceeded
        );
        assert_eq!(
            message_length(b"\x16\x03\x01", 100).unwrap_err().code,
            SqlState::ProtocolViolation
        );
        assert!(startup_length(b"GET / HTTP/1.1\r\n").is_err());
        assert_eq!(startup_length(&[0, 0, 0, 8, 4]).unwrap(), Some(8));
    }

    #[test]
    fn text_must_be_utf8() {
        assert_eq!(
            check_body(b'Q', b"select '\xff'\0").unwrap_err().code,
            SqlState::CharacterNotInRepertoire
        );
    }
}
