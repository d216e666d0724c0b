//! `requeue check`: a policy document before it is deployed. What is allowed in it, the library
//! knows.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::{CallPolicy, CircuitBreaker, ClassPolicy, Jitter, RetryPolicy};
use requeue::{FailureClass, QueueConfig};

use crate::output::outln;
use crate::policy_text::{RETRIED_CLASSES, max_retries, retries};
use crate::schedule::timeline::{Timeline, WaitMode};
use crate::table::{span, table};
use crate::{Error, document};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The policy document; `-` is the standard input.
    file: PathBuf,
}

/// A visibility timeout is at least so many function timeouts, and the batching window. Source:
/// Lambda developer guide, "Using Lambda with Amazon SQS".
const VISIBILITY_FACTOR: u32 = 6;
/// The least `maxReceiveCount`. Source: as above.
const MIN_RECEIVES: u32 = 5;
/// The longest delay of one copy: so much older than its budget a message may become.
const LAST_WAIT: Duration = Duration::from_secs(900);

/// How many delays a summary shows.
const SHOWN: u32 = 5;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (policy, rules, queue) = document::read_all(&arguments.file)?;
    outln!("the policy {} is valid; it amounts to this:\n", document::name(&arguments.file))?;
    outln!("{}", summary(&policy))?;
    let RetryPolicy { max_retries, max_retry_after, message_ttl, .. } = &policy;
    outln!(
        "at most {} of a message, {} for a delay that the downstream service names{}",
        retries(*max_retries),
        span(*max_retry_after),
        message_ttl
            .map_or(String::new(), |ttl| format!("; not called when older than {}", span(ttl))),
    )?;
    for line in bounded(&policy) {
        outln!("{line}")?;
    }
    outln!("{}", protection(&policy))?;
    outln!("{}", deferrals(&policy))?;
    match rules.len() {
        0 => {}
        1 => outln!("1 rule is asked before the built-in ones")?,
        count => {
            outln!(
                "{count} rules are asked before the built-in ones, and the first that matches wins"
            )?;
        }
    }
    if policy.sqs_calls != CallPolicy::default() {
        outln!("{}", calls(&policy.sqs_calls))?;
    }
    if policy.receive_calls != CallPolicy::receiving() {
        outln!("{}", receiving(&policy.receive_calls))?;
    }
    if queue != QueueConfig::default() {
        outln!("{}", advice(&queue, &policy))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the document says of its queue beside what this policy and AWS ask of a queue.
fn advice(queue: &QueueConfig, policy: &RetryPolicy) -> String {
    let mut lines = vec!["queueConfig is not applied: set it at the queue".to_owned()];
    let mut tell =
        |name: &str, value: String, words: String| lines.push(format!("  {name} {value}: {words}"));
    if let Some(visibility) = queue.visibility_timeout {
        let words = match visibility / VISIBILITY_FACTOR {
            timeout if timeout < Duration::from_secs(1) => {
                format!(
                    "too short for any function; allowed is at least {VISIBILITY_FACTOR} × its \
                     timeout and the batching window"
                )
            }
            timeout => format!(
                "enough for a function timeout of {} at most, without a batching window",
                span(timeout)
            ),
        };
        tell("visibilityTimeout", span(visibility), words);
    }
    if let Some(retention) = queue.message_retention {
        let longest = RETRIED_CLASSES
            .iter()
            .filter_map(|class| policy.class(*class))
            .map(|class| class.total_timeout)
            .max();
        let needed = longest.unwrap_or_default() + LAST_WAIT;
        let words = if retention > needed {
            format!("longer than the {} that this policy may take", span(needed))
        } else {
            format!(
                "too short; this policy may take {}, and SQS deletes what is older than the \
                 retention",
                span(needed)
            )
        };
        tell("messageRetentionPeriod", span(retention), words);
    }
    if let Some(count) = queue.max_receive_count {
        let words = if count < MIN_RECEIVES {
            format!(
                "too low; allowed is at least {MIN_RECEIVES}, as a receive without a call counts \
                 too"
            )
        } else {
            "enough where messages wait in copies; `requeue schedule --strategy visibility` tells \
             what they need in place"
                .to_owned()
        };
        tell("maxReceiveCount", count.to_string(), words);
    }
    if let Some(delay) = queue.delay {
        tell(
            "delaySeconds",
            span(delay),
            "delays new messages only; copies have delays of their own".to_owned(),
        );
    }
    if let Some(wait) = queue.receive_wait {
        let words = "without effect on Lambda's poller, which waits 20 s, and on `requeue work`, \
                     which waits a third of the visibility timeout, at most 20 s"
            .to_owned();
        tell("receiveMessageWaitTimeSeconds", span(wait), words);
    }
    lines.join("\n")
}

fn summary(policy: &RetryPolicy) -> comfy_table::Table {
    let mut rows = table(&["class", "waits in seconds", "jitter", "given up after", "or after"]);
    for class in RETRIED_CLASSES {
        let Some(own) = policy.class(class) else { continue };
        rows.add_row(vec![
            class.to_string(),
            waits(own),
            own.jitter.to_string(),
            budget(policy, class),
            span(own.total_timeout),
        ]);
    }
    rows
}

/// `maxRetries 30 of rate-limit has no effect: …`, for each class to which the policy's own bound
/// leaves less than the document says.
fn bounded(policy: &RetryPolicy) -> impl Iterator<Item = String> {
    let all = policy.max_retries;
    RETRIED_CLASSES.into_iter().filter_map(move |class| {
        let own = policy.class(class)?.max_retries.filter(|own| *own > all)?;
        Some(format!(
            "maxRetries {own} of {class} has no effect: the policy's maxRetries of {all} bounds \
             all classes together; raise it"
        ))
    })
}

/// `60, 180, 300, 300, …`, before the jitter.
fn waits(class: &ClassPolicy) -> String {
    let capped =
        |retries| class.backoff.delay(retries).min(class.max_delay).as_secs_f64().to_string();
    let mut waits: Vec<String> = (0..SHOWN).map(capped).collect();
    let last = capped(u32::MAX);
    waits.push(capped(SHOWN));
    let plateau = waits.iter().position(|wait| *wait == last);
    // The delay that repeats is shown twice.
    waits.truncate(plateau.map_or(waits.len(), |first| first + 2));
    let growth = if plateau.is_none() { format!(", … {last}") } else { ", …".to_owned() };
    waits.join(", ") + &growth
}

/// `a pause that the downstream service asks for holds its messages back for at most 60 s; the
/// circuit opens after 5 messages in a row that failed, for at most 30 s at a time`
fn protection(policy: &RetryPolicy) -> String {
    let pause = match policy.max_pause {
        Some(longest) => format!("holds its messages back for at most {}", span(longest)),
        None => "holds no other message back".to_owned(),
    };
    let circuit = match &policy.circuit_breaker {
        Some(CircuitBreaker { threshold, reset_timeout, .. }) => {
            let failures = if *threshold > 1 {
                format!("{threshold} messages in a row that failed")
            } else {
                "each message that failed".to_owned()
            };
            format!("opens after {failures}, for at most {} at a time", span(*reset_timeout))
        }
        None => "never opens".to_owned(),
    };
    format!("a pause that the downstream service asks for {pause}; the circuit {circuit}")
}

/// `at most 100 deferrals of a message in a row, each of at most 60 s or the rest of the pause, and
/// up to as much again of jitter`
fn deferrals(policy: &RetryPolicy) -> String {
    let count = policy.max_deferrals;
    let deferrals = if count == 1 { "deferral" } else { "deferrals" };
    let longest = span(policy.max_deferral);
    format!(
        "at most {count} {deferrals} of a message in a row, each of at most {longest} or the rest \
         of the pause, and up to as much again of jitter"
    )
}

/// `a call to SQS that fails is tried again after 0.1, 0.2 s; jitter full`
fn calls(policy: &CallPolicy) -> String {
    let mut longest = policy.clone();
    longest.jitter = Jitter::None;
    let pauses = (1..).map_while(|attempts| longest.pause(attempts, None, 0.0));
    let pauses: Vec<String> = pauses.map(|pause| pause.as_secs_f64().to_string()).collect();
    if pauses.is_empty() {
        return "a call to SQS that fails is not tried again".to_owned();
    }
    format!(
        "a call to SQS that fails is tried again after {} s; jitter {}",
        pauses.join(", "),
        policy.jitter
    )
}

/// `a worker that cannot receive tries again after 0.5 to 10 s, as long as it runs; jitter full`
fn receiving(policy: &CallPolicy) -> String {
    let (first, longest) = (policy.backoff.base().as_secs_f64(), policy.max_delay.as_secs_f64());
    let jitter = policy.jitter;
    format!(
        "a worker that cannot receive tries again after {first} to {longest} s, as long as it \
         runs; jitter {jitter}"
    )
}

/// `50 retries, in 4 h 4 min at most`
fn budget(policy: &RetryPolicy, class: FailureClass) -> String {
    let longest = Timeline::range(policy, class, WaitMode::InCopies).max;
    let allowed = max_retries(policy, class);
    let within = if allowed > 0 && longest.count() == allowed {
        format!(" in at most {}", span(longest.age()))
    } else {
        String::new()
    };
    retries(allowed) + &within
}
