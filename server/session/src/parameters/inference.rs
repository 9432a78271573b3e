//! What types parameters have that the client has not said: found out as PostgreSQL does, from where they stand.
//!
//! The parts of a statement are looked at in PostgreSQL's order (FROM, the list of columns, WHERE, ..), for the first place that
//! gives a parameter a type decides, and a later one must agree. What operators and functions take is known by
//! [`millrace_postgres::types::resolution`]; what columns there are, by binding FROM with the parameters that are known so far.

mod expressions;
mod relations;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr, TableWithJoins};
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_database::database::rows::positions;
use millrace_functions::arrays;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::resolution::{Known, common_type};
use postgres_types::{Kind, Type};

use self::relations::columns_of;
use crate::names;
use crate::overriding;
use crate::session::Session;

/// What is known of an expression's type.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Typed {
    /// It has this one.
    As(Type),
    /// It is a literal without a type: a text in quotes, or NULL.
    Literal,
    /// It is a parameter that has no type yet.
    Parameter(usize),
    /// It has a type, but not one that is known here.
    Hidden,
}

impl Typed {
    fn known(&self) -> Known {
        match self {
            Typed::As(pg) => Some(pg.clone()),
            _ => None,
        }
    }
}

/// A column that a name may mean.
#[derive(Debug, Clone)]
struct Column {
    relation: Option<String>,
    name: String,
    pg: Type,
}

/// The relations of one query: their columns are looked for when a name asks.
struct Frame {
    from: Vec<TableWithJoins>,
    columns: Option<Vec<Column>>,
    is_bound: bool,
}

/// What was found out of a statement's parameters.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The types, by number.
    pub types: BTreeMap<usize, Type>,
    /// Those in places of which it is not known here what they ask for.
    pub hidden: BTreeSet<usize>,
}

/// Finds the types of the parameters of a statement; `given` are those that the client has said.
///
/// # Errors
/// Two places ask for different types.
pub(super) fn infer(
    session: &Session,
    scope: &Scope,
    statement: &ast::Statement,
    given: BTreeMap<usize, Type>,
) -> SqlResult<Found> {
    let mut inference = Inference {
        session,
        scope,
        found: Found {
            types: given,
            hidden: BTreeSet::new(),
        },
        frames: vec![],
        withs: vec![],
    };
    inference.statement(statement)?;
    Ok(inference.found)
}

struct Inference<'a> {
    session: &'a Session,
    scope: &'a Scope,
    found: Found,
    /// The queries around the place that is looked at, the outermost first.
    frames: Vec<Frame>,
    /// Their WITH clauses.
    withs: Vec<ast::With>,
}

impl Inference<'_> {
    /// Gives a parameter a type.
    fn give(&mut self, typed: &Typed, pg: &Type) -> SqlResult<()> {
        let Typed::Parameter(number) = typed else {
            return Ok(());
        };
        match self.found.types.get(number) {
            Some(before) if before != pg => Err(SqlError::new(
                SqlState::AmbiguousParameter,
                format!("inconsistent types deduced for parameter ${number}"),
            )
            .with_detail(format!(
                "{} versus {}",
                types::pg_name(before),
                types::pg_name(pg)
            ))),
            Some(_) => Ok(()),
            None => {
                self.found.types.insert(*number, pg.clone());
                Ok(())
            }
        }
    }

    /// The place of a parameter asks for something that is not known here.
    fn hide(&mut self, typed: &Typed) {
        if let Typed::Parameter(number) = typed {
            self.found.hidden.insert(*number);
        }
    }

    fn statement(&mut self, statement: &ast::Statement) -> SqlResult<()> {
        match statement {
            ast::Statement::Query(query) => self.query(query, true).map(|_| ()),
            ast::Statement::Insert(insert) => self.insert(insert),
            ast::Statement::Update(update) => self.update(update),
            ast::Statement::Delete(delete) => self.delete(delete),
            ast::Statement::Merge(merge) => self.merge(merge),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, insert: &ast::Insert) -> SqlResult<()> {
        let object = names::insert_target(self.session, self.scope, insert)?;
        let relation = crate::write::writable(&object, "insert into")?;
        let (columns, _) = overriding::listed(&insert.columns);
        let places = match columns.is_empty() {
            true => (0..relation.columns.len()).collect(),
            false => positions(relation, &columns)?,
        };
        let wanted = |index: usize| -> Option<Type> {
            let position = places.get(index)?;
            Some(types::pg_type(relation.schema().field(*position)))
        };
        if let Some(source) = &insert.source {
            match source.body.as_ref() {
                SetExpr::Values(values) => {
                    self.with(source.with.as_ref())?;
                    for row in &values.rows {
                        // A row is looked at as a whole before its values are given to columns.
                        let mut typed = vec![];
                        for expr in &row.content {
                            typed.push(self.expression(expr)?);
                        }
                        for (index, typed) in typed.iter().enumerate() {
                            match wanted(index) {
                                Some(pg) => self.give(typed, &pg)?,
                                None => self.hide(typed),
                            }
                        }
                    }
                    self.without(source.with.as_ref());
                }
                SetExpr::Select(_) => {
                    for (index, typed) in self.query(source, false)?.iter().enumerate() {
                        if let Some(pg) = wanted(index) {
                            self.give(typed, &pg)?;
                        }
                    }
                }
                _ => {
                    self.query(source, true)?;
                }
            }
        }
        let name = match &insert.table_alias {
            Some(alias) => millrace_parser::fold(&alias.alias),
            None => names::last_of_table(&insert.table),
        };
        if let Some(ast::OnInsert::OnConflict(conflict)) = &insert.on
            && let ast::OnConflictAction::DoUpdate(update) = &conflict.action
        {
            let mut columns = columns_of(relation, &name);
            columns.extend(columns_of(relation, "excluded"));
            self.frames.push(Frame::of(columns));
            self.assignments(relation, &update.assignments)?;
            self.condition(update.selection.as_ref())?;
            self.frames.pop();
        }
        self.frames.push(Frame::of(columns_of(relation, &name)));
        self.returning(insert.returning.as_deref())?;
        self.frames.pop();
        Ok(())
    }

    fn update(&mut self, update: &ast::Update) -> SqlResult<()> {
        let (name, alias) = names::single_table(&update.table)?;
        let object = names::resolve(self.session, self.scope, &name)?;
        let relation = crate::write::table(&object, "update")?;
        let more = match &update.from {
            Some(ast::UpdateTableFromKind::BeforeSet(from) | ast::UpdateTableFromKind::AfterSet(from)) => {
                from.as_slice()
            }
            None => &[],
        };
        let name = alias.unwrap_or_else(|| names::last(&name));
        self.enter_changed(relation, &name, more)?;
        self.assignments(relation, &update.assignments)?;
        self.condition(update.selection.as_ref())?;
        self.returning(update.returning.as_deref())?;
        self.frames.pop();
        Ok(())
    }

    fn delete(&mut self, delete: &ast::Delete) -> SqlResult<()> {
        let (name, alias) = names::delete_target(delete)?;
        let object = names::resolve(self.session, self.scope, &name)?;
        let relation = crate::write::table(&object, "delete from")?;
        let name = alias.unwrap_or_else(|| names::last(&name));
        self.enter_changed(relation, &name, delete.using.as_deref().unwrap_or_default())?;
        self.condition(delete.selection.as_ref())?;
        self.returning(delete.returning.as_deref())?;
        self.frames.pop();
        Ok(())
    }

    fn merge(&mut self, merge: &ast::Merge) -> SqlResult<()> {
        let (name, alias) = names::single_factor(&merge.table)?;
        let object = names::resolve(self.session, self.scope, &name)?;
        let relation = crate::write::table(&object, "merge into")?;
        let name = alias.unwrap_or_else(|| names::last(&name));
        let source = TableWithJoins {
            relation: merge.source.clone(),
            joins: vec![],
        };
        self.enter_changed(relation, &name, std::slice::from_ref(&source))?;
        self.condition(Some(&merge.on))?;
        for clause in &merge.clauses {
            self.condition(clause.predicate.as_ref())?;
            match &clause.action {
                ast::MergeAction::Update(update) => self.assignments(relation, &update.assignments)?,
                ast::MergeAction::Insert(insert) => self.merged(relation, insert)?,
                ast::MergeAction::Delete { .. } => {}
            }
        }
        self.frames.pop();
        Ok(())
    }

    /// The values that a MERGE inserts.
    fn merged(&mut self, relation: &Relation, insert: &ast::MergeInsertExpr) -> SqlResult<()> {
        let ast::MergeInsertKind::Values(values) = &insert.kind else {
            return Ok(());
        };
        let (columns, _) = overriding::listed(&insert.columns);
        let places = match columns.is_empty() {
            true => (0..relation.columns.len()).collect(),
            false => positions(relation, &columns)?,
        };
        for (index, value) in values.rows.iter().flat_map(|row| row.content.iter().enumerate()) {
            let field = places.get(index).map(|place| relation.schema().field(*place));
            self.assigned(value, field.map(types::pg_type).as_ref())?;
        }
        Ok(())
    }

    /// The columns of a table that is changed, and those of the relations beside it.
    fn enter_changed(&mut self, relation: &Relation, name: &str, more: &[TableWithJoins]) -> SqlResult<()> {
        let mut columns = columns_of(relation, name);
        if !more.is_empty() {
            self.from(more)?;
            if let Some(others) = self.bound(more) {
                columns.extend(others);
            }
        }
        self.frames.push(Frame::of(columns));
        Ok(())
    }

    fn assignments(&mut self, relation: &Relation, assignments: &[ast::Assignment]) -> SqlResult<()> {
        let wanted = |column: &ast::ObjectName| {
            let field = relation.schema().field_with_name(&names::last(column)).ok()?;
            Some(types::pg_type(field))
        };
        for assignment in assignments {
            match (&assignment.target, &assignment.value) {
                (ast::AssignmentTarget::ColumnName(column), value) => {
                    self.assigned(value, wanted(column).as_ref())?;
                }
                (ast::AssignmentTarget::Tuple(columns), Expr::Tuple(values)) => {
                    for (column, value) in columns.iter().zip(values) {
                        self.assigned(value, wanted(column).as_ref())?;
                    }
                }
                (ast::AssignmentTarget::Tuple(_), value) => {
                    self.expression(value)?;
                }
            }
        }
        Ok(())
    }

    /// An expression whose value goes into a column of this type.
    fn assigned(&mut self, expr: &Expr, wanted: Option<&Type>) -> SqlResult<()> {
        if let Some((given, places, is_slice)) = arrays::assigned::parts(expr) {
            let wanted = match wanted.map(Type::kind) {
                Some(Kind::Array(element)) if !is_slice => Some(element),
                _ => wanted,
            };
            self.assigned(given, wanted)?;
            return places
                .into_iter()
                .try_for_each(|place| self.assigned(place, Some(&Type::INT4)));
        }
        let typed = self.expression(expr)?;
        match wanted {
            Some(pg) => self.give(&typed, pg),
            None => {
                self.hide(&typed);
                Ok(())
            }
        }
    }

    fn condition(&mut self, condition: Option<&Expr>) -> SqlResult<()> {
        if let Some(condition) = condition {
            let typed = self.expression(condition)?;
            self.give(&typed, &Type::BOOL)?;
        }
        Ok(())
    }

    fn returning(&mut self, items: Option<&[SelectItem]>) -> SqlResult<()> {
        for typed in self.select_list(items.unwrap_or_default())? {
            self.give(&typed, &Type::TEXT)?;
        }
        Ok(())
    }

    fn with(&mut self, with: Option<&ast::With>) -> SqlResult<()> {
        let Some(with) = with else { return Ok(()) };
        // Each sees those before it.
        self.withs.push(ast::With {
            cte_tables: vec![],
            ..with.clone()
        });
        for table in &with.cte_tables {
            self.query(&table.query, true)?;
            if let Some(seen) = self.withs.last_mut() {
                seen.cte_tables.push(table.clone());
            }
        }
        Ok(())
    }

    fn without(&mut self, with: Option<&ast::With>) {
        if with.is_some() {
            self.withs.pop();
        }
    }

    /// The types of a query's columns. What is left without a type is a text, if `is_settled`.
    fn query(&mut self, query: &ast::Query, is_settled: bool) -> SqlResult<Vec<Typed>> {
        self.with(query.with.as_ref())?;
        let order = match &query.order_by {
            Some(ast::OrderBy {
                kind: ast::OrderByKind::Expressions(order),
                ..
            }) => order.as_slice(),
            _ => &[],
        };
        let columns = self.body(&query.body, order)?;
        match &query.limit_clause {
            Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
                self.counted(offset.as_ref().map(|offset| &offset.value))?;
                self.counted(limit.as_ref())?;
            }
            Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
                self.counted(Some(offset))?;
                self.counted(Some(limit))?;
            }
            None => {}
        }
        self.counted(query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref()))?;
        self.without(query.with.as_ref());
        if !is_settled {
            return Ok(columns);
        }
        let mut settled = vec![];
        for typed in columns {
            self.give(&typed, &Type::TEXT)?;
            settled.push(match typed {
                Typed::Parameter(_) | Typed::Literal => Typed::As(Type::TEXT),
                typed => typed,
            });
        }
        Ok(settled)
    }

    /// A number of rows.
    fn counted(&mut self, expr: Option<&Expr>) -> SqlResult<()> {
        if let Some(expr) = expr {
            let typed = self.expression(expr)?;
            self.give(&typed, &Type::INT8)?;
        }
        Ok(())
    }

    fn body(&mut self, body: &SetExpr, order: &[ast::OrderByExpr]) -> SqlResult<Vec<Typed>> {
        match body {
            SetExpr::Select(select) => self.select(select, order),
            SetExpr::Query(query) => self.query(query, false),
            SetExpr::SetOperation { left, right, .. } => {
                let left = self.body(left, &[])?;
                let right = self.body(right, &[])?;
                let mut columns = vec![];
                for (left, right) in left.into_iter().zip(right) {
                    columns.push(self.agreed(vec![left, right])?);
                }
                Ok(columns)
            }
            SetExpr::Values(values) => {
                let mut columns: Vec<Vec<Typed>> = vec![];
                for row in &values.rows {
                    for (index, expr) in row.content.iter().enumerate() {
                        let typed = self.expression(expr)?;
                        match columns.get_mut(index) {
                            Some(column) => column.push(typed),
                            None => columns.push(vec![typed]),
                        }
                    }
                }
                columns.into_iter().map(|column| self.agreed(column)).collect()
            }
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => {
                self.statement(statement)?;
                Ok(vec![])
            }
            _ => Ok(vec![]),
        }
    }

    /// What several expressions have in common; those without a type get it.
    fn agreed(&mut self, all: Vec<Typed>) -> SqlResult<Typed> {
        if all.contains(&Typed::Hidden) {
            all.iter().for_each(|typed| self.hide(typed));
            return Ok(Typed::Hidden);
        }
        let known: Vec<Known> = all.iter().map(Typed::known).collect();
        let Some(common) = common_type(&known) else {
            all.iter().for_each(|typed| self.hide(typed));
            return Ok(Typed::Hidden);
        };
        for typed in &all {
            self.give(typed, &common)?;
        }
        Ok(Typed::As(common))
    }

    fn select(&mut self, select: &ast::Select, order: &[ast::OrderByExpr]) -> SqlResult<Vec<Typed>> {
        self.frames.push(Frame {
            from: select.from.clone(),
            columns: None,
            is_bound: false,
        });
        self.from(&select.from)?;
        let columns = self.select_list(&select.projection)?;
        self.condition(select.selection.as_ref())?;
        self.condition(select.having.as_ref())?;
        for sorted in order {
            self.sorted(&sorted.expr)?;
        }
        if let ast::GroupByExpr::Expressions(grouped, _) = &select.group_by {
            for expr in grouped {
                self.sorted(expr)?;
            }
        }
        if let Some(ast::Distinct::On(on)) = &select.distinct {
            for expr in on {
                self.sorted(expr)?;
            }
        }
        for ast::NamedWindowDefinition(_, window) in &select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(window) = window {
                self.window(window)?;
            }
        }
        self.frames.pop();
        Ok(columns)
    }

    /// What rows are sorted or grouped by: texts, where it has no type.
    fn sorted(&mut self, expr: &Expr) -> SqlResult<()> {
        let typed = self.expression(expr)?;
        self.give(&typed, &Type::TEXT)
    }

    fn window(&mut self, window: &ast::WindowSpec) -> SqlResult<()> {
        let sorted = window.order_by.iter().map(|order| &order.expr);
        for expr in window.partition_by.iter().chain(sorted) {
            self.sorted(expr)?;
        }
        if let Some(frame) = &window.window_frame {
            for bound in [Some(&frame.start_bound), frame.end_bound.as_ref()]
                .into_iter()
                .flatten()
            {
                if let ast::WindowFrameBound::Preceding(Some(expr))
                | ast::WindowFrameBound::Following(Some(expr)) = bound
                {
                    let typed = self.expression(expr)?;
                    match frame.units {
                        ast::WindowFrameUnits::Range => self.hide(&typed),
                        _ => self.give(&typed, &Type::INT8)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn select_list(&mut self, items: &[SelectItem]) -> SqlResult<Vec<Typed>> {
        let mut columns = vec![];
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr)
                | SelectItem::ExprWithAlias { expr, .. }
                | SelectItem::ExprWithAliases { expr, .. } => columns.push(self.expression(expr)?),
                SelectItem::Wildcard(_) => {
                    let all = self.innermost().unwrap_or_default();
                    columns.extend(all.into_iter().map(|column| Typed::As(column.pg)));
                }
                SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let relation = names::last(name);
                    let all = self.innermost().unwrap_or_default().into_iter();
                    let of_it = all.filter(|column| column.relation.as_ref() == Some(&relation));
                    columns.extend(of_it.map(|column| Typed::As(column.pg)));
                }
                SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::Expr(expr), _) => {
                    self.expression(expr)?;
                }
            }
        }
        Ok(columns)
    }

    /// The types of a subquery's columns, by itself.
    fn subquery(&mut self, query: &ast::Query) -> SqlResult<Typed> {
        let columns = self.query(query, true)?;
        Ok(columns.into_iter().next().unwrap_or(Typed::Hidden))
    }
}
