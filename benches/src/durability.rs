//! What is kept over the end of a process, and what that costs. `recovery` and `checkpoint` share a bank of accounts, kept in a table
//! and in views over it; `writes` is about the log, `disaster` about a copy elsewhere.
//!
//! ```text
//!  account (id, branch, balance, note) --+-- by_branch: count and sum of each of 1,000 branches
//!                                        `-- rich: accounts joined with their branch's name
//! ```

pub mod checkpoint;
pub mod disaster;
pub mod recovery;
pub mod writes;

use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::target::{FreshServer, Target};

/// Rows that one INSERT makes.
const FILL_ROWS: usize = 50_000;
const BRANCHES: usize = 1_000;
/// How long a checkpoint is waited for.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(600);

/// A server with the bank in it.
struct Bank {
    host: FreshServer,
    accounts: usize,
    /// What was added to balances so far, for a check of the views.
    added: i64,
}

/// Times from the start of a server, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Back {
    /// Until the view answered, with what the checkpoint has or later.
    first_answer_ms: f64,
    /// Until its answer was that of before the kill.
    caught_up_ms: f64,
}

/// What a checkpoint cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    written: f64,
    total: f64,
    milliseconds: f64,
}

impl Bank {
    async fn open(target: &Target, accounts: usize) -> Result<Bank, BenchError> {
        let host = FreshServer::start(target).await?;
        let client = &host.client;
        client.run("ALTER SYSTEM SET checkpoint_interval = 'off'").await?;
        client
            .run("CREATE TABLE branch (id INT PRIMARY KEY, name TEXT)")
            .await?;
        client
            .run("CREATE TABLE account (id BIGINT PRIMARY KEY, branch INT, balance BIGINT, note TEXT)")
            .await?;
        client
            .run(&format!(
                "INSERT INTO branch SELECT x, 'branch ' || x FROM generate_series(0, {}) AS g(x)",
                BRANCHES - 1
            ))
            .await?;
        client
            .run(
                "CREATE MATERIALIZED VIEW by_branch AS \
                 SELECT branch, count(*) AS accounts, sum(balance) AS balance FROM account GROUP BY branch; \
                 CREATE MATERIALIZED VIEW rich AS SELECT a.id, a.balance, b.name FROM account a \
                 JOIN branch b ON a.branch = b.id WHERE a.balance > 0",
            )
            .await?;
        for first in (0..accounts).step_by(FILL_ROWS) {
            let last = (first + FILL_ROWS).min(accounts) - 1;
            client
                .run(&format!(
                    "INSERT INTO account SELECT x, x % {BRANCHES}, x % 7, 'the note of account number ' || x \
                     FROM generate_series({first}, {last}) AS g(x)"
                ))
                .await?;
        }
        Ok(Bank {
            host,
            accounts,
            added: 0,
        })
    }

    /// Adds one to the balance of each of so many accounts, from the first on, in one statement.
    async fn add(&mut self, first: usize, count: usize) -> Result<(), BenchError> {
        let end = first + count;
        self.host
            .client
            .run(&format!(
                "UPDATE account SET balance = balance + 1 WHERE id >= {first} AND id < {end}"
            ))
            .await?;
        self.added += count as i64;
        Ok(())
    }

    /// The balance that all accounts have together.
    fn balance(&self) -> i64 {
        let (weeks, days) = (self.accounts / 7, self.accounts % 7);
        (weeks * 21 + days * days.saturating_sub(1) / 2) as i64 + self.added
    }

    /// Whether the view has the right answer.
    async fn check(&self) -> Result<(), BenchError> {
        let found = self.found().await?;
        if found == self.expected() {
            return Ok(());
        }
        let expected = self.expected();
        Err(BenchError::Wrong(format!("{found:?} instead of {expected:?}")))
    }

    /// What the view says: how many accounts there are, and what they have together.
    async fn found(&self) -> Result<[i64; 2], BenchError> {
        let sql = "SELECT sum(accounts), sum(balance) FROM by_branch";
        let rows = self.host.client.rows(sql).await?;
        let row = rows.first().map_or(&[][..], Vec::as_slice);
        let of = |column: usize| row.get(column).and_then(|text| text.as_ref()?.parse().ok());
        match (of(0), of(1)) {
            (Some(accounts), Some(balance)) => Ok([accounts, balance]),
            _ => Err(BenchError::Wrong(format!("{row:?} answers {sql}"))),
        }
    }

    fn expected(&self) -> [i64; 2] {
        [self.accounts as i64, self.balance()]
    }

    /// Megabytes of what the table and the views keep.
    async fn state_mb(&self) -> Result<f64, BenchError> {
        let bytes = self
            .host
            .client
            .number("SELECT sum(state_bytes) FROM mr_catalog.memory")
            .await?;
        Ok(bytes / 1e6)
    }

    /// Has everything put into a checkpoint, and returns what the one of the bank cost: it may have been under way, or even there.
    async fn checkpoint(&mut self) -> Result<Cost, BenchError> {
        let client = &self.host.client;
        let epoch = client
            .number("SELECT max(epoch) FROM mr_catalog.batches WHERE views > 0")
            .await?;
        let with_all =
            format!("FROM mr_catalog.checkpoints WHERE views > 0 AND state = 'done' AND epoch >= {epoch}");
        let count = format!("SELECT count(*) {with_all}");
        client
            .run("ALTER SYSTEM SET checkpoint_interval = '10ms'")
            .await?;
        let begin = Instant::now();
        while client.number(&count).await? == 0.0 {
            if begin.elapsed() > CHECKPOINT_WAIT {
                return Err(BenchError::Server("there is no checkpoint".to_owned()));
            }
        }
        client.run("ALTER SYSTEM SET checkpoint_interval = 'off'").await?;
        let sql = format!(
            "SELECT bytes_written, bytes_total, written_ms {with_all} ORDER BY bytes_written DESC LIMIT 1"
        );
        let rows = self.host.client.rows(&sql).await?;
        let value = |column: usize| -> f64 {
            let text = rows.first().and_then(|row| row.get(column)?.clone());
            text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
        };
        Ok(Cost {
            written: value(0),
            total: value(1),
            milliseconds: value(2),
        })
    }

    /// Kills the server (one in this process is stopped) and starts it again, with readers that see the checkpoint until the log
    /// behind it is replayed.
    async fn restart(self, target: &Target) -> Result<(Bank, Back), BenchError> {
        let sql = "ALTER SYSTEM SET recovery_reads = 'checkpoint'";
        self.host.client.run(sql).await?;
        let bank = Bank {
            host: self.host.kill_and_start(target).await?,
            accounts: self.accounts,
            added: self.added,
        };
        let begin = bank.host.server.begin();
        let mut found = bank.found().await?;
        let first_answer_ms = begin.elapsed().as_secs_f64() * 1e3;
        while found != bank.expected() && begin.elapsed() < CHECKPOINT_WAIT {
            found = bank.found().await?;
        }
        bank.check().await?;
        let caught_up_ms = begin.elapsed().as_secs_f64() * 1e3;
        Ok((
            bank,
            Back {
                first_answer_ms,
                caught_up_ms,
            },
        ))
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.host.stop().await
    }
}
