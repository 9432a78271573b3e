//! What the runtime and the sinks know of themselves, read at each scrape.

use std::fmt;
use std::sync::{Arc, Weak};

use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_database::database::sinks::SinkStatus;
use millrace_engine::{FeedStatus, PipelineStatus, ViewStatus};
use millrace_resource::cpu::Durations;
use millrace_resource::disk::{DiskScheduler, DiskTotals, Totals};
use millrace_resource::memory::MemoryStatus;
use millrace_schedule::cpu::QueryClass;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::sources;

/// Epochs, waiting work, the size of the views, and what sinks have delivered.
pub struct RuntimeCollector(pub Weak<Database>);

/// The copy in an object store, if one is kept.
fn shipping(encoder: &mut DescriptorEncoder<'_>, database: &Database) -> fmt::Result {
    let Some(status) = database.shipping_status() else {
        return Ok(());
    };
    let lag = ConstGauge::new(status.lag_ms as f64 / 1_000.0);
    let (name, help) = (
        "shipping_lag_seconds",
        "Age of the oldest write not yet in the object store",
    );
    lag.encode(encoder.encode_descriptor(name, help, None, lag.metric_type())?)?;
    for (name, help, value) in [
        (
            "shipping_waiting_bytes",
            "Bytes of logs that wait to go to the object store",
            status.shipped.waiting_bytes as i64,
        ),
        (
            "shipping_failing",
            "Whether the last attempt to ship failed",
            i64::from(status.error.is_some()),
        ),
        (
            "shipping_fenced",
            "Whether another server has taken over the copy, so that nothing is shipped",
            i64::from(status.state == "fenced"),
        ),
    ] {
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    let sent = ConstCounter::new(status.shipped.sent_bytes);
    let (name, help) = ("shipping_sent_bytes", "Bytes shipped since the start");
    sent.encode(encoder.encode_descriptor(name, help, None, sent.metric_type())?)
}

impl fmt::Debug for RuntimeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeCollector")
    }
}

impl Collector for RuntimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Of a database that is gone there is nothing to tell.
        let Some(database) = self.0.upgrade() else {
            return Ok(());
        };
        let runtime = database.runtime();
        let epochs = ConstCounter::new(runtime.epochs_total());
        let help = "Epochs committed since the start";
        epochs.encode(encoder.encode_descriptor("epochs", help, None, epochs.metric_type())?)?;
        let totals = runtime.checkpoint_totals();
        for (name, help, value) in [
            (
                "checkpoints",
                "Checkpoints written since the start",
                totals.written,
            ),
            (
                "checkpoints_failed",
                "Checkpoints that could not be written",
                totals.failed,
            ),
            (
                "checkpoint_bytes",
                "Bytes written to checkpoints since the start",
                totals.bytes_written,
            ),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        memory(&mut encoder, &runtime.memory().status())?;
        feeds(&mut encoder, &runtime.feeds())?;
        disks(&mut encoder, &runtime.disks().all())?;
        let clients = ConstGauge::new(runtime.waiting_for_clients().len() as i64);
        let (name, help) = (
            "queries_waiting_for_clients",
            "Queries that are waiting for their clients to read rows",
        );
        clients.encode(encoder.encode_descriptor(name, help, None, clients.metric_type())?)?;
        let sinks: Vec<SinkStatus> = database
            .sinks()
            .list()
            .into_iter()
            .map(|(_, sink)| sink)
            .collect();
        let since = sinks.iter().filter_map(|sink| sink.behind_since_ms).min();
        let behind = since.map_or(0, |since| now_ms().saturating_sub(since).max(0));
        let lag = ConstGauge::new(behind as f64 / 1_000.0);
        let (name, help) = (
            "sink_lag_seconds",
            "Longest time that a sink has had undelivered rows",
        );
        lag.encode(encoder.encode_descriptor(name, help, None, lag.metric_type())?)?;
        let sum = |of: fn(&SinkStatus) -> u64| sinks.iter().map(of).sum::<u64>();
        for (name, help, value) in [
            (
                "sink_files",
                "Files that sinks have committed",
                sum(|sink| sink.files),
            ),
            ("sink_rows", "Rows in files of sinks", sum(|sink| sink.rows)),
            ("sink_bytes", "Bytes in files of sinks", sum(|sink| sink.bytes)),
            (
                "sink_waiting_rows",
                "Rows of steps that the targets of sinks do not have yet",
                sum(|sink| sink.waiting_rows),
            ),
            (
                "sinks_failing",
                "Sinks that have failed and will retry",
                sum(|sink| u64::from(sink.error.is_some())),
            ),
        ] {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        sources::encode(&mut encoder, &database)?;
        shipping(&mut encoder, &database)?;
        let subscriptions = database.subscriptions();
        let open = subscriptions.list();
        let waiting: u64 = open.iter().map(|info| info.waiting_bytes).sum();
        for (name, help, value) in [
            (
                "subscriptions",
                "Clients that follow a relation",
                open.len() as i64,
            ),
            (
                "relations_followed",
                "Relations that are followed by clients",
                subscriptions.followed() as i64,
            ),
            (
                "subscription_waiting_bytes",
                "Bytes of changes that wait for clients that follow a relation",
                waiting as i64,
            ),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let too_slow = ConstCounter::new(subscriptions.too_slow());
        let (name, help) = (
            "subscriptions_too_slow",
            "Subscriptions that ended because changes were read too slowly",
        );
        too_slow.encode(encoder.encode_descriptor(name, help, None, too_slow.metric_type())?)?;
        let views = runtime.views();
        let failed = views.iter().filter(|view| view.failure.is_some()).count();
        let pipelines = runtime.pipelines();
        let (paced, missing) = freshness_targets(&views, &pipelines);
        let waiting = |class| runtime.tasks_waiting(class) as i64;
        let times = runtime.cpu_times();
        for (class, (wait, poll)) in QueryClass::ALL.iter().zip(times.wait.iter().zip(&times.poll)) {
            let all = [
                ("task_wait", "Time from being ready to running", wait),
                (
                    "task_poll",
                    "Time from running to the next suspension point",
                    poll,
                ),
            ];
            for (name, help, durations) in all {
                seconds(&mut encoder, &format!("{class}_{name}"), help, durations)?;
            }
        }
        let help = "Time from the arrival of more urgent work to the suspension of a task";
        seconds(&mut encoder, "pause_latency", help, &times.pause)?;
        let gauges: [(&str, &str, i64); 15] = [
            (
                "tasks_paused",
                "Tasks that are suspended for more urgent ones",
                runtime.paused_tasks().len() as i64,
            ),
            (
                "stream_tasks_waiting",
                "Tasks of views that wait for a core",
                waiting(QueryClass::Stream),
            ),
            (
                "interactive_tasks_waiting",
                "Short queries that wait for a core",
                waiting(QueryClass::Interactive),
            ),
            (
                "batch_tasks_waiting",
                "Long queries that wait for a core",
                waiting(QueryClass::Batch),
            ),
            (
                "writes_waiting",
                "Durable writes that wait for their epoch",
                pipelines
                    .iter()
                    .map(|pipeline| pipeline.writes_waiting as i64)
                    .sum(),
            ),
            (
                "epochs_under_way",
                "Epochs that were cut and are not committed",
                pipelines
                    .iter()
                    .map(|pipeline| pipeline.under_way.map_or(0, |under_way| under_way.epochs as i64))
                    .sum(),
            ),
            (
                "epoch_age_milliseconds",
                "Since the oldest of them was cut",
                pipelines
                    .iter()
                    .filter_map(|pipeline| pipeline.under_way)
                    .map(|under_way| under_way.age.as_millis() as i64)
                    .max()
                    .unwrap_or(0),
            ),
            (
                "backfills",
                "Views that are being back-filled",
                runtime.jobs().len() as i64,
            ),
            ("views", "Materialized views", views.len() as i64),
            (
                "views_failed",
                "Materialized views that have failed",
                failed as i64,
            ),
            (
                "views_with_freshness_target",
                "Materialized views that have a target for their freshness",
                paced,
            ),
            (
                "views_missing_freshness_target",
                "Views that missed their freshness target in more than 1 % of recent epochs",
                missing,
            ),
            (
                "view_rows",
                "Rows of all materialized views",
                views.iter().map(|view| view.rows as i64).sum(),
            ),
            (
                "view_state_bytes",
                "Size of the keyed state and contents of all materialized views",
                views.iter().map(|view| view.state_bytes as i64).sum(),
            ),
            (
                "view_state_on_disk_bytes",
                "Spilled state of materialized views (on disk, because memory is short)",
                views.iter().map(|view| view.on_disk_bytes as i64).sum(),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// The share of a view's last epochs that must keep its target.
const FRESHNESS_KEPT_MIN: f64 = 0.99;

/// How many views have a target for their freshness, and how many do not keep it.
fn freshness_targets(views: &[ViewStatus], pipelines: &[PipelineStatus]) -> (i64, i64) {
    let mut counts = (0, 0);
    for view in views {
        let Some(target) = view.freshness_target else {
            continue;
        };
        counts.0 += 1;
        let mut pipelines = pipelines.iter();
        let pipeline = pipelines.find(|status| status.pipeline.views.contains(&view.relation));
        let kept = pipeline.and_then(|status| status.pipeline.share_within(target.as_nanos() as u64));
        counts.1 += i64::from(kept.is_some_and(|kept| kept < FRESHNESS_KEPT_MIN));
    }
    counts
}

/// The limit, what counts against it, and who had to give way.
fn memory(encoder: &mut DescriptorEncoder<'_>, status: &MemoryStatus) -> fmt::Result {
    for (name, help, value) in [
        (
            "memory_limit_bytes",
            "memory_limit; 0 is none",
            status.limit.unwrap_or(0),
        ),
        (
            "memory_used_bytes",
            "Memory that counts against memory_limit: accounted memory, and the rest that the operating \
             system sees",
            status.used,
        ),
        (
            "memory_charged_bytes",
            "Memory accounted to views, tables, writes and queries",
            status.charged,
        ),
    ] {
        let gauge = ConstGauge::new(value as i64);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    for (name, help, value) in [
        (
            "memory_queries_refused",
            "Memory requests of queries that were refused or caused spilling",
            status.queries_refused,
        ),
        (
            "writes_waited",
            "Writes that were delayed by backpressure",
            status.writes_waited,
        ),
        (
            "memory_views_failed",
            "Views that failed because memory ran out",
            status.views_failed,
        ),
        (
            "memory_views_divided",
            "Rebuilds of views with more partitions, because their state is larger than memory",
            status.views_divided,
        ),
        (
            "memory_spilled_bytes",
            "State of views that was spilled to disk because memory was short",
            status.spilled,
        ),
        (
            "memory_brought_back_bytes",
            "Spilled state of views that was read back from disk",
            status.brought_back,
        ),
    ] {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    Ok(())
}

/// What the disks have served, by kind.
fn disks(encoder: &mut DescriptorEncoder<'_>, disks: &[Arc<DiskScheduler>]) -> fmt::Result {
    let sum = |of: fn(&DiskTotals) -> Totals| {
        let mut sum = Totals::default();
        disks.iter().for_each(|disk| sum += of(&disk.totals()));
        sum
    };
    for (kind, what, totals) in [
        ("log", "groups of writes to the log", sum(|totals| totals.log)),
        ("read", "reads of input", sum(|totals| totals.read)),
        (
            "write",
            "writes of queries, checkpoints and sinks",
            sum(|totals| totals.write),
        ),
        ("reread", "reads of what was spilled", sum(|totals| totals.reread)),
    ] {
        let name = |of: &str| format!("disk_{kind}_{of}");
        for (name, help, value) in [
            (
                name("monotasks"),
                format!("Disk monotasks: {what}"),
                totals.monotasks,
            ),
            (name("bytes"), format!("Bytes of {what}"), totals.bytes),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(&name, &help, None, counter.metric_type())?)?;
        }
        for (name, help, time) in [
            (
                name("service_seconds"),
                format!("Time of {what} on the devices"),
                totals.service,
            ),
            (
                name("queue_seconds"),
                format!("Time that {what} waited"),
                totals.queue,
            ),
        ] {
            let counter = ConstCounter::new(time.as_secs_f64());
            counter.encode(encoder.encode_descriptor(&name, &help, None, counter.metric_type())?)?;
        }
    }
    Ok(())
}

/// What waits for its epoch, and the writes for which there is no space.
fn feeds(encoder: &mut DescriptorEncoder<'_>, feeds: &[FeedStatus]) -> fmt::Result {
    let sum = |value: fn(&FeedStatus) -> usize| feeds.iter().map(value).sum::<usize>();
    for (name, help, value) in [
        (
            "feed_rows",
            "Written rows that wait for their epoch",
            sum(|feed| feed.size.rows),
        ),
        ("feed_bytes", "Bytes of these rows", sum(|feed| feed.size.bytes)),
        (
            "writes_without_room",
            "Writes that are being delayed by backpressure",
            sum(|feed| feed.writes_waiting),
        ),
    ] {
        let gauge = ConstGauge::new(value as i64);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}

/// Median, 99th percentile and longest of some durations, in seconds, how many there were, and all of them together.
fn seconds(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    durations: &Durations,
) -> fmt::Result {
    let count = ConstCounter::new(durations.count());
    let counted = format!("{name}s");
    count.encode(encoder.encode_descriptor(&counted, help, None, count.metric_type())?)?;
    let sum = ConstCounter::new(durations.sum.as_secs_f64());
    let summed = format!("{name}_seconds");
    sum.encode(encoder.encode_descriptor(&summed, help, None, sum.metric_type())?)?;
    for (suffix, value) in [
        ("p50", durations.percentile(0.5)),
        ("p99", durations.percentile(0.99)),
        ("max", durations.max),
    ] {
        let gauge = ConstGauge::new(value.as_secs_f64());
        let name = format!("{name}_seconds_{suffix}");
        gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}
