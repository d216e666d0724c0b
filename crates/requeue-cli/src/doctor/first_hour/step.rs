//! Compares what was seen with what was expected. Asks AWS nothing.

use std::time::Duration;

use requeue::FailureClass;

use super::super::checks::REQUEUE;
use super::super::diagnosis::Level;
use super::calls::Counts;
use super::evidence::Evidence;
use super::message::{RETRY_AFTER, TestMessage};
use super::plan::Plan;
use crate::table::span;

/// One result.
#[derive(Debug)]
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

    /// Whether the first message completed, or was given up.
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

pub(crate) fn steps(plan: &Plan, seen: &Seen) -> Vec<Step> {
    let mut steps = vec![success(plan, seen)];
    if seen.is_whole {
        let failing = TestMessage::ALL.into_iter().filter_map(|message| match message {
            TestMessage::Success => None,
            TestMessage::Failing(class) => Some(failure(message, class, &seen.evidence)),
        });
        steps.extend(failing);
        steps.push(completed(plan, seen));
        steps.push(dead_letter(plan, seen));
        steps.push(metrics(seen));
    }
    steps
}

fn success(plan: &Plan, seen: &Seen) -> Step {
    let expected = TestMessage::Success.expected().to_owned();
    let id = TestMessage::Success.id();
    if let (true, Some(after)) = (seen.has_success(), seen.completed_after) {
        let seen = format!("completed within {}", span(after));
        return Step { id, level: Level::Ok, expected, seen, meaning: "", remedies: Vec::new() };
    }
    let (found, meaning, remedies) = if seen.evidence.sum(None, "Failed") > 0 {
        (
            format!("it failed: {}", seen.evidence.failures()),
            "The endpoint did not respond with 200, so the other messages were not sent.",
            vec![
                format!("curl -i -d '{{}}' {}", plan.target),
                format!("aws logs tail {} --since 10m", plan.log_group),
            ],
        )
    } else {
        (
            format!("no line of metrics within {}", span(seen.waited)),
            "The function was not invoked, could not start, or cannot write its log.",
            vec![
                format!("aws logs tail {} --since 10m", plan.log_group),
                format!("requeue doctor --function {}", plan.function),
            ],
        )
    };
    Step { id, level: Level::Danger, expected, seen: found, meaning, remedies }
}

fn failure(message: TestMessage, class: FailureClass, evidence: &Evidence) -> Step {
    let name = class.as_str();
    let sum = |metric| evidence.sum(Some(name), metric);
    let (failed, retried, given_up) = (sum("Failed"), sum("Requeued"), sum("DeadLettered"));
    let delays = evidence.values(Some(name), "RetryDelay");
    let is_final = class == FailureClass::NonRetryable;
    let (level, seen, meaning) = if failed == 0 {
        (
            Level::Danger,
            format!("no failure of this class; failures: {}", evidence.failures()),
            "Something between function and endpoint responds otherwise, such as a proxy, or a \
             rule of the policy gives the response another class.",
        )
    } else if is_final && given_up > 0 {
        (Level::Ok, format!("{failed} failed, {given_up} given up"), "")
    } else if !is_final && retried == 0 {
        (
            Level::Warning,
            format!("{failed} failed, none retried"),
            "The policy allows this class no retry, or SQS did not confirm the copy.",
        )
    } else if class == FailureClass::RateLimit && delays.iter().any(|delay| *delay < RETRY_AFTER) {
        (
            Level::Warning,
            format!("{failed} failed, {}", after(delays)),
            "The header Retry-After did not arrive: a proxy removed it.",
        )
    } else if is_final {
        (
            Level::Danger,
            format!("{failed} failed, none given up"),
            "The function did not send the message on its way to the dead-letter queue.",
        )
    } else {
        (Level::Ok, format!("{failed} failed, {}", after(delays)), "")
    };
    let expected = message.expected().to_owned();
    Step { id: message.id(), level, expected, seen, meaning, remedies: Vec::new() }
}

/// `1 retried after 6 s`.
fn after(delays: &[u64]) -> String {
    let times: Vec<String> = delays.iter().map(|delay| span(Duration::from_secs(*delay))).collect();
    format!("{} retried after {}", delays.len(), times.join(", "))
}

fn completed(plan: &Plan, seen: &Seen) -> Step {
    let (done, left) = (seen.completed(), seen.source.all());
    let unconfirmed = seen.evidence.sum(None, "SendUnconfirmed");
    let expected = format!("{COMPLETING} messages complete");
    let found = format!("{done} completed, {left} in {}", plan.source.name());
    let (level, meaning, remedies) = if unconfirmed > 0 {
        (
            Level::Danger,
            "SQS did not confirm a copy: see the runbook, \"Send unconfirmed\".",
            vec![format!("requeue doctor --function {}", plan.function)],
        )
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
            vec![format!("requeue doctor --function {}", plan.function)],
        )
    };
    Step { id: "completed", level, expected, seen: found, meaning, remedies }
}

fn dead_letter(plan: &Plan, seen: &Seen) -> Step {
    let name = plan.dead_letters.name();
    let look = format!("requeue dlq list --queue {}", plan.dead_letters.url());
    let step = |level, found: String, meaning| {
        let remedies = if level == Level::Ok { Vec::new() } else { vec![look.clone()] };
        let expected = plan.arrival();
        Step { id: "dead-letter", level, expected, seen: found, meaning, remedies }
    };
    let Some(after) = seen.arrived_after else {
        return if plan.moved_after.is_some() {
            let found = "not awaited: in this mode SQS moves the message by itself".to_owned();
            step(Level::Unknown, found, "Look again after that time.")
        } else {
            let found = format!(
                "{name} has {} messages as before, after {}",
                seen.dead_letters.1,
                span(seen.waited)
            );
            step(
                Level::Danger,
                found,
                "The given-up message does not reach its queue, or the dead-letter queue has a \
                 consumer of its own.",
            )
        };
    };
    let arrived = format!("in {name} after {}", span(after));
    match &seen.letter {
        Letter::Found { class: Some(class), reason: Some(reason) } => {
            step(Level::Ok, format!("{arrived}, class {class}, reason {reason}"), "")
        }
        Letter::Found { .. } if plan.moved_after.is_some() => {
            step(Level::Ok, format!("{arrived}, without a reason"), "")
        }
        Letter::Found { .. } => step(
            Level::Warning,
            format!("{arrived}, without a reason"),
            "SQS moved the message before Requeue could note the reason.",
        ),
        Letter::NotLooked => step(
            Level::Unknown,
            format!("{arrived}; its reason was not read, since other messages are there"),
            "A look at a message counts as a receive, so the command looks only into a queue that \
             was empty.",
        ),
        Letter::NotFound => step(
            Level::Unknown,
            format!("{arrived} by its count, but SQS did not hand it out"),
            "SQS's counts are approximate, and a short queue may give nothing at first.",
        ),
        Letter::Refused(code) => step(
            Level::Unknown,
            format!("{arrived}; its reason was not read ({code})"),
            "The look needs sqs:ReceiveMessage on the dead-letter queue, and kms:Decrypt on its \
             key.",
        ),
    }
}

fn metrics(seen: &Seen) -> Step {
    let step = |level, seen, meaning, remedies| {
        let expected = "CloudWatch has values of the metric Received".to_owned();
        Step { id: "metrics", level, expected, seen, meaning, remedies }
    };
    match &seen.metrics {
        Metrics::Received(sum) => step(Level::Ok, format!("{sum} received"), "", Vec::new()),
        Metrics::Refused(code) => step(
            Level::Unknown,
            format!("not asked: cloudwatch:GetMetricStatistics was refused ({code})"),
            "The log has the lines of metrics. Whether CloudWatch reads them is not known.",
            vec!["run it with the permission cloudwatch:GetMetricStatistics".to_owned()],
        ),
        Metrics::None => step(
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
