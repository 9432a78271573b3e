//! Graphs whose degrees follow a power law, the same for the same seed.

use std::collections::BTreeSet;

use millrace_generator::random::{Random, Zipf};

/// Different edges from a smaller to a larger node, so that each clique is met once: a node's rank is as likely as Zipf's
/// law says.
pub(super) fn edges(count: u64) -> Vec<(i64, i64)> {
    let nodes = (count / 5).max(20);
    let zipf = Zipf::new(nodes, 0.8);
    let mut random = Random::at(2016, 0, 0);
    let mut edges = BTreeSet::new();
    while (edges.len() as u64) < count {
        let (a, b) = (zipf.rank(&mut random) as i64, zipf.rank(&mut random) as i64);
        if a != b {
            edges.insert((a.min(b), a.max(b)));
        }
    }
    edges.into_iter().collect()
}
