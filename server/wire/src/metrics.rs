//! What is counted about the server, in Prometheus' format.
//!
//! The two wires count connections and statements here. What the layers below know of themselves they register as a
//! collector ([`Metrics::register`]), which is asked at each scrape; nothing below the server knows Prometheus.

mod runtime;
mod sources;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_resource::memory::Resident;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
pub use runtime::RuntimeCollector;

/// What a statement does, as far as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// Reads rows.
    Select,
    /// Adds rows.
    Insert,
    /// Changes rows.
    Update,
    /// Removes rows.
    Delete,
    /// Moves rows in bulk.
    Copy,
    /// Makes, changes or drops objects.
    Ddl,
    /// Everything else: settings, transactions, explanations.
    Other,
}

impl StatementKind {
    /// The kind of a finished statement, by its tag.
    pub fn of_tag(tag: &str) -> Self {
        Self::of_sql(tag)
    }

    /// The kind of a statement, by its first word.
    pub fn of_sql(sql: &str) -> Self {
        let word = sql
            .trim_start()
            .split(|c: char| !c.is_ascii_alphabetic())
            .next()
            .unwrap_or_default();
        match word.to_ascii_uppercase().as_str() {
            "SELECT" | "WITH" | "VALUES" | "TABLE" | "FETCH" | "SUBSCRIBE" => StatementKind::Select,
            "INSERT" => StatementKind::Insert,
            "UPDATE" => StatementKind::Update,
            "DELETE" | "TRUNCATE" => StatementKind::Delete,
            "COPY" => StatementKind::Copy,
            "CREATE" | "DROP" | "ALTER" | "COMMENT" => StatementKind::Ddl,
            _ => StatementKind::Other,
        }
    }
}

impl EncodeLabelValue for StatementKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let name = match self {
            StatementKind::Select => "select",
            StatementKind::Insert => "insert",
            StatementKind::Update => "update",
            StatementKind::Delete => "delete",
            StatementKind::Copy => "copy",
            StatementKind::Ddl => "ddl",
            StatementKind::Other => "other",
        };
        EncodeLabelValue::encode(&name, encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatementLabels {
    kind: StatementKind,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabel {
    protocol: &'static str,
}

/// All metrics of one server.
pub struct Metrics {
    registry: Mutex<Registry>,
    connections: Family<ProtocolLabel, Gauge>,
    connections_total: Family<ProtocolLabel, Counter>,
    statements: Family<StatementLabels, Counter>,
    statement_seconds: Histogram,
    ingested_rows: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("millrace");
        let connections = Family::default();
        registry.register("connections", "Open connections", Family::clone(&connections));
        let connections_total = Family::default();
        let help = "Connections since the start";
        registry.register("connections_accepted", help, Family::clone(&connections_total));
        let statements = Family::default();
        registry.register(
            "statements",
            "Statements, by kind and outcome",
            Family::clone(&statements),
        );
        // From 0.1 ms up to about 50 s, each bound twice the one before.
        let statement_seconds = Histogram::new(exponential_buckets(0.000_1, 2.0, 20));
        let help = "Time from receiving a statement to having sent its answer";
        registry.register("statement_duration_seconds", help, statement_seconds.clone());
        let ingested_rows = Counter::default();
        let help = "Rows taken in by COPY and HTTP ingest";
        registry.register("ingested_rows", help, ingested_rows.clone());
        registry.register("build", "The version", Info::new([("version", crate::VERSION)]));
        registry.register_collector(Box::new(ProcessCollector {
            started: Instant::now(),
        }));
        Metrics {
            registry: Mutex::new(registry),
            connections,
            connections_total,
            statements,
            statement_seconds,
            ingested_rows,
        }
    }
}

impl Metrics {
    /// Lets a layer add metrics or collectors of its own.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection_opened(self: &Arc<Self>, protocol: &'static str) -> OpenConnection {
        let label = ProtocolLabel { protocol };
        self.connections_total.get_or_create(&label).inc();
        self.connections.get_or_create(&label).inc();
        OpenConnection {
            metrics: Arc::clone(self),
            label,
        }
    }

    /// Counts a statement.
    pub fn statement(&self, kind: StatementKind, succeeded: bool, duration: Duration) {
        let outcome = if succeeded { "ok" } else { "error" };
        self.statements
            .get_or_create(&StatementLabels { kind, outcome })
            .inc();
        self.statement_seconds.observe(duration.as_secs_f64());
    }

    /// Counts rows that came in bulk.
    pub fn ingested(&self, rows: u64) {
        self.ingested_rows.inc_by(rows);
    }

    /// Everything, as Prometheus reads it.
    pub fn render(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock())
            .expect("writing into a String cannot fail");
        text
    }
}

/// Keeps a connection counted.
pub struct OpenConnection {
    metrics: Arc<Metrics>,
    label: ProtocolLabel,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.connections.get_or_create(&self.label).dec();
    }
}

/// Memory, CPU time and age of the process, read when asked.
#[derive(Debug)]
struct ProcessCollector {
    started: Instant,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let uptime = ConstGauge::new(self.started.elapsed().as_secs_f64());
        let descriptor = encoder.encode_descriptor(
            "uptime_seconds",
            "Time since the start",
            None,
            uptime.metric_type(),
        )?;
        uptime.encode(descriptor)?;
        if let Some(bytes) = Resident::Process.bytes() {
            let resident = ConstGauge::new(bytes as i64);
            let help = "Memory of the process";
            let descriptor =
                encoder.encode_descriptor("resident_memory_bytes", help, None, resident.metric_type())?;
            resident.encode(descriptor)?;
        }
        let cpu = ConstCounter::new(cpu_seconds());
        let help = "CPU time of the process, all threads";
        let descriptor = encoder.encode_descriptor("cpu_seconds", help, None, cpu.metric_type())?;
        cpu.encode(descriptor)
    }
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_rendered() {
        let metrics = Arc::new(Metrics::default());
        let open = metrics.connection_opened("pg");
        metrics.statement(StatementKind::of_sql(" select 1"), true, Duration::from_millis(3));
        metrics.ingested(7);
        let text = metrics.render();
        assert!(text.contains("millrace_connections{protocol=\"pg\"} 1"), "{text}");
        assert!(
            text.contains("millrace_statements_total{kind=\"select\",outcome=\"ok\"} 1"),
            "{text}"
        );
        assert!(text.contains("millrace_ingested_rows_total 7"), "{text}");
        assert!(text.contains("millrace_resident_memory_bytes"), "{text}");
        drop(open);
        assert!(
            metrics
                .render()
                .contains("millrace_connections{protocol=\"pg\"} 0")
        );
    }
}
