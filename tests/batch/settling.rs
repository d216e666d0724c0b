//! Send, confirm, delete, and the failure of each.

use requeue::embedded::{EntryFault, EntryOutcome, Fault, MessageState};
use requeue::{Failure, Wrap};
use tokio::time::Instant;

use crate::world::{
    Act, DELETE, LIMIT, SEND, Script, VISIBILITY_CHANGE, World, millis, numbered, object_of, secs,
    state,
};

fn later() -> Failure {
    Failure::rate_limit("later").retry_after(secs(40))
}

fn refused(position: usize, sender_fault: bool) -> Fault {
    let code = if sender_fault { "InvalidParameterValue" } else { "InternalError" };
    let outcome = EntryOutcome::Refused { code: code.to_owned(), sender_fault };
    Fault::Entries(vec![EntryFault::new(position, outcome)])
}

#[tokio::test(start_paused = true)]
async fn ten_that_fail_together_cost_two_requests() {
    let world = World::new();
    world.send_numbered(10).await;
    let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();

    assert_eq!(invocation.failed(), Vec::<&str>::new());
    assert_eq!(world.all_calls(), (1, 1, 0));
    assert!(invocation.elapsed < millis(250), "nothing is left to wait for");
    let copies = world.messages();
    assert_eq!(copies.len(), 10);
    let due = world.clock.now() + secs(40);
    assert!(copies.iter().all(|copy| copy.state == MessageState::DelayedUntil(due)));
    assert!(
        copies[0].body.starts_with(r#"{"n":0,"retryCount":1,"originalMessageId":""#),
        "{}",
        copies[0].body
    );
}

#[tokio::test(start_paused = true)]
async fn what_succeeds_costs_no_request_and_is_deleted_by_the_mapping() {
    let world = World::new();
    world.send("{}").await;
    // Nothing a queue does can make a processed message run again.
    world.faults(|_| Fault::refuse(500, "InternalFailure"));
    let script = Script::new(|_| Act::Done);
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert!(world.messages().is_empty());
    assert_eq!((world.all_calls(), script.calls().len()), ((0, 0, 0), 1));
}

#[tokio::test(start_paused = true)]
async fn the_response_is_what_lambda_reads() {
    let world = World::new();
    let processor = world.processor(Script::new(|seen| match seen.n() {
        0 => Act::Done,
        _ => Act::Fail(Failure::non_retryable("no")),
    }));
    world.send(&numbered(0)).await;
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.bytes().unwrap(), br#"{"batchItemFailures":[]}"#);

    let id = world.send(&numbered(1)).await;
    let invocation = world.invoke(&processor).await.unwrap();
    let expected = format!(r#"{{"batchItemFailures":[{{"itemIdentifier":"{id}"}}]}}"#);
    assert_eq!(String::from_utf8(invocation.bytes().unwrap()).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn ten_verdicts_leave_at_once_while_other_handlers_run() {
    let mut world = World::new();
    (world.batch_size, world.settings.limits.concurrency) = (20, 20);
    world.send_numbered(20).await;
    let processor = world.processor(Script::new(|seen| {
        if seen.n() % 2 == 0 { Act::Fail(later()) } else { Act::work(secs(9)) }
    }));
    let started = Instant::now();
    let invocation = world.invoke(&processor).await.unwrap();
    let sends = world.requests(SEND);
    assert_eq!((sends.len(), sends[0].entries), (1, 10));
    assert_eq!(sends[0].at, started);
    assert_eq!(world.requests(DELETE)[0].at, started, "and the originals with them");
    assert_eq!(invocation.elapsed, secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_waits_250_ms_for_company_while_other_handlers_run() {
    for (second_at, expected) in
        [(249, vec![(250, 2)]), (251, vec![(250, 1), (501, 1)]), (700, vec![(250, 1), (950, 1)])]
    {
        let world = World::new();
        world.send_numbered(3).await;
        let processor = world.processor(Script::new(move |seen| match seen.n() {
            0 => Act::Fail(later()),
            1 => Act::after(millis(second_at), Act::Fail(later())),
            _ => Act::work(secs(9)),
        }));
        let started = Instant::now();
        world.invoke(&processor).await.unwrap();
        let sends: Vec<_> = world
            .requests(SEND)
            .iter()
            .map(|send| ((send.at - started).as_millis(), send.entries))
            .collect();
        assert_eq!(sends, expected, "second failure after {second_at} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_leaves_when_the_last_handler_ends() {
    let world = World::new();
    world.send_numbered(2).await;
    let processor = world.processor(Script::new(|seen| match seen.n() {
        0 => Act::Fail(later()),
        _ => Act::work(millis(100)),
    }));
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!((invocation.elapsed, world.calls(SEND)), (millis(100), 1));
}

/// The bytes that a first retry adds to an object.
async fn growth() -> usize {
    let world = World::new();
    world.send(&object_of(100)).await;
    world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    world.only_message().body.len() - 100
}

#[tokio::test(start_paused = true)]
async fn a_request_holds_one_mebibyte_and_no_byte_more() {
    let growth = growth().await;
    for (sizes, requests) in [
        ([LIMIT / 2, LIMIT / 2 - 1].as_slice(), vec![2]),
        (&[LIMIT / 2, LIMIT / 2], vec![2]),
        (&[LIMIT / 2, LIMIT / 2 + 1], vec![1, 1]),
        (&[LIMIT, 2_000], vec![1, 1]),
        (&[400_000, 400_000, 400_000], vec![1, 2]),
        (&[150 * 1_024; 10], vec![4, 6]),
    ] {
        let world = World::new();
        for size in sizes {
            world.send(&object_of(size - growth)).await;
        }
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(invocation.failed().is_empty(), "{sizes:?}");
        assert_eq!(world.entries(SEND), requests, "{sizes:?}");
        assert_eq!(world.messages().len(), sizes.len(), "{sizes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mebibyte_leaves_while_other_handlers_run() {
    let world = World::new();
    for size in [600_000, 600_001, 100] {
        world.send(&object_of(size)).await;
    }
    let processor = world.processor(Script::new(|seen| match seen.body.len() {
        100 => Act::work(secs(9)),
        600_000 => Act::Fail(later()),
        _ => Act::after(millis(10), Act::Fail(later())),
    }));
    let started = Instant::now();
    world.invoke(&processor).await.unwrap();
    let sends: Vec<_> =
        world.requests(SEND).iter().map(|send| (send.at - started).as_millis()).collect();
    assert_eq!(
        sends,
        [10, 260],
        "the first when the second does not fit beside it, the second after its own wait"
    );
}

#[tokio::test(start_paused = true)]
async fn chunks_are_settled_side_by_side() {
    let mut world = World::new();
    (world.batch_size, world.settings.limits.concurrency) = (100, 100);
    world.send_numbered(100).await;
    world.faults(|_| Fault::RespondAfter(secs(1)));
    let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    assert_eq!(world.all_calls(), (10, 10, 0));
    assert_eq!(invocation.elapsed, secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_is_tried_once_and_deletes_nothing() {
    for (status, code) in [
        (403, "AccessDeniedException"),
        (403, "AccessDenied"),
        (400, "KmsAccessDenied"),
        (400, "KMS.AccessDeniedException"),
        (400, "KmsDisabled"),
        (400, "AWS.SimpleQueueService.NonExistentQueue"),
        (403, "InvalidClientTokenId"),
    ] {
        let world = World::new();
        let ids = world.send_numbered(3).await;
        world.faults_of(SEND, move |_| Fault::refuse(status, code));
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed(), ids, "{code}");
        assert_eq!(world.all_calls(), (1, 0, 1), "{code}");
        let left = world.messages();
        assert_eq!(
            left.iter().map(|message| &message.id).collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
        assert_eq!(left[0].body, numbered(0), "{code}: untouched");
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_that_passes_is_tried_five_times() {
    for (status, code) in [
        (500, "InternalFailure"),
        (503, "ServiceUnavailable"),
        (400, "RequestThrottled"),
        (400, "KmsThrottled"),
        (400, "KMS.ThrottlingException"),
        (403, "ThrottlingException"),
    ] {
        for (refusals, tries, moved) in [(4, 5, true), (5, 5, false)] {
            let world = World::new();
            let id = world.send("{}").await;
            world.faults_of(SEND, move |call| match call.of_operation {
                n if n <= refusals => Fault::refuse(status, code),
                _ => Fault::None,
            });
            let processor = world.processor(Script::always(later()));
            let invocation = world.invoke(&processor).await.unwrap();
            assert_eq!(invocation.failed().is_empty(), moved, "{code} {refusals}");
            assert_eq!(world.calls(SEND), tries, "{code} {refusals}");
            assert_eq!(world.only_message().id == id, !moved, "{code} {refusals}");
            assert!(invocation.elapsed < secs(3), "{code}: {:?}", invocation.elapsed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_without_an_answer_is_tried_at_most_twice() {
    for (fault, copies) in [
        (Fault::LoseRequest, 0),
        (Fault::Hang, 0),
        (Fault::LoseResponse, 2),
        (Fault::RespondAfter(secs(11)), 2),
    ] {
        let world = World::new();
        let id = world.send("{}").await;
        let every = fault.clone();
        world.faults_of(SEND, move |_| every.clone());
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed(), [id.as_str()], "{fault:?}");
        assert_eq!(world.all_calls(), (2, 0, 1), "{fault:?}: not confirmed, so not deleted");
        assert_eq!(world.messages().len(), 1 + copies, "{fault:?}");

        // The second try is as good as a first.
        let world = World::new();
        world.send("{}").await;
        let once = fault.clone();
        world.faults_of(SEND, move |call| match call.of_operation {
            1 => once.clone(),
            _ => Fault::None,
        });
        let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();
        assert!(invocation.failed().is_empty(), "{fault:?}");
        assert_eq!(world.all_calls(), (2, 1, 0), "{fault:?}");
        assert_eq!(world.messages().len(), if copies > 0 { 2 } else { 1 }, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_try_counts_also_between_throttled_ones() {
    let world = World::new();
    world.send("{}").await;
    world.faults_of(SEND, |call| match call.of_operation {
        1 | 3 => Fault::LoseRequest,
        _ => Fault::refuse(400, "RequestThrottled"),
    });
    world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    assert_eq!(world.calls(SEND), 3);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_the_senders_fault_is_kept_alone() {
    let world = World::new();
    let ids = world.send_numbered(10).await;
    world.faults_of(SEND, |_| refused(3, true));
    let processor = world.processor(Script::always(later()));
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), [ids[3].as_str()]);
    assert_eq!((world.entries(SEND), world.entries(DELETE)), (vec![10], vec![9]));
    assert_eq!(world.entries(VISIBILITY_CHANGE), [1]);
    let left = world.messages();
    assert_eq!(left.len(), 10);
    assert_eq!(left.iter().filter(|message| ids.contains(&message.id)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_sqs_could_not_store_is_sent_again_alone() {
    for (refusals, tries, kept) in [(1, 2, 0), (4, 5, 0), (5, 5, 1)] {
        let world = World::new();
        world.send_numbered(10).await;
        world.faults_of(SEND, move |call| match call.of_operation {
            1 => refused(3, false),
            n if n <= refusals => refused(0, false),
            _ => Fault::None,
        });
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed().len(), kept, "{refusals}");
        let sends: Vec<usize> =
            world.requests(SEND).iter().map(|request| request.entries).collect();
        assert_eq!(sends.len(), tries, "{refusals}");
        assert_eq!(
            (sends[0], &sends[1..]),
            (10, vec![1; tries - 1].as_slice()),
            "only the one that failed"
        );
        assert_eq!(world.messages().len(), 10, "{refusals}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_no_list_mentions_is_neither_deleted_nor_sent_again() {
    for (outcome, copies) in [(EntryOutcome::Ignored, 9), (EntryOutcome::Unmentioned, 10)] {
        let world = World::new();
        let ids = world.send_numbered(10).await;
        let forgotten = Fault::Entries(vec![EntryFault::new(9, outcome.clone())]);
        world.faults_of(SEND, move |_| forgotten.clone());
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed(), [ids[9].as_str()], "{outcome:?}");
        assert_eq!((world.entries(SEND), world.entries(DELETE)), (vec![10], vec![9]));
        assert_eq!(world.messages().len(), copies + 1, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_refused_as_malformed_is_sent_in_single_pieces() {
    for code in [
        "BatchRequestTooLong",
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "InvalidMessageContents",
    ] {
        let world = World::new();
        let ids = world.send_numbered(4).await;
        // Of the single ones the third is the culprit.
        world.faults_of(SEND, move |call| match (call.entries, call.of_operation) {
            (1, 4) => Fault::refuse(400, "InvalidMessageContents"),
            (1, _) => Fault::None,
            _ => Fault::refuse(400, code),
        });
        let processor = world.processor(Script::always(later()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed(), [ids[2].as_str()], "{code}");
        assert_eq!(world.entries(SEND), [1, 1, 1, 1, 4], "{code}");
        assert_eq!(world.entries(DELETE), [3], "{code}");
        assert_eq!(world.messages().len(), 4, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_piece_without_an_answer_holds_back_later_sends_whatever_the_last_piece_met() {
    // The first request is all of them; then each piece alone, tried twice where there is no
    // answer.
    for (lost, pauses) in
        [(vec![], false), (vec![2, 3], true), (vec![3, 4], true), (vec![4, 5], true)]
    {
        let world = World::new();
        world.send_numbered(3).await;
        let without_answer = lost.clone();
        world.faults_of(SEND, move |call| match call.of_operation {
            1 => Fault::refuse(400, "InvalidMessageContents"),
            n if without_answer.contains(&n) => Fault::LoseRequest,
            _ => Fault::None,
        });
        let processor = world.processor(Script::always(later()));
        world.invoke(&processor).await.unwrap();
        let sends = world.calls(SEND);
        world.send("{}").await;
        world.invoke(&processor).await.unwrap();
        assert_eq!(world.calls(SEND) == sends, pauses, "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_message_refused_as_malformed_is_sent_once() {
    let world = World::new();
    let id = world.send("{}").await;
    world.faults_of(SEND, |_| Fault::refuse(400, "InvalidMessageContents"));
    let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    assert_eq!((invocation.failed(), world.entries(SEND)), (vec![id.as_str()], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_is_tried_once_more_and_then_left_to_the_mapping() {
    for fault in [
        Fault::refuse(500, "InternalFailure"),
        Fault::refuse(403, "AccessDenied"),
        Fault::LoseRequest,
        Fault::Hang,
    ] {
        for (failures, deletes) in [(1, 2), (2, 2)] {
            let world = World::new();
            let id = world.send("{}").await;
            let fault_of = fault.clone();
            world.faults_of(DELETE, move |call| {
                if call.of_operation <= failures { fault_of.clone() } else { Fault::None }
            });
            let processor = world.processor(Script::always(later()));
            let invocation = world.invoke(&processor).await.unwrap();
            assert!(invocation.failed().is_empty(), "{fault:?}: the copy is in the queue");
            assert_eq!(world.all_calls(), (1, deletes, 0), "{fault:?}");
            assert_ne!(world.only_message().id, id, "{fault:?}: the mapping deleted it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_whose_delete_failed_is_deleted_alone() {
    let world = World::new();
    world.send_numbered(10).await;
    world.faults_of(DELETE, |call| match call.of_operation {
        1 => refused(7, false),
        _ => Fault::None,
    });
    let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert_eq!(world.entries(DELETE), [1, 10]);
    assert_eq!(world.messages().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_a_failed_delete_leaves_two_bounded_copies() {
    let mut world = World::new();
    world.settings.policy.max_retries = 2;
    let id = world.send("{}").await;
    world.faults_of(DELETE, |_| Fault::refuse(500, "InternalFailure"));
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let event = world.receive().await;
    // The answer never reaches Lambda: nothing is acknowledged. A new environment knows nothing.
    world.invoke_with(&processor, &event).await.unwrap();
    assert_eq!(world.messages().len(), 2);

    world.faults(|_| Fault::None);
    world.run(&world.processor(script.clone())).await;
    assert_eq!(world.dead().len(), 2);
    for dead in world.dead() {
        assert_eq!(
            (&state(&dead)["retryCount"], &state(&dead)["originalMessageId"]),
            (&2.into(), &id.as_str().into())
        );
    }
    assert_eq!(script.calls().len(), 1 + 2 + 3, "one call, then two attempts and three");
}

#[tokio::test(start_paused = true)]
async fn a_whole_batch_that_failed_is_answered_and_not_sent_twice() {
    let world = World::new();
    let ids = world.send_numbered(10).await;
    let half = (0..5).map(|n| {
        EntryFault::new(
            2 * n,
            EntryOutcome::Refused { code: "InvalidParameterValue".to_owned(), sender_fault: true },
        )
    });
    let half: Vec<EntryFault> = half.collect();
    world.faults_of(SEND, move |_| Fault::Entries(half.clone()));
    let invocation = world.invoke(&world.processor(Script::always(later()))).await.unwrap();
    let expected: Vec<&str> = ids.iter().step_by(2).map(String::as_str).collect();
    assert_eq!(invocation.failed(), expected);
    assert_eq!((world.calls(SEND), world.messages().len()), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_overrides_the_delay_of_the_queue() {
    for delay in [0, 1, 899, 900] {
        let world = World::with_queue("orders", &[("DelaySeconds", "60")]);
        world.send_as("{}", |message| message.delay_seconds(0)).await;
        let now = Failure::temporary("now").retry_after(secs(delay));
        world.invoke(&world.processor(Script::always(now))).await.unwrap();
        assert_eq!(world.wait(&world.only_message()), secs(delay));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_does_not_keep_others_from_being_sent() {
    let mut world = World::new();
    world.settings.wrap = Wrap::Never;
    let script = Script::new(|seen| match seen.body.as_str() {
        r#"{"n":0}"# if seen.receive_count > 1 => Act::Done,
        _ => Act::Fail(Failure::temporary("no")),
    });
    let processor = world.processor(script);
    world.faults_of(SEND, |call| if call.of_operation <= 2 { Fault::Hang } else { Fault::None });
    world.send(&numbered(0)).await;
    world.invoke(&processor).await.unwrap();
    for n in 1..=5 {
        tokio::time::sleep(secs(31)).await;
        world.send("text").await;
        world.invoke(&processor).await.unwrap();
        tokio::time::sleep(secs(1)).await;
        let id = world.send(&numbered(n)).await;
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(
            !invocation.failed().contains(&id.as_str()),
            "{n}: SQS has been well since the first minute"
        );
    }
}
