//! The list in parentheses of CREATE STREAM and CREATE TABLE: columns, constraints and the watermark.
//!
//! Constraints come out in one form: the primary key as a list of names, everything else as constraints of the table.

use std::ops::ControlFlow;

use sqlparser::ast::{
    CheckConstraint, ColumnOption, DataType, DeferrableInitial, Expr, FunctionArguments, Ident, IndexColumn,
    PrimaryKeyConstraint, TableConstraint,
};
use sqlparser::tokenizer::{Location, Span, Token};

use super::sequence;
use crate::ast::{ColumnDefinition, Identity, Include, LikePart, TableLike, Watermark};
use crate::error::Failure;
use crate::identifier::{fold, is_bytewise};
use crate::reader::{Parse, Reader};
use crate::walk::walk_expressions;

/// What the list says.
#[derive(Debug, Default)]
pub(super) struct TableElements {
    /// `*`.
    pub(super) all_columns: bool,
    pub(super) columns: Vec<ColumnDefinition>,
    pub(super) like: Vec<TableLike>,
    pub(super) primary_key: Vec<Ident>,
    pub(super) constraints: Vec<TableConstraint>,
    pub(super) watermark: Option<Watermark>,
}

/// `(element, ..)`, and `INCLUDE member AS column ..` behind it; LIKE only of a table.
pub(super) fn elements(reader: &mut Reader<'_>, is_table: bool) -> Parse<(TableElements, Vec<Include>)> {
    let at = reader.here();
    let mut elements = TableElements::default();
    reader.need_token(&Token::LParen)?;
    if !reader.take_token(&Token::RParen) {
        element(reader, &mut elements)?;
        // Behind the last one may stand a comma, as RisingWave takes it.
        while reader.take_token(&Token::Comma) && reader.peek_token_ref().token != Token::RParen {
            element(reader, &mut elements)?;
        }
        reader.need_token(&Token::RParen)?;
    }
    if !is_table && !elements.like.is_empty() {
        let message = "LIKE is supported only in CREATE TABLE";
        return Err(Failure::unsupported(message, at, "Write the columns."));
    }
    let include = include(reader)?;
    finish(&mut elements, &include)?;
    Ok((elements, include))
}

/// `INCLUDE member AS column ..`.
fn include(reader: &mut Reader<'_>) -> Parse<Vec<Include>> {
    let mut include = vec![];
    while reader.take(&["INCLUDE"]) {
        // "offset" ends what may stand before it in other statements.
        let here = reader.here();
        let member = match reader.take_one_of(&["OFFSET"]) {
            Some(_) => Ident::with_span(Span::new(here, here), "offset"),
            None => reader.ident()?,
        };
        let column = match reader.take(&["AS"]) {
            true => reader.ident()?,
            false => member.clone(),
        };
        include.push(Include { member, column });
    }
    Ok(include)
}

fn element(reader: &mut Reader<'_>, elements: &mut TableElements) -> Parse<()> {
    let at = reader.here();
    if reader.take_token(&Token::Mul) {
        if elements.all_columns || !elements.columns.is_empty() {
            return Err(Failure::invalid("* stands once, before all columns", at));
        }
        elements.all_columns = true;
        return Ok(());
    }
    if reader.take(&["WATERMARK", "FOR"]) {
        if elements.watermark.is_some() {
            return Err(Failure::invalid("more than one watermark is defined", at));
        }
        let column = reader.ident()?;
        reader.need(&["AS"])?;
        elements.watermark = Some(Watermark {
            column,
            expr: reader.expr()?,
        });
        return Ok(());
    }
    if reader.take(&["LIKE"]) {
        let like = like(reader, elements.columns.len())?;
        elements.like.push(like);
        return Ok(());
    }
    if reader.at(&["INCLUDE"]) && !matches!(reader.peek_nth_token_ref(2).token, Token::Comma | Token::RParen)
    {
        return Err(Failure::unsupported("INCLUDE columns are not supported", at, ""));
    }
    if starts_constraint(reader) {
        let constraint = reader.parse_optional_table_constraint()?;
        let constraint = constraint.ok_or_else(|| reader.unexpected("a constraint"))?;
        return table_constraint(constraint, elements, at);
    }
    let column = column(reader, elements)?;
    elements.columns.push(column);
    Ok(())
}

/// After LIKE.
fn like(reader: &mut Reader<'_>, at: usize) -> Parse<TableLike> {
    let relation = reader.name()?;
    let mut including = vec![];
    loop {
        let is_in = reader.take(&["INCLUDING"]);
        if !is_in && !reader.take(&["EXCLUDING"]) {
            break;
        }
        let all = reader.take(&["ALL"]);
        let part = LikePart::ALL
            .into_iter()
            .find(|(_, word)| !all && reader.take(&[word]));
        if !all && part.is_none() {
            return Err(reader.unexpected("ALL, or what of a relation LIKE takes over"));
        }
        for (one, _) in LikePart::ALL {
            if all || part.is_some_and(|(part, _)| part == one) {
                including.retain(|other| *other != one);
                if is_in {
                    including.push(one);
                }
            }
        }
    }
    Ok(TableLike {
        at,
        relation,
        including,
    })
}

/// Whether a constraint of the table is next, and not a column that is called `key`, `index` or `exclude`.
pub(super) fn starts_constraint(reader: &Reader<'_>) -> bool {
    let excludes = || {
        let is_list = reader.peek_nth_token_ref(1).token == Token::LParen;
        reader.at(&["EXCLUDE", "USING"]) || reader.at(&["EXCLUDE"]) && is_list
    };
    ["CONSTRAINT", "CHECK", "UNIQUE"]
        .iter()
        .any(|word| reader.at(&[word]))
        || excludes()
        || reader.at(&["PRIMARY", "KEY"])
        || reader.at(&["FOREIGN", "KEY"])
}

fn table_constraint(constraint: TableConstraint, elements: &mut TableElements, at: Location) -> Parse<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            at_once(&key, at)?;
            let columns = key.columns.iter().map(|column| match &column.column.expr {
                Expr::Identifier(name) => Ok(name.clone()),
                _ => Err(Failure::invalid(
                    "a primary key can contain only column names",
                    at,
                )),
            });
            set_primary_key(elements, columns.collect::<Parse<Vec<Ident>>>()?, at)
        }
        other => {
            elements.constraints.push(other);
            Ok(())
        }
    }
}

/// Refuses a key that is to be checked at another time than the end of each statement.
fn at_once(key: &PrimaryKeyConstraint, at: Location) -> Parse<()> {
    let is_deferred = key.characteristics.as_ref().is_some_and(|said| {
        said.deferrable == Some(true) || said.initially == Some(DeferrableInitial::Deferred)
    });
    match is_deferred {
        true => {
            let message = "deferrable constraints are not supported";
            Err(Failure::unsupported(message, at, ""))
        }
        false => Ok(()),
    }
}

fn set_primary_key(elements: &mut TableElements, columns: Vec<Ident>, at: Location) -> Parse<()> {
    if !elements.primary_key.is_empty() {
        return Err(Failure::invalid("more than one primary key is defined", at));
    }
    elements.primary_key = columns;
    Ok(())
}

/// A column of ALTER .. ADD COLUMN, and its constraints.
pub(super) fn single_column(reader: &mut Reader<'_>) -> Parse<(ColumnDefinition, Vec<TableConstraint>)> {
    let mut elements = TableElements::default();
    let column = column(reader, &mut elements)?;
    let mut constraints = elements.constraints;
    if !elements.primary_key.is_empty() {
        let columns = elements.primary_key.into_iter().map(IndexColumn::from);
        constraints.push(TableConstraint::PrimaryKey(PrimaryKeyConstraint {
            name: None,
            index_name: None,
            index_type: None,
            columns: columns.collect(),
            index_options: vec![],
            characteristics: None,
        }));
    }
    Ok((column, constraints))
}

fn column(reader: &mut Reader<'_>, elements: &mut TableElements) -> Parse<ColumnDefinition> {
    let name = reader.ident()?;
    if matches!(
        reader.peek_token_ref().token,
        Token::Comma | Token::RParen | Token::EOF
    ) {
        return Err(reader.unexpected("the column's type"));
    }
    let data_type: DataType = reader.parse_data_type()?;
    let mut column = ColumnDefinition {
        name,
        data_type,
        not_null: false,
        primary_key: false,
        default: None,
        generated: None,
        identity: None,
        proctime: false,
        comment: None,
    };
    let mut may_be_null = None;
    loop {
        let at = reader.here();
        let always = reader.take(&["GENERATED", "ALWAYS", "AS", "IDENTITY"]);
        if always || reader.take(&["GENERATED", "BY", "DEFAULT", "AS", "IDENTITY"]) {
            let options = sequence::identity_options(reader)?;
            set_identity(&mut column, Identity { always, options }, at)?;
            continue;
        }
        if reader.take(&["GENERATED", "ALWAYS", "AS"]) || reader.take(&["AS"]) {
            let expr = unwrapped(reader.expr()?);
            if reader.at(&["VIRTUAL"]) {
                let hint = "Generated columns are stored: write STORED.";
                return Err(reader.unexpected("STORED").with_hint(hint));
            }
            let _ = reader.take(&["STORED"]);
            set_generated(&mut column, expr, at)?;
            continue;
        }
        let constraint = match reader.take(&["CONSTRAINT"]) {
            true => Some(reader.ident()?),
            false => None,
        };
        let option = reader.parse_optional_column_option()?;
        let says = match option {
            Some(ColumnOption::Null) => Some(true),
            Some(ColumnOption::NotNull) => Some(false),
            _ => may_be_null,
        };
        if may_be_null.is_some() && says != may_be_null {
            let message = format!(
                "conflicting NULL/NOT NULL declarations for column \"{}\"",
                fold(&column.name)
            );
            return Err(Failure::invalid(message, at));
        }
        may_be_null = says;
        match option {
            Some(option) => column_option(option, constraint, &mut column, elements, at)?,
            None => return Ok(column),
        }
    }
}

/// The expression inside parentheses, which `Display` puts around it again.
fn unwrapped(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(inner) => unwrapped(*inner),
        other => other,
    }
}

fn set_identity(column: &mut ColumnDefinition, identity: Identity, at: Location) -> Parse<()> {
    if column.identity.is_some() || column.default.is_some() || column.generated.is_some() {
        let message = format!(
            "both default and identity specified for column \"{}\"",
            column.name.value
        );
        return Err(Failure::invalid(message, at));
    }
    column.not_null = true;
    column.identity = Some(identity);
    Ok(())
}

fn set_generated(column: &mut ColumnDefinition, expr: Expr, at: Location) -> Parse<()> {
    if column.generated.is_some() || column.proctime || column.default.is_some() {
        let message = format!(
            "column \"{}\" has more than one default or generation expression",
            column.name.value
        );
        return Err(Failure::invalid(message, at));
    }
    if is_proctime(&expr) {
        column.proctime = true;
    } else {
        column.generated = Some(expr);
    }
    Ok(())
}

/// Whether an expression is `PROCTIME()`.
fn is_proctime(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_proctime(inner),
        Expr::Function(function) => {
            let name = function.name.to_string();
            let no_arguments = match &function.args {
                FunctionArguments::None => true,
                FunctionArguments::List(list) => list.args.is_empty(),
                FunctionArguments::Subquery(_) => false,
            };
            name.eq_ignore_ascii_case("proctime") && no_arguments
        }
        _ => false,
    }
}

fn column_option(
    option: ColumnOption,
    constraint: Option<Ident>,
    column: &mut ColumnDefinition,
    elements: &mut TableElements,
    at: Location,
) -> Parse<()> {
    let itself = || vec![IndexColumn::from(column.name.clone())];
    match option {
        ColumnOption::Null => {}
        ColumnOption::NotNull => column.not_null = true,
        ColumnOption::Default(expr) => {
            if column.default.is_some()
                || column.generated.is_some()
                || column.identity.is_some()
                || column.proctime
            {
                let message = format!("column \"{}\" has more than one default", column.name.value);
                return Err(Failure::invalid(message, at));
            }
            refuse_columns(&expr, at)?;
            column.default = Some(expr);
        }
        ColumnOption::Comment(text) => column.comment = Some(text),
        ColumnOption::PrimaryKey(key) => {
            at_once(&key, at)?;
            set_primary_key(elements, vec![column.name.clone()], at)?;
        }
        ColumnOption::Unique(mut unique) => {
            unique.columns = itself();
            unique.name = constraint.or(unique.name);
            elements.constraints.push(TableConstraint::Unique(unique));
        }
        ColumnOption::Check(CheckConstraint { name, expr, enforced }) => {
            let name = constraint.or(name);
            elements
                .constraints
                .push(TableConstraint::Check(CheckConstraint { name, expr, enforced }));
        }
        ColumnOption::ForeignKey(mut key) => {
            key.columns = vec![column.name.clone()];
            key.name = constraint.or(key.name);
            elements.constraints.push(TableConstraint::ForeignKey(key));
        }
        // All texts are ordered so.
        ColumnOption::Collation(collation) if is_bytewise(&collation) => {}
        other => {
            let message = format!("the column option {other} is not supported");
            return Err(Failure::unsupported(message, at, ""));
        }
    }
    Ok(())
}

/// Refuses a default that names columns. Some words are names only to sqlparser.
fn refuse_columns(default: &Expr, at: Location) -> Parse<()> {
    const WORDS: [&str; 4] = ["current_role", "current_schema", "current_database", "none"];
    let is_column = |expr: &Expr| match expr {
        Expr::Identifier(name) => !(name.quote_style.is_none() && WORDS.contains(&fold(name).as_str())),
        Expr::CompoundIdentifier(_) => true,
        _ => false,
    };
    let found = walk_expressions(default, |expr| match is_column(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(()) => Err(Failure::unsupported(
            "cannot use column reference in DEFAULT expression",
            at,
            "A generated column is computed from others: GENERATED ALWAYS AS (..) STORED.",
        )),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Marks the columns of the primary key, and checks the names as far as one can without a catalog.
fn finish(elements: &mut TableElements, include: &[Include]) -> Parse<()> {
    let is_included = |name: &Ident| include.iter().any(|include| fold(&include.column) == fold(name));
    for (i, column) in elements.columns.iter().enumerate() {
        if elements.columns[..i]
            .iter()
            .any(|other| fold(&other.name) == fold(&column.name))
        {
            let message = format!("column \"{}\" specified more than once", fold(&column.name));
            return Err(Failure::invalid(message, column.name.span.start));
        }
    }
    for key in &elements.primary_key {
        match elements
            .columns
            .iter_mut()
            .find(|column| fold(&column.name) == fold(key))
        {
            Some(column) => {
                column.primary_key = true;
                column.not_null = true;
            }
            // What * stands for is not known yet.
            None if is_included(key) || elements.all_columns => {}
            None => {
                let message = format!("column \"{}\" named in key does not exist", fold(key));
                return Err(Failure::invalid(message, key.span.start));
            }
        }
    }
    if let Some(watermark) = &elements.watermark
        && !elements.all_columns
        && !is_included(&watermark.column)
        && !elements
            .columns
            .iter()
            .any(|column| fold(&column.name) == fold(&watermark.column))
    {
        let message = format!(
            "column \"{}\" of the watermark does not exist",
            fold(&watermark.column)
        );
        return Err(Failure::invalid(message, watermark.column.span.start));
    }
    Ok(())
}
