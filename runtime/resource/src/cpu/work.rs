//! The work of a query, which its tasks do together: how urgent it is, for whom it is done, and how much of it was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use futures::task::AtomicWaker;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;

/// CPU time after which an interactive query counts as batch work.
const INTERACTIVE_CPU_MAX: Duration = Duration::from_millis(20);

/// What the tasks of one query share.
#[derive(Debug)]
pub struct Work {
    class: AtomicU8,
    /// For whom it is done.
    tenant: Tenant,
    /// It does not become batch work, however long it takes.
    keeps_class: bool,
    cpu_ns: AtomicU64,
    /// It may be told to start again, under [`millrace_schedule::cpu::policy::SchedulerPolicy::Kill`].
    may_restart: AtomicBool,
    /// It is to start again.
    is_killed: AtomicBool,
    killed: AtomicWaker,
}

impl Work {
    pub fn new(class: QueryClass) -> Arc<Work> {
        Self::with_class(class, false, Tenant::default())
    }

    /// Of a class that stays whatever it takes.
    pub fn keeping(class: QueryClass, tenant: Tenant) -> Arc<Work> {
        Self::with_class(class, true, tenant)
    }

    /// For a tenant.
    pub fn of_tenant(class: QueryClass, tenant: Tenant) -> Arc<Work> {
        Self::with_class(class, false, tenant)
    }

    fn with_class(class: QueryClass, keeps_class: bool, tenant: Tenant) -> Arc<Work> {
        Arc::new(Work {
            class: AtomicU8::new(class as u8),
            tenant,
            keeps_class,
            cpu_ns: AtomicU64::new(0),
            may_restart: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            killed: AtomicWaker::new(),
        })
    }

    /// For whom it is done.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Its class by now.
    pub fn class(&self) -> QueryClass {
        QueryClass::of_number(self.class.load(Ordering::Relaxed))
    }

    /// Time spent in polls of its tasks.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Whether it is to start again; if not yet, the waker is woken when it is.
    pub fn poll_killed(&self, context: &Context<'_>) -> bool {
        self.killed.register(context.waker());
        self.is_killed.load(Ordering::Acquire)
    }

    /// Whether it can start again: nobody has seen anything of it yet.
    pub fn set_restartable(&self, may_restart: bool) {
        self.may_restart.store(may_restart, Ordering::Release);
    }

    pub(super) fn kill(&self) {
        if self.may_restart.load(Ordering::Acquire) && !self.is_killed.swap(true, Ordering::AcqRel) {
            self.killed.wake();
        }
    }

    pub(super) fn ran(&self, time: Duration) {
        let total = self.cpu_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed) + time.as_nanos() as u64;
        let is_long = total > INTERACTIVE_CPU_MAX.as_nanos() as u64;
        if is_long && !self.keeps_class && self.class() == QueryClass::Interactive {
            self.class.store(QueryClass::Batch as u8, Ordering::Relaxed);
        }
    }
}
