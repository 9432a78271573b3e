//! A function or reducer as it was written: its name, its types and its text.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields};

/// What a program makes of its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Form {
    /// A value of each row.
    Scalar,
    /// Rows of each row: a list of values, or of records where the columns have names of their own.
    Rows,
    /// A value of the rows of a group.
    Reducer,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    /// Without its schema.
    pub name: String,
    pub form: Form,
    /// Parameters, by their names.
    pub parameters: Vec<FieldRef>,
    /// Of its value; of a function or a reducer that gives rows, of one row: a struct if the columns have names.
    pub returns: FieldRef,
    /// Whether a reducer gives rows.
    pub gives_rows: bool,
    /// Whether a NULL among the arguments makes NULL, and nothing is called.
    pub strict: bool,
    pub body: String,
}

impl Program {
    /// What errors call it: `function "f"`.
    pub fn described(&self) -> String {
        let what = if self.form == Form::Reducer {
            "reducer"
        } else {
            "function"
        };
        format!("{what} \"{}\"", self.name)
    }

    /// The Arrow type of what a call gives.
    pub fn value_type(&self) -> DataType {
        self.value_field().data_type().clone()
    }

    /// What a call gives, as a column.
    pub fn value_field(&self) -> Field {
        match self.form == Form::Rows || self.gives_rows {
            true => Field::new("rows", DataType::List(self.row_field()), true),
            false => self.returns.as_ref().clone(),
        }
    }

    /// A row of those that it gives.
    fn row_field(&self) -> FieldRef {
        Field::clone(&self.returns).with_name("item").into()
    }

    /// The columns of the rows of a table.
    pub fn record(columns: Vec<Field>) -> FieldRef {
        Field::new("item", DataType::Struct(Fields::from(columns)), true).into()
    }
}

/// A program with what it is found by.
#[derive(Debug, Clone)]
pub struct Keyed {
    pub program: Arc<Program>,
    pub key: u64,
}

impl Keyed {
    pub fn new(program: Program) -> Keyed {
        let mut hasher = DefaultHasher::new();
        program.hash(&mut hasher);
        Keyed {
            program: Arc::new(program),
            key: hasher.finish(),
        }
    }
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.program == other.program
    }
}

impl Eq for Keyed {}

impl Hash for Keyed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// The one value of a column. DataFusion would forget what a list's field says of its elements.
#[cfg(feature = "engine")]
pub(crate) fn single(
    made: &arrow::array::ArrayRef,
) -> datafusion::error::Result<datafusion::common::ScalarValue> {
    use arrow::array::AsArray;
    use datafusion::common::ScalarValue;

    match made.data_type() {
        DataType::List(_) => Ok(ScalarValue::List(Arc::new(made.as_list::<i32>().clone()))),
        _ => ScalarValue::try_from_array(made, 0),
    }
}
