//! Functions that ask the catalog: `pg_get_viewdef`, `obj_description`, `pg_table_is_visible` and their like.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::CatalogSnapshot;
use millrace_functions::system::{any_arguments, number};

use crate::pg_catalog::{definitions, is_system};

/// What a [`FromCatalog`] function does with its arguments.
type Apply = fn(&CatalogSnapshot, &[ArrayRef], usize) -> Option<String>;

/// Functions that ask the catalog.
pub fn udfs(catalog: &Arc<ArcSwap<CatalogSnapshot>>) -> Vec<Arc<ScalarUDF>> {
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
            Some(millrace_catalog::DEFAULT_USER.to_string())
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
                            .is_none_or(|object| object.schema == millrace_catalog::DEFAULT_SCHEMA),
                )
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}
