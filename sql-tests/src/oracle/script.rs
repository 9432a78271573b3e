//! What a run of the oracle does, step by step, in a form that can be cut down piece by piece.

use std::collections::BTreeSet;

use millrace_planner::OnError;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use sqlparser::ast;

use super::grammar::{Grammar, Kind, Source};
use super::policy::{without_failing_rows, without_failures};
use super::schema::{FIRST_TIME, HOUR, Relation, Row};
use crate::engine::parse;

/// Base relations, views over them, and an interleaving of changes, view creation and comparison.
#[derive(Debug, Clone)]
pub struct Script {
    pub relations: Vec<Relation>,
    pub views: Vec<View>,
    pub steps: Vec<Step>,
}

/// A query that is kept as a view: one case.
#[derive(Debug, Clone)]
pub struct View {
    pub name: String,
    pub query: ast::Query,
    /// What its text has in it.
    pub constructs: BTreeSet<&'static str>,
    /// Partitions of its state.
    pub partitions: usize,
    /// Whether rows on which an expression fails are to be left out, if it is certain which these are.
    pub skips: bool,
}

impl View {
    /// What becomes of rows on which an expression fails.
    pub fn on_error(&self) -> OnError {
        match self.skips && without_failing_rows(&self.query).is_some() {
            true => OnError::Skip,
            false => OnError::Null,
        }
    }

    /// The query whose answer it must have.
    pub fn expected(&self) -> ast::Query {
        let skipping = self.skips.then(|| without_failing_rows(&self.query)).flatten();
        skipping.unwrap_or_else(|| without_failures(&self.query))
    }
}

#[derive(Debug, Clone)]
pub enum Step {
    /// Changes that are written at once.
    Write(Vec<Change>),
    /// The view of this index is made, over what is there by then.
    Create(usize),
    /// The clock goes forward to this time, in microseconds since 1970-01-01 00:00 UTC. It starts at [`FIRST_TIME`].
    Clock(i64),
    /// Every view is compared with the batch answer.
    Check,
    /// All state is put into a checkpoint.
    Checkpoint,
    /// The engine is started again: views go on from the last checkpoint, and are filled where they are in none.
    Restart,
}

/// One row that comes or goes.
#[derive(Debug, Clone)]
pub struct Change {
    /// The index of its relation.
    pub relation: usize,
    pub row: Row,
    /// `false`: all copies of the row are deleted.
    pub insert: bool,
}

/// A change that has an effect: a row with its weight.
pub type Effect = (usize, Row, i64);

/// The rows of the base relations as the steps leave them.
#[derive(Debug, Clone)]
pub struct Model {
    keys: Vec<Option<Vec<usize>>>,
    rows: Vec<Vec<Row>>,
}

impl Model {
    /// Empty relations.
    pub fn new(relations: &[Relation]) -> Model {
        Model {
            keys: relations.iter().map(|relation| relation.key.clone()).collect(),
            rows: vec![vec![]; relations.len()],
        }
    }

    /// The rows of a relation.
    pub fn rows(&self, relation: usize) -> &[Row] {
        &self.rows[relation]
    }

    /// Applies a change, and says what it does: nothing, if the row to be deleted is not there or there is one with the
    /// key of the row to be inserted. So every part of a script is a script.
    pub fn apply(&mut self, change: &Change) -> Vec<Effect> {
        let rows = &mut self.rows[change.relation];
        let effect = |weight| (change.relation, change.row.clone(), weight);
        if !change.insert {
            let before = rows.len();
            rows.retain(|row| *row != change.row);
            return vec![effect(-1); before - rows.len()];
        }
        if let Some(key) = self.keys[change.relation].as_ref().filter(|key| !key.is_empty())
            && rows
                .iter()
                .any(|row| key.iter().all(|column| row[*column] == change.row[*column]))
        {
            return vec![];
        }
        rows.push(change.row.clone());
        vec![effect(1)]
    }
}

/// What is made in one script.
const VIEWS: std::ops::Range<usize> = 10..20;
/// Rows that a relation has at most, about: joins of several multiply them.
const ROWS_MAX: usize = 14;
/// The share of scripts in which the engine is started again.
const RESTARTED: f64 = 0.4;
/// Views that one script's views may read, besides base relations.
const READABLE_VIEWS_MAX: usize = 2;

impl Script {
    /// A random script.
    pub fn random(random: &mut StdRng) -> Script {
        let relations: Vec<Relation> = (0..random.random_range(2..5))
            .map(|index| Relation::random(random, &format!("b{index}")))
            .collect();
        let views = random_views(random, &relations);
        let mut model = Model::new(&relations);
        let mut steps = vec![];
        let mut next = 0;
        let mut now = FIRST_TIME;
        // Some views are made before there is a row, most over rows, and each is compared at several epochs.
        while next < views.len() {
            for _ in 0..random.random_range(0..4) {
                if next < views.len() {
                    steps.push(Step::Create(next));
                    next += 1;
                }
            }
            for _ in 0..random.random_range(1..3) {
                steps.push(Step::Write(random_write(random, &relations, &mut model)));
            }
            if random.random_bool(0.2) {
                now += random_wait(random);
                steps.push(Step::Clock(now));
            }
            if random.random_bool(0.3) {
                steps.push(Step::Check);
            }
        }
        for _ in 0..3 {
            for _ in 0..random.random_range(1..4) {
                steps.push(Step::Write(random_write(random, &relations, &mut model)));
            }
            if random.random_bool(0.5) {
                now += random_wait(random);
                steps.push(Step::Clock(now));
            }
            steps.push(Step::Check);
        }
        // Drawn last: the rest of a seed's script is what it was without them.
        if random.random_bool(RESTARTED) {
            for _ in 0..random.random_range(1..4) {
                let restart = random.random_range(0..=steps.len());
                steps.insert(restart, Step::Restart);
                steps.insert(random.random_range(0..=restart), Step::Checkpoint);
            }
        }
        Script {
            relations,
            views,
            steps,
        }
    }

    /// The views that a view reads, directly or through others, and itself; in the order of their creation.
    pub fn needed_by(&self, view: usize) -> BTreeSet<usize> {
        let mut needed = BTreeSet::from([view]);
        let mut waiting = vec![view];
        while let Some(view) = waiting.pop() {
            let text = self.views[view].query.to_string();
            for (index, other) in self.views.iter().enumerate().take(view) {
                if names(&text, &other.name) && needed.insert(index) {
                    waiting.push(index);
                }
            }
        }
        needed
    }
}

/// Whether the text has this name in it as a word.
pub fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(|word| word == name)
}

fn random_views(random: &mut StdRng, relations: &[Relation]) -> Vec<View> {
    let bases: Vec<Source> = relations.iter().map(Source::from).collect();
    let mut readable: Vec<Source> = vec![];
    let mut views: Vec<View> = vec![];
    for index in 0..random.random_range(VIEWS) {
        // Base relations more often than views.
        let mut sources = [bases.clone(), bases.clone()].concat();
        sources.extend(readable.iter().cloned());
        let (generated, constructs) = Grammar::query(random, &sources);
        let Ok(query) = parse(&generated.sql) else {
            // The parser knows less than the grammar; what binds is seen when the script runs.
            continue;
        };
        let name = format!("v{index}");
        let mut columns = generated.columns;
        columns.retain(|(_, kind)| *kind != Kind::Result);
        if !columns.is_empty() {
            readable.push(Source {
                name: name.clone(),
                columns,
                is_view: true,
            });
            readable.shuffle(random);
            readable.truncate(READABLE_VIEWS_MAX);
        }
        let mut view = View {
            name,
            query,
            constructs,
            partitions: random.random_range(1..4),
            skips: index % 2 == 0,
        };
        if view.on_error() == OnError::Skip {
            view.constructs.insert("on_error = 'skip'");
        }
        views.push(view);
    }
    views
}

/// Microseconds for which nothing happens: often until the very moment at which a value lies.
fn random_wait(random: &mut StdRng) -> i64 {
    match random.random_range(0..4) {
        0 => random.random_range(1..HOUR),
        1 => random.random_range(1..5) * 12 * HOUR,
        _ => random.random_range(1..3) * 11 * HOUR,
    }
}

fn random_write(random: &mut StdRng, relations: &[Relation], model: &mut Model) -> Vec<Change> {
    let mut changes = vec![];
    let together = if random.random_bool(0.2) { 2 } else { 1 };
    for _ in 0..together {
        let relation = random.random_range(0..relations.len());
        let base = &relations[relation];
        let insert = |row: Row| Change {
            relation,
            row,
            insert: true,
        };
        let delete = |row: Row| Change {
            relation,
            row,
            insert: false,
        };
        let rows = model.rows(relation).to_vec();
        let mut planned = vec![];
        if base.is_table() && !rows.is_empty() && random.random_bool(0.05) {
            // All rows go.
            planned.extend(rows.iter().cloned().map(delete));
        } else {
            for _ in 0..random.random_range(1..7) {
                let old = (!rows.is_empty()).then(|| rows[random.random_range(0..rows.len())].clone());
                let is_full = rows.len() >= ROWS_MAX;
                match (old, random.random_range(0..10)) {
                    (Some(old), 0..=3) if base.is_table() => {
                        planned.push(delete(old.clone()));
                        if !is_full && random.random_bool(0.6) {
                            planned.push(insert(updated(random, base, old)));
                        }
                    }
                    // A copy of a row, where there may be one.
                    (Some(old), 4) if !is_full => planned.push(insert(old)),
                    _ if !is_full || base.is_table() => planned.push(insert(base.row(random))),
                    _ => {}
                }
            }
        }
        for change in &planned {
            model.apply(change);
        }
        changes.extend(planned);
    }
    changes
}

/// A row with one other value, but the same key.
fn updated(random: &mut StdRng, relation: &Relation, mut row: Row) -> Row {
    let column = random.random_range(0..row.len());
    let in_key = relation.key.as_ref().is_some_and(|key| key.contains(&column));
    if !in_key || random.random_bool(0.3) {
        row[column] = relation.row(random)[column].clone();
    }
    row
}
