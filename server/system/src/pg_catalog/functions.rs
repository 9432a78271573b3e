//! Functions that ask the catalog: `pg_get_viewdef`, `obj_description`, `pg_table_is_visible` and their like.
//!
//! A statement has them with what its own names mean: with the catalog of its transaction and its search path.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::role::BOOTSTRAP;
use millrace_catalog::scope::Scope;
use millrace_catalog::{CatalogSnapshot, DEFAULT_DATABASE, DEFAULT_SCHEMA, Object};
use millrace_functions::system::{any_arguments, number};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_storage::ObjectId;
use postgres_types::{Kind, Type};

use crate::pg_catalog::roles::role_oid;
use crate::pg_catalog::types as own_types;
use crate::pg_catalog::{acl, definitions, is_system, privileges, procs, sequences};

/// What names mean to a function.
#[derive(Debug, Clone)]
pub(super) enum Meaning {
    /// What they mean now, to those whose statement says nothing else.
    Current(Arc<ArcSwap<CatalogSnapshot>>),
    Of(Arc<Seen>),
}

/// What a statement sees of the catalog.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) catalog: Arc<CatalogSnapshot>,
    pub(super) database: String,
    pub(super) search_path: Vec<String>,
    /// Who asks.
    pub(super) role: ObjectId,
}

impl Meaning {
    pub(super) fn seen(&self) -> Arc<Seen> {
        match self {
            Meaning::Of(seen) => Arc::clone(seen),
            Meaning::Current(catalog) => Arc::new(Seen {
                catalog: catalog.load_full(),
                database: DEFAULT_DATABASE.to_owned(),
                search_path: vec![DEFAULT_SCHEMA.to_owned()],
                role: BOOTSTRAP,
            }),
        }
    }

    pub(super) fn is(&self, other: &Meaning) -> bool {
        match (self, other) {
            (Meaning::Current(one), Meaning::Current(other)) => Arc::ptr_eq(one, other),
            (Meaning::Of(one), Meaning::Of(other)) => {
                Arc::ptr_eq(&one.catalog, &other.catalog) && one.role == other.role
            }
            _ => false,
        }
    }
}

impl Seen {
    /// Whether the name of a relation alone means it.
    fn is_visible(&self, object: &Object) -> bool {
        let mut path = self.search_path.iter();
        let first = path.find_map(|schema| self.catalog.relation(&self.database, schema, &object.name));
        first.is_some_and(|first| first.id == object.id)
    }

    /// The name of a relation, with its schema unless the name alone means it.
    fn name_of(&self, object: &Object) -> String {
        let name = quote_identifier(&object.name);
        match self.is_visible(object) {
            true => name,
            false => format!("{}.{name}", quote_identifier(&object.schema)),
        }
    }

    /// The relation that a text such as `name`, `schema.name` or `"Name"` means.
    ///
    /// # Errors
    /// The text is no name, or means nothing.
    pub(super) fn relation(&self, text: &str) -> SqlResult<&Arc<Object>> {
        let parts = millrace_parser::name_parts(text);
        let found = match parts.as_slice() {
            [name] => self
                .search_path
                .iter()
                .find_map(|schema| self.catalog.relation(&self.database, schema, name)),
            [schema, name] => self.catalog.relation(&self.database, schema, name),
            _ => None,
        };
        found.ok_or_else(|| {
            SqlError::new(
                SqlState::UndefinedTable,
                format!("relation \"{text}\" does not exist"),
            )
        })
    }
}

/// What a [`FromCatalog`] function does with its arguments.
type Apply = fn(&Seen, &[ArrayRef], usize) -> SqlResult<Option<String>>;

/// What a function of yes or no does with its arguments.
pub(super) type Decide = fn(&Seen, &[ArrayRef], usize) -> SqlResult<Option<bool>>;

/// What casts the oid of a relation, or its name, to its name.
pub const NAME_OF_RELATION: &str = "regclass_name";
/// What casts the name of a relation, or its oid, to its oid.
pub const OID_OF_RELATION: &str = "regclass_oid";

/// The functions, by name.
const ASKED: &[(&str, Apply)] = &[
    (NAME_OF_RELATION, |seen, args, row| {
        let Some(given) = text(args, 0, row) else {
            return Ok(None);
        };
        let object = match given.parse::<i64>() {
            Ok(0) => return Ok(Some("-".to_owned())),
            Ok(oid) => match definitions::object(&seen.catalog, oid) {
                Some(object) => object,
                None => return Ok(Some(definitions::index_name(&seen.catalog, oid).unwrap_or(given))),
            },
            Err(_) => seen.relation(&given)?,
        };
        Ok(Some(seen.name_of(object)))
    }),
    (OID_OF_RELATION, |seen, args, row| {
        let Some(given) = text(args, 0, row) else {
            return Ok(None);
        };
        if given.parse::<i64>().is_ok() {
            return Ok(Some(given));
        }
        Ok(Some(super::oid(seen.relation(&given)?.id).to_string()))
    }),
    ("pg_get_userbyid", |seen, args, row| {
        let Some(wanted) = oid(args, row) else {
            return Ok(None);
        };
        let role = seen.catalog.roles().find(|role| role_oid(role.id) == wanted);
        Ok(Some(role.map_or_else(
            || format!("unknown (OID={wanted})"),
            |role| role.name.clone(),
        )))
    }),
    ("pg_get_indexdef", |seen, args, row| {
        let column = number(args, 1, row).unwrap_or(0);
        Ok(oid(args, row).and_then(|oid| definitions::index(&seen.catalog, oid, column)))
    }),
    ("pg_get_viewdef", |seen, args, row| {
        Ok(oid(args, row).and_then(|oid| definitions::view(&seen.catalog, oid)))
    }),
    ("pg_get_constraintdef", |seen, args, row| {
        let is_pretty = text(args, 1, row).is_some_and(|pretty| pretty.starts_with('t'));
        let name = |object: &Object| seen.name_of(object);
        let of = |oid| definitions::constraint((&seen.catalog, &seen.database), oid, is_pretty, &name);
        Ok(oid(args, row).and_then(of))
    }),
    ("pg_get_function_result", |seen, args, row| {
        Ok(oid(args, row).map(|oid| procs::result(&seen.catalog, oid)))
    }),
    ("pg_get_functiondef", |seen, args, row| {
        let named = |name: String| {
            let mut path = seen.search_path.iter();
            let found = path.find_map(|schema| seen.catalog.function(&seen.database, schema, &name));
            found.map(|function| super::oid(function.id))
        };
        let asked = oid(args, row).or_else(|| text(args, 0, row).and_then(named));
        Ok(asked.and_then(|oid| procs::definition(&seen.catalog, oid)))
    }),
    ("pg_get_function_arguments", |seen, args, row| {
        Ok(oid(args, row).map(|oid| procs::arguments(&seen.catalog, oid)))
    }),
    ("pg_get_function_identity_arguments", |seen, args, row| {
        Ok(oid(args, row).map(|oid| procs::arguments(&seen.catalog, oid)))
    }),
    ("format_type", |seen, args, row| {
        Ok(oid(args, row).map(|oid| {
            own_types::name(&seen.catalog, oid)
                .unwrap_or_else(|| type_with_modifier(oid, number(args, 1, row)))
        }))
    }),
    // Expressions are kept as their text.
    ("pg_get_expr", |_, args, row| Ok(text(args, 0, row))),
    ("obj_description", |seen, args, row| {
        Ok(oid(args, row).and_then(|oid| definitions::comment(&seen.catalog, oid, 0)))
    }),
    ("col_description", |seen, args, row| {
        let comment = || definitions::comment(&seen.catalog, oid(args, row)?, number(args, 1, row)?);
        Ok(comment())
    }),
    ("pg_get_serial_sequence", |seen, args, row| {
        let (Some(table), Some(column)) = (text(args, 0, row), text(args, 1, row)) else {
            return Ok(None);
        };
        let relation = seen.relation(&table)?;
        let columns = relation.relation().map(|relation| relation.columns.as_slice());
        let mut columns = columns.unwrap_or_default().iter();
        if !columns.any(|known| *known.field.name() == column) {
            return Err(SqlError::new(
                SqlState::UndefinedColumn,
                format!(
                    "column \"{column}\" of relation \"{}\" does not exist",
                    relation.name
                ),
            ));
        }
        Ok(sequences::of_column(&seen.catalog, relation, &column))
    }),
];

/// Functions that ask the catalog of the moment.
pub fn udfs(catalog: &Arc<ArcSwap<CatalogSnapshot>>) -> Vec<Arc<ScalarUDF>> {
    let meaning = Meaning::Current(Arc::clone(catalog));
    let decided = VISIBLE.iter().chain(privileges::DECIDED);
    let names = ASKED
        .iter()
        .map(|(name, _)| *name)
        .chain(decided.map(|(name, _)| *name))
        .chain(acl::NAMES);
    names.filter_map(|name| made(name, &meaning)).collect()
}

/// Whether a function of that name sees what a statement sees.
pub fn asks_statement(name: &str) -> bool {
    decided(name).is_some() || ASKED.iter().any(|(known, _)| *known == name) || acl::NAMES.contains(&name)
}

/// A function of that name that sees what a statement sees; `None`: it asks no catalog.
pub fn of_statement(scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>> {
    if !asks_statement(name) {
        return None;
    }
    let seen = Seen {
        catalog: Arc::clone(&scope.catalog),
        database: scope.database.clone(),
        search_path: scope.search_path.clone(),
        role: scope.acting.role,
    };
    made(name, &Meaning::Of(Arc::new(seen)))
}

fn made(name: &str, meaning: &Meaning) -> Option<Arc<ScalarUDF>> {
    if let Some((name, decide)) = decided(name) {
        return Some(Arc::new(ScalarUDF::from(Decides {
            name,
            decide,
            meaning: meaning.clone(),
            signature: any_arguments(Volatility::Stable),
        })));
    }
    if let Some(of_lists) = acl::made(name, meaning) {
        return Some(of_lists);
    }
    let (name, apply) = ASKED.iter().find(|(known, _)| *known == name)?;
    Some(Arc::new(ScalarUDF::from(FromCatalog {
        name,
        apply: *apply,
        meaning: meaning.clone(),
        signature: any_arguments(Volatility::Stable),
    })))
}

fn oid(args: &[ArrayRef], row: usize) -> Option<i64> {
    number(args, 0, row)
}

/// A type with what `pg_attribute.atttypmod` says of it.
fn type_with_modifier(oid: i64, modifier: Option<i64>) -> String {
    if oid == 0 {
        return "-".to_owned();
    }
    let Some(pg) = u32::try_from(oid).ok().and_then(Type::from_oid) else {
        return "???".to_owned();
    };
    if let Kind::Array(element) = pg.kind()
        && !matches!(pg, Type::INT2_VECTOR | Type::OID_VECTOR)
    {
        return format!("{}[]", type_with_modifier(i64::from(element.oid()), modifier));
    }
    let kept = modifier.and_then(|modifier| i32::try_from(modifier).ok());
    let kept = kept.filter(|modifier| *modifier >= 0);
    let digits = kept.map(|digits| format!("({digits})")).unwrap_or_default();
    // The header of a variable-length value is counted.
    let counted = kept
        .and_then(|kept| kept.checked_sub(4))
        .filter(|kept| *kept >= 0);
    match pg {
        Type::CHAR => "\"char\"".to_owned(),
        Type::TIME => format!("time{digits} without time zone"),
        Type::TIMETZ => format!("time{digits} with time zone"),
        Type::TIMESTAMP => format!("timestamp{digits} without time zone"),
        Type::TIMESTAMPTZ => format!("timestamp{digits} with time zone"),
        Type::INTERVAL => types::digits::interval_name(kept.unwrap_or(-1)),
        Type::BIT => format!("bit{digits}"),
        Type::VARBIT => format!("bit varying{digits}"),
        // Without a length it would be the name of character(1).
        Type::BPCHAR if modifier.is_some() && counted.is_none() => "bpchar".to_owned(),
        _ => {
            let name = match pg.name().starts_with("reg") {
                true => pg.name().to_owned(),
                false => types::pg_name(&pg),
            };
            match (&pg, counted) {
                (&Type::VARCHAR | &Type::BPCHAR, Some(length)) => format!("{name}({length})"),
                (&Type::NUMERIC, Some(digits)) => format!("{name}({},{})", digits >> 16, digits & 0x7ff),
                _ => name,
            }
        }
    }
}

pub(super) fn text(args: &[ArrayRef], position: usize, row: usize) -> Option<String> {
    let texts = arrow::compute::cast(args.get(position)?, &DataType::Utf8).ok()?;
    let texts = texts.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_string())
}

struct FromCatalog {
    name: &'static str,
    apply: Apply,
    meaning: Meaning,
    signature: Signature,
}

impl fmt::Debug for FromCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for FromCatalog {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.meaning.is(&other.meaning)
    }
}

impl Eq for FromCatalog {}

impl Hash for FromCatalog {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for FromCatalog {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = arrays.first().map_or(args.number_rows, |array| array.len());
        let seen = self.meaning.seen();
        let out = (0..rows)
            .map(|row| (self.apply)(&seen, &arrays, row))
            .collect::<SqlResult<StringArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// The functions of yes or no, by name.
fn decided(name: &str) -> Option<(&'static str, Decide)> {
    let mut known = VISIBLE.iter().chain(privileges::DECIDED);
    known.find(|(known, _)| *known == name).copied()
}

/// Whether the name alone of a relation, or of a function, means it.
const VISIBLE: [(&str, Decide); 2] = [
    ("pg_table_is_visible", |seen, args, row| {
        let Some(oid) = number(args, 0, row) else {
            return Ok(None);
        };
        let object = definitions::relation(&seen.catalog, oid);
        if let Some(of) = object
            && of.named_type().is_some()
        {
            let mut path = seen.search_path.iter();
            let first = path.find_map(|schema| seen.catalog.user_type(&seen.database, schema, &of.name));
            return Ok(Some(first.is_some_and(|first| first.id == of.id)));
        }
        Ok(Some(
            !is_system(oid) && object.is_none_or(|object| seen.is_visible(object)),
        ))
    }),
    ("pg_function_is_visible", |seen, args, row| {
        let Some(oid) = number(args, 0, row) else {
            return Ok(None);
        };
        let object = definitions::object(&seen.catalog, oid);
        let mut path = seen.search_path.iter();
        Ok(Some(object.is_none_or(|object| {
            let first = path.find_map(|schema| seen.catalog.function(&seen.database, schema, &object.name));
            first.is_some_and(|first| first.id == object.id)
        })))
    }),
];

struct Decides {
    name: &'static str,
    decide: Decide,
    meaning: Meaning,
    signature: Signature,
}

impl fmt::Debug for Decides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Decides {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.meaning.is(&other.meaning)
    }
}

impl Eq for Decides {}

impl Hash for Decides {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Decides {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = arrays.first().map_or(args.number_rows, |array| array.len());
        let seen = self.meaning.seen();
        let out = (0..rows)
            .map(|row| (self.decide)(&seen, &arrays, row))
            .collect::<SqlResult<BooleanArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}
