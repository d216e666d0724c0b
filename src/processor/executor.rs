//! Runs attempts on the handlers' threads, in slots and within their time. It takes the work of a
//! slot as a value, and knows no policy.
//!
//! Each slot is a task that takes one delivery after the other. The timekeeper, whose thread no handler
//! can block, ends attempts whose time is over, and abandons attempts that block their thread.

use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;
use std::vec;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::turn::{Attempts, Deadlines, Turn};
use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::gate::Permit;
use crate::lock::lock;
use crate::plan::Decision;

mod slot;

pub(super) use slot::Slot;

/// The shortest time between two checks of the clock for queued deliveries.
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// An attempt that runs this long does not block the others: further slots are spawned meanwhile,
/// and run on its thread afterwards.
pub(super) const LONG_RUN: Duration = Duration::from_millis(1);
/// The time for a delivery that is taken when no time is left. It is decided without a call, so no
/// handler can block its slot. On a busy machine the decision may take a moment.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);

/// Why an attempt is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    TimeOut,
    /// The host shuts down.
    Stop,
    /// It did not end in time: its thread is blocked.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Any, in at most this many slots at once.
    Any(usize),
    /// In sequence, until one is not done.
    Given,
}

/// Makes an attempt at each delivery. `work` is the work of a slot. Reports each decision as soon
/// as it is known. Returns the deliveries that are left, after one that was not done.
pub(super) async fn execute<W>(
    attempts: Attempts,
    order: Order,
    deliveries: Vec<Arc<Delivery>>,
    work: impl Fn(Slot) -> W,
    mut decided: impl FnMut(Decision),
) -> Vec<Arc<Delivery>>
where
    W: Future<Output = ()> + Send + 'static,
{
    if deliveries.is_empty() {
        return Vec::new();
    }
    let count = match order {
        Order::Any(slots) => slots.min(deliveries.len()),
        Order::Given => 1,
    };
    let state = State {
        order,
        left: Vec::new(),
        undecided: deliveries.len(),
        decided: Vec::with_capacity(deliveries.len()),
        queued: deliveries.into_iter(),
        slots: Vec::with_capacity(count),
        most: count,
        has_waited: false,
    };
    let shared = Arc::new(Shared { attempts, state: Mutex::new(state), news: Notify::new() });
    let Attempts { inner, deadlines, .. } = &shared.attempts;
    let mut executor = Executor { shared: Arc::clone(&shared), tasks: Vec::with_capacity(count) };
    let spawn = |executor: &mut Executor, count| {
        for _ in 0..count {
            let slot = work(Slot::new(Arc::clone(&shared)));
            executor.tasks.push(AbortOnDropHandle::new(inner.handlers.spawn(slot)));
        }
    };
    // One slot is enough while no handler runs long, and it wakes no other thread.
    spawn(&mut executor, 1);
    let mut to_spawn = count - 1;
    // A delivery that begins later has no earlier limit.
    let limit = shared.next_due();
    let first = if to_spawn > 0 { limit.min(Instant::now() + LONG_RUN) } else { limit };
    let mut alarm = pin!(sleep_until(first));
    let mut stopped = pin!(deadlines.stop.running.cancelled());
    let mut is_running = true;
    loop {
        let (decisions, undecided) = {
            let mut state = lock(&shared.state);
            (mem::take(&mut state.decided), state.undecided)
        };
        decisions.into_iter().for_each(&mut decided);
        if undecided == 0 {
            return mem::take(&mut lock(&shared.state).left);
        }
        tokio::select! {
            biased;
            () = shared.news.notified() => {
                if lock(&shared.state).has_waited {
                    spawn(&mut executor, mem::take(&mut to_spawn));
                }
                continue;
            }
            () = &mut stopped, if is_running => {
                is_running = false;
                shared.close();
                shared.end_all();
            }
            () = &mut alarm => {
                let abandoned = shared.end_overdue();
                spawn(&mut executor, abandoned + mem::take(&mut to_spawn));
            }
        }
        if Instant::now() >= deadlines.cutoff {
            shared.close();
        }
        alarm.as_mut().reset(shared.next_due());
    }
}

/// The slots of one batch. After this is dropped, no slot takes another delivery.
struct Executor {
    shared: Arc<Shared>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        let queued = mem::take(&mut state.queued);
        // A blocked handler keeps the shared state alive, but must not keep the permits of others.
        let running: Vec<_> = state.slots.iter_mut().map(Option::take).collect();
        drop(state);
        drop((queued, running));
    }
}

/// The state that slots and timekeeper share.
struct Shared {
    attempts: Attempts,
    state: Mutex<State>,
    /// Notified of decisions to take, and of the need for further slots.
    news: Notify,
}

/// Whether each delivery is queued, in a slot, decided, or left.
struct State {
    order: Order,
    left: Vec<Arc<Delivery>>,
    queued: vec::IntoIter<Arc<Delivery>>,
    slots: Vec<Option<Running>>,
    most: usize,
    decided: Vec<Decision>,
    undecided: usize,
    /// Whether a handler had to wait while deliveries were queued.
    has_waited: bool,
}

struct Running {
    delivery: Arc<Delivery>,
    turn: Turn,
    /// Held while its handler calls the downstream service.
    permit: Option<Permit>,
    /// Whether another slot makes its call, and reports how that ended.
    follows: bool,
    end: Option<End>,
    due: Instant,
    waker: Option<Waker>,
}

impl State {
    /// Leaves the deliveries that are queued after the first `decided`, which it returns.
    fn leave(&mut self, decided: usize) -> Vec<Arc<Delivery>> {
        let mut queued = mem::take(&mut self.queued);
        let first = queued.by_ref().take(decided).collect();
        self.undecided -= queued.len();
        self.left.extend(queued);
        first
    }
}

impl Running {
    /// Returns the waker of its slot, for use after the lock: the task may run or be dropped at
    /// once.
    fn end(&mut self, why: End, due: Instant) -> Option<Waker> {
        (self.end, self.due) = (Some(why), due);
        self.waker.take()
    }
}

impl Shared {
    /// When the next handler may have to end, even of a delivery that is still queued.
    fn next_due(&self) -> Instant {
        let Deadlines { cutoff, window, .. } = &self.attempts.deadlines;
        let state = lock(&self.state);
        let now = Instant::now();
        let begins = (!state.queued.as_slice().is_empty()).then(|| {
            self.attempts.deadlines.limit(now).max((now + LEAST_BETWEEN_LOOKS).min(*cutoff))
        });
        let runs = state.slots.iter().flatten().map(|running| running.due).min();
        begins.into_iter().chain(runs).min().unwrap_or(window.deadline)
    }

    fn end_all(&self) {
        let due = Instant::now() + self.attempts.deadlines.grace;
        let wakers: Vec<_> = {
            let mut state = lock(&self.state);
            let running = state.slots.iter_mut().flatten();
            let running = running.filter(|running| running.end.is_none());
            running.filter_map(|running| running.end(End::Stop, due)).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends overdue attempts. Returns how many did not end: their threads are blocked.
    fn end_overdue(&self) -> usize {
        let now = Instant::now();
        let (mut abandoned, mut wakers) = (Vec::new(), Vec::new());
        for slot in &mut lock(&self.state).slots {
            match slot {
                Some(running) if running.due > now => {}
                Some(running) if running.end.is_none() => {
                    wakers.extend(running.end(End::TimeOut, now + self.attempts.deadlines.grace));
                }
                slot => abandoned.extend(slot.take()),
            }
        }
        wakers.into_iter().for_each(Waker::wake);
        let count = abandoned.len();
        for Running { delivery, turn, permit, end, .. } in abandoned {
            let had_its_time =
                end == Some(End::TimeOut) && self.attempts.deadlines.gives_its_time(&turn);
            let (decision, reply) = self.attempts.abandoned(&delivery, &turn, had_its_time);
            if let Some(permit) = permit {
                self.attempts.give_back(permit, reply, decision.at, None);
            }
            self.post(lock(&self.state), decision);
        }
        count
    }

    /// Decides the deliveries that are still queued, without a call. In the given order it decides
    /// about the next one alone, unless that waits for one that runs.
    fn close(&self) {
        let queued = {
            let mut state = lock(&self.state);
            let most = match state.order {
                Order::Any(_) => usize::MAX,
                Order::Given => usize::from(state.slots.iter().all(Option::is_none)),
            };
            state.leave(most)
        };
        for delivery in queued {
            let decision = self.attempts.not_started(&delivery);
            self.post(lock(&self.state), decision);
        }
    }

    /// Notes a decision. A finished message does not wake the timekeeper, unless it is deleted at
    /// once. Returns whether there is another delivery to take.
    fn post(&self, mut state: MutexGuard<'_, State>, decision: Decision) -> bool {
        state.undecided -= 1;
        let is_done = matches!(decision.disposition, Disposition::Complete);
        if state.order == Order::Given && !is_done {
            state.leave(0);
        }
        let is_news = !is_done || self.attempts.deadlines.deletes_done || state.undecided == 0;
        state.decided.push(decision);
        let goes_on = !state.queued.as_slice().is_empty();
        drop(state);
        if is_news {
            self.news.notify_one();
        }
        goes_on
    }
}
