//! Functions and reducers in JavaScript.
//!
//! ```text
//!  catalog: text, types --> Program --check--> a scratch machine (42601, 42P13)
//!                              |
//!        plan: ScalarUDF / AggregateUDF, which hold program and engine
//!                              | a batch of rows
//!                           Engine --takes an idle machine of the program, or makes one--> Machine --> column
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`program`] | a function as it was written |
//! | [`limits`] | what calls may take |
//! | [`engine`] | the machines that are kept |
//! | `machine` | one QuickJS with one program in its sandbox: it runs on one thread at a time |
//! | `values` | between columns and JavaScript's values |
//! | [`scalar`] | functions as DataFusion sees them |
//! | [`reducer`] | reducers as the planner sees them |
//!
//! # Why the same input gives the same output
//! A view takes a row back by computing it again. So a program finds no clock, no chance, no I/O and no time zone around itself
//! (`sandbox.js` takes them away), and nothing that it could change for a later call: all that every call sees is frozen, code cannot
//! be made of texts, and a function is refused whose text closes the braces around it. A reducer's own variables are made anew for
//! each call of one of its parts; what lasts is its state, which goes through bytes.
//!
//! What does depend on the moment is how long a call takes and how much memory is left: there a view fails, as it does where it
//! grows too large, instead of keeping NULL for a row.

pub mod engine;
pub mod limits;
pub mod program;
pub mod reducer;
pub mod scalar;

#[cfg(feature = "engine")]
mod fault;
#[cfg(feature = "engine")]
mod machine;
#[cfg(feature = "engine")]
mod values;

pub use engine::Engine;
pub use limits::Limits;
pub use program::{Form, Program};
