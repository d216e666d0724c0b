//! The gate and the line: each call within the limit, and a line that moves as calls are made.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::clock::Sampler;

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
    state.admit(limit, demand(ask, limit.max_reservation), at(now))
}

fn demand(ask: Ask, longest: Duration) -> Demand {
    Demand { ask, tenant: None, units: 1, longest }
}

#[test]
fn a_call_waits_for_its_first_unit_and_those_after_it_for_all() {
    let mut limit = limit(10, 1);
    let mut state = LimitState::default();
    let mut asks = |units, now| {
        let demand = Demand { units, ..demand(Ask::Retry, limit.max_reservation) };
        state.admit(&limit, demand, at(now))
    };
    let slots: Vec<_> = [3, 1, 10, 7, 1].into_iter().map(|units| asks(units, 0)).collect();
    let waits = [Some(0), Some(300), Some(400), Some(1_400), None];
    let expected =
        waits.map(|wait| wait.map_or(Admission::Full, |wait| Admission::Slot(millis(wait))));
    assert_eq!(slots, expected);
    assert_eq!(asks(1, 100), Admission::Slot(millis(2_000)));
    // A day's quota, all of it in one call, is no error of a clock.
    (limit.limit, limit.period, limit.has_units) = (1_000, Duration::from_hours(24), true);
    let mut state = LimitState::default();
    let all = Demand { units: 1_000, ..demand(Ask::Newcomer, limit.max_reservation) };
    assert_eq!(state.admit(&limit, all, at(0)), Admission::Slot(Duration::ZERO));
    for hours in [1, 12, 22] {
        let admission = state.admit(&limit, all, at(hours * 3_600_000));
        assert!(!matches!(admission, Admission::Slot(_)), "{hours}: {admission:?}");
    }
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
    let longest = state.admit(&limit, demand(Ask::Retry, millis(99)), at(2_100));
    assert_eq!(longest, Admission::Full, "this message can wait for less");
}

/// A line in which so many wait behind 21 slots, ten in a second.
fn busy(limit: &RateLimit, waiting: usize) -> (LimitState, Vec<(StartTag, SystemTime)>) {
    let mut state = LimitState::default();
    let mut line = Vec::new();
    while line.len() < waiting {
        if let Admission::InLine(tag, turn) = admit(&mut state, limit, Ask::Newcomer, 0) {
            line.push((tag, turn));
        }
    }
    (state, line)
}

#[test]
fn newcomers_join_the_line_if_the_gate_is_full_and_return_in_their_order() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    for slot in 0..=20 {
        let admission = admit(&mut state, &limit, Ask::Newcomer, 0);
        assert_eq!(admission, Admission::Slot(millis(slot * 100)));
    }
    let (state, line) = busy(&limit, 30);
    let turns: Vec<_> = line.iter().map(|(_, turn)| *turn).collect();
    // Half a second early.
    assert_eq!(turns, (0..30).map(|n| at(1_600 + n * 100)).collect::<Vec<_>>());
    assert!(line.is_sorted_by_key(|(tag, _)| *tag));
    assert_eq!(state.line.backlog(), 30);
}

#[test]
fn a_message_goes_to_the_gate_if_little_more_than_a_second_of_calls_comes_before_it() {
    let limit = limit(10, 1);
    let (mut state, line) = busy(&limit, 30);
    let mut waited = |n: usize, now| admit(&mut state, &limit, Ask::Waited(line[n].0), now);
    assert_eq!(waited(20, 1_100), Admission::InLine(line[20].0, at(3_600)));
    for n in 0..10 {
        let slot = 2_100 + u64::try_from(n).expect("few") * 100 - 1_100;
        assert_eq!(waited(n, 1_100), Admission::Slot(millis(slot)), "{n}");
    }
    assert_eq!(waited(20, 1_100), Admission::Slot(millis(2_000)), "ten are before it");
}

#[test]
fn a_retry_of_a_limit_that_is_not_fair_takes_a_slot_and_the_line_waits_for_it() {
    let limit = limit(10, 1);
    let (mut state, line) = busy(&limit, 30);
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 0), Admission::Full);
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 100), Admission::Slot(millis(2_000)));
    let waited = admit(&mut state, &limit, Ask::Waited(line[20].0), 100);
    assert_eq!(waited, Admission::InLine(line[20].0, at(3_700)));
}

#[test]
fn a_message_that_is_called_twice_makes_the_next_ones_early_until_the_gate_refuses_one() {
    let limit = limit(10, 1);
    let (mut state, line) = busy(&limit, 30);
    for _ in 0..10 {
        assert!(matches!(
            admit(&mut state, &limit, Ask::Waited(line[0].0), 2_100),
            Admission::Slot(_)
        ));
    }
    assert_eq!(state.line.backlog(), 20);
    // Eleven more get slots, so eighteen wait.
    let mut called = 0;
    for (tag, _) in &line[1..] {
        let admission = admit(&mut state, &limit, Ask::Waited(*tag), 2_100);
        called += u64::from(matches!(admission, Admission::Slot(_)));
    }
    let backlog = state.line.backlog();
    assert!(called == 11 && (12..=18).contains(&backlog), "{called} called, {backlog} wait");
}

#[test]
fn the_calls_of_messages_that_never_return_are_left_to_the_next_ones() {
    let limit = limit(10, 1);
    let (mut state, line) = busy(&limit, 30);
    // Only the last one returns, and finds the gate free.
    let admission = admit(&mut state, &limit, Ask::Waited(line[29].0), 4_000);
    assert_eq!(admission, Admission::Slot(Duration::ZERO));
    assert_eq!(state.line.backlog(), 30 - 1 - 19, "nobody used 1.9 s");
}

#[test]
fn a_pause_moves_nobody() {
    let limit = limit(10, 1);
    let (state, line) = busy(&limit, 30);
    let known = KnownLimit::own(&limit);
    for (n, (tag, _)) in (0..).zip(&line) {
        let turn = state.paused(&known, *tag, at(60_000), at(1_000));
        assert_eq!(turn, at(60_000 + n * 100));
    }
    let mut state = state.open_since(epoch_nanos(at(60_000)));
    admit(&mut state, &limit, Ask::Waited(line[0].0), 60_000);
    assert_eq!(state.line.backlog(), 29, "no call was missed in the pause");
    let joins = |state: &mut LimitState| admit(state, &limit, Ask::Joins(at(90_000)), 61_000);
    let Admission::InLine(_, turn) = joins(&mut state) else { panic!("joins") };
    assert_eq!(turn, at(90_000 + 2_900));
}

#[test]
fn a_start_tag_that_is_foreign_or_forged_counts_as_none() {
    let limit = limit(10, 1);
    for tag in [StartTag(0), StartTag(1), StartTag(u64::MAX)] {
        let mut state = LimitState::default();
        let admission = admit(&mut state, &limit, Ask::Waited(tag), 0);
        assert_eq!(admission, Admission::Slot(Duration::ZERO), "nobody waits");
    }
    let (mut state, line) = busy(&limit, 30);
    let forged = admit(&mut state, &limit, Ask::Waited(StartTag(u64::MAX)), 0);
    assert!(matches!(forged, Admission::InLine(tag, _) if tag > line[29].0), "{forged:?}");
}

#[test]
fn a_message_that_waited_by_its_visibility_goes_to_the_gate_and_otherwise_waits_as_the_last_one() {
    let limit = limit(10, 1);
    let (mut state, _) = busy(&limit, 30);
    let mut returned = |now| admit(&mut state, &limit, Ask::Returned, now);
    assert!(matches!(returned(0), Admission::InLine(_, turn) if turn == at(4_600)));
    assert_eq!(returned(100), Admission::Slot(millis(2_000)));
    assert_eq!(state.line.backlog(), 30);
}

#[test]
fn a_clock_that_was_set_back_stops_no_calls() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    while let Admission::Slot(_) = admit(&mut state, &limit, Ask::Newcomer, 86_400_000) {}
    assert_eq!(admit(&mut state, &limit, Ask::Retry, 0), Admission::Slot(Duration::ZERO));
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
    // Forty more wait, from 2.1 s on.
    let mut last = StartTag(0);
    for _ in 0..40 {
        if let Admission::InLine(tag, _) = admit(&mut state, &limit, Ask::Newcomer, 0) {
            last = tag;
        }
    }
    let waits = |state: &LimitState, now| {
        let mut state = *state;
        match admit(&mut state, &limit, Ask::Waited(last), now) {
            Admission::InLine(_, turn) => turn.duration_since(at(now)).expect("later"),
            other => panic!("{other:?}"),
        }
    };
    let whole = waits(&state, 0);
    let lower = state.refused(&KnownLimit::own(&limit), at(0), at(0)).expect("a change");
    // A pace that was refused once may soon be whole again.
    assert_eq!(waits(&lower, 0), whole);
    let lowest = (1..10).fold(lower, |state, second| {
        let now = at(second * 1_000);
        state.refused(&KnownLimit::own(&limit), now, now).expect("a change")
    });
    let waits = waits(&lowest.open_since(u64::MAX), 1_999);
    assert!(waits > Duration::from_secs(25), "{waits:?} instead of {whole:?}");
    // Slots come at a tenth of the limit now.
    let mut state = LimitState { line: FairQueue::default(), ..lowest };
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
                _ => Ask::Waited(StartTag(place)),
            };
            if let Admission::Slot(wait) = admit(&mut state, &limit, ask, now) {
                prop_assert!(wait <= limit.max_reservation);
                made.push(millis(now) + wait);
            }
        }
        assert_within(&limit, &made);
    }
}

#[test]
fn calls_that_nobody_made_leave_the_line_once_also_by_an_old_state() {
    let limit = limit(10, 1);
    let known = KnownLimit::own(&limit);
    let mut item = Item::default();
    let claims = |item: &mut Item, seen: &LimitState, ask, now| {
        let mut claim = Claim::new(&known, *seen, at(now));
        claim.take(demand(ask, limit.max_reservation));
        claim.update().apply(item)
    };
    for _ in 0..500 {
        let seen = LimitState::of(&item);
        assert!(claims(&mut item, &seen, Ask::Newcomer, 0));
    }
    let old = LimitState::of(&item);
    assert_eq!(old.line.backlog(), 479);
    // The gate has been free for 17.9 s.
    assert!(claims(&mut item, &old, Ask::Waited(StartTag(0)), 20_000));
    let seen = LimitState::of(&item);
    assert_eq!(seen.line.backlog(), 479 - 179 - 1);
    // It is free again.
    assert!(!claims(&mut item, &old, Ask::Waited(StartTag(0)), 20_200));
    assert!(claims(&mut item, &seen, Ask::Waited(StartTag(0)), 20_200));
    assert_eq!(LimitState::of(&item).line.backlog(), 479 - 179 - 1 - 1 - 1);
}

#[test]
fn a_burst_is_used_up_once_a_service_says_that_nothing_is_left() {
    let limit = RateLimit { headers: true, max_reservation: Duration::ZERO, ..limit(10, 30) };
    let (known, mut item) = (KnownLimit::own(&limit), Item::default());
    let calls = |item: &mut Item, now| {
        let admitted = (0..50).take_while(|_| {
            let mut claim = Claim::new(&known, LimitState::of(item), at(now));
            let share = claim.take(demand(Ask::Retry, limit.max_reservation));
            share != Share::Full && claim.update().apply(item)
        });
        admitted.count()
    };
    let allowance = |remaining| Allowance {
        limit: Some(100),
        remaining,
        resets_in: Duration::from_secs(60),
        counts_units: false,
    };
    let cap = |item: &mut Item, remaining, now| {
        let seen = LimitState::of(item);
        let next = seen.capped(&known, &[allowance(remaining)], at(now)).expect("a cap");
        assert!(seen.pace_update(&next).apply(item));
        assert_eq!(LimitState::of(item).tat, next.tat);
    };
    cap(&mut item, 0, 0);
    assert_eq!([0, 30_000, 59_900].map(|now| calls(&mut item, now)), [1, 0, 0]);
    assert_eq!(calls(&mut item, 63_000), 30, "the next allowance");
    // At the same pace, but without the 20 calls that the burst has left.
    assert_eq!(calls(&mut item, 64_000), 10);
    cap(&mut item, 3, 64_900);
    assert_eq!([64_900, 70_000, 86_000].map(|now| calls(&mut item, now)), [0, 1, 0]);
    assert_eq!([90_000, 110_000, 126_000].map(|now| calls(&mut item, now)), [1, 1, 30]);
    // At the same pace, but not thirty at once.
    let allowance = Allowance { resets_in: Duration::from_secs(1), ..allowance(10) };
    assert!(LimitState::default().capped(&known, &[allowance], at(0)).is_some());
}

proptest! {
    #[test]
    fn a_claim_changes_an_item_as_it_changes_the_state_whoever_was_faster(
        calls in 1_u32..50,
        burst in 1_u32..20,
        adaptive in any::<bool>(),
        is_fair in any::<bool>(),
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
            let (remaining, resets_in) = (place % 40, Duration::from_millis(10 * place));
            let allowance = Allowance { limit: None, remaining, resets_in, counts_units: false };
            let slower = match place % 2 {
                0 => seen.refused(&known, at(now), at(now)),
                _ => seen.capped(&known, &[allowance], at(now)),
            };
            if let Some(next) = slower.filter(|_| kind == 3) {
                let is_stale = LimitState::of(&item) != *seen;
                prop_assert!(seen.pace_update(&next).apply(&mut item) || is_stale);
                *seen = LimitState::of(&item);
            }
            for _ in 0..3 {
                let mut claim = Claim::new(&known, *seen, at(now));
                let tenant = is_fair.then_some(Tenant { hash: u32::from(kind) << 16, weight: 2 });
                let shares: Vec<_> = (0..=together).map(|_| {
                    let ask = match kind {
                        0 => Ask::Newcomer,
                        1 => Ask::Retry,
                        _ => Ask::Waited(StartTag(place)),
                    };
                    claim.take(Demand { tenant, ..demand(ask, limit.max_reservation) })
                }).collect();
                let before = LimitState::of(&item);
                let is_changed = claim.update().apply(&mut item);
                if is_changed {
                    *seen = claim.next(&before);
                    prop_assert_eq!(LimitState::of(&item), *seen);
                    for share in shares {
                        if let Admission::Slot(wait) = claim.admission(share, &before) {
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

/// A message of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    number: u32,
    tenant: u32,
}

/// What happened to the messages.
#[derive(Default)]
struct Ended {
    calls: Vec<Duration>,
    /// Each message and the time of its call, in the order of the calls.
    order: Vec<(Sent, Duration)>,
    deferrals: u32,
}

/// Messages with the times at which they come. One that waits is delivered again after whole seconds,
/// up to a second late. One in `fails` fails once, and is tried again after 5 s. A limit is fair if
/// tenants have weights.
fn run(
    limit: &RateLimit,
    sent: impl IntoIterator<Item = (Duration, Sent)>,
    fails: u32,
    weight: Option<fn(u32) -> u8>,
) -> Ended {
    let mut state = LimitState::default();
    let mut queue: BTreeMap<(Duration, Sent), Ask> =
        sent.into_iter().map(|message| (message, Ask::Newcomer)).collect();
    let mut end = Ended::default();
    let lateness = Sampler::seeded(7);
    while let Some(((now, message), ask)) = queue.pop_first() {
        let mut again = |wait: Duration, ask| {
            let late = Duration::from_secs(1).mul_f64(lateness.sample());
            queue.insert((now + wait + late, message), ask);
        };
        let tenant = weight.map(|weight| {
            let hash = message.tenant.wrapping_mul(0x9E37_79B9) ^ 0x5555_AAAA;
            Tenant { hash, weight: weight(message.tenant) }
        });
        let demand = Demand { tenant, ..demand(ask, limit.max_reservation) };
        let admission = state.admit(limit, demand, at(0) + now);
        end.deferrals += u32::from(!matches!(admission, Admission::Slot(_)));
        match admission {
            Admission::Slot(wait) => {
                end.calls.push(now + wait);
                if message.number.checked_rem(fails) == Some(0) && ask != Ask::Retry {
                    again(wait + Duration::from_secs(5), Ask::Retry);
                } else {
                    end.order.push((message, now + wait));
                }
            }
            Admission::InLine(tag, call) => {
                let wait = call.duration_since(at(0) + now).unwrap_or_default();
                again(Duration::from_secs(wait.as_secs().clamp(1, 900)), Ask::Waited(tag));
            }
            Admission::Full | Admission::Paused { .. } => again(Duration::from_secs(1), ask),
            Admission::LineFull => again(Duration::from_secs(900), ask),
        }
    }
    end
}

/// A backlog of a tenant, delivered in batches of ten, one each millisecond.
fn backlog(messages: u32, tenant: u32) -> impl Iterator<Item = (Duration, Sent)> {
    (0..messages).map(move |number| (millis(u64::from(number / 10)), Sent { number, tenant }))
}

#[test]
fn a_backlog_is_called_at_the_limit_and_in_its_order_also_if_some_of_it_fails() {
    // A message that returns finds that retries held the line back meanwhile, and waits again.
    for (calls, burst, fails, deferrals_each, seconds_moved) in [
        (50, 50, 0, 1.0, 1),
        (50, 1, 0, 1.0, 1),
        (5, 5, 0, 1.0, 1),
        (100, 100, 10, 2.5, 11),
        (50, 50, 5, 3.0, 11),
        (50, 1, 5, 3.0, 11),
        (5, 5, 3, 4.0, 11),
    ] {
        let limit = limit(calls, burst);
        let told = format!("{calls}/s, burst {burst}, one of {fails} fails");
        let Ended { calls: made, order, deferrals } =
            run(&limit, backlog(calls * 200, 0), fails, None);
        assert_within(&limit, &made);
        let at_limit = limit.interval() * u32::try_from(made.len()).expect("few");
        let took = *made.iter().max().expect("calls");
        let mean = f64::from(deferrals) / f64::from(calls * 200);
        let passed = order.iter().scan(0, |latest, (Sent { number, .. }, _)| {
            *latest = *number.max(latest);
            Some(*latest - number)
        });
        let passed = passed.max().expect("calls");
        assert!(took <= at_limit.mul_f64(1.0 / 0.97), "{told}: {took:?} instead of {at_limit:?}");
        assert!(mean <= deferrals_each, "{told}: {mean} deferrals");
        assert!(passed <= calls * seconds_moved, "{told}: called after {passed} later ones");
    }
}

/// The longest wait of the tenants but the first, and 99 % of their waits.
fn waits_of_others(sent: &[(Duration, Sent)], ended: &Ended) -> (Duration, Duration) {
    let came: BTreeMap<_, _> = sent.iter().map(|(at, message)| (*message, *at)).collect();
    let others = ended.order.iter().filter(|(message, _)| message.tenant > 0);
    let mut waits: Vec<_> =
        others.map(|(message, call)| call.saturating_sub(came[message])).collect();
    waits.sort_unstable();
    (waits[waits.len() * 99 / 100], waits[waits.len() - 1])
}

#[test]
fn a_tenant_that_sends_little_waits_little_behind_a_flood_of_another() {
    let limit = limit(50, 1);
    // The others send so many parts of the limit together.
    for (others, part, longest) in [(3, 30, 3), (1_000, 30, 3), (100, 90, 6)] {
        let count = 100 * 50 * part / 100;
        let of_others = (0..count).map(|number| {
            let at = Duration::from_secs(100).mul_f64(f64::from(number) / f64::from(count));
            (at, Sent { number: 1_000_000 + number, tenant: 1 + number % others })
        });
        let sent: Vec<_> = backlog(5_000, 0).chain(of_others).collect();
        let ended = run(&limit, sent.iter().copied(), 0, Some(|_| 1));
        assert_within(&limit, &ended.calls);
        let (most, last) = waits_of_others(&sent, &ended);
        let deferrals = f64::from(ended.deferrals) / f64::from(5_000 + count);
        let at_limit = limit.interval() * u32::try_from(ended.calls.len()).expect("few");
        let took = *ended.calls.iter().max().expect("calls");
        let told = format!("{others} others, {part} % of the limit");
        assert!(most <= Duration::from_secs(4), "{told}: 99 % within {most:?}");
        assert!(last <= Duration::from_secs(longest), "{told}: {last:?}");
        assert!(deferrals <= 4.5, "{told}: {deferrals} deferrals");
        assert!(took <= at_limit.mul_f64(1.0 / 0.97), "{took:?} instead of {at_limit:?}");
    }
}

#[test]
fn backlogs_share_the_limit_by_their_weights() {
    let limit = limit(50, 1);
    for (tenants, weight) in
        [(4, (|tenant| [1, 1, 2, 4][tenant as usize]) as fn(u32) -> u8), (20, |_| 1), (100, |_| 1)]
    {
        let each = 10_000 / tenants;
        let sent = (0..tenants).flat_map(|tenant| backlog(each, tenant));
        let ended = run(&limit, sent, 0, Some(weight));
        // As long as all have messages.
        let heaviest = (0..tenants).map(weight).max().expect("tenants");
        let all: u32 = (0..tenants).map(|tenant| u32::from(weight(tenant))).sum();
        let calls = each / u32::from(heaviest) * all * 9 / 10;
        let mut order = ended.order.clone();
        order.sort_unstable_by_key(|(_, at)| *at);
        let mut made: BTreeMap<u32, u32> = BTreeMap::new();
        for (message, _) in order.iter().take(calls.try_into().expect("few")) {
            *made.entry(message.tenant).or_default() += 1;
        }
        let off = made.into_iter().map(|(tenant, made)| {
            let share = f64::from(calls) * f64::from(weight(tenant)) / f64::from(all);
            (f64::from(made) / share - 1.0).abs()
        });
        let worst = off.fold(0.0, f64::max);
        assert!(worst <= 0.03, "{tenants} tenants: {worst}");
    }
}
