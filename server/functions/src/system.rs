//! Functions by which clients look at the server: its version, types, visibility, sizes, definitions.
//!
//! What depends on the session (`current_user`, `current_setting`, `pg_sleep`) is replaced by the session before a
//! statement is bound; what needs the catalog is a layer above, with the relations of `pg_catalog`.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::{SERVER_VERSION, types};

/// What `version()` says. The first words are PostgreSQL's, because clients read the number after them.
pub fn version() -> String {
    format!(
        "PostgreSQL {} (millrace {})",
        SERVER_VERSION,
        env!("CARGO_PKG_VERSION")
    )
}

/// A function that answers the same whatever its arguments, a row at a time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fixed {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

/// Any number of arguments of any types.
pub fn any_arguments(volatility: Volatility) -> Signature {
    Signature::one_of(
        vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
        volatility,
    )
}

fn fixed(name: &'static str, value: ScalarValue) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Fixed {
        name,
        value,
        signature: any_arguments(Volatility::Stable),
    }))
}

impl ScalarUDFImpl for Fixed {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// Functions that do not depend on the catalog.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let yes = || ScalarValue::Boolean(Some(true));
    let no = || ScalarValue::Boolean(Some(false));
    let text = |value: Option<&str>| ScalarValue::Utf8(value.map(str::to_string));
    let mut functions = vec![
        fixed("version", ScalarValue::Utf8(Some(version()))),
        fixed("pg_is_in_recovery", no()),
        fixed("pg_is_other_temp_schema", no()),
        fixed("pg_relation_is_publishable", no()),
        fixed("pg_my_temp_schema", ScalarValue::Int32(Some(0))),
        fixed("txid_current", ScalarValue::Int64(Some(1))),
        fixed("pg_encoding_to_char", text(Some("UTF8"))),
        fixed("pg_client_encoding", text(Some("UTF8"))),
        fixed("getdatabaseencoding", text(Some("UTF8"))),
        fixed("pg_trigger_depth", ScalarValue::Int32(Some(0))),
        fixed("row_security_active", no()),
        fixed("inet_server_addr", text(None)),
        fixed("inet_client_addr", text(None)),
        fixed("shobj_description", text(None)),
        fixed("pg_get_function_sqlbody", text(None)),
        fixed("pg_get_triggerdef", text(None)),
        fixed("pg_get_ruledef", text(None)),
        fixed("pg_tablespace_location", text(Some(""))),
        Arc::new(ScalarUDF::from(PgTypeof {
            signature: Signature::any(1, Volatility::Stable),
        })),
        Arc::new(ScalarUDF::from(SizePretty {
            signature: Signature::any(1, Volatility::Immutable),
        })),
    ];
    for name in [
        "pg_type_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_statistics_obj_is_visible",
        "has_type_privilege",
        "has_language_privilege",
        "has_tablespace_privilege",
    ] {
        functions.push(fixed(name, yes()));
    }
    functions
}

/// The whole number that an argument is in a row.
pub fn number(args: &[ArrayRef], position: usize, row: usize) -> Option<i64> {
    let wide = arrow::compute::cast(args.get(position)?, &DataType::Int64).ok()?;
    let wide = wide.as_primitive::<Int64Type>();
    wide.is_valid(row).then(|| wide.value(row))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgTypeof {
    signature: Signature,
}

impl ScalarUDFImpl for PgTypeof {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = args.arg_fields.first().map(|field| types::plain_name(field));
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(name)))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SizePretty {
    signature: Signature,
}

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let out: StringArray = (0..arrays[0].len())
            .map(|row| number(&arrays, 0, row).map(size_pretty))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// A size in the largest unit that leaves it below 10,240, rounded half up.
fn size_pretty(bytes: i64) -> String {
    let mut size = i128::from(bytes);
    if size.abs() < 10 * 1024 {
        return format!("{size} bytes");
    }
    for unit in ["kB", "MB", "GB", "TB", "PB"] {
        let rounded = (size.abs() + 512) / 1024 * size.signum();
        if rounded.abs() < 10 * 1024 || unit == "PB" {
            return format!("{rounded} {unit}");
        }
        size /= 1024;
    }
    unreachable!("the last unit takes every size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_postgresql_writes_them() {
        assert_eq!(size_pretty(0), "0 bytes");
        assert_eq!(size_pretty(10_239), "10239 bytes");
        assert_eq!(size_pretty(10_240), "10 kB");
        assert_eq!(size_pretty(-20 * 1024 * 1024), "-20 MB");
        assert!(size_pretty(i64::MAX).ends_with("PB"));
    }
}
