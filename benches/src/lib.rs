//! Benchmarks of millrace.
//!
//! ```text
//!   main ── chooses a suite, its scale and its target
//!    ├─ first_light ── a suite against a real server over the PostgreSQL protocol
//!    │   ├─ target ── the server under test: the release binary as a child process, or one inside this process
//!    │   └─ flights, views, oracle ── the data, the views over it, and what they must show
//!    ├─ drizzle ── simulated clusters, and a server under the Yahoo streaming benchmark
//!    ├─ neptune ── TPC-H as batch work with stream tasks beside it, under each scheduling policy
//!    ├─ mapreduce ── windows that slide, word count, latency by rate, Nexmark, against a server in this process
//!    ├─ durability ── recovery after a kill, what checkpoints cost, against a real server
//!    ├─ ingest ── storage alone: the log at each durability level against its disk
//!    ├─ ivm ── a suite against the engine alone, in a process for each view and size
//!    └─ results, plot ── what was measured, on which machine, written as results.json, report.md and figures
//! ```
//!
//! Every suite has a real mode, whose results are kept in `benches/results/`, and a small one that the tests run.
//! Load generator and server share one machine: what the generator costs is measured and reported beside the result.

pub mod client;
pub mod drizzle;
pub mod durability;
pub mod error;
pub mod faucet;
pub mod first_light;
pub mod flights;
pub mod ingest;
pub mod ivm;
pub mod machine;
pub mod mapreduce;
pub mod monotasks;
pub mod neptune;
pub mod oracle;
pub mod plot;
pub mod process;
pub mod results;
pub mod statistics;
pub mod target;
pub mod tpch;
