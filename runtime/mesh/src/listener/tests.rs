//! Links over loopback: order, answers, ends, and who is not taken.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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

fn encrypted(token: &str) -> Access {
    Access::encrypted(token, None).unwrap()
}

async fn pair_of_links(access: Access) -> (Link, Link, mpsc::UnboundedReceiver<Bytes>) {
    let listener = Listener::bind("127.0.0.1:0", access.clone()).await.unwrap();
    let address = listener.address();
    pair_over(listener, access, address).await
}

/// The address is the listener's, or of somebody in between.
async fn pair_over(
    mut listener: Listener,
    access: Access,
    address: SocketAddr,
) -> (Link, Link, mpsc::UnboundedReceiver<Bytes>) {
    let (serve, _) = echo();
    let connecting = tokio::spawn(async move { connect(&address.to_string(), &access, b"me", serve).await });
    let incoming = listener.next().await.unwrap();
    assert_eq!(incoming.about, "me");
    let (serve, heard) = echo();
    let theirs = incoming.take(serve).await.unwrap();
    (connecting.await.unwrap().unwrap(), theirs, heard)
}

#[tokio::test]
async fn messages_come_in_order_and_requests_are_answered() {
    for access in [Access::plain("secret"), encrypted("secret")] {
        are_in_order_and_answered(access).await;
    }
}

async fn are_in_order_and_answered(access: Access) {
    let (ours, theirs, mut heard) = pair_of_links(access).await;
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
    let (ours, theirs, _) = pair_of_links(encrypted("secret")).await;
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
    let mut listener = Listener::bind("127.0.0.1:0", encrypted("secret")).await.unwrap();
    let address = listener.address().to_string();
    let (serve, _) = echo();
    let wrong = connect(
        &address,
        &encrypted("guess"),
        b"",
        Arc::clone(&serve) as Arc<dyn Serve>,
    )
    .await;
    assert!(matches!(wrong, Err(MeshError::Token)));
    let connecting = {
        let address = address.clone();
        tokio::spawn(async move { connect(&address, &encrypted("secret"), b"", serve).await })
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
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
}

/// Who is between two processes: makes something of each connection, and of the one that it opens for it.
async fn between<F>(
    to: SocketAddr,
    pass: fn(TcpStream, TcpStream, Vec<Access>, mpsc::UnboundedSender<Bytes>) -> F,
    with: Vec<Access>,
) -> (SocketAddr, mpsc::UnboundedReceiver<Bytes>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, recorded) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let onward = TcpStream::connect(to).await.unwrap();
            tokio::spawn(pass(from, onward, with.clone(), sender.clone()));
        }
    });
    (address, recorded)
}

/// Passes everything on, and tells it.
async fn record(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    told: mpsc::UnboundedSender<Bytes>,
) {
    let (mut from, mut to) = (from, to);
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let _ = told.send(Bytes::copy_from_slice(&bytes[..read]));
        if to.write_all(&bytes[..read]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

async fn listen_in(from: TcpStream, to: TcpStream, _: Vec<Access>, told: mpsc::UnboundedSender<Bytes>) {
    let ((from_reader, from_writer), (to_reader, to_writer)) = (from.into_split(), to.into_split());
    tokio::join!(
        record(from_reader, to_writer, told.clone()),
        record(to_reader, from_writer, told)
    );
}

/// Has a session with each of the two.
async fn stand_between(
    from: TcpStream,
    to: TcpStream,
    with: Vec<Access>,
    told: mpsc::UnboundedSender<Bytes>,
) {
    let [access] = with.as_slice() else {
        panic!("one access")
    };
    let (from, to) = tokio::try_join!(access.listens(from), access.connects(to)).unwrap();
    tokio::join!(
        record(from.reader, to.writer, told.clone()),
        record(to.reader, from.writer, told)
    );
}

fn all(mut recorded: mpsc::UnboundedReceiver<Bytes>) -> Vec<u8> {
    let mut all = vec![];
    while let Ok(bytes) = recorded.try_recv() {
        all.extend_from_slice(&bytes);
    }
    all
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn nothing_that_is_said_can_be_read_on_the_way() {
    for (access, is_readable) in [
        (Access::plain("the token"), true),
        (encrypted("the token"), false),
    ] {
        let listener = Listener::bind("127.0.0.1:0", access.clone()).await.unwrap();
        let (address, recorded) = between(listener.address(), listen_in, vec![]).await;
        let (ours, theirs, mut heard) = pair_over(listener, access, address).await;
        ours.send("a message from here");
        assert_eq!(heard.recv().await.unwrap(), "a message from here");
        let body = Body {
            header: Bytes::from_static(b"rows from there"),
            parts: vec![Bytes::from("some rows ".repeat(50_000))],
        };
        assert_eq!(theirs.request(body.clone()).await.unwrap(), body);
        let recorded = all(recorded);
        // Everything has passed here, twice the rows.
        assert!(recorded.len() > 2 * 500_000, "{}", recorded.len());
        for said in ["a message from here", "rows from there", "some rows some rows"] {
            assert_eq!(has(&recorded, said), is_readable, "{said}");
        }
        assert!(!has(&recorded, "the token"));
    }
}

#[tokio::test]
async fn who_stands_between_with_a_certificate_of_its_own_is_refused() {
    // Of plain links it can make whatever it likes: it does stand between them.
    let access = Access::plain("secret");
    let listener = Listener::bind("127.0.0.1:0", access.clone()).await.unwrap();
    let (address, recorded) =
        between(listener.address(), stand_between, vec![Access::plain("a guess")]).await;
    let (ours, _theirs, mut heard) = pair_over(listener, access, address).await;
    ours.send("a message");
    assert_eq!(heard.recv().await.unwrap(), "a message");
    assert!(has(&all(recorded), "a message"));

    let mut listener = Listener::bind("127.0.0.1:0", encrypted("secret")).await.unwrap();
    let (address, recorded) = between(listener.address(), stand_between, vec![encrypted("a guess")]).await;
    let (serve, _) = echo();
    let refused = connect(
        &address.to_string(),
        &encrypted("secret"),
        b"about this one",
        serve,
    )
    .await;
    assert!(matches!(refused, Err(MeshError::Token)), "{:?}", refused.err());
    // It got as far as the proof of the side that listens, and learned no more.
    let recorded = all(recorded);
    assert!(!recorded.is_empty() && !has(&recorded, "about this one"));
    // Nor does the other side take it: the next that it hears of is one that comes by itself.
    let (address, access) = (listener.address().to_string(), encrypted("secret"));
    let (serve, _) = echo();
    let (linked, taken) = tokio::join!(connect(&address, &access, b"direct", serve), async {
        let incoming = listener.next().await.unwrap();
        assert_eq!(incoming.about, "direct");
        incoming.take(echo().0).await
    });
    assert!(linked.is_ok() && taken.is_ok());
}

#[tokio::test]
async fn an_address_is_free_when_nobody_listens_there_any_more() {
    let listener = Listener::bind("127.0.0.1:0", encrypted("secret")).await.unwrap();
    let address = listener.address();
    drop(listener);
    let bound = async {
        while Listener::bind(address, encrypted("secret")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANDSHAKE_TIMEOUT, bound).await.unwrap();
}

#[tokio::test]
async fn one_side_that_encrypts_is_told_by_both() {
    let (on, off) = (encrypted("secret"), Access::plain("secret"));
    for (here, there) in [(&on, &off), (&off, &on)] {
        let listener = Listener::bind("127.0.0.1:0", there.clone()).await.unwrap();
        let (serve, _) = echo();
        let refused = connect(&listener.address().to_string(), here, b"", serve).await;
        let why = refused.err().unwrap();
        match std::ptr::eq(here, &on) {
            true => assert!(matches!(why, MeshError::OnlyHere)),
            false => assert!(matches!(why, MeshError::OnlyThere)),
        }
        assert!(why.to_string().contains("cluster_tls"), "{why}");
    }
}
