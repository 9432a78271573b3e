//! The state of one aggregate over all groups of a partition.

use std::collections::VecDeque;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, RecordBatch};

use crate::error::Result;
use crate::expression::ErrorCounter;

/// Groups are numbered densely. Methods are handed rows already filtered by the call's FILTER.
pub(crate) trait GroupState: Send {
    /// Reserves space for groups up to `groups - 1`; new ones are empty.
    fn resize(&mut self, groups: usize);

    /// Adds each row `weights[i]` times to group `ids[i]` (takes it away for a negative weight).
    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()>;

    /// How many columns a partial state has; 0 if this form has none.
    fn partial_columns(&self) -> usize;

    /// The state of every group as columns; leaves nothing.
    fn partial(&mut self) -> Result<Vec<ArrayRef>>;

    /// Merges partial states into groups.
    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()>;

    /// The aggregate's value for each of these groups. One that cannot be told is NULL, and counted if a counter is given.
    fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<ArrayRef>;

    /// Tells groups that the time is this, in microseconds since 1970-01-01 00:00 UTC.
    fn on_timer(&mut self, _groups: &[usize], _now: i64) -> Result<()> {
        Ok(())
    }

    /// Empties a group.
    fn reset(&mut self, group: usize);

    /// Keeps these groups, renumbered in the order given.
    fn retain(&mut self, groups: &[usize]);

    fn memory_bytes(&self) -> usize;

    /// The aggregate's value for each range of `panes`: over what these groups are together. Neither the beginnings nor the ends
    /// of ranges go back. `once`: a window's value is asked for once only, and need not have the same bits another time.
    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        once: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef>;

    /// How many columns an image has.
    fn image_columns(&self) -> usize {
        self.partial_columns()
    }

    /// The state of every group as columns, for the checkpoint store; leaves it as it is.
    fn image(&mut self, groups: usize) -> Result<Vec<ArrayRef>> {
        let columns = self.partial()?;
        self.resize(groups);
        self.restore(&columns)?;
        Ok(columns)
    }

    /// Gives empty groups the state of an image.
    fn restore(&mut self, image: &[ArrayRef]) -> Result<()> {
        let groups = image.first().map_or(0, |column| column.len());
        self.merge(&(0..groups).collect::<Vec<_>>(), image)
    }
}

/// What the panes of each range are together, where a pane that was added can be taken away: each is added once and taken
/// away once, whatever the number of ranges that it is in.
pub(crate) fn slide<T: Clone + Default>(
    ranges: &[Range<usize>],
    add: impl Fn(&mut T, usize),
    take_away: impl Fn(&mut T, usize),
) -> Vec<T> {
    let mut sum = T::default();
    let mut summed = 0..0;
    let mut windows = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.start >= summed.end {
            sum = T::default();
            summed = range.start..range.start;
        }
        (summed.end..range.end).for_each(|pane| add(&mut sum, pane));
        (summed.start..range.start).for_each(|pane| take_away(&mut sum, pane));
        summed = range.clone();
        windows.push(sum.clone());
    }
    windows
}

/// What the panes of each range are together, where they can only be added.
pub(super) fn united<T: Clone + Default>(ranges: &[Range<usize>], add: impl Fn(&mut T, usize)) -> Vec<T> {
    let window = |range: &Range<usize>| {
        let mut sum = T::default();
        range.clone().for_each(|pane| add(&mut sum, pane));
        sum
    };
    ranges.iter().map(window).collect()
}

/// What is made of the panes of each range together, where panes can be joined in any order, but none be taken away: each pane
/// is added twice, and each window joins two of what came of that (a queue of two stacks), whatever the number of ranges that a
/// pane is in.
pub(super) fn joined<T: Clone + Default, V>(
    ranges: &[Range<usize>],
    add: impl Fn(&mut T, usize),
    join: impl Fn(&mut T, &T),
    value: impl Fn(&T) -> V,
) -> Vec<V> {
    // What is joined from each position before `middle` on up to there, the longest last, and from there up to `end`.
    let (mut front, mut back): (Vec<T>, T) = (vec![], T::default());
    let (mut middle, mut end) = (0, 0);
    let mut windows = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.start >= middle {
            front.clear();
            let mut all = T::default();
            for pane in range.clone().rev() {
                add(&mut all, pane);
                front.push(all.clone());
            }
            back = T::default();
            (middle, end) = (range.end, range.end);
        }
        front.truncate(middle - range.start);
        (end..range.end).for_each(|pane| add(&mut back, pane));
        end = range.end;
        match front.last() {
            Some(front) if middle < end => {
                let mut all = front.clone();
                join(&mut all, &back);
                windows.push(value(&all));
            }
            Some(front) => windows.push(value(front)),
            None => windows.push(value(&back)),
        }
    }
    windows
}

/// The position of the least value in each range that has one: those that a later and smaller one hides are not looked at
/// again (a monotone queue).
pub(super) fn least<'a>(
    ranges: &[Range<usize>],
    value: impl Fn(usize) -> Option<&'a [u8]>,
) -> Vec<Option<usize>> {
    let mut queue: VecDeque<(usize, &'a [u8])> = VecDeque::new();
    let mut seen = 0;
    let mut windows = Vec::with_capacity(ranges.len());
    for range in ranges {
        for position in seen.max(range.start)..range.end {
            let Some(value) = value(position) else { continue };
            while queue.back().is_some_and(|(_, last)| *last >= value) {
                queue.pop_back();
            }
            queue.push_back((position, value));
        }
        seen = seen.max(range.end);
        while queue.front().is_some_and(|(position, _)| *position < range.start) {
            queue.pop_front();
        }
        windows.push(queue.front().map(|(position, _)| *position));
    }
    windows
}

/// The numbers of groups that stand for windows.
pub(super) fn each(ranges: &[Range<usize>]) -> Vec<usize> {
    (0..ranges.len()).collect()
}

/// Moves the kept elements to the front.
pub(super) fn retain_positions<T: Default>(values: &mut Vec<T>, groups: &[usize]) {
    *values = groups
        .iter()
        .map(|group| std::mem::take(&mut values[*group]))
        .collect();
}

/// Reserves space for so many groups: by an eighth at a time, since doubling leaves a third of the memory unused.
pub(super) fn resize<T>(values: &mut Vec<T>, groups: usize, empty: impl FnMut() -> T) {
    if groups > values.capacity() {
        values.reserve_exact((groups - values.len()).max(values.len() / 8));
    }
    values.resize_with(groups, empty);
}
