//! Clocks that are off when they decide something for all execution environments.

use std::sync::atomic::AtomicU64;

use super::*;

/// A table that tells its time.
fn table() -> Arc<Told> {
    Arc::new(Told { clock: Some(Clock::starting_at(epoch())), ..Told::default() })
}

fn environment_with(table: &Arc<Told>, clock: Clock) -> (Arc<TableClient>, Environment) {
    let table = Arc::clone(table) as Arc<dyn Table>;
    let client = Arc::new(TableClient::new(SharedTable::by(table), clock));
    let limits = super::limits(&client, "");
    (client, (limits, RateLimit::new(10, Duration::from_secs(1))))
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_is_corrected_before_it_takes_a_slot() {
    let table = table();
    let ahead = Arc::new(AtomicU64::new(0));
    let (clock, by) = (Clock::starting_at(epoch()), Arc::clone(&ahead));
    let clock =
        Clock::showing(move || clock.now() + Duration::from_secs(by.load(Ordering::Relaxed)));
    let (_, one) = environment_with(&table, clock);
    let (_, other) = environment_with(&table, Clock::starting_at(epoch()));
    for set in [0, 1_800, 60, 0] {
        ahead.store(set, Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        for environment in [&one, &other] {
            let slot = slots(&ask_all(environment, Ask::Retry, 1).await)[0].expect("a slot");
            assert!(slot <= millis(1_100), "{set} s ahead: {slot:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_joins_the_line_and_returns_at_the_end_of_the_pause_though_its_clock_is_off() {
    let table = table();
    let ahead = epoch() + Duration::from_secs(600);
    let (_, (limits, limit)) = environment_with(&table, Clock::starting_at(ahead));
    let until = ahead + Duration::from_secs(10);
    let asks = request(Ask::Joins(until), Duration::ZERO, 0.5);
    let admitted = limits.take_slot(Scope::default(), &limit, asks, 0).await;
    let Admitted::By(Admission::InLine(_, turn)) = admitted else { panic!("{admitted:?}") };
    assert_eq!(turn, until);
}
