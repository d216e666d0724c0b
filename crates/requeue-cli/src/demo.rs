//! `requeue demo`, in virtual time. The SDK client, the HTTP handler and Lambda's rules are real.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use requeue::embedded::{EmbeddedSqs, EventSourceMapping, InvocationResult};
use requeue::queue::{QueueArn, SqsQueue};
use requeue::{
    BatchProcessor, Clock, DeadLetter, DeadLetterMode, Record, RecursiveLoop, Sampler, Settings,
    SqsEvent, respond,
};
use requeue_lambda::{HttpSettings, HttpTarget, TargetUrl};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::Error;
use crate::endpoint::{self, Endpoint, ResponseKind};
use crate::local_sqs::ServedQueue;
use crate::output::{self, outln};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, span, thousands};

mod rate;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The number of messages to send.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show a rate limit instead, in real time: eight execution environments share 20 calls in a
    /// second, and a target on 127.0.0.1 counts them. The messages are those of one tenant, and
    /// others send one each second. 300 messages take 18 s.
    #[arg(long, conflicts_with = "seed")]
    rate: bool,
    /// Print JSON instead of a table.
    #[arg(long, conflicts_with = "rate", help_heading = "Output")]
    json: bool,
}

/// Concurrent invocations, with which AWS's default scaling begins.
const CONCURRENT_INVOCATIONS: usize = 5;
const BATCH_SIZE: usize = 10;
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Six times the function's timeout, as AWS recommends.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(360);
const POLL: Duration = Duration::from_secs(20);

/// The share of a hundred, the response, and how often it is given (0 is always).
const MIX: [(u32, ResponseKind, u32); 10] = [
    (52, ResponseKind::Ok, 0),
    (9, ResponseKind::RateLimit, 1),
    (5, ResponseKind::RateLimit, 3),
    (9, ResponseKind::Unavailable, 1),
    (6, ResponseKind::Unavailable, 4),
    (1, ResponseKind::Error, 0),
    (5, ResponseKind::Quota, 2),
    (4, ResponseKind::Hang, 1),
    (5, ResponseKind::Reset, 2),
    (4, ResponseKind::Invalid, 0),
];

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all();
    if arguments.rate {
        return runtime.build()?.block_on(rate::run(arguments.messages));
    }
    Stop::end_at_once()?;
    runtime.start_paused(true).build()?.block_on(demo(arguments))
}

struct Demo {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    dead_letters: QueueArn,
    endpoint: Endpoint,
    started: Instant,
    sent: Vec<(String, ResponseKind)>,
    progress: CommandProgress,
}

async fn demo(arguments: &Arguments) -> Result<ExitCode, Error> {
    let clock = Clock::starting_at(Clock::system().now());
    let demo = Demo::set_up(&clock, arguments).await?;
    let refused = demo.sent.iter().filter(|(_, kind)| *kind != ResponseKind::Ok).count();
    output::note(format_args!(
        "{} messages, of which the endpoint refuses {} at first or always; \
         {CONCURRENT_INVOCATIONS} concurrent invocations; time is virtual",
        thousands(demo.sent.len()),
        thousands(refused),
    ));
    let mut settings = Settings::default();
    settings.sampler = Sampler::seeded(arguments.seed);
    settings.recursive_loop = RecursiveLoop::Allow;
    settings.dead_letter = Some(DeadLetterMode::Annotate);
    let url = TargetUrl::parse(endpoint::URL)?;
    // Each order is a scope, so the failures of one order defer no other.
    let mut delivery = HttpSettings::default();
    (delivery.clock, delivery.scope) = (clock, Some("/orderId".parse()?));
    let target = HttpTarget::with_connector(url, delivery, demo.endpoint.clone());
    let processor = BatchProcessor::new(target, SqsQueue::new(&demo.sqs.client()), settings);
    for ended in join_all((0..CONCURRENT_INVOCATIONS).map(|_| demo.poll(&processor))).await {
        ended?;
    }
    demo.conclude(arguments)
}

type Processor = BatchProcessor<HttpTarget<Endpoint>, SqsQueue>;

impl Demo {
    async fn set_up(clock: &Clock, arguments: &Arguments) -> Result<Self, Error> {
        let sqs = EmbeddedSqs::new(clock.clone());
        let ServedQueue { queue, dead_letters } =
            ServedQueue::create(&sqs, "orders", 5, VISIBILITY_TIMEOUT)?;
        let progress = CommandProgress::shown("demo");
        progress.count("messages", Some(arguments.messages.into()));
        let started = Instant::now();
        let (client, endpoint) = (sqs.client(), Endpoint::default());
        let sampler = Sampler::seeded(arguments.seed);
        let mut sent = Vec::new();
        for number in 1..=arguments.messages {
            let (kind, times) = pick(sampler.sample());
            let mut body = json!({ "orderId": format!("A-{number:05}"), "answer": kind });
            if times > 0 {
                body["times"] = times.into();
            }
            let message = client.send_message().queue_url(queue.url());
            let message = message.message_body(body.to_string()).send().await?;
            sent.push((message.message_id().unwrap_or_default().to_owned(), kind));
        }
        Ok(Self { sqs, queue, dead_letters, endpoint, started, sent, progress })
    }

    async fn poll(&self, processor: &Processor) -> Result<(), Error> {
        let mapping = EventSourceMapping::new(self.sqs.clone(), self.queue.clone(), BATCH_SIZE);
        while self.sqs.message_count(&self.queue)? > 0 {
            let Some(batch) = mapping.poll(POLL).await? else {
                continue;
            };
            let event: SqsEvent = serde_json::from_value(batch.event(&self.queue))?;
            let records: Vec<Record> = event.records.unwrap_or_default();
            let report = processor.process(records, Instant::now() + FUNCTION_TIMEOUT).await;
            let result = match respond(&report) {
                Ok(response) => InvocationResult::Response(serde_json::to_vec(&response)?),
                Err(_) => InvocationResult::FunctionError,
            };
            mapping.acknowledge(&batch, &result)?;
            self.note()?;
        }
        Ok(())
    }

    fn note(&self) -> Result<(), Error> {
        let (done, dead) = (self.endpoint.done(), self.sqs.message_count(&self.dead_letters)?);
        let time = span(Duration::from_secs(self.started.elapsed().as_secs()));
        self.progress.step(format!("demo, after {time} of virtual time, {dead} dead-lettered"));
        self.progress.done(done + dead);
        Ok(())
    }

    fn conclude(&self, arguments: &Arguments) -> Result<ExitCode, Error> {
        let dead = self.sqs.messages(&self.dead_letters)?;
        let dead: HashMap<String, String> =
            dead.iter().filter_map(|message| dead_letter_reason(&message.body)).collect();
        let lost = self
            .sent
            .iter()
            .filter(|(id, _)| self.endpoint.calls(id).accepted == 0 && !dead.contains_key(id))
            .count();
        let twice = self.sent.iter().filter(|(id, _)| self.endpoint.calls(id).accepted > 1).count();
        let left = self.sqs.message_count(&self.queue)?;
        let responses = ResponseKind::ALL.map(|(kind, shown)| self.responses(kind, shown, &dead));
        if arguments.json {
            output::json(&json!({
                "sent": self.sent.len(),
                "done": self.endpoint.done(),
                "deadLettered": dead.len(),
                "left": left,
                "lost": lost,
                "doneTwice": twice,
                "virtualSeconds": self.started.elapsed().as_secs_f64(),
                "responses": responses,
            }))?;
        } else {
            let mut rows = Rows::under([
                Text("response"),
                Number("sent"),
                Number("at once"),
                Number("after retries"),
                Text("dead-lettered"),
                Number("calls"),
                Number("mean time"),
            ]);
            for of in &responses {
                rows.add(of.row());
            }
            outln!("{}", rows.text())?;
            output::words(&format!(
                "{} sent = {} done + {} in the dead-letter queue + {} left in the queue; {lost} \
                 lost, {twice} done twice; {} of virtual time\n",
                thousands(self.sent.len()),
                thousands(self.endpoint.done()),
                thousands(dead.len()),
                thousands(left),
                span(Duration::from_secs(self.started.elapsed().as_secs())),
            ))?;
        }
        Ok(if lost == 0 && left == 0 { ExitCode::SUCCESS } else { ExitCode::from(output::FINDING) })
    }

    fn responses(
        &self,
        kind: ResponseKind,
        response: &'static str,
        dead: &HashMap<String, String>,
    ) -> Responses {
        let of_kind: Vec<&String> =
            self.sent.iter().filter(|(_, k)| *k == kind).map(|(id, _)| id).collect();
        let calls = |id: &String| self.endpoint.calls(id);
        let done: Vec<_> =
            of_kind.iter().map(|id| calls(id)).filter(|calls| calls.accepted > 0).collect();
        let at_once = done.iter().filter(|calls| calls.count == 1).count();
        let mut dead_lettered: BTreeMap<String, u32> = BTreeMap::new();
        for reason in of_kind.iter().filter_map(|id| dead.get(*id)) {
            *dead_lettered.entry(reason.clone()).or_default() += 1;
        }
        let total_calls: u32 = of_kind.iter().map(|id| calls(id).count).sum();
        let times: Vec<Duration> =
            done.iter().filter_map(|calls| Some(calls.accepted_at? - self.started)).collect();
        Responses {
            response,
            sent: of_kind.len(),
            at_once,
            after_retries: done.len() - at_once,
            dead_lettered,
            mean_calls: mean(f64::from(total_calls), of_kind.len()),
            mean_seconds: mean(times.iter().map(Duration::as_secs_f64).sum(), times.len()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Responses {
    response: &'static str,
    sent: usize,
    at_once: usize,
    after_retries: usize,
    dead_lettered: BTreeMap<String, u32>,
    mean_calls: Option<f64>,
    mean_seconds: Option<f64>,
}

impl Responses {
    fn row(&self) -> Vec<String> {
        let why = self.dead_lettered.iter().map(|(reason, count)| format!("{count} {reason}"));
        let time = |secs| span(Duration::from_secs_f64(secs));
        vec![
            self.response.to_owned(),
            thousands(self.sent),
            thousands(self.at_once),
            thousands(self.after_retries),
            why.collect::<Vec<_>>().join(", "),
            self.mean_calls.map_or(String::new(), |mean| format!("{mean:.1}")),
            self.mean_seconds.map_or(String::new(), time),
        ]
    }
}

fn mean(sum: f64, count: usize) -> Option<f64> {
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    Some(sum / f64::from(count))
}

fn pick(sample: f64) -> (ResponseKind, u32) {
    let mut percent = sample * 100.0;
    for (share, kind, times) in MIX {
        percent -= f64::from(share);
        if percent < 0.0 {
            return (kind, times);
        }
    }
    (ResponseKind::Ok, 0)
}

/// The id of the first delivery and the reason, from the body of a dead letter.
fn dead_letter_reason(body: &str) -> Option<(String, String)> {
    let dead = DeadLetter::read(body);
    Some((dead.original_message_id()?.to_owned(), dead.reason()?.to_owned()))
}
