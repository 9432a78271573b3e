//! A file of columns: Parquet.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::FieldRef;
use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStream};
use datafusion::parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};

use super::store::{Failure, Place, broken};

/// Rows at a time.
const ROWS: usize = 8_192;

/// The bytes of a file, as long as it is the one that was listed.
struct Content {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
}

impl AsyncFileReader for Content {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let outside = |error: object_store::Error| ParquetError::External(Box::new(error));
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        async move {
            let got = self.store.get_opts(&self.meta.location, options).await;
            got.map_err(outside)?.bytes().await.map_err(outside)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let size = self.meta.size;
        let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
        async move { reader.load_and_finish(self, size).await.map(Arc::new) }.boxed()
    }
}

/// A file that is being read.
pub(super) struct ColumnFile {
    stream: ParquetRecordBatchStream<Content>,
    /// The columns that were not asked for.
    pub others: Vec<FieldRef>,
    at: u64,
}

impl ColumnFile {
    /// Opens a file, with the columns of these names that it has, from a row on.
    pub async fn open(
        place: &Place,
        meta: &ObjectMeta,
        from: u64,
        names: &[String],
    ) -> Result<ColumnFile, Failure> {
        let path = place.shown(&meta.location);
        let reader = Content {
            store: Arc::clone(&place.store),
            meta: meta.clone(),
        };
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await;
        let builder = builder.map_err(|error| failed(place, &path, error))?;
        let wanted: Vec<usize> = (builder.schema().fields().iter().enumerate())
            .filter(|(_, field)| names.contains(field.name()))
            .map(|(number, _)| number)
            .collect();
        let fields = builder.schema().fields().iter();
        let others = fields.filter(|field| !names.contains(field.name()));
        let others = others.cloned().collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let stream = builder
            .with_projection(mask)
            .with_batch_size(ROWS)
            .with_offset(from as usize)
            .build();
        Ok(ColumnFile {
            stream: stream.map_err(|error| failed(place, &path, error))?,
            others,
            at: from,
        })
    }

    /// The next rows, and the number of the first; none: the file ends.
    pub async fn next(&mut self, place: &Place, path: &str) -> Result<Option<(RecordBatch, u64)>, Failure> {
        let Some(rows) = self.stream.next().await else {
            return Ok(None);
        };
        let rows = rows.map_err(|error| failed(place, path, error))?;
        let first = self.at;
        self.at += rows.num_rows() as u64;
        Ok(Some((rows, first)))
    }

    /// The number of the next row.
    pub fn at(&self) -> u64 {
        self.at
    }
}

fn failed(place: &Place, path: &str, error: ParquetError) -> Failure {
    match error {
        ParquetError::External(error) => match error.downcast_ref::<object_store::Error>() {
            Some(error) => place.failed(error),
            None => broken(path, &error.to_string()),
        },
        error => broken(path, &error.to_string()),
    }
}
