//! What names mean in one SELECT: the relations of its FROM, and the columns that joins have merged.

use std::cell::OnceCell;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, Ident, ObjectName, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    WildcardAdditionalOptions,
};

use super::{Resolver, faulty, folded};
use crate::copies::original;
use crate::error::Fault;

/// The columns of a relation by name; `None`: they are not known here.
pub(super) type Columns = Option<Vec<String>>;

/// What can be named in a SELECT, in the order in which `*` has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub items: Vec<Item>,
    /// The aliases of joins: `USING (..) AS u`.
    pub joins: Vec<JoinAlias>,
}

/// The name of a join, by which its merged columns can be named, and nothing else.
#[derive(Debug, Clone)]
pub(super) struct JoinAlias {
    pub name: Ident,
    pub columns: Vec<Merged>,
}

impl JoinAlias {
    /// A column of its.
    ///
    /// # Errors
    /// It has none of that name.
    pub fn column(&self, name: &Ident) -> Result<Expr> {
        let wanted = folded(name);
        let found = self.columns.iter().find(|column| folded(&column.name) == wanted);
        found.map(|column| column.value.as_ref().clone()).ok_or_else(|| {
            let message = format!("column {}.{wanted} does not exist", folded(&self.name));
            faulty(Fault::UndefinedColumn, message)
        })
    }
}

#[derive(Debug, Clone)]
pub(super) enum Item {
    Merged(Merged),
    Relation(Relation),
}

/// A column that a join with USING or NATURAL has made of one on each side.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    pub name: Ident,
    pub value: Box<Expr>,
}

/// A relation of FROM.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    /// Its alias, or its name as it is written.
    pub qualifier: Vec<Ident>,
    pub known: Known,
    /// Its columns that are merged with others: to be named only with the relation.
    pub hidden: Vec<Ident>,
    /// Whether an outer join may put NULLs in the place of its row.
    pub is_optional: bool,
    /// Whether it is a function of single values: its name means the value, too.
    pub is_value: bool,
    /// Whether it is a stored one without an alias, which may be named with its schema.
    pub is_stored: bool,
}

/// The columns of a relation, as far as they are known.
#[derive(Debug, Clone)]
pub(super) enum Known {
    Columns(Columns),
    /// They are asked for when a name is looked for that they might have.
    Later(Box<TableFactor>, OnceCell<Columns>),
}

/// What an unqualified name is found to be.
pub(super) enum Found {
    Nothing,
    /// A relation with unknown columns may have it.
    Unknown,
    Column(Expr),
    Merged(Expr),
}

impl Relation {
    pub fn columns<'a>(&'a self, resolver: &Resolver<'_>) -> Option<&'a [String]> {
        match &self.known {
            Known::Columns(columns) => columns.as_deref(),
            Known::Later(factor, columns) => columns.get_or_init(|| resolver.planned(factor)).as_deref(),
        }
    }

    pub fn hides(&self, name: &str) -> bool {
        self.hidden.iter().any(|hidden| folded(hidden) == name)
    }

    /// Whether `parts` names this relation.
    pub fn is_called(&self, parts: &[Ident]) -> bool {
        let same = |(one, other): (&Ident, &Ident)| folded(one) == folded(other);
        !parts.is_empty()
            && parts.len() <= self.qualifier.len().max(1)
            && self.qualifier.iter().rev().zip(parts.iter().rev()).all(same)
    }

    /// The column, with its relation.
    pub fn column(&self, name: Ident) -> Expr {
        Expr::CompoundIdentifier(self.qualifier.iter().cloned().chain([name]).collect())
    }
}

impl Scope {
    pub fn relations(&self) -> impl Iterator<Item = &Relation> {
        self.items.iter().filter_map(|item| match item {
            Item::Relation(relation) => Some(relation),
            Item::Merged(_) => None,
        })
    }

    /// Everything that another scope has, behind what is here.
    pub fn extend(&mut self, other: Scope) {
        self.items.extend(other.items);
        self.joins.extend(other.joins);
    }

    /// The join that is called so.
    pub fn join_called(&self, parts: &[Ident]) -> Option<&JoinAlias> {
        match parts {
            [name] => self.joins.iter().find(|join| folded(&join.name) == folded(name)),
            _ => None,
        }
    }

    /// An outer join may put NULLs in the place of the rows.
    pub fn make_optional(&mut self) {
        for item in &mut self.items {
            if let Item::Relation(relation) = item {
                relation.is_optional = true;
            }
        }
    }

    pub fn has_merged(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Merged(_)))
    }

    /// What an unqualified name means.
    ///
    /// # Errors
    /// Several columns have the name.
    pub fn find(&self, name: &Ident, resolver: &Resolver<'_>) -> Result<Found> {
        let wanted = folded(name);
        let mut found = Found::Nothing;
        let mut count = 0;
        let mut is_known = true;
        for item in &self.items {
            match item {
                Item::Merged(merged) if folded(&merged.name) == wanted => {
                    count += 1;
                    found = Found::Merged(merged.value.as_ref().clone());
                }
                Item::Merged(_) => {}
                Item::Relation(relation) if relation.hides(&wanted) => {}
                Item::Relation(relation) => match relation.columns(resolver) {
                    Some(columns) => {
                        let here = columns.iter().filter(|column| original(column) == wanted).count();
                        count += here;
                        if here > 0 {
                            found = Found::Column(relation.column(name.clone()));
                        }
                    }
                    None => is_known = false,
                },
            }
        }
        match (count, found) {
            (0 | 1, found @ Found::Merged(_)) => Ok(found),
            (0 | 1, _) if !is_known => Ok(Found::Unknown),
            (0 | 1, found) => Ok(found),
            _ => Err(ambiguous(&wanted)),
        }
    }

    /// The names of the columns that `*` stands for.
    pub fn outputs(&self, resolver: &Resolver<'_>) -> Columns {
        let mut names = vec![];
        for item in &self.items {
            match item {
                Item::Merged(merged) => names.push(folded(&merged.name)),
                Item::Relation(relation) => {
                    let columns = relation.columns(resolver)?.iter();
                    names.extend(
                        columns
                            .filter(|column| !relation.hides(original(column)))
                            .cloned(),
                    );
                }
            }
        }
        Some(names)
    }
}

/// What `*` has in the place of an item.
pub(super) fn shown(item: &Item) -> SelectItem {
    match item {
        Item::Merged(merged) => match merged.value.as_ref() {
            // A column keeps its relation, as it does elsewhere.
            column @ Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(column.clone()),
            value => SelectItem::ExprWithAlias {
                expr: value.clone(),
                alias: merged.name.clone(),
            },
        },
        Item::Relation(relation) => {
            let mut hidden = relation.hidden.iter().cloned();
            let opt_except = hidden.next().map(|first_element| ExceptSelectItem {
                first_element,
                additional_elements: hidden.collect(),
            });
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(relation.qualifier.clone())),
                WildcardAdditionalOptions {
                    opt_except,
                    ..Default::default()
                },
            )
        }
    }
}

/// The error of a name that several columns have.
pub(super) fn ambiguous(name: &str) -> datafusion::error::DataFusionError {
    faulty(
        Fault::AmbiguousColumn,
        format!("column reference \"{name}\" is ambiguous"),
    )
}
