//! `requeue dlq redrive`: a message whose copy SQS does not confirm stays, and is told.

use std::collections::BTreeSet;

use requeue::embedded::{EntryFault, EntryOutcome, Fault, MessageView};

use crate::dlq_world::{DELETE, SEND, World, originals};

#[tokio::test]
async fn a_redrive_ends_where_sqs_confirms_no_copy_any_more() {
    let world = World::filled_with("direct", "orders", &[]).await;
    for n in 0..120 {
        world.send_dead(&format!(r#"{{"n":{n}}}"#)).await;
    }
    world.sqs.set_faults(|call| {
        if call.operation == SEND && call.of_operation > 1 {
            Fault::LoseResponse
        } else {
            Fault::None
        }
    });
    let run = world.dlq(&["redrive", "--copy", "--yes"]).await;
    let doubled = world.counts().1 - 1;
    assert!(run.status == 1 && doubled == 80, "{doubled}: {run:?}");
    let named = run.stdout.rsplit(": ").next().unwrap_or_default().trim().split(", ").count();
    assert_eq!(named, doubled, "{run:?}");
    let told =
        format!("{doubled} messages still here, without a confirmed copy, which may exist: ");
    assert!(
        run.stdout.contains(&told)
            && run.stderr.contains("after 8 sends in a row without a confirmation"),
        "{run:?}"
    );
}

/// The result of the first entry in the second request, which is the first request with several
/// entries.
fn entry(
    operation: &'static str,
    outcome: EntryOutcome,
) -> impl Fn(&str, u64) -> Fault + Send + Sync + Clone {
    move |called: &str, number: u64| {
        if called == operation && number >= 2 {
            Fault::Entries(vec![EntryFault::new(0, outcome.clone())])
        } else {
            Fault::None
        }
    }
}

/// A fault, the number of messages in each queue after it, and the output.
type Story = (Box<dyn Fn(&str, u64) -> Fault + Send + Sync>, (usize, usize), &'static str);

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_not_confirmed_stays_and_is_told() {
    let refused =
        |sender_fault| EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault };
    let always = |operation: &'static str, fault: Fault| {
        Box::new(
            move |called: &str, _: u64| {
                if called == operation { fault.clone() } else { Fault::None }
            },
        ) as Box<_>
    };
    let stories: Vec<Story> = vec![
        (
            Box::new(entry(SEND, refused(true))),
            (1, 4),
            "1 message not copied, and still here: InternalError",
        ),
        (
            Box::new(entry(SEND, EntryOutcome::Ignored)),
            (1, 4),
            "1 message still here, without a confirmed copy, which may exist: Unconfirmed",
        ),
        // It was stored, and SQS did not say so: twice rather than never.
        (
            Box::new(entry(SEND, EntryOutcome::Unmentioned)),
            (1, 5),
            "1 message still here, without a confirmed copy, which may exist: Unconfirmed",
        ),
        (
            Box::new(entry(DELETE, refused(true))),
            (1, 5),
            "1 message copied, but SQS did not confirm the deletes; before another command redrives, which copies",
        ),
        (
            always(SEND, Fault::refuse(403, "AccessDenied")),
            (5, 0),
            "needs the permission sqs:SendMessage on arn:aws:sqs:us-east-1:000000000000:orders\n",
        ),
        (
            always(DELETE, Fault::refuse(403, "AccessDenied")),
            (5, 1),
            "needs the permission sqs:DeleteMessage on \
             arn:aws:sqs:us-east-1:000000000000:orders-dlq\n\
             ",
        ),
        (always(SEND, Fault::LoseRequest), (5, 0), "without a confirmed copy, which may exist: "),
    ];
    let world = World::filled("annotate").await;
    let all: BTreeSet<String> = world.ids.iter().cloned().collect();
    for (faults, expected, words) in stories {
        let of = |operation: &str| world.sqs.call_count(operation);
        let before = [(SEND, of(SEND)), (DELETE, of(DELETE))];
        world.sqs.set_faults(move |call| {
            let before = before
                .iter()
                .find(|(operation, _)| *operation == call.operation)
                .map_or(0, |(_, count)| *count);
            faults(&call.operation, call.of_operation - before)
        });
        let run = world.dlq(&["redrive", "--yes", "--copy"]).await;
        world.sqs.clear_faults();
        assert!(
            run.status == 1 && format!("{}{}", run.stdout, run.stderr).contains(words),
            "{words}: {run:?}"
        );
        assert_eq!(world.counts(), expected, "{words}: {run:?}");
        world.assert_all_visible();
        let both = [world.dead(), world.back()].concat();
        assert_eq!(originals(&both).into_keys().collect::<BTreeSet<_>>(), all, "{words}");
        world.put_back().await;
    }
    for (fault, of) in [(Fault::refuse(503, "ServiceUnavailable"), 2), (Fault::LoseResponse, 1)] {
        let before = world.sqs.call_count(DELETE);
        world.sqs.set_faults(move |call| {
            let early = call.of_operation <= before + of;
            if call.operation == DELETE && early { fault.clone() } else { Fault::None }
        });
        let run = world.dlq(&["redrive", "--yes", "--copy"]).await;
        world.sqs.clear_faults();
        assert_eq!((run.status, world.counts()), (0, (0, 5)), "what passes is waited for: {run:?}");
        world.put_back().await;
    }
}

#[tokio::test]
async fn a_fifo_group_keeps_its_order_and_stops_where_one_fails() {
    const BODIES: [&str; 6] = ["0 quota", "1 quota", "2 quota", "3 quota", "4 quota", "5 quota"];
    for fails in [false, true] {
        let world = World::filled_with("direct", "orders.fifo", &BODIES).await;
        let before = world.sqs.call_count(SEND);
        world.sqs.set_faults(move |call| {
            let outcome =
                EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: true };
            let hit = fails && call.operation == SEND && call.of_operation == before + 2;
            if hit { Fault::Entries(vec![EntryFault::new(0, outcome)]) } else { Fault::None }
        });
        let run = world.dlq(&["redrive", "--yes", "--copy"]).await;
        assert_eq!(run.status, i32::from(fails), "{run:?}");
        for group in ["group-0", "group-1"] {
            let of_group = |messages: Vec<MessageView>| -> Vec<String> {
                let of_group = messages
                    .into_iter()
                    .filter(|message| message.group_id.as_deref() == Some(group));
                of_group
                    .map(|message| requeue::DeadLetter::read(&message.body).payload().to_owned())
                    .collect()
            };
            let (back, dead) = (of_group(world.back()), of_group(world.dead()));
            let whole: Vec<&str> =
                BODIES.into_iter().skip(usize::from(group == "group-1")).step_by(2).collect();
            assert_eq!(
                [back, dead].concat(),
                whole,
                "{group}: what went ahead is what was first: {run:?}"
            );
        }
        assert_eq!(world.dead().is_empty(), !fails, "{run:?}");
        world.assert_all_visible();
    }
}
