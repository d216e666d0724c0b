//! `requeue demo --rate`, in real time: the target on loopback counts its requests.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use requeue::embedded::EmbeddedSqs;
use requeue::embedded::loopback::{self, Bounds};
use requeue::policy::{FairShares, RateLimit};
use requeue::queue::{Outgoing, QueueArn};
use requeue::table::MemoryTable;
use requeue::{BatchProcessor, Clock, RecursiveLoop, Settings, SharedTable};
use requeue_lambda::{HttpSettings, HttpTarget, TargetUrl};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::Error;
use crate::output::outln;
use crate::rate::{Call, Calls};
use crate::simulated::SimulatedFunction;
use parking_lot::Mutex;

/// With ten messages each: more than the calls of two seconds, the longest wait for a reservation.
const ENVIRONMENTS: usize = 8;
const PERIOD: Duration = Duration::from_secs(1);
const CALLS: u32 = 20;
/// The target's bounds are far beyond what these execution environments need.
const BOUNDS: Bounds = Bounds { body: 64 * 1024, bodies: 1024 * 1024, connections: 64 };

#[derive(Clone)]
struct CountingTarget {
    began: Instant,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    calls: Calls,
    /// The messages that other tenants have sent, and how long they waited.
    sent: u32,
    waits: Vec<Duration>,
}

impl CountingTarget {
    fn count(&self, body: &[u8]) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let (at, mut log) = (self.began.elapsed(), self.log.lock());
        log.calls.push(Call { at, message: 0, units: 1 });
        if let Some(sent) = body["sentAfterMs"].as_u64() {
            log.waits.push(at.saturating_sub(Duration::from_millis(sent)));
        }
    }

    fn left(&self, messages: u32) -> u32 {
        let log = self.log.lock();
        let calls = u32::try_from(log.calls.count()).unwrap_or(u32::MAX);
        (messages + log.sent).saturating_sub(calls)
    }
}

pub(super) async fn run(messages: u32) -> Result<ExitCode, Error> {
    let sqs = EmbeddedSqs::new(Clock::system());
    let queue = sqs.create_queue("orders", [])?;
    for number in 1..=messages {
        let body = format!(r#"{{"orderId":"A-{number:05}","tenant":"flood"}}"#);
        sqs.put(&queue, &Outgoing::new(&body, &BTreeMap::new()))?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/orders", listener.local_addr()?);
    let target = CountingTarget { began: Instant::now(), log: Arc::default() };
    let (_running, stopped) = watch::channel(false);
    let counting = target.clone();
    tokio::spawn(loopback::serve(listener, stopped, BOUNDS, move |request: Request<Bytes>| {
        counting.count(request.body());
        async { Ok(Response::new(Full::<Bytes>::default())) }
    }));

    let mut settings = Settings::default();
    settings.policy.limit = Some(RateLimit::new(CALLS, PERIOD));
    settings.policy.fair_shares = Some(FairShares::by("/tenant".parse()?));
    settings.recursive_loop = RecursiveLoop::Allow;
    // In a deployment this is the table.
    settings.shared_table = Some(SharedTable::by(Arc::new(MemoryTable::default())));
    let mut environments = Vec::new();
    for _ in 0..ENVIRONMENTS {
        let handler = HttpTarget::new(TargetUrl::parse(&url)?, HttpSettings::default())?;
        environments.push(BatchProcessor::new(handler, sqs.clone(), settings.clone()));
    }
    let function = SimulatedFunction::new(sqs.clone(), queue.clone(), environments);
    outln!(
        "{messages} messages of one tenant at once, and one of other tenants each second; \
         {ENVIRONMENTS} execution environments share a limit of {CALLS} calls in a second; the \
         target is {url}"
    )?;
    // The pollers would wait for further messages.
    tokio::select! {
        drained = function.drain(feed(&target, &sqs, &queue, messages), |_| {}) => drained?,
        ended = print(&target, messages, || Ok(sqs.message_count(&queue)? == 0)) => ended?,
    }
    let Log { calls, sent, waits } = &*target.log.lock();
    outln!(
        "{} calls for {} messages in {:.1} s; at most {} in any second, of {} that the limit allows",
        calls.count(),
        messages + sent,
        calls.last().as_secs_f64(),
        calls.most_within(PERIOD),
        CALLS + 1,
    )?;
    outln!(
        "the other tenants' {sent} messages waited at most {:.1} s; without fair shares, the first \
         would have waited {} s for the backlog",
        waits.iter().max().map_or(0.0, Duration::as_secs_f64),
        (messages / CALLS).saturating_sub(1),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a message of another tenant each second, as long as there is a backlog.
async fn feed(
    target: &CountingTarget,
    sqs: &EmbeddedSqs,
    queue: &QueueArn,
    messages: u32,
) -> Result<(), Error> {
    let mut seconds = interval(PERIOD);
    seconds.tick().await;
    loop {
        seconds.tick().await;
        if target.left(messages) < CALLS {
            return Ok(());
        }
        let (after, number) = (target.began.elapsed().as_millis(), target.log.lock().sent % 3);
        let body = format!(r#"{{"tenant":"other-{number}","sentAfterMs":{after}}}"#);
        sqs.put(queue, &Outgoing::new(&body, &BTreeMap::new()))?;
        target.log.lock().sent += 1;
    }
}

async fn print(
    target: &CountingTarget,
    messages: u32,
    is_over: impl Fn() -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut told = 0;
    let mut seconds = interval(PERIOD);
    seconds.tick().await;
    loop {
        seconds.tick().await;
        let count = target.log.lock().calls.count();
        let new = count - told;
        if new > 0 {
            told = count;
            let elapsed = target.began.elapsed().as_secs();
            let left = target.left(messages);
            let bar = "█".repeat(new);
            outln!("{elapsed:>4} s  {bar:<22} {new:>3} calls, {left} messages left")?;
        }
        if is_over()? {
            return Ok(());
        }
    }
}
