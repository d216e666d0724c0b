//! The decision, told as tables: exact sequences, and every budget at its limit and on both sides of it.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Wait};
use crate::failure::{Failure, FailureClass};
use crate::state::RetryState;

/// What a random generator draws at most.
const ALMOST_ONE: f64 = 1.0_f64.next_down();

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// When every message of these tests was first received.
fn received() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000)
}

fn failure(class: FailureClass) -> Failure {
    match class {
        FailureClass::RateLimit => Failure::rate_limit("too many"),
        FailureClass::Quota => Failure::quota("used up"),
        FailureClass::Temporary => Failure::temporary("away"),
        FailureClass::NonRetryable => Failure::non_retryable("wrong"),
    }
}

/// 10 s doubled up to 1,000 s, without jitter, retries and time in plenty.
fn plain() -> ClassPolicy {
    ClassPolicy {
        backoff: Backoff::Exponential {
            base: secs(10),
            multiplier: 2.0,
        },
        max_delay: secs(1_000),
        jitter: Jitter::None,
        max_retries: None,
        total_timeout: secs(100_000),
    }
}

fn policy(temporary: ClassPolicy) -> RetryPolicy {
    RetryPolicy {
        temporary,
        ..RetryPolicy::default()
    }
}

fn after_retries(retries: u32) -> History {
    History {
        retries,
        class_retries: retries,
        ..History::starting(received())
    }
}

fn delay_secs(disposition: Disposition) -> Option<u64> {
    disposition.wait().map(|wait| wait.total().as_secs())
}

fn requeued(wait: u64, fallback: u64) -> Disposition {
    Disposition::Requeue {
        wait: Wait::from(secs(wait), received()),
        fallback: secs(fallback),
    }
}

mod curve {
    use super::*;

    /// The seconds after each number of retries, at the samples 0, ½ and just under 1.
    fn sequence(jitter: Jitter, max_delay: u64, sample: f64) -> Vec<u64> {
        let class = ClassPolicy {
            jitter,
            max_delay: secs(max_delay),
            ..plain()
        };
        let mut policy = policy(class);
        policy.max_retries = u32::MAX;
        // As in a body: the whole seconds of one wait are the `previous` of the next.
        let mut previous = None;
        [0, 1, 5, 6, 7, 8, u32::MAX - 1]
            .into_iter()
            .map(|retries| {
                let history = History {
                    previous,
                    ..after_retries(retries)
                };
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
            (
                Jitter::Proportional(0.25),
                ALMOST_ONE,
                [10, 20, 320, 640, 1_000, 1_000, 1_000],
            ),
            (Jitter::Decorrelated, 0.0, [10, 10, 10, 10, 10, 10, 10]),
            (Jitter::Decorrelated, 0.5, [20, 35, 58, 92, 143, 220, 335]),
            (
                Jitter::Decorrelated,
                ALMOST_ONE,
                [30, 90, 270, 810, 1_000, 1_000, 1_000],
            ),
        ];
        for (jitter, sample, expected) in table {
            assert_eq!(sequence(jitter, 1_000, sample), expected, "{jitter:?} at {sample}");
        }
    }

    #[test]
    fn a_curve_meets_the_longest_delay_of_sqs_on_both_sides() {
        for (cap, not_before) in [(899, None), (900, None), (901, Some(received() + secs(901)))] {
            let class = ClassPolicy {
                max_delay: secs(cap),
                ..plain()
            };
            let decided = policy(class).decide(&after_retries(40), &Failure::temporary("away"), received(), 0.5);
            let wait = decided.wait().expect("requeued");
            assert_eq!((wait.total(), wait.not_before()), (secs(cap), not_before));
            assert_eq!(u64::from(wait.delay().as_secs()), cap.min(900));
        }
    }

    #[test]
    fn a_part_of_a_second_is_rounded_up() {
        let class = ClassPolicy {
            backoff: Backoff::Exponential {
                base: Duration::from_millis(100),
                multiplier: 2.0,
            },
            ..plain()
        };
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
        let progress = Progress {
            state: &state,
            first_received: received(),
            receive_count: 1,
        };
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
            let history = History {
                retries,
                class_retries,
                receives,
                ..after_retries(0)
            };
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
}

mod budgets {
    use super::*;

    const EXHAUSTED: Disposition = Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
    const TOO_OLD: Disposition = Disposition::DeadLetter(DeadLetterReason::TooOld);

    #[test]
    fn retries_end_at_the_smaller_of_both_maxima() {
        // overall maximum, maximum of the class, retries, of this class → goes on
        for (max, class_max, retries, class_retries, goes_on) in [
            (7, None, 6, 6, true),
            (7, None, 7, 7, false),
            (7, None, 8, 8, false),
            (7, None, 7, 0, false),
            (7, None, u32::MAX, 0, false),
            (7, Some(3), 5, 2, true),
            (7, Some(3), 5, 3, false),
            (7, Some(3), 5, 4, false),
            (7, Some(9), 7, 1, false),
            (7, Some(0), 0, 0, false),
            (0, None, 0, 0, false),
            (u32::MAX, None, u32::MAX - 1, 0, true),
            (u32::MAX, None, u32::MAX, 0, false),
        ] {
            let class = ClassPolicy {
                max_retries: class_max,
                ..plain()
            };
            let policy = RetryPolicy {
                max_retries: max,
                ..policy(class)
            };
            let history = History {
                retries,
                class_retries,
                ..after_retries(0)
            };
            // A named delay saves nothing.
            for failure in [
                Failure::temporary("away"),
                Failure::temporary("away").retry_after(secs(1)),
            ] {
                let decided = policy.decide(&history, &failure, received(), 0.5);
                assert_eq!(decided != EXHAUSTED, goes_on, "{max} {class_max:?} {history:?}");
            }
        }
    }

    #[test]
    fn the_maximum_of_one_class_does_not_bind_another() {
        let mut policy = policy(plain());
        policy.rate_limit.max_retries = Some(0);
        let decide = |failure| policy.decide(&after_retries(0), &failure, received(), 0.5);
        assert_eq!(decide(Failure::rate_limit("429")), EXHAUSTED);
        assert_eq!(decide(Failure::temporary("away")), requeued(10, 10));
    }

    #[test]
    fn the_last_wait_is_cut_to_what_is_left_and_then_nothing_is() {
        let class = ClassPolicy {
            total_timeout: secs(1_000),
            ..plain()
        };
        let policy = policy(class);
        let at = |now| policy.decide(&after_retries(0), &Failure::temporary("away"), now, 0.5);
        for (age_millis, wait) in [
            (0, Some(10)),
            (989_000, Some(10)),
            (990_000, Some(10)),
            (991_000, Some(9)),
            (998_999, Some(1)),
            (999_000, Some(1)),
            (999_001, None),
            (1_000_000, None),
            (1_001_000, None),
        ] {
            let decided = at(received() + Duration::from_millis(age_millis));
            assert_eq!(delay_secs(decided), wait, "{age_millis} ms");
            assert_eq!(decided == TOO_OLD, wait.is_none(), "{age_millis} ms");
        }
        // A clock that runs behind SQS's.
        assert_eq!(delay_secs(at(received() - secs(3_600))), Some(10));
        assert_eq!(delay_secs(at(SystemTime::UNIX_EPOCH)), Some(10));
    }

    #[test]
    fn the_budgets_of_classes_differ() {
        let at_13_hours = received() + secs(13 * 3_600);
        let decide = |failure| RetryPolicy::default().decide(&after_retries(0), &failure, at_13_hours, 0.5);
        assert_eq!(decide(Failure::temporary("away")), TOO_OLD);
        assert_eq!(decide(Failure::rate_limit("429")), TOO_OLD);
        assert_eq!(delay_secs(decide(Failure::quota("used up"))), Some(90));
    }

    #[test]
    fn a_non_retryable_failure_ends_at_once_whatever_it_names() {
        let failure = Failure::non_retryable("wrong").retry_after(secs(5));
        let decided = RetryPolicy::default().decide(&after_retries(0), &failure, received(), 0.5);
        assert_eq!(decided, Disposition::DeadLetter(DeadLetterReason::NonRetryable));
    }

    #[test]
    fn given_up_is_what_had_no_budget_left_on_an_earlier_receive() {
        use FailureClass::{NonRetryable, Temporary};
        let class = ClassPolicy {
            max_retries: Some(3),
            total_timeout: secs(1_000),
            ..plain()
        };
        let policy = RetryPolicy {
            max_retries: 7,
            ..policy(class)
        };
        // class of the last failure, retries, of this class, receives, age when this copy was first received → given up
        for (class, retries, class_retries, receive_count, age, given_up) in [
            (Some(Temporary), 6, 2, 2, 0, false),
            (Some(Temporary), 7, 2, 2, 0, true),
            (Some(Temporary), 8, 2, 2, 0, true),
            (Some(Temporary), 6, 3, 2, 0, true),
            (Some(Temporary), 6, 4, 2, 0, true),
            (Some(Temporary), 1, 1, 2, 998, false),
            (Some(Temporary), 1, 1, 2, 999, false),
            (Some(Temporary), 1, 1, 2, 1_000, true),
            (Some(Temporary), 1, 1, 2, 1_001, true),
            // The handler is called on the first receive, however little is left.
            (Some(Temporary), 7, 3, 0, 1_001, false),
            (Some(Temporary), 7, 3, 1, 1_001, false),
            // Nothing failed yet, or nothing that can be tried again.
            (None, 7, 0, 2, 1_001, false),
            (Some(NonRetryable), 7, 0, 2, 1_001, false),
        ] {
            let mut state = RetryState {
                retry_count: retries,
                class,
                ..RetryState::default()
            };
            state.counts[Temporary as usize] = class_retries;
            let progress = Progress {
                state: &state,
                first_received: received(),
                receive_count,
            };
            let answer = is_given_up(&policy, &progress, received() + secs(age));
            assert_eq!(answer, given_up, "{progress:?} at {age}");
            // It is what the decision said on that earlier receive.
            if given_up {
                let decided = decide(
                    &policy,
                    &progress,
                    &Failure::temporary("away"),
                    received() + secs(age),
                    0.5,
                );
                assert!(matches!(decided, Disposition::DeadLetter(_)), "{decided:?}");
            }
        }
    }
}

mod named {
    use super::*;

    #[test]
    fn a_named_delay_is_a_lower_bound_with_little_on_top() {
        let policy = policy(ClassPolicy {
            max_delay: secs(20),
            ..plain()
        });
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
        let policy = policy(ClassPolicy {
            total_timeout: secs(1_000),
            ..plain()
        });
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
            let decided = policy.decide(&after_retries(0), &failure, received() + secs(age), ALMOST_ONE);
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
        let policy = RetryPolicy {
            max_retries: 0,
            ..RetryPolicy::default()
        };
        let long_ago = received() + secs(1_000_000);
        for (delay, sample, total) in [
            (0, 0.5, 0),
            (899, 0.0, 899),
            (900, 0.0, 900),
            (901, 0.0, 901),
            (900, ALMOST_ONE, 960),
            (50_000, 0.0, 43_200),
        ] {
            let decided = policy.decide(&after_retries(99), &Failure::postpone(secs(delay)), long_ago, sample);
            let expected = Disposition::Defer {
                why: Deferral::Postponed,
                wait: Wait::from(secs(total), long_ago),
            };
            assert_eq!(decided, expected, "{delay} at {sample}");
        }
    }
}

#[test]
fn a_deferral_waits_at_most_a_second_at_first_and_then_twice_as_long_each_time() {
    for (deferrals, at_samples) in [
        (0, [0, 1, 1]),
        (1, [2, 3, 4]),
        (2, [4, 6, 8]),
        (9, [512, 768, 1_024]),
        (10, [900, 1_350, 1_800]),
        (11, [900, 1_350, 1_800]),
        (63, [900, 1_350, 1_800]),
        (64, [900, 1_350, 1_800]),
        (u32::MAX, [900, 1_350, 1_800]),
    ] {
        for (sample, expected) in [0.0, 0.5, ALMOST_ONE].into_iter().zip(at_samples) {
            let decided = defer(Deferral::NoTimeLeft, deferrals, received(), sample);
            assert_eq!(delay_secs(decided), Some(expected), "{deferrals} at {sample}");
        }
    }
    assert_eq!(
        delay_secs(defer(Deferral::NoTimeLeft, 3, received(), f64::NAN)),
        Some(8)
    );
}

#[test]
fn ten_thousand_messages_that_fail_together_do_not_come_back_together() {
    const MESSAGES: usize = 10_000;
    let mut runner = TestRunner::deterministic();
    let mut sample = || (0.0..1.0_f64).new_tree(&mut runner).expect("a range").current();
    // All of them at the cap of 60 s, so that the range is (from, 60].
    for (jitter, from) in [
        (Jitter::Full, 0),
        (Jitter::Equal, 30),
        (Jitter::Proportional(0.1), 54),
        (Jitter::Proportional(0.5), 30),
        (Jitter::Decorrelated, 10),
    ] {
        let class = ClassPolicy {
            jitter,
            max_delay: secs(60),
            ..plain()
        };
        let policy = policy(class);
        let history = History {
            previous: Some(secs(60)),
            ..after_retries(9)
        };
        let mut seconds = [0; 61];
        for _ in 0..MESSAGES {
            let decided = policy.decide(&history, &Failure::temporary("away"), received(), sample());
            seconds[usize::from(decided.wait().expect("requeued").delay().as_secs())] += 1;
        }
        let mean = MESSAGES / (60 - from);
        for (second, messages) in seconds.into_iter().enumerate() {
            let (fewest, most) = if second > from { (mean / 2, 2 * mean) } else { (0, 1) };
            assert!(
                (fewest..=most).contains(&messages),
                "{jitter:?}: {messages} in second {second}"
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
        let decided = RetryPolicy::default().decide(&after_retries(0), &failure, received(), sample);
        let total = decided.wait().expect("requeued").total() - secs(600);
        seconds[usize::try_from(total.as_secs()).expect("few")] += 1;
    }
    assert!(
        seconds.iter().all(|&messages| messages <= 2 * 10_000 / 60),
        "{seconds:?}"
    );
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::Full),
        Just(Jitter::Equal),
        any::<f64>().prop_map(Jitter::Proportional),
        (0.0..=1.0).prop_map(Jitter::Proportional),
        Just(Jitter::Decorrelated),
        Just(Jitter::None),
    ]
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0_u64..5_000_000).prop_map(Duration::from_millis),
        (0_u64..2_000_000).prop_map(Duration::from_secs),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    (durations(), prop_oneof![1.0..10.0, any::<f64>()])
        .prop_map(|(base, multiplier)| Backoff::Exponential { base, multiplier })
}

fn classes() -> impl Strategy<Value = ClassPolicy> {
    (backoffs(), durations(), jitters(), any::<Option<u8>>(), durations()).prop_map(
        |(backoff, max_delay, jitter, max_retries, total_timeout)| ClassPolicy {
            backoff,
            max_delay,
            jitter,
            max_retries: max_retries.map(u32::from),
            total_timeout,
        },
    )
}

fn counts() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..100, any::<u32>()]
}

fn states() -> impl Strategy<Value = RetryState> {
    let class = prop::option::of(prop::sample::select(FailureClass::ALL.to_vec()));
    let delay = prop::option::of((0_u64..100_000).prop_map(secs));
    (
        counts(),
        [counts(), counts(), counts(), counts()],
        class,
        delay,
        counts(),
    )
        .prop_map(|(retry_count, counts, class, delay, deferrals)| RetryState {
            retry_count,
            counts,
            class,
            delay,
            deferrals,
            ..RetryState::default()
        })
}

/// A failure, and the delay that it names.
fn failures() -> impl Strategy<Value = Failure> {
    let class = prop::sample::select(FailureClass::ALL.to_vec());
    (class, prop::option::of(durations()), any::<u8>()).prop_map(|(class, named, postponed)| match named {
        Some(named) if postponed < 32 => Failure::postpone(named),
        Some(named) => failure(class).retry_after(named),
        None => failure(class),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn no_decision_leaves_its_bounds(
        classes in [classes(), classes(), classes()],
        max_retries in counts(),
        max_retry_after in durations(),
        state in states(),
        failure in failures(),
        receive_count in counts(),
        age_millis in -10_000_000_i64..3_000_000_000,
        sample in prop_oneof![0.0..1.0, any::<f64>()],
    ) {
        let [rate_limit, quota, temporary] = classes;
        let policy =
            RetryPolicy { max_retries, max_retry_after, rate_limit, quota, temporary, ..RetryPolicy::default() };
        let offset = Duration::from_millis(age_millis.unsigned_abs());
        let now = if age_millis < 0 { received() - offset } else { received() + offset };
        let progress = Progress { state: &state, first_received: received(), receive_count };
        let age = now.duration_since(received()).unwrap_or_default();

        match decide(&policy, &progress, &failure, now, sample) {
            Disposition::Requeue { wait, fallback } => {
                let class = policy.class(failure.class()).expect("retryable");
                prop_assert!(state.retry_count < policy.max_retries);
                prop_assert!(class.max_retries.is_none_or(|max| state.count(failure.class()) < max));
                prop_assert!(age + wait.total() <= class.total_timeout);
                prop_assert!(age + fallback <= class.total_timeout);
                prop_assert!(wait.delay().as_secs() <= 900);
                prop_assert!(wait.total() <= secs(900) || wait.not_before() == now.checked_add(wait.total()));
                match failure.delay() {
                    Some(named) => prop_assert!(wait.total() >= named.min(policy.max_retry_after).min(secs(u64::MAX))),
                    // Whole seconds, rounded up.
                    None => prop_assert!(wait.total() < class.max_delay.saturating_add(secs(1))),
                }
            }
            Disposition::Defer { why, wait } => {
                prop_assert!(failure.is_postponed() && why == Deferral::Postponed);
                prop_assert!(wait.total() >= failure.delay().unwrap_or_default().min(policy.max_retry_after).min(secs(u64::MAX)));
                prop_assert!(wait.delay().as_secs() <= 900);
            }
            Disposition::DeadLetter(reason) => prop_assert!(reason != DeadLetterReason::Expired),
            Disposition::Complete | Disposition::Release(_) => prop_assert!(false, "not the policy's to say"),
        }

        let deferred = defer(Deferral::NoTimeLeft, state.deferrals, now, sample).wait().expect("deferred");
        prop_assert!(deferred.total() <= secs(1_800));
        is_given_up(&policy, &progress, now);
    }
}
