//! `pg_relation_size`, `pg_database_size` and their like: bytes of rows, wherever they are.
//!
//! | | a stream | a table | a materialized view |
//! |---|---|---|---|
//! | `pg_relation_size`, `pg_table_size` | its log | its rows in memory, indexes among them | its rows and state, in memory or put on disk |
//! | `pg_total_relation_size` | the same | its log besides | the same |
//!
//! `pg_indexes_size` is 0, and an index has no size: it is a part of its table. A database is all of its relations.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::{CatalogSnapshot, Object};
use millrace_database::sessions::{Bytes, Sessions};
use millrace_functions::system::{any_arguments, number};
use millrace_planner::RelationId;
use millrace_resource::memory::Holder;
use millrace_storage::{LogStore, ObjectKind};

use super::functions::text;
use super::oid;

/// What a function adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Size {
    Relation,
    Table,
    Indexes,
    Total,
    Database,
}

const SIZES: [(&str, Size); 5] = [
    ("pg_relation_size", Size::Relation),
    ("pg_table_size", Size::Table),
    ("pg_indexes_size", Size::Indexes),
    ("pg_total_relation_size", Size::Total),
    ("pg_database_size", Size::Database),
];

/// The functions.
pub fn udfs(catalog: &Arc<ArcSwap<CatalogSnapshot>>, sessions: &Arc<Sessions>) -> Vec<Arc<ScalarUDF>> {
    let made = |(name, size): &(&'static str, Size)| {
        Arc::new(ScalarUDF::from(SizeOf {
            name,
            size: *size,
            catalog: Arc::clone(catalog),
            sessions: Arc::clone(sessions),
            signature: any_arguments(Volatility::Stable),
        }))
    };
    SIZES.iter().map(made).collect()
}

/// Bytes of relations at one moment.
struct Measured<'a> {
    logs: &'a LogStore,
    catalog: Arc<CatalogSnapshot>,
    /// In memory, and put on disk.
    held: HashMap<RelationId, usize>,
}

impl Measured<'_> {
    fn of(bytes: &Bytes, catalog: Arc<CatalogSnapshot>) -> Measured<'_> {
        let accounts = bytes.memory.accounts();
        let held = accounts.into_iter().filter_map(|account| match account.holder {
            Holder::Relation(id) => Some((id, account.total() + account.on_disk)),
            Holder::Query(_) | Holder::Clients => None,
        });
        Measured {
            held: held.collect(),
            catalog,
            logs: &bytes.logs,
        }
    }

    /// The relation of an oid, unless it is an index.
    fn relation(&self, number: i64) -> Option<&Object> {
        let found = self.catalog.objects().find(|object| oid(object.id) == number);
        let found = found.filter(|object| object.kind != ObjectKind::Index);
        found.map(|object| &**object)
    }

    fn held(&self, object: &Object) -> u64 {
        let id = RelationId(object.id.0);
        self.held.get(&id).copied().unwrap_or(0) as u64
    }

    fn log(&self, object: &Object) -> u64 {
        self.logs.bytes(object.id.0)
    }

    fn rows(&self, object: &Object) -> u64 {
        match object.kind {
            ObjectKind::Stream => self.log(object),
            _ if has_rows(object) => self.held(object),
            _ => 0,
        }
    }

    fn total(&self, object: &Object) -> u64 {
        match object.kind {
            ObjectKind::Table => self.held(object) + self.log(object),
            _ => self.rows(object),
        }
    }

    /// The size of what the arguments name in a row; none if there is no such thing.
    fn size(&self, size: Size, args: &[ArrayRef], row: usize) -> Option<u64> {
        if size == Size::Database {
            let name = number(args, 0, row).map_or_else(
                || text(args, 0, row),
                |number| {
                    let mut objects = self.catalog.objects();
                    let found = objects.find(|object| oid(object.id) == number)?;
                    (found.kind == ObjectKind::Database).then(|| found.name.clone())
                },
            )?;
            self.catalog.database(&name)?;
            let objects = self.catalog.objects();
            let own = objects.filter(|object| object.database == name && has_rows(object));
            return Some(own.map(|object| self.total(object)).sum());
        }
        let object = self.relation(number(args, 0, row)?)?;
        // Of PostgreSQL's files of a relation there is one.
        let is_main = args.len() < 2 || text(args, 1, row)? == "main";
        Some(match size {
            Size::Relation if !is_main => 0,
            Size::Relation | Size::Table => self.rows(object),
            Size::Total => self.total(object),
            Size::Indexes | Size::Database => 0,
        })
    }
}

fn has_rows(object: &Object) -> bool {
    matches!(
        object.kind,
        ObjectKind::Stream | ObjectKind::Table | ObjectKind::MaterializedView
    )
}

struct SizeOf {
    name: &'static str,
    size: Size,
    catalog: Arc<ArcSwap<CatalogSnapshot>>,
    sessions: Arc<Sessions>,
    signature: Signature,
}

impl fmt::Debug for SizeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for SizeOf {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && Arc::ptr_eq(&self.sessions, &other.sessions)
    }
}

impl Eq for SizeOf {}

impl Hash for SizeOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.size.hash(state);
    }
}

impl ScalarUDFImpl for SizeOf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let bytes = self.sessions.bytes();
        let measured = bytes.map(|bytes| Measured::of(bytes, self.catalog.load_full()));
        let size = |row: usize| {
            let bytes = measured.as_ref()?.size(self.size, &arrays, row)?;
            i64::try_from(bytes).ok()
        };
        let sizes: Int64Array = (0..rows).map(size).collect();
        Ok(ColumnarValue::Array(Arc::new(sizes)))
    }
}
