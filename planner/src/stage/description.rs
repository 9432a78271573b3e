//! What an operator of a plan says of itself, to whoever asks: EXPLAIN, the identity of its state, whether it grows, where a
//! faucet may stand. Each operator says it in its own file; a new one is a file beside this one, and two lines in
//! [`super::operator`].

use arrow::datatypes::SchemaRef;

use super::flow::Faucet;
use super::operator::Operator;
use super::origins::{Origin, Origins};

/// Notes state that grows: the operator, as the query has it (`GROUP BY (carrier)`), what it keeps (`every group`), and the
/// stream that makes it grow.
pub(crate) type Note<'a> = dyn FnMut(String, &str, &str) + 'a;

/// What an operator keeps, so that its state can be told from that of another plan's.
pub(crate) struct State {
    /// What kind of operator it is. Checkpoints hold it: it is never changed.
    pub kind: &'static str,
    /// The version of what this kind keeps: it grows when the form of the state changes for a plan that stays the same. Then
    /// the operator reads the older forms too, or views that have it are filled again.
    pub version: u32,
    /// What decides which rows it keeps and where. Names and printed expressions are no part of it.
    pub text: String,
}

/// See the module. The defaults are those of an operator that keeps nothing.
pub(crate) trait Description {
    /// Columns of its output.
    fn schema(&self) -> &SchemaRef;

    /// The operators that it reads, left to right.
    fn inputs(&self) -> Vec<&Operator>;

    /// Its line in EXPLAIN, without its inputs: the kind, a colon, and more.
    fn line(&self) -> String;

    /// Where the values of its columns come from, of as many as are known; the columns behind them are computed. `inputs`: the
    /// same of its inputs.
    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin>;

    /// What it keeps, over these columns of its inputs.
    fn state(&self, _inputs: &[Origins]) -> Option<State> {
        None
    }

    /// The stream for whose sake its rows grow in number without bound; notes state that does. `inputs`: the same of its inputs.
    fn grows(&self, inputs: &[Option<String>], _note: &mut Note<'_>) -> Option<String> {
        // It keeps nothing, and emits no more than comes in.
        inputs.iter().flatten().next().cloned()
    }

    /// Whether the output can change by time alone.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Whether watermarks decide what it emits or what it may forget.
    fn goes_by_watermarks(&self) -> bool {
        false
    }

    /// Whether rows that exist already can be emitted only when all of them are there.
    fn awaits_all(&self) -> bool {
        false
    }

    /// Whether its rows are settled whatever comes in: none is taken back before it came. A linear operator's are as its
    /// input's.
    fn settles(&self) -> bool {
        true
    }

    /// Whether an epoch's input may come in parts.
    fn takes_parts(&self) -> bool {
        false
    }

    /// Whether what multiplies below it comes out of it as it is made.
    fn passes_on(&self) -> bool {
        false
    }

    /// Whether it may emit far more rows than it reads, and why.
    fn multiplies(&self) -> Option<Faucet> {
        None
    }

    /// Whether what it is given becomes no more rows than there are groups, most often.
    fn combines(&self) -> bool {
        false
    }
}
