//! The signals that ask a process to end.

use std::fs;

use tokio::signal::unix::SignalKind;

/// SIGINT, SIGTERM, and SIGHUP of a terminal that is closed; not where `nohup` lets the process ignore that.
pub(crate) fn ending() -> Vec<SignalKind> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
    if !ignores(SignalKind::hangup()) {
        kinds.push(SignalKind::hangup());
    }
    kinds
}

/// Whether the process was started to ignore it. Only Linux says so in a file; elsewhere nothing counts as ignored.
fn ignores(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) != 0)
}
