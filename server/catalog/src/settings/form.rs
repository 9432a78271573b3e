//! What the value of a setting may be.

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
