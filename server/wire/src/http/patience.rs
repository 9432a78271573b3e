//! How long a client of HTTP may take: for the head of a request, for its body, and for taking the answer.
//!
//! ```text
//!   accepted ── 60 s ──> head of the request ── 30 s for each piece, 64 bytes a second ──> body ──> answer, as slow as it likes
//!       ^                                                                                             |
//!       └───────────────────────── the next request on the same connection <───────────────────────── ┘
//! ```
//! The first limit is the connection's ([`Patience`]), which knows from the middleware whether a request is under way; the second is a
//! limit of the body ([`Paced`]). What a request holds, it holds until its answer is out ([`hold`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, Sleep, sleep};

use super::connections::Peer;

/// How long a connection may be without a request: from its beginning, or from the end of the answer before.
pub const HEAD_MAX: Duration = Duration::from_secs(60);
/// How long a body may wait for its next piece.
pub const PIECE_MAX: Duration = Duration::from_secs(30);
/// From this time on a body must have come at the lowest rate.
const RATE_AFTER: Duration = Duration::from_secs(60);
/// The lowest rate, in bytes a second, over all of a body.
const RATE_MIN: u64 = 64;

/// What a connection is doing, for its own deadline.
#[derive(Debug)]
pub struct Requests {
    under_way: AtomicUsize,
    /// When the last one ended.
    ended: Mutex<Instant>,
}

impl Default for Requests {
    fn default() -> Self {
        Requests {
            under_way: AtomicUsize::new(0),
            ended: Mutex::new(Instant::now()),
        }
    }
}

impl Requests {
    /// Until when the next one must be there; `None`: one is under way.
    fn deadline(&self) -> Option<Instant> {
        let is_busy = self.under_way.load(Ordering::Acquire) > 0;
        (!is_busy).then(|| *self.ended.lock() + HEAD_MAX)
    }
}

/// A request under way.
struct UnderWay(Arc<Requests>);

impl UnderWay {
    fn new(requests: &Arc<Requests>) -> UnderWay {
        requests.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(requests))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.ended.lock() = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The deadline of a connection that waits for a request.
#[derive(Debug)]
pub struct Patience {
    pub requests: Arc<Requests>,
    timer: Pin<Box<Sleep>>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            requests: Arc::default(),
            timer: Box::pin(sleep(HEAD_MAX)),
        }
    }
}

impl Patience {
    /// Ready when a request should have come by now. For a connection of which nothing can be read yet.
    pub fn poll_exhausted(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.requests.deadline() else {
            return Poll::Pending;
        };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(context)
    }
}

/// Notes that a request is under way until its answer is out, and has its body come in time.
pub async fn watch(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let under_way = peer.map(|ConnectInfo(peer)| UnderWay::new(&peer.requests));
    let request = request.map(|body| match body.is_end_stream() {
        true => body,
        false => Body::new(Paced::new(body, PIECE_MAX)),
    });
    hold(next.run(request).await, under_way)
}

/// The answer, which holds something until it is out, or nobody takes it any more.
pub fn hold<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| {
        Body::new(Holding {
            body,
            held: Some(held),
        })
    })
}

struct Holding<T> {
    body: Body,
    held: Option<T>,
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that has to come in time.
struct Paced {
    body: Body,
    piece_max: Duration,
    began: Instant,
    bytes: u64,
    timer: Pin<Box<Sleep>>,
}

impl Paced {
    fn new(body: Body, piece_max: Duration) -> Paced {
        Paced {
            body,
            piece_max,
            began: Instant::now(),
            bytes: 0,
            timer: Box::pin(sleep(piece_max)),
        }
    }

    fn is_too_slow(&self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.began);
        since > RATE_AFTER && self.bytes < since.as_secs() * RATE_MIN
    }
}

fn too_slow() -> axum::Error {
    axum::Error::new(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "the body of the request came too slowly",
    ))
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.timer.as_mut().poll(context));
            return Poll::Ready(Some(Err(too_slow())));
        };
        let now = Instant::now();
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => return Poll::Ready(frame),
        };
        self.bytes += bytes;
        if self.is_too_slow(now) {
            return Poll::Ready(Some(Err(too_slow())));
        }
        let next = now + self.piece_max;
        self.timer.as_mut().reset(next);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;

    async fn read(body: Paced) -> Result<usize, String> {
        let read = axum::body::to_bytes(Body::new(body), usize::MAX).await;
        read.map(|bytes| bytes.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_has_to_come_in_time() {
        let pieces = || stream::iter([b"abc", b"def"]).map(|piece| Ok::<_, std::io::Error>(&piece[..]));
        let whole = Paced::new(Body::from_stream(pieces()), PIECE_MAX);
        assert_eq!(read(whole).await, Ok(6));
        let never_ends = Body::from_stream(pieces().chain(stream::pending()));
        let error = read(Paced::new(never_ends, Duration::from_millis(1)))
            .await
            .unwrap_err();
        assert!(error.contains("too slowly"), "{error}");
    }

    #[test]
    fn a_body_has_a_lowest_rate_once_it_has_taken_long() {
        let began = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let _within = runtime.as_ref().map(tokio::runtime::Runtime::enter);
        let is_too_slow = |bytes, seconds| {
            let body = Paced {
                began,
                bytes,
                ..Paced::new(Body::empty(), PIECE_MAX)
            };
            body.is_too_slow(began + Duration::from_secs(seconds))
        };
        assert!(!is_too_slow(0, 60));
        assert!(is_too_slow(100, 61));
        assert!(!is_too_slow(100 * RATE_MIN, 100));
        assert!(is_too_slow(100 * RATE_MIN - 1, 100));
    }

    #[tokio::test]
    async fn a_connection_waits_so_long_for_a_request() {
        let patience = Patience::default();
        let requests = Arc::clone(&patience.requests);
        let first = requests.deadline().unwrap();
        // As long as a request is under way it waits for nothing, and afterwards anew.
        let under_way = [UnderWay::new(&requests), UnderWay::new(&requests)];
        assert_eq!(requests.deadline(), None);
        let [one, other] = under_way;
        drop(one);
        assert_eq!(requests.deadline(), None);
        drop(other);
        assert!(requests.deadline().unwrap() > first);
        // One that has waited for longer is not waited for.
        *requests.ended.lock() = Instant::now() - 2 * HEAD_MAX;
        let mut patience = patience;
        std::future::poll_fn(|context| patience.poll_exhausted(context)).await;
    }

    #[tokio::test]
    async fn what_a_request_holds_it_holds_until_the_answer_is_out() {
        let held = Arc::new(());
        let answer = hold(Response::new(Body::from("rows")), Arc::clone(&held));
        assert_eq!(Arc::strong_count(&held), 2);
        let mut body = answer.into_body();
        let first = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        assert!(first.is_some_and(|frame| frame.is_ok()));
        assert_eq!(Arc::strong_count(&held), 2);
        let end = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        assert!(end.is_none());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
