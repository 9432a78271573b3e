//! From SQL to what the runtime executes.
//!
//! ```text
//! sqlparser AST --binder--> DataFusion logical plan --optimizer--> view: incremental operators --cut--> StageGraph
//!                                                             \--> SELECT: DataFusion physical plan
//! ```
//!
//! Nothing here does I/O, reads a clock or knows a session: the catalog is a trait, and the result is data.

pub mod binder;
mod cyclic_join;
pub mod error;
pub mod explain;
pub mod growth;
pub mod query;
pub mod reducer;
pub mod relation;
pub mod relation_id;
mod session;
pub mod stage;
pub mod state_identity;
pub mod view;
pub mod watermark;

pub use binder::Binder;
pub use error::PlanError;
pub use relation::{RelationInfo, RelationKind, RelationTable};
pub use relation_id::RelationId;
pub use stage::policy::{OnError, Priority};
pub use stage::{Stage, StageGraph};
pub use view::{Emit, ViewOptions, plan_view};
