//! Ships what a store writes, moment by moment, as long as nobody else does.
//!
//! Whoever runs it calls [`Shipper::step`] again and again, one at a time. A step that fails is made up for by the next one: what was sent
//! stays sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::checkpoints::{self, Sent, blocking};
use super::identity::Identity;
use super::moment::{self, Stored};
use super::ours::{Copy, only_number};
use super::pieces::{self, Piece, Plan};
use super::place::Place;
use super::send::{self, Packs, Part, Waiting};
use super::sweep::Sweep;
use crate::catalog::ObjectId;
use crate::log::LogCopy;
use crate::store::{Progress, Store, StoreParts};
use crate::{StorageError, checkpoint};

/// Without anything to write it looks so often whether another server has taken over.
const LOOK_MS: i64 = 10_000;
/// When steps fail for so long, what is held for the copy is let go: disks do not fill up because an object store is away. The checkpoints
/// are sent again then before anything else.
const HELD_MS_MAX: i64 = 3_600_000;

/// How it ships.
#[derive(Clone)]
pub struct ShipOptions {
    /// A name that nobody ever had: that of the owner of the copy, if it gets a new one.
    pub owner: String,
    /// A name that no process ever had.
    pub writer: String,
    /// Whether to take over a copy that is another directory's.
    pub take_over: bool,
    /// The time, in milliseconds since 1970-01-01 UTC.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// How long objects stay that nobody needs any more: somebody may be restoring from them.
    pub grace: Duration,
    /// A moment that says everything comes after so many that do not.
    pub moments_per_base: u64,
}

impl ShipOptions {
    /// The usual ones, with names and a clock.
    pub fn new(owner: String, writer: String, clock: Arc<dyn Fn() -> i64 + Send + Sync>) -> ShipOptions {
        ShipOptions {
            owner,
            writer,
            take_over: false,
            clock,
            grace: Duration::from_secs(600),
            moments_per_base: 128,
        }
    }
}

impl fmt::Debug for ShipOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShipOptions")
            .field("owner", &self.owner)
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

/// What is known of the copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shipped {
    /// The last moment that is there, and when it was; 0: none is known.
    pub moment: u64,
    pub moment_at_ms: i64,
    /// What was acknowledged before this time is there, in milliseconds since 1970-01-01 UTC; 0: not known.
    pub covered_ms: i64,
    /// The checkpoints that count there are as of this time, in the same unit; 0: there are none.
    pub checkpoints_at_ms: i64,
    /// Bytes of logs that are to be sent for the next moment.
    pub waiting_bytes: u64,
    /// What was sent since the start.
    pub sent_bytes: u64,
    /// Objects that are there, and their bytes.
    pub objects: u64,
    pub bytes: u64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is a new moment.
    Made,
    /// Nothing was written since the last one.
    Idle,
}

/// See the module.
#[derive(Debug)]
pub struct Shipper {
    parts: StoreParts,
    place: Place,
    data: PathBuf,
    options: ShipOptions,
    /// Where the logs ended when the store was opened: what a moment has beyond that, this store does not. After a moment of this process
    /// nothing is.
    opened: Option<Progress>,
    copy: Option<Copy>,
    fenced: Option<StorageError>,
    checkpoints: Option<JoinHandle<Result<Sent, StorageError>>>,
    shipped: Arc<Mutex<Shipped>>,
}

impl Shipper {
    /// Of a store that was just opened, before anything was written.
    pub fn new(store: &Store, place: Place, options: ShipOptions) -> Shipper {
        let parts = store.parts();
        Shipper {
            opened: Some(parts.progress()),
            parts,
            place,
            data: store.directory().to_owned(),
            options,
            copy: None,
            fenced: None,
            checkpoints: None,
            shipped: Arc::default(),
        }
    }

    /// What is known of the copy, at any time.
    pub fn shipped(&self) -> Arc<Mutex<Shipped>> {
        Arc::clone(&self.shipped)
    }

    /// Whether files of checkpoints are under way.
    #[cfg(test)]
    pub(super) fn is_sending(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// Finds out what is there, and whether it is ours.
    ///
    /// # Errors
    /// The store does not answer; the copy is another directory's; an object is damaged.
    pub async fn connect(&mut self) -> Result<(), StorageError> {
        if self.copy.is_some() {
            return Ok(());
        }
        let data = self.data.clone();
        let identity = blocking(move || Identity::read(&data)).await?;
        let stored = match moment::load(&self.place).await {
            Err(StorageError::OffsiteDamaged { .. }) if self.options.take_over => None,
            stored => stored?,
        };
        let sweep = Sweep::find(&self.place).await?;
        let is_ours = |stored: &Stored| {
            identity.owner.as_ref() == Some(&stored.owner) && identity.writers.contains(&stored.writer)
        };
        let is_restored = |stored: &Stored| identity.restored == Some((stored.number, stored.writer.clone()));
        let (owner, stored) = match stored {
            Some(stored) if is_restored(&stored) => (None, stored),
            Some(stored) if is_ours(&stored) => {
                let is_here = identity.url == self.place.url();
                let stored = if is_here {
                    stored
                } else {
                    only_number(stored.number)
                };
                (identity.owner.clone(), stored)
            }
            Some(stored) if self.options.take_over => (None, only_number(stored.number)),
            Some(stored) => {
                return Err(StorageError::NotOurs {
                    url: self.place.url().to_owned(),
                    number: stored.number,
                });
            }
            // A disk that is not mounted looks like an empty directory.
            None if identity.has_moment && identity.url == self.place.url() && !self.options.take_over => {
                let url = self.place.url().to_owned();
                return Err(StorageError::CopyGone { url });
            }
            None => (identity.owner.clone(), only_number(sweep.last_moment())),
        };
        let owner = owner.unwrap_or_else(|| self.options.owner.clone());
        let known = stored
            .checkpoints
            .iter()
            .filter(|file| !checkpoint::is_epochs(&file.name));
        let known = known.map(|file| (file.name.clone(), file.clone())).collect();
        let mut pieces: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        for (relation, log) in &stored.logs {
            let head = match &self.opened {
                Some(opened) => opened.heads.get(relation).copied().unwrap_or(0),
                None => u64::MAX,
            };
            let kept = log.pieces.iter().filter(|piece| piece.to <= head);
            pieces.insert(*relation, kept.cloned().collect());
        }
        *self.shipped.lock() = Shipped {
            moment: stored.number,
            moment_at_ms: stored.at_ms,
            ..Shipped::default()
        };
        self.place.settle().await?;
        self.copy = Some(Copy {
            owner,
            stored,
            pieces,
            is_begun: false,
            base_at_ms: 0,
            progress: None,
            looked_at_ms: 0,
            known: Arc::new(Mutex::new(known)),
            _holds: vec![],
            well_ms: (self.options.clock)(),
            root: None,
            version: None,
            next: None,
            packs: Packs {
                writer: self.options.writer.clone(),
                next: 0,
            },
            sweep,
        });
        Ok(())
    }

    /// Makes the next moment, if anything was written since the last one. `leave_out`: objects that nobody needs elsewhere; `is_last`:
    /// nothing is written any more.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); another server has taken over, which stays so; a log cannot be read.
    pub async fn step(
        &mut self,
        leave_out: &BTreeSet<ObjectId>,
        is_last: bool,
    ) -> Result<Step, StorageError> {
        if let Some(fenced) = &self.fenced {
            return Err(fenced.clone());
        }
        let stepped = self.try_step(leave_out, is_last).await;
        if let Err(error @ (StorageError::Fenced { .. } | StorageError::NotOurs { .. })) = &stepped {
            self.fenced = Some(error.clone());
            self.copy = None;
            if let Some(task) = self.checkpoints.take() {
                task.abort();
            }
        }
        stepped
    }

    async fn try_step(
        &mut self,
        leave_out: &BTreeSet<ObjectId>,
        is_last: bool,
    ) -> Result<Step, StorageError> {
        self.connect().await?;
        let Some(mut copy) = self.copy.take() else {
            return Ok(Step::Idle);
        };
        let stepped = self.step_of(&mut copy, leave_out, is_last).await;
        let now_ms = (self.options.clock)();
        match stepped {
            Ok(_) => copy.well_ms = now_ms,
            Err(_) if now_ms.saturating_sub(copy.well_ms) > HELD_MS_MAX => {
                if let Some(task) = self.checkpoints.take() {
                    task.abort();
                }
                return stepped;
            }
            Err(_) => {}
        }
        self.copy = Some(copy);
        stepped
    }

    async fn step_of(
        &mut self,
        copy: &mut Copy,
        leave_out: &BTreeSet<ObjectId>,
        is_last: bool,
    ) -> Result<Step, StorageError> {
        let now_ms = (self.options.clock)();
        // Logs may have moved on behind what the checkpoints have that were there before the start.
        let progress = self.parts.progress();
        // A copy that begins has those that there are: views whose streams have forgotten rows do not come back without them.
        let has_checkpoints = !copy.stored.checkpoints.is_empty() || !progress.checkpoints.is_empty();
        let must_wait = is_last || (!copy.is_begun && has_checkpoints);
        self.send_checkpoints(copy, &progress, must_wait).await?;
        if copy.progress.as_ref() == Some(&progress)
            && copy.next.is_none()
            && !is_last
            && !copy.is_base_due(now_ms)
        {
            self.shipped.lock().covered_ms = now_ms;
            self.look(copy, now_ms).await?;
            copy.sweep.remove_due(&self.place, now_ms).await?;
            return Ok(Step::Idle);
        }
        let (clock, parts, left_out) = (
            Arc::clone(&self.options.clock),
            self.parts.clone(),
            leave_out.clone(),
        );
        let (at_ms, catalog, logs) = blocking(move || {
            // What is acknowledged from now on may be in it, what was before is.
            let at_ms = clock();
            let (mut catalog, mut logs) = parts.moment()?;
            catalog.leave_out(&left_out);
            logs.retain(|log| !left_out.contains(&ObjectId(log.relation())));
            Ok((at_ms, catalog, logs))
        })
        .await?;
        let logs = Arc::new(
            logs.into_iter()
                .map(|log| (log.relation(), log))
                .collect::<BTreeMap<_, _>>(),
        );
        let number = copy.stored.number + 1;
        // Of a step that failed.
        copy.forget_moment(number);
        if copy.is_base_due(now_ms) {
            copy.leave_wasteful();
        }
        let waiting = self.send_rows(copy, &logs, is_last).await?;
        let (rows, inline) = waiting.into_moment(number);
        let stored = copy.next_stored(number, at_ms, is_last, (catalog, &logs, inline), &self.options);
        let is_base = !copy.is_begun
            || copy.is_base_due(now_ms)
            || number - copy.stored.base >= self.options.moments_per_base;
        let record = copy.record(&stored, is_base);
        drop(logs);
        let (record, content) = blocking(move || {
            let content = moment::encode(&record, &rows)
                .map_err(|error| StorageError::offsite(&moment::moment_name(number), error.to_string()))?;
            Ok((record, content))
        })
        .await?;
        if !copy.is_begun {
            self.sign(copy, false).await?;
        }
        let (name, bytes) = (moment::moment_name(number), content.len() as u64);
        let made = self.place.create(&name, content).await;
        if !made? {
            self.look(copy, i64::MAX).await?;
            // It was ours: an answer was lost. The next step goes on behind it.
            return match is_last {
                true => Box::pin(self.step_of(copy, leave_out, is_last)).await,
                false => Ok(Step::Made),
            };
        }
        if !copy.is_begun {
            self.sign(copy, true).await?;
        }
        let has_new_checkpoints = copy.next.is_some();
        copy.sweep.add(name, bytes);
        copy.made(Stored {
            base: record.base,
            ..stored
        });
        self.opened = None;
        copy.progress = Some(progress);
        copy.looked_at_ms = now_ms;
        if is_base {
            copy.base_at_ms = now_ms;
            let grace_ms = i64::try_from(self.options.grace.as_millis()).unwrap_or(i64::MAX);
            copy.sweep
                .named(&copy.stored.objects(), now_ms.saturating_add(grace_ms));
        }
        let (objects, all_bytes) = copy.sweep.total();
        {
            let mut shipped = self.shipped.lock();
            (shipped.moment, shipped.moment_at_ms, shipped.covered_ms) = (number, at_ms, at_ms);
            (shipped.objects, shipped.bytes) = (objects, all_bytes);
            shipped.sent_bytes += bytes;
            shipped.waiting_bytes = 0;
            if has_new_checkpoints {
                shipped.checkpoints_at_ms = at_ms;
            }
        }
        copy.sweep.remove_due(&self.place, now_ms).await?;
        Ok(Step::Made)
    }

    /// Sends files of checkpoints beside the rows, and takes what was sent.
    async fn send_checkpoints(
        &mut self,
        copy: &mut Copy,
        progress: &Progress,
        must_wait: bool,
    ) -> Result<(), StorageError> {
        let known = copy
            .next
            .as_ref()
            .map(|next| &next.version)
            .or(copy.version.as_ref());
        if self.checkpoints.is_none() && known != Some(&progress.checkpoints) {
            self.checkpoints = Some(tokio::spawn(checkpoints::send(
                self.parts.clone(),
                self.place.clone(),
                self.options.writer.clone(),
                Arc::clone(&copy.known),
            )));
        }
        let Some(task) = self.checkpoints.take_if(|task| must_wait || task.is_finished()) else {
            return Ok(());
        };
        let sent = task.await;
        let sent = sent.unwrap_or_else(|error| Err(StorageError::offsite("checkpoints", error.to_string())));
        match sent {
            Ok(sent) => copy.next = Some(sent),
            Err(error) if must_wait && !copy.is_begun => return Err(error),
            // Rows are worth more: the moments go on with the checkpoints before.
            Err(error) => tracing::warn!(%error, "checkpoints could not be shipped; this is tried again"),
        }
        Ok(())
    }

    /// Sends the rows that no object has. What is left goes with the moment.
    async fn send_rows(
        &self,
        copy: &mut Copy,
        logs: &Arc<BTreeMap<u64, LogCopy>>,
        is_last: bool,
    ) -> Result<Waiting, StorageError> {
        copy.pieces.retain(|relation, _| logs.contains_key(relation));
        let mut parts = vec![];
        let mut waiting_bytes = 0;
        for (relation, log) in logs.iter() {
            let span = log.span();
            let there = copy.pieces.entry(*relation).or_default();
            let Plan { keep, send } = pieces::plan(span, there);
            *there = keep;
            for (from, to) in send {
                waiting_bytes += log.bytes(from, to);
                let base_end = span.base_end;
                parts.push(Part {
                    relation: *relation,
                    from,
                    to,
                    base_end,
                });
            }
        }
        self.shipped.lock().waiting_bytes = waiting_bytes;
        let mut waiting = Waiting::default();
        for mut part in parts {
            loop {
                let (piece, bytes) = send::read(logs, part).await?;
                if waiting.is_full(bytes.len()) {
                    self.write_pack(copy, &mut waiting, is_last).await?;
                }
                part.from = piece.to;
                waiting.push(part.relation, piece, &bytes);
                if part.from >= part.to {
                    break;
                }
            }
        }
        if waiting.is_large() {
            self.write_pack(copy, &mut waiting, true).await?;
        }
        Ok(waiting)
    }

    async fn write_pack(
        &self,
        copy: &mut Copy,
        waiting: &mut Waiting,
        is_hurried: bool,
    ) -> Result<(), StorageError> {
        let (name, bytes, pieces) = waiting.write(&self.place, &mut copy.packs, is_hurried).await?;
        copy.sweep.add(name, bytes);
        copy.add(pieces);
        let mut shipped = self.shipped.lock();
        shipped.sent_bytes += bytes;
        shipped.waiting_bytes = shipped.waiting_bytes.saturating_sub(bytes);
        Ok(())
    }

    /// Writes down whose copy it is, before the first moment of this process, and that this is there.
    async fn sign(&self, copy: &Copy, has_moment: bool) -> Result<(), StorageError> {
        let (data, url, owner) = (self.data.clone(), self.place.url().to_owned(), copy.owner.clone());
        let last = (!has_moment).then(|| copy.stored.writer.clone());
        let writers = last.into_iter().filter(|writer| !writer.is_empty());
        let writers = writers.chain([self.options.writer.clone()]).collect();
        blocking(move || {
            let before = Identity::read(&data)?;
            let identity = Identity {
                has_moment: has_moment || (before.has_moment && before.url == url),
                url,
                owner: Some(owner),
                writers,
                ..before.clone()
            };
            match identity == before {
                true => Ok(()),
                false => identity.write(&data),
            }
        })
        .await
    }

    /// Looks whether there is a moment that this process did not make.
    async fn look(&self, copy: &mut Copy, now_ms: i64) -> Result<(), StorageError> {
        if now_ms.saturating_sub(copy.looked_at_ms) < LOOK_MS {
            return Ok(());
        }
        let number = copy.stored.number + 1;
        copy.looked_at_ms = (self.options.clock)();
        if !self.place.has(&moment::moment_name(number)).await? {
            return Ok(());
        }
        let fenced = || StorageError::Fenced {
            url: self.place.url().to_owned(),
            number,
        };
        match moment::read(&self.place, number).await? {
            Some(record) if record.writer == self.options.writer => {
                let name = moment::moment_name(number);
                let stored = &mut copy.stored;
                stored
                    .apply(record)
                    .map_err(|why| self.place.damaged(&name, why))?;
                copy.is_begun = true;
                copy.pieces = (stored.logs.iter())
                    .map(|(relation, log)| (*relation, log.pieces.clone()))
                    .collect();
                copy.sweep.add(name, 0);
                Ok(())
            }
            _ => Err(fenced()),
        }
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        if let Some(task) = &self.checkpoints {
            task.abort();
        }
    }
}
