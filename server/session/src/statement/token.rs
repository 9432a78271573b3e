//! CREATE TOKEN and DROP TOKEN: secrets by which programs act as a role over HTTP.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use millrace_auth::token;
use millrace_catalog::Object;
use millrace_catalog::access::denied;
use millrace_catalog::role::TokenDef;
use millrace_database::clock::now_ms;
use millrace_parser::ast::{CreateToken, DropToken};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;

use crate::notice::Severity;
use crate::outcome::{CommandTag, Outcome};
use crate::query::rows_of;
use crate::session::Session;
use crate::statement::role::{changed, named, time};
use crate::statement::{done, show};

/// The column of the answer.
pub const COLUMN: &str = "token";
/// Tokens that a role may have.
const TOKENS_MAX: usize = 1_000;

/// Whoever may act as a role, or change it, may make and drop its tokens.
fn check(session: &Session, role: &Object) -> SqlResult<()> {
    let scope = session.scope();
    let is_superuser = role.role().is_some_and(|role| role.superuser);
    let own = scope.catalog.role_def(scope.acting.role);
    let makes_roles = own.is_some_and(|own| own.create_role) && !is_superuser;
    let may = scope.is_superuser() || makes_roles || scope.acting.role == role.id;
    match may {
        true => Ok(()),
        false => Err(denied(format!(
            "permission denied for tokens of role \"{}\"",
            role.name
        ))),
    }
}

/// Executes CREATE TOKEN. Its secret is in the answer, and nowhere else.
pub async fn create(session: &Arc<Session>, create: &CreateToken) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let catalog = guard.catalog();
    let role = named(session, &catalog, &create.role)?;
    check(session, &role)?;
    let name = millrace_parser::fold(&create.name);
    if holder(&catalog, &name).is_some() {
        return Err(SqlError::new(
            SqlState::DuplicateObject,
            format!("token \"{name}\" already exists"),
        ));
    }
    if !role.role().is_some_and(|role| role.login) {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("role \"{}\" is not permitted to log in", role.name),
        ));
    }
    if role.role().is_some_and(|role| role.tokens.len() >= TOKENS_MAX) {
        return Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!("role \"{}\" has {TOKENS_MAX} tokens already", role.name),
        ));
    }
    let valid_until_us = match &create.valid_until {
        Some(text) => time(text)?,
        None => None,
    };
    let (secret, hash) = token::new();
    guard.put(changed(&role, |role| {
        role.tokens.push(TokenDef {
            name,
            hash,
            valid_until_us,
            created_at_ms: now_ms(),
        });
    })?)?;
    let schema = show::schema(&[COLUMN]);
    let column = Arc::new(StringArray::from(vec![secret])) as ArrayRef;
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(from_internal::arrow)?;
    Ok(Outcome::Rows {
        stream: rows_of(Arc::clone(&schema), vec![batch]),
        schema,
        tag: CommandTag::plain("CREATE TOKEN"),
    })
}

/// Executes DROP TOKEN.
pub async fn drop(session: &Arc<Session>, drop: &DropToken) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let name = millrace_parser::fold(&drop.name);
    let missing = format!("token \"{name}\" does not exist");
    let catalog = guard.catalog();
    let Some(role) = holder(&catalog, &name) else {
        if !drop.if_exists {
            return Err(SqlError::new(SqlState::UndefinedObject, missing));
        }
        session.notice(Severity::Notice, format!("{missing}, skipping"));
        return done("DROP TOKEN");
    };
    check(session, role)?;
    guard.put(changed(role, |role| {
        role.tokens.retain(|token| token.name != name)
    })?)?;
    done("DROP TOKEN")
}

/// The role that has a token of this name.
fn holder<'a>(catalog: &'a millrace_catalog::CatalogSnapshot, name: &str) -> Option<&'a Arc<Object>> {
    catalog.roles().find(|role| {
        let mut tokens = role.role().into_iter().flat_map(|role| &role.tokens);
        tokens.any(|token| token.name == name)
    })
}
