//! Types that somebody made, in statements.

use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast;
use millrace_catalog::Reader;
use millrace_catalog::user_type::id_of;
use millrace_functions::sql::{clock_words, named_types};
use millrace_parser::ast::{CopySource, ExplainTarget, Statement};
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::composite::CompositeType;
use millrace_postgres::types::enumeration::EnumType;
use millrace_postgres::types::named::{NamedType, TypeNames, resolved};
use postgres_types::{Kind, Type};

use crate::session::Session;

/// Replaces the names of types, and the words that need a clock, in what is run at once. A definition keeps names, and has them
/// replaced where it is read.
///
/// # Errors
/// A name cannot be looked up; an array of a domain is meant.
pub(crate) fn resolve(session: &Session, statement: &mut Statement) -> SqlResult<()> {
    at_once(statement);
    let scope = session.scope();
    let reader = session.database().reader(&scope);
    let names = &WithRows(&reader);
    match statement {
        Statement::Sql(sql) => match sql.as_mut() {
            ast::Statement::CreateView(_) => Ok(()),
            // What it prepares is looked at when it runs.
            ast::Statement::Prepare { data_types, .. } => {
                for data_type in data_types {
                    *data_type = resolved(data_type, names)?.data_type;
                }
                Ok(())
            }
            sql => named_types::resolve(sql, names),
        },
        Statement::CreateTable(create) => named_types::resolve(&mut create.as_query, names),
        Statement::Copy(copy) => match &mut copy.source {
            CopySource::Query(query) => named_types::resolve(query.as_mut(), names),
            _ => Ok(()),
        },
        Statement::Explain(explain) => match &mut explain.target {
            ExplainTarget::Statement(inner) => resolve(session, inner),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The types that somebody made, and the rows of tables, streams and materialized views by their names.
struct WithRows<'a>(&'a Reader<'a>);

impl TypeNames for WithRows<'_> {
    fn named(&self, name: &ast::ObjectName) -> SqlResult<Option<NamedType>> {
        if let Some(known) = self.0.named(name)? {
            return Ok(Some(known));
        }
        let parts = name
            .0
            .iter()
            .map(|part| part.as_ident().map(millrace_parser::fold));
        let object = match parts.collect::<Option<Vec<String>>>().as_deref() {
            Some([name]) => self.0.object(None, name),
            Some([schema, name]) => self.0.object(Some(schema), name),
            _ => None,
        };
        let relation = object.and_then(|object| object.relation());
        Ok(relation.and_then(|relation| {
            let row = DataType::Struct(relation.schema().fields().clone());
            CompositeType::of(&Field::new("", row, true)).map(NamedType::Composite)
        }))
    }
}

fn at_once(statement: &mut Statement) {
    match statement {
        Statement::Sql(sql) => match sql.as_mut() {
            ast::Statement::CreateView(_) | ast::Statement::Prepare { .. } => {}
            sql => clock_words::replace(sql),
        },
        Statement::CreateTable(create) => clock_words::replace(&mut create.as_query),
        Statement::Copy(copy) => {
            if let CopySource::Query(query) = &mut copy.source {
                clock_words::replace(query.as_mut());
            }
        }
        Statement::Explain(explain) => {
            if let ExplainTarget::Statement(inner) = &mut explain.target {
                at_once(inner);
            }
        }
        _ => {}
    }
}

impl Session {
    /// Types of parameters as they are now: an enum has got values since a statement was prepared.
    pub fn types_now(&self, types: &[Type]) -> Vec<Type> {
        let catalog = self.catalog();
        let now = |pg: &Type| {
            let (of_array, element) = match pg.kind() {
                Kind::Array(element) => (true, element),
                _ => (false, pg),
            };
            let known = EnumType::from_pg(element)?;
            let object = id_of(known.oid).and_then(|id| catalog.object(id))?;
            match object.named_type()? {
                NamedType::Enum(known) if of_array => Some(known.array_pg_type()),
                NamedType::Enum(known) => Some(known.pg_type()),
                NamedType::Domain(_) | NamedType::Composite(_) => None,
            }
        };
        types
            .iter()
            .map(|pg| now(pg).unwrap_or_else(|| pg.clone()))
            .collect()
    }
}
