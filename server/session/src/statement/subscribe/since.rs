//! Where the reader of a subscription begins: `SINCE ..`, `AS OF ..`.
//!
//! | | begins |
//! |---|---|
//! | a whole number | behind that epoch, as `epoch` of a row has it |
//! | a moment | behind it |
//! | `now()`, `proctime()` | with what changes from now on |
//! | `begin()` | with the oldest change that is kept |

use arrow::array::AsArray;
use arrow::datatypes::{Field, TimestampMicrosecondType};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Expr;
use millrace_database::database::subscriptions::Begin;
use millrace_functions::cast;
use millrace_functions::syntax::name_of;
use millrace_parser::ast::Subscribe;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::timestamptz;

use crate::query::Providers;
use crate::session::Session;
use crate::statement::select;

/// Where a SUBSCRIBE begins.
///
/// # Errors
/// It is not said as it can be.
pub(super) async fn of(session: &Session, subscribe: &Subscribe) -> SqlResult<Begin> {
    match (&subscribe.as_of, subscribe.snapshot) {
        (None, true) => Ok(Begin::Rows),
        (None, false) => Ok(Begin::Now),
        (Some(expr), snapshot) => match from_expression(session, expr).await? {
            Begin::Epoch(epoch) if snapshot => Ok(Begin::RowsOf(epoch)),
            Begin::Now if snapshot => Ok(Begin::Rows),
            Begin::Oldest if snapshot => Err(SqlError::unsupported(
                "SUBSCRIBE .. AS OF begin() is not supported with a snapshot",
            )
            .with_hint("Use WITH (SNAPSHOT = false).")),
            begin => Ok(begin),
        },
    }
}

/// What an expression says.
///
/// # Errors
/// It is not an epoch or a moment.
pub(crate) async fn from_expression(session: &Session, expr: &Expr) -> SqlResult<Begin> {
    if let Expr::Function(function) = expr {
        match name_of(function).as_deref() {
            Some("begin") => return Ok(Begin::Oldest),
            Some("now" | "proctime") => return Ok(Begin::Now),
            _ => {}
        }
    }
    let wrong = || {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("{expr} is not an epoch or a timestamp"),
        )
        .with_hint("Give the epoch of a row, a timestamp, begin() or now().")
    };
    let mut query = select::parse_query(&format!("SELECT {expr}"))?;
    let scope = session.scope();
    let (plan, _) = select::bind(session, &scope, &mut query, select::Purpose::Run)?;
    let rows = session.collect(plan, &Providers::new()).await?;
    let rows = match rows.as_slice() {
        [rows] if rows.num_rows() == 1 && rows.num_columns() == 1 => rows,
        _ => return Err(wrong()),
    };
    let value = df(ScalarValue::try_from_array(rows.column(0), 0))?;
    if value.is_null() {
        return Err(wrong());
    }
    if value.data_type().is_integer() {
        let epoch = df(value.cast_to(&arrow::datatypes::DataType::Int64))?;
        let ScalarValue::Int64(Some(epoch)) = epoch else {
            return Err(wrong());
        };
        return u64::try_from(epoch).map(Begin::Epoch).map_err(|_| wrong());
    }
    let from = Field::new("moment", value.data_type(), true);
    let to = Field::new("moment", timestamptz(), true);
    let moment = cast::convert(&from, &to, &df(value.to_array())?).map_err(|_| wrong())?;
    let micros = moment.as_primitive::<TimestampMicrosecondType>().value(0);
    u64::try_from(micros.div_euclid(1_000))
        .map(Begin::Epoch)
        .map_err(|_| wrong())
}
