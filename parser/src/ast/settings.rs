//! SET and ALTER SYSTEM SET.

/// `SET [SESSION | LOCAL] name TO | = value, ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct SetVariable {
    /// `LOCAL`: for this transaction only.
    pub local: bool,
    /// The setting's name in lower case; `SET TIME ZONE` is `timezone`, `SET NAMES` is `client_encoding`.
    pub name: String,
    /// Its new value.
    pub value: SetValue,
}

/// The value of a SET.
#[derive(Debug, Clone, PartialEq)]
pub enum SetValue {
    /// `DEFAULT`.
    Default,
    /// One value or a list (`search_path`, `DateStyle`). Each is the text: a string's content, a number with its
    /// sign, a word in lower case unless it was quoted.
    Values(Vec<String>),
}

/// `ALTER SYSTEM SET`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterSystemSet {
    /// The setting's name in lower case.
    pub name: String,
    /// Its new value; `RESET` is [`SetValue::Default`].
    pub value: SetValue,
}
