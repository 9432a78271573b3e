//! The stage DAG: all that crosses from planning to execution.
//!
//! ```text
//!  stage 0 (map)                       stage 1 (reduce)
//!  Source -> Filter -> Project         Exchange <- stage 0
//!         -> PartialAggregate          -> Aggregate (keyed state) -> Project
//!         => hash(k)                   => materialize
//! ```
//!
//! A stage is a tree of operators between exchanges. Its leaves are either one [`Operator::Source`] (a map stage) or
//! [`Operator::Exchange`]s (a reduce stage), never both: what is partitioned by arrival does not meet keyed state.
//! Every stage runs as `StageGraph::partitions` tasks an epoch.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::NullHandling;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::WindowExpr;

use crate::relation::{RelationId, RelationInfo};
use crate::view::{OnError, Priority};
use crate::watermark::{Bound, ColumnWatermark};

/// A view's plan.
#[derive(Debug, Clone)]
pub struct StageGraph {
    /// In topological order; the last one materializes.
    pub stages: Vec<Stage>,
    /// Columns of the view. Any may be NULL: an expression that fails on a row is NULL there.
    pub schema: SchemaRef,
    /// Columns whose values are unique together in the view, if the plan proves it.
    pub key: Option<Vec<usize>>,
    /// Whether the view's rows are only ever added.
    pub append_only: bool,
    /// What is known of the rows that are still to change.
    pub watermarks: Vec<ColumnWatermark>,
    /// The relations that it reads.
    pub inputs: Vec<RelationInfo>,
    /// Partitions of keyed state: fixed for the life of the view.
    pub partitions: usize,
    /// How much may be in flight behind a stage with a [`Stage::faucet`].
    pub flow: FlowLimits,
    pub priority: Priority,
    pub on_error: OnError,
}

/// Flow control of a view's epochs (Faucet, section 4). What a task with a faucet puts out is divided into batches; a batch
/// is in flight until the tasks that it goes to have worked it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLimits {
    /// Batches of one task in flight: N.
    pub batches: usize,
    /// Rows of a batch: B.
    pub batch_rows: usize,
}

impl std::fmt::Display for FlowLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FlowLimits { batches, batch_rows } = self;
        let noun = if *batches == 1 { "batch" } else { "batches" };
        write!(f, "{batches} {noun} of {batch_rows} rows in flight")
    }
}

impl FlowLimits {
    /// Batches in flight, unless it is set (section 5.1: from two on their number hardly matters).
    pub const BATCHES: usize = 4;
    /// Rows of a batch for each core, unless it is set (section 5.1: where the running time stops falling).
    pub const BATCH_ROWS_A_CORE: usize = 1_000;

    /// The defaults for so many cores.
    pub fn of_cores(cores: usize) -> Self {
        FlowLimits {
            batches: Self::BATCHES,
            batch_rows: Self::BATCH_ROWS_A_CORE * cores.max(1),
        }
    }

    /// Rows that a task may hold back or have in flight.
    pub fn rows(&self) -> usize {
        self.batches.saturating_mul(self.batch_rows)
    }
}

impl StageGraph {
    /// Whether the view can change by time alone.
    pub fn keeps_time(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.keeps_time())
    }

    /// Whether watermarks decide what the view shows or what it may forget.
    pub fn goes_by_watermarks(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.goes_by_watermarks())
    }

    /// Whether rows that exist already can be put out only when all of them are there.
    pub fn awaits_all(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.awaits_all())
    }
}

/// Operators between two exchanges.
#[derive(Debug, Clone)]
pub struct Stage {
    pub id: usize,
    pub root: Operator,
    pub output: Output,
    /// Where its output may go on batch by batch while it is made; `None`: it goes on as a whole.
    pub faucet: Option<Faucet>,
}

/// A place for a faucet: behind a stage that may put out far more rows than it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faucet {
    pub reason: Explosion,
    /// Whether one is there from the start. Otherwise it is where it costs nothing, and elsewhere from the end of the group of
    /// epochs in which rows were seen to multiply.
    pub is_placed: bool,
}

/// Why a stage may put out far more rows than it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explosion {
    /// Each row of one side meets every row of the other.
    CrossJoin,
    /// These keys are unique on neither side of a join.
    ManyToMany { keys: Vec<String> },
    /// A change of one row, which these keys tell from others, changes every row that it meets.
    OneToMany { keys: Vec<String> },
    /// As many results as a cycle of joins has.
    CyclicJoin,
    /// Each row once for each element of its lists.
    Unnest,
    /// What follows from a row in the recursion of this name.
    Recursion { name: String },
    /// A stage that it reads does.
    Upstream { stage: usize },
}

impl std::fmt::Display for Explosion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Explosion::CrossJoin => write!(f, "every row is joined with every other"),
            Explosion::ManyToMany { keys } => write!(f, "({}) is not unique on either side", keys.join(", ")),
            Explosion::OneToMany { keys } if keys.is_empty() => write!(
                f,
                "all rows may be joined with the \
             single row of the other side"
            ),
            Explosion::OneToMany { keys } => {
                write!(
                    f,
                    "many rows may be joined with one that is unique by ({})",
                    keys.join(", ")
                )
            }
            Explosion::CyclicJoin => write!(f, "a cycle of joins may have many results"),
            Explosion::Unnest => write!(f, "UNNEST makes a row of each element"),
            Explosion::Recursion { name } => {
                write!(f, "recursive query {name} may derive many rows from one")
            }
            Explosion::Upstream { stage } => write!(f, "stage {stage} sends batches"),
        }
    }
}

/// Where a stage's rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// To the next stage, by a hash of these columns; equal keys meet in one partition.
    Hash(Vec<usize>),
    /// To the next stage's partition 0.
    Single,
    /// Into the view's contents.
    Materialize,
}

/// An incremental operator over change batches. Expressions refer to the input's columns by position.
#[derive(Debug, Clone)]
pub enum Operator {
    /// The changes of a stored relation in this epoch.
    Source {
        relation: RelationId,
        name: String,
        projection: Vec<usize>,
        schema: SchemaRef,
    },
    /// Fixed rows, inserted once, in the first epoch that the view sees.
    Values {
        rows: Vec<Vec<Arc<dyn PhysicalExpr>>>,
        schema: SchemaRef,
    },
    /// What upstream stages sent to this partition.
    Exchange {
        stages: Vec<usize>,
        schema: SchemaRef,
    },
    Filter {
        input: Box<Operator>,
        predicate: Arc<dyn PhysicalExpr>,
        schema: SchemaRef,
    },
    Project {
        input: Box<Operator>,
        expressions: Vec<Arc<dyn PhysicalExpr>>,
        schema: SchemaRef,
    },
    /// The combiner: this epoch's partial aggregates in the map stage. Output: group columns, then each aggregate's state.
    PartialAggregate(Box<Aggregation>),
    /// Merges what arrives into keyed state and emits the retraction and the new row of every group that changed.
    Aggregate(Box<Aggregation>),
    Join(Box<Join>),
    GenericJoin(Box<GenericJoin>),
    /// Every row once for each projection: GROUPING SETS.
    Expand {
        input: Box<Operator>,
        projections: Vec<Vec<Arc<dyn PhysicalExpr>>>,
        schema: SchemaRef,
    },
    /// Every row once for each element of its lists; lists of one row are read side by side.
    Unnest {
        input: Box<Operator>,
        /// For each column of the output, in order.
        columns: Vec<UnnestColumn>,
        /// What becomes of a row whose lists are all NULL or empty.
        null_handling: NullHandling,
        schema: SchemaRef,
    },
    TopN(Box<TopN>),
    Recompute(Box<Recompute>),
    Recursion(Box<Recursion>),
    /// Inside a recursion's body: what changed in its working table. The last column is the iteration.
    WorkingTable {
        schema: SchemaRef,
    },
    TemporalFilter(Box<TemporalFilter>),
    LookupJoin(Box<LookupJoin>),
    AsofJoin(Box<AsofJoin>),
    Session(Box<Session>),
    Sliding(Box<Sliding>),
    EmitOnClose(Box<EmitOnClose>),
    EmitEvery(Box<EmitEvery>),
}

/// Each row with the first and the last moment of its session: the rows with its keys that are no more than the gap away from
/// one another, in a chain. The session ends at its last row plus the gap.
#[derive(Debug, Clone)]
pub struct Session {
    pub input: Operator,
    /// Input columns that tell whose session it is.
    pub keys: Vec<usize>,
    /// The input column of the time, in microseconds.
    pub time: usize,
    /// In microseconds.
    pub gap: i64,
    /// Columns of the input that reach the output; what it has beyond them are computed keys.
    pub width: usize,
    pub input_append_only: bool,
    /// A session that ends before this is final, and forgotten.
    pub closes: Option<Bound>,
    pub schema: SchemaRef,
}

/// Aggregates over overlapping windows (HOP), which are put together from panes: what comes in is grouped by pane.
#[derive(Debug, Clone)]
pub struct Sliding {
    /// Its group columns are those of the output. In the input those that tell of the window hold the start of the pane.
    pub aggregation: Aggregation,
    /// The group columns that tell of the window; there is at least one.
    pub windows: Vec<WindowColumn>,
    /// Lengths in microseconds. A window begins at each multiple of the slide, plus the offset; a pane divides slide and size.
    pub slide: i64,
    pub size: i64,
    pub offset: i64,
    pub pane: i64,
    pub form: SlidingForm,
    /// A window whose start plus so many microseconds is below the bound is final.
    pub closes: Option<(i64, Bound)>,
    /// Each window is put out once, when it is final, and not whenever it changes.
    pub once: bool,
}

/// A column that tells when a window begins, plus so many microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowColumn {
    pub column: usize,
    pub shift: i64,
}

/// How the value over the next window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlidingForm {
    /// From that over the last one: the panes that leave are taken away, those that enter are added.
    Subtract,
    /// From those of its panes, for at least one of the aggregates.
    Merge,
}

/// Which rows are final: those of which a value is below a bound. Nothing that is still to come has such a value.
#[derive(Debug, Clone)]
pub struct Closing {
    /// Over the columns of an operator's input.
    pub value: Arc<dyn PhysicalExpr>,
    pub bound: Bound,
}

impl Closing {
    /// By the first column of a simple type that has a bound.
    pub fn by_first<'a>(
        watermarks: impl IntoIterator<Item = &'a ColumnWatermark>,
        schema: &SchemaRef,
    ) -> Option<Closing> {
        let is_simple = |known: &&ColumnWatermark| !schema.field(known.column).data_type().is_nested();
        let known = watermarks.into_iter().find(is_simple)?;
        let name = schema.field(known.column).name();
        Some(Closing {
            value: Arc::new(Column::new(name, known.column)),
            bound: known.bound.clone(),
        })
    }
}

/// EMIT ON WINDOW CLOSE: rows are held back until they are final.
#[derive(Debug, Clone)]
pub struct EmitOnClose {
    pub input: Operator,
    pub closing: Closing,
    pub schema: SchemaRef,
}

/// EMIT EVERY: what changes is held back until the time is a multiple of the interval, and put out as one change.
#[derive(Debug, Clone)]
pub struct EmitEvery {
    pub input: Operator,
    /// In microseconds.
    pub every: i64,
    pub schema: SchemaRef,
}

/// Each change of the left side, with the right side as it is in that epoch; later changes of the right side do not change
/// what was put out. The rows that exist when the view is made are joined when all of them are there. Inner, or left outer.
#[derive(Debug, Clone)]
pub struct LookupJoin {
    pub left: Operator,
    pub right: Operator,
    /// Columns of each side that reach the output; what an input has beyond them are computed keys.
    pub left_width: usize,
    pub right_width: usize,
    pub is_outer: bool,
    /// Pairs of (left column, right column); both sides are exchanged by them.
    pub keys: Vec<(usize, usize)>,
    /// Over left columns, then right columns.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    pub left_append_only: bool,
    pub right_append_only: bool,
    pub schema: SchemaRef,
}

/// Each left row with the nearest right row in time, of those with its key. Inner, or left outer.
#[derive(Debug, Clone)]
pub struct AsofJoin {
    pub left: Operator,
    pub right: Operator,
    /// As in [`LookupJoin`]; times may be computed too.
    pub left_width: usize,
    pub right_width: usize,
    pub is_outer: bool,
    pub keys: Vec<(usize, usize)>,
    /// The columns that are compared: left, right.
    pub times: (usize, usize),
    pub nearest: Nearest,
    pub left_append_only: bool,
    pub right_append_only: bool,
    pub schema: SchemaRef,
}

/// Which right row a left row of an ASOF join gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    /// `l >= r`: the latest that is not later.
    AtOrBefore,
    /// `l > r`: the latest that is earlier.
    Before,
    /// `l <= r`: the earliest that is not earlier.
    AtOrAfter,
    /// `l < r`: the earliest that is later.
    After,
}

/// Rows while their time is: a row is put out when it has entered by all bounds, until it leaves by one. What is to enter
/// or leave later is kept in the order of the time when it does.
#[derive(Debug, Clone)]
pub struct TemporalFilter {
    pub input: Operator,
    pub bounds: Vec<TimeBound>,
    pub schema: SchemaRef,
}

/// The moment of a row: the first at which a function of the time reaches the row's value. A row whose value is NULL never
/// passes.
#[derive(Debug, Clone)]
pub struct TimeBound {
    pub passage: Passage,
    /// Over the input's columns.
    pub value: Arc<dyn PhysicalExpr>,
    /// Of the type of `value`, over one column: the time, in microseconds UTC. It never goes back.
    pub clock: Arc<dyn PhysicalExpr>,
    /// The moment comes when the clock is past the value, not when they are equal.
    pub is_strict: bool,
    /// The condition, to be shown.
    pub condition: String,
}

/// What happens to a row at its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    Enters,
    Leaves,
}

/// A fix-point inside the epoch (WITH RECURSIVE). The working table holds the rows of every iteration: `base` is
/// iteration 0, and what `body` makes of the rows of iteration `i` is iteration `i + 1`.
#[derive(Debug, Clone)]
pub struct Recursion {
    /// The query's name.
    pub name: String,
    pub base: Operator,
    /// From changes of the working table, and of what else it reads, to changes of the recursive term's rows. The last
    /// column is the iteration of the row of the working table that a row comes from.
    pub body: Operator,
    /// UNION: a row is only in the first iteration that reaches it. Otherwise UNION ALL.
    pub distinct: bool,
    pub limits: RecursionLimits,
    pub schema: SchemaRef,
}

/// When a recursion is held to be endless. Within one epoch:
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecursionLimits {
    /// How many times the recursive term may follow upon itself.
    pub iterations: usize,
    /// How many rows it may make.
    pub rows: usize,
}

impl Default for RecursionLimits {
    fn default() -> Self {
        RecursionLimits {
            iterations: 10_000,
            rows: 10_000_000,
        }
    }
}

/// Where a column of an [`Operator::Unnest`] comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnnestColumn {
    /// The input's column, repeated.
    Kept(usize),
    /// The elements of the input's list column.
    Elements(usize),
    /// The pieces of the input's text column between delimiters, as `string_to_array` cuts it; there is no other list, and
    /// rows without elements are dropped.
    Pieces { column: usize, delimiter: String },
}

/// The first rows of each partition in an order: ORDER BY with LIMIT, `row_number() OVER (..) <= n`, DISTINCT ON. The rows
/// behind them are kept, for when one of the first goes.
#[derive(Debug, Clone)]
pub struct TopN {
    pub input: Operator,
    /// Input columns that tell partitions apart; empty: all rows are one.
    pub partition_by: Vec<usize>,
    pub numbering: Numbering,
    /// Whether a row's number is the last column of the output.
    pub with_number: bool,
    /// Input columns to order by. Equal rows are ordered by all their columns, so that the answer is definite.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// Rows numbered up to this are left out.
    pub skip: usize,
    /// Of the numbers after `skip`, how many; `None`: all.
    pub fetch: Option<usize>,
    /// Columns of the input that reach the output; what it has beyond them is computed to order by.
    pub width: usize,
    pub input_append_only: bool,
    /// Partitions to which nothing comes any more, and from which nothing goes: they are forgotten.
    pub closes: Option<Closing>,
    pub schema: SchemaRef,
}

/// How the rows of a partition are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Each row has a number of its own.
    RowNumber,
    /// Rows that are equal in the order share the number of the first.
    Rank,
    /// As [`Numbering::Rank`], without gaps.
    DenseRank,
}

/// A function of each partition of rows as a whole (OVER windows): computed again for the partitions that changed.
#[derive(Debug, Clone)]
pub struct Recompute {
    pub input: Operator,
    /// Input columns that tell partitions apart; empty: all rows are one.
    pub partition_by: Vec<usize>,
    /// Input columns that order a partition's rows. Equal rows are ordered by all their columns, so that what is computed
    /// again is what was put out before.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// Each makes one column from the rows of one partition, in their order.
    pub functions: Vec<Arc<dyn WindowExpr>>,
    pub input_append_only: bool,
    /// As in [`TopN`].
    pub closes: Option<Closing>,
    pub schema: SchemaRef,
}

/// Grouping and aggregates, for both halves.
#[derive(Debug, Clone)]
pub struct Aggregation {
    pub input: Operator,
    /// Columns `0..group_columns` of the input are the group key.
    pub group_columns: usize,
    pub calls: Vec<AggregateCall>,
    /// How the map stage's rows look to the reduce stage.
    pub exchange: ExchangeForm,
    pub input_append_only: bool,
    /// Groups to which nothing comes any more: they are forgotten.
    pub closes: Option<Closing>,
    /// Every so many microseconds the time is told to reducers, also where nothing came.
    pub timer: Option<i64>,
    pub schema: SchemaRef,
}

/// What the map stage of an aggregation sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeForm {
    /// One row a group: its key and the partial state of every aggregate.
    Partial,
    /// The rows themselves, equal ones consolidated into one with a weight: some aggregate has no partial form
    /// under deletion.
    Rows,
}

/// One aggregate of an aggregation.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    pub form: AggregateForm,
    /// Columns of the aggregation's input.
    pub input_schema: SchemaRef,
    /// Input columns of the arguments, if all are columns.
    pub arguments: Vec<usize>,
    /// Input column of the FILTER condition.
    pub filter: Option<usize>,
    pub distinct: bool,
    /// Input columns of ORDER BY inside the call, with direction.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// DataFusion's own, for its types, and for its accumulator where the form is [`AggregateForm::Values`].
    pub function: Arc<AggregateFunctionExpr>,
}

/// How an aggregate is maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateForm {
    Count,
    Sum,
    Average,
    /// Population (`false`) or sample (`true`).
    Variance {
        sample: bool,
    },
    StandardDeviation {
        sample: bool,
    },
    BoolAnd,
    BoolOr,
    /// Minimum over rows that only arrive: the smallest so far.
    MinAppendOnly,
    MaxAppendOnly,
    /// An ordered multiset of values a group: the first or the last one is the answer.
    Min,
    Max,
    /// `approx_distinct` over rows that only arrive: the registers of a HyperLogLog sketch.
    ApproxDistinct,
    /// A reducer of a program's own: a state of its making. Over rows that only arrive it is begun where they do.
    Reducer {
        append_only: bool,
    },
    /// An ordered multiset of argument rows a group, fed to DataFusion's accumulator when the group is touched.
    Values,
}

impl AggregateForm {
    /// Whether partial states of this form merge without the values themselves.
    pub fn merges(self) -> bool {
        !matches!(
            self,
            AggregateForm::Min
                | AggregateForm::Max
                | AggregateForm::Reducer { append_only: false }
                | AggregateForm::Values
        )
    }
}

/// A join by equal keys, with an optional further condition.
#[derive(Debug, Clone)]
pub struct Join {
    pub left: Operator,
    pub right: Operator,
    /// Columns of each side that reach the output; what an input has beyond them are computed keys.
    pub left_width: usize,
    pub right_width: usize,
    pub kind: JoinKind,
    /// Pairs of (left column, right column); both sides are exchanged by them.
    pub keys: Vec<(usize, usize)>,
    /// Whether NULL keys match each other (`IS NOT DISTINCT FROM`, set operations).
    pub null_equals_null: bool,
    /// Over left columns, then right columns.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    pub left_append_only: bool,
    pub right_append_only: bool,
    /// Columns whose values are unique together in a side, if the plan proves it: a deleted row is found by them.
    pub left_key: Option<Vec<usize>>,
    pub right_key: Option<Vec<usize>>,
    /// Rows of each side that no row to come of the other one matches, and that do not change: they are forgotten.
    pub left_closes: Option<Closing>,
    pub right_closes: Option<Closing>,
    pub schema: SchemaRef,
}

/// An inner join of three or more relations by equal columns, all at once: attribute after attribute, where binary joins would
/// make pairs that a third relation drops. Columns that are equal are one attribute; a column that equals no other is one too.
#[derive(Debug, Clone)]
pub struct GenericJoin {
    /// Its relations.
    pub inputs: Vec<Operator>,
    pub shape: GenericJoinShape,
}

/// What a [`GenericJoin`] is but for its relations.
#[derive(Debug, Clone)]
pub struct GenericJoinShape {
    /// For each relation, the attribute of each of its columns.
    pub attributes: Vec<Vec<usize>>,
    /// By attribute: what it is called, to be shown, and its type.
    pub names: Vec<String>,
    pub types: Vec<DataType>,
    /// The attribute of each column of the output.
    pub output: Vec<usize>,
    pub schema: SchemaRef,
}

/// Which rows of a side appear without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    LeftSemi,
    LeftAnti,
    /// Every left row once, with a last column that says whether it has a match.
    LeftMark,
    RightSemi,
    RightAnti,
}

impl Operator {
    /// Columns of the operator's output.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Operator::Source { schema, .. }
            | Operator::Values { schema, .. }
            | Operator::Exchange { schema, .. }
            | Operator::WorkingTable { schema }
            | Operator::Filter { schema, .. }
            | Operator::Project { schema, .. }
            | Operator::Expand { schema, .. }
            | Operator::Unnest { schema, .. } => schema,
            Operator::PartialAggregate(aggregation) | Operator::Aggregate(aggregation) => &aggregation.schema,
            Operator::Join(join) => &join.schema,
            Operator::GenericJoin(join) => &join.shape.schema,
            Operator::TopN(top) => &top.schema,
            Operator::Recompute(recompute) => &recompute.schema,
            Operator::Recursion(recursion) => &recursion.schema,
            Operator::TemporalFilter(filter) => &filter.schema,
            Operator::LookupJoin(join) => &join.schema,
            Operator::AsofJoin(join) => &join.schema,
            Operator::Session(session) => &session.schema,
            Operator::Sliding(sliding) => &sliding.aggregation.schema,
            Operator::EmitOnClose(emit) => &emit.schema,
            Operator::EmitEvery(emit) => &emit.schema,
        }
    }

    /// Whether the output can change by time alone.
    pub fn keeps_time(&self) -> bool {
        matches!(self, Operator::TemporalFilter(_) | Operator::EmitEvery(_))
            || matches!(self, Operator::Aggregate(aggregation) if aggregation.timer.is_some())
            || self.inputs().into_iter().any(Operator::keeps_time)
    }

    /// See [`StageGraph::goes_by_watermarks`].
    fn goes_by_watermarks(&self) -> bool {
        let own = match self {
            Operator::EmitOnClose(_) => true,
            Operator::Aggregate(aggregation) => aggregation.closes.is_some(),
            Operator::Join(join) => join.left_closes.is_some() || join.right_closes.is_some(),
            Operator::TopN(top) => top.closes.is_some(),
            Operator::Recompute(recompute) => recompute.closes.is_some(),
            Operator::Session(session) => session.closes.is_some(),
            Operator::Sliding(sliding) => sliding.closes.is_some(),
            _ => false,
        };
        own || self.inputs().into_iter().any(Operator::goes_by_watermarks)
    }

    /// See [`StageGraph::awaits_all`].
    fn awaits_all(&self) -> bool {
        matches!(self, Operator::LookupJoin(_) | Operator::EmitEvery(_))
            || self.inputs().into_iter().any(Operator::awaits_all)
    }

    /// The operators that it reads, left to right.
    pub fn inputs(&self) -> Vec<&Operator> {
        match self {
            Operator::Source { .. }
            | Operator::Values { .. }
            | Operator::Exchange { .. }
            | Operator::WorkingTable { .. } => vec![],
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Expand { input, .. }
            | Operator::Unnest { input, .. } => {
                vec![input]
            }
            Operator::TopN(top) => vec![&top.input],
            Operator::Recompute(recompute) => vec![&recompute.input],
            Operator::TemporalFilter(filter) => vec![&filter.input],
            Operator::Session(session) => vec![&session.input],
            Operator::Sliding(sliding) => vec![&sliding.aggregation.input],
            Operator::EmitOnClose(emit) => vec![&emit.input],
            Operator::EmitEvery(emit) => vec![&emit.input],
            Operator::LookupJoin(join) => vec![&join.left, &join.right],
            Operator::AsofJoin(join) => vec![&join.left, &join.right],
            Operator::PartialAggregate(aggregation) | Operator::Aggregate(aggregation) => {
                vec![&aggregation.input]
            }
            Operator::Join(join) => vec![&join.left, &join.right],
            Operator::GenericJoin(join) => join.inputs.iter().collect(),
            Operator::Recursion(recursion) => vec![&recursion.base, &recursion.body],
        }
    }

    /// Whether it is a part of a recursion's body. A recursion itself is not: its working table is its own affair.
    pub fn reads_working_table(&self) -> bool {
        match self {
            Operator::WorkingTable { .. } => true,
            Operator::Recursion(_) => false,
            other => other.inputs().into_iter().any(Operator::reads_working_table),
        }
    }
}

impl Stage {
    /// The stages whose output it reads, in order.
    pub fn upstream(&self) -> Vec<usize> {
        fn collect(operator: &Operator, found: &mut Vec<usize>) {
            if let Operator::Exchange { stages, .. } = operator {
                found.extend(stages);
            }
            for input in operator.inputs() {
                collect(input, found);
            }
        }
        let mut found = vec![];
        collect(&self.root, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The relation that a map stage reads.
    pub fn source(&self) -> Option<RelationId> {
        fn find(operator: &Operator) -> Option<RelationId> {
            match operator {
                Operator::Source { relation, .. } => Some(*relation),
                other => other.inputs().into_iter().find_map(find),
            }
        }
        find(&self.root)
    }
}
