//! What changed in a step, as subscribers see it: each row with what happened to it.
//!
//! A row that went and a row that came with the same key are the old and the new form of one row, and stand together.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::{concat_batches, interleave_record_batch};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use millrace_engine::{Changes, RuntimeError};
use millrace_resource::memory::{Account, Charge, Use};
use millrace_storage::rows_bytes;

use crate::database::sinks::rows_of;
use crate::sink_files::encode::Op;

/// Rows that stand together in a batch.
const BATCH_ROWS: usize = 8_192;

pub(super) const INSERT: &str = "insert";
const DELETE: &str = "delete";
const UPDATE_DELETE: &str = "update_delete";
const UPDATE_INSERT: &str = "update_insert";
/// All of them; a log has their positions.
pub(in crate::database) const OPS: [&str; 4] = [INSERT, DELETE, UPDATE_DELETE, UPDATE_INSERT];

/// What changed up to an epoch since the step before.
pub(in crate::database) struct Epoch {
    pub epoch: u64,
    pub changes: Vec<Changed>,
    pub bytes: usize,
    _charge: Charge,
}

impl Epoch {
    /// Changes of this epoch, which are charged to the account.
    pub fn new(epoch: u64, changes: Vec<Changed>, account: &Arc<Account>) -> Epoch {
        let bytes = changes.iter().map(|changed| rows_bytes(&changed.rows)).sum();
        Epoch {
            epoch,
            changes,
            bytes,
            _charge: account.charge(Use::Result, bytes),
        }
    }
}

/// Rows, and what happened to each: `insert`, `delete`, `update_delete` or `update_insert`.
pub(in crate::database) struct Changed {
    pub ops: ArrayRef,
    pub rows: RecordBatch,
}

impl Changed {
    pub(super) fn all(op: &str, rows: RecordBatch) -> Changed {
        let ops = StringArray::from_iter_values(std::iter::repeat_n(op, rows.num_rows()));
        Changed {
            ops: Arc::new(ops),
            rows,
        }
    }
}

/// Reads all changes of a step. `key`: the columns that tell rows of the relation apart.
///
/// # Errors
/// They cannot be read, or there is no memory for them.
pub(super) async fn collect(
    mut changes: Changes,
    epoch: u64,
    key: Option<Vec<usize>>,
    account: Arc<Account>,
) -> Result<Epoch, RuntimeError> {
    let mut charge = account.charge(Use::Result, 0);
    let (mut gone, mut come) = (vec![], vec![]);
    while let Some(batch) = changes.next().await? {
        let bytes = rows_bytes(&batch.rows);
        account.room(bytes)?;
        charge.resize(charge.bytes() + bytes);
        let failed = |error: millrace_postgres::error::SqlError| RuntimeError::Internal(error.message);
        gone.extend(rows_of(Op::Delete, &batch).map_err(failed)?);
        come.extend(rows_of(Op::Insert, &batch).map_err(failed)?);
    }
    let changes = arranged(gone, come, key.as_deref())?;
    let bytes = charge.bytes();
    Ok(Epoch {
        epoch,
        changes,
        bytes,
        _charge: charge,
    })
}

/// Rows that went and rows that came, each with what happened to it, in the order in which they are told.
///
/// # Errors
/// An internal one.
pub(in crate::database) fn arranged(
    gone: Vec<RecordBatch>,
    come: Vec<RecordBatch>,
    key: Option<&[usize]>,
) -> Result<Vec<Changed>, ArrowError> {
    let (Some(key), Some(first), false) = (key, gone.first(), come.is_empty()) else {
        let gone = gone.into_iter().map(|rows| Changed::all(DELETE, rows));
        let come = come.into_iter().map(|rows| Changed::all(INSERT, rows));
        return Ok(gone.chain(come).collect());
    };
    let gone = concat_batches(&first.schema(), &gone)?;
    let come = concat_batches(&first.schema(), &come)?;
    let keys = Keys::new(&gone, key)?;
    let (old, new) = (keys.of(&gone)?, keys.of(&come)?);
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::with_capacity(new.len());
    for (place, key) in new.iter().enumerate().rev() {
        places.entry(key).or_default().push(place);
    }
    let mut is_paired = vec![false; new.len()];
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(old.len() + new.len());
    let mut ops: Vec<&str> = Vec::with_capacity(order.capacity());
    for (place, key) in old.iter().enumerate() {
        order.push((0, place));
        match places.get_mut(key.as_ref()).and_then(Vec::pop) {
            Some(now) => {
                is_paired[now] = true;
                order.push((1, now));
                ops.extend([UPDATE_DELETE, UPDATE_INSERT]);
            }
            None => ops.push(DELETE),
        }
    }
    for place in (0..new.len()).filter(|place| !is_paired[*place]) {
        order.push((1, place));
        ops.push(INSERT);
    }
    let pieces = order.chunks(BATCH_ROWS).zip(ops.chunks(BATCH_ROWS));
    pieces
        .map(|(order, ops)| {
            Ok(Changed {
                ops: Arc::new(StringArray::from_iter_values(ops)),
                rows: interleave_record_batch(&[&gone, &come], order)?,
            })
        })
        .collect()
}

/// Makes the keys of rows comparable.
struct Keys<'a> {
    converter: RowConverter,
    columns: &'a [usize],
}

impl<'a> Keys<'a> {
    fn new(rows: &RecordBatch, columns: &'a [usize]) -> Result<Self, ArrowError> {
        let fields = columns
            .iter()
            .map(|column| SortField::new(rows.column(*column).data_type().clone()));
        Ok(Keys {
            converter: RowConverter::new(fields.collect())?,
            columns,
        })
    }

    fn of(&self, rows: &RecordBatch) -> Result<Vec<Box<[u8]>>, ArrowError> {
        // A view of one row has a key without columns.
        if self.columns.is_empty() {
            return Ok(vec![Box::default(); rows.num_rows()]);
        }
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect();
        let keys = self.converter.convert_columns(&columns)?;
        Ok(keys.iter().map(|key| Box::from(key.as_ref())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    fn rows(keys: &[i64], values: &[i64]) -> RecordBatch {
        let array = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        RecordBatch::try_from_iter([("k", array(keys)), ("v", array(values))]).unwrap()
    }

    fn shown(changed: &[Changed]) -> Vec<(String, i64, i64)> {
        let mut shown = vec![];
        for piece in changed {
            let (keys, values) = (piece.rows.column(0), piece.rows.column(1));
            for row in 0..piece.rows.num_rows() {
                shown.push((
                    piece.ops.as_string::<i32>().value(row).to_owned(),
                    keys.as_primitive::<Int64Type>().value(row),
                    values.as_primitive::<Int64Type>().value(row),
                ));
            }
        }
        shown
    }

    fn op(op: &str, key: i64, value: i64) -> (String, i64, i64) {
        (op.to_owned(), key, value)
    }

    #[test]
    fn an_old_row_stands_before_the_new_one_of_its_key() {
        let (gone, come) = (rows(&[1, 2], &[10, 20]), rows(&[3, 2], &[30, 21]));
        let expected = [
            op("delete", 1, 10),
            op("update_delete", 2, 20),
            op("update_insert", 2, 21),
            op("insert", 3, 30),
        ];
        let arranged = arranged(vec![gone], vec![come], Some(&[0])).unwrap();
        assert_eq!(shown(&arranged), expected);
    }

    #[test]
    fn without_a_key_nothing_is_an_update_and_the_empty_key_is_everybodys() {
        let (gone, come) = (rows(&[1], &[10]), rows(&[1], &[11]));
        let plain = arranged(vec![gone.clone()], vec![come.clone()], None).unwrap();
        assert_eq!(shown(&plain), [op("delete", 1, 10), op("insert", 1, 11)]);
        let of_one_row = arranged(vec![gone], vec![come], Some(&[])).unwrap();
        assert_eq!(
            shown(&of_one_row),
            [op("update_delete", 1, 10), op("update_insert", 1, 11)]
        );
    }

    #[test]
    fn rows_that_share_a_key_are_paired_as_far_as_they_go() {
        let (gone, come) = (rows(&[1], &[10]), rows(&[1, 1], &[11, 12]));
        let arranged = arranged(vec![gone], vec![come], Some(&[0])).unwrap();
        assert_eq!(
            shown(&arranged),
            [
                op("update_delete", 1, 10),
                op("update_insert", 1, 11),
                op("insert", 1, 12)
            ]
        );
    }
}
