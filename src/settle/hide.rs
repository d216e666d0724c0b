//! Hides messages in their queue, and makes others visible.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::sending::Sending;
use super::{MAX_AMBIGUOUS_TRIES, Settled, Settler, Tries, Waiting, Window, handle, kept, within};
use crate::plan::{Decision, Unsendable};
use crate::queue::{
    CallErrorKind, Confirmation, EntryError, MAX_BATCH_ENTRIES, MAX_VISIBILITY,
    MAX_VISIBILITY_WAIT, Queue, QueueArn, RECEIVED_BEFORE,
};
use crate::report::Settlement;

/// The least time for which an original is hidden if SQS does not confirm its copy. Each return
/// uses a receive: with short delays, five would pass before an operator can fix a permission.
const MIN_HIDDEN_IF_UNSENT: Duration = Duration::from_secs(300);
/// The visibility timeout to ask for if SQS refuses a longer one.
const MODEST_VISIBILITY: Duration = Duration::from_secs(900);

/// A message that SQS keeps and delivers again after `wait`. Without a `wait`, it is to be
/// delivered at once, and a refusal only delays that.
pub(super) struct Hidden {
    pub(super) decision: Decision,
    pub(super) wait: Option<Duration>,
    pub(super) unsent: Option<Unsendable>,
    pub(super) waiting: Waiting,
}

impl<Q: Queue> Settler<Q> {
    /// Hides messages. After SQS confirms that, it makes their successors visible at the same time.
    pub(super) async fn settle_hidden(
        &self,
        queue: Arc<QueueArn>,
        hidden: Vec<Hidden>,
        window: Window,
    ) -> Vec<Settled> {
        let waits: Vec<(&str, Duration)> = hidden
            .iter()
            .map(|Hidden { decision, wait, .. }| {
                (handle(&decision.delivery), wait.unwrap_or_default())
            })
            .collect();
        let confirmations = self.hide(&queue, &waits, window).await;
        let mut settled = Vec::with_capacity(hidden.len());
        let mut behind = Vec::new();
        for (Hidden { decision, wait, unsent, waiting }, confirmation) in
            hidden.into_iter().zip(confirmations)
        {
            if let (Waiting::ForVisibility(deliveries), Ok(())) = (waiting, &confirmation) {
                behind.extend(deliveries);
            }
            let settlement = match confirmation {
                Err(error) if wait.is_some() && unsent.is_none() => {
                    Settlement::KeptNotDelayed { code: error.code }
                }
                Ok(()) | Err(_) => kept(unsent),
            };
            settled.push(Settled { decision, settlement });
        }
        for chunk in behind.chunks(MAX_BATCH_ENTRIES) {
            let shown: Vec<(&str, Duration)> =
                chunk.iter().map(|delivery| (handle(delivery), Duration::ZERO)).collect();
            self.hide(&queue, &shown, window).await;
        }
        settled
    }

    /// Hides the originals of unconfirmed copies for their intended delay, and for at least
    /// [`MIN_HIDDEN_IF_UNSENT`] unless no operator can fix the cause. This is best effort.
    pub(super) async fn keep_invisible(
        &self,
        queue: &QueueArn,
        copies: &[Sending],
        window: Window,
    ) {
        let entries: Vec<(&str, Duration)> = copies
            .iter()
            .filter(|copy| !self.has_lapsed(&copy.decision.delivery))
            .filter_map(|copy| {
                let least = if copy.is_too_long() { Duration::ZERO } else { MIN_HIDDEN_IF_UNSENT };
                let hidden = copy.copy.hidden_if_unsent?.max(least);
                Some((copy.receipt_handles().first()?.as_str(), hidden))
            })
            .collect();
        self.hide(queue, &entries, window).await;
    }

    /// Hides messages for this long from now, or as long as one receive allows.
    async fn hide(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
        mut window: Window,
    ) -> Vec<Confirmation> {
        if entries.iter().any(|(_, delay)| delay.is_zero()) {
            let asked = Instant::now();
            self.queue.last_receives().await;
            window.deadline += asked.elapsed();
        }
        let mut results = vec![Err(EntryError::unconfirmed()); entries.len()];
        let allowed = MAX_VISIBILITY.saturating_sub(RECEIVED_BEFORE + window.started.elapsed());
        // The limit is always the same, so that the receives of a long wait can be counted.
        let longest = allowed.min(MAX_VISIBILITY_WAIT);
        let wish = |at: usize, longest: Duration| (at, (entries[at].0, entries[at].1.min(longest)));
        let wishes = (0..entries.len()).map(|at| wish(at, longest)).collect();
        self.hide_as_wished(queue, wishes, &mut results, window.deadline).await;
        // SQS may have made a change that its response does not mention, so it is not shortened.
        let unconfirmed = Err(EntryError::unconfirmed());
        let is_refused = |result: &Confirmation| {
            *result != unconfirmed && result.as_ref().is_err_and(|error| error.sender_fault)
        };
        let refused = (0..entries.len()).filter(|at| is_refused(&results[*at]));
        let wishes = refused.map(|at| wish(at, MODEST_VISIBILITY)).collect();
        self.hide_as_wished(queue, wishes, &mut results, window.deadline).await;
        results
    }

    /// Asks until SQS has granted or finally refused each wish, or no further request would help.
    async fn hide_as_wished(
        &self,
        queue: &QueueArn,
        mut wishes: Vec<(usize, (&str, Duration))>,
        results: &mut [Confirmation],
        deadline: Instant,
    ) {
        let mut tries = Tries::until(deadline);
        let mut lost = 0;
        while !wishes.is_empty() && self.begin(&mut tries).await {
            let batch: Vec<(&str, Duration)> = wishes.iter().map(|(_, wish)| *wish).collect();
            match within(deadline, self.queue.change_visibility(queue, &batch)).await {
                Ok(confirmations) => {
                    for ((at, _), confirmation) in wishes.iter().zip(confirmations) {
                        results[*at] = confirmation;
                    }
                }
                Err(error) => {
                    for (at, _) in &wishes {
                        results[*at] = Err(EntryError::responded(&error.code, false));
                    }
                    // Twice the same time hides a message no longer than once.
                    match error.kind {
                        CallErrorKind::Unavailable => {}
                        CallErrorKind::Ambiguous if lost + 1 < MAX_AMBIGUOUS_TRIES => lost += 1,
                        CallErrorKind::Ambiguous
                        | CallErrorKind::Refused
                        | CallErrorKind::Malformed => return,
                    }
                }
            }
            wishes.retain(|(at, _)| results[*at].as_ref().is_err_and(|error| !error.sender_fault));
        }
    }
}
