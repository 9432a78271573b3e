//! `millrace completions` and `millrace man`: what shells and man know of the command line, made from itself.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::fail;

/// Flags of `millrace completions`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "bash: millrace completions bash > /usr/share/bash-completion/completions/millrace\n\
    zsh:  millrace completions zsh > /usr/local/share/zsh/site-functions/_millrace\n\
    fish: millrace completions fish > ~/.config/fish/completions/millrace.fish"
)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Flags of `millrace man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for millrace and one for each command into this directory, instead of the first to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the completions of a command line.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = vec![];
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    written(io::stdout().write_all(&script), "standard output")
}

/// Writes the manual of a command line.
pub fn man(args: &ManArgs, command: Command) -> ExitCode {
    match &args.dir {
        None => {
            let mut page = vec![];
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            written(
                rendered.and_then(|()| io::stdout().write_all(&page)),
                "standard output",
            )
        }
        Some(directory) => written(pages(directory, command), &directory.display().to_string()),
    }
}

fn pages(directory: &Path, command: Command) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

fn written(outcome: io::Result<()>, place: &str) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output wanted no more of it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write to {place}: {error}")),
    }
}
