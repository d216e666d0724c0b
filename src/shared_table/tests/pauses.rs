//! Pauses and circuits that several execution environments share.

use requeue_testkit::dice::Dice;

use super::*;
use crate::gate::{Caller, Change, NotPermitted, Reply};
use crate::policy::RetryPolicy;
use crate::table::Field;

pub(super) const LASTS: Duration = Duration::from_secs(30);

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn caller(message: u64) -> Caller {
    Caller { message, failures: 0, since: SystemTime::UNIX_EPOCH }
}

/// The holds of so many execution environments.
fn environments(table: &Arc<Told>, count: usize) -> Vec<Arc<SharedPauses>> {
    (0..count).map(|_| environment_at(table, epoch()).1).collect()
}

/// The holds of an execution environment whose clock begins at this time.
pub(super) fn environment_at(
    table: &Arc<Told>,
    at: SystemTime,
) -> (Arc<TableClient>, Arc<SharedPauses>) {
    let shared_table = SharedTable::by(Arc::clone(table) as Arc<dyn Table>);
    let client = Arc::new(TableClient::new(shared_table, Clock::starting_at(at)));
    let pauses = SharedPauses::new(&client, &RetryPolicy::default(), "");
    (client, pauses)
}

/// Sets a field of the item of the scope.
async fn set(table: &Told, client: &TableClient, name: &'static str, value: u64) {
    let key = client.scope_key("", Scope::default());
    let update = Update::new().set(Field::new(name), value);
    table.items.update(&key, &update).await.expect("in memory");
}

async fn admit(pauses: &SharedPauses, message: u64) -> Result<Ticket, NoTicket> {
    admit_by(pauses, false, message).await
}

async fn admit_by(
    pauses: &SharedPauses,
    has_limit: bool,
    message: u64,
) -> Result<Ticket, NoTicket> {
    pauses.admit(Scope::default(), caller(message), has_limit, LASTS).await
}

/// A call of this message, with this result. `None` if it was paused.
pub(super) async fn call(
    pauses: &SharedPauses,
    message: u64,
    reply: Reply,
) -> Option<Option<Change>> {
    let ticket = admit(pauses, message).await.ok()?;
    Some(pauses.tell(&ticket, reply).await)
}

/// Opens the circuit by a failure in each of the first environments.
pub(super) async fn open(all: &[Arc<SharedPauses>]) {
    for (message, one) in (0..5).zip(all.iter().cycle()) {
        let change = call(one, message, Reply::Down).await.expect("not paused yet");
        assert_eq!(change, (message == 4).then_some(Change::Opened), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_one_environment_is_asked_for_holds_all() {
    for has_limit in [false, true] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 3);
        call(&all[0], 0, Reply::Paused(secs(20))).await.expect("not paused");
        let paused = NoTicket::Paused(NotPermitted { why: Deferral::Paused, rest: secs(19) });
        sleep(secs(1)).await;
        assert_eq!(admit_by(&all[0], has_limit, 1).await.expect_err("paused"), paused);
        if has_limit {
            // The answer about the limit tells of it.
            let (client, _) = environment_at(&table, epoch());
            let item = table.items.read(&client.scope_key("", Scope::default())).await;
            all[1].scope(Scope::default()).learn(&item.expect("in memory").before);
            table.requests();
        }
        assert_eq!(admit_by(&all[1], has_limit, 2).await.expect_err("paused"), paused);
        assert_eq!(table.requests() > 0, !has_limit, "with a limit nothing is asked");
        assert_eq!(admit_by(&all[1], has_limit, 3).await.expect_err("paused"), paused);
        assert_eq!(table.requests(), 0, "the pause is known");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_many_environments_open_one_circuit() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 50);
    open(&all).await;
    sleep(millis(500)).await;
    // The first four may know an answer of this second.
    for one in &all[4..] {
        let paused =
            NoTicket::Paused(NotPermitted { why: Deferral::CircuitOpen, rest: millis(500) });
        assert_eq!(admit(one, 9).await.expect_err("paused"), paused);
    }
}

#[tokio::test(start_paused = true)]
async fn one_message_that_fails_in_many_environments_opens_no_circuit() {
    let table = Arc::new(Told::default());
    for one in &environments(&table, 50) {
        assert_eq!(call(one, 7, Reply::Down).await, Some(None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_works_costs_no_report_and_a_response_ends_the_row() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 2);
    for message in 0..100 {
        let ticket = admit_by(&all[0], true, message).await.expect("free");
        assert_eq!(all[0].tell(&ticket, Reply::Alive).await, None);
    }
    assert_eq!(table.requests(), 0);
    for message in 0..40 {
        let one = &all[usize::from(message % 4 == 0)];
        let reply = if message % 4 == 3 { Reply::Alive } else { Reply::Down };
        assert_eq!(call(one, message, reply).await, Some(None), "{message}");
    }
    // The record is clean again after sixteen responses in a row.
    for message in 0..16 {
        call(&all[0], message, Reply::Alive).await.expect("not paused");
    }
    table.requests();
    let ticket = admit_by(&all[0], true, 0).await.expect("free");
    assert_eq!(all[0].tell(&ticket, Reply::Alive).await, None);
    assert_eq!(table.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_message_of_all_environments_probes_at_a_time() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 50);
    open(&all).await;
    sleep(secs(1)).await;
    let kinds = [0, 0, 1].map(|failures| Caller { failures, ..caller(9) });
    // Three rounds of three probes, after 1, 3 and 9 s. They are not all of one kind.
    for rest in [secs(3), secs(9), secs(27)] {
        for caller in kinds {
            let asked = all.iter().map(|one| one.admit(Scope::default(), caller, false, LASTS));
            let mut admitted = Vec::new();
            for (ticket, one) in join_all(asked).await.into_iter().zip(&all) {
                match ticket {
                    Ok(ticket) => admitted.push((ticket, one)),
                    Err(NoTicket::Paused(paused)) => assert_eq!(paused.rest, Duration::ZERO),
                    Err(NoTicket::Throttled) => panic!("throttled"),
                }
            }
            let [(ticket, prober)] = &admitted[..] else { panic!("{} probes", admitted.len()) };
            assert!(ticket.is_probe());
            assert_eq!(prober.tell(ticket, Reply::Down).await, None);
            if caller.has_failed() {
                let paused = admit(prober, 4).await.expect_err("paused");
                assert_eq!(
                    paused,
                    NoTicket::Paused(NotPermitted { why: Deferral::CircuitOpen, rest })
                );
            }
            // The others learn of it.
            sleep(secs(1)).await;
        }
        sleep(rest.saturating_sub(secs(1))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_probe_that_gets_a_response_closes_the_circuit_for_all() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 10);
    open(&all).await;
    sleep(secs(1)).await;
    assert_eq!(call(&all[7], 8, Reply::Alive).await, Some(Some(Change::Closed)));
    sleep(secs(1)).await;
    for one in &all {
        assert!(!admit(one, 9).await.expect("free").is_probe());
    }
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_dies_is_followed_when_its_lock_ends_and_its_late_result_counts() {
    for generation_changes in [false, true] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 3);
        open(&all).await;
        sleep(secs(1)).await;
        let late = admit(&all[0], 5).await.expect("the probe");
        sleep(LASTS + secs(4)).await;
        let paused = NotPermitted { why: Deferral::CircuitOpen, rest: Duration::ZERO };
        assert_eq!(admit(&all[1], 6).await.expect_err("paused"), NoTicket::Paused(paused));
        sleep(secs(1)).await;
        let next = admit(&all[1], 6).await.expect("the next probe");
        assert!(next.is_probe());
        assert!(admit(&all[2], 7).await.is_err());
        if generation_changes {
            let change = all[1].tell(&next, Reply::Paused(secs(60))).await;
            assert_eq!(change, Some(Change::Paused { was_open: true }));
            assert_eq!(all[0].tell(&late, Reply::Alive).await, None, "it probed an earlier pause");
            assert!(admit(&all[2], 7).await.is_err());
        } else {
            assert_eq!(all[0].tell(&late, Reply::Alive).await, Some(Change::Closed));
            sleep(secs(1)).await;
            assert!(!admit(&all[2], 7).await.expect("free").is_probe());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_probe_that_begins_late_is_lengthened_until_its_end() {
    let paused =
        NoTicket::Paused(NotPermitted { why: Deferral::CircuitOpen, rest: Duration::ZERO });
    // With the table's trouble at the request that lengthens the lock.
    for (trouble, is_kept) in
        [(None, true), (Some(Case::Unsaid), true), (Some(Case::Throttled), false)]
    {
        let table = Arc::new(Told::default());
        let all = environments(&table, 2);
        open(&all).await;
        sleep(secs(1)).await;
        let mut probe = admit(&all[0], 5).await.expect("the probe");
        table.requests();
        assert!(all[0].keep_lock(&mut probe, LASTS).await);
        assert_eq!(table.requests(), 0, "it is long enough");
        table.next(&trouble.into_iter().collect::<Vec<_>>());
        assert_eq!(all[0].keep_lock(&mut probe, 3 * LASTS).await, is_kept, "{trouble:?}");
        assert_eq!(table.requests(), 1);
        sleep(2 * LASTS).await;
        let other = admit(&all[1], 6).await;
        assert_eq!(other.as_ref().err(), is_kept.then_some(&paused), "{trouble:?}");
        let closes = all[0].tell(&probe, Reply::Alive).await;
        assert_eq!(closes, Some(Change::Closed), "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_another_message_has_by_now_or_of_a_pause_that_is_over_is_not_lengthened() {
    for is_over in [false, true] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 3);
        open(&all).await;
        sleep(secs(1)).await;
        let mut late = admit(&all[0], 5).await.expect("the probe");
        sleep(LASTS + secs(5)).await;
        let next = admit(&all[1], 6).await.expect("the next probe");
        if is_over {
            all[1].tell(&next, Reply::Alive).await;
        }
        assert!(!all[0].keep_lock(&mut late, LASTS).await, "{is_over}");
        sleep(secs(1)).await;
        assert_eq!(admit(&all[2], 7).await.is_ok(), is_over);
    }
    // Nor does a lock last for more than an hour.
    let table = Arc::new(Told::default());
    let all = environments(&table, 1);
    open(&all).await;
    sleep(secs(1)).await;
    let mut probe = admit(&all[0], 5).await.expect("the probe");
    assert!(!all[0].keep_lock(&mut probe, secs(3_600)).await);
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_does_not_free_the_lock_of_the_next_probe() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 3);
    open(&all).await;
    sleep(secs(1)).await;
    let late = admit(&all[0], 5).await.expect("the probe");
    sleep(LASTS + secs(5)).await;
    let next = admit(&all[1], 6).await.expect("the next probe");
    assert!(next.is_probe());
    for reply in [Reply::Down, Reply::Silent] {
        all[0].tell(&late, reply).await;
        sleep(secs(1)).await;
        assert!(admit(&all[2], 7).await.is_err(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_probe_that_says_nothing_the_next_one_waits() {
    for (reply, waits) in [(Reply::Silent, true), (Reply::Uncalled, false)] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 3);
        open(&all).await;
        sleep(secs(1)).await;
        let probe = admit(&all[0], 5).await.expect("the probe");
        all[0].tell(&probe, reply).await;
        assert_eq!(admit(&all[1], 6).await.is_err(), waits, "{reply:?}");
        sleep(secs(1)).await;
        assert_eq!(admit(&all[2], 7).await.is_ok(), waits, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_began_before_the_hold_says_nothing_about_its_end() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 5);
    let early = admit(&all[4], 9).await.expect("free");
    open(&all).await;
    for reply in [Reply::Alive, Reply::Down, Reply::Silent] {
        assert_eq!(all[4].tell(&early, reply).await, None);
        let paused = admit(&all[4], 9).await.expect_err("paused");
        let expected = NotPermitted { why: Deferral::CircuitOpen, rest: secs(1) };
        assert_eq!(paused, NoTicket::Paused(expected), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_lapses_if_nobody_probes_for_as_long_as_it_lasted() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 2);
    call(&all[0], 0, Reply::Paused(secs(10))).await;
    sleep(secs(19)).await;
    let probe = admit(&all[1], 1).await.expect("after the pause");
    assert!(probe.is_probe());
    all[1].tell(&probe, Reply::Uncalled).await;
    sleep(secs(1)).await;
    for one in &all {
        assert!(!admit(one, 1).await.expect("free").is_probe());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_each_environment_is_left_to_its_own_protection() {
    let trouble = [Case::Throttled, Case::Lost, Case::Unsaid, Case::Denied];
    for case in trouble {
        let table = Arc::new(Told::default());
        let all = environments(&table, 6);
        open(&all).await;
        table.next(&[case; 60]);
        let paused = admit(&all[4], 1).await.expect_err("paused");
        let known = NotPermitted { why: Deferral::CircuitOpen, rest: secs(1) };
        assert_eq!(paused, NoTicket::Paused(known), "{case:?}: a pause that is known goes on");
        assert!(admit(&all[5], 1).await.is_ok(), "{case:?}: it knows of no pause");
        sleep(secs(1)).await;
        let after = admit(&all[4], 2).await;
        let refused = matches!(case, Case::Throttled).then_some(NoTicket::Throttled);
        assert_eq!(after.as_ref().err(), refused.as_ref(), "{case:?}");
        if let Ok(ticket) = after {
            assert_eq!(all[4].tell(&ticket, Reply::Down).await, None, "{case:?}");
        }
        table.next(&[]);
        sleep(LASTS + secs(8)).await;
        assert_eq!(
            call(&all[4], 3, Reply::Alive).await,
            Some(Some(Change::Closed)),
            "{case:?}: it answers again"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_items_holds_nobody() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 2);
    open(&all).await;
    sleep(secs(1)).await;
    let late = admit(&all[0], 5).await.expect("the probe");
    table.items.clear();
    sleep(secs(1)).await;
    assert!(!admit(&all[1], 6).await.expect("free").is_probe());
    assert_eq!(all[0].tell(&late, Reply::Down).await, None);
    sleep(secs(1)).await;
    assert!(!admit(&all[0], 6).await.expect("free").is_probe());
}

#[tokio::test(start_paused = true)]
async fn an_item_lives_for_a_day_after_the_last_use_by_its_limit_or_its_hold() {
    let daily = RateLimit { burst: 5, ..RateLimit::new(1, secs(86_400)) };
    for limit in [daily, RateLimit::new(1, secs(3_600)), RateLimit::new(50, secs(1))] {
        let table = Arc::new(Told::default());
        let (client, pauses) = environment_at(&table, epoch());
        let slots = Arc::clone(&pauses);
        let key = client.scope_key("", Scope::default());
        let lives = async || {
            let item = table.items.read(&key).await.expect("in memory").before;
            let ends = ["tat", "heldUntil"].map(|name| item.get(Field::new(name)));
            let used = ends.into_iter().max().expect("two").div_ceil(1_000_000_000);
            let end = item.get(Field::EXPIRES);
            assert!(end >= used + 86_400, "{end} after {used}, {limit:?}");
            end
        };
        for _ in 0..4 {
            let asks = request(Ask::Newcomer, Duration::ZERO, 0.5);
            slots.take_slot(Scope::default(), &limit, asks, 0).await;
        }
        let before = lives().await;
        let ticket = pauses.look(Scope::default(), caller(0)).expect("free");
        pauses.tell(&ticket, Reply::Paused(secs(60))).await;
        assert!(lives().await >= before, "{limit:?}");
        let asks = request(Ask::Newcomer, Duration::ZERO, 0.5);
        slots.take_slot(Scope::default(), &limit, asks, 0).await;
        lives().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_circuit_breaker_that_is_off_leaves_the_pause() {
    let table = Arc::new(Told::default());
    let mut policy = RetryPolicy { circuit_breaker: None, ..RetryPolicy::default() };
    let (client, _) = environment_at(&table, epoch());
    let pauses = SharedPauses::new(&client, &policy, "");
    for message in 0..50 {
        assert_eq!(call(&pauses, message, Reply::Down).await, Some(None));
    }
    call(&pauses, 0, Reply::Paused(secs(10))).await;
    assert!(admit(&pauses, 1).await.is_err());
    sleep(secs(10)).await;
    call(&pauses, 1, Reply::Down).await.expect("the probe");
    assert!(!admit(&pauses, 2).await.expect("free").is_probe());
    policy.max_pause = None;
    assert!(!SharedPauses::new(&client, &policy, "").may_pause());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_responds_to_some_of_its_calls_keeps_most_of_its_throughput() {
    for (rate, answered) in [(50, 50), (50, 80), (1_000, 50), (1_000, 80)] {
        let table = Arc::new(Told::default());
        let all = environments(&table, 50);
        let dice = Dice::of(7, 0);
        let (mut calls, offered) = (0, rate * 120);
        for _ in 0..offered {
            sleep(secs(1) / rate).await;
            let one = &all[dice.roll(0, all.len() - 1)];
            let is_answered = dice.happens(answered * 10);
            let caller =
                Caller { failures: dice.happens(500).into(), ..caller(dice.roll(0, u64::MAX)) };
            if let Ok(ticket) = one.admit(Scope::default(), caller, false, LASTS).await {
                calls += 1;
                one.tell(&ticket, if is_answered { Reply::Alive } else { Reply::Down }).await;
            }
        }
        assert!(calls * 5 >= offered * 4, "{calls} of {offered} calls, {answered} % of {rate}/s");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_that_lapsed_a_service_that_works_costs_no_report() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 1);
    call(&all[0], 0, Reply::Paused(secs(10))).await.expect("not paused");
    sleep(secs(21)).await;
    table.requests();
    for message in 0..40 {
        let ticket = admit_by(&all[0], true, message).await.expect("free");
        assert!(!ticket.is_probe());
        all[0].tell(&ticket, Reply::Alive).await;
    }
    assert_eq!(table.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_an_hour_off_pauses_no_longer() {
    // The table tells the right time, but not at the first request.
    let table = Arc::new(Told { clock: Some(Clock::starting_at(epoch())), ..Told::default() });
    let (_, wrong) = environment_at(&table, epoch() + secs(3_600));
    let (_, right) = environment_at(&table, epoch());
    table.next(&[Case::Throttled]);
    call(&wrong, 0, Reply::Paused(secs(5))).await.expect("not paused");
    sleep(secs(1)).await;
    assert!(admit(&right, 1).await.is_err());
    sleep(secs(5)).await;
    assert!(admit(&right, 1).await.expect("the pause is over").is_probe());
}

#[tokio::test(start_paused = true)]
async fn a_hold_with_an_end_far_ahead_is_probed_at_once() {
    for ahead in [Some(secs(60)), Some(secs(7_200)), None] {
        let table = Arc::new(Told::default());
        let (client, one) = environment_at(&table, epoch());
        open(&[Arc::clone(&one)]).await;
        let end = ahead.map_or(u64::MAX, |ahead| crate::limit::epoch_nanos(epoch() + ahead));
        set(&table, &client, "heldUntil", end).await;
        let (_, other) = environment_at(&table, epoch());
        assert!(admit(&other, 1).await.expect("probes").is_probe(), "{ahead:?}");
        // The one that opened it learns of the change too.
        let again = call(&other, 2, Reply::Paused(secs(20))).await;
        assert!(again.is_none(), "one probe at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_wiped_ends_for_the_environment_that_knows_it() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 1);
    call(&all[0], 0, Reply::Paused(secs(1_000))).await.expect("not paused");
    assert!(admit(&all[0], 1).await.is_err());
    table.items.clear();
    sleep(secs(10)).await;
    assert!(admit(&all[0], 1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_more_than_an_hour_is_a_lock() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 5);
    open(&all).await;
    sleep(secs(1)).await;
    let mut tickets = Vec::new();
    for (message, one) in (0..).zip(&all) {
        tickets.extend(one.admit(Scope::default(), caller(message), false, secs(7_200)).await);
    }
    assert_eq!(tickets.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_scopes_do_not_hide_the_result_of_a_probe() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 1);
    open(&all).await;
    sleep(secs(1)).await;
    let ticket = admit(&all[0], 9).await.expect("probes");
    for scope in 0..10_000_u32 {
        let _ = all[0].look(Scope::of(scope.to_le_bytes()), caller(1));
    }
    assert_eq!(all[0].tell(&ticket, Reply::Alive).await, Some(Change::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_begins_far_ahead_opens_the_circuit() {
    let table = Arc::new(Told::default());
    let (client, one) = environment_at(&table, epoch());
    let ahead = crate::limit::epoch_nanos(epoch() + secs(3_600));
    set(&table, &client, "rowSince", ahead).await;
    open(&[one]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_answer_was_lost_is_given_back() {
    let table = Arc::new(Told::default());
    let all = environments(&table, 2);
    open(&all).await;
    sleep(secs(1)).await;
    table.next(&[Case::Unsaid]);
    let ticket = all[0].admit(Scope::default(), caller(9), false, secs(900)).await.expect("probes");
    assert_eq!(all[0].tell(&ticket, Reply::Alive).await, Some(Change::Closed));
    sleep(secs(1)).await;
    assert!(admit(&all[1], 8).await.is_ok());
}
