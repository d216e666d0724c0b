//! Findings about dead-letter queues.

use super::*;

fn passes_on(d: &mut Deployment, target: &str) {
    let redrive = RedriveSettings { target: arn(target).to_string(), max_receive_count: 5 };
    d.dead_letters().redrive = Some(redrive);
}

fn consumed(d: &mut Deployment, consumers: Known<Vec<Mapping>>) {
    d.path().dead_letters.as_mut().unwrap().consumers = consumers;
}

pub(super) const ROWS: &[Row] = &[
    ("redrive-policy", |d| d.queue().redrive = None, Some(Danger)),
    // It may be a dead-letter queue.
    (
        "redrive-policy",
        |d| {
            d.queue().redrive = None;
            d.unlisted = refused::<()>().err();
        },
        Some(Unknown),
    ),
    (
        "redrive-policy",
        |d| {
            d.queue().redrive = None;
            d.direct(14 * DAY);
        },
        Some(Warning),
    ),
    (
        "dead-letter-queue",
        |d| d.path().dead_letters.as_mut().unwrap().queue = Ok(None),
        Some(Danger),
    ),
    (
        "dead-letter-queue",
        |d| d.path().dead_letters.as_mut().unwrap().queue = refused(),
        Some(Unknown),
    ),
    ("dead-letter-queue", |d| d.dead_letters().redrive_allow = Some(Vec::new()), Some(Danger)),
    (
        "dead-letter-queue",
        |d| d.dead_letters().redrive_allow = Some(vec![arn("order").to_string()]),
        Some(Danger),
    ),
    ("dead-letter-queue", |d| d.dead_letters().redrive_allow = None, Some(Fine)),
    ("dead-letter-queue", |d| d.dead_letters().retention = secs(7 * DAY - 1), Some(Danger)),
    ("dead-letter-queue", |d| d.dead_letters().retention = secs(7 * DAY), Some(Warning)),
    ("dead-letter-queue", |d| d.dead_letters().retention = secs(14 * DAY - 1), Some(Warning)),
    (
        "dead-letter-queue",
        |d| {
            d.fifo();
            d.dead_letters().retention = secs(7 * DAY - 1);
        },
        Some(Warning),
    ),
    ("dead-letter-queue", |d| passes_on(d, "orders"), Some(Danger)),
    ("dead-letter-queue", |d| passes_on(d, "older"), Some(Warning)),
    (
        "dead-letter-consumers",
        |d| consumed(d, Ok(vec![consumer("5a", "orders:live")])),
        Some(Danger),
    ),
    ("dead-letter-consumers", |d| consumed(d, Ok(vec![consumer("5a", "audit")])), Some(Warning)),
    (
        "dead-letter-consumers",
        |d| {
            let other = Mapping { state: "Disabled".to_owned(), ..consumer("5a", "orders") };
            consumed(d, Ok(vec![other]));
        },
        Some(Fine),
    ),
    ("dead-letter-consumers", |d| consumed(d, refused()), Some(Unknown)),
    ("max-receive-count", |d| d.receives(10), Some(Fine)),
    ("max-receive-count", |d| d.receives(11), Some(Warning)),
    (
        "max-receive-count",
        |d| {
            d.valid().config.dead_letter = Some(DeadLetterMode::Redrive);
            d.receives(11);
        },
        Some(Fine),
    ),
    ("dead-letter-reasons", |_| {}, Some(Fine)),
    ("dead-letter-reasons", |d| d.direct(14 * DAY), Some(Fine)),
    ("dead-letter-reasons", |d| d.valid().config.dead_letter = None, Some(Warning)),
    (
        "dead-letter-reasons",
        |d| d.valid().config.dead_letter = Some(DeadLetterMode::Redrive),
        Some(Fine),
    ),
    ("dead-letter-reasons", |d| d.fifo(), Some(Warning)),
    (
        "dead-letter-reasons",
        |d| {
            d.valid().config.dead_letter = None;
            d.valid().config.mode = Mode::Report;
        },
        None,
    ),
    ("direct-queue", |_| {}, None),
    ("direct-queue", |d| d.direct(14 * DAY), Some(Fine)),
    ("direct-queue", |d| d.direct(14 * DAY - 1), Some(Warning)),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().queue = Ok(None);
        },
        Some(Danger),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().queue = refused();
        },
        Some(Unknown),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().arn = arn("orders");
        },
        Some(Danger),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().arn = arn("elsewhere");
        },
        Some(Warning),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.fifo();
        },
        Some(Warning),
    ),
];

#[test]
fn the_retention_of_a_dead_letter_queue_is_worded_by_its_type() {
    let [standard, fifo] = [false, true].map(|is_fifo| {
        let mut deployment = good();
        if is_fifo {
            deployment.fifo();
        }
        deployment.dead_letters().retention = secs(8 * DAY);
        let finding = found(&deployment, "dead-letter-queue").unwrap();
        assert_eq!(finding.diagnosis.level, Warning);
        format!("{}: {}", finding.why, finding.diagnosis.found)
    });
    let [anew, kept] =
        ["from the time when SQS moves it there", "from the time of its first enqueue"];
    assert!(standard.contains(kept) && !standard.contains(anew), "{standard}");
    assert!(fifo.contains(anew) && !fifo.contains(kept) && !fifo.contains("standard"), "{fifo}");
}
