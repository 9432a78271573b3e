//! How the rows of a relation are divided among the tasks that read it.

use std::ops::Range;

use super::{Frozen, FrozenRows};

/// A share of a relation's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Rows of the views of a table.
    Rows(Range<Place>),
    /// Offsets of a log.
    Offsets(Range<u64>),
}

/// A place between rows of the views of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub view: usize,
    pub chunk: usize,
    /// The row of the chunk that follows.
    pub row: usize,
}

/// Offsets of a log that are worth a reader of their own.
const LOG_PART_ROWS_MIN: u64 = 16_384;

/// Divides a relation's rows into so many shares, or fewer if it has fewer rows, of the same size where that can be, in their order.
pub(super) fn parts_of(frozen: &Frozen, most: usize) -> Vec<Part> {
    match &frozen.rows {
        FrozenRows::Log(..) => {
            let rows = frozen.version;
            let each = rows.div_ceil(most.max(1) as u64).max(LOG_PART_ROWS_MIN);
            let shares = 0..rows.div_ceil(each).max(1);
            shares
                .map(|part| Part::Offsets(part * each..((part + 1) * each).min(rows)))
                .collect()
        }
        FrozenRows::Table(views) => {
            let chunks = views.iter().enumerate().flat_map(|(number, view)| {
                (0..view.num_chunks()).map(move |chunk| ChunkRows {
                    view: number,
                    chunk,
                    rows: view.chunk_rows_max(chunk),
                    is_whole: view.is_spilled(chunk),
                })
            });
            let end = Place {
                view: views.len(),
                ..Place::default()
            };
            let parts = shares(&chunks.collect::<Vec<_>>(), end, most);
            parts.into_iter().map(Part::Rows).collect()
        }
    }
}

/// A chunk, and how many rows it has.
#[derive(Debug, Clone, Copy)]
struct ChunkRows {
    view: usize,
    chunk: usize,
    rows: usize,
    /// Not divided: it is on the disk, and read as a whole.
    is_whole: bool,
}

fn shares(chunks: &[ChunkRows], end: Place, most: usize) -> Vec<Range<Place>> {
    let all: usize = chunks.iter().map(|chunk| chunk.rows).sum();
    let most = most.min(all).max(1);
    let mut cuts = vec![];
    let (mut next, mut before) = (1, 0);
    for chunk in chunks {
        let after = before + chunk.rows;
        while next < most && (all * next / most) < after {
            let row = all * next / most - before;
            let at = Place {
                view: chunk.view,
                chunk: chunk.chunk,
                row: if chunk.is_whole { 0 } else { row },
            };
            if at > cuts.last().copied().unwrap_or_default() {
                cuts.push(at);
            }
            next += 1;
        }
        before = after;
    }
    let begins = std::iter::once(Place::default()).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([end]);
    begins.zip(ends).map(|(begin, end)| begin..end).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The rows of a share, as (view, chunk, row).
    fn rows_of(chunks: &[ChunkRows], share: &Range<Place>) -> Vec<(usize, usize, usize)> {
        let places = chunks.iter().flat_map(|chunk| {
            (0..chunk.rows).map(|row| Place {
                view: chunk.view,
                chunk: chunk.chunk,
                row,
            })
        });
        places
            .filter(|place| share.contains(place))
            .map(|place| (place.view, place.chunk, place.row))
            .collect()
    }

    #[test]
    fn each_row_is_in_one_share_and_shares_are_even() {
        let seed: u64 = 20_261_128;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..500 {
            let views = random.random_range(1..4);
            let mut chunks = vec![];
            for view in 0..views {
                for chunk in 0..random.random_range(0..5) {
                    chunks.push(ChunkRows {
                        view,
                        chunk,
                        rows: random.random_range(0..60),
                        is_whole: random.random_bool(0.1),
                    });
                }
            }
            let end = Place {
                view: views,
                ..Place::default()
            };
            let most = random.random_range(0..12);
            let shares = shares(&chunks, end, most);
            let read: Vec<_> = shares.iter().flat_map(|share| rows_of(&chunks, share)).collect();
            assert_eq!(
                read,
                rows_of(&chunks, &(Place::default()..end)),
                "{chunks:?}, {most}"
            );
            let all = read.len();
            if !chunks.iter().any(|chunk| chunk.is_whole) {
                assert_eq!(shares.len(), most.min(all).max(1));
                for share in &shares {
                    let rows = rows_of(&chunks, share).len();
                    assert!(
                        rows.abs_diff(all / shares.len()) <= 1,
                        "{chunks:?}, {most}: {rows}"
                    );
                }
            }
        }
    }
}
