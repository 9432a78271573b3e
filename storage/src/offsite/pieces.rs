//! Which objects have which rows of a log, and what is to be sent: pure.
//!
//! The pieces of a log stand behind each other without gaps, from its first row to its last. What retention has cut into, or a base
//! has replaced, is made again from there. Where there are sixteen small pieces at the end, the next one takes them in: a log has a few dozens of
//! them beside those of full size, and a row is sent again as often as its piece grew by a factor of eight.

use serde::{Deserialize, Serialize};

use crate::log::LogSpan;

/// Bytes of a piece, about, at the most.
pub(super) const PIECE_BYTES_MAX: u64 = 16 << 20;
/// So many of a size at the end become one.
const RUN: usize = 16;
/// The first size, and by how much the next is larger.
const SIZE_BYTES: u64 = 32 << 10;
const SIZE_GROWTH: u64 = 8;
/// Pieces of this size stay as they are.
const FULL_BYTES: u64 = PIECE_BYTES_MAX / 2;

/// Where bytes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Object {
    /// Behind what a moment says.
    Moment(u64),
    /// In an object of this name.
    Pack(String),
}

/// The rows of a log from one offset to another, as the content of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Piece {
    pub from: u64,
    pub to: u64,
    /// If it has rows of a base, where that ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_end: u64,
    #[serde(rename = "in")]
    pub object: Object,
    pub at: u64,
    pub bytes: u64,
    pub crc: u32,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is to be done for a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The pieces that stay, in order.
    pub keep: Vec<Piece>,
    /// The rows that are to be sent, in order: from, to. A log without rows has one of none.
    pub send: Vec<(u64, u64)>,
}

/// What is to be done so that a log is there as of a moment, of which these pieces are there.
pub(super) fn plan(span: LogSpan, pieces: &[Piece]) -> Plan {
    let LogSpan {
        first, base_end, end, ..
    } = span;
    if first == end {
        let empty = pieces.iter().find(|piece| (piece.from, piece.to) == (first, end));
        return Plan {
            keep: empty.into_iter().cloned().collect(),
            send: if empty.is_some() {
                vec![]
            } else {
                vec![(first, end)]
            },
        };
    }
    let begins = |of_base: u64| {
        let of_base = pieces.iter().filter(|piece| piece.base_end == of_base);
        of_base.map(|piece| piece.from).min()
    };
    let is_kept = |piece: &&Piece| {
        let is_of_base = piece.base_end == base_end && piece.to <= base_end;
        // What was restored has the rows of a base as its own, and begins with them. In any other log they would be there twice: beside the
        // changes that they came of.
        let is_plain = piece.base_end == 0 || begins(piece.base_end) == Some(first);
        first <= piece.from
            && piece.from < piece.to
            && piece.to <= end
            && (is_of_base || (base_end <= piece.from && is_plain))
    };
    let mut keep: Vec<Piece> = pieces.iter().filter(is_kept).cloned().collect();
    let mut send = vec![];
    let mut at = first;
    for piece in &keep {
        add(&mut send, at, piece.from, base_end);
        at = piece.to;
    }
    if at < end {
        // Those that are taken in are from where the base ends, so that it is cut there.
        let joined = take_in(&mut keep, base_end, at);
        add(&mut send, joined, end, base_end);
    }
    Plan { keep, send }
}

/// Adds the rows `from..to`, cut where a base ends.
fn add(send: &mut Vec<(u64, u64)>, from: u64, to: u64, base_end: u64) {
    let cut = base_end.clamp(from, to);
    send.extend(
        [(from, cut), (cut, to)]
            .into_iter()
            .filter(|(from, to)| from < to),
    );
}

/// Takes small pieces from the end, which reaches to `end`; where the rows begin that they have.
fn take_in(keep: &mut Vec<Piece>, base_end: u64, end: u64) -> u64 {
    let mut size = SIZE_BYTES;
    while size <= FULL_BYTES {
        let mut bytes = 0;
        let mut from = end;
        let run = (keep.iter().rev())
            .take_while(|piece| {
                bytes += piece.bytes;
                let is_next = piece.to == from;
                from = piece.from;
                is_next && piece.from >= base_end && piece.bytes < size && bytes <= PIECE_BYTES_MAX
            })
            .count();
        if run >= RUN {
            let first = keep.len() - run;
            let from = keep[first].from;
            keep.truncate(first);
            return from;
        }
        size *= SIZE_GROWTH;
    }
    end
}

/// The first row that no piece has, if the pieces do not stand behind each other from the first row to the last.
pub(super) fn gap(span: LogSpan, pieces: &[Piece]) -> Option<u64> {
    let mut at = span.first;
    for piece in pieces {
        if piece.from != at || piece.to < piece.from {
            return Some(at);
        }
        at = piece.to;
    }
    (at != span.end || pieces.is_empty()).then_some(at)
}

#[cfg(test)]
mod unit {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn span(first: u64, base_end: u64, end: u64) -> LogSpan {
        LogSpan {
            first,
            write_id: 0,
            base_end,
            end,
        }
    }

    fn piece(from: u64, to: u64, base_end: u64) -> Piece {
        Piece {
            from,
            to,
            base_end,
            object: Object::Moment(1),
            at: 0,
            bytes: (to - from) * 1_000,
            crc: 0,
        }
    }

    /// Does what a plan says.
    fn carry_out(span: LogSpan, pieces: &[Piece]) -> Vec<Piece> {
        let Plan { mut keep, send } = plan(span, pieces);
        let sent = send.into_iter().map(|(from, to)| {
            let base_end = if from < span.base_end { span.base_end } else { 0 };
            assert!(
                from >= span.base_end || to <= span.base_end,
                "a piece has rows of both sides"
            );
            piece(from, to, base_end)
        });
        keep.extend(sent);
        keep.sort_by_key(|piece| piece.from);
        keep
    }

    #[test]
    fn a_log_without_rows_has_a_piece() {
        let pieces = carry_out(span(0, 0, 0), &[]);
        assert_eq!(pieces, [piece(0, 0, 0)]);
        assert_eq!(plan(span(0, 0, 0), &pieces).send, []);
        assert_eq!(carry_out(span(0, 0, 5), &pieces), [piece(0, 5, 0)]);
        assert_eq!(carry_out(span(5, 0, 5), &[piece(0, 5, 0)]), [piece(5, 5, 0)]);
    }

    #[test]
    fn what_retention_cut_and_a_base_replaced_is_made_again() {
        let pieces = [piece(0, 10, 0), piece(10, 20, 0), piece(20, 30, 0)];
        let plan_of = |span| plan(span, &pieces).send;
        assert_eq!(plan_of(span(0, 0, 30)), []);
        assert_eq!(plan_of(span(10, 0, 30)), []);
        assert_eq!(plan_of(span(15, 0, 31)), [(15, 20), (30, 31)]);
        // The rows in front of 20 are others now, at the last of those offsets.
        assert_eq!(plan_of(span(17, 20, 30)), [(17, 20)]);
        assert_eq!(plan_of(span(10, 20, 30)), [(10, 20)]);
        assert_eq!(plan_of(span(18, 25, 30)), [(18, 25), (25, 30)]);
        let pieces = carry_out(span(10, 20, 30), &pieces);
        assert_eq!(plan(span(10, 20, 30), &pieces).send, []);
        assert_eq!(plan(span(15, 22, 30), &pieces).send, [(15, 22), (22, 30)]);
        // What was restored has no base, but its rows.
        assert_eq!(plan(span(10, 0, 30), &pieces).send, []);
        // A log whose base was not written down in time has the changes in front of it.
        assert_eq!(plan(span(0, 0, 30), &pieces).send, [(0, 20)]);
    }

    #[test]
    fn pieces_stay_few_and_have_all_rows() {
        let seed = 20_261_128;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (mut now, mut pieces) = (span(0, 0, 0), vec![]);
        let (mut sent, mut rows) = (0, 0);
        for _ in 0..20_000 {
            let more = random.random_range(1..20);
            (now.end, rows) = (now.end + more, rows + more);
            if random.random_bool(0.001) {
                now.first = random.random_range(now.first..now.end);
            }
            if random.random_bool(0.001) {
                now.base_end = random.random_range(now.first.max(now.base_end)..=now.end);
                now.first = random.random_range(now.first..=now.base_end);
            }
            if now.base_end <= now.first {
                now.base_end = 0;
            }
            sent += plan(now, &pieces)
                .send
                .iter()
                .map(|(from, to)| to - from)
                .sum::<u64>();
            pieces = carry_out(now, &pieces);
            assert_eq!(gap(now, &pieces), None);
            assert!(
                pieces.len() < 5 * RUN + (now.end / 8_000) as usize,
                "{}",
                pieces.len()
            );
        }
        assert!(sent < 12 * rows, "{sent} of {rows}");
    }
}
