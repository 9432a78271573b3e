//! Rows as the lines of a COPY TO.

use arrow::array::RecordBatch;

use crate::copy::layout::Layout;
use crate::error::SqlResult;
use crate::types::output::TextColumn;
use crate::types::padding;

/// The lines of a batch.
///
/// # Errors
/// A column has no text form.
pub fn batch(layout: &Layout, rows: &RecordBatch) -> SqlResult<Vec<u8>> {
    batch_with(layout, rows, |_| {})
}

/// As [`batch`]; says where each line ends.
///
/// # Errors
/// A column has no text form.
pub fn batch_with(
    layout: &Layout,
    batch: &RecordBatch,
    mut each_end: impl FnMut(usize),
) -> SqlResult<Vec<u8>> {
    let schema = batch.schema();
    let columns = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, array)| TextColumn::new(field, array))
        .collect::<SqlResult<Vec<_>>>()?;
    // char(n) is written with its padding.
    let lengths: Vec<Option<usize>> = schema
        .fields()
        .iter()
        .map(|field| padding::length(field))
        .collect();
    let mut out = Vec::with_capacity(batch.num_rows() * columns.len() * 8);
    let mut text = vec![];
    for row in 0..batch.num_rows() {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(layout.delimiter);
            }
            if column.is_null(row) {
                out.extend_from_slice(layout.null.as_bytes());
                continue;
            }
            text.clear();
            column.write(row, &mut text)?;
            if let Some(length) = lengths[index] {
                let characters = String::from_utf8_lossy(&text).chars().count();
                text.resize(text.len() + length.saturating_sub(characters), b' ');
            }
            value(layout, &text, columns.len() == 1, &mut out);
        }
        out.push(b'\n');
        each_end(out.len());
    }
    Ok(out)
}

/// One value that is not NULL. `alone`: it is the only one of its line.
pub fn value(layout: &Layout, text: &[u8], alone: bool, out: &mut Vec<u8>) {
    if !layout.csv {
        for byte in text {
            let escaped = match byte {
                b'\\' => b'\\',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                8 => b'b',
                11 => b'v',
                12 => b'f',
                delimiter if *delimiter == layout.delimiter => *delimiter,
                _ => {
                    out.push(*byte);
                    continue;
                }
            };
            out.push(b'\\');
            out.push(escaped);
        }
        return;
    }
    let special = |byte: &u8| {
        *byte == layout.delimiter
            || *byte == layout.quote
            || *byte == layout.escape
            || matches!(byte, b'\n' | b'\r')
    };
    // What looks like NULL is quoted, and so is `\.` on a line of its own, which would end the data.
    let quoted = text == layout.null.as_bytes() || text.iter().any(special) || (alone && text == b"\\.");
    if !quoted {
        out.extend_from_slice(text);
        return;
    }
    out.push(layout.quote);
    for byte in text {
        if *byte == layout.quote || *byte == layout.escape {
            out.push(layout.escape);
        }
        out.push(*byte);
    }
    out.push(layout.quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::layout::Header;
    use arrow::array::{ArrayRef, Int32Array, StringArray};
    use std::sync::Arc;

    fn rows() -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a\tb\\c\n"), Some("")]));
        RecordBatch::try_from_iter([("id", ids), ("v", texts)]).unwrap()
    }

    #[test]
    fn text_lines_escape() {
        let out = batch(&Layout::text(), &rows()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1\ta\\tb\\\\c\\n\n\\N\t\n");
    }

    #[test]
    fn csv_lines_quote() {
        let out = batch(&Layout::csv(Header::Absent), &rows()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1,\"a\tb\\c\n\"\n,\"\"\n");
        let mut out = vec![];
        value(&Layout::csv(Header::Absent), b"say \"hi\", ok", false, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"say \"\"hi\"\", ok\"");
    }
}
