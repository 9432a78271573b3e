//! What ALTER SYSTEM sets: kept for the next start, and told to what it is of.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::database::Database;
use crate::tuning::{NAMES, Tuning};

fn fact(name: &str) -> String {
    format!("setting/{name}")
}

impl Database {
    /// How epochs are cut and grouped now.
    pub fn tuning(&self) -> Tuning {
        self.tuning.lock().clone()
    }

    /// Puts what ALTER SYSTEM set earlier in place of the configuration.
    pub(super) fn restore_tuning(&self) -> SqlResult<()> {
        let mut tuning = self.options.tuning.clone();
        for name in NAMES {
            let Some(text) = self.store.catalog().fact(&fact(name))? else {
                continue;
            };
            let text = String::from_utf8_lossy(&text);
            if !text.is_empty()
                && let Err(allowed) = tuning.set(name, &text)
            {
                tracing::warn!(name, %text, allowed, "a setting of ALTER SYSTEM is no longer valid and is ignored");
            }
        }
        self.apply_tuning(tuning);
        Ok(())
    }

    /// Sets one of [`NAMES`] for good, or (`None`) leaves it to the configuration again.
    ///
    /// # Errors
    /// The value is not allowed, or it cannot be written down.
    pub fn alter_tuning(&self, name: &str, text: Option<&str>) -> SqlResult<()> {
        let mut tuning = self.tuning();
        let configured = self.options.tuning.get(name).unwrap_or_default();
        if let Err(allowed) = tuning.set(name, text.unwrap_or(&configured)) {
            let text = text.unwrap_or(&configured);
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("invalid value for parameter \"{name}\": \"{text}\""),
            )
            .with_hint(format!("It takes {allowed}.")));
        }
        let lasting = text.and_then(|_| tuning.get(name)).unwrap_or_default();
        self.store.catalog().put_fact(&fact(name), lasting.as_bytes())?;
        self.apply_tuning(tuning);
        Ok(())
    }

    fn apply_tuning(&self, tuning: Tuning) {
        let mut current = self.tuning.lock();
        self.store.logs().set_durability(tuning.durability);
        self.runtime.set_flushes_writes(tuning.flush_writes);
        if current.memory_limit != tuning.memory_limit {
            self.runtime.memory().set_limit(tuning.memory_limit_bytes());
        }
        self.javascript.set_limits(tuning.javascript.clone());
        if current.groups() != tuning.groups() {
            self.runtime.set_group_size(tuning.groups());
        }
        if current.pipeline_spread != tuning.pipeline_spread {
            self.runtime.set_spread(tuning.pipeline_spread);
        }
        if current.cut_times() != tuning.cut_times() {
            self.runtime.set_cut_times(tuning.cut_times());
        }
        self.runtime.set_checkpoint_interval(tuning.checkpoint_interval);
        self.runtime
            .set_policy(tuning.scheduler_policy, tuning.patience());
        *current = tuning;
    }
}
