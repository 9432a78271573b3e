//! What is rewritten in a statement between the parser, which reads what PostgreSQL reads, and the planner, whose binder and
//! optimizer are DataFusion's.
//!
//! ```text
//!  parser ──> AST ──> PASSES over the text ──> bind (DataFusion) ──> PASSES over the plan ──> planner: SELECT, view
//!                        │      asks: catalog, constants, columns       │
//!                        └────────────── Binding ───────────────────────┘
//! ```
//!
//! **Begin with [`passes::PASSES`]**: the list, in order, of all that is done, each with why it stands where it does.
//!
//! | folder | what |
//! |---|---|
//! | [`streaming`] | what is ours and not SQL's: windows in time, joins in time |
//! | [`postgres`] | what PostgreSQL reads and DataFusion reads otherwise |
//! | [`workarounds`] | what DataFusion plans wrongly or refuses: a file each, with a test that fails when DataFusion mends it |
//! | [`sql_function`], [`complexity`], `balance` | CREATE FUNCTION's bodies; limits on what a statement may become; long conditions |
//!
//! It knows no session, no stored rows and no view: functions are names here, and what it must know of relations it asks of the
//! [`CatalogReader`]. It does no I/O and reads no clock.

mod balance;
pub mod binding;
pub mod called;
pub mod catalog;
pub mod complexity;
pub mod copies;
pub mod error;
pub mod float_sum;
pub mod in_turn;
pub mod numeric;
pub mod passes;
pub mod postgres;
pub mod relations;
pub mod sql_function;
pub mod streaming;
pub mod template;
pub mod times;
pub mod workarounds;

pub use binding::Binding;
pub use catalog::{CatalogReader, SqlFunction};
pub use error::{Fault, Faulty};
