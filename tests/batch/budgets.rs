//! No message is retried for ever or dead-lettered too early, and no handler runs for a given-up
//! message.

use std::time::SystemTime;

use requeue::{Clock, DeadLetterReason, Disposition, Failure, ReleaseReason, Settings};
use serde_json::{Value, json};

use crate::world::{
    Act, MAX_RECEIVE_COUNT, SEND, Script, VISIBILITY, World, epoch_millis, secs, state,
};

/// When each call came, in seconds after the first.
fn times(script: &Script) -> Vec<u64> {
    let calls = script.calls();
    calls.iter().map(|seen| (seen.at - calls[0].at).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_always_fails_ends_in_the_dead_letter_queue_after_its_retries() {
    for max_retries in [1, 2, 7] {
        let mut world = World::new();
        world.settings.policy.max_retries = max_retries;
        let id = world.send("{}").await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;

        let calls = script.calls();
        assert_eq!(calls.len(), 1 + usize::try_from(max_retries).unwrap());
        let last: Vec<bool> = calls.iter().map(|seen| seen.is_last).collect();
        assert_eq!(last.iter().position(|last| *last), Some(calls.len() - 1));
        let [dead] = &world.dead()[..] else {
            panic!("one message");
        };
        assert_eq!(state(dead)["retryCount"], max_retries);
        assert_eq!(state(dead)["originalMessageId"], id.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_dead_lettered_is_released_without_a_call_on_later_receives() {
    let mut world = World::new();
    world.settings.policy.max_retries = 1;
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    world.invoke(&processor).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    let mut dispositions = Vec::new();
    for _ in 0..MAX_RECEIVE_COUNT {
        let report = world.report(&processor, &world.receive().await).await;
        dispositions.push(report.outcomes[0].disposition);
        tokio::time::sleep(VISIBILITY).await;
    }
    assert_eq!(dispositions[0], Disposition::DeadLetter(DeadLetterReason::RetriesExhausted));
    assert!(
        dispositions[1..]
            .iter()
            .all(|disposition| *disposition == Disposition::Release(ReleaseReason::NotRetried))
    );
    assert_eq!((script.calls().len(), world.all_calls()), (2, (1, 1, 0)));
    assert!(world.invoke(&processor).await.is_none());
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_failed_for_good_is_handled_once_and_left_to_the_redrive_policy_unsent() {
    let world = World::new();
    world.send("{}").await;
    let script = Script::always(Failure::non_retryable("never"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(times(&script), [0]);
    assert_eq!(world.all_calls(), (0, 0, 0));
    assert_eq!((world.dead().len(), world.dead()[0].body.as_str()), (1, "{}"));
}

#[tokio::test(start_paused = true)]
async fn each_class_has_its_own_count_and_all_share_one() {
    let mut world = World::new();
    world.settings.policy.max_retries = 6;
    world.settings.policy.rate_limit.max_retries = Some(2);
    world.send("{}").await;
    // rate-limit, temporary, rate-limit, temporary, …
    let script = Script::new(move |seen| {
        Act::Fail(if seen.attempt % 2 == 1 {
            Failure::rate_limit("slowly")
        } else {
            Failure::temporary("no")
        })
    });
    world.run(&world.processor(script.clone())).await;
    let dead = state(&world.dead()[0]);
    assert_eq!(dead["retryState"]["counts"], json!({ "rate-limit": 2, "temporary": 2 }));
    assert_eq!(dead["retryCount"], 4, "the third rate-limit found its two retries used");
}

#[tokio::test(start_paused = true)]
async fn the_age_budget_ends_the_retries_and_the_last_delay_is_cut_to_it() {
    let mut world = World::new();
    world.settings.policy.temporary.total_timeout = secs(100);
    world.send("{}").await;
    // Time spent in a backlog is not the message's own.
    tokio::time::sleep(secs(3_600)).await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    // 1 + 3 + 9 + 27 + 30 s, then 30 of which all fit, and no more.
    assert_eq!(times(&script), [0, 1, 4, 13, 40, 70, 100]);
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_named_delay_that_does_not_fit_is_not_cut_but_stops_retrying() {
    for (named, fits) in [(99, true), (100, true), (101, false)] {
        let mut world = World::new();
        world.settings.policy.rate_limit.total_timeout = secs(100);
        let id = world.send("{}").await;
        let processor =
            world.processor(Script::always(Failure::rate_limit("slowly").retry_after(secs(named))));
        let report = world.report(&processor, &world.receive().await).await;
        if fits {
            assert_eq!(world.wait(&world.only_message()), secs(named));
        } else {
            assert_eq!(
                report.outcomes[0].disposition,
                Disposition::DeadLetter(DeadLetterReason::TooOld)
            );
            assert_eq!(world.only_message().id, id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_to_live_counts_from_the_first_send_and_spares_the_handler() {
    for (age, is_handled) in [(3_599, true), (3_600, true), (3_601, false)] {
        let mut world = World::new();
        world.settings.policy.message_ttl = Some(secs(3_600));
        let id = world.send("{}").await;
        tokio::time::sleep(secs(age)).await;
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(script.calls().len(), usize::from(is_handled), "{age}");
        if !is_handled {
            assert_eq!(
                report.outcomes[0].disposition,
                Disposition::DeadLetter(DeadLetterReason::Expired)
            );
            assert_eq!(report.failed_ids().unwrap(), [id.as_str()]);
            tokio::time::sleep(VISIBILITY).await;
            world.run(&processor).await;
            assert_eq!(
                (script.calls().len(), world.dead().len(), world.all_calls()),
                (0, 1, (0, 0, 0))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_does_not_make_a_message_younger() {
    let mut world = World::new();
    world.settings.policy.message_ttl = Some(secs(100));
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no").retry_after(secs(60)));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(times(&script), [0, 60], "at 120 s it is expired");
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hours_are_waited_in_hops_that_call_nobody() {
    for (named, hops) in [(900, 0), (901, 1), (1_800, 1), (1_801, 2), (21_600, 23), (43_200, 47)] {
        let world = World::new();
        let id = world.send("{}").await;
        let script = Script::failing_first(1, Failure::quota("tomorrow").retry_after(secs(named)));
        let processor = world.processor(script.clone());
        let mut last = None;
        while !world.messages().is_empty() {
            tokio::time::sleep(world.wait(&world.only_message())).await;
            world.invoke(&processor).await.unwrap();
            if let Some(copy) = world.messages().first() {
                assert!(world.wait(copy) <= secs(900));
                let copy = state(copy);
                assert_eq!(
                    (&copy["retryCount"], &copy["originalMessageId"]),
                    (&1.into(), &id.as_str().into())
                );
                last = Some(copy);
            }
        }
        assert_eq!(times(&script), [0, named], "one call before and one after");
        let calls = script.calls();
        assert_eq!((calls[1].attempt, calls[1].original_id.as_deref()), (2, Some(id.as_str())));
        let last = last.unwrap();
        assert_eq!(last["retryState"]["hops"].as_u64().unwrap_or(0), hops, "{named}");
        assert_eq!(world.calls(SEND), 1 + hops, "{named}");
    }
}

/// An event with one message that this library sent at `sent`, in a state with these members.
fn copy(
    world: &World,
    sent: SystemTime,
    enqueued: SystemTime,
    retry_count: u32,
    extra: &Value,
) -> Value {
    let mut retry_state =
        json!({ "v": 1, "class": "temporary", "counts": { "temporary": retry_count } });
    let members = extra.as_object().unwrap().clone();
    retry_state.as_object_mut().unwrap().extend(members);
    let written = jiff::Timestamp::try_from(sent).unwrap();
    let body = json!({
        "n": 0, "retryCount": retry_count, "originalMessageId": "the-first",
        "retryTimestamp": format!("{written:.3}"), "retryState": retry_state,
    });
    let record = json!({
        "messageId": "the-last", "receiptHandle": "handle", "body": body.to_string(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": epoch_millis(enqueued).to_string(),
            "ApproximateFirstReceiveTimestamp": epoch_millis(world.clock.now()).to_string(),
        },
        "messageAttributes": {}, "eventSourceARN": world.queue.to_string(),
    });
    let event = json!({ "Records": [record] });
    world.place(&event);
    event
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_nobody_of_us_could_have_written_does_not_hop_for_ever() {
    let world = World::new();
    let now = world.clock.now();
    let far = json!({ "notBefore": 253_402_200_000_000_u64 });
    let event = copy(&world, now, now, 1, &far);
    let script = Script::new(|_| Act::Done);
    let processor = world.processor(script.clone());
    world.deliver(&processor, &event).await;
    world.run(&processor).await;
    assert_eq!(script.calls().len(), 1);
    let longest = Settings::default().policy.max_retry_after;
    assert!(script.calls()[0].at.elapsed() < secs(1));
    // Clocks may differ by two minutes.
    assert!(world.clock.now() <= now + longest + secs(60 + 120));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_enqueued_long_after_we_sent_it_starts_afresh() {
    for (later, redrives, attempt) in
        [(0, 0, 8), (119, 0, 8), (120, 0, 8), (121, 0, 1), (121, 9, 1), (121, 10, 8)]
    {
        let world = World::new();
        let now = world.clock.now();
        let sent = now - secs(later);
        let old = json!({
            "firstSent": epoch_millis(now - secs(7_200)), "firstReceived": epoch_millis(now - secs(7_100)),
            "redrives": redrives, "hops": 5, "deferrals": 3, "unknown": [1, 2.0],
        });
        let event = copy(&world, sent, now, 7, &old);
        let script = Script::always(Failure::temporary("no"));
        world.deliver(&world.processor(script.clone()), &event).await;
        let seen = &script.calls()[0];
        assert_eq!(seen.attempt, attempt, "{later} s, {redrives} redrives");
        assert_eq!(seen.original_id.as_deref(), Some("the-first"));
        let restarted = attempt == 1;
        assert_eq!(seen.first_sent == now, restarted);
        assert_eq!(seen.first_received == now, restarted);
        let next = state(&world.only_message());
        assert_eq!(next["retryCount"], if restarted { 1 } else { 8 });
        assert_eq!(next["originalMessageId"], "the-first");
        let state = &next["retryState"];
        assert_eq!(state["redrives"].as_u64().unwrap_or(0), redrives + u64::from(restarted));
        assert_eq!(state["hops"].is_null(), restarted);
        assert!(state["deferrals"].is_null(), "it was called");
        assert_eq!(state["unknown"], json!([1, 2.0]), "what a later version keeps there stays");
    }
}

#[tokio::test(start_paused = true)]
async fn an_age_counts_from_the_first_receive_that_sqs_tells_of() {
    let age = VISIBILITY.as_secs();
    for (total, behind, expected) in [
        (age - 1, 0, "dead-letter"),
        (age, 0, "dead-letter"),
        (age + 1, 0, "requeue"),
        // By our clock it is received before it was: that is no age.
        (1, 3_600, "requeue"),
    ] {
        let mut world = World::new();
        world.settings.policy.temporary.total_timeout = secs(total);
        world.settings.clock = Some(Clock::starting_at(world.clock.now() - secs(behind)));
        world.send("{}").await;
        // An invocation that comes to nothing.
        world.receive().await;
        tokio::time::sleep(VISIBILITY).await;
        let processor = world.processor(Script::always(Failure::temporary("no")));
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(
            report.outcomes[0].disposition.as_str(),
            expected,
            "{total} s, {behind} s behind"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_came_in_time_is_handled_though_its_first_invocation_came_to_nothing() {
    let mut world = World::new();
    world.settings.policy.temporary.total_timeout = secs(100);
    world.send("{}").await;
    let script = Script::failing_first(1, Failure::temporary("no"));
    let processor = world.processor(script.clone());
    world.invoke(&processor).await.unwrap();
    world.sleep_until_due().await;
    world.receive().await;
    tokio::time::sleep(VISIBILITY).await;
    let report = world.report(&processor, &world.receive().await).await;
    assert_eq!((report.outcomes[0].disposition, script.calls().len()), (Disposition::Complete, 2));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_of_sqs_restarts_nothing() {
    let world = World::new();
    let now = world.clock.now();
    let event = copy(&world, now + secs(3_600), now, 7, &json!({}));
    let script = Script::always(Failure::temporary("no"));
    world.deliver(&world.processor(script.clone()), &event).await;
    assert_eq!(script.calls()[0].attempt, 8);
}
