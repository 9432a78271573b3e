//! `CREATE SECRET`, and `ALTER SECRET .. AS`.

use super::{object, with};
use crate::ast::{AlterSecret, CreateSecret, ObjectName, Secret, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE SECRET`.
pub(super) fn create(reader: &mut Reader<'_>) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let value = value(reader)?;
    Ok(Statement::CreateSecret(Box::new(CreateSecret {
        if_not_exists,
        name,
        value,
    })))
}

/// After `ALTER SECRET [IF EXISTS] name`; `None`: it gets no other value.
pub(super) fn alter(reader: &mut Reader<'_>, if_exists: bool, name: &ObjectName) -> Parse<Option<Statement>> {
    if !reader.at(&["AS"]) && !reader.at(&["WITH"]) {
        return Ok(None);
    }
    Ok(Some(Statement::AlterSecret(Box::new(AlterSecret {
        if_exists,
        name: name.clone(),
        value: value(reader)?,
    }))))
}

/// `[WITH (backend = 'meta')] AS 'value'`.
fn value(reader: &mut Reader<'_>) -> Parse<Secret> {
    let at = reader.here();
    for option in with::options(reader)?.0 {
        let name = option.name.value;
        if !name.eq_ignore_ascii_case("backend") {
            return Err(Failure::invalid(format!("a secret has no option \"{name}\""), at)
                .with_hint("Its option is backend."));
        }
        if !option.value.eq_ignore_ascii_case("meta") {
            return Err(Failure::unsupported(
                format!("secrets in \"{}\" are not supported", option.value),
                at,
                "With backend = 'meta' the server keeps them, encrypted. For what a file or an environment variable has, \
                 use the connector's option with .file or .env behind its name.",
            ));
        }
    }
    reader.need(&["AS"])?;
    Ok(Secret(reader.string()?))
}
