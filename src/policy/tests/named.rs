//! Delays that the failure or the handler names.

use super::*;
use crate::disposition::Strategy;

#[test]
fn a_named_delay_is_a_lower_bound_with_little_on_top() {
    let policy = policy(ClassPolicy { max_delay: secs(20), ..plain() });
    for (named, at_samples) in [
        (0, [0, 0, 0]),
        (1, [1, 2, 2]),
        (10, [10, 11, 11]),
        (100, [100, 105, 110]),
        (599, [599, 629, 659]),
        (600, [600, 630, 660]),
        (601, [601, 631, 661]),
        (899, [899, 929, 959]),
        (900, [900, 930, 960]),
        (901, [901, 931, 961]),
        (43_199, [43_199, 43_229, 43_259]),
        (43_200, [43_200, 43_230, 43_260]),
        (43_201, [43_200, 43_230, 43_260]),
        (u64::MAX, [43_200, 43_230, 43_260]),
    ] {
        let failure = Failure::temporary("away").retry_after(secs(named));
        for (sample, expected) in [0.0, 0.5, ALMOST_ONE].into_iter().zip(at_samples) {
            let decided = policy.decide(&after_retries(0), &failure, received(), sample);
            assert_eq!(delay_secs(decided), Some(expected), "{named} at {sample}");
        }
    }
}

#[test]
fn from_the_second_failure_of_a_class_on_a_named_delay_shortens_no_wait_of_the_curve() {
    // 10, 20, 40, … s
    let policy = policy(plain());
    let named = |secs_| Failure::temporary("away").retry_after(secs(secs_));
    let ruled = Failure::temporary("away").ruled_delay(secs(5));
    // retries, of this class, receives → wait, hidden_if_unsent
    for (failure, retries, class_retries, receives, wait, hidden_if_unsent) in [
        (named(5), 0, 0, 1, 5, 5),
        (named(5), 1, 1, 1, 20, 20),
        (named(5), 6, 6, 1, 640, 640),
        (named(700), 6, 6, 1, 700, 700),
        // The first failure of another class, and a message that cannot note its retries.
        (named(5), 6, 0, 1, 5, 640),
        (named(5), 0, 0, 4, 5, 80),
        // A rule is the user's own word.
        (ruled.clone(), 6, 6, 1, 5, 5),
        // The handler's word replaces that of a rule.
        (ruled.retry_after(secs(5)), 1, 1, 1, 20, 20),
    ] {
        let history = History { retries, class_retries, receives, ..after_retries(0) };
        let decided = policy.decide(&history, &failure, received(), 0.0);
        assert_eq!(decided, requeued(wait, hidden_if_unsent), "{failure} {history:?}");
    }
}

#[test]
fn a_short_delay_named_each_time_leaves_count_and_age_as_they_are_without_it() {
    for class in [FailureClass::RateLimit, FailureClass::Quota, FailureClass::Temporary] {
        for strategy in [Strategy::Copy, Strategy::Visibility] {
            for sample in [0.0, 0.5, ALMOST_ONE] {
                let follow = |failure: &Failure| ages(failure, strategy, sample);
                let plain = follow(&failure(class));
                let named = follow(&failure(class).retry_after(secs(1)));
                assert_eq!(plain.len(), named.len(), "{class} {strategy:?}");
                // Only the first wait is the service's.
                let (last, first) = (plain.len() - 1, plain[0].max(secs(1)));
                assert!(named[last] + first > plain[last], "{class} {strategy:?}: {named:?}");
            }
        }
    }
}

/// The ages at which a message that always fails is called again.
fn ages(failure: &Failure, strategy: Strategy, sample: f64) -> Vec<Duration> {
    let policy = RetryPolicy::default();
    let (mut state, mut receive_count, mut now) = (RetryState::default(), 1, received());
    let mut ages = Vec::new();
    loop {
        let usage = Usage {
            state: &state,
            first_received: received(),
            receive_count,
            counted: None,
            strategy,
            receives_are_retries: strategy == Strategy::Visibility,
            max_retries: u32::MAX,
        };
        let Some(wait) = decide(&policy, &usage, failure, now, sample).wait() else {
            return ages;
        };
        let retries = usage.retries();
        match strategy {
            Strategy::Copy => state.note_retry(retries, Some(failure.class()), wait.total()),
            Strategy::Visibility => receive_count += 1,
        }
        now += wait.total();
        ages.push(now.duration_since(received()).expect("time goes on"));
    }
}

#[test]
fn a_named_delay_that_does_not_fit_ends_the_retries_and_is_not_cut() {
    let policy = policy(ClassPolicy { total_timeout: secs(1_000), ..plain() });
    for (named_millis, age, wait) in [
        (99_000, 900, Some(100)),
        (99_999, 900, Some(100)),
        (100_000, 900, Some(100)),
        (100_001, 900, None),
        (101_000, 900, None),
        (0, 999, Some(0)),
        (0, 1_000, None),
    ] {
        let failure = Failure::temporary("away").retry_after(Duration::from_millis(named_millis));
        let decided =
            policy.decide(&after_retries(0), &failure, received() + secs(age), ALMOST_ONE);
        assert_eq!(delay_secs(decided), wait, "{named_millis} ms at {age} s");
        if wait.is_none() {
            assert_eq!(decided, Disposition::DeadLetter(DeadLetterReason::TooOld));
        }
    }
}

#[test]
fn a_policy_without_bounds_does_not_overflow() {
    let mut policy = policy(ClassPolicy {
        max_delay: Duration::MAX,
        total_timeout: Duration::MAX,
        jitter: Jitter::Proportional(0.0),
        ..plain()
    });
    policy.max_retry_after = Duration::MAX;
    policy.max_retries = u32::MAX;
    for failure in [
        Failure::temporary("away"),
        Failure::temporary("away").retry_after(secs(u64::MAX)),
        Failure::postpone(Duration::MAX),
    ] {
        for sample in [-1.0, 0.0, 1.0, 2.0, f64::NAN, f64::INFINITY] {
            let decided = policy.decide(&after_retries(u32::MAX - 1), &failure, received(), sample);
            let wait = decided.wait().expect("there is no budget to exceed");
            assert_eq!(wait.delay().as_secs(), 900);
        }
    }
}

#[test]
fn a_postponement_asks_no_budget() {
    let policy = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    let long_ago = received() + secs(1_000_000);
    for (delay, sample, total) in [
        (0, 0.0, 1),
        (1, 0.0, 1),
        (2, 0.0, 2),
        (899, 0.0, 899),
        (900, 0.0, 900),
        (901, 0.0, 901),
        (900, ALMOST_ONE, 960),
        (50_000, 0.0, 43_200),
    ] {
        let decided =
            policy.decide(&after_retries(99), &Failure::postpone(secs(delay)), long_ago, sample);
        let expected = Disposition::Defer {
            reason: Deferral::Postponed,
            wait: Wait::from(secs(total), long_ago),
        };
        assert_eq!(decided, expected, "{delay} at {sample}");
    }
}

#[test]
fn the_page_has_these_delays() {
    let page = include_str!("../../../docs/concepts/retry-policy.md");
    let policy = RetryPolicy::default();
    for (class, named, text) in [
        (FailureClass::Temporary, 5, "5"),
        (FailureClass::RateLimit, 120, "120"),
        (FailureClass::RateLimit, 3_600, "3,600"),
        (FailureClass::RateLimit, 43_200, "43,200"),
        (FailureClass::Quota, 43_200, "43,200"),
        (FailureClass::Quota, 86_400, "86,400"),
    ] {
        let failure = failure(class).retry_after(secs(named));
        let decide =
            |sample| policy.decide(&after_retries(0), &failure, received() + secs(1), sample);
        let message = match [0.0, ALMOST_ONE].map(|sample| delay_secs(decide(sample))) {
            [Some(least), Some(most)] => format!("waits for {least} to {most} s"),
            _ => "is dead-lettered as `too-old`".to_owned(),
        };
        let row = format!("| `{class}` | {text} s | {message} |");
        assert!(page.replace(',', "").contains(&row.replace(',', "")), "the page lacks: {row}");
    }
}
