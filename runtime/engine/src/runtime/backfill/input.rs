//! One input of a back-fill, and how far it was fed. Who follows a relation ([`crate::runtime::follow`]) takes the same steps.
//!
//! Nothing is recorded while a back-fill runs. What changed since the last step is read from where it is kept anyway:
//!
//! * a stream: from its log, from one offset to another;
//! * a table or view: from its rows, which know the version at which they came and went. The version that was fed last
//!   stays pinned, so that what was deleted since is still there to be taken away.
//!
//! So every change is fed once, in the order of the input's versions, and memory holds no more than a few pieces and the
//! rows that were deleted since the last step.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_resource::disk::DiskScheduler;
use millrace_resource::monotask::{Moved, Phase};
use millrace_schedule::id::Version;
use millrace_state::row_table::TableView;
use millrace_storage::{ChangeBatch, LogHold, LogReader, rows_bytes};

use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::runtime::Runtime;
use crate::snapshot::{Frozen, FrozenRows};

/// Blocks of a log are read together until they have so many rows or bytes.
const LOG_PIECE_ROWS: usize = 16_384;
const LOG_PIECE_BYTES: usize = 4 << 20;

/// See the module.
pub(crate) struct Input {
    pub relation: RelationId,
    /// What was fed last, pinned; nothing yet.
    fed: Option<Frozen>,
    /// For a stream, the offset up to which it was fed.
    offset: u64,
    /// The epoch of its pipeline as of which it was fed.
    epoch: u64,
}

/// What there is to feed of one input in one step.
pub(crate) enum Step {
    /// Views of the partitions, and the version that was fed before.
    Rows {
        partitions: Vec<TableView>,
        since: Option<Version>,
        at: (usize, usize),
    },
    Log {
        relation: Arc<Relation>,
        reader: Option<Box<LogReader>>,
        /// What it reads stays meanwhile.
        _hold: Option<Arc<LogHold>>,
    },
}

impl Input {
    pub fn new(relation: RelationId) -> Self {
        Input {
            relation,
            fed: None,
            offset: 0,
            epoch: 0,
        }
    }

    /// Of a stream, one that was fed up to an offset.
    pub fn beginning(relation: RelationId, offset: u64) -> Self {
        Input {
            offset,
            ..Input::new(relation)
        }
    }

    /// Of a table or view, one that was fed so far.
    pub fn taken_as(fed: &Frozen) -> Self {
        Input {
            fed: Some(fed.clone()),
            ..Input::new(fed.relation.id())
        }
    }

    /// What was fed last of a table or view.
    pub fn taken(&self) -> Option<&Frozen> {
        self.fed.as_ref()
    }

    /// For a stream, the offset up to which it was fed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The epoch of its pipeline as of which it was fed last; 0: nothing yet.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// All rows as of what was fed last, and of a stream those that its log still has.
    ///
    /// # Errors
    /// The log cannot be read, or nothing was fed.
    pub fn everything(&self, runtime: &Runtime) -> Result<Step> {
        let relation = runtime.engine.relation(self.relation)?;
        if let Relation::Stream(_) = relation.as_ref() {
            let hold = runtime.engine.logs.hold(self.relation.0, 0)?;
            let reader = runtime.engine.logs.read(self.relation.0, 0, self.offset)?;
            return Ok(Step::Log {
                relation,
                reader: Some(Box::new(reader)),
                _hold: Some(Arc::new(hold)),
            });
        }
        let fed = self.fed.as_ref();
        let fed = fed.ok_or_else(|| RuntimeError::Internal("nothing was taken of it".to_owned()))?;
        let FrozenRows::Table(partitions) = &fed.rows else {
            return Err(RuntimeError::Internal(
                "a table without rows in memory".to_owned(),
            ));
        };
        Ok(Step::Rows {
            partitions: partitions.clone(),
            since: None,
            at: (0, 0),
        })
    }

    /// Takes the newest committed version as what is to be fed next, of a log at most so many rows. Returns it with the
    /// rows that are left for later.
    pub async fn next(&mut self, runtime: &Runtime, log_rows_max: u64) -> Result<(Step, u64)> {
        let snapshot = runtime.snapshot(&[self.relation], None).await?;
        let newest = snapshot.frozen(self.relation)?.clone();
        self.epoch = snapshot.epoch();
        let step = match &newest.rows {
            FrozenRows::Log(logs, _) => {
                let end = newest.version.min(self.offset.saturating_add(log_rows_max));
                let reader = logs.read(self.relation.0, self.offset, end)?;
                let left = newest.version - end;
                self.offset = end;
                let step = Step::Log {
                    relation: Arc::clone(&newest.relation),
                    reader: Some(Box::new(reader)),
                    _hold: newest.hold(),
                };
                return Ok((step, left));
            }
            FrozenRows::Table(partitions) => Step::Rows {
                partitions: partitions.clone(),
                since: self.fed.as_ref().map(|fed| fed.version),
                at: (0, 0),
            },
        };
        // Not before the step was made: the old version has to stay readable until the new one is.
        self.fed = Some(newest);
        Ok((step, 0))
    }
}

impl Step {
    /// The next changes; `None`: that was all.
    pub async fn next(&mut self, disk: &Arc<DiskScheduler>) -> Result<Option<ChangeBatch>> {
        match self {
            Step::Rows {
                partitions,
                since,
                at: (partition, chunk),
            } => {
                while let Some(view) = partitions.get(*partition) {
                    if *chunk == view.num_chunks() {
                        (*partition, *chunk) = (*partition + 1, 0);
                        continue;
                    }
                    *chunk += 1;
                    let rows = view.chunk(*chunk - 1).await?;
                    let changes = match since {
                        None => ChangeBatch::insertions(view.batch_in(&rows, None)?),
                        Some(since) => view.changes_in(&rows, *since)?,
                    };
                    if changes.num_rows() > 0 {
                        return Ok(Some(changes));
                    }
                }
                Ok(None)
            }
            Step::Log { relation, reader, .. } => {
                let Some(mut current) = reader.take() else {
                    return Ok(None);
                };
                let read = move || {
                    let block = current.next_rows(LOG_PIECE_ROWS, LOG_PIECE_BYTES);
                    let moved = match &block {
                        Some(Ok(changes)) => Moved {
                            bytes: rows_bytes(&changes.rows) as u64,
                            rows: changes.num_rows() as u64,
                        },
                        _ => Moved::default(),
                    };
                    ((current, block), moved)
                };
                let read = disk.serve(Phase::Read, 0, read).await;
                let ((current, block), _) =
                    read.map_err(|error| RuntimeError::Internal(error.to_string()))?;
                *reader = Some(current);
                let block = block.transpose()?;
                block.map(|changes| relation.widen_changes(changes)).transpose()
            }
        }
    }
}
