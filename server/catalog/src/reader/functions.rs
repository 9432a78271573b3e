//! How names become functions: those in SQL are replaced by their bodies, those in JavaScript are known to the binder by a name that the
//! reader gives them.

use std::sync::Arc;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::sql::sqlparser::ast;
use millrace_javascript::{reducer, scalar};
use millrace_postgres::error::SqlResult;
use millrace_sql::SqlFunction;

use super::Reader;
use crate::bound::BoundName;
use crate::function::FunctionDef;
use crate::object::{Definition, Object};
use crate::rights::Privileges;

/// A function in JavaScript, as plans have it.
pub(super) enum Javascript {
    Function(Arc<ScalarUDF>),
    Reducer(Arc<AggregateUDF>),
}

impl<'a> Reader<'a> {
    /// The function that a name means, looked for along the search path.
    pub fn function_object(&self, schema: Option<&str>, name: &str) -> Option<&'a Arc<Object>> {
        match schema {
            Some(schema) => self.catalog.function(self.database, schema, name),
            None => (self.search_path.iter())
                .find_map(|schema| self.catalog.function(self.database, schema, name)),
        }
    }

    /// A function in SQL as what takes the place of its calls, with what it asks about whoever calls it answered.
    ///
    /// # Errors
    /// Its types are not there any more, or what it asks has no answer here.
    pub fn inlined(&self, function: &FunctionDef, written: &str) -> SqlResult<SqlFunction> {
        let mut inlined = function.inlined(written, self)?;
        self.answer_for_caller(&mut inlined.body)?;
        Ok(inlined)
    }

    pub(super) fn sql_function(&self, name: &ast::ObjectName) -> SqlResult<Option<SqlFunction>> {
        let parts: Option<Vec<String>> = (name.0.iter())
            .map(|part| part.as_ident().map(millrace_parser::fold))
            .collect();
        let (schema, name) = match parts.as_deref() {
            Some([name]) => (None, name),
            Some([schema, name]) => (Some(schema.as_str()), name),
            _ => return Ok(None),
        };
        // A relation may have the same name.
        let written = match schema {
            Some(schema) => format!("{schema}.{name}()"),
            None => format!("{name}()"),
        };
        let bound = self.bound.iter().find(|bound| bound.name == written);
        let object = match bound {
            Some(bound) => self.catalog.object(bound.object),
            None => self.function_object(schema, name),
        };
        let Some((object, Definition::Function(function))) =
            object.map(|object| (object, &object.definition))
        else {
            return Ok(None);
        };
        let bound = BoundName {
            name: written.clone(),
            object: object.id,
            columns: vec![],
        };
        if let Some(scope) = self.checked {
            scope.check(object, Privileges::EXECUTE)?;
        }
        self.used.borrow_mut().insert(written, bound);
        if !function.is_javascript() {
            return self.inlined(function, &object.name).map(Some);
        }
        let called = format!("javascript {}", object.id.0);
        let is_new = !self.javascript.borrow().contains_key(&called);
        if is_new {
            let program = function.program(&object.name, self)?;
            let engine = self.system.javascript();
            let made = match function.is_aggregate {
                true => Javascript::Reducer(Arc::new(reducer::aggregate(program, engine)?)),
                false => Javascript::Function(Arc::new(scalar::function(program, engine))),
            };
            self.javascript.borrow_mut().insert(called.clone(), made);
        }
        function.called(&called, &object.name, self).map(Some)
    }
}
