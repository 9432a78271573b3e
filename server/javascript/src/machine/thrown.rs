//! What a program threw, in words.

use rquickjs::Value;

use super::FILE;

/// Of what a program threw, this much is shown.
const MESSAGE_CHARS_MAX: usize = 500;

/// What was thrown, and in which line of the text.
pub fn thrown(value: &Value<'_>) -> Option<(String, Option<usize>)> {
    let text = |value: &Value<'_>| -> Option<String> {
        let text = value.as_string()?.to_string().ok()?;
        Some(text.chars().take(MESSAGE_CHARS_MAX).collect())
    };
    if let Some(object) = value.as_object() {
        let part = |name: &str| object.get::<_, Value>(name).ok().and_then(|part| text(&part));
        if !value.is_error() {
            // A getter may have thrown.
            let message = part("message");
            object.ctx().catch();
            return Some((
                message.unwrap_or_else(|| "an object that is no Error was thrown".to_owned()),
                None,
            ));
        }
        let line = part("stack").and_then(|stack| line_of(&stack));
        let shown = match (part("name"), part("message")) {
            (Some(name), Some(message)) => format!("{name}: {message}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => "Error".to_owned(),
        };
        object.ctx().catch();
        return Some((shown, line));
    }
    if value.is_string() {
        return text(value).map(|text| (text, None));
    }
    let shown = match () {
        () if value.is_undefined() => "undefined",
        () if value.is_null() => "null",
        () if value.is_symbol() => "a symbol",
        () => {
            return value
                .get::<rquickjs::Coerced<String>>()
                .ok()
                .map(|text| (text.0, None));
        }
    };
    Some((format!("{shown} was thrown"), None))
}

/// The first line of the text of the user in a trace.
fn line_of(stack: &str) -> Option<usize> {
    let (_, behind) = stack.split_once(&format!("{FILE}:"))?;
    let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..end].parse().ok()
}
