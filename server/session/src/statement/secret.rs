//! CREATE SECRET and ALTER SECRET, and the secrets that options of connectors name.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, ObjectName};
use millrace_catalog::connector::options::invalid;
use millrace_catalog::connector::secret::{KeptSecret, SECRET_BYTES_MAX};
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::secret::SecretDef;
use millrace_catalog::{DEFAULT_SCHEMA, Definition, Object};
use millrace_database::clock::now_ms;
use millrace_parser::ast::{AlterSecret, CreateSecret, FormatEncode, OptionEntry, Options, Secret};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// The value as it is kept for the secret of this identity.
fn sealed(session: &Session, id: ObjectId, value: &Secret) -> SqlResult<Definition> {
    let length = value.0.len();
    if length == 0 || length > SECRET_BYTES_MAX {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("a secret has 1 to {SECRET_BYTES_MAX} bytes, not {length}"),
        ));
    }
    let value = session.database().secrets().seal(id, value.0.as_bytes())?;
    Ok(Definition::Secret(Arc::new(SecretDef { value: Some(value) })))
}

/// Executes CREATE SECRET.
pub async fn create(session: &Arc<Session>, create: &CreateSecret) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = names::new_name(session, &scope, &create.name)?;
    if scope.catalog.secret(&scope.database, &schema, &name).is_some() {
        let exists = format!("secret \"{name}\" already exists");
        if !create.if_not_exists {
            return Err(SqlError::new(SqlState::DuplicateObject, exists)
                .with_hint("Use ALTER SECRET .. AS for another value."));
        }
        session.notice(Severity::Notice, format!("{exists}, skipping"));
        return done("CREATE SECRET");
    }
    let id = guard.next_id()?;
    guard.put(Object {
        id,
        kind: ObjectKind::Secret,
        database: scope.database.clone(),
        name,
        // With stars for the value.
        sql: create.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![],
        definition: sealed(session, id, &create.value)?,
        rights: scope.rights_of_new(ObjectKind::Secret, &schema),
        schema,
    })?;
    done("CREATE SECRET")
}

/// Executes ALTER SECRET .. AS: what uses the secret takes the value when it connects next.
pub async fn alter(session: &Arc<Session>, alter: &AlterSecret) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let secret = match names::secret(session, &scope, &alter.name) {
        Err(error) if alter.if_exists && error.code == SqlState::UndefinedObject => {
            session.notice(Severity::Notice, format!("{}, skipping", error.message));
            return done("ALTER SECRET");
        }
        found => found?,
    };
    scope.check_owner(&secret)?;
    guard.put(Object {
        definition: sealed(session, secret.id, &alter.value)?,
        ..secret.as_ref().clone()
    })?;
    done("ALTER SECRET")
}

/// Finds the secrets that options name, which whoever acts must be allowed to use, and says them there as definitions keep them. Returns
/// their identities.
pub(super) fn bind(
    session: &Session,
    options: &mut Options,
    format: Option<&mut FormatEncode>,
) -> SqlResult<Vec<ObjectId>> {
    let scope = session.scope();
    let of_format = format.into_iter().flat_map(|format| &mut format.options.0);
    let all = options.0.iter_mut().chain(of_format);
    let named = all.filter(|option| {
        let name = option.name.value.to_ascii_lowercase();
        name.ends_with(KeptSecret::SUFFIX)
    });
    named
        .map(|option| {
            let secret = named_by(session, &scope, option)?;
            scope.check(&secret, Privileges::USAGE)?;
            option.value = KeptSecret::value(secret.id, &written(&secret));
            Ok(secret.id)
        })
        .collect()
}

/// The name as a statement has it.
fn written(secret: &Object) -> String {
    let name = quote_identifier(&secret.name);
    match secret.schema == DEFAULT_SCHEMA {
        true => name.to_string(),
        false => format!("{}.{name}", quote_identifier(&secret.schema)),
    }
}

fn named_by(session: &Session, scope: &Scope, option: &OptionEntry) -> SqlResult<Arc<Object>> {
    let parts = match millrace_parser::parse_expression(&option.value) {
        Ok(Expr::Identifier(name)) => vec![name],
        Ok(Expr::CompoundIdentifier(parts)) => parts,
        _ => {
            return Err(invalid(
                &option.name.value,
                &option.value,
                "it must be the name of a secret",
            ));
        }
    };
    names::secret(session, scope, &ObjectName::from(parts))
}

/// Refuses secrets that were dropped meanwhile.
pub(super) fn check_there(scope: &Scope, secrets: &[ObjectId]) -> SqlResult<()> {
    match secrets.iter().all(|id| scope.catalog.object(*id).is_some()) {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::UndefinedObject,
            "a secret that the options name was dropped meanwhile",
        )),
    }
}
