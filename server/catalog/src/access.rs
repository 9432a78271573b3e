//! Whether a role may do something: the one place where that is decided.
//!
//! Who asks has a [`Scope`], which knows who acts and whether privileges are enforced at all (`access_control`). A superuser may do
//! everything; else what counts is what the role itself has, what everybody has, and what the roles have that it is a member of.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names::{DEFAULT_USER, USER_ALIASES};
use crate::object::{Definition, Object, kind_name};
use crate::rights::{Class, Privileges, Rights};
use crate::role::{self, RoleDef};
use crate::scope::Scope;
use crate::snapshot::CatalogSnapshot;

/// `42501`.
pub fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::InsufficientPrivilege, message)
}

/// The error of a name that is no role's.
pub fn no_such_role(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedObject,
        format!("role \"{name}\" does not exist"),
    )
}

impl CatalogSnapshot {
    /// The role with which somebody of this name logs in: names of other systems' first users are names of ours, where nobody has made a
    /// role of that name.
    pub fn login_role(&self, name: &str) -> Option<&Arc<Object>> {
        let is_alias = || USER_ALIASES.contains(&name);
        self.role(name)
            .or_else(|| is_alias().then(|| self.role(DEFAULT_USER)).flatten())
    }

    /// What there is to know of a role; `None`: there is none of that identity.
    pub fn role_def(&self, id: ObjectId) -> Option<&RoleDef> {
        self.role_by_id(id)?.role()
    }

    /// The settings with which a session of a role in a database begins; what is said later counts.
    pub fn settings_of(&self, role: ObjectId, database: ObjectId) -> Vec<(String, String)> {
        let (first, own) = (self.role_def(role::BOOTSTRAP), self.role_def(role));
        let places = [
            (first, true, None),
            (first, true, Some(database)),
            (own, false, None),
            (own, false, Some(database)),
        ];
        let said = places
            .into_iter()
            .filter_map(|(role, of_all, database)| role?.settings_for(of_all, database));
        said.flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The name of a role. One that is gone is a number, as in PostgreSQL.
    pub fn role_name(&self, id: ObjectId) -> String {
        let known = self.role_by_id(id).map(|role| role.name.clone());
        known.unwrap_or_else(|| format!("unknown (OID={})", id.0))
    }

    pub fn is_superuser(&self, role: ObjectId) -> bool {
        self.role_def(role).is_some_and(|role| role.superuser)
    }

    /// The roles whose privileges a role has: itself, and what it is a member of, as long as they are inherited.
    pub fn privileged_as(&self, role: ObjectId) -> BTreeSet<ObjectId> {
        self.reached(role, |role| role.inherit)
    }

    /// The roles that a role is a member of, however far away, and itself.
    pub fn member_of(&self, role: ObjectId) -> BTreeSet<ObjectId> {
        self.reached(role, |_| true)
    }

    fn reached(&self, role: ObjectId, goes_on: impl Fn(&RoleDef) -> bool) -> BTreeSet<ObjectId> {
        let (mut found, mut next) = (BTreeSet::from([role]), vec![role]);
        while let Some(id) = next.pop() {
            let Some(role) = self.role_def(id).filter(|role| goes_on(role)) else {
                continue;
            };
            let others = role.member_of.iter().map(|membership| membership.role);
            next.extend(others.filter(|id| found.insert(*id)));
        }
        found
    }

    /// Whether a role has the privileges of another.
    pub fn has_role(&self, role: ObjectId, other: ObjectId) -> bool {
        self.is_superuser(role) || self.privileged_as(role).contains(&other)
    }

    /// Whether a role may let others become members of another.
    pub fn is_admin_of(&self, role: ObjectId, other: ObjectId) -> bool {
        let is_admin = |id: &ObjectId| {
            let mut memberships = self.role_def(*id).into_iter().flat_map(|role| &role.member_of);
            memberships.any(|membership| membership.role == other && membership.admin)
        };
        self.is_superuser(role) || self.privileged_as(role).iter().any(is_admin)
    }

    /// Whether a role may do with an object what only its owner may.
    pub fn owns(&self, role: ObjectId, object: &Object) -> bool {
        self.has_role(role, object.rights.owner())
    }

    /// What a role may do with an object.
    pub fn privileges(&self, role: ObjectId, object: &Object) -> Privileges {
        self.counted(role, object, |privileges, _| privileges)
    }

    /// What a role may let others do with an object.
    pub fn grantable(&self, role: ObjectId, object: &Object) -> Privileges {
        let all = Class::of(object.kind).map_or(Privileges::NONE, Class::all);
        match self.owns(role, object) {
            true => all,
            false => self.counted(role, object, |_, options| options),
        }
    }

    fn counted(
        &self,
        role: ObjectId,
        object: &Object,
        which: impl Fn(Privileges, Privileges) -> Privileges,
    ) -> Privileges {
        let Some(class) = Class::of(object.kind) else {
            return Privileges::NONE;
        };
        if self.is_superuser(role) {
            return class.all();
        }
        let roles = self.privileged_as(role);
        let mut found = Privileges::NONE;
        for item in object.acl() {
            if item.grantee.is_none_or(|grantee| roles.contains(&grantee)) {
                found = found | which(item.privileges, item.options);
            }
        }
        if matches!(class, Class::Table | Class::Sequence | Class::Schema) {
            let of_data = match class {
                Class::Schema => Privileges::USAGE,
                _ => Privileges::SELECT,
            };
            if roles.contains(&role::READ_ALL_DATA) {
                found = found | which(of_data, Privileges::NONE);
            }
            if roles.contains(&role::WRITE_ALL_DATA) {
                let writing = match class {
                    Class::Table => Privileges::INSERT | Privileges::UPDATE | Privileges::DELETE,
                    Class::Schema => Privileges::USAGE,
                    _ => Privileges::NONE,
                };
                found = found | which(writing, Privileges::NONE);
            }
        }
        found
    }

    /// What an object that a role makes has from the start: itself as the owner, and what ALTER DEFAULT PRIVILEGES said.
    pub fn rights_of_new(&self, owner: ObjectId, kind: ObjectKind, database: &str, schema: &str) -> Rights {
        let mut rights = Rights::of(owner);
        let (Some(class), Some(role)) = (Class::of(kind), self.role_def(owner)) else {
            return rights;
        };
        let schema = self.schema(database, schema).map(|schema| schema.id);
        // What is said of all schemas takes the place of what PostgreSQL has by itself; what is said of one comes in addition.
        let mut said = role.defaults.iter().filter(|defaults| defaults.class == class);
        let of_all = said.clone().find(|defaults| defaults.schema.is_none());
        let of_schema = said.find(|defaults| defaults.schema.is_some() && defaults.schema == schema);
        if of_all.is_some() || of_schema.is_some() {
            let mut items =
                of_all.map_or_else(|| class.default_acl(owner), |defaults| defaults.items.clone());
            for item in of_schema.into_iter().flat_map(|defaults| &defaults.items) {
                crate::rights::grant(&mut items, item.clone());
            }
            rights.acl = Some(items);
        }
        rights
    }

    /// What cannot be without a role, as PostgreSQL names it.
    pub fn needing_role(&self, role: ObjectId) -> Vec<String> {
        let mut lines = vec![];
        for object in self.objects() {
            let what = match object.kind {
                ObjectKind::User => continue,
                _ => object.described(),
            };
            if object.rights.owner() == role {
                lines.push(format!("owner of {what}"));
            } else if object
                .rights
                .acl
                .iter()
                .flatten()
                .any(|item| item.grantee == Some(role) || item.grantor == role)
            {
                lines.push(format!("privileges for {what}"));
            }
        }
        for other in self.roles() {
            let defaults = other.role().into_iter().flat_map(|def| &def.defaults);
            let mut items = defaults.flat_map(|defaults| &defaults.items);
            if other.id != role && items.any(|item| item.grantee == Some(role)) {
                lines.push(format!("default privileges of role {}", other.name));
            }
        }
        lines
    }
}

impl Scope {
    /// What a role that acts may do with an object. One that is gone may not even do what everybody may.
    fn held(&self, role: ObjectId, object: &Object) -> Privileges {
        match self.catalog.role_by_id(role) {
            Some(_) => self.catalog.privileges(role, object),
            None => Privileges::NONE,
        }
    }

    /// Whether whoever acts has all of these privileges.
    pub fn may(&self, object: &Object, wanted: Privileges) -> bool {
        !self.acting.is_checked || self.held(self.acting.role, object).has(wanted)
    }

    /// Refuses what whoever acts has no privilege for. `wanted`: one of them is enough.
    ///
    /// # Errors
    /// 42501.
    pub fn check_any(&self, object: &Object, wanted: Privileges) -> SqlResult<()> {
        match !self.acting.is_checked || self.held(self.acting.role, object).has_any(wanted) {
            true => Ok(()),
            false => Err(no_privilege(object)),
        }
    }

    /// Refuses what whoever acts has not all of the privileges for.
    ///
    /// # Errors
    /// 42501.
    pub fn check(&self, object: &Object, wanted: Privileges) -> SqlResult<()> {
        match self.may(object, wanted) {
            true => Ok(()),
            false => Err(no_privilege(object)),
        }
    }

    /// Refuses to read what whoever acts may not read; inside of a view, what its owner may not.
    ///
    /// # Errors
    /// 42501.
    pub fn check_read(&self, object: &Object) -> SqlResult<()> {
        match self.target == Some(object.id) {
            true => Ok(()),
            false => self.check_through(object, Privileges::SELECT, Privileges::EXECUTE),
        }
    }

    /// Refuses to lock the rows of what whoever acts may not update; inside of a view, what its owner may not.
    ///
    /// # Errors
    /// 42501.
    pub fn check_lock(&self, object: &Object) -> SqlResult<()> {
        self.check_through(object, Privileges::UPDATE, Privileges::NONE)
    }

    /// Refuses what somebody has no privilege for: whoever acts for a relation or function itself, the owner of a view for what is inside.
    fn check_through(
        &self,
        object: &Object,
        of_relations: Privileges,
        of_functions: Privileges,
    ) -> SqlResult<()> {
        if !self.acting.is_checked {
            return Ok(());
        }
        // What a statement names, and what is named inside, each with whose rights count for it.
        let mut next = vec![(object.id, self.acting.role)];
        let mut seen = BTreeSet::new();
        while let Some((id, role)) = next.pop() {
            let Some(object) = self.catalog.object(id).filter(|_| seen.insert((id, role))) else {
                continue;
            };
            let wanted = match Class::of(object.kind) {
                Some(Class::Table) => of_relations,
                Some(Class::Function) => of_functions,
                _ => continue,
            };
            if !self.held(role, object).has(wanted) {
                return Err(no_privilege(object));
            }
            if matches!(object.definition, Definition::View(_)) {
                let owner = object.rights.owner();
                next.extend(object.depends.iter().map(|id| (*id, owner)));
            }
        }
        Ok(())
    }

    /// Refuses what only the owner may.
    ///
    /// # Errors
    /// 42501.
    pub fn check_owner(&self, object: &Object) -> SqlResult<()> {
        match !self.acting.is_checked || self.catalog.owns(self.acting.role, object) {
            true => Ok(()),
            false => Err(denied(format!(
                "must be owner of {} {}",
                kind_name(object.kind),
                object.name
            ))),
        }
    }

    /// Whether whoever acts has the privileges of a role.
    pub fn has_role(&self, role: ObjectId) -> bool {
        !self.acting.is_checked || self.catalog.has_role(self.acting.role, role)
    }

    /// Whether whoever acts is a superuser.
    pub fn is_superuser(&self) -> bool {
        !self.acting.is_checked || self.catalog.is_superuser(self.acting.role)
    }

    /// Refuses a name in a schema into which whoever acts may not look.
    ///
    /// # Errors
    /// 42501.
    pub fn check_schema(&self, schema: &str) -> SqlResult<()> {
        match self.catalog.schema(&self.database, schema) {
            Some(schema) => self.check(schema, Privileges::USAGE),
            None => Ok(()),
        }
    }

    /// Refuses to make something in a schema in which whoever acts may not.
    ///
    /// # Errors
    /// 42501.
    pub fn check_create(&self, schema: &str) -> SqlResult<()> {
        match self.catalog.schema(&self.database, schema) {
            Some(schema) => self.check(schema, Privileges::CREATE),
            None => Ok(()),
        }
    }

    /// What an object has from the start that whoever acts makes.
    pub fn rights_of_new(&self, kind: ObjectKind, schema: &str) -> Rights {
        self.catalog
            .rights_of_new(self.acting.role, kind, &self.database, schema)
    }
}

fn no_privilege(object: &Object) -> SqlError {
    denied(format!(
        "permission denied for {} {}",
        kind_name(object.kind),
        object.name
    ))
}
