//! `ALTER` of the kinds that the catalog has, and `ALTER SYSTEM`.

use sqlparser::ast::ObjectNamePart;
use sqlparser::tokenizer::Token;

use super::{columns, drop, grant, object, role, secret, sequence, set, user_type};
use crate::ast::{
    AlterOperation, AlterRelation, AlterSystemSet, Identity, ObjectKind, OptionEntry, Options, SetValue,
    Statement,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `ALTER`; `None` for kinds that only PostgreSQL has.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    if reader.take(&["SYSTEM"]) {
        return Ok(Some(Statement::AlterSystemSet(system(reader)?)));
    }
    if reader.take(&["DEFAULT", "PRIVILEGES"]) {
        return Ok(Some(grant::alter_default(reader)?));
    }
    if reader.take(&["WORKER"]) {
        let worker = reader.number()?;
        reader.need(&["DRAIN"])?;
        return Ok(Some(Statement::DropWorker(worker)));
    }
    if let Some(kind) = reader.take_one_of(&role::KINDS) {
        return Ok(Some(role::alter(reader, kind)?));
    }
    let Some(kind) = object::kind(reader) else {
        return Ok(None);
    };
    let if_exists = object::if_exists(reader);
    let _ = kind == ObjectKind::Table && reader.take(&["ONLY"]);
    let name = reader.name()?;
    if kind == ObjectKind::Function && reader.take_token(&Token::LParen) {
        reader.rest_of_parenthesis()?;
    }
    if kind == ObjectKind::Database
        && let [ObjectNamePart::Identifier(database)] = name.0.as_slice()
        && let Some(alter) = role::alter_database(reader, database)?
    {
        return Ok(Some(alter));
    }
    if kind == ObjectKind::Secret
        && let Some(alter) = secret::alter(reader, if_exists, &name)?
    {
        return Ok(Some(alter));
    }
    let by_row = [&["ENABLE", "ROW"], &["DISABLE", "ROW"], &["FORCE", "ROW"]];
    if by_row.iter().any(|words| reader.at(*words)) {
        let hint = "Create a view of the rows that the role may see, and grant the privilege on that view.";
        return Err(Failure::unsupported(
            "row-level security is not supported",
            reader.here(),
            hint,
        ));
    }
    let mut operations = vec![];
    let of_type = match kind {
        ObjectKind::Type => user_type::change(reader)?,
        ObjectKind::Domain => user_type::domain_change(reader)?,
        _ => None,
    };
    if let Some(change) = of_type {
        return Ok(Some(Statement::AlterRelation(Box::new(AlterRelation {
            kind,
            if_exists,
            name,
            operations: vec![change],
        }))));
    }
    let is_for_all = [&["OWNER"], &["RENAME"], &["SET"]];
    if kind == ObjectKind::Sequence && !is_for_all.iter().any(|word| reader.at(*word)) {
        let clauses = sequence::clauses(reader)?;
        operations.push(AlterOperation::SetSequence(Box::new(clauses)));
    } else {
        operation(reader, &mut operations)?;
    }
    while reader.take_token(&Token::Comma) {
        let at = reader.here();
        operation(reader, &mut operations)?;
        if kind != ObjectKind::Table || !operations.iter().all(AlterOperation::is_of_table) {
            let message = "several actions of this kind in one ALTER are not supported";
            return Err(Failure::unsupported(message, at, "Write one ALTER for each."));
        }
    }
    Ok(Some(Statement::AlterRelation(Box::new(AlterRelation {
        kind,
        if_exists,
        name,
        operations,
    }))))
}

fn system(reader: &mut Reader<'_>) -> Parse<AlterSystemSet> {
    if reader.take(&["RESET"]) {
        return Ok(AlterSystemSet {
            name: set::variable_name(reader)?,
            value: SetValue::Default,
        });
    }
    reader.need(&["SET"])?;
    let (name, value) = set::assignment(reader)?;
    Ok(AlterSystemSet { name, value })
}

/// One action; the constraints of a new column are actions of their own.
fn operation(reader: &mut Reader<'_>, operations: &mut Vec<AlterOperation>) -> Parse<()> {
    let word = reader.take_one_of(&["RENAME", "ADD", "DROP", "ALTER", "SET", "RESET", "SWAP", "OWNER"]);
    let operation = match word {
        Some("RENAME") => rename(reader),
        Some("ADD") => {
            if columns::starts_constraint(reader) {
                operations.push(constraint(reader)?);
                return Ok(());
            }
            let _ = reader.take(&["COLUMN"]);
            let if_not_exists = object::if_not_exists(reader);
            let (column, constraints) = columns::single_column(reader)?;
            operations.push(AlterOperation::AddColumn {
                if_not_exists,
                column: Box::new(column),
            });
            let constraints = constraints.into_iter().map(Box::new);
            operations.extend(constraints.map(AlterOperation::AddConstraint));
            return Ok(());
        }
        Some("DROP") => {
            if reader.take(&["CONSTRAINT"]) {
                operations.push(AlterOperation::DropConstraint {
                    if_exists: object::if_exists(reader),
                    name: reader.ident()?,
                    behavior: drop::behavior(reader),
                });
                return Ok(());
            }
            let _ = reader.take(&["COLUMN"]);
            let if_exists = object::if_exists(reader);
            let name = reader.ident()?;
            Ok(AlterOperation::DropColumn {
                if_exists,
                name,
                behavior: drop::behavior(reader),
            })
        }
        Some("ALTER") => column(reader),
        Some("SET") => set_operation(reader),
        Some("RESET") => Ok(AlterOperation::ResetOptions(
            reader.parenthesised(|reader| reader.option_name())?,
        )),
        Some("SWAP") => {
            reader.need(&["WITH"])?;
            Ok(AlterOperation::SwapWith(reader.name()?))
        }
        Some("OWNER") => {
            reader.need(&["TO"])?;
            Ok(AlterOperation::OwnerTo(role::role(reader)?))
        }
        _ => Err(reader.unexpected("RENAME, ADD, DROP, ALTER, SET, RESET, SWAP WITH or OWNER TO")),
    }?;
    operations.push(operation);
    Ok(())
}

fn rename(reader: &mut Reader<'_>) -> Parse<AlterOperation> {
    if reader.take(&["TO"]) {
        return Ok(AlterOperation::RenameTo(reader.ident()?));
    }
    if reader.take(&["CONSTRAINT"]) {
        let from = reader.ident()?;
        reader.need(&["TO"])?;
        let to = reader.ident()?;
        return Ok(AlterOperation::RenameConstraint { from, to });
    }
    let _ = reader.take(&["COLUMN"]);
    let from = reader.ident()?;
    reader.need(&["TO"])?;
    Ok(AlterOperation::RenameColumn {
        from,
        to: reader.ident()?,
    })
}

/// `[CONSTRAINT name] constraint`, after `ADD`.
fn constraint(reader: &mut Reader<'_>) -> Parse<AlterOperation> {
    let constraint = reader.parse_optional_table_constraint()?;
    let constraint = constraint.ok_or_else(|| reader.unexpected("a constraint"))?;
    if reader.at(&["NOT", "VALID"]) {
        let hint = "Mend the rows first: a constraint holds for all of them.";
        return Err(Failure::unsupported(
            "constraints that are NOT VALID are not supported",
            reader.here(),
            hint,
        ));
    }
    Ok(AlterOperation::AddConstraint(Box::new(constraint)))
}

fn column(reader: &mut Reader<'_>) -> Parse<AlterOperation> {
    let _ = reader.take(&["COLUMN"]);
    let name = reader.ident()?;
    if reader.take(&["SET", "NOT", "NULL"]) {
        Ok(AlterOperation::SetColumnNotNull { name, not_null: true })
    } else if reader.take(&["DROP", "NOT", "NULL"]) {
        Ok(AlterOperation::SetColumnNotNull {
            name,
            not_null: false,
        })
    } else if reader.take(&["SET", "DEFAULT"]) {
        Ok(AlterOperation::SetColumnDefault {
            name,
            default: Some(reader.expr()?),
        })
    } else if reader.take(&["DROP", "DEFAULT"]) {
        Ok(AlterOperation::SetColumnDefault { name, default: None })
    } else if reader.take(&["TYPE"]) || reader.take(&["SET", "DATA", "TYPE"]) {
        let data_type = reader.parse_data_type()?;
        let using = if reader.take(&["USING"]) {
            Some(reader.expr()?)
        } else {
            None
        };
        Ok(AlterOperation::SetColumnType {
            name,
            data_type,
            using,
        })
    } else if reader.take(&["ADD", "GENERATED"]) {
        let always = reader.take(&["ALWAYS"]);
        if !always {
            reader.need(&["BY", "DEFAULT"])?;
        }
        reader.need(&["AS", "IDENTITY"])?;
        let (sequence, options) = sequence::named_identity_options(reader)?;
        Ok(AlterOperation::AddIdentity {
            name,
            identity: Identity { always, options },
            sequence,
        })
    } else if reader.take(&["DROP", "IDENTITY"]) {
        Ok(AlterOperation::DropIdentity {
            name,
            if_exists: object::if_exists(reader),
        })
    } else if reader.at(&["RESTART"]) || reader.at(&["SET"]) {
        let (always, clauses) = sequence::identity_changes(reader)?;
        Ok(AlterOperation::AlterIdentity {
            name,
            always,
            clauses: Box::new(clauses),
        })
    } else {
        Err(reader.unexpected(
            "SET DEFAULT, DROP DEFAULT, SET NOT NULL, DROP NOT NULL, TYPE, ADD GENERATED, SET GENERATED, RESTART or DROP IDENTITY",
        ))
    }
}

fn set_operation(reader: &mut Reader<'_>) -> Parse<AlterOperation> {
    if reader.take(&["SCHEMA"]) {
        return Ok(AlterOperation::SetSchema(reader.ident()?));
    }
    if reader.peek_token_ref().token == Token::LParen {
        return Ok(AlterOperation::SetOptions(Options(reader.option_list()?)));
    }
    let name = reader.option_name()?;
    if !reader.take_token(&Token::Eq) && !reader.take(&["TO"]) {
        return Err(reader.unexpected("= or TO"));
    }
    let value = reader.plain_value()?;
    Ok(AlterOperation::SetOptions(Options(vec![OptionEntry {
        name,
        value,
    }])))
}
