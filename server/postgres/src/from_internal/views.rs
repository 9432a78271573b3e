//! Errors of which views have kept only the text that the layers below gave them: they read as those of a SELECT.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::{arrow, datafusion};

/// What stands before the error in the reason of a view that ends at the first.
const FAILED: &str = "(on_error = 'fail'): ";

/// The message of an error of a view, as a SELECT would have it.
pub fn view_message(text: &str) -> String {
    match text.split_once(FAILED) {
        Some((before, error)) => format!("{before}{FAILED}{}", message(error)),
        None => message(text),
    }
}

fn message(text: &str) -> String {
    if let Some(said) = text.strip_prefix("Execution error: ") {
        return datafusion(DataFusionError::Execution(said.to_owned())).message;
    }
    if let Some(said) = text.strip_prefix("External error: ") {
        return message(said);
    }
    let Some(said) = text.strip_prefix("Arrow error: ") else {
        return text.to_owned();
    };
    if said == ArrowError::DivideByZero.to_string() {
        return arrow(ArrowError::DivideByZero).message;
    }
    type Made = fn(String) -> ArrowError;
    let kinds: [(&str, Made); 5] = [
        ("Cast error: ", ArrowError::CastError),
        ("Arithmetic overflow: ", ArrowError::ArithmeticOverflow),
        ("Compute error: ", ArrowError::ComputeError),
        ("Invalid argument error: ", ArrowError::InvalidArgumentError),
        ("Parser error: ", ArrowError::ParseError),
    ];
    kinds
        .into_iter()
        .find_map(|(prefix, of)| Some(arrow(of(said.strip_prefix(prefix)?.to_owned())).message))
        .unwrap_or_else(|| message(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_view_kept_reads_as_in_a_select() {
        let of = |error: ArrowError| DataFusionError::ArrowError(Box::new(error), None);
        for error in [
            of(ArrowError::DivideByZero),
            of(ArrowError::CastError(
                "Can't cast value 100000 to type Int16".into(),
            )),
            of(ArrowError::CastError(
                "Cannot cast string 'abc' to value of Int32 type".into(),
            )),
            of(ArrowError::ArithmeticOverflow(
                "Overflow happened on: 2147483647i32 + 1".into(),
            )),
            of(ArrowError::ExternalError("integer out of range".into())),
            DataFusionError::External("integer out of range".into()),
            DataFusionError::Execution("Divide by zero".into()),
        ] {
            let text = error.to_string();
            let expected = match error {
                DataFusionError::External(_) => "integer out of range".to_owned(),
                DataFusionError::ArrowError(ref inner, _)
                    if matches!(**inner, ArrowError::ExternalError(_)) =>
                {
                    "integer out of range".to_owned()
                }
                error => datafusion(error).message,
            };
            assert_eq!(view_message(&text), expected, "{text}");
            assert!(!expected.contains("error: "), "{expected}");
        }
        assert_eq!(
            view_message(
                "an expression failed on a row (on_error = 'fail'): Arrow error: Divide by zero error"
            ),
            "an expression failed on a row (on_error = 'fail'): division by zero"
        );
        assert_eq!(view_message("out of memory: 5 MB"), "out of memory: 5 MB");
    }
}
