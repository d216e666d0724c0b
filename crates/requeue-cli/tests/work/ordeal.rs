//! The whole thing: thousands of messages of which many fail, and workers that are killed and told
//! to end all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue_testkit::tools::tool;
use tokio::time::{Instant, sleep};

use crate::proxy::{Proxy, Version};
use crate::shop::{Call, Shop};

struct Ordeal {
    messages: usize,
    /// Runs for each signal.
    signals: usize,
}

/// Three of ten fail: each class until a retry succeeds, and for good.
fn body(n: usize) -> String {
    let wish = match n % 20 {
        0 => r#","answer":"rate-limit","times":1"#,
        1 => r#","answer":"quota","times":2"#,
        2 => r#","answer":"unavailable","times":3"#,
        3 => r#","answer":"invalid""#,
        4 => r#","answer":"unavailable""#,
        5 => r#","answer":"rate-limit","times":2"#,
        _ => "",
    };
    format!(r#"{{"n":{n}{wish}}}"#)
}

impl Ordeal {
    async fn run(&self, endpoint: &str) {
        let now = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let shop = Shop::open(endpoint, &format!("work-{now}")).await;
        shop.send((0..self.messages).map(body).collect()).await;
        let begun = Instant::now();
        let settings = [("REQUEUE_CONCURRENCY", "40"), ("REQUEUE_DEAD_LETTER", "redrive")];
        let mut proxies = Vec::new();
        // The unfinished messages of killed processes.
        let mut lost = Vec::new();
        for at in 0..2 * self.signals {
            let proxy = Proxy::start(endpoint).await;
            let through = [("AWS_ENDPOINT_URL_SQS", &*proxy.url())];
            let worker =
                shop.worker(&["--shutdown-timeout", "10"], &[&settings[..], &through].concat());
            // Each has its share of the first calls, and is in the middle of it when the signal
            // comes.
            let calls = shop.calls().len();
            shop.called(calls + self.messages / (2 * self.signals + 2)).await;
            if at % 2 == 0 {
                worker.signal("-KILL");
                assert_eq!(worker.ended().await.0, None);
                lost.extend(proxy.seen().in_hand().cloned());
            } else {
                worker.signal("-TERM");
                let (status, said) = worker.ended().await;
                assert_eq!(status, Some(0), "{said}");
                assert!(said.contains("ended"), "{said}");
            }
            proxies.push(proxy);
        }
        let proxy = Proxy::start(endpoint).await;
        let through = [("AWS_ENDPOINT_URL_SQS", &*proxy.url())];
        let worker = shop.worker(&[], &[&settings[..], &through].concat());
        proxies.push(proxy);
        while shop.counts(&shop.queue).await != [0; 3] {
            assert!(
                begun.elapsed() < Duration::from_secs(150),
                "{:?}",
                shop.counts(&shop.queue).await
            );
            sleep(Duration::from_millis(200)).await;
        }
        worker.signal("-TERM");
        assert_eq!(worker.ended().await.0, Some(0));
        let dead = shop.dead().await;
        eprintln!("{} messages, {:?}, {} dead", self.messages, begun.elapsed(), dead.len());
        let calls = shop.calls();
        assert_none_is_called_once_deleted(&calls, &proxies);
        self.assert_each_ends_once(&calls, &dead, &lost);
    }

    /// Once, or twice if a process was killed before it knew the message to be deleted.
    fn assert_each_ends_once(
        &self,
        calls: &[Call],
        dead: &BTreeMap<usize, usize>,
        lost: &[Version],
    ) {
        let mut by_message: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
        for call in calls {
            by_message.entry(call.n).or_default().push(call);
        }
        let mut twice = 0;
        for n in 0..self.messages {
            let calls = by_message.get(&n).map_or(&[][..], Vec::as_slice);
            let done = calls.iter().filter(|call| call.is_accepted).count();
            let ends = done + dead.get(&n).copied().unwrap_or_default();
            assert!(ends >= 1, "message {n} is lost: {calls:?}");
            let is_of_it = |version: &&Version| {
                calls.iter().any(|call| call.version.original == version.original)
            };
            let lost: Vec<&Version> = lost.iter().filter(is_of_it).collect();
            assert!(
                ends <= 1 + lost.len(),
                "message {n} came to {ends} ends, {lost:?} were lost: {calls:?}"
            );
            twice += usize::from(ends > 1);
        }
        assert!(dead.len() >= self.messages / 10, "two of twenty can only fail");
        eprintln!(
            "{} calls, {twice} messages came to two ends; {} were in hand at a kill",
            calls.len(),
            lost.len()
        );
    }
}

/// No call comes after SQS has confirmed the delete of what it is about.
fn assert_none_is_called_once_deleted(calls: &[Call], proxies: &[Proxy]) {
    let mut received: BTreeMap<Version, BTreeSet<String>> = BTreeMap::new();
    let mut deleted: BTreeMap<String, Instant> = BTreeMap::new();
    for seen in proxies.iter().map(Proxy::seen) {
        for (id, version) in seen.received {
            received.entry(version).or_default().insert(id);
        }
        deleted.extend(seen.deleted);
    }
    let late: Vec<&Call> = calls
        .iter()
        // A copy may be there twice, if a process was killed before it knew it to be sent.
        .filter(|call| {
            received[&call.version].iter().all(|id| deleted.get(id).is_some_and(|at| *at < call.at))
        })
        .collect();
    assert!(
        late.is_empty(),
        "{} of {} calls are late: {:?}",
        late.len(),
        calls.len(),
        &late[..late.len().min(5)]
    );
    eprintln!(
        "{} messages received, {} deletes confirmed",
        received.values().map(BTreeSet::len).sum::<usize>(),
        deleted.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn workers_that_are_killed_and_told_to_end_lose_nothing() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.expect("a free port");
    Ordeal { messages: 600, signals: 2 }.run(&server.url()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn nor_do_they_with_thousands_of_messages_on_an_independent_sqs() {
    if let Some(endpoint) = tool("REQUEUE_TEST_MINISTACK") {
        Ordeal { messages: 5_000, signals: 5 }.run(&endpoint).await;
    }
}
