//! The calls after an outage, of a service without a rate limit.

use super::pauses::{LASTS, call, caller, environment_at, open, secs};
use super::*;
use crate::gate::{Change, NotPermitted, Reply};

/// The holds and the slots of an execution environment.
type Environment = (Arc<SharedPauses>, Arc<SharedPauses>);

fn environments(table: &Arc<Told>, count: usize) -> Vec<Environment> {
    let environment = |_| {
        let (_, pauses) = environment_at(table, epoch());
        (Arc::clone(&pauses), pauses)
    };
    (0..count).map(environment).collect()
}

/// Environments whose circuit has opened, and closes by a probe.
async fn recovered(table: &Arc<Told>, count: usize) -> Vec<Environment> {
    let all = environments(table, count);
    let pauses: Vec<_> = all.iter().map(|(pauses, _)| Arc::clone(pauses)).collect();
    open(&pauses).await;
    sleep(secs(1)).await;
    assert_eq!(call(&pauses[0], 9, Reply::Alive).await, Some(Some(Change::Closed)));
    all
}

/// Asks for a call. If it is let through, the service responds.
async fn ask((pauses, slots): &Environment, message: u64) -> Result<(), NoTicket> {
    let ticket = pauses.admit(Scope::default(), caller(message), false, LASTS).await?;
    let ticket = match slots.recovery(Scope::default()) {
        Some(recovery) if !ticket.is_probe() => {
            slots.recover(recovery, Scope::default(), caller(message), ticket, 0).await?
        }
        _ => ticket,
    };
    pauses.tell(&ticket, Reply::Alive).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_calls_of_all_environments_grow_until_they_are_free() {
    let table = Arc::new(Told::default());
    let all = recovered(&table, 50).await;
    let began = Instant::now();
    // Each environment has a message every 25 ms, which is 2,000 in a second.
    let asked = (0..20_000_u64).zip(all.iter().cycle()).map(async |(number, one)| {
        sleep(millis(number / 2)).await;
        let asked = began.elapsed();
        ask(one, number).await.map(|()| began.elapsed()).map_err(|refused| (asked, refused))
    });
    let mut calls = [0; 10];
    for end in join_all(asked).await {
        match end {
            Ok(at) => calls[usize::try_from(at.as_secs()).expect("few").min(9)] += 1,
            Err((at, refused)) => {
                let rest = secs(7).saturating_sub(at);
                let paused = NoTicket::Paused(NotPermitted { why: Deferral::CircuitOpen, rest });
                assert_eq!(refused, paused);
            }
        }
    }
    // A slot is up to a second later than its message asked, and so the rate of that moment.
    for (second, made) in (0_u32..7).zip(calls) {
        let (least, most) = (5 << second, 10 << second);
        assert!((least..=most + 2).contains(&made), "{calls:?}");
    }
    assert!(calls[8..].iter().all(|made| *made == 2_000), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_was_not_down_or_is_back_for_long_gets_all_calls_and_costs_no_request() {
    let table = Arc::new(Told::default());
    for all in [environments(&table, 2), recovered(&table, 2).await] {
        sleep(secs(8)).await;
        // After a failure, the first responses are reported.
        for message in 0..20 {
            ask(&all[0], message).await.expect("free");
        }
        sleep(secs(1)).await;
        for one in &all {
            table.requests();
            for message in 0..100 {
                ask(one, message).await.expect("free");
            }
            assert_eq!(table.requests(), 1, "one read in a second");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_followed_by_a_recovery_only_if_it_followed_an_open_circuit() {
    for was_open in [false, true] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 1);
        let (pauses, slots) = &all[0];
        if was_open {
            open(&[Arc::clone(pauses)]).await;
            sleep(secs(1)).await;
        }
        call(pauses, 9, Reply::Paused(secs(10))).await.expect("not paused, or the probe");
        sleep(secs(10)).await;
        call(pauses, 9, Reply::Alive).await.expect("the probe");
        assert_eq!(slots.recovery(Scope::default()).is_some(), was_open);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_slot_is_held_if_the_circuit_opens_again() {
    let table = Arc::new(Told::default());
    let all = recovered(&table, 5).await;
    for message in 0..5 {
        ask(&all[0], message).await.expect("a slot");
    }
    let waits = async {
        // The slots of the next 200 ms are taken.
        for _ in 0..2 {
            let recovery = RateLimit::new(10, secs(1));
            let (_, slots) = &all[0];
            let asks = request(Ask::Retry, secs(1), 0.5);
            slots.take_slot(Scope::default(), &recovery, asks, 0).await;
        }
        ask(&all[0], 5).await
    };
    let opens = async {
        sleep(millis(10)).await;
        let pause = Reply::Paused(secs(20));
        let ticket = all[0].0.look(Scope::default(), caller(6)).expect("free");
        all[0].0.tell(&ticket, pause).await;
    };
    let (waited, ()) = tokio::join!(waits, opens);
    assert!(
        matches!(waited, Err(NoTicket::Paused(NotPermitted { why: Deferral::Paused, .. }))),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_store_stops_no_call() {
    for case in [Case::Throttled, Case::Lost, Case::Unsaid, Case::Denied] {
        let table = Arc::new(Told::default());
        let all = recovered(&table, 1).await;
        table.next(&[case; 60]);
        for message in 0..30 {
            ask(&all[0], message).await.unwrap_or_else(|paused| panic!("{case:?}: {paused:?}"));
        }
    }
}
