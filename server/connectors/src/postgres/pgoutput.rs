//! The messages of PostgreSQL's `pgoutput`, version 1, with texts as values (the protocol's chapter "Logical Replication Message Formats").

use bytes::{Buf, Bytes};
use tokio_postgres::types::Type;

/// A table as changes name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    pub id: u32,
    pub schema: String,
    pub name: String,
    pub columns: Vec<ColumnInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    pub name: String,
    /// Whether it is in what identifies a row.
    pub is_key: bool,
    /// A type of SQL that has its values.
    pub sql_type: String,
}

/// A type of SQL that has the values of a type of the server, by its number and modifier. What is not known here is a text.
fn sql_type(of: u32, modifier: u32) -> String {
    let known = Type::from_oid(of);
    let name = known.as_ref().map_or("text", Type::name);
    let (item, array) = match name.strip_prefix('_') {
        Some(item) => (item, "[]"),
        None => (name, ""),
    };
    let plain = match item {
        "numeric" => {
            // Four is added to it, so that there is none that is 0.
            let digits = (modifier as i32).checked_sub(4).filter(|digits| *digits >= 0);
            let digits = digits.map(|digits| (digits >> 16, digits & 0x7ff));
            match digits.filter(|(precision, scale)| (1..=38).contains(precision) && scale <= precision) {
                Some((precision, scale)) => format!("numeric({precision}, {scale})"),
                None => "numeric".to_owned(),
            }
        }
        "bool" | "int2" | "int4" | "int8" | "float4" | "float8" | "bytea" | "date" | "time" | "timestamp"
        | "timestamptz" | "interval" | "uuid" | "json" | "jsonb" => item.to_owned(),
        _ => "text".to_owned(),
    };
    plain + array
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Null,
    /// It did not change, and is kept elsewhere (TOAST).
    Unchanged,
    Text(Bytes),
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Table(TableInfo),
    Insert {
        table: u32,
        row: Vec<Cell>,
    },
    Update {
        table: u32,
        /// The row before, or what identified it; none: that did not change.
        before: Option<Vec<Cell>>,
        row: Vec<Cell>,
    },
    Delete {
        table: u32,
        /// The row, or what identified it.
        before: Vec<Cell>,
    },
    Truncate {
        tables: Vec<u32>,
    },
    /// Nothing that changes rows.
    Other,
}

impl Message {
    /// The tables that it changes.
    pub fn tables(&self) -> Vec<u32> {
        match self {
            Message::Insert { table, .. } | Message::Update { table, .. } | Message::Delete { table, .. } => {
                vec![*table]
            }
            Message::Truncate { tables } => tables.clone(),
            Message::Table(_) | Message::Other => vec![],
        }
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let row = |row: &[Cell]| -> usize {
            let text = |cell: &Cell| match cell {
                Cell::Text(text) => text.len(),
                Cell::Null | Cell::Unchanged => 0,
            };
            row.iter().map(|cell| size_of::<Cell>() + text(cell)).sum()
        };
        size_of::<Message>()
            + match self {
                Message::Insert { row: new, .. } => row(new),
                Message::Update { before, row: new, .. } => before.as_deref().map_or(0, row) + row(new),
                Message::Delete { before, .. } => row(before),
                Message::Table(_) | Message::Truncate { .. } | Message::Other => 0,
            }
    }
}

struct Reader(Bytes);

impl Reader {
    fn need(&self, bytes: usize) -> Result<(), String> {
        match self.0.remaining() >= bytes {
            true => Ok(()),
            false => Err("a message ends too early".to_owned()),
        }
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    fn short(&mut self) -> Result<u16, String> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    fn int(&mut self) -> Result<u32, String> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    fn bytes(&mut self, count: usize) -> Result<Bytes, String> {
        self.need(count)?;
        Ok(self.0.split_to(count))
    }

    /// Up to a zero.
    fn text(&mut self) -> Result<String, String> {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .ok_or("a name has no end")?;
        let text = self.bytes(end)?;
        self.0.advance(1);
        String::from_utf8(text.to_vec()).map_err(|_| "a name is not UTF-8".to_owned())
    }

    fn row(&mut self) -> Result<Vec<Cell>, String> {
        let columns = self.short()?;
        let mut row = Vec::with_capacity(usize::from(columns).min(1_664));
        for _ in 0..columns {
            row.push(match self.byte()? {
                b'n' => Cell::Null,
                b'u' => Cell::Unchanged,
                b't' => {
                    let length = self.int()? as usize;
                    Cell::Text(self.bytes(length)?)
                }
                other => return Err(format!("a value of kind {:?}", char::from(other))),
            });
        }
        Ok(row)
    }
}

/// Decodes one message.
///
/// # Errors
/// It is not one, or of a later version.
pub(super) fn decode(data: &Bytes) -> Result<Message, String> {
    let mut reader = Reader(data.clone());
    Ok(match reader.byte()? {
        b'R' => {
            let id = reader.int()?;
            let schema = reader.text()?;
            let name = reader.text()?;
            let _identity = reader.byte()?;
            let mut columns = vec![];
            for _ in 0..reader.short()? {
                let is_key = reader.byte()? & 1 != 0;
                let name = reader.text()?;
                let (of, modifier) = (reader.int()?, reader.int()?);
                columns.push(ColumnInfo {
                    name,
                    is_key,
                    sql_type: sql_type(of, modifier),
                });
            }
            Message::Table(TableInfo {
                id,
                schema: if schema.is_empty() {
                    "pg_catalog".to_owned()
                } else {
                    schema
                },
                name,
                columns,
            })
        }
        b'I' => {
            let table = reader.int()?;
            match reader.byte()? {
                b'N' => Message::Insert {
                    table,
                    row: reader.row()?,
                },
                other => return Err(format!("an insert with {:?}", char::from(other))),
            }
        }
        b'U' => {
            let table = reader.int()?;
            let (before, kind) = match reader.byte()? {
                b'K' | b'O' => (Some(reader.row()?), reader.byte()?),
                kind => (None, kind),
            };
            match kind {
                b'N' => Message::Update {
                    table,
                    before,
                    row: reader.row()?,
                },
                other => return Err(format!("an update with {:?}", char::from(other))),
            }
        }
        b'D' => {
            let table = reader.int()?;
            match reader.byte()? {
                b'K' | b'O' => Message::Delete {
                    table,
                    before: reader.row()?,
                },
                other => return Err(format!("a delete with {:?}", char::from(other))),
            }
        }
        b'T' => {
            let count = reader.int()?;
            let _options = reader.byte()?;
            let mut tables = vec![];
            for _ in 0..count {
                tables.push(reader.int()?);
            }
            Message::Truncate { tables }
        }
        b'O' | b'Y' | b'M' | b'B' | b'C' => Message::Other,
        other => return Err(format!("a message of kind {:?}", char::from(other))),
    })
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn messages() -> Vec<Vec<u8>> {
        let mut table = b"R\0\0\0\x07public\0t\0d\0\x02".to_vec();
        table.extend(b"\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff");
        vec![
            table,
            b"I\0\0\0\x07N\0\x02t\0\0\0\x011n".to_vec(),
            b"U\0\0\0\x07K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u".to_vec(),
            b"U\0\0\0\x07N\0\x01t\0\0\0\x012".to_vec(),
            b"D\0\0\0\x07O\0\x01n".to_vec(),
            b"T\0\0\0\x02\0\0\0\0\x07\0\0\0\x08".to_vec(),
        ]
    }

    #[test]
    fn types_have_their_values_here() {
        for (of, modifier, expected) in [
            (1700, (9 << 16 | 2) + 4, "numeric(9, 2)"),
            (1700, u32::MAX, "numeric"),
            (1700, (1000 << 16 | 2) + 4, "numeric"),
            (1231, (9 << 16 | 2) + 4, "numeric(9, 2)[]"),
            (1007, u32::MAX, "int4[]"),
            (1184, u32::MAX, "timestamptz"),
            (1043, 9, "text"),
            (600, u32::MAX, "text"),
            (99_999, u32::MAX, "text"),
        ] {
            assert_eq!(sql_type(of, modifier), expected);
        }
    }

    #[test]
    fn messages_are_understood() {
        let found: Vec<Message> = messages()
            .into_iter()
            .map(|bytes| decode(&bytes.into()).unwrap())
            .collect();
        let text = |text: &'static str| Cell::Text(Bytes::from_static(text.as_bytes()));
        let column = |name: &str, is_key| ColumnInfo {
            name: name.to_owned(),
            is_key,
            sql_type: if is_key { "int4" } else { "text" }.to_owned(),
        };
        let expected = vec![
            Message::Table(TableInfo {
                id: 7,
                schema: "public".to_owned(),
                name: "t".to_owned(),
                columns: vec![column("id", true), column("v", false)],
            }),
            Message::Insert {
                table: 7,
                row: vec![text("1"), Cell::Null],
            },
            Message::Update {
                table: 7,
                before: Some(vec![text("1"), Cell::Null]),
                row: vec![text("2"), Cell::Unchanged],
            },
            Message::Update {
                table: 7,
                before: None,
                row: vec![text("2")],
            },
            Message::Delete {
                table: 7,
                before: vec![Cell::Null],
            },
            Message::Truncate { tables: vec![7, 8] },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_broken_is_an_error_and_no_more() {
        let mut random = StdRng::seed_from_u64(11);
        for message in messages() {
            for end in 0..message.len() {
                assert!(
                    decode(&message[..end].to_vec().into()).is_err(),
                    "{message:?} up to {end}"
                );
            }
            for _ in 0..2_000 {
                let mut bytes = message.clone();
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
                let _ = decode(&bytes.into());
            }
        }
    }
}
