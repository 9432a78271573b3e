//! How the lines of a COPY look: delimiter, quotes, what stands for NULL.

use arrow::datatypes::Schema;
use millrace_parser::ast::{CopyColumns, CopyFormat, CopyHeader, CopyOptions};

use crate::error::{SqlError, SqlResult, SqlState};

/// The layout of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Whether it is CSV; else PostgreSQL's text format.
    pub csv: bool,
    /// Between two values.
    pub delimiter: u8,
    /// Around values, in CSV.
    pub quote: u8,
    /// In front of a quote inside quotes, in CSV.
    pub escape: u8,
    /// What stands for NULL.
    pub null: String,
    /// Whether the first line has names.
    pub header: Header,
}

/// What the first line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A row.
    Absent,
    /// Something to skip.
    Skip,
    /// The names of the columns, in their order.
    Match,
}

impl Layout {
    /// PostgreSQL's text format.
    pub fn text() -> Self {
        Layout {
            csv: false,
            delimiter: b'\t',
            quote: b'"',
            escape: b'"',
            null: "\\N".into(),
            header: Header::Absent,
        }
    }

    /// CSV.
    pub fn csv(header: Header) -> Self {
        Layout {
            csv: true,
            delimiter: b',',
            null: String::new(),
            header,
            ..Layout::text()
        }
    }

    /// What the options of a COPY say.
    ///
    /// # Errors
    /// An option does not go with the format, or is not supported.
    pub fn from_options(options: &CopyOptions) -> SqlResult<Self> {
        let csv = options.format == CopyFormat::Csv;
        let invalid = |message: String| SqlError::new(SqlState::InvalidParameterValue, message);
        let byte = |name: &str, character: char| {
            u8::try_from(character)
                .ok()
                .filter(|byte| byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0))
                .ok_or_else(|| invalid(format!("COPY {name} must be a single one-byte character")))
        };
        if !csv && (options.quote.is_some() || options.escape.is_some()) {
            return Err(invalid(
                "COPY QUOTE and ESCAPE are available only in CSV mode".into(),
            ));
        }
        let unsupported = [
            (options.force_quote != CopyColumns::None, "FORCE_QUOTE"),
            (options.force_not_null != CopyColumns::None, "FORCE_NOT_NULL"),
            (options.force_null != CopyColumns::None, "FORCE_NULL"),
            (options.default.is_some(), "DEFAULT"),
        ];
        if let Some((_, name)) = unsupported.iter().find(|(given, _)| *given) {
            return Err(SqlError::unsupported(format!(
                "COPY option {name} is not supported"
            )));
        }
        if let Some(encoding) = &options.encoding {
            let plain: String = encoding
                .to_uppercase()
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            if plain != "UTF8" {
                return Err(
                    SqlError::unsupported(format!("COPY encoding \"{encoding}\" is not supported"))
                        .with_hint("Only UTF8 is supported."),
                );
            }
        }
        let layout = Layout {
            csv,
            delimiter: byte("delimiter", options.delimiter())?,
            quote: byte("quote", options.quote())?,
            escape: byte("escape", options.escape())?,
            null: options.null().to_string(),
            header: match options.header {
                CopyHeader::Absent => Header::Absent,
                CopyHeader::Present => Header::Skip,
                CopyHeader::Match => Header::Match,
            },
        };
        if layout.null.contains(['\n', '\r']) {
            return Err(invalid(
                "COPY null representation cannot use newline or carriage return".into(),
            ));
        }
        if layout.null.as_bytes().contains(&layout.delimiter) {
            return Err(invalid(
                "COPY delimiter must not appear in the NULL specification".into(),
            ));
        }
        if csv && layout.delimiter == layout.quote {
            return Err(invalid("COPY delimiter and quote must be different".into()));
        }
        if !csv && (layout.delimiter.is_ascii_alphanumeric() || matches!(layout.delimiter, b'\\' | b'.')) {
            return Err(invalid(format!(
                "COPY delimiter cannot be \"{}\"",
                char::from(layout.delimiter)
            )));
        }
        Ok(layout)
    }

    /// The first line of a COPY TO, if it has one.
    pub fn header_line(&self, schema: &Schema) -> Option<Vec<u8>> {
        if self.header == Header::Absent {
            return None;
        }
        let mut out = vec![];
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                out.push(self.delimiter);
            }
            super::encode::value(
                self,
                field.name().as_bytes(),
                schema.fields().len() == 1,
                &mut out,
            );
        }
        out.push(b'\n');
        Some(out)
    }
}
