//! ALTER TABLE where the rows get another form: DROP COLUMN, TYPE, SET and DROP NOT NULL, and primary keys.
//!
//! A table in another form is a new one, which takes the place of the old one within the transaction: name, indexes, sequences and keys
//! go over to it, materialized views of the old one are filled anew by COMMIT, and ROLLBACK leaves the old one as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Ident};
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{CheckDef, ColumnDef, Definition, ForeignKeyDef, Object, Relation};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_functions::sql::{equality, named_types};
use millrace_functions::{cast, syntax};
use millrace_parser::ast::DropBehavior;
use millrace_parser::quote_identifier;
use millrace_parser::walk::walk_expressions;
use millrace_planner::RelationKind;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::named::resolved;
use millrace_storage::{ChangeBatch, ObjectId};

use crate::keys::check_distinct;
use crate::notice::Severity;
use crate::sequences::OwnSequence;
use crate::session::Session;
use crate::statement::create_relation::{check_columns, generated, own_sequences};
use crate::statement::drop::dependents_of;
use crate::statement::update::changing_rows;

/// What is altered, by whom.
pub(super) struct Altering<'a> {
    pub session: &'a Arc<Session>,
    pub scope: &'a Scope,
    pub guard: &'a DdlGuard<'a>,
    pub object: &'a Arc<Object>,
    pub relation: &'a Relation,
}

/// The form that a table gets.
pub(super) struct Form {
    pub columns: Vec<ColumnDef>,
    /// Where each column was; `None`: it is new.
    from: Vec<Option<usize>>,
    pub key: Vec<usize>,
    pub key_name: Option<String>,
    checks: Vec<CheckDef>,
    foreign_keys: Vec<ForeignKeyDef>,
    /// What columns get that do not keep their values.
    values: BTreeMap<usize, Expr>,
}

impl Form {
    /// The form that the table has.
    pub fn of(relation: &Relation) -> Self {
        Form {
            columns: relation.columns.clone(),
            from: (0..relation.columns.len()).map(Some).collect(),
            key: relation.key().to_vec(),
            key_name: relation.key_name.clone(),
            checks: relation.checks.clone(),
            foreign_keys: relation.foreign_keys.clone(),
            values: BTreeMap::new(),
        }
    }

    /// Where a column of the old form is now.
    fn place(&self, old: usize) -> Option<usize> {
        self.from.iter().position(|from| *from == Some(old))
    }

    fn places(&self, old: &[usize]) -> Option<Vec<usize>> {
        old.iter().map(|column| self.place(*column)).collect()
    }

    /// Takes columns out, with what is over them.
    fn without(&mut self, relation: &Relation, gone: &BTreeSet<usize>) {
        self.from = (0..relation.columns.len())
            .filter(|column| !gone.contains(column))
            .map(Some)
            .collect();
        self.columns = (self.from.iter().flatten())
            .map(|column| relation.columns[*column].clone())
            .collect();
        match self.places(relation.key()) {
            Some(key) => self.key = key,
            None => (self.key, self.key_name) = (vec![], None),
        }
        self.checks
            .retain(|check| named_columns(relation, &check.expression).is_disjoint(gone));
        let keys = std::mem::take(&mut self.foreign_keys);
        self.foreign_keys = keys
            .into_iter()
            .filter_map(|key| {
                let columns = self.places(&key.columns)?;
                Some(ForeignKeyDef { columns, ..key })
            })
            .collect();
    }

    fn set_nullable(&mut self, column: usize, nullable: bool) {
        let field = self.columns[column].field.as_ref().clone();
        self.columns[column].field = Arc::new(field.with_nullable(nullable));
    }
}

/// The columns that an expression over a table names.
pub(super) fn named_columns(relation: &Relation, expression: &Expr) -> BTreeSet<usize> {
    let mut named = BTreeSet::new();
    let _: ControlFlow<()> = walk_expressions(expression, |expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        let name = name.map(millrace_parser::fold);
        let known = |column: &ColumnDef| Some(column.field.name()) == name.as_ref();
        named.extend(relation.columns.iter().position(known));
        ControlFlow::Continue(())
    });
    named
}

fn failed(error: SqlError, code: SqlState, message: String) -> SqlError {
    SqlError {
        code,
        message,
        detail: None,
        ..error
    }
}

impl Altering<'_> {
    fn position(&self, name: &Ident) -> SqlResult<usize> {
        Ok(positions(self.relation, &[millrace_parser::fold(name)])?[0])
    }

    /// DROP COLUMN.
    pub async fn drop_column(&self, name: &Ident, if_exists: bool, behavior: DropBehavior) -> SqlResult<()> {
        let position = match self.position(name) {
            Err(error) if if_exists && error.code == SqlState::UndefinedColumn => {
                let notice = format!("{}, skipping", error.message);
                self.session.notice(Severity::Notice, notice);
                return Ok(());
            }
            found => found?,
        };
        let (relation, name) = (self.relation, millrace_parser::fold(name));
        let mut gone = BTreeSet::from([position]);
        let computed = relation.columns.iter().enumerate().filter(|(_, column)| {
            let of = column.generated.as_ref();
            of.is_some_and(|of| named_columns(relation, of).contains(&position))
        });
        let computed: Vec<usize> = computed.map(|(at, _)| at).collect();
        let users = self.guard.users_of(self.object, position);
        let catalog = self.guard.catalog();
        let references: Vec<(&Arc<Object>, &ForeignKeyDef)> = catalog
            .references_to(self.object.id)
            .filter(|(child, key)| child.id != self.object.id && key.referenced.contains(&position))
            .collect();
        let on = format!("column {name} of table {}", self.object.display_name());
        let mut lines: Vec<String> = vec![];
        for at in &computed {
            let column = relation.columns[*at].field.name();
            let table = self.object.display_name();
            lines.push(format!("column {column} of table {table} depends on {on}"));
        }
        for (child, key) in &references {
            let (key, table) = (&key.name, child.display_name());
            lines.push(format!("constraint {key} on table {table} depends on {on}"));
        }
        for user in &users {
            lines.push(format!("{} depends on {on}", user.described()));
            lines.extend(dependents_of(user, &catalog));
        }
        if !lines.is_empty() && behavior == DropBehavior::Restrict {
            return Err(SqlError::new(
                SqlState::DependentObjectsStillExist,
                format!("cannot drop {on} because other objects depend on it"),
            )
            .with_detail(lines.join("\n"))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        let roots: Vec<ObjectId> = users.iter().map(|user| user.id).collect();
        let views = catalog.closure(&roots);
        self.say_cascade(computed.len() + references.len() + views.len());
        gone.extend(computed);
        let mut removed = views;
        removed.extend(self.own_sequences(&gone));
        self.guard.drop(&removed).await?;
        let keys: BTreeSet<(ObjectId, String)> = (references.iter())
            .map(|(child, key)| (child.id, key.name.clone()))
            .collect();
        self.drop_references(&keys)?;
        let mut form = Form::of(relation);
        form.without(relation, &gone);
        if form.columns.is_empty() {
            return Err(SqlError::unsupported("a table without columns is not supported"));
        }
        self.rewrite(form, |error| error).await
    }

    /// ADD COLUMN, beside other actions, or where each row gets a value of its own; `wanted` is the sequence that the column is to have.
    pub async fn add_column(&self, column: ColumnDef, mut wanted: Vec<OwnSequence>) -> SqlResult<()> {
        let mut form = Form::of(self.relation);
        form.columns.push(column);
        form.from.push(None);
        check_columns((form.columns.iter()).map(|column| column.field.name().as_str()))?;
        generated::check(self.session, self.scope, &form.columns)?;
        for sequence in &mut wanted {
            sequence.column = form.columns.len() - 1;
        }
        let place = (
            self.object.schema.as_str(),
            self.object.name.as_str(),
            self.object.id,
        );
        let made = own_sequences::made(self.guard, self.scope, place, &mut form.columns, wanted)?;
        self.guard.create_all(made).await?;
        self.rewrite(form, |error| error).await
    }

    /// Says that other objects go, too.
    pub fn say_cascade(&self, others: usize) {
        if others > 0 {
            let s = if others == 1 { "" } else { "s" };
            let notice = format!("drop cascades to {others} other object{s}");
            self.session.notice(Severity::Notice, notice);
        }
    }

    /// The sequences that go with columns.
    fn own_sequences(&self, columns: &BTreeSet<usize>) -> Vec<ObjectId> {
        let catalog = self.guard.catalog();
        let of_column = |object: &Object, column: usize| {
            let column = object
                .relation()
                .and_then(|relation| relation.columns.get(column));
            column.and_then(|column| Some(column.sequence?.id))
        };
        let own = columns
            .iter()
            .filter_map(|column| of_column(self.object, *column));
        own.filter(|id| {
            let is_owned = catalog.object(*id).is_some_and(|sequence| {
                matches!(&sequence.definition, Definition::Sequence(sequence) if sequence.owner == Some(self.object.id))
            });
            let is_used = catalog.objects().any(|object| {
                let width = object.relation().map_or(0, |relation| relation.columns.len());
                (0..width).any(|column| {
                    of_column(object, column) == Some(*id)
                        && !(object.id == self.object.id && columns.contains(&column))
                })
            });
            is_owned && !is_used
        })
        .collect()
    }

    /// ALTER COLUMN .. TYPE.
    pub async fn set_type(&self, name: &Ident, data_type: &DataType, using: Option<Expr>) -> SqlResult<()> {
        let position = self.position(name)?;
        let relation = self.relation;
        let old = &relation.columns[position];
        let name = old.field.name().clone();
        let reader = self.session.database().reader(self.scope);
        let known = resolved(data_type, &reader)?;
        let mut using = using;
        named_types::resolve(&mut using, &reader)?;
        let field = Arc::new(types::from_sql(&known.data_type)?.field(&name, old.field.is_nullable()));
        if old.generated.is_some() && using.is_some() {
            return Err(SqlError::new(
                SqlState::InvalidColumnDefinition,
                "cannot specify USING when altering type of generated column",
            )
            .with_detail(format!("Column \"{name}\" is a generated column.")));
        }
        for column in &relation.columns {
            if let Some(of) = &column.generated
                && named_columns(relation, of).contains(&position)
            {
                return Err(SqlError::unsupported(
                    "cannot alter type of a column used by a generated column",
                )
                .with_detail(format!(
                    "Column \"{name}\" is used by generated column \"{}\".",
                    column.field.name()
                )));
            }
        }
        if let Some(user) = self.guard.users_of(self.object, position).first() {
            return Err(
                SqlError::unsupported("cannot alter type of a column used by a view or rule").with_detail(
                    format!(
                        "rule _RETURN on {} depends on column \"{name}\"",
                        user.described()
                    ),
                ),
            );
        }
        let is_identity = old
            .sequence
            .is_some_and(|sequence| sequence.takes != Takes::Default);
        if is_identity && !field.data_type().is_signed_integer() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "identity column type must be smallint, integer, or bigint",
            ));
        }
        self.check_keys_fit(position, &field, using.is_some())?;
        let mut form = Form::of(relation);
        form.columns[position].field = Arc::clone(&field);
        form.columns[position].domain = known.domains.first().map(|domain| ObjectId(domain.id));
        if old.generated.is_none() {
            let value = using
                .clone()
                .unwrap_or(Expr::Identifier(Ident::with_quote('"', &name)));
            let arguments = vec![value, syntax::text(&types::sql_name(&field)), syntax::text(&name)];
            form.values
                .insert(position, syntax::call(cast::ASSIGN, arguments));
        }
        let target = types::type_name(&field);
        self.rewrite(form, |error| match error.code {
            SqlState::DatatypeMismatch if using.is_some() => failed(
                error,
                SqlState::DatatypeMismatch,
                format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {target}"),
            )
            .with_hint("You might need to add an explicit cast."),
            SqlState::DatatypeMismatch => failed(
                error,
                SqlState::DatatypeMismatch,
                format!("column \"{name}\" cannot be cast automatically to type {target}"),
            )
            .with_hint(format!(
                "You might need to specify \"USING {}::{target}\".",
                quote_identifier(&name)
            )),
            _ => error,
        })
        .await
    }

    /// SET NOT NULL and DROP NOT NULL.
    pub async fn set_not_null(&self, name: &Ident, not_null: bool) -> SqlResult<()> {
        let position = self.position(name)?;
        let column = &self.relation.columns[position];
        let name = column.field.name();
        if column.field.is_nullable() != not_null {
            return Ok(());
        }
        if !not_null && self.relation.key().contains(&position) {
            return Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                format!("column \"{name}\" is in a primary key"),
            ));
        }
        let is_identity = column
            .sequence
            .is_some_and(|sequence| sequence.takes != Takes::Default);
        if !not_null && is_identity {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!(
                    "column \"{name}\" of relation \"{}\" is an identity column",
                    self.object.name
                ),
            ));
        }
        let mut form = Form::of(self.relation);
        form.set_nullable(position, !not_null);
        self.rewrite(form, |error| error).await
    }

    /// ADD PRIMARY KEY.
    pub async fn set_key(&self, name: String, columns: Vec<usize>) -> SqlResult<()> {
        let mut form = Form::of(self.relation);
        for column in &columns {
            equality::check_key(&form.columns[*column].field)?;
            form.set_nullable(*column, false);
        }
        form.key = columns;
        form.key_name = Some(name);
        self.rewrite(form, |error| error).await
    }

    /// DROP CONSTRAINT of the primary key, and of the table's own foreign keys that refer to it. Its columns stay NOT NULL.
    pub async fn drop_key(&self, foreign_keys: &BTreeSet<String>) -> SqlResult<()> {
        let mut form = Form::of(self.relation);
        form.foreign_keys.retain(|key| !foreign_keys.contains(&key.name));
        (form.key, form.key_name) = (vec![], None);
        self.rewrite(form, |error| error).await
    }

    /// Puts a table of another form in the place of the one that is altered.
    async fn rewrite(&self, form: Form, explain: impl Fn(SqlError) -> SqlError) -> SqlResult<()> {
        let (session, object) = (self.session, self.object);
        let Some(definitions) = self.guard.definitions() else {
            return Err(SqlError::internal(
                "a table is rewritten outside of a transaction",
            ));
        };
        if let Some(column) = self.relation.columns.iter().find(|column| column.proctime) {
            return Err(SqlError::unsupported(format!(
                "this cannot be altered of {} because of its column \"{}\"",
                object.described(),
                column.field.name()
            ))
            .with_detail("The time at which its rows were written would be lost."));
        }
        let id = self.guard.next_id()?;
        let mut columns = form.columns.clone();
        for column in &mut columns {
            column.added = None;
        }
        let mut relation = Relation::new(id, &object.name, RelationKind::Table, columns, &form.key, false);
        relation.key_name.clone_from(&form.key_name);
        let own_keys = form.foreign_keys.iter().map(|key| self.moved(key, id, &form));
        let relation = relation
            .with_checks(form.checks.clone())
            .with_foreign_keys(own_keys.collect::<SqlResult<_>>()?)
            .with_on_conflict(self.relation.on_conflict.filter(|_| !form.key.is_empty()))
            .with_keeping(self.relation.keeping);
        let rows = self.rows(&form, &relation).await.map_err(explain)?;
        self.check_uniques(&form, &relation, &rows)?;
        let mut new = object.as_ref().clone();
        new.id = id;
        new.definition = Definition::Relation(Box::new(relation.clone()));
        new.restate();
        let making = self.guard.replace(object, new, None)?;
        definitions.put_making(making);
        let catalog = self.guard.catalog();
        let children: BTreeSet<ObjectId> = (catalog.references_to(object.id))
            .map(|(child, _)| child.id)
            .collect();
        for child in children.into_iter().filter_map(|child| catalog.object(child)) {
            let mut child = child.as_ref().clone();
            if let Definition::Relation(of_child) = &mut child.definition {
                for key in &mut of_child.foreign_keys {
                    *key = self.moved(key, id, &form)?;
                }
            }
            self.guard.put(child)?;
        }
        let write = session.begin_write(&relation).await?;
        let changes = rows.into_iter().map(ChangeBatch::insertions).collect();
        write.finish_unchecked(changes).await
    }

    /// A foreign key that refers to the new table if it has referred to the old one.
    fn moved(&self, key: &ForeignKeyDef, id: ObjectId, form: &Form) -> SqlResult<ForeignKeyDef> {
        if key.table != self.object.id {
            return Ok(key.clone());
        }
        let referenced = form.places(&key.referenced);
        Ok(ForeignKeyDef {
            table: id,
            referenced: referenced
                .ok_or_else(|| SqlError::internal("a column was dropped to which a foreign key refers"))?,
            ..key.clone()
        })
    }

    /// The rows in their new form.
    async fn rows(&self, form: &Form, relation: &Relation) -> SqlResult<Vec<RecordBatch>> {
        let (session, object) = (self.session, self.object);
        // A new column has its default, a computed one is computed again.
        let (mut given, mut list) = (vec![], vec![]);
        for (column, from) in form.from.iter().enumerate() {
            let (None, Some(from)) = (&form.columns[column].generated, from) else {
                continue;
            };
            given.push(column);
            list.push(match form.values.get(&column) {
                Some(value) => value.to_string(),
                None => quote_identifier(self.relation.columns[*from].field.name()).to_string(),
            });
        }
        let text = format!(
            "SELECT {} FROM {}.{}",
            list.join(", "),
            quote_identifier(&object.schema),
            quote_identifier(&object.name)
        );
        let builder = RowBuilder::new(session.database(), self.scope, relation, &given)?;
        let write = session.begin_write(self.relation).await?;
        let read = changing_rows(session, self.scope, self.relation, &text, write.current().await?).await;
        write.finish(vec![]).await?;
        let mut rows = vec![];
        for batch in read? {
            let fields = batch.schema().fields().clone();
            let columns: Vec<_> = fields
                .iter()
                .cloned()
                .zip(batch.columns().iter().cloned())
                .collect();
            let built = builder.build(&columns, batch.num_rows());
            rows.push(built.map_err(|failure| self.explain(*failure.error))?);
        }
        Ok(rows)
    }

    /// What is wrong with a row, as what is wrong with the table.
    fn explain(&self, error: SqlError) -> SqlError {
        match error.code {
            SqlState::NotNullViolation => {
                let message = match error.message.split('"').nth(1) {
                    Some(column) => format!(
                        "column \"{column}\" of relation \"{}\" contains null values",
                        self.object.name
                    ),
                    None => error.message.clone(),
                };
                failed(error, SqlState::NotNullViolation, message)
            }
            SqlState::CheckViolation => {
                let message = match error.message.split('"').nth(3) {
                    Some(check) => format!(
                        "check constraint \"{check}\" of relation \"{}\" is violated by some row",
                        self.object.name
                    ),
                    None => error.message.clone(),
                };
                failed(error, SqlState::CheckViolation, message)
            }
            _ => error,
        }
    }

    /// Refuses rows whose values would be twice in their new form.
    fn check_uniques(&self, form: &Form, relation: &Relation, rows: &[RecordBatch]) -> SqlResult<()> {
        if let Some(name) = &form.key_name {
            check_distinct(relation, name, &form.key, rows)?;
        }
        let catalog = self.guard.catalog();
        for (index, definition) in catalog.indexes_of(self.object.id) {
            if let (true, Some(columns)) = (definition.is_unique, form.places(&definition.columns)) {
                for column in &columns {
                    equality::check_key(relation.schema().field(*column))?;
                }
                check_distinct(relation, &index.name, &columns, rows)?;
            }
        }
        Ok(())
    }
}
