//! What queries get: DataFusion's memory pool, over that of the process.
//!
//! A query may have what nobody else has, up to the share of the limit at which memory is short. Operators that can write to
//! disk (sorts, aggregates, exchanges) share that evenly, less what those have that cannot: whoever wants more than its part
//! spills. Who cannot spill and finds nothing left fails, and its error says who holds what. Small queries are let through
//! until the limit itself is reached: so that one can look at what fills the memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

use crate::cpu::{holds, releases};
use crate::memory::{Account, Charge, Memory, SHORT_PERCENT, Use, size};

/// A query that has no more than this is a small one, in bytes and as a part of the limit.
const SMALL_BYTES: usize = 1 << 20;
const SMALL_PART: usize = 64;

/// What all queries of a tenant may have together.
#[derive(Debug)]
pub struct TenantMemory {
    /// What errors call it.
    name: String,
    limit_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
}

impl TenantMemory {
    pub fn new(name: String, limit_bytes: usize) -> TenantMemory {
        TenantMemory {
            name,
            limit_bytes: AtomicUsize::new(limit_bytes),
            used_bytes: AtomicUsize::new(0),
        }
    }

    /// Has another limit from now on; what is used stays.
    pub fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Takes so many bytes, unless that is too much.
    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let taken = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= limit)
            });
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The pool of one query.
#[derive(Debug)]
pub struct QueryMemory {
    account: Arc<Account>,
    tenant: Option<Arc<TenantMemory>>,
    /// Of the operators, now and at most, in bytes.
    held: AtomicUsize,
    held_max: AtomicUsize,
}

impl QueryMemory {
    /// The memory of one query: as DataFusion's pool in the query's context.
    pub fn new(memory: &Arc<Memory>) -> Arc<QueryMemory> {
        Self::of_tenant(memory, None)
    }

    /// The same, of which there is not more than its tenant may have.
    pub fn of_tenant(memory: &Arc<Memory>, tenant: Option<Arc<TenantMemory>>) -> Arc<QueryMemory> {
        let account = memory.account_of_query();
        Arc::new(QueryMemory {
            account,
            tenant,
            held: AtomicUsize::new(0),
            held_max: AtomicUsize::new(0),
        })
    }

    /// What errors and statistics call the query.
    pub fn set_name(&self, name: String) {
        self.account.set_name(name);
    }

    /// The most that its operators held at once, in bytes: tables of joins, groups, rows to be sorted, rows between its stages.
    pub fn held_max(&self) -> usize {
        self.held_max.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) {
        self.account.grow(Use::Query, bytes);
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.held_max.fetch_max(held, Ordering::Relaxed);
        holds(bytes);
    }

    /// Rows that wait for the client.
    pub fn result(&self, bytes: usize) -> Charge {
        self.account.charge(Use::Result, bytes)
    }

    fn memory(&self) -> &Memory {
        self.account.memory()
    }

    fn refuse(&self, reservation: &MemoryReservation, bytes: usize) -> DataFusionError {
        self.memory().queries_refused.fetch_add(1, Ordering::Relaxed);
        DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} exceeded memory_limit (it needs {} more and has {}): {}",
            reservation.consumer().name(),
            size(bytes),
            size(reservation.size()),
            self.memory().shown()
        ))
    }
}

impl QueryMemory {
    /// That the tenant has not so much more.
    fn refuse_tenant(
        &self,
        tenant: &TenantMemory,
        reservation: &MemoryReservation,
        bytes: usize,
    ) -> DataFusionError {
        self.memory().queries_refused.fetch_add(1, Ordering::Relaxed);
        DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} exceeded the memory_limit of role \"{}\" (it needs {} more, and the role's queries have {} of {})",
            reservation.consumer().name(),
            tenant.name,
            size(bytes),
            size(tenant.used_bytes.load(Ordering::Relaxed)),
            size(tenant.limit_bytes.load(Ordering::Relaxed))
        ))
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "millrace"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.memory().shares.lock().spilling += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.memory().shares.lock().spilling -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if let Some(tenant) = &self.tenant {
            tenant.used_bytes.fetch_add(additional, Ordering::Relaxed);
        }
        *self.memory().shares.lock().bytes(reservation) += additional;
        self.take(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if let Some(tenant) = &self.tenant {
            tenant.give_back(shrink);
        }
        *self.memory().shares.lock().bytes(reservation) -= shrink;
        self.account.shrink(Use::Query, shrink);
        self.held.fetch_sub(shrink, Ordering::Relaxed);
        releases(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if let Some(tenant) = &self.tenant
            && !tenant.take(additional)
        {
            return Err(self.refuse_tenant(tenant, reservation, additional));
        }
        let memory = self.memory();
        let mut shares = memory.shares.lock();
        let queries = shares.spillable + shares.unspillable;
        let others = memory.used().saturating_sub(queries);
        let available = memory.percent(SHORT_PERCENT).saturating_sub(others);
        let is_given = if reservation.consumer().can_spill() {
            let shared = available.saturating_sub(shares.unspillable);
            reservation.size().saturating_add(additional) <= shared / shares.spilling.max(1)
        } else {
            queries.saturating_add(additional) <= available
        };
        let small = SMALL_BYTES.min(memory.percent(100) / SMALL_PART);
        let is_small = self.account.total().saturating_add(additional) <= small
            && memory.used().saturating_add(additional) <= memory.percent(100);
        if !is_given && !is_small {
            drop(shares);
            if let Some(tenant) = &self.tenant {
                tenant.give_back(additional);
            }
            return Err(self.refuse(reservation, additional));
        }
        *shares.bytes(reservation) += additional;
        self.take(additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.account.total()
    }

    fn memory_limit(&self) -> MemoryLimit {
        match self.memory().status().limit {
            Some(limit) => MemoryLimit::Finite(limit),
            None => MemoryLimit::Infinite,
        }
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "millrace(of {})", self.account.name())
    }
}
