//! `millrace restore`: a data directory from a backup.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::exit::fail;

/// Flags of `millrace restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory that BACKUP TO wrote
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The data directory to create; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Copies the backup, checking every byte.
pub fn run(args: &RestoreArgs) -> ExitCode {
    match millrace_storage::restore(&args.from, &args.data) {
        Ok(()) => {
            println!("restored {} to {}", args.from.display(), args.data.display());
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string()),
    }
}
