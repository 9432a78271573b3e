//! The row of a relation as JSON: `to_jsonb(t)`, `jsonb_agg(t)` and `row_to_json(t)` are of the object that its columns make.
//!
//! A row that an outer join has put there for none is NULL. It is known by all of its columns being NULL.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

use super::scope::{Found, Relation};
use super::{Resolver, ident};
use crate::copies::original;
use crate::template::call;

/// The functions that take rows.
const MAKERS: [&str; 4] = ["jsonb_of", "to_jsonb", "jsonb_build_object", "jsonb_build_array"];

impl Resolver<'_> {
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
                if let Some(object) = self.object(relation) {
                    *argument = object;
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// The columns of a relation as an object; `None`: they are not known.
    fn object(&self, relation: &Relation) -> Option<Expr> {
        let columns = relation.columns(self)?;
        let mut members = vec![];
        let mut is_missing: Option<Expr> = None;
        for column in columns {
            let value = relation.column(ident(column.clone()));
            members.push(Expr::value(Value::SingleQuotedString(
                original(column).to_string(),
            )));
            members.push(value.clone());
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
        let object = call("jsonb_build_object", members);
        match is_missing {
            Some(condition) if relation.is_optional => {
                let case = Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: None,
                    conditions: vec![CaseWhen {
                        condition,
                        result: Expr::value(Value::Null),
                    }],
                    else_result: Some(Box::new(object)),
                };
                // A CASE would be a plain text.
                let name = Expr::value(Value::SingleQuotedString("jsonb".into()));
                Some(call("pg_cast", vec![case, name]))
            }
            _ => Some(object),
        }
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
