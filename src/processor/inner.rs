//! The values that all batches of a processor share, and their creation from the settings.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Once};

use tokio::runtime::Handle;

use super::memory::{DeadLettered, Memory};
use super::pacer::Pacer;
use crate::classify::Rules;
use crate::clock::{Clock, Sampler};
use crate::delivery::{Decoder, Delivery};
use crate::disposition::Strategy;
use crate::gate::{Limiter, Protection};
use crate::observer::Observers;
use crate::plan::Planner;
use crate::policy::{FairShares, RetryPolicy};
use crate::queue::{Queue, QueueArn, Record};
use crate::sender::Senders;
use crate::settings::{DeadLetterMode, Limits, Mode, NO_TABLE, QueueSettings, Settings};
use crate::settle::{MaxLengths, SendPause, Settler};
use crate::shared_table::{Events, SharedPauses, TableClient};
use crate::telemetry;
use crate::wire::Wrap;

pub(super) struct Inner {
    pub(super) clock: Clock,
    pub(super) sampler: Sampler,
    pub(super) policies: Policies,
    pub(super) decoder: Decoder,
    pub(super) mode: Mode,
    wrap: Wrap,
    /// Messages that this process dead-lettered and that are still in their queue.
    pub(super) dead_lettered: Memory<DeadLettered>,
    /// Messages that are done or copied, and may still be in their queue.
    pub(super) not_deleted: Memory<()>,
    pub(super) observers: Observers,
    pub(super) handlers: Handle,
    /// Whether the host has written the log line that it writes once.
    pub(super) said: Once,
    has_lapsed: Box<dyn Fn(&Delivery) -> bool + Send + Sync>,
    max_bytes: Box<dyn Fn(&QueueArn) -> usize + Send + Sync>,
}

impl Inner {
    pub(super) fn new<Q: Queue>(queue: Q, settings: Settings) -> (Self, Arc<Settler<Q>>) {
        assert!(!settings.lacks_table(), "{NO_TABLE}");
        let mut settings = telemetry::completed(settings);
        let clock = settings.clock.take().unwrap_or_else(|| queue.clock());
        let client = settings.shared_table.take().map(|shared| {
            let client = TableClient::new(shared, clock.clone());
            Arc::new(client.observed_by(settings.observers.clone()))
        });
        let max_retries =
            |(queue, own): (&String, &QueueSettings)| (queue.clone(), own.policy.max_retries);
        let own_max_retries = settings.queues.iter().map(max_retries).collect();
        let policies = Policies::new(&mut settings, client.as_ref());
        let Settings {
            policy,
            strategy,
            recursive_loop,
            mode,
            wrap,
            producer_limits,
            trusted_senders,
            observers,
            sampler,
            handlers,
            ..
        } = settings;
        let strategy = match mode {
            Mode::Requeue => strategy,
            // The mode `report` sends no copy.
            Mode::Report => Strategy::Visibility,
        };
        let settler = Arc::new(Settler {
            queue: Arc::new(queue),
            clock: clock.clone(),
            sampler: sampler.clone(),
            calls: policy.sqs_calls,
            pause: SendPause::default(),
            lengths: MaxLengths::default(),
        });
        let measuring = Arc::clone(&settler);
        let lapsing = Arc::clone(&settler);
        let decoder = Decoder {
            max_retries: policy.max_retries,
            own_max_retries,
            strategy,
            recursive_loop,
            producer_limits,
            senders: trusted_senders.map(Senders::new),
            ..Decoder::default()
        };
        let inner = Self {
            clock,
            sampler,
            policies,
            decoder,
            mode,
            wrap,
            dead_lettered: Memory::default(),
            not_deleted: Memory::default(),
            observers,
            handlers: handlers.unwrap_or_else(Handle::current),
            said: Once::new(),
            has_lapsed: Box::new(move |delivery| lapsing.has_lapsed(delivery)),
            max_bytes: Box::new(move |queue| measuring.lengths.of(queue)),
        };
        (inner, settler)
    }

    pub(super) fn policy(&self, delivery: &Delivery) -> &QueuePolicy {
        self.policies.of(delivery.queue.as_deref())
    }

    /// The limits of a batch, all of one queue.
    pub(super) fn limits(&self, batch: &[Record]) -> &Limits {
        let queue = batch.first().and_then(|record| record.queue.as_deref());
        &self.policies.of(queue).limits
    }

    /// Whether another receiver may have the message meanwhile.
    pub(super) fn has_lapsed(&self, delivery: &Delivery) -> bool {
        (self.has_lapsed)(delivery)
    }

    pub(super) fn planner(&self, delivery: &Delivery) -> Planner<'_> {
        let Self { mode, wrap, max_bytes, .. } = self;
        let QueuePolicy { policy, dead_letter, .. } = self.policy(delivery);
        Planner { policy, mode: *mode, dead_letter, wrap: *wrap, max_bytes }
    }
}

pub(super) struct Policies {
    default: QueuePolicy,
    own: HashMap<String, QueuePolicy>,
}

pub(super) struct QueuePolicy {
    pub(super) policy: RetryPolicy,
    pub(super) rules: Rules,
    limits: Limits,
    dead_letter: DeadLetterMode,
    pub(super) protection: Arc<Protection>,
    /// The pauses and circuits of all execution environments, if they share a table.
    pub(super) pauses: Option<Arc<SharedPauses>>,
    /// The reservations of the rate limits: the policy's, and those of the handler's scopes.
    pub(super) slots: Slots,
    /// The last gates before the calls.
    pub(super) pacer: Pacer,
    /// The events that are handled once, if the policy has `idempotency`.
    pub(super) events: Option<Events>,
    /// Counts attempts, if the settings have a table and dead letters are sent.
    pub(super) counts: Option<Arc<TableClient>>,
    /// The weights of tenants that share a rate limit, by the names of their values.
    pub(super) weights: BTreeMap<String, u8>,
}

pub(super) enum Slots {
    /// This execution environment has the limits alone.
    Own(Box<Limiter>),
    /// All execution environments share the limits.
    Shared(Arc<SharedPauses>),
}

impl QueuePolicy {
    /// `queue` is empty for the policy of all queues without their own.
    fn new(settings: Settings, queue: &str, client: Option<&Arc<TableClient>>) -> Self {
        let Settings { policy, rules, detail_text, limits, dead_letter, mode, .. } = settings;
        let dead_letter = match mode {
            Mode::Requeue => dead_letter.unwrap_or_default(),
            Mode::Report => DeadLetterMode::Redrive,
        };
        let protection = Protection::new(&policy);
        let pauses = client.map(|client| SharedPauses::new(client, &policy, queue));
        let slots = match &pauses {
            None => Slots::Own(Box::default()),
            Some(pauses) => Slots::Shared(Arc::clone(pauses)),
        };
        let pauses = pauses.filter(|pauses| pauses.may_pause());
        let events = client.zip(policy.idempotency.clone());
        let events =
            events.map(|(client, idempotency)| Events::new(Arc::clone(client), idempotency));
        let counts = client.filter(|_| matches!(dead_letter, DeadLetterMode::Direct(_))).cloned();
        let weights = policy.fair_shares.as_ref().map(FairShares::by_name).unwrap_or_default();
        Self {
            policy,
            rules: rules.keeping(detail_text),
            limits,
            dead_letter,
            protection,
            pauses,
            slots,
            pacer: Pacer::default(),
            events,
            counts,
            weights,
        }
    }
}

impl Policies {
    /// Takes the settings of single queues.
    fn new(settings: &mut Settings, client: Option<&Arc<TableClient>>) -> Self {
        let queues = mem::take(&mut settings.queues).into_iter();
        let own = queues.map(|(queue, own)| {
            let mut settings = settings.clone();
            settings.apply(own);
            let policy = QueuePolicy::new(settings, &queue, client);
            (queue, policy)
        });
        Self { own: own.collect(), default: QueuePolicy::new(settings.clone(), "", client) }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &QueuePolicy> {
        self.own.values().chain([&self.default])
    }

    pub(super) fn of(&self, queue: Option<&QueueArn>) -> &QueuePolicy {
        if self.own.is_empty() {
            return &self.default;
        }
        queue.and_then(|queue| self.own.get(queue.name())).unwrap_or(&self.default)
    }
}
