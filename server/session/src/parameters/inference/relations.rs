//! The relations of a query: what stands in FROM, and the columns that names mean.

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableFactor, TableWithJoins};
use millrace_catalog::Relation;
use millrace_postgres::error::SqlResult;
use millrace_postgres::types;
use millrace_sql::CatalogReader;

use super::{Column, Frame, Inference, Typed};
use crate::names;
use crate::parameters::for_description;
use crate::statement::select;

impl Inference<'_> {
    /// What stands in FROM: subqueries, arguments of functions, conditions of joins.
    pub(super) fn from(&mut self, from: &[TableWithJoins]) -> SqlResult<()> {
        for table in from {
            self.factor(&table.relation)?;
            for join in &table.joins {
                self.factor(&join.relation)?;
                self.joined(&join.join_operator)?;
            }
        }
        Ok(())
    }

    fn joined(&mut self, join: &ast::JoinOperator) -> SqlResult<()> {
        use ast::JoinOperator as Join;
        let constraint = match join {
            Join::Join(on)
            | Join::Inner(on)
            | Join::Left(on)
            | Join::LeftOuter(on)
            | Join::Right(on)
            | Join::RightOuter(on)
            | Join::FullOuter(on)
            | Join::CrossJoin(on) => on,
            Join::AsOf {
                match_condition,
                constraint,
            } => {
                self.condition(Some(match_condition))?;
                constraint
            }
            _ => return Ok(()),
        };
        match constraint {
            ast::JoinConstraint::On(condition) => self.condition(Some(condition)),
            _ => Ok(()),
        }
    }

    fn factor(&mut self, factor: &TableFactor) -> SqlResult<()> {
        match factor {
            TableFactor::Derived { subquery, .. } => self.query(subquery, true).map(|_| ()),
            TableFactor::Table {
                name,
                args: Some(args),
                ..
            } => self.call(&names::last(name), &args.args).map(|_| ()),
            TableFactor::Function { name, args, .. } => self.call(&names::last(name), args).map(|_| ()),
            TableFactor::TableFunction { expr, .. } => self.expression(expr).map(|_| ()),
            TableFactor::UNNEST { array_exprs, .. } => {
                for expr in array_exprs {
                    self.expression(expr)?;
                }
                Ok(())
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                self.from(std::slice::from_ref(table_with_joins))
            }
            _ => Ok(()),
        }
    }

    /// The type of the column that a name means, the innermost query's first.
    pub(super) fn column(&mut self, relation: Option<&str>, name: &str) -> Typed {
        for index in (0..self.frames.len()).rev() {
            let Some(columns) = self.columns(index) else {
                return Typed::Hidden;
            };
            let found = columns.iter().find(|column| {
                column.name == name
                    && relation.is_none_or(|relation| column.relation.as_deref() == Some(relation))
            });
            if let Some(column) = found {
                return Typed::As(column.pg.clone());
            }
        }
        Typed::Hidden
    }

    pub(super) fn innermost(&mut self) -> Option<Vec<Column>> {
        let index = self.frames.len().checked_sub(1)?;
        self.columns(index)
    }

    /// The columns of one of the queries around; `None`: they are not known.
    fn columns(&mut self, index: usize) -> Option<Vec<Column>> {
        if !self.frames[index].is_bound {
            let from = self.frames[index].from.clone();
            let columns = self.bound(&from);
            let frame = &mut self.frames[index];
            (frame.columns, frame.is_bound) = (columns, true);
        }
        self.frames[index].columns.clone()
    }

    pub(super) fn bound(&self, from: &[TableWithJoins]) -> Option<Vec<Column>> {
        if from.is_empty() {
            return Some(vec![]);
        }
        self.named(from).or_else(|| self.planned(from))
    }

    /// The columns of relations that are merely named.
    fn named(&self, from: &[TableWithJoins]) -> Option<Vec<Column>> {
        let reader = self.session.database().reader(self.scope);
        let mut columns = vec![];
        for table in from {
            for factor in
                std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
            {
                let TableFactor::Table {
                    name,
                    alias,
                    args: None,
                    ..
                } = factor
                else {
                    return None;
                };
                let is_with = |with: &ast::With| {
                    let mut tables = with.cte_tables.iter();
                    tables.any(|table| millrace_parser::fold(&table.alias.name) == names::last(name))
                };
                if self.withs.iter().any(is_with)
                    || alias.as_ref().is_some_and(|alias| !alias.columns.is_empty())
                {
                    return None;
                }
                let schema = reader.table(&names::parts(name).ok()?).ok()?.schema();
                let called = match alias {
                    Some(alias) => millrace_parser::fold(&alias.name),
                    None => names::last(name),
                };
                columns.extend(schema.fields().iter().map(|field| column(Some(&called), field)));
            }
        }
        Some(columns)
    }

    /// The columns of FROM as the planner knows them, with the parameters of which the types are known.
    fn planned(&self, from: &[TableWithJoins]) -> Option<Vec<Column>> {
        let mut query = select::parse_query("SELECT * FROM x").ok()?;
        let ast::Statement::Query(body) = &mut query else {
            return None;
        };
        if let SetExpr::Select(select) = body.body.as_mut() {
            select.from = from.to_vec();
        }
        let tables: Vec<ast::Cte> = (self.withs.iter())
            .flat_map(|with| with.cte_tables.iter().cloned())
            .collect();
        body.with = (self.withs.first())
            .filter(|_| !tables.is_empty())
            .map(|first| ast::With {
                recursive: self.withs.iter().any(|with| with.recursive),
                cte_tables: tables,
                ..first.clone()
            });
        let mut query = for_description(query, &self.found.types).ok()?;
        let (plan, _) = select::bind(self.session, self.scope, &mut query, select::Purpose::Describe).ok()?;
        let columns = plan.schema().iter();
        Some(
            columns
                .map(|(relation, field)| column(relation.map(|relation| relation.table()), field))
                .collect(),
        )
    }
}

impl Frame {
    pub(super) fn of(columns: Vec<Column>) -> Self {
        Frame {
            from: vec![],
            columns: Some(columns),
            is_bound: true,
        }
    }
}

fn column(relation: Option<&str>, field: &Field) -> Column {
    Column {
        relation: relation.map(str::to_owned),
        name: field.name().clone(),
        pg: types::pg_type(field),
    }
}

pub(super) fn columns_of(relation: &Relation, name: &str) -> Vec<Column> {
    let fields = relation.schema().fields().iter();
    fields.map(|field| column(Some(name), field)).collect()
}
