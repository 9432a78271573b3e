//! One client's conversation: settings, transaction, prepared statements, cursors, and the execution of statements.
//!
//! ```text
//!   conversation ── parse, prepare, execute, ingest: what a wire asks of a session
//!     ├── parameters ── what a prepared statement needs and answers with
//!     ├── statement ── the statements, one kind a file          access ── what each needs
//!     │     ├── copy_in ── rows that a client sends           keys ── keys that exist already
//!     │     ├── query ── a bound query on the runtime         names, constants, object_names ── what a statement's words mean
//!     ├── look_up ── what needs no plan         known, template, key_select ── statements that came before; SELECTs by equality
//!     └── write ── locks, a transaction's changes, the atomic append         overlay, own_changes ── a transaction sees its own
//!   session ── Session: what one client has         identity ── as whom it acts
//!     └── transaction; implicit ── of several statements without BEGIN         cursor, outcome, notice, position
//! ```
//!
//! The wire protocols own a [`Session`] each and translate. They may call it from any task, but one statement at a
//! time; only `CancelHandle::cancel` may come from elsewhere while a statement runs.
//!
//! ```text
//! let session = Session::new(db, info)?;                         // 3D000 when the database is unknown
//! simple query:    let mut query = session.run(sql).await?;      // parse errors come from here
//!                  while let Some(outcome) = query.next().await { .. }   // stop at the first error
//! extended query:  let prepared = session.prepare_text(sql, &types).await?;   // one statement, or none
//!                  session.execute(&prepared, params).await?
//!                  session.begin_implicit(&prepared) before those of a pipeline, session.end_implicit().await? at its Sync
//! ingest:          session.ingest("stream", IngestFormat::NdJson, body).await?
//! after each:      session.take_notices(), session.take_parameter_changes(), session.transaction_status()
//! ```
//!
//! Whoever calls only waits: what takes time with the text, the plan or the values of a statement runs on the runtime's scheduler
//! for statements (`Session::run_statement`).

mod access;
mod advisory;
mod audit;
mod call;
mod changes;
mod constants;
mod conversation;
pub mod copy_in;
mod counting;
mod cursor;
pub mod effects;
mod forecasting;
mod functions;
mod identity;
mod implicit;
mod key_select;
mod keys;
mod known;
mod light;
pub mod limits;
mod look_up;
mod names;
mod names_of_users;
mod news;
mod notice;
mod object_names;
mod outcome;
mod output_columns;
mod overlay;
mod overriding;
mod own_changes;
mod parameters;
mod position;
mod prepared;
mod query;
mod resolve;
mod sequences;
mod session;
mod simple;
mod statement;
mod statement_memory;
mod status;
mod template;
#[cfg(test)]
pub(crate) mod tests;
mod transaction;
mod types;
mod withheld;
mod write;

pub use notice::{Notice, Severity};
pub use outcome::{CommandTag, CopyOut, CopyRows, Outcome, TagRows};
pub use prepared::Prepared;
pub use session::Session;
pub use simple::SimpleQuery;
pub use statement::subscribe::Following;
