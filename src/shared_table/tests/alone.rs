//! The calls of execution environments while the table does not answer.

use super::*;
use crate::limit::LimitState;
use crate::shared_table::fallback::Fallback;

const DEMAND: Demand = Demand { ask: Ask::Retry, tenant: None, units: 1, longest: LONGEST };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn after(time: Duration) -> SystemTime {
    epoch() + time
}

/// The calls of all these environments in this time, if each asks again and again.
fn calls(
    environments: &mut [Fallback],
    limit: &RateLimit,
    most: u32,
    times: &(impl Iterator<Item = Duration> + Clone),
) -> usize {
    let samples = (1..).map(|number| f64::from(number) / f64::from(most + 1));
    let calls = environments.iter_mut().zip(samples).map(|(one, sample)| {
        let mut admit =
            |at| one.admit(limit, DEMAND, most, &LimitState::default(), after(at), sample);
        times.clone().filter(|at| matches!(admit(*at), Admission::Slot(_))).count()
    });
    calls.sum()
}

#[test]
fn new_environments_keep_a_limit_of_rare_calls_together() {
    for (limit, period, environments) in
        [(10, 60, 1_000), (10, 3_600, 1_000), (1, 100, 1_000), (1, 86_400, 10)]
    {
        let limit = RateLimit::new(limit, secs(period));
        let mut all: Vec<_> = (0..environments).map(|_| Fallback::default()).collect();
        let minutes = (0..86_400).step_by(60).map(secs);
        let calls = calls(&mut all, &limit, environments, &minutes);
        let allowed = secs(86_400).as_nanos() / limit.interval().as_nanos() + 1;
        assert!(calls as u128 <= allowed, "{limit:?}: {calls} calls, and {allowed} are allowed");
    }
}

#[test]
fn a_burst_of_lately_does_not_come_again() {
    let limit = RateLimit { burst: 1_000, ..RateLimit::new(10, secs(1)) };
    let mut all = [Fallback::default(); 10];
    for one in &mut all {
        one.note(100, after(secs(0)));
        for second in 1..10 {
            one.note(1, after(secs(second)));
        }
    }
    let times = (10_000..70_000).step_by(20).map(millis);
    let calls = calls(&mut all, &limit, 10, &times);
    assert!((400..=610).contains(&calls), "{calls} calls in a minute");
}

#[test]
fn the_first_claim_owes_the_last_call_without_the_store_for_a_whole_interval() {
    for (period, later, owed) in [
        (1, 0, 1),
        (1, 999, 1),
        // Others may still call without the table.
        (1, 2_000, 1),
        (10, 2_000, 1),
        (100, 99_999, 1),
        (100, 100_000, 0),
    ] {
        let limit = RateLimit::new(1, secs(period));
        let mut one = Fallback::default();
        one.note(1, epoch());
        let now = after(secs(1_000));
        let taken = LimitState::default();
        let admission = one.admit(&limit, DEMAND, 1, &taken, now, 0.0);
        assert_eq!(admission, Admission::Slot(Duration::ZERO));
        let owes = one.owed(limit.interval(), &taken, LONGEST, now + millis(later));
        assert_eq!(owes, owed, "{later} ms later, at one call in {period} s");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_a_limit_that_was_lowered_gives_slots_too() {
    let table = Arc::new(Told::default());
    let (limits, limit) = environment(&table, 50, 1);
    let one = (limits, RateLimit { adaptive: true, ..limit });
    let clock = Clock::starting_at(epoch());
    ask_all(&one, Ask::Retry, 1).await;
    for _ in 0..6 {
        one.0.refused(Scope::default(), &one.1, clock.now()).await;
        sleep(secs(1)).await;
    }
    table.next(&[Case::Denied; 3]);
    ask_all(&one, Ask::Retry, 1).await;
    table.next(&[]);
    sleep(secs(3)).await;
    let slot = slots(&ask_all(&one, Ask::Retry, 1).await)[0].expect("a slot");
    assert!(slot >= millis(500) && slot <= secs(1), "{slot:?}");
}

#[test]
fn a_clock_that_was_set_back_stops_no_calls_without_the_store() {
    let limit = RateLimit::new(1, secs(1));
    let mut one = Fallback::default();
    let mut admit = |at| one.admit(&limit, DEMAND, 1, &LimitState::default(), at, 0.0);
    for at in [after(secs(86_400)), epoch()] {
        assert_eq!(admit(at), Admission::Slot(Duration::ZERO));
        assert_eq!(admit(at), Admission::Full);
    }
}
