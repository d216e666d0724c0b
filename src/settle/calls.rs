//! The three queue calls, each with its own way of trying again. None of them outlives the deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::copy::{Copy, Fate};
use super::{Settler, Window};
use crate::policy::{Backoff, Jitter, Spread};
use crate::queue::{
    CallError, CallErrorKind, Confirmation, EntryError, MAX_BATCH_ENTRIES, MAX_VISIBILITY, Outgoing, Queue, QueueArn,
};

/// One try of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// No send begins with less time than this: cut off, it may have been carried out, and the message would be there twice.
const LEAST_FOR_SEND: Duration = Duration::from_millis(25);
/// Most tries of one send. Five tries of 10 s and the pauses between them stay below the 60 s that a send may take.
const MAX_TRIES: u32 = 5;
/// An ambiguous answer is tried again at most once: each further try may store the copies once more.
const MAX_AMBIGUOUS_TRIES: u32 = 2;
/// The pauses between tries: 100 ms, doubled up to 5 s, shortened by up to a tenth at random.
const PAUSE: Backoff = Backoff::Exponential { base: Duration::from_millis(100), multiplier: 2.0 };
const MAX_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_JITTER: Jitter = Jitter::Proportional(0.1);

/// A message may have been received so much earlier than the invocation began: the longest batching window of an event source
/// mapping, 300 s, and a minute for the invocation to come about.
const RECEIVED_BEFORE: Duration = Duration::from_secs(300 + 60);
/// What is asked for when a longer visibility is refused.
const MODEST_VISIBILITY: Duration = Duration::from_secs(900);

impl<Q: Queue> Settler<Q> {
    /// Sends what is pending, and leaves each copy confirmed or not. Returns the trouble that remains, if any.
    pub(super) async fn send(&self, queue: &QueueArn, copies: &mut [Copy], deadline: Instant) -> Option<CallErrorKind> {
        let mut trouble = self.send_together(queue, copies, deadline).await;
        if trouble == Some(CallErrorKind::Malformed) && copies.len() > 1 {
            // One of them spoils the request for all: alone, only that one fails.
            for copy in copies {
                trouble = self.send_together(queue, std::slice::from_mut(copy), deadline).await;
            }
        }
        trouble
    }

    async fn send_together(&self, queue: &QueueArn, copies: &mut [Copy], deadline: Instant) -> Option<CallErrorKind> {
        let mut tries = Tries::default();
        loop {
            let now = self.clock.now();
            let pending = copies.iter_mut().filter(|copy| copy.is_pending());
            let mut entries: Vec<&mut Copy> = pending.collect();
            if entries.is_empty() || deadline.saturating_duration_since(Instant::now()) < LEAST_FOR_SEND {
                return None;
            }
            for copy in &mut entries {
                copy.set_timestamp(now);
            }
            let outgoing: Vec<Outgoing<'_>> = entries.iter().map(|copy| copy.outgoing()).collect();
            let answer = within(deadline, self.queue.send(queue, &outgoing)).await;
            let trouble = record(answer, entries)?;
            match tries.pause_after(trouble, self.sampler.sample()) {
                Some(pause) if Instant::now() + pause < deadline => sleep(pause).await,
                _ => return Some(trouble),
            }
        }
    }

    /// Deletes the originals of confirmed copies; what remains after one more try is left to the event source mapping.
    pub(super) async fn delete(&self, queue: &QueueArn, copies: &mut [Copy], deadline: Instant) {
        let first = copies.iter().filter_map(|copy| copy.receipt_handles().first());
        let handles: Vec<&str> = first.map(String::as_str).collect();
        let mut deleted = self.delete_handles(queue, &handles, deadline).await.into_iter();
        // Further deliveries of the same message in the same batch have receipt handles of their own.
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

    /// Deletes by handle, with one more try for those that failed. The error is the code.
    pub(super) async fn delete_handles(
        &self,
        queue: &QueueArn,
        handles: &[&str],
        deadline: Instant,
    ) -> Vec<Result<(), String>> {
        let mut results = vec![Err("NotDeleted".to_owned()); handles.len()];
        for _ in 0..2 {
            let left: Vec<usize> = (0..handles.len()).filter(|&at| results[at].is_err()).collect();
            if left.is_empty() || Instant::now() >= deadline {
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

    /// Best effort: lets the originals whose copies are not confirmed stay invisible for the delay that they were to have.
    pub(super) async fn keep_invisible(&self, queue: &QueueArn, copies: &[Copy], window: Window) {
        let entries: Vec<(&str, Duration)> = copies
            .iter()
            .filter_map(|copy| Some((copy.receipt_handles().first()?.as_str(), copy.fallback()?)))
            .collect();
        self.hide(queue, &entries, window).await;
    }

    /// Lets messages stay invisible for so long from now, or as long as SQS allows at most.
    pub(super) async fn hide(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
        window: Window,
    ) -> Vec<Confirmation> {
        let mut results = vec![Err(EntryError::unconfirmed()); entries.len()];
        let longest = MAX_VISIBILITY.saturating_sub(RECEIVED_BEFORE + window.started.elapsed());
        for longest in [longest, MODEST_VISIBILITY.min(longest)] {
            let left: Vec<usize> = (0..entries.len()).filter(|&at| results[at].is_err()).collect();
            if left.is_empty() || Instant::now() >= window.deadline {
                break;
            }
            let batch: Vec<(&str, Duration)> =
                left.iter().map(|&at| (entries[at].0, entries[at].1.min(longest))).collect();
            match within(window.deadline, self.queue.change_visibility(queue, &batch)).await {
                Ok(confirmations) => {
                    for (at, confirmation) in left.into_iter().zip(confirmations) {
                        results[at] = confirmation;
                    }
                }
                Err(error) => {
                    for at in left {
                        results[at] = Err(EntryError::answered(&error.code, false));
                    }
                    break;
                }
            }
        }
        results
    }
}

/// Notes the answer in the copies it is about; returns the trouble that remains, if any.
fn record(answer: Result<Vec<Confirmation>, CallError>, copies: Vec<&mut Copy>) -> Option<CallErrorKind> {
    match answer {
        Ok(confirmations) => {
            let mut trouble = None;
            let mut confirmations = confirmations.into_iter();
            for copy in copies {
                copy.fate = match confirmations.next() {
                    Some(Ok(())) => Fate::Confirmed,
                    Some(Err(error)) if !error.sender_fault => {
                        trouble = Some(CallErrorKind::Unavailable);
                        Fate::Pending(Some(error.code))
                    }
                    Some(Err(error)) => Fate::Refused(error.code),
                    None => Fate::Refused("Unconfirmed".to_owned()),
                };
            }
            trouble
        }
        Err(error) => {
            for copy in copies {
                copy.fate = match error.kind {
                    CallErrorKind::Refused => Fate::Refused(error.code.clone()),
                    CallErrorKind::Malformed | CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {
                        Fate::Pending(Some(error.code.clone()))
                    }
                };
            }
            Some(error.kind)
        }
    }
}

/// Counts the tries of one send.
#[derive(Default)]
struct Tries {
    made: u32,
    ambiguous: u32,
}

impl Tries {
    /// The pause before the next try; `None` when there is to be none.
    fn pause_after(&mut self, trouble: CallErrorKind, sample: f64) -> Option<Duration> {
        let again = match trouble {
            CallErrorKind::Refused | CallErrorKind::Malformed => false,
            CallErrorKind::Unavailable => true,
            CallErrorKind::Ambiguous => {
                self.ambiguous += 1;
                self.ambiguous < MAX_AMBIGUOUS_TRIES
            }
        };
        let delay = PAUSE.delay(self.made).min(MAX_PAUSE);
        self.made += 1;
        let spread = Spread { delay, base: PAUSE.base(), cap: MAX_PAUSE, previous: None };
        (again && self.made < MAX_TRIES).then(|| PAUSE_JITTER.apply(&spread, sample))
    }
}

async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let limit = deadline.min(Instant::now() + CALL_TIMEOUT);
    timeout_at(limit, call).await.unwrap_or_else(|_| Err(CallError::ambiguous("TimedOut")))
}
