//! PostgreSQL's functions and operators over regular expressions, SIMILAR TO, and `substring`.
//!
//! | function | what |
//! |---|---|
//! | `regexp_like(text, re, flags)` | also `~`, `~*`, `!~`, `!~*` |
//! | `regexp_match`, `regexp_matches` | the groups of the first match, of all matches |
//! | `regexp_count`, `regexp_instr`, `regexp_substr` | how many, where, what |
//! | `regexp_replace` | with `\1` and `\&` |
//! | `regexp_split_to_array`, `regexp_split_to_table` | what is between the matches |
//! | `similar_to(text, pattern, escape)` | `SIMILAR TO` |
//! | `pg_substring(text, ..)` | `substring` by place, by regular expression, by pattern of SIMILAR TO |
//!
//! [`syntax`] reads the expressions, `translate` writes them for Rust's engines, [`engine`] searches with the automata of `automaton`, `dissect` divides what was found among the groups, [`similar`] has the patterns of SIMILAR TO.

mod automaton;
mod dissect;
pub mod engine;
pub mod similar;
pub mod spelling;
pub mod syntax;
mod translate;

use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, ListBuilder, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{self, is_text};

use self::engine::{Regex, Span};
use self::syntax::Options;
use crate::arguments::on_arrays;
use crate::bytes;

/// What `regexp_matches` is called: it makes a list of lists, of which a row each is made.
pub const MATCHES: &str = "regexp_match_all";
/// What the elements of its list are called.
pub const MATCH: &str = "match";
/// What `SIMILAR TO` is called.
pub const SIMILAR: &str = "similar_to";
/// What `substring` is called.
pub const SUBSTRING: &str = "pg_substring";
/// The operator `~`.
pub const LIKE: &str = "regexp_like";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Like,
    Match,
    Matches,
    Count,
    Instr,
    Substr,
    Replace,
    Split,
    Similar,
    Substring,
}

/// An argument's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
}

use Kind::{Number as N, Text as T};

impl Function {
    const ALL: [Function; 10] = [
        Function::Like,
        Function::Match,
        Function::Matches,
        Function::Count,
        Function::Instr,
        Function::Substr,
        Function::Replace,
        Function::Split,
        Function::Similar,
        Function::Substring,
    ];

    fn name(self) -> &'static str {
        match self {
            Function::Like => LIKE,
            Function::Match => "regexp_match",
            Function::Matches => MATCHES,
            Function::Count => "regexp_count",
            Function::Instr => "regexp_instr",
            Function::Substr => "regexp_substr",
            Function::Replace => "regexp_replace",
            Function::Split => "regexp_split_to_array",
            Function::Similar => SIMILAR,
            Function::Substring => SUBSTRING,
        }
    }

    /// What a user calls it.
    fn shown(self) -> &'static str {
        match self {
            Function::Matches => "regexp_matches",
            Function::Substring => "substring",
            other => other.name(),
        }
    }

    /// The arguments that it takes, and how many of them there must be at least.
    fn forms(self) -> &'static [(&'static [Kind], usize)] {
        match self {
            Function::Like | Function::Match | Function::Matches | Function::Split | Function::Similar => {
                &[(&[T, T, T], 2)]
            }
            Function::Count => &[(&[T, T, N, T], 2)],
            Function::Instr => &[(&[T, T, N, N, N, T, N], 2)],
            Function::Substr => &[(&[T, T, N, N, T, N], 2)],
            Function::Replace => &[(&[T, T, T, T], 3), (&[T, T, T, N, N, T], 4)],
            Function::Substring => &[(&[T, N, N], 2), (&[T, T, T], 2)],
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Regexp {
    function: Function,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    Function::ALL
        .into_iter()
        .map(|function| {
            Arc::new(ScalarUDF::from(Regexp {
                function,
                signature: Signature::user_defined(Volatility::Immutable),
            }))
        })
        .collect()
}

fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))
}

/// Whether a type may stand where a kind of argument is wanted; NULL may anywhere.
fn fits(data_type: &DataType, kind: Kind) -> bool {
    match kind {
        Kind::Text => is_text(data_type) || data_type == &DataType::Null,
        Kind::Number => data_type.is_integer() || data_type == &DataType::Null,
    }
}

impl ScalarUDFImpl for Regexp {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let form = self.function.forms().iter().find(|(kinds, least)| {
            arg_types.len() >= *least
                && arg_types.len() <= kinds.len()
                && arg_types
                    .iter()
                    .zip(*kinds)
                    .all(|(given, kind)| fits(given, *kind))
        });
        let Some((kinds, _)) = form else {
            if self.is_of_bytes(arg_types) && (2..=3).contains(&arg_types.len()) {
                let places = vec![DataType::Int64; arg_types.len() - 1];
                return Ok([vec![DataType::Binary], places].concat());
            }
            let names: Vec<String> = arg_types
                .iter()
                .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
                .collect();
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {}({}) does not exist", self.function.shown(), names.join(", ")),
            )
            .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
            .into());
        };
        Ok(kinds
            .iter()
            .take(arg_types.len())
            .map(|kind| match kind {
                Kind::Text => DataType::Utf8,
                Kind::Number => DataType::Int64,
            })
            .collect())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            Function::Substring if self.is_of_bytes(arg_types) => DataType::Binary,
            Function::Like | Function::Similar => DataType::Boolean,
            Function::Match | Function::Split => text_list(),
            Function::Matches => DataType::List(Arc::new(Field::new(MATCH, text_list(), true))),
            Function::Count | Function::Instr => DataType::Int32,
            Function::Substr | Function::Replace | Function::Substring => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| {
            if self.function == Function::Substring && arrays[0].data_type().is_binary() {
                return bytes::substring(arrays);
            }
            let arguments = arrays
                .iter()
                .map(|array| {
                    Ok(match array.data_type() {
                        integer if integer.is_integer() => Argument::Numbers(
                            cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
                        ),
                        _ => Argument::Texts(cast(array, &DataType::Utf8)?.as_string::<i32>().clone()),
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(self.function.apply(&arguments, rows)?)
        })
    }
}

impl Regexp {
    /// Whether it is `substring` of bytes, by places.
    fn is_of_bytes(&self, arg_types: &[DataType]) -> bool {
        self.function == Function::Substring
            && arg_types.split_first().is_some_and(|(first, places)| {
                first.is_binary() && places.iter().all(|place| fits(place, Kind::Number))
            })
    }
}

enum Argument {
    Texts(StringArray),
    Numbers(Int64Array),
}

/// The arguments of one row, none of which is NULL.
struct Row<'a> {
    arguments: &'a [Argument],
    row: usize,
    name: &'static str,
}

impl<'a> Row<'a> {
    fn text(&self, index: usize) -> Option<&'a str> {
        match self.arguments.get(index)? {
            Argument::Texts(values) => Some(values.value(self.row)),
            Argument::Numbers(_) => None,
        }
    }

    fn number(&self, index: usize) -> Option<i64> {
        match self.arguments.get(index)? {
            Argument::Numbers(values) => Some(values.value(self.row)),
            Argument::Texts(_) => None,
        }
    }

    /// A number that must not be below a least one.
    fn at_least(&self, index: usize, name: &str, least: i64, default: i64) -> SqlResult<usize> {
        let value = self.number(index).unwrap_or(default);
        if value < least {
            return Err(bad_parameter(name, value));
        }
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    /// The first text.
    fn subject(&self) -> &'a str {
        self.text(0).unwrap_or_default()
    }

    fn options(&self, index: usize) -> SqlResult<Options> {
        Options::read(self.text(index).unwrap_or_default())
    }

    /// The options of a function for which `g` makes no sense.
    fn options_of_one(&self, index: usize) -> SqlResult<Options> {
        let options = self.options(index)?;
        if options.global {
            let error = SqlError::new(
                SqlState::InvalidParameterValue,
                format!("{}() does not support the \"global\" option", self.name),
            );
            return Err(if self.name == "regexp_match" {
                error.with_hint("Use the regexp_matches function instead.")
            } else {
                error
            });
        }
        Ok(options)
    }

    fn regex(&self, mut options: Options) -> SqlResult<Rc<Regex>> {
        options.global = false;
        Regex::of(self.text(1).unwrap_or_default(), options)
    }

    /// The byte at which the search begins, by the number of a character; `None`: behind the end.
    fn start(&self, index: usize) -> SqlResult<Option<usize>> {
        let start = self.at_least(index, "start", 1, 1)?;
        let text = self.subject();
        Ok(text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .nth(start - 1))
    }
}

fn bad_parameter(name: &str, value: i64) -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("invalid value for parameter \"{name}\": {value}"),
    )
}

fn part(text: &str, span: Span) -> Option<&str> {
    span.map(|(start, end)| &text[start..end])
}

/// The groups of a match, or all of it if there are none.
fn groups<'a>(text: &'a str, found: &[Span]) -> Vec<Option<&'a str>> {
    let spans = if found.len() > 1 { &found[1..] } else { found };
    spans.iter().map(|span| part(text, *span)).collect()
}

fn append_texts(out: &mut ListBuilder<StringBuilder>, texts: impl IntoIterator<Item = Option<String>>) {
    for text in texts {
        out.values().append_option(text);
    }
    out.append(true);
}

impl Function {
    fn apply(self, arguments: &[Argument], rows: usize) -> SqlResult<ArrayRef> {
        let is_null = |row: usize| {
            arguments.iter().any(|argument| match argument {
                Argument::Texts(values) => values.is_null(row),
                Argument::Numbers(values) => values.is_null(row),
            })
        };
        let each = || {
            (0..rows).map(|row| {
                (!is_null(row)).then_some(Row {
                    arguments,
                    row,
                    name: self.shown(),
                })
            })
        };
        Ok(match self {
            Function::Like | Function::Similar => Arc::new(
                each()
                    .map(|row| row.map(|row| self.is_match(&row)).transpose())
                    .collect::<SqlResult<BooleanArray>>()?,
            ),
            Function::Count | Function::Instr => Arc::new(
                each()
                    .map(|row| row.map(|row| self.number(&row)).transpose())
                    .collect::<SqlResult<Int32Array>>()?,
            ),
            Function::Substr | Function::Replace | Function::Substring => {
                let texts = each()
                    .map(|row| row.map_or(Ok(None), |row| self.text(&row)))
                    .collect::<SqlResult<StringArray>>()?;
                Arc::new(texts)
            }
            Function::Match | Function::Split => {
                let mut out = ListBuilder::new(StringBuilder::new());
                for row in each() {
                    match row.map(|row| self.texts(&row)).transpose()?.flatten() {
                        Some(texts) => append_texts(&mut out, texts),
                        None => out.append(false),
                    }
                }
                Arc::new(out.finish())
            }
            Function::Matches => {
                let mut out = ListBuilder::new(ListBuilder::new(StringBuilder::new()))
                    .with_field(Field::new(MATCH, text_list(), true));
                for row in each() {
                    // No row for NULL, as for no match.
                    if let Some(row) = row {
                        let options = row.options(2)?;
                        let most = if options.global { usize::MAX } else { 1 };
                        for found in row.regex(options)?.matches(row.subject(), 0, most)? {
                            let texts = groups(row.subject(), &found);
                            append_texts(
                                out.values(),
                                texts.into_iter().map(|text| text.map(str::to_string)),
                            );
                        }
                    }
                    out.append(true);
                }
                Arc::new(out.finish())
            }
        })
    }

    fn is_match(self, row: &Row<'_>) -> SqlResult<bool> {
        if self == Function::Similar {
            let pattern = similar::translate(row.text(1).unwrap_or_default(), row.text(2))?;
            return Regex::of(&pattern, Options::default())?.is_match(row.subject());
        }
        row.regex(row.options_of_one(2)?)?.is_match(row.subject())
    }

    /// The groups of the first match, the parts between the matches.
    fn texts(self, row: &Row<'_>) -> SqlResult<Option<Vec<Option<String>>>> {
        let text = row.subject();
        let regex = row.regex(row.options_of_one(2)?)?;
        if self == Function::Match {
            return Ok(regex.find(text, 0)?.map(|found| {
                groups(text, &found)
                    .into_iter()
                    .map(|part| part.map(str::to_string))
                    .collect()
            }));
        }
        let mut parts = vec![];
        let mut begin = 0;
        let mut before = 0;
        for found in regex.matches(text, 0, usize::MAX)? {
            let Some((start, end)) = found[0] else { continue };
            // An empty match at an end of the text or just behind another separates nothing.
            if start < text.len() && end > before {
                parts.push(Some(text[begin..start].to_string()));
                begin = end;
            }
            before = end;
        }
        parts.push(Some(text[begin..].to_string()));
        Ok(Some(parts))
    }

    fn number(self, row: &Row<'_>) -> SqlResult<i32> {
        let text = row.subject();
        if self == Function::Count {
            let options = row.options_of_one(3)?;
            let Some(start) = row.start(2)? else { return Ok(0) };
            let count = row.regex(options)?.matches(text, start, usize::MAX)?.len();
            return Ok(i32::try_from(count).unwrap_or(i32::MAX));
        }
        let start = row.start(2)?;
        let number = row.at_least(3, "n", 1, 1)?;
        let end = row.number(4).unwrap_or(0);
        if !(0..=1).contains(&end) {
            return Err(bad_parameter("endoption", end));
        }
        let options = row.options_of_one(5)?;
        let group = row.at_least(6, "subexpr", 0, 0)?;
        let Some(start) = start else { return Ok(0) };
        let found = row.regex(options)?.matches(text, start, number)?;
        let span = found.get(number - 1).and_then(|found| found.get(group)).copied();
        Ok(span.flatten().map_or(0, |(start, stop)| {
            let before = &text[..if end == 1 { stop } else { start }];
            i32::try_from(before.chars().count() + 1).unwrap_or(i32::MAX)
        }))
    }

    fn text(self, row: &Row<'_>) -> SqlResult<Option<String>> {
        let text = row.subject();
        match self {
            Function::Substring => substring(row),
            Function::Substr => {
                let start = row.start(2)?;
                let number = row.at_least(3, "n", 1, 1)?;
                let options = row.options_of_one(4)?;
                let group = row.at_least(5, "subexpr", 0, 0)?;
                let Some(start) = start else { return Ok(None) };
                let found = row.regex(options)?.matches(text, start, number)?;
                let span = found.get(number - 1).and_then(|found| found.get(group)).copied();
                Ok(part(text, span.flatten()).map(str::to_string))
            }
            _ => replaced(row).map(Some),
        }
    }
}

/// `regexp_replace`: the first match, that of a number, or all of them.
fn replaced(row: &Row<'_>) -> SqlResult<String> {
    let text = row.subject();
    let replacement = row.text(2).unwrap_or_default();
    let (options, start, number) = match row.text(3) {
        Some(letters) => {
            if letters.starts_with(|letter: char| letter.is_ascii_digit()) {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid regular expression option: \"{}\"", &letters[..1]),
                )
                .with_hint(
                    "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
                ));
            }
            let options = Options::read(letters)?;
            (options, Some(0), usize::from(!options.global))
        }
        None => {
            let start = row.start(3)?;
            let default = i64::from(row.number(4).is_none());
            let number = row.at_least(4, "n", 0, default)?;
            (row.options_of_one(5)?, start, number)
        }
    };
    let regex = row.regex(options)?;
    let Some(start) = start else {
        return Ok(text.to_string());
    };
    let most = if number == 0 { usize::MAX } else { number };
    let mut out = String::with_capacity(text.len());
    let mut begin = 0;
    for (index, found) in regex.matches(text, start, most)?.iter().enumerate() {
        let Some((from, to)) = found[0] else { continue };
        if number > 0 && index + 1 != number {
            continue;
        }
        out.push_str(&text[begin..from]);
        append_replacement(text, found, replacement, &mut out);
        begin = to;
    }
    out.push_str(&text[begin..]);
    Ok(out)
}

/// `\1` to `\9` are groups, `\&` is the match, `\\` a backslash; other backslashes are what they are.
fn append_replacement(text: &str, found: &[Span], replacement: &str, out: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let group = match rest.bytes().next() {
            Some(digit @ b'1'..=b'9') => Some(usize::from(digit - b'0')),
            Some(b'&') => Some(0),
            Some(b'\\') => {
                out.push('\\');
                rest = &rest[1..];
                continue;
            }
            _ => None,
        };
        match group {
            Some(group) => {
                out.push_str(part(text, found.get(group).copied().flatten()).unwrap_or_default());
                rest = &rest[1..];
            }
            None => out.push('\\'),
        }
    }
    out.push_str(rest);
}

fn substring(row: &Row<'_>) -> SqlResult<Option<String>> {
    let text = row.subject();
    let Some(start) = row.number(1) else {
        let regex = match row.text(2) {
            Some(escape) => {
                let pattern = similar::translate(row.text(1).unwrap_or_default(), Some(escape))?;
                Regex::of(&pattern, Options::default())?
            }
            None => row.regex(Options::default())?,
        };
        return Ok(regex.find(text, 0)?.and_then(|found| {
            let span = found.get(1).or(found.first()).copied().flatten();
            part(text, span).map(str::to_string)
        }));
    };
    let end = match row.number(2) {
        Some(length) if length < 0 => {
            return Err(SqlError::new(
                SqlState::SubstringError,
                "negative substring length not allowed",
            ));
        }
        Some(length) => start.saturating_add(length),
        None => i64::MAX,
    };
    let skipped = usize::try_from((start - 1).max(0)).unwrap_or(usize::MAX);
    let taken = usize::try_from(end.saturating_sub(start.max(1)).max(0)).unwrap_or(usize::MAX);
    Ok(Some(text.chars().skip(skipped).take(taken).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replace(text: &str, pattern: &str, replacement: &str, flags: &str) -> String {
        let texts = |text: &str| Argument::Texts(StringArray::from(vec![text]));
        let arguments = [texts(text), texts(pattern), texts(replacement), texts(flags)];
        replaced(&Row {
            arguments: &arguments,
            row: 0,
            name: "regexp_replace",
        })
        .unwrap()
    }

    #[test]
    fn replacements_refer_to_what_was_found() {
        assert_eq!(replace("foobarbaz", "b(..)", "X\\1Y", "g"), "fooXarYXazY");
        assert_eq!(replace("foobarbaz", "b..", "[\\&]", ""), "foo[bar]baz");
        assert_eq!(replace("abc", "b", "\\\\", ""), "a\\c");
        assert_eq!(replace("abc", "b", "\\x", ""), "a\\xc");
        assert_eq!(replace("abc", "(b)|x", "<\\2>", ""), "a<>c");
        assert_eq!(replace("abc", "", "-", "g"), "-a-b-c-");
    }
}
