//! How many connections the limit of open files leaves space for.
//!
//! The log, checkpoints, spilled state and indexes need files too; a server whose connections have taken all of them cannot write
//! any more. So connections get a part of what the operating system allows, after it was asked for all that it allows.

/// HTTP connections at most, whatever the operating system allows.
const HTTP_MAX: usize = 1_024;

/// Files that connections leave to everything else, at least.
const RESERVED_MIN: usize = 256;

/// Connections of either kind that there always are.
const CONNECTIONS_MIN: usize = 8;

/// The most connections of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionsMax {
    pub pg: usize,
    pub http: usize,
}

impl ConnectionsMax {
    /// As many as are wanted, as far as there is space.
    pub(super) fn now(pg_wanted: usize) -> ConnectionsMax {
        let Some(files) = files_max() else {
            return ConnectionsMax {
                pg: pg_wanted,
                http: HTTP_MAX,
            };
        };
        let most = Self::within(files, pg_wanted);
        if most.pg < pg_wanted {
            tracing::warn!(
                files,
                connections_max = most.pg,
                "the limit of open files (ulimit -n) allows fewer connections than connections_max"
            );
        }
        most
    }

    fn within(files: usize, pg_wanted: usize) -> ConnectionsMax {
        let room = files.saturating_sub(RESERVED_MIN.max(files / 4));
        let http = HTTP_MAX.min(room / 2).max(CONNECTIONS_MIN);
        let pg = pg_wanted.min(room.saturating_sub(http).max(CONNECTIONS_MIN));
        ConnectionsMax { pg, http }
    }
}

/// How many files may be open, after asking for as many as there may be; `None`: it is not known, or there is no limit.
fn files_max() -> Option<usize> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let now = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        now.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        let within = |files, wanted| {
            let most = ConnectionsMax::within(files, wanted);
            (most.pg, most.http)
        };
        assert_eq!(within(1_024, 200), (200, 384));
        assert_eq!(within(1_024, 2_000), (384, 384));
        assert_eq!(within(1 << 20, 2_000), (2_000, HTTP_MAX));
        assert_eq!(within(64, 200), (CONNECTIONS_MIN, CONNECTIONS_MIN));
    }
}
