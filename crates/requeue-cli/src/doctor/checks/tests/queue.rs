//! Findings about the source queue.

use super::*;

fn worker(d: &mut Deployment, visibility: u64) {
    d.function = None;
    d.path().mapping = None;
    d.queue().visibility = secs(visibility);
}

fn in_place(d: &mut Deployment, receives: u32) {
    d.valid().config.strategy = Strategy::Visibility;
    d.retries(8);
    d.receives(receives);
}

pub(super) const ROWS: &[Row] = &[
    ("queue", |d| d.path().source.queue = Ok(None), Some(Danger)),
    ("queue", |d| d.path().source.queue = refused(), Some(Unknown)),
    ("queue-delay", |d| d.queue().delay = secs(1), Some(Warning)),
    ("queue-delay", |d| d.path().source.queue = refused(), None),
    ("visibility-timeout", |d| d.path().source.queue = refused(), None),
    ("visibility-timeout", |d| d.queue().visibility = secs(59), Some(Danger)),
    ("visibility-timeout", |d| d.queue().visibility = secs(60), Some(Warning)),
    ("visibility-timeout", |d| d.queue().visibility = secs(379), Some(Warning)),
    ("visibility-timeout", |d| d.queue().visibility = secs(380), Some(Fine)),
    ("visibility-timeout", |d| worker(d, 0), Some(Danger)),
    ("visibility-timeout", |d| worker(d, 9), Some(Warning)),
    ("visibility-timeout", |d| worker(d, 10), Some(Fine)),
    ("retention", |d| d.queue().retention = secs(2 * DAY + 900), Some(Warning)),
    ("retention", |d| d.queue().retention = secs(2 * DAY + 901), Some(Fine)),
    ("retention", |d| d.queue().retention = secs(900), Some(Danger)),
    ("retention", |d| d.queue().retention = secs(901), Some(Warning)),
    ("retention", |d| budget(d, 14 * DAY), Some(Warning)),
    ("retention", |d| d.valid().policy_elsewhere = Some("policy.json".to_owned()), Some(Unknown)),
    (
        "retention",
        |d| {
            d.fifo();
            d.queue().retention = secs(2 * DAY + 900);
        },
        Some(Danger),
    ),
    ("message-size", |d| d.queue().maximum_message_size = 1_048_575, Some(Warning)),
    (
        "message-size",
        |d| {
            d.fifo();
            d.queue().maximum_message_size = 1_048_575;
        },
        Some(Fine),
    ),
    ("message-size", |_| {}, Some(Fine)),
    ("max-receive-count", |d| d.receives(1), Some(Danger)),
    ("max-receive-count", |d| d.receives(2), Some(Warning)),
    ("max-receive-count", |d| d.receives(4), Some(Warning)),
    ("max-receive-count", |d| d.receives(5), Some(Fine)),
    ("max-receive-count", |d| d.queue().redrive = None, None),
    ("max-receive-count", |d| in_place(d, 8), Some(Warning)),
    ("max-receive-count", |d| in_place(d, 9), Some(Fine)),
    ("max-receive-count", |d| fifo(d, 1, 8), Some(Warning)),
    ("max-receive-count", |d| fifo(d, 1, 9), Some(Fine)),
    ("max-receive-count", |d| fifo(d, 2, 15), Some(Warning)),
    ("max-receive-count", |d| fifo(d, 2, 16), Some(Fine)),
];
