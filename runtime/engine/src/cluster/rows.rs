//! Changes as bytes: one Arrow IPC stream for neighbours of one schema, and the weights beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{Int64Array, RecordBatch};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use millrace_mesh::Body;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::protocol;

/// What an IPC stream has beside the values, about.
const ENVELOPE_BYTES: usize = 2 << 10;

/// For each stream, for each batch, whether it has weights.
type Streams = Vec<Vec<bool>>;

/// Changes as bytes.
///
/// # Errors
/// A type has no form in Arrow IPC.
pub fn encode(changes: &[ChangeBatch]) -> Result<Body, String> {
    let mut streams: Streams = vec![];
    let mut parts = vec![];
    for same in changes.chunk_by(|one, next| one.rows.schema_ref() == next.rows.schema_ref()) {
        let Some(first) = same.first() else { continue };
        let room: usize = same
            .iter()
            .map(|batch| rows_bytes(&batch.rows) + ENVELOPE_BYTES)
            .sum();
        let mut bytes = Vec::with_capacity(room);
        let mut write = || {
            let mut writer = StreamWriter::try_new(&mut bytes, first.rows.schema_ref())?;
            for batch in same {
                writer.write(&batch.rows)?;
            }
            writer.finish()
        };
        write().map_err(|error| error.to_string())?;
        parts.push(Bytes::from(bytes));
        for weights in same.iter().filter_map(|batch| batch.weights.as_ref()) {
            parts.push(Bytes::copy_from_slice(weights.values().inner().as_slice()));
        }
        streams.push(same.iter().map(|batch| batch.weights.is_some()).collect());
    }
    Ok(Body {
        header: protocol::encode(&streams)?.into(),
        parts,
    })
}

/// The changes. They share the memory of the bytes.
///
/// # Errors
/// The bytes are something else. Where Arrow's decoder panics over them, that is an error too.
pub fn decode(body: Body) -> Result<Vec<ChangeBatch>, String> {
    let streams: Streams = protocol::decode(&body.header)?;
    let mut parts = body.parts.into_iter();
    let missing = || "a part of the rows is missing".to_owned();
    let mut changes = vec![];
    for stream in streams {
        let bytes = parts.next().ok_or_else(missing)?;
        let batches = batches(bytes)?;
        if batches.len() != stream.len() {
            return Err("rows in another number of batches than was said".into());
        }
        for (rows, has_weights) in batches.into_iter().zip(stream) {
            let weights = match has_weights {
                false => None,
                true => {
                    let bytes = parts.next().ok_or_else(missing)?;
                    if bytes.len() != 8 * rows.num_rows() {
                        return Err("weights of another number of rows".into());
                    }
                    // What came over the network is aligned to nothing.
                    let values: Vec<i64> = bytes
                        .chunks_exact(8)
                        .filter_map(|value| Some(i64::from_le_bytes(value.try_into().ok()?)))
                        .collect();
                    Some(Int64Array::new(ScalarBuffer::from(values), None))
                }
            };
            changes.push(ChangeBatch { rows, weights });
        }
    }
    Ok(changes)
}

fn batches(bytes: Bytes) -> Result<Vec<RecordBatch>, String> {
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let mut buffer = Buffer::from(bytes);
        let mut decoder = StreamDecoder::new();
        let mut batches = vec![];
        while !buffer.is_empty() {
            batches.extend(decoder.decode(&mut buffer)?);
        }
        decoder.finish()?;
        Ok::<_, arrow::error::ArrowError>(batches)
    }));
    match decoded {
        Ok(batches) => batches.map_err(|error| error.to_string()),
        Err(_) => Err("the Arrow message is inconsistent".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, RecordBatchOptions, StringArray};
    use arrow::datatypes::{Int32Type, Schema};

    use super::*;

    fn batch(column: ArrayRef, weights: Option<Vec<i64>>) -> ChangeBatch {
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        ChangeBatch::new(rows, weights.map(Int64Array::from)).unwrap()
    }

    #[test]
    fn changes_come_back_as_they_were() {
        let numbers = |from: i64, to| Arc::new(Int64Array::from_iter_values(from..to)) as ArrayRef;
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let nothing = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            vec![],
            &RecordBatchOptions::new().with_row_count(Some(7)),
        );
        let nothing = ChangeBatch::new(nothing.unwrap(), Some(Int64Array::from(vec![-1; 7]))).unwrap();
        let all = [
            batch(numbers(0, 5), Some(vec![1, -1, 2, -2, 1])),
            batch(numbers(5, 5), None),
            batch(numbers(5, 9_000), None),
            batch(
                Arc::new(StringArray::from(vec![Some("ä"), None])),
                Some(vec![1, 1]),
            ),
            batch(Arc::new(words), None),
            batch(numbers(0, 1), None).slice(0, 1),
            batch(numbers(0, 10), Some((0..10).collect())).slice(3, 4),
            nothing,
        ];
        for some in [&all[..], &all[..1], &all[2..3], &[]] {
            let came = decode(encode(some).unwrap()).unwrap();
            assert_eq!(came.len(), some.len());
            for (came, sent) in came.iter().zip(some) {
                assert_eq!(came.rows, sent.rows);
                assert_eq!(came.weights, sent.weights);
            }
        }
        let mut damaged = encode(&all).unwrap();
        damaged.parts.pop();
        assert!(decode(damaged).is_err());
        let mut damaged = encode(&all[..1]).unwrap();
        damaged.parts[0] = Bytes::from_static(b"no arrow");
        assert!(decode(damaged).is_err());
    }
}
