//! The `millrace` binary: chooses the allocator, and leaves the rest to the library.

use std::process::ExitCode;

/// Its settings are in `.cargo/config.toml`. With mimalloc, whose threads give free pages back themselves when they next take one, a
/// view could not become larger than a `memory_limit` of 256 MB: as much stayed behind once its state had gone to the disk.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    millrace_cli::command_line::main()
}
