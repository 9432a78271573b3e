//! One column of a stream, a table or a materialized view.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use millrace_storage::ObjectId;

use crate::sequence::ColumnSequence;

/// A column of a stored relation.
#[derive(Debug, Clone)]
pub struct ColumnDef {
    /// Name, type, nullability.
    pub field: Arc<Field>,
    /// `DEFAULT`.
    pub default: Option<ast::Expr>,
    /// The sequence from which it takes its values where none are given.
    pub sequence: Option<ColumnSequence>,
    /// The domain that it is of.
    pub domain: Option<ObjectId>,
    /// `GENERATED ALWAYS AS`.
    pub generated: Option<ast::Expr>,
    /// `AS PROCTIME()`.
    pub proctime: bool,
    /// What COMMENT said.
    pub comment: Option<String>,
    /// What the rows have in it that were there before it was added, if it was.
    pub added: Option<ScalarValue>,
}

impl ColumnDef {
    /// A column of nothing but a name and a type.
    pub fn plain(field: Arc<Field>) -> ColumnDef {
        ColumnDef {
            field,
            default: None,
            generated: None,
            sequence: None,
            domain: None,
            proctime: false,
            comment: None,
            added: None,
        }
    }
}
