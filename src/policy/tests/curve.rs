//! How long a failed message waits: exact sequences.

use super::*;
use crate::disposition::Strategy;

/// The first, the second, …; those around 900 s and the cap; the last that a count can hold.
const RETRIES: [u32; 7] = [0, 1, 2, 3, 8, 9, u32::MAX - 1];

/// The seconds after each of these numbers of retries, at most 1,000.
fn sequence(backoff: &Backoff, jitter: Jitter, sample: f64) -> [u64; 7] {
    let class = ClassPolicy { backoff: backoff.clone(), jitter, ..plain() };
    let policy = RetryPolicy { max_retries: u32::MAX, ..policy(class) };
    // As in a body: the whole seconds of one wait are the `previous` of the next.
    let mut previous = None;
    RETRIES.map(|retries| {
        let history = History { previous, ..after_retries(retries) };
        let decided = policy.decide(&history, &Failure::temporary("away"), received(), sample);
        let wait = decided.wait().expect("requeued");
        assert_eq!(u64::from(wait.delay().as_secs()), wait.total().as_secs().min(900));
        assert_eq!(wait.not_before().is_some(), wait.total() > secs(900));
        previous = Some(wait.total());
        wait.total().as_secs()
    })
}

#[test]
fn every_backoff_with_every_jitter_gives_its_exact_sequence_up_to_the_cap_and_beyond_every_number()
{
    let exponential = Backoff::Exponential { base: secs(100), multiplier: 3.0 };
    let linear = Backoff::Linear { base: secs(100) };
    let fibonacci = Backoff::Fibonacci { base: secs(100) };
    let constant = Backoff::Constant { base: secs(900) };
    let list = Backoff::List { first: secs(899), then: vec![secs(900), secs(901), secs(1_100)] };
    let [none, full, equal] = [Jitter::None, Jitter::Full, Jitter::Equal];
    let [proportional, decorrelated] = [Jitter::Proportional(0.25), Jitter::Decorrelated];
    let table: [(&Backoff, Jitter, f64, [u64; 7]); 75] = [
        (&exponential, none, 0.0, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, none, 0.5, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, none, ALMOST_ONE, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (&exponential, full, 0.5, [50, 150, 450, 500, 500, 500, 500]),
        (&exponential, full, ALMOST_ONE, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, equal, 0.0, [50, 150, 450, 500, 500, 500, 500]),
        (&exponential, equal, 0.5, [75, 225, 675, 750, 750, 750, 750]),
        (&exponential, equal, ALMOST_ONE, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, proportional, 0.0, [75, 225, 675, 750, 750, 750, 750]),
        (&exponential, proportional, 0.5, [88, 263, 788, 875, 875, 875, 875]),
        (&exponential, proportional, ALMOST_ONE, [100, 300, 900, 1_000, 1_000, 1_000, 1_000]),
        (&exponential, decorrelated, 0.0, [100, 100, 100, 100, 100, 100, 100]),
        (&exponential, decorrelated, 0.5, [200, 350, 550, 550, 550, 550, 550]),
        (&exponential, decorrelated, ALMOST_ONE, [300, 900, 1_000, 1_000, 1_000, 1_000, 1_000]),
        (&linear, none, 0.0, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, none, 0.5, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, none, ALMOST_ONE, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (&linear, full, 0.5, [50, 100, 150, 200, 450, 500, 500]),
        (&linear, full, ALMOST_ONE, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, equal, 0.0, [50, 100, 150, 200, 450, 500, 500]),
        (&linear, equal, 0.5, [75, 150, 225, 300, 675, 750, 750]),
        (&linear, equal, ALMOST_ONE, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, proportional, 0.0, [75, 150, 225, 300, 675, 750, 750]),
        (&linear, proportional, 0.5, [88, 175, 263, 350, 788, 875, 875]),
        (&linear, proportional, ALMOST_ONE, [100, 200, 300, 400, 900, 1_000, 1_000]),
        (&linear, decorrelated, 0.0, [100, 100, 100, 100, 100, 100, 100]),
        (&linear, decorrelated, 0.5, [200, 350, 550, 550, 550, 550, 550]),
        (&linear, decorrelated, ALMOST_ONE, [300, 900, 1_000, 1_000, 1_000, 1_000, 1_000]),
        (&fibonacci, none, 0.0, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, none, 0.5, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, none, ALMOST_ONE, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (&fibonacci, full, 0.5, [50, 50, 100, 150, 500, 500, 500]),
        (&fibonacci, full, ALMOST_ONE, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, equal, 0.0, [50, 50, 100, 150, 500, 500, 500]),
        (&fibonacci, equal, 0.5, [75, 75, 150, 225, 750, 750, 750]),
        (&fibonacci, equal, ALMOST_ONE, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, proportional, 0.0, [75, 75, 150, 225, 750, 750, 750]),
        (&fibonacci, proportional, 0.5, [88, 88, 175, 263, 875, 875, 875]),
        (&fibonacci, proportional, ALMOST_ONE, [100, 100, 200, 300, 1_000, 1_000, 1_000]),
        (&fibonacci, decorrelated, 0.0, [100, 100, 100, 100, 100, 100, 100]),
        (&fibonacci, decorrelated, 0.5, [200, 350, 550, 550, 550, 550, 550]),
        (&fibonacci, decorrelated, ALMOST_ONE, [300, 900, 1_000, 1_000, 1_000, 1_000, 1_000]),
        (&constant, none, 0.0, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, none, 0.5, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, none, ALMOST_ONE, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (&constant, full, 0.5, [450, 450, 450, 450, 450, 450, 450]),
        (&constant, full, ALMOST_ONE, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, equal, 0.0, [450, 450, 450, 450, 450, 450, 450]),
        (&constant, equal, 0.5, [675, 675, 675, 675, 675, 675, 675]),
        (&constant, equal, ALMOST_ONE, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, proportional, 0.0, [675, 675, 675, 675, 675, 675, 675]),
        (&constant, proportional, 0.5, [788, 788, 788, 788, 788, 788, 788]),
        (&constant, proportional, ALMOST_ONE, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, decorrelated, 0.0, [900, 900, 900, 900, 900, 900, 900]),
        (&constant, decorrelated, 0.5, [950, 950, 950, 950, 950, 950, 950]),
        (&constant, decorrelated, ALMOST_ONE, [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]),
        (&list, none, 0.0, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, none, 0.5, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, none, ALMOST_ONE, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, full, 0.0, [0, 0, 0, 0, 0, 0, 0]),
        (&list, full, 0.5, [450, 450, 451, 500, 500, 500, 500]),
        (&list, full, ALMOST_ONE, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, equal, 0.0, [450, 450, 451, 500, 500, 500, 500]),
        (&list, equal, 0.5, [675, 675, 676, 750, 750, 750, 750]),
        (&list, equal, ALMOST_ONE, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, proportional, 0.0, [675, 675, 676, 750, 750, 750, 750]),
        (&list, proportional, 0.5, [787, 788, 789, 875, 875, 875, 875]),
        (&list, proportional, ALMOST_ONE, [899, 900, 901, 1_000, 1_000, 1_000, 1_000]),
        (&list, decorrelated, 0.0, [899, 899, 899, 899, 899, 899, 899]),
        (&list, decorrelated, 0.5, [950, 950, 950, 950, 950, 950, 950]),
        (&list, decorrelated, ALMOST_ONE, [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]),
    ];
    for (backoff, jitter, sample, expected) in table {
        assert_eq!(
            sequence(backoff, jitter, sample),
            expected,
            "{backoff:?} {jitter:?} at {sample}"
        );
    }
}

#[test]
fn a_curve_meets_the_longest_delay_of_sqs_on_both_sides() {
    for (cap, not_before) in [(899, None), (900, None), (901, Some(received() + secs(901)))] {
        let class = ClassPolicy { max_delay: secs(cap), ..plain() };
        let decided =
            policy(class).decide(&after_retries(40), &Failure::temporary("away"), received(), 0.5);
        let wait = decided.wait().expect("requeued");
        assert_eq!((wait.total(), wait.not_before()), (secs(cap), not_before));
        assert_eq!(u64::from(wait.delay().as_secs()), cap.min(900));
    }
}

#[test]
fn a_part_of_a_second_is_rounded_up() {
    let class = ClassPolicy {
        backoff: Backoff::Exponential { base: Duration::from_millis(100), multiplier: 2.0 },
        ..plain()
    };
    let policy = policy(class);
    let after = |retries| {
        delay_secs(policy.decide(
            &after_retries(retries),
            &Failure::temporary("away"),
            received(),
            0.5,
        ))
    };
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
    let usage = Usage {
        state: &state,
        first_received: received(),
        receive_count: 1,
        counted: None,
        strategy: Strategy::Copy,
        receives_are_retries: false,
        max_retries: u32::MAX,
    };
    for (jitter, wait) in [(Jitter::None, 10), (Jitter::Decorrelated, 30)] {
        let policy = policy(ClassPolicy { jitter, ..plain() });
        let decided = decide(&policy, &usage, &Failure::temporary("away"), received(), ALMOST_ONE);
        assert_eq!(delay_secs(decided), Some(wait), "{jitter:?}");
    }
}

#[test]
fn a_message_that_cannot_be_sent_again_counts_its_receives() {
    // retries, of this class, receives → wait, hidden_if_unsent
    for (retries, class_retries, receives, wait, hidden_if_unsent) in [
        (0, 0, 0, 10, 10),
        (0, 0, 1, 10, 10),
        (0, 0, 2, 10, 20),
        (0, 0, 4, 10, 80),
        (3, 3, 2, 80, 80),
        (3, 1, 1, 20, 80),
        (0, 0, u32::MAX, 10, 1_000),
    ] {
        let history = History { retries, class_retries, receives, ..after_retries(0) };
        let decided =
            policy(plain()).decide(&history, &Failure::temporary("away"), received(), 0.5);
        assert_eq!(decided, requeued(wait, hidden_if_unsent), "{history:?}");
    }
}

#[test]
fn the_standard_rate_limit_waits_60_then_180_then_300_seconds() {
    let mut policy = RetryPolicy::default();
    policy.rate_limit.jitter = Jitter::None;
    let waits = (0..5).map(|retries| {
        let decided =
            policy.decide(&after_retries(retries), &Failure::rate_limit("429"), received(), 0.5);
        delay_secs(decided).expect("requeued")
    });
    assert_eq!(waits.collect::<Vec<_>>(), [60, 180, 300, 300, 300]);
}
