//! Who gives way, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use millrace_planner::RelationId;

use super::*;
use crate::error::ResourceError;
use crate::query_memory::QueryMemory;

const MB: usize = 1 << 20;

fn memory(limit: usize) -> Arc<Memory> {
    Memory::new(Some(limit), Resident::Unknown)
}

fn view(memory: &Arc<Memory>, id: u64) -> Arc<Account> {
    memory.account(Holder::Relation(RelationId(id)), &format!("view \"v{id}\""))
}

#[test]
fn what_is_charged_is_given_back_with_the_charge() {
    let memory = memory(100 * MB);
    let account = view(&memory, 1);
    let mut state = account.charge(Use::State, 10 * MB);
    let rows = account.charge(Use::InFlight, 5 * MB);
    assert_eq!(memory.used(), 15 * MB);
    assert_eq!(memory.held(RelationId(1)), 15 * MB);
    state.resize(MB);
    drop(rows);
    assert_eq!(memory.accounts()[0].bytes, [MB, 0, 0, 0, 0]);
    drop(state);
    assert_eq!(memory.used(), 0);
    drop(account);
    assert!(memory.accounts().is_empty());
}

#[test]
fn what_the_accounts_do_not_see_counts_too() {
    let resident = Arc::new(AtomicUsize::new(30 * MB));
    let told = Arc::clone(&resident);
    let told = Resident::Told(Arc::new(move || told.load(Ordering::Relaxed)));
    let memory = Memory::new(Some(100 * MB), told);
    let held = view(&memory, 1).charge(Use::State, 10 * MB);
    memory.look();
    assert_eq!((memory.used(), memory.status().resident), (30 * MB, 30 * MB));
    // What is charged later comes on top, until the next look.
    let more = view(&memory, 1).charge(Use::State, 40 * MB);
    assert_eq!(memory.used(), 70 * MB);
    resident.store(60 * MB, Ordering::Relaxed);
    memory.look();
    assert_eq!(memory.used(), 60 * MB);
    // Reserved, and not touched yet.
    resident.store(20 * MB, Ordering::Relaxed);
    memory.look();
    assert_eq!(memory.used(), 50 * MB);
    drop((held, more));
}

#[test]
fn queries_get_what_others_leave_and_the_error_says_who_has_it() {
    let memory = memory(100 * MB);
    let pool: Arc<dyn MemoryPool> = QueryMemory::new(&memory);
    let sort = MemoryConsumer::new("Sort").with_can_spill(true).register(&pool);
    let other: Arc<dyn MemoryPool> = QueryMemory::new(&memory);
    let build = MemoryConsumer::new("HashJoinInput").register(&other);
    build.try_grow(30 * MB).unwrap();
    sort.try_grow(50 * MB).unwrap();
    // 80 MB are for queries.
    assert!(sort.try_grow(11 * MB).is_err());
    assert!(build.try_grow(11 * MB).is_err());
    sort.free();
    let state = view(&memory, 7).charge(Use::State, 40 * MB);
    let error = build.try_grow(11 * MB).unwrap_err().to_string();
    assert!(
        error.contains(
            "out of memory: HashJoinInput exceeded memory_limit (it needs 11.0 MB more and has 30.0 MB)"
        ),
        "{error}"
    );
    assert!(
        error.contains("memory_limit is 100.0 MB; view \"v7\" 40.0 MB"),
        "{error}"
    );
    build.try_grow(10 * MB).unwrap();
    // The rest is shared by those who can spill.
    drop(state);
    let second = MemoryConsumer::new("Sort").with_can_spill(true).register(&pool);
    second.try_grow(20 * MB).unwrap();
    assert!(second.try_grow(1).is_err());
    assert_eq!(memory.status().queries_refused, 4);
    drop((sort, second, build, pool, other));
    assert_eq!((memory.used(), memory.accounts().len()), (0, 0));
}

#[test]
fn what_is_on_disk_is_named_too() {
    let memory = memory(100 * MB);
    let account = view(&memory, 7);
    let _state = account.charge(Use::State, 40 * MB);
    let mut away = OnDisk::new(&account);
    away.set(300 * MB);
    let shown = memory.shown();
    assert!(
        shown.contains("view \"v7\" 40.0 MB (and 300.0 MB on disk)"),
        "{shown}"
    );
}

#[test]
fn small_queries_run_until_the_limit_itself_is_reached() {
    let memory = memory(100 * MB);
    let state = view(&memory, 7).charge(Use::State, 90 * MB);
    let pool: Arc<dyn MemoryPool> = QueryMemory::new(&memory);
    let aggregate = MemoryConsumer::new("Aggregate").register(&pool);
    aggregate.try_grow(MB / 2).unwrap();
    assert!(aggregate.try_grow(MB).is_err());
    let more = view(&memory, 8).charge(Use::State, 10 * MB);
    assert!(aggregate.try_grow(1).is_err());
    drop((state, more));
}

#[test]
fn writes_wait_before_views_fail() {
    let memory = memory(100 * MB);
    let large = view(&memory, 1);
    let small = view(&memory, 2);
    let _few = small.charge(Use::State, 5 * MB);
    let mut state = large.charge(Use::State, 70 * MB);
    assert!(!memory.is_short() && memory.room(70 * MB, 2));
    state.resize(84 * MB);
    assert!(memory.is_short() && memory.room(84 * MB, 2));
    state.resize(87 * MB);
    // Who holds little goes on.
    assert!(!memory.room(87 * MB, 2) && memory.room(5 * MB, 2));
    // The only one has no others to be smaller than.
    assert!(!memory.room(92 * MB, 1));
    large.check().unwrap();
    state.resize(96 * MB);
    assert!(!memory.room(5 * MB, 2));
    small.check().unwrap();
    let error = large.check().unwrap_err();
    assert!(
        matches!(&error, ResourceError::OutOfMemory { who, .. } if who == "view \"v1\""),
        "{error}"
    );
    memory.set_limit(None);
    large.check().unwrap();
    assert!(memory.room(usize::MAX, 1));
}

#[test]
fn state_is_measured_when_enough_has_moved() {
    let memory = memory(100 * MB);
    let account = view(&memory, 1);
    let charge = StateCharge::new(&account);
    charge.set(8 * MB);
    let not_yet = || -> usize { panic!("it is not due") };
    charge.moved(1_000, not_yet);
    assert_eq!(account.total(), 8 * MB + 1_000);
    charge.moved(MB, || 9 * MB);
    assert_eq!(account.total(), 9 * MB);
}

#[tokio::test]
async fn who_waits_is_told_at_each_look() {
    let memory = memory(MB);
    let mut freed = std::pin::pin!(memory.freed());
    freed.as_mut().enable();
    memory.look();
    freed.await;
}
