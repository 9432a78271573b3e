//! `SEARCH` and `CYCLE` of WITH RECURSIVE: columns that say in what order rows were found, and where a way comes back to itself.
//!
//! The parser leaves each clause as one more query behind that to which it belongs. Both terms of that query are put into queries around
//! them, which add the columns: an array of the rows that were passed, or how deep the search is. The query with these columns has a name
//! of its own, and the name that was written is what of it is shown.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, Expr, Ident, ObjectName, Query, Select, SelectItem, SetExpr, SetOperator,
    TableAlias, TableAliasColumnDef, TableFactor, Value, With,
};
use millrace_parser::ast::{CYCLE_OF_WITH, SEARCH_OF_WITH};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::column_names;
use crate::syntax::parsed_query;

/// The column that says how deep a search is.
const DEPTH: &str = "search depth";
/// What the terms are called around which a query is put.
const TERM: &str = "searched term";

struct Search {
    is_depth_first: bool,
    column: String,
    by: Vec<String>,
}

struct Cycle {
    mark: String,
    path: String,
    /// The value of the mark where a way comes back to itself, and elsewhere.
    found: Expr,
    other: Expr,
    by: Vec<String>,
}

/// Puts the columns in that the clauses of a WITH ask for.
///
/// # Errors
/// A clause does not fit its query.
pub(super) fn expand(with: &mut With) -> SqlResult<()> {
    if !with.cte_tables.iter().any(|cte| clause_of(cte).is_some()) {
        return Ok(());
    }
    let mut all: Vec<Cte> = vec![];
    let mut given = std::mem::take(&mut with.cte_tables).into_iter().peekable();
    while let Some(cte) = given.next() {
        let (mut search, mut cycle) = (None, None);
        while let Some(clause) = given.next_if(|next| clause_of(next).is_some()) {
            match clause_of(&clause) {
                Some(SEARCH_OF_WITH) => search = Some(search_of(&clause)?),
                _ => cycle = Some(cycle_of(&clause)?),
            }
        }
        match (&search, &cycle) {
            (None, None) => all.push(cte),
            _ => all.extend(searched(cte, search.as_ref(), cycle.as_ref())?),
        }
    }
    with.cte_tables = all;
    Ok(())
}

fn clause_of(cte: &Cte) -> Option<&'static str> {
    let name = &cte.alias.name;
    [SEARCH_OF_WITH, CYCLE_OF_WITH]
        .into_iter()
        .find(|clause| name.quote_style.is_some() && name.value == *clause)
}

/// What a clause lists.
fn list(clause: &Cte) -> Vec<Expr> {
    let SetExpr::Select(select) = clause.query.body.as_ref() else {
        return vec![];
    };
    let expressions = select.projection.iter().filter_map(|item| match item {
        // Literals may have been given a name by now.
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr.clone()),
        _ => None,
    });
    expressions.collect()
}

fn name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(millrace_parser::fold(name)),
        _ => None,
    }
}

fn names(all: &[Expr]) -> Vec<String> {
    all.iter().filter_map(name).collect()
}

fn broken() -> SqlError {
    SqlError::internal("a clause of WITH RECURSIVE is not as the parser leaves it")
}

fn search_of(clause: &Cte) -> SqlResult<Search> {
    let list = list(clause);
    let [how, column, by @ ..] = list.as_slice() else {
        return Err(broken());
    };
    let is_depth_first =
        matches!(how, Expr::Value(value) if value.value == Value::SingleQuotedString("DEPTH".to_owned()));
    Ok(Search {
        is_depth_first,
        column: name(column).ok_or_else(broken)?,
        by: names(by),
    })
}

fn cycle_of(clause: &Cte) -> SqlResult<Cycle> {
    let list = list(clause);
    let [found, other, mark, path, by @ ..] = list.as_slice() else {
        return Err(broken());
    };
    Ok(Cycle {
        mark: name(mark).ok_or_else(broken)?,
        path: name(path).ok_or_else(broken)?,
        found: found.clone(),
        other: other.clone(),
        by: names(by),
    })
}

fn syntax(message: String) -> SqlError {
    SqlError::new(SqlState::SyntaxError, message)
}

/// A column that is added: its name, what it is in the first term, in the recursive one, and where the query is read; the last is none
/// if only the recursion needs it.
struct Added {
    name: String,
    first: String,
    next: String,
}

/// The query with what it adds, and what of it is shown.
fn searched(mut cte: Cte, search: Option<&Search>, cycle: Option<&Cycle>) -> SqlResult<[Cte; 2]> {
    let columns = columns_of(&cte)?;
    check(&columns, search, cycle)?;
    let quoted = |name: &str| quote_identifier(name).to_string();
    let row = |by: &[String]| {
        let by: Vec<String> = by.iter().map(|name| quoted(name)).collect();
        format!("ROW({})", by.join(", "))
    };
    let mut added = vec![];
    let mut shown: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    if let Some(search) = search {
        let (row, column) = (row(&search.by), quoted(&search.column));
        if search.is_depth_first {
            shown.push(column.clone());
            added.push(Added {
                name: search.column.clone(),
                first: format!("ARRAY[{row}]"),
                next: format!("{column} || {row}"),
            });
        } else {
            let depth = quoted(DEPTH);
            let row = row.replacen("ROW(", &format!("ROW({depth}, "), 1);
            shown.push(format!("{row} AS {column}"));
            added.push(Added {
                name: DEPTH.to_owned(),
                first: "CAST(0 AS bigint)".to_owned(),
                next: format!("{depth} + 1"),
            });
        }
    }
    if let Some(cycle) = cycle {
        let (row, path) = (row(&cycle.by), quoted(&cycle.path));
        let (found, other) = (&cycle.found, &cycle.other);
        shown.extend([quoted(&cycle.mark), path.clone()]);
        added.push(Added {
            name: cycle.mark.clone(),
            first: other.to_string(),
            // Never NULL, as it is not in the first term.
            next: format!(
                "coalesce(CASE WHEN {path} @> ARRAY[{row}] THEN {found} ELSE {other} END, {other})"
            ),
        });
        added.push(Added {
            name: cycle.path.clone(),
            first: format!("ARRAY[{row}]"),
            next: format!("{path} || {row}"),
        });
    }
    let outer = millrace_parser::fold(&cte.alias.name);
    let inner = Ident::with_quote('"', format!("{outer} (searched)"));
    let Query { body, .. } = cte.query.as_mut();
    let SetExpr::SetOperation {
        op: SetOperator::Union,
        left,
        right,
        ..
    } = body.as_mut()
    else {
        return Err(syntax("WITH query is not recursive".to_owned()));
    };
    let SetExpr::Select(recursive) = right.as_mut() else {
        return Err(SqlError::unsupported(
            "with a SEARCH or CYCLE clause, the right side of the UNION must be a SELECT",
        ));
    };
    carry(recursive, &outer, &inner, &added, cycle)?;
    let names: Vec<String> = added.iter().map(|added| added.name.clone()).collect();
    let first = added.iter().map(|added| added.first.as_str());
    let next = added.iter().map(|added| added.next.as_str());
    **left = around(std::mem::replace(left, nothing()?), &columns, &[], first)?;
    **right = around(std::mem::replace(right, nothing()?), &columns, &names, next)?;
    let all = columns.iter().chain(&names).map(|name| definition(name));
    let alias = TableAlias {
        name: inner.clone(),
        columns: all.collect(),
        ..cte.alias.clone()
    };
    let mut reading = cte.clone();
    reading.alias.columns = vec![];
    reading.query = parsed_query(&format!("SELECT {} FROM {inner}", shown.join(", ")))?;
    cte.alias = alias;
    Ok([cte, reading])
}

fn nothing() -> SqlResult<Box<SetExpr>> {
    Ok(parsed_query("SELECT 1")?.body)
}

fn definition(name: &str) -> TableAliasColumnDef {
    TableAliasColumnDef {
        name: Ident::with_quote('"', name),
        data_type: None,
    }
}

/// The columns of a query of WITH.
fn columns_of(cte: &Cte) -> SqlResult<Vec<String>> {
    let Query {
        with,
        order_by,
        limit_clause,
        fetch,
        body,
        ..
    } = cte.query.as_ref();
    if with.is_some() || order_by.is_some() || limit_clause.is_some() || fetch.is_some() {
        return Err(SqlError::unsupported(
            "WITH, ORDER BY and LIMIT are not supported in a query with a SEARCH or CYCLE clause",
        ));
    }
    let given: Vec<String> = cte
        .alias
        .columns
        .iter()
        .map(|column| millrace_parser::fold(&column.name))
        .collect();
    let first = match body.as_ref() {
        SetExpr::SetOperation { left, .. } => left.as_ref(),
        other => other,
    };
    let has_wildcard = |select: &Select| {
        let mut items = select.projection.iter();
        items.any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)))
    };
    match first {
        SetExpr::Select(select) if has_wildcard(select) && given.is_empty() => Err(SqlError::unsupported(
            "* in a query with a SEARCH or CYCLE clause is not supported without the names of its columns",
        )
        .with_hint("Write them behind its name: WITH RECURSIVE t (a, b) AS ..")),
        SetExpr::Select(select) if has_wildcard(select) => Ok(given),
        SetExpr::Select(_) | SetExpr::Values(_) => {
            let names = column_names::output_names(cte.query.as_ref());
            let rest = names.into_iter().skip(given.len());
            Ok(given.iter().cloned().chain(rest).collect())
        }
        _ => Err(SqlError::unsupported(
            "with a SEARCH or CYCLE clause, the left side of the UNION must be a SELECT",
        )),
    }
}

/// Refuses columns that are not there, and new ones that are.
fn check(columns: &[String], search: Option<&Search>, cycle: Option<&Cycle>) -> SqlResult<()> {
    let mut new: Vec<(&str, &String)> = vec![];
    new.extend(search.map(|search| ("search sequence column", &search.column)));
    if let Some(cycle) = cycle {
        new.extend([
            ("cycle mark column", &cycle.mark),
            ("cycle path column", &cycle.path),
        ]);
    }
    for (place, (what, name)) in new.iter().enumerate() {
        if columns.contains(name) {
            let message = format!("{what} name \"{name}\" already used in WITH query column list");
            return Err(syntax(message));
        }
        if let Some((other, _)) = new[..place].iter().find(|(_, other)| other == name) {
            return Err(syntax(format!("{other} name and {what} name are the same")));
        }
    }
    let by_search = search.iter().flat_map(|search| &search.by);
    let by_cycle = cycle.iter().flat_map(|cycle| &cycle.by);
    let by = by_search
        .map(|name| ("search", name))
        .chain(by_cycle.map(|name| ("cycle", name)));
    for (what, name) in by {
        if !columns.contains(name) {
            return Err(syntax(format!(
                "{what} column \"{name}\" not in WITH query column list"
            )));
        }
    }
    for by in search
        .map(|search| &search.by)
        .into_iter()
        .chain(cycle.map(|cycle| &cycle.by))
    {
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = by.iter().find(|name| !seen.insert(*name)) {
            let message = format!("column \"{twice}\" specified more than once");
            return Err(SqlError::new(SqlState::DuplicateColumn, message));
        }
    }
    Ok(())
}

/// Has the recursive term read the query under its new name, and hand on what is added; it goes on only where there is no cycle.
fn carry(
    select: &mut Select,
    outer: &str,
    inner: &Ident,
    added: &[Added],
    cycle: Option<&Cycle>,
) -> SqlResult<()> {
    let not_at_top = || {
        SqlError::unsupported(format!(
            "with a SEARCH or CYCLE clause, the recursive reference to WITH query \"{outer}\" must be at the top level of its \
             right-hand SELECT"
        ))
    };
    let mut called: Vec<Ident> = vec![];
    let factors = select.from.iter_mut().flat_map(|table| {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        std::iter::once(&mut table.relation).chain(joined)
    });
    for factor in factors {
        let TableFactor::Table { name, alias, .. } = factor else {
            continue;
        };
        let [part] = name.0.as_slice() else { continue };
        let Some(written) = part
            .as_ident()
            .filter(|part| millrace_parser::fold(part) == outer)
        else {
            continue;
        };
        let shown = alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: written.clone(),
            columns: vec![],
            at: None,
        });
        called.push(shown.name.clone());
        *name = ObjectName::from(vec![inner.clone()]);
    }
    let [called] = called.as_slice() else {
        return Err(not_at_top());
    };
    let takes_all = select.projection.iter().any(|item| match item {
        SelectItem::Wildcard(_) => true,
        SelectItem::QualifiedWildcard(kind, _) => kind.to_string() == called.to_string() + ".*",
        _ => false,
    });
    if takes_all {
        return Err(SqlError::unsupported(
            "* over the recursive reference is not supported with a SEARCH or CYCLE clause",
        )
        .with_hint("Name the columns."));
    }
    let column = |name: &str| Expr::CompoundIdentifier(vec![called.clone(), Ident::with_quote('"', name)]);
    let handed = added
        .iter()
        .map(|added| SelectItem::UnnamedExpr(column(&added.name)));
    select.projection.extend(handed);
    if let Some(cycle) = cycle {
        let goes_on = Expr::BinaryOp {
            left: Box::new(column(&cycle.mark)),
            op: BinaryOperator::NotEq,
            right: Box::new(cycle.found.clone()),
        };
        select.selection = Some(match select.selection.take() {
            None => goes_on,
            Some(condition) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(condition))),
                op: BinaryOperator::And,
                right: Box::new(goes_on),
            },
        });
    }
    Ok(())
}

/// A query around a term, with its columns and what is added. `handed`: what the term itself hands on.
fn around<'a>(
    term: Box<SetExpr>,
    columns: &[String],
    handed: &[String],
    added: impl Iterator<Item = &'a str>,
) -> SqlResult<SetExpr> {
    let listed = columns.iter().map(|name| quote_identifier(name).to_string());
    let list: Vec<String> = listed.chain(added.map(str::to_owned)).collect();
    let mut query = parsed_query(&format!(
        "SELECT {} FROM (SELECT 1) AS \"{TERM}\"",
        list.join(", ")
    ))?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(TableFactor::Derived { subquery, alias, .. }) =
            select.from.first_mut().map(|table| &mut table.relation)
    {
        subquery.body = term;
        if let Some(alias) = alias {
            alias.columns = columns
                .iter()
                .chain(handed)
                .map(|name| definition(name))
                .collect();
        }
    }
    Ok(*query.body)
}
