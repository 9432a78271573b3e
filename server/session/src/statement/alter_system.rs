//! ALTER SYSTEM: settings of the whole server.

use std::sync::Arc;

use millrace_database::tuning;
use millrace_parser::ast::{AlterSystemSet, SetValue};
use millrace_postgres::error::{SqlError, SqlResult};

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
