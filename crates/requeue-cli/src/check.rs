//! `requeue check`: checks a policy document or settings. The library has the rules.

use std::process::ExitCode;
use std::time::Duration;

use requeue::classify::Rules;
use requeue::policy::{
    CallPolicy, CircuitBreaker, ClassPolicy, Jitter, RetryPolicy, WhenUnavailable,
};
use requeue::{FailureClass, QueueConfig, QueueSettings};
use serde_json::{Map, Value, json};

use crate::config::SettingsArguments;
use crate::document::{
    Document, InvalidDocument, PolicyArgument, PolicyName, RETRIED_CLASSES, max_retries, retries,
};
use crate::schedule::timeline::{Timeline, WaitMode};
use crate::table::Head::Text;
use crate::table::{Rows, span, thousands};
use crate::{Error, config, output};

mod parts;

use parts::{advice, config_json, rate_limits};

#[derive(clap::Args)]
#[command(
    after_help = "With --settings, secrets, headers and the path of the target are not shown. A \
                        secret or policy that is named by an ARN is not fetched.\n\n\
                        Permissions: with --function, lambda:GetFunctionConfiguration.\n\n\
                        Exit status: 0; 1 if the policy or the function cannot be read; 3 if the \
                        policy or a setting has problems."
)]
pub(crate) struct Arguments {
    /// The policy, in the forms of --policy.
    #[arg(value_name = "POLICY", conflicts_with = "policy")]
    file: Option<PolicyName>,
    #[command(flatten)]
    policy: PolicyArgument,
    #[command(flatten)]
    settings: SettingsArguments,
    /// Print JSON: whether the document is valid, its problems, and the resulting policy; or the
    /// settings.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The bytes of all environment variables of a function. Source: Lambda quotas.
const ENVIRONMENT: usize = 4_096;
/// The bytes of the other variables of `template.yaml`, with four secrets by ARN.
const OTHER_VARIABLES: usize = 600;

/// A policy whose retries end earlier outlives no deployment of the downstream service.
const FAST: Duration = Duration::from_secs(60);

const WARNING: &str = "warning: ";

const SHOWN: u32 = 5;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let given = arguments.file.clone().or_else(|| arguments.policy.given());
    if arguments.settings.settings {
        return config::run(&arguments.settings, given, arguments.json);
    }
    let name = given.or_else(|| arguments.policy.name());
    let name = name.unwrap_or(PolicyName::STANDARD);
    let text = name.text()?;
    match name.parse(&text) {
        Ok(document) if arguments.json => {
            output::json(&json(&name, &document, &text))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(document) => {
            output::words(&format!("the policy {name} is valid:\n\n"))?;
            output::words(&(report(&document, &text) + "\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let invalid = error.downcast::<InvalidDocument>()?;
            if arguments.json {
                output::json(&json!({
                    "policy": name.to_string(),
                    "valid": false,
                    "problems": invalid.problems,
                }))?;
            } else {
                output::note(format_args!("error: {invalid}"));
            }
            Ok(ExitCode::from(output::FINDING))
        }
    }
}

fn json(name: &PolicyName, document: &Document, text: &str) -> Value {
    let Document { policy, rules, queues, queue_config } = document;
    let mut notes: Vec<String> = bounded(policy).collect();
    notes.extend(too_large(text));
    let of_queue = |(name, own): (&String, &QueueSettings)| {
        let entry = json!({
            "notes": bounded(&own.policy).collect::<Vec<_>>(),
            "values": own.to_document(),
            "rules": own.rules.as_ref().map(Rules::len),
            "queueConfig": config_json(&QueueConfig::of_queue(text, name).unwrap_or_default()),
        });
        (name.clone(), entry)
    };
    json!({
        "policy": name.to_string(),
        "valid": true,
        "problems": [],
        "notes": notes,
        "values": policy.to_document(),
        "rules": rules.len(),
        "queueConfig": config_json(queue_config),
        "queues": queues.iter().map(of_queue).collect::<Map<_, _>>(),
    })
}

pub(crate) fn report(document: &Document, text: &str) -> String {
    let Document { policy, rules, queues, queue_config } = document;
    let mut lines = of_policy(policy, Some(rules), queue_config);
    lines.extend(too_large(text).map(|problem| format!("{WARNING}{problem}")));
    for (name, own) in queues {
        lines.push(format!("\nqueue {name}:\n"));
        lines.extend(of_policy(
            &own.policy,
            own.rules.as_ref(),
            &QueueConfig::of_queue(text, name).unwrap_or_default(),
        ));
        lines.push(differing(own));
    }
    lines.join("\n")
}

fn differing(own: &QueueSettings) -> String {
    let general = || "that of all queues".to_owned();
    format!(
        "concurrency: {}; handler timeout: {}; dead-letter mode: {}",
        own.concurrency.map_or_else(general, |count| count.to_string()),
        own.timeout.map_or_else(general, span),
        own.dead_letter.as_ref().map_or_else(general, |mode| mode.as_str().to_owned()),
    )
}

/// The lines of a policy. Without `rules`, those of all queues count.
fn of_policy(policy: &RetryPolicy, rules: Option<&Rules>, queue: &QueueConfig) -> Vec<String> {
    let RetryPolicy { max_retries, max_retry_after, message_ttl, .. } = policy;
    let budget = format!(
        "budget: at most {} for each message; a delay that the downstream service names is cut to \
         {}{}",
        retries(*max_retries),
        span(*max_retry_after),
        message_ttl.map_or(String::new(), |ttl| format!(
            "; a message expires {} after its first send",
            span(ttl)
        )),
    );
    let mut lines = vec![summary(policy), budget];
    lines.extend(fails_fast(policy));
    let warning = |problem| format!("{WARNING}{problem}");
    lines.extend(bounded(policy).map(warning));
    lines.extend([protection(policy), deferrals(policy)]);
    match rules.map(Rules::len) {
        Some(0) => {}
        None => lines.push("rules: those of all queues".to_owned()),
        Some(count) => {
            let wins = if count > 1 { "; the first match wins" } else { "" };
            let count = thousands(count);
            lines.push(format!("rules: {count}, applied before the built-in ones{wins}"));
        }
    }
    if policy.sqs_calls != CallPolicy::default() {
        lines.push(calls(&policy.sqs_calls));
    }
    if policy.receive_calls != CallPolicy::receiving() {
        lines.push(receiving(&policy.receive_calls));
    }
    if *queue != QueueConfig::default() {
        lines.push(advice(queue, policy));
    }
    lines
}

/// For a policy that dead-letters before a short outage ends.
fn fails_fast(policy: &RetryPolicy) -> Option<String> {
    let (class, allowed) = (FailureClass::Temporary, max_retries(policy, FailureClass::Temporary));
    let longest = Timeline::range(policy, class, WaitMode::InCopies).max;
    let is_fast = longest.count() == allowed && longest.age() < FAST;
    is_fast.then(|| {
        format!("fails fast: dead-letters a {class} failure after {}", span(longest.age()))
    })
}

/// `size: …`, for a document that does not fit into the environment of a function.
fn too_large(text: &str) -> Option<String> {
    // Lambda counts names and values in JSON, where a quotation mark takes two bytes.
    let bytes = |text: &str| serde_json::json!({ "REQUEUE_POLICY": text.trim() }).to_string().len();
    let (size, room) = (bytes(text), ENVIRONMENT - OTHER_VARIABLES);
    if size <= room {
        return None;
    }
    let elsewhere = "store it as a parameter and set REQUEUE_POLICY to its ARN, or put it into a \
                     file of the function's package and set REQUEUE_POLICY to its path";
    let compact = serde_json::from_str::<serde_json::Value>(text).ok()?.to_string();
    let remedy = match bytes(&compact) {
        fits if fits <= room => {
            format!(
                "remove the white space, which leaves {} bytes, or {elsewhere}",
                thousands(fits)
            )
        }
        _ => elsewhere.to_owned(),
    };
    Some(format!(
        "size: {} bytes as REQUEUE_POLICY, too large for Lambda: all variables of a function may \
         take {} bytes together, and the template's others take about {OTHER_VARIABLES}; {remedy}",
        thousands(size),
        thousands(ENVIRONMENT)
    ))
}

fn summary(policy: &RetryPolicy) -> String {
    let heads = ["class", "waits in seconds", "jitter", "dead-lettered after", "or at age"];
    let mut rows = Rows::under(heads.map(Text));
    for class in RETRIED_CLASSES {
        let Some(own) = policy.class(class) else { continue };
        rows.add([
            class.to_string(),
            waits(own),
            own.jitter.to_string(),
            budget(policy, class),
            span(own.total_timeout),
        ]);
    }
    rows.text()
}

/// `maxRetries 30 of rate-limit has no effect: …`, for each class whose own limit is out of reach.
fn bounded(policy: &RetryPolicy) -> impl Iterator<Item = String> {
    let all = policy.max_retries;
    RETRIED_CLASSES.into_iter().filter_map(move |class| {
        let own = policy.class(class)?.max_retries.filter(|own| *own > all)?;
        Some(format!(
            "maxRetries {} of {class} has no effect: the policy's maxRetries of {} limits all \
             classes together; raise that limit",
            thousands(own),
            thousands(all)
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

/// A line for the rate limit and one for `idempotency`, where they are set, one for the pause, and one for the circuit breaker.
fn protection(policy: &RetryPolicy) -> String {
    let pause = match policy.max_pause {
        Some(longest) => format!("defers other messages for at most {}", span(longest)),
        None => "defers no other message".to_owned(),
    };
    let circuit = match &policy.circuit_breaker {
        Some(CircuitBreaker { threshold, reset_timeout, .. }) => {
            let failures = if *threshold > 1 {
                format!("{0} failures in a row, of {0} messages", thousands(*threshold))
            } else {
                "each failure".to_owned()
            };
            format!(
                "opens after {failures}; stays open for at most {} at a time; in an outage, a 503, a timeout and their like use no retry",
                span(*reset_timeout)
            )
        }
        None => "never opens".to_owned(),
    };
    let limits = rate_limits(policy);
    let idempotency = policy.idempotency.as_ref().map_or_else(String::new, |idempotency| {
        let event = idempotency.key.as_ref().map_or_else(
            || "for each original message id".to_owned(),
            |key| format!("for each value at {key}, or each original message id without one"),
        );
        let keep = span(idempotency.keep);
        let trouble = match idempotency.when_unavailable {
            WhenUnavailable::Defer => "waits, at most for its deferrals",
            _ => "is called, perhaps twice",
        };
        format!(
            "idempotency: {event}; remembered for {keep}; needs REQUEUE_TABLE; while the table does not \
             respond, a message {trouble}\n"
        )
    });
    format!(
        "{limits}{idempotency}pause, if the downstream service names a delay: {pause}\ncircuit breaker: {circuit}"
    )
}

fn deferrals(policy: &RetryPolicy) -> String {
    let count = thousands(policy.max_deferrals);
    let longest = span(policy.max_deferral);
    format!(
        "deferrals: at most {count} in a row for each message; each lasts at most {longest} or the \
         rest of the pause, and jitter can double it"
    )
}

fn calls(policy: &CallPolicy) -> String {
    let mut longest = policy.clone();
    longest.jitter = Jitter::None;
    let pauses = (1..).map_while(|attempts| longest.pause(attempts, None, 0.0));
    let pauses: Vec<String> = pauses.map(|pause| pause.as_secs_f64().to_string()).collect();
    if pauses.is_empty() {
        return "failed calls to SQS: no retry".to_owned();
    }
    format!("failed calls to SQS: retried after {} s; jitter {}", pauses.join(", "), policy.jitter)
}

fn receiving(policy: &CallPolicy) -> String {
    let (first, longest) = (policy.backoff.base().as_secs_f64(), policy.max_delay.as_secs_f64());
    let jitter = policy.jitter;
    format!(
        "failed receives of a worker: retried after {first} to {longest} s, as long as it runs; \
         jitter {jitter}"
    )
}

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
