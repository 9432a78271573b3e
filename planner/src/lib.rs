//! From SQL to what the runtime executes.
//!
//! ```text
//! sqlparser AST --binder--> DataFusion logical plan --optimizer--> view: incremental operators --cut--> StageGraph
//!                                                             \--> SELECT: DataFusion physical plan
//! ```
//!
//! Nothing here does I/O, reads a clock or knows a session: the catalog is a trait, and the result is data.

pub mod binder;
pub mod case;
pub mod catalog;
pub mod complexity;
pub mod copies;
mod cyclic_join;
pub mod error;
pub mod explain;
mod function;
pub mod growth;
mod named_windows;
pub mod query;
pub mod reducer;
mod refused;
pub mod relation;
pub mod relation_id;
mod rewrite;
mod session;
pub mod stage;
pub mod state_identity;
mod time_join;
pub mod view;
pub mod watermark;
mod with_recursive;

pub use binder::Binder;
pub use catalog::{CatalogReader, SqlFunction};
pub use error::PlanError;
pub use relation::{RelationInfo, RelationKind, RelationTable};
pub use relation_id::RelationId;
pub use stage::policy::{OnError, Priority};
pub use stage::{Stage, StageGraph};
pub use view::{Emit, ViewOptions, plan_view};
