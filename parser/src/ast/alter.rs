//! DROP and ALTER.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName, SequenceOptions, TableConstraint};

use super::create::{ColumnDefinition, Identity};
use super::object::ObjectKind;
use super::options::Options;
use super::role::RoleName;
use super::user_type::{DomainChange, EnumChange};

/// `DROP kind [IF EXISTS] names [CASCADE | RESTRICT]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropStatement {
    /// What the objects are said to be.
    pub kind: ObjectKind,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The objects. A function's argument types are not kept.
    pub names: Vec<ObjectName>,
    /// What happens to dependents.
    pub behavior: DropBehavior,
}

/// What a DROP does about dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DropBehavior {
    /// It refuses; the default.
    #[default]
    Restrict,
    /// It drops them, too.
    Cascade,
}

/// `ALTER kind [IF EXISTS] name operation, ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterRelation {
    /// What the object is said to be.
    pub kind: ObjectKind,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The object.
    pub name: ObjectName,
    /// What is done to it. There are several only of a table.
    pub operations: Vec<AlterOperation>,
}

impl AlterOperation {
    /// Whether it concerns the rows of a table, so that there may be several in one ALTER.
    pub fn is_of_table(&self) -> bool {
        matches!(
            self,
            AlterOperation::AddColumn { .. }
                | AlterOperation::DropColumn { .. }
                | AlterOperation::SetColumnDefault { .. }
                | AlterOperation::SetColumnType { .. }
                | AlterOperation::SetColumnNotNull { .. }
                | AlterOperation::AddIdentity { .. }
                | AlterOperation::AlterIdentity { .. }
                | AlterOperation::DropIdentity { .. }
                | AlterOperation::AddConstraint(_)
                | AlterOperation::DropConstraint { .. }
        )
    }
}

/// What an ALTER does.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterOperation {
    /// `RENAME TO name`.
    RenameTo(Ident),
    /// `RENAME [COLUMN] from TO to`.
    RenameColumn {
        /// The column's name.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// `ADD [COLUMN] [IF NOT EXISTS] column`.
    AddColumn {
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// The column.
        column: Box<ColumnDefinition>,
    },
    /// `DROP [COLUMN] [IF EXISTS] name [CASCADE | RESTRICT]`.
    DropColumn {
        /// `IF EXISTS`.
        if_exists: bool,
        /// The column.
        name: Ident,
        /// What happens to dependents.
        behavior: DropBehavior,
    },
    /// `ADD [CONSTRAINT name] constraint`.
    AddConstraint(Box<TableConstraint>),
    /// `DROP CONSTRAINT [IF EXISTS] name [CASCADE | RESTRICT]`.
    DropConstraint {
        /// `IF EXISTS`.
        if_exists: bool,
        /// The constraint.
        name: Ident,
        /// What happens to dependents.
        behavior: DropBehavior,
    },
    /// `RENAME CONSTRAINT from TO to`.
    RenameConstraint {
        /// The constraint's name.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// `ALTER [COLUMN] name SET DEFAULT expr | DROP DEFAULT`.
    SetColumnDefault {
        /// The column.
        name: Ident,
        /// The default, or none.
        default: Option<Expr>,
    },
    /// `ALTER [COLUMN] name SET | DROP NOT NULL`.
    SetColumnNotNull {
        /// The column.
        name: Ident,
        /// Whether NULL is refused from now on.
        not_null: bool,
    },
    /// `ALTER [COLUMN] name [SET DATA] TYPE type [USING expr]`.
    SetColumnType {
        /// The column.
        name: Ident,
        /// Its new type.
        data_type: DataType,
        /// How values are converted.
        using: Option<Expr>,
    },
    /// `SET (key = value, ..)`, and RisingWave's `SET key = value`.
    SetOptions(Options),
    /// `RESET (key, ..)`.
    ResetOptions(Vec<Ident>),
    /// `SWAP WITH other`.
    SwapWith(ObjectName),
    /// `SET SCHEMA name`.
    SetSchema(Ident),
    /// `OWNER TO role`.
    OwnerTo(RoleName),
    /// `ALTER [COLUMN] name ADD GENERATED .. AS IDENTITY (..)`.
    AddIdentity {
        /// The column.
        name: Ident,
        /// What its values are.
        identity: Identity,
        /// `SEQUENCE NAME name`: what its sequence is called.
        sequence: Option<ObjectName>,
    },
    /// `ALTER [COLUMN] name SET GENERATED .. | SET option | RESTART [WITH value]`, of an identity column.
    AlterIdentity {
        /// The column.
        name: Ident,
        /// `SET GENERATED ALWAYS`, or `BY DEFAULT`.
        always: Option<bool>,
        /// What changes of its sequence.
        clauses: Box<SequenceClauses>,
    },
    /// `ALTER [COLUMN] name DROP IDENTITY [IF EXISTS]`.
    DropIdentity {
        /// The column.
        name: Ident,
        /// `IF EXISTS`.
        if_exists: bool,
    },
    /// What ALTER SEQUENCE changes.
    SetSequence(Box<SequenceClauses>),
    /// What ALTER TYPE changes of an enum.
    ChangeEnum(EnumChange),
    /// What ALTER DOMAIN changes.
    ChangeDomain(DomainChange),
}

/// The clauses of ALTER SEQUENCE, in any order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SequenceClauses {
    /// `AS type`.
    pub data_type: Option<DataType>,
    /// The options that CREATE SEQUENCE has as well.
    pub options: Vec<SequenceOptions>,
    /// `RESTART [WITH value]`: the next value, that of the start if none is named.
    pub restart: Option<Option<Expr>>,
    /// `OWNED BY table.column | NONE`.
    pub owned_by: Option<ObjectName>,
}
