//! What one call makes of the next: pause, circuit breaker and probes, step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::protection::{Caller, Change, Held, Pass, Protection, Reply, Scope};
use crate::disposition::Deferral::{self, CircuitOpen, Paused};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::policy::{CircuitBreaker, RetryPolicy};

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + secs)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn held(why: Deferral, rest: u64) -> Held {
    Held { why, rest: secs(rest) }
}

/// Pauses of 60 s at most, a circuit that opens at the third failure for 30 s.
fn protection() -> Arc<Protection> {
    let breaker = CircuitBreaker { threshold: 3, reset_timeout: secs(30) };
    Protection::new(&RetryPolicy { circuit_breaker: Some(breaker), ..RetryPolicy::default() })
}

const ALL: Scope = Scope(None);

/// A message that nobody has met before.
fn somebody() -> Caller {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    Caller { message: COUNT.fetch_add(1, Ordering::Relaxed), has_failed: false }
}

trait Steps {
    fn enter(&self, now: u64) -> Pass;
    fn refused(&self, now: u64) -> Held;
    fn call(&self, now: u64, reply: Reply) -> Option<Change>;
}

impl Steps for Arc<Protection> {
    fn enter(&self, now: u64) -> Pass {
        self.admit(ALL, somebody(), at(now)).unwrap_or_else(|held| panic!("at {now}: {held:?}"))
    }

    fn refused(&self, now: u64) -> Held {
        self.admit(ALL, somebody(), at(now)).err().unwrap_or_else(|| panic!("at {now} it is let through"))
    }

    fn call(&self, now: u64, reply: Reply) -> Option<Change> {
        self.enter(now).give_back(reply, at(now))
    }
}

#[test]
fn a_pause_lasts_as_long_as_it_was_asked_for_and_no_longer_than_allowed() {
    for (named, lasts) in [(1, 1), (59, 59), (60, 60), (61, 60), (21_600, 60), (u64::MAX, 60)] {
        let protection = protection();
        assert_eq!(protection.call(0, Reply::Paused(secs(named))), None, "a pause closes no circuit");
        assert_eq!(protection.refused(0), held(Paused, lasts), "{named}");
        assert_eq!(protection.refused(lasts - 1), held(Paused, 1), "{named}");
        drop(protection.enter(lasts));
    }
}

#[test]
fn after_a_pause_one_message_probes_and_the_others_wait_for_its_answer() {
    for (reply, then) in [
        (Reply::Alive, None),
        (Reply::Down, None),
        (Reply::Paused(secs(7)), Some(held(Paused, 7))),
        // The next one probes.
        (Reply::Silent, None),
    ] {
        let protection = protection();
        protection.call(0, Reply::Paused(secs(10)));
        let probe = protection.enter(10);
        assert_eq!(protection.refused(15), held(Paused, 0));
        assert_eq!(protection.refused(3_600), held(Paused, 0));
        probe.give_back(reply, at(15));
        let next = protection.admit(ALL, somebody(), at(15));
        assert_eq!(next.as_ref().err().copied(), then, "{reply:?}");
        let is_probing = reply == Reply::Silent;
        assert_eq!(then.is_none() && protection.admit(ALL, somebody(), at(15)).is_err(), is_probing, "{reply:?}");
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
    let probe = protection.enter(86_400);
    assert_eq!(protection.refused(86_400), held(CircuitOpen, 0));
    drop(probe);
}

#[test]
fn a_probe_of_which_nobody_hears_leaves_its_place_to_the_next() {
    let protection = protection();
    protection.call(0, Reply::Paused(secs(10)));
    for _ in 0..3 {
        let probe = protection.enter(10);
        assert_eq!(protection.refused(10), held(Paused, 0));
        drop(probe);
    }
}

#[test]
fn failures_in_a_row_open_the_circuit_and_one_probe_decides() {
    let protection = protection();
    for _ in 0..2 {
        protection.call(0, Reply::Down);
    }
    protection.call(0, Reply::Alive);
    let changes = [0, 1, 2].map(|now| protection.call(now, Reply::Down));
    assert_eq!(changes, [None, None, Some(Change::Opened)], "the third in a row");
    assert_eq!(protection.refused(2), held(CircuitOpen, 30));
    assert_eq!(protection.refused(31), held(CircuitOpen, 1));
    assert_eq!(protection.call(32, Reply::Down), None, "it was open already");
    assert_eq!(protection.refused(32), held(CircuitOpen, 30), "one is enough");
    assert_eq!(protection.call(62, Reply::Alive), Some(Change::Closed));
    for _ in 0..2 {
        protection.call(62, Reply::Down);
    }
    drop((protection.enter(62), protection.enter(62)));
}

#[test]
fn a_message_that_always_fails_opens_no_circuit_by_itself() {
    let protection = protection();
    let [one, other] = [somebody(), somebody()];
    for caller in [one, one, other, one, other, other, one] {
        let pass = protection.admit(ALL, caller, at(0)).unwrap_or_else(|held| panic!("{held:?}"));
        assert_eq!(pass.give_back(Reply::Down, at(0)), None);
    }
    assert_eq!(protection.call(0, Reply::Down), Some(Change::Opened), "a third one does");
}

#[test]
fn a_message_that_failed_before_probes_an_open_circuit_only_when_nobody_else_came_for_as_long_again() {
    for (has_failed, lasts) in [(false, 30), (true, 60)] {
        let protection = protection();
        for _ in 0..3 {
            protection.call(0, Reply::Down);
        }
        let caller = Caller { has_failed, ..somebody() };
        let rest = |now| protection.admit(ALL, caller, at(now)).err();
        assert_eq!(rest(0), Some(held(CircuitOpen, lasts)));
        assert_eq!(rest(lasts - 1), Some(held(CircuitOpen, 1)));
        assert_eq!(rest(lasts), None);

        protection.call(100, Reply::Paused(secs(10)));
        assert_eq!(rest(100), Some(held(Paused, 10)), "a pause says nothing about messages");
        assert_eq!(rest(110), None);
    }
}

#[test]
fn what_says_nothing_about_the_callee_neither_opens_nor_closes() {
    let protection = protection();
    for reply in [Reply::Down, Reply::Silent, Reply::Down, Reply::Silent, Reply::Silent] {
        protection.call(0, reply);
    }
    protection.call(0, Reply::Down);
    assert_eq!(protection.refused(0), held(CircuitOpen, 30));
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
        assert_eq!(protection.refused(0), held(Paused, rest), "{reply:?}");
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
    assert_eq!(protection.refused(10), held(Paused, 20));
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
        assert_eq!(protection.refused(41), held(Paused, 0), "{reply:?}: the probe is still on its way");
        probe.give_back(Reply::Alive, at(42));
        drop((protection.enter(42), protection.enter(42)));
    }
}

#[test]
fn scopes_do_not_know_each_other() {
    let protection = protection();
    let [one, other] = ["one", "other"].map(Scope::of);
    protection.pass(one, somebody()).give_back(Reply::Paused(secs(10)), at(0));
    assert!(protection.admit(one, somebody(), at(0)).is_err());
    assert!(protection.admit(other, somebody(), at(0)).is_ok() && protection.admit(ALL, somebody(), at(0)).is_ok());
}

#[test]
fn the_failures_of_a_scope_are_counted_whatever_others_come_between() {
    let protection = protection();
    let down = |scope| protection.pass(Scope::of(scope), somebody()).give_back(Reply::Down, at(0));
    let changes = ["one", "other", "one", "another", "one"].map(down);
    assert_eq!(changes, [None, None, None, None, Some(Change::Opened)]);
}

#[test]
fn a_clock_that_is_set_back_makes_no_pause_longer_than_it_was_meant_to_be() {
    let protection = protection();
    protection.call(3_600, Reply::Paused(secs(10)));
    assert_eq!(protection.refused(0), held(Paused, 10));
    assert_eq!(protection.refused(9), held(Paused, 1));
    drop(protection.enter(10));
}

#[test]
fn a_pause_that_lasts_no_longer_than_the_one_that_is_on_lets_no_second_message_probe() {
    let protection = protection();
    let (first, second) = (protection.enter(0), protection.enter(0));
    first.give_back(Reply::Paused(secs(10)), at(0));
    let _probe = protection.enter(10);
    second.give_back(Reply::Paused(secs(0)), at(10));
    assert_eq!(protection.refused(10), held(Paused, 0));
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
        protection.pass(Scope::of(&key), somebody()).give_back(Reply::Paused(secs(10)), at(0));
        protection.admit(Scope::of(&key), somebody(), at(0)).is_err()
    };
    assert_eq!((0..10_001).filter(|key| pause(*key)).count(), 10_000);
    protection.pass(Scope::of(&10_001), somebody()).give_back(Reply::Paused(secs(10)), at(10));
    assert!(protection.admit(Scope::of(&10_001), somebody(), at(10)).is_err());
}

#[test]
fn failures_say_of_their_callee_what_they_can() {
    let of = |class, evidence| Failure::new(class, evidence, "x");
    for (failure, expected) in [
        (Failure::rate_limit("x").retry_after(secs(3)), Reply::Paused(secs(3))),
        (Failure::quota("x").retry_after(secs(3)), Reply::Paused(secs(3))),
        (Failure::rate_limit("x"), Reply::Alive),
        (Failure::quota("x"), Reply::Alive),
        (Failure::non_retryable("x"), Reply::Alive),
        (Failure::postpone(secs(21_600)), Reply::Alive),
        (Failure::temporary("x"), Reply::Down),
        (Failure::temporary("x").retry_after(secs(3)), Reply::Down),
        (of(FailureClass::Temporary, Evidence::Typed), Reply::Down),
        (of(FailureClass::Temporary, Evidence::Text), Reply::Down),
        (of(FailureClass::Temporary, Evidence::TimeOut), Reply::Down),
        (of(FailureClass::Temporary, Evidence::Panic), Reply::Silent),
        (of(FailureClass::Temporary, Evidence::Unrecognised), Reply::Silent),
        (of(FailureClass::Temporary, Evidence::Connection), Reply::Silent),
        (of(FailureClass::NonRetryable, Evidence::Body), Reply::Silent),
    ] {
        assert_eq!(Reply::of(&failure), expected, "{failure:?}");
    }
}
