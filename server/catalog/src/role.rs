//! Roles: who may log in, as whom they act, and what they are members of.
//!
//! A role is an object of the catalog like any other, under an identity of its own, so that its name may change. Some are there without
//! being made: the user of the start, and those that PostgreSQL has for what is no object (`pg_read_server_files` and its like). One
//! of them is stored as soon as something of it is changed.

use std::collections::BTreeMap;

use millrace_auth::Verifier;
use millrace_auth::token::TokenHash;
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::rights::DefaultAcl;

pub use crate::names::BOOTSTRAP;
/// May read files and other systems by way of the server.
pub const READ_SERVER_FILES: ObjectId = ObjectId(4_569);
/// May write files and to other systems by way of the server.
pub const WRITE_SERVER_FILES: ObjectId = ObjectId(4_570);
/// May have the server run programs: make functions and reducers in JavaScript.
pub const EXECUTE_SERVER_PROGRAM: ObjectId = ObjectId(4_571);
/// May cancel and end what others run.
pub const SIGNAL_BACKEND: ObjectId = ObjectId(4_200);
/// May ask for a checkpoint.
pub const CHECKPOINT: ObjectId = ObjectId(4_544);
/// May see what others run, and the server's numbers.
pub const MONITOR: ObjectId = ObjectId(3_373);
/// May read everything.
pub const READ_ALL_DATA: ObjectId = ObjectId(6_181);
/// May write everything.
pub const WRITE_ALL_DATA: ObjectId = ObjectId(6_182);

/// What there is to know of a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleDef {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superuser: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_role: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_db: bool,
    /// Whether it has the privileges of the roles that it is a member of without SET ROLE.
    pub inherit: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login: bool,
    /// How its password is checked; none: it has no password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Verifier>,
    /// Until when the password counts, in microseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_us: Option<i64>,
    /// Sessions that it may have at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u32>,
    /// What it is a member of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_of: Vec<Membership>,
    /// Settings with which its sessions begin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Those of sessions in one database; with the first role also what is said of every role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings_elsewhere: Vec<RoleSettings>,
    /// What its sessions may take at most.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenDef>,
    /// What others may do with the objects that it makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<DefaultAcl>,
}

impl Default for RoleDef {
    fn default() -> Self {
        RoleDef {
            superuser: false,
            create_role: false,
            create_db: false,
            inherit: true,
            login: false,
            verifier: None,
            valid_until_us: None,
            connections_max: None,
            member_of: vec![],
            settings: BTreeMap::new(),
            settings_elsewhere: vec![],
            limits: Limits::default(),
            tokens: vec![],
            defaults: vec![],
        }
    }
}

/// Settings with which some sessions begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSettings {
    /// Those of every role.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_all: bool,
    /// In this database; none: in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<ObjectId>,
    pub settings: BTreeMap<String, String>,
}

/// That a role is a member of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The other.
    pub role: ObjectId,
    /// Whether it may let others become members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// Who made it so.
    pub grantor: ObjectId,
}

/// A token by which a program acts as the role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenDef {
    /// By which it is dropped.
    pub name: String,
    pub hash: TokenHash,
    /// In microseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_us: Option<i64>,
    /// In milliseconds since 1970-01-01 UTC.
    pub created_at_ms: i64,
}

impl RoleDef {
    /// The settings for these sessions, if any are said. `of_all`: of every role, which the first one has.
    pub fn settings_for(
        &self,
        of_all: bool,
        database: Option<ObjectId>,
    ) -> Option<&BTreeMap<String, String>> {
        if !of_all && database.is_none() {
            return Some(&self.settings);
        }
        let is_it = |known: &&RoleSettings| known.of_all == of_all && known.database == database;
        Some(&self.settings_elsewhere.iter().find(is_it)?.settings)
    }

    /// Changes them.
    pub fn change_settings(
        &mut self,
        of_all: bool,
        database: Option<ObjectId>,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) {
        if !of_all && database.is_none() {
            return change(&mut self.settings);
        }
        let mut settings = self.settings_for(of_all, database).cloned().unwrap_or_default();
        change(&mut settings);
        self.settings_elsewhere
            .retain(|known| (known.of_all, known.database) != (of_all, database));
        if !settings.is_empty() {
            self.settings_elsewhere.push(RoleSettings {
                of_all,
                database,
                settings,
            });
        }
    }

    /// Whether its password counts at this time.
    pub fn is_valid_at(&self, now_us: i64) -> bool {
        self.valid_until_us.is_none_or(|until| now_us < until)
    }
}
