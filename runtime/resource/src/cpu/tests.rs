//! The slots under real threads: order, suspension, cancellation.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use millrace_planner::RelationId;

use super::*;
use crate::gate::Gate;
use crate::memory::{Holder, Resident, Use};

#[test]
fn a_stream_task_runs_before_batch_tasks_that_waited_longer() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let (started, first_runs) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(vec![]));
    let blocker = cpu.spawn::<_, ResourceError>(QueryClass::Stream, move |_| {
        async move {
            started.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        }
        .boxed()
    });
    first_runs.recv().unwrap();
    let note = |class, name: &'static str| {
        let order = Arc::clone(&order);
        cpu.spawn::<_, ResourceError>(class, move |_| {
            async move {
                order.lock().push(name);
                Ok(())
            }
            .boxed()
        })
    };
    let tasks = [
        note(QueryClass::Batch, "batch"),
        note(QueryClass::Interactive, "interactive"),
        note(QueryClass::Stream, "stream"),
    ];
    release.send(()).unwrap();
    futures::executor::block_on(async {
        blocker.await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(*order.lock(), ["stream", "interactive", "batch"]);
    cpu.stop();
}

#[test]
fn a_batch_task_gives_way_at_its_gate() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let order = Arc::new(Mutex::new(vec![]));
    let (started, batch_runs) = mpsc::channel();
    let (arrived, stream_waits) = mpsc::channel::<()>();
    let notes = Arc::clone(&order);
    let batch = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |gate| {
        async move {
            started.send(()).unwrap();
            stream_waits.recv().unwrap();
            gate.checkpoint().await;
            notes.lock().push("batch");
            Ok(())
        }
        .boxed()
    });
    batch_runs.recv().unwrap();
    let notes = Arc::clone(&order);
    let stream = cpu.spawn::<_, ResourceError>(QueryClass::Stream, move |_| {
        async move {
            notes.lock().push("stream");
            Ok(())
        }
        .boxed()
    });
    arrived.send(()).unwrap();
    futures::executor::block_on(async {
        batch.await.unwrap();
        stream.await.unwrap();
    });
    assert_eq!(*order.lock(), ["stream", "batch"]);
    cpu.stop();
}

#[test]
fn a_panic_is_an_error_and_the_slot_lives_on() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let bad = cpu.spawn::<(), ResourceError>(QueryClass::Batch, |_| async { panic!("bad row") }.boxed());
    let error = futures::executor::block_on(bad).unwrap_err();
    assert!(error.to_string().contains("bad row"));
    let good = cpu.spawn::<_, ResourceError>(QueryClass::Batch, |_| async { Ok(7) }.boxed());
    assert_eq!(futures::executor::block_on(good).unwrap(), 7);
    cpu.stop();
}

/// A coroutine that runs until it is told to end, with a suspension point in every round.
fn spinning(cpu: &CpuScheduler, class: QueryClass) -> (CpuTask<()>, Arc<AtomicBool>, mpsc::Receiver<()>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let (begun, begins) = mpsc::channel();
    let task = cpu.spawn::<_, ResourceError>(class, move |gate| {
        async move {
            begun.send(()).unwrap();
            while !over.load(Ordering::Relaxed) {
                gate.checkpoint().await;
            }
            Ok(())
        }
        .boxed()
    });
    (task, is_over, begins)
}

#[test]
fn what_suspends_nowhere_can_look_whether_it_is_wanted() {
    assert!(!is_unwanted(), "outside a slot everything is wanted");
    let cpu = CpuScheduler::start(1, None).unwrap();
    let (begun, begins) = mpsc::channel();
    let task = cpu.spawn::<(), ResourceError>(QueryClass::Interactive, move |_| {
        async move {
            begun.send(is_unwanted()).unwrap();
            while !is_unwanted() {
                std::thread::yield_now();
            }
            begun.send(is_unwanted()).unwrap();
            Ok(())
        }
        .boxed()
    });
    assert!(!begins.recv().unwrap());
    drop(task);
    assert!(begins.recv().unwrap());
    cpu.stop();
}

/// Also while nothing else waits for the slot.
#[test]
fn cancelling_a_running_task_ends_it_where_it_may_give_way() {
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let cpu = CpuScheduler::start(1, None).unwrap();
    for class in QueryClass::ALL {
        let (tell, told) = mpsc::channel();
        let held = Tells(tell.clone());
        let task = cpu.spawn::<(), ResourceError>(class, move |gate| {
            async move {
                let _held = held;
                tell.send(()).unwrap();
                loop {
                    gate.checkpoint().await;
                }
            }
            .boxed()
        });
        told.recv().unwrap();
        drop(task);
        let ended = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(ended, Ok(()), "{class}");
    }
    cpu.stop();
}

#[test]
fn cancelling_a_paused_task_frees_what_it_holds_at_once() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let (begun, begins) = mpsc::channel();
    let batch = cpu.spawn::<(), ResourceError>(QueryClass::Batch, move |gate| {
        async move {
            let _held = held;
            begun.send(()).unwrap();
            loop {
                gate.checkpoint().await;
            }
        }
        .boxed()
    });
    begins.recv().unwrap();
    // From when it runs, the only slot is taken by a stream task that never gives it back by itself.
    let (stream, is_over, begins) = spinning(&cpu, QueryClass::Stream);
    begins.recv().unwrap();
    while cpu.paused().is_empty() {
        std::thread::yield_now();
    }
    let status = cpu.paused()[0].status();
    assert_eq!((status.state, status.pauses), (TaskState::Paused, 1));
    drop(batch);
    assert!(weak.upgrade().is_none(), "the paused task still holds it");
    assert!(cpu.paused().is_empty());
    is_over.store(true, Ordering::Relaxed);
    futures::executor::block_on(stream).unwrap();
    assert_eq!(cpu.times().pause.count(), 1);
    cpu.stop();
}

#[test]
fn an_interactive_task_runs_while_a_batch_task_is_paused_or_busy() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let (batch, is_over, begins) = spinning(&cpu, QueryClass::Batch);
    begins.recv().unwrap();
    for _ in 0..20 {
        let answer = cpu.spawn::<_, ResourceError>(QueryClass::Interactive, |_| async { Ok(7) }.boxed());
        assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
    }
    is_over.store(true, Ordering::Relaxed);
    futures::executor::block_on(batch).unwrap();
    cpu.stop();
}

/// Under `fifo` nothing is asked to give way.
#[test]
fn fifo_pauses_nothing() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    cpu.set_policy(SchedulerPolicy::Fifo);
    let order = Arc::new(Mutex::new(vec![]));
    let (started, batch_runs) = mpsc::channel();
    let (arrived, stream_waits) = mpsc::channel::<()>();
    let notes = Arc::clone(&order);
    let batch = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |gate| {
        async move {
            started.send(()).unwrap();
            stream_waits.recv().unwrap();
            gate.checkpoint().await;
            notes.lock().push("batch");
            Ok(())
        }
        .boxed()
    });
    batch_runs.recv().unwrap();
    let notes = Arc::clone(&order);
    let stream = cpu.spawn::<_, ResourceError>(QueryClass::Stream, move |_| {
        async move {
            notes.lock().push("stream");
            Ok(())
        }
        .boxed()
    });
    arrived.send(()).unwrap();
    futures::executor::block_on(async {
        batch.await.unwrap();
        stream.await.unwrap();
    });
    assert_eq!(*order.lock(), ["batch", "stream"]);
    cpu.stop();
}

/// A batch task that comes to no suspension point: what is more urgent is polled all the same.
#[test]
fn a_long_poll_keeps_nothing_waiting_that_is_more_urgent() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let (started, batch_runs) = mpsc::channel();
    let (ended, stream_ends) = mpsc::channel();
    let batch = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |_| {
        async move {
            started.send(()).unwrap();
            // For as long as the stream task does not run.
            stream_ends.recv_timeout(Duration::from_secs(60)).unwrap();
            Ok(())
        }
        .boxed()
    });
    batch_runs.recv().unwrap();
    for class in [QueryClass::Interactive, QueryClass::Stream] {
        let ended = ended.clone();
        let urgent = cpu.spawn::<_, ResourceError>(class, move |_| {
            async move {
                if class == QueryClass::Stream {
                    ended.send(()).unwrap();
                }
                Ok(())
            }
            .boxed()
        });
        futures::executor::block_on(urgent).unwrap();
    }
    futures::executor::block_on(batch).unwrap();
    cpu.stop();
}

/// Under policies that pause nobody a slot is a slot, whoever has it.
#[test]
fn a_long_poll_keeps_everything_waiting_under_fifo() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    cpu.set_policy(SchedulerPolicy::Fifo);
    let order = Arc::new(Mutex::new(vec![]));
    let (started, batch_runs) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let notes = Arc::clone(&order);
    let batch = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |_| {
        async move {
            started.send(()).unwrap();
            released.recv().unwrap();
            notes.lock().push("batch");
            Ok(())
        }
        .boxed()
    });
    batch_runs.recv().unwrap();
    let notes = Arc::clone(&order);
    let stream = cpu.spawn::<_, ResourceError>(QueryClass::Stream, move |_| {
        async move {
            notes.lock().push("stream");
            Ok(())
        }
        .boxed()
    });
    assert_eq!(cpu.waiting(QueryClass::Stream), 1);
    release.send(()).unwrap();
    futures::executor::block_on(async {
        batch.await.unwrap();
        stream.await.unwrap();
    });
    assert_eq!(*order.lock(), ["batch", "stream"]);
    cpu.stop();
}

/// The threads of less urgent classes matter less to the operating system.
#[cfg(target_os = "linux")]
#[test]
fn classes_are_told_apart_by_the_operating_system() {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadSchedulePolicy};
    let cpu = CpuScheduler::start(1, None).unwrap();
    let seen = |class| {
        let task = cpu.spawn::<_, ResourceError>(class, |_| {
            async {
                let thread = Some(rustix::thread::gettid());
                let nice = rustix::process::getpriority_process(thread).unwrap();
                Ok((thread_priority::thread_schedule_policy().unwrap(), nice))
            }
            .boxed()
        });
        futures::executor::block_on(task).unwrap()
    };
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Of a process that is very nice already there is nothing left to take.
    let is_nicer = |a: i32, b: i32| a < b || b == 19;
    let [batch, interactive, stream] =
        [QueryClass::Batch, QueryClass::Interactive, QueryClass::Stream].map(seen);
    assert!(
        is_nicer(stream.1, interactive.1) && is_nicer(interactive.1, batch.1),
        "{stream:?} {interactive:?} {batch:?}"
    );
    assert_eq!(
        [stream, interactive, batch].map(|seen| seen.0 == idle),
        [false; 3]
    );
    // Beside what is more urgent.
    assert_eq!(seen(QueryClass::Batch).0, idle);
    cpu.set_policy(SchedulerPolicy::Fifo);
    assert_eq!(seen(QueryClass::Batch), stream);
    cpu.stop();
}

/// What a task holds counts for its worker until it ends, whoever gives it back.
#[test]
fn what_a_task_holds_is_its_workers() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let record = Arc::new(TaskRecord::new(Work::new(QueryClass::Batch), None));
    let (sender, receiver) = futures::channel::oneshot::channel::<()>();
    let (held, begun) = mpsc::channel();
    let task = cpu.spawn_recorded::<_, ResourceError>(Arc::clone(&record), move |_| {
        async move {
            holds(1_000);
            releases(300);
            held.send(()).unwrap();
            let _ = receiver.await;
            Ok(())
        }
        .boxed()
    });
    begun.recv().unwrap();
    assert_eq!((cpu.held(), record.status().held), (700, 700));
    // Another one gives back more than it has.
    let other = cpu.spawn::<_, ResourceError>(QueryClass::Batch, |_| {
        async {
            releases(500);
            Ok(())
        }
        .boxed()
    });
    futures::executor::block_on(other).unwrap();
    assert_eq!(cpu.held(), 700);
    // Outside of a task nobody holds anything.
    holds(5);
    assert_eq!(cpu.held(), 700);
    drop(sender);
    futures::executor::block_on(task).unwrap();
    assert_eq!((cpu.held(), record.status().held), (0, 0));
    cpu.stop();
}

/// While memory is short a batch task begins only when none is on a slot.
#[test]
fn batch_tasks_begin_one_by_one_while_memory_is_short() {
    let cpu = CpuScheduler::start(2, None).unwrap();
    let memory = Memory::new(Some(100 << 20), Resident::Unknown);
    let account = memory.account(Holder::Relation(RelationId(1)), "v");
    let _state = account.charge(Use::State, 95 << 20);
    assert!(memory.is_short());
    cpu.watch(&memory);
    let (started, first_runs) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let first = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |_| {
        async move {
            started.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        }
        .boxed()
    });
    first_runs.recv().unwrap();
    let record = Arc::new(TaskRecord::new(Work::new(QueryClass::Batch), None));
    let second = cpu.spawn_recorded::<_, ResourceError>(Arc::clone(&record), |_| async { Ok(()) }.boxed());
    // There is a slot for others.
    let stream = cpu.spawn::<_, ResourceError>(QueryClass::Stream, |_| async { Ok(()) }.boxed());
    futures::executor::block_on(stream).unwrap();
    assert_eq!(record.status().state, TaskState::Ready);
    release.send(()).unwrap();
    futures::executor::block_on(async {
        first.await.unwrap();
        second.await.unwrap();
    });
    cpu.stop();
}

/// A poll that goes on until it is told to end, without a suspension point.
fn blocked(cpu: &CpuScheduler, class: QueryClass) -> (CpuTask<()>, mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let task = cpu.spawn::<_, ResourceError>(class, move |_| {
        async move {
            begun.send(()).unwrap();
            // An error: the test has let go of it.
            let _ = released.recv();
            Ok(())
        }
        .boxed()
    });
    begins.recv().unwrap();
    (task, release)
}

#[test]
fn polls_that_do_not_end_keep_nobody_of_their_class_waiting() {
    for class in QueryClass::ALL {
        let cpu = CpuScheduler::start(1, None).unwrap();
        let long: Vec<_> = (0..3).map(|_| blocked(&cpu, class)).collect();
        for _ in 0..5 {
            let answer = cpu.spawn::<_, ResourceError>(class, |_| async { Ok(7) }.boxed());
            assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
        }
        for (task, release) in long {
            release.send(()).unwrap();
            futures::executor::block_on(task).unwrap();
        }
        // The threads are as many as before, and of use.
        let answer = cpu.spawn::<_, ResourceError>(class, |_| async { Ok(7) }.boxed());
        assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
        cpu.stop();
    }
}

#[test]
fn a_scheduler_of_statements_has_threads_for_what_waited_too_long() {
    let cpu = CpuScheduler::start_without_streams(1, None).unwrap();
    for class in [QueryClass::Interactive, QueryClass::Batch] {
        let (long, release) = blocked(&cpu, class);
        let answer = cpu.spawn::<_, ResourceError>(class, |_| async { Ok(7) }.boxed());
        assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
        release.send(()).unwrap();
        futures::executor::block_on(long).unwrap();
    }
    // All are polled under every policy, whatever their class.
    for policy in [SchedulerPolicy::Fifo, SchedulerPolicy::default()] {
        cpu.set_policy(policy);
        for class in QueryClass::ALL {
            let answer = cpu.spawn::<_, ResourceError>(class, |_| async { Ok(7) }.boxed());
            assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
        }
    }
    cpu.stop();
}

#[test]
fn a_statement_does_not_wait_for_one_that_is_batch_work() {
    let cpu = CpuScheduler::start_without_streams(1, None).unwrap();
    let (batch, is_over, begins) = spinning(&cpu, QueryClass::Batch);
    begins.recv().unwrap();
    let answer = cpu.spawn::<_, ResourceError>(QueryClass::Interactive, |_| async { Ok(7) }.boxed());
    assert_eq!(futures::executor::block_on(answer).unwrap(), 7);
    is_over.store(true, Ordering::Relaxed);
    futures::executor::block_on(batch).unwrap();
    cpu.stop();
}

#[test]
fn a_stop_does_not_wait_for_a_poll_that_does_not_end() {
    let cpu = CpuScheduler::start(1, None).unwrap();
    let (long, release) = blocked(&cpu, QueryClass::Interactive);
    let (stream, is_over, begins) = spinning(&cpu, QueryClass::Stream);
    begins.recv().unwrap();
    is_over.store(true, Ordering::Relaxed);
    futures::executor::block_on(stream).unwrap();
    cpu.stop_without_long_polls();
    drop((long, release));
}

#[test]
fn what_waits_within_a_poll_is_not_busy() {
    let cpu = CpuScheduler::start(2, None).unwrap();
    let (waiting, release) = blocked(&cpu, QueryClass::Stream);
    let (beside, used) = mpsc::channel();
    let busy = cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |gate| {
        async move {
            while gate.busy() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            beside.send(gate.busy()).unwrap();
            Ok(())
        }
        .boxed()
    });
    futures::executor::block_on(busy).unwrap();
    release.send(()).unwrap();
    futures::executor::block_on(waiting).unwrap();
    cpu.retire();
    let (times, used) = (cpu.times(), used.recv().unwrap());
    let [stream, _, batch] = times.busy;
    assert!(used >= Duration::from_millis(20) && batch >= used, "{batch:?}");
    // It had its slot all the time, and the processor for as good as none of it.
    let held = times.poll[QueryClass::Stream as usize].sum;
    assert!(held >= Duration::from_millis(20), "{held:?}");
    assert!(stream < Duration::from_millis(10), "{stream:?}");
    assert_eq!(cpu.busy_ns(), (stream + batch).as_nanos() as u64);
}
