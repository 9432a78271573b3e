//! The objects of the server in memory: an immutable snapshot, swapped whole at each DDL statement.
//!
//! A statement takes the snapshot once and sees one catalog until it ends. What lasts is in storage's catalog as SQL
//! text and properties; [`object`] translates between the two.

pub mod bound;
pub mod column;
pub mod event_time;
pub mod external;
pub mod flow;
pub mod function;
pub mod information_schema;
pub mod keeping;
pub mod mr_catalog;
pub mod names;
pub mod object;
pub mod pg_catalog;
pub mod reader;
pub mod scope;
pub mod snapshot;

pub use column::ColumnDef;
pub use names::{DATABASE_ALIAS, DEFAULT_DATABASE, DEFAULT_SCHEMA, DEFAULT_USER, SYSTEM_SCHEMAS, USER_ALIAS};
pub use object::{Definition, IndexDef, Object, Planned, QueryDef, Relation, kind_name, lasting_columns};
pub use reader::Reader;
pub use snapshot::CatalogSnapshot;
