//! Binary values of a driver's rows as the server's own text, so that both protocols are compared with the same file.

use std::error::Error;

use arrow::array::ArrayRef;
use bytes::BytesMut;
use millrace_postgres::encode::Column;
use millrace_postgres::types::{from_pg, parameter};
use tokio_postgres::Row;
use tokio_postgres::types::{Field, FromSql, Kind, Type};

/// A value as the text that the simple protocol would have sent; `None` for NULL.
pub fn text(row: &Row, index: usize) -> Result<Option<String>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<Text>>(index)?.map(|text| text.0))
}

struct Text(String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(pg_type: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if *pg_type == Type::NUMERIC {
            return numeric_text(bytes)
                .map(Text)
                .ok_or_else(|| "malformed numeric".into());
        }
        let pg_type = &described(pg_type, bytes);
        let Some(sql_type) = from_pg(pg_type) else {
            return Ok(Text(String::from_utf8(bytes.to_vec())?));
        };
        let array: ArrayRef = parameter::from_binary(pg_type, Some(bytes))?.to_array()?;
        let mut out = BytesMut::new();
        Column::new(&array, &sql_type.field("value", true))?.put_text(0, &mut out);
        Ok(Text(String::from_utf8(out.to_vec())?))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The type with the attributes that a record's value names, if it is one.
fn described(pg_type: &Type, bytes: &[u8]) -> Type {
    let of = |value: Option<Type>| value.unwrap_or(Type::TEXT);
    match (pg_type, pg_type.kind()) {
        (&Type::RECORD, _) | (_, Kind::Composite(_)) => of(record(bytes)),
        // Behind the head of an array stands the length of its first element.
        (_, Kind::Array(element))
            if *element == Type::RECORD || matches!(element.kind(), Kind::Composite(_)) =>
        {
            let first = bytes
                .get(20..)
                .and_then(|rest| Some((int(rest, 0)?, rest.get(4..)?)));
            let element = first.and_then(|(length, rest)| record(rest.get(..usize::try_from(length).ok()?)?));
            match element {
                Some(element) => Type::new("_record".to_owned(), 0, Kind::Array(element), String::new()),
                None => Type::TEXT_ARRAY,
            }
        }
        _ => without_enum(pg_type),
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The type of a record by its value; `None`: it is none. Types of somebody's own are records, or sent as texts.
fn record(bytes: &[u8]) -> Option<Type> {
    let count = usize::try_from(int(bytes, 0)?).ok()?;
    let mut attributes = vec![];
    let mut at = 4;
    for index in 0..count {
        let oid = u32::try_from(int(bytes, at)?).ok()?;
        let length = usize::try_from(int(bytes, at + 4)?).unwrap_or(0);
        at += 8;
        let value = bytes.get(at..at.checked_add(length)?)?;
        at += length;
        let known = Type::from_oid(oid).unwrap_or_else(|| record(value).unwrap_or(Type::TEXT));
        let name = format!("f{}", index + 1);
        attributes.push(Field::new(name, described(&known, value)));
    }
    let name = "record".to_owned();
    (at == bytes.len()).then(|| Type::new(name, 1, Kind::Composite(attributes), "public".to_owned()))
}

/// An enum is sent as a text; which values it has the driver knows only as of when it first met it.
fn without_enum(pg_type: &Type) -> Type {
    match pg_type.kind() {
        Kind::Enum(_) => Type::TEXT,
        Kind::Array(element) if matches!(element.kind(), Kind::Enum(_)) => Type::TEXT_ARRAY,
        _ => pg_type.clone(),
    }
}

/// A numeric with the digits that its own scale asks for: as a parameter it would be given another.
fn numeric_text(bytes: &[u8]) -> Option<String> {
    let words: Vec<i32> = bytes
        .chunks_exact(2)
        .map(|pair| i32::from(i16::from_be_bytes([pair[0], pair[1]])))
        .collect();
    let [_, weight, sign, scale, groups @ ..] = words.as_slice() else {
        return None;
    };
    // Group number 0 is the one left of the point.
    let group = |number: i32| {
        usize::try_from(weight - number)
            .ok()
            .and_then(|at| groups.get(at))
            .copied()
            .unwrap_or(0)
    };
    let whole: String = (0..=*weight.max(&0))
        .rev()
        .map(|number| format!("{:04}", group(number)))
        .collect();
    let whole = whole.trim_start_matches('0');
    let mut text = format!(
        "{}{}",
        if *sign == 0 { "" } else { "-" },
        if whole.is_empty() { "0" } else { whole }
    );
    if *scale > 0 {
        let fraction: String = (1..=(scale + 3) / 4)
            .map(|number| format!("{:04}", group(-number)))
            .collect();
        text.push('.');
        text.push_str(&fraction[..*scale as usize]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::forms::number::{put_decimal, put_numeric_binary};

    #[test]
    fn numerics_read_back_as_they_were_written() {
        for (digits, scale) in [
            ("0", 0),
            ("0", 2),
            ("12345", 2),
            ("-1", 4),
            ("1", 5),
            ("120000", 0),
            ("-98765432109", 10),
        ] {
            let (mut binary, mut text) = (BytesMut::new(), BytesMut::new());
            put_numeric_binary(digits, scale, &mut binary);
            put_decimal(digits, scale, &mut text);
            assert_eq!(numeric_text(&binary).unwrap().as_bytes(), &text[..]);
        }
    }
}
