//! Frames: `length kind number parts part-lengths.. header parts..`, all numbers little-endian.

use std::io;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Body;

/// Bytes of a frame at most: what Arrow puts into one column, and its siblings.
const FRAME_BYTES_MAX: u64 = 8 << 30;
/// Parts of one at most.
const PARTS_MAX: u32 = 1 << 20;
const HEAD_BYTES: usize = 1 + 8 + 4 + 4;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Request,
    Answer,
    /// The answer to a request that failed: why.
    Failed,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Message, Kind::Request, Kind::Answer, Kind::Failed]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// One frame. The number joins an answer to its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: Kind,
    pub number: u64,
    pub body: Body,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Writes a frame; small ones stay in the writer's buffer until it is flushed.
pub(crate) async fn write<W: AsyncWrite + Unpin>(writer: &mut W, frame: &Frame) -> io::Result<()> {
    let Frame { kind, number, body } = frame;
    let lengths = body.parts.iter().map(|part| part.len() as u64);
    let table = 8 * body.parts.len() as u64;
    let length = HEAD_BYTES as u64 + table + body.header.len() as u64 + lengths.clone().sum::<u64>();
    let (Ok(header), Ok(parts)) = (u32::try_from(body.header.len()), u32::try_from(body.parts.len())) else {
        return Err(wrong("a frame is too large"));
    };
    if length > FRAME_BYTES_MAX || parts > PARTS_MAX {
        return Err(wrong("a frame is too large"));
    }
    let mut head = Vec::with_capacity(8 + HEAD_BYTES + table as usize + body.header.len());
    head.extend(length.to_le_bytes());
    head.push(*kind as u8);
    head.extend(number.to_le_bytes());
    head.extend(header.to_le_bytes());
    head.extend(parts.to_le_bytes());
    lengths.for_each(|length| head.extend(length.to_le_bytes()));
    head.extend_from_slice(&body.header);
    writer.write_all(&head).await?;
    for part in &body.parts {
        writer.write_all(part).await?;
    }
    Ok(())
}

/// Reads a frame; none at the end of the stream. Its parts share one allocation.
pub(crate) async fn read<R: AsyncRead + Unpin>(reader: &mut R) -> io::Result<Option<Frame>> {
    let length = match reader.read_u64_le().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if !(HEAD_BYTES as u64..=FRAME_BYTES_MAX).contains(&length) {
        return Err(wrong("a frame of an impossible length"));
    }
    // Filled as it comes: nobody makes this side allocate what is not sent.
    let mut bytes = vec![];
    let read = reader.take(length).read_to_end(&mut bytes).await?;
    if read as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = Bytes::from(bytes);
    let kind = Kind::of(bytes.get_u8()).ok_or_else(|| wrong("a frame of an unknown kind"))?;
    let number = bytes.get_u64_le();
    let header = bytes.get_u32_le() as usize;
    let count = bytes.get_u32_le();
    if count > PARTS_MAX || bytes.len() < 8 * count as usize {
        return Err(wrong("a frame with an impossible number of parts"));
    }
    let lengths: Vec<u64> = (0..count).map(|_| bytes.get_u64_le()).collect();
    let all = lengths
        .iter()
        .try_fold(header as u64, |sum, length| sum.checked_add(*length));
    if all != Some(bytes.len() as u64) {
        return Err(wrong("a frame whose parts are not as long as it is"));
    }
    let header = bytes.split_to(header);
    let parts = lengths
        .into_iter()
        .map(|length| bytes.split_to(length as usize))
        .collect();
    Ok(Some(Frame {
        kind,
        number,
        body: Body { header, parts },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_and_damaged_ones_are_errors() {
        let frames = [
            Frame {
                kind: Kind::Message,
                number: 0,
                body: Body::default(),
            },
            Frame {
                kind: Kind::Answer,
                number: u64::MAX,
                body: Body {
                    header: Bytes::from_static(b"header"),
                    parts: vec![
                        Bytes::new(),
                        Bytes::from(vec![7; 100_000]),
                        Bytes::from_static(b"x"),
                    ],
                },
            },
        ];
        let mut bytes = vec![];
        for frame in &frames {
            write(&mut bytes, frame).await.unwrap();
        }
        let mut reader = bytes.as_slice();
        for frame in &frames {
            assert_eq!(read(&mut reader).await.unwrap().as_ref(), Some(frame));
        }
        assert_eq!(read(&mut reader).await.unwrap(), None);
        // Whatever byte is another one, and wherever it ends: a frame or an error, and no panic.
        let mut small = vec![];
        let body = Body {
            header: Bytes::from_static(b"h"),
            parts: vec![Bytes::from_static(b"part")],
        };
        let frame = Frame {
            kind: Kind::Request,
            number: 3,
            body,
        };
        write(&mut small, &frame).await.unwrap();
        for at in 0..small.len() {
            assert!(at < 8 || read(&mut &small[..at]).await.is_err());
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = small.clone();
                damaged[at] = byte;
                let _ = read(&mut damaged.as_slice()).await;
            }
        }
    }
}
