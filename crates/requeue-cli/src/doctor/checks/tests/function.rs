//! Findings about the function itself.

use super::*;

pub(super) const ROWS: &[Row] = &[
    ("settings", |_| {}, Some(Fine)),
    ("settings", |d| d.valid().variables = 0, Some(Fine)),
    (
        "settings",
        |d| d.settings = FunctionSettings::Invalid(vec!["REQUEUE_X is unknown".to_owned()]),
        Some(Danger),
    ),
    (
        "settings",
        |d| d.settings = FunctionSettings::Unread(refused::<()>().unwrap_err()),
        Some(Unknown),
    ),
    ("settings", |d| d.valid().policy_file = Some("policy.json".to_owned()), Some(Unknown)),
    ("mapping", |d| d.paths.clear(), Some(Danger)),
    ("mapping", |d| d.unlisted = refused::<()>().err(), Some(Unknown)),
    ("mapping", |d| d.function = None, Some(Fine)),
    (
        "recursive-loop",
        |d| d.function().recursive_loop = Ok(RecursiveLoop::Terminate),
        Some(Danger),
    ),
    ("recursive-loop", |d| d.function().recursive_loop = refused(), Some(Unknown)),
    (
        "recursive-loop",
        |d| d.valid().config.recursive_loop = RecursiveLoop::Terminate,
        Some(Warning),
    ),
    ("recursive-loop", |d| terminated(d, 10), Some(Fine)),
    ("recursive-loop", |d| terminated(d, 11), Some(Danger)),
    (
        "recursive-loop",
        |d| {
            terminated(d, 50);
            d.valid().config.strategy = Strategy::Visibility;
        },
        Some(Fine),
    ),
    (
        "recursive-loop",
        |d| {
            d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
            d.fifo();
        },
        Some(Fine),
    ),
    ("recursive-loop", |d| d.settings = FunctionSettings::Invalid(Vec::new()), Some(Unknown)),
    ("mode", |d| d.valid().config.mode = Mode::Report, Some(Warning)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(0)), Some(Danger)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(9)), Some(Warning)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(10)), Some(Fine)),
    ("reserved-concurrency", |d| unbounded(d, 4), Some(Warning)),
    ("reserved-concurrency", |d| unbounded(d, 5), Some(Fine)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = refused(), Some(Unknown)),
    ("logs", |d| d.function().logs.is_json = false, Some(Warning)),
    ("logs", |d| d.function().logs.level = Some("WARN".to_owned()), Some(Warning)),
    ("logs", |d| d.function().logs.level = Some("DEBUG".to_owned()), Some(Fine)),
];

fn terminated(d: &mut Deployment, retries: u32) {
    d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
    d.valid().config.recursive_loop = RecursiveLoop::Terminate;
    d.retries(retries);
}
