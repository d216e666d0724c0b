//! The part of an attempt that handles each event once: it acquires the event before the call, and
//! notes its end before anybody can see the decision.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::executor::Slot;
use super::handled::{Ended, Handled};
use super::policies::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::{Deferral, OnceNotes, Strategy};
use crate::fleet::{Acquired, Acquisition, Admitted, Events};
use crate::handler::Handler;
use crate::message::Body;
use crate::pointer;
use crate::policy::WhenUnavailable;
use crate::queue::Queue;

/// A service may work on an event for so long beyond the timeout of its handler. Servers and the
/// gateways before them end a request after 30 to 60 s.
const BEYOND: Duration = Duration::from_mins(1);

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Acquires the event of a message. Returns the turn of the handler, which begins later.
    pub(super) async fn acquire(
        &self,
        events: &Events,
        delivery: &Delivery,
        turn: &Turn,
        slot: &Slot<Self>,
        acquired: &mut Acquisition,
    ) -> Result<Turn, Handled> {
        let (name, is_key_missing) = name(events, delivery);
        acquired.notes.is_key_missing = is_key_missing;
        // Without an id, it equals no other message.
        let Some(name) = name else { return Ok(slot.wait(Duration::ZERO)) };
        let queue = delivery.queue.as_ref().map(ToString::to_string).unwrap_or_default();
        // The handler's time begins after the answer.
        let later = slot.wait(events.patience());
        let lease = later.limit.saturating_duration_since(Instant::now())
            + (self.deadlines.grace + events.patience() * 2).max(BEYOND);
        let owner = owner(delivery, turn);
        let asked = async {
            acquired.lease = Some(events.asked(&queue, name.as_bytes(), owner, lease));
            events.acquire(&queue, name.as_bytes(), owner, lease).await
        };
        let answer = self.ask_store(asked).await?;
        acquired.lease = None;
        match answer {
            Acquired::Lease(lease) => {
                acquired.lease = Some(lease);
                self.begin(delivery, slot)
            }
            Acquired::Unanswered { lease, throttled } => {
                let waits = self.waits_for_answer(events, delivery, throttled.is_some());
                // A request without an answer may have had its effect.
                if !waits || throttled.is_none() {
                    acquired.lease = Some(lease);
                }
                match throttled {
                    Some(times) if waits => {
                        let why = Deferral::StoreThrottled;
                        Err(Handled::Limited(Admitted::PutOff { why, times }))
                    }
                    None if waits => Err(Handled::Unanswered),
                    _ => {
                        acquired.notes.is_unconfirmed = true;
                        self.begin(delivery, slot)
                    }
                }
            }
            Acquired::Done => {
                acquired.notes.is_already_done = true;
                Err(Handled::AlreadyDone)
            }
            Acquired::InProgress(rest) => Err(Handled::InProgress(rest)),
        }
    }

    /// The turn of a handler that begins now.
    pub(super) fn begin(&self, delivery: &Delivery, slot: &Slot<Self>) -> Result<Turn, Handled> {
        if self.processor.inner.settler.has_lapsed(delivery) || self.has_expired(delivery) {
            return Err(Handled::NotStarted);
        }
        Ok(slot.wait(Duration::ZERO))
    }

    /// Whether a message waits because the store did not answer. In its place in the queue it uses
    /// a receive for that, and the next one may move it to the dead-letter queue without a call.
    fn waits_for_answer(&self, events: &Events, delivery: &Delivery, is_throttled: bool) -> bool {
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        let may_wait = delivery.strategy == Strategy::Copy || delivery.receive_count < 2;
        may_wait
            && match events.once().when_unavailable {
                _ if is_throttled => true,
                WhenUnavailable::Call => false,
                WhenUnavailable::Defer => delivery.deferrals() < policy.max_deferrals,
            }
    }

    /// Notes the end of an attempt. A success is in the store before the message is deleted.
    pub(super) async fn conclude(
        &self,
        events: &Events,
        acquired: Acquisition,
        ended: Ended,
        slot: &Slot<Self>,
    ) -> OnceNotes {
        let Acquisition { lease, mut notes } = acquired;
        let Some(lease) = lease else { return notes };
        // Settling has the rest of the reserve.
        let latest = self.deadlines.cutoff + self.deadlines.grace;
        let until = (Instant::now() + events.patience() * 2).min(latest);
        slot.extend(until + self.deadlines.grace / 4);
        match ended {
            Ended::Done => notes.is_unconfirmed |= !events.complete(&lease, until).await,
            Ended::Free => events.give_back(&lease, until).await,
            Ended::Unknown => {}
        }
        notes
    }
}

/// The name of a message's event, and whether the body has none.
fn name(events: &Events, delivery: &Delivery) -> (Option<String>, bool) {
    let id = || delivery.original_id().map(|id| format!("id {id}"));
    match &events.once().key {
        None => (id(), false),
        Some(key) => match key.find(delivery.payload()).and_then(pointer::name) {
            Some(name) => (Some(name), false),
            None => (id(), true),
        },
    }
}

/// A number that no other attempt has: no two receives have the same receipt handle.
fn owner(delivery: &Delivery, turn: &Turn) -> u64 {
    let mut hash = Sha256::new();
    for handle in &delivery.receipt_handles {
        hash.update(handle);
    }
    hash.update(turn.sample.to_le_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    // Zero is nobody.
    hash.first_chunk().map_or(1, |start| u64::from_le_bytes(*start) | 1)
}
