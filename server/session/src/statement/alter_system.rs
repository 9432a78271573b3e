//! ALTER SYSTEM: settings of the whole server.

use std::sync::Arc;

use millrace_catalog::rights::{Class, Privileges};
use millrace_catalog::{Definition, Object};
use millrace_database::tuning;
use millrace_parser::ast::{AlterSystemSet, SetValue};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::{clock, done};

/// Changes a setting of the server for good, at once; RESET leaves it to the configuration again.
pub async fn execute(session: &Arc<Session>, alter: &AlterSystemSet) -> SqlResult<Outcome> {
    let name = alter.name.to_ascii_lowercase();
    let text = match &alter.value {
        SetValue::Values(values) => Some(values.join(",")),
        SetValue::Default => None,
    };
    if name == clock::CLOCK {
        clock::alter(session, text.as_deref()).await?;
    } else if tuning::NAMES.contains(&name.as_str()) {
        if name == "access_control"
            && text
                .as_deref()
                .is_some_and(|text| text.eq_ignore_ascii_case("on"))
        {
            before_access_control(session)?;
        }
        session.database().alter_tuning(&name, text.as_deref())?;
    } else {
        let names = tuning::NAMES.join(", ");
        return Err(
            SqlError::unsupported(format!("ALTER SYSTEM does not change \"{name}\""))
                .with_hint(format!("It can change {names}.")),
        );
    }
    done("ALTER SYSTEM")
}

/// Before privileges are enforced: somebody must be able to come back, and it is said who loses what.
fn before_access_control(session: &Session) -> SqlResult<()> {
    let catalog = session.catalog();
    let now = session.database().runtime().now();
    let can_come_back = catalog
        .roles()
        .filter_map(|role| role.role())
        .any(|role| role.superuser && role.login && role.verifier.is_some() && role.is_valid_at(now));
    if !can_come_back && !session.database().options().has_password {
        return Err(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            "access_control needs a superuser with a password",
        )
        .with_detail("Roles without one cannot log in any more.")
        .with_hint("ALTER ROLE millrace PASSWORD '..', or set a password in the configuration."));
    }
    for role in catalog.roles() {
        let Some(def) = role.role().filter(|def| def.login && !def.superuser) else {
            continue;
        };
        if def.verifier.is_none() && def.tokens.is_empty() {
            let message = format!(
                "role \"{}\" has no password and cannot log in any more",
                role.name
            );
            session.notice(Severity::Warning, message);
        }
        for (wanted, what) in [(Privileges::SELECT, "read"), (WRITING, "write")] {
            let lost = catalog.objects().filter(|object| {
                let is_known = match what {
                    "read" => Class::of(object.kind) == Some(Class::Table),
                    _ => matches!(object.kind, ObjectKind::Table | ObjectKind::Stream),
                };
                is_known && !catalog.privileges(role.id, object).has_any(wanted)
            });
            if let Some(names) = named(lost) {
                let message = format!("role \"{}\" cannot {what} {names} any more", role.name);
                session.notice(Severity::Warning, message);
            }
        }
    }
    // Inside of a view its owner reads, whoever asks.
    let views = catalog.objects();
    for view in views.filter(|object| matches!(object.definition, Definition::View(_))) {
        let owner = view.rights.owner();
        let lost = view
            .depends
            .iter()
            .filter_map(|id| catalog.object(*id))
            .filter(|object| {
                let is_read = Class::of(object.kind) == Some(Class::Table);
                is_read && !catalog.privileges(owner, object).has(Privileges::SELECT)
            });
        if let Some(names) = named(lost) {
            let (view, owner) = (view.described(), catalog.role_name(owner));
            let message =
                format!("{view} cannot be read any more: its owner \"{owner}\" cannot read {names}");
            session.notice(Severity::Warning, message);
        }
    }
    Ok(())
}

/// Privileges of which one at least lets somebody write.
const WRITING: Privileges = Privileges::INSERT.or(Privileges::UPDATE).or(Privileges::DELETE);

/// The names of objects, not too many of them; `None`: there are none.
fn named<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> Option<String> {
    let names: Vec<String> = objects.map(|object| object.display_name()).collect();
    let more = match names.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<&str> = names.iter().take(SHOWN_MAX).map(String::as_str).collect();
    (!shown.is_empty()).then(|| shown.join(", ") + &more)
}

/// Names of relations in one warning.
const SHOWN_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use crate::tests::Fixture;
    use millrace_postgres::error::SqlState;

    #[tokio::test]
    async fn only_settings_of_the_server_are_altered() {
        let fixture = Fixture::new().await;
        let error = fixture.error("ALTER SYSTEM SET work_mem TO '1MB'").await;
        assert_eq!(error.code, SqlState::FeatureNotSupported);
        let error = fixture.error("ALTER SYSTEM SET group_size = 0").await;
        assert_eq!(error.code, SqlState::InvalidParameterValue);
        assert!(error.hint.unwrap().contains("from 1 to 10000"));
        let error = fixture.error("SET group_size = 5").await;
        assert_eq!(error.code, SqlState::CantChangeRuntimeParam);
        assert!(error.hint.unwrap().contains("ALTER SYSTEM SET group_size"));
    }
}
