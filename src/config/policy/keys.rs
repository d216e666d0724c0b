//! The keys of the document: one table, from which it is read and from which its schema is made.

use std::time::Duration;

use super::calls::Calls;
use super::protection::{Breakers, Pauses};
use super::queue::QueueConfigs;
use super::rules::{Header, Label, Matches, RuleList, Status, Text, Words as Phrases};
use super::shapes::{
    Backoffs, Count, Entries, Ignored, Jitters, Many, Number, Presets, Seconds, Shape, Words,
};
use crate::failure::FailureClass;
use crate::policy::Jitter;

/// Every retry and every deferral is a message sent, received and deleted; nobody wants to pay for
/// more of one message.
const MAX_COPIES: u32 = 10_000;
/// No delay, since a delay of nothing is a loop at full speed. On the wire it is rounded up to a
/// whole second.
const MIN_DELAY: f64 = 0.001;
/// Allowances are renewed once a day at the latest; what waits longer is a schedule and not a
/// retry.
const MAX_DELAY: f64 = 86_400.0;
/// Budgets are spent in whole seconds.
const MIN_AGE: f64 = 1.0;
/// A queue keeps a message for 14 days at most, and the last wait may add 900 s to a message's age.
/// Source: SQS message quotas.
const MAX_AGE: f64 = 14.0 * 86_400.0 - 900.0;
/// Beyond this the second delay is the cap in any case.
const MAX_MULTIPLIER: f64 = 100.0;
/// With the default pauses these take 20 s; what lasts longer, the message waits for in the queue.
const MAX_ATTEMPTS: u32 = 10;
/// A send takes no longer, all its tries included.
const MAX_PAUSE: f64 = 60.0;
/// A rule names no longer delay than a callee may by default, which is the longest visibility
/// timeout of SQS.
const MAX_RULED: f64 = 43_200.0;
/// A callee that is left alone for longer is not asked whether it works again.
const MAX_HOLD: f64 = 900.0;
/// More failures than this in a row open no circuit before the damage is done.
const MAX_THRESHOLD: u32 = 1_000;
/// A list of more delays is a curve.
pub(super) const MAX_LISTED: usize = 100;
/// Every failure is held against every rule.
pub(super) const MAX_RULES: usize = 100;

/// How delays grow, as the document says it; a list brings its delays.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Growth {
    Exponential,
    Linear,
    Fibonacci,
    Constant,
    List { first: Duration, then: Vec<Duration> },
}

/// The classes of the document. Both names of each are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    RateLimit,
    Quota,
    Temporary,
    /// Serves the classes without an entry.
    Default,
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        let found = CLASSES.iter().find(|(_, class)| *class == self);
        found.map_or("", |(name, _)| name)
    }
}

pub(super) const CLASSES: [(&str, Class); 7] = [
    ("RATE_LIMIT", Class::RateLimit),
    ("RATE_LIMIT_EXCEEDED", Class::RateLimit),
    ("QUOTA", Class::Quota),
    ("QUOTA_EXCEEDED", Class::Quota),
    ("TEMPORARY", Class::Temporary),
    ("TEMPORARY_ERROR", Class::Temporary),
    ("DEFAULT", Class::Default),
];

/// What a rule may make of a failure.
const OUTCOMES: Words<FailureClass> = Words(&[
    ("RATE_LIMIT", FailureClass::RateLimit),
    ("RATE_LIMIT_EXCEEDED", FailureClass::RateLimit),
    ("QUOTA", FailureClass::Quota),
    ("QUOTA_EXCEEDED", FailureClass::Quota),
    ("TEMPORARY", FailureClass::Temporary),
    ("TEMPORARY_ERROR", FailureClass::Temporary),
    ("NON_RETRYABLE", FailureClass::NonRetryable),
]);

pub(super) const GROWTHS: Words<Growth> = Words(&[
    ("exponential", Growth::Exponential),
    ("linear", Growth::Linear),
    ("fibonacci", Growth::Fibonacci),
    ("constant", Growth::Constant),
]);

pub(super) const JITTERS: Words<Jitter> = Words(&[
    ("full", Jitter::Full),
    ("equal", Jitter::Equal),
    ("decorrelated", Jitter::Decorrelated),
    ("none", Jitter::None),
]);

/// A key, and what may stand there.
pub(super) struct Key<S> {
    pub(super) name: &'static str,
    /// Shown by editors.
    #[cfg(test)]
    about: &'static str,
    pub(super) shape: S,
}

/// What the tables know of a key.
pub(super) trait Listed: Sync {
    fn name(&self) -> &'static str;
    #[cfg(test)]
    fn schema(&self) -> serde_json::Value;
}

impl<S: Shape + Sync> Listed for Key<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(test)]
    fn schema(&self) -> serde_json::Value {
        let mut schema = self.shape.schema();
        schema["description"] = self.about.into();
        schema
    }
}

const COPIES: Count = Count { min: 0, max: MAX_COPIES };
const ATTEMPTS: Count = Count { min: 1, max: MAX_ATTEMPTS };
pub(super) const DELAY: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_DELAY, what: "a number of seconds" });
const RULED: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_RULED, what: "a number of seconds" });
const PAUSE: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_PAUSE, what: "a number of seconds" });
pub(super) const HOLD: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_HOLD, what: "a number of seconds" });
const FAILURES: Count = Count { min: 1, max: MAX_THRESHOLD };
const AGE: Seconds = Seconds(Number { min: MIN_AGE, max: MAX_AGE, what: "a number of seconds" });
const FACTOR: Number = Number { min: 1.0, max: MAX_MULTIPLIER, what: "a number" };
pub(super) const SHARE: Number = Number { min: 0.0, max: 1.0, what: "a share" };

/// Writes each key once: as a constant to read by, and in the table of its object.
macro_rules! keys {
    ($($constant:ident, $name:literal, $shape:ty = $value:expr, $about:literal;)*) => {
        $(
            pub(crate) const $constant: Key<$shape> = Key {
                name: $name,
                #[cfg(test)]
                about: $about,
                shape: $value,
            };
        )*
        pub(crate) const ALL: &[&dyn Listed] = &[$(&$constant),*];
    };
}

/// The keys of the document itself.
pub(super) mod global {
    use super::{
        AGE, Backoffs, Breakers, COPIES, Calls, Count, DELAY, Entries, FACTOR, Ignored, Jitters,
        Key, Listed, Number, Pauses, Presets, QueueConfigs, RuleList, SHARE, Seconds,
    };

    keys! {
        SCHEMA, "$schema", Ignored = Ignored,
            "Where an editor finds this schema.";
        PRESET, "preset", Presets = Presets,
            "The built-in policy, which the other keys change. Default: standard.";
        MAX_RETRIES, "maxRetries", Count = COPIES,
            "Most retries of a message, for failures of all classes together. A class cannot have more.";
        MULTIPLIER, "baseDelayMultiplier", Number = FACTOR,
            "By what an exponential delay is multiplied each time.";
        MAX_DELAY, "maxDelaySeconds", Seconds = DELAY,
            "The longest delay of classes that name no maxDelay.";
        BACKOFF, "backoff", Backoffs = Backoffs,
            "How delays grow: one of the words, or a list of seconds of which the last one repeats.";
        JITTER, "jitter", Jitters = Jitters,
            "How delays are spread.";
        JITTER_PERCENTAGE, "jitterPercentage", Number = SHARE,
            "The same as {\"proportional\": share} for jitter: 0.1 takes away up to a tenth of each delay.";
        TOTAL_TIMEOUT, "totalTimeoutSeconds", Seconds = AGE,
            "No retry later than this after the message was first received, for classes that name no totalTimeoutSeconds.";
        MAX_RETRY_AFTER, "maxRetryAfterSeconds", Seconds = AGE,
            "The longest delay that a failure itself may name.";
        MESSAGE_TTL, "messageTtlSeconds", Seconds = AGE,
            "A message older than this when its turn comes is dead-lettered without a call.";
        MAX_DEFERRALS, "maxDeferrals", Count = COPIES,
            "Most copies in a row because it was not the message's turn. Then it is called, or left to SQS if the invocation has no time left.";
        MAX_DEFERRAL, "maxDeferralSeconds", Seconds = DELAY,
            "The longest wait between two of them, before it is spread over up to twice the time. Default: 60.";
        MAX_POSTPONEMENTS, "maxPostponements", Count = COPIES,
            "How often in a row the handler may ask for a later time. Default: 1000.";
        MAX_PAUSE, "maxPauseSeconds", Pauses = Pauses,
            "How long a failure that names a delay keeps other messages of its scope back, at most; then one probes: off, or a number. Default: 60.";
        CIRCUIT_BREAKER, "circuitBreaker", Breakers = Breakers,
            "When a callee that fails and fails is left alone: off, or these keys.";
        CLASSES, "errorConfigs", Entries = Entries,
            "The patience for each class of failures; DEFAULT serves the classes without an entry.";
        RULES, "rules", RuleList = RuleList,
            "What failures are, asked in this order and before anything built in: the first rule that matches wins.";
        SQS_CALLS, "sqsCalls", Calls = Calls::Settling,
            "How calls to SQS that fail are tried again, which is no retry of a message: off, or these keys.";
        RECEIVE_CALLS, "receiveCalls", Calls = Calls::Receiving,
            "How a worker that cannot receive tries again, as long as it runs.";
        QUEUE_CONFIG, "queueConfig", QueueConfigs = QueueConfigs,
            "Settings of the queue, which are not applied: `requeue check` compares them with what the policy needs.";
    }
}

/// The settings of a queue, within the limits of SQS. Source: API reference, `SetQueueAttributes`;
/// `maxReceiveCount`: dead-letter queues.
pub(super) mod queue {
    use super::{Count, Key, Listed};

    keys! {
        VISIBILITY_TIMEOUT, "visibilityTimeout", Count = Count { min: 0, max: 43_200 },
            "How long a received message is hidden, in seconds.";
        MESSAGE_RETENTION, "messageRetentionPeriod", Count = Count { min: 60, max: 1_209_600 },
            "How long the queue keeps a message, in seconds.";
        MAX_RECEIVE_COUNT, "maxReceiveCount", Count = Count { min: 1, max: 1_000 },
            "After how many receives the redrive policy moves a message.";
        DELAY, "delaySeconds", Count = Count { min: 0, max: 900 },
            "How long a new message is delayed.";
        RECEIVE_WAIT, "receiveMessageWaitTimeSeconds", Count = Count { min: 0, max: 20 },
            "How long a receive waits for a message.";
    }
}

/// The keys of one class.
pub(super) mod class {
    use super::{
        AGE, Backoffs, COPIES, Count, DELAY, FACTOR, Jitters, Key, Listed, Number, Seconds,
    };

    keys! {
        BASE, "baseDelay", Seconds = DELAY,
            "The first delay, in seconds.";
        MAX_DELAY, "maxDelay", Seconds = DELAY,
            "The longest delay, in seconds.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "By what an exponential delay is multiplied each time.";
        BACKOFF, "backoff", Backoffs = Backoffs,
            "How delays grow: one of the words, or a list of seconds of which the last one repeats.";
        JITTER, "jitter", Jitters = Jitters,
            "How delays are spread.";
        MAX_RETRIES, "maxRetries", Count = COPIES,
            "Most retries for failures of this class. No effect above the policy's maxRetries, which bounds all classes together.";
        TOTAL_TIMEOUT, "totalTimeoutSeconds", Seconds = AGE,
            "No retry for a failure of this class later than this after the message was first received. It replaces the policy's totalTimeoutSeconds, shorter or longer.";
    }
}

/// The keys of one rule.
pub(super) mod rule {
    use super::{FailureClass, Key, Label, Listed, Matches, OUTCOMES, RULED, Seconds, Words};

    keys! {
        MATCH, "match", Matches = Matches,
            "What the failure must be like; all that is given must hold.";
        CLASS, "class", Words<FailureClass> = OUTCOMES,
            "What the failure then is.";
        DELAY, "delaySeconds", Seconds = RULED,
            "What the message then waits at least, whatever the answer names.";
        REASON, "reason", Label = Label,
            "What logs and dead letters call the failure, for example outdated-fare. Default: the place of the rule.";
    }
}

/// The keys of what a rule matches.
pub(super) mod matching {
    use super::{Header, Key, Listed, Many, Phrases, Status, Text};

    keys! {
        STATUS, "status", Many<Status> = Many(Status),
            "The status of the answer, or one of a list: a number, 3xx, 4xx or 5xx.";
        CODE, "code", Many<Text> = Many(Text),
            "A code or reason in the answer's body, or of the error; or one of a list.";
        HEADER, "header", Header = Header,
            "Headers that the answer must have: true for any value, or the value, whatever its case.";
        WORDS, "words", Many<Phrases> = Many(Phrases),
            "Whole words in this order in the answer's body or in the error's message; or one of a list.";
    }
}

/// The keys of the circuit breaker.
pub(super) mod breaker {
    use super::{Count, FAILURES, HOLD, Key, Listed, Seconds};

    keys! {
        THRESHOLD, "threshold", Count = FAILURES,
            "So many failures in a row open the circuit, and up to ten times as many where some calls are answered. Default: 5.";
        RESET_TIMEOUT, "resetTimeoutSeconds", Seconds = HOLD,
            "The longest time between two rounds of probes. Default: 30.";
    }
}

/// The keys of the settings for calls to SQS.
pub(super) mod calls {
    use super::{ATTEMPTS, Count, FACTOR, Jitters, Key, Listed, Number, PAUSE, Seconds};

    keys! {
        MAX_ATTEMPTS, "maxAttempts", Count = ATTEMPTS,
            "Most attempts, the first one included. Default: 5.";
        BASE, "baseDelay", Seconds = PAUSE,
            "The first pause, in seconds. Default: 0.1.";
        MAX_DELAY, "maxDelay", Seconds = PAUSE,
            "The longest pause, in seconds. Default: 5.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "By what the pause is multiplied each time. Default: 2.";
        JITTER, "jitter", Jitters = Jitters,
            "How pauses are spread. Default: {\"proportional\": 0.1}.";
    }
}

/// The keys of the settings for receiving, which are those for other calls with other defaults.
pub(super) mod receiving {
    use super::{ATTEMPTS, Count, FACTOR, Jitters, Key, Listed, Number, PAUSE, Seconds};

    keys! {
        MAX_ATTEMPTS, "maxAttempts", Count = ATTEMPTS,
            "Trouble that outlives so many attempts is an error in the log, and keeps a worker from its start. If SQS refuses for good, one attempt is enough. Default: 3.";
        BASE, "baseDelay", Seconds = PAUSE,
            "The first pause, in seconds. Default: 0.5.";
        MAX_DELAY, "maxDelay", Seconds = PAUSE,
            "The longest pause, in seconds. Default: 10.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "By what the pause is multiplied each time. Default: 2.";
        JITTER, "jitter", Jitters = Jitters,
            "How pauses are spread. Default: {\"proportional\": 0.2}.";
    }
}
