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
        (&["--code", "422"], 1),
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
        let status = i32::from(expected == 0);
        assert_eq!(
            (run.status, run.stdout.lines().count()),
            (status, expected),
            "{options:?}: {run:?}"
        );
        if expected == 0 {
            assert!(run.stderr.contains("note: no message "), "{options:?}: {run:?}");
        }
    }
    for (option, value, words) in [
        ("--since", "yesterday", "write a duration as in 45s, 10m or 1h30m, or a time as in"),
        ("--since", "1796020000", "it is a duration of over a year; write a time as in"),
        ("--attribute", "tenant", "a message attribute must have a name and a value"),
    ] {
        let run = world.dlq(&["peek", option, value]).await;
        assert!(run.status == 2 && run.stderr.contains(words), "{run:?}");
    }
    for (status, note) in [(0, "visible again"), (1, "note: no message with the code no-seat ")] {
        let run = world.dlq(&["redrive", "--code", "no-seat", "--yes", "--to", "orders"]).await;
        assert_eq!((run.status, world.counts()), (status, (5, 1)), "{run:?}");
        assert!(run.stderr.contains(note), "{run:?}");
    }
    // One rule for all commands.
    let file = std::env::temp_dir().join(format!("requeue-none-{}", std::process::id()));
    let file = file.to_str().unwrap();
    for command in [
        &["peek"][..],
        &["export", file, "--force"],
        &["discard", file, "--yes"],
        &["discard", file, "--dry-run"],
        &["redrive", "--dry-run", "--to", "orders"],
    ] {
        let _ = std::fs::remove_file(file);
        let none = world.dlq(&[command, &["--code", "no-seat"]].concat()).await;
        assert_eq!(none.status, 1, "{none:?}");
        assert!(none.stderr.contains("note: no message with the code no-seat "), "{none:?}");
    }
    let _ = std::fs::remove_file(file);
}
