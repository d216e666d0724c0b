//! The filters of `requeue dlq`: by the failure, its time, and the message attributes.

use crate::dlq_world::World;

#[tokio::test]
async fn messages_are_chosen_by_their_failure_its_time_and_their_attributes() {
    let world = World::filled("annotate").await;
    let coded = r#"{"retryCount":1,"originalMessageId":"m-1","retryTimestamp":"2026-01-01T00:00:00Z",
        "retryState":{"v":1,"deadLetter":{"class":"non-retryable","reason":"non-retryable",
        "detail":"status 422: no-seat, by rules[0]","failedAt":"2026-01-01T00:00:00Z"}}}"#;
    world.send_dead(coded).await;
    for (options, expected) in [
        (&["--detail", "quotaExceeded"][..], 3),
        (&["--detail", "quotaExceeded", "--detail", "account"], 4),
        (&["--detail", "quotaExceeded", "--class", "temporary"], 0),
        (&["--code", "no-seat"], 1),
        (&["--code", "no"], 0),
        (&["--since", "7h"], 5),
        (&["--since", "1s"], 0),
        (&["--since", "2026-01-01T00:00:00Z"], 6),
        (&["--since", "2026-01-01T00:00:01Z"], 5),
        (&["--attribute", "tenant=secret-tenant"], 6),
        (&["--attribute", "tenant=secret-tenant", "--attribute", "print=AP8H"], 6),
        (&["--attribute", "tenant=other"], 0),
        (&["--attribute", "none=secret-tenant"], 0),
    ] {
        let run = world.dlq(&[&["peek", "--json"], options].concat()).await;
        assert_eq!((run.status, run.stdout.lines().count()), (0, expected), "{options:?}: {run:?}");
        if expected == 0 {
            assert!(run.stderr.contains("note: no message "), "{options:?}: {run:?}");
        }
    }
    for (option, value, words) in [
        ("--since", "yesterday", "write a duration as in 45s, 10m or 1h30m, or a time as in"),
        ("--attribute", "tenant", "a message attribute must have a name and a value"),
    ] {
        let run = world.dlq(&["peek", option, value]).await;
        assert!(run.status == 2 && run.stderr.contains(words), "{run:?}");
    }
    for ((dead, back), note) in [((5, 1), ""), ((5, 1), "note: no message with the code no-seat ")]
    {
        let run = world.dlq(&["redrive", "--code", "no-seat", "--yes", "--to", "orders"]).await;
        assert_eq!((run.status, world.counts()), (0, (dead, back)), "{run:?}");
        assert!(run.stderr.contains(note) && run.stderr.is_empty() == note.is_empty(), "{run:?}");
    }
}
