//! CREATE STREAM and CREATE TABLE, with columns or AS a query.

mod beside;
pub(super) mod constraints;
mod defaults;
mod foreign_keys;
pub(super) mod generated;
mod include;
mod like;
mod names_of_columns;
mod on_conflict;
pub(crate) mod own_sequences;
mod storage_options;
mod table_as;
mod upstream;

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, ObjectName, TableConstraint};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::postgres::Postgres;
use millrace_catalog::event_time::{EventTimeDef, IDLE_TIMEOUT, Late};
use millrace_catalog::retention::Retention;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary;
use millrace_catalog::{ColumnDef, Definition, Object, Relation};
use millrace_database::clock::now_ms;
use millrace_database::database::rows::RowBuilder;
use millrace_functions::sql::{equality, named_types};
use millrace_parser::ast::{ColumnDefinition, ConflictRule, CreateStream, CreateTable, OnCommit, Options};
use millrace_planner::RelationKind;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::named::resolved;
use millrace_postgres::types::{self, SqlType};
use millrace_storage::{ObjectId, ObjectKind};

pub(super) use self::beside::failed_rows;
use self::constraints::Constraints;
pub(super) use self::names_of_columns::check_columns;
use self::names_of_columns::key_positions;
use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::sequences::{self, OwnSequence};
use crate::session::Session;
use crate::statement::{done, secret};

/// What is to be made.
struct New<'a> {
    kind: ObjectKind,
    name: &'a ObjectName,
    if_not_exists: bool,
    columns: Vec<ColumnDef>,
    key: Vec<usize>,
    constraints: Constraints,
    /// Columns that get a sequence of their own.
    sequences: Vec<OwnSequence>,
    event_time: Option<EventTimeDef>,
    connector: Option<ConnectorDef>,
    /// The secrets that the connector's options name.
    secrets: Vec<ObjectId>,
    on_conflict: Option<ConflictRule>,
    keeping: Retention,
    temporary: bool,
    on_commit: Option<OnCommit>,
    text: &'a str,
}

impl New<'_> {
    fn relation_kind(&self) -> RelationKind {
        match self.kind {
            ObjectKind::Stream => RelationKind::Stream,
            _ => RelationKind::Table,
        }
    }

    /// The key of the table that it is.
    fn source_key(&self) -> Option<&[usize]> {
        (self.kind != ObjectKind::Stream).then_some(&*self.key)
    }
}

/// CREATE STREAM.
pub async fn stream(session: &Arc<Session>, mut create: CreateStream, text: &str) -> SqlResult<Outcome> {
    if create.or_replace {
        return Err(SqlError::unsupported("CREATE OR REPLACE STREAM is not supported"));
    }
    if !create.primary_key.is_empty() {
        return Err(
            SqlError::new(SqlState::InvalidTableDefinition, "a stream has no primary key")
                .with_hint("Rows of a stream never change. Use CREATE TABLE for rows with a key."),
        );
    }
    let secrets = secret::bind(session, &mut create.options, create.format.as_mut())?;
    include::all_columns(
        session,
        create.all_columns,
        &create.options,
        create.format.as_ref(),
        &mut create.columns,
    )
    .await?;
    let given = std::mem::take(&mut create.include);
    include::include(given, &mut create.columns, &mut create.options)?;
    let names: Vec<String> = (create.columns.iter())
        .map(|column| millrace_parser::fold(&column.name))
        .collect();
    let mut options = create.options.clone();
    let event_time = EventTimeDef::new(create.watermark.as_ref(), &names, &mut options)?;
    let keeping = Retention::new(&mut options, ObjectKind::Stream)?;
    let connector = ConnectorDef::new(&mut options)?;
    let mut given = create.options.0.iter();
    let has_partitions =
        (connector.as_ref()).is_some_and(|connector| ConnectorDef::has_partitions(connector.name()));
    if !has_partitions && given.any(|option| option.name.value.eq_ignore_ascii_case(IDLE_TIMEOUT)) {
        let message = format!(
            "option \"{IDLE_TIMEOUT}\" has no effect: a stream has a single partition, which never waits \
             for another"
        );
        session.notice(Severity::Notice, message);
    }
    let (connector, format) = match connector {
        Some(connector) => {
            let by = format!("stream {}", create.name);
            let connector = connector.with_secrets(session.database().secrets_for(&by));
            (Some(connector.with_format(create.format.as_ref())?), None)
        }
        None => (None, create.format.as_ref()),
    };
    if let Some(webhook) = connector
        .as_ref()
        .map(ConnectorDef::webhook)
        .transpose()?
        .flatten()
    {
        // Who cannot check requests is told now.
        webhook.signature.secret.read()?;
    }
    if connector.as_ref().is_some_and(ConnectorDef::is_generator)
        && event_time
            .as_ref()
            .is_some_and(|time| time.future_skew_max.is_some())
    {
        let message = "option \"watermark.max_future_skew\" is not supported with a generator";
        return Err(SqlError::unsupported(message)
            .with_detail("The event times of a generator are not related to the clock."));
    }
    refuse_extras(&create.constraints, false, &options, format.is_some())?;
    let (columns, keeping) = match upstream::columns_of(connector.as_ref(), &create.columns)? {
        Some(columns) if keeping == Retention::default() => (columns, Retention::bounded()),
        Some(columns) => (columns, keeping),
        None => (columns(session, &create.columns, &[])?, keeping),
    };
    let new = New {
        kind: ObjectKind::Stream,
        name: &create.name,
        if_not_exists: create.if_not_exists,
        columns,
        key: vec![],
        constraints: Constraints::default(),
        sequences: vec![],
        event_time,
        connector,
        secrets,
        on_conflict: None,
        keeping,
        temporary: false,
        on_commit: None,
        text,
    };
    make(session, new).await?;
    done("CREATE STREAM")
}

/// CREATE TABLE.
pub async fn table(session: &Arc<Session>, mut create: CreateTable, text: &str) -> SqlResult<Outcome> {
    if !create.like.is_empty() {
        let indexes = like::expand(session, &mut create)?;
        let (text, name) = (create.to_string(), create.name.clone());
        let made = Box::pin(table_of_columns(session, create, &text));
        if indexes.is_empty() {
            return made.await;
        }
        return session
            .in_transaction(async {
                let outcome = made.await?;
                like::make_indexes(session, &name, indexes).await?;
                Ok(outcome)
            })
            .await;
    }
    table_of_columns(session, create, text).await
}

async fn table_of_columns(session: &Arc<Session>, mut create: CreateTable, text: &str) -> SqlResult<Outcome> {
    if create.or_replace {
        return Err(SqlError::unsupported("CREATE OR REPLACE TABLE is not supported"));
    }
    if create.append_only {
        stream(session, append_only(create)?, text).await?;
        return done("CREATE TABLE");
    }
    let secrets = secret::bind(session, &mut create.options, create.format.as_mut())?;
    if create.as_query.is_none() {
        include::all_columns(
            session,
            create.all_columns,
            &create.options,
            create.format.as_ref(),
            &mut create.columns,
        )
        .await?;
    }
    let given = std::mem::take(&mut create.include);
    include::include(given, &mut create.columns, &mut create.options)?;
    storage_options::without_storage_parameters(session, &mut create.options);
    let mut options = create.options.clone();
    let keeping = Retention::new(&mut options, ObjectKind::Table)?;
    let connector = ConnectorDef::new(&mut options)?;
    let (connector, format) = match connector {
        Some(connector) if !connector.is_read() => {
            return Err(SqlError::unsupported(format!(
                "a table with connector \"{}\" is not supported",
                connector.name()
            ))
            .with_hint("Use CREATE STREAM."));
        }
        Some(connector) => {
            let by = format!("table {}", create.name);
            let connector = connector.with_secrets(session.database().secrets_for(&by));
            (Some(connector.with_format(create.format.as_ref())?), None)
        }
        None => (None, create.format.as_ref()),
    };
    let constraints = Constraints::taken_from(&mut create.constraints)?;
    on_conflict::check(&create, connector.is_some())?;
    if connector.is_some() && constraints.has_unique() {
        return Err(
            SqlError::unsupported("UNIQUE constraints are not supported with a connector")
                .with_hint("A row of a key takes the place of the one before: use PRIMARY KEY."),
        );
    }
    if connector.is_some() && constraints.has_foreign_keys() {
        return Err(
            SqlError::unsupported("FOREIGN KEY constraints are not supported with a connector")
                .with_detail("Its rows are taken as they are."),
        );
    }
    refuse_extras(
        &create.constraints,
        create.watermark.is_some(),
        &options,
        format.is_some(),
    )?;
    if let Some(Postgres::Server(_)) = connector
        .as_ref()
        .map(ConnectorDef::postgres)
        .transpose()?
        .flatten()
    {
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            "a PostgreSQL server is read by a source, and tables follow the source",
        )
        .with_hint("Use CREATE SOURCE pg WITH (..), and CREATE TABLE .. FROM pg TABLE 'schema.table'."));
    }
    if connector.is_some() && (create.as_query.is_some() || create.columns.is_empty()) {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "a table with a connector needs its columns",
        ));
    }
    match create.as_query.take() {
        None => {
            let sequences = sequences::taken_from(&mut create.columns)?;
            let key = key_positions(&create.columns, &create.primary_key)?;
            let columns = columns(session, &create.columns, &key)?;
            for column in key.iter().filter_map(|position| columns.get(*position)) {
                equality::check_key(&column.field)?;
            }
            let new = New {
                kind: ObjectKind::Table,
                name: &create.name,
                if_not_exists: create.if_not_exists,
                columns,
                key,
                constraints,
                sequences,
                event_time: None,
                connector,
                secrets,
                on_conflict: create.on_conflict,
                keeping,
                temporary: create.temporary,
                on_commit: create.on_commit,
                text,
            };
            make(session, new).await?;
            done("CREATE TABLE")
        }
        Some(query) => table_as::table_as(session, &create, *query, keeping, text).await,
    }
}

/// What RisingWave calls an append-only table is a stream.
fn append_only(create: CreateTable) -> SqlResult<CreateStream> {
    if create.temporary || create.on_commit.is_some() {
        return Err(SqlError::unsupported(
            "an APPEND ONLY table that is temporary is not supported",
        ));
    }
    if create.on_conflict.is_some() {
        return Err(SqlError::unsupported(
            "an APPEND ONLY table has no ON CONFLICT: its rows stay",
        ));
    }
    Ok(CreateStream {
        name: create.name,
        or_replace: create.or_replace,
        if_not_exists: create.if_not_exists,
        all_columns: create.all_columns,
        columns: create.columns,
        primary_key: create.primary_key,
        constraints: create.constraints,
        watermark: create.watermark,
        include: create.include,
        options: create.options,
        format: create.format,
    })
}

/// Makes the relation; `None`: it exists, and that is well.
async fn make(session: &Arc<Session>, new: New<'_>) -> SqlResult<Option<Arc<Object>>> {
    let mut beginning = None;
    if new.connector.is_some() {
        // Whoever cannot be read from is told so now, and nobody waits for it.
        let relation = Relation::new(
            ObjectId(0),
            "",
            new.relation_kind(),
            new.columns.clone(),
            &new.key,
            new.kind == ObjectKind::Stream,
        )
        .with_event_time(new.event_time.clone())
        .with_connector(new.connector.clone());
        let db = session.database();
        beginning = db.probe_source(&session.scope(), &relation).await?;
    }
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name, is_temporary) = names::new_table_name(session, &scope, new.name, new.temporary)?;
    secret::check_there(&scope, &new.secrets)?;
    let keeping = storage_options::of(&new, is_temporary)?;
    if new.if_not_exists && names::is_there(session, &scope, &schema, &name) {
        return Ok(None);
    }
    guard.check_free(&scope.database, &schema, &name)?;
    if keeping.on_commit == temporary::OnCommit::Drop && guard.definitions().is_none() {
        // It would go with the statement.
        return Ok(None);
    }
    let id = guard.next_id()?;
    let kind = new.relation_kind();
    let mut objects = vec![];
    let source = upstream::source_of(session, &new)?;
    let has_records = match &new.connector {
        Some(connector) => {
            let is_server = matches!(connector.postgres()?, Some(Postgres::Server(_)));
            is_server || connector.records(&new.columns, new.source_key())?.is_some()
        }
        None => false,
    };
    let mut event_time = new.event_time;
    if let Some(event_time) = &mut event_time
        && event_time.late == Late::Kept(None)
    {
        let late = beside::late_rows(&scope, &guard, &schema, &name, &new.columns, new.keeping)?;
        event_time.late = Late::Kept(Some(late.id));
        objects.push(late);
    }
    let mut errors = None;
    if has_records {
        let object = beside::bad_records(&scope, &guard, &schema, &name)?;
        errors = Some(object.id);
        objects.push(object);
    }
    let mut files = None;
    if new.connector.as_ref().is_some_and(ConnectorDef::has_files) {
        let object = beside::read_files(&scope, &guard, &schema, &name)?;
        files = Some(object.id);
        objects.push(object);
    }
    let mut columns = new.columns;
    for column in &mut columns {
        if let Some(default) = &column.default {
            column.sequence = sequences::of_default(session, default)?;
        }
    }
    let made = own_sequences::made(&guard, &scope, (&schema, &name, id), &mut columns, new.sequences)?;
    let relation = Relation::new(id, &name, kind, columns, &new.key, kind == RelationKind::Stream)
        .with_event_time(event_time)
        .with_connector(new.connector)
        .with_errors(errors)
        .with_files(files)
        .with_on_conflict(new.on_conflict)
        .with_keeping(keeping);
    let checks = new.constraints.checks(session, &scope, &relation)?;
    let relation = relation.with_checks(checks);
    let foreign_keys = new
        .constraints
        .foreign_keys(session, &scope, &schema, &relation)?;
    let relation = relation.with_foreign_keys(foreign_keys);
    check_expressions(session, &scope, &relation)?;
    session.database().try_generator(&scope, &relation)?;
    let rights = scope.rights_of_new(new.kind, &schema);
    let object = Object {
        id,
        kind: new.kind,
        database: scope.database.clone(),
        schema,
        name,
        sql: new.text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: objects
            .iter()
            .map(|late| late.id)
            .chain(source.iter().map(|source| source.id))
            .chain(new.secrets)
            .collect(),
        definition: Definition::Relation(Box::new(relation.clone())),
        rights,
    };
    let indexes = new.constraints.indexes(&guard, &object, &relation)?;
    objects.push(object.clone());
    objects.extend(made);
    objects.extend(indexes);
    if let Some(beginning) = beginning {
        session.database().sources().begin(id, beginning);
    }
    guard.create_all(objects).await?;
    drop(guard);
    if let Some(source) = source {
        upstream::fill(session, &source, &object).await?;
    }
    Ok(Some(Arc::new(object)))
}

/// Defaults and generated columns must bind, and defaults must fit their columns.
pub(super) fn check_expressions(session: &Session, scope: &Scope, relation: &Relation) -> SqlResult<()> {
    generated::check(session, scope, &relation.columns)?;
    defaults::check_quoted(&relation.columns)?;
    let given: Vec<usize> = relation
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.default.is_none() && column.generated.is_none() && !column.proctime)
        .map(|(position, _)| position)
        .collect();
    let builder = RowBuilder::new(session.database(), scope, relation, &given)?;
    let nothing: Vec<_> = given
        .iter()
        .map(|position| {
            let field = &relation.schema().fields()[*position];
            (
                Arc::clone(field),
                arrow::array::new_empty_array(field.data_type()),
            )
        })
        .collect();
    builder
        .build(&nothing, 0)
        .map(|_| ())
        .map_err(|failure| *failure.error)?;
    session.database().event_time(relation).map(|_| ())
}

/// Columns from their definitions. Those of the key are not nullable.
pub(super) fn columns(
    session: &Session,
    definitions: &[ColumnDefinition],
    key: &[usize],
) -> SqlResult<Vec<ColumnDef>> {
    let scope = session.scope();
    let reader = session.database().reader(&scope);
    // Types are named where expressions are read again.
    let lasting = |expression: &Option<ast::Expr>| {
        let mut expression = expression.clone();
        named_types::qualify(&mut expression, &reader).map(|()| expression)
    };
    let names: Vec<String> = definitions
        .iter()
        .map(|column| millrace_parser::fold(&column.name))
        .collect();
    check_columns(names.iter().map(String::as_str))?;
    if definitions.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            "a relation must have at least one column",
        ));
    }
    definitions
        .iter()
        .zip(names)
        .enumerate()
        .map(|(position, (definition, name))| {
            let known = resolved(&definition.data_type, &reader)?;
            let sql_type = if definition.proctime {
                SqlType::plain(types::timestamptz())
            } else {
                types::from_sql(&known.data_type)?
            };
            let nullable = !(definition.not_null || key.contains(&position));
            if definition.identity.is_some() {
                return Err(SqlError::unsupported(
                    "identity columns are supported only in CREATE TABLE",
                ));
            }
            Ok(ColumnDef {
                field: Arc::new(sql_type.field(name, nullable)),
                default: lasting(&definition.default)?,
                generated: lasting(&definition.generated)?,
                sequence: None,
                domain: known.domains.first().map(|domain| ObjectId(domain.id)),
                proctime: definition.proctime,
                comment: definition.comment.clone(),
                added: None,
            })
        })
        .collect()
}

fn refuse_extras(
    constraints: &[TableConstraint],
    watermark: bool,
    options: &Options,
    format: bool,
) -> SqlResult<()> {
    if let Some(constraint) = constraints.first() {
        let what = match constraint {
            TableConstraint::Unique(_) => "UNIQUE".to_string(),
            TableConstraint::ForeignKey(_) => "FOREIGN KEY".to_string(),
            TableConstraint::Check(_) => "CHECK".to_string(),
            other => other.to_string(),
        };
        return Err(
            SqlError::unsupported(format!("{what} constraints are not supported")).with_hint(
                "The supported constraints are PRIMARY KEY, UNIQUE, CHECK, FOREIGN KEY and NOT NULL, of tables.",
            ),
        );
    }
    if watermark {
        return Err(
            SqlError::new(SqlState::WrongObjectType, "a table has no watermark").with_hint(
                "Rows of a table can change at any time. Use CREATE STREAM for rows with an event time.",
            ),
        );
    }
    if let Some(option) = options.0.first() {
        return Err(
            SqlError::unsupported(format!("option \"{}\" is not supported", option.name.value))
                .with_hint("A stream without a connector gets its rows from INSERT, COPY and HTTP."),
        );
    }
    if format {
        return Err(SqlError::unsupported(
            "FORMAT .. ENCODE .. is not supported without a connector",
        ));
    }
    Ok(())
}
