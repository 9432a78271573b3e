//! An operator tree on one partition, and what each operator of it can be asked.
//!
//! ```text
//!  OperatorInstance                      asks the tree: run, due, state_bytes, image, restore, ..
//!    operator: Box<dyn Operator>         one operator with its state; it does not know what it reads
//!    inputs: [OperatorInstance, ..]      what it reads, left to right
//! ```
//! Which operators there are is not known here; [`super::list`] knows.

use futures::future::BoxFuture;
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::expression::ErrorCounter;
use super::image::{OperatorImage, OperatorWaits, Part, Parts};
use super::inputs::Inputs;
use super::output::{Collecting, Output};
use super::projection::Projection;
use crate::error::Result;

/// One operator of a tree, with its state. What a method has no default for, every operator says; the defaults are those of
/// one that keeps nothing.
pub(crate) trait Operator: Send {
    /// Applies an epoch's input, or a part of it, to the state and pushes what changes in the output. It runs its inputs, in
    /// whichever way suits it: all of their rows at once ([`OperatorInstance::collect`]), or batch by batch where they are
    /// lazy.
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>>;

    /// How its rows come out.
    fn delivery(&self) -> Delivery {
        Delivery::Whole
    }

    /// What it computes of each row, if that is all that it does: whoever is behind it may do so in its place.
    fn projection(&self) -> Option<&Projection> {
        None
    }

    /// See [`OperatorInstance::idle_without_input`].
    fn idle_without_input(&self, _is_bulk: bool) -> bool {
        true
    }

    /// See [`OperatorInstance::due`].
    fn due(&self) -> Option<i64> {
        None
    }

    /// Whether these watermarks change the output.
    fn is_closed(&self, _watermarks: &Watermarks) -> bool {
        false
    }

    /// Bytes of keyed state.
    fn state_bytes(&self) -> usize {
        0
    }

    /// See [`OperatorInstance::can_leave`].
    fn can_leave(&self) -> bool {
        true
    }

    /// Whether it has postponed what it is to emit once the view is filled.
    fn puts_off(&self) -> bool {
        false
    }

    /// It has.
    fn put_off(&mut self) {}

    /// Adds its state, part by part. Checkpoints hold the parts as they are: what changes them is a new version of the state.
    fn image(&mut self, _parts: &mut Vec<Part>) -> Result<()> {
        Ok(())
    }

    /// Takes the parts that [`Operator::image`] added, in that order, while there is no state.
    fn restore(&mut self, _parts: &mut Parts) -> Result<()> {
        Ok(())
    }
}

/// How an operator's rows come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A row may be taken back before it came: they count when all of them are there.
    Whole,
    /// Batch by batch while they are made, and no row is taken back before it came. There may be far more than come in.
    Lazy,
    /// Each batch of the input becomes rows by itself.
    AsInput,
    /// The same, and there may be far more than come in.
    Multiplied,
}

/// An operator tree with its state.
pub struct OperatorInstance {
    operator: Box<dyn Operator>,
    inputs: Vec<OperatorInstance>,
}

impl OperatorInstance {
    /// An operator in front of what it reads.
    pub(super) fn of(operator: Box<dyn Operator>, inputs: Vec<OperatorInstance>) -> Self {
        OperatorInstance { operator, inputs }
    }

    /// Applies an epoch's input, or a part of it, to the state and pushes what changes in the output. Where
    /// `OperatorInstance::is_lazy`, there is never more of it than a step's worth in memory.
    pub fn run<'a>(
        &'a mut self,
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        self.operator.run(&mut self.inputs, epoch, gate, errors, output)
    }

    /// As [`OperatorInstance::run`], with all that it emits.
    pub async fn collect(
        &mut self,
        epoch: &mut Inputs,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let mut collecting = Collecting::new(gate);
        self.run(epoch, gate, errors, &mut collecting).await?;
        Ok(collecting.batches)
    }

    /// Whether its rows come out while they are made, batch by batch, and no row is taken back before it came: whoever is
    /// behind it may work each batch off by itself.
    pub(super) fn is_lazy(&self) -> bool {
        match self.operator.delivery() {
            Delivery::Whole => false,
            Delivery::Lazy => true,
            Delivery::AsInput | Delivery::Multiplied => self.inputs.iter().all(OperatorInstance::is_lazy),
        }
    }

    /// Whether there may be far more rows than come in, made while they are asked for. Of what is not lazy, a row may be taken
    /// back before it came: only what is linear may work it off in parts.
    pub(super) fn multiplies(&self) -> bool {
        match self.operator.delivery() {
            Delivery::Whole => false,
            Delivery::Lazy | Delivery::Multiplied => true,
            Delivery::AsInput => self.inputs.iter().all(OperatorInstance::multiplies),
        }
    }

    /// See [`Operator::projection`]: that, and what it is over.
    pub(super) fn projection(&mut self) -> Option<(&Projection, &mut OperatorInstance)> {
        self.operator.projection().zip(self.inputs.first_mut())
    }

    /// Whether an epoch without input leaves the output as it is, time apart (see [`OperatorInstance::due`]). Not so for the
    /// first epoch of an aggregate without groups, which has a row even over nothing, and for the first after the view was
    /// filled (`is_bulk` until then), in which what was postponed is emitted.
    pub fn idle_without_input(&self, is_bulk: bool) -> bool {
        let mut inputs = self.inputs.iter();
        self.operator.idle_without_input(is_bulk) && inputs.all(|input| input.idle_without_input(is_bulk))
    }

    /// When the output next changes without input, in microseconds since 1970-01-01 00:00 UTC.
    pub fn due(&self) -> Option<i64> {
        let below = self.inputs.iter().filter_map(OperatorInstance::due);
        below.chain(self.operator.due()).min()
    }

    /// Whether the output changes at this time and by these watermarks, without input.
    pub fn is_due(&self, now: i64, watermarks: &Watermarks) -> bool {
        self.due().is_some_and(|due| due <= now) || self.is_closed(watermarks)
    }

    fn is_closed(&self, watermarks: &Watermarks) -> bool {
        self.operator.is_closed(watermarks) || self.inputs.iter().any(|input| input.is_closed(watermarks))
    }

    /// Bytes of keyed state.
    pub fn state_bytes(&self) -> usize {
        let below = self.inputs.iter().map(OperatorInstance::state_bytes);
        self.operator.state_bytes() + below.sum::<usize>()
    }

    /// The state of the tree now.
    ///
    /// # Errors
    /// An aggregate's state cannot be made columns of.
    pub fn image(&mut self) -> Result<OperatorImage> {
        let mut parts = vec![];
        self.add_parts(&mut parts)?;
        let mut put_off = vec![];
        self.note_put_off(&mut put_off);
        let waits = OperatorWaits {
            due: self.due(),
            is_idle: self.idle_without_input(false),
            put_off,
        };
        Ok(OperatorImage::with_waits(parts, waits))
    }

    /// Whether its image says all that it waits for: it may leave memory, and nobody misses it until there is input, or a time
    /// has come.
    pub fn can_leave(&self) -> bool {
        self.operator.can_leave() && self.inputs.iter().all(OperatorInstance::can_leave)
    }

    /// Gives a tree without state that of an image.
    ///
    /// # Errors
    /// The image is not one of this plan.
    pub fn restore(&mut self, image: &OperatorImage) -> Result<()> {
        let mut parts = Parts::of(image);
        self.take_parts(&mut parts)?;
        self.put_off(&mut image.waits().put_off.iter().copied());
        parts.end()
    }

    fn note_put_off(&self, put_off: &mut Vec<bool>) {
        put_off.push(self.operator.puts_off());
        self.inputs.iter().for_each(|input| input.note_put_off(put_off));
    }

    fn put_off(&mut self, is_put_off: &mut impl Iterator<Item = bool>) {
        if is_put_off.next().unwrap_or(false) {
            self.operator.put_off();
        }
        self.inputs.iter_mut().for_each(|input| input.put_off(is_put_off));
    }

    fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.operator.image(parts)?;
        self.inputs
            .iter_mut()
            .try_for_each(|input| input.add_parts(parts))
    }

    fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        self.operator.restore(parts)?;
        self.inputs
            .iter_mut()
            .try_for_each(|input| input.take_parts(parts))
    }
}
