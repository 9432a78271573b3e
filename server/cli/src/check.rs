//! `millrace check`: reads every byte of a data directory that no server uses.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millrace_storage::check::{Checked, Finding, Severity, check};

use crate::exit::fail;

/// Exit status where the next start mends all that is wrong.
const HARMLESS: u8 = 3;

/// Flags of `millrace check`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Nothing is changed. Each line is a place that is not as it was written: DAMAGED, of which there is no other copy here, or \
    harmless, because the next start makes it again or cuts it. Exit status: 0, all is as it was written; 1, something is \
    DAMAGED, or the directory cannot be read; 3, all that was found is harmless."
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
        Some(Severity::Mended) => ExitCode::from(HARMLESS),
    }
}

fn line(finding: &Finding) -> String {
    let meaning = match finding.severity {
        Severity::Lost => "DAMAGED ",
        Severity::Mended => "harmless",
    };
    // A fault of a whole file begins with its first byte, which says nothing.
    let place = match finding.offset {
        0 => String::new(),
        offset => format!(" at byte {offset}"),
    };
    format!("{meaning} {}{place}: {}", finding.path.display(), finding.why)
}

fn summary(checked: &Checked) -> String {
    let read = format!(
        "{} and {} were read",
        counted(checked.files, "file"),
        counted(checked.bytes, "byte")
    );
    let of = |severity| {
        let found = checked.findings.iter();
        found.filter(|finding| finding.severity == severity).count() as u64
    };
    let mended = |mended| {
        let places = counted(mended, "harmless place");
        format!("{places}: the next start repairs this; no acknowledged row is lost")
    };
    match (of(Severity::Lost), of(Severity::Mended)) {
        (0, 0) => format!("{read}: all is as it was written"),
        (0, harmless) => format!("{read}: {}", mended(harmless)),
        (lost, harmless) => {
            let lost = counted(lost, "damaged place");
            let first = format!(
                "{read}: {lost} of which there is no other copy here: restore the directory from a backup"
            );
            match harmless {
                0 => first,
                harmless => format!("{first}; {}", mended(harmless)),
            }
        }
    }
}

/// A number of things, in words that fit.
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, offset: u64) -> Finding {
        Finding {
            path: "d/log/1/0.seg".into(),
            offset,
            why: "it is missing".into(),
            severity,
        }
    }

    #[test]
    fn what_was_found_is_said_in_words_that_fit() {
        assert_eq!(
            line(&finding(Severity::Lost, 64)),
            "DAMAGED  d/log/1/0.seg at byte 64: it is missing"
        );
        assert_eq!(
            line(&finding(Severity::Mended, 0)),
            "harmless d/log/1/0.seg: it is missing"
        );
        let of = |findings: &[Severity]| {
            summary(&Checked {
                files: 1,
                bytes: 20,
                findings: findings.iter().map(|severity| finding(*severity, 0)).collect(),
            })
        };
        assert_eq!(of(&[]), "1 file and 20 bytes were read: all is as it was written");
        assert_eq!(
            of(&[Severity::Mended]),
            "1 file and 20 bytes were read: 1 harmless place: the next start repairs this; no acknowledged row is lost"
        );
        let both = of(&[Severity::Lost, Severity::Lost, Severity::Mended]);
        assert!(
            both.contains(": 2 damaged places of which there is no other copy here: restore"),
            "{both}"
        );
        assert!(both.contains("; 1 harmless place: the next start"), "{both}");
    }
}
