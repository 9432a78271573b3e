//! The row of a relation as a value: `SELECT t`; and as JSON: `to_jsonb(t)`, `jsonb_agg(t)` and `row_to_json(t)` are of the object that
//! its columns make.
//!
//! A row that an outer join has put there for none is NULL. It is known by all of its columns being NULL.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectName, Value,
};

use millrace_parser::string_value;

use super::scope::{Found, Relation};
use super::{Resolver, faulty, ident, idents};
use crate::copies::original;
use crate::error::Fault;
use crate::postgres::records::NAMED_ROW;
use crate::template::call;

/// The functions that take rows.
const MAKERS: [&str; 4] = ["jsonb_of", "to_jsonb", "jsonb_build_object", "jsonb_build_array"];

/// A column of a row: its name and its value.
type Member = (String, Expr);

impl Resolver<'_> {
    /// What `t.*` is within an expression: the columns of `t` among those of a row, else its row, as `t` is.
    ///
    /// # Errors
    /// The columns of the relation are not known.
    pub(super) fn stars(&self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Function(function) => {
                let is_row = function.name.to_string().eq_ignore_ascii_case("row");
                if let FunctionArguments::List(list) = &mut function.args {
                    let mut arguments = Vec::with_capacity(list.args.len());
                    for argument in std::mem::take(&mut list.args) {
                        match &argument {
                            FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                                let columns = self.columns_of_star(name)?;
                                let values = if is_row { columns } else { vec![row_name(name)] }.into_iter();
                                arguments.extend(
                                    values.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value))),
                                );
                            }
                            _ => arguments.push(argument),
                        }
                    }
                    list.args = arguments;
                }
            }
            Expr::Tuple(members) => {
                let mut values = Vec::with_capacity(members.len());
                for member in std::mem::take(members) {
                    match &member {
                        Expr::QualifiedWildcard(name, _) => values.extend(self.columns_of_star(name)?),
                        _ => values.push(member),
                    }
                }
                *members = values;
            }
            Expr::QualifiedWildcard(name, _) => *expr = row_name(name),
            _ => {}
        }
        Ok(())
    }

    /// The columns of the nearest relation of this name.
    fn columns_of_star(&self, name: &ObjectName) -> Result<Vec<Expr>> {
        let parts = idents(name).unwrap_or_default();
        let mut relations = self.frames.iter().rev().flat_map(|frame| frame.relations());
        let Some(relation) = relations.find(|relation| relation.is_called(&parts)) else {
            return Err(faulty(
                Fault::UndefinedTable,
                format!("missing FROM-clause entry for table \"{name}\""),
            ));
        };
        match self.members(relation) {
            Some((members, _)) => Ok(members.into_iter().map(|(_, value)| value).collect()),
            None => Err(DataFusionError::NotImplemented(format!(
                "{name}.* within a row is not supported here: list its columns"
            ))),
        }
    }

    /// Puts objects in the place of rows among the arguments of a function of JSON.
    ///
    /// # Errors
    /// A name means several columns.
    pub(super) fn rows_as_json(&self, function: &mut Function) -> Result<()> {
        let name = function.name.to_string().to_lowercase();
        if !MAKERS.contains(&name.as_str()) {
            return Ok(());
        }
        for argument in arguments(function) {
            self.row_as_json(argument)?;
        }
        Ok(())
    }

    fn row_as_json(&self, argument: &mut Expr) -> Result<()> {
        let Expr::Identifier(name) = argument else {
            return Ok(());
        };
        for frame in self.frames.iter().rev() {
            if !matches!(frame.find(name, self)?, Found::Nothing) {
                return Ok(());
            }
            let row = frame
                .relations()
                .find(|relation| relation.is_called(std::slice::from_ref(name)));
            if let Some(relation) = row {
                let only =
                    |columns: &[String]| columns.first().map(|name| relation.column(ident(name.clone())));
                // A function that gives values has no rows of columns.
                let value = match relation.is_value {
                    true => relation.columns(self).and_then(only),
                    false => self.object(relation),
                };
                if let Some(value) = value {
                    *argument = value;
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// `(t).a` of a relation's row: its column; `None`: it is something else.
    ///
    /// # Errors
    /// The name of the relation means several columns.
    pub(super) fn member_of_row(&self, expr: &Expr) -> Result<Option<Expr>> {
        let Expr::CompoundFieldAccess { root, access_chain } = expr else {
            return Ok(None);
        };
        let (Expr::Nested(inner), [AccessExpr::Dot(Expr::Identifier(member))]) =
            (root.as_ref(), access_chain.as_slice())
        else {
            return Ok(None);
        };
        let Expr::Identifier(name) = inner.as_ref() else {
            return Ok(None);
        };
        for frame in self.frames.iter().rev() {
            if !matches!(frame.find(name, self)?, Found::Nothing) {
                return Ok(None);
            }
            let mut rows = frame.relations();
            if let Some(row) = rows.find(|relation| relation.is_called(std::slice::from_ref(name))) {
                return Ok((!row.is_value).then(|| row.column(member.clone())));
            }
        }
        Ok(None)
    }

    /// The row of a relation as a value of its own; `None`: its columns are not known.
    pub(super) fn row(&self, relation: &Relation) -> Option<Expr> {
        let (columns, is_missing) = self.members(relation)?;
        let name = |name: String| Expr::value(string_value(name));
        let members = columns.into_iter().flat_map(|(key, value)| [name(key), value]);
        let row = call(NAMED_ROW, members.collect());
        Some(match is_missing {
            Some(condition) => null_if(condition, row),
            None => row,
        })
    }

    /// The columns of a relation with their names, and when its row is one that an outer join has put there; `None`: they are not known.
    fn members(&self, relation: &Relation) -> Option<(Vec<Member>, Option<Expr>)> {
        let columns = relation.columns(self)?;
        let mut members = vec![];
        let mut is_missing: Option<Expr> = None;
        for column in columns {
            let value = relation.column(ident(column.clone()));
            members.push((original(column).to_string(), value.clone()));
            let is_null = Expr::IsNull(Box::new(value));
            is_missing = Some(match is_missing {
                None => is_null,
                Some(before) => Expr::BinaryOp {
                    left: Box::new(before),
                    op: BinaryOperator::And,
                    right: Box::new(is_null),
                },
            });
        }
        Some((members, is_missing.filter(|_| relation.is_optional)))
    }

    /// The columns of a relation as an object; `None`: they are not known.
    fn object(&self, relation: &Relation) -> Option<Expr> {
        let (columns, is_missing) = self.members(relation)?;
        let name = |name: String| Expr::value(string_value(name));
        let members = columns.into_iter().flat_map(|(key, value)| [name(key), value]);
        let object = call("jsonb_build_object", members.collect());
        Some(match is_missing {
            // A CASE would be a plain text.
            Some(condition) => call("pg_cast", vec![null_if(condition, object), name("jsonb".into())]),
            None => object,
        })
    }
}

/// The name of a relation as that of its row.
fn row_name(name: &ObjectName) -> Expr {
    match idents(name) {
        Some(mut parts) if parts.len() == 1 => Expr::Identifier(parts.remove(0)),
        Some(parts) => Expr::CompoundIdentifier(parts),
        None => Expr::CompoundIdentifier(vec![]),
    }
}

/// NULL where a condition holds.
fn null_if(condition: Expr, value: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition,
            result: Expr::value(Value::Null),
        }],
        else_result: Some(Box::new(value)),
    }
}

fn arguments(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let list = match &mut function.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    list.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}
