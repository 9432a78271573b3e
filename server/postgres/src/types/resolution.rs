//! Which operator or function PostgreSQL takes for arguments of which some have no type yet, and what type those then get.
//!
//! The rules are those of the chapter "Type Conversion" of PostgreSQL's manual: an exact match, else the candidates that take the
//! known types as they are or by an implicit cast, narrowed down by exact matches, by preferred types, and by the category that the
//! arguments without a type are taken to have. What operators, functions and casts there are is read from three lists.

use std::collections::HashMap;
use std::sync::LazyLock;

use postgres_types::{Kind, Type};

/// An operator or function: what it takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The types of the arguments. The last one repeats if the function takes any number of them.
    pub arguments: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// Whether the last argument repeats.
    is_variadic: bool,
    /// How many of the last arguments may be left out.
    defaults: usize,
}

/// An argument's type as far as it is known: a literal in quotes and a parameter have none.
pub type Known = Option<Type>;

struct Lists {
    operators: HashMap<&'static str, Vec<Signature>>,
    functions: HashMap<&'static str, Vec<Signature>>,
    casts: Vec<(Type, Type)>,
}

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let lines = |text: &'static str| {
        text.lines()
            .filter(|line| !line.starts_with("-- "))
            .map(|line| line.split(' ').collect::<Vec<_>>())
    };
    let mut operators: HashMap<_, Vec<Signature>> = HashMap::new();
    for words in lines(include_str!("resolution/operators.txt")) {
        let sides = words[1..3].iter().filter(|side| **side != "-");
        let signature = sides
            .map(|side| named(side))
            .collect::<Option<_>>()
            .zip(named(words[3]));
        if let Some((arguments, result)) = signature {
            operators.entry(words[0]).or_default().push(Signature {
                arguments,
                result,
                is_variadic: false,
                defaults: 0,
            });
        }
    }
    let mut functions: HashMap<_, Vec<Signature>> = HashMap::new();
    for words in lines(include_str!("resolution/functions.txt")) {
        let arguments = words[1].split(',').filter(|argument| *argument != "-");
        let signature = arguments.map(named).collect::<Option<_>>().zip(named(words[2]));
        if let Some((arguments, result)) = signature {
            functions.entry(words[0]).or_default().push(Signature {
                arguments,
                result,
                is_variadic: words[3].starts_with('v'),
                defaults: words[3][1..].parse().unwrap_or_default(),
            });
        }
    }
    let casts = lines(include_str!("resolution/casts.txt"));
    Lists {
        operators,
        functions,
        casts: casts
            .filter_map(|words| named(words[0]).zip(named(words[1])))
            .collect(),
    }
});

/// The names of all functions.
pub fn functions() -> impl Iterator<Item = &'static str> {
    LISTS.functions.keys().copied()
}

/// A type of the lists by its name in PostgreSQL's catalog.
fn named(name: &str) -> Option<Type> {
    const TYPES: &[Type] = &[
        Type::ANY,
        Type::ANYARRAY,
        Type::ANYCOMPATIBLE,
        Type::ANYCOMPATIBLEARRAY,
        Type::ANYELEMENT,
        Type::ANYNONARRAY,
        Type::BOOL,
        Type::BPCHAR,
        Type::BYTEA,
        Type::DATE,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::FLOAT8_ARRAY,
        Type::INT2,
        Type::INT4,
        Type::INT4_ARRAY,
        Type::INT8,
        Type::INT8_ARRAY,
        Type::INTERVAL,
        Type::JSON,
        Type::JSONB,
        Type::JSONPATH,
        Type::NAME,
        Type::NUMERIC,
        Type::OID,
        Type::RECORD,
        Type::REGCLASS,
        Type::REGNAMESPACE,
        Type::REGPROC,
        Type::REGTYPE,
        Type::TEXT,
        Type::TEXT_ARRAY,
        Type::TIME,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
        Type::UUID,
        Type::VARCHAR,
        Type::VOID,
    ];
    TYPES.iter().find(|known| known.name() == name).cloned()
}

/// What a type is, to the rules: types of one category stand in for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Category {
    Array,
    Boolean,
    Date,
    Number,
    Other,
    Pseudo,
    Text,
    Span,
}

fn category(pg: &Type) -> Category {
    match *pg {
        Type::BOOL => Category::Boolean,
        Type::INT2
        | Type::INT4
        | Type::INT8
        | Type::FLOAT4
        | Type::FLOAT8
        | Type::NUMERIC
        | Type::OID
        | Type::REGCLASS
        | Type::REGTYPE
        | Type::REGPROC
        | Type::REGNAMESPACE => Category::Number,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Category::Text,
        Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => Category::Date,
        Type::INTERVAL => Category::Span,
        _ if is_generic(pg) || *pg == Type::RECORD => Category::Pseudo,
        _ if matches!(pg.kind(), Kind::Array(_)) => Category::Array,
        _ => Category::Other,
    }
}

/// Whether the type is the one of its category that is taken where nothing else decides.
fn is_preferred(pg: &Type) -> bool {
    matches!(
        *pg,
        Type::BOOL | Type::FLOAT8 | Type::OID | Type::TEXT | Type::TIMESTAMPTZ | Type::INTERVAL
    )
}

/// Whether it stands for other types.
pub fn is_generic(pg: &Type) -> bool {
    matches!(
        *pg,
        Type::ANY
            | Type::ANYARRAY
            | Type::ANYCOMPATIBLE
            | Type::ANYCOMPATIBLEARRAY
            | Type::ANYELEMENT
            | Type::ANYNONARRAY
    )
}

/// Whether a value of a type may be used where another is wanted, without a cast being written.
/// Whether a value of the one type becomes one of the other without being cast; `None`: the lists know nothing of one of them.
pub fn is_implicit(from: &Type, to: &Type) -> Option<bool> {
    let is_known = |pg: &Type| named(pg.name()).is_some() && category(pg) != Category::Pseudo;
    match (from.kind(), to.kind()) {
        (Kind::Array(from), Kind::Array(to)) => is_implicit(from, to),
        _ => (is_known(from) && is_known(to)).then(|| converts(from, to)),
    }
}

fn converts(from: &Type, to: &Type) -> bool {
    if from == to {
        return true;
    }
    match *to {
        Type::ANY | Type::ANYELEMENT | Type::ANYCOMPATIBLE => true,
        Type::ANYNONARRAY => !matches!(from.kind(), Kind::Array(_)),
        Type::ANYARRAY | Type::ANYCOMPATIBLEARRAY => matches!(from.kind(), Kind::Array(_)),
        _ => match (from.kind(), to.kind()) {
            (Kind::Array(from), Kind::Array(to)) => converts(from, to),
            _ => LISTS
                .casts
                .iter()
                .any(|(source, target)| source == from && target == to),
        },
    }
}

/// What was found for a name and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This one is meant.
    One(Signature),
    /// Nothing decides between several.
    Several,
    /// There is none.
    None,
}

impl Choice {
    /// The one that is meant.
    pub fn one(self) -> Option<Signature> {
        match self {
            Choice::One(signature) => Some(signature),
            Choice::Several | Choice::None => None,
        }
    }
}

/// The operator that is meant; the left side of a prefix operator is not among the arguments.
pub fn operator(name: &str, arguments: &[Known]) -> Choice {
    let name = if name == "!=" { "<>" } else { name };
    let Some(all) = LISTS.operators.get(name) else {
        return Choice::None;
    };
    // What has no type is first taken to be of the other side's.
    if let [left, right] = arguments
        && let Some(type_of_one) = left.as_ref().or(right.as_ref())
    {
        let assumed = [
            left.as_ref().unwrap_or(type_of_one),
            right.as_ref().unwrap_or(type_of_one),
        ];
        let exact = all
            .iter()
            .find(|candidate| candidate.arguments.iter().eq(assumed));
        if let Some(exact) = exact {
            return Choice::One(exact.clone());
        }
    }
    choose(all, arguments)
}

/// The function that is meant.
pub fn function(name: &str, arguments: &[Known]) -> Choice {
    match LISTS.functions.get(name) {
        Some(all) => choose(all, arguments),
        None => Choice::None,
    }
}

/// Whether there is a function of that name in the lists.
pub fn is_function(name: &str) -> bool {
    LISTS.functions.contains_key(name)
}

/// How many functions of that name take so many arguments.
pub fn function_count(name: &str, arguments: usize) -> usize {
    let all = LISTS.functions.get(name).map_or(&[][..], Vec::as_slice);
    all.iter()
        .filter(|signature| signature.for_count(arguments).is_some())
        .count()
}

fn choose(all: &[Signature], arguments: &[Known]) -> Choice {
    let fitting = all
        .iter()
        .filter_map(|signature| signature.for_count(arguments.len()));
    let mut candidates: Vec<Signature> = fitting
        .filter(|candidate| {
            let mut pairs = candidate.arguments.iter().zip(arguments);
            pairs.all(|(wanted, given)| given.as_ref().is_none_or(|given| converts(given, wanted)))
        })
        .collect();
    let exact = candidates.iter().position(|candidate| {
        let mut pairs = candidate.arguments.iter().zip(arguments);
        pairs.all(|(wanted, given)| given.as_ref() == Some(wanted))
    });
    if let Some(exact) = exact {
        return Choice::One(candidates.swap_remove(exact));
    }
    if candidates.len() > 1 {
        narrow(&mut candidates, arguments);
    }
    match (candidates.pop(), candidates.is_empty()) {
        (Some(one), true) => Choice::One(one),
        (Some(_), false) => Choice::Several,
        (None, _) => Choice::None,
    }
}

impl Signature {
    /// The same for so many arguments; `None`: it does not take as many.
    fn for_count(&self, count: usize) -> Option<Signature> {
        let mut same = self.clone();
        let declared = self.arguments.len();
        if count < declared && count + self.defaults >= declared {
            same.arguments.truncate(count);
            return Some(same);
        }
        if self.is_variadic && count >= declared {
            let repeated = self.arguments.last()?.clone();
            let repeated = match repeated.kind() {
                Kind::Array(element) => element.clone(),
                _ => repeated,
            };
            same.arguments.pop();
            same.arguments.resize(count, repeated);
            return Some(same);
        }
        (count == declared).then_some(same)
    }

    /// The types that the arguments have once those that stand for others were settled; `None` where that is not known. The last is
    /// the result's.
    pub fn settled(&self, given: &[Known]) -> Vec<Known> {
        let elements = |compatible: bool| -> Vec<Known> {
            let mut found = vec![];
            for (wanted, given) in self.arguments.iter().zip(given) {
                let is_whole = match compatible {
                    true => *wanted == Type::ANYCOMPATIBLE,
                    false => matches!(*wanted, Type::ANYELEMENT | Type::ANYNONARRAY),
                };
                let is_array = match compatible {
                    true => *wanted == Type::ANYCOMPATIBLEARRAY,
                    false => *wanted == Type::ANYARRAY,
                };
                if is_whole {
                    found.push(given.clone());
                } else if is_array {
                    found.push(given.as_ref().and_then(|array| match array.kind() {
                        Kind::Array(element) => Some(element.clone()),
                        _ => None,
                    }));
                }
            }
            found
        };
        let any = elements(false).into_iter().flatten().next();
        let compatible = elements(true);
        let common = match compatible.is_empty() {
            true => None,
            // Where nothing is known they are texts.
            false => common_type(&compatible),
        };
        let settle = |wanted: &Type| -> Known {
            match *wanted {
                Type::ANY => None,
                Type::ANYELEMENT | Type::ANYNONARRAY => any.clone(),
                Type::ANYARRAY => any.as_ref().and_then(array_of),
                Type::ANYCOMPATIBLE => common.clone(),
                Type::ANYCOMPATIBLEARRAY => common.as_ref().and_then(array_of),
                _ => Some(wanted.clone()),
            }
        };
        self.arguments.iter().chain([&self.result]).map(settle).collect()
    }
}

/// Keeps the candidates that fit best.
fn narrow(candidates: &mut Vec<Signature>, arguments: &[Known]) {
    let known = |candidate: &Signature, fits: &dyn Fn(&Type, &Type) -> bool| -> usize {
        let pairs = candidate.arguments.iter().zip(arguments);
        pairs
            .filter(|(wanted, given)| given.as_ref().is_some_and(|given| fits(given, wanted)))
            .count()
    };
    keep_best(candidates, |candidate| {
        known(candidate, &|given, wanted| given == wanted)
    });
    if candidates.len() == 1 {
        return;
    }
    keep_best(candidates, |candidate| {
        known(candidate, &|given, wanted| {
            given == wanted || (category(given) == category(wanted) && is_preferred(wanted))
        })
    });
    if candidates.len() == 1 || arguments.iter().all(Option::is_some) {
        return;
    }
    let mut are_clear = true;
    let mut kept = candidates.clone();
    for (position, argument) in arguments.iter().enumerate() {
        if argument.is_some() {
            continue;
        }
        let categories: Vec<Category> = candidates
            .iter()
            .map(|candidate| category(&candidate.arguments[position]))
            .collect();
        let taken = match categories.contains(&Category::Text) {
            true => Category::Text,
            false if categories.iter().all(|one| *one == categories[0]) => categories[0],
            false => {
                are_clear = false;
                break;
            }
        };
        let has_preferred = candidates.iter().any(|candidate| {
            let wanted = &candidate.arguments[position];
            category(wanted) == taken && is_preferred(wanted)
        });
        kept.retain(|candidate| {
            let wanted = &candidate.arguments[position];
            category(wanted) == taken && (!has_preferred || is_preferred(wanted))
        });
    }
    if are_clear && !kept.is_empty() {
        *candidates = kept;
        if candidates.len() == 1 {
            return;
        }
    }
    // The last resort: all are of the one type that is known.
    let mut types: Vec<&Type> = arguments.iter().flatten().collect();
    types.dedup();
    if let [single] = types.as_slice() {
        let fitting: Vec<Signature> = candidates
            .iter()
            .filter(|candidate| candidate.arguments.iter().all(|wanted| converts(single, wanted)))
            .cloned()
            .collect();
        if fitting.len() == 1 {
            *candidates = fitting;
        }
    }
}

fn keep_best(candidates: &mut Vec<Signature>, score: impl Fn(&Signature) -> usize) {
    let best = candidates.iter().map(&score).max().unwrap_or_default();
    candidates.retain(|candidate| score(candidate) == best);
}

/// The type that the branches of CASE, the elements of an array or the rows of VALUES have in common: text where none has a type.
/// `None`: they have none in common.
pub fn common_type(types: &[Known]) -> Known {
    let mut common: Known = None;
    for next in types.iter().flatten() {
        match &common {
            None => common = Some(next.clone()),
            Some(so_far) if so_far == next => {}
            Some(so_far) if category(so_far) != category(next) => return None,
            Some(so_far) => {
                if !is_preferred(so_far) && converts(so_far, next) && !converts(next, so_far) {
                    common = Some(next.clone());
                }
            }
        }
    }
    common.or(Some(Type::TEXT))
}

/// The type of arrays of a type; `None`: there is none.
pub fn array_of(element: &Type) -> Known {
    Some(match *element {
        Type::REGCLASS => Type::REGCLASS_ARRAY,
        Type::REGTYPE => Type::REGTYPE_ARRAY,
        Type::RECORD => Type::RECORD_ARRAY,
        Type::TEXT => Type::TEXT_ARRAY,
        ref other => match super::array_of(other) {
            Type::TEXT_ARRAY => return None,
            array => array,
        },
    })
}

/// The type of an array's elements; `None`: it is no array.
pub fn element_of(array: &Type) -> Known {
    match array.kind() {
        Kind::Array(element) => Some(element.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_lists_is_read() {
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with("-- ")).count();
        let count = |map: &HashMap<&str, Vec<Signature>>| map.values().map(Vec::len).sum::<usize>();
        assert_eq!(
            count(&LISTS.operators),
            lines(include_str!("resolution/operators.txt"))
        );
        assert_eq!(
            count(&LISTS.functions),
            lines(include_str!("resolution/functions.txt"))
        );
        assert_eq!(LISTS.casts.len(), lines(include_str!("resolution/casts.txt")));
    }

    /// What PostgreSQL 15 says of `SELECT $1 op ..`.
    #[test]
    fn operators_are_chosen_as_by_postgresql() {
        let cases = [
            ("+", None, Some(Type::INT4), Some(Type::INT4)),
            ("+", None, Some(Type::DATE), None),
            ("-", None, Some(Type::TIMESTAMPTZ), Some(Type::TIMESTAMPTZ)),
            ("=", None, Some(Type::VARCHAR), Some(Type::TEXT)),
            ("||", None, Some(Type::TEXT), Some(Type::TEXT)),
            ("*", None, Some(Type::NUMERIC), Some(Type::NUMERIC)),
            ("=", None, None, Some(Type::TEXT)),
            ("~~", None, Some(Type::TEXT), Some(Type::TEXT)),
        ];
        for (name, left, right, found) in cases {
            let chosen = operator(name, &[left, right.clone()]).one();
            let left = chosen.map(|signature| signature.arguments[0].clone());
            assert_eq!(left, found, "$1 {name} {right:?}");
        }
        let right = operator("->", &[Some(Type::JSONB), None])
            .one()
            .map(|one| one.arguments[1].clone());
        assert_eq!(right, Some(Type::TEXT));
    }

    #[test]
    fn functions_are_chosen_as_by_postgresql() {
        let first =
            |name: &str, arguments: &[Known]| function(name, arguments).one().map(|one| one.arguments);
        assert_eq!(first("upper", &[None]), Some(vec![Type::TEXT]));
        assert_eq!(first("abs", &[None]), Some(vec![Type::FLOAT8]));
        assert_eq!(first("round", &[None]), Some(vec![Type::FLOAT8]));
        assert_eq!(
            first("round", &[None, None]),
            Some(vec![Type::NUMERIC, Type::INT4])
        );
        let trunc = first("date_trunc", &[None, Some(Type::TIMESTAMP)]);
        assert_eq!(trunc, Some(vec![Type::TEXT, Type::TIMESTAMP]));
        let append = function("array_append", &[Some(Type::INT4_ARRAY), None])
            .one()
            .unwrap();
        let settled = append.settled(&[Some(Type::INT4_ARRAY), None]);
        assert_eq!(settled[1], Some(Type::INT4));
    }

    #[test]
    fn what_branches_have_in_common() {
        assert_eq!(common_type(&[None, Some(Type::INT4)]), Some(Type::INT4));
        assert_eq!(
            common_type(&[Some(Type::INT4), Some(Type::INT8), None]),
            Some(Type::INT8)
        );
        assert_eq!(common_type(&[None, None]), Some(Type::TEXT));
        assert_eq!(common_type(&[Some(Type::INT4), Some(Type::TEXT)]), None);
    }
}
