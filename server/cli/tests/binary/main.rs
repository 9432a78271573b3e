//! The binary as it is run: its output, its exit status, what it leaves behind.

#![allow(clippy::unwrap_used)]

mod check;
mod cluster;
mod demo;
mod doctor;
mod manual;
mod serve;
mod test;
mod traces;

use std::path::Path;
use std::process::{Command, Output};

/// The binary, with nothing of the environment that would configure it.
fn millrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MILLRACE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// Runs it; its exit status and everything that it wrote to standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = millrace(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}
