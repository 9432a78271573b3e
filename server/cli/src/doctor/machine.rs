//! The machine and what the configuration asks of it.

use millrace_resource::memory::machine_bytes;
use millrace_wire::config::Config;
use millrace_wire::serve::Server;
use millrace_wire::tls::Tls;

use super::Finding;

/// Less memory than this is too little for a server.
const MEMORY_MIN: u64 = 256 << 20;

/// The certificate, if one is configured.
pub fn tls(config: &Config) -> Option<Finding> {
    match Tls::new(&config.tls) {
        Ok(None) => None,
        Ok(Some(_)) => Some(Finding::good("TLS", "certificate and key can be used")),
        Err(error) => Some(Finding::bad("TLS", error.to_string())),
    }
}

/// Whether as many files can be open as the connections take.
pub fn open_files(config: &Config) -> Finding {
    let (wanted, allowed) = (
        config.connections_max,
        Server::connections_allowed(config.connections_max),
    );
    if allowed < wanted {
        let why = format!(
            "the limit of open files leaves space for {allowed} of {wanted} connections (connections_max); raise it: ulimit -n, \
             or LimitNOFILE of the systemd unit"
        );
        Finding::doubtful("open files", why)
    } else {
        Finding::good("open files", format!("enough for {wanted} connections"))
    }
}

/// Whether there is as much memory as the server is allowed.
pub fn memory(config: &Config) -> Finding {
    let limit = config.tuning.memory_limit;
    let Some(machine) = machine_bytes() else {
        return Finding::doubtful(
            "memory",
            "the amount of memory cannot be determined: set memory_limit",
        );
    };
    let megabytes = |bytes: u64| bytes >> 20;
    if machine < MEMORY_MIN {
        let why = format!(
            "{} MB in all, which is too little for a server",
            megabytes(machine)
        );
        return Finding::bad("memory", why);
    }
    match limit {
        Some(limit) if limit > machine => Finding::bad(
            "memory",
            format!(
                "memory_limit is {} MB, and the machine or the control group has {} MB: the system would kill the server",
                megabytes(limit),
                megabytes(machine)
            ),
        ),
        Some(limit) => Finding::good(
            "memory",
            format!(
                "memory_limit {} MB of {} MB",
                megabytes(limit),
                megabytes(machine)
            ),
        ),
        None => Finding::good(
            "memory",
            format!("{} MB, of which a server takes up to 70 %", megabytes(machine)),
        ),
    }
}

/// Whether there are as many cores as the server is to use.
pub fn cores(config: &Config) -> Finding {
    let machine = std::thread::available_parallelism().map_or(1, usize::from);
    match config.cores {
        Some(cores) if cores > machine => Finding::doubtful(
            "cores",
            format!("cores is {cores}, and there are {machine}: views and queries will wait for each other"),
        ),
        cores => Finding::good("cores", format!("{} of {machine}", cores.unwrap_or(machine))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_the_machine_does_not_have_is_told() {
        let mut config = Config::default();
        config.tuning.memory_limit = Some(1 << 60);
        config.cores = Some(100_000);
        config.connections_max = 1 << 40;
        assert_eq!(memory(&config).state, State::Bad);
        assert_eq!(cores(&config).state, State::Doubtful);
        assert_eq!(open_files(&config).state, State::Doubtful);
    }
}
