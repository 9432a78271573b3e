//! What the calls of an aggregation are given: columns below it, each once.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Expr, col};
use datafusion::physical_expr::PhysicalExpr;

use crate::error::{PlanError, Result};
use crate::view::lower::Lowering;

/// Collects the columns that an aggregation needs below it, each once.
pub(super) struct Arguments<'a> {
    lowering: &'a Lowering,
    input: &'a DFSchema,
    logical: Vec<Expr>,
    physical: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<Arc<Field>>,
    /// Columns before this one are not shared.
    shared_from: usize,
}

impl<'a> Arguments<'a> {
    pub fn new(lowering: &'a Lowering, input: &'a DFSchema) -> Self {
        Arguments {
            lowering,
            input,
            logical: vec![],
            physical: vec![],
            fields: vec![],
            shared_from: 0,
        }
    }

    /// No later reference shares a column added so far.
    pub fn seal(&mut self) {
        self.shared_from = self.fields.len();
    }

    /// Adds a column, always; returns its position.
    pub fn push(&mut self, expression: &Expr) -> Result<usize> {
        let physical = self.lowering.in_turn(expression, self.input)?;
        let position = self.fields.len();
        let field = physical.return_field(self.input.as_arrow())?;
        self.fields
            .push(Arc::new(field.as_ref().clone().with_name(format!("c{position}"))));
        self.physical.push(physical);
        self.logical.push(expression.clone());
        Ok(position)
    }

    /// A reference to the column of this expression. Literals stay literals.
    pub fn reference(&mut self, expression: &Expr) -> Result<Expr> {
        if matches!(expression, Expr::Literal(_, _)) {
            return Ok(expression.clone());
        }
        let shared = &self.logical[self.shared_from..];
        let position = match shared.iter().position(|known| known == expression) {
            Some(position) => self.shared_from + position,
            None => self.push(expression)?,
        };
        Ok(col(format!("c{position}")))
    }

    /// A filter's column; a literal condition becomes a column too.
    pub fn condition(&mut self, expression: &Expr) -> Result<Expr> {
        match self.reference(expression)? {
            Expr::Literal(_, _) => {
                let position = self.push(expression)?;
                Ok(col(format!("c{position}")))
            }
            reference => Ok(reference),
        }
    }

    /// The call over the projected columns.
    pub fn rewrite(&mut self, call: &Expr) -> Result<Expr> {
        match call {
            Expr::Alias(alias) => self.rewrite(&alias.expr),
            Expr::AggregateFunction(AggregateFunction { func, params }) => {
                let args = params
                    .args
                    .iter()
                    .map(|e| self.reference(e))
                    .collect::<Result<Vec<_>>>()?;
                let filter = params
                    .filter
                    .as_ref()
                    .map(|e| self.condition(e))
                    .transpose()?
                    .map(Box::new);
                let mut order_by = params.order_by.clone();
                for sort in &mut order_by {
                    sort.expr = self.condition(&sort.expr)?;
                }
                Ok(Expr::AggregateFunction(AggregateFunction {
                    func: Arc::clone(func),
                    params: AggregateFunctionParams {
                        args,
                        filter,
                        order_by,
                        ..params.clone()
                    },
                }))
            }
            other => Err(PlanError::Internal(format!("not an aggregate call: {other}"))),
        }
    }

    /// The projection. Rows without columns cannot be told apart or counted by all of Arrow's kernels: there is one at least.
    pub fn finish(mut self) -> Result<(Vec<Arc<dyn PhysicalExpr>>, SchemaRef)> {
        if self.fields.is_empty() {
            self.push(&Expr::Literal(ScalarValue::Boolean(Some(true)), None))?;
        }
        Ok((self.physical, Arc::new(Schema::new(self.fields))))
    }
}
