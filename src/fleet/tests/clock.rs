//! Clocks that are off when they decide something for all execution environments.

use super::*;
use crate::store::Field;

/// A store that tells its time.
fn store() -> Arc<Told> {
    Arc::new(Told { clock: Some(Clock::starting_at(epoch())), ..Told::default() })
}

fn environment_with(store: &Arc<Told>, clock: Clock) -> (Arc<Fleet>, Environment) {
    let store = Arc::clone(store) as Arc<dyn Store>;
    let fleet = Arc::new(Fleet::new(Coordination::by(store), clock));
    let limits = SharedLimits::new(Arc::clone(&fleet), String::new());
    (fleet, (Arc::new(limits), RateLimit::new(10, Duration::from_secs(1))))
}

#[tokio::test(start_paused = true)]
async fn a_message_joins_the_line_at_the_end_of_the_hold_though_its_clock_is_off() {
    let store = store();
    let ahead = epoch() + Duration::from_secs(600);
    let (fleet, (limits, limit)) = environment_with(&store, Clock::starting_at(ahead));
    let until = ahead + Duration::from_secs(10);
    let asks = request(Ask::Held(until), Duration::ZERO, 0.5);
    let admitted = limits.admit(Scope::default(), &limit, asks, 0).await;
    let Admitted::By(Admission::InLine(_, turn)) = admitted else { panic!("{admitted:?}") };
    assert_eq!(turn, until);
    let item = store.items.read(&fleet.scope_key("", Scope::default())).await.expect("in memory");
    let end = Duration::from_nanos(item.before.get(Field::new("lineEnd")));
    let end = (SystemTime::UNIX_EPOCH + end).duration_since(epoch()).expect("later");
    assert!(end <= Duration::from_secs(12), "the line has no gap: {end:?}");
}
