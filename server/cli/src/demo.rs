//! `millrace demo`: a server of its own, real flights, and views that one can watch changing.
//!
//! ```text
//!   replay ── sends batches, changes a table, reads the views, checks them     (a client like any other: client)
//!    ├─ data, schema ── what is sent, and what changes midway; what is declared is in millrace_console::flights
//!    ├─ pace ── how fast, and what was measured                                 (pure)
//!    ├─ noisy ── the same beside heavy queries
//!    └─ frame ── the screen and the summary as text (pure);  screen ── the terminal
//! ```
//! Nothing here is prepared in advance: every number shown was measured, every row was read from the server over
//! PostgreSQL's wire.

mod client;
mod data;
mod frame;
mod noisy;
mod pace;
mod replay;
mod schema;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use millrace_console::flights::VIEWS;
use millrace_wire::config::Config;
use millrace_wire::serve::{Server, StartError};
use millrace_wire::slot::signalled;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::frame::{Addresses, TITLE, freshness, grouped, milliseconds};
use self::pace::Rate;
use self::replay::Replay;
use self::screen::Screen;
use crate::exit::{fail, misused};
use crate::logging;

/// Flights a second on a terminal: the month takes a quarter of a minute.
const RATE_WATCHED: u32 = 1800;
/// The least time between two screens.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Flags of `millrace demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Replay the month repeatedly, each time shifted by a month, until ctrl-C. All data is stored, so disk and memory
    /// use grow
    #[arg(long)]
    forever: bool,
    /// Flights per second, or "max" [default: 1800 on a terminal, else max]
    #[arg(long, value_name = "ROWS")]
    rate: Option<Rate>,
    /// Show how little heavy queries on all cores delay the views, and how much they would without suspension. Takes half
    /// a minute
    #[arg(long, conflicts_with_all = ["forever", "rate"])]
    noisy: bool,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No place for the data.
    #[error("cannot create a temporary directory: {0}; set TMPDIR to use another place")]
    Directory(io::Error),
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
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
    let watched = io::stdout().is_terminal();
    let rate = args.rate.unwrap_or(match NonZeroU32::new(RATE_WATCHED) {
        Some(rows) if watched => Rate::RowsPerSecond(rows),
        _ => Rate::Max,
    });
    let stop = match stop_signals() {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    let play = Play {
        rate,
        forever: args.forever,
        noisy: args.noisy.then_some(Noisy::default()),
        watched,
        defaults: Config::default(),
    };
    match play.run(stop, &mut io::stdout()).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output wanted no more of it.
        Err(DemoError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// The first SIGINT or SIGTERM asks for the end, the second does not wait for it.
fn stop_signals() -> io::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop.send_replace(true) {
                screen::restore();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the second interrupt: somebody wants out at once"
                )]
                std::process::exit(1);
            }
        }
    });
    Ok(stopping)
}

/// A run beside heavy queries.
#[derive(Default)]
struct Noisy {
    /// For how long each part runs, if not as long as it does for people.
    part: Option<Duration>,
}

/// One run.
struct Play {
    rate: Rate,
    forever: bool,
    /// Beside heavy queries.
    noisy: Option<Noisy>,
    /// On a terminal, by somebody.
    watched: bool,
    /// The ports to try first.
    defaults: Config,
}

impl Play {
    async fn run(&self, stop: watch::Receiver<bool>, out: &mut impl Write) -> Result<(), DemoError> {
        let directory = tempfile::Builder::new()
            .prefix("millrace-demo-")
            .tempdir()
            .map_err(DemoError::Directory)?;
        let config = Config {
            data: directory.path().to_owned(),
            ..self.defaults.clone()
        };
        let (server, addresses) = start(config).await?;
        let outcome = self.run_on(addresses, stop, out).await;
        server.shutdown().await;
        outcome
    }

    async fn run_on(
        &self,
        addresses: Addresses,
        stop: watch::Receiver<bool>,
        out: &mut impl Write,
    ) -> Result<(), DemoError> {
        if !self.watched || self.noisy.is_some() {
            writeln!(out, "{TITLE}\n{}", addresses.lines().join("\n"))?;
        }
        if let Some(noisy) = &self.noisy {
            return noisy::play(addresses, stop, noisy.part, out).await;
        }
        let mut replay = Replay::prepare(addresses.clone(), self.rate, stop.clone()).await?;
        let mut screen = self.watched.then(Screen::open).transpose()?;
        self.replay(&mut replay, screen.as_mut(), out).await?;
        let checked = replay.check().await?;
        drop(screen);
        if self.watched {
            writeln!(out, "{TITLE}")?;
        }
        summarise(&replay, checked, out).await?;
        if self.watched && !replay.is_stopped() {
            writeln!(
                out,
                "\nThe server is still running, with all of the data:\n{}",
                addresses.lines().join("\n")
            )?;
            writeln!(out, "       {}", addresses.http_example())?;
            writeln!(out, "Press Enter or ctrl-C to end it.")?;
            wait_for_enter(stop).await;
        }
        Ok(())
    }

    /// Sends the month, once or forever.
    async fn replay(
        &self,
        replay: &mut Replay,
        mut screen: Option<&mut Screen>,
        out: &mut impl Write,
    ) -> Result<(), DemoError> {
        let batches = replay.batches();
        let mut drawn: Option<Instant> = None;
        replay.start();
        for pass in 0.. {
            for (index, batch) in batches.iter().enumerate() {
                replay.wait().await;
                if replay.is_stopped() {
                    return Ok(());
                }
                replay.send(batch.clone(), pass).await?;
                if index == batches.len() / 2 {
                    replay.rename(pass).await?;
                }
                let due = drawn.is_none_or(|drawn| drawn.elapsed() >= FRAME_INTERVAL);
                if let Some(screen) = screen.as_deref_mut()
                    && (due || index + 1 == batches.len())
                {
                    let (width, height) = screen.size();
                    screen.draw(&replay.frame().await?.render(width, height))?;
                    drawn = Some(Instant::now());
                }
            }
            if !self.forever {
                return Ok(());
            }
            if !self.watched {
                let meter = replay.meter();
                let rate = grouped(meter.recent_rows_per_second().round() as u64);
                let latest = [meter.freshness(50.0), meter.freshness(99.0)];
                writeln!(
                    out,
                    "{} flights   {rate} rows/s   {}",
                    grouped(meter.rows()),
                    freshness(latest)
                )?;
            }
        }
        Ok(())
    }
}

/// What happened, in plain lines, and the views as they are now.
async fn summarise(replay: &Replay, checked: Duration, out: &mut impl Write) -> Result<(), DemoError> {
    let meter = replay.meter();
    writeln!(
        out,
        "\n{} flights in {:.1} s: {} rows/s, in {} batches, each acknowledged before the next",
        grouped(meter.rows()),
        meter.elapsed().as_secs_f64(),
        grouped(meter.rows_per_second().round() as u64),
        meter.batches()
    )?;
    writeln!(
        out,
        "{}",
        freshness([meter.freshness(50.0), meter.freshness(99.0)])
    )?;
    if !replay.news().is_empty() {
        writeln!(out, "midway: {}", replay.news().join("\n"))?;
    }
    writeln!(
        out,
        "check: the {} views equal their queries over all of the data (run in {})",
        VIEWS.len(),
        milliseconds(checked)
    )?;
    for panel in replay.frame().await?.panels {
        writeln!(
            out,
            "\n{}: {}\n{}",
            panel.name,
            panel.kind,
            head(&panel.table.render())
        )?;
    }
    Ok(())
}

/// The beginning of a table: its header and a few rows.
fn head(table: &str) -> String {
    const LINES: usize = 2 + 5;
    table.lines().take(LINES).collect::<Vec<_>>().join("\n")
}

/// Starts a server, on free ports where others have taken the usual ones.
async fn start(mut config: Config) -> Result<(Server, Addresses), DemoError> {
    let mut taken = Vec::new();
    loop {
        match Server::start(config.clone()).await {
            Ok(server) => {
                let addresses = Addresses {
                    pg: server.pg_addr(),
                    http: server.http_addr(),
                    taken,
                };
                return Ok((server, addresses));
            }
            Err(StartError::Listen { address, source, .. })
                if source.kind() == io::ErrorKind::AddrInUse && address.port() != 0 =>
            {
                let port = if address == config.pg {
                    &mut config.pg
                } else {
                    &mut config.http
                };
                port.set_port(0);
                taken.push(address);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Until somebody presses Enter (or there is nobody: the input has ended), or asks for the end.
async fn wait_for_enter(mut stop: watch::Receiver<bool>) {
    let enter = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
    tokio::select! {
        _ = enter => {}
        () = signalled(&mut stop) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::throw_away;

    fn play(defaults: Config) -> Play {
        Play {
            rate: Rate::Max,
            forever: false,
            noisy: None,
            watched: false,
            defaults,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_month_is_replayed_and_checked() {
        // Both ports are taken: the demo must go elsewhere.
        let hold = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (pg, http) = (hold(), hold());
        let mut defaults = throw_away(std::path::Path::new(""));
        defaults.pg = pg.local_addr().unwrap();
        defaults.http = http.local_addr().unwrap();
        let mut out = Vec::new();
        let (_stop, stopping) = watch::channel(false);
        play(defaults.clone()).run(stopping, &mut out).await.unwrap();
        let out = String::from_utf8(out).unwrap();
        let taken = format!(
            "({} and {} in use: using free ports instead)",
            defaults.pg, defaults.http
        );
        for expected in [
            &taken,
            "27,004 flights in ",
            "in 55 batches, each acknowledged before the next",
            "check: the 4 views equal their queries",
            "later: US Airways Inc. ",
            " -> gone, American Airlines Inc. ",
        ] {
            assert!(out.contains(expected), "{expected} is missing in\n{out}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn heavy_queries_run_beside_it() {
        let mut play = play(throw_away(std::path::Path::new("")));
        play.noisy = Some(Noisy {
            part: Some(Duration::from_millis(100)),
        });
        let mut out = Vec::new();
        let (_stop, stopping) = watch::channel(false);
        play.run(stopping, &mut out).await.unwrap();
        let out = String::from_utf8(out).unwrap();
        let summary = out.rsplit("reading it in the view:").next().unwrap();
        for expected in [
            "nothing else",
            "(scheduler_policy = lma)",
            "(scheduler_policy = fifo)",
        ] {
            assert!(summary.contains(expected), "{expected} is missing in\n{out}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_ends_when_asked_to() {
        let mut play = play(throw_away(std::path::Path::new("")));
        play.forever = true;
        let mut out = Vec::new();
        let (_stop, stopping) = watch::channel(true);
        play.run(stopping, &mut out).await.unwrap();
        assert!(String::from_utf8(out).unwrap().contains("0 flights in 0.0 s"));
    }
}
