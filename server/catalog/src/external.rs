//! External tables: files that queries read where they are.

mod pieces;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::ANNOTATION;
use serde::{Deserialize, Serialize};

/// Which files, and how to read them: the lasting form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// `parquet`, `csv` or `json`.
    pub format: String,
    /// A file, a directory, or a pattern with `*`.
    pub location: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

impl Files {
    /// Says what is wrong with the format, the options or the location.
    ///
    /// # Errors
    /// Something is.
    pub fn check(&self) -> SqlResult<()> {
        self.format()?;
        if self.location.contains("://") && !self.location.starts_with("file://") {
            return Err(SqlError::unsupported(format!(
                "\"{}\" is not a local file; other locations are not supported",
                self.location
            )));
        }
        self.check_there()
    }

    /// Says that there are no such files.
    fn check_there(&self) -> SqlResult<()> {
        let path = self.path();
        if self.is_pattern() || path.exists() {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::UndefinedFile,
            format!(
                "could not open file \"{}\": No such file or directory",
                self.location
            ),
        ))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(self.location.strip_prefix("file://").unwrap_or(&self.location))
    }

    fn is_pattern(&self) -> bool {
        self.location.contains(['*', '?', '['])
    }

    fn format(&self) -> SqlResult<Arc<dyn FileFormat>> {
        let mut csv = CsvFormat::default().with_has_header(true);
        for (name, value) in &self.options {
            let invalid = || {
                SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid value for option \"{name}\": \"{value}\""),
                )
            };
            csv = match (self.format.as_str(), name.strip_prefix("format.").unwrap_or(name)) {
                ("csv", "header" | "has_header") => {
                    csv.with_has_header(value.parse().map_err(|_| invalid())?)
                }
                ("csv", "delimiter") => match value.as_bytes() {
                    [delimiter] => csv.with_delimiter(*delimiter),
                    _ => return Err(invalid().with_hint("Give a single character.")),
                },
                _ => {
                    return Err(
                        SqlError::unsupported(format!("option \"{name}\" is not supported"))
                            .with_hint("The options of CSV are header (true or false) and delimiter."),
                    );
                }
            };
        }
        Ok(match self.format.as_str() {
            "parquet" => Arc::new(ParquetFormat::default()),
            "csv" => Arc::new(csv),
            "json" => Arc::new(JsonFormat::default()),
            other => {
                return Err(SqlError::unsupported(format!(
                    "STORED AS {} is not supported",
                    other.to_uppercase()
                ))
                .with_hint("The formats are PARQUET, CSV and JSON."));
            }
        })
    }

    fn listing(&self) -> SqlResult<(ListingTableUrl, ListingOptions)> {
        let url = df(ListingTableUrl::parse(&self.location))?;
        // A file may be called anything; of a directory, those count that are called by their format.
        let extension = match self.path().is_dir() {
            true => format!(".{}", self.format),
            false => String::new(),
        };
        Ok((
            url,
            ListingOptions::new(self.format()?).with_file_extension(extension),
        ))
    }

    /// The columns that the files say they have.
    ///
    /// # Errors
    /// There are no files, or they cannot be read.
    pub async fn infer_schema(&self, state: &SessionState) -> SqlResult<SchemaRef> {
        let (url, options) = self.listing()?;
        let schema = df(options.infer_schema(state, &url).await)?;
        if schema.fields().is_empty() {
            return Err(SqlError::new(
                SqlState::UndefinedFile,
                format!("no {} files in \"{}\"", self.format, self.location),
            ));
        }
        Ok(schema)
    }

    /// The columns as scans make them. Texts of Parquet are string views, which refer to the page that they were decoded from: copied
    /// into plain strings TPC-H costs 5 % more of the processor, and 28 % where a query reads little else (q19).
    fn as_read(&self, columns: &SchemaRef) -> SchemaRef {
        if self.format != "parquet" {
            return Arc::clone(columns);
        }
        let fields = columns.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8 if !field.metadata().contains_key(ANNOTATION) => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
            }
            _ => Arc::clone(field),
        });
        Arc::new(Schema::new_with_metadata(
            fields.collect::<Vec<_>>(),
            columns.metadata().clone(),
        ))
    }

    /// Bytes of the files; a pattern is taken for many.
    fn bytes(&self) -> u64 {
        const MANY: u64 = 1 << 30;
        fn size(path: &Path) -> u64 {
            match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => {
                    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
                    entries.map(|entry| size(&entry.path())).sum()
                }
                Ok(found) => found.len(),
                Err(_) => 0,
            }
        }
        if self.is_pattern() {
            MANY
        } else {
            size(&self.path())
        }
    }
}

/// Bytes of a file that stand for a row, where only that is known.
pub const ROW_BYTES: u64 = 64;

/// An external table as DataFusion reads it.
#[derive(Debug)]
pub struct ExternalTable {
    files: Files,
    /// As they are declared; a scan may make them in another form ([`Files::as_read`]).
    columns: SchemaRef,
    listing: ListingTable,
}

impl ExternalTable {
    /// The table of these files with these columns.
    ///
    /// # Errors
    /// The location is no address of files.
    pub fn new(files: Files, columns: SchemaRef) -> SqlResult<Self> {
        let (url, options) = files.listing()?;
        let config = ListingTableConfig::new(url)
            .with_listing_options(options)
            .with_schema(files.as_read(&columns));
        Ok(ExternalTable {
            listing: df(ListingTable::try_new(config))?,
            files,
            columns,
        })
    }

    /// The columns as they are declared.
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// Which files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Bytes of the files at this moment.
    pub fn bytes(&self) -> u64 {
        self.files.bytes()
    }
}

#[async_trait]
impl TableProvider for ExternalTable {
    fn schema(&self) -> SchemaRef {
        self.listing.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let rows = Precision::Inexact((self.bytes() / ROW_BYTES) as usize);
        Some(Statistics::new_unknown(&self.schema()).with_num_rows(rows))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.listing.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Files that have gone would be read as no rows.
        self.files.check_there()?;
        let known = state.runtime_env().cache_manager.get_file_statistic_cache();
        let listing = self.listing.clone().with_cache(known);
        let scan = listing.scan(state, projection, filters, limit).await?;
        pieces::divided(values::counted(scan), state).await
    }
}
