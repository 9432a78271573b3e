//! A statement's text and the places in it.
//!
//! sqlparser counts lines and columns; PostgreSQL reports characters from the start of what the client sent; slicing
//! needs bytes. This is the only place that converts between the three.

use sqlparser::tokenizer::{Location, Span};

/// Some SQL text with an index of its lines.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// Where each line starts, in bytes and in characters.
    lines: Vec<(usize, usize)>,
    ascii: bool,
}

impl<'a> Source<'a> {
    /// Indexes `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        let ascii = text.is_ascii();
        let mut lines = vec![(0, 0)];
        if ascii {
            lines.extend(
                text.bytes()
                    .enumerate()
                    .filter(|(_, b)| *b == b'\n')
                    .map(|(i, _)| (i + 1, i + 1)),
            );
        } else {
            let newlines = text.char_indices().enumerate().filter(|(_, (_, c))| *c == '\n');
            lines.extend(newlines.map(|(chars, (bytes, _))| (bytes + 1, chars + 1)));
        }
        Self { text, lines, ascii }
    }

    /// The 0-based character offset of a location; `None` for sqlparser's empty location.
    pub(crate) fn char_offset(&self, location: Location) -> Option<usize> {
        let (_, line_chars) = self.line(location)?;
        Some(line_chars + usize::try_from(location.column).ok()?.checked_sub(1)?)
    }

    /// The byte offset of a location, at most the text's length; `None` for sqlparser's empty location.
    pub(crate) fn byte_offset(&self, location: Location) -> Option<usize> {
        let (line_bytes, _) = self.line(location)?;
        let column = usize::try_from(location.column).ok()?.checked_sub(1)?;
        if self.ascii {
            return Some((line_bytes + column).min(self.text.len()));
        }
        let rest = &self.text[line_bytes..];
        Some(
            rest.char_indices()
                .nth(column)
                .map_or(self.text.len(), |(bytes, _)| line_bytes + bytes),
        )
    }

    /// The text from one location up to another.
    pub(crate) fn slice(&self, start: Location, end: Location) -> &'a str {
        match (self.byte_offset(start), self.byte_offset(end)) {
            (Some(start), Some(end)) if start <= end => &self.text[start..end],
            _ => "",
        }
    }

    /// The text of a span.
    pub(crate) fn span(&self, span: Span) -> &'a str {
        self.slice(span.start, span.end)
    }

    /// The number of characters.
    pub(crate) fn chars(&self) -> usize {
        if self.ascii {
            self.text.len()
        } else {
            self.text.chars().count()
        }
    }

    fn line(&self, location: Location) -> Option<(usize, usize)> {
        let index = usize::try_from(location.line).ok()?.checked_sub(1)?;
        self.lines.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_text_of_several_lines_and_wide_characters() {
        let source = Source::new("sélect\nä 'ö' x");
        let x = Location { line: 2, column: 7 };
        assert_eq!(source.char_offset(x), Some(13));
        assert_eq!(source.slice(x, Location { line: 2, column: 8 }), "x");
        assert_eq!(
            source.byte_offset(Location { line: 2, column: 99 }),
            Some(source.text.len())
        );
        assert_eq!(source.char_offset(Location { line: 0, column: 0 }), None);
        assert_eq!(source.slice(x, Location { line: 1, column: 1 }), "");
    }
}
