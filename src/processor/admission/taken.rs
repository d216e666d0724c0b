//! Everything that a message acquired for its call, and returns when it is over.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use super::super::executor::Slot;
use super::super::inner::{QueuePolicy, Slots};
use super::super::turn::Ended;
use super::gate::Gate;
use crate::delivery::Delivery;
use crate::gate::Reply;
use crate::limit::KnownLimit;
use crate::plan::Decision;
use crate::policy::{self, RateLimit};
use crate::scope::Scope;
use crate::shared_table::{Acquisition, Counted, Ticket};

/// Records, permissions and counts that a message acquired from the table for its call.
#[derive(Default)]
pub(in crate::processor) struct Taken {
    pub(super) event: Acquisition,
    /// Its attempt, until the handler is called.
    pub(in crate::processor) attempt: Option<Counted>,
    pub(super) ticket: Option<Ticket>,
    pub(in crate::processor) refused: Option<Refused>,
    pub(super) learning: Vec<Gate>,
}

/// A call that its service refused, of an adaptive limit.
pub(in crate::processor) struct Refused {
    pub(super) scope: Scope,
    pub(super) limit: RateLimit,
    pub(super) asked: SystemTime,
}

impl Taken {
    /// Whether the call probes a pause of all execution environments.
    pub(super) fn is_probe(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::is_probe)
    }

    /// Reports to the table how the attempt ended, before the message is settled: each success is
    /// noted before its message is deleted. A record that is not released ends by itself.
    pub(in crate::processor) async fn give_back(
        self,
        slot: &Slot,
        delivery: &Delivery,
        reply: Reply,
        ended: Ended,
        decision: &mut Decision,
    ) {
        let Self { event, attempt, ticket, refused, learning } = self;
        let attempts = slot.attempts();
        let QueuePolicy { events, pauses, slots, counts, .. } = attempts.inner.policy(delivery);
        let (cutoff, grace) = (attempts.deadlines.cutoff, attempts.deadlines.grace);
        // Settling has the rest of the reserve.
        let within = |timeout: Duration| {
            let until = (Instant::now() + timeout).min(cutoff + grace);
            slot.extend(until + grace / 4);
            until
        };
        // An attempt that was counted and not made.
        if let (Some(attempt), Some(counts)) = (attempt, counts) {
            let _ = timeout_at(within(counts.timeout()), counts.take_back(attempt)).await;
        }
        decision.idempotency = event.notes;
        if let (Some(events), Some(record)) = (events, event.record) {
            match ended {
                Ended::Done => {
                    let until = within(events.timeout() * 2);
                    decision.idempotency.is_unconfirmed |= !events.complete(&record, until).await;
                }
                Ended::Free => events.give_back(&record, within(events.timeout() * 2)).await,
                Ended::Unknown => {
                    let Decision { disposition, at, .. } = decision;
                    let (strategy, rest) = (delivery.strategy, record.rest());
                    *disposition = policy::after_in_progress(*disposition, strategy, rest, *at);
                }
            }
        }
        if let (Some(pauses), Some(ticket)) = (pauses, ticket) {
            let until = (Instant::now() + grace / 2).min(cutoff + grace);
            let change = timeout_at(until, pauses.tell(&ticket, reply)).await.ok().flatten();
            attempts.announce(change, pauses.pause(&ticket), true, decision.failure.as_ref());
        }
        let says = delivery.used().is_some() || !delivery.allowances().is_empty();
        for gate in learning.into_iter().filter(|_| says) {
            let learned = Box::pin(gate.learn(attempts, delivery));
            let _ = timeout_at(within(Duration::from_secs(1)), learned).await;
        }
        if let Some(Refused { scope, limit, asked }) = refused {
            match slots {
                Slots::Own(limiter) => {
                    let now = (attempts.now(), Instant::now());
                    limiter.with(scope, now, |state| {
                        let refused = state.refused(&KnownLimit::own(&limit), asked, now.0);
                        *state = refused.unwrap_or(*state);
                    });
                }
                Slots::Shared(shared) => {
                    let told = shared.refused(scope, &limit, asked);
                    let _ = timeout_at(within(shared.reservation_timeout()), told).await;
                }
            }
        }
    }
}
