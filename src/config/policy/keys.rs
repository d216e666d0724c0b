//! The keys of the document itself. Those of an object in it stand with that object.

use super::bounds::{AGE, COPIES, DELAY, FACTOR, SHARE};
use super::calls::Calls;
use super::classes::Entries;
use super::delays::{Backoffs, Jitters, Presets};
use super::idempotency::Idempotencies;
use super::key::{Key, Listed, table};
use super::protection::{Breakers, Pauses, Rates};
use super::queue::QueueConfigs;
use super::rules::RuleList;
use super::shapes::{Count, Ignored, Number, Seconds};

table! {
    SCHEMA, "$schema", Ignored = Ignored,
        "Where an editor finds this schema. Requeue ignores it.";
    PRESET, "preset", Presets = Presets,
        "The built-in policy that the other keys change. Default: standard.";
    MAX_RETRIES, "maxRetries", Count = COPIES,
        "The most retries of a message. Failures of all classes share them, so no class can have more.";
    MULTIPLIER, "baseDelayMultiplier", Number = FACTOR,
        "The factor by which an exponential delay grows.";
    MAX_DELAY, "maxDelaySeconds", Seconds = DELAY,
        "The longest delay of each class without a maxDelay. It does not bound a list.";
    BACKOFF, "backoff", Backoffs = Backoffs,
        "How delays grow from the baseDelay of the class: a word, or a list of delays. The last delay of a list repeats.";
    JITTER, "jitter", Jitters = Jitters,
        "How Requeue spreads a delay, after the cut to the longest delay.";
    JITTER_PERCENTAGE, "jitterPercentage", Number = SHARE,
        "Another name for the jitter {\"proportional\": p}: 0.1 shortens a delay by up to a tenth. Not allowed beside jitter.";
    TOTAL_TIMEOUT, "totalTimeoutSeconds", Seconds = AGE,
        "The age, counted from the first receive, up to which Requeue retries a message. A class may have its own value.";
    MAX_RETRY_AFTER, "maxRetryAfterSeconds", Seconds = AGE,
        "The longest delay that a failure may name (Retry-After). Requeue cuts longer ones.";
    MESSAGE_TTL, "messageTtlSeconds", Seconds = AGE,
        "Requeue dead-letters a message that is older than this when its turn comes, without a call. The age counts from the first send.";
    MAX_DEFERRALS, "maxDeferrals", Count = COPIES,
        "The most deferrals of a message in a row. Then Requeue calls the handler, or releases the message if the invocation has no time left.";
    MAX_DEFERRAL, "maxDeferralSeconds", Seconds = DELAY,
        "The longest deferral, before Requeue spreads it over up to twice the time. Default: 60.";
    MAX_POSTPONEMENTS, "maxPostponements", Count = COPIES,
        "How often in a row the handler may postpone a message. Default: 1000.";
    MAX_PAUSE, "maxPauseSeconds", Pauses = Pauses,
        "The longest pause of a scope after a failure that names a delay, or off. Then one message probes. Default: 60.";
    CIRCUIT_BREAKER, "circuitBreaker", Breakers = Breakers,
        "When Requeue stops calling a downstream service that fails: off, or these keys.";
    RATE_LIMIT, "rateLimit", Rates = Rates,
        "The calls that a downstream service takes, for each scope. Requeue makes no more: a message without room waits in line, and uses no retry. Without REQUEUE_TABLE, each execution environment counts its own calls. Default: no limit.";
    IDEMPOTENCY, "idempotency", Idempotencies = Idempotencies,
        "Calls the handler once for each event: of several messages about one event, Requeue calls the handler for one at a time. After its success the others complete without a call. It needs a table: REQUEUE_TABLE. Default: no.";
    CLASSES, "errorConfigs", Entries = Entries,
        "The delays and budgets of single classes. DEFAULT serves each class without an entry.";
    RULES, "rules", RuleList = RuleList,
        "Your own rules for the class of a failure. They come before the built-in rules, and the first one that matches wins.";
    SQS_CALLS, "sqsCalls", Calls = Calls::Settling,
        "How Requeue repeats its own calls to SQS that fail: off for one attempt, or these keys. This is no retry of a message.";
    RECEIVE_CALLS, "receiveCalls", Calls = Calls::Receiving,
        "How a worker repeats a receive that fails, as long as it runs.";
    QUEUE_CONFIG, "queueConfig", QueueConfigs = QueueConfigs,
        "The settings of your queue, for requeue check and schedule. Requeue does not apply them.";
}
