//! The Yahoo streaming benchmark: events about ads, counted per campaign and window of ten seconds.
//!
//! ```text
//!  events --WHERE event_type = 'view'--> JOIN campaigns ON ad_id --> GROUP BY campaign_id, ten seconds
//! ```
//! The server runs in this process, so that events can be handed to it as Arrow too; JSON goes over HTTP all the same.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millrace_engine::{Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_wire::Config;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bed::{self, Bed, Place};
use crate::error::BenchError;

/// As in the original.
const CAMPAIGNS: usize = 100;
const ADS: usize = 1_000;
/// The kind of event that is counted, of three kinds.
const VIEW_EVENT: i32 = 0;
const EVENT_TYPES: [&str; 3] = ["view", "click", "purchase"];

/// How events reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Texts, as JSON has them.
    Text,
    /// Numbers for what are names in JSON.
    Typed,
}

impl Form {
    fn columns(self) -> &'static str {
        match self {
            Form::Text => {
                "user_id text, page_id text, ad_id text, ad_type text, event_type text, event_time timestamptz, \
                 ip_address text"
            }
            Form::Typed => {
                "user_id bigint, page_id bigint, ad_id bigint, ad_type int, event_type int, event_time timestamptz, \
                 ip_address bigint"
            }
        }
    }

    fn ad_type(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::Typed => "bigint",
        }
    }

    fn view_event(self) -> String {
        match self {
            Form::Text => "'view'".to_owned(),
            Form::Typed => VIEW_EVENT.to_string(),
        }
    }
}

/// A server with the benchmark's stream, table and view.
pub struct Yahoo {
    pub host: Bed,
    pub events: RelationId,
    pub view: RelationId,
}

impl Yahoo {
    /// Starts a server with so many workers, of all cores each.
    ///
    /// # Errors
    /// It does not start, or refuses a statement.
    pub async fn new(form: Form, workers: usize) -> Result<Self, BenchError> {
        Self::with(form, |config| config.workers = Some(workers)).await
    }

    /// Starts a server of one worker that is configured so.
    ///
    /// # Errors
    /// It does not start, or refuses a statement.
    pub async fn with(form: Form, configure: impl FnOnce(&mut Config)) -> Result<Self, BenchError> {
        let host = Bed::start(Place::Memory, |config| {
            config.workers = Some(1);
            configure(config);
        })
        .await?;
        let client = &host.client;
        let (columns, kind, view_event) = (form.columns(), form.ad_type(), form.view_event());
        client.run(&format!("CREATE STREAM events ({columns})")).await?;
        client
            .run(&format!(
                "CREATE TABLE campaigns (ad_id {kind} PRIMARY KEY, campaign_id bigint NOT NULL)"
            ))
            .await?;
        let ads: Vec<String> = (0..ADS)
            .map(|ad| match form {
                Form::Text => format!("('{}', {})", ad_name(ad), ad % CAMPAIGNS),
                Form::Typed => format!("({ad}, {})", ad % CAMPAIGNS),
            })
            .collect();
        client
            .run(&format!("INSERT INTO campaigns VALUES {}", ads.join(", ")))
            .await?;
        client
            .run(&format!(
                "CREATE MATERIALIZED VIEW counts AS \
                 SELECT c.campaign_id, date_bin(INTERVAL '10 seconds', e.event_time) AS window_start, count(*) AS events \
                 FROM events e JOIN campaigns c ON e.ad_id = c.ad_id WHERE e.event_type = {view_event} \
                 GROUP BY c.campaign_id, date_bin(INTERVAL '10 seconds', e.event_time)"
            ))
            .await?;
        Ok(Yahoo {
            events: host.relation("events")?,
            view: host.relation("counts")?,
            host,
        })
    }

    /// Hands events to the server; durable when it returns.
    ///
    /// # Errors
    /// The server refuses them.
    pub async fn append(&self, rows: RecordBatch) -> Result<WriteToken, BenchError> {
        append(&self.host.runtime, self.events, rows).await
    }

    /// What the view has counted of all that was written.
    ///
    /// # Errors
    /// The server does not answer with a number.
    pub async fn counted(&self) -> Result<u64, BenchError> {
        let sql = "SELECT coalesce(sum(events), 0)::bigint FROM counts";
        Ok(self.host.client.number(sql).await? as u64)
    }

    /// Compares what the view has counted, once all that was written is in it.
    ///
    /// # Errors
    /// It is another number.
    pub async fn check(&self, views: u64) -> Result<(), BenchError> {
        match self.counted().await? {
            counted if counted == views => Ok(()),
            counted => Err(BenchError::Wrong(format!(
                "the view has counted {counted} instead of {views} events"
            ))),
        }
    }

    /// Ends the server.
    pub async fn stop(self) {
        self.host.stop().await;
    }
}

/// Hands events to a runtime; durable when it returns.
///
/// # Errors
/// They are refused.
pub async fn append(
    runtime: &Runtime,
    events: RelationId,
    rows: RecordBatch,
) -> Result<WriteToken, BenchError> {
    bed::append(runtime, vec![(events, rows)]).await
}

fn ad_name(ad: usize) -> String {
    // As long as the UUIDs of the original.
    format!("{ad:08x}-5a1d-4c0e-9b3f-{:012x}", ad * 2_654_435_761)
}

/// Microseconds since 1970.
pub fn now_micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Events of [`Form::Typed`] that are made before: only their times are made when they are sent.
#[derive(Clone)]
pub struct TypedEvents {
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    /// Of each prefix, how many events are counted.
    counted: Arc<Vec<u64>>,
}

impl TypedEvents {
    /// So many events, the same in every run.
    pub fn new(rows: usize) -> Self {
        let mut random = StdRng::seed_from_u64(2017);
        let mut longs = |below: i64| -> ArrayRef {
            let values = (0..rows).map(|_| random.random_range(0..below));
            Arc::new(Int64Array::from_iter_values(values))
        };
        let (user, page, ip) = (longs(100_000), longs(100_000), longs(1 << 32));
        let ads = longs(ADS as i64);
        let kinds: Vec<i32> = (0..rows)
            .map(|_| random.random_range(0..EVENT_TYPES.len() as i32))
            .collect();
        let mut counted = vec![0];
        for kind in &kinds {
            let before = counted[counted.len() - 1];
            counted.push(before + u64::from(*kind == VIEW_EVENT));
        }
        let ad_types: ArrayRef = Arc::new(Int32Array::from_iter_values(
            (0..rows).map(|row| (row % 5) as i32),
        ));
        let utc: Arc<str> = "UTC".into();
        let fields = [
            ("user_id", DataType::Int64),
            ("page_id", DataType::Int64),
            ("ad_id", DataType::Int64),
            ("ad_type", DataType::Int32),
            ("event_type", DataType::Int32),
            (
                "event_time",
                DataType::Timestamp(TimeUnit::Microsecond, Some(utc)),
            ),
            ("ip_address", DataType::Int64),
        ];
        let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0; rows]).with_timezone("UTC"));
        TypedEvents {
            schema: Arc::new(Schema::new(fields.to_vec())),
            columns: vec![
                user,
                page,
                ads,
                ad_types,
                Arc::new(Int32Array::from(kinds)),
                times,
                ip,
            ],
            counted: Arc::new(counted),
        }
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.counted.len() - 1
    }

    /// The first `rows` events, created evenly between two times (microseconds), and how many of them are counted.
    ///
    /// # Errors
    /// There are not so many.
    pub fn between(&self, rows: usize, from: i64, to: i64) -> Result<(RecordBatch, u64), BenchError> {
        let step = (to - from) as f64 / rows.max(1) as f64;
        let times = (0..rows).map(|row| from + (row as f64 * step) as i64);
        let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC");
        let mut columns: Vec<ArrayRef> = self.columns.iter().map(|column| column.slice(0, rows)).collect();
        columns[5] = Arc::new(times);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok((batch, self.counted[rows]))
    }
}

/// Events as NDJSON that are made before: only their times are written when they are sent.
pub struct JsonEvents {
    text: Vec<u8>,
    /// Where the times are, all of one length.
    times: Vec<usize>,
    pub rows: usize,
    pub counted: u64,
}

const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.3fZ";

impl JsonEvents {
    /// So many events.
    pub fn new(rows: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut text, mut times, mut counted) = (String::new(), vec![], 0);
        let placeholder = chrono::DateTime::UNIX_EPOCH.format(TIME_FORMAT).to_string();
        for _ in 0..rows {
            let kind = random.random_range(0..EVENT_TYPES.len());
            counted += u64::from(EVENT_TYPES[kind] == "view");
            text.push_str(&format!(
                "{{\"user_id\":\"{}\",\"page_id\":\"{}\",\"ad_id\":\"{}\",\"ad_type\":\"banner78\",\"event_type\":\"{}\",\
                 \"event_time\":\"",
                uuid(&mut random),
                uuid(&mut random),
                ad_name(random.random_range(0..ADS)),
                EVENT_TYPES[kind],
            ));
            times.push(text.len());
            text.push_str(&placeholder);
            text.push_str("\",\"ip_address\":\"1.2.3.4\"}\n");
        }
        JsonEvents {
            text: text.into_bytes(),
            times,
            rows,
            counted,
        }
    }

    /// Bytes of an event, newline included, on average.
    pub fn bytes_an_event(&self) -> f64 {
        self.text.len() as f64 / self.rows as f64
    }

    /// The events, created now.
    pub fn now(&mut self) -> &[u8] {
        let now = chrono::DateTime::from_timestamp_micros(now_micros()).unwrap_or_default();
        let now = now.format(TIME_FORMAT).to_string();
        for at in &self.times {
            self.text[*at..*at + now.len()].copy_from_slice(now.as_bytes());
        }
        &self.text
    }
}

fn uuid(random: &mut StdRng) -> String {
    let (a, b): (u64, u64) = (random.random(), random.random());
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}
