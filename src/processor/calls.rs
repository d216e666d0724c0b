//! The calls of a bulk handler: the messages that share one, its beginning, and the end of each
//! message. It knows no policy.
//!
//! The first message of a call leads it: it waits for the others, asks for the reservation of the
//! rate limit, and runs the handler. The others wait for its verdict, and have no time limit of
//! their own. If the leader lapses or expires before the call begins, another message leads.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{iter, mem};

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::turn::{Handled, Uncalled};
use crate::delivery::Delivery;
use crate::disposition::Strategy;
use crate::failure::Failure;
use crate::lock::lock;
use crate::message::Message;
use crate::policy::{self, RetryPolicy};
use crate::queue::QueueArn;
use crate::scope::Scope;

/// The longest time between the first message of a call and its beginning.
const LONGEST_GATHERING: Duration = Duration::from_millis(100);
/// The most messages of a call on their second receive.
const MOST_AGAIN: usize = 3;

/// The most messages that share a call with a message. On its last attempt it is alone: after an
/// unclear call, the gate would count it as dead-lettered.
pub(super) fn most(policy: &RetryPolicy, delivery: &Delivery, most: usize) -> usize {
    let is_last = policy::is_last_receive(policy, &delivery.usage(), delivery.copy_first_received);
    if is_last || delivery.is_alone() {
        1
    } else if delivery.receives_here() == 2 {
        most.min(MOST_AGAIN)
    } else {
        most
    }
}

/// Messages with the same key may share a call.
#[derive(PartialEq)]
pub(super) struct CallKey {
    pub(super) queue: Option<Arc<QueueArn>>,
    pub(super) scope: Scope,
    /// The values of its keys with a limit.
    pub(super) keys: Vec<Scope>,
    pub(super) strategy: Strategy,
    /// Whether a pause or an open circuit may defer it.
    pub(super) may_be_deferred: bool,
    /// Whether it was received before. With `visibility`, it may have no further receive.
    pub(super) is_again: bool,
    pub(super) most: usize,
}

/// The calls of the messages that are attempted side by side.
pub(super) struct SharedCalls<T> {
    state: Mutex<Gathering<T>>,
    running: Semaphore,
    slots: usize,
    /// Whether the next message of a group can join a call once the one before it is done.
    is_in_order: bool,
}

struct Gathering<T> {
    /// Messages, or groups, of which one may still join a call.
    coming: usize,
    /// Members of calls that have not ended.
    members: usize,
    open: Vec<Open<T>>,
}

struct Open<T> {
    key: CallKey,
    begin: Arc<Notify>,
    members: Vec<CallMember<T>>,
    verdicts: Vec<oneshot::Sender<Verdict<T>>>,
}

pub(super) struct CallMember<T> {
    pub(super) message: Message<T>,
    pub(super) delivery: Arc<Delivery>,
}

/// The verdict of a leader for another message of its call.
pub(super) enum Verdict<T> {
    /// The end of the call, and when the handler was called.
    Ended { handled: Handled, began: Option<Instant> },
    /// The leader may not be called. The others join calls again.
    Leaderless(CallMember<T>),
}

pub(super) enum Joined<T> {
    Leads(Leading<T>),
    Follows(oneshot::Receiver<Verdict<T>>),
}

impl<T> Gathering<T> {
    /// Begins the open calls that no other message can join.
    fn look(&self, slots: usize) {
        if self.coming == 0 || self.members >= slots {
            self.open.iter().for_each(|open| open.begin.notify_one());
        }
    }
}

impl<T> SharedCalls<T> {
    /// Calls for this many messages, or groups in their order.
    pub(super) fn new(
        coming: usize,
        slots: usize,
        concurrency: usize,
        is_in_order: bool,
    ) -> Arc<Self> {
        let state = Gathering { coming, members: 0, open: Vec::new() };
        Arc::new(Self {
            state: Mutex::new(state),
            running: Semaphore::new(concurrency),
            slots,
            is_in_order,
        })
    }

    /// One of the calls that may run at once, until it is dropped.
    pub(super) async fn running(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.running.acquire().await.ok()
    }

    /// Counts a message that joined no call, or a group that has ended.
    pub(super) fn leave(&self) {
        let mut state = lock(&self.state);
        state.coming = state.coming.saturating_sub(1);
        state.look(self.slots);
    }

    /// Whether an attempt that has ended without joining a call has to [`leave`](Self::leave); a
    /// group leaves at its end.
    pub(super) fn counts_attempts(&self) -> bool {
        !self.is_in_order
    }

    pub(super) fn join(self: &Arc<Self>, key: CallKey, member: CallMember<T>) -> Joined<T> {
        let mut state = lock(&self.state);
        state.coming = state.coming.saturating_sub(1);
        state.members += 1;
        let is_same = |other: &CallMember<T>| {
            other.delivery.original_id().is_some()
                && other.delivery.original_id() == member.delivery.original_id()
        };
        let room = state.open.iter_mut().find(|open| {
            open.key == key && open.members.len() < key.most && !open.members.iter().any(is_same)
        });
        let joined = if let Some(open) = room {
            let (verdict, told) = oneshot::channel();
            open.members.push(member);
            open.verdicts.push(verdict);
            if open.members.len() == key.most {
                open.begin.notify_one();
            }
            Joined::Follows(told)
        } else {
            let begin = Arc::new(Notify::new());
            if key.most == 1 {
                begin.notify_one();
            }
            let members = vec![member];
            state.open.push(Open { key, begin: Arc::clone(&begin), members, verdicts: Vec::new() });
            Joined::Leads(Leading {
                calls: Arc::clone(self),
                begin,
                began: None,
                place: 0,
                verdicts: Vec::new(),
                is_over: false,
            })
        };
        state.look(self.slots);
        joined
    }

    /// The end of a call with this many members, some of which join another one. In order, each
    /// frees its place for itself or the next of its group, before any of these can join a call.
    fn end(&self, members: usize, again: usize) {
        let mut state = lock(&self.state);
        state.members -= members;
        state.coming += if self.is_in_order { members } else { again };
        state.look(self.slots);
    }
}

/// The lead of a call. If it is dropped, its messages are abandoned together with the leader's.
pub(super) struct Leading<T> {
    calls: Arc<SharedCalls<T>>,
    begin: Arc<Notify>,
    began: Option<Instant>,
    /// The leader's place among the messages of the call.
    place: usize,
    /// Of the other messages, once the call is closed.
    verdicts: Vec<oneshot::Sender<Verdict<T>>>,
    is_over: bool,
}

impl<T> Leading<T> {
    /// Waits until no other message can join, but not longer than the limit.
    pub(super) async fn gathered(&self) {
        let _ = timeout(LONGEST_GATHERING, self.begin.notified()).await;
    }

    /// Begins the call, with all messages that have joined it and pass the check. The leader has
    /// passed it.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        check: impl Fn(&Delivery) -> Result<(), Uncalled>,
    ) -> Vec<CallMember<T>> {
        let members = self.close();
        let verdicts = mem::take(&mut self.verdicts).into_iter().map(Some);
        let mut all: Vec<_> = members.into_iter().zip(iter::once(None).chain(verdicts)).collect();
        // In the order of the batch.
        all.sort_unstable_by_key(|(member, _)| member.delivery.position);
        let mut called = Vec::with_capacity(all.len());
        for (member, verdict) in all {
            match (verdict, check(&member.delivery)) {
                (None, _) => {
                    self.place = called.len();
                    called.push(member);
                }
                (Some(verdict), Ok(())) => {
                    self.verdicts.push(verdict);
                    called.push(member);
                }
                (Some(verdict), Err(uncalled)) => {
                    self.calls.end(1, 0);
                    let handled = Handled::Uncalled(uncalled);
                    let _ = verdict.send(Verdict::Ended { handled, began: None });
                }
            }
        }
        self.began = Some(now);
        called
    }

    fn close(&mut self) -> Vec<CallMember<T>> {
        let mut state = lock(&self.calls.state);
        let open = state.open.iter().position(|open| Arc::ptr_eq(&open.begin, &self.begin));
        let Some(open) = open.map(|at| state.open.swap_remove(at)) else { return Vec::new() };
        self.verdicts = open.verdicts;
        open.members
    }

    /// Leaves the call to its other messages.
    pub(super) fn hand_over(mut self) {
        let members = self.close();
        let verdicts = mem::take(&mut self.verdicts);
        self.calls.end(members.len(), verdicts.len());
        self.is_over = true;
        // The leader is the first member.
        for (verdict, member) in verdicts.into_iter().zip(members.into_iter().skip(1)) {
            let _ = verdict.send(Verdict::Leaderless(member));
        }
    }

    /// Gives each of the other messages its own end, and returns the leader's.
    pub(super) fn tell_each(mut self, results: Vec<Result<(), Failure>>) -> Handled {
        let mut ends: Vec<_> = results
            .into_iter()
            .map(|result| result.map_or_else(Handled::Failed, |()| Handled::Done))
            .collect();
        // Each message has a result.
        let own = ends.remove(self.place);
        self.end(ends);
        own
    }

    /// Gives the others the same end as the leader. A failure of several messages is unclear.
    pub(super) fn tell_all(mut self, handled: Handled) -> Handled {
        self.close();
        let others = self.verdicts.len();
        let handled = match handled {
            Handled::Failed(failure) if others > 0 => Handled::Unclear { failure, is_leader: true },
            handled => handled,
        };
        let ends: Vec<_> = (0..others).map(|_| handled.of_follower()).collect();
        self.end(ends);
        handled
    }

    fn end(&mut self, ends: impl IntoIterator<Item = Handled>) {
        let verdicts = mem::take(&mut self.verdicts);
        self.calls.end(1 + verdicts.len(), 0);
        self.is_over = true;
        for (verdict, handled) in verdicts.into_iter().zip(ends) {
            // An abandoned message does not receive it.
            let _ = verdict.send(Verdict::Ended { handled, began: self.began });
        }
    }
}

impl<T> Drop for Leading<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.close();
            self.end([]);
        }
    }
}
