//! Why a call failed, before it is an error of the statement.

use datafusion::error::DataFusionError;
use millrace_postgres::error::SqlError;

/// See the module.
#[derive(Debug)]
pub enum Fault {
    /// The value does not fit.
    Sql(SqlError),
    /// The program, or the engine.
    Js(rquickjs::Error),
    /// Arrow or DataFusion.
    Column(DataFusionError),
}

/// What may be a fault.
pub type Outcome<T> = Result<T, Fault>;

impl From<rquickjs::Error> for Fault {
    fn from(error: rquickjs::Error) -> Self {
        Fault::Js(error)
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault::Sql(error)
    }
}

impl From<DataFusionError> for Fault {
    fn from(error: DataFusionError) -> Self {
        Fault::Column(error)
    }
}
