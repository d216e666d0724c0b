//! `requeue demo --rate`: a backlog, four execution environments that share a rate limit, and a
//! target on loopback that counts its requests. Time is real.

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
use requeue::policy::RateLimit;
use requeue::queue::Outgoing;
use requeue::table::MemoryTable;
use requeue::{BatchProcessor, Clock, RecursiveLoop, Settings, SharedTable};
use requeue_lambda::{HttpSettings, HttpTarget, TargetUrl};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::Error;
use crate::output::outln;
use crate::rate::{Call, Calls};
use crate::simulated::SimulatedFunction;
use parking_lot::Mutex;

const ENVIRONMENTS: usize = 4;
const PERIOD: Duration = Duration::from_secs(1);
const CALLS: u32 = 20;
/// The target's bounds are far beyond what four execution environments need.
const BOUNDS: Bounds = Bounds { body: 64 * 1024, bodies: 1024 * 1024, connections: 64 };

/// The requests that the target has received.
#[derive(Clone)]
struct CountingTarget {
    began: Instant,
    calls: Arc<Mutex<Calls>>,
}

impl CountingTarget {
    fn count(&self) {
        self.calls.lock().push(Call { at: self.began.elapsed(), message: 0 });
    }
}

pub(super) async fn run(messages: u32) -> Result<ExitCode, Error> {
    let sqs = EmbeddedSqs::new(Clock::system());
    let queue = sqs.create_queue("orders", [])?;
    for number in 1..=messages {
        let body = format!(r#"{{"orderId":"A-{number:05}"}}"#);
        sqs.put(&queue, &Outgoing::new(&body, &BTreeMap::new()))?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/orders", listener.local_addr()?);
    let target = CountingTarget { began: Instant::now(), calls: Arc::default() };
    let (_running, stopped) = watch::channel(false);
    let counting = target.clone();
    tokio::spawn(loopback::serve(listener, stopped, BOUNDS, move |_: Request<Bytes>| {
        counting.count();
        async { Ok(Response::new(Full::<Bytes>::default())) }
    }));

    let mut settings = Settings::default();
    settings.policy.limit = Some(RateLimit::new(CALLS, PERIOD));
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
        "{messages} messages at once; {ENVIRONMENTS} execution environments share a limit of \
         {CALLS} calls in a second; the target is {url}"
    )?;
    // The pollers would wait for further messages.
    tokio::select! {
        drained = function.drain(|_| {}) => drained?,
        ended = print(&target, messages, || Ok(sqs.message_count(&queue)? == 0)) => ended?,
    }
    let calls = target.calls.lock();
    outln!(
        "{} calls for {messages} messages in {:.1} s; at most {} in any second, of {} that the \
         limit allows",
        calls.count(),
        calls.last().as_secs_f64(),
        calls.most_within(PERIOD),
        CALLS + 1,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line each second in which there was a call, until all is done.
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
        let count = target.calls.lock().count();
        let new = count - told;
        if new > 0 {
            told = count;
            let elapsed = target.began.elapsed().as_secs();
            let left = messages.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
            let bar = "█".repeat(new);
            outln!("{elapsed:>4} s  {bar:<22} {new:>3} calls, {left} messages left")?;
        }
        if is_over()? {
            return Ok(());
        }
    }
}
