//! What a cut takes, and what the queue says of what is left.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use millrace_resource::memory::{Account, Holder, Memory, Resident, Use};

use super::*;

const PIPELINE: PipelineId = PipelineId(1);
const RELATION: RelationId = RelationId(7);

fn part(account: &Arc<Account>, relation: RelationId, rows: usize) -> Part {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
    let rows_only = RecordBatch::try_from_iter([("v", values)]).unwrap();
    Part {
        relation,
        changes: ChangeBatch::insertions(rows_only),
        end: 0,
        watermark: None,
        charge: Arc::new(account.charge(Use::Input, rows * 8)),
    }
}

fn request(epoch: u64) -> CutRequest {
    CutRequest {
        pipeline: PIPELINE,
        version: 1,
        epoch,
        is_retained: false,
        is_replay: false,
        is_checkpoint: false,
    }
}

fn cut(feeds: &mut Feeds, epoch: u64) -> Taken {
    cut_within(feeds, epoch, usize::MAX)
}

fn cut_within(feeds: &mut Feeds, epoch: u64, bytes_max: usize) -> Taken {
    match feeds.cut(request(epoch), 0, bytes_max) {
        CutAnswer::Taken(taken) => taken,
        other => panic!("{other:?}"),
    }
}

fn size(writes: usize, rows: usize) -> FeedSize {
    FeedSize {
        writes,
        rows,
        bytes: rows * 8,
    }
}

#[test]
fn a_cut_takes_whole_writes_until_it_has_enough_rows() {
    let memory = Memory::new(None, Resident::Unknown);
    let account = memory.account(Holder::Relation(RELATION), "s");
    let mut feeds = Feeds::default();
    feeds.attach(RELATION, PIPELINE);
    let rows = CUT_ROWS_MAX - 1;
    for rows in [rows, 10, 20] {
        feeds.submit_durable(PIPELINE, vec![part(&account, RELATION, rows)]);
    }
    assert_eq!(feeds.size(PIPELINE), size(3, rows + 30));
    let first = cut(&mut feeds, 1);
    let taken = |taken: &Taken| -> usize {
        let changes = taken.changes[&RELATION].changes.iter();
        changes.map(ChangeBatch::num_rows).sum()
    };
    assert_eq!((taken(&first), first.more), (rows + 10, true));
    assert_eq!(feeds.size(PIPELINE), size(1, 20));
    // What was taken is charged as long as it is kept.
    assert_eq!(memory.used(), (rows + 30) * 8);
    let second = cut(&mut feeds, 2);
    assert_eq!((taken(&second), second.more), (20, false));
    drop(first);
    assert_eq!(
        (memory.used(), feeds.size(PIPELINE)),
        (20 * 8, FeedSize::default())
    );
}

#[test]
fn a_cut_takes_whole_writes_until_it_has_enough_bytes() {
    let memory = Memory::new(None, Resident::Unknown);
    let account = memory.account(Holder::Relation(RELATION), "s");
    let mut feeds = Feeds::default();
    feeds.attach(RELATION, PIPELINE);
    for rows in [10, 20, 30, 1_000, 5] {
        feeds.submit_durable(PIPELINE, vec![part(&account, RELATION, rows)]);
    }
    // Of eight bytes a row.
    let taken = [240, 240, 240].map(|bytes| {
        let taken = cut_within(&mut feeds, 1, bytes);
        let changes = taken.changes[&RELATION].changes.iter();
        (changes.map(ChangeBatch::num_rows).collect::<Vec<_>>(), taken.more)
    });
    assert_eq!(
        taken,
        [(vec![10, 20], true), (vec![30], true), (vec![1_000], true)]
    );
}

#[test]
fn the_queue_s_size_follows_whatever_becomes_of_it() {
    let memory = Memory::new(None, Resident::Unknown);
    let account = memory.account(Holder::Relation(RELATION), "s");
    let mut feeds = Feeds::default();
    let (other, dropped) = (PipelineId(2), RelationId(8));
    feeds.attach(RELATION, PIPELINE);
    feeds.attach(dropped, other);
    let failing = feeds.submit(PIPELINE, vec![part(&account, RELATION, 5)]);
    feeds.submit(PIPELINE, vec![part(&account, RELATION, 7)]);
    feeds.submit(other, vec![part(&account, dropped, 100)]);
    assert_eq!(
        feeds.withdraw(failing, [dropped, RELATION].into_iter().skip(1)),
        Some(PIPELINE)
    );
    assert_eq!(feeds.size(PIPELINE), size(1, 7));
    feeds.join(PIPELINE, other);
    assert_eq!(
        (feeds.size(PIPELINE), feeds.size(other)),
        (size(2, 107), FeedSize::default())
    );
    feeds.detach(dropped);
    assert_eq!(feeds.size(PIPELINE), size(1, 7));
    assert_eq!(memory.used(), 7 * 8);
}

/// A write that is on its way to the log when its relation is dropped holds up nobody behind it.
#[test]
fn a_write_to_what_was_dropped_meanwhile_is_not_waited_for() {
    let memory = Memory::new(None, Resident::Unknown);
    let account = memory.account(Holder::Relation(RELATION), "s");
    let mut feeds = Feeds::default();
    let dropped = RelationId(8);
    feeds.attach(RELATION, PIPELINE);
    feeds.attach(dropped, PIPELINE);
    let alone = feeds.submit(PIPELINE, vec![part(&account, dropped, 5)]);
    let of_both = [part(&account, dropped, 3), part(&account, RELATION, 4)];
    let shared = feeds.submit(PIPELINE, of_both.into());
    feeds.submit_durable(PIPELINE, vec![part(&account, RELATION, 7)]);
    feeds.detach(dropped);
    assert_eq!(feeds.acknowledge(alone, &[(dropped, 5)], 1), None);
    let first = cut(&mut feeds, 1);
    assert!(
        first.changes.is_empty(),
        "the one that is shared is not durable yet"
    );
    let ends = [(dropped, 8), (RELATION, 4)];
    assert_eq!(feeds.acknowledge(shared, &ends, 2), Some(PIPELINE));
    let second = cut(&mut feeds, 2);
    let rows = second.changes[&RELATION]
        .changes
        .iter()
        .map(ChangeBatch::num_rows);
    assert_eq!(rows.collect::<Vec<_>>(), [4, 7]);
    assert!(!second.changes.contains_key(&dropped));
    assert_eq!(feeds.size(PIPELINE), FeedSize::default());
}
