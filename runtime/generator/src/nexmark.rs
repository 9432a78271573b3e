//! The events of Nexmark, an auction house: persons who register, auctions that they open, bids.
//!
//! As the published generator (of Apache Beam and of Nexmark for Flink) defines them: of fifty events one is a person, then
//! come three auctions, then 46 bids; ids follow from the number of the event; some sellers, auctions and bidders are hot;
//! prices are spread over six powers of ten. The random numbers are others, because here each column of each event has its
//! own.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use crate::Generator;
use crate::random::Random;

/// Events of each kind in a cycle.
const PERSONS: u64 = 1;
const AUCTIONS: u64 = 3;
const BIDS: u64 = 46;
const CYCLE: u64 = PERSONS + AUCTIONS + BIDS;

const FIRST_PERSON_ID: u64 = 1000;
const FIRST_AUCTION_ID: u64 = 1000;
const FIRST_CATEGORY_ID: u64 = 10;
const CATEGORIES: u64 = 5;
/// Only so many of the last persons and auctions are referred to.
const ACTIVE_PERSONS: u64 = 1000;
const OPEN_AUCTIONS: u64 = 100;
/// References may be this far ahead of what there is.
const PERSON_ID_LEAD: u64 = 10;
const AUCTION_ID_LEAD: u64 = 10;
/// All but one of so many references are to something hot.
const HOT_SELLERS_RATIO: u64 = 4;
const HOT_AUCTIONS_RATIO: u64 = 2;
const HOT_BIDDERS_RATIO: u64 = 4;
const HOT_CHANNELS_RATIO: u64 = 2;
/// One of so many ids is hot.
const HOT_STEP: u64 = 100;
const CHANNELS: u64 = 10_000;

const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];
const LAST_NAMES: [&str; 9] = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// One of the three kinds of events, each of which makes a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Person,
    Auction,
    Bid,
}

impl Kind {
    /// Columns with their types: numbers, texts, and times with a zone.
    pub fn columns(self) -> &'static [(&'static str, ColumnType)] {
        use ColumnType::{Number, Text, Time};
        match self {
            Kind::Person => &[
                ("id", Number),
                ("name", Text),
                ("email_address", Text),
                ("credit_card", Text),
                ("city", Text),
                ("state", Text),
                ("date_time", Time),
                ("extra", Text),
            ],
            Kind::Auction => &[
                ("id", Number),
                ("item_name", Text),
                ("description", Text),
                ("initial_bid", Number),
                ("reserve", Number),
                ("date_time", Time),
                ("expires", Time),
                ("seller", Number),
                ("category", Number),
                ("extra", Text),
            ],
            Kind::Bid => &[
                ("auction", Number),
                ("bidder", Number),
                ("price", Number),
                ("channel", Text),
                ("url", Text),
                ("date_time", Time),
                ("extra", Text),
            ],
        }
    }

    /// How many of the first `events` events are of this kind.
    pub fn rows_of(self, events: u64) -> u64 {
        let (before, each) = self.place();
        let rest = events % CYCLE;
        events / CYCLE * each + rest.saturating_sub(before).min(each)
    }

    /// Events of a cycle before those of this kind, and how many they are.
    fn place(self) -> (u64, u64) {
        match self {
            Kind::Person => (0, PERSONS),
            Kind::Auction => (PERSONS, AUCTIONS),
            Kind::Bid => (PERSONS + AUCTIONS, BIDS),
        }
    }

    /// The number of the event that is row `position` of its kind.
    fn event(self, position: u64) -> u64 {
        let (before, each) = self.place();
        position / each * CYCLE + before + position % each
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Number,
    Text,
    Time,
}

impl ColumnType {
    fn data_type(self) -> DataType {
        match self {
            ColumnType::Number => DataType::Int64,
            ColumnType::Text => DataType::Utf8,
            ColumnType::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Nexmark {
    pub kind: Kind,
    pub seed: u64,
    /// The event time of the first event, in microseconds.
    pub start: i64,
    /// Event time from one event to the next, in nanoseconds.
    pub gap_ns: u64,
    /// How many rows of this kind there are.
    pub rows_max: Option<u64>,
    columns: Vec<&'static str>,
    schema: SchemaRef,
}

impl Nexmark {
    /// Events of a kind, of which the columns of these names are wanted, each one of [`Kind::columns`].
    pub fn new(kind: Kind, wanted: &[String]) -> Self {
        let known = kind.columns();
        let chosen = wanted
            .iter()
            .filter_map(|name| known.iter().find(|(known, _)| known == name));
        let chosen: Vec<_> = chosen.copied().collect();
        let fields = chosen
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.data_type(), false));
        Nexmark {
            kind,
            seed: 0,
            start: 0,
            gap_ns: 100_000,
            rows_max: None,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            columns: chosen.into_iter().map(|(name, _)| name).collect(),
        }
    }

    fn time(&self, event: u64) -> i64 {
        let micros = u128::from(event) * u128::from(self.gap_ns) / 1000;
        self.start
            .saturating_add(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn random(&self, purpose: Purpose, event: u64) -> Random {
        Random::at(self.seed, purpose as u64, event)
    }

    fn column(&self, name: &str, events: &[u64]) -> ArrayRef {
        let numbers = |value: &dyn Fn(u64) -> u64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(
                events.iter().map(|event| value(*event) as i64),
            ))
        };
        let times = |value: &dyn Fn(u64) -> i64| -> ArrayRef {
            let times = TimestampMicrosecondArray::from_iter_values(events.iter().map(|event| value(*event)));
            Arc::new(times.with_timezone("UTC"))
        };
        let texts = |write: &dyn Fn(u64, &mut String)| -> ArrayRef {
            let mut texts = StringBuilder::with_capacity(events.len(), events.len() * 16);
            let mut text = String::new();
            for event in events {
                text.clear();
                write(*event, &mut text);
                texts.append_value(&text);
            }
            Arc::new(texts.finish())
        };
        match (self.kind, name) {
            (_, "date_time") => times(&|event| self.time(event)),
            (Kind::Person, "id") => numbers(&|event| last_person(event) + FIRST_PERSON_ID),
            (Kind::Auction, "id") => numbers(&|event| last_auction(event) + FIRST_AUCTION_ID),
            (_, "name") => texts(&|event, text| {
                let mut random = self.random(Purpose::Name, event);
                text.push_str(FIRST_NAMES[random.index(FIRST_NAMES.len())]);
                text.push(' ');
                text.push_str(LAST_NAMES[random.index(LAST_NAMES.len())]);
            }),
            (_, "email_address") => texts(&|event, text| {
                let mut random = self.random(Purpose::Email, event);
                word(&mut random, 7, '_', text);
                text.push('@');
                word(&mut random, 5, '_', text);
                text.push_str(".com");
            }),
            (_, "credit_card") => texts(&|event, text| {
                let mut random = self.random(Purpose::CreditCard, event);
                let groups: Vec<String> = (0..4).map(|_| format!("{:04}", random.below(10_000))).collect();
                text.push_str(&groups.join(" "));
            }),
            (_, "city") => texts(&|event, text| {
                text.push_str(CITIES[self.random(Purpose::City, event).index(CITIES.len())])
            }),
            (_, "state") => texts(&|event, text| {
                text.push_str(STATES[self.random(Purpose::State, event).index(STATES.len())])
            }),
            (_, "item_name") => {
                texts(&|event, text| word(&mut self.random(Purpose::Item, event), 20, ' ', text))
            }
            (_, "description") => {
                texts(&|event, text| word(&mut self.random(Purpose::Description, event), 100, ' ', text))
            }
            (_, "initial_bid") => numbers(&|event| self.price(event)),
            (_, "reserve") => {
                numbers(&|event| self.price(event) + price(&mut self.random(Purpose::Reserve, event)))
            }
            (_, "price") => numbers(&|event| self.price(event)),
            (_, "expires") => times(&|event| self.expires(event)),
            (_, "seller") => numbers(&|event| {
                let mut random = self.random(Purpose::Seller, event);
                let seller = if random.below(HOT_SELLERS_RATIO) > 0 {
                    last_person(event) / HOT_STEP * HOT_STEP
                } else {
                    any_person(&mut random, event)
                };
                seller + FIRST_PERSON_ID
            }),
            (_, "category") => {
                numbers(&|event| FIRST_CATEGORY_ID + self.random(Purpose::Category, event).below(CATEGORIES))
            }
            (_, "auction") => numbers(&|event| {
                let mut random = self.random(Purpose::Auction, event);
                let auction = if random.below(HOT_AUCTIONS_RATIO) > 0 {
                    last_auction(event) / HOT_STEP * HOT_STEP
                } else {
                    any_auction(&mut random, event)
                };
                auction + FIRST_AUCTION_ID
            }),
            (_, "bidder") => numbers(&|event| {
                let mut random = self.random(Purpose::Bidder, event);
                let bidder = if random.below(HOT_BIDDERS_RATIO) > 0 {
                    last_person(event) / HOT_STEP * HOT_STEP + 1
                } else {
                    any_person(&mut random, event)
                };
                bidder + FIRST_PERSON_ID
            }),
            (_, "channel") => texts(&|event, text| match self.channel(event) {
                Channel::Hot(hot) => text.push_str(HOT_CHANNELS[hot]),
                Channel::Other(number) => text.push_str(&format!("channel-{number}")),
            }),
            (_, "url") => texts(&|event, text| self.url(event, text)),
            // What makes a person 200 bytes, an auction 500 and a bid 100 in the mean.
            (kind, _) => {
                let mean: u64 = match kind {
                    Kind::Person => 136,
                    Kind::Auction => 390,
                    Kind::Bid => 68,
                };
                let spread = mean / 5;
                texts(&|event, text| {
                    let mut random = self.random(Purpose::Extra, event);
                    let length = mean - spread + random.below(2 * spread + 1);
                    text.extend((0..length).map(|_| letter(&mut random)));
                })
            }
        }
    }

    fn price(&self, event: u64) -> u64 {
        price(&mut self.random(Purpose::Price, event))
    }

    /// An auction is open for about as long as it takes for the others to come that are open with it.
    fn expires(&self, event: u64) -> i64 {
        let now = self.time(event);
        let horizon = self.time(event + OPEN_AUCTIONS * CYCLE / AUCTIONS) - now;
        let horizon_ms = u64::try_from(horizon / 1000).unwrap_or_default();
        let length_ms = 1 + self
            .random(Purpose::Expires, event)
            .below((horizon_ms * 2).max(1));
        now.saturating_add(i64::try_from(length_ms).unwrap_or(i64::MAX).saturating_mul(1000))
    }

    fn channel(&self, event: u64) -> Channel {
        let mut random = self.random(Purpose::Channel, event);
        if random.below(HOT_CHANNELS_RATIO) > 0 {
            Channel::Hot(random.index(HOT_CHANNELS.len()))
        } else {
            Channel::Other(random.below(CHANNELS))
        }
    }

    /// A channel has one address forever; most of those that are not hot tell their number in it.
    fn url(&self, event: u64, text: &mut String) {
        let channel = self.channel(event);
        let number = match channel {
            Channel::Hot(hot) => CHANNELS + hot as u64,
            Channel::Other(number) => number,
        };
        let mut random = self.random(Purpose::Url, number);
        text.push_str("https://www.nexmark.com/");
        for _ in 0..3 {
            word(&mut random, 5, '_', text);
            text.push('/');
        }
        text.push_str("item.htm?query=1");
        if matches!(channel, Channel::Other(_)) && random.below(10) > 0 {
            let reversed = (number as u32).reverse_bits().cast_signed().unsigned_abs();
            text.push_str(&format!("&channel_id={reversed}"));
        }
    }
}

impl Generator for Nexmark {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows_max(&self) -> Option<u64> {
        self.rows_max
    }

    fn generate(&self, first: u64, rows: usize) -> Result<RecordBatch, ArrowError> {
        let events: Vec<u64> = (first..first + rows as u64)
            .map(|row| self.kind.event(row))
            .collect();
        let columns = self
            .columns
            .iter()
            .map(|name| self.column(name, &events))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

enum Channel {
    Hot(usize),
    Other(u64),
}

/// What the random numbers of an event are for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Name = 1,
    Email,
    CreditCard,
    City,
    State,
    Item,
    Description,
    Price,
    Reserve,
    Expires,
    Seller,
    Category,
    Auction,
    Bidder,
    Channel,
    Url,
    Extra,
}

/// The last person at an event, counted from 0: the first event of a cycle.
fn last_person(event: u64) -> u64 {
    event / CYCLE
}

/// The last auction at an event, counted from 0.
fn last_auction(event: u64) -> u64 {
    let (cycle, place) = (event / CYCLE, event % CYCLE);
    match place.checked_sub(PERSONS) {
        Some(place) => cycle * AUCTIONS + place.min(AUCTIONS - 1),
        // The auctions of this cycle are still to come.
        None => (cycle * AUCTIONS).saturating_sub(1),
    }
}

/// One of the active persons, or one who is about to come.
fn any_person(random: &mut Random, event: u64) -> u64 {
    let persons = last_person(event) + 1;
    let active = persons.min(ACTIVE_PERSONS);
    persons - active + random.below(active + PERSON_ID_LEAD)
}

/// One of the open auctions, or one that is about to come.
fn any_auction(random: &mut Random, event: u64) -> u64 {
    let last = last_auction(event);
    let first = last.saturating_sub(OPEN_AUCTIONS);
    first + random.below(last - first + 1 + AUCTION_ID_LEAD)
}

/// A price in cents: its logarithm is spread evenly.
fn price(random: &mut Random) -> u64 {
    (10f64.powf(random.fraction() * 6.0) * 100.0).round() as u64
}

fn letter(random: &mut Random) -> char {
    char::from(b'a' + random.below(26) as u8)
}

/// At least three and less than `length_max` characters, one of thirteen of which is `special`.
fn word(random: &mut Random, length_max: u64, special: char, text: &mut String) {
    let length = 3 + random.below(length_max - 3);
    for _ in 0..length {
        let character = if random.below(13) == 0 {
            special
        } else {
            letter(random)
        };
        text.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

    fn all(kind: Kind, rows: usize) -> RecordBatch {
        let names: Vec<String> = kind
            .columns()
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        Nexmark::new(kind, &names).generate(0, rows).unwrap()
    }

    fn numbers(rows: &RecordBatch, name: &str) -> Vec<i64> {
        rows.column_by_name(name)
            .unwrap()
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    }

    #[test]
    fn kinds_come_one_to_three_to_forty_six_in_order_of_their_times() {
        let mut events = vec![];
        for (kind, rows) in [(Kind::Person, 20), (Kind::Auction, 60), (Kind::Bid, 920)] {
            assert_eq!(kind.rows_of(1000), rows);
            events.extend((0..rows).map(|row| kind.event(row)));
        }
        events.sort_unstable();
        assert_eq!(events, (0..1000).collect::<Vec<u64>>());
        assert_eq!(
            [Kind::Person, Kind::Auction, Kind::Bid].map(|kind| kind.rows_of(3)),
            [1, 2, 0]
        );
        let bids = all(Kind::Bid, 100);
        let times = bids.column_by_name("date_time").unwrap();
        let times = times.as_primitive::<TimestampMicrosecondType>().values();
        assert_eq!(times[0], 400);
        assert_eq!(times[46], 5_400);
    }

    #[test]
    fn references_are_to_what_there_is_or_is_about_to_come() {
        let rows = 92_000;
        let bids = all(Kind::Bid, rows);
        let (auctions, bidders) = (numbers(&bids, "auction"), numbers(&bids, "bidder"));
        let mut hot = 0;
        for (row, (auction, bidder)) in auctions.iter().zip(&bidders).enumerate() {
            let event = Kind::Bid.event(row as u64);
            let last = (last_auction(event) + FIRST_AUCTION_ID) as i64;
            assert!(
                (1000..=last + AUCTION_ID_LEAD as i64).contains(auction),
                "row {row}"
            );
            assert!(
                (1000..=(last_person(event) + FIRST_PERSON_ID + PERSON_ID_LEAD) as i64).contains(bidder),
                "row {row}"
            );
            hot += usize::from(*auction == last / 100 * 100);
        }
        assert!((rows * 45 / 100..rows * 55 / 100).contains(&hot), "{hot}");
        let ids = numbers(&all(Kind::Auction, 100), "id");
        assert_eq!(ids, (1000..1100).collect::<Vec<i64>>());
        assert_eq!(
            numbers(&all(Kind::Person, 5), "id"),
            (1000..1005).collect::<Vec<i64>>()
        );
    }

    #[test]
    fn a_row_does_not_depend_on_how_it_is_asked_for() {
        for kind in [Kind::Person, Kind::Auction, Kind::Bid] {
            let whole = all(kind, 500);
            let names: Vec<String> = kind
                .columns()
                .iter()
                .rev()
                .map(|(name, _)| (*name).to_owned())
                .collect();
            let reversed = Nexmark::new(kind, &names).generate(123, 7).unwrap();
            for name in &names {
                let expected = whole.column_by_name(name).unwrap().slice(123, 7);
                assert_eq!(reversed.column_by_name(name).unwrap(), &expected, "{name}");
            }
        }
    }

    #[test]
    fn auctions_last_and_prices_spread() {
        let auctions = all(Kind::Auction, 3_000);
        let [starts, ends] = ["date_time", "expires"].map(|name| {
            let times = auctions
                .column_by_name(name)
                .unwrap()
                .as_primitive::<TimestampMicrosecondType>();
            times.values().to_vec()
        });
        assert!(
            starts
                .iter()
                .zip(&ends)
                .all(|(start, end)| start < end && end - start < 400_000)
        );
        let (prices, reserves) = (numbers(&auctions, "initial_bid"), numbers(&auctions, "reserve"));
        assert!(
            prices
                .iter()
                .zip(&reserves)
                .all(|(price, reserve)| price + 100 <= *reserve)
        );
        for power in 2..8 {
            let tier = 10i64.pow(power)..10i64.pow(power + 1);
            let count = prices.iter().filter(|price| tier.contains(price)).count();
            assert!((400..600).contains(&count), "{count} prices in {tier:?}");
        }
    }
}
