//! The task that sends the requests of a scope's messages to the table. One request serves all
//! messages that ask together.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::known::{Admitted, Asker, Askers, Request, SharedScope};
use super::{TableClient, expires};
use crate::disposition::Deferral;
use crate::limit::{Admission, Ask, Claim, Demand, LimitState, Share};
use crate::table::{Field, TableError};

/// The most requests in a row for messages that ask together. After a wait, as many once more.
pub(super) const MAX_REQUESTS: u32 = 3;
/// The other messages of a batch ask within this time, unless they wait for another step first.
const TOGETHER: Duration = Duration::from_millis(1);
/// An older state of the waiting list decides about no message.
const FRESH: Duration = Duration::from_millis(500);
/// The task waits for 50 to 150 % of this time before it asks once more. Meanwhile, most messages
/// keep about their order, and need no copy.
pub(super) const LATER: Duration = Duration::from_millis(200);

pub(super) struct AskTask {
    client: Arc<TableClient>,
    item: Arc<SharedScope>,
    is_over: bool,
}

impl Drop for AskTask {
    /// If the runtime ended the task, the next message begins a new one.
    fn drop(&mut self) {
        if !self.is_over {
            let waiting = self.with(|state| {
                state.is_asked = false;
                mem::take(&mut state.waiting)
            });
            // After the lock is free, since this wakes the tasks of the messages.
            drop(waiting);
        }
    }
}

impl AskTask {
    pub(super) fn new(client: Arc<TableClient>, item: Arc<SharedScope>) -> Self {
        Self { client, item, is_over: false }
    }

    pub(super) async fn ask(mut self) {
        loop {
            let _ = timeout(TOGETHER, self.gathered()).await;
            let waiting = {
                let mut state = self.item.limits();
                if state.waiting.is_empty() {
                    // Under the lock, so that no message waits for a task that has ended.
                    state.is_asked = false;
                    self.is_over = true;
                    return;
                }
                state.expected = 0;
                mem::take(&mut state.waiting)
            };
            self.round(waiting).await;
        }
    }

    /// Waits until all expected messages have asked.
    async fn gathered(&self) {
        let complete = self.with(|state| Arc::clone(&state.complete));
        while self.with(|state| state.waiting.len() < state.expected) {
            complete.notified().await;
        }
    }

    async fn round(&self, mut waiting: Vec<Asker>) {
        let client = &*self.client;
        // If the limit changed a moment ago, the last message has the new one.
        let Some(limit) = waiting.last().map(|one| one.limit) else { return };
        let known = &self.item;
        let mut seen = known.seen().limit;
        let is_foreign =
            |one: &Asker| matches!(one.request.demand.ask, Ask::Waited(tag) if !seen.knows(tag));
        if !client.knows_time() || waiting.iter().any(is_foreign) && !known.is_known(FRESH) {
            // A read corrects a wrong clock and an old state before they decide.
            match self.read().await {
                Ok(state) => seen = state,
                Err(error) => return self.without_answer(&error, waiting),
            }
        }
        let mut may_ask_again = true;
        for number in 0..2 * MAX_REQUESTS {
            if number == MAX_REQUESTS && !self.asks_again(&mut may_ask_again, &waiting).await {
                break;
            }
            // The attempts of the others have ended.
            waiting.retain(|one| !one.answer.is_closed());
            // Reservations that pass before the response would be lost.
            let at = client.now() + client.latency();
            let is_free = number == 0 && seen.has_free_gate(at);
            let is_guess = is_free && self.with(|state| state.is_gate_busy);
            let likely = if is_guess { seen.with_busy_gate(at) } else { seen };
            let longest =
                waiting.iter().map(|one| one.request.demand.longest).max().unwrap_or_default();
            let claim = Claim::new(&limit, likely, at);
            let interval = claim.interval();
            let owed = self.with(|state| state.fallback.owed(interval, &likely, longest, at));
            let mut claim = claim.owing(owed);
            let shares: Vec<_> = waiting
                .iter()
                .map(|one| claim.take(Demand { ask: one.ask(client), ..one.request.demand }))
                .collect();
            if is_guess && claim.slots() == 0 {
                // A guess refuses no message.
                self.with(|state| state.is_gate_busy = false);
                continue;
            }
            let before = if claim.is_empty() && known.is_known(FRESH) {
                seen
            } else if claim.is_empty() {
                // Other environments may have made calls meanwhile.
                match self.read().await {
                    Ok(state) => seen = state,
                    Err(error) => return self.without_answer(&error, waiting),
                }
                continue;
            } else {
                let in_use_until = claim.in_use_until().max(known.paused_until(client.now()));
                let update = claim.update().set(Field::EXPIRES, expires(in_use_until));
                let update = update.needed_for(in_use_until.duration_since(at).unwrap_or_default());
                let may_be_deferred = waiting.iter().all(|one| one.request.may_be_deferred);
                let update = if may_be_deferred && claim.slots() > 0 {
                    known.seen().health.unless_paused(update, client.now())
                } else {
                    Some(update)
                };
                let Some(update) = update else {
                    for one in waiting {
                        one.answer(Admitted::Paused);
                    }
                    return;
                };
                match client.update(&known.key, &update).await {
                    Ok(answer) => {
                        let before = LimitState::of(&answer.before);
                        let mut item = answer.before;
                        let is_changed = answer.is_changed && update.apply(&mut item);
                        known.learn(&item);
                        if is_free && claim.slots() > 0 {
                            self.with(|state| state.is_gate_busy = !before.has_free_gate(at));
                        }
                        seen = known.seen().limit;
                        if !is_changed {
                            continue;
                        }
                        self.with(|state| {
                            state.throttled = 0;
                            state.fallback.note(claim.slots(), at);
                        });
                        before
                    }
                    Err(TableError::Throttled)
                        if self.asks_again(&mut may_ask_again, &waiting).await =>
                    {
                        continue;
                    }
                    Err(error) => return self.without_answer(&error, waiting),
                }
            };
            waiting = self.answer(waiting.into_iter().zip(shares), &claim, &before, at);
            if waiting.is_empty() {
                return;
            }
        }
        // Too many environments change the item at the same time. Waiting messages stay in the
        // list.
        self.wait_on(waiting, &Claim::new(&limit, seen, client.now()), &seen);
    }

    /// Waits once, for a random time, so that many environments do not ask again together.
    async fn asks_again(&self, may_ask_again: &mut bool, waiting: &[Asker]) -> bool {
        let asks = mem::take(may_ask_again);
        if asks {
            let sample = waiting.first().map_or(0.0, |one| one.request.sample);
            sleep(LATER.mul_f64(0.5 + sample)).await;
        }
        asks
    }

    async fn read(&self) -> Result<LimitState, TableError> {
        let answer = self.client.read(&self.item.key).await?;
        self.item.learn(&answer.before);
        Ok(self.item.seen().limit)
    }

    fn wait_on(&self, waiting: Vec<Asker>, claim: &Claim, seen: &LimitState) {
        let mut others = Vec::new();
        for one in waiting {
            match one.request.demand.ask {
                Ask::Waited(tag) => {
                    one.admit(&self.client, claim.admission(Share::Waits(tag), seen));
                }
                _ => others.push(one),
            }
        }
        self.defer_for_table(others);
    }

    /// Gives the messages their shares. Returns the messages whose reservations passed meanwhile.
    fn answer(
        &self,
        shares: impl Iterator<Item = (Asker, Share)>,
        claim: &Claim,
        before: &LimitState,
        at: SystemTime,
    ) -> Vec<Asker> {
        let client = &*self.client;
        let now = client.now();
        let mut late = Vec::new();
        for (one, share) in shares {
            match claim.admission(share, before) {
                // The late messages would all call at once.
                Admission::Slot(wait) if at + wait + claim.tolerance() < now => {
                    late.push(one);
                }
                Admission::Slot(wait) => {
                    let wait = (at + wait).duration_since(now).unwrap_or_default();
                    one.answer(Admitted::By(Admission::Slot(wait)));
                }
                refused => one.admit(client, refused),
            }
        }
        late
    }

    fn without_answer(&self, error: &TableError, waiting: Vec<Asker>) {
        match error {
            TableError::Throttled => self.defer_for_table(waiting),
            TableError::Unavailable(_) => self.alone(waiting),
        }
    }

    fn defer_for_table(&self, waiting: Vec<Asker>) {
        let times = self.with(|state| {
            state.throttled = state.throttled.saturating_add(1);
            state.throttled
        });
        for one in waiting {
            one.answer(Admitted::Deferred { why: Deferral::TableThrottled, times });
        }
    }

    /// Admits messages without the table, at the rate of the last calls.
    fn alone(&self, waiting: Vec<Asker>) {
        let client = &*self.client;
        let now = client.now();
        for one in waiting {
            // It would not call at its reservation, and another message could.
            if matches!(one.request.demand.ask, Ask::Joins(_)) {
                one.answer(Admitted::Deferred { why: Deferral::TableUnavailable, times: 1 });
                continue;
            }
            let seen = self.item.seen().limit;
            let limit = seen.in_effect(&one.limit.limit, now);
            let alone = || {
                let Request { demand, sample, .. } = one.request;
                let most = client.max_environments;
                self.with(|state| state.fallback.admit(&limit, demand, most, &seen, now, sample))
            };
            let admission = seen.operator_pause(now).unwrap_or_else(alone);
            one.answer(match admission {
                Admission::Slot(_) | Admission::Paused { .. } => Admitted::By(admission),
                _ => Admitted::Deferred { why: Deferral::TableUnavailable, times: 1 },
            });
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Askers) -> T) -> T {
        change(&mut self.item.limits())
    }
}

impl Asker {
    /// The request, with its time by the clock that all execution environments share.
    fn ask(&self, client: &TableClient) -> Ask {
        match self.request.demand.ask {
            Ask::Joins(until) => Ask::Joins(client.shared(until)),
            ask => ask,
        }
    }

    /// Sends the admission, with its time by the clock of this execution environment.
    fn admit(self, client: &TableClient, admission: Admission) {
        self.answer(Admitted::By(match admission {
            Admission::InLine(tag, due) => Admission::InLine(tag, client.local(due)),
            admission => admission,
        }));
    }

    /// Sends the decision. If the attempt of the message has ended, no task receives it.
    fn answer(self, admitted: Admitted) {
        let _ = self.answer.send(admitted);
    }
}
