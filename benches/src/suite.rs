//! What a suite of experiments is, and all that every suite would otherwise do again: its options on the command line, the
//! choice of experiments, the command that repeats a run, and where results are kept.
//!
//! ```text
//!   command line -- Entry --> a Suite, with its own options
//!                      `----> a Run: size, chosen experiments, machine, disk --> Suite::run --> shown, kept
//! ```
//!
//! `millrace_benches::SUITES` lists the suites; the binary and the tests start them here. Suites do not read the command line,
//! do not describe the machine and do not write files.

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;

/// A suite of experiments; its fields are the options that it alone has.
pub trait Suite: Args + 'static {
    /// Names it on the command line and in the results.
    const NAME: &'static str;
    /// What it measures, for `--help`.
    const ABOUT: &'static str;
    /// Whether results are kept in `benches/results` when no other place is given.
    const IS_KEPT: bool = true;

    /// Runs the experiments that are chosen ([`Run::begins`]) and adds to the run what they find out.
    ///
    /// # Errors
    /// Something does not work, or an answer is wrong: a fast wrong answer is no result.
    fn run(&self, run: &mut Run) -> impl Future<Output = Result<(), BenchError>>;
}

/// What can be said of every run.
#[derive(Debug, Clone, Default, Args)]
pub struct RunOptions {
    /// A bounded run inside this process: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    pub small: bool,
    /// Where the results' directory is made (each suite says what happens without it)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Run only the experiments whose name contains this
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
}

/// A suite in the list of all suites.
pub struct Entry {
    /// The suite's name.
    pub name: &'static str,
    command: fn() -> Command,
    run: fn(ArgMatches) -> LocalBoxFuture<'static, Result<(), BenchError>>,
}

impl Entry {
    /// The entry of a suite.
    pub const fn of<S: Suite>() -> Entry {
        Entry {
            name: S::NAME,
            command: command::<S>,
            run: |matches| run_and_keep::<S>(matches).boxed_local(),
        }
    }

    /// The suite's subcommand.
    pub fn command(&self) -> Command {
        (self.command)()
    }

    /// Runs the suite as the command line says, shows what it finds out and keeps it.
    ///
    /// # Errors
    /// See [`Suite::run`].
    pub async fn run(&self, matches: ArgMatches) -> Result<(), BenchError> {
        (self.run)(matches).await
    }
}

/// A small run of a suite with its default options, for the tests; nothing is kept.
///
/// # Errors
/// See [`Suite::run`].
pub async fn small<S: Suite>() -> Result<Run, BenchError> {
    let matches = command::<S>().try_get_matches_from([S::NAME, "--small"]);
    Ok(run::<S>(&matches.map_err(BenchError::engine)?).await?.0)
}

fn command<S: Suite>() -> Command {
    let out = match S::IS_KEPT {
        true => {
            "Where the results' directory is made [default: benches/results; with --small nothing is kept]"
        }
        false => "Keep the results, in a directory made here",
    };
    // What the options' types say of themselves is not what the suite is about.
    RunOptions::augment_args(S::augment_args(Command::new(S::NAME)))
        .about(S::ABOUT)
        .long_about(None)
        .mut_arg("out", |argument| argument.help(out))
}

async fn run<S: Suite>(matches: &ArgMatches) -> Result<(Run, RunOptions), BenchError> {
    let suite = S::from_arg_matches(matches).map_err(BenchError::engine)?;
    let options = RunOptions::from_arg_matches(matches).map_err(BenchError::engine)?;
    let size = if options.small { Size::Small } else { Size::Real };
    let again = repeated(&command::<S>(), matches);
    let mut run = Run::begin(S::NAME, again, size, options.only.clone())?;
    // Behind a pointer: the futures of a whole suite in one another are more than the compiler looks through.
    suite.run(&mut run).boxed_local().await?;
    run.end()?;
    Ok((run, options))
}

async fn run_and_keep<S: Suite>(matches: ArgMatches) -> Result<(), BenchError> {
    let (run, options) = run::<S>(&matches).await?;
    println!("{}", run.report());
    let usual = (S::IS_KEPT && !options.small).then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("results"));
    if let Some(out) = options.out.or(usual) {
        println!("kept in {}", run.write(&out)?.display());
    }
    run.outcome()
}

/// The command that repeats a run: options with their values, defaults included. Directories are left out and files are named
/// without theirs, because both differ between machines.
fn repeated(command: &Command, matches: &ArgMatches) -> String {
    let mut words = vec![format!(
        "cargo run --release -p millrace-benches -- {}",
        command.get_name()
    )];
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else {
            continue;
        };
        if matches!(argument.get_action(), ArgAction::SetTrue) {
            words.extend(matches.get_flag(id).then(|| format!("--{long}")));
            continue;
        }
        let Ok(Some(values)) = matches.try_get_raw(id) else {
            continue;
        };
        for value in values {
            let value = match argument.get_value_hint() {
                ValueHint::DirPath => continue,
                ValueHint::FilePath | ValueHint::AnyPath => Path::new(value)
                    .file_name()
                    .map_or_else(OsString::new, OsString::from),
                _ => value.to_owned(),
            };
            let value = value.to_string_lossy();
            words.push(match value.contains(' ') {
                true => format!("--{long} \"{value}\""),
                false => format!("--{long} {value}"),
            });
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suite with an option of each kind.
    #[derive(Debug, Args)]
    struct Example {
        #[arg(long, default_value_t = 3)]
        rounds: u64,
        #[arg(long, value_hint = ValueHint::FilePath)]
        input: Option<PathBuf>,
    }

    impl Suite for Example {
        const NAME: &'static str = "example";
        const ABOUT: &'static str = "An example";

        async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
            for name in ["first part", "second part"] {
                if run.begins(name) {
                    let mut experiment = crate::results::Experiment::new(name, "counts rounds");
                    experiment.add("rounds", "", vec![self.rounds as f64], None);
                    run.add(experiment);
                }
            }
            Ok(())
        }
    }

    fn matches(words: &[&str]) -> ArgMatches {
        let words = ["example"].into_iter().chain(words.iter().copied());
        command::<Example>().try_get_matches_from(words).unwrap()
    }

    #[test]
    fn help_says_what_the_suite_is_about() {
        let help = command::<Example>().render_long_help().to_string();
        assert!(help.starts_with(Example::ABOUT), "{help}");
        assert!(help.contains("[default: benches/results;"), "{help}");
    }

    #[test]
    fn the_command_that_repeats_a_run_has_no_directories() {
        let matches = matches(&[
            "--input",
            "/a/b.csv",
            "--out",
            "/c",
            "--only",
            "first part",
            "--small",
        ]);
        assert_eq!(
            repeated(&command::<Example>(), &matches),
            "cargo run --release -p millrace-benches -- example --rounds 3 --input b.csv --small --only \"first part\""
        );
    }

    #[tokio::test]
    async fn a_small_run_has_every_experiment_and_only_chooses_by_name() {
        // The disk is the first.
        assert_eq!(small::<Example>().await.unwrap().experiments().len(), 3);
        let (chosen, _) = run::<Example>(&matches(&["--small", "--only", "second"]))
            .await
            .unwrap();
        assert_eq!(chosen.experiments().len(), 2);
        let none = run::<Example>(&matches(&["--small", "--only", "third"])).await;
        assert!(
            none.unwrap_err()
                .to_string()
                .contains("no experiment of example has third in its name")
        );
    }
}
