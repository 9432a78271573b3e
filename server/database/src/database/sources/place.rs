//! How far a source is, and how that is written down.

use std::collections::BTreeMap;

use millrace_connectors::source::Position;
use millrace_engine::Noted;
use millrace_storage::{LogNote, ObjectId};
use serde::{Deserialize, Serialize};

/// How far a source is: what is written down with rows that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub position: Position,
    /// Of a stream with a watermark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Of tables that were copied the positions at which that was, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<u64, i64>,
    /// Which tables those were there, by the same ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub oids: BTreeMap<u64, u32>,
}

/// How far the watermarks are of what was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Of each split what its rows let one assume, in microseconds.
    pub splits: BTreeMap<i32, i64>,
    /// What all of them together do.
    pub watermark: Option<i64>,
    /// Where somebody has set the stream's watermark back: the splits' are of after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_back: Option<u64>,
}

impl Place {
    /// Adds what was read later.
    pub(super) fn advance(&mut self, later: Place) {
        self.position.advance(later.position);
        self.times = later.times;
        self.tables = later.tables;
        self.oids = later.oids;
    }

    /// From a fact of the catalog, which was a position alone before there were watermarks of splits.
    pub(super) fn of_fact(bytes: &[u8]) -> Option<Place> {
        let of_position = || {
            let position = serde_json::from_slice(bytes).ok()?;
            Some(Place {
                position,
                ..Place::default()
            })
        };
        serde_json::from_slice(bytes).ok().or_else(of_position)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub source: ObjectId,
    pub position: Position,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<u64, i64>,
    /// Which tables those were there, by the same ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub oids: BTreeMap<u64, u32>,
}

/// The source whose place a note tells, if it tells one.
pub(in crate::database) fn source_of(note: &LogNote) -> Option<ObjectId> {
    let note = serde_json::from_slice::<Note>(&note.note).ok()?;
    Some(note.source)
}

/// What a note in the log says of the watermark.
pub(in crate::database) fn noted(note: &[u8]) -> Noted {
    match serde_json::from_slice::<Note>(note) {
        Ok(Note {
            times: Some(times), ..
        }) => Noted::Watermark(times.watermark),
        _ => Noted::Untold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(watermark: Option<Option<i64>>) -> Vec<u8> {
        let note = Note {
            source: ObjectId(1),
            position: Position {
                of: Some("t".to_owned()),
                splits: [(0, 5)].into(),
                file: None,
            },
            times: watermark.map(|watermark| Times {
                watermark,
                splits: [(3, 4)].into(),
                set_back: None,
            }),
            tables: [(9, 8)].into(),
            oids: [(9, 16_384)].into(),
        };
        serde_json::to_vec(&note).unwrap()
    }

    #[test]
    fn a_note_tells_the_watermark_if_it_was_written_down() {
        let told = |watermark| noted(&note(watermark));
        assert_eq!(told(None), Noted::Untold);
        assert_eq!(told(Some(Some(7))), Noted::Watermark(Some(7)));
        assert_eq!(told(Some(None)), Noted::Watermark(None));
        assert_eq!(noted(b"{}"), Noted::Untold);
    }

    #[test]
    fn a_fact_of_before_is_read() {
        let place = Place::of_fact(br#"{"of": "t", "splits": {"0": 5}}"#).unwrap();
        assert_eq!(place.position.splits, [(0, 5)].into());
        let without =
            Place::of_fact(br#"{"position": {"of": "1", "splits": {"0": 5}}, "tables": {"9": 8}}"#).unwrap();
        assert_eq!((without.tables, without.oids), ([(9, 8)].into(), BTreeMap::new()));
        let bytes = serde_json::to_vec(&place).unwrap();
        assert_eq!(Place::of_fact(&bytes).unwrap(), place);
    }
}
