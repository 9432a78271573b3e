//! Writes JSON, and not without end.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// How deep values are nested at most.
pub(super) const DEPTH_MAX: usize = 64;
/// How large a document may be: so many bytes, and so many times the record.
const BYTES_MAX: usize = 1 << 20;
const GROWTH_MAX: usize = 64;

/// A text of JSON that is being written.
pub(super) struct Json {
    text: Vec<u8>,
    bytes_max: usize,
}

impl Json {
    /// For a record of so many bytes.
    pub fn for_input(bytes: usize) -> Json {
        Json {
            text: Vec::with_capacity(2 * bytes),
            bytes_max: BYTES_MAX + GROWTH_MAX * bytes,
        }
    }

    /// Adds a piece as it is.
    ///
    /// # Errors
    /// The document becomes too large, as it does of arrays of what takes no space.
    pub fn raw(&mut self, piece: &str) -> SqlResult<()> {
        self.text.extend_from_slice(piece.as_bytes());
        match self.text.len() > self.bytes_max {
            true => Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                "the record is too large when it is read",
            )),
            false => Ok(()),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn text(&mut self, text: &str) -> SqlResult<()> {
        // A text can always be written into memory.
        let _ = serde_json::to_writer(&mut self.text, text);
        self.raw("")
    }

    /// The name of a member.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn name(&mut self, name: &str) -> SqlResult<()> {
        self.text(name)?;
        self.raw(":")
    }

    /// A number, with the fewest digits that tell it.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn real(&mut self, number: f32) -> SqlResult<()> {
        match number.is_finite() {
            true => {
                let _ = serde_json::to_writer(&mut self.text, &number);
                self.raw("")
            }
            false => self.special(number.into()),
        }
    }

    /// A number, with the fewest digits that tell it.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn double(&mut self, number: f64) -> SqlResult<()> {
        match number.is_finite() {
            true => {
                let _ = serde_json::to_writer(&mut self.text, &number);
                self.raw("")
            }
            false => self.special(number),
        }
    }

    /// What JSON has no number for.
    fn special(&mut self, number: f64) -> SqlResult<()> {
        self.raw(match number {
            _ if number.is_nan() => "\"NaN\"",
            _ if number > 0.0 => "\"Infinity\"",
            _ => "\"-Infinity\"",
        })
    }

    /// The document.
    pub fn finish(self) -> Vec<u8> {
        self.text
    }
}
