//! Connections that go silent: nothing is refused and nothing ends, but what is said does not arrive any more, as when a gateway between
//! the two forgets the connection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use millrace_sql_tests::outside::until;
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, start};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes on what is said, until it is told to keep that to itself. Connections that are made later are passed on.
struct Gateway {
    address: SocketAddr,
    generation: Arc<watch::Sender<u64>>,
}

impl Gateway {
    async fn start(server: SocketAddr) -> Result<Gateway, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let generation = Arc::new(watch::Sender::new(0));
        let generations = Arc::clone(&generation);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(server).await else {
                    continue;
                };
                let forgotten = generations.subscribe();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass_on(near_in, far_out, forgotten.clone()));
                tokio::spawn(pass_on(far_in, near_out, forgotten));
            }
        });
        Ok(Gateway { address, generation })
    }

    /// The connections that there are stay open, and nothing goes through them any more.
    fn forget(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut forgotten: watch::Receiver<u64>,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        tokio::select! {
            biased;
            _ = forgotten.changed() => std::future::pending::<()>().await,
            read = from.read(&mut bytes) => match read {
                Ok(read) if read > 0 && to.write_all(&bytes[..read]).await.is_ok() => {}
                _ => return,
            },
        }
    }
}

/// A source and a sink notice that their connections are lost, and make others.
pub async fn silence(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute("CREATE TABLE said (id int PRIMARY KEY); CREATE TABLE heard (id int PRIMARY KEY)")
        .await?;
    let gateway = Gateway::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    let through = super::source("silent", server, "").replace(
        &format!("port = {}", server.port()),
        &format!("port = {}", gateway.address.port()),
    );
    run(&client, &through).await?;
    run(
        &client,
        "CREATE TABLE said (id INT PRIMARY KEY) FROM silent TABLE 'said'",
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE SINK to_there FROM said WITH (connector = 'postgres', host = '127.0.0.1', port = {}, user = 'postgres',
             database = 'postgres', table = 'heard', type = 'upsert')",
            gateway.address.port()
        ),
    )
    .await?;
    there.batch_execute("INSERT INTO said VALUES (1)").await?;
    until(&client, "SELECT count(*) FROM said", "1").await?;
    until(&there, "SELECT count(*) FROM heard", "1").await?;
    gateway.forget();
    there.batch_execute("INSERT INTO said VALUES (2)").await?;
    until(&client, "SELECT count(*) FROM said", "2").await?;
    until(&there, "SELECT count(*) FROM heard", "2").await?;
    // Both are as they were, and so are those who ask.
    until(
        &client,
        "SELECT (SELECT state FROM mr_catalog.sources), (SELECT state FROM mr_catalog.sinks)",
        "running running",
    )
    .await?;
    run(&client, "DROP SINK to_there").await?;
    run(&client, "DROP STREAM silent CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}
