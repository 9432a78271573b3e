//! Functions by which clients look at the server: its version, types, visibility, sizes, definitions.
//!
//! What depends on the session (`current_user`, `current_setting`, `pg_sleep`) is replaced by the session before a
//! statement is bound; what needs the catalog asks the snapshot of the moment, through a handle.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::catalog::CatalogSnapshot;
use crate::catalog::pg_catalog::{definitions, is_system};
use crate::types;

/// What `version()` says. The first words are PostgreSQL's, because clients read the number after them.
pub fn version() -> String {
    format!(
        "PostgreSQL {} (millrace {})",
        SERVER_VERSION,
        env!("CARGO_PKG_VERSION")
    )
}

/// The version of PostgreSQL whose catalog and protocol millrace follows.
pub const SERVER_VERSION: &str = "15.0";

/// What a [`Fixed`] or [`FromCatalog`] function does with its arguments.
type Apply = fn(&CatalogSnapshot, &[ArrayRef], usize) -> Option<String>;

/// A function that answers the same whatever its arguments, a row at a time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fixed {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

fn any_arguments(volatility: Volatility) -> Signature {
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
        fixed("inet_server_addr", text(None)),
        fixed("inet_client_addr", text(None)),
        fixed("shobj_description", text(None)),
        fixed("pg_get_function_result", text(Some("any"))),
        fixed("pg_get_function_arguments", text(Some(""))),
        fixed("pg_get_function_identity_arguments", text(Some(""))),
        fixed("pg_get_function_sqlbody", text(None)),
        fixed("pg_get_triggerdef", text(None)),
        fixed("pg_get_ruledef", text(None)),
        fixed("pg_tablespace_location", text(Some(""))),
        fixed("pg_database_size", ScalarValue::Int64(Some(0))),
        fixed("pg_table_size", ScalarValue::Int64(Some(0))),
        fixed("pg_indexes_size", ScalarValue::Int64(Some(0))),
        Arc::new(ScalarUDF::from(PgTypeof {
            signature: Signature::any(1, Volatility::Stable),
        })),
        Arc::new(ScalarUDF::from(SizePretty {
            signature: Signature::any(1, Volatility::Immutable),
        })),
    ];
    for name in [
        "pg_function_is_visible",
        "pg_type_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_statistics_obj_is_visible",
        "has_column_privilege",
        "has_function_privilege",
        "has_type_privilege",
        "has_language_privilege",
        "has_tablespace_privilege",
        "has_sequence_privilege",
        "pg_has_role",
    ] {
        functions.push(fixed(name, yes()));
    }
    functions
}

/// Functions that ask the catalog.
pub fn catalog_udfs(catalog: &Arc<ArcSwap<CatalogSnapshot>>) -> Vec<Arc<ScalarUDF>> {
    let ask = |name: &'static str, apply: Apply| {
        Arc::new(ScalarUDF::from(FromCatalog {
            name,
            apply,
            catalog: Arc::clone(catalog),
            signature: any_arguments(Volatility::Stable),
        }))
    };
    vec![
        ask("pg_get_userbyid", |_, _, _| {
            Some(crate::catalog::DEFAULT_USER.to_string())
        }),
        ask("pg_get_indexdef", |catalog, args, row| {
            definitions::index(catalog, oid(args, row)?, number(args, 1, row).unwrap_or(0))
        }),
        ask("pg_get_viewdef", |catalog, args, row| {
            definitions::view(catalog, oid(args, row)?)
        }),
        ask("pg_get_constraintdef", |catalog, args, row| {
            definitions::constraint(catalog, oid(args, row)?)
        }),
        // Expressions are kept as their text.
        ask("pg_get_expr", |_, args, row| {
            let texts = arrow::compute::cast(args.first()?, &DataType::Utf8).ok()?;
            let texts = texts.as_string::<i32>();
            texts.is_valid(row).then(|| texts.value(row).to_string())
        }),
        ask("obj_description", |catalog, args, row| {
            definitions::comment(catalog, oid(args, row)?, 0)
        }),
        ask("col_description", |catalog, args, row| {
            definitions::comment(catalog, oid(args, row)?, number(args, 1, row)?)
        }),
        Arc::new(ScalarUDF::from(Visible {
            catalog: Arc::clone(catalog),
            signature: Signature::any(1, Volatility::Stable),
        })),
    ]
}

fn number(args: &[ArrayRef], position: usize, row: usize) -> Option<i64> {
    let wide = arrow::compute::cast(args.get(position)?, &DataType::Int64).ok()?;
    let wide = wide.as_primitive::<Int64Type>();
    wide.is_valid(row).then(|| wide.value(row))
}

fn oid(args: &[ArrayRef], row: usize) -> Option<i64> {
    number(args, 0, row)
}

struct FromCatalog {
    name: &'static str,
    apply: Apply,
    catalog: Arc<ArcSwap<CatalogSnapshot>>,
    signature: Signature,
}

impl fmt::Debug for FromCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for FromCatalog {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for FromCatalog {}

impl Hash for FromCatalog {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for FromCatalog {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = arrays.first().map_or(args.number_rows, |array| array.len());
        let catalog = self.catalog.load();
        let out: StringArray = (0..rows)
            .map(|row| (self.apply)(&catalog, &arrays, row))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// `pg_table_is_visible`: whether the relation's schema is one that names are looked for in by default.
struct Visible {
    catalog: Arc<ArcSwap<CatalogSnapshot>>,
    signature: Signature,
}

impl fmt::Debug for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Visible {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for Visible {}

impl Hash for Visible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Visible {
    fn name(&self) -> &str {
        "pg_table_is_visible"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let catalog = self.catalog.load();
        let out: BooleanArray = (0..arrays[0].len())
            .map(|row| {
                let oid = number(&arrays, 0, row)?;
                Some(
                    !is_system(oid)
                        && definitions::object(&catalog, oid)
                            .is_none_or(|object| object.schema == crate::catalog::DEFAULT_SCHEMA),
                )
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
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
