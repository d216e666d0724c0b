//! The memory and descriptors of a process, and whether they grow.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The time to watch a process: 20 s, or the value of a variable.
pub fn duration() -> Duration {
    let asked = std::env::var("REQUEUE_TEST_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(20, |secs| secs.parse().expect("a number of seconds")))
}

#[derive(Debug, PartialEq)]
struct Usage {
    memory_kib: u64,
    descriptors: usize,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let memory =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let memory = memory.trim().trim_end_matches(" kB").parse().expect("a number");
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
        Self { memory_kib: memory, descriptors }
    }
}

/// Watches a process until the end. In the last quarter it may use hardly more than in the second.
/// Connections come and go, so what leaks is what is never less.
pub async fn stays_flat(pid: u32, end: Instant) {
    let every = end.saturating_duration_since(Instant::now()) / 80;
    let mut samples = Vec::new();
    while Instant::now() < end {
        samples.push(Usage::of(pid));
        sleep(every).await;
    }
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[3 * quarter..]);
    let memory = |usages: &[Usage]| usages.iter().map(|usage| usage.memory_kib).max();
    let (before, after) = (memory(early).expect("some"), memory(late).expect("some"));
    eprintln!("KiB: {before} early, {after} late");
    assert!(after <= before + before / 10 + 2_048, "memory grows: {samples:?}");
    let before = early.iter().map(|usage| usage.descriptors).max().expect("some");
    let after = late.iter().map(|usage| usage.descriptors).min().expect("some");
    eprintln!("descriptors: {before} early at most, {after} late at least");
    assert!(after <= before + 8, "descriptors grow: {samples:?}");
}
