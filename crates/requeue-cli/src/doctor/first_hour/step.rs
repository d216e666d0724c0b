//! Compares the results with the expected ones. Asks AWS nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use requeue::FailureClass;
use serde::Serialize;
use serde_json::Value;

use super::super::checks::REQUEUE;
use super::super::diagnosis::{Level, Remedy};
use super::plan::{MESSAGES, Plan, RETRY_AFTER, Target, TestMessage};
use crate::table::span;

#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) id: &'static str,
    pub(crate) level: Level,
    pub(crate) expected: String,
    pub(crate) seen: String,
    /// The meaning of a difference; empty if there is none.
    pub(crate) meaning: &'static str,
    pub(crate) remedies: Vec<Remedy>,
}

/// The function's lines of metrics, which come at every log level and hold no message: the values
/// of one queue, of all its messages (`None`) and by class.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    values: BTreeMap<(Option<String>, String), Vec<u64>>,
    pub(crate) service: Option<String>,
}

impl Evidence {
    /// Adds a line of the log, if it holds metrics of this queue.
    pub(crate) fn add(&mut self, queue: &str, line: &str) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for directive in items(&line["_aws"]["CloudWatchMetrics"]) {
            if directive["Namespace"] != REQUEUE || line["Queue"] != queue {
                continue;
            }
            self.service = line["Service"].as_str().map(str::to_owned).or(self.service.take());
            let class = line["Class"].as_str().map(str::to_owned);
            for name in items(&directive["Metrics"]) {
                let name = name["Name"].as_str().unwrap_or_default();
                let values = self.values.entry((class.clone(), name.to_owned())).or_default();
                let several = items(&line[name]);
                values.extend(several.iter().chain([&line[name]]).filter_map(Value::as_u64));
            }
        }
    }

    pub(crate) fn values(&self, class: Option<&str>, metric: &str) -> &[u64] {
        let key = (class.map(str::to_owned), metric.to_owned());
        self.values.get(&key).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn sum(&self, class: Option<&str>, metric: &str) -> u64 {
        self.values(class, metric).iter().sum()
    }

    /// The classes with failures, as in `quota 1, temporary 2`; or `none`.
    pub(crate) fn failures(&self) -> String {
        let failed = self.values.iter().filter(|((_, metric), _)| metric == "Failed");
        let classes = failed.filter_map(|((class, _), values)| {
            Some(format!("{} {}", class.as_ref()?, values.iter().sum::<u64>()))
        });
        let classes: Vec<String> = classes.collect();
        if classes.is_empty() { "none".to_owned() } else { classes.join(", ") }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) evidence: Evidence,
    pub(crate) source: u64,
    /// The count of the dead-letter queue before the first message, and now.
    pub(crate) dead_letters: (u64, u64),
    pub(crate) completed_after: Option<Duration>,
    /// When the dead-letter queue's count rose, from the sending of its message.
    pub(crate) arrived_after: Option<Duration>,
    /// The reason in the dead letter, or why it was not read; `None` if a look could move others.
    pub(crate) letter: Option<Result<Option<Reason>, String>>,
    /// CloudWatch's sum of the metric `Received`, or its code; `None` if it has no values yet.
    pub(crate) received: Option<Result<f64, String>>,
    pub(crate) waited: Duration,
    /// Whether all messages were sent, or only the first one.
    pub(crate) is_whole: bool,
}

#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) class: String,
    pub(crate) reason: String,
}

const COMPLETING: u64 = 4;

impl Seen {
    pub(crate) fn completed(&self) -> u64 {
        self.evidence.sum(None, "Completed")
    }

    pub(crate) fn has_first(&self) -> bool {
        self.completed() > 0 || self.evidence.sum(None, "DeadLettered") > 0
    }

    /// Whether each of these that should fail did so.
    pub(crate) fn has_failed<'m>(&self, all: impl IntoIterator<Item = &'m TestMessage>) -> bool {
        let mut classes = all.into_iter().filter_map(|message| message.class);
        classes.all(|class| self.evidence.sum(Some(class.as_str()), "Failed") > 0)
    }

    pub(crate) fn is_complete(&self, plan: &Plan) -> bool {
        // A message that SQS moves by itself is in the queue until then.
        let left = u64::from(plan.moved_after.is_some());
        self.has_failed(&MESSAGES)
            && self.completed() >= COMPLETING
            && self.source <= left
            && (plan.moved_after.is_some() || self.arrived_after.is_some())
    }
}

/// A level, the result, the meaning of a difference, and remedies.
type Judged = (Level, String, &'static str, Vec<String>);

pub(crate) fn steps(plan: &Plan, seen: &Seen) -> Vec<Step> {
    let step = |id, expected: &str, (level, seen, meaning, remedies): Judged| {
        let expected = expected.to_owned();
        let remedies = remedies.into_iter().map(Remedy::from).collect();
        Step { id, level, expected, seen, meaning, remedies }
    };
    let messages = MESSAGES.iter().take(if seen.is_whole { MESSAGES.len() } else { 1 });
    let judged = messages.map(|message| {
        let judged = match message.class {
            None => success(plan, seen),
            Some(class) => failure(class, &plan.target, &seen.evidence),
        };
        step(message.id(), message.expected, judged)
    });
    let mut steps: Vec<Step> = judged.collect();
    if seen.is_whole {
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
    let (deferred, waited) = (seen.evidence.sum(None, "Deferred"), span(seen.waited));
    if let (true, Some(after)) = (seen.completed() > 0, seen.completed_after) {
        return (Level::Ok, format!("completed within {}", span(after)), "", Vec::new());
    }
    let (found, meaning, remedies) = if seen.evidence.sum(None, "Failed") > 0 {
        let (meaning, call) = match &plan.target {
            Target::Url(url) => (
                "The endpoint did not respond with 200, so the other messages were not sent.",
                format!("curl -i -d '{{}}' {url}"),
            ),
            Target::Function(name) => (
                "The target did not end well, so the other messages were not sent.",
                format!("aws lambda invoke --function-name {name} /dev/stdout"),
            ),
        };
        (format!("it failed: {}", seen.evidence.failures()), meaning, vec![call, tail])
    } else {
        let (found, meaning) = if deferred > 0 {
            let meaning = "The function cannot call its target, and its log names the cause.";
            (format!("deferred {deferred} times within {waited}"), meaning)
        } else {
            let meaning = "The function was not invoked, could not start, or cannot write its log.";
            (format!("no line of metrics within {waited}"), meaning)
        };
        (found, meaning, vec![tail, plan.doctor()])
    };
    (Level::Danger, found, meaning, remedies)
}

/// The classes and delays of this function come before all rules, so nothing else can differ.
const DEPLOY_AGAIN: &str =
    "The target is not the present function of examples/test-endpoint: deploy that again.";

fn failure(class: FailureClass, target: &Target, evidence: &Evidence) -> Judged {
    let name = Some(class.as_str());
    let [failed, retried, dead_lettered] =
        ["Failed", "Requeued", "DeadLettered"].map(|metric| evidence.sum(name, metric));
    let delays = evidence.values(name, "RetryDelay");
    let is_final = class == FailureClass::NonRetryable;
    let is_early =
        class == FailureClass::RateLimit && delays.iter().any(|delay| *delay < RETRY_AFTER);
    let (otherwise, early) = match target {
        Target::Url(_) => (
            "Something between function and endpoint responds otherwise, such as a proxy, or a \
             rule of the policy gives the response another class.",
            "The header Retry-After did not arrive: a proxy removed it.",
        ),
        Target::Function(_) => (DEPLOY_AGAIN, DEPLOY_AGAIN),
    };
    let (level, meaning) = if failed == 0 {
        (Level::Danger, otherwise)
    } else if is_final && dead_lettered == 0 {
        (
            Level::Danger,
            "The function did not send the message on its way to the dead-letter queue.",
        )
    } else if !is_final && retried == 0 {
        (Level::Warning, "The policy allows this class no retry, or SQS did not confirm the copy.")
    } else if is_early {
        (Level::Warning, early)
    } else {
        (Level::Ok, "")
    };
    let seen = if failed == 0 {
        format!("no failure of this class; failures: {}", evidence.failures())
    } else if is_final {
        format!("{failed} failed, {dead_lettered} dead-lettered")
    } else if retried == 0 {
        format!("{failed} failed, none retried")
    } else {
        let times = delays.iter().map(|delay| span(Duration::from_secs(*delay)));
        let times: Vec<String> = times.collect();
        format!("{failed} failed, {} retried after {}", times.len(), times.join(", "))
    };
    (level, seen, meaning, Vec::new())
}

fn completed(plan: &Plan, seen: &Seen) -> Judged {
    let (done, left, source) = (seen.completed(), seen.source, &plan.source);
    let (level, meaning, remedy) = if seen.evidence.sum(None, "SendUnconfirmed") > 0 {
        let meaning = "SQS did not confirm a copy: see the runbook, \"Send unconfirmed\".";
        (Level::Danger, meaning, Some(plan.doctor()))
    } else if done >= COMPLETING {
        (Level::Ok, "", None)
    } else if left > 0 {
        let meaning = "A message still waits for its retry. The policy's delay may be longer than \
                       the wait; if so, the next run needs a longer --wait.";
        let url = source.url();
        let look = format!("aws sqs get-queue-attributes --queue-url {url} --attribute-names All");
        (Level::Unknown, meaning, Some(look))
    } else {
        let meaning = "A message has left the queue and did not complete: something else receives \
                       from it.";
        (Level::Danger, meaning, Some(plan.doctor()))
    };
    let seen = format!("{done} completed, {left} in {}", source.name());
    (level, seen, meaning, remedy.into_iter().collect())
}

fn dead_letter(plan: &Plan, seen: &Seen) -> Judged {
    let name = plan.dead_letters.name();
    let moves_itself = plan.moved_after.is_some();
    let arrived = seen.arrived_after.map(|after| format!("in {name} after {}", span(after)));
    let (level, found, meaning) = match (arrived, &seen.letter) {
        (None, _) if moves_itself => (
            Level::Unknown,
            "not awaited: in this mode SQS moves the message by itself".to_owned(),
            "Look again after that time.",
        ),
        (None, _) => (
            Level::Danger,
            format!(
                "{name} has {} messages as before, after {}",
                seen.dead_letters.1,
                span(seen.waited)
            ),
            "The dead-lettered message does not reach its queue, or the dead-letter queue has a consumer \
             of its own.",
        ),
        (Some(arrived), Some(Ok(Some(Reason { class, reason })))) => {
            (Level::Ok, format!("{arrived}, class {class}, reason {reason}"), "")
        }
        (Some(arrived), Some(Ok(None))) => {
            let found = format!("{arrived}, without a reason");
            let early = "SQS moved the message before Requeue could note the reason.";
            if moves_itself { (Level::Ok, found, "") } else { (Level::Warning, found, early) }
        }
        (Some(arrived), unread) => {
            let why = unread.as_ref().and_then(|read| read.as_ref().err());
            let why = why.map_or("other messages are there", String::as_str);
            (
                Level::Unknown,
                format!("{arrived}; its reason was not read: {why}"),
                "A look at a message counts as a receive, so the command looks only into a queue \
                 that was empty. The look needs sqs:ReceiveMessage on that queue, and kms:Decrypt on \
                 its key. SQS's counts are approximate, and a short queue may give nothing at first.",
            )
        }
    };
    let look = format!("requeue dlq list --queue {}", plan.dead_letters.url());
    (level, found, meaning, (level != Level::Ok).then_some(look).into_iter().collect())
}

fn metrics(seen: &Seen) -> Judged {
    match &seen.received {
        Some(Ok(sum)) => (Level::Ok, format!("{sum} received"), "", Vec::new()),
        Some(Err(code)) => (
            Level::Unknown,
            format!("not asked: cloudwatch:GetMetricStatistics was refused ({code})"),
            "The log has the lines of metrics. Whether CloudWatch reads them is not known.",
            vec!["run it with the permission cloudwatch:GetMetricStatistics".to_owned()],
        ),
        None => (
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
