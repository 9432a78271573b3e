//! The statement that would define an object as it is now.

use millrace_parser::quote_identifier;
use millrace_planner::RelationKind;

use super::{Definition, Object, QueryDef, Relation, kind_name};
use crate::column::ColumnDef;
use crate::connector::ConnectorDef;
use crate::event_time::EventTimeDef;
use crate::names::DEFAULT_SCHEMA;

impl Object {
    /// The same, of a stream or table with other columns; the key, its name and what was made with it stay.
    pub fn with_columns(
        &self,
        relation: &Relation,
        columns: Vec<ColumnDef>,
        event_time: Option<EventTimeDef>,
    ) -> Object {
        let kind = relation.info.kind;
        let mut changed = Relation::new(
            self.id,
            &self.name,
            kind,
            columns,
            relation.key(),
            kind == RelationKind::Stream,
        );
        changed.key_name.clone_from(&relation.key_name);
        let changed = changed
            .with_checks(relation.checks.clone())
            .with_foreign_keys(relation.foreign_keys.clone())
            .with_event_time(event_time)
            .with_connector(relation.connector.clone())
            .with_errors(relation.errors)
            .with_files(relation.files)
            .with_on_conflict(relation.on_conflict)
            .with_keeping(relation.keeping);
        let mut new = self.clone();
        new.definition = Definition::Relation(Box::new(changed));
        new.restate();
        new
    }

    /// Rewrites the statement, after what it defines was altered.
    pub fn restate(&mut self) {
        let name = match self.schema.as_str() {
            DEFAULT_SCHEMA | "" => quote_identifier(&self.name).to_string(),
            schema => format!("{}.{}", quote_identifier(schema), quote_identifier(&self.name)),
        };
        let kind = kind_name(self.kind).to_uppercase();
        let view = |query: &QueryDef| {
            let columns: Vec<_> = query
                .column_names
                .iter()
                .map(|name| quote_identifier(name))
                .collect();
            let columns = match columns.is_empty() {
                true => String::new(),
                false => format!(" ({})", columns.join(", ")),
            };
            format!(
                "CREATE {kind} {name}{columns}{} AS {}{}",
                query.options_clause(),
                query.text,
                query.emit_clause()
            )
        };
        self.sql = match &self.definition {
            Definition::View(query) => view(query),
            Definition::Relation(relation) => match &relation.query {
                Some(query) => view(query),
                None => {
                    let connector = relation.connector.iter().flat_map(ConnectorDef::options);
                    let event_time = relation.event_time.iter();
                    let is_generated = relation
                        .connector
                        .as_ref()
                        .is_some_and(ConnectorDef::is_generator);
                    let event_time = event_time.flat_map(|time| time.options(is_generated));
                    let keeping = relation.keeping.options();
                    let options: Vec<String> = connector.chain(event_time).chain(keeping).collect();
                    let options = match options.is_empty() {
                        true => String::new(),
                        false => format!(" WITH ({})", options.join(", ")),
                    };
                    let on_conflict = relation
                        .on_conflict
                        .map_or_else(String::new, |rule| format!(" ON CONFLICT {}", rule.clause()));
                    format!(
                        "CREATE {kind} {name} ({}){on_conflict}{options}",
                        relation.elements().join(", ")
                    )
                }
            },
            // What these say does not depend on their own name, or says it in its own way.
            Definition::Sequence(sequence) => format!("CREATE {kind} {name}{}", sequence.clause()),
            Definition::External(_)
            | Definition::Function(_)
            | Definition::Index(_)
            | Definition::Sink(_)
            | Definition::Role(_)
            | Definition::Secret(_)
            | Definition::Type(_)
            | Definition::FailedToLoad(_)
            | Definition::Other => {
                return;
            }
        };
    }
}
