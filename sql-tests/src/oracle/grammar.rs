//! Random queries over what a view may read.
//!
//! Every query has one answer: where the order of rows matters (LIMIT, `first_value`, `row_number`) it is by everything
//! that is put out, and a sum of floats is exact whatever the order.

mod aggregate;
mod expression;
mod from;
mod select;

use std::collections::BTreeSet;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::schema::{Relation, Type};

/// What can be done with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
    Decimal,
    Text,
    Bool,
    Date,
    Timestamp,
    IntArray,
    /// Is put out and not used further: its last digits or its type depend on too much.
    Result,
}

impl From<Type> for Kind {
    fn from(data_type: Type) -> Kind {
        match data_type {
            Type::Int | Type::BigInt => Kind::Int,
            Type::Float => Kind::Float,
            Type::Decimal => Kind::Decimal,
            Type::Text => Kind::Text,
            Type::Bool => Kind::Bool,
            Type::Date => Kind::Date,
            Type::Timestamp => Kind::Timestamp,
            Type::IntArray => Kind::IntArray,
        }
    }
}

/// The construct of queries whose answer depends on the clock.
pub const NOW: &str = "now()";

/// What FROM may name: a base relation, a view, or a common table expression.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: String,
    pub columns: Vec<(String, Kind)>,
    pub is_view: bool,
}

impl From<&Relation> for Source {
    fn from(relation: &Relation) -> Source {
        let columns = relation.columns.iter();
        Source {
            name: relation.name.clone(),
            columns: columns.map(|c| (c.name.clone(), c.data_type.into())).collect(),
            is_view: false,
        }
    }
}

/// A query's text, with the names and kinds of its columns.
#[derive(Debug, Clone)]
pub struct Generated {
    pub sql: String,
    pub columns: Vec<(String, Kind)>,
}

/// A column that expressions may name.
#[derive(Debug, Clone)]
struct Field {
    sql: String,
    name: String,
    kind: Kind,
}

type Scope = Vec<Field>;

/// Makes one query.
pub struct Grammar<'a> {
    random: &'a mut StdRng,
    sources: Vec<Source>,
    constructs: BTreeSet<&'static str>,
    aliases: usize,
}

impl<'a> Grammar<'a> {
    /// A query over `sources`, and the constructs that are in it.
    pub fn query(random: &'a mut StdRng, sources: &[Source]) -> (Generated, BTreeSet<&'static str>) {
        let mut grammar = Grammar {
            random,
            sources: sources.to_vec(),
            constructs: BTreeSet::new(),
            aliases: 0,
        };
        let query = grammar.top();
        (query, grammar.constructs)
    }

    fn saw(&mut self, construct: &'static str) {
        self.constructs.insert(construct);
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    fn choose(&mut self, from: &[&'static str]) -> &'static str {
        from.choose(self.random).copied().unwrap_or_default()
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    /// A column of one of these kinds.
    fn column(&mut self, scope: &Scope, kinds: &[Kind]) -> Option<Field> {
        let fit: Vec<&Field> = scope.iter().filter(|field| kinds.contains(&field.kind)).collect();
        fit.choose(self.random).map(|field| (*field).clone())
    }

    /// A column that values can be compared and grouped by.
    fn comparable(&mut self, scope: &Scope) -> Option<Field> {
        let kinds = [
            Kind::Int,
            Kind::Int,
            Kind::Text,
            Kind::Bool,
            Kind::Decimal,
            Kind::Date,
            Kind::Timestamp,
            Kind::Float,
        ];
        // Integers and texts more often: they have few values and many matches.
        let kind = *kinds.choose(self.random).unwrap_or(&Kind::Int);
        self.column(scope, &[kind]).or_else(|| self.column(scope, &kinds))
    }
}
