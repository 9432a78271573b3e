//! Types that somebody makes.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};

/// `CREATE TYPE name AS ENUM ('label', ..)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateEnum {
    /// Its name.
    pub name: ObjectName,
    /// The values in their order.
    pub labels: Vec<String>,
}

/// `CREATE TYPE name AS (attribute type, ..)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateComposite {
    /// Its name.
    pub name: ObjectName,
    /// The attributes in their order, each with its type.
    pub attributes: Vec<(Ident, DataType)>,
}

/// `CREATE DOMAIN name [AS] type [DEFAULT expr] [[CONSTRAINT name] NOT NULL | NULL | CHECK (expr)] ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateDomain {
    /// Its name.
    pub name: ObjectName,
    /// What values of it are.
    pub data_type: DataType,
    /// `DEFAULT`.
    pub default: Option<Expr>,
    /// `NOT NULL`.
    pub not_null: bool,
    /// What values must be, where `VALUE` is the value; each with the name of the constraint, if it was given.
    pub checks: Vec<(Option<Ident>, Expr)>,
}

/// What ALTER DOMAIN changes.
#[derive(Debug, Clone, PartialEq)]
pub enum DomainChange {
    /// `SET DEFAULT expr`, `DROP DEFAULT`.
    Default(Option<Expr>),
    /// `SET NOT NULL`, `DROP NOT NULL`.
    NotNull(bool),
    /// `ADD [CONSTRAINT name] CHECK (expr)`.
    AddCheck(Option<Ident>, Box<Expr>),
    /// `DROP CONSTRAINT [IF EXISTS] name [CASCADE | RESTRICT]`.
    DropCheck {
        /// `IF EXISTS`.
        if_exists: bool,
        /// The constraint.
        name: Ident,
    },
    /// `RENAME CONSTRAINT from TO to`.
    RenameCheck {
        /// The constraint.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// `VALIDATE CONSTRAINT name`.
    Validate(Ident),
}

/// What ALTER TYPE does with the values of an enum.
#[derive(Debug, Clone, PartialEq)]
pub enum EnumChange {
    /// `ADD VALUE [IF NOT EXISTS] 'label' [BEFORE | AFTER 'label']`.
    Add {
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// The new value.
        label: String,
        /// Beside which value it stands, and whether before that; the last of all if it is not said.
        beside: Option<(String, bool)>,
    },
    /// `RENAME VALUE 'label' TO 'label'`.
    Rename {
        /// The value.
        from: String,
        /// Its new label.
        to: String,
    },
}
