//! How links come about: one side listens, the other connects, twice.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::handshake::{self, Hello, Lane};
use crate::stream::Stream;
use crate::{Access, Link, MeshError, Serve};

/// How long either side waits for the other to say who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Links of which one connection is there, at most.
const HALF_OPEN_MAX: usize = 64;

/// Where other processes connect.
pub struct Listener {
    address: SocketAddr,
    incoming: mpsc::Receiver<Incoming>,
}

/// A process that knows the token, and wants a link.
pub struct Incoming {
    /// What it says of itself.
    pub about: Bytes,
    /// Where it comes from.
    pub address: SocketAddr,
    messages: Stream,
    requests: Stream,
}

impl Incoming {
    /// Takes it.
    ///
    /// # Errors
    /// It has gone meanwhile.
    pub async fn take(mut self, serve: Arc<dyn Serve>) -> Result<Link, MeshError> {
        handshake::answer(&mut self.messages, None).await?;
        handshake::answer(&mut self.requests, None).await?;
        Ok(Link::open(self.messages, self.requests, serve))
    }

    /// Sends it away, and says why.
    pub async fn refuse(mut self, why: &str) {
        // It may have gone by itself.
        let _ = handshake::answer(&mut self.messages, Some(why)).await;
        let _ = handshake::answer(&mut self.requests, Some(why)).await;
    }
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub async fn bind(address: impl ToSocketAddrs, access: Access) -> Result<Listener, MeshError> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, incoming) = mpsc::channel(HALF_OPEN_MAX);
        let (half_sender, half_open) = mpsc::channel(HALF_OPEN_MAX);
        tokio::spawn(accept(listener, access, half_sender));
        tokio::spawn(pair(half_open, sender));
        Ok(Listener { address, incoming })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next process that wants a link; none if nobody listens any more.
    pub async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }
}

type HalfOpen = (Hello, SocketAddr, Stream);

/// Takes connections until nobody wants them.
async fn accept(listener: TcpListener, access: Access, sender: mpsc::Sender<HalfOpen>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a process of the cluster cannot connect");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (access, sender) = (access.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let listening = async {
                let mut stream = access.listens(stream).await?;
                let hello = handshake::listens(&mut stream, &access.token).await?;
                Ok::<_, MeshError>((hello, stream))
            };
            match timeout(HANDSHAKE_TIMEOUT, listening).await {
                Ok(Ok((hello, stream))) => {
                    let _ = sender.send((hello, address, stream)).await;
                }
                Ok(Err(error)) => tracing::warn!(%address, %error, "a process is not taken into the cluster"),
                Err(_) => {
                    tracing::warn!(%address, "a process is not taken into the cluster: it says nothing")
                }
            }
        });
    }
}

/// Joins the two connections of each link.
async fn pair(mut half_open: mpsc::Receiver<HalfOpen>, sender: mpsc::Sender<Incoming>) {
    let mut waiting: HashMap<[u8; 16], HalfOpen> = HashMap::new();
    loop {
        let connected = tokio::select! {
            connected = half_open.recv() => connected,
            // Nobody listens any more: the address is free for others.
            () = sender.closed() => return,
        };
        let Some((hello, address, stream)) = connected else {
            return;
        };
        let Some((first, _, other)) = waiting.remove(&hello.link) else {
            if waiting.len() >= HALF_OPEN_MAX {
                waiting.clear();
            }
            waiting.insert(hello.link, (hello, address, stream));
            continue;
        };
        if first.lane == hello.lane {
            continue;
        }
        let (messages, requests) = match first.lane {
            Lane::Messages => (other, stream),
            Lane::Requests => (stream, other),
        };
        let incoming = Incoming {
            about: handshake::about(first),
            address,
            messages,
            requests,
        };
        if sender.send(incoming).await.is_err() {
            return;
        }
    }
}

/// Connects to a process that listens. `about`: what this one says of itself.
///
/// # Errors
/// Nobody listens there, it does not know the token, or it does not take this process.
pub async fn connect(
    address: &str,
    access: &Access,
    about: &[u8],
    serve: Arc<dyn Serve>,
) -> Result<Link, MeshError> {
    let link = handshake::random()?;
    let open = async |lane| {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut stream = access.connects(stream).await?;
            let hello = Hello {
                link,
                lane,
                about: about.to_vec(),
            };
            handshake::connects(&mut stream, &access.token, &hello).await?;
            Ok::<_, MeshError>(stream)
        };
        let timed_out = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not answer");
        timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(timed_out)?
    };
    let (messages, requests) = tokio::try_join!(open(Lane::Messages), open(Lane::Requests))?;
    Ok(Link::open(messages, requests, serve))
}

#[cfg(test)]
mod tests;
