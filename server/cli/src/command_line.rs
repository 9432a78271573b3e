//! The command line. Exit status: 0, 1 when what was asked for failed, 2 when it was asked for wrongly.

use std::future::Future;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::fail;
use crate::{check, demo, doctor, logging, manual, restore, serve, sql, test, worker};

/// Threads for the wires. Queries and views run on the runtime's own.
const WIRE_THREADS: usize = 2;
/// Stack of one of them.
const WIRE_STACK_BYTES: usize = 8 << 20;
/// Threads beside these for what blocks, of which each takes as large a stack.
const BLOCKING_THREADS_MAX: usize = 64;

/// What stands above the commands is the description of the crate.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server.
    Serve(serve::ServeArgs),
    /// Work for a server on another machine.
    Worker(worker::JoinArgs),
    /// Watch materialized views change: a temporary server replays real flights.
    Demo(demo::DemoArgs),
    /// Send SQL to a server and print the results.
    Sql(sql::SqlArgs),
    /// Create a data directory from a backup, or from the copy that log_url keeps.
    Restore(restore::RestoreArgs),
    /// Say what is wrong with this configuration, data directory and machine.
    Doctor(doctor::DoctorArgs),
    /// Read every byte of a data directory that no server uses.
    Check(check::CheckArgs),
    /// Run sqllogictest files, each against its own temporary server.
    Test(test::TestArgs),
    /// Print what a shell needs to complete commands and flags.
    Completions(manual::CompletionsArgs),
    /// Print the manual page.
    Man(manual::ManArgs),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let command = match CommandLine::try_parse() {
        Ok(line) => line.command,
        Err(error) => {
            let arguments: Vec<String> = std::env::args().collect();
            let is_fault =
                error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            if is_fault && logging::say_misused(error.to_string().trim_end(), &arguments) {
                return ExitCode::from(2);
            }
            // It prints usage errors and help, and exits with the status of each.
            error.exit()
        }
    };
    match command {
        Command::Serve(args) => block_on(serve::run(args)),
        Command::Worker(args) => block_on(worker::run(args)),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Sql(args) => block_on(sql::run(args)),
        Command::Restore(args) => block_on(restore::run(args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Completions(args) => manual::completions(&args, CommandLine::command()),
        Command::Man(args) => manual::man(&args, CommandLine::command()),
        Command::Test(args) => block_on(test::run(args)),
    }
}

/// Runs a command on a runtime for the wires.
fn block_on(command: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WIRE_THREADS)
        // Planning recurses over deep statements.
        .thread_stack_size(WIRE_STACK_BYTES)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("millrace-wire")
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(command);
            // A read of stdin that nobody waits for any more must not keep the process alive.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(&format!("cannot start threads: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_flag_is_in_the_manual() {
        let manual = concat!(
            include_str!("../../../docs/operations.md"),
            include_str!("../../../docs/cluster.md")
        );
        let mut missing = vec![];
        for command in CommandLine::command().get_subcommands() {
            let name = command.get_name();
            let flags = command.get_arguments().filter_map(|flag| flag.get_long());
            let unknown = flags.filter(|flag| !manual.contains(&format!("--{flag}")));
            missing.extend(unknown.map(|flag| format!("{name} --{flag}")));
            if !manual.contains(&format!("millrace {name}")) {
                missing.push(name.to_owned());
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn bad_usage_has_status_2() {
        for arguments in [
            &["millrace", "serv"][..],
            &["millrace", "serve", "--nonsense"],
            &["millrace", "test"],
        ] {
            let error = CommandLine::try_parse_from(arguments).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
        assert_eq!(
            CommandLine::try_parse_from(["millrace", "--version"])
                .unwrap_err()
                .exit_code(),
            0
        );
    }
}
