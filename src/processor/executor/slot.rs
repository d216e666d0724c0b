//! A slot: one of the tasks that make attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::super::turn::{Attempts, Turn};
use super::{DECIDED_WITHIN, End, Running, Shared};
use crate::delivery::Delivery;
use crate::failure::Failure;
use crate::gate::{Permit, Reply};
use crate::lock::lock;
use crate::plan::Decision;

/// One of the tasks that make attempts, with the methods for the attempt in it.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    number: usize,
    /// Whether the attempt in this slot has waited, so that its times are later.
    has_waited: AtomicBool,
}

impl Slot {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mut state = lock(&shared.state);
        state.slots.push(None);
        let number = state.slots.len() - 1;
        drop(state);
        Self { shared, number, has_waited: AtomicBool::new(false) }
    }

    fn running<T>(&self, look: impl FnOnce(&mut Running) -> T) -> Option<T> {
        lock(&self.shared.state).slots[self.number].as_mut().map(look)
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.shared.attempts
    }

    pub(crate) fn take(&self) -> Option<(Arc<Delivery>, Turn)> {
        if lock(&self.shared.state).queued.as_slice().is_empty() {
            return None;
        }
        // After the lock is free, since the clock and the random numbers are the user's.
        let turn = self.attempts().turn();
        let mut state = lock(&self.shared.state);
        let delivery = state.queued.next()?;
        let due = if turn.began < self.attempts().deadlines.cutoff {
            turn.limit
        } else {
            turn.began + DECIDED_WITHIN
        };
        let running = Running {
            delivery: Arc::clone(&delivery),
            turn,
            permit: None,
            follows: false,
            end: None,
            due,
            waker: None,
        };
        state.slots[self.number] = Some(running);
        self.has_waited.store(false, Ordering::Relaxed);
        Some((delivery, turn))
    }

    /// Whether there is another delivery to take; not if this one has been abandoned meanwhile. The
    /// task ends with its last decision, so it does not outlive the batch.
    pub(crate) fn finish(&self, decision: Decision) -> bool {
        let mut state = lock(&self.shared.state);
        let Some(ended) = state.slots[self.number].take() else { return false };
        let goes_on = self.shared.post(state, decision);
        drop(ended);
        goes_on
    }

    /// Notes the evidence of the call about its service at once: the next attempt depends on it,
    /// and the table may take long. Returns the least wait of a message that did not cause its
    /// failure.
    pub(crate) fn note(
        &self,
        reply: Reply,
        failure: Option<&Failure>,
        at: SystemTime,
    ) -> Option<Duration> {
        let permit = self.running(|running| running.permit.take()).flatten()?;
        self.attempts().give_back(permit, reply, at, failure)
    }

    /// Notes that the handler now calls the permit's service; `false` if the handler must end
    /// first.
    pub(crate) fn hold(&self, permit: Permit) -> bool {
        match &mut lock(&self.shared.state).slots[self.number] {
            Some(running @ Running { end: None, .. }) => running.permit = Some(permit),
            _ => return false,
        }
        true
    }

    /// Notes that another slot calls the service for this one too, and ends the call of this one.
    pub(crate) fn follow(&self, permit: Permit) {
        self.running(|running| {
            (running.permit, running.follows) = (Some(permit), true);
            running.due = running.due.max(self.attempts().deadlines.cutoff);
        });
    }

    /// Notes that no other slot calls for it. Returns the permit, unless the attempt was abandoned.
    pub(crate) fn unfollow(&self) -> Option<Permit> {
        self.running(|running| {
            running.follows = false;
            running.permit.take()
        })
        .flatten()
    }

    /// Notes that the handler begins only after `wait`, and returns its times.
    pub(crate) fn wait(&self, wait: Duration) -> Turn {
        self.begin_at(Instant::now() + wait)
    }

    /// Notes when the handler begins, and returns its times.
    pub(crate) fn begin_at(&self, began: Instant) -> Turn {
        self.has_waited.store(true, Ordering::Relaxed);
        let limit = self.attempts().deadlines.limit(began);
        if let Some(running) = &mut lock(&self.shared.state).slots[self.number] {
            running.turn = Turn { began, limit, ..running.turn };
            // An attempt that has to end keeps its time for that.
            if running.end.is_none() {
                running.due = limit;
            }
            return running.turn;
        }
        // It was abandoned, and ends at its next poll.
        Turn { began, limit, ..self.attempts().turn() }
    }

    /// Gives the attempt in this slot until `due`, if it has less time.
    pub(crate) fn extend(&self, due: Instant) {
        self.running(|running| running.due = running.due.max(due));
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.running(|running| running.permit.is_some()).unwrap_or(false)
    }

    /// The attempts that are about to begin while this one waits.
    pub(crate) fn about_to_begin(&self) -> usize {
        let state = lock(&self.shared.state);
        let free = state.most.saturating_sub(state.slots.iter().flatten().count());
        state.queued.as_slice().len().min(free)
    }

    /// The times of the attempt in this slot, if it has waited and was not abandoned.
    pub(crate) fn later_turn(&self) -> Option<Turn> {
        let has_waited = self.has_waited.load(Ordering::Relaxed);
        has_waited.then(|| self.running(|running| running.turn)).flatten()
    }

    /// The times of the attempt in this slot, if it has waited: it begins now.
    pub(crate) fn begin_after_wait(&self) -> Option<Turn> {
        self.has_waited.load(Ordering::Relaxed).then(|| self.wait(Duration::ZERO))
    }

    pub(crate) fn poll_end(&self, context: &Context<'_>) -> Poll<End> {
        let mut state = lock(&self.shared.state);
        match &mut state.slots[self.number] {
            None => return Poll::Ready(End::Abandoned),
            Some(Running { end: Some(end), follows: false, .. }) => return Poll::Ready(*end),
            Some(running) => match &running.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => running.waker = Some(context.waker().clone()),
            },
        }
        if !state.has_waited && !state.queued.as_slice().is_empty() {
            state.has_waited = true;
            drop(state);
            self.shared.news.notify_one();
        }
        Poll::Pending
    }
}
