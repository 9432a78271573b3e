//! Bytes to fewer of them, and back.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing into memory cannot fail")
}

/// Of a file inside the binary: that it is whole, a test sees to.
pub fn decompressed(bytes: &[u8]) -> Vec<u8> {
    let mut plain = vec![];
    GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .expect("a file inside the binary is whole: a test reads all of them");
    plain
}
