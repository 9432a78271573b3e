//! Regular expressions that find what PostgreSQL's find.
//!
//! Rust's engines take, of the matches that begin at one place, the one that the order of the branches prefers;
//! PostgreSQL takes the longest, or the shortest if the first quantifier is not greedy. So the begin comes from a search as
//! Rust does it, the end from one that knows all ends. What the groups take between the two is found by `Dissection`
//! where the order of trials does not tell it, and so are look-around and references to groups, for which the automata
//! only propose places.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use regex_automata::meta::Regex as Automaton;
use regex_automata::{Anchored, Input, MatchKind};

use super::dissect::{Dissection, Tree};
use super::syntax::{Options, Prefers, Translated, preference, translate};

/// Bytes of a place and the place after it; `None`: a group that took no part.
pub type Span = Option<(usize, usize)>;

/// Bytes that a compiled expression may take.
const SIZE_LIMIT: usize = 16 << 20;
/// Compiled expressions that a thread keeps.
const KEPT: usize = 64;

/// A compiled regular expression.
#[derive(Debug)]
pub struct Regex {
    groups: usize,
    prefers: Prefers,
    is_wider: bool,
    is_mixed: bool,
    first: Automaton,
    /// Finds the ends of all matches.
    all: Automaton,
    tree: Tree,
}

fn too_complex(error: &dyn std::fmt::Display) -> SqlError {
    SqlError::new(
        SqlState::InvalidRegularExpression,
        "invalid regular expression: regular expression is too complex",
    )
    .with_detail(error.to_string())
}

/// An automaton for a regular expression in Rust's syntax.
///
/// # Errors
/// It would be too large.
pub(super) fn automaton(pattern: &str, kind: MatchKind) -> SqlResult<Automaton> {
    Automaton::builder()
        .configure(
            Automaton::config()
                .match_kind(kind)
                .nfa_size_limit(Some(SIZE_LIMIT)),
        )
        .build(pattern)
        .map_err(|error| too_complex(&error))
}

thread_local! {
    static COMPILED: RefCell<HashMap<(String, Options), Rc<Regex>>> = RefCell::default();
}

impl Regex {
    /// The compiled form of an expression; a thread keeps the last ones.
    ///
    /// # Errors
    /// The text is no regular expression (2201B), or a thing that is not supported.
    pub fn of(pattern: &str, options: Options) -> SqlResult<Rc<Regex>> {
        let key = (pattern.to_string(), options);
        if let Some(known) = COMPILED.with_borrow(|kept| kept.get(&key).cloned()) {
            return Ok(known);
        }
        let regex = Rc::new(Regex::new(pattern, options)?);
        COMPILED.with_borrow_mut(|kept| {
            if kept.len() >= KEPT {
                kept.clear();
            }
            kept.insert(key, Rc::clone(&regex));
        });
        Ok(regex)
    }

    fn new(pattern: &str, options: Options) -> SqlResult<Regex> {
        let Translated {
            pattern,
            node,
            options,
            groups,
            is_wider,
            is_mixed,
        } = translate(pattern, options)?;
        Ok(Regex {
            groups,
            prefers: preference(&node),
            is_wider,
            is_mixed,
            first: automaton(&pattern, MatchKind::LeftmostFirst)?,
            all: automaton(&pattern, MatchKind::All)?,
            tree: Tree::new(&node, options)?,
        })
    }

    /// Whether there is a match anywhere.
    ///
    /// # Errors
    /// The search took too many steps.
    pub fn is_match(&self, text: &str) -> SqlResult<bool> {
        Ok(match self.is_wider {
            false => self.first.is_match(text),
            true => self.find(text, 0)?.is_some(),
        })
    }

    /// The first match from a place on: that of all, and those of the groups.
    ///
    /// # Errors
    /// The search took too many steps.
    pub fn find(&self, text: &str, from: usize) -> SqlResult<Option<Vec<Span>>> {
        if self.is_wider {
            return self.find_exactly(text, from);
        }
        let mut captures = self.first.create_captures();
        self.first
            .search_captures(&Input::new(text).span(from..text.len()), &mut captures);
        let Some(found) = captures.get_match() else {
            return Ok(None);
        };
        let start = found.start();
        let end = match self.prefers {
            Prefers::Longest if found.end() == text.len() => Some(found.end()),
            Prefers::Shortest if found.end() == start => Some(start),
            Prefers::Neither => Some(found.end()),
            _ => self.end(text, start, self.prefers, None),
        };
        let end = end.unwrap_or(found.end());
        if self.groups == 0 {
            return Ok(Some(vec![Some((start, end))]));
        }
        if end == found.end() && !self.is_mixed {
            let span = |group: Option<regex_automata::Span>| group.map(|span| (span.start, span.end));
            return Ok(Some(captures.iter().map(span).collect()));
        }
        Dissection::of(&self.tree, text).groups(start, end, self.groups)
    }

    /// Where a match ends that begins at a place: the longest or shortest, or the next after one that was tried.
    fn end(&self, text: &str, start: usize, prefers: Prefers, tried: Option<usize>) -> Option<usize> {
        let anchored = |end: usize| Input::new(text).span(start..end).anchored(Anchored::Yes);
        match (prefers, tried) {
            (Prefers::Shortest, None) => {
                let input = anchored(text.len()).earliest(true);
                self.all.search_half(&input).map(|found| found.offset())
            }
            // All ends, and of them the least behind the one that was tried.
            (Prefers::Shortest, Some(tried)) => {
                let mut at = tried;
                loop {
                    at += text[at..].chars().next()?.len_utf8();
                    let found = self.all.search_half(&anchored(at));
                    if found.is_some_and(|found| found.offset() == at) {
                        return Some(at);
                    }
                }
            }
            (_, None) => self
                .all
                .search_half(&anchored(text.len()))
                .map(|found| found.offset()),
            (_, Some(tried)) => {
                let before = text[start..tried].char_indices().next_back()?.0;
                self.all
                    .search_half(&anchored(start + before))
                    .map(|found| found.offset())
            }
        }
    }

    /// As [`Self::find`], where the automata find too much.
    fn find_exactly(&self, text: &str, from: usize) -> SqlResult<Option<Vec<Span>>> {
        let mut dissection = Dissection::of(&self.tree, text);
        let mut from = from;
        loop {
            let Some(found) = self.first.find(Input::new(text).span(from..text.len())) else {
                return Ok(None);
            };
            let mut end = self.end(text, found.start(), self.prefers, None);
            while let Some(at) = end {
                if let Some(groups) = dissection.groups(found.start(), at, self.groups)? {
                    return Ok(Some(groups));
                }
                end = self.end(text, found.start(), self.prefers, Some(at));
            }
            match text[found.start()..].chars().next() {
                Some(next) => from = found.start() + next.len_utf8(),
                None => return Ok(None),
            }
        }
    }

    /// The matches from a place on, at most so many: an empty one is followed by a search from the next character on.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn matches(&self, text: &str, from: usize, most: usize) -> SqlResult<Vec<Vec<Span>>> {
        let mut out = vec![];
        let mut at = Some(from);
        while let Some(place) = at
            && out.len() < most
            && let Some(found) = self.find(text, place)?
        {
            at = after(text, &found);
            out.push(found);
        }
        Ok(out)
    }
}

/// Where the search goes on after a match; `None`: the text is over.
fn after(text: &str, found: &[Span]) -> Option<usize> {
    let (start, end) = found.first().copied().flatten()?;
    if start < end {
        return Some(end);
    }
    text[end..].chars().next().map(|next| end + next.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> Option<Vec<Option<String>>> {
        let regex = Regex::of(pattern, Options::default()).unwrap();
        let spans = regex.find(text, 0).unwrap()?;
        let part = |span: Span| span.map(|(start, end)| text[start..end].to_string());
        Some(spans.into_iter().map(part).collect())
    }

    fn texts(parts: &[Option<&str>]) -> Option<Vec<Option<String>>> {
        Some(parts.iter().map(|part| part.map(str::to_string)).collect())
    }

    #[test]
    fn the_longest_match_counts_and_not_the_first_branch() {
        assert_eq!(found("foo|foobar", "foobar"), texts(&[Some("foobar")]));
        assert_eq!(
            found("(foo|foob)(ar)?", "foobar"),
            texts(&[Some("foobar"), Some("foob"), Some("ar")])
        );
        assert_eq!(
            found("(a|ab)(bc|c)", "abc"),
            texts(&[Some("abc"), Some("ab"), Some("c")])
        );
        assert_eq!(found("a?(ab)?", "ab"), texts(&[Some("ab"), Some("ab")]));
        assert_eq!(
            found("Y*?([0-9]{1,3})", "XY1234Z"),
            texts(&[Some("Y1"), Some("1")])
        );
        assert_eq!(
            found("Y*([0-9]{1,3})", "XY1234Z"),
            texts(&[Some("Y123"), Some("123")])
        );
    }

    #[test]
    fn groups_that_took_no_part_are_not_there() {
        assert_eq!(found("(x)|(b)", "abc"), texts(&[Some("b"), None, Some("b")]));
        assert_eq!(found("x", "abc"), None);
    }

    #[test]
    fn what_automata_cannot_is_found_too() {
        assert_eq!(found("(.)\\1", "abccd"), texts(&[Some("cc"), Some("c")]));
        assert_eq!(found("a(?!b)", "abac"), texts(&[Some("a")]));
        assert_eq!(found("(?<=a)b+", "abb"), texts(&[Some("bb")]));
        assert_eq!(found("(?<!a)b", "ab"), None);
        assert_eq!(
            found("(\\w+) \\1\\M", "the the thes"),
            texts(&[Some("the the"), Some("the")])
        );
        assert_eq!(found("\\ma\\M", "ba a"), texts(&[Some("a")]));
        assert_eq!(
            found("(?=f)(foo|foobar)", "foobar"),
            texts(&[Some("foobar"), Some("foobar")])
        );
        let regex = Regex::of("(x+x+)+y\\1", Options::default()).unwrap();
        assert!(!regex.is_match(&"x".repeat(60)).unwrap());
        let regex = Regex::of("(x+x+)+\\1y|x$", Options::default()).unwrap();
        let error = regex.is_match(&format!("{}z", "x".repeat(2000))).map(|_| ());
        assert!(error.is_ok() || error.unwrap_err().code == SqlState::ProgramLimitExceeded);
    }

    #[test]
    fn matches_go_on_behind_empty_ones() {
        let regex = Regex::of("b*", Options::default()).unwrap();
        let spans: Vec<Span> = regex
            .matches("abbé", 0, usize::MAX)
            .unwrap()
            .into_iter()
            .map(|found| found[0])
            .collect();
        assert_eq!(spans, [Some((0, 0)), Some((1, 3)), Some((3, 3)), Some((5, 5))]);
    }
}
