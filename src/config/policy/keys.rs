//! The keys of the document and of the objects in it. Those of classes, rules and calls stand with
//! them.

use std::time::Duration;

use serde_json::Value;

use super::classes::{Entries, Entry};
use super::delays::{Backoffs, Calls, Jitters, Presets};
use super::json::Json;
use super::limits::{Limit, LimitList, Limited};
use super::object::{KeyTable, Keys, joined, keys};
use super::rules::RuleList;
use super::shapes::{
    AGE, COPIES, Count, DELAY, FACTOR, FAILURES, Given, HANDLERS, Ignored, KEEP, LONG_PAUSE, Maybe,
    Off, OneOf, Placed, RUN, SHARE, Seconds, Shape, WholeSeconds,
};
use crate::classify::Rules;
use crate::failure::FailureClass;
use crate::pointer::JsonPointer;
use crate::policy::{CircuitBreaker, Idempotency, Preset, RetryPolicy, WhenUnavailable};
use crate::queue::QueueUrl;
use crate::settings::DeadLetterMode;

#[derive(Clone)]
pub(super) struct Document {
    pub(super) preset: Preset,
    /// The policy of the preset with the values of the document, but for those of classes.
    pub(super) policy: RetryPolicy,
    pub(super) limited: Option<Limited>,
    pub(super) limits: Option<Vec<Limited>>,
    pub(super) globals: Entry,
    pub(super) jitter_percentage: Option<Given<f64>>,
    pub(super) entries: Vec<(Option<FailureClass>, Entry)>,
    pub(super) rules: Option<Rules>,
    pub(super) queue: QueueConfig,
    pub(super) queues: Vec<(String, Self)>,
    /// In the entry of a queue.
    pub(super) timeout: Option<Duration>,
    pub(super) concurrency: Option<u32>,
    pub(super) dead_letter: Option<DeadLetterMode>,
    pub(super) ignored: (),
}

impl Document {
    pub(super) fn of(preset: Preset, policy: RetryPolicy) -> Self {
        let (limited, limits) = Limited::of(&policy);
        Self {
            preset,
            limited,
            limits,
            policy,
            globals: Entry::default(),
            jitter_percentage: None,
            entries: Vec::new(),
            rules: None,
            queue: QueueConfig::default(),
            queues: Vec::new(),
            timeout: None,
            concurrency: None,
            dead_letter: None,
            ignored: (),
        }
    }

    /// Reads the values of a table's keys over those of the preset, except those of classes.
    pub(super) fn filled(json: &Json<'_>, table: &KeyTable<Self>) -> Self {
        let keys = json.fields(&table.names());
        let preset = keys.and_then(|keys| Presets.read(keys.get("preset")?));
        let built_in = preset.unwrap_or(Preset::STANDARD);
        let policy = built_in.policy();
        let mut document = Self::of(built_in, policy);
        document.globals.is_refused = !table.fill(json, &mut document);
        if document.limited.is_some() && document.limits.is_some() {
            let [limits, limited] = ["limits", "rateLimit"].map(|key| json.path_to(key));
            json.problems.note(format!("{limits} sets the same as {limited}: remove one of them"));
        }
        document
    }
}

/// The settings that a policy document names for its queue, as `queueConfig`. Requeue does not
/// apply them: `requeue check` compares them with what the policy needs, and `requeue
/// schedule` counts with `maxReceiveCount` and `visibilityTimeout`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// How long a received message is hidden: 0 to 43,200 s.
    pub visibility_timeout: Option<Duration>,
    /// How long the queue keeps a message: 60 s to 14 days.
    pub message_retention: Option<Duration>,
    /// The receives after which the redrive policy moves a message: 1 to 1,000.
    pub max_receive_count: Option<u32>,
    /// How long a new message is delayed: 0 to 900 s.
    pub delay: Option<Duration>,
    /// How long a receive waits for a message: 0 to 20 s.
    pub receive_wait: Option<Duration>,
}

const POLICY: Keys<Document> = keys! { Document:
    "preset", Presets => preset;
    "maxRetries", COPIES => policy.max_retries;
    "baseDelayMultiplier", Placed(FACTOR) => globals.multiplier;
    "maxDelaySeconds", Placed(DELAY) => globals.max_delay;
    "backoff", Placed(Backoffs) => globals.backoff;
    "jitter", Placed(Jitters) => globals.jitter;
    "jitterPercentage", Placed(SHARE) => jitter_percentage;
    "totalTimeoutSeconds", Maybe(AGE) => globals.total_timeout;
    "maxRetryAfterSeconds", AGE => policy.max_retry_after;
    "messageTtlSeconds", Maybe(AGE) => policy.message_ttl;
    "maxDeferrals", COPIES => policy.max_deferrals;
    "maxDeferralSeconds", DELAY => policy.max_deferral;
    "maxPostponements", COPIES => policy.max_postponements;
    "maxPauseSeconds", PAUSES => policy.max_pause;
    "circuitBreaker", CIRCUIT_BREAKERS => policy.circuit_breaker;
    "rateLimit", Maybe(Limit) => limited;
    "limits", Maybe(LimitList) => limits;
    "idempotency", Maybe(IDEMPOTENCY) => policy.idempotency;
    "errorConfigs", Entries => entries;
    "rules", Maybe(RuleList) => rules;
    "queueConfig", QUEUE => queue;
};

const OF_ALL: Keys<Document> = keys! { Document:
    "$schema", Ignored => ignored;
    "sqsCalls", Calls::Settling => policy.sqs_calls;
    "receiveCalls", Calls::Receiving => policy.receive_calls;
    "queues", Queues => queues;
};

/// The other keys of the entry of one queue. Those of the document count for the whole process.
const OF_ONE: Keys<Document> = keys! { Document:
    "timeoutSeconds", Maybe(RUN) => timeout;
    "concurrency", Maybe(HANDLERS) => concurrency;
    "deadLetter", Maybe(DeadLetters) => dead_letter;
};

pub(super) const DOCUMENT: KeyTable<Document> = KeyTable {
    required: &[],
    default: || Document::of(Preset::STANDARD, Preset::STANDARD.policy()),
    keys: &joined::<_, { POLICY.len() + OF_ALL.len() }>(POLICY, OF_ALL),
};

pub(super) const ENTRY: KeyTable<Document> =
    KeyTable { keys: &joined::<_, { POLICY.len() + OF_ONE.len() }>(POLICY, OF_ONE), ..DOCUMENT };

const CIRCUIT_BREAKER: KeyTable<CircuitBreaker> = KeyTable {
    required: &[],
    default: CircuitBreaker::default,
    keys: keys! { CircuitBreaker:
        "threshold", FAILURES => threshold;
        "resetTimeoutSeconds", LONG_PAUSE => reset_timeout;
    },
};

const CIRCUIT_BREAKERS: Off<KeyTable<CircuitBreaker>> =
    Off(CIRCUIT_BREAKER, |json| json.members().is_some(), || "an object".to_owned());

const PAUSES: Off<Seconds> =
    Off(LONG_PAUSE, |json| json.seconds().is_some(), || LONG_PAUSE.0.words());

const IDEMPOTENCY: KeyTable<Idempotency> = KeyTable {
    required: &[],
    default: Idempotency::default,
    keys: keys! { Idempotency:
        "key", Maybe(Pointer) => key;
        "keepSeconds", KEEP => keep;
        "whenUnavailable", WHEN_UNAVAILABLE => when_unavailable;
    },
};

/// The settings of a queue, within the limits of SQS. Source: API reference, `SetQueueAttributes`;
/// `maxReceiveCount`: dead-letter queues.
const QUEUE: KeyTable<QueueConfig> = KeyTable {
    required: &[],
    default: QueueConfig::default,
    keys: keys! { QueueConfig:
        "visibilityTimeout", Maybe(WholeSeconds(Count { min: 0, max: 43_200 })) => visibility_timeout;
        "messageRetentionPeriod", Maybe(WholeSeconds(Count { min: 60, max: 1_209_600 })) => message_retention;
        "maxReceiveCount", Maybe(Count { min: 1, max: 1_000 }) => max_receive_count;
        "delaySeconds", Maybe(WholeSeconds(Count { min: 0, max: 900 })) => delay;
        "receiveMessageWaitTimeSeconds", Maybe(WholeSeconds(Count { min: 0, max: 20 })) => receive_wait;
    },
};

const WHEN_UNAVAILABLE: OneOf<WhenUnavailable> =
    OneOf(&[("call", WhenUnavailable::Call), ("defer", WhenUnavailable::Defer)]);

/// The most queues with an entry. A worker asks SQS for each.
pub(super) const MAX_QUEUES: usize = 100;

pub(super) struct Queues;

pub(super) struct DeadLetters;

impl Shape for Queues {
    type Value = Vec<(String, Document)>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let Some(members) = json.members().filter(|members| members.len() <= MAX_QUEUES) else {
            return json.refuse(&format!("an object of at most {MAX_QUEUES} queues"));
        };
        let mut entries: Self::Value = Vec::new();
        for (name, mut entry) in members {
            entry.path = json.path_to(&json.shown(&name));
            let path = &entry.path;
            if !is_queue_name(&name) {
                json.problems.note(format!(
                    "{path} is no name of a queue: use the last part of the queue's ARN"
                ));
            } else if entries.iter().any(|(other, _)| *other == name) {
                json.problems.note(format!("{path} stands more than once: keep one of them"));
            }
            entries.push((name, Document::filled(&entry, &ENTRY)));
        }
        Some(entries)
    }
}

/// Source: SQS API reference, `CreateQueue`.
fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !stem.is_empty() && name.len() <= 80 && stem.bytes().all(is_allowed)
}

impl Shape for DeadLetters {
    type Value = DeadLetterMode;

    fn read(&self, json: &Json<'_>) -> Option<DeadLetterMode> {
        let mode = json.text().and_then(|text| match text.as_str() {
            "redrive" => Some(DeadLetterMode::Redrive),
            "annotate" => Some(DeadLetterMode::Annotate),
            url => url.parse().ok().map(DeadLetterMode::Direct),
        });
        mode.or_else(|| json.refuse("redrive, annotate, or the URL of the dead-letter queue"))
    }

    fn write(&self, mode: &DeadLetterMode) -> Option<Value> {
        // The region does not matter for the name.
        let direct = |url: &QueueUrl| format!("direct to {}", url.arn("aws", "us-east-1").name());
        Some(mode.queue().map_or_else(|| mode.as_str().into(), |url| direct(url).into()))
    }
}

pub(super) struct Pointer;

impl Shape for Pointer {
    type Value = JsonPointer;

    fn read(&self, json: &Json<'_>) -> Option<JsonPointer> {
        let pointer = json.text().and_then(|text| text.parse().ok());
        let allowed = "a JSON pointer such as /orderId, of at most 16 names and 1024 bytes";
        pointer.or_else(|| json.refuse(allowed))
    }

    fn write(&self, pointer: &JsonPointer) -> Option<Value> {
        Some(pointer.to_string().into())
    }
}
