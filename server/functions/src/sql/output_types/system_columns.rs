//! Columns of `pg_catalog` that PostgreSQL has as `name`, `"char"` and `oid`, and that are texts and numbers here.

use std::collections::HashMap;

use arrow::datatypes::Field;
use millrace_postgres::types::{ANNOTATION, is_text};

use super::Notes;

/// Under this, fields of the relations that never change say which of PostgreSQL's types of oids they are.
const ALIAS: &str = "pg.oid_alias";

const CHARS: &[&str] = &[
    "aggfinalmodify",
    "aggkind",
    "aggmfinalmodify",
    "amoppurpose",
    "amtype",
    "attalign",
    "attcompression",
    "attgenerated",
    "attidentity",
    "attstorage",
    "castcontext",
    "castmethod",
    "collprovider",
    "confdeltype",
    "confmatchtype",
    "confupdtype",
    "contype",
    "datlocprovider",
    "defaclobjtype",
    "deptype",
    "ev_enabled",
    "ev_type",
    "oprkind",
    "partstrat",
    "polcmd",
    "prokind",
    "proparallel",
    "provolatile",
    "relkind",
    "relpersistence",
    "relreplident",
    "tgenabled",
    "typalign",
    "typcategory",
    "typdelim",
    "typstorage",
    "typtype",
];

const NAMES: &[&str] = &[
    "amname",
    "attname",
    "cfgname",
    "collname",
    "conname",
    "datname",
    "dictname",
    "enumlabel",
    "evtname",
    "extname",
    "fdwname",
    "indexname",
    "lanname",
    "matviewname",
    "matviewowner",
    "nspname",
    "opcname",
    "opfname",
    "oprname",
    "polname",
    "proname",
    "prsname",
    "pubname",
    "relname",
    "rolname",
    "rulename",
    "schemaname",
    "spcname",
    "srvname",
    "subname",
    "tablename",
    "tableowner",
    "tablespace",
    "tgname",
    "tmplname",
    "typname",
    "usename",
    "viewname",
    "viewowner",
];

/// The notes of a column of a relation.
pub(super) fn notes(relation: &str, field: &Field) -> Notes {
    let own = field.metadata();
    if !relation.starts_with("pg_") {
        return own.clone();
    }
    if let Some(alias) = own.get(ALIAS) {
        // Functions are shown by their names; all else is a plain oid.
        let alias = if alias == "regproc" { "regproc" } else { "oid" };
        return HashMap::from([(ALIAS.to_owned(), alias.to_owned())]);
    }
    if !own.is_empty() || !is_text(field.data_type()) {
        return own.clone();
    }
    let name = field.name().as_str();
    let noted = match (CHARS.contains(&name), NAMES.contains(&name)) {
        (true, _) => "\"char\"",
        (false, true) => "name",
        (false, false) => return Notes::new(),
    };
    HashMap::from([(ANNOTATION.to_owned(), noted.to_owned())])
}
