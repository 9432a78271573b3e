//! What systemd is told of a service with `Type=notify`: when the server is ready, and when it stops. Without systemd nothing is done.
//!
//! The protocol is a datagram of lines `NAME=value` to the socket that `NOTIFY_SOCKET` names (sd_notify(3)); a name that begins with
//! `@` is in the abstract namespace.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The server answers; what it is doing is for `systemctl status`.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}", one_line(status)));
}

/// The server begins to stop.
pub fn stopping(status: &str) {
    tell(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

fn tell(text: &str) {
    if let Some(socket) = std::env::var_os(SOCKET)
        && let Err(error) = send(&socket, text)
    {
        tracing::warn!(%error, "the state of the server cannot be reported to systemd ({SOCKET})");
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn it_reaches_a_socket_with_a_path_and_one_without() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(heard(&socket), "READY=1");

        let name = format!("millrace-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        assert_eq!(heard(&socket), "STOPPING=1");
        assert!(send(OsStr::new("/nowhere/socket"), "").is_err());
    }
}
