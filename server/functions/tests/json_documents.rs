//! Values of JSON documents in columns of SQL's types: what COPY's decoder reads, and the casts that follow.

use std::sync::Arc;

use millrace_functions::cast;
use millrace_postgres::copy::json::Decoder;
use millrace_postgres::error::SqlError;
use millrace_postgres::from_internal;
use millrace_postgres::types::output;

/// One document into a column `v` of a type: its text, or the code of the error.
fn one(sql_type: &str, value: &str) -> String {
    let named = cast::named(sql_type).expect("a type of SQL");
    let field = Arc::new(named.field("v", true));
    let run = || {
        let mut decoder = Decoder::new(false, &[Arc::clone(&field)]);
        decoder.push(format!("{{\"v\":{value}}}").as_bytes())?;
        decoder.finish()?;
        let documents = decoder.take().expect("one document was pushed");
        let batch = documents.read(0)?;
        let read = decoder.read_fields().remove(0);
        let column = cast::convert(&read, &field, batch.column(0)).map_err(from_internal::datafusion)?;
        Ok::<_, SqlError>(output::text(&field, &column, 0))
    };
    run().unwrap_or_else(|error| error.code.code().to_string())
}

#[test]
fn values_are_what_they_are_in_sql() {
    for (sql_type, value, expected) in [
        ("int", "1.7", "2"),
        ("int", "-2.5", "-3"),
        ("int", "1e3", "1000"),
        ("int", "\"12\"", "12"),
        ("int", "\"1.7\"", "22P02"),
        ("int", "3000000000", "22003"),
        ("int", "1e400", "22003"),
        ("smallint", "99999.5", "22003"),
        ("numeric(5,2)", "1.239", "1.24"),
        ("numeric(5,2)", "\"1.239\"", "1.24"),
        ("numeric(5,2)", "1000", "22003"),
        ("numeric", "1.5", "1.5"),
        ("numeric", "4e-11", "22003"),
        ("real", "1.1", "1.1"),
        ("float8", "\"NaN\"", "NaN"),
        ("boolean", "\"yes\"", "t"),
        ("boolean", "true", "t"),
        ("timestamp", "\"2013-01-31 10:00\"", "2013-01-31 10:00:00"),
        ("timestamp", "1359626400000", "22007"),
        ("date", "20130131", "22007"),
        ("text", "1.50", "1.50"),
        ("text", "{}", "22P02"),
        ("jsonb", "{\"b\":1,\"a\":[]}", "{\"a\": [], \"b\": 1}"),
        ("int[]", "[1,null,2.5]", "{1,NULL,3}"),
        ("int[]", "[[1]]", "22P02"),
        ("numeric(5,2)[]", "[1.239]", "{1.24}"),
        ("varchar(3)[]", "[\"abcd\"]", "22001"),
        ("int", "null", "null"),
    ] {
        assert_eq!(one(sql_type, value), expected, "{value} into {sql_type}");
    }
}
