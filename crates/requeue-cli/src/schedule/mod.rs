//! `requeue schedule`: the times, requests and costs that follow from a policy.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use requeue::policy::{ClassPolicy, RetryPolicy};
use requeue::{FailureClass, QueueConfig, Strategy};
use serde_json::{Value, json};

use crate::Error;
use crate::document::{self, Document, PolicyArgument, PolicyName};
use crate::duration_argument::{parse, within};
use crate::output::{self, ChartFile};

pub(crate) mod chart;
pub(crate) mod timeline;
pub(crate) mod panel;
mod text;

use timeline::{Batching, DeadLettering, JitterRange, Requests, Timeline, WaitMode};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The policy, in the forms of --policy.
    #[arg(value_name = "POLICY", conflicts_with = "policy")]
    file: Option<PolicyName>,
    #[command(flatten)]
    policy: PolicyArgument,
    /// Print JSON instead of tables.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Write a chart to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    queue: QueueModel,
    /// The message attribute `requeue.maxRetries` of a producer: it can only lower the policy's
    /// limit.
    #[arg(long, help_heading = "Limits of one message", value_name = "COUNT")]
    max_retries: Option<u32>,
    /// The message attribute `requeue.ttlSeconds` of a producer: it can only lower the policy's
    /// limit.
    #[arg(long, help_heading = "Limits of one message", alias = "ttl-seconds", value_name = "DURATION", value_parser = parse)]
    ttl: Option<Duration>,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct QueueModel {
    /// How a message waits for its next attempt, as in `REQUEUE_STRATEGY`. On a FIFO queue it is
    /// always `visibility`.
    #[arg(long, help_heading = "Queue", default_value = "copy",
          value_parser = PossibleValuesParser::new(["copy", "visibility"]).map(|word| strategy(&word)))]
    strategy: Strategy,
    /// How a message that is dead-lettered reaches the dead-letter queue, as in `REQUEUE_DEAD_LETTER`.
    #[arg(long, help_heading = "Queue", value_enum, default_value_t = DeadLetterArgument::Redrive)]
    dead_letter: DeadLetterArgument,
    /// `maxReceiveCount` in the redrive policy of the queue. [default: that of the document's
    /// `queueConfig`, or 5]
    #[arg(long, help_heading = "Queue", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    max_receive_count: Option<u32>,
    /// The visibility timeout of the queue. A message that is left to SQS becomes visible after it.
    /// [default: that of the document's `queueConfig`, or 6m]
    #[arg(long, help_heading = "Queue", value_name = "DURATION", value_parser = within(0..=43_200))]
    visibility_timeout: Option<Duration>,
    /// The size of a message with its attributes. AWS bills each 64 KiB as one request.
    #[arg(long, help_heading = "Queue", value_name = "BYTES", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(timeline::MAX_BYTES)))]
    message_bytes: u32,
    /// US dollars for a million SQS requests. The default is the price of a standard queue in
    /// us-east-1 in 2026: see <https://aws.amazon.com/sqs/pricing>.
    #[arg(long, help_heading = "Queue", value_name = "USD", default_value_t = timeline::PRICE, value_parser = price)]
    price_per_million: f64,
}

impl QueueModel {
    fn max_receives(&self) -> u32 {
        self.max_receive_count.unwrap_or(MAX_RECEIVE_COUNT)
    }

    fn visibility(&self) -> Duration {
        self.visibility_timeout.unwrap_or(VISIBILITY_TIMEOUT)
    }

    fn waiting(&self) -> WaitMode {
        match self.strategy {
            Strategy::Copy => WaitMode::InCopies,
            _ => WaitMode::InPlace { max_receives: self.max_receives() },
        }
    }
}

/// The template's value.
const MAX_RECEIVE_COUNT: u32 = 5;
/// Six times the template's `FunctionTimeout`. The template adds 20 s for a batching window.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(360);

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DeadLetterArgument {
    Redrive,
    Annotate,
    Direct,
}

impl DeadLetterArgument {
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn strategy(word: &str) -> Strategy {
    if word == "copy" { Strategy::Copy } else { Strategy::Visibility }
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "it must be a number of at least 0".to_owned())
}

pub(crate) struct Schedule {
    name: String,
    policy: RetryPolicy,
    queue: QueueModel,
    classes: Vec<ClassSchedule>,
    /// Whether the policy has rules, whose delays are not shown.
    has_rules: bool,
}

struct ClassSchedule {
    class: FailureClass,
    timelines: JitterRange<Timeline>,
    dead_lettering: JitterRange<DeadLettering>,
    requests: JitterRange<Requests>,
    /// The `maxReceiveCount` that lets the policy end each timeline, if receives count as retries.
    needed: Option<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let schedule = Schedule::of(arguments)?;
    if let Some(path) = &arguments.svg {
        ChartFile::open(path)?.write(&chart::svg(&schedule, None)?)?;
    }
    if arguments.json {
        output::json(&json(&schedule))?;
    } else {
        output::words(&text::of(&schedule))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Schedule {
    fn of(arguments: &Arguments) -> Result<Self, Error> {
        let given = arguments.file.clone().or_else(|| arguments.policy.name());
        let name = given.unwrap_or(PolicyName::STANDARD);
        let Document { policy, rules, queue_config, .. } = name.read()?;
        let schedule = Self::of_policy(arguments, name.title(), policy, &queue_config);
        Ok(Self { has_rules: !rules.is_empty(), ..schedule })
    }

    /// The schedule of this policy; the other options count, and its name does not.
    pub(crate) fn of_policy(
        arguments: &Arguments,
        name: String,
        mut policy: RetryPolicy,
        named: &QueueConfig,
    ) -> Self {
        policy.max_retries = policy.max_retries.min(arguments.max_retries.unwrap_or(u32::MAX));
        policy.message_ttl = [policy.message_ttl, arguments.ttl].into_iter().flatten().min();
        let mut queue = arguments.queue;
        queue.max_receive_count = queue.max_receive_count.or(named.max_receive_count);
        queue.visibility_timeout = queue.visibility_timeout.or(named.visibility_timeout);
        let classes = FailureClass::ALL.map(|class| ClassSchedule::of(&policy, class, &queue));
        Self { name, policy, queue, classes: classes.into(), has_rules: false }
    }
}

impl ClassSchedule {
    fn is_retried(&self) -> bool {
        self.timelines.most(Timeline::count) > 0
    }

    fn of(policy: &RetryPolicy, class: FailureClass, queue: &QueueModel) -> Self {
        let timelines = Timeline::range(policy, class, queue.waiting());
        let dead_lettering = timelines.map(|timeline| DeadLettering::of(timeline, queue));
        let requests = timelines.with(&dead_lettering, |timeline, dead_lettering| {
            Requests::of(timeline, dead_lettering, queue)
        });
        let needed = (queue.strategy != Strategy::Copy).then(|| {
            let unbounded = WaitMode::InPlace { max_receives: u32::MAX };
            Timeline::range(policy, class, unbounded).most(Timeline::count) + 1
        });
        Self { class, timelines, dead_lettering, requests, needed }
    }
}

pub(crate) fn json(schedule: &Schedule) -> Value {
    let Schedule { name, policy, queue, classes, has_rules: _ } = schedule;
    json!({
        "policy": name,
        "maxRetries": policy.max_retries,
        "maxRetryAfterSeconds": policy.max_retry_after.as_secs_f64(),
        "messageTtlSeconds": policy.message_ttl.map(|ttl| ttl.as_secs_f64()),
        "maxDeferrals": policy.max_deferrals,
        "queue": {
            "strategy": queue.strategy.as_str(),
            "deadLetter": queue.dead_letter.word(),
            "maxReceiveCount": queue.max_receives(),
            "visibilityTimeoutSeconds": queue.visibility().as_secs(),
            "messageBytes": queue.message_bytes,
            "usdPerMillionRequests": queue.price_per_million,
        },
        "classes": classes.iter().map(|class| of_class(schedule, class)).collect::<Vec<_>>(),
    })
}

fn of_class(schedule: &Schedule, of: &ClassSchedule) -> Value {
    let class = schedule.policy.class(of.class);
    let longest = of.timelines.most(|timeline| timeline.retries.len());
    json!({
        "class": of.class.as_str(),
        "backoff": class.map(|class| class.backoff.as_str()),
        "baseDelaySeconds": class.map(|class| class.backoff.base().as_secs_f64()),
        "maxDelaySeconds": class.map(|ClassPolicy { max_delay, .. }| max_delay.as_secs_f64()),
        "jitter": class.map(|class| class.jitter.to_string()),
        "maxRetries": document::max_retries(&schedule.policy, of.class),
        "totalTimeoutSeconds": class.map(|class| class.total_timeout.as_secs_f64()),
        "retries": (0..longest).map(|at| of_retry(&of.timelines, at)).collect::<Vec<_>>(),
        "end": of.timelines.with(&of.dead_lettering, of_end),
        "neededMaxReceiveCount": of.needed,
        "requests": of.requests.with(&of.dead_lettering, |requests, dead_lettering| {
            of_requests(schedule, requests, dead_lettering)
        }),
    })
}

/// A timeline that ended before this retry has no value here.
fn of_retry(timelines: &JitterRange<Timeline>, at: usize) -> Value {
    let retry = timelines.map(|timeline| timeline.retries.get(at).copied());
    json!({
        "retry": at + 1,
        "delaySeconds": retry.map(|retry| retry.map(|retry| retry.delay.as_secs())),
        "ageSeconds": retry.map(|retry| retry.map(|retry| retry.age.as_secs())),
        "hops": retry.map(|retry| retry.map(|retry| retry.hops)),
    })
}

fn of_end(timeline: &Timeline, dead_lettering: &DeadLettering) -> Value {
    json!({
        "reason": timeline.end.as_str(),
        "afterRetries": timeline.count(),
        "ageSeconds": timeline.age().as_secs(),
        "ageInDeadLetterQueueSeconds": (timeline.age() + dead_lettering.time).as_secs(),
    })
}

fn of_requests(schedule: &Schedule, requests: &Requests, dead_lettering: &DeadLettering) -> Value {
    let billed = |batching| {
        json!({
            "billedRequests": requests.billed(&schedule.queue, batching),
            "usdPerMillionMessages": requests.million(&schedule.queue, batching),
        })
    };
    let mut all = json!(requests);
    all["visibilityTimeoutsUntilDeadLetterQueue"] = dead_lettering.visibility_timeouts.into();
    (all["alone"], all["batched"]) = (billed(Batching::Alone), billed(Batching::Full));
    all
}
