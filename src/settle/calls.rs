//! The three queue calls. Each has its own bounds for further tries, and the policy decides within
//! them. No call outlives the deadline, or the future that makes it: nothing here runs in another
//! task.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{Sending, Sent, Settler, Window};
use crate::queue::{
    CallError, CallErrorKind, Confirmation, EntryError, MAX_BATCH_ENTRIES, MAX_VISIBILITY,
    MAX_VISIBILITY_WAIT, MESSAGE_TOO_LONG, Outgoing, Queue, QueueArn, RECEIVED_BEFORE,
};

/// The longest try of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// No send begins with less time than this. A send that is cut off may have been carried out, and
/// the message would exist twice.
const LEAST_FOR_SEND: Duration = Duration::from_millis(25);
/// The longest time for all tries of one chunk and the pauses between them, with any policy. If SQS
/// does not take a message for so long, the message waits by its visibility timeout.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// A call with an ambiguous response is tried again at most once: each further try of a send may
/// store the copies once more.
const MAX_AMBIGUOUS_TRIES: u32 = 2;
/// A delete is tried again at most once: the event source mapping deletes the rest.
const MAX_DELETE_TRIES: u32 = 2;

/// The least time for which an original is hidden if SQS does not confirm its copy. Each return of
/// the original uses a receive, not a retry, and with short delays five receives would pass in a
/// minute: SQS would move the message to the dead-letter queue before anybody can mend a permission.
const MIN_HIDDEN_IF_UNSENT: Duration = Duration::from_secs(300);

/// Every server takes a request of this length: it was SQS's own limit until 2025. Only of a longer one
/// is it true that it is too long; otherwise one wrong response would set a limit for all copies.
const LEAST_REQUEST: usize = 262_144;

/// The visibility timeout to ask for if SQS refuses a longer one.
const MODEST_VISIBILITY: Duration = Duration::from_secs(900);

impl<Q: Queue> Settler<Q> {
    /// Sends what is pending, and leaves each copy confirmed or not. Returns the error that
    /// remains, if any.
    pub(super) async fn send(
        &self,
        queue: &QueueArn,
        copies: &mut [Sending],
        deadline: Instant,
    ) -> Option<CallErrorKind> {
        let deadline = deadline.min(Instant::now() + SEND_TIMEOUT);
        let mut failed = self.send_together(queue, copies, deadline).await;
        if failed == Some(CallErrorKind::Malformed) && copies.len() > 1 {
            // One entry spoils the request for all. Sent alone, only that entry fails.
            failed = None;
            for copy in copies {
                failed = worse(
                    failed,
                    self.send_together(queue, std::slice::from_mut(copy), deadline).await,
                );
            }
        }
        failed
    }

    async fn send_together(
        &self,
        queue: &QueueArn,
        copies: &mut [Sending],
        deadline: Instant,
    ) -> Option<CallErrorKind> {
        let mut tries = Tries::until(deadline.checked_sub(LEAST_FOR_SEND).unwrap_or(deadline));
        let mut ambiguous_tries = 0;
        let mut failed = None;
        while self.begin(&mut tries).await {
            let now = self.clock.now();
            for copy in copies
                .iter_mut()
                .filter(|copy| copy.is_pending() && self.has_lapsed(&copy.decision.delivery))
            {
                copy.sent = Sent::Refused("VisibilityLapsed".to_owned());
            }
            let pending = copies.iter_mut().filter(|copy| copy.is_pending());
            let mut entries: Vec<&mut Sending> = pending.collect();
            if entries.is_empty() {
                return None;
            }
            for copy in &mut entries {
                copy.copy.set_timestamp(now);
            }
            let outgoing: Vec<Outgoing<'_>> = entries.iter().map(|copy| copy.outgoing()).collect();
            let response = within(deadline, self.queue.send(queue, &outgoing)).await;
            failed = record(response, entries);
            let again = match failed {
                None | Some(CallErrorKind::Refused | CallErrorKind::Malformed) => false,
                Some(CallErrorKind::Unavailable) => true,
                Some(CallErrorKind::Ambiguous) => {
                    ambiguous_tries += 1;
                    ambiguous_tries < MAX_AMBIGUOUS_TRIES
                }
            };
            if !again {
                break;
            }
        }
        failed
    }

    /// Pauses before a further try. Returns `false` if no try may follow, by the policy or for lack
    /// of time.
    async fn begin(&self, tries: &mut Tries) -> bool {
        if tries.made > 0 {
            let pause = self.calls.pause(tries.made, tries.pause, self.sampler.sample());
            let left = tries.latest.saturating_duration_since(Instant::now());
            let Some(pause) = pause.filter(|pause| *pause < left) else {
                return false;
            };
            sleep(pause).await;
            tries.pause = Some(pause);
        }
        tries.made += 1;
        Instant::now() < tries.latest
    }

    /// Deletes the originals of confirmed copies. After one more try, the event source mapping
    /// deletes the rest.
    pub(super) async fn delete(&self, queue: &QueueArn, copies: &mut [Sending], deadline: Instant) {
        let first = copies.iter().filter_map(|copy| copy.receipt_handles().first());
        let handles: Vec<&str> = first.map(String::as_str).collect();
        let mut deleted = self.delete_handles(queue, &handles, deadline).await.into_iter();
        // Further deliveries of the same message in the same batch have receipt handles of their
        // own.
        let more = copies.iter().flat_map(|copy| copy.receipt_handles().iter().skip(1));
        let more: Vec<&str> = more.map(String::as_str).collect();
        for chunk in more.chunks(MAX_BATCH_ENTRIES) {
            self.delete_handles(queue, chunk, deadline).await;
        }
        for copy in copies {
            copy.not_deleted = match copy.receipt_handles().first() {
                Some(_) => deleted.next().and_then(Result::err),
                None => Some("NoReceiptHandle".to_owned()),
            };
        }
    }

    /// Deletes by handle, with one more try for those that failed. A pause comes before that try
    /// even if only some entries failed, since the failure in SQS is then likelier to be over. The
    /// error is the code.
    pub(super) async fn delete_handles(
        &self,
        queue: &QueueArn,
        handles: &[&str],
        deadline: Instant,
    ) -> Vec<Result<(), String>> {
        let mut results = vec![Err("NotDeleted".to_owned()); handles.len()];
        let mut tries = Tries::until(deadline);
        for _ in 0..MAX_DELETE_TRIES {
            let left: Vec<usize> = (0..handles.len()).filter(|&at| results[at].is_err()).collect();
            if left.is_empty() || !self.begin(&mut tries).await {
                break;
            }
            let batch: Vec<&str> = left.iter().map(|&at| handles[at]).collect();
            match within(deadline, self.queue.delete(queue, &batch)).await {
                Ok(confirmations) => {
                    for (at, confirmation) in left.into_iter().zip(confirmations) {
                        results[at] = confirmation.map_err(|error| error.code);
                    }
                }
                Err(error) => left.into_iter().for_each(|at| results[at] = Err(error.code.clone())),
            }
        }
        results
    }

    /// Hides the originals of unconfirmed copies for the delay that they were to have, and at least
    /// for [`MIN_HIDDEN_IF_UNSENT`] unless nobody can mend the cause. This is best effort.
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

    /// Hides messages for so long from now, or as long as one receive allows.
    pub(super) async fn hide(
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
        // SQS may have carried out a wish that it did not mention, so that wish is not shortened.
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
                        results[*at] = Err(EntryError::answered(&error.code, false));
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

/// The worse of two results. A send without a response counts, since it may have stored its copies.
fn worse(one: Option<CallErrorKind>, other: Option<CallErrorKind>) -> Option<CallErrorKind> {
    match (one, other) {
        (Some(CallErrorKind::Ambiguous), _) | (_, Some(CallErrorKind::Ambiguous)) => {
            Some(CallErrorKind::Ambiguous)
        }
        _ => one.or(other),
    }
}

/// Notes the response in the copies it is about; returns the error that remains, if any.
fn record(
    response: Result<Vec<Confirmation>, CallError>,
    copies: Vec<&mut Sending>,
) -> Option<CallErrorKind> {
    match response {
        Ok(confirmations) => {
            let mut failed = None;
            let mut confirmations = confirmations.into_iter();
            for copy in copies {
                copy.sent = match confirmations.next() {
                    Some(Ok(())) => Sent::Confirmed,
                    Some(Err(error)) if !error.sender_fault => {
                        failed = Some(CallErrorKind::Unavailable);
                        Sent::NotYet(Some(error.code))
                    }
                    Some(Err(error)) => Sent::Refused(error.code),
                    None => Sent::Refused("Unconfirmed".to_owned()),
                };
            }
            failed
        }
        Err(error) => {
            // Alone in its request, a copy is the one that is meant.
            let is_too_long = match copies.as_slice() {
                [copy] if error.code == "BatchRequestTooLong" => copy.size() > LEAST_REQUEST,
                [_] => error.code == MESSAGE_TOO_LONG,
                _ => false,
            };
            for copy in copies {
                copy.sent = match error.kind {
                    _ if is_too_long => Sent::Refused(MESSAGE_TOO_LONG.to_owned()),
                    CallErrorKind::Refused => Sent::Refused(error.code.clone()),
                    CallErrorKind::Malformed
                    | CallErrorKind::Unavailable
                    | CallErrorKind::Ambiguous => Sent::NotYet(Some(error.code.clone())),
                };
            }
            Some(error.kind)
        }
    }
}

struct Tries {
    /// No try begins at this moment or later.
    latest: Instant,
    made: u32,
    /// The pause before the last try.
    pause: Option<Duration>,
}

impl Tries {
    fn until(latest: Instant) -> Self {
        Self { latest, made: 0, pause: None }
    }
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let limit = deadline.min(Instant::now() + CALL_TIMEOUT);
    timeout_at(limit, call).await.unwrap_or_else(|_| Err(CallError::timed_out()))
}
