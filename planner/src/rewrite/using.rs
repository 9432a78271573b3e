//! RIGHT and FULL JOIN with USING or NATURAL: the merged column is that of the right side, or of whichever side has the row.
//!
//! DataFusion takes the left side's for every join, which is NULL for a row of the right side alone. So
//! `SELECT k, * FROM a FULL JOIN b USING (k)` becomes `SELECT coalesce(a.k, b.k) AS k, .. FROM a FULL JOIN b ON a.k = b.k`.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExceptSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, Value, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};

use crate::error::{Fault, PlanError};

/// Tells the names of the columns of an item of FROM.
pub(super) type ColumnsOf<'a> = dyn Fn(&TableFactor) -> Result<Vec<String>> + 'a;

/// Rewrites the joins of a SELECT and what names their merged columns, which are returned.
///
/// # Errors
/// A merged column is there twice on the left, or nowhere; the columns of an item cannot be told.
pub(super) fn select(select: &mut Select, columns_of: &ColumnsOf<'_>) -> Result<Vec<Merged>> {
    if !select
        .from
        .iter()
        .any(|from| from.joins.iter().any(|join| keeps_right(&join.join_operator)))
    {
        return Ok(vec![]);
    }
    let mut merged = vec![];
    let mut wildcard = vec![];
    for from in &mut select.from {
        relations(from, columns_of, &mut merged, &mut wildcard)?;
    }
    let wanted: Vec<SelectItem> = std::mem::take(&mut select.projection);
    for item in wanted {
        match item {
            SelectItem::Wildcard(_) => {
                let columns = merged.iter().map(|column| SelectItem::ExprWithAlias {
                    expr: column.value.clone(),
                    alias: column.name.clone(),
                });
                select.projection.extend(columns);
                for relation in &wildcard {
                    select.projection.push(all_but_merged(relation, &merged));
                }
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if find(&merged, &name).is_some() => {
                select.projection.push(SelectItem::ExprWithAlias {
                    expr: Expr::Identifier(name.clone()),
                    alias: name,
                });
            }
            other => select.projection.push(other),
        }
    }
    let mut naming = Naming {
        merged: &merged,
        depth: 0,
    };
    let _ = VisitMut::visit(select, &mut naming);
    Ok(merged)
}

/// Puts the merged values into the ORDER BY of the query whose SELECT has these merged columns. What its select list puts
/// out goes by that name.
pub(super) fn order_by(query: &mut Query, merged: &[Merged]) {
    let (SetExpr::Select(select), Some(order_by)) = (query.body.as_ref(), &mut query.order_by) else {
        return;
    };
    let is_output = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias == name,
            _ => false,
        })
    };
    if let OrderByKind::Expressions(expressions) = &mut order_by.kind {
        for item in expressions {
            if let Expr::Identifier(name) = &item.expr
                && !is_output(name)
                && let Some(column) = find(merged, name)
            {
                item.expr = column.value.clone();
            }
        }
    }
}

/// A column that joins have merged.
pub(super) struct Merged {
    name: Ident,
    value: Expr,
    /// The relations that have it.
    relations: Vec<Ident>,
}

fn find<'a>(merged: &'a [Merged], name: &Ident) -> Option<&'a Merged> {
    let same = |other: &Ident| match (name.quote_style, other.quote_style) {
        (None, None) => name.value.eq_ignore_ascii_case(&other.value),
        _ => name.value == other.value,
    };
    merged.iter().find(|column| same(&column.name))
}

fn keeps_right(operator: &JoinOperator) -> bool {
    matches!(
        operator,
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) | JoinOperator::FullOuter(constraint)
            if matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    )
}

/// Makes ON of the USING of one item of FROM, from the first RIGHT or FULL join on, and notes what it merges.
fn relations(
    from: &mut TableWithJoins,
    columns_of: &ColumnsOf<'_>,
    merged: &mut Vec<Merged>,
    wildcard: &mut Vec<Ident>,
) -> Result<()> {
    let mut known = vec![];
    let mut left = Left {
        columns_of,
        items: vec![from.relation.clone()],
    };
    known.extend(alias(&from.relation));
    let first = merged.len();
    for join in &mut from.joins {
        let right = alias(&join.relation);
        let keeps_right = keeps_right(&join.join_operator);
        let is_full = matches!(join.join_operator, JoinOperator::FullOuter(_));
        let constraint = match &mut join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => constraint,
            _ => {
                known.extend(right);
                left.items.push(join.relation.clone());
                continue;
            }
        };
        if matches!(constraint, JoinConstraint::Natural) {
            let common = left.in_common_with(&join.relation)?;
            let common = common.into_iter().map(|name| ObjectName::from(vec![ident(name)]));
            *constraint = match common.len() {
                0 => JoinConstraint::On(Expr::value(Value::Boolean(true))),
                _ => JoinConstraint::Using(common.collect()),
            };
        }
        if let JoinConstraint::Using(columns) = constraint {
            let Some(right) = &right else {
                return Err(unsupported(
                    "RIGHT or FULL JOIN with USING of a relation without a name",
                ));
            };
            let mut condition: Option<Expr> = None;
            for column in columns.iter() {
                let Some(name) = column.0.last().and_then(|part| part.as_ident()).cloned() else {
                    return Err(unsupported("this form of USING"));
                };
                let position = merged[first..]
                    .iter()
                    .position(|known| find(std::slice::from_ref(known), &name).is_some());
                let (left, owner) = match (position, known.as_slice()) {
                    (Some(position), _) => (merged[first + position].value.clone(), None),
                    (None, [only]) => (qualified(only, &name), Some(only.clone())),
                    (None, _) => {
                        let owner = left.owner(&name)?;
                        (qualified(&owner, &name), Some(owner))
                    }
                };
                let own = qualified(right, &name);
                let equal = Expr::BinaryOp {
                    left: Box::new(left.clone()),
                    op: BinaryOperator::Eq,
                    right: Box::new(own.clone()),
                };
                condition = Some(match condition {
                    None => equal,
                    Some(before) => Expr::BinaryOp {
                        left: Box::new(before),
                        op: BinaryOperator::And,
                        right: Box::new(equal),
                    },
                });
                let value = match (keeps_right, is_full) {
                    (true, true) => coalesce(left, own),
                    (true, false) => own,
                    (false, _) => left,
                };
                match position {
                    Some(position) => {
                        let known = &mut merged[first + position];
                        known.value = value;
                        known.relations.push(right.clone());
                    }
                    None => merged.push(Merged {
                        name,
                        value,
                        relations: owner.into_iter().chain([right.clone()]).collect(),
                    }),
                }
            }
            // What a join merges comes before what the joins within it have merged.
            let place = |column: &Merged| {
                let same = |name: &ObjectName| {
                    let name = name.0.last().and_then(|part| part.as_ident());
                    name.is_some_and(|name| find(std::slice::from_ref(column), name).is_some())
                };
                columns.iter().position(same).unwrap_or(columns.len())
            };
            merged[first..].sort_by_key(place);
            if let Some(condition) = condition {
                *constraint = JoinConstraint::On(condition);
            }
        }
        known.extend(right);
        left.items.push(join.relation.clone());
    }
    wildcard.extend(known);
    Ok(())
}

/// What is to the left of a join.
struct Left<'a> {
    columns_of: &'a ColumnsOf<'a>,
    items: Vec<TableFactor>,
}

impl Left<'_> {
    /// The columns that both sides have, in the left side's order.
    fn in_common_with(&self, right: &TableFactor) -> Result<Vec<String>> {
        let of_right = (self.columns_of)(right)?;
        let mut common: Vec<String> = vec![];
        for item in &self.items {
            for name in (self.columns_of)(item)? {
                // What is there twice has been merged before, or is found to be ambiguous later.
                if of_right.contains(&name) && !common.contains(&name) {
                    common.push(name);
                }
            }
        }
        Ok(common)
    }

    /// The one relation that has the column.
    fn owner(&self, name: &Ident) -> Result<Ident> {
        let folded = match name.quote_style {
            None => name.value.to_lowercase(),
            Some(_) => name.value.clone(),
        };
        let mut owners = vec![];
        for item in &self.items {
            if (self.columns_of)(item)?.contains(&folded) {
                owners.extend(alias(item));
            }
        }
        match owners.as_slice() {
            [owner] => Ok(owner.clone()),
            [] => Err(PlanError::Faulty {
                fault: Fault::UndefinedColumn,
                message: format!(
                    "column \"{folded}\" specified in USING clause does not exist in left table"
                ),
            }
            .into()),
            _ => Err(PlanError::Faulty {
                fault: Fault::AmbiguousColumn,
                message: format!("common column name \"{folded}\" appears more than once in left table"),
            }
            .into()),
        }
    }
}

/// The name of a column, quoted where it would be read as another one otherwise.
fn ident(name: String) -> Ident {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
}

fn alias(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        }
        | TableFactor::Function {
            alias: Some(alias), ..
        }
        | TableFactor::UNNEST {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()).cloned(),
        _ => None,
    }
}

fn qualified(relation: &Ident, column: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![relation.clone(), column.clone()])
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    let argument = |expr: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(left), argument(right)],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// `relation.*` without the columns that joins have merged.
fn all_but_merged(relation: &Ident, merged: &[Merged]) -> SelectItem {
    let mut left_out = merged
        .iter()
        .filter(|column| column.relations.contains(relation))
        .map(|column| column.name.clone());
    let opt_except = left_out.next().map(|first_element| ExceptSelectItem {
        first_element,
        additional_elements: left_out.collect(),
    });
    SelectItem::QualifiedWildcard(
        SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![relation.clone()])),
        WildcardAdditionalOptions {
            opt_except,
            ..Default::default()
        },
    )
}

/// Puts the merged value wherever the SELECT itself, and no query within it, names the column.
struct Naming<'a> {
    merged: &'a [Merged],
    depth: usize,
}

impl VisitorMut for Naming<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expression
            && let Some(column) = find(self.merged, name)
        {
            *expression = column.value.clone();
        }
        ControlFlow::Continue(())
    }
}

fn unsupported(construct: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!(
        "{construct} is not supported; write ON with the columns' relations"
    ))
}
