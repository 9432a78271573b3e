//! Divides a scan of Parquet files into pieces of like size, one for each partition.
//!
//! ```text
//!   row groups   |        0        |        1        |   2   |
//!   pages        |   |   |   |   | |   |   |   |   | |   |   |
//!   pieces       |     0     |      1      |    2    |   3   |      cut at borders of row groups, or else of pages
//! ```
//!
//! DataFusion gives a partition the row groups that begin in a range of bytes: with few row groups most partitions have
//! nothing to do and some have twice as much as others. Where a file says where its pages are (an offset index), a piece can
//! begin at one: rows before it are neither read nor decoded. A page of another column that lies across the cut is decoded
//! by both pieces, and so is each dictionary, which is why a border of row groups goes before one of pages.

use std::ops::Range;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use millrace_engine::FILE_PIECE_BYTES_MIN;

/// Of the pieces that are wanted, one of so many is under way at a time (as of [`millrace_engine::Runtime::query_partitions`]). With as
/// many row groups none is cut: a page across a cut is decompressed twice, which took a fifth more of the processor's time in
/// query 14 of TPC-H.
const WAVES: usize = 3;

/// The part of a piece by which a cut may miss its place to meet a border of row groups.
const BORDER_SHARE: f64 = 0.25;

/// A row group, of what a query reads.
#[derive(Debug, Clone, PartialEq)]
struct RowGroup {
    file: usize,
    /// Its number in the file.
    number: usize,
    rows: u64,
    bytes: u64,
    /// The first rows of its pages but the first, in the column that takes the most bytes; empty where that is not known.
    pages: Vec<u64>,
}

/// Rows of a row group.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    file: usize,
    number: usize,
    rows: Range<u64>,
}

/// The scan with a piece for each partition that the session wants, if it is one of Parquet files with so few row groups that cores
/// would stand still.
///
/// # Errors
/// The files' metadata cannot be read.
pub(super) async fn divided(
    plan: Arc<dyn ExecutionPlan>,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = session.config().target_partitions();
    let scan = plan.downcast_ref::<DataSourceExec>();
    let Some((config, _)) = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>) else {
        return Ok(plan);
    };
    let files: Vec<&PartitionedFile> = config.file_groups.iter().flat_map(FileGroup::iter).collect();
    let is_ordered = config.preserve_order || !config.output_ordering.is_empty();
    // Many files are pieces enough.
    if partitions < 2 || is_ordered || files.is_empty() || files.len() >= partitions {
        return Ok(plan);
    }
    let file_bytes: u64 = files.iter().map(|file| file.object_meta.size).sum();
    let wanted = partitions.min((file_bytes / FILE_PIECE_BYTES_MIN) as usize);
    if wanted < 2 {
        return Ok(plan);
    }
    let columns = plan.schema();
    let reads = |name: &str| columns.column_with_name(name).is_some();
    let environment = session.runtime_env();
    let store = environment.object_store(&config.object_store_url)?;
    let mut row_groups = vec![];
    let mut counts = vec![];
    for (number, file) in files.iter().enumerate() {
        let metadata = DFParquetMetadata::new(store.as_ref(), &file.object_meta)
            .with_file_metadata_cache(Some(environment.cache_manager.get_file_metadata_cache()))
            .with_page_index_policy(Some(PageIndexPolicy::Optional))
            .fetch_metadata()
            .await?;
        counts.push(metadata.num_row_groups());
        row_groups.extend(of_file(number, &metadata, &reads));
    }
    if row_groups.len() * WAVES >= partitions {
        return Ok(plan);
    }
    let pieces = pieces(&row_groups, wanted);
    if pieces.len() < 2 {
        return Ok(plan);
    }
    let mut groups: Vec<FileGroup> = (pieces.iter())
        .map(|parts| FileGroup::new(files_of(parts, &files, &row_groups, &counts)))
        .collect();
    // So many as were asked for: with fewer, rows would be handed around only to be spread over more tasks.
    groups.resize_with(partitions, || FileGroup::new(vec![]));
    let mut config: FileScanConfig = config.clone();
    config.file_groups = groups;
    // DataFusion leaves what has a partitioning as it is.
    config.output_partitioning = Some(Partitioning::UnknownPartitioning(partitions));
    Ok(DataSourceExec::from_data_source(config))
}

/// The row groups of a file. `reads`: whether the query reads a column.
fn of_file(file: usize, metadata: &ParquetMetaData, reads: &dyn Fn(&str) -> bool) -> Vec<RowGroup> {
    let of_group = |number: usize| {
        let group = metadata.row_group(number);
        let read = group.columns().iter().enumerate().filter(|(_, column)| {
            let name = column.column_path().parts().first();
            name.is_some_and(|name| reads(name))
        });
        let bytes = |place: usize| group.column(place).compressed_size().max(0) as u64;
        let read: Vec<usize> = read.map(|(place, _)| place).collect();
        let largest = read.iter().copied().max_by_key(|place| bytes(*place));
        let index = metadata.offset_index().and_then(|index| index.get(number));
        let pages = largest.and_then(|place| Some(index?.get(place)?.page_locations()));
        let first_rows = pages
            .into_iter()
            .flatten()
            .map(|page| page.first_row_index as u64);
        RowGroup {
            file,
            number,
            rows: group.num_rows().max(0) as u64,
            // A query without columns counts rows.
            bytes: read.iter().map(|place| bytes(*place)).sum::<u64>().max(1),
            pages: first_rows.filter(|row| *row > 0).collect(),
        }
    };
    (0..metadata.num_row_groups()).map(of_group).collect()
}

/// All rows in at most so many pieces, in order.
fn pieces(row_groups: &[RowGroup], wanted: usize) -> Vec<Vec<Part>> {
    let rows_before = running_sums(row_groups.iter().map(|group| group.rows));
    let mut cuts = cuts(row_groups, &rows_before, wanted);
    cuts.push(rows_before[row_groups.len()]);
    let mut from = 0;
    let mut pieces = vec![];
    for to in cuts {
        let parts = row_groups.iter().zip(&rows_before).filter_map(|(group, before)| {
            let rows = from.max(*before)..to.min(before + group.rows);
            (rows.start < rows.end).then(|| Part {
                file: group.file,
                number: group.number,
                rows: rows.start - before..rows.end - before,
            })
        });
        pieces.push(parts.collect());
        from = to;
    }
    pieces.retain(|parts: &Vec<Part>| !parts.is_empty());
    pieces
}

/// The rows, of all, at which pieces begin but the first: at a border that is near, else where a row group or page begins
/// that is nearest to what even pieces would have.
fn cuts(row_groups: &[RowGroup], rows_before: &[u64], wanted: usize) -> Vec<u64> {
    let bytes_before = running_sums(row_groups.iter().map(|group| group.bytes));
    let total = bytes_before[row_groups.len()] as f64;
    let piece = total / wanted as f64;
    let mut cuts = vec![];
    for cut in 1..wanted {
        let ideal = cut as f64 * piece;
        let at = bytes_before.partition_point(|before| *before as f64 <= ideal) - 1;
        let Some(group) = row_groups.get(at) else { break };
        let place = |row: u64| {
            let share = row as f64 / group.rows.max(1) as f64;
            (bytes_before[at] as f64 + share * group.bytes as f64 - ideal).abs()
        };
        let nearest = |rows: &mut dyn Iterator<Item = u64>| {
            rows.min_by(|left, right| place(*left).total_cmp(&place(*right)))
        };
        let border = nearest(&mut [0, group.rows].into_iter());
        let page = nearest(&mut group.pages.iter().copied());
        let is_near = |row: &u64| place(*row) <= BORDER_SHARE * piece;
        let row = border.filter(is_near).or(page).or(border).unwrap_or_default();
        cuts.push(rows_before[at] + row);
    }
    cuts.dedup();
    cuts
}

/// The sum before each value, and of all.
fn running_sums(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0];
    let mut sum = 0;
    for value in values {
        sum += value;
        sums.push(sum);
    }
    sums
}

/// The files of a piece, each with what is to be read of it. `num_row_groups`: of each file.
fn files_of(
    parts: &[Part],
    files: &[&PartitionedFile],
    row_groups: &[RowGroup],
    num_row_groups: &[usize],
) -> Vec<PartitionedFile> {
    let of_file = |parts: &[Part]| {
        let file = parts[0].file;
        let mut access = ParquetAccessPlan::new_none(num_row_groups[file]);
        for part in parts {
            access.scan(part.number);
            let group = row_groups
                .iter()
                .find(|group| group.file == file && group.number == part.number);
            let rows = group.map_or(part.rows.end, |group| group.rows);
            if part.rows != (0..rows) {
                let selected = RowSelection::from(vec![
                    RowSelector::skip(part.rows.start as usize),
                    RowSelector::select((part.rows.end - part.rows.start) as usize),
                    RowSelector::skip((rows - part.rows.end) as usize),
                ]);
                access.scan_selection(part.number, selected);
            }
        }
        files[file].clone().with_extension(access)
    };
    parts
        .chunk_by(|left, right| left.file == right.file)
        .map(of_file)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row group of a file with a byte a row.
    fn group(number: usize, rows: u64, page_rows: usize) -> RowGroup {
        RowGroup {
            file: 0,
            number,
            rows,
            bytes: rows,
            pages: (0..rows).step_by(page_rows).skip(1).collect(),
        }
    }

    /// Rows of each piece, having seen that each row is in one piece, in order.
    fn rows(row_groups: &[RowGroup], wanted: usize) -> Vec<u64> {
        let pieces = pieces(row_groups, wanted);
        let mut parts = pieces.iter().flatten().cloned().collect::<Vec<_>>();
        parts.dedup_by(|next, part| {
            let follows = next.number == part.number && part.rows.end == next.rows.start;
            if follows {
                part.rows.end = next.rows.end;
            }
            follows
        });
        let whole = |group: &RowGroup| Part {
            file: group.file,
            number: group.number,
            rows: 0..group.rows,
        };
        assert_eq!(parts, row_groups.iter().map(whole).collect::<Vec<_>>());
        let rows = |parts: &Vec<Part>| parts.iter().map(|part| part.rows.end - part.rows.start).sum();
        pieces.iter().map(rows).collect()
    }

    #[test]
    fn pieces_are_even_and_cut_at_pages() {
        assert_eq!(rows(&[group(0, 1_000, 10)], 4), [250; 4]);
        assert_eq!(rows(&[group(0, 1_000, 300)], 4), [300, 300, 400]);
        // Where pages are not known, row groups stay whole.
        let whole = [group(0, 1_000, 1_000), group(1, 1_000, 1_000), group(2, 10, 10)];
        assert_eq!(rows(&whole, 6), [1_000, 1_000, 10]);
    }

    #[test]
    fn a_border_goes_before_a_page_if_it_is_near() {
        let groups = [group(0, 900, 10), group(1, 1_100, 10)];
        assert_eq!(rows(&groups, 2), [900, 1_100]);
        let groups = [group(0, 600, 10), group(1, 1_400, 10)];
        assert_eq!(rows(&groups, 2), [1_000, 1_000]);
    }

    #[test]
    fn every_row_is_in_one_piece() {
        let mut seed = 0x5EED_u64;
        let mut random = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        for _ in 0..1_000 {
            let groups: Vec<RowGroup> = (0..1 + random(8) as usize)
                .map(|number| RowGroup {
                    bytes: 1 + random(1_000),
                    ..group(number, 1 + random(500), 1 + random(100) as usize)
                })
                .collect();
            let wanted = 1 + random(40) as usize;
            assert!(rows(&groups, wanted).len() <= wanted);
        }
    }
}
