//! Process groups: a function's process with all that it starts, so that nothing of it stays.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{Instant, sleep};

/// How often to look whether the processes have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The groups whose first process has not ended yet. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ProcessGroups(Arc<Mutex<BTreeSet<i32>>>);

impl ProcessGroups {
    /// Takes in a process that was started as the first one of its group.
    pub(super) fn add(&self, pid: Pid) {
        self.groups().insert(pid.as_raw_nonzero().get());
    }

    /// Asks a group to end.
    pub(super) fn terminate(&self, pid: Pid) {
        if self.groups().contains(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }

    /// Ends what is left of a group. Does nothing for a group that was ended before, since its
    /// number may be another's by now.
    pub(super) fn kill(&self, pid: Pid) {
        if self.groups().remove(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Ends all groups at once.
    pub(super) fn kill_all(&self) {
        for group in std::mem::take(&mut *self.groups()) {
            if let Some(pid) = Pid::from_raw(group) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
    }

    /// Asks all groups to end, and ends those that have not done so within `grace`.
    pub(super) async fn end_all(&self, grace: Duration) {
        let groups: Vec<i32> = self.groups().iter().copied().collect();
        groups.into_iter().filter_map(Pid::from_raw).for_each(|pid| self.terminate(pid));
        let end = Instant::now() + grace;
        while !self.groups().is_empty() && Instant::now() < end {
            sleep(LOOK).await;
        }
        self.kill_all();
    }

    fn groups(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
