//! From a script that fails to a small one that fails in the same way: steps, rows, columns, views and parts of queries
//! are left out as long as the failure stays.

use std::time::{Duration, Instant};

use super::reduce::reductions;
use super::run::{Failed, FailureKind, run};
use super::schema::Value;
use super::script::{Script, Step, names};
use crate::engine::Engine;

/// How long is looked for something smaller.
const TIME_MAX: Duration = Duration::from_secs(90);

/// The smallest script found, and how it fails.
pub async fn shrink(engine: &mut Engine, script: Script, failed: Failed) -> (Script, Failed) {
    if failed.kind == FailureKind::Stuck {
        // The engine does not answer any more; nothing can be tried on it.
        return (script, failed);
    }
    let mut shrinker = Shrinker {
        engine,
        best: script,
        failed,
        deadline: Instant::now() + TIME_MAX,
    };
    shrinker.only_what_is_needed().await;
    loop {
        let before = shrinker.size();
        shrinker.steps().await;
        shrinker.changes().await;
        shrinker.queries().await;
        shrinker.columns().await;
        shrinker.values().await;
        if shrinker.size() >= before || Instant::now() > shrinker.deadline {
            break;
        }
    }
    shrinker.relations().await;
    (shrinker.best, shrinker.failed)
}

struct Shrinker<'a> {
    engine: &'a mut Engine,
    best: Script,
    failed: Failed,
    deadline: Instant,
}

impl Shrinker<'_> {
    /// What is to become smaller.
    fn size(&self) -> (usize, usize, usize) {
        let text = self
            .best
            .views
            .iter()
            .map(|view| view.query.to_string().len())
            .sum();
        let values = self
            .best
            .relations
            .iter()
            .map(|relation| relation.columns.len())
            .sum::<usize>();
        (self.best.steps.len() + changes(&self.best), text, values)
    }

    /// Takes the candidate if it fails in the same way.
    async fn take(&mut self, candidate: Script) -> bool {
        if Instant::now() > self.deadline {
            return false;
        }
        match run(self.engine, &candidate).await {
            Ok(outcome) => match outcome.failed {
                Some(failed) if failed.kind == self.failed.kind => {
                    self.best = candidate;
                    self.failed = failed;
                    true
                }
                _ => false,
            },
            Err(_) => false,
        }
    }

    /// The view that fails and those that it reads, up to the step that shows it, with no other comparison.
    async fn only_what_is_needed(&mut self) {
        let needed = self.best.needed_by(self.failed.view);
        let kept: Vec<usize> = needed.into_iter().collect();
        let mut candidate = self.best.clone();
        candidate.views = kept.iter().map(|view| self.best.views[*view].clone()).collect();
        candidate.steps.truncate(self.failed.step + 1);
        let last = candidate.steps.len().saturating_sub(1);
        let mut index = 0;
        candidate.steps.retain_mut(|step| {
            index += 1;
            match step {
                Step::Create(view) => match kept.iter().position(|other| other == view) {
                    Some(position) => {
                        *view = position;
                        true
                    }
                    None => false,
                },
                Step::Check => index > last,
                Step::Write(_) | Step::Clock(_) | Step::Checkpoint | Step::Restart => true,
            }
        });
        self.take(candidate).await;
    }

    /// Leaves out runs of steps, long ones first.
    async fn steps(&mut self) {
        let mut length = self.best.steps.len() / 2;
        while length > 0 {
            let mut start = 0;
            while start < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (start + length).min(candidate.steps.len());
                candidate.steps.drain(start..end);
                if !self.take(candidate).await {
                    start += length;
                }
            }
            length /= 2;
        }
    }

    /// Leaves out runs of changes, long ones first.
    async fn changes(&mut self) {
        let mut length = changes(&self.best) / 2;
        while length > 0 {
            let mut start = 0;
            while start < changes(&self.best) {
                let mut candidate = self.best.clone();
                let mut place = 0;
                for step in &mut candidate.steps {
                    if let Step::Write(changes) = step {
                        changes.retain(|_| {
                            place += 1;
                            !(start..start + length).contains(&(place - 1))
                        });
                    }
                }
                candidate
                    .steps
                    .retain(|step| !matches!(step, Step::Write(changes) if changes.is_empty()));
                if !self.take(candidate).await {
                    start += length;
                }
            }
            length /= 2;
        }
    }

    /// Leaves out parts of queries.
    async fn queries(&mut self) {
        for view in 0..self.best.views.len() {
            'smaller: loop {
                for query in reductions(&self.best.views[view].query) {
                    let mut candidate = self.best.clone();
                    candidate.views[view].query = query;
                    if self.take(candidate).await {
                        continue 'smaller;
                    }
                }
                break;
            }
            for partitions in 1..self.best.views[view].partitions {
                let mut candidate = self.best.clone();
                candidate.views[view].partitions = partitions;
                if self.take(candidate).await {
                    break;
                }
            }
        }
    }

    /// Leaves out columns of base relations, and keys.
    async fn columns(&mut self) {
        for relation in 0..self.best.relations.len() {
            if self.best.relations[relation]
                .key
                .as_ref()
                .is_some_and(|key| !key.is_empty())
            {
                let mut candidate = self.best.clone();
                candidate.relations[relation].key = Some(vec![]);
                self.take(candidate).await;
            }
            for column in (0..self.best.relations[relation].columns.len()).rev() {
                let mut candidate = self.best.clone();
                let base = &mut candidate.relations[relation];
                if base.columns.len() == 1 || base.key.as_ref().is_some_and(|key| key.contains(&column)) {
                    continue;
                }
                base.columns.remove(column);
                for key in base.key.iter_mut().flatten().filter(|key| **key > column) {
                    *key -= 1;
                }
                for step in &mut candidate.steps {
                    if let Step::Write(changes) = step {
                        for change in changes.iter_mut().filter(|change| change.relation == relation) {
                            change.row.remove(column);
                        }
                    }
                }
                self.take(candidate).await;
            }
        }
    }

    /// Makes values NULL where that changes nothing, all of a column at once.
    async fn values(&mut self) {
        for relation in 0..self.best.relations.len() {
            for column in 0..self.best.relations[relation].columns.len() {
                if !self.best.relations[relation].columns[column].nullable {
                    continue;
                }
                let mut candidate = self.best.clone();
                let mut is_changed = false;
                for step in &mut candidate.steps {
                    if let Step::Write(changes) = step {
                        for change in changes.iter_mut().filter(|change| change.relation == relation) {
                            is_changed |= change.row[column] != Value::Null;
                            change.row[column] = Value::Null;
                        }
                    }
                }
                if is_changed {
                    self.take(candidate).await;
                }
            }
        }
    }

    /// Leaves out base relations that no query names.
    async fn relations(&mut self) {
        for relation in (0..self.best.relations.len()).rev() {
            let name = self.best.relations[relation].name.clone();
            let is_named = |script: &Script| {
                script
                    .views
                    .iter()
                    .any(|view| names(&view.query.to_string(), &name))
            };
            if is_named(&self.best) {
                continue;
            }
            let mut candidate = self.best.clone();
            candidate.relations.remove(relation);
            for step in &mut candidate.steps {
                if let Step::Write(changes) = step {
                    changes.retain(|change| change.relation != relation);
                    for change in changes.iter_mut().filter(|change| change.relation > relation) {
                        change.relation -= 1;
                    }
                }
            }
            candidate
                .steps
                .retain(|step| !matches!(step, Step::Write(changes) if changes.is_empty()));
            self.take(candidate).await;
        }
    }
}

fn changes(script: &Script) -> usize {
    let of = |step: &Step| match step {
        Step::Write(changes) => changes.len(),
        _ => 0,
    };
    script.steps.iter().map(of).sum()
}
