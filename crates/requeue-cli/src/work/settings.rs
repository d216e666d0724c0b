//! The settings with which a worker starts, as lines on a terminal and as one line of the log.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use requeue::aws::SdkConfig;
use requeue::policy::{RetryPolicy, WhenUnavailable};
use requeue::queue::QueueArn;
use requeue::table::{Key, TableError};
use requeue::{DeadLetterMode, Mode, Settings, Strategy, Variables, printable};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::timeout;

use super::view::View;
use crate::document::{RETRIED_CLASSES, loses_waiting, places_for_tenants, retries};
use crate::duration_argument::within;
use crate::queue_argument::retention;
use crate::table::{counted, span, thousands};
use crate::{environment, output};

const ANSWER: Duration = Duration::from_secs(5);
/// Beside those of calls: logs, events of the runtime, look-ups of names, the page.
const OTHER_FILES: u64 = 64;

pub(super) fn tell(
    view: &View,
    queue: &QueueArn,
    (target, is_function): (&str, bool),
    settings: &Settings,
) {
    let Settings { policy, limits, dead_letter, shared_table, mode, .. } = settings;
    let (queue, policy) = (queue.to_string(), policy_line(policy));
    let concurrency =
        format!("{}, timeout {} s", thousands(limits.concurrency), limits.timeout.as_secs_f64());
    let dead_letter = match dead_letter {
        Some(DeadLetterMode::Direct(url)) => {
            // The region does not matter for the name.
            format!("direct to {}", url.arn("aws", "us-east-1").name())
        }
        mode => mode.as_ref().unwrap_or(&DeadLetterMode::OF_WORKERS).as_str().to_owned(),
    };
    let table = if shared_table.is_some() { "the one of REQUEUE_TABLE" } else { "none" };
    let is_report = *mode == Mode::Report;
    if !view.has_screen {
        tracing::info!(
            queue,
            targetUrl = (!is_function).then_some(target),
            targetFunction = is_function.then_some(target),
            policy,
            concurrency,
            deadLetter = dead_letter,
            table,
            isReportMode = is_report,
            "settings"
        );
        return;
    }
    for (head, value) in [
        ("queue", &*queue),
        ("target", target),
        ("policy", &policy),
        ("concurrency", &concurrency),
        ("dead letters", &dead_letter),
        ("table", table),
    ] {
        output::note(format_args!("{head:<13} {value}"));
    }
    if is_report {
        output::note("mode          report: Requeue retries nothing and only logs failures");
    }
}

/// `50 retries; rate-limit 60–300 s, quota 120–600 s`: the first and longest delay of each class.
fn policy_line(policy: &RetryPolicy) -> String {
    let delays = RETRIED_CLASSES.iter().filter_map(|class| {
        let own = policy.class(*class)?;
        let first = secs(own.backoff.delay(0).min(own.max_delay));
        let longest = secs(own.max_delay);
        let range = if first == longest { first } else { format!("{first}–{longest}") };
        Some(format!("{class} {range} s"))
    });
    format!("{}; {}", retries(policy.max_retries), delays.collect::<Vec<_>>().join(", "))
}

/// Of `maxReservationSeconds`.
const SHORTEST: Duration = Duration::from_secs(1);

/// With few handlers, the tenants of a fair limit wait for each other.
pub(super) fn lacks_room(settings: &Settings) -> Option<String> {
    let Settings { policy, limits, .. } = settings;
    let needed = places_for_tenants(policy)?;
    let most = u64::try_from(limits.concurrency).unwrap_or(u64::MAX);
    (most < needed).then(|| {
        let (most, needed) = (thousands(most), thousands(needed));
        let is_long = policy.limit.is_some_and(|limit| limit.max_reservation > SHORTEST);
        let shorter = if is_long { ", or set maxReservationSeconds to 1" } else { "" };
        format!(
            "messages that wait for their reservations take up handlers, of which there are {most}: \
             with fewer than {needed}, twice the calls of maxReservationSeconds, tenants wait for each \
             other; raise --concurrency{shorter}"
        )
    })
}

/// Raises the limit of open files to the one that the system allows, and tells if that is too low:
/// each call has a connection, and so has each request to SQS.
pub(super) fn lacks_files(settings: &Settings) -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    // A system may refuse it, as one without any limit. The old limit then stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    too_few(settings, getrlimit(Resource::Nofile).current)
}

fn too_few(settings: &Settings, files: Option<u64>) -> Option<String> {
    let handlers = u64::try_from(settings.limits.concurrency).unwrap_or(u64::MAX);
    let needed = handlers.saturating_mul(2).saturating_add(OTHER_FILES);
    let files = files.filter(|files| *files < needed)?;
    Some(format!(
        "this process may open {files} files, and {} may need {needed}: raise the limit (`ulimit -n`), \
         or lower --concurrency",
        counted(handlers, "handler")
    ))
}

/// A retention that is shorter than waits. If SQS does not respond, the start of the worker says so.
pub(super) async fn lacks_retention(
    settings: &Settings,
    queue: &QueueArn,
    sdk: &SdkConfig,
) -> Option<String> {
    let retention = timeout(ANSWER, retention(queue, sdk)).await.ok()??;
    let waits_in_place = queue.is_fifo() || settings.strategy == Strategy::Visibility;
    let is_short = loses_waiting(retention, &settings.policy, waits_in_place);
    (is_short && settings.mode == Mode::Requeue).then(|| {
        format!(
            "the queue's MessageRetentionPeriod of {} is shorter than messages may wait, and SQS \
             deletes them when it ends: raise it, as `requeue doctor` says",
            span(retention)
        )
    })
}

/// A table that cannot be read. The worker runs without it, but its messages would show that late.
pub(super) async fn lacks_table(settings: &Settings) -> Option<String> {
    let shared = settings.shared_table.as_ref()?;
    let key = Key::of([&shared.namespace]);
    let code = match timeout(ANSWER, shared.table.read(&key)).await {
        Ok(Ok(_) | Err(TableError::Throttled)) => return None,
        Ok(Err(TableError::Unavailable(code))) => code.into_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no response".to_owned(),
    };
    let name = environment::value("REQUEUE_TABLE").unwrap_or_default();
    let code = printable::line(&code);
    let duplicates = without_table(&settings.policy);
    Some(format!(
        "the table {name} of REQUEUE_TABLE cannot be read ({code}): until it can, this worker keeps \
         limits, pauses and circuits for itself{duplicates}; create the table, or correct REQUEUE_TABLE, the region, or the permission dynamodb:GetItem"
    ))
}

fn without_table(policy: &RetryPolicy) -> &'static str {
    match policy.idempotency.as_ref().map(|idempotency| idempotency.when_unavailable) {
        None => "",
        Some(WhenUnavailable::Defer) => ", and defers messages of `idempotency`",
        Some(_) => ", and calls the target for duplicates too, by `idempotency.whenUnavailable`",
    }
}

fn secs(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// The settings of the environment that options of the command replace.
#[derive(clap::Args)]
pub(super) struct SettingArguments {
    /// How a message that is dead-lettered reaches the dead-letter queue, instead of
    /// `REQUEUE_DEAD_LETTER`. `direct` needs `REQUEUE_DEAD_LETTER_QUEUE_URL`. [default: annotate]
    #[arg(long, help_heading = "Queue", value_name = "MODE",
          value_parser = PossibleValuesParser::new(["redrive", "annotate", "direct"]))]
    dead_letter: Option<String>,
    /// The most handlers at once, instead of `REQUEUE_CONCURRENCY`. [default: 10]
    #[arg(long, value_name = "HANDLERS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: Option<u16>,
    /// The longest run of one handler, instead of `REQUEUE_TIMEOUT_SECONDS`. [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = within(1..=5_400))]
    timeout: Option<Duration>,
}

impl SettingArguments {
    pub(super) fn variables(&self) -> Variables {
        let mut variables = Variables::from_env();
        if let Some(mode) = &self.dead_letter {
            variables.set("DEAD_LETTER", mode.clone());
            // The URL belongs to the mode that the option replaces.
            if mode != "direct" {
                variables.set("DEAD_LETTER_QUEUE_URL", String::new());
            }
        }
        if let Some(concurrency) = self.concurrency {
            variables.set("CONCURRENCY", concurrency.to_string());
        }
        if let Some(timeout) = self.timeout {
            variables.set("TIMEOUT_SECONDS", timeout.as_secs().to_string());
        }
        variables
    }

    /// Lets the options that are given replace the settings of single queues too.
    pub(super) fn replace(&self, settings: &mut Settings) {
        for own in settings.queues.values_mut() {
            own.dead_letter = own.dead_letter.take().filter(|_| self.dead_letter.is_none());
            own.concurrency = own.concurrency.filter(|_| self.concurrency.is_none());
            own.timeout = own.timeout.filter(|_| self.timeout.is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_one_line() {
        for (document, line) in [
            ("{}", "50 retries; rate-limit 60–300 s, quota 120–600 s, temporary 2–60 s"),
            (
                r#"{"maxRetries": 1, "errorConfigs": {"default": {"baseDelay": 0.5, "maxDelay": 0.5}}}"#,
                "1 retry; rate-limit 0.5 s, quota 0.5 s, temporary 0.5 s",
            ),
        ] {
            assert_eq!(policy_line(&document.parse().expect("a policy")), line);
        }
    }

    #[test]
    fn without_its_table_a_worker_defers_or_calls_as_the_policy_says() {
        for (document, said) in [
            ("{}", ""),
            (r#"{"idempotency": {}}"#, "calls the target for duplicates"),
            (r#"{"idempotency": {"whenUnavailable": "call"}}"#, "calls the target for duplicates"),
            (r#"{"idempotency": {"whenUnavailable": "defer"}}"#, "and defers messages"),
        ] {
            let told = without_table(&document.parse().expect("a policy"));
            assert!(told.contains(said) && told.is_empty() == said.is_empty(), "{told}");
        }
    }

    #[test]
    fn each_handler_needs_files() {
        let mut settings = Settings::default();
        settings.limits.concurrency = 100;
        for (files, is_told) in [(Some(263), true), (Some(264), false), (None, false)] {
            assert_eq!(too_few(&settings, files).is_some(), is_told, "{files:?}");
        }
    }

    #[test]
    fn a_fair_limit_needs_handlers_for_the_messages_that_wait() {
        let note = |document: &str, concurrency| {
            let mut settings = Settings::default();
            settings.policy = document.parse().expect("a policy");
            settings.limits.concurrency = concurrency;
            lacks_room(&settings)
        };
        let fair = r#"{"rateLimit": {"limit": 20, "fairBy": "/tenant"}}"#;
        let told = note(fair, 79).expect("a note");
        assert!(told.contains("there are 79") && told.contains("fewer than 80"), "{told}");
        assert!(told.contains("set maxReservationSeconds to 1"), "{told}");
        let shortest = fair.replace("20,", r#"20, "maxReservationSeconds": 1,"#);
        assert!(note(&shortest, 39).expect("a note").ends_with("raise --concurrency"));
        assert_eq!(note(fair, 80), None);
        assert_eq!(note(r#"{"rateLimit": {"limit": 20}}"#, 10), None);
    }
}
