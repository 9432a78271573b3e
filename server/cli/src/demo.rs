//! `millrace demo`: a server of its own, real flights, and the story of a minute: views, an UPDATE, heavy queries, `kill -9`.
//!
//! ```text
//!   story ── plays the acts, and tells them in plain lines       acts ── their words and what happens     (pure)
//!    ├─ replay ── sends batches, changes a table, reads the views, checks them     (a client like any other: client)
//!    │   ├─ changes ── what others do to its relations meanwhile
//!    │   ├─ data, schema ── what is sent, and what changes midway; what is declared is in millrace_console::flights
//!    │   └─ pace ── how fast, and what was measured                                 (pure)
//!    ├─ server ── the process that is killed
//!    ├─ heavy ── the queries beside it        noisy ── the same for longer, as plain lines
//!    └─ screen ── the terminal and its keys
//!        └─ draw ── frame (what is shown) on a terminal of any size; lights ── what changed      (pure)
//!   stop ── how it is asked to end
//! ```
//! Nothing here is prepared in advance: every number shown was measured, every row was read from the server over
//! PostgreSQL's wire.

mod acts;
mod changes;
mod client;
mod data;
mod draw;
mod frame;
mod heavy;
mod lights;
mod noisy;
mod pace;
mod replay;
mod schema;
mod screen;
mod server;
mod stop;
mod story;

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use millrace_wire::slot::signalled;
use tokio::sync::watch;

use self::frame::{TITLE, freshness, grouped};
use self::pace::Rate;
use self::replay::{Checked, Replay};
use self::screen::Screen;
use self::server::ServerProcess;
use self::stop::Stop;
use self::story::{Stage, Story, wrapped};
use crate::exit::{fail, misused};
use crate::logging;

/// Flights a second on a terminal: the month takes a minute.
const RATE_WATCHED: u32 = 450;

/// Flags of `millrace demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Replay the month repeatedly, each time shifted by a month, until ctrl-C. All data is stored, so disk and memory
    /// use grow
    #[arg(long)]
    forever: bool,
    /// Flights per second, or "max" [default: 450 on a terminal, else max]
    #[arg(long, value_name = "ROWS")]
    rate: Option<Rate>,
    /// Show how little heavy queries on all cores delay the views, and how much they would without suspension. Takes half
    /// a minute
    #[arg(long, conflicts_with_all = ["forever", "rate"])]
    noisy: bool,
    /// Seconds of each of the three parts of --noisy
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, requires = "noisy")]
    noisy_seconds: f64,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No place for the data.
    #[error("cannot create a temporary directory: {0}; set TMPDIR to use another place")]
    Directory(io::Error),
    /// The server's process could not be started or ended.
    #[error("cannot run a server: {0}")]
    Process(io::Error),
    /// The server's process ended instead of getting ready.
    #[error("the server did not start; its log ends with\n{0}")]
    NotReady(String),
    /// The server refused a statement.
    #[error("{sql}\nfailed: {message}")]
    Sql {
        /// The statement.
        sql: String,
        /// What the server said.
        message: String,
    },
    /// A query for a number answered something else.
    #[error("{sql}\nanswered {answer}, not a number")]
    NotANumber {
        /// The query.
        sql: String,
        /// What it answered.
        answer: String,
    },
    /// A session does not see its own writes.
    #[error(
        "the view {view} shows {visible} flights after {sent} were sent by the same session: this is a bug"
    )]
    NotVisible {
        /// The view.
        view: &'static str,
        /// The flights that it should contain.
        sent: u64,
        /// The flights that it contains.
        visible: u64,
    },
    /// Somebody has dropped or altered what the demo made: one of its own statements was refused.
    #[error("{0}: somebody else has changed the demo's tables or views; start it again for new ones")]
    Changed(String),
    /// The server came back without what it had acknowledged, or with more.
    #[error(
        "{there} flights are there after the server was killed, and {acknowledged} were acknowledged: this is a bug"
    )]
    Lost {
        /// The flights that were acknowledged.
        acknowledged: u64,
        /// The flights that are there.
        there: u64,
    },
    /// A view is not what its query answers.
    #[error(
        "the view {view} ({rows_kept} rows) differs from its query's answer ({rows_batch} rows): this is a bug"
    )]
    Differs {
        /// The view.
        view: &'static str,
        /// Its rows.
        rows_kept: usize,
        /// The rows of the query's answer.
        rows_batch: usize,
    },
    /// The output is gone.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl DemoError {
    fn sql(sql: &str, error: tokio_postgres::Error) -> Self {
        // Its own statements are right, and so are its flights: what is wrong with them others have made so.
        const OF_OTHERS: [&str; 3] = ["22", "23", "42"];
        if let Some(refused) = error.as_db_error()
            && OF_OTHERS
                .iter()
                .any(|class| refused.code().code().starts_with(class))
        {
            return DemoError::Changed(refused.message().to_owned());
        }
        let message = match error.as_db_error() {
            Some(refused) => format!("{} ({})", refused.message(), refused.code().code()),
            None => error.to_string(),
        };
        DemoError::Sql {
            sql: sql.to_owned(),
            message,
        }
    }
}

/// Runs the demo.
pub async fn run(args: DemoArgs) -> ExitCode {
    if let Err(message) = logging::init("warn") {
        return misused(&message);
    }
    let is_watched = io::stdout().is_terminal() && io::stdin().is_terminal();
    let rate = args.rate.unwrap_or(match NonZeroU32::new(RATE_WATCHED) {
        Some(rows) if is_watched => Rate::RowsPerSecond(rows),
        _ => Rate::Max,
    });
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    let play = Play {
        rate,
        forever: args.forever,
        noisy_part: args.noisy.then_some(args.noisy_seconds),
        is_watched,
    };
    match play.run(&stop, &mut io::stdout()).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output wanted no more of it.
        Err(DemoError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// One run.
struct Play {
    rate: Rate,
    forever: bool,
    /// Beside heavy queries, each part for so many seconds.
    noisy_part: Option<f64>,
    /// On a terminal, by somebody.
    is_watched: bool,
}

impl Play {
    async fn run(&self, stop: &Stop, out: &mut impl Write) -> Result<(), DemoError> {
        let mut server = ServerProcess::start().await?;
        let outcome = self.run_on(&mut server, stop, out).await;
        server.stop().await;
        outcome
    }

    async fn run_on(
        &self,
        server: &mut ServerProcess,
        stop: &Stop,
        out: &mut impl Write,
    ) -> Result<(), DemoError> {
        let addresses = server.addresses().clone();
        if !self.is_watched || self.noisy_part.is_some() {
            writeln!(out, "{TITLE}\n{}", addresses.lines().join("\n"))?;
            out.flush()?;
        }
        if let Some(seconds) = self.noisy_part {
            return noisy::play(addresses.pg, stop.asked(), Duration::from_secs_f64(seconds), out).await;
        }
        let replay = Replay::prepare(addresses.pg, self.rate, stop.asked()).await?;
        let stage = Arc::new(Stage::new(addresses.clone()));
        let screen = if self.is_watched {
            let screen = Screen::open(&stage, stop)?;
            let looking = tokio::spawn(screen::look(Arc::clone(&stage)));
            Some((tokio::spawn(screen.show(Arc::clone(&stage))), looking))
        } else {
            None
        };
        let mut story = Story {
            replay,
            server,
            stage: &stage,
            rate: self.rate,
            lines: (!self.is_watched).then_some(&mut *out),
        };
        let played = self.play(&mut story).await;
        let mut replay = story.replay;
        if let Some((showing, looking)) = screen {
            looking.abort();
            showing.abort();
            // The terminal is given back when this has ended.
            let _ = showing.await;
        }
        played?;
        let checked = replay.check().await?;
        if self.is_watched {
            writeln!(out, "{TITLE}")?;
        }
        let width = self.is_watched.then(screen::width).flatten();
        summarise(&replay, &stage, &checked, width, out)?;
        if self.is_watched && !replay.is_stopped() {
            writeln!(
                out,
                "\nThe server is still running, with all of the data:\n{}",
                addresses.lines().join("\n")
            )?;
            writeln!(out, "       {}", addresses.http_example())?;
            writeln!(out, "Press Enter or ctrl-C to end it.")?;
            wait_for_enter(stop.asked()).await;
        }
        Ok(())
    }

    async fn play<W: Write>(&self, story: &mut Story<'_, W>) -> Result<(), DemoError> {
        story.play().await?;
        while self.forever && !story.replay.is_stopped() && !story.replay.is_cut_off() {
            story.play_again().await?;
        }
        Ok(())
    }
}

/// What happened, in plain lines: of at most so many characters, if `width` says it.
fn summarise(
    replay: &Replay,
    stage: &Stage,
    checked: &Checked,
    width: Option<usize>,
    out: &mut impl Write,
) -> Result<(), DemoError> {
    let meter = replay.meter();
    let say = |out: &mut dyn Write, text: &str| match width {
        // A terminal would break it inside of words.
        Some(width) => writeln!(out, "{}", wrapped(text, width).join("\n")),
        None => writeln!(out, "{text}"),
    };
    writeln!(out)?;
    let sent = format!(
        "{} flights in {:.1} s: {} rows/s, in {} batches, each acknowledged before the next",
        grouped(meter.rows()),
        meter.elapsed().as_secs_f64(),
        grouped(meter.rows_per_second().round() as u64),
        meter.batches()
    );
    say(out, &sent)?;
    say(out, &freshness([meter.freshness(50.0), meter.freshness(99.0)]))?;
    let comparison = stage.frame().comparison();
    if !comparison.rows.is_empty() {
        writeln!(out, "\n{}", comparison.render())?;
    }
    for line in replay.changes().lines() {
        say(out, &line)?;
    }
    if replay.is_cut_off() {
        say(
            out,
            "flights cannot be sent any more, so the replay ended there; start the demo again for a new one",
        )?;
    }
    say(out, &checked.sentence())?;
    Ok(())
}

/// Until somebody presses Enter (or there is nobody: the input has ended), or asks for the end.
async fn wait_for_enter(mut stop: watch::Receiver<bool>) {
    let enter = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
    tokio::select! {
        _ = enter => {}
        () = signalled(&mut stop) => {}
    }
}
