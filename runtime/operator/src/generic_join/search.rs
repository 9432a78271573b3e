//! The search for the rows that a change makes: depth first, and suspended at any point.

use super::{GenericJoinInstance, Step, Value, key};

/// Bindings that are tried before the search looks at its surroundings again.
const BINDINGS_STEP: usize = 8_192;

/// How far a search is, and what it has found.
pub(super) struct Search {
    assignment: Vec<Value>,
    /// By step: the values that are still to be tried, each with how often what is bound up to it is there.
    levels: Vec<Vec<(Value, i64)>>,
    /// The change is to be looked at.
    begins: Option<i64>,
    /// The attribute of each column that is wanted.
    wanted: Vec<usize>,
    found: Vec<Vec<usize>>,
    weights: Vec<i64>,
    /// When so many rows were found, they are to be taken.
    rows_max: usize,
}

impl Search {
    pub fn new(attributes: usize, wanted: &[usize], rows_max: usize) -> Search {
        Search {
            assignment: vec![0; attributes],
            levels: vec![],
            begins: None,
            wanted: wanted.to_vec(),
            found: vec![vec![]; wanted.len()],
            weights: vec![],
            rows_max,
        }
    }

    /// Looks for what a row makes that comes so many times, or goes.
    pub fn begin(&mut self, assignment: &[Value], weight: i64) {
        self.assignment.copy_from_slice(assignment);
        self.begins = Some(weight);
    }

    /// Rows that were found and not taken.
    pub fn found(&self) -> usize {
        self.weights.len()
    }

    /// Whether it does not go on before what was found is taken.
    pub fn is_full(&self) -> bool {
        self.found() >= self.rows_max
    }

    /// Takes what was found: the values of each column, and how often each row comes or goes.
    pub fn take(&mut self) -> (Vec<Vec<usize>>, Vec<i64>) {
        let columns = self.found.iter_mut().map(std::mem::take).collect();
        (columns, std::mem::take(&mut self.weights))
    }

    fn find(&mut self, weight: i64) {
        for (column, attribute) in self.found.iter_mut().zip(&self.wanted) {
            column.push(self.assignment[*attribute] as usize);
        }
        self.weights.push(weight);
    }
}

impl GenericJoinInstance {
    /// Goes on with a search after a change of a relation, for a while or until enough is found; returns whether it is over.
    pub(super) fn search(&self, changed: usize, search: &mut Search) -> bool {
        let Some(plan) = self.plans.get(&changed) else {
            return true;
        };
        if let Some(mut weight) = search.begins.take() {
            for relation in &plan.bound {
                let relation = &self.relations[*relation];
                let rows = relation.rows.get(&key(&search.assignment, &relation.attributes));
                weight *= rows.copied().unwrap_or(0);
            }
            if weight == 0 {
                return true;
            }
            match plan.steps.first() {
                Some(first) => search.levels.push(self.values(first, &search.assignment, weight)),
                None => search.find(weight),
            }
        }
        for _ in 0..BINDINGS_STEP {
            if search.is_full() {
                return false;
            }
            let depth = search.levels.len();
            let Some(level) = search.levels.last_mut() else {
                return true;
            };
            let Some((value, weight)) = level.pop() else {
                search.levels.pop();
                continue;
            };
            search.assignment[plan.steps[depth - 1].attribute] = value;
            match plan.steps.get(depth) {
                Some(next) => search.levels.push(self.values(next, &search.assignment, weight)),
                None => search.find(weight),
            }
        }
        false
    }

    /// The values of an attribute that all relations have that know of it: those of the relation with the fewest, if the
    /// others have them too.
    fn values(&self, step: &Step, assignment: &[Value], weight: i64) -> Vec<(Value, i64)> {
        let mut known = vec![];
        for (relation, index) in &step.asks {
            let index = &self.relations[*relation].indexes[*index];
            let Some(values) = index.values.get(&key(assignment, &index.bound)) else {
                return vec![];
            };
            known.push((values, index.is_whole));
        }
        known.sort_by_key(|(values, _)| values.len());
        let Some(((fewest, is_whole), others)) = known.split_first() else {
            return vec![];
        };
        let times = |is_whole: bool, count: i64| if is_whole { count } else { 1 };
        let extended = fewest.iter().filter_map(|(value, count)| {
            let mut weight = weight * times(*is_whole, *count);
            for (values, is_whole) in others {
                weight *= times(*is_whole, *values.get(value)?);
            }
            Some((*value, weight))
        });
        extended.collect()
    }
}
