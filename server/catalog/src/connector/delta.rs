//! `connector = 'delta'`: a table of Delta Lake that a sink appends to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::type_name;
use serde_json::{Value, json};

use super::files::{BucketPlace, FilesPlace};
use super::options::{Given, invalid};

/// The options with the bucket of a path like `s3://bucket/path` as one of its own.
pub(crate) fn with_bucket(all: &BTreeMap<String, String>) -> SqlResult<BTreeMap<String, String>> {
    const BUCKET: &str = "s3.bucket_name";
    let mut all = all.clone();
    let Some(path) = all.get("path") else {
        return Ok(all);
    };
    let Some(rest) = path.strip_prefix("s3://").or_else(|| path.strip_prefix("s3a://")) else {
        return Ok(all);
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    if all.get(BUCKET).is_some_and(|named| *named != bucket) {
        return Err(invalid(
            "path",
            path,
            &format!("its bucket is not that of option \"{BUCKET}\""),
        ));
    }
    all.insert(BUCKET.to_owned(), bucket);
    all.insert("path".to_owned(), prefix);
    Ok(all)
}

/// Where a table is, by options that [`with_bucket`] has seen.
pub(crate) fn place(given: &mut Given<'_>) -> SqlResult<FilesPlace> {
    if given.has("s3.bucket_name") {
        return BucketPlace::new(given).map(FilesPlace::Bucket);
    }
    let path = given.text("path");
    let path = path.ok_or_else(|| given.missing("path", "an absolute path, or 's3://bucket/path'"))?;
    match path.starts_with('/') {
        true => Ok(FilesPlace::Directory(PathBuf::from(path))),
        false => Err(invalid(
            "path",
            path,
            "it must be an absolute path or like s3://bucket/path",
        )),
    }
}

/// The schema of a table with these columns, as Delta Lake writes it.
///
/// # Errors
/// A column has a type that it has not, or a name.
pub fn schema(columns: &Schema) -> SqlResult<Value> {
    let mut fields: Vec<Value> = vec![];
    for column in columns.fields() {
        if column
            .name()
            .contains([' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='])
            || column.name().is_empty()
        {
            return Err(SqlError::unsupported(format!(
                "Delta Lake does not support the column name \"{}\"",
                column.name()
            ))
            .with_detail("It has none of the characters  ,;{}()= and no tabs or line feeds.")
            .with_hint("Rename the column in a query: CREATE SINK .. AS SELECT .."));
        }
        let lower = column.name().to_lowercase();
        if let Some(other) = fields
            .iter()
            .filter_map(|field| field["name"].as_str())
            .find(|name| name.to_lowercase() == lower)
        {
            return Err(SqlError::unsupported(format!(
                "Delta Lake does not tell columns \"{other}\" and \"{}\" apart",
                column.name()
            ))
            .with_hint("Rename one of them in a query: CREATE SINK .. AS SELECT .."));
        }
        let of = of_type(column).ok_or_else(|| {
            SqlError::unsupported(format!(
                "column \"{}\" is of type {}, which Delta Lake does not support",
                column.name(),
                type_name(column)
            ))
            .with_hint("Cast it to text in a query: CREATE SINK .. AS SELECT ..")
        })?;
        fields.push(json!({"name": column.name(), "type": of, "nullable": true, "metadata": {}}));
    }
    Ok(json!({"type": "struct", "fields": fields}))
}

fn of_type(field: &Field) -> Option<Value> {
    let name = match field.data_type() {
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz",
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            return Some(json!(format!("decimal({precision},{scale})")));
        }
        DataType::List(item) => {
            return Some(json!({"type": "array", "elementType": of_type(item)?, "containsNull": true}));
        }
        _ => return None,
    };
    Some(json!(name))
}

/// Whether a type is, or has, a timestamp without a zone, which readers have to know.
pub fn has_local_times(schema: &Value) -> bool {
    match schema {
        Value::String(name) => name == "timestamp_ntz",
        Value::Array(all) => all.iter().any(has_local_times),
        Value::Object(members) => ["type", "elementType", "keyType", "valueType", "fields"]
            .iter()
            .filter_map(|member| members.get(*member))
            .any(has_local_times),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_path_may_be_in_a_bucket() {
        let options = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            (pairs.iter())
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let of = |pairs: &[(&str, &str)]| {
            let all = with_bucket(&options(pairs))?;
            let mut given = Given::new("delta", &all);
            let place = place(&mut given)?;
            given.finish()?;
            Ok::<_, SqlError>(place)
        };
        let region = ("s3.region_name", "eu-central-1");
        for path in [
            vec![("path", "s3://b/a/t"), region],
            vec![("path", "s3a://b/a/t/"), region],
            vec![("path", "/a/t"), ("s3.bucket_name", "b"), region],
        ] {
            let FilesPlace::Bucket(place) = of(&path).unwrap() else {
                panic!("{path:?}")
            };
            assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("b", "a/t"));
        }
        assert_eq!(of(&[("path", "/t")]).unwrap(), FilesPlace::Directory("/t".into()));
        for wrong in [
            vec![],
            vec![("path", "t")],
            vec![("path", "s3://b/t")],
            vec![("path", "s3://b/t"), ("s3.bucket_name", "c"), region],
            vec![("path", "/t"), region],
        ] {
            assert!(of(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn types_are_those_of_delta() {
        let list = DataType::List(Arc::new(Field::new(
            "item",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            true,
        )));
        let one = |of: DataType| schema(&Schema::new(vec![Field::new("a", of, true)]));
        let found = one(list).unwrap();
        assert_eq!(
            found["fields"][0]["type"],
            json!({"type": "array", "elementType": "timestamp_ntz", "containsNull": true})
        );
        assert!(has_local_times(&found));
        assert!(!has_local_times(&one(DataType::Utf8).unwrap()));
        assert_eq!(
            one(DataType::Decimal128(9, 2)).unwrap()["fields"][0]["type"],
            json!("decimal(9,2)")
        );
        assert!(one(DataType::Time64(TimeUnit::Microsecond)).is_err());
        for wrong in [vec!["a b"], vec![""], vec!["a", "A"]] {
            let fields = wrong.iter().map(|name| Field::new(*name, DataType::Int32, true));
            assert!(
                schema(&Schema::new(fields.collect::<Vec<_>>())).is_err(),
                "{wrong:?}"
            );
        }
    }
}
