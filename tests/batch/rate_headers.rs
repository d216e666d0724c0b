//! A limit that follows the headers of responses: the service has an allowance for each minute, which
//! others use too, or which is smaller than the limit.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::classify::Response;
use requeue::policy::RateLimit;
use requeue::{Failure, Message};
use tokio::time::{Instant, sleep};

use crate::rate_limit::{Kept, world};
use crate::world::{World, millis, secs};

/// In milliseconds.
const WINDOW: u64 = 60_000;
/// Calls in each window.
const ALLOWANCE: u64 = 3_000;

/// A service with an allowance in each window, of which others use so many each second.
struct Service {
    began: Instant,
    others: u64,
    /// The window of the last call, and the calls in it.
    window: Mutex<(u64, u64)>,
    done: Mutex<u64>,
    refused: Mutex<u64>,
}

impl Service {
    fn new(others: u64) -> Arc<Self> {
        let (window, done, refused) = Default::default();
        Arc::new(Self { began: Instant::now(), others, window, done, refused })
    }

    fn done(&self) -> usize {
        usize::try_from(*self.done.lock().unwrap()).unwrap()
    }

    fn call(&self, message: &Message) -> Result<(), Failure> {
        let time = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        let (number, since) = (time / WINDOW, time % WINDOW);
        let others = self.others * since / 1_000;
        let mut window = self.window.lock().unwrap();
        if window.0 != number {
            *window = (number, 0);
        }
        let reset = (WINDOW - since).div_ceil(1_000).to_string();
        if window.1 + others >= ALLOWANCE {
            *self.refused.lock().unwrap() += 1;
            let headers: &[(&str, &[u8])] = &[("Retry-After", reset.as_bytes())];
            let response = Response { status: 429, headers, body: b"" };
            return Err(Failure::from_response(&response, SystemTime::UNIX_EPOCH));
        }
        window.1 += 1;
        *self.done.lock().unwrap() += 1;
        let left = (ALLOWANCE - window.1 - others).to_string();
        let headers: &[(&str, &[u8])] = &[
            ("X-RateLimit-Limit", b"3000"),
            ("X-RateLimit-Remaining", left.as_bytes()),
            ("X-RateLimit-Reset", reset.as_bytes()),
        ];
        let response = Response { status: 200, headers, body: b"" };
        message.note_response(&response, SystemTime::UNIX_EPOCH);
        Ok(())
    }
}

/// The refused calls, and the time until all messages are done.
async fn run(world: &World, service: &Arc<Service>, messages: usize) -> (u64, Duration) {
    world.send_numbered(messages).await;
    let environments = (0..10).map(|_| async {
        let shared = Arc::clone(service);
        let processor = world.processor(move |message: Message| {
            let service = Arc::clone(&shared);
            async move {
                sleep(millis(100)).await;
                service.call(&message)
            }
        });
        while service.done() < messages {
            join_all((0..3).map(|_| world.invoke(&processor))).await;
            sleep(millis(100)).await;
            assert!(service.began.elapsed() < secs(1_000));
        }
    });
    join_all(environments).await;
    assert!(world.dead().is_empty());
    (*service.refused.lock().unwrap(), service.began.elapsed())
}

fn following(kept: Kept, limit: u32) -> World {
    let mut world = world(kept, limit, 1);
    let mut rate = RateLimit::new(limit, secs(1));
    rate.headers = true;
    world.settings.policy.limit = Some(rate);
    world
}

#[tokio::test(start_paused = true)]
async fn the_calls_fit_into_what_others_leave() {
    let service = Service::new(20);
    let (refused, time) = run(&following(Kept::Together, 50), &service, 5_000).await;
    // Without headers, 1,568 calls are refused. Two windows have 3,600 calls for them.
    assert!(refused <= 25 && time <= secs(160), "{refused} {time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_too_high_uses_the_allowance_and_no_more() {
    // Alone, each of the ten environments has a limit of its own.
    for (kept, most) in [(Kept::Together, 5), (Kept::Alone, 60)] {
        let service = Service::new(0);
        let (refused, time) = run(&following(kept, 200), &service, 4_000).await;
        assert!(refused <= most && time <= secs(100), "{kept:?}: {refused} {time:?}");
    }
}
