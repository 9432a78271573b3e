//! Rows as values: `ROW(a, b)`, `(value).name` and `(value).*`.
//!
//! Rows and their attributes become calls of functions, which know of the types what DataFusion's own forget. What `(value).*` stands
//! for only the type of the value says, and that is known when the statement is bound: its item is a call that tells the attributes'
//! names by an error. They are put in its place, and the statement is bound again.

mod functions;

use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Fields};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr as Bound, ExprSchemable, LogicalPlan, Operator};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    ObjectNamePart, Select, SelectItem, Statement, Value, VisitorMut,
};
use millrace_parser::string_value;
use millrace_parser::walk::Walk;

use self::functions::Order;
pub use self::functions::function;
use crate::copies::copy;
use crate::error::{Fault, Faulty};
use crate::postgres::names::output;
use crate::template::call;

/// `pg_row(a, b)`: a row whose attributes are called f1 and f2.
pub const ROW: &str = "pg_row";
/// `pg_named_row('x', a, 'y', b)`: a row whose attributes have names.
pub const NAMED_ROW: &str = "pg_named_row";
/// `pg_field(value, 'name')`: an attribute of a value.
pub const FIELD: &str = "pg_field";
/// `pg_star(value, n)`: the item of a select list that stands for all attributes of a value, the n-th of a statement.
const STAR: &str = "pg_star";
/// The numbers of copies of attributes that others have the names of.
const COPIES_OF_ATTRIBUTES: usize = 30_000;
/// How often a statement is bound again for such items.
const STARS_MAX: usize = 100;

/// The item of a select list that stands for all attributes of a value.
pub fn star(value: Expr) -> SelectItem {
    SelectItem::ExprWithAlias {
        expr: call(STAR, vec![value]),
        alias: Ident::with_quote('"', "*"),
    }
}

/// The value whose attributes an item stands for; `None`: it is another item.
pub(crate) fn starred(item: &SelectItem) -> Option<&Expr> {
    let SelectItem::ExprWithAlias { expr, .. } = item else {
        return None;
    };
    match expr {
        Expr::Function(function) if is_called(function, STAR) => arguments(function).next(),
        _ => None,
    }
}

fn is_called(function: &Function, wanted: &str) -> bool {
    matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(name)] if name.value == wanted)
}

fn arguments(function: &Function) -> impl Iterator<Item = &Expr> {
    let list = match &function.args {
        FunctionArguments::List(list) => list.args.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// The attributes of a value whose item stands in a select list.
#[derive(Debug, thiserror::Error)]
#[error("the attributes of the value of item {item} are told when the statement is bound")]
pub struct Attributes {
    item: usize,
    names: Vec<String>,
}

/// The plan of a statement in whose select lists all attributes of values stand for themselves.
///
/// # Errors
/// Those of `plan`; there are too many such values (54001).
pub(crate) fn spelled_out<T>(mut statement: Statement, plan: impl Fn(Statement) -> Result<T>) -> Result<T> {
    let mut items = Items {
        count: 0,
        found: None,
    };
    let _ = statement.walk_mut(&mut items);
    if items.count == 0 {
        return plan(statement).map_err(|error| match told(&error) {
            // Somebody has called the function by its name.
            Some(_) => Faulty {
                fault: Fault::UndefinedFunction,
                message: format!("function {STAR} does not exist"),
            }
            .into(),
            None => error,
        });
    }
    for _ in 0..STARS_MAX {
        let error = match plan(statement.clone()) {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let Some(told) = told(&error) else {
            return Err(error);
        };
        let mut items = Items {
            count: 0,
            found: Some(told),
        };
        let _ = statement.walk_mut(&mut items);
    }
    Err(Faulty {
        fault: Fault::TooComplex,
        message: format!("all attributes of more than {STARS_MAX} values are asked for"),
    }
    .into())
}

/// The attributes that an error tells.
fn told(error: &DataFusionError) -> Option<&Attributes> {
    match error.find_root() {
        DataFusionError::External(told) => told.downcast_ref(),
        _ => None,
    }
}

/// Numbers the items, and puts the attributes of one in its place.
struct Items<'a> {
    count: usize,
    found: Option<&'a Attributes>,
}

impl VisitorMut for Items<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !select.projection.iter().any(|item| starred(item).is_some()) {
            return ControlFlow::Continue(());
        }
        let mut taken: Vec<String> = select.projection.iter().filter_map(output).collect();
        for item in std::mem::take(&mut select.projection) {
            let Some(value) = starred(&item).cloned() else {
                select.projection.push(item);
                continue;
            };
            let number = self.number(&item);
            match self.found.filter(|found| found.item == number) {
                Some(found) => {
                    for name in &found.names {
                        let alias = match taken.contains(name) {
                            true => copy(name, COPIES_OF_ATTRIBUTES + taken.len()),
                            false => name.clone(),
                        };
                        taken.push(name.clone());
                        select.projection.push(SelectItem::ExprWithAlias {
                            expr: attribute(value.clone(), name),
                            alias: Ident::with_quote('"', alias),
                        });
                    }
                }
                None => select.projection.push(SelectItem::ExprWithAlias {
                    expr: call(
                        STAR,
                        vec![value, Expr::value(Value::Number(number.to_string(), false))],
                    ),
                    alias: Ident::with_quote('"', copy("*", number)),
                }),
            }
        }
        ControlFlow::Continue(())
    }
}

impl Items<'_> {
    /// The number that an item has, or gets.
    fn number(&mut self, item: &SelectItem) -> usize {
        let given = match item {
            SelectItem::ExprWithAlias {
                expr: Expr::Function(function),
                ..
            } => arguments(function).nth(1),
            _ => None,
        };
        match given {
            Some(Expr::Value(value)) => match &value.value {
                Value::Number(number, _) => number.parse().unwrap_or_default(),
                _ => 0,
            },
            _ => {
                self.count += 1;
                self.count
            }
        }
    }
}

fn attribute(value: Expr, name: &str) -> Expr {
    let name = Expr::value(string_value(name));
    call(FIELD, vec![value, name])
}

/// Puts texts in the place of the names of attributes, which are names of nothing else.
pub(crate) fn attributes_as_texts(chain: &mut [AccessExpr]) {
    for access in chain {
        if let AccessExpr::Dot(name) = access
            && let Expr::Identifier(ident) = name
        {
            *name = Expr::value(string_value(millrace_parser::fold(ident)));
        }
    }
}

/// Makes calls of rows and of their attributes. `GROUP BY (a, b)` is `GROUP BY a, b`, as in PostgreSQL.
pub fn as_calls(node: &mut impl Walk) {
    let _ = node.walk_mut(&mut Calls);
}

struct Calls;

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(expressions, _) = &mut select.group_by {
            let all = std::mem::take(expressions);
            let is_one_group = !all.is_empty() && all.iter().all(is_nothing);
            *expressions = (all.into_iter())
                .flat_map(|expr| match expr {
                    Expr::Tuple(members) => members,
                    other => vec![other],
                })
                .collect();
            if is_one_group {
                expressions.push(Expr::GroupingSets(vec![vec![]]));
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Tuple(members) => *expr = call(ROW, std::mem::take(members)),
            Expr::Function(function) => {
                if let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
                    && name.quote_style.is_none()
                    && name.value.eq_ignore_ascii_case("row")
                {
                    *name = Ident::new(ROW);
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                let names = access_chain.iter().map(|access| match access {
                    AccessExpr::Dot(Expr::Identifier(name)) => Some(millrace_parser::fold(name)),
                    AccessExpr::Dot(Expr::Value(name)) => match &name.value {
                        Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name) => {
                            Some(name.clone())
                        }
                        _ => None,
                    },
                    _ => None,
                });
                if let Some(names) = names.collect::<Option<Vec<String>>>() {
                    let value = std::mem::replace(root.as_mut(), Expr::value(Value::Null));
                    let value = match value {
                        Expr::Nested(inner) => *inner,
                        other => other,
                    };
                    *expr = names.iter().fold(value, |value, name| attribute(value, name));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `()`, by which a query groups all rows together.
fn is_nothing(expr: &Expr) -> bool {
    matches!(expr, Expr::Tuple(members) if members.is_empty())
}

/// Asks of rows that are values whether all of their attributes are NULL, or none, where IS NULL and IS NOT NULL would ask for the row;
/// and compares rows whose attributes have other names.
///
/// # Errors
/// Rows are compared that have other types at a place, or not as many attributes.
pub(crate) fn by_their_attributes(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Values(_)) {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = preserver.save(&expression);
            Ok(by_attributes(expression, &schema)?.update_data(|expression| name.restore(expression)))
        })
    })?;
    Ok(plan.data)
}

/// The same in an expression.
///
/// # Errors
/// As of a plan.
pub fn by_attributes(expression: Bound, schema: &DFSchema) -> Result<Transformed<Bound>> {
    expression.transform_up(|node| {
        let (value, asks_for_none) = match &node {
            Bound::IsNull(value) => (value, false),
            Bound::IsNotNull(value) => (value, true),
            Bound::BinaryExpr(compared) if compares(compared.op) => {
                let (left, right) = (compared.left.get_type(schema), compared.right.get_type(schema));
                let (Ok(DataType::Struct(left)), Ok(DataType::Struct(right))) = (left, right) else {
                    return Ok(Transformed::no(node));
                };
                let is_same = left == right;
                check_comparable(&left, &right)?;
                let mut right = compared.right.as_ref().clone();
                if !is_same {
                    right = functions::renamed(left).call(vec![right]);
                }
                let order = Order::of(compared.op);
                return Ok(match order {
                    Some(order) => {
                        let left = compared.left.as_ref().clone();
                        Transformed::yes(functions::ordered(order).call(vec![left, right]))
                    }
                    None if is_same => Transformed::no(node),
                    None => Transformed::yes(Bound::BinaryExpr(BinaryExpr {
                        right: Box::new(right),
                        ..compared.clone()
                    })),
                });
            }
            _ => return Ok(Transformed::no(node)),
        };
        if !matches!(value.get_type(schema), Ok(DataType::Struct(_))) {
            return Ok(Transformed::no(node));
        }
        let function = functions::nulls(asks_for_none);
        Ok(Transformed::yes(function.call(vec![value.as_ref().clone()])))
    })
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

fn check_comparable(left: &Fields, right: &Fields) -> Result<()> {
    let faulty = |message: String| Faulty {
        fault: Fault::DatatypeMismatch,
        message,
    };
    if left.len() != right.len() {
        let message = "cannot compare record types with different numbers of columns";
        return Err(faulty(message.to_owned()).into());
    }
    let mut pairs = left.iter().zip(right);
    match pairs.position(|(left, right)| !left.data_type().equals_datatype(right.data_type())) {
        Some(at) => Err(faulty(format!(
            "cannot compare dissimilar column types at record column {}",
            at + 1
        ))
        .into()),
        None => Ok(()),
    }
}
