//! `SELECT .. FROM (SELECT .. ORDER BY x) AS s`: the rows keep the order of the subquery, as PostgreSQL keeps it.
//!
//! DataFusion leaves out the sort of a subquery, since SQL gives its rows no order (the option
//! `enable_subquery_sort_elimination` is off, so that it is seen here). People count on it all the same: in what a query
//! shows, in which rows LIMIT and DISTINCT ON take, in `array_agg(x)` and `row_number() OVER ()` over a sorted subquery. Here the
//! order is handed on through the nodes that keep it (filters, projections, aliases), and written where somebody depends on it. A
//! projection that drops a column of the order keeps it under a hidden name until then.
//!
//! Joins, groups and set operations keep no order.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Distinct, Filter, Limit, Projection, Sort, SubqueryAlias};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};

/// Aggregates whose value depends on the order of rows.
const AGGREGATES: [&str; 10] = [
    "array_agg",
    "string_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
    "xmlagg",
    "first_value",
    "last_value",
    "nth_value",
];

/// Functions over a window without PARTITION BY and ORDER BY whose value depends on the order of rows.
const NUMBERING: [&str; 7] = [
    "row_number",
    "lag",
    "lead",
    "ntile",
    "first_value",
    "last_value",
    "nth_value",
];

/// The plan, in which whatever depends on the order of a subquery says so. `shows_rows`: the order of the result is seen, which is so
/// of a query and not of a view.
pub(crate) fn kept(plan: LogicalPlan, shows_rows: bool) -> Result<LogicalPlan> {
    let mut has_order = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            has_order |= is_sorted(&alias.input);
        }
        Ok(match has_order {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    if !has_order {
        return Ok(plan);
    }
    let mut carrier = Carrier {
        hidden: 0,
        is_used: false,
    };
    let kept = carrier.whole(plan.clone(), shows_rows)?;
    match carrier.is_used {
        true => Ok(kept),
        // Nobody depends on the order: no column is to be carried along for it.
        false => plan
            .transform_down_with_subqueries(|node| match node {
                LogicalPlan::SubqueryAlias(alias) if is_sorted(&alias.input) => {
                    let input = Arc::new(unsorted(Arc::unwrap_or_clone(alias.input))?);
                    let alias = SubqueryAlias::try_new(input, alias.alias)?;
                    Ok(Transformed::yes(LogicalPlan::SubqueryAlias(alias)))
                }
                other => Ok(Transformed::no(other)),
            })
            .map(|transformed| transformed.data),
    }
}

/// Whether a subquery has an order of its own, or hands on that of another.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        LogicalPlan::Filter(filter) => is_sorted(&filter.input),
        LogicalPlan::Limit(limit) => is_sorted(&limit.input),
        _ => false,
    }
}

/// A subquery without its sort: who depends on it says so himself.
fn unsorted(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => Ok(Arc::unwrap_or_clone(sort.input)),
        LogicalPlan::Projection(projection) => {
            let input = Arc::new(unsorted(Arc::unwrap_or_clone(projection.input))?);
            Projection::try_new(projection.expr, input).map(LogicalPlan::Projection)
        }
        other => Ok(other),
    }
}

struct Carrier {
    /// How many columns have a hidden name.
    hidden: usize,
    /// Whether somebody depends on the order of a subquery.
    is_used: bool,
}

/// A plan, and the order of its rows.
struct Ordered {
    plan: LogicalPlan,
    /// Over the columns of the plan; empty: there is none.
    order: Vec<SortExpr>,
    /// Whether the order comes from a subquery, and not from the ORDER BY of the same SELECT.
    is_inner: bool,
    /// How many columns the plan has without those that are hidden, which come last.
    width: usize,
}

impl Ordered {
    fn without_order(plan: LogicalPlan) -> Self {
        let width = plan.schema().fields().len();
        Ordered {
            plan,
            order: vec![],
            is_inner: false,
            width,
        }
    }

    fn depends(&self) -> bool {
        self.is_inner && !self.order.is_empty()
    }

    /// The plan without the hidden columns.
    fn shown(self) -> Result<LogicalPlan> {
        if self.width == self.plan.schema().fields().len() {
            return Ok(self.plan);
        }
        let columns = self.plan.schema().columns();
        let shown = columns.into_iter().take(self.width).map(Expr::Column).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(
            shown,
            Arc::new(self.plan),
        )?))
    }
}

impl Carrier {
    /// A query as a whole.
    fn whole(&mut self, plan: LogicalPlan, shows_rows: bool) -> Result<LogicalPlan> {
        let mut ordered = self.carried(plan)?;
        if shows_rows && ordered.depends() {
            ordered = self.sorted(ordered);
        }
        ordered.shown()
    }

    fn sorted(&mut self, ordered: Ordered) -> Ordered {
        self.is_used = true;
        let sort = Sort {
            expr: ordered.order.clone(),
            input: Arc::new(ordered.plan),
            fetch: None,
        };
        Ordered {
            plan: LogicalPlan::Sort(sort),
            ..ordered
        }
    }

    #[recursive::recursive]
    fn carried(&mut self, plan: LogicalPlan) -> Result<Ordered> {
        let plan = plan
            .map_subqueries(|node| match node {
                LogicalPlan::Subquery(mut subquery) => {
                    let inner = Arc::unwrap_or_clone(subquery.subquery);
                    subquery.subquery = Arc::new(self.whole(inner, false)?);
                    Ok(Transformed::yes(LogicalPlan::Subquery(subquery)))
                }
                other => Ok(Transformed::no(other)),
            })?
            .data;
        match plan {
            LogicalPlan::Sort(sort) => {
                let input = self.carried(Arc::unwrap_or_clone(sort.input))?;
                let width = input.width;
                let order = sort.expr.clone();
                let plan = LogicalPlan::Sort(Sort {
                    input: Arc::new(input.plan),
                    ..sort
                });
                Ok(Ordered {
                    plan,
                    order,
                    is_inner: false,
                    width,
                })
            }
            LogicalPlan::Limit(limit) => {
                let mut input = self.carried(Arc::unwrap_or_clone(limit.input))?;
                if input.depends() {
                    input = self.sorted(input);
                }
                let plan = LogicalPlan::Limit(Limit {
                    input: Arc::new(input.plan),
                    ..limit
                });
                Ok(Ordered { plan, ..input })
            }
            LogicalPlan::Filter(filter) => {
                let input = self.carried(Arc::unwrap_or_clone(filter.input))?;
                let plan = LogicalPlan::Filter(Filter::try_new(filter.predicate, Arc::new(input.plan))?);
                Ok(Ordered { plan, ..input })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.carried(Arc::unwrap_or_clone(alias.input))?;
                let before = input.plan.schema().columns();
                let plan = SubqueryAlias::try_new(Arc::new(unsorted(input.plan)?), alias.alias)?;
                let after = plan.schema.columns();
                let order = renamed(input.order, &before, &after)?;
                Ok(Ordered {
                    plan: LogicalPlan::SubqueryAlias(plan),
                    order,
                    is_inner: true,
                    width: input.width,
                })
            }
            LogicalPlan::Projection(projection) => self.projection(projection),
            other => self.other(other).map(Ordered::without_order),
        }
    }

    /// A projection, which keeps the columns that the order of its input needs.
    fn projection(&mut self, projection: Projection) -> Result<Ordered> {
        let input = self.carried(Arc::unwrap_or_clone(projection.input))?;
        let width = projection.expr.len();
        let mut expressions = projection.expr;
        let mut order = vec![];
        for sort in input.order {
            let found = expressions.iter().position(|expr| *bare(expr) == sort.expr);
            let place = found.unwrap_or_else(|| {
                self.hidden += 1;
                let name = format!("order of a subquery {}", self.hidden);
                expressions.push(sort.expr.clone().alias(name));
                expressions.len() - 1
            });
            order.push((place, sort.asc, sort.nulls_first));
        }
        let plan = Projection::try_new(expressions, Arc::new(input.plan))?;
        let columns = plan.schema.columns();
        let order = order
            .into_iter()
            .map(|(place, asc, nulls_first)| {
                SortExpr::new(Expr::Column(columns[place].clone()), asc, nulls_first)
            })
            .collect();
        Ok(Ordered {
            plan: LogicalPlan::Projection(plan),
            order,
            is_inner: input.is_inner,
            width,
        })
    }

    /// A node that keeps no order, over inputs on whose order it may depend.
    fn other(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if let LogicalPlan::Distinct(Distinct::On(mut on)) = plan {
            let input = self.carried(Arc::unwrap_or_clone(on.input))?;
            if input.depends() && on.sort_expr.is_none() {
                self.is_used = true;
                on.sort_expr = Some(behind(&on.on_expr, &input.order));
            }
            on.input = Arc::new(input.plan);
            return Ok(LogicalPlan::Distinct(Distinct::On(on)));
        }
        let reads_in_order = matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
        let mut order = vec![];
        let mut plan = plan
            .map_children(|child| {
                let input = self.carried(child)?;
                if !reads_in_order || !input.depends() {
                    return Ok(Transformed::yes(input.shown()?));
                }
                order.clone_from(&input.order);
                // An aggregate shows none of the columns of its input; a window function shows all of them.
                Ok(Transformed::yes(input.plan))
            })?
            .data;
        if order.is_empty() {
            return Ok(plan);
        }
        let before = plan.schema().columns();
        let names = NamePreserver::new_for_projection();
        plan = plan
            .map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = expression.transform_up(|expr| Ok(self.in_order(expr, &order)))?;
                Ok(changed.update_data(|expression| name.restore(expression)))
            })?
            .data;
        let plan = plan.recompute_schema()?;
        let shown = before
            .into_iter()
            .filter(|column| !column.name.starts_with("order of a subquery "))
            .map(Expr::Column)
            .collect();
        Ok(LogicalPlan::Projection(Projection::try_new(
            shown,
            Arc::new(plan),
        )?))
    }

    /// A call whose value depends on the order of rows, with that order.
    fn in_order(&mut self, expression: Expr, order: &[SortExpr]) -> Transformed<Expr> {
        match expression {
            Expr::AggregateFunction(AggregateFunction { func, mut params })
                if params.order_by.is_empty() && !params.distinct && AGGREGATES.contains(&func.name()) =>
            {
                self.is_used = true;
                params.order_by = order.to_vec();
                Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
            }
            Expr::WindowFunction(call) => {
                let WindowFunction { fun, mut params } = *call;
                let is_whole = params.order_by.is_empty() && params.partition_by.is_empty();
                let depends = is_whole && {
                    let name = fun.name();
                    NUMBERING.contains(&name) || AGGREGATES.contains(&name)
                };
                if depends {
                    self.is_used = true;
                    params.order_by = order.to_vec();
                }
                let call = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
                match depends {
                    true => Transformed::yes(call),
                    false => Transformed::no(call),
                }
            }
            other => Transformed::no(other),
        }
    }
}

/// The order of a subquery for DISTINCT ON, which sorts by its own expressions first.
fn behind(on: &[Expr], order: &[SortExpr]) -> Vec<SortExpr> {
    let begins_so = order.len() >= on.len() && order.iter().zip(on).all(|(sort, on)| sort.expr == *on);
    if begins_so {
        return order.to_vec();
    }
    let first = on.iter().map(|expr| SortExpr::new(expr.clone(), true, false));
    let rest = order.iter().filter(|sort| !on.contains(&sort.expr)).cloned();
    first.chain(rest).collect()
}

/// An order over the columns of another relation, which stand at the same places.
fn renamed(order: Vec<SortExpr>, before: &[Column], after: &[Column]) -> Result<Vec<SortExpr>> {
    order
        .into_iter()
        .map(|sort| {
            let expr = sort.expr.transform(|expr| {
                Ok(match &expr {
                    Expr::Column(column) => match before.iter().position(|known| known == column) {
                        Some(place) => Transformed::yes(Expr::Column(after[place].clone())),
                        None => Transformed::no(expr),
                    },
                    _ => Transformed::no(expr),
                })
            })?;
            Ok(SortExpr::new(expr.data, sort.asc, sort.nulls_first))
        })
        .collect()
}

/// An expression without its alias.
fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}
