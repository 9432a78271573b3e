//! What the users of a session are called now: roles are renamed while sessions go on.

use crate::session::Session;

impl Session {
    /// What the user who logged in, or whom SET SESSION AUTHORIZATION named, is called now.
    pub(crate) fn session_user(&self) -> String {
        self.catalog()
            .role_name(self.settings.lock().identity().session_user)
    }

    /// What the user is called now as whom the session acts: the one of SET ROLE, else the user of the session.
    pub(crate) fn current_user(&self) -> String {
        let current = self.settings.lock().identity().current_user();
        self.catalog().role_name(current)
    }
}
