//! The line of a limit, and its gate, while the service is paused.

use super::pauses::{LASTS, caller, environment_at, secs};
use super::*;
use crate::gate::{NotPermitted, Reply};
use crate::limit::StartTag;
use crate::table::Field;

/// The holds and the slots of an execution environment.
type Environment = (Arc<TableClient>, Arc<SharedPauses>, Arc<SharedPauses>);

fn environments<const N: usize>(table: &Arc<Told>) -> [Environment; N] {
    std::array::from_fn(|_| {
        let (client, pauses) = environment_at(table, epoch());
        (client, Arc::clone(&pauses), pauses)
    })
}

fn ten_per_second() -> RateLimit {
    RateLimit { burst: 1, ..RateLimit::new(10, secs(1)) }
}

async fn ask(slots: &Arc<SharedPauses>, ask: Ask, longest: Duration) -> Admitted {
    let request = Request { may_be_deferred: true, ..request(ask, longest, 0.5) };
    slots.take_slot(Scope::default(), &ten_per_second(), request, 0).await
}

/// A call that the service answers by a pause.
async fn pause(pauses: &SharedPauses, length: Duration) {
    let ticket = pauses.look(Scope::default(), caller(0)).expect("free");
    pauses.tell(&ticket, Reply::Paused(length)).await;
}

async fn field(table: &Told, client: &TableClient, name: &'static str) -> u64 {
    let item = table.items.read(&client.scope_key("", Scope::default())).await.expect("in memory");
    item.before.get(Field::new(name))
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_taken_while_the_service_is_held_even_if_that_is_not_known_yet() {
    let table = Arc::new(Told::default());
    let [(client, one, slots), (_, other, other_slots)] = environments(&table);
    for slots in [&slots, &other_slots] {
        assert!(matches!(ask(slots, Ask::Retry, LONGEST).await, Admitted::By(Admission::Slot(_))));
    }
    pause(&one, secs(20)).await;
    let (tat, _) = (field(&table, &client, "tat").await, table.requests());
    sleep(secs(1)).await;
    let looked = other.look(Scope::default(), caller(1));
    assert!(looked.is_ok(), "it does not know of the pause");
    assert_eq!(ask(&other_slots, Ask::Retry, LONGEST).await, Admitted::Paused);
    let looked = other.look(Scope::default(), caller(1));
    assert_eq!(looked.expect_err("paused"), NotPermitted { why: Deferral::Paused, rest: secs(19) });
    assert_eq!(table.requests(), 1, "the refused request told of it");
    assert_eq!(ask(&other_slots, Ask::Retry, LONGEST).await, Admitted::Paused);
    assert_eq!((table.requests(), field(&table, &client, "tat").await), (0, tat));
    sleep(secs(19)).await;
    let probe = one.admit(Scope::default(), caller(2), true, LASTS).await.expect("probes");
    assert_eq!(ask(&slots, Ask::Retry, LONGEST).await, Admitted::Paused, "one message probes");
    one.tell(&probe, Reply::Alive).await;
    assert!(matches!(ask(&slots, Ask::Retry, LONGEST).await, Admitted::By(Admission::Slot(_))));
}

#[tokio::test(start_paused = true)]
async fn messages_that_a_hold_calls_up_move_behind_it_without_a_request() {
    let table = Arc::new(Told::default());
    let [(_, one, slots), (_, other, other_slots)] = environments(&table);
    let mut line = Vec::new();
    while line.len() < 100 {
        match ask(&slots, Ask::Newcomer, Duration::ZERO).await {
            Admitted::By(Admission::InLine(tag, turn)) => line.push((tag, turn)),
            Admitted::By(Admission::Slot(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    pause(&one, secs(60)).await;
    // The other environment learns of it by its next request.
    let ask_again = Ask::Joins(epoch() + secs(60));
    let last = ask(&other_slots, ask_again, Duration::ZERO).await;
    let Admitted::By(Admission::InLine(_, last)) = last else { panic!("{last:?}") };
    assert!(other.look(Scope::default(), caller(1)).is_err());
    table.requests();
    let until = epoch() + secs(60);
    let paused =
        |tag: StartTag| other_slots.paused_in_line(Scope::default(), &ten_per_second(), tag, until);
    let mut turns: Vec<_> = line.iter().map(|(tag, _)| paused(*tag)).collect();
    assert_eq!(table.requests(), 0);
    turns.sort_unstable();
    assert!(turns[0] >= until && turns[99] < last, "{turns:?} {last:?}");
    for two in turns.windows(2) {
        assert!(two[1].duration_since(two[0]).expect("sorted") >= millis(100), "{two:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_message_is_refused_by_a_guess_of_the_gate() {
    for has_line in [false, true] {
        let table = Arc::new(Told::default());
        let [(_, _, slots), (_, _, other_slots)] = environments(&table);
        for _ in 0..2 {
            for slots in [&slots, &other_slots] {
                sleep(millis(50)).await;
                ask(slots, Ask::Retry, LONGEST).await;
            }
        }
        let mut asked = Ask::Retry;
        for _ in 0..if has_line { 20 } else { 0 } {
            let admitted = ask(&slots, Ask::Newcomer, Duration::ZERO).await;
            if let (Admitted::By(Admission::InLine(tag, _)), Ask::Retry) = (admitted, asked) {
                asked = Ask::Waited(tag);
            }
        }
        sleep(secs(1)).await;
        let admitted = ask(&slots, asked, Duration::ZERO).await;
        assert_eq!(admitted, Admitted::By(Admission::Slot(Duration::ZERO)), "{asked:?}");
    }
}
