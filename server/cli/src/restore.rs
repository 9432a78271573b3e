//! `millrace restore`: a data directory from a backup, or from the copy in an object store that `log_url` keeps.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use millrace_storage::StorageError;
use millrace_storage::offsite::{self, Place, Restored};

use crate::exit::{fail, misused};

/// Flags of `millrace restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory that BACKUP TO wrote, or the URL that log_url was, such as s3://bucket/prefix
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// The data directory to create; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Makes the directory, checking every byte.
pub async fn run(args: RestoreArgs) -> ExitCode {
    let restored = match args.from.contains("://") {
        true => match Place::check(&args.from) {
            Ok(()) => of_copy(&args.from, &args.data).await,
            Err(why) => return misused(&format!("--from {}: {why}", args.from)),
        },
        false => of_backup(PathBuf::from(&args.from), args.data.clone()).await,
    };
    match restored {
        Ok(said) => {
            println!("restored {} to {}{said}", args.from, args.data.display());
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string()),
    }
}

async fn of_backup(from: PathBuf, data: PathBuf) -> Result<String, StorageError> {
    let of = from.clone();
    let restored = tokio::task::spawn_blocking(move || millrace_storage::restore(&from, &data)).await;
    restored.unwrap_or_else(|error| {
        Err(StorageError::Offsite {
            object: of.display().to_string(),
            why: error.to_string(),
        })
    })?;
    Ok(String::new())
}

async fn of_copy(url: &str, data: &Path) -> Result<String, StorageError> {
    let began = Instant::now();
    let restored = offsite::restore(&Place::find(url)?, data).await?;
    Ok(said(&restored, began.elapsed().as_secs_f64()))
}

/// What was restored, and what may be missing.
fn said(restored: &Restored, seconds: f64) -> String {
    let at = chrono::DateTime::from_timestamp_millis(restored.at_ms).unwrap_or_default();
    let megabytes = restored.bytes as f64 / 1e6;
    let missing = match restored.is_last {
        true => "the server stopped in order after that: nothing is missing",
        false => "what was written after that is missing",
    };
    let checkpoints = match restored.has_checkpoints {
        true => "",
        false => "\nthere are no checkpoints: the first start fills all views again",
    };
    format!(
        "\nas of {} (moment {}): {} streams and tables, {megabytes:.1} MB, in {seconds:.1} s\n{missing}{checkpoints}",
        at.format("%Y-%m-%d %H:%M:%S%.3f UTC"),
        restored.moment,
        restored.logs
    )
}
