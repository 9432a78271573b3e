//! Every suite at its small size, in this process: its experiments work, give numbers, and can be kept.

mod cluster;
mod common;
mod doors;
mod drizzle;
mod durability;
mod faucet;
mod first_light;
mod ingest;
mod ivm;
mod mapreduce;
mod monotasks;
mod neptune;
mod serving;
mod tenants;
mod tpch;
