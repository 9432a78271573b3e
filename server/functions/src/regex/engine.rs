//! Regular expressions that find what PostgreSQL's find.
//!
//! Rust's engines take, of the matches that begin at one place, the one that the order of the branches prefers;
//! PostgreSQL takes the longest, or the shortest if the first quantifier is not greedy. So the begin comes from a search as
//! Rust does it, the end from one that knows all ends. What the groups take between the two is found by `Dissection`
//! where the order of trials does not tell it, and so are look-around and references to groups, for which the automata
//! only propose places.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use millrace_postgres::error::{SqlError, SqlResult};
use regex_automata::{Anchored, Input, MatchKind};

use super::automaton::{Automaton, Memory};
use super::dissect::{Dissection, Tree};
use super::syntax::{Node, Options};
use super::translate::{Prefers, Translated, preference, translate};

/// Bytes of a place and the place after it; `None`: a group that took no part.
pub type Span = Option<(usize, usize)>;

/// Compiled expressions that a thread keeps, those that were used last.
const KEPT: usize = 64;
/// Bytes that they may take together; the last one is kept whatever it takes.
const KEPT_BYTES: usize = 8 << 20;

/// A compiled regular expression.
#[derive(Debug)]
pub struct Regex {
    groups: usize,
    prefers: Prefers,
    is_wider: bool,
    is_mixed: bool,
    pattern: String,
    node: Node,
    options: Options,
    memory: Memory,
    first: Automaton,
    /// Finds the ends of all matches; made when they are asked for.
    all: OnceCell<SqlResult<Automaton>>,
    /// Made when groups are to be looked for in it.
    tree: OnceCell<SqlResult<Tree>>,
}

struct Kept {
    pattern: String,
    options: Options,
    /// Also that it is too complex: it takes longest to find that out.
    regex: SqlResult<Rc<Regex>>,
}

impl Kept {
    fn bytes(&self) -> usize {
        let own = |regex: &Rc<Regex>| regex.memory.taken() + regex.pattern.len();
        self.regex.as_ref().map_or(0, own) + self.pattern.len()
    }
}

thread_local! {
    /// The one that was used last comes first.
    static COMPILED: RefCell<Vec<Kept>> = RefCell::default();
}

/// What a cell holds, made if nobody has tried yet.
fn made<T>(cell: &OnceCell<SqlResult<T>>, make: impl FnOnce() -> SqlResult<T>) -> SqlResult<&T> {
    cell.get_or_init(make).as_ref().map_err(SqlError::clone)
}

impl Regex {
    /// The compiled form of an expression; a thread keeps the last ones.
    ///
    /// # Errors
    /// The text is no regular expression or too complex (2201B), or a thing that is not supported.
    pub fn of(pattern: &str, options: Options) -> SqlResult<Rc<Regex>> {
        COMPILED.with_borrow_mut(|kept| {
            let known = kept
                .iter()
                .position(|kept| kept.options == options && kept.pattern == pattern);
            match known {
                Some(0) => {}
                Some(place) => kept[..=place].rotate_right(1),
                None => {
                    let regex = Regex::new(pattern, options).map(Rc::new);
                    let pattern = pattern.to_string();
                    kept.insert(
                        0,
                        Kept {
                            pattern,
                            options,
                            regex,
                        },
                    );
                }
            }
            if known != Some(0) {
                let mut bytes = 0_usize;
                let room = kept.iter().take(KEPT).take_while(|kept| {
                    bytes = bytes.saturating_add(kept.bytes());
                    bytes <= KEPT_BYTES
                });
                let room = room.count().max(1);
                kept.truncate(room);
            }
            kept[0].regex.clone()
        })
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
        let memory = Memory::default();
        let first = Automaton::new(&pattern, MatchKind::LeftmostFirst, &memory)?;
        Ok(Regex {
            groups,
            prefers: preference(&node),
            is_wider,
            is_mixed: is_mixed || !first.has_room_for_groups(),
            pattern,
            node,
            options,
            memory,
            first,
            all: OnceCell::new(),
            tree: OnceCell::new(),
        })
    }

    fn all(&self) -> SqlResult<&Automaton> {
        made(&self.all, || {
            Automaton::new(&self.pattern, MatchKind::All, &self.memory)
        })
    }

    fn tree(&self) -> SqlResult<&Tree> {
        made(&self.tree, || Tree::new(&self.node, self.options, &self.memory))
    }

    /// Whether there is a match anywhere.
    ///
    /// # Errors
    /// The search took too many steps.
    pub fn is_match(&self, text: &str) -> SqlResult<bool> {
        Ok(match self.is_wider {
            false => self.first.is_match(&Input::new(text)),
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
        let input = Input::new(text).span(from..text.len());
        let captures = (self.groups > 0 && !self.is_mixed).then(|| self.first.captures(&input));
        let found = match &captures {
            Some(captures) => captures.get_match(),
            None => self.first.find(&input),
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let start = found.start();
        let end = match self.prefers {
            Prefers::Longest if found.end() == text.len() => Some(found.end()),
            Prefers::Shortest if found.end() == start => Some(start),
            Prefers::Neither => Some(found.end()),
            _ => self.end(text, start, None)?,
        };
        let end = end.unwrap_or(found.end());
        if self.groups == 0 {
            return Ok(Some(vec![Some((start, end))]));
        }
        if let Some(captures) = captures
            && end == found.end()
        {
            let span = |group: Option<regex_automata::Span>| group.map(|span| (span.start, span.end));
            return Ok(Some(captures.iter().map(span).collect()));
        }
        Dissection::of(self.tree()?, text, start).groups(start, end, self.groups)
    }

    /// Where a match ends that begins at a place: the longest or shortest, or the next after one that was tried.
    fn end(&self, text: &str, start: usize, tried: Option<usize>) -> SqlResult<Option<usize>> {
        let all = self.all()?;
        let last_before = |end: usize| {
            let input = Input::new(text).span(start..end).anchored(Anchored::Yes);
            all.search_half(&input).map(|found| found.offset())
        };
        Ok(match (self.prefers, tried) {
            (Prefers::Shortest, None) => {
                let input = Input::new(text).span(start..text.len()).anchored(Anchored::Yes);
                all.search_half(&input.earliest(true)).map(|found| found.offset())
            }
            // All ends, and of them the least behind the one that was tried.
            (Prefers::Shortest, Some(tried)) => text[tried..]
                .char_indices()
                .map(|(at, character)| tried + at + character.len_utf8())
                .find(|end| last_before(*end) == Some(*end)),
            (_, None) => last_before(text.len()),
            (_, Some(tried)) => text[start..tried]
                .char_indices()
                .next_back()
                .and_then(|(before, _)| last_before(start + before)),
        })
    }

    /// As [`Self::find`], where the automata find too much.
    fn find_exactly(&self, text: &str, from: usize) -> SqlResult<Option<Vec<Span>>> {
        let mut dissection = Dissection::of(self.tree()?, text, from);
        let mut from = from;
        loop {
            let Some(found) = self.first.find(&Input::new(text).span(from..text.len())) else {
                return Ok(None);
            };
            let mut end = self.end(text, found.start(), None)?;
            while let Some(at) = end {
                if let Some(groups) = dissection.groups(found.start(), at, self.groups)? {
                    return Ok(Some(groups));
                }
                end = self.end(text, found.start(), Some(at))?;
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
    use millrace_postgres::error::SqlState;

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
    fn that_one_is_too_complex_is_found_out_once() {
        let complex = "((((a{0,255}){0,255}b){0,255}){0,255}){0,255}";
        for pattern in [complex, "(", complex] {
            assert!(Regex::of(pattern, Options::default()).is_err());
        }
        COMPILED.with_borrow(|kept| {
            let patterns: Vec<&str> = kept.iter().map(|kept| kept.pattern.as_str()).collect();
            assert_eq!(patterns, [complex, "("]);
            assert!(kept.iter().all(|kept| kept.regex.is_err()));
        });
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

    #[test]
    fn what_would_take_too_much_memory_is_refused() {
        // Each group takes the one before it twice.
        let doubled: String = (1..40).map(|group| format!("(\\{group}\\{group})")).collect();
        let doubled = format!("(a){doubled}");
        for pattern in [
            doubled,
            r"\w".repeat(20_000),
            "a|".repeat(500_000),
            "a".repeat(2_000_000),
            format!("{}a{}", "(".repeat(150), "{200})".repeat(150)),
            "(?=[[:alpha:]]{50})a".repeat(2_000),
            "([[:alpha:]]{9}|b)*".repeat(1_000),
        ] {
            let regex = Regex::of(&pattern, Options::default());
            let found = regex.and_then(|regex| regex.find("xab", 0));
            let start: String = pattern.chars().take(30).collect();
            assert_eq!(found.expect_err(&start).code.code(), "2201B", "{start}");
        }
    }

    #[test]
    fn what_a_thread_keeps_is_bounded() {
        let text = "on the way to the mill, 42 times ".repeat(100);
        for turn in 0..300 {
            let regex = Regex::of(&format!(r"(\w+) (\w{{3}}|{turn})+"), Options::default()).unwrap();
            regex.find(&text, 0).unwrap();
        }
        let (count, bytes) =
            COMPILED.with_borrow(|kept| (kept.len(), kept.iter().map(Kept::bytes).sum::<usize>()));
        let last = COMPILED.with_borrow(|kept| kept[0].bytes());
        assert!(count > 1 && count <= KEPT, "{count}");
        assert!(bytes <= KEPT_BYTES + last, "{bytes}");
    }

    #[test]
    fn many_groups_are_found_without_a_table_of_them() {
        let pattern = r"(\w+),".repeat(200);
        let regex = Regex::of(&pattern, Options::default()).unwrap();
        assert!(regex.is_mixed);
        let text = format!("-{}", "ab1,".repeat(200));
        let found = regex.find(&text, 0).unwrap().unwrap();
        assert_eq!(found.len(), 201);
        assert_eq!((found[1], found[200]), (Some((1, 4)), Some((797, 800))));
        assert!(regex.memory.taken() < 16 << 20);
    }
}
