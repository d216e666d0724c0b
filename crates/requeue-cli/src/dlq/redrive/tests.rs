use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue::queue::QueueArn;

use tokio::time::Instant;

use super::copy::{CLOCK_GRAIN, CLOCK_SKEW};
use super::*;
use crate::dlq::scan::Cause;
use crate::dlq::sqs::Sqs;

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
}

async fn of(sqs: &EmbeddedSqs, queue: &QueueArn) -> DeadLetters {
    DeadLetters::of(Sqs::new(sqs.client()), queue, None).await.expect("it is there")
}

/// The result of this command line, whose dead-letter queue this is.
async fn copied(sqs: &EmbeddedSqs, dead_letters: &QueueArn, line: &[&str]) -> RedriveResult {
    let CommandLine { arguments } = clap::Parser::try_parse_from(line).expect("arguments");
    let mut dead_letters = of(sqs, dead_letters).await;
    if line.contains(&"--max-messages") {
        dead_letters.max_messages = 41;
    }
    let route = RedriveRoute::find(&arguments, &dead_letters).await.expect("one queue");
    let stop = Stop::listen_and(Duration::MAX, || {}).expect("signals");
    let progress = CommandProgress::silent("copying");
    let mut redrive = RedriveResult::default();
    copy_all(&route, &stop, &progress, &mut redrive).await.expect("no error");
    redrive
}

#[tokio::test(start_paused = true)]
async fn newcomers_do_not_prolong_the_wait_for_what_another_reader_holds() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let queue = sqs.create_queue("orders-dlq", [("VisibilityTimeout", "6000")]).expect("a name");
    let send = async || {
        sqs.client()
            .send_message()
            .queue_url(queue.url())
            .message_body("{}")
            .send()
            .await
            .expect("sent");
    };
    send().await;
    assert_eq!(sqs.receive(&queue, 1, Duration::ZERO).await.expect("received").len(), 1);
    for pause in [Duration::from_millis(700), Duration::from_secs(2)] {
        let dead_letters = of(&sqs, &queue).await;
        let (stop, began) =
            (Stop::listen_and(Duration::MAX, || {}).expect("signals"), Instant::now());
        let progress = CommandProgress::silent("looking");
        let scan = dead_letters.scan(&stop, &progress);
        let arrivals = async {
            loop {
                send().await;
                tokio::time::sleep(pause).await;
            }
        };
        let looked = tokio::select! {
            looked = scan.run(async |_, _| Ok(ControlFlow::Continue(()))) => looked,
            () = arrivals => unreachable!("they go on"),
        };
        assert!(began.elapsed() < Duration::from_secs(70), "{:?}", began.elapsed());
        assert!(!looked.is_complete() && looked.unseen.by_cause[&Cause::AnotherReader] >= 1);
        assert!(looked.is_released());
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_not_made_visible_one_by_one_if_sqs_does_not_respond() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let queue = sqs.create_queue("orders-dlq", []).expect("a name");
    for at in 0..200 {
        let send = sqs.client().send_message().queue_url(queue.url());
        send.message_body(at.to_string()).send().await.expect("sent");
    }
    sqs.set_faults(|call| match call.operation.as_str() {
        "ChangeMessageVisibilityBatch" => Fault::Hang,
        _ => Fault::None,
    });
    let dead_letters = of(&sqs, &queue).await;
    let stop = Stop::listen_and(Duration::MAX, || {}).expect("signals");
    let progress = CommandProgress::silent("looking");
    let scan = dead_letters.scan(&stop, &progress);
    let mut last = Instant::now();
    let looked = scan.run(async |_, _| {
        last = Instant::now();
        Ok(ControlFlow::Continue(()))
    });
    let looked = looked.await.into_result().expect("no error");
    assert_eq!((dead_letters.queue.messages, looked.left_hidden), (200, 200));
    assert!(last.elapsed() < Duration::from_secs(120), "{:?}", last.elapsed());
}

/// One of four concurrent receives gets a response only at its fifth attempt.
#[tokio::test(start_paused = true)]
async fn the_time_in_hand_counts_from_the_request_that_brought_a_message() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let dead_letters = sqs.create_queue("orders-dlq", []).expect("a name");
    let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
    let queue = sqs.create_queue("orders", [("RedrivePolicy", policy.as_str())]).expect("a name");
    for at in 0..41 {
        let send = sqs.client().send_message().queue_url(dead_letters.url());
        send.message_body(at.to_string()).send().await.expect("sent");
    }
    sqs.set_faults(|call| match (call.operation.as_str(), call.of_operation) {
        ("ReceiveMessage", 3 | 6..=8) => Fault::Hang,
        ("ReceiveMessage", 9) => Fault::RespondAfter(Duration::from_secs(10)),
        _ => Fault::None,
    });
    let line = ["redrive", "--queue", &dead_letters.url(), "--max-messages", "41", "--copy"];
    let redrive = copied(&sqs, &dead_letters, &line).await;

    // The first message alone, and messages whose own request got a late response.
    assert_eq!(redrive.copied, BTreeMap::from([("orders".to_owned(), 11)]));
    assert_eq!(redrive.failed.0, BTreeMap::from([("visibility timeout over".to_owned(), 30)]));
    assert_eq!(sqs.message_count(&queue).expect("it is there"), 11);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_source_stays_if_it_may_belong_to_several_queues() {
    for (others, denied, options, reason) in [
        (0, false, &[][..], None),
        (1, false, &[], Some("sent here without a source, and orders-dlq belongs to orders and ")),
        (1, false, &["--to", "orders"], Some("sent here without a source, and orders-dlq belongs")),
        (0, true, &[], Some("sent here without a source: SQS refuses ListDeadLetterSourceQueues")),
    ] {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let dead_letters = sqs.create_queue("orders-dlq", []).expect("a name");
        let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
        let policy = [("RedrivePolicy", policy.as_str())];
        let orders = sqs.create_queue("orders", policy).expect("a name");
        for other in 0..others {
            sqs.create_queue(&format!("other-{other}"), policy).expect("a name");
        }
        let claim = format!(
            r#"{{"retryCount":1,"originalMessageId":"m-1","retryTimestamp":"2026-11-21T01:02:03.004Z",
            "retryState":{{"v":1,"source":"{orders}"}}}}"#
        );
        for body in ["{}", &claim] {
            let send = sqs.client().send_message().queue_url(dead_letters.url());
            send.message_body(body).send().await.expect("sent");
        }
        if denied {
            sqs.set_faults(|call| match call.operation.as_str() {
                "ListDeadLetterSourceQueues" => Fault::refuse(403, "AccessDenied"),
                _ => Fault::None,
            });
        }
        let line = [&["redrive"], options].concat();
        let CommandLine { mut arguments } = clap::Parser::try_parse_from(line).expect("arguments");
        arguments.to = arguments.to.map(|_| orders.url().parse().expect("a URL"));
        let client = Sqs::new(sqs.client());
        let of = DeadLetters::of(client, &dead_letters, Some(&orders)).await.expect("it is there");
        let route = RedriveRoute::find(&arguments, &of).await.expect("a queue");
        let (stop, progress) = (
            Stop::listen_and(Duration::MAX, || {}).expect("signals"),
            CommandProgress::silent("copying"),
        );
        let mut redrive = RedriveResult::default();
        copy_all(&route, &stop, &progress, &mut redrive).await.expect("no error");
        let stays = u64::from(reason.is_some());
        assert_eq!(redrive.copied["orders"], 2 - stays, "{options:?}");
        let failed: Vec<_> = redrive.failed.0.into_iter().collect();
        assert!(failed.iter().map(|(_, count)| count).sum::<u64>() == stays, "{failed:?}");
        assert!(failed.iter().all(|(why, _)| why.starts_with(reason.unwrap_or(""))), "{failed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_first_copy_is_waited_for() {
    let mut took = Vec::new();
    for reason in ["expired", "unknown"] {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let dead_letters = sqs.create_queue("orders-dlq", []).expect("a name");
        let queue = sqs.create_queue("orders", []).expect("a name");
        let send = sqs.client().send_message().queue_url(dead_letters.url());
        send.message_body("{}").send().await.expect("sent");
        let (from, to) = (dead_letters.url(), queue.url());
        let line = ["redrive", "--queue", &from, "--to", &to, "--reason", reason];
        let began = Instant::now();
        let redrive = copied(&sqs, &dead_letters, &line).await;
        took.push((redrive.copied.len(), began.elapsed()));
    }
    let [(0, without), (1, with)] = took[..] else { panic!("{took:?}") };
    assert_eq!(with, without + CLOCK_GRAIN + CLOCK_SKEW, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_beyond_the_limit_are_counted_though_not_looked_at() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let dead_letters = sqs.create_queue("orders-dlq", []).expect("a name");
    let queue = sqs.create_queue("orders", []).expect("a name");
    for _ in 0..100 {
        let send = sqs.client().send_message().queue_url(dead_letters.url());
        send.message_body("{}").send().await.expect("sent");
    }
    let (from, to) = (dead_letters.url(), queue.url());
    for (limit, said) in [
        ("5", "5 messages copied to orders\nabout 95 messages left here, not chosen\n"),
        ("95", "95 messages copied to orders\n"),
    ] {
        let line = ["redrive", "--queue", &from, "--to", &to, "--limit", limit];
        let redrive = copied(&sqs, &dead_letters, &line).await;
        assert_eq!(redrive.text("orders-dlq", &Arguments::default()), said);
    }
}

#[tokio::test(start_paused = true)]
async fn newcomers_that_were_moved_do_not_stand_for_what_a_reader_holds() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let queue = sqs.create_queue("orders-dlq", [("VisibilityTimeout", "600")]).expect("a name");
    let send = async |body: &str| {
        let send = sqs.client().send_message().queue_url(queue.url());
        send.message_body(body).send().await.expect("sent");
    };
    send("held").await;
    send("moved").await;
    let before = of(&sqs, &queue).await;
    sqs.client().purge_queue().queue_url(queue.url()).send().await.expect("purged");
    send("held").await;
    assert_eq!(sqs.receive(&queue, 1, Duration::ZERO).await.expect("received").len(), 1);
    let stop = Stop::listen_and(Duration::MAX, || {}).expect("signals");
    for (moved, left) in [(1, 1), (2, 1), (3, 1)] {
        let mut redrive = RedriveResult { moved, ..RedriveResult::default() };
        moved_all(&before, 0, &stop, &mut redrive).await.expect("counts");
        assert_eq!(
            redrive.unseen.by_cause.get(&Cause::AnotherReader).copied().unwrap_or(0),
            left,
            "{moved} moved"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_command_hides_messages_for_a_time_by_their_count_that_it_says() {
    let sqs = EmbeddedSqs::new(Clock::starting_at(
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    ));
    let queue = sqs.create_queue("orders-dlq", []).expect("a name");
    let client = sqs.client();
    client.send_message().queue_url(queue.url()).message_body("{}").send().await.expect("sent");
    let mut dead_letters = of(&sqs, &queue).await;
    let (stop, progress) = (
        Stop::listen_and(Duration::MAX, || {}).expect("signals"),
        CommandProgress::silent("looking"),
    );
    let began = Instant::now();
    let killed = dead_letters.scan(&stop, &progress).run(async |_, _| std::future::pending().await);
    assert!(tokio::time::timeout(Duration::from_secs(1), killed).await.is_err());
    while sqs.receive(&queue, 1, Duration::ZERO).await.expect("received").is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(began.elapsed().as_secs(), 120, "two minutes for one message");
    for (count, max_messages, rate, said) in [
        (1, 10_000, None, "2 min"),
        (300, 10_000, None, "2 min 3 s"),
        (300, 200, None, "2 min 2 s"),
        (300, 10_000, Some(10), "2 min 30 s"),
        (300, 10_000, Some(500), "2 min 3 s"),
    ] {
        (dead_letters.queue.messages, dead_letters.max_messages) = (count, max_messages);
        let text = dead_letters.if_killed(rate);
        assert!(text.contains(&format!("visible again {said} later: killed now, at ")), "{text}");
        assert!(text.ends_with(" UTC"), "{text}");
    }
    for (line, rate) in [(&["--rate", "5"][..], None), (&["--rate", "5", "--limit", "9"], Some(5))]
    {
        let line = [&["redrive"], line].concat();
        let CommandLine { arguments } = clap::Parser::try_parse_from(line).expect("arguments");
        assert_eq!(arguments.hiding_rate(), rate);
    }
}
