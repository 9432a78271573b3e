//! SQL's AST to a logical plan: DataFusion's SQL planner over a catalog of ours.
//!
//! Functions, expression planners and options are the session state's; relations come from a [`CatalogReader`], so that
//! no `SessionContext` has to be built for a query.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    TableSource, WindowUDF, cast, col,
};
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast;
use millrace_sql::postgres::records;
use millrace_sql::streaming::time_join;
use millrace_sql::streaming::windows::functions as windows;
use millrace_sql::{Binding, CatalogReader, Fault, Faulty, passes, relations, sql_function};

use crate::relation::{RelationTable, without_keys};

/// Binds statements and expressions. Cheap to make: one a statement.
pub struct Binder<'a> {
    state: &'a SessionState,
    catalog: &'a dyn CatalogReader,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    /// Whether DataFusion hears of the keys of relations.
    tells_keys: bool,
}

impl<'a> Binder<'a> {
    pub fn new(state: &'a SessionState, catalog: &'a dyn CatalogReader) -> Self {
        Binder {
            state,
            catalog,
            relation_planners: relations::planners(state.relation_planners()),
            tells_keys: false,
        }
    }

    /// The plan as DataFusion's planner makes it, from relations without keys.
    ///
    /// DataFusion believes in a key where rows have it twice, or NULL in it: behind UNNEST, and in what groups by a key and by
    /// something else. It then leaves out columns of ORDER BY and GROUP BY, or adds some. Only a query that names columns
    /// beside the key that it groups by is planned with keys, and they are forgotten right after.
    fn bound(&self, statement: &ast::Statement) -> Result<LogicalPlan> {
        if let Ok(plan) = self.planner().sql_statement_to_plan(statement.clone()) {
            return Ok(plan);
        }
        let with_keys = Binder {
            tells_keys: true,
            relation_planners: self.relation_planners.clone(),
            ..*self
        };
        let plan = with_keys.planner().sql_statement_to_plan(statement.clone())?;
        Ok(without_keys(plan)?.data)
    }

    /// The value of an expression without columns.
    ///
    /// # Errors
    /// It names something, or fails.
    pub fn constant(&self, expression: &ast::Expr) -> Result<ScalarValue> {
        let expression = self.expression(expression, &DFSchema::empty())?;
        self.value_of(expression)
    }

    /// An argument of a function in FROM as a literal, which is all that those take: a cast of one may stand there as well.
    fn folded(&self, argument: Expr) -> Expr {
        if matches!(argument, Expr::Literal(..)) || argument.is_volatile() || argument.any_column_refs() {
            return argument;
        }
        match self.value_of(argument.clone()) {
            Ok(value) => Expr::Literal(value, None),
            Err(_) => argument,
        }
    }

    fn value_of(&self, expression: Expr) -> Result<ScalarValue> {
        let schema = DFSchema::empty();
        let expression = self.state.create_physical_expr(expression, &schema)?;
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
        match expression.evaluate(&row)? {
            ColumnarValue::Scalar(value) => Ok(value),
            ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0),
        }
    }

    /// The logical plan of a query or DML statement, not yet optimised.
    ///
    /// # Errors
    /// Unknown names, type errors and unsupported SQL, as DataFusion reports them.
    pub fn statement(&self, statement: &ast::Statement) -> Result<LogicalPlan> {
        passes::plan(statement, self)
    }

    /// The logical plan of a query.
    ///
    /// # Errors
    /// As [`Binder::statement`].
    pub fn query(&self, query: &ast::Query) -> Result<LogicalPlan> {
        self.statement(&ast::Statement::Query(Box::new(query.clone())))
    }

    /// An expression over the columns of `schema`.
    ///
    /// # Errors
    /// As [`Binder::statement`].
    pub fn expression(&self, expression: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
        let mut expression = expression.clone();
        sql_function::expand(&mut expression, self.catalog)?;
        records::as_calls(&mut expression);
        let expression = self
            .planner()
            .sql_to_expr(expression, schema, &mut PlannerContext::new())?;
        self.catalog.check_expression(&expression, schema)?;
        Ok(records::by_attributes(expression, schema)?.data)
    }

    /// The Arrow type of an SQL type, as casts in queries use it.
    ///
    /// # Errors
    /// The type is not supported.
    pub fn data_type(&self, sql_type: &ast::DataType) -> Result<DataType> {
        // The planner converts types only inside expressions: ask it for a cast, and look at the cast.
        let cast = ast::Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(ast::Expr::Value(ast::Value::Null.into())),
            data_type: sql_type.clone(),
            array: false,
            format: None,
        };
        let schema = DFSchema::empty();
        self.expression(&cast, &schema)?.get_type(&schema)
    }

    /// What stands for a function of a name that no function has.
    fn unknown(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let is_known = name == "unnest"
            || self.state.higher_order_functions().contains_key(name)
            || self.get_aggregate_meta(name).is_some()
            || self.get_window_meta(name).is_some();
        match is_known {
            true => None,
            false => self.catalog.unknown_function(name),
        }
    }

    fn planner(&self) -> SqlToRel<'_, Self> {
        let options = &self.state.config_options().sql_parser;
        SqlToRel::new_with_options(
            self,
            ParserOptions {
                parse_float_as_decimal: options.parse_float_as_decimal,
                enable_ident_normalization: options.enable_ident_normalization,
                enable_options_value_normalization: options.enable_options_value_normalization,
                support_varchar_with_length: options.support_varchar_with_length,
                map_string_types_to_utf8view: options.map_string_types_to_utf8view,
                collect_spans: options.collect_spans,
                default_null_ordering: options.default_null_ordering.as_str().into(),
            },
        )
    }
}

/// The rows of an array.
fn unnested(array: Expr) -> Result<Arc<dyn TableSource>> {
    let plan = LogicalPlanBuilder::empty(true)
        .project([array.alias("value")])?
        .unnest_column("value")?
        .build()?;
    Ok(provider_as_source(Arc::new(ViewTable::new(plan, None))))
}

/// A relation of one column, which is of another type.
fn narrowed(provider: Arc<dyn TableProvider>, element: &DataType) -> Result<Arc<dyn TableSource>> {
    let column = provider.schema().field(0).name().clone();
    let plan = LogicalPlanBuilder::scan("series", provider_as_source(provider), None)?;
    let narrow = cast(col(&column), element.clone()).alias(&column);
    let plan = plan.project([narrow])?.build()?;
    Ok(provider_as_source(Arc::new(ViewTable::new(plan, None))))
}

/// An end of a series whose elements are of a type, as DataFusion's series want it: a bigint, a time, NULL without a type.
fn end_of_series(argument: Expr, element: &DataType) -> Result<Expr> {
    Ok(match argument {
        Expr::Literal(value, notes) if value.is_null() => Expr::Literal(ScalarValue::Null, notes),
        Expr::Literal(value, notes) if element.is_integer() => {
            let wide = value.cast_to(element)?.cast_to(&DataType::Int64)?;
            Expr::Literal(wide, notes)
        }
        other => other,
    })
}

impl ContextProvider for Binder<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let provider = self.catalog.table(&name)?;
        Ok(provider_as_source(
            match provider.downcast_ref::<RelationTable>() {
                Some(table) if !self.tells_keys => Arc::new(RelationTable::keyless(table.info.clone())),
                _ => provider,
            },
        ))
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let function = self.state.table_functions().get(name).ok_or_else(|| {
            let fault = Fault::UndefinedFunction;
            let message = format!("function {name} does not exist");
            DataFusionError::from(Faulty { fault, message })
        })?;
        let mut args: Vec<Expr> = args.into_iter().map(|arg| self.folded(arg)).collect();
        let mut as_element = None;
        if matches!(name, "generate_series" | "range") {
            // What makes an array of the series knows of what type its elements are.
            if let Some(series) = self.state.scalar_functions().get("generate_series") {
                let array = series.call(args.clone());
                let element = match array.get_type(&DFSchema::empty())? {
                    DataType::List(item) => item.data_type().clone(),
                    other => other,
                };
                if matches!(element, DataType::Decimal128(..)) {
                    return unnested(array);
                }
                args = (args.into_iter())
                    .map(|arg| end_of_series(arg, &element))
                    .collect::<Result<_>>()?;
                as_element = (element == DataType::Int32).then_some(element);
            }
            if let Some(Expr::Literal(ScalarValue::Int64(Some(0)), _)) = args.get(2) {
                let message = "step size cannot equal zero".to_owned();
                return Err(Faulty {
                    fault: Fault::InvalidParameter,
                    message,
                }
                .into());
            }
        }
        let provider = function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?;
        match as_element {
            Some(element) => narrowed(provider, &element),
            None => Ok(provider_as_source(provider)),
        }
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        None
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let known = || self.state.scalar_functions().get(name).cloned();
        (self.catalog.scalar_function(name))
            .or_else(known)
            .or_else(|| time_join::marker(name))
            .or_else(|| windows::function(name))
            .or_else(|| records::function(name))
            .or_else(|| self.unknown(name))
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        (self.catalog.aggregate_function(name))
            .or_else(|| self.state.aggregate_functions().get(name).cloned())
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        sorted(self.state.scalar_functions())
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        sorted(self.state.higher_order_functions())
    }

    fn udaf_names(&self) -> Vec<String> {
        sorted(self.state.aggregate_functions())
    }

    fn udwf_names(&self) -> Vec<String> {
        sorted(self.state.window_functions())
    }
}

impl Binding for Binder<'_> {
    fn catalog(&self) -> &dyn CatalogReader {
        self.catalog
    }

    fn bind(&self, statement: &ast::Statement) -> Result<LogicalPlan> {
        self.bound(statement)
    }

    fn constant(&self, expression: &ast::Expr) -> Result<ScalarValue> {
        Binder::constant(self, expression)
    }
}

fn sorted<V>(map: &HashMap<String, V>) -> Vec<String> {
    let mut names: Vec<String> = map.keys().cloned().collect();
    names.sort();
    names
}
