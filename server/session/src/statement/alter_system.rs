//! ALTER SYSTEM: settings of the whole server.

use std::sync::Arc;

use millrace_catalog::rights::{Class, Privileges};
use millrace_database::tuning;
use millrace_parser::ast::{AlterSystemSet, SetValue};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

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
        let lost: Vec<String> = catalog
            .objects()
            .filter(|object| Class::of(object.kind) == Some(Class::Table))
            .filter(|object| !catalog.privileges(role.id, object).has(Privileges::SELECT))
            .map(|object| object.display_name())
            .collect();
        if !lost.is_empty() {
            let shown: Vec<&str> = lost.iter().take(SHOWN_MAX).map(String::as_str).collect();
            let more = match lost.len().saturating_sub(SHOWN_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            session.notice(
                Severity::Warning,
                format!(
                    "role \"{}\" cannot read {}{more} any more",
                    role.name,
                    shown.join(", ")
                ),
            );
        }
    }
    Ok(())
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
