//! Benchmarks of millrace.
//!
//! ```text
//!   main ── finds a suite in SUITES and runs it as the command line says
//!    └─ suite ── what every suite shares: options, size, choice of experiments, the kept report
//!        ├─ first_light, recovery, checkpoint, writes ── a real server over the PostgreSQL protocol
//!        │   ├─ target ── the server under test: the release binary as a child process, or one inside this process
//!        │   └─ flights, views, millrace-oracle ── the data, the views over it, and what they must show
//!        ├─ drizzle, neptune, mapreduce, monotasks, faucet ── the papers' experiments, servers in this process
//!        │   └─ bed ── such a server, which rows are handed to as Arrow
//!        ├─ doors ── a real broker and a real PostgreSQL server, and a server that reads them
//!        ├─ cluster ── a real server, and workers on machines of their own
//!        ├─ serving ── look-ups and small writes of applications, beside PostgreSQL
//!        ├─ tenants ── a real server, whose clients mean each other no good
//!        ├─ tpch, ivm, ingest ── the runtime alone, and storage alone
//!        ├─ crash, soak, random_views ── the tests that take as long as one likes, with their results kept
//!        ├─ apart ── measurements in processes of their own
//!        └─ results, statistics, machine, process, plot ── what was measured, on which machine, as JSON, report and figures
//! ```
//!
//! Every suite has a real size, whose results are kept in `benches/results/`, and a small one that the tests run.
//! Load generator and server share one machine: what the generator costs is measured and reported beside the result.
//!
//! A new suite is a type that implements [`suite::Suite`], and a line in [`SUITES`].

#![allow(clippy::disallowed_methods, reason = "measurements take place in real time")]

pub mod apart;
pub mod bed;
pub mod client;
pub mod cluster;
pub mod crash;
pub mod doors;
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
pub mod plot;
pub mod process;
pub mod random_views;
pub mod results;
pub mod serving;
pub mod size;
pub mod soak;
pub mod statistics;
pub mod suite;
pub mod target;
pub mod tenants;
pub mod tpch;

use apart::Kind;
use suite::Entry;

/// All suites, in the order of `--help`.
pub const SUITES: &[Entry] = &[
    Entry::of::<first_light::FirstLight>(),
    Entry::of::<tpch::Tpch>(),
    Entry::of::<random_views::RandomViews>(),
    Entry::of::<crash::Crash>(),
    Entry::of::<soak::Soak>(),
    Entry::of::<ivm::Ivm>(),
    Entry::of::<drizzle::Drizzle>(),
    Entry::of::<neptune::Neptune>(),
    Entry::of::<mapreduce::MapReduce>(),
    Entry::of::<ingest::Ingest>(),
    Entry::of::<monotasks::Monotasks>(),
    Entry::of::<durability::recovery::Recovery>(),
    Entry::of::<durability::disaster::Disaster>(),
    Entry::of::<durability::checkpoint::Checkpoints>(),
    Entry::of::<durability::writes::Writes>(),
    Entry::of::<faucet::Faucet>(),
    Entry::of::<doors::Doors>(),
    Entry::of::<serving::Serving>(),
    Entry::of::<tenants::Tenants>(),
    Entry::of::<cluster::Cluster>(),
];

/// All kinds of measurements that have a process of their own.
pub const APART: &[Kind] = &[
    Kind::of::<ivm::Cell>(),
    Kind::of::<faucet::Cell>(),
    Kind::of::<faucet::Soak>(),
    Kind::of::<doors::Feed>(),
];
