//! SUBSCRIBE: the changes of a relation as rows that do not end; of a subscription, from where one of them was read last.
//!
//! | columns | |
//! |---|---|
//! | `epoch` | the epoch up to which this changed |
//! | `progressed` | with PROGRESS: whether everything up to the epoch has been sent; nothing else is said then |
//! | `op` | `insert`, `delete`, `update_delete`, `update_insert`; with ENVELOPE UPSERT `upsert` or `delete` |
//! | the row | with ENVELOPE UPSERT the key first, and NULL beside it where the row is gone |

mod rights;
mod since;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use millrace_catalog::{Definition, Object, Planned, QueryDef, Relation};
use millrace_database::database::subscriptions::{Begin, Event, Position, Subscription, Wish};
use millrace_database::running::Running;
use millrace_parser::ast::{Ident, ObjectName, Query, Subscribe, SubscribeTarget};
use millrace_parser::quote_identifier;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_storage::{ObjectId, ObjectKind};

use crate::constants::lasting_search_path;
use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::output_columns::OutputColumns;
use crate::query::view_flow;
use crate::session::Session;
use crate::statement::{create_view, select};

use self::rights::Rights;
pub(crate) use self::since::from_expression;

const PROGRESSED: &str = "progressed";
/// What messages call a query that is followed.
const QUERY: &str = "the query";

/// What the rows of a SUBSCRIBE look like.
#[derive(Clone)]
struct Shape {
    schema: SchemaRef,
    progress: bool,
    /// With ENVELOPE UPSERT: how many columns are the key, and the relation's columns in the order in which they are sent.
    upsert: Option<(usize, Vec<usize>)>,
}

/// A relation that is followed, and how its changes are sent.
pub struct Following {
    /// What changes.
    pub subscription: Subscription,
    shape: Shape,
    rights: Rights,
    /// The statement runs for as long as this lives.
    _runs: Arc<()>,
}

/// SUBSCRIBE as a statement.
pub async fn execute(session: &Arc<Session>, subscribe: &Subscribe, running: Running) -> SqlResult<Outcome> {
    let rows = rows(session, subscribe).await?;
    let (schema, stream) = session.guarded(rows, &OutputColumns::default(), running);
    let tag = CommandTag::sent("SUBSCRIBE");
    Ok(Outcome::Rows { schema, stream, tag })
}

/// The columns that it answers with.
///
/// # Errors
/// What it follows does not exist, or cannot be followed.
pub fn columns(session: &Session, subscribe: &Subscribe) -> SqlResult<SchemaRef> {
    Ok(shape(session, subscribe)?.schema)
}

/// Those of the rows alone.
///
/// # Errors
/// As [`columns`].
pub fn row_columns(session: &Session, subscribe: &Subscribe) -> SqlResult<SchemaRef> {
    Ok(shape(session, subscribe)?.row_schema())
}

fn shape(session: &Session, subscribe: &Subscribe) -> SqlResult<Shape> {
    let object = match target(session, subscribe)?.0 {
        Target::Relation(object) => object,
        Target::Query(query) => {
            let planned = planned(session, &query)?;
            let relation = Relation::of_view(ObjectId(0), "", &planned, &[]);
            return Shape::of(QUERY, &relation, subscribe);
        }
        Target::Kept(object) => return Shape::of_kept(session, &object, subscribe),
    };
    Shape::of(&object.described(), of(&object)?, subscribe)
}

/// The changes as rows. One batch without rows says that nothing more is there yet.
///
/// # Errors
/// What it follows does not exist, or cannot be followed.
pub async fn rows(session: &Arc<Session>, subscribe: &Subscribe) -> SqlResult<SendableRecordBatchStream> {
    Ok(rows_and_rights(session, subscribe).await?.0)
}

/// As [`rows`], with who may go on to read them.
pub(crate) async fn rows_and_rights(
    session: &Arc<Session>,
    subscribe: &Subscribe,
) -> SqlResult<(SendableRecordBatchStream, Rights)> {
    let following = follow(session, subscribe, None).await?;
    let rights = following.rights();
    Ok((rows_of(following, Arc::default()), rights))
}

/// As [`rows`], of a following that has begun. `idle` says whether nothing more is there yet.
pub(crate) fn rows_of(following: Following, idle: Arc<AtomicBool>) -> SendableRecordBatchStream {
    let schema = Arc::clone(&following.shape.schema);
    let begun = (following, false, idle);
    let rows = futures::stream::try_unfold(begun, |(mut following, mut is_told, idle)| async move {
        loop {
            let event = match following.present() {
                Some(event) => event?,
                None if is_told || !following.subscription.is_idle() => {
                    idle.store(is_told && following.subscription.is_idle(), Ordering::Release);
                    following.next().await?
                }
                None => {
                    idle.store(true, Ordering::Release);
                    let nothing = RecordBatch::new_empty(Arc::clone(&following.shape.schema));
                    return Ok(Some((nothing, (following, true, idle))));
                }
            };
            is_told = false;
            idle.store(false, Ordering::Release);
            if let Some(batch) = following.batch(&event)? {
                return Ok(Some((batch, (following, is_told, idle))));
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Begins to follow what a SUBSCRIBE names.
///
/// # Errors
/// It does not exist, cannot be followed, or what is to be resumed is not known any more.
pub async fn follow(
    session: &Arc<Session>,
    subscribe: &Subscribe,
    resume: Option<Position>,
) -> SqlResult<Following> {
    let (target, mut reads) = target(session, subscribe)?;
    let (object, described, is_query) = match target {
        Target::Relation(object) => (Arc::clone(&object), object.described(), false),
        Target::Query(query) => {
            let (object, named) = view_of(session, &query).await?;
            reads.extend(named);
            (object, QUERY.to_owned(), true)
        }
        Target::Kept(object) => {
            let from = match resume {
                Some(position) => Begin::Position(position),
                None => since::of(session, subscribe).await?,
            };
            return read(session, &object, subscribe, from, reads).await;
        }
    };
    let rights = Rights::new(session, reads);
    let shape = Shape::of(&described, of(&object)?, subscribe)?;
    let wish = wish(session, object.id, subscribe.snapshot, resume);
    let database = session.database();
    let subscription = match is_query {
        true => database.subscribe_to_query(&object, wish).await?,
        false => database.subscribe(&object, wish).await?,
    };
    Ok(Following {
        subscription,
        shape,
        rights,
        _runs: session.runs_for(),
    })
}

/// Begins to read what a subscription keeps.
///
/// # Errors
/// What is wanted is not kept, or there is no such subscription.
pub(crate) async fn read_from(
    session: &Arc<Session>,
    name: &ObjectName,
    from: Begin,
) -> SqlResult<Following> {
    let object = subscription(session, name)?;
    let plain = Subscribe {
        target: SubscribeTarget::Relation(name.clone()),
        snapshot: false,
        progress: false,
        upsert: None,
        as_of: None,
    };
    read(session, &object, &plain, from, vec![object.id]).await
}

async fn read(
    session: &Arc<Session>,
    object: &Object,
    subscribe: &Subscribe,
    from: Begin,
    reads: Vec<ObjectId>,
) -> SqlResult<Following> {
    let rights = Rights::new(session, reads);
    let shape = Shape::of_kept(session, object, subscribe)?;
    let wish = wish(session, object.id, subscribe.snapshot, None);
    let subscription = session.database().read_subscription(object, from, wish).await?;
    Ok(Following {
        subscription,
        shape,
        rights,
        _runs: session.runs_for(),
    })
}

/// The subscription of a name, which may be read.
///
/// # Errors
/// There is none, or it may not be read.
fn subscription(session: &Session, name: &ObjectName) -> SqlResult<Arc<Object>> {
    let scope = session.scope();
    let object = names::resolve(session, &scope, name)?;
    if object.kind != ObjectKind::Subscription {
        let message = format!("\"{}\" is not a subscription", object.name);
        return Err(SqlError::new(SqlState::WrongObjectType, message).with_hint(
            "Use DECLARE .. CURSOR FOR SUBSCRIBE .. to follow a relation, or create a subscription to it.",
        ));
    }
    scope.check_read(&object)?;
    Ok(object)
}

fn wish(session: &Session, object: ObjectId, snapshot: bool, resume: Option<Position>) -> Wish {
    let buffer_bytes = session.settings.lock().subscription_buffer();
    Wish {
        snapshot,
        buffer_bytes,
        after: session.read_after(&[RelationId(object.0)]),
        resume,
        session: session.id(),
    }
}

/// What is followed.
enum Target {
    Relation(Arc<Object>),
    Query(Box<Query>),
    /// What a subscription keeps.
    Kept(Arc<Object>),
}

/// What a SUBSCRIBE names, and what of it has to be readable for as long as it is followed; a plain view stands for its query.
fn target(session: &Session, subscribe: &Subscribe) -> SqlResult<(Target, Vec<ObjectId>)> {
    let name = match &subscribe.target {
        SubscribeTarget::Relation(name) => name,
        SubscribeTarget::Query(query) => {
            refuse_as_of(subscribe)?;
            return Ok((Target::Query(query.clone()), vec![]));
        }
    };
    let scope = session.scope();
    let object = names::resolve(session, &scope, name)?;
    scope.check_read(&object)?;
    let reads = vec![object.id];
    if object.kind == ObjectKind::Subscription {
        return Ok((Target::Kept(object), reads));
    }
    // What was is in the history of a view.
    if subscribe.as_of.is_some()
        && let Some(history) = scope.catalog.history_of(object.id)
    {
        return Ok((Target::Kept(Arc::clone(history)), reads));
    }
    refuse_as_of(subscribe)?;
    if object.kind != ObjectKind::View {
        of(&object)?;
        return Ok((Target::Relation(object), reads));
    }
    let text = format!(
        "SELECT * FROM {}.{}",
        quote_identifier(&object.schema),
        quote_identifier(&object.name)
    );
    match select::parse_query(&text)? {
        ast::Statement::Query(query) => Ok((Target::Query(query), reads)),
        _ => Err(SqlError::internal("a view that is no query")),
    }
}

fn refuse_as_of(subscribe: &Subscribe) -> SqlResult<()> {
    match subscribe.as_of {
        None => Ok(()),
        Some(_) => Err(SqlError::unsupported(
            "SUBSCRIBE .. AS OF is for subscriptions, and for views with a history",
        )
        .with_hint("Use CREATE SUBSCRIPTION, and subscribe to that.")),
    }
}

/// What only a transaction knows cannot be followed, and the right to change definitions that it has would be waited for.
fn check_definitions(session: &Session) -> SqlResult<()> {
    match session.definitions() {
        None => Ok(()),
        Some(_) => Err(SqlError::new(
            SqlState::ActiveSqlTransaction,
            "SUBSCRIBE to a query is not possible in a transaction that has changed definitions",
        )
        .with_hint("COMMIT first.")),
    }
}

/// The plan of a query that is to be followed.
fn planned(session: &Session, query: &Query) -> SqlResult<Planned> {
    check_definitions(session)?;
    create_view::check_names(query, &[])?;
    let query = QueryDef::new(query.to_string(), lasting_search_path(session), vec![])
        .with_slides(create_view::slides(session))
        .with_flow(view_flow(session)?);
    Ok(create_view::plan(session, &session.scope(), &query)?.0)
}

/// The view of a query, which may be still to be filled, and what the query names.
async fn view_of(session: &Session, query: &Query) -> SqlResult<(Arc<Object>, Vec<ObjectId>)> {
    check_definitions(session)?;
    let options = session.backfill_options()?;
    let database = session.database();
    // What it reads must not be dropped before it is known who reads it. It is no statement of the transaction.
    let guard = session.within_lock_timeout(database.ddl()).await?;
    let planned = planned(session, query)?;
    let (name, named) = (session.scope().database, planned.query.depends());
    Ok((guard.follow_query(planned, &name, options)?, named))
}

/// What an object is that can be followed.
fn of(object: &Object) -> SqlResult<&Relation> {
    object.check_up()?;
    object.relation().ok_or_else(|| {
        let hint = "A view, a table, a stream or a query can be followed.";
        SqlError::new(
            SqlState::WrongObjectType,
            format!("cannot subscribe to {}", object.described()),
        )
        .with_hint(hint)
    })
}

impl Shape {
    fn row_schema(&self) -> SchemaRef {
        let first = self.schema.fields().len() - self.row_columns();
        Arc::new(Schema::new(self.schema.fields()[first..].to_vec()))
    }

    fn row_columns(&self) -> usize {
        self.schema.fields().len() - 2 - usize::from(self.progress)
    }

    fn of(described: &str, relation: &Relation, subscribe: &Subscribe) -> SqlResult<Shape> {
        Shape::new(
            described,
            relation.schema(),
            relation.info.key.as_deref(),
            subscribe,
        )
    }

    /// Of what a subscription keeps: the columns that its relation had when it was made, as they are called now.
    fn of_kept(session: &Session, object: &Object, subscribe: &Subscribe) -> SqlResult<Shape> {
        object.check_up()?;
        let Definition::Sink(def) = &object.definition else {
            return Err(SqlError::internal("a subscription that is no sink"));
        };
        let scope = session.scope();
        let read = scope.catalog.object(def.relation);
        let read = read.ok_or_else(|| SqlError::internal("a subscription to nothing"))?;
        let relation = of(read)?;
        let fields = relation.schema().fields().iter().take(def.columns.len()).cloned();
        let columns = Schema::new(fields.collect::<Vec<_>>());
        let known = relation.info.key.as_deref();
        let known = known.filter(|key| key.iter().all(|column| *column < def.columns.len()));
        Shape::new(&object.described(), &columns, known, subscribe)
    }

    fn new(
        described: &str,
        schema: &Schema,
        known: Option<&[usize]>,
        subscribe: &Subscribe,
    ) -> SqlResult<Shape> {
        let columns = schema.fields();
        let upsert = match &subscribe.upsert {
            None => None,
            Some(key) => {
                let key = upsert_key(described, schema, known, key)?;
                let others = (0..columns.len()).filter(|column| !key.contains(column));
                let order: Vec<usize> = key.iter().copied().chain(others).collect();
                Some((key.len(), order))
            }
        };
        let mut fields = vec![Field::new("epoch", DataType::Int64, false)];
        if subscribe.progress {
            fields.push(Field::new(PROGRESSED, DataType::Boolean, false));
        }
        fields.push(Field::new("op", DataType::Utf8, true));
        let in_order: Vec<usize> = match &upsert {
            Some((_, order)) => order.clone(),
            None => (0..columns.len()).collect(),
        };
        fields.extend(
            in_order
                .iter()
                .map(|column| columns[*column].as_ref().clone().with_nullable(true)),
        );
        Ok(Shape {
            schema: Arc::new(Schema::new(fields)),
            progress: subscribe.progress,
            upsert,
        })
    }
}

/// The positions of the columns by which rows are told apart.
fn upsert_key(
    described: &str,
    schema: &Schema,
    known: Option<&[usize]>,
    given: &[Ident],
) -> SqlResult<Vec<usize>> {
    let name = |column: &usize| schema.field(*column).name().as_str();
    let wrong = |message: String, hint: String| {
        SqlError::new(SqlState::InvalidColumnReference, message).with_hint(hint)
    };
    let Some(known) = known else {
        return Err(wrong(
            format!("the rows of {described} have no key that is known to be unique"),
            "ENVELOPE UPSERT is for tables with a primary key and for views with one row for each group."
                .to_owned(),
        ));
    };
    let mut key = vec![];
    for ident in given {
        let column = millrace_parser::fold(ident);
        let position = schema.index_of(&column).map_err(|_| {
            let message = format!("column \"{column}\" does not exist");
            SqlError::new(SqlState::UndefinedColumn, message)
        })?;
        key.push(position);
    }
    if given.is_empty() {
        return Ok(known.to_vec());
    }
    let is_known = key.len() == known.len() && known.iter().all(|column| key.contains(column));
    match is_known {
        true => Ok(key),
        false => {
            let names: Vec<&str> = known.iter().map(name).collect();
            Err(wrong(
                format!("these columns are not the key of {described}"),
                format!("Its key is ({}).", names.join(", ")),
            ))
        }
    }
}

impl Following {
    /// What happens next.
    ///
    /// # Errors
    /// What it follows has ended, or may not be read any more (42501).
    pub async fn next(&mut self) -> SqlResult<Event> {
        loop {
            let event = tokio::time::timeout(rights::LOOK, self.subscription.next()).await;
            self.rights.check()?;
            if let Ok(event) = event {
                return event;
            }
        }
    }

    /// What has happened already; `None`: nothing.
    pub fn present(&mut self) -> Option<SqlResult<Event>> {
        let event = self.subscription.next().now_or_never()?;
        Some(self.rights.check().and(event))
    }

    /// Who may go on to read it.
    pub(crate) fn rights(&self) -> Rights {
        self.rights.clone()
    }

    /// The columns of the relation, in the order in which they are sent.
    pub fn row_schema(&self) -> SchemaRef {
        self.shape.row_schema()
    }

    /// Whether it is asked for what is complete.
    pub fn tells_progress(&self) -> bool {
        self.shape.progress
    }

    /// What happened to each row, and the rows, as they are sent. None: nothing of it is sent.
    ///
    /// # Errors
    /// An internal one.
    pub fn sent(&self, ops: &ArrayRef, rows: &RecordBatch) -> SqlResult<Option<(ArrayRef, Vec<ArrayRef>)>> {
        let Some((key, order)) = &self.shape.upsert else {
            return Ok(Some((Arc::clone(ops), rows.columns().to_vec())));
        };
        let texts = ops.as_string::<i32>();
        // The new form of a row says all.
        let stays = BooleanArray::from_iter(texts.iter().map(|op| Some(op != Some("update_delete"))));
        let rows = filter_record_batch(rows, &stays).map_err(from_internal::arrow)?;
        let kept = arrow::compute::filter(ops, &stays).map_err(from_internal::arrow)?;
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        let is_gone = BooleanArray::from_iter(
            kept.as_string::<i32>()
                .iter()
                .map(|op| Some(op == Some("delete"))),
        );
        let ops = is_gone.iter().map(|gone| match gone {
            Some(true) => "delete",
            _ => "upsert",
        });
        let mut columns = vec![];
        for (place, column) in order.iter().enumerate() {
            let column = rows.column(*column);
            columns.push(match place < *key {
                true => Arc::clone(column),
                false => arrow::compute::nullif(column, &is_gone).map_err(from_internal::arrow)?,
            });
        }
        Ok(Some((Arc::new(StringArray::from_iter_values(ops)), columns)))
    }

    /// An event as rows of the statement.
    fn batch(&self, event: &Event) -> SqlResult<Option<RecordBatch>> {
        let (epoch, sent) = match event {
            Event::Changes { epoch, ops, rows } => match self.sent(ops, rows)? {
                Some(sent) => (*epoch, Some(sent)),
                None => return Ok(None),
            },
            Event::Complete { epoch } if self.shape.progress => (*epoch, None),
            Event::Complete { .. } => return Ok(None),
        };
        let progressed = sent.is_none();
        let (ops, columns) = sent.unwrap_or_else(|| {
            let fields = self.shape.schema.fields();
            let nulls = |field: &Arc<Field>| new_null_array(field.data_type(), 1);
            let columns = fields[fields.len() - self.shape.row_columns()..]
                .iter()
                .map(nulls);
            (new_null_array(&DataType::Utf8, 1), columns.collect())
        });
        let rows = ops.len();
        let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
        let mut all: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_value(epoch, rows))];
        if self.shape.progress {
            all.push(Arc::new(BooleanArray::from(vec![progressed; rows])));
        }
        all.push(ops);
        all.extend(columns);
        let batch = RecordBatch::try_new(Arc::clone(&self.shape.schema), all);
        batch.map(Some).map_err(from_internal::arrow)
    }
}
