//! `millrace check`: reads every byte of a data directory that no server uses.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millrace_storage::check::{Checked, Finding, Severity, check};

use crate::exit::fail;

/// Exit status where the next start mends what is wrong.
const MENDED: u8 = 3;

/// Flags of `millrace check`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Nothing is changed. Exit status: 0, every byte is as it was written; 1, something is damaged of \
    which there is no other copy, or the directory cannot be read; 3, only such things are damaged or torn as the next start \
    makes again or cuts."
)]
pub struct CheckArgs {
    /// The data directory
    #[arg(value_name = "DIR", default_value = "./millrace-data")]
    data: PathBuf,
}

/// Reads the directory and tells what is wrong.
pub fn run(args: &CheckArgs) -> ExitCode {
    let checked = match check(&args.data) {
        Ok(checked) => checked,
        Err(error) => return fail(&error.to_string()),
    };
    for finding in &checked.findings {
        println!("{}", line(finding));
    }
    println!("{}", summary(&checked));
    match checked.worst() {
        None => ExitCode::SUCCESS,
        Some(Severity::Lost) => ExitCode::from(1),
        Some(Severity::Mended) => ExitCode::from(MENDED),
    }
}

fn line(finding: &Finding) -> String {
    let meaning = match finding.severity {
        Severity::Lost => "DAMAGED",
        Severity::Mended => "mended ",
    };
    format!(
        "{meaning} {} at byte {}: {}",
        finding.path.display(),
        finding.offset,
        finding.why
    )
}

fn summary(checked: &Checked) -> String {
    let read = format!("{} files, {} bytes read", checked.files, checked.bytes);
    let of = |severity| {
        checked
            .findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    match (of(Severity::Lost), of(Severity::Mended)) {
        (0, 0) => format!("{read}: all as it was written"),
        (0, mended) => format!("{read}: {mended} places that the next start mends"),
        (lost, mended) => format!(
            "{read}: {lost} places are damaged (restore these files from a backup), {mended} that the next start mends"
        ),
    }
}
