//! What one call makes of the next: pause, circuit breaker and probes, step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::*;
use crate::delay::Wait;
use crate::delivery::{Decoder, Delivery};
use crate::disposition::Deferral::{CircuitOpen, Paused};
use crate::disposition::{Disposition, Strategy};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::policy::{CircuitBreaker, RetryPolicy};
use crate::queue::Record;
use crate::scope::Scope;
use crate::sender::{Senders, TrustedSenders};
use crate::settings::DeadLetterMode;

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + secs)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn paused(why: Deferral, rest: u64) -> NotPermitted {
    NotPermitted { why, rest: secs(rest) }
}

/// Pauses of 60 s at most, a circuit that opens at the third failure for 30 s.
fn protection() -> Arc<Protection> {
    protection_from(3)
}

fn protection_from(threshold: u32) -> Arc<Protection> {
    let breaker = CircuitBreaker { threshold, reset_timeout: secs(30) };
    Protection::new(&RetryPolicy { circuit_breaker: Some(breaker), ..RetryPolicy::default() })
}

const ALL: Scope = Scope(None);

/// A message that nobody has met before.
fn somebody() -> Caller {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    Caller { message: COUNT.fetch_add(1, Ordering::Relaxed), failures: 0, since: at(0) }
}

trait Steps {
    fn enter(&self, now: u64) -> Permit;
    fn refused(&self, now: u64) -> NotPermitted;
    fn call(&self, now: u64, reply: Reply) -> Option<Change>;
}

impl Steps for Arc<Protection> {
    /// Whichever kind of message.
    fn enter(&self, now: u64) -> Permit {
        let other = Caller { failures: 1, ..somebody() };
        let admitted =
            self.admit(ALL, somebody(), at(now)).or_else(|_| self.admit(ALL, other, at(now)));
        admitted.unwrap_or_else(|paused| panic!("at {now}: {paused:?}"))
    }

    fn refused(&self, now: u64) -> NotPermitted {
        self.admit(ALL, somebody(), at(now))
            .err()
            .unwrap_or_else(|| panic!("at {now} it is let through"))
    }

    fn call(&self, now: u64, reply: Reply) -> Option<Change> {
        self.enter(now).give_back(reply, at(now)).change
    }
}

#[test]
fn a_pause_lasts_as_long_as_it_was_asked_for_and_no_longer_than_allowed() {
    for (named, lasts) in [(1, 1), (59, 59), (60, 60), (61, 60), (21_600, 60), (u64::MAX, 60)] {
        let protection = protection();
        let change = protection.call(0, Reply::Paused(secs(named)));
        assert_eq!(change, Some(Change::Paused { was_open: false }));
        assert_eq!(protection.refused(0), paused(Paused, lasts), "{named}");
        assert_eq!(protection.refused(lasts - 1), paused(Paused, 1), "{named}");
        drop(protection.enter(lasts));
    }
}

#[test]
fn calls_that_were_made_together_begin_one_pause() {
    let protection = protection();
    let calls = [(0, 30, true), (1, 30, false), (4, 20, false), (4, 59, true)];
    for ((now, length, is_new), permit) in calls.map(|call| (call, protection.enter(0))) {
        let Noted { change, rest, .. } = permit.give_back(Reply::Paused(secs(length)), at(now));
        assert_eq!(change, is_new.then_some(Change::Paused { was_open: false }), "{now} {length}");
        assert_eq!(rest, secs(length.max(if now == 4 { 27 } else { 0 })), "{now} {length}");
    }
}

#[test]
fn after_a_pause_one_message_probes_and_the_others_wait_for_its_answer() {
    for (reply, then) in [
        (Reply::Alive, None),
        (Reply::Down, None),
        (Reply::Paused(secs(7)), Some(paused(Paused, 7))),
        // The next one probes.
        (Reply::Uncalled, None),
        // The next one probes a while later.
        (Reply::Silent, Some(paused(Paused, 1))),
    ] {
        let protection = protection();
        protection.call(0, Reply::Paused(secs(10)));
        let probe = protection.enter(10);
        assert_eq!(protection.refused(15), paused(Paused, 0));
        assert_eq!(protection.refused(3_600), paused(Paused, 0));
        probe.give_back(reply, at(15));
        let next = protection.admit(ALL, somebody(), at(15));
        assert_eq!(next.as_ref().err().copied(), then, "{reply:?}");
        let is_probing = reply == Reply::Uncalled;
        assert_eq!(
            then.is_none() && protection.admit(ALL, somebody(), at(15)).is_err(),
            is_probing,
            "{reply:?}"
        );
    }
}

#[test]
fn a_pause_after_which_nobody_came_is_forgotten_and_an_open_circuit_is_not() {
    for (now, is_free) in [(19, false), (20, true)] {
        let protection = protection();
        protection.call(0, Reply::Paused(secs(10)));
        let first = protection.enter(now);
        assert_eq!(protection.admit(ALL, somebody(), at(now)).is_ok(), is_free, "{now}");
        drop(first);
    }
    let protection = protection();
    for _ in 0..3 {
        protection.call(0, Reply::Down);
    }
    let probes = [0; 3].map(|_| protection.enter(86_400));
    assert_eq!(protection.refused(86_400), paused(CircuitOpen, 0));
    drop(probes);
}

#[test]
fn a_probe_of_which_nobody_hears_leaves_its_place_to_the_next() {
    let protection = protection();
    protection.call(0, Reply::Paused(secs(10)));
    for _ in 0..3 {
        let probe = protection.enter(10);
        assert_eq!(protection.refused(10), paused(Paused, 0));
        drop(probe);
    }
}

/// A circuit that opened at 0 s, for one second.
fn open() -> Arc<Protection> {
    let protection = protection();
    for _ in 0..3 {
        protection.call(0, Reply::Down);
    }
    protection
}

#[test]
fn failures_in_a_row_open_the_circuit_and_the_first_probe_that_is_answered_closes_it() {
    let protection = protection();
    for _ in 0..2 {
        protection.call(0, Reply::Down);
    }
    protection.call(0, Reply::Alive);
    let changes = [0, 0, 0].map(|now| protection.call(now, Reply::Down));
    assert_eq!(changes, [None, None, Some(Change::Opened)], "the third in a row");
    assert_eq!(protection.refused(0), paused(CircuitOpen, 1));
    let [first, second, third] = [1; 3].map(|now| protection.enter(now));
    assert_eq!(protection.refused(2), paused(CircuitOpen, 0), "three probe");
    assert_eq!(first.give_back(Reply::Down, at(2)).change, None);
    assert_eq!(protection.refused(2), paused(CircuitOpen, 0), "the others are not back yet");
    assert_eq!(
        second.give_back(Reply::Alive, at(2)).change,
        Some(Change::Closed),
        "any success is enough"
    );
    assert_eq!(third.give_back(Reply::Down, at(2)).change, None);
    drop([2; 100].map(|now| protection.enter(now)));
}

#[test]
fn a_circuit_whose_probes_all_fail_stays_open_for_longer_up_to_the_reset_timeout() {
    let answers_some = protection();
    for _ in 0..200 {
        answers_some.call(0, Reply::Down);
        answers_some.call(0, Reply::Alive);
    }
    while answers_some.call(0, Reply::Down).is_none() {}
    // In the end, in turn one that failed before, after 30 s, and one that did not, for which the
    // other one waits until 60 s.
    let nothing = vec![(1, 3), (3, 3), (9, 3), (27, 3), (30, 1), (30, 1)];
    // Six failures open it, and 41 rounds later none of its last 128 calls was answered.
    let some = [&[(1, 3), (3, 3), (9, 3)], &[(10, 3); 38][..], &[(30, 1), (30, 1)]].concat();
    for (protection, expected) in [(open(), nothing), (answers_some, some)] {
        let mut now = 0;
        for round in expected {
            let rest = protection.refused(now).rest.as_secs();
            now += rest;
            let mut probes: Vec<Permit> = Vec::new();
            // As many of either kind as are let through.
            for has_failed in [false, true].repeat(5) {
                probes.extend(protection.admit(
                    ALL,
                    Caller { failures: has_failed.into(), ..somebody() },
                    at(now),
                ));
            }
            assert_eq!((rest, probes.len()), round);
            for probe in probes {
                assert_eq!(
                    probe.give_back(Reply::Down, at(now)).change,
                    None,
                    "it was open already"
                );
            }
        }
        assert_eq!(protection.refused(now).why, CircuitOpen);
    }
}

/// Failures in a row that open the circuit of a service that responded to one call of so many.
fn row_that_opens(threshold: u32, of: u32) -> Option<u32> {
    let protection = protection_from(threshold);
    for n in 1..=1_000 * of {
        // As though by messages that were called in spite of an open circuit.
        let reply = if n % of == 0 { Reply::Alive } else { Reply::Down };
        protection.permit(ALL, somebody()).give_back(reply, at(0));
        if protection.admit(ALL, somebody(), at(0)).is_err() {
            protection.call(3_600, Reply::Alive);
        }
    }
    (1..100).find(|_| protection.call(7_200, Reply::Down) == Some(Change::Opened))
}

#[test]
fn a_row_opens_the_circuit_when_it_is_too_long_for_chance() {
    // of so many calls one is answered; so many failures in a row that open the circuit then, where
    // three do at first
    for (of, row) in [(1, 3), (2, 6), (4, 12), (10, 29), (50, 29)] {
        assert_eq!(row_that_opens(3, of), Some(row), "one of {of}");
    }
}

#[test]
fn the_page_on_protection_has_the_numbers_of_the_code() {
    let page = include_str!("../../docs/concepts/protection.md");
    let policy = RetryPolicy::default();
    let breaker = policy.circuit_breaker.clone().expect("it is on");
    let secs = |time: Duration| time.as_secs();
    let opens =
        |of| row_that_opens(breaker.threshold, of).map_or_else(String::new, |n| n.to_string());
    for (first, second) in [
        ("all of its last 128 calls", opens(1)),
        ("half of its last 128 calls", opens(2)),
        ("at most a tenth of its last 128 calls", opens(50)),
    ] {
        let row = format!("| {first} | {second} ");
        assert!(page.lines().any(|line| line.starts_with(&row)), "the page lacks: {row}");
    }
    let text = page.replace('\n', " ");
    for said in [
        format!("`maxPauseSeconds` ({})", secs(policy.max_pause.expect("it is on"))),
        format!("{} (`threshold`)", breaker.threshold),
        format!("every {} s (`resetTimeoutSeconds`)", secs(breaker.reset_timeout)),
        format!("`maxDeferrals` ({})", policy.max_deferrals),
        format!("`maxDeferralSeconds` ({})", secs(policy.max_deferral)),
    ] {
        assert!(text.contains(&said), "the page lacks: {said}");
    }
}

/// How a service behaves for a while.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It answers this number of calls.
    Works(u32),
    /// It gets 1,000 calls and answers one of this number.
    AnswersOneOf(u32),
    /// It fails. A row of the first number opens the circuit, all probes of the second number of
    /// rounds fail, and the next probe closes it.
    Down(u32, u32),
}
use Phase::{AnswersOneOf, Down, Works};

#[test]
fn a_service_that_works_again_after_an_outage_is_cut_off_by_a_row_as_short_as_before() {
    for phases in [
        vec![Works(128), Down(5, 0), Works(20), Down(5, 0), Works(20), Down(5, 0)],
        // The length of an outage makes no difference.
        vec![Works(128), Down(5, 100), Works(20), Down(5, 100), Works(128), Down(5, 0)],
        // It takes 16 answers in a row, of which the probe that closed the circuit is one.
        vec![Down(5, 0), Down(49, 0)],
        vec![Down(5, 0), Works(14), Down(42, 0)],
        vec![Down(5, 0), Works(15), Down(5, 0)],
        // A service that answers some calls is known by them.
        vec![AnswersOneOf(2), Down(10, 0)],
        vec![Down(5, 0), AnswersOneOf(2), Down(10, 0)],
        vec![AnswersOneOf(10), Down(49, 0), Works(14), Down(29, 0)],
        vec![AnswersOneOf(10), Down(49, 0), Works(15), Down(5, 0)],
    ] {
        let protection = protection_from(5);
        let mut now = 0;
        for (number, phase) in phases.iter().enumerate() {
            match *phase {
                Works(calls) => {
                    for _ in 0..calls {
                        assert_eq!(protection.call(now, Reply::Alive), None);
                    }
                }
                AnswersOneOf(of) => {
                    for n in 1..=1_000 {
                        // The minute lets a call through even while the circuit is open.
                        let reply = if n % of == 0 { Reply::Alive } else { Reply::Down };
                        now += 60;
                        protection.call(now, reply);
                    }
                }
                Down(row, rounds) => {
                    let opened = (1..100)
                        .find(|_| protection.call(now, Reply::Down) == Some(Change::Opened));
                    assert_eq!(opened, Some(row), "{number} of {phases:?}");
                    for _ in 0..rounds {
                        now += 60;
                        for has_failed in [false, true].repeat(3) {
                            let caller = Caller { failures: has_failed.into(), ..somebody() };
                            if let Ok(probe) = protection.admit(ALL, caller, at(now)) {
                                assert_eq!(probe.give_back(Reply::Down, at(now)).change, None);
                            }
                        }
                    }
                    now += 60;
                    assert_eq!(
                        protection.call(now, Reply::Alive),
                        Some(Change::Closed),
                        "{number} of {phases:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_message_that_always_fails_opens_no_circuit_by_itself() {
    let protection = protection();
    let [one, other] = [somebody(), somebody()];
    for caller in [one, one, other, one, other, other, one] {
        let permit =
            protection.admit(ALL, caller, at(0)).unwrap_or_else(|paused| panic!("{paused:?}"));
        assert_eq!(permit.give_back(Reply::Down, at(0)).change, None);
    }
    assert_eq!(protection.call(0, Reply::Down), Some(Change::Opened), "a third one does");
}

#[test]
fn of_three_probes_one_is_for_messages_that_failed_before_and_one_for_those_that_did_not() {
    for has_failed in [false, true] {
        let protection = open();
        let admit = |has_failed: bool, now| {
            protection.admit(ALL, Caller { failures: has_failed.into(), ..somebody() }, at(now))
        };
        let two =
            [1; 2].map(|now| admit(has_failed, now).unwrap_or_else(|paused| panic!("{paused:?}")));
        assert_eq!(
            admit(has_failed, 1).err(),
            Some(paused(CircuitOpen, 1)),
            "the third one is for the others"
        );
        assert_eq!(
            protection.pauses(at(1)),
            [(ALL, paused(CircuitOpen, 0))],
            "so a probe is due, as the list says"
        );
        for probe in two {
            assert_eq!(probe.give_back(Reply::Down, at(1)).change, None);
        }
        assert!(admit(!has_failed, 1).is_ok(), "it is, whatever came of the first two");
        assert!(admit(has_failed, 2).is_ok(), "and theirs when no other came for as long again");
    }
}

#[test]
fn a_probe_waits_for_no_new_message_if_none_comes() {
    // A message that failed always waits, as long as probes fail.
    for (has_failed, last) in [(true, [30, 30]), (false, [30, 60])] {
        let (protection, mut now, mut probes) = (open(), 0, Vec::new());
        while probes.len() < 20 {
            let caller = Caller { failures: has_failed.into(), ..somebody() };
            match protection.admit(ALL, caller, at(now)) {
                Ok(probe) => {
                    probe.give_back(Reply::Down, at(now));
                    probes.push(now);
                }
                Err(refused) => now += refused.rest.as_secs(),
            }
        }
        let times: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut of_two = [times[17], times[18]];
        of_two.sort_unstable();
        assert_eq!(of_two, last, "{times:?}");
    }
}

#[test]
fn a_pause_takes_any_message_for_its_probe() {
    for has_failed in [false, true] {
        let protection = protection();
        protection.call(0, Reply::Paused(secs(10)));
        let caller = Caller { failures: has_failed.into(), ..somebody() };
        assert_eq!(protection.admit(ALL, caller, at(0)).err(), Some(paused(Paused, 10)));
        assert!(protection.admit(ALL, caller, at(10)).is_ok());
    }
}

#[test]
fn probes_of_which_nobody_hears_leave_their_places_to_others() {
    let protection = open();
    for lost in 1..=3 {
        let mut probes = [1; 3].map(|now| Some(protection.enter(now)));
        assert_eq!(protection.refused(1), paused(CircuitOpen, 0));
        for probe in probes.iter_mut().take(lost) {
            drop(probe.take());
        }
        let others: Vec<Permit> = (0..lost).map(|_| protection.enter(2)).collect();
        assert_eq!(protection.refused(2), paused(CircuitOpen, 0), "{lost}");
        drop(others);
    }
    assert_eq!(protection.call(2, Reply::Alive), Some(Change::Closed));
}

#[test]
fn a_circuit_that_gives_way_to_a_pause_is_closed() {
    for (early, pause, changed) in [(true, 40, true), (true, 1, false), (false, 40, true)] {
        let protection = protection();
        let before = protection.enter(0);
        for _ in 0..3 {
            protection.call(0, Reply::Down);
        }
        let probe = protection.enter(1);
        let (permit, now) = if early { (before, 0) } else { (probe, 1) };
        let change = permit.give_back(Reply::Paused(secs(pause)), at(now)).change;
        let paused = Change::Paused { was_open: true };
        assert_eq!(change, changed.then_some(paused), "{early} {pause}");
        let why = protection.admit(ALL, somebody(), at(now)).err().map(|paused| paused.why);
        assert_eq!(why, Some(if changed { Paused } else { CircuitOpen }), "{early} {pause}");
    }
}

#[test]
fn the_calls_after_an_open_circuit_grow_for_seven_seconds_after_it_or_after_a_pause_that_follows_it()
 {
    let calls = |protection: &Protection, now| {
        protection.recovery(ALL, at(now)).map(|recovery| recovery.limit.limit)
    };
    let grow = |protection: &Protection, from: u64| {
        let grown = (from..from + 8).map(|now| calls(protection, now));
        let expected = [10, 20, 40, 80, 160, 320, 640].map(Some);
        assert!(grown.eq(expected.into_iter().chain([None])), "from {from}");
    };
    let protection = open();
    assert_eq!(calls(&protection, 0), None, "it is open");
    protection.call(1, Reply::Alive);
    // As many successes as make a service one that responds to all.
    let _ = [1; 20].map(|now| protection.call(now, Reply::Alive));
    grow(&protection, 1);
    protection.call(8, Reply::Alive);
    assert!(protection.scopes().is_empty(), "nothing remains to be remembered");

    let protection = open();
    protection.call(1, Reply::Paused(secs(20)));
    protection.call(21, Reply::Alive);
    grow(&protection, 21);

    let protection = open();
    protection.call(1, Reply::Alive);
    protection.call(2, Reply::Paused(secs(2)));
    assert_eq!(calls(&protection, 6), Some(320), "a pause that lapsed does not end it");
    drop(protection.enter(6));
    assert_eq!(calls(&protection, 6), Some(320));

    let protection = self::protection();
    protection.call(0, Reply::Paused(secs(1)));
    protection.call(1, Reply::Alive);
    assert_eq!(calls(&protection, 1), None, "it was not down");
    assert_eq!(Recovery::since(100_000_000_000, 1), None, "a clock that was set back");
}

/// Whatever comes when: no more probes than permitted are on their way, a circuit says in turn that
/// it opened and closed, and one whose service answers again closes.
#[test]
fn a_circuit_never_lets_more_through_than_permitted_and_never_stays_open_for_ever() {
    let mut state = 11_u64;
    let mut roll = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let protection = protection();
        // Each with the circuit during which it began, if one was open.
        let mut permits: Vec<(Option<u64>, Permit)> = Vec::new();
        let (mut now, mut is_open, mut circuits) = (0, false, 0);
        let availability = roll(100);
        for _ in 0..300 {
            now += roll(2) * roll(40);
            let caller = Caller { failures: (roll(2) == 0).into(), ..somebody() };
            let admitted = protection.admit(ALL, caller, at(now));
            assert!(is_open || admitted.is_ok(), "closed, and yet paused");
            permits.extend(admitted.ok().map(|permit| (is_open.then_some(circuits), permit)));
            while !permits.is_empty() && roll(10) < 6 {
                let last = permits.len() - 1;
                permits.rotate_left(usize::from(last > 0));
                let Some((_, permit)) = permits.pop().filter(|_| roll(10) > 0) else { continue };
                let reply = if roll(100) < availability { Reply::Alive } else { Reply::Down };
                let change = permit.give_back(reply, at(now)).change;
                assert_eq!(
                    change.is_some(),
                    change == Some(if is_open { Change::Closed } else { Change::Opened })
                );
                is_open ^= change.is_some();
                circuits += u64::from(change.is_some());
            }
            let probes =
                permits.iter().filter(|(circuit, _)| is_open && *circuit == Some(circuits)).count();
            assert!(probes <= 3, "{probes} probes");
        }
        permits.clear();
        assert_eq!(protection.call(now + 3_600, Reply::Alive), is_open.then_some(Change::Closed));
    }
}

#[test]
fn what_says_nothing_about_the_callee_neither_opens_nor_closes() {
    let protection = protection();
    for reply in [Reply::Down, Reply::Silent, Reply::Down, Reply::Silent, Reply::Silent] {
        protection.call(0, reply);
    }
    protection.call(0, Reply::Down);
    assert_eq!(protection.refused(0), paused(CircuitOpen, 1));
}

/// In a minute, one a second after the first open time.
#[test]
fn probes_that_say_nothing_about_the_callee_stay_few() {
    let protection = protection();
    for number in 0..3 {
        protection.call(number, Reply::Down);
    }
    let (mut probes, mut tenths) = (0, 0);
    while tenths < 600 {
        while let Ok(probe) = protection.admit(ALL, somebody(), at(0) + secs(1) / 10 * tenths) {
            probe.give_back(Reply::Silent, at(0) + secs(1) / 10 * tenths);
            probes += 1;
        }
        tenths += 1;
    }
    assert_eq!(probes, 59);
}

#[test]
fn calls_that_began_before_a_hold_do_not_end_it_but_may_make_it_longer() {
    for (reply, rest) in [
        (Reply::Alive, 10),
        (Reply::Down, 10),
        (Reply::Silent, 10),
        (Reply::Paused(secs(5)), 10),
        (Reply::Paused(secs(40)), 40),
    ] {
        let protection = protection();
        let (first, second) = (protection.enter(0), protection.enter(0));
        first.give_back(Reply::Paused(secs(10)), at(0));
        second.give_back(reply, at(0));
        assert_eq!(protection.refused(0), paused(Paused, rest), "{reply:?}");
    }
}

#[test]
fn a_probe_of_an_earlier_hold_does_not_speak_for_the_next() {
    let protection = protection();
    let early = protection.enter(0);
    protection.call(0, Reply::Paused(secs(10)));
    let probe = protection.enter(10);
    early.give_back(Reply::Paused(secs(20)), at(10));
    probe.give_back(Reply::Alive, at(10));
    assert_eq!(protection.refused(10), paused(Paused, 20));
}

#[test]
fn a_probe_that_outlasted_its_hold_does_not_speak_for_one_after_a_recovery() {
    for reply in [Reply::Alive, Reply::Down, Reply::Silent] {
        let protection = protection();
        let early = protection.enter(0);
        protection.call(0, Reply::Paused(secs(10)));
        let old = protection.enter(10);
        early.give_back(Reply::Paused(secs(20)), at(10));
        protection.call(30, Reply::Alive);
        protection.call(31, Reply::Paused(secs(10)));
        let probe = protection.enter(41);
        old.give_back(reply, at(41));
        assert_eq!(
            protection.refused(41),
            paused(Paused, 0),
            "{reply:?}: the probe is still on its way"
        );
        probe.give_back(Reply::Alive, at(42));
        drop((protection.enter(42), protection.enter(42)));
    }
}

#[test]
fn the_holds_of_all_scopes_are_listed_until_they_lapse() {
    let protection = protection();
    let tenant = Scope::of("tenant");
    for scope in [ALL, tenant] {
        protection.permit(scope, somebody()).give_back(Reply::Paused(secs(10)), at(0));
    }
    protection.permit(Scope::of("other"), somebody()).give_back(Reply::Alive, at(0));
    let listed = |now| {
        let mut pauses = protection.pauses(at(now));
        pauses.sort_by_key(|(scope, _)| scope.to_string());
        pauses
    };
    for (now, rest) in [(0, 10), (9, 1), (10, 0), (19, 0)] {
        let pause = paused(Paused, rest);
        assert_eq!(listed(now), [(ALL, pause), (tenant, pause)], "{now}");
    }
    assert_eq!(listed(20), []);
}

#[test]
fn scopes_do_not_know_each_other() {
    let protection = protection();
    let [one, other] = ["one", "other"].map(Scope::of);
    protection.permit(one, somebody()).give_back(Reply::Paused(secs(10)), at(0));
    assert!(protection.admit(one, somebody(), at(0)).is_err());
    assert!(
        protection.admit(other, somebody(), at(0)).is_ok()
            && protection.admit(ALL, somebody(), at(0)).is_ok()
    );
}

#[test]
fn the_failures_of_a_scope_are_counted_whatever_others_come_between() {
    let protection = protection();
    let down = |scope| {
        protection.permit(Scope::of(scope), somebody()).give_back(Reply::Down, at(0)).change
    };
    let changes = ["one", "other", "one", "another", "one"].map(down);
    assert_eq!(changes, [None, None, None, None, Some(Change::Opened)]);
}

#[test]
fn a_clock_that_is_set_back_makes_no_pause_longer_than_it_was_meant_to_be() {
    let protection = protection();
    protection.call(3_600, Reply::Paused(secs(10)));
    assert_eq!(protection.refused(0), paused(Paused, 10));
    assert_eq!(protection.refused(9), paused(Paused, 1));
    drop(protection.enter(10));
}

#[test]
fn a_pause_that_lasts_no_longer_than_the_one_that_is_on_lets_no_second_message_probe() {
    let protection = protection();
    let (first, second) = (protection.enter(0), protection.enter(0));
    first.give_back(Reply::Paused(secs(10)), at(0));
    let _probe = protection.enter(10);
    second.give_back(Reply::Paused(secs(0)), at(10));
    assert_eq!(protection.refused(10), paused(Paused, 0));
}

#[test]
fn either_can_be_switched_off() {
    let off = RetryPolicy { max_pause: None, circuit_breaker: None, ..RetryPolicy::default() };
    let protection = Protection::new(&off);
    for _ in 0..100 {
        protection.call(0, Reply::Paused(secs(10)));
        protection.call(0, Reply::Down);
    }
}

#[test]
fn scopes_beyond_a_bound_are_not_protected_until_others_have_recovered() {
    let protection = protection();
    let pause = |key: u32| {
        protection
            .permit(Scope::of(key.to_string()), somebody())
            .give_back(Reply::Paused(secs(10)), at(0));
        protection.admit(Scope::of(key.to_string()), somebody(), at(0)).is_err()
    };
    assert_eq!((0..10_001).filter(|key| pause(*key)).count(), 10_000);
    protection.permit(Scope::of("10001"), somebody()).give_back(Reply::Paused(secs(10)), at(10));
    assert!(protection.admit(Scope::of("10001"), somebody(), at(10)).is_err());
}

#[test]
fn failures_say_of_their_callee_what_they_can() {
    let of = |class, evidence| Failure::new(class, evidence, "x");
    for (failure, expected) in [
        (Failure::rate_limit("x").retry_after(secs(3)), Reply::Paused(secs(3))),
        (Failure::quota("x").retry_after(secs(3)), Reply::Paused(secs(3))),
        (Failure::rate_limit("x"), Reply::Refused),
        (Failure::quota("x"), Reply::Refused),
        (Failure::non_retryable("x"), Reply::Alive),
        (Failure::postpone(secs(21_600)), Reply::Alive),
        (Failure::temporary("x"), Reply::Down),
        (Failure::temporary("x").retry_after(secs(3)), Reply::Down),
        (of(FailureClass::Temporary, Evidence::Typed), Reply::Down),
        (of(FailureClass::Temporary, Evidence::Text), Reply::Down),
        (Failure::temporary("x").service_down(), Reply::Unavailable),
        (of(FailureClass::Temporary, Evidence::TimeOut), Reply::Unavailable),
        (of(FailureClass::Temporary, Evidence::Panic), Reply::Silent),
        (of(FailureClass::Temporary, Evidence::Unrecognised), Reply::Silent),
        (of(FailureClass::Temporary, Evidence::Connection), Reply::Silent),
        (of(FailureClass::NonRetryable, Evidence::Body), Reply::Silent),
    ] {
        assert_eq!(Reply::of(&failure), expected, "{failure:?}");
    }
}

#[test]
fn a_message_whose_sender_nobody_can_verify_yet_waits_in_its_place() {
    const OURS: &str = r#"{"retryCount":1,"originalMessageId":"x","retryTimestamp":"2026-11-21T03:12:52.477Z","retryState":{"v":1}}"#;
    let senders =
        TrustedSenders { own: true, ids: vec!["AROAEXAMPLEOPERATOR01".parse().expect("an id")] };
    let decoder =
        Decoder { max_retries: 5, senders: Some(Senders::new(senders)), ..Decoder::default() };
    for (sender, body, waits) in [
        ("AROAEXAMPLEREQUEUE001:function", OURS, true),
        ("AROAEXAMPLEREQUEUE001:function", "{}", false),
        ("AROAEXAMPLEOPERATOR01:me", OURS, false),
        // Not trusted in any case.
        ("", OURS, false),
    ] {
        let mut record = Record::default();
        (record.sender, record.body) = (sender.parse().ok(), Some(body.to_owned()));
        let delivery = Delivery::decode(0, record, at(0), &decoder);
        let policy = RetryPolicy::default();
        let gated =
            gate(&policy, &DeadLetterMode::Redrive, &delivery, None, at(0), TimeLeft::Enough, 0.0);
        let wait = Disposition::Defer {
            reason: Deferral::SenderUnknown,
            wait: Wait::from(secs(60), at(0)),
        };
        assert_eq!(gated, waits.then_some(wait), "{sender} {body}");
        assert_eq!(delivery.strategy == Strategy::Visibility, waits, "{sender} {body}");
    }
}

#[test]
fn a_success_despite_a_hold_closes_an_open_circuit_and_ends_no_pause() {
    let failing = |reply| {
        let protection = protection();
        for _ in 0..20 {
            protection.permit(ALL, somebody()).give_back(reply, at(0));
        }
        protection
    };
    let circuit = failing(Reply::Down);
    let before = circuit.permit(ALL, somebody());
    assert_eq!(
        before.give_back(Reply::Alive, at(0)).change,
        None,
        "it may have begun before the pause"
    );
    let despite = circuit.permit_despite(ALL, somebody());
    assert_eq!(despite.give_back(Reply::Alive, at(0)).change, Some(Change::Closed));
    let paused = failing(Reply::Paused(secs(10)));
    paused.permit_despite(ALL, somebody()).give_back(Reply::Alive, at(0));
    assert_eq!(paused.pauses(at(1)).len(), 1);
}

/// A message that called so often in vain before, in other environments.
fn known(message: u64, failures: u32) -> Caller {
    Caller { message, failures, since: at(0) }
}

#[test]
fn few_messages_are_enough_for_failures_that_speak_of_the_service() {
    // what the calls of so many messages say, in turn; the least wait after the last of them
    for (replies, messages, waits) in [
        (&[Reply::Unavailable; 2][..], 1, None),
        (&[Reply::Unavailable; 3], 1, Some(30)),
        (&[Reply::Unavailable; 9], 1, Some(30)),
        (&[Reply::Unavailable; 4], 2, Some(60)),
        (&[Reply::Refused; 3], 1, Some(0)),
        (&[Reply::Down; 9], 1, None),
        (&[Reply::Unavailable, Reply::Alive, Reply::Unavailable, Reply::Unavailable], 1, None),
        (&[Reply::Unavailable, Reply::Down, Reply::Unavailable, Reply::Unavailable], 1, Some(30)),
    ] {
        let protection = protection();
        let mut waited = None;
        for (n, reply) in (0..).zip(replies) {
            let permit = protection.admit(ALL, known(n % messages, 0), at(0));
            let permit = permit.unwrap_or_else(|paused| panic!("{paused:?}"));
            waited = permit.give_back(*reply, at(0)).least_wait;
        }
        assert_eq!(waited, waits.map(secs), "{replies:?} of {messages}");
        assert!(protection.admit(ALL, somebody(), at(0)).is_ok(), "others are called at once");
        assert_eq!(protection.standstill(at(0)), None);
    }
}

#[test]
fn a_message_that_failed_elsewhere_is_believed_unless_another_succeeded_here_since() {
    let call = |protection: &Arc<Protection>, failures, reply, now| {
        protection.permit(ALL, known(7, failures)).give_back(reply, at(now)).least_wait
    };
    let fresh = protection();
    assert_eq!(call(&fresh, 1, Reply::Unavailable, 60), None, "two calls are too few");
    assert_eq!(call(&fresh, 2, Reply::Unavailable, 60), Some(secs(30)));
    let busy = protection();
    busy.call(60, Reply::Alive);
    for failures in [2, 40] {
        assert_eq!(call(&busy, failures, Reply::Unavailable, 120), None, "it may be the message");
    }
    assert_eq!(call(&busy, 41, Reply::Unavailable, 120), Some(secs(30)), "nobody else was served");
}

#[test]
fn the_circuit_of_few_messages_opens_and_closes_once() {
    let protection = protection();
    let call = |reply| protection.permit(ALL, known(7, 0)).give_back(reply, at(0)).change;
    let replies = [Reply::Unavailable; 5].map(call);
    assert_eq!(replies, [None, None, Some(Change::Opened), None, None]);
    assert_eq!(call(Reply::Alive), Some(Change::Closed));
    assert_eq!(call(Reply::Unavailable), None);
    let other = |_| protection.permit(ALL, somebody()).give_back(Reply::Unavailable, at(0)).change;
    let changes: Vec<_> = (0..5).filter_map(other).collect();
    assert_eq!(changes, [Change::Opened], "of many messages it opens for all");
    assert_eq!(protection.refused(0), paused(CircuitOpen, 1));
}
