//! Statements that need no plan: what was found out of them before is enough (`known`), and an index has their rows (`key_select`).
//!
//! Whatever is in the way (a change of the transaction's own, an index that is on the disk, a value that does not fit) is left to the plan:
//! it finds the same rows, or says what is wrong.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use millrace_database::sessions::Activity;
use millrace_engine::Found;
use millrace_parser::Parsed;
use millrace_parser::ast::Statement;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse;
use postgres_types::Type;

use crate::counting;
use crate::key_select::{KeySelect, Meaning, Shape, Understanding, Wanted};
use crate::known::Seen;
use crate::object_names;
use crate::outcome::{CommandTag, Outcome};
use crate::prepared::Prepared;
use crate::query::rows_of;
use crate::session::Session;
use crate::statement::select::{self, Purpose};
use crate::template::Template;
use crate::transaction::Transaction;

impl Session {
    /// Parses and prepares one statement of the protocol, or remembers what was prepared of the same text.
    ///
    /// # Errors
    /// As [`Session::parse`] and [`Session::prepare`]; there are several statements.
    pub async fn prepare_text(
        self: &Arc<Self>,
        sql: &str,
        types: &[Option<Type>],
    ) -> SqlResult<Arc<Prepared>> {
        let now = self.understanding();
        if let Some(now) = &now
            && let Some(Seen::Prepared(prepared)) = self.known.lock().get(sql, Some(types), now)
        {
            if let Some(parsed) = &prepared.parsed {
                self.check_not_failed(&parsed.statement)?;
            }
            return Ok(prepared);
        }
        let mut parsed = self.parse(sql).await?;
        if parsed.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SyntaxError, message));
        }
        let prepared = self.prepare(parsed.pop(), types).await?;
        if let Some(now) = now
            && prepared.parsed.as_ref().is_some_and(|parsed| is_of_rows(parsed))
        {
            let seen = Seen::Prepared(Arc::clone(&prepared));
            self.known.lock().put(sql, Some(types), now, seen);
        }
        Ok(prepared)
    }

    /// Answers a simple query by what is known of its template. None: it is to be executed as any other.
    ///
    /// # Errors
    /// It was ended.
    pub(crate) async fn answer_known(self: &Arc<Self>, sql: &str) -> SqlResult<Option<Outcome>> {
        let Some(template) = Template::of(sql) else {
            return Ok(None);
        };
        let Some(now) = self.understanding() else {
            return Ok(None);
        };
        let seen = self.known.lock().get(&template.text, None, &now);
        match seen {
            Some(Seen::Prepared(prepared)) => {
                let types = &prepared.param_types;
                let values = template.values.into_iter().zip(types);
                let Some(values) = values.map(|(value, pg)| as_written(value, pg)).collect() else {
                    return Ok(None);
                };
                self.look_up(&prepared, values, sql).await
            }
            Some(Seen::Plain) => Ok(None),
            Some(Seen::Once) => {
                let prepared = self.prepare_template(&template).await;
                let seen = prepared.map_or(Seen::Plain, Seen::Prepared);
                self.known.lock().put(&template.text, None, now, seen);
                Ok(None)
            }
            None => {
                self.known.lock().put(&template.text, None, now, Seen::Once);
                Ok(None)
            }
        }
    }

    /// A template that is a SELECT by equality. What is wrong with it is no error of the client's.
    async fn prepare_template(self: &Arc<Self>, template: &Template) -> Option<Arc<Prepared>> {
        let mut parsed = millrace_parser::parse(&template.text).ok()?;
        let parsed = parsed.pop().filter(|_| parsed.is_empty())?;
        shape_of(&parsed)?;
        let running = self.begin_statement();
        let session = Arc::clone(self);
        let prepare = async move { session.make_prepared(Some(parsed), &[]) };
        let prepared = self
            .run_statement(&running, self.planning_class(), prepare)
            .await
            .ok()?;
        prepared.shape.as_ref()?.comes_again();
        Some(prepared)
    }

    /// Answers a prepared statement by a look-up. None: it is to be planned. `text`: the statement as others may see it.
    ///
    /// # Errors
    /// It was ended.
    pub(crate) async fn look_up(
        self: &Arc<Self>,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
        text: &str,
    ) -> SqlResult<Option<Outcome>> {
        let Some(select) = self.key_select(prepared).await? else {
            return Ok(None);
        };
        if self.db.is_closing() || !self.sees_what_is_committed(select.relation) {
            return Ok(None);
        }
        let (Some(wanted), Some(limit)) = (select.wanted(&parameters), select.limit(&parameters)) else {
            return Ok(None);
        };
        let (running, started) = (self.begin_statement(), Instant::now());
        *self.activity.lock() = Some(Activity::begun(text.to_owned()));
        // One row is found at once; many take their time, which the connection's thread has not.
        let found = match select.one_row {
            true => {
                let work = self.found(Arc::clone(&select), wanted, limit);
                self.run_here(&running, work).await
            }
            false => {
                let (session, select) = (Arc::clone(self), Arc::clone(&select));
                let work = async move { session.found(select, wanted, limit).await };
                self.run_statement(&running, self.planning_class(), work).await
            }
        };
        let found = found.inspect_err(|_| self.fail_transaction())?;
        let Some(batches) = found else {
            return Ok(None);
        };
        let rows = rows_of(Arc::clone(&select.schema), batches);
        let (schema, stream) = self.guarded(rows, &select.output, running);
        let tag = CommandTag::sent("SELECT");
        let outcome = Outcome::Rows { schema, stream, tag };
        Ok(Some(counting::counted(self, outcome, started)))
    }

    /// The rows. None: a plan has to find them, or to say why it cannot.
    async fn found(
        self: &Arc<Self>,
        select: Arc<KeySelect>,
        wanted: Wanted,
        limit: usize,
    ) -> SqlResult<Option<Vec<RecordBatch>>> {
        let equal = match wanted {
            Wanted::Nothing => return Ok(Some(vec![])),
            Wanted::Rows(equal) => equal,
        };
        let relations = [select.relation];
        let after = self.read_after(&relations);
        let snapshot = self.db.runtime().snapshot(&relations, after.as_ref());
        let Ok(snapshot) = snapshot.await else {
            return Ok(None);
        };
        let Ok(Some(found)) = snapshot.look_up(select.relation, &equal, &select.columns) else {
            return Ok(None);
        };
        let (mut batches, mut left) = (vec![], limit);
        for Found { rows, columns } in found {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&select.schema), columns, &options);
            let Ok(batch) = batch else {
                return Ok(None);
            };
            let batch = batch.slice(0, rows.min(left));
            left -= batch.num_rows();
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
        }
        Ok(Some(batches))
    }

    /// What the names in a prepared SELECT by equality mean, once it has run before. To find that out is a part of planning: there may
    /// be a large view behind a name.
    async fn key_select(self: &Arc<Self>, prepared: &Prepared) -> SqlResult<Option<Arc<KeySelect>>> {
        let (Some(shape), Some(now)) = (&prepared.shape, self.understanding()) else {
            return Ok(None);
        };
        match shape.meaning(&now) {
            Meaning::Select(select) => return Ok(Some(select)),
            Meaning::Nothing => return Ok(None),
            Meaning::NotKnown => {}
        }
        let (session, mut statement) = (
            Arc::clone(self),
            ast::Statement::Query(Box::new(shape.bare.clone())),
        );
        let running = self.begin_statement();
        let bind = async move {
            object_names::shown(&mut statement);
            select::bind(&session, &session.scope(), &mut statement, Purpose::Describe)
        };
        let bound = self.run_statement(&running, self.planning_class(), bind).await;
        let select = match bound {
            Ok((plan, output)) => shape.select(&plan, output, &prepared.param_types),
            Err(error) if error.code == SqlState::QueryCanceled => {
                self.fail_transaction();
                return Err(error);
            }
            // The plan says what is wrong.
            Err(_) => None,
        };
        let select = select.map(Arc::new);
        shape.mean(now, select.clone());
        Ok(select)
    }

    /// Under what names and rights a statement is looked at now. None: the transaction has defined something of its own, or has failed.
    fn understanding(&self) -> Option<Understanding> {
        match &*self.transaction.lock() {
            Transaction::Idle => {}
            Transaction::Active(active) if active.definitions.is_none() => {}
            Transaction::Active(_) | Transaction::Failed { .. } => return None,
        }
        Some(Understanding {
            catalog: self.db.catalog().version,
            settings: self.settings.lock().clone(),
            is_checked: self.db.tuning().access_control,
        })
    }

    /// Whether the transaction has not changed a relation, nor locked it to do so.
    fn sees_what_is_committed(&self, relation: RelationId) -> bool {
        match &*self.transaction.lock() {
            Transaction::Idle => true,
            Transaction::Active(active) => {
                !active.changes.contains_key(&relation) && !active.locked.contains(&relation)
            }
            Transaction::Failed { .. } => false,
        }
    }
}

/// A constant of a text as a value of its parameter. None: the planner has to look at it.
fn as_written(value: ScalarValue, pg: &Type) -> Option<ScalarValue> {
    match (&value, pg) {
        (ScalarValue::Int64(_), &(Type::INT2 | Type::INT4 | Type::INT8)) => Some(value),
        (ScalarValue::Utf8(_), &(Type::TEXT | Type::VARCHAR | Type::INT2 | Type::INT4 | Type::INT8)) => {
            Some(value)
        }
        (ScalarValue::Utf8(Some(text)), &Type::UUID) => {
            Some(ScalarValue::Utf8(Some(parse::uuid(text).ok()?)))
        }
        _ => None,
    }
}

/// The shape of a statement, if it is a SELECT by equality.
pub(crate) fn shape_of(parsed: &Parsed) -> Option<Shape> {
    match &parsed.statement {
        Statement::Sql(sql) => match sql.as_ref() {
            ast::Statement::Query(query) => Shape::of(query),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the parameters and columns of a statement follow from its text and from names: those of FETCH and EXECUTE do not.
fn is_of_rows(parsed: &Parsed) -> bool {
    match &parsed.statement {
        Statement::Sql(sql) => matches!(
            sql.as_ref(),
            ast::Statement::Query(_)
                | ast::Statement::Insert(_)
                | ast::Statement::Update(_)
                | ast::Statement::Delete(_)
        ),
        _ => false,
    }
}
