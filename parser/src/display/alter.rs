//! DROP and ALTER as text.

use std::fmt::{self, Display, Formatter};

use super::{joined, option_name, when};
use crate::ast::{AlterOperation, AlterRelation, DropBehavior, DropStatement, SequenceClauses};

impl Display for DropBehavior {
    /// With a space in front; nothing for the default.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(when(*self == DropBehavior::Cascade, " CASCADE"))
    }
}

impl Display for DropStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_exists, "IF EXISTS ");
        write!(
            f,
            "DROP {} {exists}{}{}",
            self.kind,
            joined(&self.names),
            self.behavior
        )
    }
}

impl Display for AlterRelation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_exists, "IF EXISTS ");
        let operations = joined(&self.operations);
        write!(f, "ALTER {} {exists}{} {operations}", self.kind, self.name)
    }
}

impl Display for AlterOperation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AlterOperation::RenameTo(name) => write!(f, "RENAME TO {name}"),
            AlterOperation::RenameColumn { from, to } => write!(f, "RENAME COLUMN {from} TO {to}"),
            AlterOperation::AddColumn {
                if_not_exists,
                column,
            } => {
                write!(f, "ADD COLUMN {}{column}", when(*if_not_exists, "IF NOT EXISTS "))
            }
            AlterOperation::DropColumn {
                if_exists,
                name,
                behavior,
            } => {
                write!(
                    f,
                    "DROP COLUMN {}{name}{behavior}",
                    when(*if_exists, "IF EXISTS ")
                )
            }
            AlterOperation::AddConstraint(constraint) => write!(f, "ADD {constraint}"),
            AlterOperation::DropConstraint {
                if_exists,
                name,
                behavior,
            } => {
                let exists = when(*if_exists, "IF EXISTS ");
                write!(f, "DROP CONSTRAINT {exists}{name}{behavior}")
            }
            AlterOperation::RenameConstraint { from, to } => write!(f, "RENAME CONSTRAINT {from} TO {to}"),
            AlterOperation::SetColumnDefault {
                name,
                default: Some(expr),
            } => {
                write!(f, "ALTER COLUMN {name} SET DEFAULT {expr}")
            }
            AlterOperation::SetColumnDefault { name, default: None } => {
                write!(f, "ALTER COLUMN {name} DROP DEFAULT")
            }
            AlterOperation::SetColumnNotNull { name, not_null } => {
                write!(
                    f,
                    "ALTER COLUMN {name} {} NOT NULL",
                    if *not_null { "SET" } else { "DROP" }
                )
            }
            AlterOperation::SetColumnType {
                name,
                data_type,
                using,
            } => {
                write!(f, "ALTER COLUMN {name} TYPE {data_type}")?;
                match using {
                    Some(expr) => write!(f, " USING {expr}"),
                    None => Ok(()),
                }
            }
            AlterOperation::SetOptions(options) => write!(f, "SET {options}"),
            AlterOperation::ResetOptions(names) => {
                let names: Vec<String> = names.iter().map(option_name).collect();
                write!(f, "RESET ({})", names.join(", "))
            }
            AlterOperation::SwapWith(name) => write!(f, "SWAP WITH {name}"),
            AlterOperation::SetSchema(name) => write!(f, "SET SCHEMA {name}"),
            AlterOperation::OwnerTo(name) => write!(f, "OWNER TO {name}"),
            AlterOperation::AddIdentity {
                name,
                identity,
                sequence,
            } => {
                let kind = if identity.always { "ALWAYS" } else { "BY DEFAULT" };
                write!(f, "ALTER COLUMN {name} ADD GENERATED {kind} AS IDENTITY (")?;
                let name = sequence
                    .iter()
                    .map(|sequence| format!("SEQUENCE NAME {sequence}"));
                let options = identity
                    .options
                    .iter()
                    .map(|option| option.to_string().trim().to_owned());
                write!(f, "{})", name.chain(options).collect::<Vec<_>>().join(" "))
            }
            AlterOperation::SetSequence(clauses) => clauses.fmt(f),
            AlterOperation::ChangeEnum(change) => change.fmt(f),
            AlterOperation::ChangeDomain(change) => change.fmt(f),
        }
    }
}

impl Display for SequenceClauses {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut clauses = vec![];
        clauses.extend(self.data_type.as_ref().map(|data_type| format!("AS {data_type}")));
        clauses.extend(
            self.options
                .iter()
                .map(|option| option.to_string().trim().to_owned()),
        );
        clauses.extend(self.restart.as_ref().map(|value| match value {
            Some(value) => format!("RESTART WITH {value}"),
            None => "RESTART".to_owned(),
        }));
        clauses.extend(self.owned_by.as_ref().map(|column| format!("OWNED BY {column}")));
        f.write_str(&clauses.join(" "))
    }
}
