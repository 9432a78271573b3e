//! Servers in this process, and clients of them over their protocols.
//!
//! Tests that kill servers, or need whole processes of their own, stand beside this folder.

#![allow(clippy::unwrap_used)]

mod abuse;
mod clients;
mod clock;
mod concurrency;
mod console;
mod event_time;
mod examples;
mod javascript;
mod nexmark;
mod oracle;
mod pipelines;
mod planned;
mod printed;
mod random;
mod reducers;
mod rows_in;
mod subscribe;
mod tls;
mod tpch;
mod upgrade;
mod webhook;
mod wire;
mod wire_messages;
