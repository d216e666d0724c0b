//! The retries of failed calls to SQS: their number, pauses and end.

use std::time::Duration;

use requeue::embedded::{EntryFault, EntryOutcome, Fault};
use requeue::{Failure, Sampler};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{DELETE, SEND, Script, VISIBILITY_CHANGE, World, millis, secs};

const DEFAULT: &str = "{}";
const OFF: &str = r#"{"sqsCalls": "off"}"#;
const TEN: &str = r#"{"sqsCalls": {"maxAttempts": 10}}"#;
const OWN: &str = r#"{"sqsCalls": {"maxAttempts": 6, "baseDelay": 0.2, "multiplier": 3, "maxDelay": 4, "jitter": "none"}}"#;

/// Always the same pause.
fn every(pause: Duration, max_attempts: u32) -> String {
    let pause = pause.as_secs_f64();
    format!(
        r#"{{"sqsCalls": {{"maxAttempts": {max_attempts}, "baseDelay": {pause}, "maxDelay": {pause}, "jitter": "none"}}}}"#
    )
}

fn world(policy: &str) -> World {
    let mut world = World::new();
    world.settings.policy = policy.parse().unwrap();
    world
}

fn unavailable() -> Fault {
    Fault::refuse(503, "ServiceUnavailable")
}

fn entry_failed() -> Fault {
    let outcome = EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: false };
    Fault::Entries(vec![EntryFault::new(0, outcome)])
}

/// One batch in which everything fails. Returns when the requests of an operation came, in
/// milliseconds since the beginning, and how long it all took.
async fn run(world: &World, operation: &str) -> (Vec<u128>, Duration) {
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let event = world.receive().await;
    let started = Instant::now();
    let report = world.report(&processor, &event).await;
    let requests = world.requests(operation);
    (requests.iter().map(|request| (request.at - started).as_millis()).collect(), report.elapsed)
}

#[tokio::test(start_paused = true)]
async fn a_send_is_tried_again_after_the_pauses_of_the_policy() {
    let table: [(&str, f64, &[u128]); 7] = [
        (DEFAULT, 0.0, &[0, 90, 270, 630, 1_350]),
        (DEFAULT, 1.0, &[0, 100, 300, 700, 1_500]),
        (TEN, 1.0, &[0, 100, 300, 700, 1_500, 3_100, 6_300, 11_300, 16_300, 21_300]),
        (OWN, 0.0, &[0, 200, 800, 2_600, 6_600, 10_600]),
        (r#"{"sqsCalls": {"jitter": "decorrelated"}}"#, 1.0, &[0, 300, 1_200, 3_900, 8_900]),
        (OFF, 1.0, &[0]),
        (r#"{"sqsCalls": {"maxAttempts": 1}}"#, 1.0, &[0]),
    ];
    for (policy, sample, expected) in table {
        for fault in [unavailable(), entry_failed()] {
            let mut world = world(policy);
            world.settings.sampler = Sampler::always(sample);
            let id = world.send("{}").await;
            let each = fault.clone();
            world.faults_of(SEND, move |_| each.clone());
            let (sends, elapsed) = run(&world, SEND).await;
            assert_eq!(sends, expected, "{policy} at {sample}, {fault:?}");
            assert_eq!(
                Some(&elapsed.as_millis()),
                expected.last(),
                "{policy}: no pause after the last one"
            );
            assert_eq!(world.only_message().id, id, "{policy}");
            assert_eq!((world.calls(DELETE), world.calls(VISIBILITY_CHANGE)), (0, 1), "{policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_tried_again_once_after_the_first_pause_of_the_policy() {
    let table: [(&str, &[u128]); 4] =
        [(DEFAULT, &[0, 90]), (TEN, &[0, 90]), (OWN, &[0, 200]), (OFF, &[0])];
    for (policy, expected) in table {
        for fault in
            [unavailable(), entry_failed(), Fault::refuse(403, "AccessDenied"), Fault::LoseRequest]
        {
            let world = world(policy);
            world.send("{}").await;
            let each = fault.clone();
            world.faults_of(DELETE, move |_| each.clone());
            let (deletes, elapsed) = run(&world, DELETE).await;
            assert_eq!(deletes, expected, "{policy}, {fault:?}");
            assert_eq!(Some(&elapsed.as_millis()), expected.last(), "{policy}");
            assert_eq!(world.calls(SEND), 1, "{policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_without_an_answer_is_tried_again_at_most_once_whatever_the_policy_says() {
    for (policy, tries) in [(DEFAULT, 2), (TEN, 2), (OFF, 1)] {
        for fault in [
            Fault::LoseRequest,
            Fault::LoseResponse,
            Fault::Hang,
            Fault::refuse(504, "GatewayTimeout"),
        ] {
            let world = world(policy);
            world.send("{}").await;
            let each = fault.clone();
            world.faults_of(SEND, move |_| each.clone());
            run(&world, SEND).await;
            assert_eq!(world.all_calls(), (tries, 0, 1), "{policy}, {fault:?}");
        }
    }
    // Those that SQS refused for now do not count, wherever they come.
    for (unanswered, tries) in [([1, 2], 2), ([1, 6], 6), ([8, 9], 9), ([10, 11], 10)] {
        let world = world(TEN);
        world.send("{}").await;
        world.faults_of(SEND, move |call| match call.of_operation {
            n if unanswered.contains(&n) => Fault::LoseRequest,
            _ => unavailable(),
        });
        run(&world, SEND).await;
        assert_eq!(world.calls(SEND), tries, "no answer to {unanswered:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_retries_a_request_may_still_be_followed_by_another_one() {
    // Each message alone, once.
    let pieces = world(OFF);
    pieces.send_numbered(3).await;
    pieces.faults_of(SEND, |call| match call.entries {
        1 => unavailable(),
        _ => Fault::refuse(400, "BatchRequestTooLong"),
    });
    run(&pieces, SEND).await;
    assert_eq!(pieces.entries(SEND), [1, 1, 1, 3]);

    // A shorter visibility.
    let shorter = world(OFF);
    shorter.send("{}").await;
    shorter.faults(|call| match (call.operation.as_str(), call.of_operation) {
        (SEND, _) => unavailable(),
        (VISIBILITY_CHANGE, 1) => Fault::Entries(vec![EntryFault::new(
            0,
            EntryOutcome::Refused { code: "InvalidParameterValue".to_owned(), sender_fault: true },
        )]),
        _ => Fault::None,
    });
    let (changes, _) = run(&shorter, VISIBILITY_CHANGE).await;
    assert_eq!(changes, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_send_ends_after_60_seconds_however_much_time_is_left() {
    let table: [(Duration, Duration, &[u64], Duration); 4] = [
        // A pause that would end then is not begun.
        (secs(20), Duration::ZERO, &[0, 20, 40], secs(40)),
        (millis(19_990), Duration::ZERO, &[0, 19, 39, 59], millis(59_970)),
        (secs(7), Duration::ZERO, &[0, 7, 14, 21, 28, 35, 42, 49, 56], secs(56)),
        // A try that is under way then is dead-lettered.
        (secs(5), secs(9), &[0, 14, 28, 42, 56], secs(60)),
    ];
    for (pause, answer_after, expected, ends) in table {
        let mut world = world(&every(pause, 10));
        world.function_timeout = secs(900);
        world.send("{}").await;
        world.faults_of(SEND, move |_| Fault::after(answer_after, unavailable()));
        let (sends, elapsed) = run(&world, SEND).await;
        let seconds: Vec<u64> = sends.iter().map(|at| u64::try_from(at / 1_000).unwrap()).collect();
        assert_eq!(
            (seconds.as_slice(), elapsed),
            (expected, ends),
            "{pause:?}, answered after {answer_after:?}"
        );
        assert_eq!(world.calls(VISIBILITY_CHANGE), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_pieces_of_a_malformed_request_share_its_60_seconds() {
    let mut world = world(&every(secs(9), 2));
    world.function_timeout = secs(900);
    world.send_numbered(10).await;
    world.faults_of(SEND, |call| match call.entries {
        1 => unavailable(),
        _ => Fault::refuse(400, "BatchRequestTooLong"),
    });
    let (sends, elapsed) = run(&world, SEND).await;
    let seconds: Vec<u128> = sends.iter().map(|at| at / 1_000).collect();
    assert_eq!(seconds, [0, 0, 9, 9, 18, 18, 27, 27, 36, 36, 45, 45, 54, 54, 54, 54, 54]);
    assert_eq!(elapsed, secs(54));
}

#[tokio::test(start_paused = true)]
async fn no_try_and_no_pause_outlives_the_deadline() {
    // Of 20 s, a tenth of the reserve is for the response: all calls end after 19.5 s, and a send
    // needs 25 ms.
    let end = millis(19_500);
    let table: [(&str, Duration, Fault, &[u128], Duration); 8] = [
        (SEND, secs(5), unavailable(), &[0, 5_000, 10_000, 15_000], secs(15)),
        (SEND, millis(19_474), unavailable(), &[0, 19_474], millis(19_474)),
        (SEND, millis(19_475), unavailable(), &[0], Duration::ZERO),
        (SEND, secs(5), Fault::after(secs(9), unavailable()), &[0, 14_000], end),
        (SEND, secs(5), Fault::Hang, &[0, 15_000], end),
        (DELETE, millis(19_499), unavailable(), &[0, 19_499], millis(19_499)),
        (DELETE, end, unavailable(), &[0], Duration::ZERO),
        (DELETE, secs(5), Fault::Hang, &[0, 15_000], end),
    ];
    for (operation, pause, fault, expected, ends) in table {
        let mut world = world(&every(pause, 10));
        world.function_timeout = secs(20);
        world.send("{}").await;
        let each = fault.clone();
        world.faults_of(operation, move |_| each.clone());
        let ran = run(&world, operation).await;
        assert_eq!(
            ran,
            (expected.to_vec(), ends),
            "{operation} with pauses of {pause:?}, {fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_once_the_work_on_the_batch_is_dropped() {
    for (operation, dropped_after, calls) in [
        (SEND, millis(89), (1, 0, 0)),
        (SEND, millis(91), (2, 0, 0)),
        (SEND, millis(269), (2, 0, 0)),
        (DELETE, millis(89), (1, 1, 0)),
        (DELETE, millis(91), (1, 2, 0)),
    ] {
        let world = world(DEFAULT);
        world.send("{}").await;
        // The third try would succeed, were there one.
        world.faults_of(
            operation,
            |call| if call.of_operation > 2 { Fault::None } else { unavailable() },
        );
        let processor = world.processor(Script::always(Failure::temporary("no")));
        let event = world.receive().await;
        let processing = world.report(&processor, &event);
        let ended = timeout(dropped_after, processing).await.is_ok();
        assert_eq!(
            ended,
            calls == (1, 2, 0),
            "{operation} after {dropped_after:?}: a second delete is the last"
        );
        sleep(secs(3_600)).await;
        assert_eq!(world.all_calls(), calls, "{operation}, dropped after {dropped_after:?}");
    }
}
