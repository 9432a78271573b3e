//! `MERGE`. sqlparser has it without DO NOTHING, which is an UPDATE that assigns nothing here.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind,
    MergeUpdateExpr, Parens, Statement as SqlStatement, Values,
};
use sqlparser::parser::Parser;

use crate::ast::Statement;
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `MERGE`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    reader.need(&["INTO"])?;
    let _ = reader.take(&["ONLY"]);
    let table = reader.parse_table_factor()?;
    reader.need(&["USING"])?;
    let source = reader.parse_table_factor()?;
    reader.need(&["ON"])?;
    let on = reader.expr()?;
    let mut clauses: Vec<MergeClause> = vec![];
    loop {
        let at = reader.here();
        if !reader.take(&["WHEN"]) {
            break;
        }
        let clause = clause(reader)?;
        let is_same = |before: &MergeClause| before.clause_kind == clause.clause_kind;
        if clauses
            .iter()
            .any(|before| is_same(before) && before.predicate.is_none())
        {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(Failure::invalid(message, at));
        }
        clauses.push(clause);
    }
    if clauses.is_empty() {
        return Err(reader.unexpected("WHEN"));
    }
    if reader.at(&["RETURNING"]) {
        return Err(Failure::unsupported(
            "MERGE .. RETURNING is not supported",
            reader.here(),
            "",
        ));
    }
    Ok(Statement::Sql(Box::new(SqlStatement::Merge(Merge {
        merge_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        into: true,
        table,
        source,
        on: Box::new(on),
        clauses,
        output: None,
    }))))
}

/// After `WHEN`.
fn clause(reader: &mut Reader<'_>) -> Parse<MergeClause> {
    let clause_kind = match reader.take(&["NOT"]) {
        true => MergeClauseKind::NotMatched,
        false => MergeClauseKind::Matched,
    };
    reader.need(&["MATCHED"])?;
    if reader.at(&["BY"]) {
        let message = "WHEN NOT MATCHED BY is not supported";
        return Err(Failure::unsupported(message, reader.here(), ""));
    }
    let predicate = match reader.take(&["AND"]) {
        true => Some(reader.expr()?),
        false => None,
    };
    reader.need(&["THEN"])?;
    let is_matched = clause_kind == MergeClauseKind::Matched;
    let action = if reader.take(&["DO", "NOTHING"]) {
        update(vec![])
    } else if is_matched && reader.take(&["DELETE"]) {
        MergeAction::Delete {
            delete_token: AttachedToken::empty(),
        }
    } else if is_matched && reader.take(&["UPDATE", "SET"]) {
        update(reader.parse_comma_separated(Parser::parse_assignment)?)
    } else if !is_matched && reader.take(&["INSERT"]) {
        insert(reader)?
    } else {
        let expected = match is_matched {
            true => "UPDATE, DELETE or DO NOTHING",
            false => "INSERT or DO NOTHING",
        };
        return Err(reader.unexpected(expected));
    };
    Ok(MergeClause {
        when_token: AttachedToken::empty(),
        clause_kind,
        predicate,
        action,
    })
}

fn update(assignments: Vec<sqlparser::ast::Assignment>) -> MergeAction {
    MergeAction::Update(MergeUpdateExpr {
        update_token: AttachedToken::empty(),
        assignments,
        update_predicate: None,
        delete_predicate: None,
    })
}

/// After `INSERT`. DEFAULT VALUES are no values.
fn insert(reader: &mut Reader<'_>) -> Parse<MergeAction> {
    let mut columns = vec![];
    let mut cells: Vec<Expr> = vec![];
    if !reader.take(&["DEFAULT", "VALUES"]) {
        if !reader.at(&["VALUES"]) {
            // OVERRIDING is one of them, with two parts.
            columns = reader.parenthesised(Reader::name)?;
        }
        reader.need(&["VALUES"])?;
        cells = reader.parenthesised(Reader::expr)?;
    }
    let rows = vec![Parens::with_empty_span(cells)];
    Ok(MergeAction::Insert(MergeInsertExpr {
        insert_token: AttachedToken::empty(),
        columns,
        kind_token: AttachedToken::empty(),
        kind: MergeInsertKind::Values(Values {
            explicit_row: false,
            value_keyword: false,
            rows,
        }),
        insert_predicate: None,
    }))
}
