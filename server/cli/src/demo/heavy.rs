//! Heavy queries beside a replay: sessions that run the same SELECT again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::DemoError;
use super::client::Client;

/// Groups by the million, then a sort: what an analyst might ask for.
pub const HEAVY: &str = "SELECT i % 1000003 AS k, count(*) AS n, sum(sqrt(i)) AS s
FROM generate_series(1, 4000000) AS g(i) GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 5";

/// How many sessions run it: one more than there are cores, so that none is idle.
pub fn sessions() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

/// Sessions that run the heavy query until they are ended or dropped.
#[derive(Default)]
pub struct Heavy {
    sessions: JoinSet<Result<(), DemoError>>,
    ended: Arc<AtomicU64>,
}

impl Heavy {
    /// Starts as many sessions as keep all cores busy.
    pub fn start(address: SocketAddr) -> Self {
        let mut heavy = Heavy::default();
        for _ in 0..sessions() {
            heavy.sessions.spawn(run(address, Arc::clone(&heavy.ended)));
        }
        heavy
    }

    /// Ends the sessions; says how many queries were answered.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn end(mut self) -> Result<u64, DemoError> {
        if let Some(Ok(Err(error))) = self.sessions.try_join_next() {
            return Err(error);
        }
        self.sessions.shutdown().await;
        Ok(self.ended.load(Ordering::Relaxed))
    }
}

async fn run(address: SocketAddr, ended: Arc<AtomicU64>) -> Result<(), DemoError> {
    let client = Client::connect(address).await?;
    client.run("SET query_priority = 'batch'").await?;
    loop {
        client.rows(HEAVY).await?;
        ended.fetch_add(1, Ordering::Relaxed);
    }
}
