//! Every budget at its limit and on both sides of it.

use super::*;
use crate::disposition::{Retry, Strategy};

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
        let class = ClassPolicy { max_retries: class_max, ..plain() };
        let policy = RetryPolicy { max_retries: max, ..policy(class) };
        let history = History { retries, class_retries, ..after_retries(0) };
        // A named delay saves nothing.
        for failure in [Failure::temporary("away"), Failure::temporary("away").retry_after(secs(1))]
        {
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
    let class = ClassPolicy { total_timeout: secs(1_000), ..plain() };
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
    let decide =
        |failure| RetryPolicy::default().decide(&after_retries(0), &failure, at_13_hours, 0.5);
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
fn dead_lettered_is_what_had_no_budget_left_on_an_earlier_receive() {
    use FailureClass::{NonRetryable, Temporary};
    let class = ClassPolicy { max_retries: Some(3), total_timeout: secs(1_000), ..plain() };
    let policy = RetryPolicy { max_retries: 7, ..policy(class) };
    // class of the last failure, retries, of this class, receives, age when this copy was first
    // received → dead-lettered
    for (class, retries, class_retries, receive_count, age, expected) in [
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
        let mut state = RetryState { retry_count: retries, class, ..RetryState::default() };
        state.counts[Temporary as usize] = class_retries;
        let usage = Usage {
            state: &state,
            first_received: received(),
            receive_count,
            counted: None,
            strategy: Strategy::Copy,
            receives_are_retries: false,
            max_retries: u32::MAX,
        };
        let reason = dead_lettered(&policy, &usage, Some(received() + secs(age)));
        assert_eq!(reason.is_some(), expected, "{usage:?} at {age}");
        // It is what the decision said on that earlier receive.
        if let Some(reason) = reason {
            let decided =
                decide(&policy, &usage, &Failure::temporary("away"), received() + secs(age), 0.5);
            assert_eq!(decided, Disposition::DeadLetter(reason));
        }
    }
}

fn in_place(state: &RetryState, receive_count: u32) -> Usage<'_> {
    Usage {
        state,
        first_received: received(),
        receive_count,
        counted: None,
        strategy: Strategy::Visibility,
        receives_are_retries: true,
        max_retries: u32::MAX,
    }
}

#[test]
fn a_postponement_uses_up_a_receive_of_what_waits_in_its_place() {
    let policy = RetryPolicy { max_retries: 3, ..RetryPolicy::default() };
    let state = RetryState::default();
    for (receive_count, is_postponed) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
        let decided = decide(
            &policy,
            &in_place(&state, receive_count),
            &Failure::postpone(secs(60)),
            received(),
            0.0,
        );
        assert_eq!(
            decided.wait().map(|wait| wait.total()),
            is_postponed.then_some(secs(60)),
            "{receive_count}"
        );
        assert!(is_postponed || decided == EXHAUSTED);
    }
}

#[test]
fn attempts_that_a_store_counted_are_the_retries_and_receives_are_none() {
    let policy = |max_retries| RetryPolicy { max_retries, ..RetryPolicy::default() };
    // most retries, attempts counted, retries in the body → retries, whether they are used up, and
    // whether the message may have one more attempt
    for (most, counted, retry_count, retries, is_spent_now, may_be_called) in [
        (3, 1, 0, 1, false, true),
        (3, 2, 0, 2, false, true),
        (3, 3, 0, 3, true, true),
        (3, 4, 0, 4, true, false),
        (3, u32::MAX, 0, u32::MAX, true, false),
        // The first receive may have been no attempt.
        (0, 1, 0, 1, true, true),
        (0, 2, 0, 2, true, false),
        (1, 1, 0, 1, true, true),
        (1, 2, 0, 2, true, false),
        (3, 1, 3, 4, true, true),
        (3, 2, 2, 4, true, false),
        (3, 2, 1, 3, true, true),
    ] {
        let state = RetryState { retry_count, ..RetryState::default() };
        let usage = Usage { counted: Some(counted), ..in_place(&state, 900) };
        let policy = policy(most);
        let what = format!("{most} {counted} {retry_count}");
        assert_eq!(usage.retries(), retries, "{what}");
        assert_eq!(is_spent(&policy, &usage), is_spent_now, "{what}");
        assert_eq!(has_no_attempt_left(&policy, &usage), !may_be_called, "{what}");
        let unknown = Usage { counted: None, ..usage };
        assert!(!has_no_attempt_left(&policy, &unknown), "receives prove no attempt");
        let copied = Usage { receives_are_retries: false, ..usage };
        assert_eq!(copied.retries(), retry_count, "a copy has its retries in its body");
    }
}

#[test]
fn what_waits_in_its_place_counts_its_receives_for_every_class() {
    let mut policy = RetryPolicy { max_retries: 3, ..RetryPolicy::default() };
    policy.quota.max_retries = Some(2);
    let temporary = Failure::temporary("away");
    let quota = Failure::quota("tomorrow");
    // retries in the body, receives → seconds until the next attempt after a temporary failure; the
    // same after one of the class `quota`; whether it is handled at all
    for (retry_count, receive_count, after_temporary, after_quota, is_handled) in [
        (0, 1, Some(2), Some(120), true),
        (0, 2, Some(6), Some(360), true),
        (0, 3, Some(18), None, true),
        (0, 4, None, None, true),
        (0, 5, None, None, false),
        (2, 1, Some(2), Some(120), true),
        (2, 2, None, Some(360), true),
        (2, 3, None, None, false),
        (3, 1, None, None, true),
        (3, 2, None, None, false),
    ] {
        let state = RetryState { retry_count, ..RetryState::default() };
        let usage = in_place(&state, receive_count);
        let secs = |failure| {
            let decided = decide(&policy, &usage, failure, received(), 1.0);
            decided.wait().map(|wait| wait.total().as_secs())
        };
        assert_eq!(
            dead_lettered(&policy, &usage, Some(received())).is_none(),
            is_handled,
            "{usage:?}"
        );
        assert_eq!(secs(&temporary), after_temporary, "{usage:?}");
        assert_eq!(
            secs(&quota),
            after_quota.filter(|_| retry_count + receive_count <= 3),
            "{usage:?}"
        );
    }
}

#[test]
fn what_waits_in_its_place_takes_the_curve_for_the_delay_before() {
    let mut policy = RetryPolicy::default();
    policy.temporary.jitter = Jitter::Decorrelated;
    let state = RetryState::default();
    // 2 s × 3ⁿ: three times what the curve had the time before, at most the cap.
    let longest = [1, 2, 3, 4, 5].map(|receive_count| {
        decide(
            &policy,
            &in_place(&state, receive_count),
            &Failure::temporary("away"),
            received(),
            1.0,
        )
        .wait()
        .map(|wait| wait.total())
    });
    assert_eq!(longest, [6, 6, 18, 54, 60].map(|longest| Some(secs(longest))));
}

#[test]
fn a_time_to_come_is_believed_as_far_away_as_the_policy_can_have_ordered_it() {
    // longest named delay, longest delay of a curve, ordered → believed
    for (named, curve, ordered, believed) in [
        (43_200, 600, 43_260, 43_260),
        (43_200, 600, 43_261, 43_260),
        (43_200, 86_400, 86_400, 86_400),
        (43_200, 86_400, 86_401, 86_400),
        (0, 10, 61, 60),
    ] {
        let mut policy = RetryPolicy { max_retry_after: secs(named), ..RetryPolicy::default() };
        for class in [&mut policy.rate_limit, &mut policy.quota, &mut policy.temporary] {
            class.max_delay = secs(1);
        }
        policy.quota.max_delay = secs(curve);
        policy.max_deferral = secs(1);
        policy.max_pause = None;
        policy.circuit_breaker = None;
        assert_eq!(
            believed_due(
                &policy,
                &RetryState::default(),
                received() + secs(120 + ordered),
                received()
            ),
            received() + secs(120 + believed)
        );
    }
}

#[test]
fn a_time_to_come_that_a_deferral_or_the_line_of_a_limit_ordered_is_believed() {
    let breaker =
        |reset| Some(CircuitBreaker { reset_timeout: secs(reset), ..CircuitBreaker::default() });
    // longest deferral, longest pause, time until an open circuit is tried, start tag in a line → as
    // long again by chance, or the longest line
    for (deferral, pause, reset, start_tag, longest) in [
        (60, None, None, None, 120),
        (86_400, Some(900), Some(900), None, 172_800),
        (60, Some(900), None, None, 1_800),
        (60, Some(60), Some(900), None, 1_800),
        (60, Some(60), Some(900), Some(7), 43_200),
        (86_400, None, None, Some(7), 172_800),
    ] {
        let state = RetryState { start_tag, ..RetryState::default() };
        let mut policy = RetryPolicy {
            max_retry_after: secs(1),
            max_deferral: secs(deferral),
            max_pause: pause.map(secs),
            circuit_breaker: reset.and_then(breaker),
            ..RetryPolicy::default()
        };
        for class in [&mut policy.rate_limit, &mut policy.quota, &mut policy.temporary] {
            class.max_delay = secs(1);
        }
        for (ordered, believed) in
            [(longest - 1, longest - 1), (longest, longest), (longest + 1, longest)]
        {
            assert_eq!(
                believed_due(&policy, &state, received() + secs(120 + ordered), received()),
                received() + secs(120 + believed)
            );
        }
    }
}

#[test]
fn a_retry_is_numbered_by_the_budget_that_ends_first_and_its_delay_is_that_before_jitter() {
    // maximum of the class, retries, of this class, named delay → number, maximum, seconds
    for (class_max, retries, class_retries, named, number, max, delay) in [
        (None, 0, 0, None, 1, 50, 10),
        (None, 4, 2, None, 5, 50, 40),
        (None, 49, 20, None, 50, 50, 1_000),
        (None, 4, 2, Some(77), 5, 50, 77),
        (None, 4, 2, Some(50_000), 5, 50, 43_200),
        (Some(3), 4, 2, None, 3, 3, 40),
        (Some(60), 4, 2, None, 5, 50, 40),
        (Some(3), 49, 0, None, 50, 50, 10),
    ] {
        let class = ClassPolicy { max_retries: class_max, jitter: Jitter::Full, ..plain() };
        let mut state = RetryState { retry_count: retries, ..RetryState::default() };
        state.counts[FailureClass::Temporary as usize] = class_retries;
        let usage = Usage {
            state: &state,
            first_received: received(),
            receive_count: 1,
            counted: None,
            strategy: Strategy::Copy,
            receives_are_retries: false,
            max_retries: u32::MAX,
        };
        let failure = Failure::temporary("away");
        let failure = named.map_or(failure.clone(), |named| failure.retry_after(secs(named)));
        let cut_from = named.filter(|named| *named > delay).map(secs);
        let expected = Retry { number, max, delay_before_jitter: secs(delay), cut_from };
        assert_eq!(
            next_retry(&policy(class), &usage, &failure),
            Some(expected),
            "{class_max:?} {retries}"
        );
        assert_eq!(next_retry(&policy(plain()), &usage, &Failure::non_retryable("wrong")), None);
    }
}
