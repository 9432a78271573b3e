//! Automata of regular expressions, and the memory that those of one expression take together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use regex_automata::meta::{self, Cache};
use regex_automata::util::captures::Captures;
use regex_automata::{HalfMatch, Input, Match, MatchKind};

/// Bytes that the automata of one expression may take, and while they search what they keep for the next search.
pub(super) const EXPRESSION_BYTES: usize = 16 << 20;
/// Bytes of an automaton for each of its states, at least. Measured: 40 to 200.
const STATE_BYTES: usize = 64;

/// The refusal of an expression that would take too much memory.
pub(super) fn too_complex(detail: impl Into<String>) -> SqlError {
    SqlError::new(
        SqlState::InvalidRegularExpression,
        "invalid regular expression: regular expression is too complex",
    )
    .with_detail(detail)
}

/// The bytes that an expression takes with all of its parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Rc<Cell<usize>>);

impl Memory {
    /// Bytes that are taken.
    pub(super) fn taken(&self) -> usize {
        self.0.get()
    }

    /// Takes bytes for a part.
    ///
    /// # Errors
    /// The expression would take too many (2201B).
    pub(super) fn take(&self, bytes: usize) -> SqlResult<()> {
        let taken = self.taken().saturating_add(bytes);
        if taken > EXPRESSION_BYTES {
            return Err(too_complex(format!(
                "It would take more than {} MB of memory.",
                EXPRESSION_BYTES >> 20
            )));
        }
        self.0.set(taken);
        Ok(())
    }

    fn replace(&self, before: usize, after: usize) {
        self.0.set((self.taken() + after).saturating_sub(before));
    }
}

/// An automaton, and what it keeps from one search to the next.
#[derive(Debug)]
pub(super) struct Automaton {
    inner: meta::Regex,
    cache: RefCell<Option<Cache>>,
    /// Bytes of the cache that `memory` knows of.
    cached: Cell<usize>,
    memory: Memory,
}

impl Automaton {
    /// An automaton for a regular expression in Rust's syntax.
    ///
    /// # Errors
    /// It would take more memory than is left to the expression (2201B).
    pub(super) fn new(pattern: &str, kind: MatchKind, memory: &Memory) -> SqlResult<Automaton> {
        let left = EXPRESSION_BYTES.saturating_sub(memory.taken());
        let inner = meta::Regex::builder()
            .configure(
                meta::Config::new()
                    .match_kind(kind)
                    .nfa_size_limit(Some(left))
                    .onepass_size_limit(Some(left.min(1 << 20))),
            )
            .build(pattern)
            .map_err(|error| too_complex(error.to_string()))?;
        memory.take(inner.memory_usage())?;
        Ok(Automaton {
            inner,
            cache: RefCell::new(None),
            cached: Cell::new(0),
            memory: memory.clone(),
        })
    }

    /// Whether a search for groups takes no more memory than an expression may: it can need a place of each group for each
    /// state, twice.
    pub(super) fn has_room_for_groups(&self) -> bool {
        let states = self.inner.memory_usage() / STATE_BYTES;
        let places = self.inner.captures_len() * 2;
        states
            .saturating_mul(places)
            .saturating_mul(2 * size_of::<usize>())
            <= EXPRESSION_BYTES
    }

    fn search<T>(&self, run: impl FnOnce(&meta::Regex, &mut Cache) -> T) -> T {
        let mut kept = self.cache.borrow_mut();
        let cache = kept.get_or_insert_with(|| self.inner.create_cache());
        let found = run(&self.inner, cache);
        let bytes = cache.memory_usage();
        self.memory.replace(self.cached.replace(bytes), bytes);
        if self.memory.taken() > EXPRESSION_BYTES {
            *kept = None;
            self.memory.replace(self.cached.replace(0), 0);
        }
        found
    }

    pub(super) fn is_match(&self, input: &Input<'_>) -> bool {
        let input = input.clone().earliest(true);
        self.search_half(&input).is_some()
    }

    pub(super) fn find(&self, input: &Input<'_>) -> Option<Match> {
        self.search(|inner, cache| inner.search_with(cache, input))
    }

    pub(super) fn search_half(&self, input: &Input<'_>) -> Option<HalfMatch> {
        self.search(|inner, cache| inner.search_half_with(cache, input))
    }

    pub(super) fn captures(&self, input: &Input<'_>) -> Captures {
        let mut captures = self.inner.create_captures();
        self.search(|inner, cache| inner.search_captures_with(cache, input, &mut captures));
        captures
    }
}
