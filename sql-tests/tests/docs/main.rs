//! The SQL in `README.md` and `docs/*.md`, run as it stands there.
//!
//! * A block of `sql` runs on a server of its own, statement by statement, and none may fail. What it needs stands in front of it in
//!   a comment, which readers do not see: `<!-- setup: CREATE TABLE t (a INT); -->`.
//! * One that cannot run says why: `sql not run: a grammar`.
//! * A block behind `<!-- file: server/x/y.rs -->` is that file.
//! * A block of `sh` behind `<!-- shell -->`, or `<!-- shell: SQL that is run before -->`, runs on a server of its own; the ports of the page
//!   stand for the server's. A block right behind it is how its output begins: space, numbers and ids may be others.
//! * The programs are in [`programs`], what is given to Prometheus in [`monitoring`].
//! * A block that begins with psql's prompt is a session: psql is asked, and has to answer exactly what stands there. With
//!   `MILLRACE_DOCS=update` in the environment the answers are written into the file instead. Without psql (`MILLRACE_POSTGRES_BIN`
//!   names its folder) sessions run all the same, and their rows and numbers are not compared. `<!-- continued -->` in front of it:
//!   it goes on where the session before it on the page ended.

#![allow(clippy::unwrap_used)]

mod monitoring;
mod programs;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use millrace_cli::split::Splitter;
use millrace_cli::test::virtual_clock;
use millrace_sql_tests::postgres::BIN;
use millrace_sql_tests::{Failure, connect, run, start_on};
use millrace_wire::Server;
use tempfile::TempDir;
use tokio::task::block_in_place;

const PROMPT: &str = "millrace=> ";
const PROMPT_MORE: &str = "millrace-> ";
const NOT_RUN: &str = "sql not run: ";
const SETUP: &str = "<!-- setup: ";
const CONTINUED: &str = "<!-- continued -->";
const FILE: &str = "<!-- file: ";
const SHELL: &str = "<!-- shell";

/// A block of a page.
struct Block {
    /// The page and the line where it begins, for messages.
    place: String,
    /// What stands behind the fence.
    kind: String,
    /// Its lines, by their numbers in the file, from 0.
    lines: std::ops::Range<usize>,
    text: String,
    setup: String,
    is_continued: bool,
    /// What is run before its commands, if they are run.
    shell: Option<String>,
    /// The file whose text it is.
    file: Option<String>,
}

fn blocks(path: &Path, text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    let mut at = 0;
    while at < lines.len() {
        if let Some(kind) = lines[at].strip_prefix("```") {
            let length = lines[at + 1..].iter().position(|line| line.starts_with("```"));
            let end = at + 1 + length.unwrap_or_else(|| panic!("{}:{}: no end", path.display(), at + 1));
            let before = at.checked_sub(1).map_or("", |before| lines[before]);
            let setup = before
                .strip_prefix(SETUP)
                .and_then(|rest| rest.strip_suffix(" -->"));
            found.push(Block {
                place: format!("{}:{}", path.file_name().unwrap().display(), at + 1),
                kind: kind.to_owned(),
                lines: at + 1..end,
                text: lines[at + 1..end].join("\n"),
                setup: setup.unwrap_or_default().to_owned(),
                is_continued: before == CONTINUED,
                shell: (before.strip_prefix(SHELL))
                    .and_then(|rest| rest.strip_suffix(" -->"))
                    .map(|setup| setup.trim_start_matches(": ").to_owned()),
                file: (before.strip_prefix(FILE))
                    .and_then(|rest| rest.strip_suffix(" -->"))
                    .map(str::to_owned),
            });
            at = end;
        }
        at += 1;
    }
    found
}

/// README and the pages beside each other in docs.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

fn statements(text: &str) -> Vec<String> {
    let mut splitter = Splitter::default();
    splitter.push(text);
    let mut statements: Vec<String> = std::iter::from_fn(|| splitter.next_statement()).collect();
    // What stands behind the last semicolon may be a comment.
    let rest = splitter.finish().unwrap_or_default();
    let is_comment = rest.lines().all(|line| line.trim_start().starts_with("--"));
    if !is_comment {
        statements.push(rest);
    }
    statements
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_block_of_sql_runs_or_says_why_not() -> Result<(), Failure> {
    let mut ran = 0;
    for page in pages() {
        for block in blocks(&page, &std::fs::read_to_string(&page)?) {
            if let Some(reason) = block.kind.strip_prefix(NOT_RUN) {
                assert!(!reason.trim().is_empty(), "{}: why not?", block.place);
                continue;
            }
            if block.kind != "sql" {
                let is_sql = block.kind.starts_with("sql");
                assert!(
                    !is_sql,
                    "{}: \"{}\" is neither sql nor {NOT_RUN}..",
                    block.place, block.kind
                );
                continue;
            }
            let directory = tempfile::tempdir()?;
            let server = start_on(directory.path(), &virtual_clock()).await?;
            let client = connect(server.pg_addr()).await?;
            for statement in statements(&format!("{}\n{}", block.setup, block.text)) {
                let outcome = run(&client, &statement).await;
                outcome.map_err(|error| format!("{}: {statement}\n{error}", block.place))?;
            }
            drop(client);
            server.shutdown().await;
            ran += 1;
        }
    }
    assert!(ran >= 10, "{ran}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_is_what_psql_answers() -> Result<(), Failure> {
    let psql = std::env::var_os(BIN).map(|bin| Path::new(&bin).join("psql"));
    let is_update = std::env::var("MILLRACE_DOCS").is_ok_and(|value| value == "update");
    let mut sessions = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page)?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut answers = vec![];
        let mut running: Option<(Server, TempDir)> = None;
        for block in blocks(&page, &text) {
            if !block.text.starts_with(PROMPT) {
                continue;
            }
            sessions += 1;
            if !block.is_continued {
                if let Some((server, _directory)) = running.take() {
                    server.shutdown().await;
                }
                let directory = tempfile::tempdir()?;
                running = Some((start_on(directory.path(), &virtual_clock()).await?, directory));
            }
            let (server, _) = running.as_ref().ok_or("nothing to continue")?;
            let Some(answered) = session(server, &block, psql.as_deref()).await? else {
                continue;
            };
            if is_update {
                answers.push((block.lines, answered));
            } else {
                assert_eq!(
                    block.text, answered,
                    "{}: MILLRACE_DOCS=update writes what psql answers",
                    block.place
                );
            }
        }
        if let Some((server, _directory)) = running {
            server.shutdown().await;
        }
        // From the end, so that the numbers of the lines in front stay right.
        for (place, answered) in answers.into_iter().rev() {
            lines.splice(place, answered.lines().map(str::to_owned));
        }
        if is_update {
            std::fs::write(&page, lines.join("\n") + "\n")?;
        }
    }
    assert!(sessions > 0);
    Ok(())
}

/// What a session looks like when its statements are sent again; `None` without psql.
async fn session(server: &Server, block: &Block, psql: Option<&Path>) -> Result<Option<String>, Failure> {
    let client = connect(server.pg_addr()).await?;
    let mut shown = String::new();
    let mut lines = block.text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix(PROMPT) else {
            continue;
        };
        let mut statement = first.to_owned();
        shown.push_str(&format!("{line}\n"));
        while let Some(more) = lines.peek().and_then(|line| line.strip_prefix(PROMPT_MORE)) {
            statement.push('\n');
            statement.push_str(more);
            shown.push_str(&format!("{PROMPT_MORE}{more}\n"));
            lines.next();
        }
        match psql {
            Some(psql) => shown.push_str(&ask(psql, server, &statement)?),
            None => {
                let is_refused = lines.peek().is_some_and(|line| line.starts_with("ERROR:"));
                match run(&client, &statement).await {
                    Ok(()) if is_refused => {
                        return Err(format!("{}: {statement}\nit is not refused", block.place).into());
                    }
                    Err(error) if !is_refused => {
                        return Err(format!("{}: {statement}\n{error}", block.place).into());
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(psql.map(|_| shown.trim_end_matches('\n').to_owned()))
}

/// What psql writes for a statement, notices included.
fn ask(psql: &Path, server: &Server, statement: &str) -> Result<String, Failure> {
    let address = server.pg_addr();
    let mut command = Command::new(psql);
    command
        .args([
            "-X",
            "-h",
            &address.ip().to_string(),
            "-p",
            &address.port().to_string(),
        ])
        .args(["-U", "millrace", "-d", "millrace", "-c", statement])
        // As it would be on a terminal without colours and pages.
        .env("PAGER", "")
        .env("LC_ALL", "C.UTF-8");
    let output = command.output()?;
    let notices = String::from_utf8(output.stderr)?;
    Ok(notices + &String::from_utf8(output.stdout)?)
}

#[test]
fn the_book_has_every_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let summary = std::fs::read_to_string(root.join("SUMMARY.md")).unwrap();
    let targets: Vec<&str> = summary
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap())
        .collect();
    for target in &targets {
        assert!(root.join(target).is_file(), "{target}");
    }
    for page in markdown(&root) {
        let name = page.strip_prefix(&root).unwrap().to_str().unwrap();
        let is_listed = targets.contains(&name) || name == "SUMMARY.md";
        assert!(is_listed, "{name} is not in SUMMARY.md");
    }
}

/// Every page under a folder.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A page without its code, in blocks and in lines.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let words = line.split('`').enumerate();
            // Within a heading, code is a part of its anchor.
            let is_kept = |place: &usize| line.starts_with('#') || place.is_multiple_of(2);
            kept.extend(words.filter(|(place, _)| is_kept(place)).map(|(_, words)| words));
            kept.push('\n');
        }
    }
    kept
}

/// The anchors of a page, as its headings make them, and those that are named.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let named = prose
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    headings.map(anchor).chain(named.map(str::to_owned)).collect()
}

/// The book and the repository's pages show the same text: a link leads somewhere in both.
#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let (mut links, mut wrong) = (0, vec![]);
    for page in markdown(&root) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in prose(&text)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            let is_in_book = target
                .canonicalize()
                .is_ok_and(|target| target.starts_with(root.canonicalize().unwrap()));
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            let has_anchor = || {
                anchors(&std::fs::read_to_string(&target).unwrap())
                    .iter()
                    .any(|known| known == anchor)
            };
            if !is_in_book || (is_page && !anchor.is_empty() && !has_anchor()) {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(links > 50 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_file_that_a_page_shows_is_that_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut shown = 0;
    for page in pages() {
        for block in blocks(&page, &std::fs::read_to_string(&page).unwrap()) {
            let Some(file) = &block.file else { continue };
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(block.text.trim_end(), text.trim_end(), "{}: {file}", block.place);
            shown += 1;
        }
    }
    assert!(shown > 0);
}

/// What stays the same when commands are run again: no space, a `0` for each number, and one id for all.
fn lasting(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_id = |c: char| c.is_ascii_hexdigit() || c == '-';
        let word = rest.find(|c| !is_id(c)).unwrap_or(rest.len());
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        rest = if word == 36 {
            kept.push_str("id");
            &rest[word..]
        } else if next.is_ascii_digit() {
            kept.push('0');
            &rest[number..]
        } else {
            kept.extend(Some(next).filter(|c| !c.is_whitespace()));
            &rest[next.len_utf8()..]
        };
    }
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_shell_answer_as_it_says() -> Result<(), Failure> {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl");
        return Ok(());
    }
    let mut ran = 0;
    for page in pages() {
        let blocks = blocks(&page, &std::fs::read_to_string(&page)?);
        for (place, block) in blocks.iter().enumerate() {
            let Some(setup) = &block.shell else { continue };
            ran += 1;
            let directory = tempfile::tempdir()?;
            let server = start_on(directory.path(), &virtual_clock()).await?;
            let client = connect(server.pg_addr()).await?;
            for statement in statements(setup) {
                run(&client, &statement).await?;
            }
            let commands = (block.text)
                .replace("127.0.0.1:8033", &server.http_addr().to_string())
                .replace("curl ", "curl -sS --fail-with-body ");
            // The fence of one block, and that of the next.
            let next = blocks
                .get(place + 1)
                .filter(|next| next.lines.start == block.lines.end + 2);
            let expected = next.map(|next| lasting(&next.text)).unwrap_or_default();
            let mut shell = Command::new("timeout")
                .args(["60", "sh", "-ec", &commands])
                .stdout(Stdio::piped())
                .spawn()?;
            let mut output = shell.stdout.take().unwrap();
            let mut said = vec![];
            // One that follows something does not end by itself.
            let read = block_in_place(|| {
                let mut piece = [0; 4096];
                while expected.is_empty() || !lasting(&String::from_utf8_lossy(&said)).starts_with(&expected)
                {
                    match output.read(&mut piece)? {
                        0 => return Ok(shell.wait()?.success()),
                        bytes => said.extend_from_slice(&piece[..bytes]),
                    }
                }
                shell.kill()?;
                shell.wait()?;
                Ok::<_, std::io::Error>(true)
            });
            let said = String::from_utf8_lossy(&said).into_owned();
            let is_said = lasting(&said).starts_with(&expected);
            assert!(
                read? && is_said && !said.is_empty(),
                "{}: {commands}\n{said}",
                block.place
            );
            drop(client);
            server.shutdown().await;
        }
    }
    assert!(ran > 0);
    Ok(())
}
