//! The settings that there are: their names, values at the start, what they may be, and what they do.

use millrace_postgres::SERVER_VERSION;

use super::form::Form;
pub use super::form::Known;
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

const fn known(name: &'static str, default: &'static str, form: Form, description: &'static str) -> Known {
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

const fn harmless(name: &'static str, default: &'static str, form: Form) -> Known {
    known(name, default, form, "Of PostgreSQL; it has no effect here.")
}

/// Settings of PostgreSQL that change how fast it answers or what it writes into its log, and never an answer. They are
/// taken, so that scripts written for it run, and the client is told that they do nothing. Defaults are PostgreSQL's.
pub const HARMLESS: &[Known] = &[
    harmless("backend_flush_after", "0", Form::Quantity),
    harmless("commit_delay", "0", Form::Quantity),
    harmless("commit_siblings", "5", Form::Quantity),
    harmless(
        "compute_query_id",
        "auto",
        Form::OneOf(&["auto", "regress", "on", "off"]),
    ),
    harmless(
        "constraint_exclusion",
        "partition",
        Form::OneOf(&["partition", "on", "off"]),
    ),
    harmless("cpu_index_tuple_cost", "0.005", Form::Quantity),
    harmless("cpu_operator_cost", "0.0025", Form::Quantity),
    harmless("cpu_tuple_cost", "0.01", Form::Quantity),
    harmless("cursor_tuple_fraction", "0.1", Form::Quantity),
    harmless("deadlock_timeout", "1s", Form::Quantity),
    harmless("debug_pretty_print", "on", Form::Boolean),
    harmless("debug_print_parse", "off", Form::Boolean),
    harmless("debug_print_plan", "off", Form::Boolean),
    harmless("debug_print_rewritten", "off", Form::Boolean),
    harmless("default_statistics_target", "100", Form::Quantity),
    harmless("default_toast_compression", "pglz", Form::OneOf(&["pglz", "lz4"])),
    harmless("effective_cache_size", "4GB", Form::Quantity),
    harmless("effective_io_concurrency", "1", Form::Quantity),
    harmless("enable_async_append", "on", Form::Boolean),
    harmless("enable_bitmapscan", "on", Form::Boolean),
    harmless("enable_gathermerge", "on", Form::Boolean),
    harmless("enable_hashagg", "on", Form::Boolean),
    harmless("enable_hashjoin", "on", Form::Boolean),
    harmless("enable_incremental_sort", "on", Form::Boolean),
    harmless("enable_indexonlyscan", "on", Form::Boolean),
    harmless("enable_indexscan", "on", Form::Boolean),
    harmless("enable_material", "on", Form::Boolean),
    harmless("enable_memoize", "on", Form::Boolean),
    harmless("enable_mergejoin", "on", Form::Boolean),
    harmless("enable_nestloop", "on", Form::Boolean),
    harmless("enable_parallel_append", "on", Form::Boolean),
    harmless("enable_parallel_hash", "on", Form::Boolean),
    harmless("enable_partition_pruning", "on", Form::Boolean),
    harmless("enable_partitionwise_aggregate", "off", Form::Boolean),
    harmless("enable_partitionwise_join", "off", Form::Boolean),
    harmless("enable_seqscan", "on", Form::Boolean),
    harmless("enable_sort", "on", Form::Boolean),
    harmless("enable_tidscan", "on", Form::Boolean),
    harmless("from_collapse_limit", "8", Form::Quantity),
    harmless("geqo", "on", Form::Boolean),
    harmless("geqo_effort", "5", Form::Quantity),
    harmless("geqo_generations", "0", Form::Quantity),
    harmless("geqo_pool_size", "0", Form::Quantity),
    harmless("geqo_selection_bias", "2", Form::Quantity),
    harmless("geqo_threshold", "12", Form::Quantity),
    harmless("gin_fuzzy_search_limit", "0", Form::Quantity),
    harmless("gin_pending_list_limit", "4MB", Form::Quantity),
    harmless("hash_mem_multiplier", "2", Form::Quantity),
    harmless("jit_above_cost", "100000", Form::Quantity),
    harmless("jit_inline_above_cost", "500000", Form::Quantity),
    harmless("jit_optimize_above_cost", "500000", Form::Quantity),
    harmless("join_collapse_limit", "8", Form::Quantity),
    harmless("log_duration", "off", Form::Boolean),
    harmless(
        "log_error_verbosity",
        "default",
        Form::OneOf(&["terse", "default", "verbose"]),
    ),
    harmless("log_executor_stats", "off", Form::Boolean),
    harmless("log_lock_waits", "off", Form::Boolean),
    harmless("log_min_duration_sample", "-1", Form::Quantity),
    harmless(
        "log_min_error_statement",
        "error",
        Form::OneOf(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log",
            "fatal", "panic",
        ]),
    ),
    harmless(
        "log_min_messages",
        "warning",
        Form::OneOf(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log",
            "fatal", "panic",
        ]),
    ),
    harmless("log_parameter_max_length", "-1", Form::Quantity),
    harmless("log_parameter_max_length_on_error", "0", Form::Quantity),
    harmless("log_parser_stats", "off", Form::Boolean),
    harmless("log_planner_stats", "off", Form::Boolean),
    harmless("log_replication_commands", "off", Form::Boolean),
    harmless(
        "log_statement",
        "none",
        Form::OneOf(&["none", "ddl", "mod", "all"]),
    ),
    harmless("log_statement_sample_rate", "1", Form::Quantity),
    harmless("log_statement_stats", "off", Form::Boolean),
    harmless("log_temp_files", "-1", Form::Quantity),
    harmless("log_transaction_sample_rate", "0", Form::Quantity),
    harmless("maintenance_io_concurrency", "10", Form::Quantity),
    harmless("maintenance_work_mem", "64MB", Form::Quantity),
    harmless("max_parallel_maintenance_workers", "2", Form::Quantity),
    harmless("max_parallel_workers", "8", Form::Quantity),
    harmless("max_parallel_workers_per_gather", "2", Form::Quantity),
    harmless("max_stack_depth", "2MB", Form::Quantity),
    harmless("min_parallel_index_scan_size", "512kB", Form::Quantity),
    harmless("min_parallel_table_scan_size", "8MB", Form::Quantity),
    harmless("parallel_leader_participation", "on", Form::Boolean),
    harmless("parallel_setup_cost", "1000", Form::Quantity),
    harmless("parallel_tuple_cost", "0.1", Form::Quantity),
    harmless(
        "plan_cache_mode",
        "auto",
        Form::OneOf(&["auto", "force_generic_plan", "force_custom_plan"]),
    ),
    harmless("random_page_cost", "4", Form::Quantity),
    harmless("recursive_worktable_factor", "10", Form::Quantity),
    harmless("seq_page_cost", "1", Form::Quantity),
    harmless(
        "stats_fetch_consistency",
        "cache",
        Form::OneOf(&["none", "cache", "snapshot"]),
    ),
    harmless("temp_buffers", "8MB", Form::Quantity),
    harmless("temp_tablespaces", "", Form::Text),
    harmless("track_counts", "on", Form::Boolean),
    harmless("track_functions", "none", Form::OneOf(&["none", "pl", "all"])),
    harmless("track_io_timing", "off", Form::Boolean),
    harmless("track_wal_io_timing", "off", Form::Boolean),
    harmless("transaction_deferrable", "off", Form::Boolean),
    harmless("update_process_title", "on", Form::Boolean),
    harmless("vacuum_cost_delay", "0", Form::Quantity),
    harmless("vacuum_cost_limit", "200", Form::Quantity),
    harmless("vacuum_cost_page_dirty", "20", Form::Quantity),
    harmless("vacuum_cost_page_hit", "1", Form::Quantity),
    harmless("vacuum_cost_page_miss", "2", Form::Quantity),
    harmless("vacuum_failsafe_age", "1600000000", Form::Quantity),
    harmless("vacuum_freeze_min_age", "50000000", Form::Quantity),
    harmless("vacuum_freeze_table_age", "150000000", Form::Quantity),
    harmless("vacuum_multixact_failsafe_age", "1600000000", Form::Quantity),
    harmless("vacuum_multixact_freeze_min_age", "5000000", Form::Quantity),
    harmless("vacuum_multixact_freeze_table_age", "150000000", Form::Quantity),
    harmless(
        "wal_compression",
        "off",
        Form::OneOf(&["pglz", "lz4", "zstd", "on", "off"]),
    ),
    harmless("wal_init_zero", "on", Form::Boolean),
    harmless("wal_recycle", "on", Form::Boolean),
    harmless("wal_skip_threshold", "2MB", Form::Quantity),
    harmless("work_mem", "4MB", Form::Quantity),
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
