//! From starting the program on an empty directory to the first accepted query.

use crate::bed::Place;
use crate::client::Client;
use crate::error::BenchError;
use crate::first_light::Scale;
use crate::results::{Aim, Experiment};
use crate::statistics::ms_since;
use crate::target::Target;

/// The experiment's name.
pub const NAME: &str = "start-up";

/// Starts servers one after the other.
pub async fn run(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let (mut ready, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..scale.startups {
        let directory = Place::Disk.directory()?;
        let server = target.start(&directory.path().join("data")).await?;
        ready.push(ms_since(server.begin()));
        let client = Client::connect(server.pg()).await?;
        let rows = client.rows("SELECT 1").await?;
        answered.push(ms_since(server.begin()));
        if rows != [[Some("1".to_owned())]] {
            return Err(BenchError::Wrong(format!("SELECT 1 gives {rows:?}")));
        }
        drop(client);
        server.stop().await?;
    }
    let mut experiment = Experiment::new(
        NAME,
        "A new process on an empty directory, until it says that it is ready, and until a client that connects then \
         has the answer to SELECT 1.",
    );
    experiment.add("until it says ready", "ms", ready, None);
    experiment.add(
        "until the first answer",
        "ms",
        answered,
        Some(Aim::MedianUnder(300.0)),
    );
    Ok(experiment)
}
