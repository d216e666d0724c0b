//! Delays that the failure or the handler names.

use super::*;

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
            let decided = policy.decide(&after_retries(9), &failure, received(), sample);
            assert_eq!(delay_secs(decided), Some(expected), "{named} at {sample}");
        }
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
            why: Deferral::Postponed,
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
            _ => "is given up as `too-old`".to_owned(),
        };
        let row = format!("| `{class}` | {text} s | {message} |");
        assert!(page.replace(',', "").contains(&row.replace(',', "")), "the page lacks: {row}");
    }
}
