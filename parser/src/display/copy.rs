//! COPY as text, always with the options in a list.

use std::fmt::{self, Display, Formatter};

use super::joined;
use crate::ast::{
    CopyColumns, CopyDirection, CopyEnd, CopyFormat, CopyHeader, CopyOptions, CopySource, CopyStatement,
};
use crate::identifier::quote_literal;

impl Display for CopyStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.source {
            CopySource::Relation { name, columns } if columns.is_empty() => write!(f, "COPY {name}")?,
            CopySource::Relation { name, columns } => write!(f, "COPY {name} ({})", joined(columns))?,
            CopySource::Query(query) => write!(f, "COPY ({query})")?,
            CopySource::Subscribe(subscribe) => write!(f, "COPY ({subscribe})")?,
        }
        let (word, client, end) = match &self.direction {
            CopyDirection::From(end) => ("FROM", "STDIN", end),
            CopyDirection::To(end) => ("TO", "STDOUT", end),
        };
        match end {
            CopyEnd::Client => write!(f, " {word} {client}")?,
            CopyEnd::File(name) => write!(f, " {word} {}", quote_literal(name))?,
            CopyEnd::Program(command) => write!(f, " {word} PROGRAM {}", quote_literal(command))?,
        }
        let options = self.options.to_string();
        if !options.is_empty() {
            write!(f, " ({options})")?;
        }
        match &self.filter {
            Some(filter) => write!(f, " WHERE {filter}"),
            None => Ok(()),
        }
    }
}

impl Display for CopyOptions {
    /// The list without its parentheses; empty when all is as by default.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut entries = Vec::new();
        match self.format {
            CopyFormat::Text => {}
            CopyFormat::Csv => entries.push("FORMAT csv".to_string()),
            CopyFormat::Binary => entries.push("FORMAT binary".to_string()),
        }
        match self.header {
            CopyHeader::Absent => {}
            CopyHeader::Present => entries.push("HEADER true".to_string()),
            CopyHeader::Match => entries.push("HEADER match".to_string()),
        }
        for (name, value) in [
            ("DELIMITER", self.delimiter),
            ("QUOTE", self.quote),
            ("ESCAPE", self.escape),
        ] {
            entries.extend(value.map(|c| format!("{name} {}", quote_literal(&c.to_string()))));
        }
        for (name, value) in [
            ("NULL", &self.null),
            ("DEFAULT", &self.default),
            ("ENCODING", &self.encoding),
        ] {
            entries.extend(
                value
                    .as_ref()
                    .map(|text| format!("{name} {}", quote_literal(text))),
            );
        }
        for (name, value) in [
            ("FORCE_QUOTE", &self.force_quote),
            ("FORCE_NOT_NULL", &self.force_not_null),
            ("FORCE_NULL", &self.force_null),
        ] {
            match value {
                CopyColumns::None => {}
                CopyColumns::All => entries.push(format!("{name} *")),
                CopyColumns::Some(columns) => entries.push(format!("{name} ({})", joined(columns))),
            }
        }
        if self.freeze {
            entries.push("FREEZE true".to_string());
        }
        f.write_str(&entries.join(", "))
    }
}
