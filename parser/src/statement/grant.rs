//! `GRANT` and `REVOKE`, of roles and of privileges, and `ALTER DEFAULT PRIVILEGES`.

use sqlparser::tokenizer::Token;

use super::drop::behavior;
use super::role::role;
use crate::ast::{
    AlterDefaultPrivileges, DropBehavior, Grant, GrantKind, GrantRole, GrantTarget, RoleName, Statement,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `GRANT` (`revoke`: after `REVOKE`).
pub(super) fn parse(reader: &mut Reader<'_>, revoke: bool) -> Parse<Statement> {
    let option_for = revoke && reader.take(&["GRANT", "OPTION", "FOR"]);
    let admin_for = revoke && !option_for && reader.take(&["ADMIN", "OPTION", "FOR"]);
    let words = if admin_for { vec![] } else { names(reader)? };
    if !admin_for && reader.take(&["ON"]) {
        let on = target(reader)?;
        reader.need(&[if revoke { "FROM" } else { "TO" }])?;
        let grantees = reader.list(grantee)?;
        let grant_option = option_for || (!revoke && reader.take(&["WITH", "GRANT", "OPTION"]));
        let granted_by = granted_by(reader)?;
        return Ok(Statement::Grant(Box::new(Grant {
            privileges: privileges(words),
            on,
            grantees,
            grant_option,
            granted_by,
            revoke: revoke.then(|| behavior(reader)),
        })));
    }
    if option_for {
        return Err(reader.unexpected("ON and what the privileges are on"));
    }
    let roles = match admin_for {
        true => reader.list(role)?,
        false => words.into_iter().map(|(name, _)| name).collect(),
    };
    reader.need(&[if revoke { "FROM" } else { "TO" }])?;
    let members = reader.list(grantee)?;
    let admin = admin_for || (!revoke && reader.take(&["WITH", "ADMIN", "OPTION"]));
    let granted_by = granted_by(reader)?;
    let at = reader.here();
    if revoke && behavior(reader) == DropBehavior::Cascade {
        return Err(Failure::unsupported(
            "REVOKE of a role with CASCADE is not supported",
            at,
            "Revoke each membership by itself.",
        ));
    }
    Ok(Statement::GrantRole(Box::new(GrantRole {
        roles,
        members,
        admin,
        granted_by,
        revoke,
    })))
}

/// After `ALTER DEFAULT PRIVILEGES`.
pub(super) fn alter_default(reader: &mut Reader<'_>) -> Parse<Statement> {
    let (mut roles, mut schemas) = (vec![], vec![]);
    loop {
        if reader.take(&["FOR"]) {
            if reader.take_one_of(&["ROLE", "USER"]).is_none() {
                return Err(reader.unexpected("ROLE"));
            }
            roles = reader.list(role)?;
        } else if reader.take(&["IN", "SCHEMA"]) {
            schemas = reader.list(Reader::ident)?;
        } else {
            break;
        }
    }
    let Some(word) = reader.take_one_of(&["GRANT", "REVOKE"]) else {
        return Err(reader.unexpected("GRANT or REVOKE"));
    };
    let revoke = word == "REVOKE";
    let option_for = revoke && reader.take(&["GRANT", "OPTION", "FOR"]);
    let words = names(reader)?;
    reader.need(&["ON"])?;
    let kind = match reader.take_one_of(&[
        "TABLES",
        "SEQUENCES",
        "FUNCTIONS",
        "ROUTINES",
        "SCHEMAS",
        "SECRETS",
    ]) {
        Some("TABLES") => GrantKind::Table,
        Some("SEQUENCES") => GrantKind::Sequence,
        Some("FUNCTIONS" | "ROUTINES") => GrantKind::Function,
        Some("SECRETS") => GrantKind::Secret,
        Some(_) => GrantKind::Schema,
        None => return Err(reader.unexpected("TABLES, SEQUENCES, FUNCTIONS, SCHEMAS or SECRETS")),
    };
    reader.need(&[if revoke { "FROM" } else { "TO" }])?;
    let grantees = reader.list(grantee)?;
    let grant_option = option_for || (!revoke && reader.take(&["WITH", "GRANT", "OPTION"]));
    let _ = behavior(reader);
    Ok(Statement::AlterDefaultPrivileges(Box::new(
        AlterDefaultPrivileges {
            roles,
            schemas,
            kind,
            privileges: privileges(words),
            grantees,
            grant_option,
            revoke,
        },
    )))
}

/// What stands before `ON` or `TO`: words, of which it shows only later whether they are privileges or roles.
fn names(reader: &mut Reader<'_>) -> Parse<Vec<(RoleName, String)>> {
    reader.list(|reader| {
        let token = reader.peek_token();
        let Token::Word(word) = &token.token else {
            return Err(reader.unexpected("privileges or roles"));
        };
        let (value, is_quoted) = (word.value.clone(), word.quote_style.is_some());
        let is_privilege = ["SELECT", "REFERENCES", "CREATE", "ALL"]
            .iter()
            .any(|reserved| !is_quoted && value.eq_ignore_ascii_case(reserved));
        let name = match is_privilege {
            true => RoleName::Named(reader.parse_identifier()?),
            false => role(reader)?,
        };
        if is_privilege && value.eq_ignore_ascii_case("ALL") {
            let _ = reader.take(&["PRIVILEGES"]);
        }
        if reader.peek_token_ref().token == Token::LParen {
            return Err(Failure::unsupported(
                "privileges on single columns are not supported",
                reader.here(),
                "Make a view of the columns, and grant the privilege on it.",
            ));
        }
        Ok((name, value.to_uppercase()))
    })
}

fn privileges(words: Vec<(RoleName, String)>) -> Vec<String> {
    let names: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
    match names.as_slice() {
        [all] if all == "ALL" => vec![],
        _ => names,
    }
}

fn grantee(reader: &mut Reader<'_>) -> Parse<RoleName> {
    let _ = reader.take(&["GROUP"]);
    role(reader)
}

fn granted_by(reader: &mut Reader<'_>) -> Parse<Option<RoleName>> {
    match reader.take(&["GRANTED", "BY"]) {
        true => role(reader).map(Some),
        false => Ok(None),
    }
}

fn target(reader: &mut Reader<'_>) -> Parse<GrantTarget> {
    if reader.take(&["ALL"]) {
        let kind = match reader.take_one_of(&["TABLES", "SEQUENCES", "FUNCTIONS", "ROUTINES", "SECRETS"]) {
            Some("TABLES") => GrantKind::Table,
            Some("SEQUENCES") => GrantKind::Sequence,
            Some("SECRETS") => GrantKind::Secret,
            Some(_) => GrantKind::Function,
            None => return Err(reader.unexpected("TABLES, SEQUENCES, FUNCTIONS or SECRETS")),
        };
        reader.need(&["IN", "SCHEMA"])?;
        return Ok(GrantTarget::AllIn(kind, reader.list(Reader::ident)?));
    }
    let kind = if reader.take(&["MATERIALIZED", "VIEW"]) || reader.take(&["EXTERNAL", "TABLE"]) {
        GrantKind::Table
    } else {
        let word = reader.take_one_of(&[
            "TABLE", "STREAM", "SOURCE", "VIEW", "SINK", "SEQUENCE", "FUNCTION", "ROUTINE", "SCHEMA",
            "DATABASE", "SECRET",
        ]);
        match word {
            Some("SEQUENCE") => GrantKind::Sequence,
            Some("FUNCTION" | "ROUTINE") => GrantKind::Function,
            Some("SCHEMA") => GrantKind::Schema,
            Some("DATABASE") => GrantKind::Database,
            Some("SECRET") => GrantKind::Secret,
            _ => GrantKind::Table,
        }
    };
    let names = reader.list(|reader| {
        let name = reader.name()?;
        if kind == GrantKind::Function && reader.take_token(&Token::LParen) {
            reader.rest_of_parenthesis()?;
        }
        Ok(name)
    })?;
    Ok(GrantTarget::Named(kind, names))
}
