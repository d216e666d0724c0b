//! An outage that is shorter than the age budget dead-letters no message, however few there are. A
//! message that always fails holds back no other, and ends.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use requeue::classify::{GrpcStatus, Response};
use requeue::testing::World;
use requeue::{DeadLetterReason, Disposition, Failure, Message};
use tokio::time::{Instant, sleep};

use crate::world::{self, Act, Script, secs};

/// How a service fails.
type Fails = Arc<dyn Fn() -> Failure + Send + Sync>;

fn status(status: u16, headers: &[(&str, &[u8])]) -> Failure {
    let response = Response { status, headers, body: b"" };
    Failure::from_response(&response, SystemTime::UNIX_EPOCH)
}

fn minutes(minutes: u64) -> Duration {
    secs(60 * minutes)
}

/// The calls of sound messages during an outage, and the time until all of them were done after it.
async fn outage(
    messages: usize,
    lasts: Duration,
    has_poison: bool,
    fails: impl Fn() -> Failure + Clone + Send + Sync + 'static,
) -> (u64, Duration) {
    let (calls, end) = (Arc::new(AtomicU64::new(0)), Instant::now() + lasts);
    let (counted, done) = (Arc::clone(&calls), Arc::new(Mutex::new(end)));
    let last = Arc::clone(&done);
    let mut world = World::new(move |message: Message<String>| {
        let is_down = Instant::now() < end;
        let is_poison = message.body().contains("poison");
        counted.fetch_add(u64::from(is_down && !is_poison), Ordering::Relaxed);
        if !is_down && !is_poison {
            *last.lock().expect("no panic") = Instant::now();
        }
        let poisoned = is_poison.then(|| status(500, &[]));
        let failure = is_down.then(&fails).or(poisoned);
        async move { failure.map_or(Ok(()), Err) }
    });
    for n in 0..messages {
        world.send(n.to_string()).await;
    }
    if has_poison {
        world.send("poison").await;
    }
    world.run_until_empty().await;
    assert_eq!(world.dead().len(), usize::from(has_poison), "{messages} messages, {lasts:?}");
    let drained = *done.lock().expect("no panic") - end;
    (calls.load(Ordering::Relaxed), drained)
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_shorter_than_the_age_budget_dead_letters_nothing() {
    for (outage_minutes, messages) in
        [(1, 1), (10, 1), (37, 1), (120, 1), (480, 1), (120, 2), (480, 4), (120, 5), (120, 20)]
    {
        let lasts = minutes(outage_minutes);
        for has_poison in [false, true] {
            let (calls, drained) = outage(messages, lasts, has_poison, || status(503, &[])).await;
            let case = format!("{messages} messages, {outage_minutes} min, poison: {has_poison}");
            // As an open circuit lets through, and those before it opened.
            assert!(calls <= 60 + lasts.as_secs() / 30, "{case}: {calls} calls");
            assert!(drained <= minutes(5), "{case}: {drained:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_says_that_the_service_does_not_work_uses_up_no_retries() {
    let grpc = |code| move || Failure::from_grpc(GrpcStatus::new(code));
    let io = |kind| move || Failure::classified(&io::Error::from(kind));
    let aws = |code: &'static [u8]| move || status(503, &[("x-amzn-errortype", code)]);
    let fails: [(&str, Fails); 14] = [
        ("502", Arc::new(|| status(502, &[]))),
        ("504", Arc::new(|| status(504, &[]))),
        ("503 with a delay", Arc::new(|| status(503, &[("retry-after", b"2")]))),
        ("529", Arc::new(|| status(529, &[]))),
        ("429", Arc::new(|| status(429, &[]))),
        ("429 with a delay", Arc::new(|| status(429, &[("retry-after", b"30")]))),
        ("throttled", Arc::new(aws(b"ThrottlingException"))),
        ("UNAVAILABLE", Arc::new(grpc(14))),
        ("DEADLINE_EXCEEDED", Arc::new(grpc(4))),
        ("refused", Arc::new(io(ErrorKind::ConnectionRefused))),
        ("timed out", Arc::new(io(ErrorKind::TimedOut))),
        ("text", Arc::new(|| Failure::classified(&io::Error::other("dns error")))),
        ("text of a status", Arc::new(|| Failure::classified(&io::Error::other("status 503")))),
        ("said", Arc::new(|| Failure::temporary("down").service_down())),
    ];
    for (name, fails) in fails {
        let (calls, _) = outage(1, minutes(300), false, move || fails()).await;
        assert!(calls <= 600, "{name}: {calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_speak_of_the_message_uses_up_its_retries_and_holds_nobody() {
    for status_of_poison in [500, 520, 599] {
        let mut world = World::new(move |message: Message<String>| async move {
            let is_poison = message.body().contains("poison");
            if is_poison { Err(status(status_of_poison, &[])) } else { Ok(()) }
        });
        let poison = world.send("poison").await;
        world.run_until_empty().await;
        world.assert_dead(&poison, &status_of_poison.to_string());
        assert_eq!(world.attempts(&poison), 51, "{status_of_poison}");
    }
}

/// Where the handler's timeout is longer than the invocation, the end of that cuts off each call.
#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_until_the_end_of_each_invocation_uses_up_no_retries_either() {
    let end = Instant::now() + minutes(300);
    let handler = move |_: Message| async move {
        if Instant::now() < end {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>(())
    };
    let mut world =
        World::with(handler, "orders", |settings| settings.limits.timeout = minutes(60));
    for n in 0..2 {
        world.send_text(n.to_string()).await;
    }
    world.run_until_empty().await;
    assert_eq!(world.dead().len(), 0);
}

/// A message that always fails by a timeout of the gateway, and another message every so often.
async fn beside_a_poison(every: Duration, hours: u64) -> (Option<Disposition>, usize) {
    let mut world = World::new(|message: Message<String>| async move {
        let is_poison = message.body().contains("poison");
        sleep(secs(if is_poison { 29 } else { 1 })).await;
        if is_poison { Err(status(504, &[])) } else { Ok(()) }
    });
    let began = Instant::now();
    let poison = world.send("poison").await;
    let mut next = began + every;
    while began.elapsed() < Duration::from_hours(hours) {
        if Instant::now() >= next {
            next += every;
            let neighbour = world.send("neighbour").await;
            while world.outcomes(&neighbour).is_empty() {
                world.invoke().await;
            }
            world.assert_done(&neighbour);
            assert_eq!(world.outcomes(&neighbour).len(), 1, "it is called at once");
        }
        if world.invoke().await == 0 {
            sleep(secs(5)).await;
        }
    }
    let mut ends = world.outcomes(&poison).iter().map(|outcome| outcome.disposition);
    let end = ends.find(|disposition| matches!(disposition, Disposition::DeadLetter(_)));
    (end, world.attempts(&poison))
}

#[tokio::test(start_paused = true)]
async fn a_message_that_always_times_out_holds_back_no_other_and_ends() {
    let exhausted = Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
    let too_old = Disposition::DeadLetter(DeadLetterReason::TooOld);
    for (every, hours, end, most) in [
        (secs(20), 2, exhausted, 51),
        (minutes(5), 6, exhausted, 400),
        (minutes(90), 13, too_old, 800),
        (Duration::from_hours(24), 13, too_old, 800),
    ] {
        let (last, attempts) = beside_a_poison(every, hours).await;
        assert_eq!(last, Some(end), "{every:?}, {attempts} attempts");
        assert!(attempts <= most, "{every:?}: {attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_in_environments_that_know_nothing_use_up_no_retries_either() {
    let mut world = world::World::new();
    world.protect();
    world.send_numbered(1).await;
    let end = Instant::now() + minutes(120);
    let script =
        Script::new(
            move |_| {
                if Instant::now() < end { Act::Fail(status(503, &[])) } else { Act::Done }
            },
        );
    while world.sleep_until_due().await {
        // Each in an environment of its own.
        world.invoke(&world.processor(script.clone())).await;
    }
    assert_eq!((world.dead().len(), script.done().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_producer_is_one_of_calls_in_an_outage_too() {
    let mut world = World::new(|_: Message| async { Err(status(503, &[])) });
    let id = world.send_text("1").attribute("requeue.maxRetries", "7").await;
    world.run_until_empty().await;
    world.assert_dead(&id, "503");
    assert_eq!(world.attempts(&id), 8);
}
