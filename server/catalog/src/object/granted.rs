//! Roles as objects, and what of any object is granted.

use std::sync::{Arc, LazyLock};

use millrace_storage::{ObjectId, ObjectKind};

use super::{Definition, Object};
use crate::names::{BOOTSTRAP, DEFAULT_SCHEMA, DEFAULT_USER};
use crate::rights::{AclItem, Class, Privileges, Rights};
use crate::role::{
    CHECKPOINT, EXECUTE_SERVER_PROGRAM, MONITOR, READ_ALL_DATA, READ_SERVER_FILES, RoleDef, SIGNAL_BACKEND,
    WRITE_ALL_DATA, WRITE_SERVER_FILES,
};

impl RoleDef {
    /// As an object of this name.
    pub fn into_object(self, id: ObjectId, name: &str, sql: String, created_at_ms: i64) -> Object {
        Object {
            id,
            kind: ObjectKind::User,
            database: String::new(),
            schema: String::new(),
            name: name.to_owned(),
            sql,
            comment: None,
            created_at_ms,
            depends: vec![],
            definition: Definition::Role(Arc::new(self)),
            rights: Rights::default(),
        }
    }
}

impl Object {
    /// The role, if it is one.
    pub fn role(&self) -> Option<&RoleDef> {
        match &self.definition {
            Definition::Role(role) => Some(role),
            _ => None,
        }
    }

    /// Whether it is the schema of the start, into which everybody may look, as PostgreSQL's.
    pub fn has_public_default(&self) -> bool {
        self.kind == ObjectKind::Schema && self.name == DEFAULT_SCHEMA
    }

    /// Everything that is granted on the object, its owner's privileges included.
    pub fn acl(&self) -> Vec<AclItem> {
        if let Some(acl) = &self.rights.acl {
            return acl.clone();
        }
        let owner = self.rights.owner();
        let Some(class) = Class::of(self.kind) else {
            return vec![];
        };
        let mut items = class.default_acl(owner);
        if self.has_public_default() {
            items.push(AclItem {
                grantee: None,
                grantor: owner,
                privileges: Privileges::USAGE,
                options: Privileges::NONE,
            });
        }
        items
    }
}

/// The roles that are there without being made.
pub(crate) fn built_in() -> &'static [Arc<Object>] {
    static ROLES: LazyLock<Vec<Arc<Object>>> = LazyLock::new(|| {
        let first = RoleDef {
            superuser: true,
            create_role: true,
            create_db: true,
            login: true,
            ..RoleDef::default()
        };
        let others = [
            (MONITOR, "pg_monitor"),
            (SIGNAL_BACKEND, "pg_signal_backend"),
            (CHECKPOINT, "pg_checkpoint"),
            (READ_SERVER_FILES, "pg_read_server_files"),
            (WRITE_SERVER_FILES, "pg_write_server_files"),
            (EXECUTE_SERVER_PROGRAM, "pg_execute_server_program"),
            (READ_ALL_DATA, "pg_read_all_data"),
            (WRITE_ALL_DATA, "pg_write_all_data"),
        ];
        let others = others.map(|(id, name)| (id, name, RoleDef::default()));
        std::iter::once((BOOTSTRAP, DEFAULT_USER, first))
            .chain(others)
            .map(|(id, name, role)| Arc::new(role.into_object(id, name, format!("CREATE ROLE {name}"), 0)))
            .collect()
    });
    &ROLES
}
