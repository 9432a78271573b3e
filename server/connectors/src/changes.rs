//! From records to changes of rows: what an envelope says of the row that a record is about.
//!
//! ```text
//!  PLAIN     value                              the row
//!  UPSERT    key, value                         the row of the key; without a value it is gone
//!  DEBEZIUM  {"before", "after", "op", ..}      the row after the change, and the key of the one before
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::FieldRef;
use bytes::Bytes;
use millrace_catalog::connector::encoding::{Encoding, Envelope, KeyFormat, Member, RecordFormat};
use millrace_postgres::error::{SqlError, SqlResult};
use serde_json::value::RawValue;

use crate::about::{About, Members, broken, document, invalid};
use crate::debezium;
use crate::decode::{BadRecord, Given, RecordDecoder, key_rows, names_of_header};
use crate::news::{New, News};
use crate::schema::Schemas;
use crate::source::{ConnectorError, Record};

/// Rows, and of each the place of its record.
pub type Placed = (Vec<usize>, RecordBatch);

/// What records change.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whole rows that are there from then on.
    pub puts: Vec<Placed>,
    /// Keys of rows that are gone from then on; where a record is about both, its row comes after that.
    pub deletes: Vec<Placed>,
    /// Of rows the columns, by name, that stay as they were, by the place of the record.
    pub kept: BTreeMap<usize, Vec<String>>,
    /// In their order.
    pub bad: Vec<BadRecord>,
}

/// Makes changes of records.
#[derive(Debug, Clone)]
pub struct ChangeDecoder {
    envelope: Envelope,
    rows: RecordDecoder,
    keys: RecordDecoder,
    key_fields: Vec<FieldRef>,
    /// Whether the bytes of the key are the key.
    has_plain_key: bool,
    values: Vec<FieldRef>,
    /// Where the schemas are, if bytes cannot be read without.
    schemas: Option<Arc<Schemas>>,
}

impl ChangeDecoder {
    /// For the columns that come out of values, those that come out of what stands beside them, and those of the primary key, of which
    /// there are none in a stream.
    pub fn new(
        format: RecordFormat,
        values: Vec<FieldRef>,
        members: Vec<(FieldRef, Member)>,
        key_fields: Vec<FieldRef>,
    ) -> Self {
        let is_key = |(field, member): &&(FieldRef, Member)| {
            *member == Member::Key && key_fields.len() == 1 && key_fields[0].name() == field.name()
        };
        let plain_key = members.iter().find(is_key).cloned();
        let keys = match &plain_key {
            Some(member) => RecordDecoder::new(Encoding::Json, vec![], vec![member.clone()]),
            None => RecordDecoder::new(Encoding::Json, key_fields.clone(), vec![]),
        };
        let schemas = Schemas::of(&format);
        // What has a schema becomes JSON.
        let encoding = match &schemas {
            Some(_) => Encoding::Json,
            None => format.encoding,
        };
        ChangeDecoder {
            envelope: format.envelope,
            has_plain_key: plain_key.is_some(),
            rows: RecordDecoder::new(encoding, values.clone(), members),
            keys,
            key_fields,
            values,
            schemas: schemas.map(Arc::new),
        }
    }

    /// Learns what is needed to read these records.
    ///
    /// # Errors
    /// The registry that has their schemas does not answer, or refuses.
    pub async fn prepare(&self, records: &[Record]) -> Result<(), ConnectorError> {
        let Some(schemas) = &self.schemas else {
            return Ok(());
        };
        let keys = records.iter().filter(|_| self.has_key_of_schema());
        let all = (records.iter().filter_map(|record| record.value.as_ref()))
            .chain(keys.filter_map(|record| record.key.as_ref()));
        schemas.prepare(all).await
    }

    /// Whether keys are encoded as values are.
    fn has_key_of_schema(&self) -> bool {
        self.envelope == Envelope::Upsert(KeyFormat::AsValue) && !self.has_plain_key
    }

    /// The columns of values that are none of those that are known.
    pub fn news(&self, records: &[Record], known: &BTreeSet<String>) -> Vec<New> {
        let mut news = News::beside(known);
        if let Some(schemas) = &self.schemas {
            let mut seen = HashSet::new();
            for (at, value) in values(records) {
                if Schemas::number(value).is_some_and(|id| seen.insert(id))
                    && let Some((_, columns)) = schemas.columns_of(value)
                {
                    for (name, sql_type) in columns {
                        news.add(at, &name, Some(&sql_type));
                    }
                }
            }
            return news.into_new();
        }
        if let Some(delimiter) = self.rows.header_delimiter() {
            let mut last: Option<&Bytes> = None;
            for (at, record) in records.iter().enumerate() {
                let header = record.headers.first().and_then(|(_, header)| header.as_ref());
                if let Some(header) = header.filter(|header| last != Some(*header)) {
                    for name in names_of_header(delimiter, header) {
                        news.add(at, &name, Some("text"));
                    }
                    last = Some(header);
                }
            }
            return news.into_new();
        }
        for (at, value) in values(records) {
            match self.envelope {
                Envelope::Plain | Envelope::Upsert(_) => news.add_members(at, value),
                Envelope::Debezium => debezium::add_columns(at, value, &mut news),
            }
        }
        news.into_new()
    }

    /// What records change, in the order of their places. `build` makes whole rows of what was given.
    pub fn changes(
        &self,
        records: &[Record],
        build: &dyn Fn(&Given, usize) -> SqlResult<RecordBatch>,
    ) -> Changes {
        let Some(schemas) = &self.schemas else {
            return self.changes_of(records, build);
        };
        let (mut readable, mut bad) = (Picked::default(), vec![]);
        for (at, record) in records.iter().enumerate() {
            match self.as_documents(schemas, record) {
                Ok(record) => {
                    readable.places.push(at);
                    readable.records.push(record);
                }
                Err(error) => bad.push(BadRecord { at, error }),
            }
        }
        let mut changes = self.changes_of(&readable.records, build);
        changes.are_at(&readable.places);
        changes.bad.extend(bad);
        changes.bad.sort_by_key(|bad| bad.at);
        changes
    }

    /// A record whose key and value are JSON.
    fn as_documents(&self, schemas: &Schemas, record: &Record) -> SqlResult<Record> {
        let document =
            |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| schemas.document(bytes)).transpose();
        Ok(Record {
            value: document(&record.value)?,
            key: match self.has_key_of_schema() {
                true => document(&record.key)?,
                false => record.key.clone(),
            },
            ..record.clone()
        })
    }

    fn changes_of(
        &self,
        records: &[Record],
        build: &dyn Fn(&Given, usize) -> SqlResult<RecordBatch>,
    ) -> Changes {
        let mut changes = Changes::default();
        if self.envelope == Envelope::Plain {
            let (rows, bad) = self.rows.rows(records, build);
            let placed =
                |(first, batch): (usize, RecordBatch)| ((first..first + batch.num_rows()).collect(), batch);
            changes.puts = rows.into_iter().map(placed).collect();
            changes.bad = bad;
            return changes;
        }
        let (mut puts, mut deletes) = (Picked::default(), Picked::default());
        for (at, record) in records.iter().enumerate() {
            match self.one(record) {
                Ok(About { row, gone, kept }) => {
                    if let Some(gone) = gone {
                        deletes.push(at, record, gone);
                    }
                    if let Some(row) = row {
                        puts.push(at, record, row);
                    }
                    if !kept.is_empty() {
                        changes.kept.insert(at, kept);
                    }
                }
                Err(error) => changes.bad.push(BadRecord { at, error }),
            }
        }
        let (gone, bad) = self.keys.rows(&deletes.records, &|given, rows| {
            key_rows(&self.key_fields, given, rows)
        });
        changes.bad.extend(deletes.bad(bad));
        // Of a record that is about two rows both count, or none.
        puts.remove(&changes.bad);
        changes.deletes = deletes.placed(gone);
        let (rows, bad) = self.rows.rows(&puts.records, build);
        let bad: Vec<BadRecord> = puts.bad(bad).collect();
        changes.puts = puts.placed(rows);
        changes.keep_rows_of(&bad);
        changes.bad.extend(bad);
        changes.bad.sort_by_key(|bad| bad.at);
        changes
    }

    /// What one record is about.
    fn one(&self, record: &Record) -> SqlResult<About> {
        let key_format = match self.envelope {
            Envelope::Debezium => {
                let Some(value) = &record.value else {
                    // It follows what it repeats, so that compaction forgets the key.
                    return Ok(About::default());
                };
                return debezium::change(value, &self.values, &self.key_fields);
            }
            Envelope::Upsert(format) => format,
            Envelope::Plain => return Ok(About::default()),
        };
        if self.has_plain_key {
            if record.key.is_none() {
                return Err(invalid("the record has no key"));
            }
            return Ok(match &record.value {
                Some(value) => About::row(value.clone()),
                None => About::gone(Bytes::new()),
            });
        }
        let key = record
            .key
            .as_deref()
            .ok_or_else(|| invalid("the record has no key"))?;
        let name = || self.key_fields.first().map_or("", |field| field.name().as_str());
        let text;
        let mut members = match key_format {
            KeyFormat::Text => {
                let key = std::str::from_utf8(key).map_err(|_| invalid("the key is not UTF-8"))?;
                text = RawValue::from_string(serde_json::Value::from(key).to_string()).map_err(broken_key)?;
                Members::from([(name().to_owned(), &*text)])
            }
            KeyFormat::AsValue | KeyFormat::Json => {
                match serde_json::from_slice::<&RawValue>(key).map_err(broken_key)? {
                    whole if whole.get().starts_with('{') => {
                        serde_json::from_str(whole.get()).map_err(broken_key)?
                    }
                    alone if self.key_fields.len() == 1 => Members::from([(name().to_owned(), alone)]),
                    _ => return Err(invalid("the key is not a JSON object")),
                }
            }
        };
        members.retain(|name, _| self.key_fields.iter().any(|field| field.name() == name));
        let Some(value) = &record.value else {
            return Ok(About::gone(document(&members)?));
        };
        let mut row: Members<'_> = serde_json::from_slice(value).map_err(|error| broken("value", &error))?;
        row.extend(members);
        Ok(About::row(document(&row)?))
    }
}

/// The values of records that have one, with their places.
fn values(records: &[Record]) -> impl Iterator<Item = (usize, &Bytes)> {
    (records.iter().enumerate()).filter_map(|(at, record)| Some((at, record.value.as_ref()?)))
}

/// Records of which something was picked, and their places.
#[derive(Default)]
struct Picked {
    places: Vec<usize>,
    records: Vec<Record>,
}

impl Picked {
    fn push(&mut self, at: usize, record: &Record, value: Bytes) {
        self.places.push(at);
        self.records.push(Record {
            value: Some(value),
            ..record.clone()
        });
    }

    /// Leaves out those that are bad.
    fn remove(&mut self, bad: &[BadRecord]) {
        let bad = places_of(bad);
        let records = std::mem::take(&mut self.records).into_iter();
        let kept = self
            .places
            .drain(..)
            .zip(records)
            .filter(|(at, _)| !bad.contains(at));
        let (places, records) = kept.unzip();
        *self = Picked { places, records };
    }

    fn bad(&self, bad: Vec<BadRecord>) -> impl Iterator<Item = BadRecord> {
        bad.into_iter().map(|bad| BadRecord {
            at: self.places[bad.at],
            ..bad
        })
    }

    fn placed(&self, rows: Vec<(usize, RecordBatch)>) -> Vec<Placed> {
        let placed = |(first, batch): (usize, RecordBatch)| {
            (self.places[first..first + batch.num_rows()].to_vec(), batch)
        };
        rows.into_iter().map(placed).collect()
    }
}

fn places_of(bad: &[BadRecord]) -> HashSet<usize> {
    bad.iter().map(|bad| bad.at).collect()
}

impl Changes {
    /// Says where the records are among all of which they were picked.
    fn are_at(&mut self, places: &[usize]) {
        for (at, _) in self.puts.iter_mut().chain(&mut self.deletes) {
            for place in at {
                *place = places[*place];
            }
        }
        self.kept = std::mem::take(&mut self.kept)
            .into_iter()
            .map(|(at, names)| (places[at], names))
            .collect();
        for bad in &mut self.bad {
            bad.at = places[bad.at];
        }
    }

    /// Takes back what is gone by records of which the rows cannot be: of a record that is about two rows both count, or none.
    pub fn keep_rows_of(&mut self, bad: &[BadRecord]) {
        let bad = places_of(bad);
        for (places, batch) in &mut self.deletes {
            let good: Vec<u32> = (places.iter().enumerate())
                .filter(|(_, at)| !bad.contains(*at))
                .map(|(row, _)| row as u32)
                .collect();
            if good.len() == places.len() {
                continue;
            }
            if let Ok(left) = take_record_batch(batch, &UInt32Array::from(good)) {
                *batch = left;
                places.retain(|at| !bad.contains(at));
            }
        }
    }
}

fn broken_key(error: serde_json::Error) -> SqlError {
    broken("key", &error)
}
