//! The parts of the simulations: the world of a run, a function with its execution environments, the
//! store that they share, and the comparison of runs. All of them run in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION, EmbeddedSqs};
use requeue::policy::RetryPolicy;
use requeue::queue::{Outgoing, QueueArn};
use requeue::{Clock, DeadLetterMode, Message, RecursiveLoop, Sampler, Settings, SharedTable};
use serde_json::{Value, json};
use tokio::time::Instant;

mod comparison;
mod function;
mod table;

pub(crate) use comparison::{Comparison, Figures, Run, RunProgress, SimulationArguments};
pub(crate) use function::{BATCHING_WINDOW, Handled, SimulatedFunction, requests};
pub(crate) use table::SimulatedTable;

use crate::Error;

/// A fixed time: the milliseconds of the real one would make each run different.
const START: Duration = Duration::from_secs(1_800_000_000);
pub(crate) const CALL: Duration = Duration::from_millis(100);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) sqs: EmbeddedSqs,
    pub(crate) queue: QueueArn,
    pub(crate) dead_letters: QueueArn,
    pub(crate) settings: Settings,
}

impl World {
    pub(crate) fn new(seed: u64, policy: RetryPolicy) -> Result<Self, Error> {
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + START);
        let sqs = EmbeddedSqs::seeded(clock.clone(), DEFAULT_REGION, DEFAULT_ACCOUNT, seed);
        let dead_letters = sqs.create_queue("orders-dlq", [])?;
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":5}}"#);
        let queue = sqs.create_queue("orders", [("RedrivePolicy", redrive.as_str())])?;
        let mut settings = Settings::default();
        settings.policy = policy;
        settings.sampler = Sampler::seeded(seed);
        settings.recursive_loop = RecursiveLoop::Allow;
        settings.dead_letter = Some(DeadLetterMode::Annotate);
        Ok(Self { clock, sqs, queue, dead_letters, settings })
    }

    pub(crate) fn send(&self, number: u32) -> Result<String, Error> {
        self.send_for("", number)
    }

    pub(crate) fn send_for(&self, tenant: &str, number: u32) -> Result<String, Error> {
        let body = json!({ "order": number, "tenant": tenant }).to_string();
        Ok(self.sqs.put(&self.queue, &Outgoing::new(&body, &BTreeMap::new()))?)
    }
}

pub(crate) fn number(message: &Message) -> u32 {
    let body: Value = serde_json::from_str(message.body()).unwrap_or_default();
    body["order"].as_u64().and_then(|order| u32::try_from(order).ok()).unwrap_or_default()
}

pub(crate) fn shared_by(environments: u32, table: &SimulatedTable) -> SharedTable {
    let mut shared_table = SharedTable::by(Arc::new(table.clone()));
    shared_table.max_environments = environments;
    shared_table
}

/// The calls that a service takes: a bucket of tokens that refills completely in a second.
pub(crate) struct Bucket {
    rate: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl Bucket {
    pub(crate) fn empty(rate: f64) -> Self {
        Self { rate, tokens: 0.0, refilled_at: Instant::now() }
    }

    pub(crate) fn full(rate: f64) -> Self {
        Self { tokens: rate.max(1.0), ..Self::empty(rate) }
    }

    pub(crate) fn takes(&mut self) -> bool {
        let now = Instant::now();
        let refilled = now.duration_since(self.refilled_at).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + refilled).min(self.rate.max(1.0));
        self.refilled_at = now;
        let takes = self.tokens >= 1.0;
        if takes {
            self.tokens -= 1.0;
        }
        takes
    }
}
