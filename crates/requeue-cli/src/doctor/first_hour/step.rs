//! Compares what was seen with what was expected. Asks AWS nothing.

use std::time::Duration;

use requeue::FailureClass;
use serde::Serialize;

use super::super::checks::REQUEUE;
use super::super::diagnosis::Level;
use super::calls::Counts;
use super::evidence::Evidence;
use super::message::{RETRY_AFTER, TestMessage};
use super::plan::Plan;
use crate::table::span;

/// One result.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) id: &'static str,
    pub(crate) level: Level,
    pub(crate) expected: String,
    pub(crate) seen: String,
    /// The meaning of a difference; empty if there is none.
    pub(crate) meaning: &'static str,
    pub(crate) remedies: Vec<String>,
}

/// What a trial has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) evidence: Evidence,
    /// The counts of the source queue.
    pub(crate) source: Counts,
    /// The count of the dead-letter queue before the first message, and now.
    pub(crate) dead_letters: (u64, u64),
    pub(crate) completed_after: Option<Duration>,
    /// When the dead-letter queue's count rose, from the sending of its message.
    pub(crate) arrived_after: Option<Duration>,
    pub(crate) letter: Letter,
    pub(crate) metrics: Metrics,
    pub(crate) waited: Duration,
    /// Whether all messages were sent, or only the first one.
    pub(crate) is_whole: bool,
}

/// The dead letter in the dead-letter queue.
#[derive(Debug, Default)]
pub(crate) enum Letter {
    /// There were other messages, or a look could move it.
    #[default]
    NotLooked,
    NotFound,
    /// With SQS's code.
    Refused(String),
    Found {
        class: Option<String>,
        reason: Option<String>,
    },
}

/// The metrics that CloudWatch made of the lines.
#[derive(Debug, Default)]
pub(crate) enum Metrics {
    /// None until the end of the wait.
    #[default]
    None,
    /// With CloudWatch's code.
    Refused(String),
    /// The sum of `Received`.
    Received(f64),
}

/// The number of messages that should complete.
const COMPLETING: u64 = 4;

impl Seen {
    fn completed(&self) -> u64 {
        self.evidence.sum(None, "Completed")
    }

    /// Whether the first message completed, or was dead-lettered.
    pub(crate) fn has_first(&self) -> bool {
        self.completed() > 0 || self.evidence.sum(None, "DeadLettered") > 0
    }

    pub(crate) fn has_success(&self) -> bool {
        self.completed() > 0
    }

    /// Whether each of these that should fail did so.
    pub(crate) fn has_failed(&self, messages: &[TestMessage]) -> bool {
        messages.iter().all(|message| match message {
            TestMessage::Success => true,
            TestMessage::Failing(class) => self.evidence.sum(Some(class.as_str()), "Failed") > 0,
        })
    }

    /// Whether nothing is left to wait for.
    pub(crate) fn is_complete(&self, plan: &Plan) -> bool {
        // A message that SQS moves by itself is in the queue until then.
        let left = u64::from(plan.moved_after.is_some());
        self.has_failed(&TestMessage::ALL)
            && self.completed() >= COMPLETING
            && self.source.all() <= left
            && (plan.moved_after.is_some() || self.arrived_after.is_some())
    }
}

/// A level, what was seen, the meaning of a difference, and remedies.
type Judged = (Level, String, &'static str, Vec<String>);

pub(crate) fn steps(plan: &Plan, seen: &Seen) -> Vec<Step> {
    let step = |id, expected: &str, (level, seen, meaning, remedies): Judged| {
        let expected = expected.to_owned();
        Step { id, level, expected, seen, meaning, remedies }
    };
    let of = |message: TestMessage, judged| step(message.id(), message.expected(), judged);
    let mut steps = vec![of(TestMessage::Success, success(plan, seen))];
    if seen.is_whole {
        steps.extend(TestMessage::ALL.into_iter().filter_map(|message| match message {
            TestMessage::Success => None,
            TestMessage::Failing(class) => Some(of(message, failure(class, &seen.evidence))),
        }));
        let all = format!("{COMPLETING} messages complete");
        let received = "CloudWatch has values of the metric Received";
        steps.push(step("completed", &all, completed(plan, seen)));
        steps.push(step("dead-letter", &plan.arrival(), dead_letter(plan, seen)));
        steps.push(step("metrics", received, metrics(seen)));
    }
    steps
}

fn success(plan: &Plan, seen: &Seen) -> Judged {
    let tail = format!("aws logs tail {} --since 10m", plan.log_group);
    if let (true, Some(after)) = (seen.has_success(), seen.completed_after) {
        (Level::Ok, format!("completed within {}", span(after)), "", Vec::new())
    } else if seen.evidence.sum(None, "Failed") > 0 {
        (
            Level::Danger,
            format!("it failed: {}", seen.evidence.failures()),
            "The endpoint did not respond with 200, so the other messages were not sent.",
            vec![format!("curl -i -d '{{}}' {}", plan.target), tail],
        )
    } else {
        (
            Level::Danger,
            format!("no line of metrics within {}", span(seen.waited)),
            "The function was not invoked, could not start, or cannot write its log.",
            vec![tail, plan.doctor()],
        )
    }
}

fn failure(class: FailureClass, evidence: &Evidence) -> Judged {
    let name = class.as_str();
    let sum = |metric| evidence.sum(Some(name), metric);
    let (failed, retried, dead_lettered) = (sum("Failed"), sum("Requeued"), sum("DeadLettered"));
    let delays = evidence.values(Some(name), "RetryDelay");
    let times: Vec<String> = delays.iter().map(|delay| span(Duration::from_secs(*delay))).collect();
    let is_final = class == FailureClass::NonRetryable;
    let is_early =
        class == FailureClass::RateLimit && delays.iter().any(|delay| *delay < RETRY_AFTER);
    let (level, meaning) = if failed == 0 {
        (
            Level::Danger,
            "Something between function and endpoint responds otherwise, such as a proxy, or a \
             rule of the policy gives the response another class.",
        )
    } else if is_final && dead_lettered == 0 {
        (
            Level::Danger,
            "The function did not send the message on its way to the dead-letter queue.",
        )
    } else if !is_final && retried == 0 {
        (Level::Warning, "The policy allows this class no retry, or SQS did not confirm the copy.")
    } else if is_early {
        (Level::Warning, "The header Retry-After did not arrive: a proxy removed it.")
    } else {
        (Level::Ok, "")
    };
    let seen = match (failed, is_final, retried) {
        (0, ..) => format!("no failure of this class; failures: {}", evidence.failures()),
        (_, true, _) => format!("{failed} failed, {dead_lettered} dead-lettered"),
        (_, false, 0) => format!("{failed} failed, none retried"),
        _ => format!("{failed} failed, {} retried after {}", times.len(), times.join(", ")),
    };
    (level, seen, meaning, Vec::new())
}

fn completed(plan: &Plan, seen: &Seen) -> Judged {
    let (done, left) = (seen.completed(), seen.source.all());
    let (level, meaning, remedies) = if seen.evidence.sum(None, "SendUnconfirmed") > 0 {
        let meaning = "SQS did not confirm a copy: see the runbook, \"Send unconfirmed\".";
        (Level::Danger, meaning, vec![plan.doctor()])
    } else if done >= COMPLETING {
        (Level::Ok, "", Vec::new())
    } else if left > 0 {
        (
            Level::Unknown,
            "A message still waits for its retry. The policy's delay may be longer than the wait; \
             if so, the next run needs a longer --wait.",
            vec![format!(
                "aws sqs get-queue-attributes --queue-url {} --attribute-names All",
                plan.source.url()
            )],
        )
    } else {
        (
            Level::Danger,
            "A message has left the queue and did not complete: something else receives from it.",
            vec![plan.doctor()],
        )
    };
    (level, format!("{done} completed, {left} in {}", plan.source.name()), meaning, remedies)
}

fn dead_letter(plan: &Plan, seen: &Seen) -> Judged {
    let name = plan.dead_letters.name();
    let look = vec![format!("requeue dlq list --queue {}", plan.dead_letters.url())];
    let Some(after) = seen.arrived_after else {
        return if plan.moved_after.is_some() {
            let found = "not awaited: in this mode SQS moves the message by itself".to_owned();
            (Level::Unknown, found, "Look again after that time.", look)
        } else {
            let (count, waited) = (seen.dead_letters.1, span(seen.waited));
            (
                Level::Danger,
                format!("{name} has {count} messages as before, after {waited}"),
                "The given-up message does not reach its queue, or the dead-letter queue has a \
                 consumer of its own.",
                look,
            )
        };
    };
    let arrived = format!("in {name} after {}", span(after));
    let (level, found, meaning) = match &seen.letter {
        Letter::Found { class: Some(class), reason: Some(reason) } => {
            let found = format!("{arrived}, class {class}, reason {reason}");
            return (Level::Ok, found, "", Vec::new());
        }
        Letter::Found { .. } if plan.moved_after.is_some() => {
            return (Level::Ok, format!("{arrived}, without a reason"), "", Vec::new());
        }
        Letter::Found { .. } => (
            Level::Warning,
            format!("{arrived}, without a reason"),
            "SQS moved the message before Requeue could note the reason.",
        ),
        Letter::NotLooked => (
            Level::Unknown,
            format!("{arrived}; its reason was not read, since other messages are there"),
            "A look at a message counts as a receive, so the command looks only into a queue that \
             was empty.",
        ),
        Letter::NotFound => (
            Level::Unknown,
            format!("{arrived} by its count, but SQS did not hand it out"),
            "SQS's counts are approximate, and a short queue may give nothing at first.",
        ),
        Letter::Refused(code) => (
            Level::Unknown,
            format!("{arrived}; its reason was not read ({code})"),
            "The look needs sqs:ReceiveMessage on the dead-letter queue, and kms:Decrypt on its \
             key.",
        ),
    };
    (level, found, meaning, look)
}

fn metrics(seen: &Seen) -> Judged {
    match &seen.metrics {
        Metrics::Received(sum) => (Level::Ok, format!("{sum} received"), "", Vec::new()),
        Metrics::Refused(code) => (
            Level::Unknown,
            format!("not asked: cloudwatch:GetMetricStatistics was refused ({code})"),
            "The log has the lines of metrics. Whether CloudWatch reads them is not known.",
            vec!["run it with the permission cloudwatch:GetMetricStatistics".to_owned()],
        ),
        Metrics::None => (
            Level::Unknown,
            "none yet, but the log has the lines".to_owned(),
            "CloudWatch may take some minutes. If there are none after 15 minutes, it refused the \
             lines; an emulator may make no metrics at all.",
            vec![format!(
                "aws cloudwatch list-metrics --namespace {REQUEUE} --dimensions \
                 Name=Service,Value={}",
                seen.evidence.service.as_deref().unwrap_or_default()
            )],
        ),
    }
}
