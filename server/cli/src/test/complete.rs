//! Writes answers into a file: of each record whose answer is another, exactly the lines that say so. Everything else stays as it
//! was written: comments, spaces, patterns of errors that fit.

use std::collections::BTreeMap;

use sqllogictest::{ExpectedError, TestErrorKind};

use super::run::Failure;

/// Between a record and its answer.
const DELIMITER: &str = "----";

/// In place of a part of an answer that may be anything.
const IGNORED: &str = "<slt:ignore>";

/// What a record should say.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Rows, a line each.
    Rows(Vec<String>),
    /// How many rows a statement affects.
    Count(u64),
    /// What is behind `error`: a pattern or a state.
    Error(String),
    /// The whole text of an error, below the statement.
    ErrorText(Vec<String>),
}

/// Writes the answers of the records that failed into their files; says how many. What failed without an answer, or had to succeed
/// and did not, stays as it is.
///
/// # Errors
/// A file cannot be read or written, in words.
pub fn write_answers<'a>(failures: impl Iterator<Item = &'a Failure>) -> Result<usize, String> {
    let mut answers: BTreeMap<String, BTreeMap<usize, Answer>> = BTreeMap::new();
    for failure in failures {
        if let Failure::Record(error) = failure
            && let Some(answer) = answer(error.kind())
        {
            let location = error.location();
            let of_file = answers.entry(location.file().to_owned()).or_default();
            of_file.insert(location.line() as usize, answer);
        }
    }
    let mut written = 0;
    for (file, answers) in answers {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let (text, changed) = with_answers(&text, &answers);
        if changed > 0 {
            std::fs::write(&file, text).map_err(|error| format!("cannot write {file}: {error}"))?;
        }
        written += changed;
    }
    Ok(written)
}

fn answer(kind: TestErrorKind) -> Option<Answer> {
    match kind {
        // Somebody has said which parts of the answer do not count: a new one would say that all do.
        TestErrorKind::QueryResultMismatch { expected, .. } if expected.contains(IGNORED) => None,
        TestErrorKind::QueryResultMismatch { actual, .. } => {
            let rows: Vec<String> = actual.lines().map(str::to_owned).collect();
            // A row without a column is an empty line, which would be read as the end of the answer.
            let can_be_read = rows.iter().all(|row| !row.is_empty());
            can_be_read.then_some(Answer::Rows(rows))
        }
        TestErrorKind::StatementResultMismatch { actual, .. } => {
            let number = actual.split_whitespace().find_map(|word| word.parse().ok());
            number.map(Answer::Count)
        }
        TestErrorKind::ErrorMismatch {
            err,
            expected_err,
            actual_sqlstate,
            ..
        } => {
            let text = err.to_string();
            if expected_err.starts_with("(sqlstate)") {
                return actual_sqlstate.map(|state| Answer::Error(format!("({state})")));
            }
            if expected_err.starts_with("(multiline)") {
                return Some(Answer::ErrorText(
                    text.trim().lines().map(str::to_owned).collect(),
                ));
            }
            // The first line is what it says, the others what to do.
            match ExpectedError::from_actual_error(None, text.lines().next()?) {
                ExpectedError::Inline(pattern) => Some(Answer::Error(pattern.as_str().to_owned())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The text with the answers of the records that begin at these lines (from 1), and how many were written.
fn with_answers(text: &str, answers: &BTreeMap<usize, Answer>) -> (String, usize) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut written = 0;
    // From the end, so that the numbers of those in front stay right.
    for (number, answer) in answers.iter().rev() {
        written += usize::from(write(&mut lines, number - 1, answer));
    }
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    (lines.join(line_end) + line_end, written)
}

fn write(lines: &mut Vec<String>, head: usize, answer: &Answer) -> bool {
    let Some(line) = lines.get(head) else {
        return false;
    };
    // Where the SQL ends, and where the answer behind it.
    let from = |at: usize| lines[at..].iter();
    let sql_end = from(head).position(|line| line.is_empty() || line == DELIMITER);
    let sql_end = sql_end.map_or(lines.len(), |lines| head + lines);
    let has_answer = lines.get(sql_end).is_some_and(|line| line == DELIMITER);
    let below = |rows: &[String]| [&[DELIMITER.to_owned()], rows].concat();
    match answer {
        Answer::Rows(rows) => {
            let end = from(sql_end).position(String::is_empty);
            let end = end.map_or(lines.len(), |lines| sql_end + lines);
            lines.splice(sql_end..end, below(rows));
        }
        Answer::ErrorText(rows) if has_answer => {
            let blank = |pair: &[String]| pair.iter().all(String::is_empty);
            let end = lines[sql_end..].windows(2).position(blank);
            let end = end.map_or(lines.len(), |lines| sql_end + lines);
            lines.splice(sql_end..end, below(rows));
        }
        Answer::ErrorText(_) => return false,
        Answer::Count(count) => {
            let Some((before, after)) = line.split_once(" count ") else {
                return false;
            };
            let rest = after
                .trim_start()
                .split_once(' ')
                .map(|(_, rest)| format!(" {rest}"));
            lines[head] = format!("{before} count {count}{}", rest.unwrap_or_default());
        }
        Answer::Error(pattern) => {
            let Some((before, after)) = line.split_once(" error") else {
                return false;
            };
            // A pattern in front of it cannot be told from it.
            if after.contains(" retry ") {
                return false;
            }
            lines[head] = format!("{before} error {pattern}");
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&str]) -> Answer {
        Answer::Rows(rows.iter().map(|row| (*row).to_owned()).collect())
    }

    #[test]
    fn only_answers_are_written() {
        let before = "\
# a comment
statement count 3 retry 2 backoff 1s
INSERT INTO t VALUES (1)

query I  rowsort
SELECT a
FROM t

query I
SELECT b FROM t
----
1
2


statement error   wrong
SELECT

statement error (42601)
SELECT

query error
SELECT
----
old text

of an error


statement ok
SELECT 1";
        let text = |lines: &[&str]| Answer::ErrorText(lines.iter().map(|line| (*line).to_owned()).collect());
        let answers = BTreeMap::from([
            (2, Answer::Count(1)),
            (5, rows(&["7", "8"])),
            (9, rows(&[])),
            (16, Answer::Error("a \\(b\\)".into())),
            (19, Answer::Error("(22012)".into())),
            (22, text(&["new"])),
        ]);
        let (after, written) = with_answers(before, &answers);
        assert_eq!(written, 6);
        assert_eq!(
            after,
            "\
# a comment
statement count 1 retry 2 backoff 1s
INSERT INTO t VALUES (1)

query I  rowsort
SELECT a
FROM t
----
7
8

query I
SELECT b FROM t
----


statement error a \\(b\\)
SELECT

statement error (22012)
SELECT

query error
SELECT
----
new


statement ok
SELECT 1
"
        );
    }

    #[test]
    fn lines_end_as_they_did() {
        let answers = BTreeMap::from([(1, rows(&["1"]))]);
        let (after, _) = with_answers("query I\r\nSELECT 1\r\n\r\nhalt\r\n", &answers);
        assert_eq!(after, "query I\r\nSELECT 1\r\n----\r\n1\r\n\r\nhalt\r\n");
    }

    #[test]
    fn an_answer_at_the_end_of_the_file_is_replaced() {
        let (after, written) =
            with_answers("query I\nSELECT 1\n----\n2", &BTreeMap::from([(1, rows(&["1"]))]));
        assert_eq!((after.as_str(), written), ("query I\nSELECT 1\n----\n1\n", 1));
    }
}
