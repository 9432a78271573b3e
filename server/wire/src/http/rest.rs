//! What is left of a request when its answer is there already.
//!
//! Over HTTP/2 an answer that comes before the end of its request resets the request's stream, and some clients (curl 7.88) then
//! forget the answer: whoever was refused would not learn why. So a short rest is read first.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::Version;
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use tokio::time::{Duration, timeout};

/// A longer rest is not worth it.
const BYTES_MAX: usize = 64 * 1024;
/// Nor is one that does not come.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Reads a short rest of a request of HTTP/2 before its answer goes out.
pub async fn read(request: Request, next: Next) -> Response {
    if request.version() != Version::HTTP_2 {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = Arc::new(Mutex::new(body));
    let lent = Body::new(Lent(Arc::clone(&body)));
    let response = next.run(Request::from_parts(head, lent)).await;
    if !body.lock().is_end_stream() {
        let rest = Body::new(Lent(body));
        // What it says is of no use to anybody.
        let _ = timeout(TIME_MAX, to_bytes(rest, BYTES_MAX)).await;
    }
    response
}

/// A body that is not lost when whoever reads it stops.
struct Lent(Arc<Mutex<Body>>);

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.lock().size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Router, middleware};
    use futures::StreamExt;
    use tower::ServiceExt;

    use super::*;

    /// How many of ten pieces were read of a request that was refused at once.
    async fn read_of_refused(version: Version) -> usize {
        let refused = Router::new()
            .route("/", post(async || StatusCode::FORBIDDEN))
            .layer(middleware::from_fn(read));
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let pieces = futures::stream::iter(0..10).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(b"piece"))
        });
        let request = Request::builder()
            .method("POST")
            .version(version)
            .body(Body::from_stream(pieces))
            .expect("a request");
        let response = refused.oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        count.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn the_rest_of_a_refused_request_is_read_where_that_matters() {
        assert_eq!(read_of_refused(Version::HTTP_2).await, 10);
        assert_eq!(read_of_refused(Version::HTTP_11).await, 0);
    }
}
