//! A worker under load, with faults on all sides.

use std::time::Duration;

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue_testkit::usage;
use tokio::time::{Instant, sleep};

use crate::shop::Shop;

/// Half of them fail, in every way, some of them for good.
fn body(n: usize) -> String {
    let wish = ["rate-limit", "quota", "unavailable", "invalid"][n / 2 % 4];
    let times = n / 8 % 4;
    if n.is_multiple_of(2) {
        format!(r#"{{"n":{n}}}"#)
    } else {
        format!(r#"{{"n":{n},"answer":"{wish}","times":{times}}}"#)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn memory_and_file_descriptors_of_a_worker_stay_flat() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "soak").await;
    sqs.set_faults(|call| match call.number % 200 {
        17 => Fault::refuse(503, "ServiceUnavailable"),
        57 => Fault::LoseResponse,
        97 => Fault::LoseRequest,
        137 => Fault::RespondAfter(Duration::from_secs(1)),
        _ => Fault::None,
    });
    let settings = [("REQUEUE_CONCURRENCY", "40"), ("AWS_LAMBDA_LOG_LEVEL", "ERROR")];
    let worker = shop.worker(&[], &settings);
    let end = Instant::now() + usage::duration();
    let feeding = async {
        let mut n = 0;
        while Instant::now() < end {
            shop.try_send((n..n + 20).map(body).collect()).await;
            n += 20;
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(feeding, usage::stays_flat(worker.id(), end));
    assert!(shop.calls().len() > 20, "it worked");
    worker.signal("-TERM");
    let (status, said) = worker.ended().await;
    assert_eq!(status, Some(0), "{said}");
}
