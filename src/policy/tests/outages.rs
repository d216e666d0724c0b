//! The wait of a message whose service serves nobody.

use super::*;
use crate::disposition::Strategy;

fn usage(state: &RetryState, strategy: Strategy, receive_count: u32) -> Usage<'_> {
    Usage {
        state,
        first_received: received(),
        receive_count,
        counted: None,
        max_retries: u32::MAX,
        strategy,
        receives_are_retries: strategy == Strategy::Visibility,
    }
}

#[test]
fn a_message_whose_service_serves_nobody_waits_without_a_retry_as_long_as_its_age_allows() {
    let policy = RetryPolicy::default();
    let state = RetryState { retry_count: 4, counts: [0, 0, 4, 0], ..RetryState::default() };
    let (copy, limited) = (usage(&state, Strategy::Copy, 1), u32::MAX - 1);
    let defer =
        |why, wait| Disposition::Defer { reason: why, wait: Wait::from(secs(wait), received()) };
    for (class, least, max_retries, expected) in [
        (FailureClass::Temporary, 30, u32::MAX, Some(defer(Deferral::CircuitOpen, 60))),
        (FailureClass::Temporary, 120, u32::MAX, Some(defer(Deferral::CircuitOpen, 120))),
        (FailureClass::Temporary, 50_000, u32::MAX, Some(defer(Deferral::CircuitOpen, 43_200))),
        (FailureClass::RateLimit, 0, u32::MAX, Some(defer(Deferral::Paused, 60))),
        // A producer's limit is one of calls.
        (FailureClass::Temporary, 30, limited, None),
        (FailureClass::NonRetryable, 30, u32::MAX, None),
    ] {
        let (usage, failure) = (Usage { max_retries, ..copy }, failure(class));
        let decided = decide(&policy, &usage, &failure, received(), 1.0);
        let changed = unserved(&policy, &usage, &failure, decided, secs(least), received());
        assert_eq!(changed, expected.unwrap_or(decided), "{class}, {least}");
    }
}

#[test]
fn the_receives_of_a_message_in_its_place_last_for_all_of_its_age() {
    for (policy, least) in [
        (RetryPolicy::standard(), 42_000),
        (RetryPolicy::high_volume(), 3_500),
        (RetryPolicy::critical(), 550),
    ] {
        let (state, failure) = (RetryState::default(), failure(FailureClass::Temporary));
        let (mut now, mut attempts, mut longest) = (received(), 0, Duration::ZERO);
        for receive_count in 1.. {
            let usage = usage(&state, Strategy::Visibility, receive_count);
            let decided = decide(&policy, &usage, &failure, now, 0.0);
            let decided = match receive_count {
                1..5 => decided,
                _ => unserved(&policy, &usage, &failure, decided, secs(30), now),
            };
            let Some(wait) = decided.wait() else { break };
            (now, attempts, longest) = (now + wait.total(), attempts + 1, wait.total());
        }
        let age = now.duration_since(received()).expect("time passes").as_secs();
        assert!(age >= least && attempts <= policy.max_retries, "{age} s, {attempts}, {longest:?}");
    }
}
