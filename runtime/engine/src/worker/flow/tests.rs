//! The limits of a channel.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use futures::FutureExt;
use futures::executor::block_on;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;

use super::*;

fn rows(values: &[i64]) -> Vec<ChangeBatch> {
    let column: arrow::array::ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
    vec![ChangeBatch::insertions(batch)]
}

fn batch(from: usize, number: u64) -> BatchId {
    BatchId { from, number }
}

#[test]
fn a_sender_waits_for_the_batch_that_is_too_many() {
    let channel = Channel::default();
    for number in 0..2 {
        let sent = channel.send(batch(0, number), 2, vec![rows(&[1]), rows(&[2])], None);
        assert!(sent.now_or_never().is_some());
    }
    let mut third = channel
        .send(batch(0, 2), 2, vec![rows(&[3]), vec![]], None)
        .boxed();
    assert!((&mut third).now_or_never().is_none());
    // Another sender has a limit of its own.
    let other = channel.send(batch(1, 0), 2, vec![rows(&[4]), vec![]], None);
    assert!(other.now_or_never().is_some());
    // A batch is in flight until each partition has worked off its share, and asked for more.
    let first = block_on(channel.next(0, None)).unwrap();
    assert_eq!(first.id, batch(0, 0));
    assert_eq!(block_on(channel.next(0, Some(first.id))).unwrap().id, batch(0, 1));
    assert!((&mut third).now_or_never().is_none());
    let share = block_on(channel.next(1, None)).unwrap();
    assert!((&mut third).now_or_never().is_none());
    assert_eq!(block_on(channel.next(1, Some(share.id))).unwrap().id, batch(0, 1));
    assert!(third.now_or_never().is_some());
}

#[test]
fn a_receiver_has_had_everything_when_the_stage_has_ended() {
    let channel = Channel::default();
    block_on(channel.send(batch(0, 0), 4, vec![rows(&[1])], None));
    channel.end(false);
    let first = block_on(channel.next(0, None)).unwrap();
    assert_eq!(first.rows[0].num_rows(), 1);
    assert!(block_on(channel.next(0, Some(first.id))).is_none());
    // Where nothing is sent there is an end too.
    assert!(block_on(channel.next(7, None)).is_none());
}

#[test]
fn nobody_waits_for_what_is_void() {
    let flows = Flows::default();
    let id = FlowId {
        pipeline: PipelineId(1),
        epoch: 7,
        view: RelationId(3),
        stage: 2,
    };
    let channel = flows.open(id);
    block_on(channel.send(batch(0, 0), 1, vec![rows(&[1])], None));
    let mut waiting = channel.send(batch(0, 1), 1, vec![rows(&[2])], None).boxed();
    assert!((&mut waiting).now_or_never().is_none());
    flows.release(PipelineId(1), &(0..=7));
    assert!(waiting.now_or_never().is_some());
    assert!(block_on(channel.next(0, None)).is_none());
    // Nor is there anything to wait for later.
    assert!(block_on(flows.open(id).next(0, None)).is_none());
    let later = FlowId { epoch: 8, ..id };
    assert!(flows.open(later).next(0, None).now_or_never().is_none());
}
