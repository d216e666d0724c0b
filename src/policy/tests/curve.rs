//! How long a failed message waits: exact sequences.

use super::*;
use crate::disposition::Strategy;

/// The seconds after each number of retries, at the samples 0, ½ and just under 1.
fn sequence(jitter: Jitter, max_delay: u64, sample: f64) -> Vec<u64> {
    let class = ClassPolicy { jitter, max_delay: secs(max_delay), ..plain() };
    let mut policy = policy(class);
    policy.max_retries = u32::MAX;
    // As in a body: the whole seconds of one wait are the `previous` of the next.
    let mut previous = None;
    [0, 1, 5, 6, 7, 8, u32::MAX - 1]
        .into_iter()
        .map(|retries| {
            let history = History { previous, ..after_retries(retries) };
            let decided = policy.decide(&history, &Failure::temporary("away"), received(), sample);
            previous = decided.wait().map(|wait| wait.total());
            delay_secs(decided).expect("requeued")
        })
        .collect()
}

#[test]
fn every_jitter_gives_its_exact_sequence_up_to_the_cap_and_beyond_every_number() {
    let table: [(Jitter, f64, [u64; 7]); 15] = [
        (Jitter::None, 0.0, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::None, 0.5, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::None, ALMOST_ONE, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::Full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (Jitter::Full, 0.5, [5, 10, 160, 320, 500, 500, 500]),
        (Jitter::Full, ALMOST_ONE, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::Equal, 0.0, [5, 10, 160, 320, 500, 500, 500]),
        (Jitter::Equal, 0.5, [8, 15, 240, 480, 750, 750, 750]),
        (Jitter::Equal, ALMOST_ONE, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::Proportional(0.25), 0.0, [8, 15, 240, 480, 750, 750, 750]),
        (Jitter::Proportional(0.25), 0.5, [9, 18, 280, 560, 875, 875, 875]),
        (Jitter::Proportional(0.25), ALMOST_ONE, [10, 20, 320, 640, 1_000, 1_000, 1_000]),
        (Jitter::Decorrelated, 0.0, [10, 10, 10, 10, 10, 10, 10]),
        (Jitter::Decorrelated, 0.5, [20, 35, 58, 92, 143, 220, 335]),
        (Jitter::Decorrelated, ALMOST_ONE, [30, 90, 270, 810, 1_000, 1_000, 1_000]),
    ];
    for (jitter, sample, expected) in table {
        assert_eq!(sequence(jitter, 1_000, sample), expected, "{jitter:?} at {sample}");
    }
}

#[test]
fn a_curve_meets_the_longest_delay_of_sqs_on_both_sides() {
    for (cap, not_before) in [(899, None), (900, None), (901, Some(received() + secs(901)))] {
        let class = ClassPolicy { max_delay: secs(cap), ..plain() };
        let decided = policy(class).decide(&after_retries(40), &Failure::temporary("away"), received(), 0.5);
        let wait = decided.wait().expect("requeued");
        assert_eq!((wait.total(), wait.not_before()), (secs(cap), not_before));
        assert_eq!(u64::from(wait.delay().as_secs()), cap.min(900));
    }
}

#[test]
fn a_part_of_a_second_is_rounded_up() {
    let class =
        ClassPolicy { backoff: Backoff::Exponential { base: Duration::from_millis(100), multiplier: 2.0 }, ..plain() };
    let policy = policy(class);
    let after =
        |retries| delay_secs(policy.decide(&after_retries(retries), &Failure::temporary("away"), received(), 0.5));
    assert_eq!([after(0), after(3), after(4)], [Some(1), Some(1), Some(2)]);
}

#[test]
fn another_class_begins_its_own_curve() {
    let mut state = RetryState {
        retry_count: 5,
        class: Some(FailureClass::RateLimit),
        delay: Some(secs(300)),
        ..RetryState::default()
    };
    state.counts[FailureClass::RateLimit as usize] = 5;
    let progress = Progress { state: &state, first_received: received(), receive_count: 1, strategy: Strategy::Copy };
    for (jitter, wait) in [(Jitter::None, 10), (Jitter::Decorrelated, 30)] {
        let policy = policy(ClassPolicy { jitter, ..plain() });
        let decided = decide(&policy, &progress, &Failure::temporary("away"), received(), ALMOST_ONE);
        assert_eq!(delay_secs(decided), Some(wait), "{jitter:?}");
    }
}

#[test]
fn a_message_that_cannot_be_sent_again_counts_its_receives() {
    // retries, of this class, receives → wait, fallback
    for (retries, class_retries, receives, wait, fallback) in [
        (0, 0, 0, 10, 10),
        (0, 0, 1, 10, 10),
        (0, 0, 2, 10, 20),
        (0, 0, 4, 10, 80),
        (3, 3, 2, 80, 80),
        (3, 1, 1, 20, 80),
        (0, 0, u32::MAX, 10, 1_000),
    ] {
        let history = History { retries, class_retries, receives, ..after_retries(0) };
        let decided = policy(plain()).decide(&history, &Failure::temporary("away"), received(), 0.5);
        assert_eq!(decided, requeued(wait, fallback), "{history:?}");
    }
}

#[test]
fn the_standard_rate_limit_waits_60_then_180_then_300_seconds() {
    let mut policy = RetryPolicy::default();
    policy.rate_limit.jitter = Jitter::None;
    let waits = (0..5).map(|retries| {
        let decided = policy.decide(&after_retries(retries), &Failure::rate_limit("429"), received(), 0.5);
        delay_secs(decided).expect("requeued")
    });
    assert_eq!(waits.collect::<Vec<_>>(), [60, 180, 300, 300, 300]);
}
