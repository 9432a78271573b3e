//! CHECK and FOREIGN KEY constraints of tables. What is unique is known from indexes, see [`crate::IndexDef`].

use datafusion::sql::sqlparser::ast;
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

/// `CONSTRAINT name CHECK (expression)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckDef {
    /// The name, which errors give.
    pub name: String,
    /// What no row may make false.
    pub expression: ast::Expr,
}

/// `CONSTRAINT name FOREIGN KEY (columns) REFERENCES table (referenced)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKeyDef {
    /// The name, which errors give.
    pub name: String,
    /// The columns whose values must be there, by position.
    pub columns: Vec<usize>,
    /// The table in which they must be.
    pub table: ObjectId,
    /// The columns of that table, by position, one for each of `columns`. They are unique together.
    pub referenced: Vec<usize>,
    /// What becomes of rows whose row there is deleted.
    pub on_delete: Action,
    /// What becomes of rows whose row there gets another key.
    pub on_update: Action,
}

impl ForeignKeyDef {
    /// Whether it can only be with the constraint by which these columns are unique. `uniques` are all that there are.
    pub fn needs(&self, columns: &[usize], uniques: &[(&str, &[usize])]) -> bool {
        let is_same = |unique: &[usize]| {
            unique.len() == self.referenced.len()
                && unique.iter().all(|column| self.referenced.contains(column))
        };
        is_same(columns) && uniques.iter().filter(|(_, unique)| is_same(unique)).count() == 1
    }
}

/// What becomes of rows that name a row that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The statement fails if there are such rows at its end.
    #[default]
    NoAction,
    /// The statement fails if there are such rows.
    Restrict,
    /// They are deleted, or get the new key.
    Cascade,
    /// Their columns become NULL.
    SetNull,
    /// Their columns get their defaults.
    SetDefault,
}

impl Action {
    /// As SQL writes it.
    pub fn clause(self) -> &'static str {
        match self {
            Action::NoAction => "NO ACTION",
            Action::Restrict => "RESTRICT",
            Action::Cascade => "CASCADE",
            Action::SetNull => "SET NULL",
            Action::SetDefault => "SET DEFAULT",
        }
    }

    /// As `pg_constraint` writes it.
    pub fn letter(self) -> &'static str {
        match self {
            Action::NoAction => "a",
            Action::Restrict => "r",
            Action::Cascade => "c",
            Action::SetNull => "n",
            Action::SetDefault => "d",
        }
    }
}
