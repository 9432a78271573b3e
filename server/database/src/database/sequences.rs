//! The values of sequences: where each one is, and what each session got last.
//!
//! A value is given out once and for all, whatever becomes of the transaction. The catalog's journal knows a value that is some
//! steps ahead, so that most values cost no write; after a crash the values up to it are not given out any more. A clean stop
//! notes where each sequence is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::sequence::SequenceDef;
use millrace_catalog::{Definition, Object};
use millrace_functions::own;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, ObjectId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::database::Database;

/// How many values are noted ahead.
const AHEAD: usize = 32;

/// Where a sequence is, as the catalog keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// The last value; `None`: there was none yet.
    last: Option<i64>,
}

#[derive(Debug)]
struct Counter {
    last: Option<i64>,
    /// Values that may still be given out before the next note.
    ahead: usize,
}

/// What a session got.
#[derive(Debug, Default)]
struct Got {
    values: HashMap<ObjectId, i64>,
    last: Option<ObjectId>,
}

/// All sequences.
#[derive(Default)]
pub struct Sequences {
    database: OnceLock<Weak<Database>>,
    counters: Mutex<HashMap<ObjectId, Counter>>,
    got: Mutex<HashMap<i32, Got>>,
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequences")
            .field(&self.counters.lock().len())
            .finish()
    }
}

/// The key of the catalog's note on a sequence.
pub(crate) fn fact(id: ObjectId) -> String {
    format!("sequence:{}", id.0)
}

fn ended(name: &str, definition: &SequenceDef) -> SqlError {
    let (which, limit) = match definition.increment > 0 {
        true => ("maximum", definition.max),
        false => ("minimum", definition.min),
    };
    SqlError::new(
        SqlState::SequenceGeneratorLimitExceeded,
        format!("nextval: reached {which} value of sequence \"{name}\" ({limit})"),
    )
}

impl Sequences {
    pub(crate) fn belong_to(&self, database: &Arc<Database>) {
        let _ = self.database.set(Arc::downgrade(database));
    }

    fn database(&self) -> SqlResult<Arc<Database>> {
        let database = self.database.get().and_then(Weak::upgrade);
        database.ok_or_else(|| SqlError::new(SqlState::AdminShutdown, "the server is shutting down"))
    }

    /// The next values of a sequence.
    ///
    /// # Errors
    /// It was dropped, has come to its end, or the catalog cannot be written.
    pub fn take(&self, id: ObjectId, count: usize, session: Option<i32>) -> SqlResult<Vec<i64>> {
        // When a table is made its columns are tried with no rows; their sequences are not there yet.
        if count == 0 {
            return Ok(vec![]);
        }
        let database = self.database()?;
        let object = find(&database, id, session);
        let (object, definition) = of(object.as_ref())?;
        let mut values = Vec::with_capacity(count);
        {
            let mut counters = self.counters.lock();
            let counter = counter(&database, &mut counters, id)?;
            for left in (1..=count).rev() {
                if counter.ahead == 0 {
                    let (last, steps) = steps(definition, counter.last, left.max(AHEAD));
                    note(&database, id, last)?;
                    counter.ahead = steps;
                }
                let next = definition
                    .after(counter.last)
                    .ok_or_else(|| ended(&object.name, definition))?;
                counter.last = Some(next);
                counter.ahead = counter.ahead.saturating_sub(1);
                values.push(next);
            }
        }
        if let (Some(session), Some(last)) = (session, values.last()) {
            let mut got = self.got.lock();
            let got = got.entry(session).or_default();
            got.values.insert(id, *last);
            got.last = Some(id);
        }
        Ok(values)
    }

    /// The definition of a sequence has changed: it goes on from where it is, or from a next value.
    ///
    /// # Errors
    /// The next value is out of bounds, or the catalog cannot be written.
    pub fn altered(&self, id: ObjectId, next: Option<i64>, session: i32) -> SqlResult<()> {
        if let Some(next) = next {
            return self.set(id, next, false, Some(session)).map(|_| ());
        }
        let database = self.database()?;
        let mut counters = self.counters.lock();
        let counter = counter(&database, &mut counters, id)?;
        // What was noted ahead may be no value of it any more.
        note(&database, id, counter.last)?;
        counter.ahead = 0;
        Ok(())
    }

    /// Sets a sequence to a value, which was given out (`is_called`) or is the next.
    ///
    /// # Errors
    /// The value is out of bounds, or the catalog cannot be written.
    fn set(&self, id: ObjectId, value: i64, is_called: bool, session: Option<i32>) -> SqlResult<i64> {
        let database = self.database()?;
        let object = find(&database, id, session);
        let (object, definition) = of(object.as_ref())?;
        if !(definition.min..=definition.max).contains(&value) {
            return Err(SqlError::new(
                SqlState::NumericValueOutOfRange,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    object.name, definition.min, definition.max
                ),
            ));
        }
        let last = match is_called {
            true => Some(value),
            // What comes behind the value before it.
            false if value == definition.start => None,
            false => Some(
                value
                    .checked_sub(definition.increment)
                    .ok_or_else(|| ended(&object.name, definition))?,
            ),
        };
        let mut counters = self.counters.lock();
        let counter = counter(&database, &mut counters, id)?;
        note(&database, id, last)?;
        *counter = Counter { last, ahead: 0 };
        drop(counters);
        if let (Some(session), true) = (session, is_called) {
            self.got
                .lock()
                .entry(session)
                .or_default()
                .values
                .insert(id, value);
        }
        Ok(value)
    }

    /// The last value that was given out; `None`: none was.
    ///
    /// # Errors
    /// What the catalog notes of it cannot be read.
    pub fn last(&self, id: ObjectId) -> SqlResult<Option<i64>> {
        let database = self.database()?;
        let mut counters = self.counters.lock();
        Ok(counter(&database, &mut counters, id)?.last)
    }

    /// What a session got last from a sequence, or from any.
    ///
    /// # Errors
    /// Nothing yet.
    fn current(&self, id: Option<ObjectId>, session: i32) -> SqlResult<i64> {
        let undefined = |message: String| SqlError::new(SqlState::ObjectNotInPrerequisiteState, message);
        let got = self.got.lock();
        let got = got.get(&session);
        match id.or_else(|| got?.last) {
            Some(id) => got.and_then(|got| got.values.get(&id)).copied().ok_or_else(|| {
                let database = self.database();
                let name = database.ok().and_then(|database| {
                    let catalog = database.catalog();
                    catalog.object(id).map(|object| object.name.clone())
                });
                undefined(format!(
                    "currval of sequence \"{}\" is not yet defined in this session",
                    name.unwrap_or_default()
                ))
            }),
            None => Err(undefined("lastval is not yet defined in this session".into())),
        }
    }

    /// The sequence from which a session got something last.
    pub fn last_of(&self, session: i32) -> Option<ObjectId> {
        self.got.lock().get(&session)?.last
    }

    /// A session has ended.
    pub(crate) fn forget_session(&self, session: i32) {
        self.got.lock().remove(&session);
    }

    /// A sequence was dropped.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.counters.lock().remove(&id);
    }

    /// Forgets the sequences that no definition knows: those of a transaction that was rolled back. Called by whoever has the
    /// right to change definitions.
    pub(crate) fn forget_unknown(&self, database: &Database) {
        let catalog = database.catalog();
        let mut counters = self.counters.lock();
        let unknown = counters.keys().filter(|id| catalog.object(**id).is_none());
        let unknown: Vec<ObjectId> = unknown.copied().collect();
        counters.retain(|id, _| !unknown.contains(id));
        drop(counters);
        let remove = |id: ObjectId| CatalogChange::RemoveFact { key: fact(id) };
        if !unknown.is_empty()
            && let Err(error) = database
                .store()
                .catalog()
                .apply(unknown.into_iter().map(remove).collect())
        {
            tracing::warn!(%error, "the notes on sequences that were rolled back could not be removed");
        }
    }

    /// Notes where each sequence is, so that the next start goes on from there.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub(crate) fn settle(&self, database: &Database) -> SqlResult<()> {
        let mut counters = self.counters.lock();
        for (id, counter) in counters.iter_mut().filter(|(_, counter)| counter.ahead > 0) {
            note(database, *id, counter.last)?;
            counter.ahead = 0;
        }
        Ok(())
    }
}

/// A sequence as the session's open transaction has made it, or as there is one: its values are noted under an id that nobody else
/// will ever have, whether the transaction is committed or not.
fn find(database: &Database, id: ObjectId, session: Option<i32>) -> Option<Arc<Object>> {
    let own = session.and_then(|session| database.sessions.get(session)?.defined(id));
    own.or_else(|| database.catalog().object(id).cloned())
}

fn of(object: Option<&Arc<Object>>) -> SqlResult<(&Object, &SequenceDef)> {
    match object.map(|object| (object, &object.definition)) {
        Some((object, Definition::Sequence(definition))) => Ok((object, definition)),
        _ => Err(SqlError::new(
            SqlState::UndefinedTable,
            "the sequence was dropped",
        )),
    }
}

fn counter<'a>(
    database: &Database,
    counters: &'a mut HashMap<ObjectId, Counter>,
    id: ObjectId,
) -> SqlResult<&'a mut Counter> {
    match counters.entry(id) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => {
            let last = match database.store().catalog().fact(&fact(id))? {
                Some(bytes) => {
                    let noted: Noted = serde_json::from_slice(&bytes).map_err(|error| {
                        SqlError::new(
                            SqlState::DataCorrupted,
                            format!("the note on a sequence: {error}"),
                        )
                    })?;
                    noted.last
                }
                None => None,
            };
            Ok(unknown.insert(Counter { last, ahead: 0 }))
        }
    }
}

/// Where a sequence is after some steps, and how many there were.
fn steps(definition: &SequenceDef, from: Option<i64>, count: usize) -> (Option<i64>, usize) {
    let mut last = from;
    for step in 0..count {
        match definition.after(last) {
            Some(next) => last = Some(next),
            None => return (last, step),
        }
    }
    (last, count)
}

fn note(database: &Database, id: ObjectId, last: Option<i64>) -> SqlResult<()> {
    let bytes = serde_json::to_vec(&Noted { last })
        .map_err(|error| SqlError::internal(format!("the note on a sequence: {error}")))?;
    Ok(database.store().catalog().put_fact(&fact(id), &bytes)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Next,
    Set,
    Current,
    Last,
}

/// One of the functions that `nextval('s')` and its like become, by the numbers of the session and of the sequence.
struct OfSequence {
    function: Function,
    name: &'static str,
    sequences: Arc<Sequences>,
    signature: Signature,
}

impl fmt::Debug for OfSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for OfSequence {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for OfSequence {}

impl std::hash::Hash for OfSequence {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// The functions.
pub(crate) fn udfs(sequences: &Arc<Sequences>) -> Vec<Arc<ScalarUDF>> {
    [
        (Function::Next, own::SEQUENCE_NEXT, 2),
        (Function::Set, own::SEQUENCE_SET, 4),
        (Function::Current, own::SEQUENCE_CURRENT, 2),
        (Function::Last, own::SEQUENCE_LAST, 1),
    ]
    .into_iter()
    .map(|(function, name, arguments)| {
        Arc::new(ScalarUDF::from(OfSequence {
            function,
            name,
            sequences: Arc::clone(sequences),
            signature: Signature::any(arguments, Volatility::Volatile),
        }))
    })
    .collect()
}

impl ScalarUDFImpl for OfSequence {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let numbers = args
            .args
            .iter()
            .map(|arg| Ok(arrow::compute::cast(&arg.to_array(rows)?, &DataType::Int64)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let number = |argument: usize, row: usize| {
            let values = numbers.get(argument)?.as_primitive::<Int64Type>();
            values.is_valid(row).then(|| values.value(row))
        };
        let session = |row: usize| number(0, row).and_then(|session| i32::try_from(session).ok());
        let sequence = |row: usize| number(1, row).and_then(|id| u64::try_from(id).ok()).map(ObjectId);
        let one = |row: usize| -> SqlResult<Option<i64>> {
            match (self.function, sequence(row)) {
                (Function::Next, Some(id)) => {
                    Ok(self.sequences.take(id, 1, session(row))?.into_iter().next())
                }
                (Function::Set, Some(id)) => match (number(2, row), number(3, row)) {
                    (Some(value), Some(is_called)) => self
                        .sequences
                        .set(id, value, is_called != 0, session(row))
                        .map(Some),
                    _ => Ok(None),
                },
                (Function::Current | Function::Last, id) => match session(row) {
                    Some(session) => self.sequences.current(id, session).map(Some),
                    None => Ok(None),
                },
                _ => Ok(None),
            }
        };
        let values = (0..rows).map(one).collect::<SqlResult<Int64Array>>()?;
        Ok(ColumnarValue::Array(Arc::new(values)))
    }
}
