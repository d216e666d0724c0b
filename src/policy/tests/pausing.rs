//! Whose turn it is not: who may be kept from a call at all, for how long, and how often a handler
//! may put it off.

use super::*;
use crate::disposition::Strategy;

const DAY: u64 = 86_400;

/// Of a message whose last failure was a temporary one.
fn failed(retry_count: u32) -> RetryState {
    RetryState { retry_count, class: Some(FailureClass::Temporary), ..RetryState::default() }
}

fn first_receive(state: &RetryState, strategy: Strategy) -> Usage<'_> {
    let receives_are_retries = strategy == Strategy::Visibility;
    Usage {
        state,
        first_received: received(),
        receive_count: 1,
        counted: None,
        strategy,
        receives_are_retries,
        max_retries: u32::MAX,
    }
}

#[test]
fn nobody_is_held_more_often_than_the_policy_allows() {
    let state = failed(0);
    for (max_deferrals, deferrals, expected) in [
        (0, 0, false),
        (1, 0, true),
        (1, 1, false),
        (100, 99, true),
        (100, 100, false),
        (100, 101, false),
        (u32::MAX, u32::MAX - 1, true),
        (u32::MAX, u32::MAX, false),
    ] {
        let policy = RetryPolicy { max_deferrals, ..policy(plain()) };
        let is_paused =
            may_be_deferred(&policy, &first_receive(&state, Strategy::Copy), deferrals, received());
        assert_eq!(is_paused, expected, "{deferrals} of {max_deferrals}");
    }
}

#[test]
fn what_sqs_delivers_once_more_is_not_held() {
    let (policy, state) = (policy(plain()), failed(0));
    for strategy in [Strategy::Copy, Strategy::Visibility] {
        for (receive_count, expected) in
            [(0, true), (1, true), (2, false), (3, false), (u32::MAX, false)]
        {
            let usage = Usage { receive_count, ..first_receive(&state, strategy) };
            assert_eq!(may_be_deferred(&policy, &usage, 0, received()), expected, "{usage:?}");
        }
    }
}

#[test]
fn what_waits_in_its_place_is_held_only_if_another_receive_is_an_attempt_too() {
    let state = failed(0);
    for (max_retries, expected) in [(0, false), (1, true), (2, true)] {
        let policy = RetryPolicy { max_retries, ..policy(plain()) };
        let is_paused =
            |strategy| may_be_deferred(&policy, &first_receive(&state, strategy), 0, received());
        assert_eq!(is_paused(Strategy::Visibility), expected, "{max_retries}");
        assert!(is_paused(Strategy::Copy), "a copy uses up no receive");
    }
}

#[test]
fn whose_time_is_up_is_not_held_and_a_hold_ends_with_it() {
    let class = |total_timeout| ClassPolicy { total_timeout: secs(total_timeout), ..plain() };
    let policy =
        RetryPolicy { rate_limit: class(2_000), quota: class(3_000), ..policy(class(1_000)) };
    // class of the last failure → its patience
    for (class, timeout) in [
        (None, 1_000),
        (Some(FailureClass::Temporary), 1_000),
        (Some(FailureClass::RateLimit), 2_000),
        (Some(FailureClass::Quota), 3_000),
        (Some(FailureClass::NonRetryable), 1_000),
    ] {
        let state = RetryState { class, ..RetryState::default() };
        let usage = first_receive(&state, Strategy::Copy);
        // milliseconds that are left → seconds that it is paused
        for (left, paused) in
            [(60_001, 60), (60_000, 60), (59_999, 59), (1_000, 1), (999, 0), (1, 0), (0, 0)]
        {
            let now = received() + secs(timeout) - Duration::from_millis(left);
            assert_eq!(
                may_be_deferred(&policy, &usage, 0, now),
                paused > 0,
                "{class:?}, {left} ms left"
            );
            let decided = pause(&policy, &usage, Deferral::Paused, secs(60), 0, now, 0.0);
            assert_eq!(delay_secs(decided), Some(paused), "{class:?}, {left} ms left");
        }
        // A clock that runs behind SQS's.
        assert!(may_be_deferred(&policy, &usage, 0, received() - secs(DAY)));
    }
}

#[test]
fn a_hold_lasts_for_its_rest_or_twice_as_long_as_the_last_and_is_spread_over_twice_the_time() {
    let state = failed(0);
    // longest deferral, rest, deferrals before → shortest, longest
    for (max_deferral, rest, deferrals, shortest, longest) in [
        (60, 0, 0, 1, 2),
        (60, 1, 0, 1, 2),
        (60, 2, 0, 2, 4),
        (60, 3, 1, 3, 6),
        (60, 3, 2, 4, 8),
        (60, 0, 5, 32, 64),
        (60, 0, 6, 60, 120),
        (60, 0, 7, 60, 120),
        (60, 59, 100, 60, 120),
        (60, 60, 100, 60, 120),
        (60, 61, 100, 61, 122),
        (60, 900, 0, 900, 1_800),
        (DAY, 0, 16, 65_536, 131_072),
        (DAY, 0, 17, DAY, 2 * DAY),
        (DAY, 0, 63, DAY, 2 * DAY),
        (DAY, 0, 64, DAY, 2 * DAY),
        (DAY, 0, u32::MAX, DAY, 2 * DAY),
    ] {
        let class = ClassPolicy { total_timeout: secs(10 * DAY), ..plain() };
        let policy = RetryPolicy { max_deferral: secs(max_deferral), ..policy(class) };
        for (sample, expected) in [(0.0, shortest), (ALMOST_ONE, longest)] {
            for why in [Deferral::Paused, Deferral::CircuitOpen] {
                let usage = first_receive(&state, Strategy::Copy);
                let decided =
                    pause(&policy, &usage, why, secs(rest), deferrals, received(), sample);
                let Disposition::Defer { reason: said, wait } = decided else {
                    panic!("{decided:?}")
                };
                assert_eq!(said, why);
                let secs = wait.total().as_secs_f64().round();
                assert!(
                    (secs - Duration::from_secs(expected).as_secs_f64()).abs() < 0.5,
                    "{secs} for {expected}"
                );
            }
        }
    }
}

#[test]
fn a_message_may_be_postponed_so_often_in_a_row_and_no_more() {
    let postponement = Failure::postpone(secs(60));
    for (max_postponements, postponements, expected) in [
        (0, 0, None),
        (1, 0, Some(60)),
        (1, 1, None),
        (1_000, 999, Some(60)),
        (1_000, 1_000, None),
        (1_000, 1_001, None),
        (u32::MAX, u32::MAX - 1, Some(60)),
        (u32::MAX, u32::MAX, None),
    ] {
        let policy = RetryPolicy { max_postponements, ..policy(plain()) };
        // No retry has to be left for it.
        for retry_count in [0, 50] {
            let state = RetryState { postponements, ..failed(retry_count) };
            let decided = decide(
                &policy,
                &first_receive(&state, Strategy::Copy),
                &postponement,
                received(),
                0.0,
            );
            assert_eq!(delay_secs(decided), expected, "{postponements} of {max_postponements}");
            let is_dead_lettered =
                decided == Disposition::DeadLetter(DeadLetterReason::PostponedTooOften);
            assert_eq!(is_dead_lettered, expected.is_none());
        }
    }
}

#[test]
fn a_refused_call_uses_no_retry_up_to_the_most_deferrals_whatever_the_age() {
    let (policy, late) = (policy(plain()), received() + secs(30 * DAY));
    let refused = Failure::rate_limit("busy").retry_after(secs(7)).call_refused();
    let decided = |deferrals, receive_count, strategy, at| {
        let state = RetryState { deferrals, ..failed(3) };
        let usage = Usage { receive_count, ..first_receive(&state, strategy) };
        decide(&policy, &usage, &refused, at, 0.0)
    };
    for (deferrals, receives, waits) in
        [(0, 1, 7), (3, 1, 8), (99, 1, 60), (0, 4, 8), (99, 100, 60)]
    {
        for at in [received(), late] {
            let (reason, wait) = (Deferral::CallRefused, Wait::from(secs(waits), at));
            let expected = Disposition::Defer { reason, wait };
            assert_eq!(decided(deferrals, receives, Strategy::Copy, at), expected, "{deferrals}");
        }
    }
    for (deferrals, receives) in [(100, 1), (0, 101)] {
        let decided = |at| decided(deferrals, receives, Strategy::Copy, at);
        assert!(
            matches!(decided(received()), Disposition::Requeue { .. }),
            "it counts as any other"
        );
        assert_eq!(decided(late), Disposition::DeadLetter(DeadLetterReason::TooOld));
    }
    // Each receive counts, so they become rarer.
    let waits = [1, 10_000].map(|age| {
        delay_secs(decided(0, 2, Strategy::Visibility, received() + secs(age))).unwrap_or_default()
    });
    assert_eq!(waits, [90, 324]);
}
