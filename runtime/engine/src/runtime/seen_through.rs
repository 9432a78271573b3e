//! What has begun and is to be ended, whether or not anybody waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// A future that is worked off where it is awaited (which saves a change of threads), and by a task of its own once nobody awaits it.
pub(super) struct SeenThrough<T: Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    io: Handle,
}

impl<T: Send + 'static> SeenThrough<T> {
    pub fn new(future: impl Future<Output = T> + Send + 'static, io: &Handle) -> Self {
        SeenThrough {
            future: Some(future.boxed()),
            io: io.clone(),
        }
    }
}

impl<T: Send + 'static> Future for SeenThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Not here meanwhile: one that panics has ended.
        let Some(mut future) = self.future.take() else {
            return Poll::Pending;
        };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for SeenThrough<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.io.spawn(async move { drop(future.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn it_ends_where_it_is_awaited_and_where_nobody_does() {
        let io = Handle::current();
        assert_eq!(SeenThrough::new(async { 5 }, &io).await, 5);
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut given_up = SeenThrough::new(
            async move {
                let number: i32 = begun.await.unwrap();
                end.send(number + 1).unwrap();
            },
            &io,
        );
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        begin.send(6).unwrap();
        assert_eq!(ended.await, Ok(7));
    }
}
