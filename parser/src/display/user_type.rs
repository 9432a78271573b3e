//! Statements about types as text.

use std::fmt::{self, Display, Formatter};

use super::when;
use crate::ast::{CreateComposite, CreateDomain, CreateEnum, DomainChange, EnumChange};
use crate::identifier::quote_literal;

impl Display for CreateEnum {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.labels.iter().map(|label| quote_literal(label)).collect();
        write!(f, "CREATE TYPE {} AS ENUM ({})", self.name, labels.join(", "))
    }
}

impl Display for CreateComposite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(name, data_type)| format!("{name} {data_type}"));
        let attributes: Vec<String> = attributes.collect();
        write!(f, "CREATE TYPE {} AS ({})", self.name, attributes.join(", "))
    }
}

impl Display for CreateDomain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE DOMAIN {} AS {}", self.name, self.data_type)?;
        if let Some(default) = &self.default {
            write!(f, " DEFAULT {default}")?;
        }
        f.write_str(when(self.not_null, " NOT NULL"))?;
        for (name, check) in &self.checks {
            if let Some(name) = name {
                write!(f, " CONSTRAINT {name}")?;
            }
            write!(f, " CHECK ({check})")?;
        }
        Ok(())
    }
}

impl Display for DomainChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DomainChange::Default(Some(default)) => write!(f, "SET DEFAULT {default}"),
            DomainChange::Default(None) => f.write_str("DROP DEFAULT"),
            DomainChange::NotNull(true) => f.write_str("SET NOT NULL"),
            DomainChange::NotNull(false) => f.write_str("DROP NOT NULL"),
            DomainChange::AddCheck(None, check) => write!(f, "ADD CHECK ({check})"),
            DomainChange::AddCheck(Some(name), check) => write!(f, "ADD CONSTRAINT {name} CHECK ({check})"),
            DomainChange::DropCheck { if_exists, name } => {
                write!(f, "DROP CONSTRAINT {}{name}", when(*if_exists, "IF EXISTS "))
            }
            DomainChange::RenameCheck { from, to } => write!(f, "RENAME CONSTRAINT {from} TO {to}"),
            DomainChange::Validate(name) => write!(f, "VALIDATE CONSTRAINT {name}"),
        }
    }
}

impl Display for EnumChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            EnumChange::Add {
                if_not_exists,
                label,
                beside,
            } => {
                let exists = when(*if_not_exists, "IF NOT EXISTS ");
                write!(f, "ADD VALUE {exists}{}", quote_literal(label))?;
                match beside {
                    Some((other, true)) => write!(f, " BEFORE {}", quote_literal(other)),
                    Some((other, false)) => write!(f, " AFTER {}", quote_literal(other)),
                    None => Ok(()),
                }
            }
            EnumChange::Rename { from, to } => {
                write!(f, "RENAME VALUE {} TO {}", quote_literal(from), quote_literal(to))
            }
        }
    }
}
