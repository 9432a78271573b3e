//! PostgreSQL's regular expressions, written in the syntax of Rust's engines.

use std::fmt::Write;

use millrace_postgres::error::SqlResult;

use super::automaton::{EXPRESSION_BYTES, too_complex};
use super::syntax::{Node, Options, bad_operand, invalid, read, write_character};

/// Bytes that the text of an expression may have.
const PATTERN_BYTES: usize = 1 << 20;
/// Bytes that Rust's parser takes for a part of an expression, about.
const PART_BYTES: usize = 128;
/// Bytes that it takes for a class by a property of Unicode.
const PROPERTY_BYTES: usize = 6 << 10;

/// Which of the matches that begin at one place counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefers {
    /// The longest.
    Longest,
    /// The shortest.
    Shortest,
    /// They are all of one length.
    Neither,
}

/// A regular expression for Rust's engines.
#[derive(Debug)]
pub(super) struct Translated {
    /// In Rust's syntax. If [`Self::is_wider`] it matches more than the expression does: what looks ahead or back is left
    /// out, and a reference to a group is the group once more.
    pub(super) pattern: String,
    /// The expression itself.
    pub(super) node: Node,
    /// How its parts are to be read.
    pub(super) options: Options,
    /// Groups that are counted.
    pub(super) groups: usize,
    /// See [`Self::pattern`].
    pub(super) is_wider: bool,
    /// It has branches, or greedy parts beside others: what its groups take does not follow from the order of trials.
    pub(super) is_mixed: bool,
}

/// Translates a regular expression.
///
/// # Errors
/// It is not one, or too large (2201B).
pub(super) fn translate(pattern: &str, mut options: Options) -> SqlResult<Translated> {
    if pattern.len() > PATTERN_BYTES {
        return Err(too_complex(format!(
            "It has {} bytes; at most {PATTERN_BYTES} are accepted.",
            pattern.len()
        )));
    }
    let mut body = pattern;
    if let Some(rest) = body.strip_prefix("***=") {
        options.literal = true;
        body = rest;
    } else if let Some(rest) = body.strip_prefix("***:") {
        body = rest;
    } else if body.starts_with("***") {
        return Err(bad_operand());
    }
    if !options.literal
        && let Some(rest) = body.strip_prefix("(?")
        && let Some((letters, rest)) = rest.split_once(')')
        && !letters.is_empty()
        && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        for letter in letters.chars() {
            if !options.set(letter)? {
                return Err(invalid("invalid embedded option"));
            }
        }
        body = rest;
    }
    let node = read(body, options)?;
    let mut writer = Writer::new(&node, options);
    writer.write(&node, true)?;
    Ok(Translated {
        groups: writer.groups,
        is_wider: writer.is_wider,
        is_mixed: writer.has_branches || writer.greediness == (true, true),
        pattern: writer.out,
        node,
        options,
    })
}

/// Which length of its matches a part prefers.
pub(super) fn preference(node: &Node) -> Prefers {
    match node {
        Node::Group { node, .. } => preference(node),
        Node::Repeat {
            node,
            greedy,
            is_fixed,
            ..
        } => match (is_fixed, greedy) {
            (true, _) => preference(node),
            (false, true) => Prefers::Longest,
            (false, false) => Prefers::Shortest,
        },
        Node::Concat(parts) => parts
            .iter()
            .map(preference)
            .find(|prefers| *prefers != Prefers::Neither)
            .unwrap_or(Prefers::Neither),
        Node::Alternation(_) => Prefers::Longest,
        _ => Prefers::Neither,
    }
}

/// A leaf of the tree, a set of characters, in Rust's syntax.
pub(super) fn leaf(node: &Node, options: Options) -> String {
    let mut out = String::new();
    match node {
        Node::Character(character) => write_character(*character, &mut out),
        Node::Any if options.newline_stops => out.push_str("[^\\n]"),
        Node::Any => out.push_str("(?s:.)"),
        Node::Class { items, negated } => {
            out.push_str(if *negated { "[^" } else { "[" });
            out.push_str(items);
            if *negated && options.newline_stops {
                out.push_str("\\n");
            }
            out.push(']');
        }
        _ => {}
    }
    out
}

/// A part of an expression, without groups, in Rust's syntax.
///
/// # Errors
/// It is too large (2201B).
pub(super) fn translated_part(node: &Node, options: Options) -> SqlResult<String> {
    let mut writer = Writer::new(node, options);
    writer.write(node, false)?;
    Ok(writer.out)
}

/// The group of a number.
fn group(node: &Node, number: usize, seen: &mut usize) -> Option<Node> {
    match node {
        Node::Group {
            captures,
            node: inner,
        } => {
            *seen += usize::from(*captures);
            if *captures && *seen == number {
                return Some(inner.as_ref().clone());
            }
            group(inner, number, seen)
        }
        Node::Look { node, .. } | Node::Repeat { node, .. } => group(node, number, seen),
        Node::Concat(parts) | Node::Alternation(parts) => {
            parts.iter().find_map(|part| group(part, number, seen))
        }
        _ => None,
    }
}

/// Writes a tree in Rust's syntax.
struct Writer<'a> {
    out: String,
    /// Bytes that Rust's parser takes for what was written.
    parsed: usize,
    options: Options,
    root: &'a Node,
    groups: usize,
    is_wider: bool,
    /// There are greedy quantifiers, others.
    greediness: (bool, bool),
    has_branches: bool,
}

impl<'a> Writer<'a> {
    fn new(root: &'a Node, options: Options) -> Writer<'a> {
        Writer {
            out: String::from(if options.ignore_case { "(?i)" } else { "" }),
            parsed: 0,
            options,
            root,
            groups: 0,
            is_wider: false,
            greediness: (false, false),
            has_branches: false,
        }
    }

    /// Writes a part, with its groups as groups or not. References to groups multiply what they refer to, so what is written is
    /// counted.
    fn write(&mut self, node: &Node, captures: bool) -> SqlResult<()> {
        self.parsed += PART_BYTES;
        if let Node::Class { items, .. } = node {
            let properties = items.matches("\\p{").count();
            self.parsed += items.len() * size_of::<(char, char)>() + properties * PROPERTY_BYTES;
        }
        if self.parsed > EXPRESSION_BYTES {
            return Err(too_complex("It has too many parts."));
        }
        match node {
            Node::Character(_) | Node::Any | Node::Class { .. } => {
                self.out.push_str(&leaf(node, self.options));
            }
            Node::Assertion(text) => self.out.push_str(text),
            Node::Group {
                captures: counted,
                node,
            } => {
                let counted = *counted && captures;
                self.groups += usize::from(counted);
                self.out.push_str(if counted { "(" } else { "(?:" });
                self.write(node, captures)?;
                self.out.push(')');
            }
            Node::Look { .. } => self.is_wider = true,
            Node::BackReference(number) => {
                self.is_wider = true;
                if let Some(inner) = group(self.root, *number, &mut 0) {
                    self.out.push_str("(?:");
                    self.write(&inner, false)?;
                    self.out.push(')');
                }
            }
            Node::Repeat {
                node,
                least,
                most,
                greedy,
                is_fixed,
            } => {
                self.out.push_str("(?:");
                self.write(node, captures)?;
                self.out.push(')');
                let _ = match (least, most) {
                    (0, None) => self.out.write_str("*"),
                    (1, None) => self.out.write_str("+"),
                    (0, Some(1)) => self.out.write_str("?"),
                    (least, None) => write!(self.out, "{{{least},}}"),
                    (least, Some(most)) if least == most => write!(self.out, "{{{least}}}"),
                    (least, Some(most)) => write!(self.out, "{{{least},{most}}}"),
                };
                if *is_fixed {
                    return Ok(());
                }
                if *greedy {
                    self.greediness.0 = true;
                } else {
                    self.greediness.1 = true;
                    if *most != Some(*least) {
                        self.out.push('?');
                    }
                }
            }
            Node::Concat(parts) => {
                for part in parts {
                    self.write(part, captures)?;
                }
            }
            Node::Alternation(branches) => {
                self.has_branches = true;
                self.out.push_str("(?:");
                for (index, branch) in branches.iter().enumerate() {
                    if index > 0 {
                        self.out.push('|');
                    }
                    self.write(branch, captures)?;
                }
                self.out.push(')');
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pattern: &str) -> Translated {
        translate(pattern, Options::default()).unwrap_or_else(|error| panic!("{pattern}: {error}"))
    }

    #[test]
    fn what_means_something_else_is_written_otherwise() {
        for (pattern, rust) in [
            ("a.c", "a(?s:.)c"),
            ("^a$", "\\Aa\\z"),
            ("\\ma\\M", "\\b{start}a\\b{end}"),
            ("a{,2}", "a\\x{7B}\\x{2C}2\\x{7D}"),
            ("[]a]", "[\\x{5D}a]"),
            ("\\B", "\\x{5C}"),
            ("[^\\d]", "[^0-9]"),
            ("a|", "(?:a|)"),
        ] {
            assert_eq!(run(pattern).pattern, rust, "{pattern}");
        }
        let lines = Options::read("n").unwrap();
        assert_eq!(translate("^.$", lines).unwrap().pattern, "(?m:^)[^\\n](?m:$)");
    }

    #[test]
    fn the_first_quantifier_decides_which_length_counts() {
        let prefers = |pattern: &str| preference(&run(pattern).node);
        assert_eq!(prefers("abc"), Prefers::Neither);
        assert_eq!(prefers("a{3}"), Prefers::Neither);
        assert_eq!(prefers("ab*?c+"), Prefers::Shortest);
        assert_eq!(prefers("(ab+)c*?"), Prefers::Longest);
        assert_eq!(prefers("a*?|b"), Prefers::Longest);
        assert_eq!(prefers("(a*){1,1}?b"), Prefers::Shortest);
    }

    #[test]
    fn what_is_no_regular_expression_is_refused() {
        for pattern in [
            "(", "a)", "[a", "*a", "a**", "a{1", "a{2,1}", "a{300}", "\\q", "a\\", "\\1", "[[:x:]]", "[z-a]",
            "^*", "(?=a)*", "(\\1)",
        ] {
            let error = translate(pattern, Options::default()).unwrap_err();
            assert_eq!(error.code.code(), "2201B", "{pattern}");
        }
        assert_eq!(Options::read("z").unwrap_err().code.code(), "22023");
    }
}
