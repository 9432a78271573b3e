//! The `millrace` binary: chooses the allocator, and leaves the rest to the library.

use std::process::ExitCode;

/// Many small, short-lived batches on several threads: what mimalloc is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    millrace_server::cli::main()
}
