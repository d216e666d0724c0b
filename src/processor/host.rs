//! The processor for a host that receives and deletes messages itself: the worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::groups::SUSPICIOUS_RECEIVES;
use super::inner::Inner;
use super::turn::{Deadlines, Stop};
use super::{BatchProcessor, groups};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Strategy};
use crate::gate::{NotPermitted, Standstill};
use crate::handler::Handler;
use crate::message::Body;
use crate::observer::Event;
use crate::queue::{Queue, QueueArn, Record};
use crate::report::Report;
use crate::scope::Scope;
use crate::settings::Mode;
use crate::settle::{Deleted, Settled};

/// The deletes of a batch, by message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deletes {
    /// Messages that were settled on an earlier receive.
    pub(crate) known: usize,
    pub(crate) deleted: Deleted,
}

/// A pause or an open circuit, as [`BatchProcessor::pauses`] lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopePause {
    /// The scope of the messages that wait.
    pub scope: Scope,
    /// [`Deferral::Paused`] or [`Deferral::CircuitOpen`].
    pub reason: Deferral,
    /// The time until any message may probe; zero if messages probe, or if the next one will.
    pub rest: Duration,
}

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// As [`process`](Self::process), for a host without a poller. Each message is deleted as soon
    /// as it is done, however long the others take. If a message could not be deleted, its next
    /// receive deletes it without a call. `called` runs when a message of a standard queue needs no
    /// call any more. In a FIFO group, SQS delivers its successors only after the delete.
    pub(crate) async fn process_and_delete(
        &self,
        records: Vec<Record>,
        deadline: Instant,
        stop: &Stop,
        mut called: impl FnMut(),
    ) -> (Report, Deletes) {
        let Self { settler, inner, .. } = self;
        let not_deleted = &inner.not_deleted;
        let limits = inner.limits(&records);
        let deadlines = Deadlines::new(Instant::now(), deadline, limits, stop.clone());
        let deadlines = Deadlines { deletes_done: true, ..deadlines };
        let until = deadlines.window.deadline;
        inner.observers.tell(&Event::Received { messages: records.len() });
        let mut deliveries = inner.decoder.decode(records, self.clock(), deadline).await;
        let now = settler.clock.now();
        let known: Vec<_> = deliveries
            .extract_if(.., |delivery| not_deleted.find(delivery, now).is_some())
            .map(Arc::new)
            .collect();
        let known_count = known.len();
        let note = |delivery: &Delivery| not_deleted.note(delivery, settler.clock.now(), ());
        let mut settled = Vec::new();
        let working = async {
            let mut deleted = Deleted::default();
            for round in groups::rounds(deliveries) {
                let (done, mut deleting) = mpsc::unbounded_channel();
                let settled = &mut settled;
                // This closure owns the sender, so that deleting ends when settling has ended.
                let settle = move |one: Settled| {
                    if let Some(delivery) = one.to_delete() {
                        let _ = done.send(delivery);
                    } else if settler.has_lapsed(&one.decision.delivery) {
                        self.inner.note_copied(&one);
                    }
                    settled.push(one);
                };
                let working = self.work(round, &deadlines, settle, &mut called);
                let done = stream::poll_fn(move |context| deleting.poll_recv(context));
                deleted += tokio::join!(working, settler.delete_done(done, until, note)).1;
            }
            deleted
        };
        let deleting = settler.delete_done(stream::iter(known), until, note);
        let (mut all, again) = tokio::join!(working, deleting);
        all += again;
        let deletes = Deletes { known: known_count, deleted: all };
        (self.inner.report(settled, deadlines.window.started), deletes)
    }

    /// Whether one of these messages of a standard queue may have ended the process.
    pub(crate) fn has_suspects(&self, records: &[Record]) -> bool {
        self.inner.decoder.strategy == Strategy::Copy
            && records.iter().any(|record| record.receive_count >= Some(SUSPICIOUS_RECEIVES))
    }

    /// The standstill of a queue, if most of its messages could now only be deferred. The host need
    /// not receive them.
    pub(crate) fn standstill(&self, queue: &QueueArn) -> Option<Standstill> {
        match self.inner.mode {
            Mode::Requeue => {
                self.inner.policies.of(Some(queue)).protection.standstill(self.clock().now())
            }
            Mode::Report => None,
        }
    }

    /// The current pauses and open circuits of all queues, ordered by their end. With a table, they
    /// include those of all execution environments, as last seen. If a scope has a pause and an open
    /// circuit, the longer one.
    pub fn pauses(&self) -> Vec<ScopePause> {
        let Inner { mode, policies, .. } = &*self.inner;
        let policies = policies.all().filter(|_| *mode == Mode::Requeue);
        let mut pauses: Vec<ScopePause> = policies
            .flat_map(|policy| {
                let own = policy.protection.pauses(self.clock().now());
                let shared = policy.pauses.iter().flat_map(|pauses| pauses.all());
                let mut longest: HashMap<Scope, NotPermitted> = HashMap::new();
                for (scope, paused) in own.into_iter().chain(shared) {
                    let known = longest.entry(scope).or_insert(paused);
                    if paused.rest > known.rest {
                        *known = paused;
                    }
                }
                longest
            })
            .map(|(scope, NotPermitted { why, rest })| ScopePause { scope, reason: why, rest })
            .collect();
        pauses.sort_by_key(|pause| (pause.rest, pause.scope.to_string()));
        pauses
    }
}
