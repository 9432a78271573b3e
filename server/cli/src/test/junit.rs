//! What came of the files as JUnit's XML, which CI systems read: a suite for each file, a case for each record.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::run::FileRun;

/// The file that the document is written to.
pub struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// It cannot be written, in words.
    pub fn open(path: &Path) -> Result<Output, String> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        Ok(Output {
            path: path.to_owned(),
            file,
        })
    }

    /// Writes what came of the files.
    ///
    /// # Errors
    /// It cannot be written, in words.
    pub fn write(mut self, runs: &[FileRun]) -> Result<(), String> {
        let written = self.file.write_all(document(runs).as_bytes());
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// The document.
fn document(runs: &[FileRun]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for run in runs {
        let file = run.file.display().to_string();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" time=\"{:.3}\">",
            escaped(&file),
            run.records.len(),
            run.failures().count(),
            run.took.as_secs_f64()
        );
        for record in &run.records {
            let case = format!(
                "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
                escaped(&file),
                escaped(&format!("{} {}", record.place, record.what)),
                record.took.as_secs_f64()
            );
            let _ = match &record.failure {
                None => writeln!(xml, "{case}/>"),
                Some(failure) => {
                    let text = failure.to_string();
                    let first = text.lines().next().unwrap_or_default();
                    writeln!(
                        xml,
                        "{case}>\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                        escaped(first),
                        escaped(&text)
                    )
                }
            };
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// A text as XML takes it, in attributes too. What XML cannot say at all is a question mark.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            letter if letter < ' ' || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_failure_is_a_case_with_its_text() {
        let run = FileRun::new(Path::new("a&b.slt")).and_failed("1 < 2\u{1}".into());
        assert_eq!(
            document(&[run]),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  \
             <testsuite name=\"a&amp;b.slt\" tests=\"1\" failures=\"1\" time=\"0.000\">\n    \
             <testcase classname=\"a&amp;b.slt\" name=\"a&amp;b.slt the file\" time=\"0.000\">\n      \
             <failure message=\"1 &lt; 2?\">1 &lt; 2?&#10;at a&amp;b.slt</failure>\n    </testcase>\n  \
             </testsuite>\n</testsuites>\n"
        );
    }
}
