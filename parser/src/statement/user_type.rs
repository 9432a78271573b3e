//! `CREATE TYPE`, `CREATE DOMAIN`, and `ALTER TYPE .. VALUE`.

use sqlparser::ast::{Expr, ObjectName};
use sqlparser::tokenizer::Token;

use crate::ast::{
    AlterOperation, CreateComposite, CreateDomain, CreateEnum, DomainChange, EnumChange, Statement,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE TYPE`.
pub(super) fn create_type(reader: &mut Reader<'_>) -> Parse<Statement> {
    let name = reader.name()?;
    let at = reader.here();
    let refused = |what: &str, hint: &str| Failure::unsupported(format!("{what} not supported"), at, hint);
    if !reader.take(&["AS"]) {
        return Err(refused(
            "shell and base types are",
            "Use CREATE TYPE .. AS ENUM, CREATE TYPE .. AS (..), or CREATE DOMAIN.",
        ));
    }
    if reader.take(&["RANGE"]) {
        return Err(refused(
            "range types are",
            "Use two columns, for the lower and the upper bound.",
        ));
    }
    if !reader.take(&["ENUM"]) {
        return composite(reader, name);
    }
    reader.need_token(&Token::LParen)?;
    let labels = match reader.take_token(&Token::RParen) {
        true => vec![],
        false => {
            let labels = reader.list(Reader::string)?;
            reader.need_token(&Token::RParen)?;
            labels
        }
    };
    Ok(Statement::CreateEnum(Box::new(CreateEnum { name, labels })))
}

/// After `CREATE TYPE name AS`.
fn composite(reader: &mut Reader<'_>, name: ObjectName) -> Parse<Statement> {
    reader.need_token(&Token::LParen)?;
    let mut attributes = vec![];
    if !reader.take_token(&Token::RParen) {
        attributes = reader.list(|reader| {
            let name = reader.ident()?;
            let data_type = reader.parse_data_type()?;
            let at = reader.here();
            if reader.take(&["COLLATE"]) && !matches!(reader.ident()?.value.as_str(), "C" | "default") {
                return Err(Failure::unsupported(
                    "COLLATE of an attribute is not supported",
                    at,
                    "",
                ));
            }
            Ok((name, data_type))
        })?;
        reader.need_token(&Token::RParen)?;
    }
    let new = CreateComposite { name, attributes };
    Ok(Statement::CreateComposite(Box::new(new)))
}

/// After `CREATE DOMAIN`.
pub(super) fn create_domain(reader: &mut Reader<'_>) -> Parse<Statement> {
    let name = reader.name()?;
    let _ = reader.take(&["AS"]);
    let mut new = CreateDomain {
        name,
        data_type: reader.parse_data_type()?,
        default: None,
        not_null: false,
        checks: vec![],
    };
    loop {
        let at = reader.here();
        if reader.take(&["COLLATE"]) {
            return Err(Failure::unsupported(
                "COLLATE of a domain is not supported",
                at,
                "",
            ));
        }
        if reader.take(&["DEFAULT"]) {
            new.default = Some(reader.expr()?);
            without_not_null(reader, &mut new);
            continue;
        }
        let constraint = match reader.take(&["CONSTRAINT"]) {
            true => Some(reader.ident()?),
            false => None,
        };
        if reader.take(&["NOT", "NULL"]) {
            new.not_null = true;
        } else if reader.take(&["CHECK"]) {
            reader.need_token(&Token::LParen)?;
            let check = reader.expr()?;
            reader.need_token(&Token::RParen)?;
            new.checks.push((constraint, check));
        } else if constraint.is_some() {
            return Err(reader.unexpected("NOT NULL or CHECK"));
        } else if !reader.take(&["NULL"]) {
            break;
        }
    }
    Ok(Statement::CreateDomain(Box::new(new)))
}

/// `DEFAULT x NOT NULL` was read as the default `x NOT NULL`, as which sqlparser knows `x IS NOT NULL` as well.
fn without_not_null(reader: &mut Reader<'_>, new: &mut CreateDomain) {
    let Some(Expr::IsNotNull(inner)) = &new.default else {
        return;
    };
    for _ in 0..3 {
        reader.prev_token();
    }
    let says_is = reader.at(&["IS"]);
    for _ in 0..3 {
        reader.advance_token();
    }
    if !says_is {
        new.default = Some(inner.as_ref().clone());
        new.not_null = true;
    }
}

/// What follows `ALTER DOMAIN name`; `None`: what other objects have as well.
pub(super) fn domain_change(reader: &mut Reader<'_>) -> Parse<Option<AlterOperation>> {
    let change = if reader.take(&["SET", "DEFAULT"]) {
        DomainChange::Default(Some(reader.expr()?))
    } else if reader.take(&["DROP", "DEFAULT"]) {
        DomainChange::Default(None)
    } else if reader.take(&["SET", "NOT", "NULL"]) {
        DomainChange::NotNull(true)
    } else if reader.take(&["DROP", "NOT", "NULL"]) {
        DomainChange::NotNull(false)
    } else if reader.take(&["ADD"]) {
        let name = match reader.take(&["CONSTRAINT"]) {
            true => Some(reader.ident()?),
            false => None,
        };
        if name.is_some() && reader.at(&["NOT", "NULL"]) {
            return Err(reader.unexpected("CHECK"));
        }
        reader.need(&["CHECK"])?;
        reader.need_token(&Token::LParen)?;
        let check = reader.expr()?;
        reader.need_token(&Token::RParen)?;
        if reader.at(&["NOT", "VALID"]) {
            let message = "NOT VALID is not supported: existing rows are always checked";
            return Err(Failure::unsupported(message, reader.here(), ""));
        }
        DomainChange::AddCheck(name, Box::new(check))
    } else if reader.take(&["DROP", "CONSTRAINT"]) {
        let if_exists = super::object::if_exists(reader);
        let name = reader.ident()?;
        // Nothing needs the constraint of a domain.
        let _ = super::drop::behavior(reader);
        DomainChange::DropCheck { if_exists, name }
    } else if reader.take(&["RENAME", "CONSTRAINT"]) {
        let from = reader.ident()?;
        reader.need(&["TO"])?;
        DomainChange::RenameCheck {
            from,
            to: reader.ident()?,
        }
    } else if reader.take(&["VALIDATE", "CONSTRAINT"]) {
        DomainChange::Validate(reader.ident()?)
    } else {
        return Ok(None);
    };
    Ok(Some(AlterOperation::ChangeDomain(change)))
}

/// `ADD VALUE ..` or `RENAME VALUE ..` after `ALTER TYPE name`; `None`: it is something else.
pub(super) fn change(reader: &mut Reader<'_>) -> Parse<Option<AlterOperation>> {
    let change = if reader.take(&["ADD", "VALUE"]) {
        let if_not_exists = super::object::if_not_exists(reader);
        let label = reader.string()?;
        let beside = match reader.take_one_of(&["BEFORE", "AFTER"]) {
            Some(word) => Some((reader.string()?, word == "BEFORE")),
            None => None,
        };
        EnumChange::Add {
            if_not_exists,
            label,
            beside,
        }
    } else if reader.take(&["RENAME", "VALUE"]) {
        let from = reader.string()?;
        reader.need(&["TO"])?;
        EnumChange::Rename {
            from,
            to: reader.string()?,
        }
    } else {
        return Ok(None);
    };
    Ok(Some(AlterOperation::ChangeEnum(change)))
}
