//! Results as JSON, NDJSON, CSV or an Arrow stream, written batch by batch.
//!
//! | | rows | end of a statement | error after the first byte |
//! |---|---|---|---|
//! | JSON | arrays under `rows` | `tag`, `notices`, `stats` of the result | `error` in the result |
//! | NDJSON | an object a line | `{"done": {"tag", "rows"}}` | `{"error": {..}}` as the last line |
//! | CSV, Arrow | records | nothing | the connection is broken off, so that nobody takes the part for the whole |
//!
//! CSV and Arrow hold one result: a second statement with rows is an error.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::StreamWriter;
use bytes::{BufMut, Bytes, BytesMut};
use millrace_postgres::encode::Column;
use millrace_postgres::encode::json::{put_json_str, put_members};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::enumeration::{as_texts, text_field};
use millrace_postgres::{from_internal, types};
use millrace_session::Notice;
use postgres_types::Type;
use serde_json::json;

use super::error;
use super::negotiate::ResultFormat;
use super::request::JsonValues;

/// The schema of an Arrow stream, which has texts where an answer has values of an enum.
fn shown_schema(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(text_field).collect::<Vec<_>>())
}

/// Writes the results of one request.
pub struct ResultWriter {
    out: BytesMut,
    form: Form,
    json: JsonValues,
}

enum Form {
    Json {
        results: usize,
        rows: usize,
        in_rows: bool,
    },
    NdJson {
        schema: Option<SchemaRef>,
    },
    Csv {
        begun: bool,
    },
    Arrow {
        stream: Option<Box<StreamWriter<Vec<u8>>>>,
        begun: bool,
    },
}

/// What is said about a statement that is done.
pub struct Completion<'a> {
    /// The command tag.
    pub tag: &'a str,
    /// How many rows were sent; `None` for a statement without rows.
    pub rows: Option<u64>,
    /// What was noted on the way.
    pub notices: &'a [Notice],
    /// From the start of the statement to its end.
    pub duration: Duration,
}

impl ResultWriter {
    /// A writer for a format.
    pub fn new(format: ResultFormat) -> Self {
        let form = match format {
            ResultFormat::Json => Form::Json {
                results: 0,
                rows: 0,
                in_rows: false,
            },
            ResultFormat::NdJson => Form::NdJson { schema: None },
            ResultFormat::Csv => Form::Csv { begun: false },
            ResultFormat::Arrow => Form::Arrow {
                stream: None,
                begun: false,
            },
        };
        let mut out = BytesMut::new();
        if format == ResultFormat::Json {
            out.put_slice(b"{\"results\":[");
        }
        ResultWriter {
            out,
            form,
            json: JsonValues::default(),
        }
    }

    /// How values of `json` and `jsonb` stand in a JSON answer.
    #[must_use]
    pub fn with_json(mut self, json: JsonValues) -> Self {
        self.json = json;
        self
    }

    /// Takes what has been written.
    pub fn take(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// How much has been written and not taken.
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Begins a result with rows.
    ///
    /// # Errors
    /// The format holds one result, and there was one.
    pub fn begin_rows(&mut self, schema: &SchemaRef) -> SqlResult<()> {
        let out = &mut self.out;
        match &mut self.form {
            Form::Json {
                results,
                rows,
                in_rows,
            } => {
                put_comma(*results > 0, out);
                (*results, *rows, *in_rows) = (*results + 1, 0, true);
                let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
                let types: Vec<_> = schema
                    .fields()
                    .iter()
                    .map(|field| types::pg_type(field).name().to_owned())
                    .collect();
                let head = json!({"col_names": names, "col_types": types}).to_string();
                // The object stays open: its rows follow.
                out.put_slice(&head.as_bytes()[..head.len() - 1]);
                out.put_slice(b",\"rows\":[");
            }
            Form::NdJson { schema: current } => *current = Some(SchemaRef::clone(schema)),
            Form::Csv { begun } => {
                only_one(begun)?;
                for (index, field) in schema.fields().iter().enumerate() {
                    put_comma(index > 0, out);
                    put_csv(field.name().as_bytes(), out);
                }
                out.put_u8(b'\n');
            }
            Form::Arrow { stream, begun } => {
                only_one(begun)?;
                let writer =
                    StreamWriter::try_new(Vec::new(), &shown_schema(schema)).map_err(from_internal::arrow)?;
                *stream = Some(Box::new(writer));
            }
        }
        Ok(())
    }

    /// Writes rows.
    ///
    /// # Errors
    /// A value has no form.
    pub fn batch(&mut self, schema: &Schema, batch: &RecordBatch) -> SqlResult<()> {
        if let Form::Arrow {
            stream: Some(stream), ..
        } = &mut self.form
        {
            let columns = batch.columns().iter().zip(schema.fields());
            let columns = columns.map(|(values, field)| as_texts(field, values)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let shown = RecordBatch::try_new_with_options(Arc::new(shown_schema(schema)), columns, &options);
            let shown = shown.map_err(from_internal::arrow)?;
            stream.write(&shown).map_err(from_internal::arrow)?;
            self.out.put_slice(stream.get_ref());
            stream.get_mut().clear();
            return Ok(());
        }
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns
            .map(|(array, field)| Column::new(array, field))
            .collect::<SqlResult<Vec<_>>>()?;
        let is_text: Vec<bool> = (schema.fields().iter())
            .map(|field| {
                self.json == JsonValues::Text && matches!(types::pg_type(field), Type::JSON | Type::JSONB)
            })
            .collect();
        let out = &mut self.out;
        for row in 0..batch.num_rows() {
            match &mut self.form {
                Form::Json { rows, .. } => {
                    put_comma(*rows > 0, out);
                    *rows += 1;
                    out.put_u8(b'[');
                    for (index, column) in columns.iter().enumerate() {
                        put_comma(index > 0, out);
                        match is_text[index] && !batch.column(index).is_null(row) {
                            true => put_text_of_json(column, row, out),
                            false => column.put_json(row, out),
                        }
                    }
                    out.put_u8(b']');
                }
                Form::NdJson { .. } => {
                    out.put_u8(b'{');
                    put_members(&columns, schema, row, out);
                    out.put_slice(b"}\n");
                }
                Form::Csv { .. } => {
                    put_csv_row(&columns, row, out);
                }
                Form::Arrow { .. } => {}
            }
        }
        Ok(())
    }

    /// Ends a statement.
    ///
    /// # Errors
    /// The Arrow stream cannot be finished.
    pub fn complete(&mut self, completion: &Completion<'_>) -> SqlResult<()> {
        let out = &mut self.out;
        match &mut self.form {
            Form::Json { results, in_rows, .. } => {
                let notices: Vec<_> = completion.notices.iter().map(notice_object).collect();
                let elapsed = completion.duration.as_micros() as f64 / 1_000.0;
                let stats = json!({"rows": completion.rows, "elapsed_ms": elapsed});
                let tail = if std::mem::take(in_rows) {
                    out.put_slice(b"],");
                    json!({"tag": completion.tag, "notices": notices, "stats": stats})
                } else {
                    put_comma(*results > 0, out);
                    *results += 1;
                    out.put_u8(b'{');
                    json!({"ok": completion.tag, "tag": completion.tag, "notices": notices, "stats": stats})
                };
                out.put_slice(&tail.to_string().as_bytes()[1..]);
            }
            Form::NdJson { schema } => {
                *schema = None;
                let mut done = json!({"tag": completion.tag, "rows": completion.rows.unwrap_or(0)});
                if !completion.notices.is_empty() {
                    done["notices"] = completion.notices.iter().map(notice_object).collect();
                }
                put_line(&json!({ "done": done }), out);
            }
            Form::Csv { .. } => {}
            Form::Arrow { stream, .. } => {
                if let Some(mut stream) = stream.take() {
                    stream.finish().map_err(from_internal::arrow)?;
                    out.put_slice(stream.get_ref());
                }
            }
        }
        Ok(())
    }

    /// Writes an error, after which nothing follows but [`Self::end`]. False if the format has no place for it.
    pub fn error(&mut self, error: &SqlError) -> bool {
        let out = &mut self.out;
        match &mut self.form {
            Form::Json { results, in_rows, .. } => {
                let tail = json!({"error": error::object(error)}).to_string();
                if std::mem::take(in_rows) {
                    out.put_slice(b"],");
                    out.put_slice(&tail.as_bytes()[1..]);
                } else {
                    put_comma(*results > 0, out);
                    *results += 1;
                    out.put_slice(tail.as_bytes());
                }
                true
            }
            Form::NdJson { .. } => {
                put_line(&json!({"error": error::object(error)}), out);
                true
            }
            Form::Csv { .. } | Form::Arrow { .. } => false,
        }
    }

    /// Ends the answer.
    pub fn end(&mut self) {
        if matches!(self.form, Form::Json { .. }) {
            self.out.put_slice(b"]}\n");
        }
    }
}

fn only_one(begun: &mut bool) -> SqlResult<()> {
    if std::mem::replace(begun, true) {
        return Err(
            SqlError::unsupported("this format supports only one statement that returns rows")
                .with_hint("Request application/json or application/x-ndjson."),
        );
    }
    Ok(())
}

/// A value of `json` as a text.
fn put_text_of_json(column: &Column<'_>, row: usize, out: &mut BytesMut) {
    let mut value = BytesMut::new();
    column.put_text(row, &mut value);
    put_json_str(&String::from_utf8_lossy(&value), out);
}

fn notice_object(notice: &Notice) -> serde_json::Value {
    json!({"severity": notice.severity.as_str(), "code": notice.code.code(), "message": notice.message})
}

fn put_comma(needed: bool, out: &mut BytesMut) {
    if needed {
        out.put_u8(b',');
    }
}

fn put_line(value: &serde_json::Value, out: &mut BytesMut) {
    out.put_slice(value.to_string().as_bytes());
    out.put_u8(b'\n');
}

/// NULL is nothing, the empty text is two quotes, as in PostgreSQL's COPY.
fn put_csv_row(columns: &[Column<'_>], row: usize, out: &mut BytesMut) {
    let mut text = BytesMut::new();
    for (index, column) in columns.iter().enumerate() {
        put_comma(index > 0, out);
        if column.is_null(row) {
            continue;
        }
        text.clear();
        column.put_text(row, &mut text);
        put_csv(&text, out);
    }
    out.put_u8(b'\n');
}

fn put_csv(text: &[u8], out: &mut BytesMut) {
    if !text.is_empty()
        && !text
            .iter()
            .any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
    {
        out.put_slice(text);
        return;
    }
    out.put_u8(b'"');
    for byte in text {
        if *byte == b'"' {
            out.put_u8(b'"');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};
    use arrow::ipc::reader::StreamReader;

    use super::*;
    use millrace_postgres::error::SqlState;

    fn sample() -> (SchemaRef, RecordBatch) {
        let fields = vec![
            Field::new("n", DataType::Int64, true),
            Field::new("t", DataType::Utf8, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let numbers = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts = Arc::new(StringArray::from(vec!["a,\"b\"", ""]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers, texts]).unwrap();
        (schema, batch)
    }

    fn completion(tag: &str, rows: Option<u64>) -> Completion<'_> {
        Completion {
            tag,
            rows,
            notices: &[],
            duration: Duration::from_millis(2),
        }
    }

    fn written(format: ResultFormat) -> Bytes {
        let (schema, batch) = sample();
        let mut writer = ResultWriter::new(format);
        writer.begin_rows(&schema).unwrap();
        writer.batch(&schema, &batch).unwrap();
        writer.complete(&completion("SELECT 2", Some(2))).unwrap();
        writer.complete(&completion("CREATE TABLE", None)).unwrap();
        writer.error(&SqlError::new(SqlState::DivisionByZero, "division by zero"));
        writer.end();
        writer.take()
    }

    #[test]
    fn json_is_one_document() {
        let document: serde_json::Value = serde_json::from_slice(&written(ResultFormat::Json)).unwrap();
        let results = document["results"].as_array().unwrap();
        assert_eq!(results[0]["rows"], json!([[1, "a,\"b\""], [null, ""]]));
        assert_eq!(results[0]["col_names"], json!(["n", "t"]));
        assert_eq!(results[0]["col_types"], json!(["int8", "text"]));
        assert_eq!(results[0]["tag"], "SELECT 2");
        assert_eq!(results[1]["ok"], "CREATE TABLE");
        assert_eq!(results[2]["error"]["code"], "22012");
    }

    #[test]
    fn a_json_null_can_be_told_from_no_value() {
        let jsonb = types::SqlType::annotated(DataType::Utf8, "jsonb");
        let schema = Arc::new(Schema::new(vec![jsonb.field("j", true)]));
        let values = StringArray::from(vec![Some("null"), None, Some("\"a\""), Some("[\n1]")]);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(values)]).unwrap();
        let rows = |json| {
            let mut writer = ResultWriter::new(ResultFormat::Json).with_json(json);
            writer.begin_rows(&schema).unwrap();
            writer.batch(&schema, &batch).unwrap();
            writer.complete(&completion("SELECT 4", Some(4))).unwrap();
            writer.end();
            let document: serde_json::Value = serde_json::from_slice(&writer.take()).unwrap();
            document["results"][0]["rows"].clone()
        };
        assert_eq!(rows(JsonValues::Value), json!([[null], [null], ["a"], [[1]]]));
        assert_eq!(
            rows(JsonValues::Text),
            json!([["null"], [null], ["\"a\""], ["[\n1]"]])
        );
    }

    #[test]
    fn a_json_result_may_end_in_an_error() {
        let (schema, batch) = sample();
        let mut writer = ResultWriter::new(ResultFormat::Json);
        writer.begin_rows(&schema).unwrap();
        writer.batch(&schema, &batch).unwrap();
        writer.error(&SqlError::internal("x"));
        writer.end();
        let document: serde_json::Value = serde_json::from_slice(&writer.take()).unwrap();
        assert_eq!(document["results"][0]["error"]["message"], "x");
    }

    #[test]
    fn ndjson_has_a_line_each() {
        let text = written(ResultFormat::NdJson);
        let lines: Vec<_> = std::str::from_utf8(&text).unwrap().lines().collect();
        assert_eq!(lines[0], r#"{"n":1,"t":"a,\"b\""}"#);
        assert_eq!(lines[1], r#"{"n":null,"t":""}"#);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(lines[2]).unwrap()["done"]["rows"],
            2
        );
        assert!(lines[4].starts_with("{\"error\":"));
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(
            &written(ResultFormat::Csv)[..],
            b"n,t\n1,\"a,\"\"b\"\"\"\n,\"\"\n"
        );
    }

    #[test]
    fn arrow_reads_back() {
        let bytes = written(ResultFormat::Arrow);
        let batches: Vec<_> = StreamReader::try_new(&bytes[..], None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(batches, [sample().1]);
    }

    #[test]
    fn a_second_result_does_not_fit_into_csv() {
        let (schema, _) = sample();
        let mut writer = ResultWriter::new(ResultFormat::Csv);
        writer.begin_rows(&schema).unwrap();
        assert_eq!(
            writer.begin_rows(&schema).unwrap_err().code,
            SqlState::FeatureNotSupported
        );
    }
}
