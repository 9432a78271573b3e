//! Requests over HTTP.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The status and the body of an answer.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// `Authorization: Basic` of a user with its password.
pub fn basic(user: &str, password: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{user}:{password}").into_bytes();
    let mut encoded = String::new();
    for chunk in text.chunks(3) {
        let mut bytes = [0; 3];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
        for place in 0..4 {
            match place <= chunk.len() {
                true => encoded.push(char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize])),
                false => encoded.push('='),
            }
        }
    }
    format!("Basic {encoded}")
}

/// Sends a request and reads its answer to the end.
pub async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    authorization: Option<&str>,
    content_type: &str,
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let authorization = authorization
        .map(|value| format!("authorization: {value}\r\n"))
        .unwrap_or_default();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{authorization}content-type: {content_type}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    // A subscription does not end: what comes first tells enough.
    let mut answer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let count = stream.read(&mut answer[length..]).await.unwrap_or(0);
        length += count;
        let text = String::from_utf8_lossy(&answer[..length]);
        let is_followed = path == "/api/subscribe" && text.contains("\r\n\r\n");
        if count == 0 || is_followed {
            let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
            return Answer {
                status: status.unwrap(),
                body: body.unwrap_or_default(),
            };
        }
    }
}
