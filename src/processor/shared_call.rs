//! A call of several messages, for the message that leads it or joins it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Call, Taken};
use super::calls::{CallMember, Joined, Leading, SharedCalls, Verdict};
use super::turn::{Handled, Turn, Uncalled};
use crate::gate::Permit;
use crate::handler::DynBulk;
use crate::message::{Body, Message};

/// The state of one message in a call of a bulk handler.
pub(super) struct Try<'a, T> {
    pub(super) taken: Taken,
    pub(super) calls: Option<&'a Arc<SharedCalls<T>>>,
    /// Whether its message may still join a call.
    pub(super) is_coming: bool,
    /// Whether another message led its call.
    pub(super) joined: bool,
    pub(super) leading: Option<Leading<T>>,
}

/// Joins a call of several messages, and leads it if no other message does so to its end.
pub(super) async fn share<T: Body>(
    bulk: &dyn DynBulk<T>,
    calls: &Arc<SharedCalls<T>>,
    call: &Call<'_>,
    message: Message<T>,
    mut permit: Permit,
    tried: &mut Try<'_, T>,
) -> Handled {
    tried.is_coming = false;
    let joined = Instant::now();
    let mut member = CallMember { message, delivery: Arc::clone(call.delivery) };
    loop {
        let verdict = match calls.join(call.key(bulk.messages_per_call()), member) {
            Joined::Leads(leading) => {
                tried.leading = Some(leading);
                return lead(bulk, calls, call, joined, permit, tried).await;
            }
            Joined::Follows(verdict) => verdict,
        };
        call.slot.follow(permit);
        let counted = tried.taken.attempt.take();
        match verdict.await {
            Ok(Verdict::Ended { handled, began: Some(began) }) => {
                tried.joined = true;
                call.slot.begin_at(began);
                return handled;
            }
            Ok(Verdict::Ended { handled, began: None }) => {
                tried.taken.attempt = counted;
                return handled;
            }
            Ok(Verdict::Leaderless(again)) => {
                tried.taken.attempt = counted;
                let Some(own) = call.slot.unfollow() else { return pending().await };
                (member, permit) = (again, own);
            }
            Err(_) => return Handled::Abandoned,
        }
    }
}

/// Makes the call of several messages, as soon as it may begin.
async fn lead<T: Body>(
    bulk: &dyn DynBulk<T>,
    calls: &SharedCalls<T>,
    call: &Call<'_>,
    joined: Instant,
    permit: Permit,
    tried: &mut Try<'_, T>,
) -> Handled {
    let Call { attempts, slot, .. } = *call;
    let Try { taken, leading, .. } = tried;
    let Some(leads) = leading.as_mut() else { return Handled::Abandoned };
    slot.extend(attempts.deadlines.cutoff);
    leads.gathered().await;
    let _running = calls.running().await;
    let admitted = async {
        let mut permit = call.renew_since(joined, permit, taken).await?;
        if call.is_limited() && !call.reserves_alone() {
            permit = call.reserve(permit, taken).await?;
            call.pace().await?;
        }
        call.check_other(call.delivery)?;
        Ok(permit)
    };
    let permit = match admitted.await {
        Ok(permit) => permit,
        Err(uncalled) => {
            // The other messages of the call have not lapsed or expired.
            if call.check_other(call.delivery).is_err()
                && let Some(leading) = leading.take()
            {
                leading.hand_over();
            }
            return Handled::Uncalled(uncalled);
        }
    };
    if attempts.is_stopping() {
        return Handled::Uncalled(Uncalled::stopped());
    }
    let Turn { began, limit: end, .. } = slot.wait(Duration::ZERO);
    if !slot.hold(permit) {
        return pending().await;
    }
    taken.attempt = None;
    let messages = leads.begin(began, |delivery| call.check_other(delivery)).into_iter().map(
        |CallMember { mut message, delivery }| {
            message.set_deadline(end);
            if call.is_limited() {
                message.set_rate_limited();
            }
            attempts.inner.observers.tell(&delivery.called());
            message
        },
    );
    let results = match bulk.call(messages.collect()).await {
        Ok(results) => results,
        Err(failure) => {
            taken.refused = call.refused(&failure);
            return Handled::Failed(failure);
        }
    };
    let failures = results.iter().filter_map(|result| result.as_ref().err());
    taken.refused = failures.map(|failure| call.refused(failure)).find(Option::is_some).flatten();
    leading.take().map_or(Handled::Abandoned, |leading| leading.tell_each(results))
}

impl<T> Drop for Try<'_, T> {
    fn drop(&mut self) {
        if let Some(calls) = self.calls
            && self.is_coming
            && calls.counts_attempts()
        {
            calls.leave();
        }
    }
}
