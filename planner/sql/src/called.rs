//! A function in FROM, in whichever of the parser's two forms it stands: `f(x)`, `LATERAL f(x)`.

use datafusion::sql::sqlparser::ast::{FunctionArg, ObjectName, TableAlias, TableFactor};

/// Its parts.
#[derive(Debug, Clone, Copy)]
pub struct Called<'a> {
    pub name: &'a ObjectName,
    pub arguments: &'a [FunctionArg],
    pub alias: Option<&'a TableAlias>,
    pub with_ordinality: bool,
}

impl<'a> Called<'a> {
    /// The parts of a relation that is a function; `None`: it is another.
    pub fn of(factor: &'a TableFactor) -> Option<Self> {
        let (name, arguments, alias, with_ordinality) = match factor {
            TableFactor::Table {
                name,
                args: Some(args),
                alias,
                with_ordinality,
                ..
            } => (name, &args.args, alias, *with_ordinality),
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality,
                ..
            } => (name, args, alias, *with_ordinality),
            _ => return None,
        };
        Some(Called {
            name,
            arguments,
            alias: alias.as_ref(),
            with_ordinality,
        })
    }
}
