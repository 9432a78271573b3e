//! Transactions and what makes one come after another; cycles among them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edge {
    WriteWrite,
    WriteRead,
    ReadWrite,
}

impl Edge {
    pub(super) fn name(self) -> &'static str {
        match self {
            Edge::WriteWrite => "ww",
            Edge::WriteRead => "wr",
            Edge::ReadWrite => "rw",
        }
    }
}

/// A cycle: each transaction with the edge to the next, the last one's to the first.
type Cycle = Vec<(usize, Edge)>;

/// See the module.
pub(super) struct Graph {
    edges: Vec<BTreeSet<(usize, Edge)>>,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Graph {
        Graph {
            edges: vec![BTreeSet::new(); transactions],
        }
    }

    /// What a transaction does to itself is no edge.
    pub(super) fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].insert((to, edge));
        }
    }

    /// A cycle of edges of these kinds, if there is one.
    pub(super) fn cycle(&self, kinds: &BTreeSet<Edge>) -> Option<Cycle> {
        (0..self.edges.len())
            .filter(|start| self.is_on_cycle_perhaps(*start, kinds))
            .find_map(|start| self.path(start, start, kinds))
    }

    /// A cycle of one edge of a kind and, otherwise, edges of these.
    pub(super) fn cycle_through_one(&self, one: Edge, others: &BTreeSet<Edge>) -> Option<Cycle> {
        let ones = self.edges.iter().enumerate().flat_map(|(from, edges)| {
            let edges = edges.iter().filter(move |(_, edge)| *edge == one);
            edges.map(move |(to, _)| (from, *to))
        });
        ones.into_iter().find_map(|(from, to)| {
            let rest = self.path(to, from, others)?;
            Some([vec![(from, one)], rest].concat())
        })
    }

    fn is_on_cycle_perhaps(&self, transaction: usize, kinds: &BTreeSet<Edge>) -> bool {
        self.edges[transaction]
            .iter()
            .any(|(_, edge)| kinds.contains(edge))
    }

    /// A shortest way of at least one edge.
    fn path(&self, from: usize, to: usize, kinds: &BTreeSet<Edge>) -> Option<Cycle> {
        let mut came: BTreeMap<usize, (usize, Edge)> = BTreeMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            for (next, edge) in self.edges[at].iter().filter(|(_, edge)| kinds.contains(edge)) {
                if came.contains_key(next) || (*next == from && to != from) {
                    continue;
                }
                came.insert(*next, (at, *edge));
                if *next == to {
                    let mut way = vec![];
                    let mut place = to;
                    loop {
                        let (before, edge) = came[&place];
                        way.push((before, edge));
                        place = before;
                        if place == from {
                            way.reverse();
                            return Some(way);
                        }
                    }
                }
                open.push_back(*next);
            }
        }
        None
    }
}
