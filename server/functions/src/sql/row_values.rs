//! Comparisons of rows, `(a, b) < (1, 2)`, as comparisons of their columns, which have three-valued logic already.
//!
//! | rows | columns |
//! |---|---|
//! | `(a, b) = (c, d)` | `a = c AND b = d` |
//! | `(a, b) <> (c, d)` | `a <> c OR b <> d` |
//! | `(a, b) < (c, d)` | `a < c OR (a = c AND b < d)` |
//! | `(a, b) IS NULL`, `IS NOT NULL` | all of them are |
//! | `(a, b) IN ((c, d), ..)` | the equalities, with OR |
//! | `(a, b) = (SELECT x, y ..)` | a query over that one, which compares its columns |
//! | `(a, b) IN (SELECT x, y ..)` | a query over that one, which asks for a row that is equal and for one of which that is not known |
//! | `(a, b) > ANY (SELECT x, y ..)`, `> ALL` | the same for one with which it compares so, or otherwise |

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectNamePart, Select, SelectItem, SetExpr, TableAliasColumnDef, TableFactor, UnaryOperator,
};
use millrace_parser::walk::walk_expressions_mut;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::syntax::parsed_query;

/// What the comparison of rows becomes; `None`: it is none.
///
/// # Errors
/// The rows are not of one length.
pub fn compared(expr: &Expr) -> SqlResult<Option<Expr>> {
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => match (columns(left), columns(right)) {
            (Some(left), Some(right)) => by_columns(&left, op, &right)?,
            (Some(row), None) => match right.as_ref() {
                Expr::Subquery(query) => {
                    with_row_of(query, row.len(), |of_query| by_columns(&row, op, of_query))?
                }
                _ => None,
            },
            (None, _) => None,
        },
        Expr::IsNull(row) => {
            columns(row).map(|columns| all(columns, |column| Expr::IsNull(Box::new(column))))
        }
        Expr::IsNotNull(row) => {
            columns(row).map(|columns| all(columns, |column| Expr::IsNotNull(Box::new(column))))
        }
        Expr::IsDistinctFrom(left, right) => {
            let (Some(left), Some(right)) = (columns(left), columns(right)) else {
                return Ok(None);
            };
            Some(pairs(&left, &right, &BinaryOperator::Or, |left, right| {
                Expr::IsDistinctFrom(Box::new(left), Box::new(right))
            })?)
        }
        Expr::IsNotDistinctFrom(left, right) => {
            let (Some(left), Some(right)) = (columns(left), columns(right)) else {
                return Ok(None);
            };
            Some(pairs(&left, &right, &BinaryOperator::And, |left, right| {
                Expr::IsNotDistinctFrom(Box::new(left), Box::new(right))
            })?)
        }
        Expr::Between {
            expr: row,
            negated,
            low,
            high,
        } => {
            let (Some(row), Some(low), Some(high)) = (columns(row), columns(low), columns(high)) else {
                return Ok(None);
            };
            let above = by_columns(&row, &BinaryOperator::GtEq, &low)?;
            let below = by_columns(&row, &BinaryOperator::LtEq, &high)?;
            match (above, below) {
                (Some(above), Some(below)) => Some(negated_if(
                    *negated,
                    joined(vec![above, below], &BinaryOperator::And),
                )),
                _ => None,
            }
        }
        Expr::InList {
            expr: row,
            list,
            negated,
        } => {
            let Some(row) = columns(row) else { return Ok(None) };
            let each = list
                .iter()
                .map(|other| {
                    let other = columns(other).ok_or_else(unequal)?;
                    pairs(&row, &other, &BinaryOperator::And, |left, right| {
                        binary(left, &BinaryOperator::Eq, right)
                    })
                })
                .collect::<SqlResult<Vec<Expr>>>()?;
            Some(negated_if(*negated, joined(each, &BinaryOperator::Or)))
        }
        Expr::InSubquery {
            expr: row,
            subquery,
            negated,
        } => {
            let Some(row) = columns(row) else { return Ok(None) };
            let member = membership(&row, subquery, &BinaryOperator::Eq, Form::Value)?;
            member.map(|member| negated_if(*negated, member))
        }
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => match (columns(left), right.as_ref()) {
            (Some(row), Expr::Subquery(subquery)) => membership(&row, subquery, compare_op, Form::Value)?,
            _ => None,
        },
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => match (columns(left), right.as_ref(), negation(compare_op)) {
            (Some(row), Expr::Subquery(subquery), Some(otherwise)) => {
                let member = membership(&row, subquery, &otherwise, Form::Value)?;
                member.map(|member| negated_if(true, member))
            }
            _ => None,
        },
        _ => None,
    })
}

/// Makes EXISTS of `(a, b) IN (SELECT ..)` where it is a condition of a WHERE by itself: there NULL is as good as false.
///
/// # Errors
/// Those of [`compared`].
pub fn in_conditions(select: &mut Select) -> SqlResult<()> {
    match &mut select.selection {
        Some(condition) => conjuncts(condition),
        None => Ok(()),
    }
}

fn conjuncts(condition: &mut Expr) -> SqlResult<()> {
    match condition {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(left)?;
            conjuncts(right)
        }
        Expr::Nested(inner) => conjuncts(inner),
        Expr::InSubquery {
            expr,
            subquery,
            negated: false,
        } => {
            let Some(row) = columns(expr) else { return Ok(()) };
            if let Some(member) = membership(&row, subquery, &BinaryOperator::Eq, Form::Condition)? {
                *condition = member;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What membership in a query's rows is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Whether it is true.
    Condition,
    /// Whether it is true, false or unknown.
    Value,
}

/// A query of one value over the one row of another, which has so many columns.
fn with_row_of(
    subquery: &ast::Query,
    width: usize,
    compared: impl FnOnce(&[Expr]) -> SqlResult<Option<Expr>>,
) -> SqlResult<Option<Expr>> {
    if let SetExpr::Select(select) = subquery.body.as_ref()
        && select.projection.iter().all(|item| {
            matches!(
                item,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
            )
        })
        && select.projection.len() != width
    {
        let few = if select.projection.len() < width {
            "few"
        } else {
            "many"
        };
        let message = format!("subquery has too {few} columns");
        return Err(SqlError::new(SqlState::SyntaxError, message));
    }
    let (names, fields) = fields(width);
    let Some(value) = compared(&fields)? else {
        return Ok(None);
    };
    let mut query = parsed_query("SELECT 1 FROM (SELECT 1) AS __row")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(value)];
        read_from(select, subquery, names);
    }
    Ok(Some(Expr::Subquery(query)))
}

/// Names for the columns of a query, and the columns.
fn fields(width: usize) -> (Vec<Ident>, Vec<Expr>) {
    let names: Vec<Ident> = (1..=width)
        .map(|number| Ident::new(format!("__field_{number}")))
        .collect();
    let fields = names
        .iter()
        .map(|name| Expr::CompoundIdentifier(vec![Ident::new("__row"), name.clone()]))
        .collect();
    (names, fields)
}

/// Puts a query in the place of the one in FROM.
fn read_from(select: &mut Select, subquery: &ast::Query, names: Vec<Ident>) {
    if let Some(from) = select.from.first_mut()
        && let TableFactor::Derived {
            subquery: inner,
            alias: Some(alias),
            ..
        } = &mut from.relation
    {
        **inner = subquery.clone();
        let columns = names.into_iter().map(|name| TableAliasColumnDef {
            name,
            data_type: None,
        });
        alias.columns = columns.collect();
    }
}

/// Whether a query has a row with which another compares so; `None`: this operator compares no rows.
fn membership(
    row: &[Expr],
    subquery: &ast::Query,
    op: &BinaryOperator,
    form: Form,
) -> SqlResult<Option<Expr>> {
    let (names, fields) = fields(row.len());
    let Some(compared) = by_columns(row, op, &fields)? else {
        return Ok(None);
    };
    let mut query = parsed_query(match form {
        Form::Condition => "SELECT 1 FROM (SELECT 1) AS __row WHERE true",
        Form::Value => {
            "SELECT CASE WHEN bool_or(true) THEN true WHEN bool_or((true) IS NULL) THEN NULL ELSE false END \
             FROM (SELECT 1) AS __row"
        }
    })?;
    // The placeholders of the texts above.
    let _: std::ops::ControlFlow<()> = walk_expressions_mut(&mut *query, |expr| {
        match expr {
            Expr::Nested(inner) if is_true(inner) => **inner = compared.clone(),
            Expr::Function(Function {
                args: FunctionArguments::List(list),
                ..
            }) => {
                for argument in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument
                        && is_true(value)
                    {
                        *value = compared.clone();
                    }
                }
            }
            _ => {}
        }
        std::ops::ControlFlow::Continue(())
    });
    if let SetExpr::Select(select) = query.body.as_mut() {
        if form == Form::Condition {
            select.selection = Some(compared);
        }
        read_from(select, subquery, names);
    }
    Ok(Some(match form {
        Form::Condition => Expr::Exists {
            subquery: query,
            negated: false,
        },
        Form::Value => Expr::Subquery(query),
    }))
}

/// The comparison that holds where this one does not, NULL aside.
fn negation(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    Some(match op {
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        LtEq => Gt,
        Gt => LtEq,
        GtEq => Lt,
        _ => return None,
    })
}

fn is_true(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == ast::Value::Boolean(true))
}

/// The columns of a row: `(a, b)`, `ROW(a, b)`.
fn columns(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(columns) => Some(columns.clone()),
        Expr::Function(function) => match (function.name.0.as_slice(), &function.args) {
            ([ObjectNamePart::Identifier(name)], FunctionArguments::List(list))
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row") =>
            {
                list.args
                    .iter()
                    .map(|argument| match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(column.clone()),
                        _ => None,
                    })
                    .collect()
            }
            _ => None,
        },
        _ => None,
    }
}

fn by_columns(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> SqlResult<Option<Expr>> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let strict = match op {
        Eq => return pairs(left, right, &And, |l, r| binary(l, &Eq, r)).map(Some),
        NotEq => return pairs(left, right, &Or, |l, r| binary(l, &NotEq, r)).map(Some),
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        _ => return Ok(None),
    };
    if left.len() != right.len() || left.is_empty() {
        return Err(unequal());
    }
    let mut whole: Option<Expr> = None;
    for (left, right) in left.iter().zip(right).rev() {
        let (left, right) = (nested(left.clone()), nested(right.clone()));
        whole = Some(match whole {
            None => binary(left, op, right),
            Some(rest) => {
                let equal = binary(left.clone(), &Eq, right.clone());
                let further = nested(binary(equal, &And, nested(rest)));
                binary(binary(left, &strict, right), &Or, further)
            }
        });
    }
    Ok(whole.map(nested))
}

fn pairs(
    left: &[Expr],
    right: &[Expr],
    join: &BinaryOperator,
    compare: impl Fn(Expr, Expr) -> Expr,
) -> SqlResult<Expr> {
    if left.len() != right.len() || left.is_empty() {
        return Err(unequal());
    }
    let each = left
        .iter()
        .zip(right)
        .map(|(left, right)| compare(nested(left.clone()), nested(right.clone())))
        .collect();
    Ok(joined(each, join))
}

fn all(columns: Vec<Expr>, test: impl Fn(Expr) -> Expr) -> Expr {
    let each = columns.into_iter().map(|column| test(nested(column))).collect();
    joined(each, &BinaryOperator::And)
}

/// The expressions joined by AND or OR, as flat a tree as there is.
pub(super) fn joined(mut each: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if each.len() <= 1 {
        let nothing = Expr::value(ast::Value::Boolean(*op == BinaryOperator::And));
        return each.pop().unwrap_or(nothing);
    }
    let right = each.split_off(each.len() / 2);
    nested(binary(joined(each, op), op, joined(right, op)))
}

fn negated_if(negated: bool, expr: Expr) -> Expr {
    match negated {
        true => nested(Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(nested(expr)),
        }),
        false => expr,
    }
}

fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Value(_)
        | Expr::Nested(_)
        | Expr::Function(_)
        | Expr::Subquery(_) => expr,
        other => Expr::Nested(Box::new(other)),
    }
}

fn binary(left: Expr, op: &BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    }
}

fn unequal() -> SqlError {
    SqlError::new(
        SqlState::SyntaxError,
        "unequal number of entries in row expressions",
    )
}
