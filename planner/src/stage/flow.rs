//! Flow control of a view's epochs: where rows may multiply, and how much may be in flight there.

/// Flow control of a view's epochs (Faucet, section 4). What a task with a faucet emits is divided into batches; a batch
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

/// A place for a faucet: behind a stage that may emit far more rows than it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faucet {
    pub reason: Explosion,
    /// Whether one is there from the start. Otherwise it is where it costs nothing, and elsewhere from the end of the group of
    /// epochs in which rows were seen to multiply.
    pub is_placed: bool,
}

impl Faucet {
    /// One that is there from the start.
    pub(crate) fn placed(reason: Explosion) -> Self {
        Faucet {
            reason,
            is_placed: true,
        }
    }
}

/// Why a stage may emit far more rows than it reads.
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
