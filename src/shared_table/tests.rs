//! Limits that several execution environments share, by stores that answer, and by stores in trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, pending};
use tokio::time::{Instant, sleep};

use super::*;
use crate::disposition::Deferral;
use crate::limit::{Admission, Ask, Demand};
use crate::policy::{RateLimit, RetryPolicy};
use crate::scope::Scope;
use crate::table::MemoryTable;

mod alone;
mod clock;
mod pauses;
mod line;
mod recovery;

const LONGEST: Duration = Duration::from_secs(2);

fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The limits of a queue.
fn limits(client: &Arc<TableClient>, queue: &str) -> Arc<SharedPauses> {
    SharedPauses::new(client, &RetryPolicy::default(), queue)
}

/// A time as HTTP tells it.
fn whole_seconds(time: SystemTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(epoch_millis(time) / 1_000)
}

/// A table that counts requests and answers as it is told.
#[derive(Debug, Default)]
struct Told {
    items: MemoryTable,
    requests: AtomicU32,
    /// The trouble of the next requests, the first one last.
    trouble: Mutex<Vec<Case>>,
    /// How long each answer takes.
    latency: Duration,
    /// If the table tells its time.
    clock: Option<Clock>,
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Throttled,
    /// The request has no effect and no answer.
    Lost,
    /// The request has its effect, and no answer.
    Unsaid,
    Denied,
}

impl Told {
    fn requests(&self) -> u32 {
        self.requests.swap(0, Ordering::Relaxed)
    }

    fn next(self: &Arc<Self>, cases: &[Case]) {
        *lock(&self.trouble) = cases.iter().rev().copied().collect();
    }
}

impl Told {
    async fn answer(
        &self,
        request: impl Future<Output = Result<TableResponse, TableError>>,
    ) -> Result<TableResponse, TableError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let case = lock(&self.trouble).pop();
        match case {
            None => {}
            Some(Case::Throttled) => return Err(TableError::Throttled),
            Some(Case::Denied) => return Err(TableError::Unavailable("Denied".into())),
            Some(Case::Lost) => return pending().await,
            Some(Case::Unsaid) => {
                let _ = request.await;
                return pending().await;
            }
        }
        sleep(self.latency).await;
        let date = self.clock.as_ref().map(|clock| whole_seconds(clock.now()));
        Ok(TableResponse { date, ..request.await? })
    }
}

impl Table for Told {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        self.answer(self.items.update(key, update)).boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        self.answer(self.items.read(key)).boxed()
    }
}

/// The limits of an execution environment, and the limit of its scope.
type Environment = (Arc<SharedPauses>, RateLimit);

fn environment(table: &Arc<Told>, calls: u32, burst: u32) -> Environment {
    let limit = RateLimit { burst, ..RateLimit::new(calls, Duration::from_secs(1)) };
    let table = Arc::clone(table) as Arc<dyn Table>;
    let client = TableClient::new(
        SharedTable { max_environments: 10, ..SharedTable::by(table) },
        Clock::starting_at(epoch()),
    );
    (limits(&Arc::new(client), ""), limit)
}

/// The request of a message that a pause does not concern.
fn request(ask: Ask, longest: Duration, sample: f64) -> Request {
    let demand = Demand { ask, tenant: None, units: 1, longest };
    Request { demand, sample, may_be_deferred: false }
}

async fn ask_all((limits, limit): &Environment, ask: Ask, messages: u32) -> Vec<Admitted> {
    let asks = (0..messages).map(|number| {
        let others = usize::try_from(messages - 1 - number).expect("few");
        limits.take_slot(Scope::default(), limit, request(ask, LONGEST, 0.5), others)
    });
    join_all(asks).await
}

fn slots(admitted: &[Admitted]) -> Vec<Option<Duration>> {
    let slot = |admitted: &Admitted| match admitted {
        Admitted::By(Admission::Slot(wait)) => Some(*wait),
        _ => None,
    };
    admitted.iter().map(slot).collect()
}

#[tokio::test(start_paused = true)]
async fn messages_that_ask_together_ask_by_one_request() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    let admitted = ask_all(&one, Ask::Newcomer, 10).await;
    let expected: Vec<_> = (0..10).map(|slot| Some(millis(slot * 100))).collect();
    assert_eq!((slots(&admitted), table.requests()), (expected, 2), "the first one reads");
    let admitted = ask_all(&one, Ask::Newcomer, 30).await;
    assert_eq!(slots(&admitted).iter().flatten().count(), 11, "the slots of two seconds");
    assert_eq!(table.requests(), 1, "slots and places by one request");
}

#[tokio::test(start_paused = true)]
async fn all_environments_keep_one_limit_and_one_line() {
    let table = Arc::new(Told::default());
    let environments: Vec<_> = (0..5).map(|_| environment(&table, 10, 1)).collect();
    let mut turns = Vec::new();
    for environment in &environments {
        let admitted = ask_all(environment, Ask::Newcomer, 10).await;
        assert_eq!(table.requests(), 2);
        turns.extend(admitted.into_iter().map(|admitted| match admitted {
            Admitted::By(Admission::Slot(wait)) => wait,
            Admitted::By(Admission::InLine(_, due)) => due.duration_since(epoch()).expect("later"),
            other => panic!("{other:?}"),
        }));
    }
    // Those who wait return half a second early.
    let slots = (0..=20).map(|slot| millis(slot * 100));
    let expected: Vec<_> = slots.chain((16..45).map(|turn| millis(turn * 100))).collect();
    assert_eq!(turns, expected);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_turn_is_far_away_keeps_its_place_without_a_request() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    let admitted = ask_all(&one, Ask::Newcomer, 50).await;
    let Some(Admitted::By(Admission::InLine(place, due))) = admitted.last() else {
        panic!("{admitted:?}")
    };
    table.requests();
    let again = ask_all(&one, Ask::Waited(*place), 1).await;
    assert_eq!(again, [Admitted::By(Admission::InLine(*place, *due))]);
    assert_eq!(table.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_store_puts_messages_off_for_longer_each_time() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    table.next(&[Case::Throttled; 2]);
    for times in [1, 2] {
        let why = Deferral::TableThrottled;
        let admitted = ask_all(&one, Ask::Newcomer, 2).await;
        assert_eq!(admitted, [Admitted::Deferred { why, times }; 2]);
    }
    assert_eq!(slots(&ask_all(&one, Ask::Newcomer, 1).await), [Some(Duration::ZERO)]);
    table.next(&[Case::Throttled; 2]);
    let again = ask_all(&one, Ask::Newcomer, 1).await;
    assert_eq!(again, [Admitted::Deferred { why: Deferral::TableThrottled, times: 1 }]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_throttled_for_a_moment_is_asked_once_more() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    ask_all(&one, Ask::Newcomer, 1).await;
    table.requests();
    table.next(&[Case::Throttled]);
    let began = Instant::now();
    assert_eq!(slots(&ask_all(&one, Ask::Newcomer, 2).await), [0, 100].map(|ms| Some(millis(ms))));
    assert_eq!((began.elapsed(), table.requests()), (millis(200), 2));
}

#[tokio::test(start_paused = true)]
async fn without_a_store_each_environment_makes_as_many_calls_as_lately() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    for (case, timeout) in [(Case::Lost, 250), (Case::Denied, 0), (Case::Unsaid, 250)] {
        // Four calls each second, for half a minute.
        for _ in 0..30 {
            let admitted = ask_all(&one, Ask::Retry, 4).await;
            assert_eq!(slots(&admitted).iter().flatten().count(), 4);
            sleep(Duration::from_secs(1)).await;
        }
        table.next(&[case; 5_000]);
        let (began, mut calls) = (Instant::now(), 0);
        ask_all(&one, Ask::Retry, 1).await;
        assert_eq!(began.elapsed(), millis(timeout), "{case:?}");
        ask_all(&one, Ask::Retry, 1).await;
        table.requests();
        ask_all(&one, Ask::Retry, 1).await;
        let asked = u32::from(timeout == 0);
        assert_eq!(table.requests(), asked, "{case:?}: a silent table is left alone");
        while began.elapsed() < Duration::from_secs(30) {
            calls += slots(&ask_all(&one, Ask::Retry, 1).await).iter().flatten().count();
            sleep(millis(20)).await;
        }
        assert!((35..=121).contains(&calls), "{case:?}: {calls} calls");
        table.next(&[]);
        sleep(Duration::from_secs(3)).await;
        let (limits, limit) = &one;
        let now = request(Ask::Retry, Duration::ZERO, 0.5);
        let again = limits.take_slot(Scope::default(), limit, now, 0).await;
        assert_eq!(slots(&[again]), [Some(Duration::ZERO)], "{case:?}: it answers again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_the_store_takes_a_slot_when_the_store_answers_again() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 1, 1);
    let ask = async || {
        let (limits, limit) = &one;
        let asks = request(Ask::Retry, LONGEST, 0.0);
        slots(&[limits.take_slot(Scope::default(), limit, asks, 0).await])
    };
    assert_eq!(ask().await, [Some(Duration::ZERO)]);
    for _ in 0..3 {
        sleep(Duration::from_secs(2)).await;
        table.next(&[Case::Denied]);
        assert_eq!(ask().await, [Some(Duration::ZERO)], "as many calls as lately");
        assert_eq!(ask().await, [Some(Duration::from_secs(1))]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_the_store_slots_begin_when_no_environment_calls_without_it_any_more() {
    let table = Arc::new(Told::default());
    let all = [environment(&table, 10, 1), environment(&table, 10, 1)];
    for one in &all {
        ask_all(one, Ask::Retry, 4).await;
    }
    table.next(&[Case::Denied; 20]);
    for one in &all {
        ask_all(one, Ask::Retry, 1).await;
    }
    sleep(Duration::from_secs(60)).await;
    table.next(&[]);
    for (one, slot) in all.iter().zip([1_000, 1_100]) {
        assert_eq!(slots(&ask_all(one, Ask::Retry, 1).await), [Some(millis(slot))]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_a_new_environment_calls_at_its_part_of_the_limit() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    table.next(&[Case::Lost; 60]);
    let began = Instant::now();
    let why = Deferral::TableUnavailable;
    let admitted = ask_all(&one, Ask::Newcomer, 1).await;
    assert_eq!(admitted, [Admitted::Deferred { why, times: 1 }]);
    assert_eq!(began.elapsed(), Duration::from_secs(1), "the first answer may take longer");
    // One of ten environments: a call each second, the first one after half a second.
    let mut calls = Vec::new();
    while began.elapsed() < Duration::from_secs(12) {
        let admitted = ask_all(&one, Ask::Newcomer, 1).await;
        calls.extend(slots(&admitted).into_iter().flatten().map(|wait| began.elapsed() + wait));
        sleep(millis(10)).await;
    }
    assert!((5..=11).contains(&calls.len()), "{calls:?}");
    assert!(calls.is_sorted_by(|one, next| *next >= *one + millis(999)), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_items_begins_anew() {
    let table = Arc::new(Told::default());
    let one = environment(&table, 10, 1);
    ask_all(&one, Ask::Newcomer, 50).await;
    table.items.clear();
    table.requests();
    assert_eq!(slots(&ask_all(&one, Ask::Newcomer, 1).await), [Some(Duration::ZERO)]);
    assert_eq!(table.requests(), 2, "the state that was seen is refused");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_the_answer_is_part_of_the_wait() {
    let table = Arc::new(Told { latency: millis(100), ..Told::default() });
    let one = environment(&table, 10, 1);
    ask_all(&one, Ask::Newcomer, 1).await;
    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    let admitted = ask_all(&one, Ask::Newcomer, 3).await;
    let calls: Vec<_> =
        slots(&admitted).iter().flatten().map(|wait| began.elapsed() + *wait).collect();
    assert_eq!(calls, [100, 200, 300].map(millis), "from the expected answer on");
}

#[test]
fn a_date_fits_to_the_offsets_between_question_and_answer() {
    for (asked, answered, date, fitting) in [
        (5_000, 5_000, 5, 0..=1_000),
        (5_999, 5_999, 5, -999..=1),
        (5_300, 5_310, 5, -310..=700),
        (5_300, 5_310, 60, 54_690..=55_700),
        (60_000, 60_010, 5, -55_010..=-54_000),
        // A freeze of a minute, after which nearly all offsets fit.
        (5_300, 65_300, 5, -60_300..=700),
    ] {
        let date = epoch() + Duration::from_secs(date);
        let offsets = fitting_offsets(epoch() + millis(asked), epoch() + millis(answered), date);
        assert_eq!(offsets, fitting, "{asked} {answered}");
    }
    let set_back = fitting_offsets(epoch() + millis(8_000), epoch() + millis(6_000), epoch());
    assert!(set_back.is_empty());
    let absurd = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
    assert!(!fitting_offsets(epoch(), epoch(), absurd).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_is_corrected_by_the_store() {
    for (ahead, corrected) in [(1, 1_000), (2, 2_000), (60, 60_000)] {
        let clock = Clock::starting_at(epoch() + Duration::from_secs(ahead));
        let table = Arc::new(Told { clock: Some(clock), ..Told::default() });
        let client = TableClient::new(
            SharedTable::by(Arc::clone(&table) as Arc<dyn Table>),
            Clock::starting_at(epoch()),
        );
        client.update(&Key::of([b"one"]), &Update::new()).await.expect("an answer");
        assert_eq!(
            client.now().duration_since(epoch()).expect("later"),
            millis(corrected),
            "{ahead}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn successive_answers_correct_a_clock_to_a_few_milliseconds() {
    let clock = Clock::starting_at(epoch());
    let client = TableClient::new(SharedTable::by(Arc::new(Told::default())), clock.clone());
    let mut before: i64 = 0;
    // The clock is set each time; the last date is absurd.
    for ahead in [0, 3, -300, 1_000, -60_000, 2_500, 1_000_000_000_000, 0] {
        for answer in 0..500 {
            let asked = clock.now();
            sleep(millis(2)).await;
            let date = whole_seconds(shifted(clock.now(), ahead));
            sleep(millis(3)).await;
            client.follow(Some(date), asked);
            let offset = client.offset.load(Ordering::Relaxed);
            assert!((offset - ahead).abs() <= 1_005, "answer {answer}: {offset} of {ahead}");
            let is_between = (before.min(ahead) - 5..=before.max(ahead) + 5).contains(&offset);
            assert!(is_between, "answer {answer}: {offset} of {ahead}");
            sleep(millis(137)).await;
        }
        let offset = client.offset.load(Ordering::Relaxed);
        assert!((offset - ahead).abs() <= 10, "{offset} of {ahead}");
        before = offset;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_freeze_does_not_set_the_clock() {
    let later = Clock::starting_at(epoch() + Duration::from_secs(60));
    let table = Arc::new(Told { clock: Some(later), ..Told::default() });
    // The clock jumps by a minute with each look at it.
    let looks = AtomicU32::new(0);
    let clock = Clock::showing(move || {
        epoch() + Duration::from_secs(60) * looks.fetch_add(1, Ordering::Relaxed)
    });
    let client = TableClient::new(SharedTable::by(table as Arc<dyn Table>), clock);
    client.update(&Key::of([b"one"]), &Update::new()).await.expect("an answer");
    assert_eq!(client.offset.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn scopes_and_queues_have_limits_of_their_own() {
    let table = Arc::new(Told::default());
    let limit = RateLimit::new(1, Duration::from_secs(1));
    let client = |namespace: &str| {
        let shared_table = SharedTable {
            namespace: namespace.to_owned(),
            ..SharedTable::by(Arc::clone(&table) as Arc<dyn Table>)
        };
        Arc::new(TableClient::new(shared_table, Clock::starting_at(epoch())))
    };
    for (namespace, queue, scope) in [
        ("one", "", Scope::default()),
        ("two", "", Scope::default()),
        ("one", "orders", Scope::default()),
        ("one", "", Scope::of("tenant 7")),
    ] {
        let limits = limits(&client(namespace), queue);
        let asks = request(Ask::Newcomer, LONGEST, 0.5);
        let admitted = limits.take_slot(scope, &limit, asks, 0).await;
        assert_eq!(admitted, Admitted::By(Admission::Slot(Duration::ZERO)), "{namespace} {queue}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_message_takes_no_slot_while_the_store_is_down() {
    let table = Arc::new(Told::default());
    let (limits, limit) = environment(&table, 1, 1);
    table.next(&[Case::Denied; 20]);
    sleep(Duration::from_secs(100)).await;
    let paused = Ask::Joins(epoch() + Duration::from_secs(1_000));
    let admit = |ask| limits.take_slot(Scope::default(), &limit, request(ask, LONGEST, 0.0), 0);
    let why = Deferral::TableUnavailable;
    assert_eq!(admit(paused).await, Admitted::Deferred { why, times: 1 });
    assert!(matches!(admit(Ask::Retry).await, Admitted::By(Admission::Slot(_))));
}
