//! Values that may be secrets by where they stand in a text: those of options of connectors, and of settings.

use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::{STARS, is_secret_name};
use crate::source::Source;
use crate::tokens::{is_word, tokenize};

/// Options whose values tell nothing that is worth hiding. Whatever else is given to a connector may be a secret, also one that it does
/// not know and refuses: a name may be misspelt, or another system's.
const HARMLESS: &[&str] = &[
    "backfill_rate_limit",
    "body",
    "bucket_name",
    "compression_format",
    "connector",
    "csv.delimiter",
    "csv.header",
    "database",
    "database.name",
    "datagen.rows.per.second",
    "delimiter",
    "durability",
    "flow_batch_rows",
    "flow_batches",
    "force_append_only",
    "format",
    "freshness",
    "fs.path",
    "header",
    "history",
    "host",
    "hostname",
    "id.header",
    "kafka.topic",
    "key.format",
    "late",
    "location",
    "match_pattern",
    "max_file_size",
    "max_request_size",
    "max_row_count",
    "nexmark.event.num",
    "nexmark.min.event.gap.in.ns",
    "nexmark.table.type",
    "on_error",
    "password.env",
    "password.file",
    "path",
    "port",
    "primary_key",
    "priority",
    "properties.bootstrap.server",
    "properties.bootstrap.servers",
    "properties.compression.codec",
    "properties.isolation.level",
    "publication.create.enable",
    "publication.name",
    "rate",
    "region_name",
    "retention",
    "retention_size",
    "rollover_seconds",
    "rows",
    "s3.bucket_name",
    "s3.endpoint_url",
    "s3.path",
    "s3.region_name",
    "scan.startup.mode",
    "schema",
    "schema.name",
    "schema.registry",
    "schema_change",
    "secret.env",
    "secret.file",
    "seed",
    "signature",
    "signature.header",
    "signature.prefix",
    "slot.name",
    "table",
    "table.name",
    "timeout",
    "topic",
    "type",
    "url",
    "user",
    "username",
    "watermark.idle_timeout",
    "watermark.max_future_skew",
    "ysb.table.type",
];

/// Parts of names of settings whose values nobody is to see.
const SETTINGS: [&str; 5] = ["password", "secret", "token", "passphrase", "credential"];

/// Whether the value of a setting of this name may be a secret.
pub(super) fn is_secret_setting(name: &str) -> bool {
    let name = name.to_lowercase();
    is_secret_name(&name) || SETTINGS.iter().any(|part| name.contains(part))
}

/// What is hidden of a text: from where to where.
type Spans = Vec<(Location, Location)>;

/// A text with stars in place of what a walk over its tokens finds.
pub(super) fn starred(text: &str, find: impl Fn(&[TokenWithSpan]) -> Spans) -> String {
    let source = Source::new(text);
    let Ok(tokens) = tokenize(&source) else {
        return text.to_owned();
    };
    let found = find(&tokens);
    let Some(last) = tokens.last().filter(|_| !found.is_empty()) else {
        return text.to_owned();
    };
    let (mut shown, mut from) = (String::new(), Location { line: 1, column: 1 });
    for (start, end) in found {
        shown.push_str(source.slice(from, start));
        shown.push_str(STARS);
        from = end;
    }
    shown + source.slice(from, last.span.end)
}

/// The values of options that are not known to be harmless, in the lists behind WITH, OPTIONS, SET and ENCODE ...
pub(super) fn of_options(tokens: &[TokenWithSpan]) -> Spans {
    let mut found = vec![];
    for (at, token) in tokens.iter().enumerate() {
        let opens = token.token == Token::LParen
            && at > 0
            && (["WITH", "OPTIONS", "SET"]
                .iter()
                .any(|word| is_word(tokens.get(at - 1), word))
                || at > 1 && is_word(tokens.get(at - 2), "ENCODE"));
        if opens {
            list(&tokens[at + 1..], &mut found);
        }
    }
    found
}

/// The options of one list, up to its end.
fn list(tokens: &[TokenWithSpan], found: &mut Spans) {
    let (mut depth, mut first) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth > 0 => depth -= 1,
            Token::RParen => return option(&tokens[first..at], found),
            Token::Comma if depth == 0 => {
                option(&tokens[first..at], found);
                first = at + 1;
            }
            _ => {}
        }
    }
}

/// `name = value`, or `'name' 'value'`.
fn option(tokens: &[TokenWithSpan], found: &mut Spans) {
    let equals = tokens.iter().position(|token| token.token == Token::Eq);
    let (name, value) = match equals {
        Some(at) => (&tokens[..at], &tokens[at + 1..]),
        None if tokens.len() > 1 => tokens.split_at(1),
        None => return,
    };
    let name: String = name.iter().map(|token| word(&token.token)).collect();
    let is_reference = value.len() > 1 && is_word(value.first(), "SECRET");
    if is_reference || HARMLESS.contains(&name.to_lowercase().as_str()) {
        return;
    }
    // What is no text is a number, or a word such as true.
    let is_text = value.iter().any(|token| literal(&token.token).is_some());
    if let (Some(first), Some(last), true) = (value.first(), value.last(), is_text) {
        found.push((first.span.start, last.span.end));
    }
}

/// The values that `set_config` is to give to settings that may be secrets.
pub(super) fn of_set_config(tokens: &[TokenWithSpan]) -> Spans {
    let mut found = vec![];
    for (at, token) in tokens.iter().enumerate() {
        let is_call = is_word(Some(token), "set_config")
            && matches!(tokens.get(at + 1), Some(next) if next.token == Token::LParen);
        let Some([name, comma, value]) = tokens.get(at + 2..at + 5).filter(|_| is_call) else {
            continue;
        };
        // A name that is no literal may be any.
        let may_be = literal(&name.token).is_none_or(is_secret_setting);
        if may_be && comma.token == Token::Comma && literal(&value.token).is_some() {
            found.push((value.span.start, value.span.end));
        }
    }
    found
}

fn literal(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

fn word(token: &Token) -> String {
    match (token, literal(token)) {
        (Token::Word(word), _) => word.value.clone(),
        (_, Some(text)) => text.to_owned(),
        _ => token.to_string(),
    }
}
