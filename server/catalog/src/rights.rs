//! Who owns an object, and what others may do with it: PostgreSQL's privileges and its lists of them.

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};

use millrace_storage::{ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use crate::names::BOOTSTRAP;

/// A set of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Privileges(u16);

/// Each privilege: its bit, its letter, and its name; in the order of PostgreSQL's lists.
const NAMED: [(Privileges, char, &str); 12] = [
    (Privileges::INSERT, 'a', "INSERT"),
    (Privileges::SELECT, 'r', "SELECT"),
    (Privileges::UPDATE, 'w', "UPDATE"),
    (Privileges::DELETE, 'd', "DELETE"),
    (Privileges::TRUNCATE, 'D', "TRUNCATE"),
    (Privileges::REFERENCES, 'x', "REFERENCES"),
    (Privileges::TRIGGER, 't', "TRIGGER"),
    (Privileges::EXECUTE, 'X', "EXECUTE"),
    (Privileges::USAGE, 'U', "USAGE"),
    (Privileges::CREATE, 'C', "CREATE"),
    (Privileges::TEMPORARY, 'T', "TEMPORARY"),
    (Privileges::CONNECT, 'c', "CONNECT"),
];

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const INSERT: Privileges = Privileges(1);
    pub const SELECT: Privileges = Privileges(1 << 1);
    pub const UPDATE: Privileges = Privileges(1 << 2);
    pub const DELETE: Privileges = Privileges(1 << 3);
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    pub const EXECUTE: Privileges = Privileges(1 << 7);
    pub const USAGE: Privileges = Privileges(1 << 8);
    pub const CREATE: Privileges = Privileges(1 << 9);
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    pub const CONNECT: Privileges = Privileges(1 << 11);

    /// Those of either set.
    pub const fn or(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    /// The privilege of a name, as GRANT has it.
    pub fn named(name: &str) -> Option<Privileges> {
        let name = if name.eq_ignore_ascii_case("TEMP") {
            "TEMPORARY"
        } else {
            name
        };
        let mut all = NAMED.iter();
        all.find(|(_, _, known)| known.eq_ignore_ascii_case(name))
            .map(|(privilege, ..)| *privilege)
    }

    /// The names of those in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let own = NAMED
            .iter()
            .filter(move |(privilege, ..)| self.has_any(*privilege));
        own.map(|(.., name)| *name)
    }

    /// The name of the privilege that a letter of PostgreSQL's lists means.
    pub fn name_of_letter(letter: char) -> Option<&'static str> {
        let mut all = NAMED.iter();
        all.find(|(_, known, _)| *known == letter).map(|(.., name)| *name)
    }

    /// The letters of those in the set, in the order of PostgreSQL's lists.
    pub fn letters(self) -> String {
        let own = NAMED.iter().filter(|(privilege, ..)| self.has_any(*privilege));
        own.map(|(_, letter, _)| *letter).collect()
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of the others are in it.
    pub fn has(self, others: Privileges) -> bool {
        self & others == others
    }

    /// Whether one of the others is in it.
    pub fn has_any(self, others: Privileges) -> bool {
        !(self & others).is_empty()
    }
}

impl BitOr for Privileges {
    type Output = Privileges;

    fn bitor(self, other: Privileges) -> Privileges {
        self.or(other)
    }
}

impl BitAnd for Privileges {
    type Output = Privileges;

    fn bitand(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }
}

impl Not for Privileges {
    type Output = Privileges;

    fn not(self) -> Privileges {
        Privileges(!self.0)
    }
}

/// Objects that have the same privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Table,
    Sequence,
    Function,
    Schema,
    Database,
    Secret,
}

impl Class {
    /// The class of a kind of object; none: it has no privileges of its own.
    pub fn of(kind: ObjectKind) -> Option<Class> {
        Some(match kind {
            ObjectKind::Stream
            | ObjectKind::Table
            | ObjectKind::View
            | ObjectKind::MaterializedView
            | ObjectKind::ExternalTable
            | ObjectKind::Sink
            | ObjectKind::Subscription => Class::Table,
            ObjectKind::Sequence => Class::Sequence,
            ObjectKind::Function => Class::Function,
            ObjectKind::Schema => Class::Schema,
            ObjectKind::Database => Class::Database,
            ObjectKind::Secret => Class::Secret,
            ObjectKind::User
            | ObjectKind::Index
            | ObjectKind::Setting
            | ObjectKind::Type
            | ObjectKind::Domain => return None,
        })
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Table => "table",
            Class::Sequence => "sequence",
            Class::Function => "function",
            Class::Schema => "schema",
            Class::Database => "database",
            Class::Secret => "secret",
        }
    }

    /// How `pg_default_acl` calls it.
    pub fn letter(self) -> &'static str {
        match self {
            Class::Table => "r",
            Class::Sequence => "S",
            Class::Function => "f",
            Class::Schema => "n",
            Class::Database => "d",
            // PostgreSQL has none.
            Class::Secret => "s",
        }
    }

    /// Every privilege that there is on such an object.
    pub fn all(self) -> Privileges {
        match self {
            Class::Table => {
                Privileges::INSERT
                    | Privileges::SELECT
                    | Privileges::UPDATE
                    | Privileges::DELETE
                    | Privileges::TRUNCATE
                    | Privileges::REFERENCES
                    | Privileges::TRIGGER
            }
            Class::Sequence => Privileges::SELECT | Privileges::UPDATE | Privileges::USAGE,
            Class::Function => Privileges::EXECUTE,
            Class::Schema => Privileges::USAGE | Privileges::CREATE,
            Class::Secret => Privileges::USAGE,
            Class::Database => Privileges::CREATE | Privileges::TEMPORARY | Privileges::CONNECT,
        }
    }

    /// What everybody may do with such an object where nobody has said otherwise.
    pub fn of_public(self) -> Privileges {
        match self {
            Class::Function => Privileges::EXECUTE,
            Class::Database => Privileges::CONNECT | Privileges::TEMPORARY,
            Class::Table | Class::Sequence | Class::Schema | Class::Secret => Privileges::NONE,
        }
    }

    /// What there is where nobody has said otherwise: the owner may do all, and everybody a little.
    pub fn default_acl(self, owner: ObjectId) -> Vec<AclItem> {
        let mut items = vec![AclItem {
            grantee: Some(owner),
            grantor: owner,
            privileges: self.all(),
            options: Privileges::NONE,
        }];
        if !self.of_public().is_empty() {
            items.insert(
                0,
                AclItem {
                    grantee: None,
                    grantor: owner,
                    privileges: self.of_public(),
                    options: Privileges::NONE,
                },
            );
        }
        items
    }
}

/// What somebody may do, and who let them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclItem {
    /// Who may; none: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grantee: Option<ObjectId>,
    /// Who let them.
    pub grantor: ObjectId,
    pub privileges: Privileges,
    /// Those of them that they may let others have.
    #[serde(default, skip_serializing_if = "privileges_are_none")]
    pub options: Privileges,
}

fn privileges_are_none(privileges: &Privileges) -> bool {
    privileges.is_empty()
}

impl AclItem {
    /// As PostgreSQL writes it: `ann=ar*/millrace`.
    pub fn text(&self, name: impl Fn(ObjectId) -> String) -> String {
        let letters: String = NAMED
            .iter()
            .filter(|(privilege, ..)| self.privileges.has(*privilege))
            .flat_map(|(privilege, letter, _)| {
                let star = self.options.has(*privilege).then_some('*');
                std::iter::once(*letter).chain(star)
            })
            .collect();
        let grantee = self.grantee.map(&name).unwrap_or_default();
        format!("{grantee}={letters}/{}", name(self.grantor))
    }
}

/// Adds privileges to a list.
pub fn grant(items: &mut Vec<AclItem>, given: AclItem) {
    let known = items
        .iter_mut()
        .find(|item| item.grantee == given.grantee && item.grantor == given.grantor);
    match known {
        Some(item) => {
            item.privileges = item.privileges | given.privileges;
            item.options = item.options | given.options;
        }
        None => items.push(given),
    }
}

/// Takes privileges (`only_options`: the right to grant them) that one gave to another out of a list.
pub fn revoke(
    items: &mut Vec<AclItem>,
    grantee: Option<ObjectId>,
    grantor: ObjectId,
    privileges: Privileges,
    only_options: bool,
) {
    for item in items.iter_mut() {
        if item.grantee == grantee && item.grantor == grantor {
            item.options = item.options & !privileges;
            if !only_options {
                item.privileges = item.privileges & !privileges;
            }
        }
    }
    items.retain(|item| !item.privileges.is_empty());
}

/// What those who are named may do with objects that a role makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultAcl {
    /// In this schema; none: in any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<ObjectId>,
    pub class: Class,
    pub items: Vec<AclItem>,
}

/// Who owns an object, and what others may do with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Its owner; none: the role of the start.
    pub owner: Option<ObjectId>,
    /// What was granted; none: nobody has said anything.
    pub acl: Option<Vec<AclItem>>,
}

impl Rights {
    /// Those of an object that this role owns.
    pub fn of(owner: ObjectId) -> Self {
        Rights {
            owner: (owner != BOOTSTRAP).then_some(owner),
            acl: None,
        }
    }

    /// The owner.
    pub fn owner(&self) -> ObjectId {
        self.owner.unwrap_or(BOOTSTRAP)
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: ObjectId = ObjectId(20_000);

    #[test]
    fn items_are_written_as_postgresql_writes_them() {
        let name = |id: ObjectId| if id == ANN { "ann" } else { "millrace" }.to_owned();
        let mut items = Class::Table.default_acl(BOOTSTRAP);
        let both = Privileges::SELECT | Privileges::INSERT;
        grant(
            &mut items,
            AclItem {
                grantee: Some(ANN),
                grantor: BOOTSTRAP,
                privileges: both,
                options: both,
            },
        );
        grant(
            &mut items,
            AclItem {
                grantee: None,
                grantor: BOOTSTRAP,
                privileges: Privileges::SELECT,
                options: Privileges::NONE,
            },
        );
        let texts = |items: &[AclItem]| -> Vec<String> { items.iter().map(|item| item.text(name)).collect() };
        assert_eq!(
            texts(&items),
            ["millrace=arwdDxt/millrace", "ann=a*r*/millrace", "=r/millrace"]
        );
        revoke(&mut items, Some(ANN), BOOTSTRAP, Privileges::SELECT, true);
        revoke(&mut items, None, BOOTSTRAP, Privileges::SELECT, false);
        assert_eq!(texts(&items), ["millrace=arwdDxt/millrace", "ann=a*r/millrace"]);
    }

    #[test]
    fn privileges_are_found_by_their_names() {
        assert_eq!(Privileges::named("temp"), Some(Privileges::TEMPORARY));
        assert_eq!(Privileges::named("foo"), None);
        assert_eq!(Class::Schema.all().to_string(), "USAGE, CREATE");
        assert!(Class::Table.all().has(Privileges::SELECT) && !Class::Table.all().has(Privileges::USAGE));
    }
}
