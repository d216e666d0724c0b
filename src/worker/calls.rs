//! The calls that a worker may begin: a receive asks for as many messages as they can take. All
//! receivers pause after a failure.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};

use super::poll::Failures;
use crate::lock::lock;

/// How long a receive waits for the calls of a whole batch to end. A slow call delays the next
/// messages by no more, and messages that take about as long make whole batches.
const GATHER: Duration = Duration::from_millis(100);

pub(super) struct FreeCalls {
    free: Semaphore,
    /// Locked by the receiver that gathers calls.
    gathering: AsyncMutex<()>,
    pause: Mutex<ReceivePause>,
}

#[derive(Default)]
struct ReceivePause {
    until: Option<Instant>,
    receives: Failures,
    deletes: Failures,
}

impl FreeCalls {
    pub(super) fn new(concurrency: usize) -> Self {
        let free = Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS));
        Self { free, gathering: AsyncMutex::default(), pause: Mutex::default() }
    }

    /// Waits for the end of the pause, and then for calls: at least one, and at most `most`.
    pub(super) async fn gather(&self, most: u32) -> SemaphorePermit<'_> {
        let _alone = self.gathering.lock().await;
        loop {
            let until = lock(&self.pause).until.filter(|until| *until > Instant::now());
            let Some(until) = until else { break };
            sleep_until(until).await;
        }
        let mut free = self.take(1).await;
        if let Ok(others) = timeout(GATHER, self.take(most - 1)).await {
            free.merge(others);
        } else {
            let others = u32::try_from(self.free.available_permits()).unwrap_or(u32::MAX);
            if let Ok(others) = self.free.try_acquire_many(others.min(most - 1)) {
                free.merge(others);
            }
        }
        free
    }

    async fn take(&self, calls: u32) -> SemaphorePermit<'_> {
        self.free.acquire_many(calls).await.expect("the semaphore is never closed")
    }

    pub(super) fn received(&self) {
        lock(&self.pause).receives = Failures::default();
    }

    /// Pauses all receivers after a receive that failed. Others that fail meanwhile lengthen
    /// nothing: they began before.
    pub(super) fn pause_receives(&self, add: impl FnOnce(&mut Failures) -> Duration) {
        lock(&self.pause).begin(|pause| add(&mut pause.receives));
    }

    /// As [`pause_receives`](Self::pause_receives), after the deletes of a batch.
    pub(super) fn pause_deletes(&self, add: impl FnOnce(&mut Failures) -> Duration) {
        lock(&self.pause).begin(|pause| add(&mut pause.deletes));
    }
}

impl ReceivePause {
    fn begin(&mut self, add: impl FnOnce(&mut Self) -> Duration) {
        let now = Instant::now();
        if self.until.is_none_or(|until| until <= now) {
            self.until = Some(now + add(self));
        }
    }
}
