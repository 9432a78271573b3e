//! `CREATE`, `ALTER` and `DROP` of roles and of tokens, `SET ROLE` and `SET SESSION AUTHORIZATION`.

use sqlparser::tokenizer::Token;

use super::drop::behavior;
use super::{object, set};
use crate::ast::{
    AlterRole, CreateRole, CreateToken, DropOwned, DropRole, DropToken, GrantRole, Ident, Options,
    ReassignOwned, RoleChange, RoleName, RoleOption, Secret, SetValue, SetVariable, Statement,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// What begins a statement about roles.
pub(super) const KINDS: [&str; 3] = ["ROLE", "USER", "GROUP"];

/// A role, as GRANT, SET ROLE and ALTER .. OWNER TO name one.
pub(super) fn role(reader: &mut Reader<'_>) -> Parse<RoleName> {
    if reader.take_one_of(&["CURRENT_USER", "CURRENT_ROLE"]).is_some() {
        return Ok(RoleName::CurrentUser);
    }
    if reader.take(&["SESSION_USER"]) {
        return Ok(RoleName::SessionUser);
    }
    if reader.take(&["PUBLIC"]) {
        return Ok(RoleName::Public);
    }
    Ok(RoleName::Named(reader.ident()?))
}

/// After `CREATE ROLE`, `USER` or `GROUP`.
pub(super) fn create(reader: &mut Reader<'_>, kind: &str) -> Parse<Statement> {
    let name = role(reader)?;
    Ok(Statement::CreateRole(Box::new(CreateRole {
        name,
        is_user: kind == "USER",
        options: options(reader)?,
    })))
}

/// After `ALTER ROLE`, `USER` or `GROUP`.
pub(super) fn alter(reader: &mut Reader<'_>, kind: &str) -> Parse<Statement> {
    let name = match reader.take(&["ALL"]) {
        true => None,
        false => Some(role(reader)?),
    };
    // What PostgreSQL had before roles could be members of each other.
    if kind == "GROUP"
        && let Some(group) = &name
        && let Some(word) = reader.take_one_of(&["ADD", "DROP"])
    {
        reader.need(&["USER"])?;
        return Ok(Statement::GrantRole(Box::new(GrantRole {
            roles: vec![group.clone()],
            members: reader.list(role)?,
            admin: false,
            granted_by: None,
            revoke: word == "DROP",
        })));
    }
    let database = match reader.take(&["IN", "DATABASE"]) {
        true => Some(reader.ident()?),
        false => None,
    };
    let change = if let Some(change) = settings(reader)? {
        change
    } else if database.is_some() || name.is_none() {
        return Err(reader.unexpected("SET or RESET"));
    } else if reader.take(&["RENAME", "TO"]) {
        RoleChange::Rename(reader.ident()?)
    } else {
        RoleChange::Options(options(reader)?)
    };
    Ok(Statement::AlterRole(Box::new(AlterRole {
        name,
        database,
        change,
    })))
}

/// After `ALTER DATABASE name`; `None`: it is not about settings.
pub(super) fn alter_database(reader: &mut Reader<'_>, name: &Ident) -> Parse<Option<Statement>> {
    let alter = |change| {
        Statement::AlterRole(Box::new(AlterRole {
            name: None,
            database: Some(name.clone()),
            change,
        }))
    };
    Ok(settings(reader)?.map(alter))
}

/// `SET ..` and `RESET ..`.
fn settings(reader: &mut Reader<'_>) -> Parse<Option<RoleChange>> {
    let is_list = |reader: &Reader<'_>| reader.peek_token_ref().token == Token::LParen;
    Ok(Some(if reader.take(&["SET"]) {
        if is_list(reader) {
            let limits = reader.option_list()?;
            return match limits.is_empty() {
                true => Err(reader.unexpected("a limit, such as (cpu_share = 50)")),
                false => Ok(Some(RoleChange::SetLimits(Options(limits)))),
            };
        }
        let (name, value) = match reader.take(&["TIME", "ZONE"]) {
            true => (
                "timezone".to_owned(),
                SetValue::Values(vec![reader.plain_value()?]),
            ),
            false => set::assignment(reader)?,
        };
        RoleChange::Set { name, value }
    } else if reader.take(&["RESET"]) {
        if is_list(reader) {
            return Ok(Some(RoleChange::ResetLimits(
                reader.parenthesised(set::variable_name)?,
            )));
        }
        RoleChange::Reset(match reader.take(&["ALL"]) {
            true => None,
            false => Some(set::variable_name(reader)?),
        })
    } else {
        return Ok(None);
    }))
}

/// After `REASSIGN`.
pub(super) fn reassign(reader: &mut Reader<'_>) -> Parse<Statement> {
    reader.need(&["OWNED", "BY"])?;
    let from = reader.list(role)?;
    reader.need(&["TO"])?;
    let to = role(reader)?;
    Ok(Statement::ReassignOwned(Box::new(ReassignOwned { from, to })))
}

/// After `DROP OWNED`.
pub(super) fn drop_owned(reader: &mut Reader<'_>) -> Parse<Statement> {
    reader.need(&["BY"])?;
    Ok(Statement::DropOwned(DropOwned {
        by: reader.list(role)?,
        behavior: behavior(reader),
    }))
}

/// After `DROP ROLE`, `USER` or `GROUP`.
pub(super) fn drop(reader: &mut Reader<'_>) -> Parse<Statement> {
    let if_exists = object::if_exists(reader);
    let names = reader.list(role)?;
    Ok(Statement::DropRole(DropRole { if_exists, names }))
}

fn options(reader: &mut Reader<'_>) -> Parse<Vec<RoleOption>> {
    let _ = reader.take(&["WITH"]);
    let mut options: Vec<RoleOption> = vec![];
    while !reader.at_end() {
        let at = reader.here();
        let option = option(reader)?;
        let is_again = |given: &RoleOption| std::mem::discriminant(given) == std::mem::discriminant(&option);
        if options.iter().any(is_again) {
            return Err(Failure::invalid("conflicting or redundant options", at));
        }
        options.push(option);
    }
    Ok(options)
}

/// A word for yes, one for no, and what is said by them.
type Flag = (&'static str, &'static str, fn(bool) -> RoleOption);

fn option(reader: &mut Reader<'_>) -> Parse<RoleOption> {
    let flags: [Flag; 7] = [
        ("SUPERUSER", "NOSUPERUSER", RoleOption::Superuser),
        ("CREATEDB", "NOCREATEDB", RoleOption::CreateDb),
        ("CREATEROLE", "NOCREATEROLE", RoleOption::CreateRole),
        ("INHERIT", "NOINHERIT", RoleOption::Inherit),
        ("LOGIN", "NOLOGIN", RoleOption::Login),
        ("REPLICATION", "NOREPLICATION", RoleOption::Replication),
        ("BYPASSRLS", "NOBYPASSRLS", RoleOption::BypassRls),
    ];
    for (yes, no, option) in flags {
        if reader.take(&[yes]) {
            return Ok(option(true));
        }
        if reader.take(&[no]) {
            return Ok(option(false));
        }
    }
    let _ = reader.take(&["ENCRYPTED"]);
    if reader.take(&["PASSWORD"]) {
        return Ok(RoleOption::Password(match reader.take(&["NULL"]) {
            true => None,
            false => Some(Secret(reader.string()?)),
        }));
    }
    if reader.take(&["VALID", "UNTIL"]) {
        return Ok(RoleOption::ValidUntil(reader.string()?));
    }
    if reader.take(&["CONNECTION", "LIMIT"]) {
        let at = reader.here();
        let limit: i64 = reader.plain_value()?.parse().unwrap_or(i64::MIN);
        return match i32::try_from(limit) {
            Ok(limit) if limit >= -1 => Ok(RoleOption::ConnectionLimit(limit)),
            _ => Err(Failure::invalid("invalid connection limit", at)
                .with_hint("Give a number of connections, or -1 for no limit.")),
        };
    }
    if reader.take(&["IN"]) {
        if reader.take_one_of(&["ROLE", "GROUP"]).is_none() {
            return Err(reader.unexpected("ROLE"));
        }
        return Ok(RoleOption::InRole(reader.list(role)?));
    }
    if reader.take_one_of(&["ROLE", "USER"]).is_some() {
        return Ok(RoleOption::Members(reader.list(role)?));
    }
    if reader.take(&["ADMIN"]) {
        return Ok(RoleOption::Admins(reader.list(role)?));
    }
    Err(reader.unexpected("an option of a role, such as LOGIN, SUPERUSER or PASSWORD"))
}

/// After `CREATE TOKEN`.
pub(super) fn create_token(reader: &mut Reader<'_>) -> Parse<Statement> {
    let name = reader.ident()?;
    reader.need(&["FOR"])?;
    let _ = reader.take(&["ROLE"]);
    let role = role(reader)?;
    let valid_until = match reader.take(&["VALID", "UNTIL"]) {
        true => Some(reader.string()?),
        false => None,
    };
    Ok(Statement::CreateToken(Box::new(CreateToken {
        name,
        role,
        valid_until,
    })))
}

/// After `DROP TOKEN`.
pub(super) fn drop_token(reader: &mut Reader<'_>) -> Parse<Statement> {
    let if_exists = object::if_exists(reader);
    let name = reader.ident()?;
    Ok(Statement::DropToken(DropToken { if_exists, name }))
}

/// `ROLE name | NONE` and `SESSION AUTHORIZATION name | DEFAULT` after `SET [SESSION | LOCAL]`: settings by other words.
/// `None` if it is neither.
pub(super) fn set_role(reader: &mut Reader<'_>, local: bool) -> Parse<Option<Statement>> {
    let name = if reader.take(&["SESSION", "AUTHORIZATION"]) {
        "session_authorization"
    } else if reader.at(&["ROLE"]) && !is_assignment(reader) {
        reader.take(&["ROLE"]);
        "role"
    } else {
        return Ok(None);
    };
    let value = match reader.take(&["DEFAULT"]) {
        true => SetValue::Default,
        false => SetValue::Values(vec![reader.plain_value()?]),
    };
    Ok(Some(Statement::SetVariable(SetVariable {
        local,
        name: name.to_owned(),
        value,
    })))
}

/// Whether it is `role = ..` or `role TO ..`.
fn is_assignment(reader: &Reader<'_>) -> bool {
    reader.at(&["ROLE", "TO"]) || reader.peek_nth_token_ref(1).token == Token::Eq
}
