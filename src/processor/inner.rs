//! The values that all batches of a processor share.

use std::sync::{Arc, Once};

use tokio::runtime::Handle;

use super::given_up::GivenUp;
use super::memory::Memory;
use super::policies::{Policies, QueuePolicy};
use crate::classify::Rules;
use crate::delivery::{Decoder, Delivery};
use crate::disposition::Strategy;
use crate::fleet::{AttemptCounts, Fleet};
use crate::observer::Observers;
use crate::plan::{Decision, Planned, Planner};
use crate::policy::RetryPolicy;
use crate::queue::Queue;
use crate::report::Settlement;
use crate::sender::Senders;
use crate::settings::{DeadLetterMode, Limits, Mode, NO_STORE, RecursiveLoop, Settings};
use crate::settle::{SendHold, Settled, Settler};
use crate::telemetry;
use crate::wire::Wrap;

pub(super) struct Inner<H, Q> {
    pub(super) handler: Arc<H>,
    pub(super) settler: Settler<Q>,
    pub(super) policies: Policies,
    pub(super) rules: Rules,
    pub(super) limits: Limits,
    pub(super) decoder: Decoder,
    pub(super) recursive_loop: RecursiveLoop,
    pub(super) dead_letter: DeadLetterMode,
    pub(super) mode: Mode,
    pub(super) wrap: Wrap,
    pub(super) given_up: GivenUp,
    /// Messages that are done or copied, and may still be in their queue.
    pub(super) not_deleted: Memory<()>,
    /// The counts of attempts, if the settings have a store and dead letters are sent.
    pub(super) counts: Option<AttemptCounts>,
    pub(super) observers: Observers,
    pub(super) handlers: Handle,
    /// Whether the host has logged the line that it logs once.
    pub(super) said: Once,
}

impl<H, Q: Queue> Inner<H, Q> {
    pub(super) fn new(handler: H, queue: Q, settings: Settings) -> Self {
        assert!(!settings.lacks_store(), "{NO_STORE}");
        let Settings {
            policy,
            queue_policies,
            rules,
            limits,
            strategy,
            recursive_loop,
            dead_letter,
            mode,
            wrap,
            producer_limits,
            trusted_senders,
            coordination,
            observers,
            clock,
            sampler,
            handlers,
            ..
        } = telemetry::completed(settings);
        let (strategy, dead_letter) = match mode {
            Mode::Requeue => (strategy, dead_letter.unwrap_or_default()),
            // The mode `report` sends nothing.
            Mode::Report => (Strategy::Visibility, DeadLetterMode::Redrive),
        };
        let calls = policy.sqs_calls.clone();
        let clock = clock.unwrap_or_else(|| queue.clock());
        let fleet = coordination.map(|shared| Arc::new(Fleet::new(shared, clock.clone())));
        let counts = fleet.clone().filter(|_| matches!(dead_letter, DeadLetterMode::Direct(_)));
        let counts = counts.map(AttemptCounts::new);
        let settler =
            Settler { queue: Arc::new(queue), clock, sampler, calls, hold: SendHold::default() };
        let handlers = handlers.unwrap_or_else(Handle::current);
        let handler = Arc::new(handler);
        let max_retries =
            |(queue, policy): (&String, &RetryPolicy)| (queue.clone(), policy.max_retries);
        let decoder = Decoder {
            max_retries: policy.max_retries,
            own_max_retries: queue_policies.iter().map(max_retries).collect(),
            strategy,
            producer_limits,
            senders: trusted_senders.map(Senders::new),
            ..Decoder::default()
        };
        Self {
            handler,
            settler,
            policies: Policies::new(policy, queue_policies, fleet.as_ref()),
            rules,
            limits,
            decoder,
            recursive_loop,
            dead_letter,
            mode,
            wrap,
            given_up: GivenUp::default(),
            not_deleted: Memory::default(),
            counts,
            observers,
            handlers,
            said: Once::new(),
        }
    }

    /// The policy for a delivery, with its pauses and circuits.
    pub(super) fn policy(&self, delivery: &Delivery) -> &QueuePolicy {
        self.policies.of(delivery.queue.as_deref())
    }

    /// Remembers a message that has a copy. SQS also confirms a delete by the receipt handle of an
    /// earlier receive, which deletes nothing: the message would be handled beside its copy.
    pub(super) fn note_copied(&self, Settled { decision, settlement }: &Settled) {
        if matches!(settlement, Settlement::Moved | Settlement::MovedNotDeleted { .. }) {
            self.not_deleted.note(&decision.delivery, self.settler.clock.now(), ());
        }
    }

    pub(super) fn planner(&self, delivery: &Delivery) -> Planner<'_> {
        let Self { mode, dead_letter, wrap, .. } = self;
        let QueuePolicy { policy, .. } = self.policy(delivery);
        Planner { policy, mode: *mode, dead_letter, wrap: *wrap }
    }

    /// Step 6, plan: how a decision is carried out, and whether its successors may proceed.
    pub(super) fn plan(&self, decision: Decision) -> Planned {
        let is_lapsed = self.settler.has_lapsed(&decision.delivery);
        self.planner(&decision.delivery).plan(decision, is_lapsed)
    }
}
