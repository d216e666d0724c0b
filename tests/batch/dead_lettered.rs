//! The mode `redrive`: SQS delivers a given-up message until it moves it, and the environment that
//! dead-lettered it does not handle it again.

use std::time::Duration;

use requeue::embedded::EventSourceMapping;
use requeue::{Disposition, Failure, Mode, ReleaseReason, Strategy};

use crate::world::{Act, SEND, Script, Seen, World, numbered, secs};

/// Every receive of a message until SQS moves it, by one environment or each by another: the calls
/// of the handler, and the disposition of each.
async fn receives(world: &World, script: &Script, is_one_environment: bool) -> Vec<Disposition> {
    let one = world.processor(script.clone());
    let mut dispositions = Vec::new();
    while world.sleep_until_due().await {
        let Some(batch) = world.mapping().poll(Duration::ZERO).await.unwrap() else { break };
        let other = world.processor(script.clone());
        let processor = if is_one_environment { &one } else { &other };
        let report = world.report(processor, &batch.event(&world.queue)).await;
        let kept = report.failed_ids().unwrap();
        assert_eq!(kept.len(), report.outcomes.len(), "each is in the response");
        dispositions.extend(report.outcomes.iter().map(|outcome| outcome.disposition));
    }
    dispositions
}

fn dead_lettered(disposition: &Disposition) -> bool {
    *disposition == Disposition::Release(ReleaseReason::NotRetried)
}

#[tokio::test(start_paused = true)]
async fn an_environment_handles_what_it_gave_up_once_and_another_one_once_more() {
    let never = || Failure::non_retryable("never");
    let table = [
        ("orders", Strategy::Copy, Mode::Requeue, 50, never(), 1, 5),
        ("orders", Strategy::Visibility, Mode::Requeue, 50, never(), 1, 5),
        ("orders.fifo", Strategy::Copy, Mode::Requeue, 50, never(), 1, 5),
        // Nothing says on a first delivery that there are no retries, or that the service named too
        // long a delay.
        ("orders", Strategy::Copy, Mode::Requeue, 0, Failure::temporary("no"), 1, 5),
        (
            "orders",
            Strategy::Copy,
            Mode::Requeue,
            50,
            Failure::rate_limit("no").retry_after(secs(43_300)),
            1,
            5,
        ),
        // For emergencies: as if there were no Requeue.
        ("orders", Strategy::Copy, Mode::Report, 50, never(), 5, 5),
    ];
    for (queue, strategy, mode, retries, failure, warm, cold) in table {
        for (is_one_environment, calls) in [(true, warm), (false, cold)] {
            let what = format!(
                "{queue}, {strategy:?}, {mode:?}, {failure:?}, one environment: {is_one_environment}"
            );
            let content = [("ContentBasedDeduplication", "true")];
            let is_fifo = queue == "orders.fifo";
            let mut world = World::with_queue(queue, if is_fifo { &content } else { &[] });
            world.settings.strategy = strategy;
            world.settings.mode = mode;
            world.settings.policy.max_retries = retries;
            world.settings.policy.max_retry_after = secs(86_400);
            let group = is_fifo.then(|| "a".to_owned());
            world.send_as("{}", |message| message.set_message_group_id(group)).await;
            let script = Script::always(failure.clone());
            let dispositions = receives(&world, &script, is_one_environment).await;
            assert_eq!(
                (script.calls().len(), dispositions.len()),
                (calls, 5),
                "{what}: {dispositions:?}"
            );
            let released = dispositions.iter().filter(|one| dead_lettered(one)).count();
            assert_eq!(
                released,
                5 - calls,
                "{what}: it is counted once as a dead letter: {dispositions:?}"
            );
            assert_eq!((world.dead().len(), world.calls(SEND)), (1, 0), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_moved_message_is_handled_anew_in_either_queue() {
    let world = World::new();
    world.send("{}").await;
    let script = Script::always(Failure::non_retryable("never"));
    let processor = world.processor(script.clone());
    world.run(&processor).await;
    assert_eq!((script.calls().len(), world.dead().len()), (1, 1));

    // It keeps its id on the way to the dead-letter queue, of which the same process works on the
    // messages too.
    let mapping = EventSourceMapping::new(world.sqs.clone(), world.dead_letters.clone(), 10);
    for receive in 1..=3 {
        let batch = mapping.poll(Duration::ZERO).await.unwrap().expect("the dead letter");
        world.report(&processor, &batch.event(&world.dead_letters)).await;
        let calls = script.calls().len();
        assert_eq!(
            calls, 2,
            "handled on its first receive there alone, as receive {receive} shows"
        );
        tokio::time::sleep(secs(100_000)).await;
    }

    world.move_back().await;
    world.run(&processor).await;
    assert_eq!((script.calls().len(), world.dead().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_does_not_pass_what_another_environment_may_handle() {
    let mut world = World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")]);
    world.settings.policy.max_retries = 3;
    for n in 0..2 {
        world.send_as(&numbered(n), |message| message.message_group_id("a")).await;
    }
    let script = Script::new(|seen| match seen.n() {
        0 => Act::Fail(Failure::non_retryable("never")),
        _ => Act::Done,
    });
    let environments = [world.processor(script.clone()), world.processor(script.clone())];
    // On the fourth receive its retries are used up, so that no environment handles it on a later
    // one.
    for (environment, called) in [(0, &[0][..]), (0, &[0]), (1, &[0, 0]), (1, &[0, 0, 1])] {
        world.sleep_until_due().await;
        world.invoke(&environments[environment]).await.expect("the group");
        let numbers: Vec<usize> = script.calls().iter().map(Seen::n).collect();
        assert_eq!(numbers, called);
    }
    world.run(&environments[0]).await;
    assert_eq!((script.calls().len(), world.dead().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn it_is_released_even_where_no_time_is_left() {
    let world = World::new();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::non_retryable("never")));
    world.invoke(&processor).await.expect("the message");
    world.sleep_until_due().await;
    let mut world = world;
    world.function_timeout = Duration::ZERO;
    let invocation = world.invoke(&processor).await.expect("the message");
    assert_eq!(invocation.failed().len(), 1, "a copy would be handled anew");
    assert_eq!(world.calls(SEND), 0);
}
