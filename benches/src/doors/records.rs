//! The events of the Yahoo streaming benchmark as records; which is which follows from its number alone.

use std::fmt::Write;

use bytes::Bytes;

/// As in the original.
pub const ADS: usize = 1_000;
/// Of every topic here.
pub const PARTITIONS: i32 = 2;
/// Columns of a stream of events; times are microseconds since 1970.
pub const COLUMNS: &str = "user_id TEXT, page_id TEXT, ad_id BIGINT, ad_type TEXT, event_type TEXT, event_time BIGINT, ip_address TEXT";

/// What the ads' numbers begin with, so that they are as long as names.
const AD_FIRST: u64 = 1_000_000_000_000_000_000;
const AD_TYPES: [&str; 5] = ["banner", "modal", "sponsored-search", "mail", "mobile"];
const EVENT_TYPES: [&str; 3] = ["view", "click", "purchase"];

/// Which of the ads an event is about.
pub fn ad(event: u64) -> usize {
    (mix(event) >> 8) as usize % ADS
}

/// The ad with this number in a stream.
pub fn ad_of(ad_id: u64) -> Option<usize> {
    let ad = ad_id.checked_sub(AD_FIRST)? as usize;
    (ad < ADS).then_some(ad)
}

/// Where an event goes: all of an ad to one partition, so that they are read in their order.
pub fn partition(event: u64) -> i32 {
    ad(event) as i32 % PARTITIONS
}

/// An event as a JSON object.
pub fn json(event: u64, time_us: u64) -> Bytes {
    let parts = Parts::of(event);
    let mut text = String::with_capacity(256);
    let _ = write!(
        text,
        r#"{{"user_id":"{}","page_id":"{}","ad_id":{},"ad_type":"{}","event_type":"{}","event_time":{time_us},"ip_address":"{}"}}"#,
        parts.user, parts.page, parts.ad, parts.ad_type, parts.event_type, parts.address
    );
    text.into()
}

/// The time in a JSON object.
pub fn time_us(json: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(json).ok()?;
    let (_, rest) = text.split_once("\"event_time\":")?;
    rest.split(',').next()?.parse().ok()
}

/// An event as a line of CSV.
pub fn csv(event: u64, time_us: u64) -> Bytes {
    let parts = Parts::of(event);
    let mut text = String::with_capacity(256);
    let _ = write!(
        text,
        "{},{},{},{},{},{time_us},{}",
        parts.user, parts.page, parts.ad, parts.ad_type, parts.event_type, parts.address
    );
    text.into()
}

struct Parts {
    user: String,
    page: String,
    ad: u64,
    ad_type: &'static str,
    event_type: &'static str,
    address: String,
}

impl Parts {
    fn of(event: u64) -> Parts {
        let random = mix(event);
        Parts {
            user: name(random >> 20 & 127),
            page: name(1_000 + (random >> 28 & 127)),
            ad: AD_FIRST + ad(event) as u64,
            ad_type: AD_TYPES[(random >> 34) as usize % AD_TYPES.len()],
            event_type: EVENT_TYPES[(random >> 40) as usize % EVENT_TYPES.len()],
            address: format!("10.{}.{}.{}", random & 255, random >> 50 & 255, random >> 56),
        }
    }
}

/// Something that looks like a UUID.
fn name(seed: u64) -> String {
    let (high, low) = (mix(seed), mix(seed ^ u64::MAX));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The end of splitmix64: neighbours have nothing in common.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let json: serde_json::Value = serde_json::from_slice(&json(7, 1_700_000_000_000_000)).unwrap();
        let csv = String::from_utf8(csv(7, 1_700_000_000_000_000).to_vec()).unwrap();
        let text = |value: &serde_json::Value| value.to_string().trim_matches('"').to_owned();
        let names = COLUMNS
            .split(", ")
            .map(|column| column.split(' ').next().unwrap());
        let fields: Vec<String> = names.map(|name| text(&json[name])).collect();
        assert_eq!(fields.join(","), csv);
        assert_eq!(time_us(&super::json(7, 12)), Some(12));
        assert_eq!(ad_of(json["ad_id"].as_u64().unwrap()), Some(ad(7)));
    }
}
