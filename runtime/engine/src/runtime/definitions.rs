//! The right to change definitions: tickets of the driver, as futures.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::driver::Event;
use millrace_schedule::id::Ticket;
use millrace_schedule::template::ViewShape;
use tokio::sync::oneshot;

use super::Engine;
use crate::error::{Result, RuntimeError};

/// The right to change definitions over some pipelines: none of them launches an epoch until it is resumed or dropped.
pub(crate) struct Held {
    engine: Arc<Engine>,
    ticket: Ticket,
    is_done: bool,
}

impl Held {
    /// Lets the pipeline go on, with these views and without those relations.
    pub fn resume(mut self, views: Vec<Arc<ViewShape>>, dropped: Vec<RelationId>) {
        self.is_done = true;
        self.engine.post(Event::Resume {
            ticket: self.ticket,
            views,
            dropped,
        });
    }

    /// Never lets it go on.
    pub fn keep(mut self) {
        self.is_done = true;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.post(Event::Resume {
                ticket: self.ticket,
                views: vec![],
                dropped: vec![],
            });
        }
    }
}

/// A ticket that may be abandoned before its turn comes.
struct Asked {
    engine: Arc<Engine>,
    ticket: Ticket,
    is_granted: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_granted
            && self
                .engine
                .decisions
                .tickets
                .lock()
                .remove(&self.ticket)
                .is_none()
        {
            // It was granted, but nobody took it.
            self.engine.post(Event::Resume {
                ticket: self.ticket,
                views: vec![],
                dropped: vec![],
            });
        }
    }
}

impl Engine {
    /// Waits until the pipelines of the relations are idle and joined into one.
    pub async fn quiesce(self: &Arc<Self>, relations: Vec<RelationId>) -> Result<Held> {
        let ticket = self.decisions.new_ticket();
        let (sender, receiver) = oneshot::channel();
        self.decisions.tickets.lock().insert(ticket, sender);
        let mut asked = Asked {
            engine: Arc::clone(self),
            ticket,
            is_granted: false,
        };
        self.post(Event::Quiesce {
            ticket,
            relations,
            or_new: self.decisions.new_pipeline(),
        });
        receiver.await.map_err(|_| RuntimeError::SHUTTING_DOWN)?;
        asked.is_granted = true;
        Ok(Held {
            engine: Arc::clone(self),
            ticket,
            is_done: false,
        })
    }
}
