//! How epochs are cut and grouped, how the cores are shared, and what a write survives: settings of the whole server, which ALTER SYSTEM changes
//! while views run.
//!
//! What ALTER SYSTEM sets lasts, as facts of the catalog, and goes before the configuration until ALTER SYSTEM RESET.

use std::fmt::Display;
use std::time::Duration;

use millrace_engine::CutTimes;
use millrace_javascript::Limits;
use millrace_postgres::units;
use millrace_resource::memory::machine_bytes;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::queue::Patience;
use millrace_schedule::driver::Spread;
use millrace_schedule::group_size::{GROUP_MAX, GroupSize};
use millrace_storage::Durability;

/// The settings' names.
pub const NAMES: [&str; 17] = [
    "access_control",
    "batch_interval",
    "checkpoint_interval",
    "durability",
    "flush_writes",
    "freshness_target",
    "group_overhead_bounds",
    "group_size",
    "javascript_call_timeout",
    "javascript_memory",
    "log_min_duration_statement",
    "memory_limit",
    "pipeline_spread",
    "recovery_reads",
    "scheduler_policy",
    "suspension_max",
    "undisturbed_time",
];

const AUTO: &str = "auto";
const ALL: &str = "all";
const OFF: &str = "off";
const ON: &str = "on";
const NONE: &str = "none";
/// Replaying what comes in so long takes about a second.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
/// The share of the machine's memory that an automatic limit is, in percent.
const MEMORY_PERCENT: u64 = 70;
/// With less nothing useful runs.
const MEMORY_LIMIT_MIN: u64 = 1 << 20;
/// With less an engine does not start.
const JAVASCRIPT_BYTES_MIN: usize = 4 << 20;
const JAVASCRIPT_BYTES_MAX: usize = 1 << 30;
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// How epochs are cut and grouped, and how the cores are shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Whether roles may do only what they have privileges for.
    pub access_control: bool,
    /// Time between two epochs of a pipeline; `None`: as soon as there is input.
    pub batch_interval: Option<Duration>,
    /// Time between two checkpoints of a pipeline that moves on; `None`: there are none.
    pub checkpoint_interval: Option<Duration>,
    /// What reads see after a start, until the logs are replayed.
    pub recovery_reads: RecoveryReads,
    /// What an acknowledged write survives, where its stream or table does not say otherwise.
    pub durability: Durability,
    /// Whether what queries spill and the blocks of checkpoints wait for the device, or for the system's cache alone. What
    /// checkpoints and sinks promise is the same.
    pub flush_writes: bool,
    /// How old what readers see may be of views that do not say it; `None`: as fresh as can be.
    pub freshness_target: Option<Duration>,
    /// Epochs of a group; `None`: so many that coordination stays within the bounds.
    pub group_size: Option<u64>,
    /// The share of coordination in the time, in percent, between which an automatic group size keeps it.
    pub group_overhead_bounds: (f64, f64),
    /// How long one call of a function in JavaScript may run, and what one engine may hold.
    pub javascript: Limits,
    /// Statements that run for so long are logged; `None`: none are.
    pub log_min_duration_statement: Option<Duration>,
    /// Memory of the process, in bytes; `None`: a share of the machine's.
    pub memory_limit: Option<u64>,
    /// Over how many workers the views of a pipeline are spread.
    pub pipeline_spread: Spread,
    /// Who goes first on a core, and who is paused for whom.
    pub scheduler_policy: SchedulerPolicy,
    /// How long work waits for more urgent work at most.
    pub suspension_max: Duration,
    /// How long it then runs without being paused.
    pub undisturbed_time: Duration,
}

/// What reads see after a start, until what the logs have behind the last checkpoints is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecoveryReads {
    /// Nothing: no connection is accepted before that.
    #[default]
    Wait,
    /// The checkpoints, at one epoch for each pipeline.
    Checkpoint,
}

impl Default for Tuning {
    fn default() -> Self {
        let patience = Patience::default();
        Tuning {
            access_control: false,
            batch_interval: None,
            checkpoint_interval: Some(CHECKPOINT_INTERVAL),
            recovery_reads: RecoveryReads::default(),
            durability: Durability::default(),
            flush_writes: true,
            freshness_target: None,
            group_size: None,
            group_overhead_bounds: (5.0, 10.0),
            javascript: Limits::default(),
            log_min_duration_statement: None,
            memory_limit: None,
            pipeline_spread: Spread::default(),
            scheduler_policy: SchedulerPolicy::default(),
            suspension_max: Duration::from_nanos(patience.wait_ns_max),
            undisturbed_time: Duration::from_nanos(patience.undisturbed_ns),
        }
    }
}

impl Tuning {
    /// The value of a setting as text; `None`: it is none of these.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "access_control" => if self.access_control { ON } else { OFF }.to_owned(),
            "batch_interval" => or_auto(self.batch_interval.map(duration_text)),
            "checkpoint_interval" => (self.checkpoint_interval).map_or_else(|| OFF.to_owned(), duration_text),
            "recovery_reads" => match self.recovery_reads {
                RecoveryReads::Wait => "wait".to_owned(),
                RecoveryReads::Checkpoint => "checkpoint".to_owned(),
            },
            "durability" => self.durability.to_string(),
            "flush_writes" => if self.flush_writes { ON } else { OFF }.to_owned(),
            "freshness_target" => (self.freshness_target).map_or_else(|| NONE.to_owned(), duration_text),
            "group_size" => or_auto(self.group_size),
            "group_overhead_bounds" => {
                let (lower, upper) = self.group_overhead_bounds;
                format!("{lower}%,{upper}%")
            }
            "javascript_call_timeout" => duration_text(self.javascript.call_time),
            "javascript_memory" => units::size_text(self.javascript.memory_bytes as u64),
            "log_min_duration_statement" => match self.log_min_duration_statement {
                None => "-1".to_owned(),
                Some(Duration::ZERO) => "0".to_owned(),
                Some(duration) => duration_text(duration),
            },
            "memory_limit" => or_auto(self.memory_limit.map(units::size_text)),
            "pipeline_spread" => match self.pipeline_spread {
                Spread::Auto { .. } => AUTO.to_owned(),
                Spread::All => ALL.to_owned(),
            },
            "scheduler_policy" => self.scheduler_policy.to_string(),
            "suspension_max" => duration_text(self.suspension_max),
            "undisturbed_time" => duration_text(self.undisturbed_time),
            _ => return None,
        })
    }

    /// Sets one of [`NAMES`].
    ///
    /// # Errors
    /// The text is not a value of the setting; the error says what is.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let text = text.trim();
        let is_auto = text.eq_ignore_ascii_case(AUTO);
        match name {
            "batch_interval" if is_auto => self.batch_interval = None,
            "batch_interval" => {
                let interval = time(text).ok_or_else(|| {
                    "auto, or a time from 1ms to 1h with its unit, such as 100ms".to_owned()
                })?;
                self.batch_interval = Some(interval);
            }
            "checkpoint_interval" if text.eq_ignore_ascii_case(OFF) => self.checkpoint_interval = None,
            "checkpoint_interval" => {
                let interval = time(text)
                    .ok_or_else(|| "off, or a time from 1ms to 1h with its unit, such as 10s".to_owned())?;
                self.checkpoint_interval = Some(interval);
            }
            "recovery_reads" if text.eq_ignore_ascii_case("wait") => {
                self.recovery_reads = RecoveryReads::Wait
            }
            "recovery_reads" if text.eq_ignore_ascii_case("checkpoint") => {
                self.recovery_reads = RecoveryReads::Checkpoint;
            }
            "recovery_reads" => return Err("wait or checkpoint".to_owned()),
            "durability" => {
                self.durability = text
                    .to_ascii_lowercase()
                    .parse()
                    .map_err(|()| "fsync, group or off".to_owned())?;
            }
            "access_control" if text.eq_ignore_ascii_case(ON) => self.access_control = true,
            "access_control" if text.eq_ignore_ascii_case(OFF) => self.access_control = false,
            "access_control" => return Err("on or off".to_owned()),
            "flush_writes" if text.eq_ignore_ascii_case(ON) => self.flush_writes = true,
            "flush_writes" if text.eq_ignore_ascii_case(OFF) => self.flush_writes = false,
            "flush_writes" => return Err("on or off".to_owned()),
            "freshness_target" if text.eq_ignore_ascii_case(NONE) => self.freshness_target = None,
            "freshness_target" => {
                let target = time(text)
                    .ok_or_else(|| "none, or a time from 1ms to 1h with its unit, such as 50ms".to_owned())?;
                self.freshness_target = Some(target);
            }
            "scheduler_policy" => {
                self.scheduler_policy = text
                    .parse()
                    .map_err(|_| "lma, lb, fifo, fair or kill".to_owned())?;
            }
            "suspension_max" | "undisturbed_time" => {
                let time = time(text)
                    .ok_or_else(|| "a time from 1ms to 1h with its unit, such as 100ms".to_owned())?;
                match name {
                    "suspension_max" => self.suspension_max = time,
                    _ => self.undisturbed_time = time,
                }
            }
            "group_size" if is_auto => self.group_size = None,
            "group_size" => match text.parse() {
                Ok(size) if (1..=GROUP_MAX).contains(&size) => self.group_size = Some(size),
                _ => {
                    return Err(format!("auto, or a whole number from 1 to {GROUP_MAX}"));
                }
            },
            "javascript_call_timeout" => {
                self.javascript.call_time = time(text)
                    .ok_or_else(|| "a time from 1ms to 1h with its unit, such as 100ms".to_owned())?;
            }
            "javascript_memory" => match units::size(text).map(usize::try_from) {
                Ok(Ok(bytes)) if (JAVASCRIPT_BYTES_MIN..=JAVASCRIPT_BYTES_MAX).contains(&bytes) => {
                    self.javascript.memory_bytes = bytes;
                }
                _ => return Err("a size from 4MB to 1GB with its unit, such as 64MB".to_owned()),
            },
            "log_min_duration_statement" if text == "-1" => self.log_min_duration_statement = None,
            "log_min_duration_statement" => {
                // As PostgreSQL: a number without a unit is one of milliseconds.
                let plain = text.parse().ok().map(Duration::from_millis);
                let duration = plain.or_else(|| units::duration(text).ok());
                let duration = duration.filter(|duration| duration.as_millis() <= i32::MAX as u128);
                self.log_min_duration_statement =
                    Some(duration.ok_or_else(|| "-1, or a time such as 250ms or 250; 0: all".to_owned())?);
            }
            "memory_limit" if is_auto => self.memory_limit = None,
            "memory_limit" => match units::size(text) {
                Ok(bytes) if bytes >= MEMORY_LIMIT_MIN => self.memory_limit = Some(bytes),
                _ => {
                    return Err("auto, or a size of at least 1MB with its unit, such as 600MB".to_owned());
                }
            },
            "pipeline_spread" if is_auto => self.pipeline_spread = Spread::default(),
            "pipeline_spread" if text.eq_ignore_ascii_case(ALL) => self.pipeline_spread = Spread::All,
            "pipeline_spread" => return Err("auto or all".to_owned()),
            "group_overhead_bounds" => {
                self.group_overhead_bounds = bounds(text).ok_or_else(|| {
                    "two percentages above 0% and below 100%, the lower one first, such as 5%,10%".to_owned()
                })?;
            }
            other => {
                return Err(format!("the name of a server setting, which {other} is not"));
            }
        }
        Ok(())
    }

    /// The memory that the process may take, in bytes; none if that is not known.
    pub fn memory_limit_bytes(&self) -> Option<usize> {
        let machine = || machine_bytes().map(|bytes| bytes / 100 * MEMORY_PERCENT);
        let bytes = self.memory_limit.or_else(machine)?;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// How long work may be kept waiting.
    pub fn patience(&self) -> Patience {
        Patience {
            wait_ns_max: self.suspension_max.as_nanos() as u64,
            undisturbed_ns: self.undisturbed_time.as_nanos() as u64,
            ..Patience::default()
        }
    }

    /// When epochs are cut.
    pub fn cut_times(&self) -> CutTimes {
        CutTimes {
            interval: self.batch_interval,
            freshness: self.freshness_target,
        }
    }

    /// What the driver goes by.
    pub fn groups(&self) -> GroupSize {
        let (lower, upper) = self.group_overhead_bounds;
        match self.group_size {
            Some(size) => GroupSize::Fixed(size),
            None => GroupSize::Auto {
                lower: lower / 100.0,
                upper: upper / 100.0,
            },
        }
    }
}

/// A time that is neither too short nor too long.
fn time(text: &str) -> Option<Duration> {
    let time = units::duration(text).ok()?;
    (INTERVAL_MIN..=INTERVAL_MAX).contains(&time).then_some(time)
}

fn or_auto(value: Option<impl Display>) -> String {
    value.map_or_else(|| AUTO.to_owned(), |value| value.to_string())
}

/// In the largest unit in which it is whole.
fn duration_text(duration: Duration) -> String {
    match duration.as_micros() {
        micros if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        micros if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        micros => format!("{micros}us"),
    }
}

/// `5%,10%`.
fn bounds(text: &str) -> Option<(f64, f64)> {
    let (lower, upper) = text.split_once(',')?;
    let percent = |text: &str| -> Option<f64> { text.trim().strip_suffix('%')?.trim_end().parse().ok() };
    let (lower, upper) = (percent(lower)?, percent(upper)?);
    (0.0 < lower && lower < upper && upper < 100.0).then_some((lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_shown() {
        let mut tuning = Tuning::default();
        for (name, text, shown) in [
            ("batch_interval", "100ms", "100ms"),
            ("batch_interval", " 2 s", "2s"),
            ("batch_interval", "1500us", "1500us"),
            ("batch_interval", "AUTO", "auto"),
            ("freshness_target", "50 ms", "50ms"),
            ("freshness_target", "None", "none"),
            ("checkpoint_interval", "200ms", "200ms"),
            ("checkpoint_interval", "OFF", "off"),
            ("recovery_reads", "Checkpoint", "checkpoint"),
            ("recovery_reads", "wait", "wait"),
            ("durability", "OFF", "off"),
            ("durability", "group", "group"),
            ("access_control", "ON", "on"),
            ("access_control", "off", "off"),
            ("flush_writes", "OFF", "off"),
            ("flush_writes", "on", "on"),
            ("group_size", "25", "25"),
            ("group_size", "auto", "auto"),
            ("group_overhead_bounds", "2.5%, 20 %", "2.5%,20%"),
            ("javascript_call_timeout", "1 s", "1s"),
            ("javascript_memory", "32 MB", "32MB"),
            ("log_min_duration_statement", "250", "250ms"),
            ("log_min_duration_statement", "2 s", "2s"),
            ("log_min_duration_statement", "0", "0"),
            ("log_min_duration_statement", "-1", "-1"),
            ("memory_limit", "1536 MB", "1536MB"),
            ("memory_limit", "2GB", "2GB"),
            ("memory_limit", "auto", "auto"),
            ("pipeline_spread", "All", "all"),
            ("pipeline_spread", "auto", "auto"),
            ("scheduler_policy", "FIFO", "fifo"),
            ("suspension_max", "2500ms", "2500ms"),
            ("undisturbed_time", "20ms", "20ms"),
        ] {
            tuning.set(name, text).unwrap();
            assert_eq!(tuning.get(name).as_deref(), Some(shown), "{text}");
        }
        assert_eq!(
            tuning.groups(),
            GroupSize::Auto {
                lower: 0.025,
                upper: 0.2
            }
        );
        assert_eq!(tuning.get("work_mem"), None);
    }

    #[test]
    fn other_values_are_refused_and_change_nothing() {
        let mut tuning = Tuning::default();
        for (name, texts) in [
            ("batch_interval", &["", "5", "0ms", "2h", "never"][..]),
            ("freshness_target", &["", "5", "0ms", "2h", "off"][..]),
            ("log_min_duration_statement", &["", "-2", "off", "100000h"][..]),
            ("checkpoint_interval", &["", "auto", "10", "0s", "2h"][..]),
            ("recovery_reads", &["", "off", "now"][..]),
            ("durability", &["", "on", "fsync,group"][..]),
            ("access_control", &["", "auto", "1"][..]),
            ("flush_writes", &["", "auto", "1"][..]),
            ("memory_limit", &["", "0", "1kB", "all"][..]),
            ("pipeline_spread", &["", "0", "some"][..]),
            ("scheduler_policy", &["", "lifo", "lma,fifo"][..]),
            ("suspension_max", &["", "auto", "0ms", "-1s"][..]),
            ("undisturbed_time", &["10", "2h"][..]),
            ("group_size", &["0", "10001", "-1", "1.5", "many"][..]),
            (
                "group_overhead_bounds",
                &[
                    "5,10",
                    "10%,5%",
                    "5%",
                    "0%,5%",
                    "5%,100%",
                    "5%,NaN%",
                    "5%,10%,20%",
                ][..],
            ),
            ("work_mem", &["1MB"][..]),
        ] {
            for text in texts {
                assert!(tuning.set(name, text).is_err(), "{name} {text}");
            }
        }
        assert_eq!(tuning, Tuning::default());
    }
}
