//! What comes back together, and what does not.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

#[test]
fn a_deferral_waits_at_most_a_second_at_first_and_then_twice_as_long_each_time() {
    for (deferrals, at_samples) in [
        (0, [0, 1, 1]),
        (1, [2, 3, 4]),
        (2, [4, 6, 8]),
        (5, [32, 48, 64]),
        (6, [60, 90, 120]),
        (7, [60, 90, 120]),
        (63, [60, 90, 120]),
        (64, [60, 90, 120]),
        (u32::MAX, [60, 90, 120]),
    ] {
        for (sample, expected) in [0.0, 0.5, ALMOST_ONE].into_iter().zip(at_samples) {
            let decided =
                defer(&RetryPolicy::default(), Deferral::NoTimeLeft, deferrals, received(), sample);
            assert_eq!(delay_secs(decided), Some(expected), "{deferrals} at {sample}");
        }
    }
    assert_eq!(
        delay_secs(defer(&RetryPolicy::default(), Deferral::NoTimeLeft, 3, received(), f64::NAN)),
        Some(8)
    );
}

#[test]
fn ten_thousand_messages_that_fail_together_do_not_come_back_together() {
    const MESSAGES: usize = 10_000;
    let mut runner = TestRunner::deterministic();
    let mut sample = || (0.0..1.0_f64).new_tree(&mut runner).expect("a range").current();
    // jitter, base, the delay before, retries → the seconds that the range (from, to] holds
    for (jitter, base, previous, retries, from, to) in [
        // All of them for the first time.
        (Jitter::Full, 60, None, 0, 0, 60),
        (Jitter::Equal, 60, None, 0, 30, 60),
        (Jitter::Proportional(0.1), 60, None, 0, 54, 60),
        (Jitter::Decorrelated, 20, None, 0, 20, 60),
        // All of them at the cap of 60 s.
        (Jitter::Full, 10, Some(60), 9, 0, 60),
        (Jitter::Equal, 10, Some(60), 9, 30, 60),
        (Jitter::Proportional(0.1), 10, Some(60), 9, 54, 60),
        (Jitter::Proportional(0.5), 10, Some(60), 9, 30, 60),
        (Jitter::Decorrelated, 10, Some(60), 9, 10, 60),
    ] {
        let backoff = Backoff::Exponential { base: secs(base), multiplier: 2.0 };
        let policy = policy(ClassPolicy { backoff, jitter, max_delay: secs(60), ..plain() });
        let history = History { previous: previous.map(secs), ..after_retries(retries) };
        let mut seconds = [0; 61];
        for _ in 0..MESSAGES {
            let decided =
                policy.decide(&history, &Failure::temporary("away"), received(), sample());
            seconds[usize::from(decided.wait().expect("requeued").delay().as_secs())] += 1;
        }
        let mean = MESSAGES / (to - from);
        for (second, messages) in seconds.into_iter().enumerate() {
            let (fewest, most) = if second > from { (mean / 2, 2 * mean) } else { (0, 1) };
            assert!(
                (fewest..=most).contains(&messages),
                "{jitter:?} after {retries}: {messages} in second {second}"
            );
        }
    }
}

#[test]
fn what_was_told_the_same_retry_after_spreads_too() {
    let mut runner = TestRunner::deterministic();
    let failure = Failure::rate_limit("429").retry_after(secs(600));
    let mut seconds = [0; 61];
    for _ in 0..10_000 {
        let sample = (0.0..1.0_f64).new_tree(&mut runner).expect("a range").current();
        let decided =
            RetryPolicy::default().decide(&after_retries(0), &failure, received(), sample);
        let total = delay_secs(decided).expect("requeued");
        seconds[usize::try_from(total - 600).expect("few")] += 1;
    }
    assert!(seconds.iter().all(|&messages| messages <= 2 * 10_000 / 60), "{seconds:?}");
}
