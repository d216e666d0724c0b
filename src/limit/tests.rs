//! The gate and the line: each call within the limit, and a line that moves as fast as the limit.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::clock::Sampler;

mod held;

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + Duration::from_millis(millis)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn limit(limit: u32, burst: u32) -> RateLimit {
    RateLimit { burst, ..RateLimit::new(limit, Duration::from_secs(1)) }
}

/// A message that can wait for two seconds.
fn admit(state: &mut LimitState, limit: &RateLimit, ask: Ask, now: u64) -> Admission {
    state.admit(limit, ask, limit.max_reservation, at(now))
}

#[test]
fn the_interval_is_rounded_up_and_never_zero() {
    for (calls, period, interval) in [
        (3, Duration::from_secs(1), 333_333_334),
        (1_000_000, millis(10), 10),
        (0, Duration::from_secs(1), 1_000_000_000),
        (1, Duration::ZERO, 1),
    ] {
        assert_eq!(RateLimit::new(calls, period).interval(), Duration::from_nanos(interval));
    }
}

#[test]
fn the_gate_passes_a_burst_at_once_then_one_call_for_each_interval_up_to_the_longest_wait() {
    let limit = limit(10, 3);
    let mut state = LimitState::default();
    let slots: Vec<_> = (0..24).map(|_| admit(&mut state, &limit, Ask::Retry, 0)).collect();
    let waits = [0, 0, 0].into_iter().chain((1..=20).map(|slot| slot * 100));
    let expected: Vec<_> = waits.map(|wait| Admission::Slot(millis(wait))).collect();
    assert_eq!(slots[..23], expected);
    assert_eq!(slots[23], Admission::Full, "it would be called after 2.1 s");
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 99), Admission::Full);
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 100), Admission::Slot(millis(2_000)));
    let longest = state.admit(&limit, Ask::Retry, millis(99), at(2_100));
    assert_eq!(longest, Admission::Full, "this message can wait for less");
}

#[test]
fn a_newcomer_joins_the_line_if_the_gate_is_full_or_others_wait_and_is_called_in_its_order() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    let mut newcomer = |now| admit(&mut state, &limit, Ask::Newcomer, now);
    for slot in 0..=20 {
        assert_eq!(newcomer(0), Admission::Slot(millis(slot * 100)));
    }
    let waits = |call| Admission::InLine(Place::from_time(at(call)), at(call));
    assert_eq!(
        [newcomer(0), newcomer(0), newcomer(1_000)],
        [waits(2_100), waits(2_200), waits(2_300)]
    );
    // The line is over when its last one is called.
    assert_eq!(newcomer(2_399), waits(2_400));
    assert_eq!(newcomer(2_500), Admission::Slot(Duration::ZERO));
}

#[test]
fn a_message_in_line_goes_to_the_gate_up_to_a_second_early_and_otherwise_keeps_its_place() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 0) {}
    let place = Place::from_time(at(2_100));
    let mut waited = |now| admit(&mut state, &limit, Ask::Waited(place), now);
    assert_eq!(waited(1_100), Admission::InLine(place, at(2_100)));
    assert_eq!(waited(1_101), Admission::Slot(millis(999)));
}

#[test]
fn a_retry_that_takes_a_slot_holds_the_line_back_by_one_place() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 0) {}
    let place = Place::from_time(at(2_100));
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 0), Admission::Full);
    let waited = admit(&mut state, &limit, Ask::Waited(place), 0);
    assert_eq!(waited, Admission::InLine(place, at(2_100)), "without a slot it takes no place");
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 100), Admission::Slot(millis(2_000)));
    let waited = admit(&mut state, &limit, Ask::Waited(place), 100);
    assert_eq!(waited, Admission::InLine(place, at(2_200)));
    assert_eq!(
        admit(&mut state, &limit, Ask::Newcomer, 100),
        Admission::InLine(Place::from_time(at(2_200)), at(2_300)),
        "a new place counts from where the line would be without that"
    );
}

#[test]
fn a_message_that_the_line_called_while_the_gate_is_full_keeps_its_place_and_asks_again_soon() {
    let limit = limit(10, 1);
    let place = Place::from_time(at(2_100));
    for (now, expected) in [
        (5_100, Admission::InLine(place, at(6_100))),
        // The line has moved back by one place, since the gate is behind it.
        (5_200, Admission::InLine(place, at(6_200))),
        (5_201, Admission::Full),
    ] {
        let mut state = LimitState::default();
        while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 0) {}
        for _ in 0..50 {
            admit(&mut state, &limit, Ask::Newcomer, 0);
        }
        state.tat = epoch_nanos(at(now + 2_001));
        assert_eq!(admit(&mut state, &limit, Ask::Waited(place), now), expected, "{now}");
    }
}

#[test]
fn a_message_takes_no_slot_if_the_line_has_moved_back_by_more_than_a_second_since_it_was_seen() {
    let limit = limit(10, 1);
    let mut seen = LimitState::default();
    while let Admission::Slot(_) = admit(&mut seen, &limit, Ask::Newcomer, 0) {}
    let mut claim = Claim::new(&KnownLimit::own(&limit), seen, at(2_100));
    let share = claim.take(Ask::Waited(Place::from_time(at(2_100))), limit.max_reservation);
    assert_eq!(share, Share::Slot(0));
    for (moved_back, is_met) in [(0, true), (1_000, true), (1_001, false)] {
        let moved_back = moved_back * 1_000_000;
        let mut item = Item::from_iter([
            (TAT, seen.tat),
            (LINE_END, seen.line_end + moved_back),
            (HELD_BACK, seen.held_back + moved_back),
        ]);
        assert_eq!(claim.update().apply(&mut item), is_met, "{moved_back} ns");
    }
}

#[test]
fn a_place_that_is_foreign_or_forged_is_at_most_the_last_one() {
    let limit = limit(10, 1);
    for place in [0, 1, u64::MAX] {
        let waited =
            |state: &mut LimitState, now| admit(state, &limit, Ask::Waited(Place(place)), now);
        let mut state = LimitState::default();
        assert_eq!(waited(&mut state, 0), Admission::Slot(Duration::ZERO), "nobody waits");
        let mut state = LimitState::default();
        while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 0) {}
        let expected = if place == u64::MAX {
            Admission::InLine(Place(place), at(2_200))
        } else {
            Admission::Full
        };
        assert_eq!(waited(&mut state, 0), expected);
        assert_eq!(waited(&mut state, 5_000), Admission::Slot(Duration::ZERO));
    }
}

#[test]
fn a_message_that_returned_to_its_place_goes_to_the_gate_and_otherwise_to_the_end_of_the_line() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 0) {}
    let mut returned = |now| admit(&mut state, &limit, Ask::Returned, now);
    assert!(matches!(returned(0), Admission::InLine(_, call) if call == at(2_200)));
    assert_eq!(returned(100), Admission::Slot(millis(2_000)));
}

#[test]
fn a_clock_that_was_set_back_stops_no_calls() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 86_400_000) {}
    assert_eq!(admit(&mut state, &limit, Ask::Newcomer, 0), Admission::Slot(Duration::ZERO));
}

#[test]
fn an_adaptive_limit_slows_the_gate_and_the_line_down_at_once() {
    let limit = RateLimit { adaptive: true, ..limit(10, 2) };
    let mut state = LimitState::default();
    let mut slots = Vec::new();
    while let Admission::Slot(wait) = admit(&mut state, &limit, Ask::Newcomer, 0) {
        slots.push(wait);
    }
    assert_eq!(slots.len(), 22);
    // The first one in line is called after 2.1 s, and so are twenty more each 2 s.
    for _ in 0..40 {
        admit(&mut state, &limit, Ask::Newcomer, 0);
    }
    let last = Place::from_time(at(4_000));
    let waits = |state: &LimitState, now| {
        let mut state = *state;
        match admit(&mut state, &limit, Ask::Waited(last), now) {
            Admission::InLine(place, turn) => {
                assert_eq!(place, last);
                turn.duration_since(at(0)).expect("later")
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(waits(&state, 0), millis(4_000));
    let lower = state.refused(&KnownLimit::own(&limit), at(0), at(0)).expect("a change");
    // A pace that was refused once may soon be whole again.
    assert_eq!(waits(&lower, 0), millis(4_000));
    let lowest = (1..10).fold(lower, |state, second| {
        state
            .refused(&KnownLimit::own(&limit), at(second * 1_000), at(second * 1_000))
            .expect("a change")
    });
    // The line's clock has gone on by 3 s at most, and the pace before was a seventh.
    let turn = waits(&lowest, 9_000);
    assert!((millis(18_000)..millis(29_000)).contains(&turn), "{turn:?}");
    // Slots come at a tenth of the limit now.
    let mut state = LimitState { line_end: 0, ..lowest };
    let slots: Vec<_> = (0..3).map(|_| admit(&mut state, &limit, Ask::Retry, 9_000)).collect();
    let waits = [0, 900, 1_900].map(|wait| Admission::Slot(millis(wait)));
    assert_eq!(slots, waits, "an interval of a second, and a burst of less");
}

#[test]
fn the_line_is_at_most_eleven_hours_long() {
    let limit = RateLimit::new(1, Duration::from_secs(3_600));
    let mut state = LimitState::default();
    let admissions = [0; 14].map(|now| admit(&mut state, &limit, Ask::Newcomer, now));
    assert_eq!(admissions[0], Admission::Slot(Duration::ZERO));
    assert!(admissions[1..12].iter().all(|one| matches!(one, Admission::InLine(..))));
    assert_eq!(admissions[12..], [Admission::LineFull; 2]);
}

#[test]
fn a_claim_is_met_by_the_state_as_it_was_seen_though_a_retry_moves_a_long_line_back() {
    let limit = limit(10, 1);
    let end = epoch_nanos(at(0) + LONGEST_LINE);
    let item = Item::from_iter([(TAT, epoch_nanos(at(0))), (LINE_END, end)]);
    for asks in [&[Ask::Newcomer, Ask::Retry][..], &[Ask::Newcomer, Ask::Retry, Ask::Retry]] {
        let mut claim = Claim::new(&KnownLimit::own(&limit), LimitState::of(&item), at(0));
        let shares: Vec<_> = asks.iter().map(|ask| claim.take(*ask, millis(2_000))).collect();
        assert_eq!(shares[..2], [Share::Joined(0), Share::Slot(0)]);
        assert!(claim.update().apply(&mut item.clone()), "{asks:?}");
    }
}

#[test]
fn no_time_is_too_late_for_a_guess_of_the_gate() {
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    let state = LimitState::default().with_busy_gate(far);
    assert!(state.has_free_gate(far), "times in items end before");
}

/// Fails if any window of time has more calls than the limit allows: its length in intervals, and the
/// burst.
fn assert_within(limit: &RateLimit, calls: &[Duration]) {
    let mut calls = calls.to_vec();
    calls.sort_unstable();
    let interval = i128::from(limit.interval_nanos());
    let allowed = interval * i128::from(limit.burst.max(1) - 1);
    // How far each call is behind a steady rate that began with the first one.
    let mut furthest_behind = i128::MIN;
    for (number, call) in (0_i128..).zip(&calls) {
        let behind = i128::try_from(call.as_nanos()).expect("small") - number * interval;
        furthest_behind = furthest_behind.max(behind);
        assert!(
            furthest_behind - behind <= allowed,
            "call {number} at {call:?} is beyond the limit"
        );
    }
}

proptest! {
    #[test]
    fn no_window_has_more_calls_than_the_limit(
        calls in 1_u32..200,
        burst in 1_u32..20,
        adaptive in any::<bool>(),
        asks in prop::collection::vec((0_u64..300, 0_u8..4, 0_u64..9_000), 1..200),
    ) {
        let limit = RateLimit { adaptive, ..limit(calls, burst) };
        let mut state = LimitState::default();
        let (mut now, mut made) = (0, Vec::new());
        for (step, kind, place) in asks {
            now += step;
            if kind == 3 {
                state = state.refused(&KnownLimit::own(&limit), at(now), at(now)).unwrap_or(state);
            }
            let ask = match kind {
                0 => Ask::Newcomer,
                1 => Ask::Retry,
                _ => Ask::Waited(Place::from_time(at(place))),
            };
            if let Admission::Slot(wait) = admit(&mut state, &limit, ask, now) {
                prop_assert!(wait <= limit.max_reservation);
                made.push(millis(now) + wait);
            }
        }
        assert_within(&limit, &made);
    }
}

proptest! {
    #[test]
    fn a_claim_changes_an_item_as_it_changes_the_state_whoever_was_faster(
        calls in 1_u32..50,
        burst in 1_u32..20,
        adaptive in any::<bool>(),
        asks in prop::collection::vec((0_u64..300, 0_u8..4, 0_u64..9_000, 0_u8..6), 1..200),
    ) {
        let limit = RateLimit { adaptive, ..limit(calls, burst) };
        let known = KnownLimit::own(&limit);
        let (mut item, mut now, mut made) = (Item::default(), 0, Vec::new());
        // Three environments, each with the state as it has last seen it.
        let mut seen = [LimitState::default(); 3];
        for (number, (step, kind, place, together)) in asks.into_iter().enumerate() {
            now += step;
            let seen = &mut seen[number % 3];
            if let Some(next) = seen.refused(&known, at(now), at(now)).filter(|_| kind == 3) {
                let before = LimitState::of(&item);
                let is_changed = seen.pace_update(&next).apply(&mut item);
                *seen = if is_changed { before.at_pace_of(&next) } else { before };
                prop_assert_eq!(LimitState::of(&item), *seen);
            }
            for _ in 0..3 {
                let mut claim = Claim::new(&known, *seen, at(now));
                let shares: Vec<_> = (0..=together).map(|_| {
                    let ask = match kind {
                        0 => Ask::Newcomer,
                        1 => Ask::Retry,
                        _ => Ask::Waited(Place::from_time(at(place))),
                    };
                    claim.take(ask, limit.max_reservation)
                }).collect();
                let before = LimitState::of(&item);
                let is_changed = claim.update().apply(&mut item);
                if is_changed {
                    *seen = claim.next(before);
                    prop_assert_eq!(LimitState::of(&item), *seen);
                    for share in shares {
                        if let Admission::Slot(wait) = claim.admission(share, before) {
                            prop_assert!(wait <= limit.max_reservation);
                            made.push(millis(now) + wait);
                        }
                    }
                    break;
                }
                prop_assert_ne!(*seen, before, "a claim by the state as it is succeeds");
                *seen = before;
            }
        }
        assert_within(&limit, &made);
    }
}

/// What happened to a backlog.
struct Backlog {
    calls: Vec<Duration>,
    /// The number of each message, in the order of the calls.
    order: Vec<u32>,
    deferrals: u32,
}

/// A backlog of messages, delivered in batches of ten, one each millisecond. A message that waits is
/// delivered again after whole seconds, up to a second late. One in `fails` fails once, and is tried
/// again after 5 s.
fn backlog(limit: &RateLimit, messages: u32, fails: u32) -> Backlog {
    let mut state = LimitState::default();
    let delivered =
        (0..messages).map(|number| ((millis(u64::from(number / 10)), number), Ask::Newcomer));
    let mut queue: BTreeMap<(Duration, u32), Ask> = delivered.collect();
    let mut end = Backlog { calls: Vec::new(), order: Vec::new(), deferrals: 0 };
    let lateness = Sampler::seeded(7);
    while let Some(((now, number), ask)) = queue.pop_first() {
        let mut again = |wait: Duration, ask| {
            let late = Duration::from_secs(1).mul_f64(lateness.sample());
            queue.insert((now + wait + late, number), ask);
        };
        let admission = state.admit(limit, ask, limit.max_reservation, at(0) + now);
        end.deferrals += u32::from(!matches!(admission, Admission::Slot(_)));
        match admission {
            Admission::Slot(wait) => {
                end.calls.push(now + wait);
                if number.checked_rem(fails) == Some(0) && ask != Ask::Retry {
                    again(wait + Duration::from_secs(5), Ask::Retry);
                } else {
                    end.order.push(number);
                }
            }
            Admission::InLine(seat, call) => {
                let wait = call.duration_since(at(0) + now).unwrap_or_default();
                again(Duration::from_secs(wait.as_secs().clamp(1, 900)), Ask::Waited(seat));
            }
            Admission::Full => again(Duration::from_secs(1), ask),
            Admission::LineFull => again(Duration::from_secs(900), ask),
        }
    }
    end
}

#[test]
fn a_backlog_is_called_at_the_limit_and_in_its_order_also_if_some_of_it_fails() {
    // A message that returns finds that retries held the line back meanwhile, and waits again.
    for (calls, burst, fails, deferrals_each, seconds_moved) in [
        (50, 50, 0, 1.0, 1),
        (50, 1, 0, 1.0, 1),
        (5, 5, 0, 1.0, 1),
        (500, 500, 10, 2.5, 8),
        (50, 50, 5, 3.0, 8),
        (50, 1, 5, 3.0, 8),
        (5, 5, 3, 4.0, 8),
    ] {
        let limit = limit(calls, burst);
        let told = format!("{calls}/s, burst {burst}, one of {fails} fails");
        let Backlog { calls: made, order, deferrals } = backlog(&limit, calls * 200, fails);
        assert_within(&limit, &made);
        let at_limit = limit.interval() * u32::try_from(made.len()).expect("few");
        let took = *made.iter().max().expect("calls");
        assert!(took <= at_limit.mul_f64(1.0 / 0.97), "{told}: {took:?} instead of {at_limit:?}");
        let mean = f64::from(deferrals) / f64::from(calls * 200);
        assert!(mean <= deferrals_each, "{told}: {mean} deferrals");
        let passed = order.iter().scan(0, |latest, number| {
            *latest = *number.max(latest);
            Some(*latest - number)
        });
        let passed = passed.max().expect("calls");
        assert!(passed <= calls * seconds_moved, "{told}: called after {passed} later ones");
    }
}
