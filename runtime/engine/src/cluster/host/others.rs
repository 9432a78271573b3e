//! Other hosts, and the links to them: opened when they are needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millrace_mesh::{Link, connect};
use millrace_schedule::id::WorkerId;
use millrace_schedule::message::{ToDriver, ToPeer};
use tokio::sync::mpsc;

use super::{FromOther, Inner};
use crate::cluster::protocol::{Hello, ToCoordinator, ToOther, encode};
use crate::error::{Result, RuntimeError};

/// Another host.
pub(super) struct Other {
    address: String,
    /// Open once it was needed.
    link: Arc<tokio::sync::Mutex<Option<Link>>>,
    /// Messages, in order, for whoever opens the link.
    messages: mpsc::UnboundedSender<ToPeer>,
}

impl Other {
    /// Sends it a message, after those before; gives it back if nobody sends any more.
    pub fn send(&self, message: ToPeer) -> std::result::Result<(), ToPeer> {
        self.messages
            .send(message)
            .map_err(|mpsc::error::SendError(message)| message)
    }
}

impl Inner {
    pub(super) fn know_others(self: &Arc<Self>, hosts: BTreeMap<WorkerId, String>) {
        let mut others = self.others.lock();
        others.retain(|worker, _| hosts.contains_key(worker));
        for (worker, address) in hosts {
            if worker == self.id || others.contains_key(&worker) {
                continue;
            }
            let (messages, queue) = mpsc::unbounded_channel();
            others.insert(
                worker,
                Other {
                    address,
                    link: Arc::default(),
                    messages,
                },
            );
            tokio::spawn(send_in_order(Arc::downgrade(self), worker, queue));
        }
    }

    /// The link to another host, opened if it is not open.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(super) async fn link_to(self: &Arc<Self>, worker: WorkerId) -> Result<Link> {
        let lost = || RuntimeError::worker_lost(worker.0);
        let (address, link) = {
            let others = self.others.lock();
            let other = others.get(&worker).ok_or_else(lost)?;
            (other.address.clone(), Arc::clone(&other.link))
        };
        let mut link = link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let about = encode(&Hello::Peer { from: self.id }).map_err(RuntimeError::Internal)?;
        let serving = Arc::new(FromOther(Arc::downgrade(self)));
        let opened = connect(&address, &self.access, &about, serving)
            .await
            .map_err(|_| lost())?;
        *link = Some(opened.clone());
        let (weak, watched) = (Arc::downgrade(self), opened.clone());
        tokio::spawn(async move {
            watched.closed().await;
            if let Some(inner) = weak.upgrade() {
                inner.tell(&ToCoordinator::Unlinked { from: worker });
            }
        });
        Ok(opened)
    }
}

/// Sends messages to another host in their order. What cannot be sent the driver is told.
async fn send_in_order(inner: Weak<Inner>, to: WorkerId, mut queue: mpsc::UnboundedReceiver<ToPeer>) {
    while let Some(message) = queue.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        match inner.link_to(to).await {
            Ok(link) => match encode(&ToOther {
                to,
                message: message.clone(),
            }) {
                Ok(bytes) => link.send(bytes),
                Err(error) => tracing::error!(%error, "a message cannot be sent"),
            },
            Err(_) => inner.tell(&ToCoordinator::Report(ToDriver::Undelivered { to, message })),
        }
    }
}
