//! Who gets a cpu slot: classes of work, policies, and the queue in front of the slots. No thread is known here; the scheduler
//! with the threads, and the simulation without any, both decide by this.

pub mod policy;
pub mod queue;
pub mod shares;

/// Rows handled between two suspension points.
pub const CHUNK_ROWS: usize = 8_192;

/// How many classes there are.
pub const CLASSES: usize = 3;

/// How urgent a task is. The order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryClass {
    /// Epochs of views.
    Stream,
    /// A query until it has used its first CPU milliseconds.
    Interactive,
    /// What goes on longer; back-fill.
    Batch,
}

impl QueryClass {
    /// All of them, the most urgent first.
    pub const ALL: [QueryClass; CLASSES] = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];

    /// The class with this number: `class as u8`.
    pub fn of_number(number: u8) -> QueryClass {
        match number {
            0 => QueryClass::Stream,
            1 => QueryClass::Interactive,
            _ => QueryClass::Batch,
        }
    }
}

impl std::fmt::Display for QueryClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            QueryClass::Stream => "stream",
            QueryClass::Interactive => "interactive",
            QueryClass::Batch => "batch",
        })
    }
}
