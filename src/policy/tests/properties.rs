//! What holds for every policy, message, time and sample.

use proptest::prelude::*;

use super::*;
use crate::disposition::Strategy as Waits;

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

/// Boxed, as others here, or their parts overflow the stack of a test.
fn durations() -> BoxedStrategy<Duration> {
    prop_oneof![
        (0_u64..5_000_000).prop_map(Duration::from_millis),
        (0_u64..2_000_000).prop_map(Duration::from_secs),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
    .boxed()
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    let multiplier = prop_oneof![1.0..10.0, any::<f64>()];
    prop_oneof![
        (durations(), multiplier)
            .prop_map(|(base, multiplier)| Backoff::Exponential { base, multiplier }),
        durations().prop_map(|base| Backoff::Linear { base }),
        durations().prop_map(|base| Backoff::Fibonacci { base }),
        durations().prop_map(|base| Backoff::Constant { base }),
        (durations(), prop::collection::vec(durations(), 0..4))
            .prop_map(|(first, then)| Backoff::List { first, then }),
    ]
}

fn classes() -> BoxedStrategy<ClassPolicy> {
    (backoffs(), durations(), jitters(), any::<Option<u8>>(), durations())
        .prop_map(|(backoff, max_delay, jitter, max_retries, total_timeout)| ClassPolicy {
            backoff,
            max_delay,
            jitter,
            max_retries: max_retries.map(u32::from),
            total_timeout,
        })
        .boxed()
}

fn counts() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..100, any::<u32>()]
}

fn states() -> BoxedStrategy<RetryState> {
    let class = prop::option::of(prop::sample::select(FailureClass::ALL.to_vec()));
    let delay = prop::option::of((0_u64..100_000).prop_map(secs));
    (counts(), [counts(), counts(), counts(), counts()], class, delay, counts())
        .prop_map(|(retry_count, counts, class, delay, deferrals)| RetryState {
            retry_count,
            class,
            delay,
            counts,
            deferrals,
            ..RetryState::default()
        })
        .boxed()
}

/// A failure, and the delay that it names.
fn failures() -> impl Strategy<Value = Failure> {
    let class = prop::sample::select(FailureClass::ALL.to_vec());
    (class, prop::option::of(durations()), any::<u8>()).prop_map(|(class, named, postponed)| {
        match named {
            Some(named) if postponed < 32 => Failure::postpone(named),
            Some(named) => failure(class).retry_after(named),
            None => failure(class),
        }
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
        in_place in any::<bool>(),
        age_millis in -10_000_000_i64..3_000_000_000,
        sample in prop_oneof![0.0..1.0, any::<f64>()],
    ) {
        let [rate_limit, quota, temporary] = classes;
        let policy =
            RetryPolicy { max_retries, max_retry_after, rate_limit, quota, temporary, ..RetryPolicy::default() };
        let offset = Duration::from_millis(age_millis.unsigned_abs());
        let now = if age_millis < 0 { received() - offset } else { received() + offset };
        let strategy = if in_place { Waits::Visibility } else { Waits::Copy };
        let usage = Usage { state: &state, first_received: received(), receive_count, counted: None, strategy, receives_are_retries: in_place, max_retries: u32::MAX };
        let age = now.duration_since(received()).unwrap_or_default();

        match decide(&policy, &usage, &failure, now, sample) {
            Disposition::Requeue { wait, hidden_if_unsent } => {
                let class = policy.class(failure.class()).expect("retryable");
                prop_assert!(usage.retries() < policy.max_retries);
                prop_assert!(class.max_retries.is_none_or(|max| state.count(failure.class()) < max));
                prop_assert!(age + wait.total() <= class.total_timeout);
                prop_assert!(age + hidden_if_unsent <= class.total_timeout);
                prop_assert!(wait.delay().as_secs() <= 900);
                prop_assert!(wait.total() <= secs(900) || wait.not_before() == now.checked_add(wait.total()));
                match failure.delay() {
                    Some(named) => prop_assert!(wait.total() >= named.min(policy.max_retry_after).min(secs(u64::MAX))),
                    // Whole seconds, rounded up.
                    None => prop_assert!(wait.total() < class.max_delay.saturating_add(secs(1))),
                }
            }
            Disposition::Defer { reason: why, wait } => {
                prop_assert!(failure.is_postponed() && why == Deferral::Postponed);
                prop_assert!(wait.total() >= failure.delay().unwrap_or_default().min(policy.max_retry_after).min(secs(u64::MAX)));
                prop_assert!(wait.delay().as_secs() <= 900);
            }
            Disposition::DeadLetter(reason) => prop_assert!(reason != DeadLetterReason::Expired),
            Disposition::Complete | Disposition::Release(_) => {
                prop_assert!(false, "not the policy's to say");
            }
        }

        let deferred = defer(&policy, Deferral::NoTimeLeft, state.deferrals, now, sample).wait().expect("deferred");
        prop_assert!(deferred.total() <= policy.max_deferral.saturating_mul(2).max(secs(1)));
        dead_lettered(&policy, &usage, Some(now));
    }
}
