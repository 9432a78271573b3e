//! The ad events of the Yahoo streaming benchmark, and which campaign an ad belongs to.
//!
//! A thousand ads belong to a hundred campaigns in turn. Users, pages and ads are UUIDs where texts are wanted, and their
//! numbers where numbers are; a column `value` holds the whole event as JSON, as the benchmark's Kafka topic does.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use crate::Generator;
use crate::random::Random;

/// How many there are, as in the original.
const CAMPAIGNS: u64 = 100;
const ADS: u64 = 1_000;
const USERS: u64 = 100;
const PAGES: u64 = 100;
const AD_TYPES: [&str; 5] = ["banner", "modal", "sponsored-search", "mail", "mobile"];
const EVENT_TYPES: [&str; 3] = ["view", "click", "purchase"];
const IP_ADDRESS: &str = "1.2.3.4";

/// The streams that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Events,
    /// One row an ad.
    Campaigns,
}

impl Kind {
    /// The names of the columns.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Kind::Events => &[
                "user_id",
                "page_id",
                "ad_id",
                "ad_type",
                "event_type",
                "event_time",
                "ip_address",
                "value",
            ],
            Kind::Campaigns => &["ad_id", "campaign_id"],
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Ysb {
    pub kind: Kind,
    pub seed: u64,
    /// The event time of the first event, in microseconds.
    pub start: i64,
    /// Event time from one event to the next, in nanoseconds.
    pub gap_ns: u64,
    rows_max: Option<u64>,
    schema: SchemaRef,
}

/// The ids of a kind of things.
#[derive(Debug, Clone, Copy)]
enum Thing {
    User = 1,
    Page,
    Ad,
    Campaign,
}

impl Ysb {
    /// Rows with these columns, each one of [`Kind::columns`]: its name, and whether numbers are wanted and not texts.
    pub fn new(kind: Kind, wanted: &[(String, bool)], rows_max: Option<u64>) -> Self {
        let fields = wanted.iter().map(|(name, is_number)| {
            let data_type = match name.as_str() {
                "event_time" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
                "value" => DataType::Utf8,
                _ if *is_number => DataType::Int64,
                _ => DataType::Utf8,
            };
            Field::new(name, data_type, false)
        });
        Ysb {
            kind,
            seed: 0,
            start: 0,
            gap_ns: 1_000_000,
            rows_max: match kind {
                Kind::Events => rows_max,
                Kind::Campaigns => Some(rows_max.map_or(ADS, |rows| rows.min(ADS))),
            },
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        }
    }

    fn drawn(&self, row: u64, what: &str) -> u64 {
        let (purpose, end) = match what {
            "user_id" => (1, USERS),
            "page_id" => (2, PAGES),
            "ad_id" => (3, ADS),
            "ad_type" => (4, AD_TYPES.len() as u64),
            _ => (5, EVENT_TYPES.len() as u64),
        };
        Random::at(self.seed, purpose, row).below(end)
    }

    fn time(&self, row: u64) -> i64 {
        let micros = u128::from(row) * u128::from(self.gap_ns) / 1000;
        self.start
            .saturating_add(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn number(&self, name: &str, row: u64) -> u64 {
        match (self.kind, name) {
            (Kind::Campaigns, "ad_id") => row,
            (Kind::Campaigns, _) => row % CAMPAIGNS,
            (Kind::Events, "ip_address") => 0x0102_0304,
            (Kind::Events, name) => self.drawn(row, name),
        }
    }

    fn text(&self, name: &str, row: u64, text: &mut String) {
        let number = self.number(name, row);
        match name {
            "user_id" => uuid(Thing::User, number, text),
            "page_id" => uuid(Thing::Page, number, text),
            "ad_id" => uuid(Thing::Ad, number, text),
            "campaign_id" => uuid(Thing::Campaign, number, text),
            "ad_type" => text.push_str(AD_TYPES[number as usize]),
            "event_type" => text.push_str(EVENT_TYPES[number as usize]),
            _ => text.push_str(IP_ADDRESS),
        }
    }

    fn json(&self, row: u64, text: &mut String) {
        for (place, name) in ["user_id", "page_id", "ad_id", "ad_type", "event_type"]
            .iter()
            .enumerate()
        {
            text.push_str(if place == 0 { "{\"" } else { "\", \"" });
            text.push_str(name);
            text.push_str("\": \"");
            self.text(name, row, text);
        }
        let time_ms = self.time(row).div_euclid(1000);
        let written = write!(
            text,
            "\", \"event_time\": \"{time_ms}\", \"ip_address\": \"{IP_ADDRESS}\"}}"
        );
        debug_assert!(written.is_ok(), "a string takes all that is written to it");
    }

    fn column(&self, field: &Field, rows: std::ops::Range<u64>) -> ArrayRef {
        let name = field.name();
        match field.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from_iter_values(
                rows.map(|row| self.number(name, row).cast_signed()),
            )),
            DataType::Timestamp(..) => {
                let times = TimestampMicrosecondArray::from_iter_values(rows.map(|row| self.time(row)));
                Arc::new(times.with_timezone("UTC"))
            }
            _ => {
                let mut texts = StringBuilder::new();
                let mut text = String::new();
                for row in rows {
                    text.clear();
                    if name == "value" {
                        self.json(row, &mut text);
                    } else {
                        self.text(name, row, &mut text);
                    }
                    texts.append_value(&text);
                }
                Arc::new(texts.finish())
            }
        }
    }
}

impl Generator for Ysb {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows_max(&self) -> Option<u64> {
        self.rows_max
    }

    fn generate(&self, first: u64, rows: usize) -> Result<RecordBatch, ArrowError> {
        let range = first..first + rows as u64;
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| self.column(field, range.clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options)
    }
}

/// The UUID of a thing: the same whatever the seed, so that events and campaigns of different streams meet.
fn uuid(thing: Thing, number: u64, text: &mut String) {
    let mut random = Random::at(0x59_5342, thing as u64, number);
    let (high, low) = (random.bits(), random.bits());
    let written = write!(
        text,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    );
    debug_assert!(written.is_ok(), "a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    fn columns(kind: Kind, names: &[&str], numbers: bool) -> Ysb {
        let wanted: Vec<(String, bool)> = names.iter().map(|name| ((*name).to_owned(), numbers)).collect();
        Ysb::new(kind, &wanted, None)
    }

    #[test]
    fn texts_and_numbers_and_json_are_of_one_event() {
        let texts = columns(Kind::Events, &["ad_id", "event_type", "value"], false);
        let numbers = columns(Kind::Events, &["ad_id", "event_type"], true);
        let (texts, numbers) = (texts.generate(5, 200).unwrap(), numbers.generate(5, 200).unwrap());
        for row in 0..200 {
            let number = |column: usize| numbers.column(column).as_primitive::<Int64Type>().value(row) as u64;
            let text = |column: usize| texts.column(column).as_string::<i32>().value(row).to_owned();
            let mut ad = String::new();
            uuid(Thing::Ad, number(0), &mut ad);
            assert_eq!(text(0), ad);
            assert_eq!(text(1), EVENT_TYPES[number(1) as usize]);
            let (json, time) = (text(2), 5 + row);
            assert!(json.contains(&format!("\"ad_id\": \"{ad}\", ")), "{json}");
            assert!(
                json.ends_with(&format!(
                    "\"event_time\": \"{time}\", \"ip_address\": \"1.2.3.4\"}}"
                )),
                "{json}"
            );
        }
    }

    #[test]
    fn every_ad_has_a_campaign() {
        let campaigns = columns(Kind::Campaigns, &["ad_id", "campaign_id"], true);
        assert_eq!(campaigns.rows_max(), Some(ADS));
        let rows = campaigns.generate(0, 1_000).unwrap();
        let ids = rows.column(1).as_primitive::<Int64Type>().values();
        assert_eq!((ids[0], ids[99], ids[100], ids[999]), (0, 99, 0, 99));
        let ads = columns(Kind::Campaigns, &["ad_id"], false)
            .generate(0, 1_000)
            .unwrap();
        let different: std::collections::BTreeSet<_> = ads.column(0).as_string::<i32>().iter().collect();
        assert_eq!(different.len(), 1_000);
    }
}
