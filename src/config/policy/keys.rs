//! The keys of the document itself. Those of an object in it stand with that object.

use super::bounds::{AGE, COPIES, DELAY, FACTOR, SHARE};
use super::calls::Calls;
use super::classes::Entries;
use super::delays::{Backoffs, Jitters, Presets};
use super::key::{Key, Listed, table};
use super::protection::{Breakers, Pauses};
use super::queue::QueueConfigs;
use super::rules::RuleList;
use super::shapes::{Count, Ignored, Number, Seconds};

table! {
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
        "Most copies in a row because it was not the message's turn. Then its handler runs, or it is left to SQS if the invocation has no time left.";
    MAX_DEFERRAL, "maxDeferralSeconds", Seconds = DELAY,
        "The longest wait between two of them, before it is spread over up to twice the time. Default: 60.";
    MAX_POSTPONEMENTS, "maxPostponements", Count = COPIES,
        "How often in a row the handler may ask for a later time. Default: 1000.";
    MAX_PAUSE, "maxPauseSeconds", Pauses = Pauses,
        "How long a failure that names a delay keeps other messages of its scope back, at most; then one probes: off, or a number. Default: 60.";
    CIRCUIT_BREAKER, "circuitBreaker", Breakers = Breakers,
        "When a downstream service that keeps failing is left alone: off, or these keys.";
    CLASSES, "errorConfigs", Entries = Entries,
        "The delays and budgets of each class of failures; DEFAULT serves the classes without an entry.";
    RULES, "rules", RuleList = RuleList,
        "What failures are, asked in this order and before anything built in: the first rule that matches wins.";
    SQS_CALLS, "sqsCalls", Calls = Calls::Settling,
        "How calls to SQS that fail are tried again, which is no retry of a message: off, or these keys.";
    RECEIVE_CALLS, "receiveCalls", Calls = Calls::Receiving,
        "How a worker that cannot receive tries again, as long as it runs.";
    QUEUE_CONFIG, "queueConfig", QueueConfigs = QueueConfigs,
        "Settings of the queue, which are not applied: `requeue check` compares them with what the policy needs.";
}
