//! The calls that wait for a response, and their names in the line of progress.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Clients;
use crate::progress::{CommandProgress, NOTICEABLE};

pub(crate) struct OpenCalls {
    progress: CommandProgress,
    /// The permissions that the calls need, the oldest first.
    open: Mutex<Vec<&'static str>>,
}

impl OpenCalls {
    pub(super) fn none() -> Self {
        let progress = CommandProgress::shown_after(NOTICEABLE, "waiting for AWS's configuration");
        Self { progress, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the oldest call: it has waited for longest.
    fn tell(&self, open: &[&'static str]) {
        let step = match open {
            [] => return,
            [only] => format!("waiting for {only}"),
            [first, others @ ..] => format!("waiting for {first} and {} more", others.len()),
        };
        self.progress.step(step);
    }
}

impl Clients {
    /// Awaits a call that needs this permission.
    pub(crate) async fn called<T>(
        &self,
        permission: &'static str,
        call: impl Future<Output = T>,
    ) -> T {
        let change = |change: &dyn Fn(&mut Vec<&'static str>)| {
            let mut open = self.calls.open();
            change(&mut open);
            self.calls.tell(&open);
        };
        change(&|open| open.push(permission));
        // A join of many calls would otherwise be a very large future.
        let response = Box::pin(call).await;
        change(&|open| {
            if let Some(at) = open.iter().position(|one| *one == permission) {
                open.remove(at);
            }
        });
        response
    }

    /// Begins a wait for something else than a response.
    pub(crate) fn begin_wait(&self, step: &str, began: Instant, deadline: Instant) {
        let longest = deadline.saturating_duration_since(began).as_secs();
        self.calls.progress.step(step);
        self.calls.progress.count("s", Some(longest));
    }

    pub(crate) fn tell_wait(&self, began: Instant) {
        self.calls.progress.done(began.elapsed().as_secs());
    }
}
