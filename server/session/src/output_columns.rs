//! The columns of an answer, where the plan does not say what they are called and announced as.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use millrace_functions::sql::output_types::Notes;
use millrace_sql::copies;

/// What the columns of an answer are called and announced as, where the plan does not say it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputColumns {
    /// Their names; empty: those of the plan.
    pub names: Vec<String>,
    /// What is noted of their types; empty: what the plan says.
    pub notes: Vec<Notes>,
}

impl OutputColumns {
    /// The schema of an answer.
    pub fn applied(&self, schema: &Schema) -> SchemaRef {
        let fits = self.names.len() == schema.fields().len();
        let name = |index: usize, field: &Field| match fits {
            true => self.names[index].clone(),
            false => copies::original(field.name()).to_string(),
        };
        let is_noted = self.notes.len() == schema.fields().len();
        let fields: Vec<_> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let field = field.as_ref().clone().with_name(name(index, field));
                match is_noted {
                    true => field.with_metadata(self.notes[index].clone()),
                    false => field,
                }
            })
            .collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}
