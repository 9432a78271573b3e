//! What CREATE SINK says of a table of Delta Lake.

use std::collections::BTreeMap;

use millrace_parser::ast::FormatEncode;
use millrace_postgres::error::{SqlError, SqlResult};

use super::{FILE_ROLLOVER, FileOptions, SinkOptions, Wanted};
use crate::connector::delta;
use crate::connector::options::Given;
use crate::secret::Secrets;
use crate::sink::{DeltaSink, FileFormat};

impl SinkOptions {
    pub(super) fn delta(
        all: &BTreeMap<String, String>,
        format: Option<&FormatEncode>,
        id: String,
    ) -> SqlResult<SinkOptions> {
        if format.is_some() {
            return Err(SqlError::unsupported(
                "FORMAT .. ENCODE .. is not supported for a sink to Delta Lake",
            )
            .with_hint("Its files are Parquet. Leave the clause out."));
        }
        if all
            .get("type")
            .is_some_and(|named| named.eq_ignore_ascii_case("upsert"))
        {
            return Err(SqlError::unsupported("type = 'upsert' is not supported for a sink to Delta Lake")
                .with_detail("Rows of a table there can only be replaced by writing their files again.")
                .with_hint(
                    "Use type = 'changelog', which appends every change of each row, and merge them there.",
                ));
        }
        let all = delta::with_bucket(all)?;
        let mut given = Given::new("delta", &all);
        delta::place(&mut given)?;
        let of_files = FileOptions::limits(&mut given, FileFormat::Parquet)?;
        let target = Wanted::Delta(DeltaSink {
            delta: all.clone(),
            secrets: Secrets::default(),
            id,
            schema: String::new(),
            rows_max: of_files.rows_max,
            bytes_max: of_files.bytes_max,
        });
        Self::common(given, target, of_files.sink_type, FILE_ROLLOVER)
    }
}
