//! The task that sends the steps of an outbox to another system, in their order.
//!
//! ```text
//!  outbox: step n --> Writer: its messages and "n is here", together --> told to the sink's task, which takes the next step
//!            ^                              | error
//!            `-- the target says how far it is <-- open again, a little later
//! ```
//! A step is in the target once: it says itself how far it is. What it says is compared with what is known here, so that rows are neither
//! sent again nor left out where the two do not belong together.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_catalog::sink::SinkDef;
use millrace_connectors::source::ConnectorError;
use millrace_connectors::target::{Message, Reached, Said, Writer};
use millrace_connectors::writers;
use millrace_engine::{Runtime, RuntimeError};
use millrace_postgres::error::SqlError;
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Committed;
use super::subscription_log::{Form, StepWriter};
use super::writing::Writing;
use crate::backoff::Backoff;
use crate::database::subscriptions::log::SubscriptionLog;
use crate::sink_files::directory::{Directory, io_error};
use crate::sink_files::outbox;

/// What to do when the target and the outbox do not belong together.
const BEGIN_ANEW: &str = "Drop the sink and create it again; it then writes all rows, so use another target, or empty this one first.";

/// How far the target is, as the sink's task knows it.
#[derive(Debug, Clone, Default)]
struct State {
    /// The first step that it does not have, once that is known.
    next: Option<u64>,
    error: Option<ConnectorError>,
}

/// The task, as the sink's own task has it.
pub(super) struct Shipping {
    steps: watch::Sender<Committed>,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

impl Shipping {
    /// Starts it, for what is committed.
    pub fn start(sink: &Writing) -> Shipping {
        let (steps, committed) = watch::channel(sink.committed);
        let (tell, state) = watch::channel(State::default());
        let shipper = Shipper {
            runtime: sink.runtime.clone(),
            def: Arc::clone(&sink.def),
            place: outbox::of(&sink.data, sink.id),
            directory: sink.directory.clone(),
            private_hosts: Arc::clone(&sink.private_hosts),
            kept: sink.kept.clone().zip(sink.form()),
            committed,
            state: tell,
        };
        Shipping {
            steps,
            state,
            task: tokio::spawn(shipper.run()),
        }
    }

    /// There are more steps.
    pub fn send(&self, committed: Committed) {
        self.steps.send_replace(committed);
    }

    /// Resolves when something was delivered or has failed.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // It has said why it ended.
            std::future::pending().await
        }
    }

    /// Whether the target has the steps below.
    pub fn has(&self, next: u64) -> bool {
        self.state.borrow().next == Some(next)
    }

    /// The first step that the target is not known to have.
    pub fn delivered(&self) -> Option<u64> {
        self.state.borrow().next
    }

    /// Why nothing is delivered.
    pub fn error(&self) -> Option<ConnectorError> {
        self.state.borrow().error.clone()
    }

    /// Ends it. What it was sending is sent by the next one, unless the target has it.
    pub async fn stop(self) {
        self.task.abort();
        // It was told to end, and has.
        let _ = self.task.await;
    }
}

struct Shipper {
    runtime: Runtime,
    def: Arc<SinkDef>,
    /// The directory of the outbox, and its steps.
    place: PathBuf,
    directory: Directory,
    private_hosts: Arc<PrivateHosts>,
    /// Where the steps of a subscription are kept, and what they are like.
    kept: Option<(Arc<SubscriptionLog>, Form)>,
    committed: watch::Receiver<Committed>,
    state: watch::Sender<State>,
}

impl Shipper {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let before = self.state.borrow().next;
            let error = match self.deliver().await {
                Ok(()) => return,
                Err(error) => error,
            };
            if self.state.borrow().next != before {
                // It does take some.
                backoff = Backoff::new();
            }
            let (is_final, wait) = (error.is_final, error.retry_after);
            let place = self.place.display();
            tracing::warn!(outbox = %place, error = error.message, is_final, "steps of a sink could not be delivered");
            self.state.send_modify(|state| state.error = Some(error));
            if is_final {
                return;
            }
            backoff.wait_at_least(wait).await;
        }
    }

    /// Delivers until there is nobody who takes steps.
    async fn deliver(&mut self) -> Result<(), ConnectorError> {
        let mut writer: Box<dyn Writer> = match &self.kept {
            Some((kept, form)) => {
                Box::new(StepWriter::open(kept, form.clone(), self.committed.clone()).await?)
            }
            None => writers::open(&self.def, &writers::By::new(&self.private_hosts)).await?,
        };
        let delivered = self.deliver_to(writer.as_mut()).await;
        writer.close().await;
        delivered
    }

    async fn deliver_to(&mut self, writer: &mut dyn Writer) -> Result<(), ConnectorError> {
        let committed = *self.committed.borrow_and_update();
        let mut next = self.begin(writer.reached(), committed).await?;
        loop {
            let committed = *self.committed.borrow_and_update();
            while next < committed.next {
                let (sum, content) = self.read(next).await?;
                let messages = self.messages(next, content).await?;
                next += 1;
                writer.write(Reached { next, sum }, messages).await?;
                self.tell(next);
            }
            self.tell(next);
            if self.committed.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// What the target gets of a step: its messages, or the file as it is.
    async fn messages(&self, number: u64, content: Vec<u8>) -> Result<Vec<Message>, ConnectorError> {
        if self.def.target.file_format().is_some() {
            return Ok(vec![Message {
                key: None,
                value: Some(content.into()),
            }]);
        }
        let (sink_type, path) = (self.def.sink_type, self.directory.file(number));
        let work = move || outbox::messages(sink_type, &path, content);
        let messages = self
            .runtime
            .compute(QueryClass::Batch, work)
            .map_err(of_runtime)?;
        messages.await.map_err(of_runtime)?.map_err(of_sql)
    }

    fn tell(&self, next: u64) {
        let committed = *self.committed.borrow();
        if let Some((kept, _)) = &self.kept
            && next == committed.next
        {
            kept.reach(committed.outbox.epoch, committed.outbox.since);
        }
        self.state.send_replace(State {
            next: Some(next),
            error: None,
        });
    }

    /// The first step that is to be sent, by what the target says.
    async fn begin(&self, said: Said, committed: Committed) -> Result<u64, ConnectorError> {
        let known = (self.state.borrow().next).unwrap_or(committed.outbox.delivered);
        let foreign = |what: String| Err(ConnectorError::lasting(what, BEGIN_ANEW));
        let reached = match said {
            Said::AtLeast(reached) => match reached.filter(|reached| reached.next > known) {
                None => return Ok(known),
                further => further,
            },
            Said::All(reached) => Some(reached),
            Said::Nothing => None,
        };
        match reached {
            None if known == 0 => Ok(0),
            None => foreign(format!(
                "the target has no record of the {known} steps that it was sent"
            )),
            Some(reached) if reached.next < known => foreign(format!(
                "the target has {} steps of the sink but {known} were sent: it lost some",
                reached.next
            )),
            Some(reached) if reached.next > committed.next => foreign(format!(
                "the target has {} steps of the sink, and this server has made {}: its data directory is a copy or an older one",
                reached.next, committed.next
            )),
            Some(reached) => {
                // The log of a subscription is this server's own.
                if reached.next > known
                    && self.kept.is_none()
                    && let (sum, _) = self.read(reached.next - 1).await?
                    && sum != reached.sum
                {
                    return foreign(format!(
                        "step {} in the target differs from the one that this server made: its data directory is a copy",
                        reached.next - 1
                    ));
                }
                Ok(reached.next)
            }
        }
    }

    /// A step, with its checksum.
    async fn read(&self, number: u64) -> Result<(u32, Vec<u8>), ConnectorError> {
        let path = self.directory.file(number);
        let content = self.runtime.read_file(&path).await.map_err(of_runtime)?;
        let content = content.map_err(|error| match error.kind() {
            ErrorKind::NotFound => ConnectorError::lasting(
                format!(
                    "step {number} is missing in the outbox, \"{}\": perhaps this server was restored from a backup",
                    self.place.display()
                ),
                BEGIN_ANEW,
            ),
            _ => of_sql(io_error("read", &path, &error)),
        })?;
        Ok((crc32c::crc32c(&content), content))
    }
}

pub(super) fn of_runtime(error: RuntimeError) -> ConnectorError {
    of_sql(from_internal::runtime(error))
}

pub(super) fn of_sql(error: SqlError) -> ConnectorError {
    ConnectorError::passing(error.message)
}
