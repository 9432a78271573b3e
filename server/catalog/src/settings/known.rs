//! The settings that there are: their names, values at the start, what they may be, and what they do.

use millrace_postgres::SERVER_VERSION;

use super::form::Form;
pub use super::form::Known;
pub use super::harmless::HARMLESS;
use crate::flow;

impl Known {
    /// What it is about.
    pub fn category(&self) -> &'static str {
        match self.form {
            Form::Server => "Server",
            Form::Fixed => "Preset Options",
            _ if HARMLESS.iter().any(|harmless| harmless.name == self.name) => "Without Effect",
            _ => "Session",
        }
    }
}

pub(super) const fn known(
    name: &'static str,
    default: &'static str,
    form: Form,
    description: &'static str,
) -> Known {
    Known {
        name,
        default,
        form,
        description,
    }
}

/// Every setting, by name.
pub const KNOWN: &[Known] = &[
    known(
        "access_control",
        "off",
        Form::Server,
        "Whether roles may do only what they have privileges for.",
    ),
    known(
        "application_name",
        "",
        Form::Text,
        "What the client calls itself.",
    ),
    known(
        "background_ddl",
        "off",
        Form::Boolean,
        "Whether CREATE MATERIALIZED VIEW returns before the view is filled.",
    ),
    known(
        "backfill_rate_limit",
        "default",
        Form::Text,
        "Maximum number of rows per second that a back-fill reads.",
    ),
    known(
        "batch_interval",
        "auto",
        Form::Server,
        "Time between two epochs of a pipeline.",
    ),
    known(
        "bytea_output",
        "hex",
        Form::OneOf(&["hex"]),
        "How bytea is written.",
    ),
    known(
        "check_function_bodies",
        "on",
        Form::Boolean,
        "Accepted for drivers.",
    ),
    known(
        "checkpoint_interval",
        "10s",
        Form::Server,
        "How often checkpoints are written, from which the next start resumes.",
    ),
    known(
        "client_encoding",
        "UTF8",
        Form::Text,
        "The encoding of the client: always UTF8.",
    ),
    known(
        "client_min_messages",
        "notice",
        Form::OneOf(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error",
        ]),
        "The lowest severity of messages that are sent to the client.",
    ),
    known(
        "cyclic_joins",
        "auto",
        Form::OneOf(&["auto", "binary", "generic"]),
        "How queries join cycles of relations: all at once, with binary joins, or whichever fits their \
         sizes.",
    ),
    known(
        "default_table_access_method",
        "heap",
        Form::OneOf(&["heap"]),
        "Accepted for drivers.",
    ),
    known(
        "default_tablespace",
        "",
        Form::OneOf(&["", "pg_default"]),
        "Accepted for drivers.",
    ),
    known(
        "default_transaction_deferrable",
        "off",
        Form::Boolean,
        "Accepted for drivers.",
    ),
    known(
        "DateStyle",
        "ISO, MDY",
        Form::Text,
        "How dates are written: always ISO.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Form::OneOf(&["read committed", "read uncommitted"]),
        "The isolation of new transactions.",
    ),
    known(
        "default_transaction_read_only",
        "off",
        Form::Boolean,
        "Whether new transactions are read-only.",
    ),
    known(
        "durability",
        "group",
        Form::Server,
        "What an acknowledged write survives.",
    ),
    known(
        "escape_string_warning",
        "on",
        Form::Boolean,
        "Accepted for drivers.",
    ),
    known(
        "extra_float_digits",
        "1",
        Form::Integer,
        "Accepted for drivers: floats are always written exactly.",
    ),
    known(
        "flush_writes",
        "on",
        Form::Server,
        "Whether spilled files and checkpoints are written through to the device.",
    ),
    known(
        "freshness_target",
        "none",
        Form::Server,
        "How old what readers see of a view may be that does not say it.",
    ),
    known(
        flow::BATCHES,
        "auto",
        Form::Flow,
        "Batches that a task of a new view may have in flight where rows multiply, or off.",
    ),
    known(flow::BATCH_ROWS, "auto", Form::Flow, "Rows of such a batch."),
    known(
        "group_overhead_bounds",
        "5%,10%",
        Form::Server,
        "Bounds for the coordination overhead, within which an automatic group size keeps it.",
    ),
    known(
        "group_size",
        "auto",
        Form::Server,
        "Epochs that are scheduled together (group size).",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Form::Duration,
        "How long a session may be idle inside a transaction before it is ended; 0: no limit.",
    ),
    known(
        "idle_session_timeout",
        "0",
        Form::Duration,
        "How long a session may be idle outside of a transaction before it is ended; 0: no limit.",
    ),
    known(
        "in_hot_standby",
        "off",
        Form::Fixed,
        "Whether the server is read-only.",
    ),
    known(
        "integer_datetimes",
        "on",
        Form::Fixed,
        "Times are stored as integers.",
    ),
    known(
        "IntervalStyle",
        "postgres",
        Form::OneOf(&["postgres"]),
        "How intervals are written.",
    ),
    known(
        "is_superuser",
        "on",
        Form::Fixed,
        "Whether the user is a superuser.",
    ),
    known("jit", "off", Form::Boolean, "Accepted for drivers."),
    known(
        "lc_collate",
        "C",
        Form::Fixed,
        "How texts are compared: byte by byte.",
    ),
    known(
        "lc_ctype",
        "C.UTF-8",
        Form::Fixed,
        "Which characters are letters.",
    ),
    known(
        "lock_timeout",
        "0",
        Form::Duration,
        "How long a statement waits for a lock; 0: no limit.",
    ),
    known(
        "max_index_keys",
        "32",
        Form::Fixed,
        "Maximum number of index columns that clients should expect.",
    ),
    known(
        "javascript_call_timeout",
        "100ms",
        Form::Server,
        "How much processor time one call of a function in JavaScript may take.",
    ),
    known(
        "javascript_memory",
        "64MB",
        Form::Server,
        "How much memory one engine for JavaScript may hold.",
    ),
    known(
        "log_min_duration_statement",
        "-1",
        Form::Server,
        "Statements that run for so long are logged, in milliseconds or with a unit; 0: all, -1: none.",
    ),
    known(
        "max_identifier_length",
        "63",
        Form::Fixed,
        "Maximum length of a name that clients should expect.",
    ),
    known(
        "memory_limit",
        "auto",
        Form::Server,
        "Memory limit of the process; auto: 70 % of the machine's memory.",
    ),
    known(
        "password_encryption",
        "scram-sha-256",
        Form::OneOf(&["scram-sha-256"]),
        "How passwords are kept.",
    ),
    known(
        "pg_stat_statements.max",
        "5000",
        Form::Fixed,
        "Statements that pg_stat_statements keeps.",
    ),
    known(
        "pipeline_spread",
        "auto",
        Form::Server,
        "Workers over which the views of a pipeline are spread.",
    ),
    known(
        "query_priority",
        "interactive",
        Form::OneOf(&["stream", "interactive", "batch"]),
        "The class in which queries are scheduled.",
    ),
    known(
        "read_consistency",
        "acknowledged",
        Form::OneOf(&["acknowledged", "snapshot"]),
        "Whether a query waits until views include all acknowledged writes, or reads the last committed \
         epoch.",
    ),
    known("row_security", "on", Form::Boolean, "Accepted for drivers."),
    known(
        "recovery_reads",
        "wait",
        Form::Server,
        "What reads return after a start until the log is replayed.",
    ),
    known(
        "scheduler_policy",
        "lma",
        Form::Server,
        "How tasks are scheduled on cores, and which are suspended for which.",
    ),
    known(
        "search_path",
        "\"$user\", public",
        Form::Text,
        "The schemas in which names are looked for.",
    ),
    known(
        "server_encoding",
        "UTF8",
        Form::Fixed,
        "The encoding of the server.",
    ),
    known(
        "server_version",
        SERVER_VERSION,
        Form::Fixed,
        "The version of PostgreSQL that millrace follows.",
    ),
    known(
        "server_version_num",
        "150000",
        Form::Fixed,
        "The same as a number.",
    ),
    known(
        "role",
        "none",
        Form::Fixed,
        "As whom the session acts, if that is not its user.",
    ),
    known(
        "session_authorization",
        "millrace",
        Form::Fixed,
        "The user of the session.",
    ),
    known(
        "sliding_windows",
        "panes",
        Form::OneOf(&["panes", "recompute"]),
        "How new views compute overlapping windows: from shared panes where possible, or each window by \
         itself.",
    ),
    known(
        "standard_conforming_strings",
        "on",
        Form::OneOf(&["on"]),
        "Backslashes in ordinary strings are ordinary characters.",
    ),
    known(
        "statement_timeout",
        "0",
        Form::Duration,
        "How long a statement may run; 0: no limit.",
    ),
    known(
        "subscription_buffer",
        "16MB",
        Form::Size,
        "How much of changes may wait for a client that follows a relation before its subscription ends.",
    ),
    known(
        "suspension_max",
        "1s",
        Form::Server,
        "The longest time that work waits for more urgent work.",
    ),
    known(
        "synchronous_commit",
        "on",
        Form::OneOf(&["local", "remote_write", "remote_apply", "on", "off"]),
        "Accepted for drivers: durability says what an acknowledged write survives.",
    ),
    known(
        "synchronize_seqscans",
        "on",
        Form::Boolean,
        "Accepted for drivers.",
    ),
    known(
        "TimeZone",
        "UTC",
        Form::Text,
        "The zone in which timestamptz is read and shown.",
    ),
    known(
        "transaction_isolation",
        "read committed",
        Form::OneOf(&["read committed", "read uncommitted"]),
        "The isolation of the transaction.",
    ),
    known(
        "transaction_read_only",
        "off",
        Form::Boolean,
        "Whether the transaction is read-only.",
    ),
    known(
        "undisturbed_time",
        "10ms",
        Form::Server,
        "How long work that has waited for suspension_max runs without being paused.",
    ),
    known(
        "write_timeout",
        "30s",
        Form::Duration,
        "How long a write waits while views are behind or memory is short (backpressure); 0: no limit.",
    ),
    known(
        "xmloption",
        "content",
        Form::OneOf(&["content", "document"]),
        "Accepted for drivers.",
    ),
];

/// The setting of that name, and whether it is one that has no effect.
pub fn find(name: &str) -> Option<(&'static Known, bool)> {
    let named = |known: &&Known| known.name.eq_ignore_ascii_case(name);
    let with_effect = KNOWN.iter().find(named).map(|known| (known, false));
    with_effect.or_else(|| HARMLESS.iter().find(named).map(|known| (known, true)))
}

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().chain(HARMLESS)
}
