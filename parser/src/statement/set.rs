//! `SET` and `RESET` of settings.
//!
//! `SET TRANSACTION` and its like are no settings and stay with sqlparser.

use sqlparser::tokenizer::Token;

use super::role;
use crate::ast::{SetValue, SetVariable, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `SET`; `None` for what is not a setting.
pub(super) fn parse_set(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    if let Some(deferred) = all_constraints(reader) {
        return Ok(Some(Statement::SetConstraintsAll { deferred }));
    }
    let local = reader.take(&["LOCAL"]);
    if !local {
        let others: [&[&str]; 3] = [
            &["TRANSACTION"],
            &["CONSTRAINTS"],
            &["SESSION", "CHARACTERISTICS"],
        ];
        if others.iter().any(|words| reader.at(words)) {
            return Ok(None);
        }
        let _ = !reader.at(&["SESSION", "AUTHORIZATION"]) && reader.take(&["SESSION"]);
    }
    if let Some(role) = role::set_role(reader, local)? {
        return Ok(Some(role));
    }
    let (name, value) = if reader.take(&["TIME", "ZONE"]) {
        let value = if reader.take(&["LOCAL"]) {
            SetValue::Default
        } else if reader.take(&["INTERVAL"]) {
            SetValue::Values(vec![hours(reader)?])
        } else {
            values(reader)?
        };
        ("timezone".to_string(), value)
    } else if reader.take(&["NAMES"]) {
        let name = "client_encoding".to_string();
        (
            name,
            if reader.at_end() {
                SetValue::Default
            } else {
                values(reader)?
            },
        )
    } else if reader.take(&["SCHEMA"]) {
        ("search_path".to_string(), values(reader)?)
    } else {
        assignment(reader)?
    };
    Ok(Some(Statement::SetVariable(SetVariable { local, name, value })))
}

/// `'-08:30' [HOUR TO MINUTE]` as the hours east of Greenwich that a number in its place would be.
fn hours(reader: &mut Reader<'_>) -> Parse<String> {
    let at = reader.here();
    let text = reader.string()?;
    let _ = reader.take(&["HOUR", "TO", "MINUTE"]);
    let (sign, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, text.trim().trim_start_matches('+')),
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    match (hours.parse::<u8>(), minutes.parse::<u8>()) {
        (Ok(hours), Ok(minutes)) if minutes < 60 => {
            Ok((sign * (f64::from(hours) + f64::from(minutes) / 60.0)).to_string())
        }
        _ => {
            let message = format!("invalid interval of a time zone: \"{text}\"");
            Err(Failure::invalid(message, at).with_hint("Write hours and minutes: INTERVAL '-08:30'."))
        }
    }
}

/// `CONSTRAINTS ALL DEFERRED | IMMEDIATE`: whether they are deferred.
fn all_constraints(reader: &mut Reader<'_>) -> Option<bool> {
    if reader.take(&["CONSTRAINTS", "ALL", "DEFERRED"]) {
        return Some(true);
    }
    reader.take(&["CONSTRAINTS", "ALL", "IMMEDIATE"]).then_some(false)
}

/// `name TO | = value [, value]*`.
pub(super) fn assignment(reader: &mut Reader<'_>) -> Parse<(String, SetValue)> {
    let name = variable_name(reader)?;
    if !reader.take_token(&Token::Eq) && !reader.take(&["TO"]) {
        return Err(reader.unexpected("= or TO"));
    }
    Ok((name, values(reader)?))
}

fn values(reader: &mut Reader<'_>) -> Parse<SetValue> {
    if reader.take(&["DEFAULT"]) {
        return Ok(SetValue::Default);
    }
    Ok(SetValue::Values(reader.list(|reader| reader.plain_value())?))
}

/// A setting's name in lower case, with periods if it has any.
pub(super) fn variable_name(reader: &mut Reader<'_>) -> Parse<String> {
    let mut name = reader.ident()?.value.to_lowercase();
    while reader.take_token(&Token::Period) {
        name.push('.');
        name.push_str(&reader.ident()?.value.to_lowercase());
    }
    Ok(name)
}

/// After `RESET`.
pub(super) fn parse_reset(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    if reader.take(&["ALL"]) {
        return Ok(Some(Statement::ResetVariable(None)));
    }
    let name = if reader.take(&["TIME", "ZONE"]) {
        "timezone".to_string()
    } else if reader.take(&["SESSION", "AUTHORIZATION"]) {
        "session_authorization".to_string()
    } else {
        variable_name(reader)?
    };
    Ok(Some(Statement::ResetVariable(Some(name))))
}
