//! How names in a statement become relations: the search path, views, and the system's own relations.

mod caller;
mod functions;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF};
use datafusion::sql::sqlparser::ast;
use millrace_functions::sql::{
    alike_literals, bound, comparisons, equality, named_types, output_types, rewrite, type_check,
};
use millrace_javascript::Engine;
use millrace_planner::{Binder, Emit};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::named::{NamedType, TypeNames};
use millrace_sql::{CatalogReader, SqlFunction};

pub use self::caller::{call_of_name, of_caller};
use self::functions::Javascript;
use crate::bound::{BoundName, BoundView};
use crate::names::SYSTEM_SCHEMAS;
use crate::object::{Definition, Object, QueryDef};
use crate::scope::{Acting, Scope};
use crate::settings::Settings;
use crate::snapshot::CatalogSnapshot;
use crate::temporary::{OWN_SCHEMA, is_temporary};

/// The relations that nobody made: `pg_catalog`, `information_schema`, `mr_catalog`.
pub trait SystemRelations: Sync {
    /// The relation of that name in that system schema, if there is one, as `viewer` may see it.
    ///
    /// # Errors
    /// Its rows could not be put together.
    fn system_relation(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        schema: &str,
        name: &str,
        viewer: Acting,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>>;

    /// Whether a function of the system sees what the names of a statement mean, or who gives it.
    fn asks_statement(&self, name: &str) -> bool;

    /// A function of the system that sees what the names of a statement mean; `None`: it does not depend on that.
    fn function(&self, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>>;

    /// A setting of the server, as it is shown; `None`: the name is none of one.
    fn server_setting(&self, name: &str) -> Option<String>;

    /// What runs functions in JavaScript.
    fn javascript(&self) -> &Arc<Engine>;

    /// A relation of `pg_catalog` that shows what the session has: `pg_settings`, `pg_cursors`, `pg_prepared_statements`; `None`:
    /// the name is another's.
    ///
    /// # Errors
    /// Its rows could not be put together.
    fn of_session(
        &self,
        name: &str,
        settings: &Settings,
        session: Option<i32>,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>>;
}

/// Views within views within views: more than this is taken for a mistake.
const VIEW_DEPTH_MAX: usize = 64;

/// Resolves the names of one statement.
pub struct Reader<'a> {
    system: &'a dyn SystemRelations,
    state: &'a SessionState,
    catalog: &'a CatalogSnapshot,
    database: &'a str,
    search_path: &'a [String],
    /// What names mean, whatever the search path says: those of a view's query.
    bound: &'a [BoundName],
    /// What the statement sees; none: what there is at the start.
    scope: Option<&'a Scope>,
    /// The same, if it is asked whether whoever acts may read what is named. What is inside of a view is read with the rights of its
    /// owner, which are looked at where the view is named.
    checked: Option<&'a Scope>,
    depth: usize,
    /// Whether the plan is one of a materialized view.
    plans_view: bool,
    used: RefCell<BTreeMap<String, BoundName>>,
    /// The functions in JavaScript that were named, under the names by which their calls go on.
    javascript: RefCell<BTreeMap<String, Javascript>>,
    /// Whether something was named that means another thing to another statement: a relation of the system, which holds the rows of
    /// one moment, or a function that asks who calls it.
    is_of_statement: Cell<bool>,
}

impl<'a> Reader<'a> {
    /// A reader for a session in `database` with this search path.
    pub fn new(
        system: &'a dyn SystemRelations,
        state: &'a SessionState,
        catalog: &'a CatalogSnapshot,
        database: &'a str,
        search_path: &'a [String],
    ) -> Self {
        Reader {
            system,
            state,
            catalog,
            database,
            search_path,
            bound: &[],
            scope: None,
            checked: None,
            depth: 0,
            plans_view: false,
            used: RefCell::default(),
            javascript: RefCell::default(),
            is_of_statement: Cell::default(),
        }
    }

    /// A reader for the query of a view in `database`.
    pub fn of_query(
        system: &'a dyn SystemRelations,
        state: &'a SessionState,
        catalog: &'a CatalogSnapshot,
        database: &'a str,
        query: &'a QueryDef,
    ) -> Self {
        Reader {
            bound: &query.names,
            plans_view: true,
            ..Reader::new(system, state, catalog, database, &query.search_path)
        }
    }

    /// What was named so far and what it means.
    pub fn names(&self) -> Vec<BoundName> {
        self.used.borrow().values().cloned().collect()
    }

    /// The database, the schema (if given) and the name that a reference names.
    ///
    /// # Errors
    /// It names another database.
    pub fn parts<'b>(&self, name: &'b TableReference) -> SqlResult<(Option<&'b str>, &'b str)> {
        match name {
            TableReference::Bare { table } => Ok((None, table)),
            TableReference::Partial { schema, table } => Ok((Some(schema), table)),
            TableReference::Full {
                catalog,
                schema,
                table,
            } => {
                if catalog.as_ref() != self.database {
                    return Err(SqlError::unsupported(format!(
                        "cross-database references are not implemented: \"{catalog}.{schema}.{table}\""
                    )));
                }
                Ok((Some(schema), table))
            }
        }
    }

    /// The object that a name means, looked for along the search path; `None`: there is none, or it is the system's.
    pub fn object(&self, schema: Option<&str>, name: &str) -> Option<&'a Arc<Object>> {
        let own = |schema: &&String| is_temporary(schema);
        match schema {
            Some(OWN_SCHEMA) => {
                let schema = self.search_path.iter().find(own)?;
                self.catalog.relation(self.database, schema, name)
            }
            // Nobody looks into those of others.
            Some(schema) if is_temporary(schema) && !self.search_path.iter().any(|own| own == schema) => None,
            Some(schema) => self.catalog.relation(self.database, schema, name),
            None => self
                .search_path
                .iter()
                .find_map(|schema| self.catalog.relation(self.database, schema, name)),
        }
    }

    /// The type that somebody made that a name means, looked for along the search path.
    ///
    /// # Errors
    /// It names another database, or a schema into which whoever acts may not look.
    pub fn user_type(&self, name: &ast::ObjectName) -> SqlResult<Option<&'a Arc<Object>>> {
        if !self.catalog.has_user_types() {
            return Ok(None);
        }
        let parts: Option<Vec<String>> = (name.0.iter())
            .map(|part| part.as_ident().map(millrace_parser::fold))
            .collect();
        let (schema, base) = match parts.as_deref() {
            Some([base]) => (None, base),
            Some([schema, base]) => (Some(schema.as_str()), base),
            Some([database, schema, base]) if database == self.database => (Some(schema.as_str()), base),
            _ => return Ok(None),
        };
        if let (Some(scope), Some(schema)) = (self.checked, schema) {
            scope.check_schema(schema)?;
        }
        // A relation or a function may have the same name.
        let written = match schema {
            Some(schema) => format!("{schema}.{base}::"),
            None => format!("{base}::"),
        };
        let bound = self.bound.iter().find(|bound| bound.name == written);
        let within = |schema: &str| self.catalog.user_type(self.database, schema, base);
        let object = match (bound, schema) {
            (Some(bound), _) => self.catalog.object(bound.object),
            (None, Some(schema)) => within(schema),
            (None, None) => self.search_path.iter().find_map(|schema| within(schema)),
        };
        if let Some(object) = object {
            object.check_up()?;
            let bound = BoundName {
                name: written.clone(),
                object: object.id,
                columns: vec![],
            };
            self.used.borrow_mut().insert(written, bound);
        }
        Ok(object)
    }

    /// The error for a name that means nothing, with the nearest that means something.
    pub fn undefined(&self, schema: Option<&str>, name: &str) -> SqlError {
        let written = match schema {
            Some(schema) => format!("{schema}.{name}"),
            None => name.to_string(),
        };
        let visible = self
            .catalog
            .relations(self.database)
            .filter(|object| match schema {
                Some(schema) => object.schema == schema,
                None => self.search_path.contains(&object.schema),
            });
        let hint = did_you_mean(name, visible.map(|object| object.name.as_str()));
        if let Some(schema) = schema
            && !self.catalog.has_schema(self.database, schema)
        {
            let schemas = self
                .catalog
                .schemas(self.database)
                .map(|object| object.name.as_str());
            let hint = did_you_mean(schema, schemas.chain(SYSTEM_SCHEMAS));
            return SqlError::new(
                SqlState::UndefinedTable,
                format!("relation \"{written}\" does not exist"),
            )
            .with_detail(format!("Schema \"{schema}\" does not exist."))
            .with_hint_opt(hint);
        }
        SqlError::new(
            SqlState::UndefinedTable,
            format!("relation \"{written}\" does not exist"),
        )
        .with_hint_opt(hint)
    }

    fn system(&self, schema: Option<&str>, name: &str) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        let viewer = self.scope.map_or(Acting::SYSTEM, |scope| scope.acting);
        if matches!(schema, None | Some("pg_catalog")) && name.starts_with("pg_") {
            let settings = self.scope.map(|scope| scope.settings.clone());
            let session = self.scope.and_then(|scope| scope.session);
            let found = (self.system).of_session(name, &settings.unwrap_or_default(), session)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        match schema {
            Some(schema) if SYSTEM_SCHEMAS.contains(&schema) => {
                self.system
                    .system_relation(self.catalog, self.database, schema, name, viewer)
            }
            Some(_) => Ok(None),
            // pg_catalog is searched first even where the path does not name it.
            None if name.starts_with("pg_") => {
                self.system
                    .system_relation(self.catalog, self.database, "pg_catalog", name, viewer)
            }
            None => {
                for schema in self
                    .search_path
                    .iter()
                    .filter(|schema| SYSTEM_SCHEMAS.contains(&schema.as_str()))
                {
                    let found =
                        self.system
                            .system_relation(self.catalog, self.database, schema, name, viewer)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Ok(None)
            }
        }
    }

    fn resolve(&self, reference: &TableReference) -> SqlResult<Arc<dyn TableProvider>> {
        let (schema, name) = self.parts(reference)?;
        // The query of a view names none of them.
        let given = self.scope.filter(|_| self.depth == 0 && schema.is_none());
        if let Some(rows) = given.and_then(|scope| scope.given.get(name)) {
            return Ok(Arc::clone(rows));
        }
        if let (Some(scope), Some(schema)) = (self.checked, schema) {
            scope.check_schema(schema)?;
        }
        if let Some(provider) = self.system(schema, name)? {
            self.is_of_statement.set(true);
            return Ok(provider);
        }
        let written = match schema {
            Some(schema) => format!("{schema}.{name}"),
            None => name.to_string(),
        };
        if let Some(bound) = self.bound.iter().find(|bound| bound.name == written) {
            let object = self
                .catalog
                .object(bound.object)
                .ok_or_else(|| self.undefined(schema, name))?;
            self.used.borrow_mut().insert(written, bound.clone());
            return bound
                .known(self.provider(object)?)
                .map_err(from_internal::datafusion);
        }
        let object = self
            .object(schema, name)
            .ok_or_else(|| self.undefined(schema, name))?;
        if let Some(scope) = self.checked {
            scope.check_read(object)?;
        }
        let provider = self.provider(object)?;
        let bound = BoundName::now(written.clone(), object.id, provider.as_ref());
        self.used.borrow_mut().insert(written, bound);
        Ok(provider)
    }

    /// The provider of an object that can be read.
    ///
    /// # Errors
    /// It cannot.
    pub fn provider(&self, object: &Object) -> SqlResult<Arc<dyn TableProvider>> {
        object.check_up()?;
        match &object.definition {
            Definition::Relation(relation) => match &relation.query {
                Some(query) if self.catalog.is_unfilled(object.id) => self.unfilled(object, query),
                _ => Ok(Arc::clone(&relation.provider) as Arc<dyn TableProvider>),
            },
            Definition::View(query) => self.view(object, query),
            Definition::External(table) => Ok(Arc::clone(table) as Arc<dyn TableProvider>),
            Definition::Function(_)
            | Definition::Index(_)
            | Definition::Sequence(_)
            | Definition::Sink(_)
            | Definition::Role(_)
            | Definition::Secret(_)
            | Definition::Type(_)
            | Definition::FailedToLoad(_)
            | Definition::Other => Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("cannot open {} as a relation", object.described()),
            )),
        }
    }

    /// What a materialized view is going to have, of which COMMIT makes the rows: its query.
    fn unfilled(&self, object: &Object, query: &QueryDef) -> SqlResult<Arc<dyn TableProvider>> {
        if query.emit != Emit::Changes {
            return Err(SqlError::unsupported(format!(
                "materialized view \"{}\" cannot be read in the transaction that made it",
                object.name
            ))
            .with_detail("When its rows are shown depends on time, which passes after COMMIT."));
        }
        self.view(object, &query.with_names(query.names.clone()))
    }

    /// The provider of a view, which is kept with the view from then on, unless it means another thing to another statement.
    ///
    /// # Errors
    /// The view's query does not bind.
    pub fn view(&self, object: &Object, query: &QueryDef) -> SqlResult<Arc<dyn TableProvider>> {
        if let Some(bound) = query.bound.get().filter(|bound| bound.lasts) {
            return Ok(Arc::clone(&bound.provider));
        }
        if self.depth >= VIEW_DEPTH_MAX {
            return Err(SqlError::new(
                SqlState::StatementTooComplex,
                format!(
                    "views are nested more than {VIEW_DEPTH_MAX} deep, at \"{}\"",
                    object.name
                ),
            ));
        }
        let reader = Reader {
            system: self.system,
            state: self.state,
            catalog: self.catalog,
            database: &object.database,
            search_path: &query.search_path,
            bound: &query.names,
            scope: self.scope,
            checked: None,
            depth: self.depth + 1,
            plans_view: self.plans_view,
            used: RefCell::default(),
            javascript: RefCell::default(),
            is_of_statement: Cell::default(),
        };
        let plan = reader.bind_query_text(query)?;
        let provider: Arc<dyn TableProvider> = Arc::new(ViewTable::new(plan, Some(query.text.clone())));
        let is_of_statement = reader.is_of_statement.get();
        self.is_of_statement
            .set(self.is_of_statement.get() || is_of_statement);
        query.bound.get_or_init(|| BoundView {
            provider: Arc::clone(&provider),
            lasts: !is_of_statement,
        });
        Ok(provider)
    }

    /// The plan of a view's query, with the names of its columns.
    ///
    /// # Errors
    /// The query no longer parses or binds.
    pub fn bind_query_text(&self, query: &QueryDef) -> SqlResult<LogicalPlan> {
        let mut parsed = millrace_parser::parse(&query.text).map_err(from_internal::parse)?;
        let statement = match parsed.pop().map(|parsed| parsed.statement) {
            Some(millrace_parser::ast::Statement::Sql(statement)) if parsed.is_empty() => *statement,
            _ => {
                return Err(SqlError::internal(format!(
                    "the text of a view is not a single query: {}",
                    query.text
                )));
            }
        };
        let ast::Statement::Query(mut body) = statement else {
            return Err(SqlError::internal(format!(
                "the text of a view is not a query: {}",
                query.text
            )));
        };
        self.answer_for_caller(&mut body)?;
        if self.catalog.has_user_types() {
            named_types::resolve(&mut body, self)?;
        }
        rewrite::query(&mut body)?;
        let plan = self.bind_query(&body)?;
        rename(plan, &query.column_names)
    }

    /// The plan of a query that was rewritten already.
    ///
    /// # Errors
    /// Names, types or constructs that do not bind.
    pub fn bind_query(&self, query: &ast::Query) -> SqlResult<LogicalPlan> {
        Binder::new(self.state, self)
            .query(query)
            .and_then(output_types::noted)
            .and_then(comparisons::read_literals)
            .and_then(equality::by_value)
            .and_then(bound::as_postgresql)
            .map_err(from_internal::datafusion)
    }
}

impl Scope {
    /// A reader of the catalog under this scope.
    pub fn reader<'a>(&'a self, system: &'a dyn SystemRelations, state: &'a SessionState) -> Reader<'a> {
        Reader {
            scope: Some(self),
            checked: self.acting.is_checked.then_some(self),
            ..Reader::new(system, state, &self.catalog, &self.database, &self.search_path)
        }
    }
}

/// The plan with these names for its first columns.
///
/// # Errors
/// There are more names than columns.
pub fn rename(plan: LogicalPlan, names: &[String]) -> SqlResult<LogicalPlan> {
    if names.is_empty() {
        return Ok(plan);
    }
    let columns = plan.schema().columns();
    if names.len() > columns.len() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    let expressions: Vec<Expr> = columns
        .into_iter()
        .enumerate()
        .map(|(index, column)| match names.get(index) {
            Some(name) => Expr::Column(column).alias(name),
            None => Expr::Column(column),
        })
        .collect();
    LogicalPlanBuilder::from(plan)
        .project(expressions)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_internal::datafusion)
}

impl TypeNames for Reader<'_> {
    fn named(&self, name: &ast::ObjectName) -> SqlResult<Option<NamedType>> {
        Ok(self.user_type(name)?.and_then(|object| object.named_type()))
    }
}

impl CatalogReader for Reader<'_> {
    fn plans_view(&self) -> bool {
        self.plans_view
    }

    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>> {
        self.resolve(name).map_err(Into::into)
    }

    fn is_same(&self, one: &TableReference, other: &TableReference) -> bool {
        let object = |name: &TableReference| {
            let (schema, name) = self.parts(name).ok()?;
            self.object(schema, name)
        };
        match (object(one), object(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => one == other,
        }
    }

    fn function(&self, name: &ast::ObjectName) -> Result<Option<SqlFunction>> {
        self.sql_function(name).map_err(Into::into)
    }

    fn scalar_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if let Some(Javascript::Function(known)) = self.javascript.borrow().get(name) {
            return Some(Arc::clone(known));
        }
        if !self.system.asks_statement(name) {
            return None;
        }
        self.is_of_statement.set(true);
        self.system.function(self.scope?, name)
    }

    fn unknown_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        Some(millrace_functions::unknown::function(name))
    }

    fn aggregate_function(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        match self.javascript.borrow().get(name) {
            Some(Javascript::Reducer(known)) => Some(Arc::clone(known)),
            _ => None,
        }
    }

    fn check_types(&self, plan: &LogicalPlan) -> Result<()> {
        // Arguments that were taken once are not looked at again.
        type_check::plan(plan, self.bound.is_empty())
    }

    fn read_literals(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        alike_literals::read(plan)
    }

    fn check_expression(&self, expression: &Expr, schema: &DFSchema) -> Result<()> {
        type_check::expression(expression, schema)?;
        type_check::arguments(expression, schema)
    }

    fn is_proctime(&self, table: &TableReference, column: &str) -> bool {
        let object = self
            .parts(table)
            .ok()
            .and_then(|(schema, name)| self.object(schema, name));
        match object.map(|object| &object.definition) {
            Some(Definition::Relation(relation)) => relation
                .columns
                .iter()
                .any(|known| known.proctime && known.field.name() == column),
            _ => false,
        }
    }
}
