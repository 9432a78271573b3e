//! Which form an answer has (`Accept`) and which a body has (`Content-Type`).

use axum::http::{HeaderMap, HeaderName, header};

/// The forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// One JSON document with all results.
    Json,
    /// One JSON object a row and line.
    NdJson,
    /// Comma-separated values with a header.
    Csv,
    /// Arrow's IPC stream.
    Arrow,
}

impl ResultFormat {
    const ALL: [ResultFormat; 4] = [
        ResultFormat::Json,
        ResultFormat::NdJson,
        ResultFormat::Csv,
        ResultFormat::Arrow,
    ];

    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            ResultFormat::Json => "application/json",
            ResultFormat::NdJson => "application/x-ndjson",
            ResultFormat::Csv => "text/csv",
            ResultFormat::Arrow => "application/vnd.apache.arrow.stream",
        }
    }

    /// The form that the client likes best; JSON if it does not say; `None` if it likes none of them.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        let accept: Vec<&str> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let accept = accept.join(",");
        if accept.trim().is_empty() {
            return Some(ResultFormat::Json);
        }
        let mut best: Option<(f32, Self)> = None;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(1.0, |q| q.parse().unwrap_or(0.0));
            let format = match media_type.as_str() {
                "*/*" | "application/*" => Some(ResultFormat::Json),
                "text/*" => Some(ResultFormat::Csv),
                "application/jsonl" | "application/ndjson" => Some(ResultFormat::NdJson),
                other => Self::ALL.into_iter().find(|format| format.media_type() == other),
            };
            // Of equally liked forms the first named counts.
            if let Some(format) = format
                && quality > best.map_or(0.0, |(quality, _)| quality)
            {
                best = Some((quality, format));
            }
        }
        best.map(|(_, format)| format)
    }
}

/// The media type of a header without its parameters, in lower case; empty if there is none.
pub fn media_type(headers: &HeaderMap, name: HeaderName) -> String {
    let value = headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(accept: &str) -> Option<ResultFormat> {
        ResultFormat::accepted(&HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]))
    }

    #[test]
    fn the_best_liked_form_wins() {
        assert_eq!(
            ResultFormat::accepted(&HeaderMap::new()),
            Some(ResultFormat::Json)
        );
        assert_eq!(accepted("*/*"), Some(ResultFormat::Json));
        assert_eq!(accepted("text/csv"), Some(ResultFormat::Csv));
        assert_eq!(
            accepted("text/html, application/x-ndjson;q=0.9, */*;q=0.1"),
            Some(ResultFormat::NdJson)
        );
        assert_eq!(
            accepted("application/vnd.apache.arrow.stream"),
            Some(ResultFormat::Arrow)
        );
        assert_eq!(
            accepted("application/json;q=0.2, text/csv;q=0.8"),
            Some(ResultFormat::Csv)
        );
        assert_eq!(accepted("image/png"), None);
        assert_eq!(accepted("application/json;q=0"), None);
    }
}
