//! Calls of several messages: which share one, and what its end means for each.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::embedded::Fault;
use requeue::policy::{Idempotency, KeyLimit, LimitPer, RateLimit};
use requeue::queue::SqsQueue;
use requeue::table::MemoryTable;
use requeue::{
    Bulk, BulkHandler, Deferral, Disposition, Failure, Message, Mode, Scope, Settlement,
    SharedTable, Strategy, Until, Worker, WorkerSettings, bulk, each,
};
use tokio::time::{Instant, sleep};

use crate::idempotency::{Case, Told};
use crate::world::{
    Act, DELETE, SEND, Script, VISIBILITY_CHANGE, World, joined, millis, numbered, secs,
};

/// A call, as its handler saw it.
#[derive(Clone, Debug)]
struct Call {
    bodies: Vec<String>,
    at: Instant,
}

const FIFO: &[(&str, &str)] = &[("ContentBasedDeduplication", "true")];

type Ends = dyn Fn(&[String]) -> End + Send + Sync;

/// How a call ends.
enum End {
    With(Bulk<Failure>),
    After(Duration, Bulk<Failure>),
    Panic,
    Hang,
    Block(Duration),
}

/// A bulk handler whose calls are counted.
#[derive(Clone)]
struct Index {
    ends: Arc<Ends>,
    calls: Arc<Mutex<Vec<Call>>>,
    most: usize,
    scope: fn(&Message) -> Scope,
    limit: Option<RateLimit>,
}

impl Index {
    fn new(ends: impl Fn(&[String]) -> End + Send + Sync + 'static) -> Self {
        let calls = Arc::default();
        let scope = |_: &Message| Scope::default();
        Self { ends: Arc::new(ends), calls, most: 10, scope, limit: None }
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The messages of each call.
    fn sizes(&self) -> Vec<usize> {
        self.calls().iter().map(|call| call.bodies.len()).collect()
    }

    /// How often each message was called.
    fn times(&self, body: &str) -> usize {
        self.calls().iter().filter(|call| call.bodies.iter().any(|one| one == body)).count()
    }
}

impl BulkHandler for Index {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message>) -> Bulk<Failure> {
        let bodies: Vec<String> =
            messages.iter().map(|message| message.body().to_string()).collect();
        self.calls.lock().unwrap().push(Call { bodies: bodies.clone(), at: Instant::now() });
        match (self.ends)(&bodies) {
            End::With(bulk) => bulk,
            End::After(time, bulk) => {
                sleep(time).await;
                bulk
            }
            End::Panic => panic!("a bug"),
            End::Hang => std::future::pending().await,
            End::Block(time) => {
                std::thread::sleep(time);
                Bulk::Done
            }
        }
    }

    fn messages_per_call(&self) -> usize {
        self.most
    }

    fn scope(&self, message: &Message) -> Scope {
        (self.scope)(message)
    }

    fn rate_limit(&self, _: Scope) -> Option<RateLimit> {
        self.limit
    }
}

fn done() -> Index {
    Index::new(|_| End::With(Bulk::Done))
}

/// Fails with `failure` as a whole if `poison` is among the messages.
fn poisoned(poison: &'static str, failure: Failure) -> Index {
    Index::new(move |bodies| {
        let has_it = bodies.iter().any(|body| body == poison);
        End::With(if has_it { Bulk::Unclear(failure.clone()) } else { Bulk::Done })
    })
}

#[tokio::test(start_paused = true)]
async fn ten_messages_are_one_call_and_cost_no_request() {
    let world = World::new();
    world.send_numbered(10).await;
    let index = done();
    let invocation = world.invoke(&world.processor(bulk(index.clone()))).await.unwrap();
    assert_eq!(index.sizes(), [10]);
    assert!(invocation.failed().is_empty());
    assert_eq!(invocation.elapsed, Duration::ZERO, "nobody waits for others that do not come");
    assert_eq!(
        [SEND, DELETE, VISIBILITY_CHANGE].map(|operation| world.requests(operation).len()),
        [0; 3]
    );
}

#[tokio::test(start_paused = true)]
async fn each_message_has_the_result_that_the_handler_gives_it() {
    let world = World::new();
    let ids = world.send_numbered(4).await;
    let index = Index::new(|bodies| {
        let result = |body: &String| match body.as_str() {
            r#"{"n":1}"# => Err(Failure::temporary("busy")),
            r#"{"n":2}"# => Err(Failure::non_retryable("never")),
            _ => Ok(()),
        };
        End::With(bodies.iter().map(result).collect())
    });
    let processor = world.processor(bulk(index.clone()));
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    let words: Vec<_> =
        report.outcomes.iter().map(|outcome| outcome.disposition.as_str()).collect();
    assert_eq!(words, ["complete", "requeue", "dead-letter", "complete"]);
    assert_eq!(report.outcomes[1].settlement, Settlement::Moved);
    assert_eq!(report.failed_ids().unwrap(), [ids[2].as_str()]);
    assert_eq!((index.sizes(), world.entries(SEND)), (vec![4], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn an_unclear_call_sends_no_copy_and_uses_no_retry() {
    for (failure, least) in [
        (Failure::temporary("down"), secs(1)),
        (Failure::rate_limit("slowly").retry_after(secs(100)), secs(100)),
        (Failure::quota("tomorrow"), secs(60)),
        (Failure::non_retryable("one of them"), secs(1)),
    ] {
        let world = World::new();
        let ids = world.send_numbered(5).await;
        let index = poisoned(r#"{"n":3}"#, failure.clone());
        let processor = world.processor(bulk(index.clone()));
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        assert_eq!(report.failed_ids().unwrap(), ids, "{failure}");
        for outcome in &report.outcomes {
            let Disposition::Defer { reason: Deferral::Unclear, wait, .. } = outcome.disposition
            else {
                panic!("{failure}: {:?}", outcome.disposition)
            };
            assert_eq!((wait.total(), outcome.retry_count), (least, 0), "{failure}");
        }
        assert!(world.requests(SEND).is_empty() && world.requests(DELETE).is_empty(), "{failure}");
        assert_eq!(world.entries(VISIBILITY_CHANGE), [5], "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_ends_every_call_is_alone_from_its_third_receive_on() {
    for end in ["unclear", "panic", "hang"] {
        let mut world = World::new();
        world.settings.limits.timeout = secs(2);
        world.settings.policy.max_retries = 2;
        world.send_numbered(10).await;
        let poison = r#"{"n":7}"#;
        let index =
            Index::new(move |bodies| match (bodies.iter().any(|body| body == poison), end) {
                (false, _) => End::With(Bulk::Done),
                (true, "unclear") => End::With(Bulk::Unclear(Failure::temporary("a crash"))),
                (true, "panic") => End::Panic,
                (true, _) => End::Hang,
            });
        world.run(&world.processor(bulk(index.clone()))).await;
        let others = (0..10).filter(|n| *n != 7).map(|n| format!(r#"{{"n":{n}}}"#));
        for other in others {
            assert!((1..=3).contains(&index.times(&other)), "{end}: {other}");
        }
        assert_eq!(
            index.times(poison),
            2 + 1 + 2,
            "{end}: unclear twice, then one call and two retries alone"
        );
        let dead: Vec<_> = world.dead().into_iter().map(|message| message.body).collect();
        assert_eq!(dead.len(), 1, "{end}");
        let sizes = index.sizes();
        assert_eq!(sizes[0], 10, "{end}");
        assert!(sizes[1..].iter().all(|size| *size <= 3), "{end}: {sizes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_retries_of_a_message_that_was_alone_end_nobody_elses_call() {
    let mut world = World::new();
    world.settings.policy.max_retries = 5;
    let index = poisoned("poison", Failure::temporary("a crash"));
    let processor = world.processor(bulk(index.clone()));
    world.send("poison").await;
    let mut sent = 0;
    while world.dead().is_empty() {
        for _ in 0..5 {
            world.send(&format!("{sent}")).await;
            sent += 1;
        }
        world.invoke(&processor).await;
        world.sleep_until_due().await;
    }
    let unclear = index
        .calls()
        .iter()
        .filter(|call| call.bodies.len() > 1 && call.bodies.iter().any(|body| body == "poison"))
        .count();
    assert_eq!((unclear, index.times("poison")), (2, 2 + 1 + 5));
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_call_of_one_message_is_its_own() {
    for (end, disposition) in
        [("unclear", "dead-letter"), ("panic", "requeue"), ("hang", "requeue")]
    {
        let world = World::new();
        world.send("{}").await;
        let index = Index::new(move |_| match end {
            "unclear" => End::With(Bulk::Unclear(Failure::non_retryable("never"))),
            "panic" => End::Panic,
            _ => End::Hang,
        });
        let event = world.receive().await;
        let report = world.report(&world.processor(bulk(index)), &event).await;
        assert_eq!(report.outcomes[0].disposition.as_str(), disposition, "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_result_has_failed_and_a_surplus_result_counts_for_nothing() {
    let world = World::new();
    world.send_numbered(3).await;
    let index = Index::new(|_| End::With(Bulk::Each(vec![Ok(()), Ok(())])));
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index)), &event).await;
    let words: Vec<_> = report.outcomes.iter().map(|one| one.disposition.as_str()).collect();
    assert_eq!(words, ["complete", "complete", "requeue"]);

    let world = World::new();
    world.send_numbered(2).await;
    let surplus = [Ok(()), Ok(()), Err(Failure::temporary("whose?"))];
    let index = Index::new(move |_| End::With(surplus.clone().into_iter().collect()));
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index)), &event).await;
    assert!(report.failed_ids().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn concurrency_counts_calls() {
    let mut world = World::new();
    world.settings.limits.concurrency = 2;
    world.batch_size = 100;
    world.send_numbered(45).await;
    let index = Index::new(|_| End::After(secs(1), Bulk::Done));
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    assert_eq!(report.elapsed, secs(3));
    assert_eq!(index.sizes(), [10, 10, 10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_call_has_messages_of_one_scope() {
    let world = World::new();
    world.send_numbered(9).await;
    let mut index = done();
    index.scope = |message| Scope::of(message.body()[5..6].parse::<u8>().map(|n| [n % 3]).unwrap());
    world.invoke(&world.processor(bulk(index.clone()))).await.unwrap();
    assert_eq!(index.sizes(), [3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_message_of_each_fifo_group_and_keeps_the_order() {
    let world = World::with_queue("orders.fifo", FIFO);
    for body in ["a1", "b1", "a2", "c1", "b2", "a3"] {
        world.send_as(body, |message| message.message_group_id(&body[..1])).await;
    }
    let index = Index::new(|bodies| {
        let result = |body: &String| {
            if body == "b1" { Err(Failure::temporary("busy")) } else { Ok(()) }
        };
        End::After(secs(1), bodies.iter().map(result).collect())
    });
    let invocation = world.invoke(&world.processor(bulk(index.clone()))).await.unwrap();
    let calls: Vec<_> = index.calls().into_iter().map(|call| call.bodies).collect();
    // In the order of the batch.
    assert_eq!(calls, [vec!["a1", "b1", "c1"], vec!["a2"], vec!["a3"]]);
    assert_eq!(invocation.failed().len(), 2, "b1, and b2 behind it");
    assert_eq!(invocation.elapsed, secs(3), "nobody waits for groups that have ended");
}

#[tokio::test(start_paused = true)]
async fn two_copies_of_one_message_never_share_a_call() {
    let world = World::new();
    world.send_numbered(1).await;
    // SQS sends the copy, and its response is lost, so it is sent again.
    world.faults_of(
        SEND,
        |call| if call.of_operation == 1 { Fault::LoseResponse } else { Fault::None },
    );
    let failing = Script::failing_first(1, Failure::temporary("busy"));
    world.invoke(&world.processor(failing)).await.unwrap();
    world.faults(|_| Fault::None);
    sleep(secs(1_000)).await;
    world.send_numbered(3).await;
    let index = done();
    world.invoke(&world.processor(bulk(index.clone()))).await.unwrap();
    let calls = index.calls();
    assert_eq!(
        calls.iter().map(|call| call.bodies.len()).sum::<usize>(),
        5,
        "both, and three more"
    );
    assert!(calls.len() > 1, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_one_reservation_of_a_rate_limit() {
    let mut world = World::new();
    world.batch_size = 100;
    world.send_numbered(30).await;
    let mut index = done();
    let mut limit = RateLimit::new(1, secs(1));
    limit.max_reservation = secs(20);
    index.limit = Some(limit);
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    assert_eq!((report.failed_ids().unwrap().len(), index.sizes()), (0, vec![10, 10, 10]));
    let at: Vec<_> = index.calls().iter().map(|call| call.at).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= secs(1)), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_reservation_defers_all_its_messages() {
    let mut world = World::new();
    world.batch_size = 100;
    world.send_numbered(30).await;
    let mut index = done();
    index.limit = Some(RateLimit::new(1, secs(60)));
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    let limited = report.outcomes.iter().filter(|one| {
        matches!(one.disposition, Disposition::Defer { reason: Deferral::RateLimited, .. })
    });
    assert_eq!((limited.count(), index.sizes()), (20, vec![10]));
}

#[tokio::test(start_paused = true)]
async fn an_unclear_call_counts_once_and_a_rate_limit_begins_a_pause() {
    let mut world = World::new();
    world.protect();
    world.send_numbered(10).await;
    let index = Index::new(|_| End::With(Bulk::Unclear(Failure::temporary("down"))));
    let processor = world.processor(bulk(index.clone()));
    world.invoke(&processor).await.unwrap();
    world.send_numbered(1).await;
    world.invoke(&processor).await.unwrap();
    assert_eq!(index.sizes(), [10, 1], "ten failures would have opened the circuit");

    let mut world = World::new();
    world.protect();
    world.send_numbered(10).await;
    let index = Index::new(|_| {
        End::With(Bulk::Unclear(Failure::rate_limit("slowly").retry_after(secs(30))))
    });
    let processor = world.processor(bulk(index.clone()));
    world.invoke(&processor).await.unwrap();
    world.send_numbered(1).await;
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    assert_eq!(report.outcomes[0].disposition.reason(), Some("paused"));
    assert_eq!(index.sizes(), [10]);
}

#[tokio::test(start_paused = true)]
async fn a_call_has_the_time_of_one_from_its_begin() {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.settings.limits.timeout = secs(10);
    world.batch_size = 100;
    world.send_numbered(20).await;
    let index = Index::new(|bodies| {
        let is_first = bodies.contains(&r#"{"n":0}"#.to_owned());
        if is_first { End::After(secs(9), Bulk::Done) } else { End::Hang }
    });
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    assert_eq!(report.elapsed, secs(19));
    let unclear = report.outcomes.iter().filter(|one| one.disposition.reason() == Some("unclear"));
    let elapsed: Vec<_> = unclear.map(|one| one.elapsed).collect();
    assert_eq!(elapsed, [Some(secs(10)); 10]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_before_its_call_begins_leaves_the_call_to_the_others() {
    // The first message of a call leads it.
    for order in [["30", "5", "6"], ["5", "30", "6"], ["5", "6", "30"]] {
        for (name, attributes) in [("orders", &[][..]), ("orders.fifo", FIFO)] {
            let mut world = World::with_queue(name, attributes);
            world.settings.limits.concurrency = 1;
            world.settings.limits.timeout = secs(20);
            for n in 0..3 {
                world.send_as(&numbered(n), |one| one.message_group_id(numbered(n))).await;
            }
            for ttl in order {
                let seconds = MessageAttributeValue::builder().data_type("Number");
                let seconds = seconds.string_value(ttl).build().unwrap();
                let with = ("requeue.ttlSeconds", seconds);
                world
                    .send_as(ttl, |one| {
                        one.message_group_id(ttl).message_attributes(with.0, with.1)
                    })
                    .await;
            }
            let mut index = Index::new(|_| End::After(secs(10), Bulk::Done));
            index.scope = |message| Scope::of([u8::from(message.body().starts_with('{'))]);
            let event = world.receive().await;
            let report = world.report(&world.processor(bulk(index.clone())), &event).await;
            // The call of the other scope waits for the first one.
            let calls = (index.sizes(), index.times("30"), report.elapsed);
            assert_eq!(calls, (vec![3, 1], 1, secs(20)), "{order:?} in {name}");
            let words = report.outcomes.iter().map(|one| one.disposition.as_str());
            assert_eq!(words.filter(|word| *word == "defer").count(), 2, "{order:?} in {name}");
        }
    }
}

/// The next receive of a message may move it to the dead-letter queue without a call.
#[tokio::test(start_paused = true)]
async fn a_message_on_its_second_receive_is_called_though_others_wait_for_the_table() {
    let mut world = World::new();
    world.settings.strategy = Strategy::Visibility;
    world.settings.policy.max_deferrals = 0;
    world.send("again").await;
    let failing = Script::failing_first(1, Failure::temporary("busy"));
    world.invoke(&world.processor(failing)).await.unwrap();
    sleep(secs(1_000)).await;
    let again = world.receive().await;
    world.send("new").await;
    let event = joined([&world.receive().await, &again]);
    let table = Arc::new(Told::default());
    table.next(&[Case::Throttled; 1_000]);
    world.settings.shared_table = Some(SharedTable::by(table));
    let index = Index { most: 2, limit: Some(RateLimit::new(1, secs(1))), ..done() };
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    assert_eq!((index.times("again"), index.times("new")), (1, 0));
    assert_eq!(report.outcomes[0].disposition.reason(), Some("table-throttled"));
}

#[tokio::test(start_paused = true)]
async fn what_no_call_reached_before_the_reserve_is_deferred() {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.settings.limits.timeout = secs(100);
    world.batch_size = 100;
    world.send_numbered(25).await;
    let index = Index::new(|_| End::Hang);
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index.clone())), &event).await;
    assert_eq!(index.sizes(), [10]);
    let of =
        |word| report.outcomes.iter().filter(|one| one.disposition.reason() == Some(word)).count();
    assert_eq!((of("unclear"), of("no-time-left")), (10, 15));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_call_that_blocks_its_thread_are_left_alone() {
    let mut world = World::new();
    world.settings.limits.timeout = millis(100);
    world.settings.limits.reserve = millis(600);
    world.function_timeout = millis(2_400);
    world.send_numbered(3).await;
    let index = Index::new(|_| End::Block(secs(4)));
    let event = world.receive().await;
    let report = world.report(&world.processor(bulk(index)), &event).await;
    assert!(report.elapsed < millis(2_400), "{:?}", report.elapsed);
    for outcome in &report.outcomes {
        assert_eq!(outcome.disposition.reason(), Some("abandoned"));
    }
}

#[tokio::test(start_paused = true)]
async fn in_report_mode_nothing_is_hidden_or_sent() {
    let mut world = World::new();
    world.settings.mode = Mode::Report;
    let ids = world.send_numbered(3).await;
    let index = poisoned(r#"{"n":1}"#, Failure::temporary("down"));
    let invocation = world.invoke(&world.processor(bulk(index))).await.unwrap();
    assert_eq!(invocation.failed(), ids);
    assert_eq!(
        [SEND, DELETE, VISIBILITY_CHANGE].map(|operation| world.requests(operation).len()),
        [0; 3]
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_fit_ends_no_call() {
    let world = World::new();
    world.send_numbered(2).await;
    world.send("no JSON").await;
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sizes);
    let index = move |messages: Vec<Message<serde_json::Value>>| {
        seen.lock().unwrap().push(messages.len());
        async { Ok::<(), Failure>(()) }
    };
    let queue = requeue::queue::SqsQueue::new(&world.sqs.client());
    let processor = requeue::BatchProcessor::<_, _, serde_json::Value>::new(
        bulk(index),
        queue,
        world.settings.clone(),
    );
    let payload: requeue::SqsEvent = serde_json::from_value(world.receive().await).unwrap();
    let report = processor.process(payload.records.unwrap(), Instant::now() + secs(60)).await;
    assert_eq!(*sizes.lock().unwrap(), [2]);
    assert_eq!(report.failed_ids().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_a_bulk_handler_of_one_call_for_each() {
    let world = World::new();
    world.send_numbered(3).await;
    let script = Script::new(|seen| {
        if seen.n() == 1 { Act::Fail(Failure::temporary("no")) } else { Act::work(secs(1)) }
    });
    let handler = bulk(each(script.clone()));
    let event = world.receive().await;
    let report = world.report(&world.processor(handler), &event).await;
    assert_eq!(report.elapsed, secs(1));
    let words: Vec<_> = report.outcomes.iter().map(|one| one.disposition.as_str()).collect();
    assert_eq!((words, script.calls().len()), (vec!["complete", "requeue", "complete"], 3));
}

#[tokio::test(start_paused = true)]
async fn a_message_on_its_last_attempt_is_alone() {
    let mut world = World::new();
    world.settings.policy.max_retries = 1;
    world.send("{}").await;
    let failing = Script::failing_first(1, Failure::temporary("busy"));
    world.invoke(&world.processor(failing)).await.unwrap();
    sleep(secs(1_000)).await;
    world.send_numbered(3).await;
    let index = poisoned(r#"{"n":1}"#, Failure::temporary("down"));
    world.invoke(&world.processor(bulk(index.clone()))).await.unwrap();
    let mut sizes = index.sizes();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 3], "an unclear call would dead-letter it");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unclear_message_of_an_event_in_doubt_waits_by_its_visibility_until_it_is_alone() {
    let mut world = World::new();
    world.settings.policy.idempotency = Some(Idempotency::default());
    world.settings.shared_table = Some(SharedTable::by(Arc::new(MemoryTable::default())));
    world.settings.policy.max_retries = 0;
    world.send_numbered(2).await;
    let index = Index::new(|_| End::Panic);
    world.run(&world.processor(bulk(index.clone()))).await;
    let sizes = index.sizes();
    assert_eq!(sizes, [2, 2, 1, 1], "each copy would share a call again");
    assert!(world.requests(SEND).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_begins_while_a_call_waits_for_others_holds_it() {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.settings.policy.max_retries = 1;
    world.protect();
    world.send_numbered(3).await;
    let pause = Failure::rate_limit("slowly").retry_after(secs(30));
    let index = Index::new(move |bodies| match bodies.len() {
        3 => End::With(bodies.iter().map(|_| Err(Failure::temporary("busy"))).collect()),
        _ => End::After(secs(1), Bulk::Unclear(pause.clone())),
    });
    let processor = world.processor(bulk(index.clone()));
    world.invoke(&processor).await.unwrap();
    sleep(secs(100)).await;
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    let reasons = report.outcomes.iter().filter_map(|one| one.disposition.reason());
    let paused = reasons.filter(|reason| *reason == "paused").count();
    assert_eq!((index.sizes(), paused), (vec![3, 1], 2), "each is alone on its last attempt");
}

/// Concurrency counts the calls of a worker too, and each has messages of one batch.
#[tokio::test(start_paused = true)]
async fn a_worker_receives_as_many_messages_as_its_calls_can_take() {
    for (concurrency, most, receivers, sizes) in [
        (1, 10, None, &[10][..]),
        (1, 3, None, &[3]),
        (2, 5, None, &[5, 5]),
        (3, 10, None, &[10, 10, 10]),
        (3, 100, None, &[10, 10, 10]),
        (4, 5, Some(4), &[5, 5, 5, 5]),
        (4, 1, None, &[1, 1, 1, 1]),
    ] {
        let mut world = World::new();
        world.settings.limits.concurrency = concurrency;
        world.send_numbered(40).await;
        let index = Index { most, ..Index::new(|_| End::After(secs(1), Bulk::Done)) };
        let mut settings = WorkerSettings::default();
        (settings.receivers, settings.until) = (receivers, Until::Empty);
        let queue = SqsQueue::new(&world.sqs.client());
        let start = Worker::start(
            bulk(index.clone()),
            queue,
            &world.queue,
            world.settings.clone(),
            settings,
        );
        let progress = start.await.unwrap().run(pending()).await;
        assert_eq!(progress.completed, 40);
        let calls = index.calls();
        let first = calls.iter().filter(|call| call.at == calls[0].at);
        let first: Vec<usize> = first.map(|call| call.bodies.len()).collect();
        assert_eq!(first, sizes, "{concurrency} calls of {most}");
    }
}

/// So many requests would a handler make that makes one for each message.
#[tokio::test(start_paused = true)]
async fn a_limit_per_message_counts_each_message_of_a_shared_call() {
    for (per, of_key) in
        [(LimitPer::Call, false), (LimitPer::Message, false), (LimitPer::Message, true)]
    {
        let per_message = per == LimitPer::Message;
        let mut world = World::new();
        let mut limit = RateLimit::new(10, secs(1));
        (limit.burst, limit.per) = (5, per);
        let policy = &mut world.settings.policy;
        if of_key {
            policy.key_limits = vec![KeyLimit::new("/tenant".parse().unwrap(), limit)];
        } else {
            policy.limit = Some(limit);
        }
        world.send_numbered(30).await;
        let index = done();
        let began = Instant::now();
        world.run(&world.processor(bulk(index.clone()))).await;
        let mut messages = 0;
        for Call { bodies, at } in index.calls() {
            messages += bodies.len() as u128;
            let most = 5 + 10 * (at - began + millis(150)).as_millis() / 1_000;
            assert!(!per_message || messages <= most, "{messages} after {:?}", at - began);
        }
        let took = index.calls().last().unwrap().at - began;
        assert!(messages == 30 && (took > secs(2)) == per_message, "{messages} in {took:?}");
        assert!(index.sizes().iter().any(|size| *size > 1), "{:?}", index.sizes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_call_has_the_units_of_its_messages_and_keys_do_not_share_one() {
    let mut world = World::new();
    let mut limit = RateLimit::new(10, secs(1));
    limit.burst = 11;
    world.settings.policy.key_limits = vec![KeyLimit::new("/tenant".parse().unwrap(), limit)];
    world.settings.policy.key_limits[0].units = Some("/items".parse().unwrap());
    for n in 0..20 {
        world.send(&format!(r#"{{"n":{n},"tenant":{},"items":5}}"#, n % 2)).await;
    }
    let index = done();
    let began = Instant::now();
    world.run(&world.processor(bulk(index.clone()))).await;
    let mut units = [0_u32, 0];
    for Call { bodies, at } in index.calls() {
        let tenant = |body: &String| usize::from(body.contains(r#""tenant":1"#));
        assert!(bodies.iter().all(|body| tenant(body) == tenant(&bodies[0])), "{bodies:?}");
        let of = &mut units[tenant(&bodies[0])];
        *of += 5 * u32::try_from(bodies.len()).unwrap();
        // The burst, and the units of one message at most beyond the limit.
        let most = 11 + 4 + 10 * (at - began + millis(150)).as_millis() / 1_000;
        assert!(u128::from(*of) <= most, "{of} units after {:?}", at - began);
    }
    assert_eq!(units, [50, 50]);
}
