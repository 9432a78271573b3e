//! GROUP BY and HAVING as PostgreSQL reads them: ROLLUP and CUBE within GROUPING SETS, GROUP BY DISTINCT, HAVING without GROUP BY.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select, SelectItem,
    Statement, VisitorMut,
};
use millrace_parser::ast::GROUP_DISTINCT;
use millrace_parser::walk::{Walk, walk_expressions};

use crate::error::{Fault, Faulty};

/// As PostgreSQL has it.
const SETS_MAX: usize = 4_096;
const CUBE_MAX: usize = 12;

/// The columns that rows are grouped by at once.
type Set = Vec<Expr>;

/// Makes sets of ROLLUP and CUBE within GROUPING SETS, and one group of all rows of HAVING without GROUP BY.
///
/// # Errors
/// There are too many sets.
pub(crate) fn spell_out(statement: &mut Statement) -> Result<()> {
    walk(statement, |select| {
        let is_one_group = is_one_group(select);
        let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
            return Ok(());
        };
        if is_one_group {
            keys.push(Expr::Tuple(vec![]));
        }
        for key in keys {
            if let Expr::GroupingSets(sets) = key {
                let mut all = vec![];
                for set in sets.drain(..) {
                    all.extend(sets_within(set)?);
                }
                *sets = limited(all)?;
            }
        }
        Ok(())
    })
}

/// Leaves of the sets of GROUP BY DISTINCT those that are there a second time out. Names mean what they mean by now.
///
/// # Errors
/// There are too many sets.
pub(crate) fn each_once(statement: &mut Statement) -> Result<()> {
    walk(statement, |select| {
        let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
            return Ok(());
        };
        if !keys.first().is_some_and(is_distinct) {
            return Ok(());
        }
        keys.remove(0);
        let has_sets = |key: &Expr| matches!(key, Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_));
        if !keys.iter().any(has_sets) {
            return Ok(());
        }
        let mut all: Vec<Set> = vec![vec![]];
        for key in keys.drain(..) {
            let more = match key {
                Expr::GroupingSets(sets) => sets,
                Expr::Rollup(items) => rollup(&items),
                Expr::Cube(items) => cube(&items)?,
                Expr::Tuple(members) => vec![members],
                key => vec![vec![key]],
            };
            let both = all
                .iter()
                .flat_map(|set| more.iter().map(|more| [set.as_slice(), more].concat()));
            all = limited(both.take(SETS_MAX + 1).collect())?;
        }
        let mut once: Vec<Set> = vec![];
        for set in all {
            let holds = |one: &Set, other: &Set| {
                other
                    .iter()
                    .all(|key| one.iter().any(|known| is_same(known, key)))
            };
            if !once.iter().any(|known| holds(known, &set) && holds(&set, known)) {
                once.push(set);
            }
        }
        keys.push(Expr::GroupingSets(once));
        Ok(())
    })
}

/// Does something with each SELECT of a statement.
fn walk(statement: &mut Statement, rewrite: fn(&mut Select) -> Result<()>) -> Result<()> {
    struct Selects(fn(&mut Select) -> Result<()>);

    impl VisitorMut for Selects {
        type Break = Box<DataFusionError>;

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
            match (self.0)(select) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Box::new(error)),
            }
        }
    }

    match statement.walk_mut(&mut Selects(rewrite)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Whether HAVING stands without GROUP BY, and there is no aggregate, by which it is one group anyway.
fn is_one_group(select: &Select) -> bool {
    let (GroupByExpr::Expressions(keys, _), Some(having)) = (&select.group_by, &select.having) else {
        return false;
    };
    let calls = |expr: &Expr| {
        let found = walk_expressions(expr, |part| match part {
            Expr::Function(_) if called(part).is_none_or(|(name, _)| is_aggregate(name)) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        found.is_break()
    };
    let calls_in = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => calls(expr),
        _ => false,
    };
    keys.is_empty() && !calls(having) && !select.projection.iter().any(calls_in)
}

/// Whether a function may be an aggregate.
fn is_aggregate(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let all = all_default_aggregate_functions().into_iter();
        all.flat_map(|function| {
            let aliases = function.aliases().iter().cloned();
            aliases.chain([function.name().to_owned()]).collect::<Vec<_>>()
        })
        .collect()
    });
    let name = name.to_lowercase();
    NAMES.contains(&name) || name.ends_with("_agg")
}

fn is_distinct(key: &Expr) -> bool {
    matches!(called(key), Some((name, _)) if name == GROUP_DISTINCT)
}

/// The name and arguments of a call.
fn called(expr: &Expr) -> Option<(&str, &Function)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let [part] = function.name.0.as_slice() else {
        return None;
    };
    Some((part.as_ident()?.value.as_str(), function))
}

/// The sets of one item of GROUPING SETS.
fn sets_within(set: Set) -> Result<Vec<Set>> {
    let [item] = set.as_slice() else {
        return Ok(vec![set]);
    };
    let Some((name, function)) = called(item) else {
        return Ok(vec![set]);
    };
    let is_cube = name.eq_ignore_ascii_case("cube");
    let FunctionArguments::List(list) = &function.args else {
        return Ok(vec![set]);
    };
    if !is_cube && !name.eq_ignore_ascii_case("rollup") {
        return Ok(vec![set]);
    }
    let mut items: Vec<Set> = vec![];
    for argument in &list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
            return Ok(vec![set]);
        };
        items.push(match expr {
            Expr::Tuple(members) => members.clone(),
            Expr::Nested(member) => vec![(**member).clone()],
            other => vec![other.clone()],
        });
    }
    match is_cube {
        true => cube(&items),
        false => Ok(rollup(&items)),
    }
}

/// Each beginning of a list, the longest first.
fn rollup(items: &[Set]) -> Vec<Set> {
    (0..=items.len())
        .rev()
        .map(|length| items[..length].concat())
        .collect()
}

/// Each part of a list.
fn cube(items: &[Set]) -> Result<Vec<Set>> {
    if items.len() > CUBE_MAX {
        return Err(Faulty {
            fault: Fault::TooComplex,
            message: format!("CUBE is limited to {CUBE_MAX} elements"),
        }
        .into());
    }
    let parts = (0..1_u32 << items.len()).rev().map(|part| {
        let chosen = (items.iter().enumerate()).filter(|(at, _)| part & (1 << (items.len() - 1 - at)) != 0);
        chosen.flat_map(|(_, item)| item.clone()).collect()
    });
    Ok(parts.collect())
}

fn limited(sets: Vec<Set>) -> Result<Vec<Set>> {
    if sets.len() > SETS_MAX {
        return Err(Faulty {
            fault: Fault::TooComplex,
            message: format!("too many grouping sets present (maximum {SETS_MAX})"),
        }
        .into());
    }
    Ok(sets)
}

/// Whether two keys are the same column or expression. A column without its relation is the only one of that name.
fn is_same(one: &Expr, other: &Expr) -> bool {
    match (one, other) {
        (Expr::Identifier(name), Expr::CompoundIdentifier(path))
        | (Expr::CompoundIdentifier(path), Expr::Identifier(name)) => path
            .last()
            .is_some_and(|last| millrace_parser::fold(last) == millrace_parser::fold(name)),
        (Expr::Nested(one), other) | (other, Expr::Nested(one)) => is_same(one, other),
        _ => one == other,
    }
}
