//! Lists of privileges as values: `acldefault(type, owner)`, and what `aclexplode(list)` makes rows of.
//!
//! A list is an array of texts such as `ann=ar*/millrace`; the catalog says which roles the names mean.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Builder, ListArray, ListBuilder, StringBuilder,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::access::no_such_role;
use millrace_catalog::rights::{Class, Privileges};
use millrace_functions::arrays::acl::{EXPLODED, fields};
use millrace_functions::system::{any_arguments, number};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::pg_catalog::functions::{Meaning, Seen, text};
use crate::pg_catalog::roles::{role_name, role_oid};

/// The functions, by name.
pub(super) const NAMES: [&str; 2] = ["acldefault", EXPLODED];

/// The function of that name; `None`: it is none of these.
pub(super) fn made(name: &str, meaning: &Meaning) -> Option<Arc<ScalarUDF>> {
    let name = NAMES.into_iter().find(|known| *known == name)?;
    Some(Arc::new(ScalarUDF::from(OfLists {
        name,
        meaning: meaning.clone(),
        signature: any_arguments(Volatility::Stable),
    })))
}

/// Privileges of PostgreSQL on objects that millrace has not: on parameters.
const OTHERS: [(char, &str); 2] = [('s', "SET"), ('A', "ALTER SYSTEM")];

/// What everybody and what the owner may do with an object of a type of which nobody has said anything.
fn defaults(letter: char) -> Option<(String, String)> {
    let of = |class: Class| (class.of_public().letters(), class.all().letters());
    let both = |all: &str, own: &str| (all.to_owned(), own.to_owned());
    Some(match letter {
        'r' => of(Class::Table),
        's' => of(Class::Sequence),
        'f' => of(Class::Function),
        'n' => of(Class::Schema),
        'd' => of(Class::Database),
        // Of PostgreSQL alone: columns, languages and types, large objects, tablespaces, foreign data, parameters.
        'c' => both("", ""),
        'l' | 'T' => both("U", "U"),
        'L' => both("", "rw"),
        't' => both("", "C"),
        'F' | 'S' => both("", "U"),
        'p' => both("", "sA"),
        _ => return None,
    })
}

/// The list of an object of this type.
fn default_list(seen: &Seen, kind: &str, owner: i64) -> SqlResult<Vec<String>> {
    let letter = kind.chars().next().unwrap_or_default();
    let (all, own) = defaults(letter).ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("unrecognized objtype abbreviation: {letter}"),
        )
    })?;
    let known = seen.catalog.roles().find(|role| role_oid(role.id) == owner);
    let owner = known.map_or_else(|| owner.to_string(), |role| role_name(&role.name));
    let item = |grantee: &str, letters: &str| match letters {
        "" => None,
        letters => Some(format!("{grantee}={letters}/{owner}")),
    };
    Ok(item("", &all).into_iter().chain(item(&owner, &own)).collect())
}

/// One privilege of an item.
struct Exploded {
    grantor: i64,
    /// 0: everybody.
    grantee: i64,
    privilege: &'static str,
    is_grantable: bool,
}

fn invalid(item: &str, what: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidTextRepresentation,
        format!("invalid item \"{item}\" of a list of privileges: {what}"),
    )
}

/// The name at the beginning, and what follows it. A name in quotes has `""` for a quote.
fn name_of<'a>(item: &str, text: &'a str, end: Option<char>) -> SqlResult<(String, &'a str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let at = end.map_or(text.len(), |end| text.find(end).unwrap_or(text.len()));
        return Ok((text[..at].to_owned(), &text[at..]));
    };
    let mut name = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                characters.next();
                name.push('"');
            }
            '"' => return Ok((name, &quoted[at + 1..])),
            other => name.push(other),
        }
    }
    Err(invalid(item, "a name in quotes has no end"))
}

fn explode(seen: &Seen, item: &str, found: &mut Vec<Exploded>) -> SqlResult<()> {
    let role = |name: &str| -> SqlResult<i64> {
        match (seen.catalog.role(name), name.parse::<i64>()) {
            (Some(role), _) => Ok(role_oid(role.id)),
            // One that is gone.
            (None, Ok(oid)) => Ok(oid),
            (None, Err(_)) => Err(no_such_role(name)),
        }
    };
    let (grantee, rest) = name_of(item, item, Some('='))?;
    let rest = rest
        .strip_prefix('=')
        .ok_or_else(|| invalid(item, "it has no ="))?;
    let (letters, grantor) = rest
        .split_once('/')
        .ok_or_else(|| invalid(item, "it does not say who granted it"))?;
    let (grantor, rest) = name_of(item, grantor, None)?;
    if !rest.is_empty() {
        return Err(invalid(item, "something follows its end"));
    }
    let (grantor, grantee) = match grantee.as_str() {
        "" => (role(&grantor)?, 0),
        grantee => (role(&grantor)?, role(grantee)?),
    };
    let mut letters = letters.chars().peekable();
    while let Some(letter) = letters.next() {
        let of_others = || {
            OTHERS
                .iter()
                .find(|(known, _)| *known == letter)
                .map(|(_, name)| *name)
        };
        let privilege = Privileges::name_of_letter(letter)
            .or_else(of_others)
            .ok_or_else(|| invalid(item, &format!("\"{letter}\" is no privilege")))?;
        found.push(Exploded {
            grantor,
            grantee,
            privilege,
            is_grantable: letters.next_if_eq(&'*').is_some(),
        });
    }
    Ok(())
}

/// The items of each list as structs.
fn exploded(seen: &Seen, lists: &ArrayRef) -> Result<ArrayRef> {
    let texts = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
    let lists = arrow::compute::cast(lists, &texts)?;
    let lists: &ListArray = lists.as_list();
    let mut found = vec![];
    let mut lengths = Vec::with_capacity(lists.len());
    for list in lists.iter() {
        let before = found.len();
        for item in list
            .iter()
            .flat_map(|list| list.as_string::<i32>().iter())
            .flatten()
        {
            explode(seen, item, &mut found)?;
        }
        lengths.push(found.len() - before);
    }
    let (mut grantors, mut grantees) = (Int32Builder::new(), Int32Builder::new());
    let (mut privileges, mut options) = (StringBuilder::new(), BooleanBuilder::new());
    let number = |oid: i64| i32::try_from(oid).unwrap_or(i32::MAX);
    for one in &found {
        grantors.append_value(number(one.grantor));
        grantees.append_value(number(one.grantee));
        privileges.append_value(one.privilege);
        options.append_value(one.is_grantable);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(grantors.finish()),
        Arc::new(grantees.finish()),
        Arc::new(privileges.finish()),
        Arc::new(options.finish()),
    ];
    let items = StructArray::try_new(fields(), columns, None)?;
    let nulls: NullBuffer = (0..lists.len()).map(|row| lists.is_valid(row)).collect();
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(
        item,
        offsets,
        Arc::new(items),
        Some(nulls),
    )?))
}

struct OfLists {
    name: &'static str,
    meaning: Meaning,
    signature: Signature,
}

impl fmt::Debug for OfLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for OfLists {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.meaning.is(&other.meaning)
    }
}

impl Eq for OfLists {}

impl Hash for OfLists {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfLists {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        let item = match self.name {
            EXPLODED => DataType::Struct(fields()),
            _ => DataType::Utf8,
        };
        Ok(DataType::List(Arc::new(Field::new("item", item, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let wanted = if self.name == EXPLODED { 1 } else { 2 };
        if arrays.len() != wanted {
            let what = if wanted == 1 {
                "a list of privileges"
            } else {
                "a type and an owner"
            };
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("{}() takes {what}", self.name.trim_end_matches("_items")),
            )
            .into());
        }
        let seen = self.meaning.seen();
        if self.name == EXPLODED {
            return Ok(ColumnarValue::Array(exploded(&seen, &arrays[0])?));
        }
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..arrays[0].len() {
            let (Some(kind), Some(owner)) = (text(&arrays, 0, row), number(&arrays, 1, row)) else {
                lists.append_null();
                continue;
            };
            let items = default_list(&seen, &kind, owner)?;
            lists.append_value(items.into_iter().map(Some));
        }
        Ok(ColumnarValue::Array(Arc::new(lists.finish())))
    }
}
