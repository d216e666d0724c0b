//! Process groups: a function's process and its children, so that none of them stays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{Instant, sleep};

/// The interval of checks for the end of processes.
const LOOK: Duration = Duration::from_millis(20);

/// The groups whose first process has not ended yet. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ProcessGroups(Arc<Mutex<BTreeSet<i32>>>);

impl ProcessGroups {
    pub(super) fn add(&self, pid: Pid) {
        self.0.lock().insert(pid.as_raw_nonzero().get());
    }

    pub(super) fn terminate(&self, pid: Pid) {
        if self.0.lock().contains(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }

    /// Kills the rest of a group. Does nothing for a group that has ended, since another group may
    /// have its number by now.
    pub(super) fn kill(&self, pid: Pid) {
        if self.0.lock().remove(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    pub(crate) fn kill_all(&self) {
        for group in std::mem::take(&mut *self.0.lock()) {
            if let Some(pid) = Pid::from_raw(group) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
    }

    /// Sends SIGTERM to all groups, and after `grace` kills the remaining ones.
    pub(crate) async fn end_all(&self, grace: Duration) {
        let groups: Vec<i32> = self.0.lock().iter().copied().collect();
        groups.into_iter().filter_map(Pid::from_raw).for_each(|pid| self.terminate(pid));
        let end = Instant::now() + grace;
        while !self.0.lock().is_empty() && Instant::now() < end {
            sleep(LOOK).await;
        }
        self.kill_all();
    }
}
