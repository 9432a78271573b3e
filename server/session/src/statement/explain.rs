//! EXPLAIN: the logical plan, the physical plan, the stages, and with ANALYZE where the time went.

mod analyze;
mod change;
mod placement;
mod predict;
mod predict_view;
mod tree;
mod unnested;
mod watch;

pub(crate) use predict_view::filling;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, QueryDef};
use millrace_parser::ast::{Explain, ExplainFormat, ExplainTarget, ExplainType, Statement};
use millrace_planner::{RelationId, StageGraph, plan_view};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;

use crate::changes;
use crate::constants::lasting_search_path;
use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::query::{Providers, view_flow};
use crate::session::Session;
use crate::statement::create_view::{check_reads, emit, slides};
use crate::statement::view_options::options;
use crate::statement::{as_of, select, show};

/// Executes EXPLAIN.
pub async fn execute(session: &Arc<Session>, explain: Explain) -> SqlResult<Outcome> {
    check(&explain)?;
    let verbose = explain.options.verbose;
    let plan_type = explain.options.plan_type;
    let lines = match explain.target {
        ExplainTarget::Statement(statement) => match *statement {
            Statement::Sql(mut sql) if matches!(*sql, ast::Statement::Query(_)) => {
                if let ast::Statement::Query(query) = sql.as_ref()
                    && changes::has_changes(query)
                {
                    return Err(SqlError::unsupported(
                        "EXPLAIN of a query with data-modifying statements in WITH is not supported",
                    )
                    .with_hint("Explain its parts one by one."));
                }
                // The text of the whole begins with EXPLAIN; the query's own is what is left of the AST.
                let text = sql.to_string();
                let mut scope = session.scope();
                as_of::resolve(session, &mut scope, &mut sql).await?;
                if explain.analyze {
                    analyze::query(session, &scope, &mut sql, text, &explain.options).await?
                } else if explain.options.predict {
                    predict::query(session, &scope, &mut sql, text, &explain.options).await?
                } else {
                    let format = explain.options.format;
                    query(session, &scope, &mut sql, plan_type, format, verbose).await?
                }
            }
            Statement::Sql(sql) if change::is_change(&sql) => {
                let is_plain = !explain.analyze && !explain.options.predict;
                if !is_plain
                    || plan_type == ExplainType::Stages
                    || explain.options.format != ExplainFormat::Text
                {
                    let message = "EXPLAIN of INSERT, UPDATE and DELETE does not support ANALYZE, PREDICT, TYPE STAGES and FORMAT";
                    return Err(SqlError::unsupported(message).with_hint(
                        "Explain the query for its rows: EXPLAIN ANALYZE SELECT .. with the same conditions.",
                    ));
                }
                change::plan(session, *sql, plan_type, verbose).await?
            }
            Statement::CreateMaterializedView(create) if !explain.analyze => {
                let columns = create.columns.iter().map(millrace_parser::fold).collect();
                let options = options(session, &create.options)?;
                let definition =
                    QueryDef::new(create.query_text.clone(), lasting_search_path(session), columns)
                        .with_emit(emit(session, &create.emit)?)
                        .with_slides(slides(session));
                let definition = options.apply(definition);
                let (scope, db) = (session.scope(), session.database());
                let planned = db.plan_materialized(&scope.catalog, &scope.database, &definition)?;
                check_reads(&scope, &planned.query.depends())?;
                match explain.options.predict {
                    true => predict_view::view(session, &definition, &explain.options).await?,
                    false => view(session, &definition, plan_type, &BTreeMap::new())?,
                }
            }
            other => {
                return Err(SqlError::unsupported(format!(
                    "EXPLAIN {} is not supported",
                    first_word(&other)
                ))
                .with_hint(
                    "EXPLAIN supports queries, INSERT, UPDATE, DELETE and CREATE MATERIALIZED VIEW.",
                ));
            }
        },
        ExplainTarget::MaterializedViews => watch::views(session, &explain.options).await?,
        ExplainTarget::Profile(id) => analyze::kept(session, id, &explain.options)?,
        ExplainTarget::MaterializedView(name) | ExplainTarget::Sink(name) => {
            let scope = session.scope();
            let mut object = names::resolve(session, &scope, &name)?;
            // What a sink costs is what it reads.
            if let Definition::Sink(sink) = &object.definition
                && let Some(from) = scope.catalog.object(sink.relation).cloned()
            {
                object = from;
            }
            object.check_up()?;
            let definition = object
                .relation()
                .and_then(|relation| relation.query.clone())
                .ok_or_else(|| {
                    SqlError::new(
                        SqlState::WrongObjectType,
                        format!("\"{}\" is not a materialized view", object.name),
                    )
                })?;
            match explain.analyze {
                true => {
                    let db = session.database();
                    let planned = db.plan_materialized(&scope.catalog, &scope.database, &definition)?;
                    watch::view(session, &object, &planned.graph, &explain.options).await?
                }
                false if explain.options.predict => {
                    predict_view::view(session, &definition, &explain.options).await?
                }
                false => {
                    let runs = placement::faucets(session.database().runtime(), RelationId(object.id.0));
                    view(session, &definition, plan_type, &runs)?
                }
            }
        }
    };
    let rows = lines.iter().map(|line| vec![Some(unnested::as_written(line))]);
    let rows = rows.collect();
    let outcome = show::answer(show::schema(&["QUERY PLAN"]), &rows, "EXPLAIN")?;
    Ok(match outcome {
        Outcome::Rows { schema, stream, .. } => Outcome::Rows {
            schema,
            stream,
            tag: CommandTag::plain("EXPLAIN"),
        },
        other => other,
    })
}

/// Refuses options that say nothing together.
fn check(explain: &Explain) -> SqlResult<()> {
    let options = &explain.options;
    let is_query = match &explain.target {
        ExplainTarget::Statement(statement) => matches!(statement.as_ref(), Statement::Sql(_)),
        ExplainTarget::Profile(_) => true,
        _ => false,
    };
    let is_seen_only = matches!(
        explain.target,
        ExplainTarget::MaterializedViews | ExplainTarget::Profile(_)
    );
    let watches = !is_query && (explain.analyze || options.predict);
    let refused = |message: &str, hint: &str| {
        Err(SqlError::new(SqlState::InvalidParameterValue, message).with_hint(hint))
    };
    if is_seen_only && !explain.analyze {
        return refused(
            "EXPLAIN MATERIALIZED VIEWS and EXPLAIN PROFILE require ANALYZE",
            "Use EXPLAIN ANALYZE MATERIALIZED VIEWS, or EXPLAIN ANALYZE PROFILE 3.",
        );
    }
    if options.what_if.is_some() && !explain.analyze {
        return refused(
            "EXPLAIN option WHAT IF requires ANALYZE",
            "Use EXPLAIN ANALYZE (WHAT IF (..)).",
        );
    }
    if options.duration.is_some() && !watches {
        return refused(
            "EXPLAIN option DURATION requires a materialized view",
            "Use EXPLAIN ANALYZE (DURATION '10s') MATERIALIZED VIEW, or EXPLAIN (PREDICT, DURATION '10s') CREATE MATERIALIZED VIEW.",
        );
    }
    if options.predict && explain.analyze {
        return refused(
            "EXPLAIN options ANALYZE and PREDICT cannot be combined",
            "ANALYZE runs the statement, and PREDICT does not; ANALYZE shows the prediction, too.",
        );
    }
    if options.format == ExplainFormat::Dot && (explain.analyze || options.predict) {
        return Err(
            SqlError::unsupported("EXPLAIN options ANALYZE and PREDICT do not support FORMAT DOT")
                .with_hint("The formats are TEXT and JSON."),
        );
    }
    let is_plan_of_query = is_query && options.plan_type == ExplainType::Physical;
    let is_known =
        options.format == ExplainFormat::Text || options.format == ExplainFormat::Json && is_plan_of_query;
    if !is_known && !explain.analyze && !options.predict {
        return Err(SqlError::unsupported(
            "EXPLAIN is supported in FORMAT TEXT, and FORMAT JSON of the physical plan of a query",
        ));
    }
    Ok(())
}

fn first_word(statement: &Statement) -> String {
    statement
        .to_string()
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_string()
}

async fn query(
    session: &Arc<Session>,
    scope: &Scope,
    sql: &mut ast::Statement,
    plan_type: ExplainType,
    format: ExplainFormat,
    verbose: bool,
) -> SqlResult<Vec<String>> {
    let (plan, _) = select::bind(session, scope, sql, select::Purpose::Run)?;
    match plan_type {
        ExplainType::Logical => Ok(logical(session, &plan)?),
        ExplainType::Physical => {
            let choice = Arc::new(session.cyclic_joins(&plan)?);
            let physical = session
                .physical_plan_choosing(plan, &Providers::new(), Arc::clone(&choice))
                .await?;
            if format == ExplainFormat::Json {
                return tree::lines(physical.as_ref());
            }
            let mut lines = physical_lines(physical.as_ref(), verbose);
            let why = choice.binary().into_iter();
            lines.extend(why.map(|why| format!("cycle with binary joins: {why}")));
            Ok(lines)
        }
        ExplainType::Stages => {
            let database = session.database();
            let graph = plan_view(
                database.state(),
                plan,
                database.view_options(slides(session), view_flow(session)?),
            )?;
            Ok(stages(&graph, &BTreeMap::new()))
        }
    }
}

/// The plan of a view; `faucets` is what those of a view that runs do, by stage.
fn view(
    session: &Session,
    definition: &QueryDef,
    plan_type: ExplainType,
    faucets: &BTreeMap<usize, String>,
) -> SqlResult<Vec<String>> {
    let db = session.database();
    let scope = session.scope();
    if plan_type == ExplainType::Logical {
        let scope = Scope {
            search_path: definition.search_path.clone(),
            ..scope
        };
        let plan = db.reader(&scope).bind_query_text(definition)?;
        return logical(session, &plan);
    }
    let planned = db.plan_materialized(&scope.catalog, &scope.database, definition)?;
    Ok(stages(&planned.graph, faucets))
}

fn logical(session: &Session, plan: &LogicalPlan) -> SqlResult<Vec<String>> {
    let optimized = df(session.database().state().optimize(plan))?;
    Ok(split(&optimized.display_indent().to_string()))
}

fn physical_lines(plan: &dyn ExecutionPlan, verbose: bool) -> Vec<String> {
    split(&DisplayableExecutionPlan::new(plan).indent(verbose).to_string())
}

fn stages(graph: &StageGraph, faucets: &BTreeMap<usize, String>) -> Vec<String> {
    split(&millrace_planner::explain::stages_with(graph, faucets))
}

fn split(text: &str) -> Vec<String> {
    text.trim_end().lines().map(str::to_string).collect()
}
