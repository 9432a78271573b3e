//! From SQL to what the runtime executes.
//!
//! ```text
//! AST ──passes of millrace-sql, binder──> DataFusion logical plan ──optimizer──┬─> SELECT: DataFusion physical plan
//!                                                                              └─> view: incremental operators ──cut──> StageGraph
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`binder`] | DataFusion's SQL planner over a catalog of ours; what is rewritten before and after: crate `millrace-sql` |
//! | [`relation`], [`relation_id`] | stored relations in plans |
//! | [`query`] | what a SELECT is optimised with |
//! | [`view`] | a view's plan to incremental operators |
//! | [`stage`], [`explain`] | the stage DAG, all that crosses to execution, and how it is printed |
//! | [`watermark`], [`growth`], [`reducer`] | event time; state without bound; aggregates of a program's own |
//! | [`state_identity`] | which state of another plan a view can go on with |
//!
//! Nothing here does I/O, reads a clock or knows a session: the catalog is a trait, and the result is data. How long anything takes is
//! the crate `millrace-clarity`'s business.

pub mod binder;
mod cyclic_join;
pub mod error;
pub mod explain;
pub mod growth;
pub mod query;
pub mod reducer;
pub mod relation;
pub mod relation_id;
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
