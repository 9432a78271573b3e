//! `UNNEST(a, ..) [WITH ORDINALITY]` in FROM becomes `Unnest(Project(arrays))` over one row, with its columns named as PostgreSQL
//! names them: after the alias if there is one array, `unnest` otherwise, and `ordinality`.

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, NullHandling, UnnestOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::expr_fn::{coalesce, greatest};
use datafusion::functions_nested::expr_fn::{array_length, gen_series};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlannerContext};
use datafusion::logical_expr::{LogicalPlanBuilder, cast, col, lit};
use datafusion::sql::sqlparser::ast::{self, Ident, TableAlias, TableAliasColumnDef};

use crate::copies::copy;
use crate::error::{Fault, Faulty};

/// The plan of an UNNEST.
///
/// # Errors
/// It has no argument, or one that cannot be bound.
pub(crate) fn unnest(
    alias: Option<TableAlias>,
    arrays: Vec<ast::Expr>,
    with_ordinality: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<PlannedRelation> {
    let nothing = DFSchema::empty();
    let mut columns = vec![];
    for (position, array) in arrays.into_iter().enumerate() {
        let array = context.sql_expr_to_logical_expr(array, &nothing)?;
        columns.push(array.alias(format!("__unnest_{position}")));
    }
    if columns.is_empty() {
        return Err(DataFusionError::Plan(
            "UNNEST must have at least one argument".into(),
        ));
    }
    let arrays = columns.len();
    let mut plan = LogicalPlanBuilder::empty(true).project(columns)?;
    for field in plan.schema().fields() {
        check_array(field.data_type())?;
    }
    let mut unnested: Vec<String> = (0..arrays)
        .map(|position| format!("__unnest_{position}"))
        .collect();
    if with_ordinality {
        let length =
            |name: &String| coalesce(vec![cast(array_length(col(name)), DataType::Int64), lit(0_i64)]);
        let longest = match unnested.as_slice() {
            [only] => length(only),
            several => greatest(several.iter().map(length).collect()),
        };
        let ordinals = gen_series(lit(1_i64), longest, lit(1_i64)).alias("__ordinality");
        let all = unnested.iter().map(col).chain([ordinals]).collect::<Vec<_>>();
        plan = plan.project(all)?;
        unnested.push("__ordinality".into());
    }
    let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
    let plan = plan
        .unnest_columns_with_options(unnested.iter().map(Column::from_name).collect(), options)?
        .build()?;
    Ok(PlannedRelation::new(
        plan,
        Some(named(alias, arrays, with_ordinality)),
    ))
}

/// Refuses what has no elements.
fn check_array(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Null => Ok(()),
        _ => Err(Faulty {
            fault: Fault::UndefinedFunction,
            message: "the argument of unnest() must be an array".into(),
        }
        .into()),
    }
}

/// The alias with a name for each column.
pub(crate) fn named(alias: Option<TableAlias>, arrays: usize, with_ordinality: bool) -> TableAlias {
    let given = alias.is_some();
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new("unnest"),
        columns: vec![],
        at: None,
    });
    let default = |position: usize| match position {
        _ if position == arrays => Ident::new("ordinality"),
        0 if arrays == 1 && given => alias.name.clone(),
        0 => Ident::new("unnest"),
        _ => Ident::with_quote('"', copy("unnest", position)),
    };
    let missing: Vec<_> = (alias.columns.len()..arrays + usize::from(with_ordinality))
        .map(|position| TableAliasColumnDef {
            name: default(position),
            data_type: None,
        })
        .collect();
    alias.columns.extend(missing);
    alias
}
