//! The connections of each address, on both listeners, and what all connections have.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::Duration;

/// After so long without a word it is looked whether the client is still there,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// so often,
const KEEPALIVE_COUNT: u32 = 6;
/// and each time so long after the last.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How many connections addresses have.
#[derive(Debug, Default)]
pub struct Addresses {
    /// The most for one of them; none: any number.
    most: Option<usize>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection's place among those of its address, given back when dropped. One from where there is no limit takes none.
#[derive(Debug, Default)]
pub struct Place(Option<(Arc<Addresses>, IpAddr)>);

impl Addresses {
    pub fn new(most: Option<usize>) -> Addresses {
        Addresses {
            most,
            open: Mutex::default(),
        }
    }

    /// A place; `None`: the address has as many as it may.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let Some(most) = self.most else {
            return Some(Place(None));
        };
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place(Some((Arc::clone(self), address))))
    }

    pub fn most(&self) -> Option<usize> {
        self.most
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((addresses, address)) = self.0.take() else {
            return;
        };
        let mut open = addresses.open.lock();
        if let Some(count) = open.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&address);
            }
        }
    }
}

/// Has the operating system find out when a client is gone without having said so.
pub fn keep_alive(stream: &TcpStream, peer: SocketAddr) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_COUNT);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%peer, %error, "cannot keep a connection alive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_gives_them_back() {
        let one = IpAddr::from([127, 0, 0, 1]);
        let other = IpAddr::from([127, 0, 0, 2]);
        let addresses = Arc::new(Addresses::new(Some(2)));
        let places = [addresses.enter(one).unwrap(), addresses.enter(one).unwrap()];
        assert!(addresses.enter(one).is_none());
        assert!(addresses.enter(other).is_some());
        drop(places);
        assert!(addresses.enter(one).is_some());
        assert!(addresses.open.lock().is_empty(), "nobody is remembered");
        assert!(Arc::new(Addresses::new(None)).enter(one).is_some());
    }

    #[tokio::test]
    async fn connections_are_kept_alive() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        keep_alive(&stream, address);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
    }
}
