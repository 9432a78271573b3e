//! Into how many partitions a query is cut.
//!
//! Two things want many: tasks of one resource are to overlap with those of another, and what an operator keeps of a partition (a
//! hash table, groups, a sorted run) is to be so small that it is worked on between two suspension points. Each has its price: with
//! 32 partitions instead of 6, TPC-H at scale factor 1 takes 8 % more of the processors' time in plain DataFusion. So a plan is
//! first made in as many as overlap, and again in more only if its tables are expected to be large.

use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::Queries;

/// So many rows are hashed, sorted or emitted in about a millisecond.
pub const QUERY_PARTITION_ROWS: usize = 65_536;

/// Tasks of a stage for each core, so that resources are used at the same time.
const WAVES: usize = 3;

/// What is read for one task at the least, of a file that is cut.
pub const FILE_PIECE_BYTES_MIN: u64 = 1 << 20;

/// Partitions of a query on a machine with fewer cores than that.
pub const PARTITIONS_MAX: usize = 32;

/// Partitions of a query: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitions {
    /// In which it is planned first.
    pub first: usize,
    /// In which it is planned again if its tables are of so many rows.
    pub most: usize,
}

impl Queries {
    /// Into how many partitions a query is cut that works on so many rows at a time: one while that is little, for then the
    /// exchanges would cost more than they bring; else as many as make each partition's hash tables, sorted runs and groups small
    /// enough to be worked on between two suspension points.
    pub fn partitions_for(&self, rows: usize) -> usize {
        let fit = rows / self.partition_rows.max(1);
        let most = PARTITIONS_MAX.max(self.waves());
        if fit < 2 { 1 } else { fit.min(most) }
    }

    /// The same for one that reads relations of so many rows and files of so many bytes.
    pub fn query_partitions(&self, rows: usize, file_bytes: u64) -> Partitions {
        let waves = self.waves_for(file_bytes);
        let most = self.partitions_for(rows).max(waves);
        let first = match self.has_usual_partitions() {
            true => most.min(self.waves()),
            false => most,
        };
        Partitions { first, most }
    }

    /// Tasks of a stage with which every resource has work.
    fn waves(&self) -> usize {
        waves(self.machine.cores)
    }

    fn has_usual_partitions(&self) -> bool {
        self.partition_rows == QUERY_PARTITION_ROWS
    }

    /// Into how many partitions a query is cut at the least that reads files of so many bytes: so many that some compute while
    /// others are read. With fewer than three waves of tasks disk and cores wait for each other at the beginning and at the
    /// end (Ousterhout 2017, figure 5.7). Pieces are not cut smaller than what is worth a request,
    /// and not at all where the rows of a partition were set to something else.
    fn waves_for(&self, bytes: u64) -> usize {
        if !self.has_usual_partitions() {
            return 1;
        }
        let pieces = (bytes / FILE_PIECE_BYTES_MIN) as usize;
        pieces.min(self.waves()).max(1)
    }
}

/// Tasks of a stage on so many cores, if nothing else says how many.
pub fn waves(cores: usize) -> usize {
    WAVES * cores
}

/// Rows of the largest table that operators of a plan keep of all partitions together: the build side of a join, groups, what is
/// sorted. `unknown`: where nothing is known.
pub fn table_rows(plan: &dyn ExecutionPlan, unknown: usize) -> usize {
    let statistics = StatisticsContext::default();
    largest_table(plan, &statistics, unknown)
}

fn largest_table(plan: &dyn ExecutionPlan, statistics: &StatisticsContext, unknown: usize) -> usize {
    let rows = |plan: &dyn ExecutionPlan| {
        let known = statistics.compute(plan, &Default::default()).ok();
        let rows = known.and_then(|known| known.num_rows.get_value().copied());
        rows.unwrap_or(unknown)
    };
    let children = plan.children().into_iter();
    let below = children.map(|child| largest_table(child.as_ref(), statistics, unknown));
    let below = below.max().unwrap_or(0);
    let is_divided = |plan: &dyn ExecutionPlan| plan.output_partitioning().partition_count() > 1;
    let own = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        // A table that is built once is built at once in any number of partitions.
        is_divided(join.left().as_ref()).then(|| rows(join.left().as_ref()))
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        is_divided(join.left().as_ref()).then(|| rows(join.left().as_ref()))
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let is_whole = !matches!(aggregate.mode(), AggregateMode::Partial) && is_divided(plan);
        is_whole.then(|| rows(plan))
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let keeps_all = sort.fetch().is_none() && is_divided(plan);
        keeps_all.then(|| rows(plan))
    } else {
        None
    };
    below.max(own.unwrap_or(0))
}
