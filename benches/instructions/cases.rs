//! The work on each message, one case at a time. `tests/instructions_test.py` counts the
//! instructions.
//!
//! With the name of a case as argument, the program runs that case. Without, it prints the names.

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use lambda_runtime::{Context, LambdaEvent};
use requeue::measured::{State, read, stamp};
use requeue::policy::{History, RetryPolicy};
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Clock, Failure, Message, Metrics, Sampler, Settings, SqsEvent};
use requeue_testkit::bodies::object;
use requeue_testkit::events::event_of;
use tokio::runtime::Builder;

/// When the events were sent, in milliseconds since the epoch.
const SENT: u64 = 1_778_580_000_000;

type Case = (String, Box<dyn Fn()>);

fn case<T>(name: impl Into<String>, work: impl Fn() -> T + 'static) -> Case {
    (name.into(), Box::new(move || drop(black_box(work()))))
}

/// The counted function. Work follows the call, so that the compiler does not turn it into a jump.
#[inline(never)]
fn counted(work: &dyn Fn()) {
    work();
    black_box(());
}

fn main() {
    let cases = cases();
    if let Some((_, work)) =
        cases.iter().find(|(name, _)| std::env::args().any(|argument| argument == *name))
    {
        // The first call also binds symbols and fills tables, once in a process.
        work();
        counted(work);
    } else {
        for (name, _) in &cases {
            println!("{name}");
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // A usual size, one that SQS bills as a second request, and the most that SQS takes.
    for size in [600, 65_536, 1_048_576] {
        let first = object(size);
        cases.push(case(format!("read_first_delivery_{size}"), move || {
            black_box(read(black_box(&first)));
        }));
    }
    for size in [600, 65_536] {
        let copy = stamp(&object(size), &State::after_three_retries()).expect("it can be wrapped");
        cases.push(case(format!("read_copy_{size}"), move || {
            black_box(read(black_box(&copy)));
        }));
        for (name, body) in [("stamp_object", object(size)), ("stamp_text", "x".repeat(size))] {
            let state = State::after_three_retries();
            let work = move || stamp(black_box(&body), black_box(&state));
            cases.push(case(format!("{name}_{size}"), work));
        }
    }
    let event = event_of(10, 600, SENT.into());
    cases.push(case("decode_10", move || serde_json::from_slice::<SqsEvent>(black_box(&event))));
    cases.push(invocation());
    cases.push(decide("decide_exponential", 10, Failure::temporary("503")));
    cases.push(decide(
        "decide_named",
        10,
        Failure::rate_limit("429").retry_after(Duration::from_hours(1)),
    ));
    cases.push(decide("decide_exhausted", 50, Failure::quota("used up")));
    cases
}

/// A whole invocation whose messages are done, without the Runtime API. Time stands still and all of
/// it is on one thread, so that the same always happens.
fn invocation() -> Case {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(SENT + 1_000);
    let mut settings = Settings::default();
    settings.clock = Some(Clock::showing(move || now));
    settings.sampler = Sampler::always(0.5);
    settings.metrics = Some(Metrics::of("orders"));
    let handler = |_: Message| async { Ok::<(), Failure>(()) };
    let processor =
        runtime.block_on(async { BatchProcessor::new(handler, SqsQueue::from_env(), settings) });
    let mut context = Context::default();
    context.deadline = SENT + 31_000;
    let event = event_of(10, 600, SENT.into());
    case("invocation_10_done", move || {
        let event = serde_json::from_slice(black_box(&event)).expect("an event");
        runtime.block_on(processor.invoke(LambdaEvent::new(event, context.clone())))
    })
}

fn decide(name: &str, retries: u32, failure: Failure) -> Case {
    let received = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let mut history = History::starting(received);
    (history.retries, history.class_retries) = (retries, retries);
    history.previous = Some(Duration::from_mins(1));
    let (policy, now) = (RetryPolicy::standard(), received + Duration::from_secs(5));
    case(name, move || {
        policy.decide(black_box(&history), black_box(&failure), black_box(now), black_box(0.5))
    })
}
