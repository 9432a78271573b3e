//! The `millrace` binary: chooses the allocator, and leaves the rest to the library.

use std::process::ExitCode;

/// Many small, short-lived batches on several threads: what mimalloc is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After how many milliseconds mimalloc gives free memory back; a second, if nothing is said. It reads that when a process begins.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "100");

fn main() -> ExitCode {
    begin_with_allocator_settings();
    millrace_server::cli::main()
}

/// Begins again, as the same process, with the settings of the allocator. What is free and not given back counts against
/// `memory_limit`: with a second of it, two million rows into a view under a limit of 256 MB took six to eight times as long.
#[cfg(unix)]
fn begin_with_allocator_settings() {
    use std::os::unix::process::CommandExt;

    let (name, value) = PURGE_DELAY;
    if std::env::var_os(name).is_some() {
        return;
    }
    let mut args = std::env::args_os();
    let (Some(name_of_program), Ok(program)) = (args.next(), std::env::current_exe()) else {
        return;
    };
    // It returns only if that cannot be done; then it is as it was.
    _ = std::process::Command::new(program)
        .arg0(name_of_program)
        .args(args)
        .env(name, value)
        .exec();
}

#[cfg(not(unix))]
fn begin_with_allocator_settings() {}
