//! Reads the facts of a status: each from the service that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use requeue::Clock;
use requeue::queue::{Description, QueueArn};
use serde_json::Value;

use super::log::{ANY, LogFacts, PATTERN};
use super::{Age, Arguments, Depth, FunctionStatus, METRICS, Status};
use crate::Error;
use crate::dlq::sqs::Sqs;
use crate::doctor::{Arn, Clients, Invoked, Known, settings, text, unknown};
use crate::endpoints::Endpoints;
use crate::failed_call::Cause;
use crate::function::FunctionConfiguration;
use crate::observe::epoch_millis;
use crate::table::span;

/// SQS writes its metrics each minute, and late. Source: SQS developer guide, "Available CloudWatch
/// metrics for Amazon SQS".
const AGE_SPAN: u32 = 600;
const AGE_PERIOD: u32 = 60;
/// Requests for the lines of a log: up to 1 MB or 10,000 lines each.
const MAX_PAGES: u32 = 10;
/// An outage may fill the log, and its lines come the oldest first: the last ones are read alone then.
const SHORT: Duration = Duration::from_secs(60);
const MAX_FUNCTIONS: usize = 10;

pub(super) struct Reader {
    sqs: Sqs,
    /// `None` at an SQS without AWS's other services.
    clients: Option<Clients>,
    status: Status,
}

impl Reader {
    pub(super) fn new(arguments: &Arguments, sqs: Sqs, clients: Option<Clients>) -> Self {
        let (now, since) = (Clock::system().now(), arguments.since);
        let (queues, functions, unknown) = Default::default();
        Self { sqs, clients, status: Status { now, since, queues, functions, unknown } }
    }

    pub(super) async fn of_function(mut self, invoked: Invoked) -> Result<Status, Error> {
        let queues = invoked.mappings.iter().filter_map(|mapping| text(&mapping["EventSourceArn"]));
        let queues: BTreeSet<String> = queues.collect();
        for queue in queues.iter().filter_map(|queue| queue.parse().ok()) {
            self.queue(&queue).await?;
        }
        if invoked.mappings.is_empty() {
            let name = invoked.configuration.function_name.as_deref().unwrap_or_default();
            let why = if invoked.mapped.is_empty() {
                format!(
                    "no event source mapping invokes {name}; if one invokes an alias, name it as \
                     {name}:ALIAS"
                )
            } else {
                format!("name what the mappings invoke: {}", invoked.mapped.join(" or "))
            };
            self.tell(format!("queues and counts: {why}"));
        }
        self.function(invoked.configuration, &invoked.mappings).await;
        Ok(self.status)
    }

    pub(super) async fn of_queue(mut self, queue: &QueueArn) -> Result<Status, Error> {
        self.queue(queue).await?;
        let Some(clients) = &self.clients else {
            self.tell(
                "oldest message, circuit and failures: this endpoint has only the API of SQS; `requeue serve` and \
                 `requeue work` show circuit and failures in their output, and on their page with --ui"
                    .to_owned(),
            );
            return Ok(self.status);
        };
        let consumers = clients.consumers(&queue.to_string()).await;
        let Some(consumers) = self.known("circuit and failures", consumers) else {
            return Ok(self.status);
        };
        let mut functions: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for mapping in consumers {
            if let Some(function) = text(&mapping["FunctionArn"]) {
                functions.entry(function).or_default().push(mapping);
            }
        }
        if functions.is_empty() {
            let name = queue.name();
            self.tell(format!(
                "circuit and failures: {name} invokes no function; a worker tells of them in its \
                 output, and on its page with --ui"
            ));
        }
        for (function, mappings) in functions.into_iter().take(MAX_FUNCTIONS) {
            let Some(clients) = &self.clients else { break };
            match clients.configuration(&function).await {
                Ok(configuration) => self.function(configuration, &mappings).await,
                Err(error) => self.tell(error.to_string()),
            }
        }
        Ok(self.status)
    }

    fn tell(&mut self, unknown: String) {
        self.status.unknown.push(match &self.clients {
            Some(clients) => Endpoints::of(&clients.sdk).named_in(&unknown),
            None => unknown,
        });
    }

    fn known<T>(&mut self, what: &str, fact: Known<T>) -> Option<T> {
        fact.inspect_err(|unread| {
            let (found, remedy) = unknown(unread);
            self.status.unknown.push(format!("{what}: {found}; {remedy}"));
        })
        .ok()
    }

    async fn queue(&mut self, queue: &QueueArn) -> Result<(), Error> {
        let described = self.sqs.describe(queue).await?;
        let dead_letters = described.dead_letter_queue.clone();
        self.depth(described, false).await;
        let Some(dead_letters) = dead_letters else { return Ok(()) };
        match self.sqs.describe(&dead_letters).await {
            Ok(described) => self.depth(described, true).await,
            Err(error) => {
                self.tell(error.to_string());
                let (queue, oldest) = (dead_letters, Age::Unknown);
                let depth = Depth { queue, is_of_dead_letters: true, counts: None, oldest };
                self.status.queues.push(depth);
            }
        }
        Ok(())
    }

    async fn depth(&mut self, described: Description, is_of_dead_letters: bool) {
        let queue = described.arn.clone();
        let oldest =
            if described.messages == 0 { Age::Empty } else { self.oldest(queue.name()).await };
        let counts = Some(described);
        self.status.queues.push(Depth { queue, is_of_dead_letters, counts, oldest });
    }

    async fn oldest(&mut self, queue: &str) -> Age {
        let Some(clients) = &self.clients else { return Age::Unknown };
        let metric = ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum");
        let times = (self.epoch_secs() - i64::from(AGE_SPAN), AGE_SPAN);
        let ages = clients.statistic(metric, &[("QueueName", queue)], times, AGE_PERIOD).await;
        let what = format!("oldest message of {queue}");
        match self.known(&what, ages).map(|ages| ages.last().copied()) {
            Some(Some((_, secs))) => Age::Of(Duration::try_from_secs_f64(secs).unwrap_or_default()),
            Some(None) => {
                self.tell(format!("{what}: CloudWatch has no value of the last 10 min"));
                Age::Unknown
            }
            None => Age::Unknown,
        }
    }

    fn epoch_secs(&self) -> i64 {
        i64::try_from(epoch_millis(self.status.now) / 1_000).unwrap_or_default()
    }

    async fn function(&mut self, configuration: FunctionConfiguration, mappings: &[Value]) {
        let name = configuration.function_name.clone().unwrap_or_default();
        let settings = self.known(&format!("settings of {name}"), settings(&configuration, None));
        let reserved = match &self.clients {
            Some(clients) => clients.reserved_concurrency(&name).await,
            None => Ok(None),
        };
        let reserved = self.known(&format!("concurrency of {name}"), reserved);
        let each = mappings.iter().map(|mapping| {
            let arn = text(&mapping["EventSourceArn"]).unwrap_or_default();
            let state = text(&mapping["State"]).unwrap_or_else(|| "unknown".to_owned());
            (Arn::of(&arn).resource.to_owned(), state)
        });
        let mappings: Vec<_> = each.collect();
        // Without its settings, the metrics have the function's name.
        let service = settings.as_ref().map_or(Some(&*name), |read| {
            read.config.metrics.as_ref().map(|metrics| &*metrics.service)
        });
        let counts = if let Some(service) = service {
            self.counts(service, &mappings).await
        } else {
            self.tell(format!("counts of {name}: REQUEUE_METRICS is off"));
            None
        };
        let invalid_settings = settings.map(|read| read.problems).unwrap_or_default();
        let logs = configuration.logging_config.unwrap_or_default();
        // An emulator may not return the format.
        let (log, log_since) = match logs.lacks_lines().filter(|_| logs.log_format.is_some()) {
            Some(why) => {
                self.tell(format!("log of {name}: {why}; run `requeue doctor --function {name}`"));
                (None, self.status.since)
            }
            None => self.log(&logs.group_of(&name), &name).await,
        };
        let state = configuration.state.told();
        let reserved_concurrency = reserved.flatten();
        let status = FunctionStatus {
            name,
            state,
            reserved_concurrency,
            invalid_settings,
            mappings,
            counts,
            log,
            log_since,
        };
        self.status.functions.push(status);
    }

    async fn counts(
        &mut self,
        service: &str,
        mappings: &[(String, String)],
    ) -> Option<[u64; METRICS.len()]> {
        // Without a queue, the metrics have no name.
        let clients = self.clients.as_ref().filter(|_| !mappings.is_empty())?;
        let secs = u32::try_from(self.status.since.as_secs().next_multiple_of(60)).ok()?;
        let times = (self.epoch_secs() - i64::from(secs), secs);
        let sums = join_all(mappings.iter().flat_map(|(queue, _)| {
            METRICS.iter().enumerate().map(move |(at, (_, metric))| async move {
                let dimensions = [("Service", service), ("Queue", queue.as_str())];
                clients.metric_sum(metric, dimensions, times).await.map(|sum| (at, sum))
            })
        }));
        let what = format!("counts of {service}");
        let sums = sums.await.into_iter().collect::<Known<Vec<_>>>();
        let sums = self.known(&what, sums)?;
        if sums.iter().all(|(_, sum)| sum.is_none()) {
            self.tell(format!(
                "{what}: CloudWatch has no metrics of the last {}; no batch ran, each invocation failed, or they are late",
                span(self.status.since)
            ));
            return None;
        }
        let mut counts = [0; METRICS.len()];
        for (at, sum) in sums {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let sum = sum.unwrap_or_default() as u64;
            counts[at] += sum;
        }
        Some(counts)
    }

    async fn log(&mut self, group: &str, function: &str) -> (Option<LogFacts>, Duration) {
        let mut since = self.status.since;
        for last in [since, SHORT] {
            since = last;
            let from = epoch_millis(self.status.now - since);
            let Some(clients) = &self.clients else { break };
            let lines = clients.log_lines(group, from, Some(PATTERN), MAX_PAGES).await;
            if lines.as_ref().is_err_and(|it| Cause::of(&it.error.code) == Cause::NotFound) {
                self.tell(format!(
                    "circuit and failures: the log group {group} does not exist; run `requeue \
                     doctor --function {function}`"
                ));
                break;
            }
            let none = |lines: &Known<(Vec<_>, bool)>| matches!(lines, Ok((none, true)) if none.is_empty());
            if none(&lines) && none(&clients.log_lines(group, from, Some(ANY), 1).await) {
                self.tell(format!(
                    "circuit and failures: {group} has no line of Requeue in the last {}; no batch \
                     ran, or its lines are not written: run `requeue doctor --function {function}`",
                    span(since)
                ));
                break;
            }
            let Some((lines, is_all)) = self.known("circuit and failures", lines) else { break };
            if is_all {
                let mut facts = LogFacts::default();
                for line in &lines {
                    facts.take(line);
                }
                return (Some(facts), since);
            }
            let read = span(since);
            self.tell(format!(
                "circuit and failures of the last {read}: {group} has more lines than {MAX_PAGES} \
                 requests read; name a shorter time with --since"
            ));
        }
        (None, since)
    }
}
