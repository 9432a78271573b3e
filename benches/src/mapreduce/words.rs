//! A word count over a text whose words come as often as those of a language do, with and without the combiner, and as a
//! query.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};
use millrace_generator::random::{Random, Zipf};

use super::Scale;
use crate::bed::Bed;
use crate::error::BenchError;
use crate::machine;
use crate::results::{Aim, Experiment};

/// Different words; the first is the most frequent.
const WORDS: u64 = 50_000;
const WORDS_OF_LINE: usize = 12;
const LINES_OF_WRITE: usize = 20_000;
const STREAM: &str = "CREATE STREAM line (text TEXT)";
const QUERY: &str =
    "SELECT word, count(*) AS n FROM line, unnest(string_to_array(text, ' ')) AS w (word) GROUP BY word";

pub(super) async fn run(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        "word count",
        format!(
            "{} MB of text, lines of {WORDS_OF_LINE} out of {WORDS} words by Zipf's law, from the call until the view has counted them; and the same \
             as a query over the stream's log. MB a second and core.",
            scale.text_bytes as f64 / 1e6
        ),
    );
    let cores = machine::cores() as f64;
    for is_combined in [true, false] {
        let view = format!("CREATE MATERIALIZED VIEW word_count AS {QUERY}");
        let bed = Bed::new(&[STREAM, &view]).await?;
        bed.runtime
            .set_combining(bed.relation("word_count")?, is_combined);
        let (time, words, bytes) = feed(&bed, scale).await?;
        check(&bed, "word_count", words).await?;
        let name = if is_combined { "view" } else { "view, combiner off" };
        let aim = is_combined.then_some(Aim::MedianOver(150.0));
        let rate = bytes as f64 / 1e6 / time.as_secs_f64() / cores;
        eprintln!("{name}: {rate:.1} MB/s a core");
        experiment.add(name, "MB/s", vec![rate], aim);
        if is_combined {
            let begin = Instant::now();
            check(&bed, &format!("({QUERY}) AS answer"), words).await?;
            let rate = bytes as f64 / 1e6 / begin.elapsed().as_secs_f64() / cores;
            experiment.add("query", "MB/s", vec![rate], None);
        }
        bed.stop().await;
    }
    Ok(experiment)
}

async fn check(bed: &Bed, what: &str, words: u64) -> Result<(), BenchError> {
    let counted = bed.client.number(&format!("SELECT sum(n) FROM {what}")).await?;
    if counted == words as f64 {
        return Ok(());
    }
    Err(BenchError::Wrong(format!(
        "{what} has counted {counted} words of {words}"
    )))
}

/// Feeds the text; how long it took, its words and its bytes.
async fn feed(bed: &Bed, scale: &Scale) -> Result<(Duration, u64, u64), BenchError> {
    let line = bed.relation("line")?;
    let schema = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, true)]));
    let zipf = Zipf::new(WORDS, 1.0);
    let (mut random, mut words, mut bytes) = (Random::at(2011, 0, 0), 0, 0);
    let time = bed
        .feed(|| {
            if bytes >= scale.text_bytes {
                return Ok(None);
            }
            let mut lines = StringBuilder::new();
            let mut text = String::new();
            for _ in 0..LINES_OF_WRITE {
                text.clear();
                for place in 0..WORDS_OF_LINE {
                    if place > 0 {
                        text.push(' ');
                    }
                    push_word(zipf.rank(&mut random), &mut text);
                }
                words += WORDS_OF_LINE as u64;
                bytes += text.len() as u64 + 1;
                lines.append_value(&text);
                if bytes >= scale.text_bytes {
                    break;
                }
            }
            let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(lines.finish())]);
            Ok(Some(vec![(line, rows.map_err(BenchError::engine)?)]))
        })
        .await?;
    Ok((time, words, bytes))
}

/// The word of a rank: frequent ones are short, as in a language.
fn push_word(rank: u64, text: &mut String) {
    let mut left = rank;
    while left > 0 {
        text.push(char::from(b'a' + (left % 20) as u8));
        left /= 20;
    }
    text.push_str("en");
}
