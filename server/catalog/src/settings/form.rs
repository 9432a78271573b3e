//! What a setting is, and what its value may be.

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Any text.
    Text,
    /// on or off.
    Boolean,
    /// A whole number.
    Integer,
    /// A number, perhaps with a unit.
    Quantity,
    /// A number of bytes, perhaps with a unit.
    Size,
    /// Milliseconds, or a number with a unit; 0 is none.
    Duration,
    /// Flow control of new views.
    Flow,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// It is the server's ([`millrace_database::tuning`]): sessions only see it.
    Server,
    /// It cannot be changed.
    Fixed,
}

/// A setting that exists.
#[derive(Debug)]
pub struct Known {
    /// Its name, as SHOW ALL lists it.
    pub name: &'static str,
    /// Its value at the start.
    pub default: &'static str,
    pub(super) form: Form,
    /// What it does.
    pub description: &'static str,
}

impl Known {
    /// Its kind of value, as `pg_settings` names it.
    pub fn vartype(&self) -> &'static str {
        match self.form {
            Form::Boolean => "bool",
            Form::Integer => "integer",
            Form::Quantity => "real",
            Form::OneOf(_) => "enum",
            Form::Text | Form::Size | Form::Duration | Form::Flow | Form::Server | Form::Fixed => "string",
        }
    }

    /// The words that it may be, if it is one of several.
    pub fn words(&self) -> Option<&'static [&'static str]> {
        match self.form {
            Form::OneOf(words) => Some(words),
            _ => None,
        }
    }

    /// Who can change it, as `pg_settings` names it: sessions, the server while it runs, or nobody.
    pub fn context(&self) -> &'static str {
        match self.form {
            Form::Server => "sighup",
            Form::Fixed => "internal",
            _ => "user",
        }
    }
}
