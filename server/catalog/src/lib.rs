//! The objects of a database in memory, and what they mean: definitions, names, settings.
//!
//! ```text
//!   reader ── names in a statement to relations        scope ── what a statement's names are looked up in
//!     └── snapshot ── the catalog at one moment, swapped whole at each DDL statement
//!           └── object (column, role, rights, bound, event_time, external, flow, function, keeping, secret, sink, connector, temporary)
//!   access ── whether whoever acts may
//!   settings, limits ── of a session, of a role        names ── what is there without being made
//! ```
//!
//! A statement takes the snapshot once and sees one catalog until it ends. What lasts is in storage's catalog as SQL text and
//! properties; [`object`] translates between the two. It opens nothing, runs nothing, and knows no database and no session.

pub mod access;
pub mod bound;
mod column;
pub mod connector;
mod constraint;
pub mod event_time;
pub mod external;
pub mod flow;
pub mod function;
pub mod limits;
mod names;
pub mod object;
pub mod reader;
pub mod retention;
pub mod rights;
pub mod role;
pub mod scope;
pub mod secret;
pub mod sequence;
pub mod settings;
pub mod sink;
mod snapshot;
pub mod temporary;
pub mod user_type;

pub use column::ColumnDef;
pub use constraint::{Action, CheckDef, ForeignKeyDef};
pub use names::{
    DATABASE_ALIAS, DEFAULT_DATABASE, DEFAULT_SCHEMA, DEFAULT_USER, SYSTEM_SCHEMAS, USER_ALIASES,
};
pub use object::{Definition, IndexDef, Object, Planned, QueryDef, Relation, kind_name, lasting_columns};
pub use reader::Reader;
pub use snapshot::CatalogSnapshot;
