//! The tables of TPC-H as Parquet files, one each, for servers that read them where they are.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;

use super::tables;
use crate::Failure;

/// Rows of a row group: small enough that both cores of a laptop have some of every table at scale factor 1.
const ROW_GROUP_ROWS: usize = 1 << 18;

/// A table in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFile {
    pub table: &'static str,
    pub path: PathBuf,
}

impl TableFile {
    /// The statement that makes it a table of a server.
    pub fn create(&self) -> String {
        format!(
            "CREATE EXTERNAL TABLE {} STORED AS PARQUET LOCATION '{}'",
            self.table,
            self.path.display()
        )
    }
}

/// Writes all tables, with all orders, into a directory: Snappy, dictionaries where they help.
///
/// # Errors
/// A file cannot be written.
pub fn write_parquet(directory: &Path, scale: f64) -> Result<Vec<TableFile>, Failure> {
    let mut files = vec![];
    for table in tables::dimensions(scale)? {
        files.push(write(directory, table.name, [table.rows])?);
    }
    let (orders, lines): (Vec<_>, Vec<_>) = tables::orders(scale)?
        .into_iter()
        .map(|chunk| (chunk.orders, chunk.lines))
        .unzip();
    files.push(write(directory, "orders", orders)?);
    files.push(write(directory, "lineitem", lines)?);
    Ok(files)
}

fn write(
    directory: &Path,
    table: &'static str,
    batches: impl IntoIterator<Item = RecordBatch>,
) -> Result<TableFile, Failure> {
    let path = directory.join(format!("{table}.parquet"));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let mut batches = batches.into_iter().peekable();
    let schema = batches.peek().ok_or("a table without rows")?.schema();
    // As other programs write them: no hint of the types that the rows had in this one.
    let options = (ArrowWriterOptions::new())
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(File::create(&path)?, schema, options)?;
    for batch in batches {
        writer.write(&batch)?;
    }
    writer.close()?;
    Ok(TableFile { table, path })
}
