//! The machines that are kept between two batches of rows. One engine for a database.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryPool;
use millrace_postgres::error::SqlResult;
use parking_lot::Mutex;

use crate::limits::Limits;
use crate::program::Program;

/// See the module.
pub struct Engine {
    limits: Mutex<Limits>,
    #[cfg_attr(
        not(feature = "engine"),
        expect(dead_code, reason = "nothing takes memory without the engine")
    )]
    pool: Arc<dyn MemoryPool>,
    #[cfg(feature = "engine")]
    idle: Mutex<Vec<kept::Idle>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// An engine whose machines take their memory in this pool.
    pub fn new(pool: Arc<dyn MemoryPool>) -> Arc<Engine> {
        Arc::new(Engine {
            limits: Mutex::default(),
            pool,
            #[cfg(feature = "engine")]
            idle: Mutex::default(),
        })
    }

    /// Sets the limits of the calls that begin from now on.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    pub fn limits(&self) -> Limits {
        self.limits.lock().clone()
    }

    /// Refuses a text that is no program.
    ///
    /// # Errors
    /// It is none; or this build has no engine.
    pub fn check(&self, program: &Program) -> SqlResult<()> {
        #[cfg(feature = "engine")]
        return crate::machine::Machine::check(program, &self.limits());
        #[cfg(not(feature = "engine"))]
        {
            let _ = program;
            Err(without_engine())
        }
    }
}

/// The error of a build without the engine.
#[cfg(not(feature = "engine"))]
pub(crate) fn without_engine() -> millrace_postgres::error::SqlError {
    millrace_postgres::error::SqlError::unsupported("LANGUAGE javascript is not supported by this build")
        .with_hint("It was built without the feature \"javascript\".")
}

#[cfg(feature = "engine")]
mod kept {
    //! Machines between two batches of rows.

    use datafusion::error::Result;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

    use super::{Engine, Limits};
    use crate::machine::Machine;
    use crate::program::Keyed;

    /// Machines that are kept for later.
    const IDLE_MAX: usize = 64;
    /// One that holds more is not kept.
    const KEPT_BYTES_MAX: usize = 8 << 20;
    /// What a machine holds before it has done anything.
    const NEW_BYTES: usize = 1 << 20;

    /// Uses of a machine between two looks at what it holds, which take longer than a short call.
    const USES: u32 = 64;

    pub struct Idle {
        program: Keyed,
        limits: Limits,
        machine: Machine,
        memory: MemoryReservation,
        uses: u32,
    }

    impl Engine {
        /// Runs something in a machine of a program. One in which something failed is not used again.
        ///
        /// # Errors
        /// There is no memory for a machine, or what runs fails.
        pub(crate) fn with<T>(
            &self,
            program: &Keyed,
            run: impl FnOnce(&Machine, &Limits) -> Result<T>,
        ) -> Result<T> {
            let limits = self.limits();
            let found = {
                let mut idle = self.idle.lock();
                let place = idle
                    .iter()
                    .rposition(|kept| kept.program == *program && kept.limits == limits);
                place.map(|place| idle.remove(place))
            };
            let mut taken = match found {
                Some(found) => found,
                None => {
                    let memory = MemoryConsumer::new("javascript").register(&self.pool);
                    memory.try_grow(NEW_BYTES)?;
                    Idle {
                        program: program.clone(),
                        machine: Machine::new(&program.program, &limits)?,
                        limits,
                        memory,
                        uses: 0,
                    }
                }
            };
            let made = run(&taken.machine, &taken.limits)?;
            taken.uses += 1;
            let is_kept = !taken.uses.is_multiple_of(USES) || {
                let mut bytes = taken.machine.memory_bytes();
                if bytes > KEPT_BYTES_MAX {
                    taken.machine.collect();
                    bytes = taken.machine.memory_bytes();
                }
                bytes <= KEPT_BYTES_MAX && taken.memory.try_resize(bytes.max(NEW_BYTES)).is_ok()
            };
            if is_kept {
                let mut idle = self.idle.lock();
                // The one that was not used for longest is the first.
                let gone = (idle.len() >= IDLE_MAX).then(|| idle.remove(0));
                idle.push(taken);
                drop(idle);
                drop(gone);
            }
            Ok(made)
        }
    }
}
