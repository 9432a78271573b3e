//! Links between the processes of a cluster.
//!
//! ```text
//!  one process                                    another
//!    send(message) ---- connection of messages ---> Serve::message     small, in the order in which they were sent
//!    request(body) ---- connection of requests ---> Serve::request     large; each with an answer, in any order
//! ```
//! Two connections for each pair, so that a message of some bytes does not wait behind rows. A link is closed as a whole: when
//! one of the two breaks, when either side says so, or when it is dropped. Nothing is sent again here: who has to know that a
//! message arrived asks for an answer, and a link that is closed stays closed.
//!
//! Both sides prove that they know the cluster's token before anything else is said (`handshake`), over TLS unless both do
//! without ([`Access`]). What it does not do: find out that the other side hangs (heartbeats are the callers'), or bound what is
//! asked for.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod frame;
mod handshake;
mod link;
mod listener;
mod stream;
mod tls;

use std::io;

use bytes::Bytes;
use futures::future::BoxFuture;

pub use link::Link;
pub use listener::{Incoming, Listener, connect};
pub use tls::{Access, Certificate};

/// What is asked for, or answered: a few bytes that say what it is, and what comes with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    pub header: Bytes,
    pub parts: Vec<Bytes>,
}

impl Body {
    /// One without parts.
    pub fn of(header: impl Into<Bytes>) -> Body {
        Body {
            header: header.into(),
            parts: vec![],
        }
    }
}

/// What one side does with what the other says.
pub trait Serve: Send + Sync + 'static {
    /// A message; the next one comes when this returns.
    fn message(&self, message: Bytes);

    /// A request; others come meanwhile. The error is told to whoever asked.
    fn request(&self, request: Body) -> BoxFuture<'static, Result<Body, String>>;
}

/// Why there is no link, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    #[error("the link is closed")]
    Closed,
    /// The other side could not do what was asked for.
    #[error("{0}")]
    Failed(String),
    /// The other side does not take this process.
    #[error("{0}")]
    Refused(String),
    #[error("the other side has a different cluster_token, or the connection is intercepted")]
    Token,
    #[error(
        "links between machines are encrypted here and not there: set cluster_tls to the same on all of them"
    )]
    OnlyHere,
    #[error(
        "links between machines are encrypted there and not here: set cluster_tls to the same on all of them"
    )]
    OnlyThere,
    #[error("the other side is not a millrace process of this version")]
    Protocol,
    #[error(transparent)]
    Io(#[from] io::Error),
}
