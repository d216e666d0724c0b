//! With trusted senders, Requeue believes only their retry fields. Those of other senders are part
//! of the body.

use requeue::{DeadLetterMode, DeadLetterReason, Deferral, Disposition, Failure, TrustedSenders};
use serde_json::Value;

use crate::world::{Act, SEND, Script, World, secs, state};

/// Four well-formed fields, as anybody can write them.
const FORGED: &str = r#"{"order":7,"retryCount":2,"originalMessageId":"key-of-another","retryTimestamp":"2026-11-21T03:12:52.477Z","retryState":{"v":1,"source":"arn:aws:sqs:us-east-1:000000000000:other","deadLetter":{"reason":"x"}}}"#;
/// As the embedded queue names every sender.
const OWN: &str = "AIDAREQUEUEEMBEDDED00";

fn world() -> World {
    let mut world = World::new();
    world.settings.policy.max_retries = 5;
    let mut trusted = TrustedSenders::default();
    trusted.ids.push(OWN.parse().unwrap());
    world.settings.trusted_senders = Some(trusted);
    world
}

async fn receive(world: &World, sender: Option<&str>) -> Value {
    world.sleep_until_due().await;
    let mut event = world.receive().await;
    let attributes = event["Records"][0]["attributes"].as_object_mut().unwrap();
    assert_eq!(attributes["SenderId"], OWN);
    attributes.remove("SenderId");
    attributes.extend(sender.map(|sender| ("SenderId".to_owned(), sender.into())));
    event
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_stranger_choose_neither_key_nor_count_and_the_handler_sees_them() {
    for body in [
        FORGED.to_owned(),
        FORGED.replace(r#"{"order":7"#, r#"{"retryBody":"text""#),
        FORGED.replace(r#""v":1"#, r#""v":2"#),
    ] {
        for sender in [
            None,
            Some("AIDAEXAMPLESTRANGER01"),
            Some("AROAEXAMPLESTRANGER01:AIDAREQUEUEEMBEDDED00"),
            Some("x"),
        ] {
            let world = world();
            let id = world.send(&body).await;
            let script = Script::failing_first(2, Failure::temporary("no"));
            let processor = world.processor(script.clone());
            let event = receive(&world, sender).await;
            world.deliver(&processor, &event).await;
            let copy = state(&world.only_message());
            assert_eq!(copy["originalMessageId"], id.as_str(), "{sender:?}");
            assert_eq!(copy["retryState"]["source"], Value::Null, "{sender:?}");
            // The copies are our own.
            world.run(&processor).await;
            let calls = script.calls();
            assert_eq!(calls.len(), 3, "{sender:?} {body}");
            for seen in calls {
                assert_eq!(
                    (seen.body.as_str(), seen.original_id.as_deref()),
                    (body.as_str(), Some(id.as_str()))
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_trusted_sender_are_believed_and_so_are_all_where_none_is_named() {
    for (is_named, sender) in
        [(true, OWN), (true, "AIDAREQUEUEEMBEDDED00:any-session"), (false, "AIDAEXAMPLESTRANGER01")]
    {
        let mut world = world();
        if !is_named {
            world.settings.trusted_senders = None;
        }
        world.send(&FORGED.replace(r#","deadLetter":{"reason":"x"}"#, "")).await;
        let script = Script::new(|_| Act::Done);
        let event = receive(&world, Some(sender)).await;
        world.deliver(&world.processor(script.clone()), &event).await;
        let calls = script.calls();
        assert_eq!(calls[0].original_id.as_deref(), Some("key-of-another"), "{sender}");
        assert_eq!(calls[0].body, r#"{"order":7}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn while_sts_does_not_answer_a_message_with_retry_fields_waits_in_its_place_longer_and_longer()
 {
    for queue in ["orders", "orders.fifo"] {
        let mut world = World::with_queue(
            queue,
            &[("ContentBasedDeduplication", "true")][..usize::from(queue != "orders")],
        );
        let mut trusted = TrustedSenders::default();
        trusted.own = true;
        world.settings.trusted_senders = Some(trusted);
        let group = world.queue.is_fifo().then(|| "a".to_owned());
        world.send_as(FORGED, |message| message.set_message_group_id(group)).await;
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let mut waits = Vec::new();
        for _ in 0..5 {
            world.sleep_until_due().await;
            let report = world.report(&processor, &world.receive().await).await;
            let Disposition::Defer { reason: Deferral::SenderUnknown, wait, .. } =
                report.outcomes[0].disposition
            else {
                panic!("{queue}: {:?}", report.outcomes[0]);
            };
            assert_eq!(world.wait(&world.only_message()), wait.total(), "{queue}");
            assert_eq!(report.failed_ids().unwrap().len(), 1, "{queue}");
            assert_eq!(report.outcomes[0].retry_count, 0, "{queue}: its receives are no retries");
            waits.push(wait.total().as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 480, 900], "{queue}");
        assert_eq!((script.calls().len(), world.calls(SEND)), (0, 0), "{queue}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_own_id_is_not_listed_a_message_is_dead_lettered_before_its_copies_nest() {
    let url: requeue::queue::QueueUrl = World::new().dead_letters.url().parse().unwrap();
    for mode in [DeadLetterMode::Redrive, DeadLetterMode::Annotate, DeadLetterMode::Direct(url)] {
        for failure in [Failure::temporary("no"), Failure::postpone(secs(60))] {
            for body in [r#"{"order":7}"#, "text"] {
                let what = format!("{mode:?}, {failure:?}, {body}");
                let mut world = world();
                world.settings.trusted_senders = Some(TrustedSenders::default());
                world.settings.dead_letter = Some(mode.clone());
                world.send(body).await;
                let script = Script::always(failure.clone());
                let processor = world.processor(script.clone());
                for _ in 0..2 {
                    world.sleep_until_due().await;
                    world.invoke(&processor).await.unwrap();
                }
                world.sleep_until_due().await;
                let report = world.report(&processor, &world.receive().await).await;
                let reason = report.outcomes[0].detail.as_deref().unwrap();
                assert!(reason.contains("REQUEUE_TRUSTED_SENDERS"), "{what}: {reason}");
                let dead_lettered = Disposition::DeadLetter(DeadLetterReason::NonRetryable);
                assert_eq!(report.outcomes[0].disposition, dead_lettered, "{what}");
                world.run(&processor).await;
                assert_eq!(
                    (script.calls().len(), world.calls(SEND), world.dead().len()),
                    (2, 2, 1),
                    "{what}"
                );
            }
        }
    }
}
