//! What any bytes of a PostgreSQL client must leave standing: whatever comes, in whatever state, is a message or the end of the
//! connection, never a panic.
//!
//! The target `wire` and `sql-tests/tests/server/wire_messages.rs` run it. No session is behind the messages: what statements do is
//! the business of other tests.

use futures::executor::block_on;
use millrace_wire::pg::startup;
use millrace_wire::pg::wire::Wire;
use pgwire::messages::ProtocolVersion;

/// The longest message that is believed.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The first byte says whether the connection is new, the rest is what the client sends. Returns how many messages it was.
pub fn check(bytes: &[u8]) -> usize {
    let Some((first, rest)) = bytes.split_first() else {
        return 0;
    };
    let stream = tokio::io::join(rest, tokio::io::sink());
    let mut wire = Wire::new(stream, MESSAGE_BYTES_MAX);
    block_on(async {
        let mut messages = 0;
        if first % 2 == 0 {
            if startup::hello(&mut wire).await.is_err() {
                return messages;
            }
            messages += 1;
        }
        wire.established(ProtocolVersion::PROTOCOL3_0);
        while wire.receive().await.is_ok() {
            messages += 1;
        }
        messages
    })
}
