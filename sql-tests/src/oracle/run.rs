//! Runs a script, and compares.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use futures::FutureExt;
use millrace_engine::{Snapshot, WriteToken};
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;

use super::grammar::NOW;
use super::schema::FIRST_TIME;
use super::script::{Effect, Model, Script, Step, names};
use crate::Failure;
use crate::batch::{Batch, BatchQuery};
use crate::engine::{CreateError, Engine, Relations};
use millrace_oracle::rows::difference;

/// How long a script may take before it is taken for stuck.
const TIME_MAX: Duration = Duration::from_secs(60);

/// At which comparison of a view its query is asked in both ways: by then there are rows.
const ASKED_TWICE_AT: usize = 3;

/// What DataFusion alone answers wrongly: it does not count copies, and takes NULL for no member of a set that is not empty.
const WRONG_AS_WRITTEN: [&str; 3] = ["EXCEPT ALL", "INTERSECT ALL", "NOT IN (subquery)"];

/// How a view can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Its rows are not the batch answer.
    WrongRows,
    /// It could not be made, although it is a query and was not refused.
    NotMade,
    /// The view failed.
    ViewFailed,
    /// It did not answer in time.
    Stuck,
}

/// A view that is wrong.
#[derive(Debug, Clone)]
pub struct Failed {
    pub kind: FailureKind,
    pub view: usize,
    /// The step at which it was seen.
    pub step: usize,
    pub message: String,
}

/// What became of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was compared so many times.
    Compared(usize),
    /// The planner refused it, for this reason.
    Refused(String),
    /// It is no query to plain DataFusion either, or it reads a view that was not made.
    NotAQuery(String),
    /// Plain DataFusion answers it with an error, or in a way that depends on the order of rows.
    NoAnswer(String),
}

/// What became of a script.
#[derive(Debug)]
pub struct Outcome {
    pub fates: Vec<Fate>,
    pub failed: Option<Failed>,
    /// Views that plain DataFusion answers otherwise without the planner's rewrites, and in what.
    pub contradictions: Vec<(usize, String)>,
    /// Views whose query was also asked without those.
    pub asked_twice: u64,
    /// Views that came back from a checkpoint, and those that one has and that were filled all the same, with the reason.
    pub restored: u64,
    pub not_restored: Vec<String>,
}

/// Runs a script to its end or to the first view that is wrong. Leaves nothing in the engine, unless it is stuck.
///
/// # Errors
/// The engine cannot make base relations or write: the script is not to blame.
pub async fn run(engine: &mut Engine, script: &Script) -> Result<Outcome, Failure> {
    engine.restart_at(FIRST_TIME).await?;
    let batch = Batch::new(engine.state(), 1);
    let mut run = Run {
        engine,
        script,
        relations: Relations::default(),
        batch,
        model: Model::new(&script.relations),
        sources: vec![],
        views: script.views.iter().map(|_| None).collect(),
        fates: vec![Fate::NotAQuery("it was not made".to_owned()); script.views.len()],
        written: WriteToken::default(),
        step: 0,
        contradictions: vec![],
        asked_twice: 0,
        restored: 0,
        not_restored: vec![],
    };
    match tokio::time::timeout(TIME_MAX, run.steps()).await {
        Ok(failed) => {
            let failed = failed?;
            let views = run.views.iter().flatten().map(|view| view.id);
            let all: Vec<RelationId> = views.chain(run.sources.iter().copied()).collect();
            run.engine.drop_relations(&all).await?;
            Ok(run.outcome(failed))
        }
        Err(_) => {
            let view = run.views.iter().rposition(Option::is_some).unwrap_or_default();
            let step = script.steps.get(run.step);
            let message = format!("there is no answer to {step:?}");
            let failed = run.failed(FailureKind::Stuck, view, message);
            Ok(run.outcome(Some(failed)))
        }
    }
}

struct Run<'a> {
    engine: &'a mut Engine,
    script: &'a Script,
    relations: Relations,
    batch: Batch,
    model: Model,
    sources: Vec<RelationId>,
    views: Vec<Option<Live>>,
    fates: Vec<Fate>,
    written: WriteToken,
    step: usize,
    contradictions: Vec<(usize, String)>,
    asked_twice: u64,
    restored: u64,
    not_restored: Vec<String>,
}

/// A view that was made.
struct Live {
    id: RelationId,
    /// `None` once the batch answer is an error.
    expected: Option<BatchQuery>,
    /// The views that it names.
    reads: Vec<usize>,
}

impl Run<'_> {
    async fn steps(&mut self) -> Result<Option<Failed>, Failure> {
        self.batch.set_now(FIRST_TIME);
        for relation in &self.script.relations {
            let (name, schema) = (&relation.name, relation.schema());
            self.batch.create(name, schema.clone(), relation.key.clone());
            let id = self
                .engine
                .create_source(&mut self.relations, name, schema, relation.key.clone())
                .await?;
            self.sources.push(id);
        }
        self.show()?;
        for (index, step) in self.script.steps.iter().enumerate() {
            self.step = index;
            let failed = match step {
                Step::Write(changes) => {
                    let effects = changes
                        .iter()
                        .flat_map(|change| self.model.apply(change))
                        .collect();
                    self.write(effects).await?;
                    None
                }
                Step::Clock(time) => {
                    self.set_clock(*time).await?;
                    None
                }
                Step::Create(view) => self.create(*view).await?,
                Step::Check => self.check().await?,
                Step::Checkpoint => {
                    self.engine.checkpoint().await;
                    None
                }
                Step::Restart => {
                    let (restored, filled) = self.engine.reopen().await?;
                    self.restored += restored;
                    self.not_restored.extend(filled);
                    None
                }
            };
            if failed.is_some() {
                return Ok(failed);
            }
        }
        Ok(None)
    }

    /// Sets the clock. What was planned with another time is planned again.
    async fn set_clock(&mut self, time: i64) -> Result<(), Failure> {
        self.engine.advance_to(time).await?;
        self.batch.set_now(time);
        for (index, live) in self.views.iter_mut().enumerate() {
            let view = &self.script.views[index];
            if let Some(live) = live
                && live.expected.is_some()
                && view.constructs.contains(NOW)
            {
                live.expected = self.batch.plan(&view.expected()).await.ok();
            }
        }
        Ok(())
    }

    fn outcome(self, failed: Option<Failed>) -> Outcome {
        Outcome {
            fates: self.fates,
            failed,
            contradictions: self.contradictions,
            asked_twice: self.asked_twice,
            restored: self.restored,
            not_restored: self.not_restored,
        }
    }

    fn failed(&self, kind: FailureKind, view: usize, message: String) -> Failed {
        Failed {
            kind,
            view,
            step: self.step,
            message,
        }
    }

    async fn write(&mut self, effects: Vec<Effect>) -> Result<(), Failure> {
        let touched: BTreeSet<usize> = effects.iter().map(|(relation, ..)| *relation).collect();
        let mut changes = vec![];
        for relation in touched {
            let base = &self.script.relations[relation];
            let of: Vec<&Effect> = effects.iter().filter(|(other, ..)| *other == relation).collect();
            let rows = base.batch(&of.iter().map(|(_, row, _)| row).collect::<Vec<_>>())?;
            let weights: Int64Array = of.iter().map(|(.., weight)| Some(*weight)).collect();
            let changed = if base.is_table() {
                ChangeBatch::new(rows, Some(weights))?
            } else {
                ChangeBatch::insertions(rows)
            };
            changes.push((self.sources[relation], changed));
        }
        if !changes.is_empty() {
            self.written.merge(&self.engine.write(changes).await?);
        }
        Ok(())
    }

    /// Gives the rows of this moment to plain DataFusion.
    fn show(&self) -> Result<(), Failure> {
        for (index, relation) in self.script.relations.iter().enumerate() {
            let rows: Vec<_> = self.model.rows(index).iter().collect();
            self.batch.set_rows(&relation.name, vec![relation.batch(&rows)?]);
        }
        Ok(())
    }

    async fn create(&mut self, index: usize) -> Result<Option<Failed>, Failure> {
        let view = &self.script.views[index];
        let text = view.query.to_string();
        // A view is no base for others if it has no definite answer.
        let earlier = self.script.views[..index].iter().enumerate();
        let reads: Vec<usize> = earlier
            .filter(|(_, other)| names(&text, &other.name))
            .map(|(other, _)| other)
            .collect();
        if !self.have_answers(&reads) {
            return Ok(None);
        }
        self.show()?;
        let expected = match self.batch.plan(&view.expected()).await {
            Ok(expected) => expected,
            Err(why) => {
                self.fates[index] = Fate::NotAQuery(why);
                return Ok(None);
            }
        };
        let making = self.engine.create_view(
            &mut self.relations,
            &view.name,
            &view.query,
            view.partitions,
            view.on_error(),
        );
        let made = AssertUnwindSafe(making).catch_unwind().await;
        let made = made.unwrap_or_else(|_| Err(CreateError::Failed("the planner panics".to_owned())));
        match made {
            Ok(id) => {
                self.batch.create(&view.name, expected.schema(), None);
                self.fates[index] = Fate::Compared(0);
                self.views[index] = Some(Live {
                    id,
                    expected: Some(expected),
                    reads,
                });
                Ok(None)
            }
            Err(CreateError::Refused(why)) => {
                self.fates[index] = Fate::Refused(why);
                Ok(None)
            }
            Err(error) => Ok(Some(self.failed(FailureKind::NotMade, index, error.to_string()))),
        }
    }

    async fn check(&mut self) -> Result<Option<Failed>, Failure> {
        let live: Vec<(usize, RelationId)> = self
            .views
            .iter()
            .enumerate()
            .filter_map(|(index, view)| Some((index, view.as_ref().filter(|v| v.expected.is_some())?.id)))
            .collect();
        self.show()?;
        let ids: Vec<RelationId> = live.iter().map(|(_, id)| *id).collect();
        let snapshot = self.engine.snapshot(&ids, &self.written).await?;
        for (index, id) in live {
            if let Some(failed) = self.compare(&snapshot, index, id).await? {
                return Ok(Some(failed));
            }
        }
        Ok(None)
    }

    async fn compare(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        id: RelationId,
    ) -> Result<Option<Failed>, Failure> {
        let reads = self.views[index].as_ref().map(|view| view.reads.clone());
        if !self.have_answers(&reads.unwrap_or_default()) {
            return Ok(self.give_up(index, "it reads a view that has no answer".to_owned()));
        }
        let Some(query) = self.views[index].as_mut().and_then(|view| view.expected.as_mut()) else {
            return Ok(None);
        };
        let expected = match self.batch.run(query).await {
            Ok(expected) => expected,
            Err(why) => return Ok(self.give_up(index, why)),
        };
        self.batch
            .set_rows(&self.script.views[index].name, expected.clone());
        let shown = match self.engine.read(snapshot, id).await {
            Ok(shown) => shown,
            Err(error) => {
                return Ok(Some(self.failed(
                    FailureKind::ViewFailed,
                    index,
                    error.to_string(),
                )));
            }
        };
        let Some(message) = difference(&shown, &expected)? else {
            if let Fate::Compared(times) = &mut self.fates[index] {
                *times += 1;
                if *times == ASKED_TWICE_AT {
                    self.ask_twice(index, &expected).await?;
                }
            }
            return Ok(None);
        };
        // Has the query one answer at all? Ask again over the same rows in another order.
        self.batch.reverse()?;
        let again = self.batch.run(query).await;
        self.batch.reverse()?;
        match again {
            Ok(again) if difference(&again, &expected)?.is_none() => {
                Ok(Some(self.failed(FailureKind::WrongRows, index, message)))
            }
            Ok(_) => Ok(self.give_up(index, "the answer depends on the order of rows".to_owned())),
            Err(why) => Ok(self.give_up(index, why)),
        }
    }

    /// Asks plain DataFusion again, without what the planner makes of a query before it is bound.
    async fn ask_twice(&mut self, index: usize, expected: &[RecordBatch]) -> Result<(), Failure> {
        let view = &self.script.views[index];
        if WRONG_AS_WRITTEN
            .iter()
            .any(|construct| view.constructs.contains(construct))
        {
            return Ok(());
        }
        // What it cannot plan or answer says nothing.
        let Ok(again) = (self.batch.answer_as_written(&view.expected())).await else {
            return Ok(());
        };
        self.asked_twice += 1;
        if let Some(message) = difference(&again, expected)? {
            self.contradictions.push((index, message));
        }
        Ok(())
    }

    /// Whether all these views were made and have batch answers.
    fn have_answers(&self, views: &[usize]) -> bool {
        views.iter().all(|view| {
            let view = self.views[*view].as_ref();
            view.is_some_and(|view| view.expected.is_some())
        })
    }

    /// There is nothing to compare this view with.
    fn give_up(&mut self, index: usize, why: String) -> Option<Failed> {
        self.fates[index] = Fate::NoAnswer(why);
        if let Some(view) = &mut self.views[index] {
            view.expected = None;
        }
        None
    }
}
