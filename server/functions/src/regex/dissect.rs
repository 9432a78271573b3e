//! What the parts of a regular expression take of a text between two places.
//!
//! The parts of a sequence take as much as they can from left to right, or as little if they prefer that; the first branch
//! that fits is taken. That is how PostgreSQL divides a match among its groups.

use std::collections::HashSet;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Class, HirKind};

use super::automaton::{Automaton, Memory};
use super::engine::Span;
use super::syntax::{Node, Options};
use super::translate::{Prefers, leaf, preference, translated_part};

/// Trials that a search may take.
const STEPS_MAX: usize = 2_000_000;
/// How deep trials may be nested.
const DEPTH_MAX: usize = 1_000;
/// Characters that a match may have.
const CHARACTERS_MAX: usize = 8 << 20;

/// A regular expression whose parts are looked at one by one.
#[derive(Debug)]
pub(super) struct Tree {
    part: Part,
    ignore_case: bool,
}

#[derive(Debug)]
struct Part {
    number: usize,
    kind: Kind,
    /// The least and the most characters that it takes.
    least: usize,
    most: usize,
    prefers: Prefers,
    /// It refers to a group: what it takes depends on more than the place.
    refers: bool,
    /// The groups in it: the first, and the one after the last.
    groups: (usize, usize),
}

#[derive(Debug)]
enum Kind {
    /// A set of characters.
    Leaf(Vec<(char, char)>),
    Assertion(&'static str),
    Group(Option<usize>, Box<Part>),
    Look {
        automaton: Automaton,
        behind: bool,
        negative: bool,
    },
    BackReference(usize),
    Repeat {
        part: Box<Part>,
        least: usize,
        most: usize,
        /// All turns but the last; none: the turns are looked at one by one.
        turns: Option<Automaton>,
        greedy: bool,
    },
    Concat(Vec<Part>),
    Alternation(Vec<Part>),
}

impl Tree {
    /// # Errors
    /// Its automata and sets of characters take more memory than an expression may (2201B).
    pub(super) fn new(node: &Node, options: Options, memory: &Memory) -> SqlResult<Tree> {
        let mut builder = Builder {
            options,
            memory,
            parts: 0,
            groups: 0,
        };
        Ok(Tree {
            part: builder.part(node)?,
            ignore_case: options.ignore_case,
        })
    }
}

struct Builder<'a> {
    options: Options,
    memory: &'a Memory,
    parts: usize,
    groups: usize,
}

impl Builder<'_> {
    fn part(&mut self, node: &Node) -> SqlResult<Part> {
        self.memory.take(size_of::<Part>())?;
        self.parts += 1;
        let number = self.parts;
        let first_group = self.groups + 1;
        let (kind, least, most, refers) = match node {
            Node::Character(_) | Node::Any | Node::Class { .. } => (Kind::Leaf(self.set(node)?), 1, 1, false),
            Node::Assertion(text) => (Kind::Assertion(text), 0, 0, false),
            Node::Group { captures, node } => {
                self.groups += usize::from(*captures);
                let group = captures.then_some(self.groups);
                let part = self.part(node)?;
                let (least, most, refers) = (part.least, part.most, part.refers);
                (Kind::Group(group, Box::new(part)), least, most, refers)
            }
            Node::Look {
                behind,
                negative,
                node,
            } => {
                let inner = translated_part(node, self.options)?;
                let pattern = if *behind { format!("(?:{inner})\\z") } else { inner };
                let look = Kind::Look {
                    automaton: Automaton::new(&pattern, MatchKind::All, self.memory)?,
                    behind: *behind,
                    negative: *negative,
                };
                (look, 0, 0, false)
            }
            Node::BackReference(group) => (Kind::BackReference(*group), 0, usize::MAX, true),
            Node::Repeat {
                node,
                least,
                most,
                greedy,
                ..
            } => {
                let part = self.part(node)?;
                let turns = if part.refers || matches!(part.kind, Kind::Leaf(_)) {
                    None
                } else {
                    let turns = Node::Repeat {
                        node: node.clone(),
                        least: least.saturating_sub(1),
                        most: most.map(|most| most.saturating_sub(1)),
                        greedy: true,
                        is_fixed: false,
                    };
                    Some(Automaton::new(
                        &translated_part(&turns, self.options)?,
                        MatchKind::All,
                        self.memory,
                    )?)
                };
                let fewest = *least as usize;
                let times = most.map_or(usize::MAX, |most| most as usize);
                let (least, most, refers) = (part.least, part.most, part.refers);
                let repeat = Kind::Repeat {
                    part: Box::new(part),
                    least: fewest,
                    most: times,
                    turns,
                    greedy: *greedy,
                };
                (
                    repeat,
                    least.saturating_mul(fewest),
                    most.saturating_mul(times),
                    refers,
                )
            }
            Node::Concat(nodes) => {
                let parts = nodes
                    .iter()
                    .map(|node| self.part(node))
                    .collect::<SqlResult<Vec<_>>>()?;
                let sum = |of: fn(&Part) -> usize| parts.iter().map(of).fold(0, usize::saturating_add);
                let (least, most) = (sum(|part| part.least), sum(|part| part.most));
                let refers = parts.iter().any(|part| part.refers);
                (Kind::Concat(parts), least, most, refers)
            }
            Node::Alternation(nodes) => {
                let parts = nodes
                    .iter()
                    .map(|node| self.part(node))
                    .collect::<SqlResult<Vec<_>>>()?;
                let least = parts.iter().map(|part| part.least).min().unwrap_or(0);
                let most = parts.iter().map(|part| part.most).max().unwrap_or(0);
                let refers = parts.iter().any(|part| part.refers);
                (Kind::Alternation(parts), least, most, refers)
            }
        };
        Ok(Part {
            number,
            kind,
            least,
            most,
            prefers: preference(node),
            refers,
            groups: (first_group, self.groups + 1),
        })
    }

    /// The characters that a leaf takes.
    fn set(&self, node: &Node) -> SqlResult<Vec<(char, char)>> {
        let flags = if self.options.ignore_case { "(?i)" } else { "" };
        let pattern = format!("{flags}{}", leaf(node, self.options));
        let hir = regex_syntax::parse(&pattern)
            .map_err(|error| SqlError::internal(format!("the class {pattern} is invalid: {error}")))?;
        let set: Vec<(char, char)> = match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => {
                class.iter().map(|range| (range.start(), range.end())).collect()
            }
            HirKind::Class(Class::Bytes(class)) => class
                .iter()
                .map(|range| (char::from(range.start()), char::from(range.end())))
                .collect(),
            HirKind::Literal(literal) => String::from_utf8_lossy(&literal.0)
                .chars()
                .map(|character| (character, character))
                .collect(),
            _ => vec![],
        };
        self.memory.take(size_of_val(set.as_slice()))?;
        Ok(set)
    }
}

/// A text being divided among the parts of an expression.
pub(super) struct Dissection<'a> {
    tree: &'a Tree,
    text: &'a str,
    /// The byte at which the first character begins.
    start: usize,
    /// The characters from there on, as far as they were needed.
    characters: Vec<char>,
    /// The bytes at which they begin, and the one behind the last of them.
    offsets: Vec<usize>,
    /// What was tried in vain.
    failed: HashSet<Trial>,
    steps: usize,
    depth: usize,
}

/// A part (for sequences and repetitions with the index in it), and the two places between which it is to take all.
type Trial = [u32; 4];

fn trial(part: usize, index: usize, from: usize, to: usize) -> Trial {
    [part, index, from, to].map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn gave_up() -> SqlError {
    SqlError::new(
        SqlState::ProgramLimitExceeded,
        "regular expression took too many steps",
    )
    .with_hint("Back references, look-around and branches in groups need backtracking; use fewer of them.")
}

impl<'a> Dissection<'a> {
    /// For matches that begin at a byte or behind it.
    pub(super) fn of(tree: &'a Tree, text: &'a str, start: usize) -> Self {
        Dissection {
            tree,
            text,
            start,
            characters: vec![],
            offsets: vec![start],
            failed: HashSet::new(),
            steps: 0,
            depth: 0,
        }
    }

    /// What the whole and its groups take, if the whole takes exactly what is between two bytes.
    ///
    /// # Errors
    /// It took too many steps, or the text between them is too long.
    pub(super) fn groups(&mut self, start: usize, end: usize, count: usize) -> SqlResult<Option<Vec<Span>>> {
        let known = self.offsets.last().copied().unwrap_or(self.start);
        if known < end {
            for (at, character) in self.text[known..end].char_indices() {
                if self.characters.len() == CHARACTERS_MAX {
                    return Err(gave_up());
                }
                self.characters.push(character);
                self.offsets.push(known + at + character.len_utf8());
            }
        }
        let place = |byte: usize| self.offsets.partition_point(|offset| *offset < byte);
        let (from, to) = (place(start), place(end));
        let mut groups = vec![None; count + 1];
        if !self.takes(&self.tree.part, from, to, &mut groups)? {
            return Ok(None);
        }
        groups[0] = Some((from, to));
        let bytes = |span: Span| span.map(|(from, to)| (self.offsets[from], self.offsets[to]));
        Ok(Some(groups.into_iter().map(bytes).collect()))
    }

    fn takes(&mut self, part: &Part, from: usize, to: usize, groups: &mut Vec<Span>) -> SqlResult<bool> {
        if to - from < part.least || to - from > part.most {
            return Ok(false);
        }
        self.steps += 1;
        self.depth += 1;
        if self.steps > STEPS_MAX || self.depth > DEPTH_MAX {
            return Err(gave_up());
        }
        let key = trial(part.number, 0, from, to);
        let fits = (part.refers || !self.failed.contains(&key)) && self.kind_takes(part, from, to, groups)?;
        if !fits && !part.refers {
            self.failed.insert(key);
        }
        self.depth -= 1;
        Ok(fits)
    }

    fn kind_takes(&mut self, part: &Part, from: usize, to: usize, groups: &mut Vec<Span>) -> SqlResult<bool> {
        Ok(match &part.kind {
            Kind::Leaf(set) => contains(set, self.characters[from]),
            Kind::Assertion(text) => self.holds(text, from),
            Kind::Look {
                automaton,
                behind,
                negative,
            } => {
                let at = self.offsets[from];
                let is_there = if *behind {
                    automaton.is_match(&Input::new(&self.text[..at]))
                } else {
                    let input = Input::new(self.text)
                        .span(at..self.text.len())
                        .anchored(Anchored::Yes);
                    automaton.is_match(&input)
                };
                is_there != *negative
            }
            Kind::BackReference(group) => match groups.get(*group).copied().flatten() {
                Some((start, end)) => self.same((start, end), (from, to)),
                None => false,
            },
            Kind::Group(number, inner) => {
                if !self.takes(inner, from, to, groups)? {
                    return Ok(false);
                }
                if let Some(number) = number {
                    groups[*number] = Some((from, to));
                }
                true
            }
            Kind::Alternation(branches) => {
                for branch in branches {
                    let mut tried = groups.clone();
                    if self.takes(branch, from, to, &mut tried)? {
                        *groups = tried;
                        return Ok(true);
                    }
                }
                false
            }
            Kind::Concat(parts) => self.sequence(part, parts, 0, (from, to), groups)?,
            Kind::Repeat {
                part: inner,
                least,
                most,
                turns,
                greedy,
            } => {
                if let Kind::Leaf(set) = &inner.kind {
                    let length = to - from;
                    return Ok((*least..=*most).contains(&length)
                        && self.characters[from..to]
                            .iter()
                            .all(|character| contains(set, *character)));
                }
                match turns {
                    // No turn at all is tried last, also of nothing.
                    Some(turns) => {
                        self.last_turn(inner, turns, *greedy, (from, to), groups)?
                            || from == to && *least == 0
                    }
                    None => self.iterations(part.number, inner, (*least, *most), 0, (from, to), groups)?,
                }
            }
        })
    }

    /// The places at which a part may end, in the order in which they are tried.
    fn ends(
        part: &Part,
        (from, to): (usize, usize),
        rest: (usize, usize),
    ) -> Box<dyn Iterator<Item = usize>> {
        let low = from.saturating_add(part.least).max(to.saturating_sub(rest.1));
        let high = from.saturating_add(part.most).min(to);
        let high = match to.checked_sub(rest.0) {
            Some(last) => high.min(last),
            None => return Box::new(std::iter::empty()),
        };
        if low > high {
            return Box::new(std::iter::empty());
        }
        match part.prefers {
            Prefers::Shortest => Box::new(low..=high),
            _ => Box::new((low..=high).rev()),
        }
    }

    /// The parts of a sequence from an index on.
    fn sequence(
        &mut self,
        whole: &Part,
        parts: &[Part],
        index: usize,
        (from, to): (usize, usize),
        groups: &mut Vec<Span>,
    ) -> SqlResult<bool> {
        let Some((first, rest)) = parts[index..].split_first() else {
            return Ok(from == to);
        };
        if rest.is_empty() {
            return self.takes(first, from, to, groups);
        }
        let key = trial(whole.number, index + 1, from, to);
        if !whole.refers && self.failed.contains(&key) {
            return Ok(false);
        }
        let sum = |of: fn(&Part) -> usize| rest.iter().map(of).fold(0, usize::saturating_add);
        let bounds = (sum(|part| part.least), sum(|part| part.most));
        for middle in Self::ends(first, (from, to), bounds) {
            let mut tried = groups.clone();
            if self.takes(first, from, middle, &mut tried)?
                && self.sequence(whole, parts, index + 1, (middle, to), &mut tried)?
            {
                *groups = tried;
                return Ok(true);
            }
        }
        if !whole.refers {
            self.failed.insert(key);
        }
        Ok(false)
    }

    /// The last turn of a repetition, of which alone the groups keep something; the turns before it take what they can.
    fn last_turn(
        &mut self,
        inner: &Part,
        turns: &Automaton,
        greedy: bool,
        (from, to): (usize, usize),
        groups: &mut Vec<Span>,
    ) -> SqlResult<bool> {
        let low = from.max(to.saturating_sub(inner.most));
        let Some(high) = to.checked_sub(inner.least).filter(|high| *high >= low) else {
            return Ok(false);
        };
        let places: Box<dyn Iterator<Item = usize>> = if greedy {
            Box::new((low..=high).rev())
        } else {
            Box::new(low..=high)
        };
        for middle in places {
            self.steps += 1;
            let end = self.offsets[middle];
            let input = Input::new(self.text)
                .span(self.offsets[from]..end)
                .anchored(Anchored::Yes);
            if turns
                .search_half(&input)
                .is_none_or(|found| found.offset() != end)
            {
                continue;
            }
            let mut tried = groups.clone();
            tried[inner.groups.0..inner.groups.1].fill(None);
            if self.takes(inner, middle, to, &mut tried)? {
                *groups = tried;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The turns of a repetition after so many.
    fn iterations(
        &mut self,
        number: usize,
        inner: &Part,
        (least, most): (usize, usize),
        done: usize,
        (from, to): (usize, usize),
        groups: &mut Vec<Span>,
    ) -> SqlResult<bool> {
        if from == to && done >= least {
            return Ok(true);
        }
        if done >= most {
            return Ok(false);
        }
        for group in inner.groups.0..inner.groups.1 {
            groups[group] = None;
        }
        if from == to {
            return self.takes(inner, from, to, groups);
        }
        let key = trial(number, done.min(least) + 1, from, to);
        let is_known = !inner.refers && most == usize::MAX;
        if is_known && self.failed.contains(&key) {
            return Ok(false);
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(gave_up());
        }
        for middle in Self::ends(inner, (from, to), (0, usize::MAX)) {
            // A turn that takes nothing leads nowhere.
            if middle == from {
                continue;
            }
            let mut tried = groups.clone();
            if self.takes(inner, from, middle, &mut tried)?
                && self.iterations(number, inner, (least, most), done + 1, (middle, to), &mut tried)?
            {
                *groups = tried;
                self.depth -= 1;
                return Ok(true);
            }
        }
        self.depth -= 1;
        if is_known {
            self.failed.insert(key);
        }
        Ok(false)
    }

    fn same(&self, one: (usize, usize), other: (usize, usize)) -> bool {
        let (one, other) = (&self.characters[one.0..one.1], &self.characters[other.0..other.1]);
        one.len() == other.len()
            && one.iter().zip(other).all(|(left, right)| {
                left == right || self.tree.ignore_case && left.to_lowercase().eq(right.to_lowercase())
            })
    }

    /// Whether an assertion holds at a place.
    fn holds(&self, text: &str, at: usize) -> bool {
        let (before, next) = self.text.split_at(self.offsets[at]);
        let (before, next) = (before.chars().next_back(), next.chars().next());
        let is_word = |character: Option<char>| {
            character.is_some_and(|character| character.is_alphanumeric() || character == '_')
        };
        match text {
            "\\A" => before.is_none(),
            "\\z" => next.is_none(),
            "(?m:^)" => before.is_none_or(|before| before == '\n'),
            "(?m:$)" => next.is_none_or(|next| next == '\n'),
            "\\b{start}" => !is_word(before) && is_word(next),
            "\\b{end}" => is_word(before) && !is_word(next),
            "\\b" => is_word(before) != is_word(next),
            _ => is_word(before) == is_word(next),
        }
    }
}

fn contains(set: &[(char, char)], character: char) -> bool {
    let index = set.partition_point(|(_, end)| *end < character);
    set.get(index).is_some_and(|(start, _)| *start <= character)
}
