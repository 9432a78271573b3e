//! SET and ALTER SYSTEM as text.

use std::fmt::{self, Display, Formatter};

use super::when;
use crate::ast::{AlterSystemSet, STARS, SetValue, SetVariable, is_secret_name};
use crate::identifier::{quote_identifier, quote_literal};

/// A setting's name as it may be written.
pub(super) fn variable(name: &str) -> String {
    name.split('.')
        .map(quote_identifier)
        .collect::<Vec<_>>()
        .join(".")
}

/// A setting's value, a secret as stars.
fn shown(name: &str, value: &SetValue) -> String {
    match is_secret_name(name) && *value != SetValue::Default {
        true => STARS.to_owned(),
        false => value.to_string(),
    }
}

impl Display for SetValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetValue::Default => f.write_str("DEFAULT"),
            SetValue::Values(values) => {
                let quoted: Vec<String> = values.iter().map(|value| quote_literal(value)).collect();
                f.write_str(&quoted.join(", "))
            }
        }
    }
}

impl Display for SetVariable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SET {}{} = {}",
            when(self.local, "LOCAL "),
            variable(&self.name),
            shown(&self.name, &self.value)
        )
    }
}

impl Display for AlterSystemSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = shown(&self.name, &self.value);
        write!(f, "ALTER SYSTEM SET {} = {value}", variable(&self.name))
    }
}
