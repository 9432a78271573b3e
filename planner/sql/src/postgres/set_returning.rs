//! `FROM f(..)` of a set-returning function whose arguments name columns, or WITH ORDINALITY, becomes `UNNEST(f(..))`,
//! which the binder lets see the relations to its left.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Statement, TableAlias, TableAliasColumnDef, TableFactor, Visitor, VisitorMut,
};
use millrace_parser::walk::Walk;

/// Set-returning functions that are also functions to an array.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Whether it is the name of a function of one column, a series.
pub(crate) fn is_series(name: &ObjectName) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|name| SERIES.contains(&name.value.to_lowercase().as_str()))
}

/// Rewrites the set-returning functions in every FROM of a statement.
pub(crate) fn unnested(statement: &mut Statement) {
    let _ = statement.walk_mut(&mut SetReturning);
}

struct SetReturning;

impl VisitorMut for SetReturning {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        set_returning(factor);
        ControlFlow::Continue(())
    }
}

/// Gives `generate_series(..)` in FROM the name of its column, and makes UNNEST of it where its arguments or its
/// ordinality ask for that. With constants it stays a table function, which makes its rows one by one.
fn set_returning(factor: &mut TableFactor) {
    let (name, arguments, alias, with_ordinality, lateral) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            with_ordinality,
            ..
        } => (&*name, &args.args, alias, *with_ordinality, false),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            lateral,
        } => (&*name, &*args, alias, *with_ordinality, *lateral),
        _ => return,
    };
    let Some(function) = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(|ident| ident.value.to_lowercase())
    else {
        return;
    };
    // After LATERAL the parser has it for a function like any other.
    if function == "unnest" {
        let array_exprs = arguments
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Some(array.clone()),
                _ => None,
            })
            .collect();
        *factor = TableFactor::UNNEST {
            alias: alias.clone(),
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        };
        return;
    }
    if !SERIES.contains(&function.as_str()) {
        return;
    }
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function.as_str()),
        columns: vec![],
        at: None,
    });
    if !with_ordinality && !lateral && !arguments.iter().any(names_columns) {
        if alias.columns.is_empty() {
            alias.columns = vec![TableAliasColumnDef {
                name: alias.name.clone(),
                data_type: None,
            }];
        }
        return;
    }
    let call = Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(function)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.clone(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    });
    let alias = Some(alias.clone());
    *factor = TableFactor::UNNEST {
        alias,
        array_exprs: vec![call],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality,
    };
}

fn names_columns(argument: &FunctionArg) -> bool {
    struct Names;
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::CompoundFieldAccess { .. }
                | Expr::Subquery(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    argument.walk(&mut Names).is_break()
}
