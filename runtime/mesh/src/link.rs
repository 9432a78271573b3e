//! A link that is open: who reads, who writes, and who waits for an answer.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{mpsc, oneshot, watch};

use crate::frame::{Frame, Kind, read, write};
use crate::stream::Stream;
use crate::{Body, MeshError, Serve};

/// Bytes that small frames are put together in.
const BUFFER_BYTES: usize = 64 << 10;

/// Requests that wait for their answers; none any more once the link is closed.
#[derive(Default)]
struct Asked {
    next: u64,
    waiting: Option<HashMap<u64, oneshot::Sender<Result<Body, MeshError>>>>,
}

/// A link to another process; see the crate. Clones are the same link.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    messages: mpsc::UnboundedSender<Frame>,
    requests: mpsc::UnboundedSender<Frame>,
    asked: Mutex<Asked>,
    is_closed: watch::Sender<bool>,
}

impl Inner {
    fn close(&self) {
        self.is_closed.send_replace(true);
        // Whoever waits is told by the end of its sender.
        drop(self.asked.lock().waiting.take());
    }

    /// Resolves when the link is closed.
    async fn closed(&self) {
        let mut is_closed = self.is_closed.subscribe();
        // The sender lives as long as this.
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }
}

/// Drops a request that nobody waits for any more.
struct Waiting<'a> {
    inner: &'a Inner,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut self.inner.asked.lock().waiting {
            waiting.remove(&self.number);
        }
    }
}

impl Link {
    /// A link over these two connections. What the other side says goes to `serve`.
    pub(crate) fn open(messages: Stream, requests: Stream, serve: Arc<dyn Serve>) -> Link {
        let (message_sender, message_queue) = mpsc::unbounded_channel();
        let (request_sender, request_queue) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            messages: message_sender,
            requests: request_sender,
            asked: Mutex::new(Asked {
                next: 0,
                waiting: Some(HashMap::new()),
            }),
            is_closed: watch::Sender::new(false),
        });
        for (stream, queue) in [(messages, message_queue), (requests, request_queue)] {
            let Stream { reader, writer, .. } = stream;
            tokio::spawn(until_closed(Arc::clone(&inner), writes(writer, queue)));
            let reading = reads(reader, Arc::clone(&inner), Arc::clone(&serve));
            tokio::spawn(until_closed(Arc::clone(&inner), reading));
        }
        Link { inner }
    }

    /// Sends a message. It arrives after those that were sent before it, or not at all: when the link is closed.
    pub fn send(&self, message: impl Into<Bytes>) {
        let frame = Frame {
            kind: Kind::Message,
            number: 0,
            body: Body::of(message),
        };
        // Nobody reads what is sent over a link that is closed.
        let _ = self.inner.messages.send(frame);
    }

    /// Asks for something.
    ///
    /// # Errors
    /// The link is closed; what the other side says is wrong.
    pub async fn request(&self, body: Body) -> Result<Body, MeshError> {
        let inner = &self.inner;
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut asked = inner.asked.lock();
            let number = asked.next;
            asked.next += 1;
            let waiting = asked.waiting.as_mut().ok_or(MeshError::Closed)?;
            waiting.insert(number, sender);
            number
        };
        let _waiting = Waiting { inner, number };
        let frame = Frame {
            kind: Kind::Request,
            number,
            body,
        };
        inner.requests.send(frame).map_err(|_| MeshError::Closed)?;
        answer.await.map_err(|_| MeshError::Closed)?
    }

    /// Whether nothing comes through any more.
    pub fn is_closed(&self) -> bool {
        *self.inner.is_closed.borrow()
    }

    /// Resolves when nothing comes through any more.
    pub async fn closed(&self) {
        self.inner.closed().await;
    }

    /// Closes it: nothing that is under way arrives.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Runs one side of a connection until it ends or the link is closed, and closes the link.
async fn until_closed(inner: Arc<Inner>, work: impl Future<Output = std::io::Result<()>>) {
    tokio::select! {
        ended = work => if let Err(error) = ended {
            tracing::debug!(%error, "a link to another process breaks");
        },
        () = inner.closed() => {}
    }
    inner.close();
}

async fn writes(
    writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Frame>,
) -> std::io::Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
    while let Some(frame) = queue.recv().await {
        write(&mut writer, &frame).await?;
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

async fn reads(
    reader: impl AsyncRead + Unpin,
    inner: Arc<Inner>,
    serve: Arc<dyn Serve>,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    while let Some(Frame { kind, number, body }) = read(&mut reader).await? {
        match kind {
            Kind::Message => serve.message(body.header),
            Kind::Request => {
                let answering = serve.request(body);
                let inner = Arc::clone(&inner);
                tokio::spawn(async move {
                    let (kind, body) = tokio::select! {
                        answer = answering => match answer {
                            Ok(body) => (Kind::Answer, body),
                            Err(why) => (Kind::Failed, Body::of(why)),
                        },
                        () = inner.closed() => return,
                    };
                    let _ = inner.requests.send(Frame { kind, number, body });
                });
            }
            Kind::Answer | Kind::Failed => {
                let answer = match kind {
                    Kind::Failed => Err(MeshError::Failed(
                        String::from_utf8_lossy(&body.header).into_owned(),
                    )),
                    _ => Ok(body),
                };
                let waiting = inner
                    .asked
                    .lock()
                    .waiting
                    .as_mut()
                    .and_then(|waiting| waiting.remove(&number));
                if let Some(waiting) = waiting {
                    // Whoever asked may not wait any more.
                    let _ = waiting.send(answer);
                }
            }
        }
    }
    Ok(())
}
