//! Our errors, notices, columns and rows as PostgreSQL's messages.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use bytes::{BufMut, BytesMut};
use millrace_database::sessions::TransactionStatus;
use millrace_postgres::encode::Column;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types;
use millrace_session::Notice;
use pgwire::error::ErrorInfo;
use pgwire::messages::data::{FieldDescription, RowDescription};
use pgwire::messages::{PgWireBackendMessage, response};
use postgres_types::Type;

/// How a value goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As PostgreSQL prints it.
    Text,
    /// The type's binary form.
    Binary,
}

/// An error after which the connection goes on.
pub fn error_response(error: SqlError) -> PgWireBackendMessage {
    error_with_severity("ERROR", error)
}

/// An error after which the connection is closed.
pub fn fatal_response(error: SqlError) -> PgWireBackendMessage {
    error_with_severity("FATAL", error)
}

fn error_with_severity(severity: &str, error: SqlError) -> PgWireBackendMessage {
    let mut info = ErrorInfo::new(severity.to_owned(), error.code.code().to_owned(), error.message);
    info.severity_nonlocalized = Some(severity.to_owned());
    info.detail = error.detail;
    info.hint = error.hint;
    info.where_context = error.context.map(String::from);
    info.position = error.position.map(|position| position.to_string());
    let mut response = response::ErrorResponse::from(info);
    if let Some(about) = error.about.filter(|about| about.literal.is_none()) {
        let names = [
            (b's', Some(about.schema)),
            (b't', Some(about.table)),
            (b'c', about.column),
            (b'n', about.constraint),
        ];
        let names = names.into_iter().filter_map(|(field, name)| Some((field, name?)));
        response.fields.extend(names);
    }
    PgWireBackendMessage::ErrorResponse(response)
}

/// Something that is said beside the answer.
pub fn notice_response(notice: Notice) -> PgWireBackendMessage {
    let severity = notice.severity.as_str().to_owned();
    let mut info = ErrorInfo::new(severity.clone(), notice.code.code().to_owned(), notice.message);
    info.severity_nonlocalized = Some(severity);
    PgWireBackendMessage::NoticeResponse(info.into())
}

/// The end of an answer, and the state of the transaction.
pub fn ready_for_query(status: TransactionStatus) -> PgWireBackendMessage {
    let status = match status {
        TransactionStatus::Idle => response::TransactionStatus::Idle,
        TransactionStatus::Active => response::TransactionStatus::Transaction,
        TransactionStatus::Failed => response::TransactionStatus::Error,
    };
    PgWireBackendMessage::ReadyForQuery(response::ReadyForQuery::new(status))
}

/// The columns of an answer.
pub fn row_description(schema: &Schema, format: impl Fn(usize) -> Format) -> PgWireBackendMessage {
    let describe = |(index, field): (usize, &std::sync::Arc<Field>)| {
        let pg_type = types::pg_type(field);
        let format = match format(index) {
            Format::Text => 0,
            Format::Binary => 1,
        };
        let size = type_size(&pg_type);
        FieldDescription::new(
            field.name().clone(),
            0,
            0,
            pg_type.oid(),
            size,
            types::modifier(field),
            format,
        )
    };
    let fields = schema.fields().iter().enumerate().map(describe).collect();
    PgWireBackendMessage::RowDescription(RowDescription::new(fields))
}

/// `pg_type.typlen`: the fixed number of bytes, or -1.
fn type_size(pg_type: &Type) -> i16 {
    match *pg_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4
        | Type::FLOAT4
        | Type::DATE
        | Type::OID
        | Type::REGCLASS
        | Type::REGTYPE
        | Type::REGPROC => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        Type::NAME => 64,
        Type::UNKNOWN => -2,
        _ => -1,
    }
}

/// Writes `DataRow` messages for rows of one batch, straight into the answer.
pub struct RowWriter<'a> {
    columns: Vec<(Column<'a>, Format)>,
}

impl<'a> RowWriter<'a> {
    /// Looks at the batch's columns once.
    pub fn new(batch: &'a RecordBatch, schema: &Schema, format: impl Fn(usize) -> Format) -> SqlResult<Self> {
        let columns = batch.columns().iter().zip(schema.fields()).enumerate();
        let columns = columns.map(|(index, (array, field))| Ok((Column::new(array, field)?, format(index))));
        Ok(RowWriter {
            columns: columns.collect::<SqlResult<_>>()?,
        })
    }

    /// Writes one row. After an error the answer is as it was before.
    pub fn put(&self, row: usize, out: &mut BytesMut) -> SqlResult<()> {
        let start = out.len();
        out.put_u8(b'D');
        out.put_i32(0);
        out.put_i16(self.columns.len() as i16);
        for (column, format) in &self.columns {
            let written = match format {
                Format::Text => column.put_text_sized(row, out),
                Format::Binary => column.put_binary_sized(row, out),
            };
            if let Err(error) = written {
                out.truncate(start);
                return Err(error);
            }
        }
        match i32::try_from(out.len() - start - 1) {
            Ok(length) => out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes()),
            Err(_) => {
                out.truncate(start);
                return Err(SqlError::new(
                    millrace_postgres::error::SqlState::ProgramLimitExceeded,
                    "a row is longer than 2 GB",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, StringArray};

    use super::*;
    use arrow::datatypes::DataType;
    use millrace_postgres::error::SqlState;

    #[test]
    fn an_error_carries_all_that_is_known() {
        let error = SqlError::new(SqlState::SyntaxError, "broken")
            .with_hint("mend it")
            .at(Some(8));
        let PgWireBackendMessage::ErrorResponse(response) = error_response(error) else {
            panic!("not an error")
        };
        let expected = [
            (b'S', "ERROR"),
            (b'V', "ERROR"),
            (b'C', "42601"),
            (b'M', "broken"),
            (b'H', "mend it"),
            (b'P', "8"),
        ];
        let fields: Vec<_> = response
            .fields
            .iter()
            .map(|(kind, text)| (*kind, text.as_str()))
            .collect();
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_row_holds_text_and_binary_side_by_side() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8, true),
            Field::new("c", DataType::Int32, true),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![7])),
            Arc::new(StringArray::from(vec![None::<&str>])),
            Arc::new(Int32Array::from(vec![10])),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap();
        let format = |index| if index == 0 { Format::Binary } else { Format::Text };
        let mut out = BytesMut::new();
        RowWriter::new(&batch, &schema, format)
            .unwrap()
            .put(0, &mut out)
            .unwrap();
        let expected = b"D\0\0\0\x18\0\x03\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0\0\x0210";
        assert_eq!(&out[..], expected);
    }
}
