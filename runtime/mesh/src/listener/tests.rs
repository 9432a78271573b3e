//! Links over loopback: order, answers, ends, and who is not taken.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::*;
use crate::Body;

/// Tells its messages on, and answers a request with itself; one without parts fails, and one of "never" has no answer.
struct Echo(mpsc::UnboundedSender<Bytes>);

impl Serve for Echo {
    fn message(&self, message: Bytes) {
        self.0.send(message).unwrap();
    }

    fn request(&self, request: Body) -> BoxFuture<'static, Result<Body, String>> {
        async move {
            if request.header == "never" {
                Notify::new().notified().await;
            }
            match request.parts.is_empty() {
                true => Err(format!("nothing comes with {:?}", request.header)),
                false => Ok(request),
            }
        }
        .boxed()
    }
}

fn echo() -> (Arc<Echo>, mpsc::UnboundedReceiver<Bytes>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Echo(sender)), receiver)
}

async fn pair_of_links() -> (Link, Link, mpsc::UnboundedReceiver<Bytes>) {
    let token = Token::new("secret");
    let mut listener = Listener::bind("127.0.0.1:0", token.clone()).await.unwrap();
    let address = listener.address().to_string();
    let (serve, _) = echo();
    let connecting = tokio::spawn(async move { connect(&address, &token, b"me", serve).await });
    let incoming = listener.next().await.unwrap();
    assert_eq!(incoming.about, "me");
    let (serve, heard) = echo();
    let theirs = incoming.take(serve).await.unwrap();
    (connecting.await.unwrap().unwrap(), theirs, heard)
}

#[tokio::test]
async fn messages_come_in_order_and_requests_are_answered() {
    let (ours, theirs, mut heard) = pair_of_links().await;
    for number in 0..10_000_u32 {
        ours.send(number.to_le_bytes().to_vec());
    }
    for number in 0..10_000_u32 {
        assert_eq!(heard.recv().await.unwrap(), number.to_le_bytes().as_slice());
    }
    let asked = (0..50).map(|number| {
        let body = Body {
            header: Bytes::from(vec![number; 3]),
            parts: vec![Bytes::from(vec![number; 200_000])],
        };
        let ours = ours.clone();
        async move { assert_eq!(ours.request(body.clone()).await.unwrap(), body) }
    });
    futures::future::join_all(asked).await;
    let error = theirs.request(Body::of("x")).await.unwrap_err();
    assert!(error.to_string().contains("nothing comes with"), "{error}");
}

#[tokio::test]
async fn a_link_that_is_closed_answers_nobody() {
    let (ours, theirs, _) = pair_of_links().await;
    let waiting = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.request(Body::of("never")).await })
    };
    // An answer to another one shows that the first was sent.
    let body = Body {
        header: Bytes::from_static(b"x"),
        parts: vec![Bytes::from_static(b"y")],
    };
    ours.request(body.clone()).await.unwrap();
    theirs.close();
    ours.closed().await;
    assert!(matches!(waiting.await.unwrap(), Err(MeshError::Closed)));
    assert!(matches!(ours.request(body).await, Err(MeshError::Closed)));
}

#[tokio::test]
async fn nobody_is_taken_without_the_token_or_against_the_will() {
    let mut listener = Listener::bind("127.0.0.1:0", Token::new("secret")).await.unwrap();
    let address = listener.address().to_string();
    let (serve, _) = echo();
    let wrong = connect(
        &address,
        &Token::new("guess"),
        b"",
        Arc::clone(&serve) as Arc<dyn Serve>,
    )
    .await;
    assert!(matches!(wrong, Err(MeshError::Token)));
    let connecting = {
        let address = address.clone();
        tokio::spawn(async move { connect(&address, &Token::new("secret"), b"", serve).await })
    };
    listener
        .next()
        .await
        .unwrap()
        .refuse("it is of another build")
        .await;
    let refused = connecting.await.unwrap();
    assert!(matches!(refused, Err(MeshError::Refused(why)) if why == "it is of another build"));
    // Others' protocols.
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
}
