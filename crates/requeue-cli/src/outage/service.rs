//! The downstream service: down at first, then rate-limited.

use std::collections::BTreeMap;
use std::sync::Arc;

use requeue::classify::Response;
use requeue::{Clock, Failure, Sampler};
use tokio::time::{Instant, sleep};

use super::Arguments;
use crate::simulated::{Bucket, CALL};
use parking_lot::Mutex;

#[derive(Clone)]
pub(super) struct DownstreamService {
    pub(super) began: Instant,
    pub(super) back_at: Instant,
    /// The share of calls that it accepts during the outage.
    availability: f64,
    sampler: Sampler,
    clock: Clock,
    pub(super) log: Arc<Mutex<ServiceLog>>,
}

pub(super) struct ServiceLog {
    pub(super) while_down: u64,
    pub(super) done_while_down: u64,
    pub(super) by_second: BTreeMap<u64, u64>,
    pub(super) refused: u64,
    /// The calls that it accepts.
    bucket: Bucket,
    pub(super) last_done: Option<Instant>,
}

impl DownstreamService {
    pub(super) fn new(arguments: &Arguments, clock: Clock) -> Self {
        let began = Instant::now();
        Self {
            began,
            back_at: began + arguments.outage,
            availability: f64::from(arguments.availability) / 100.0,
            // A sampler of its own, so that another policy does not change the outage.
            sampler: Sampler::seeded(!arguments.simulation.seed),
            clock,
            log: Arc::new(Mutex::new(ServiceLog {
                while_down: 0,
                done_while_down: 0,
                by_second: BTreeMap::new(),
                refused: 0,
                bucket: Bucket::empty(arguments.rate.into()),
                last_done: None,
            })),
        }
    }

    pub(super) async fn call(&self) -> Result<(), Failure> {
        let status = self.status();
        sleep(CALL).await;
        let headers: &[(&str, &[u8])] = match status {
            200 => return Ok(()),
            429 => &[("Retry-After", b"1")],
            _ => &[],
        };
        Err(Failure::from_response(&Response { status, headers, body: b"" }, self.clock.now()))
    }

    fn status(&self) -> u16 {
        let mut log = self.log.lock();
        let now = Instant::now();
        let is_down = now < self.back_at;
        if is_down {
            log.while_down += 1;
            if self.sampler.sample() >= self.availability {
                return 503;
            }
        } else {
            *log.by_second.entry((now - self.back_at).as_secs()).or_default() += 1;
        }
        if !log.bucket.takes() {
            log.refused += 1;
            return 429;
        }
        log.done_while_down += u64::from(is_down);
        log.last_done = Some(now);
        200
    }
}
