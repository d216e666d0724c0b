//! The setup of the system of a run.

use std::time::Duration;

use requeue::policy::{
    Backoff, CircuitBreaker, ClassPolicy, FairShares, Jitter, KeyLimit, MessageKey, RateLimit,
    RetryPolicy,
};
use requeue::{Limits, Mode, RecursiveLoop, Strategy, Wrap};

use crate::idempotency::once;
use crate::producer::{CUSTOMER, TENANT};
use requeue_testkit::dice::Dice;

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// All times within an invocation are multiples of this. The time for which a chunk waits for
/// company is none, so that it never ends in the very millisecond in which another message comes:
/// which of the two is first is left to tokio's own dice.
pub const fn steps(steps: u64) -> Duration {
    Duration::from_millis(7 * steps)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetters {
    Redrive,
    Annotate,
    Direct,
}

/// How often something goes wrong, in a thousand.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub of_requests: u64,
    pub deaths: u64,
    pub throttles: u64,
    pub errors: u64,
    pub duplicates: u64,
    pub handlers: u64,
    /// Records of which nobody can read when they were sent.
    pub unreadable: u64,
}

/// What runs the execution environments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Lambda's event source mapping.
    Mapping,
    /// Each is a process with a worker.
    Worker(Processes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    pub visibility: Duration,
    pub shutdown_timeout: Duration,
    /// How often, in a thousand, a process is told to end before everything is done.
    pub ends: u64,
    /// Whether all messages call the same, so that a pause of one is a pause of all.
    pub has_one_scope: bool,
}

/// The calls of a bulk handler.
#[derive(Clone, Debug)]
pub struct PerCall {
    pub most: usize,
    /// Whether all messages call the same, so that more of them share a call.
    pub has_one_scope: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub is_fifo: bool,
    pub messages: usize,
    pub policy: RetryPolicy,
    pub limits: Limits,
    pub strategy: Strategy,
    pub recursive_loop: RecursiveLoop,
    /// Whether Lambda itself cuts loops.
    pub cuts_loops: bool,
    pub dead_letters: DeadLetters,
    pub mode: Mode,
    pub wrap: Wrap,
    /// The one random number of all messages, if there is one.
    pub sample: Option<f64>,
    pub max_receive_count: u64,
    /// Receives in the dead-letter queue, where the last execution environment works on that.
    pub dead_receives: Option<u64>,
    pub function_timeout: Duration,
    pub window: Duration,
    pub batch_size: usize,
    /// How many seconds the clock of each execution environment is ahead.
    pub clocks: Vec<i64>,
    /// Batches at once in each of them.
    pub concurrency: usize,
    /// Whether the handler does the same with all messages, so that they stay together and requests
    /// are full.
    pub in_chorus: bool,
    /// Of a bulk handler.
    pub per_call: Option<PerCall>,
    pub trouble: Trouble,
    /// How often, in a thousand, a request to the table of the rate limits goes wrong; `None` without
    /// a table.
    pub table: Option<u64>,
    /// When the producer has sent everything, at the latest.
    pub sending: Duration,
    /// When trouble ends.
    pub calm: Duration,
    /// What calls say about the limits.
    pub told: Told,
    /// When an operator moves the dead letters back.
    pub redrives: Vec<Duration>,
    pub host: Host,
}

/// What calls say about the limits. A call that is cut says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// Each call uses so many times the units that were estimated.
    Used(u32),
    /// Some responses say that nothing is left for a while.
    Headers,
}

/// The attribute with the units of a call.
pub const UNITS: &str = "requeue.maxRetries";

impl Plan {
    /// The rate limits have dice of their own, and so has the bulk handler.
    pub fn new(seed: u64) -> Self {
        let [dice, of_limit, of_bulk, of_told, of_keys] =
            &[1, 4, 6, 8, 9].map(|of| Dice::of(seed, of));
        let is_fifo = dice.happens(200);
        let mut policy = policy(dice);
        policy.limit = rate_limit(of_limit);
        policy.key_limits = key_limits(policy.limit.is_some(), of_keys);
        let is_limited = policy.limit.is_some() || !policy.key_limits.is_empty();
        let table =
            (is_limited && of_limit.happens(600)).then(|| of_limit.pick(&[0, 0, 50, 300, 900]));
        // The attempts at messages that wait in their place are counted without a limit too.
        let table = table.or_else(|| {
            (is_fifo && of_limit.happens(600)).then(|| of_limit.pick(&[0, 0, 0, 100, 500]))
        });
        policy.idempotency = (table.is_some() && of_limit.happens(500)).then(|| once(of_limit));
        refine(&mut policy, of_limit);
        let strategy = if dice.happens(200) { Strategy::Visibility } else { Strategy::Copy };
        let recursive_loop =
            if dice.happens(300) { RecursiveLoop::Terminate } else { RecursiveLoop::Allow };
        // In its place each attempt is a receive, and so is each deferral.
        let waits_in_place = is_fifo
            || strategy == Strategy::Visibility
            || recursive_loop == RecursiveLoop::Terminate;
        let receives = || {
            if waits_in_place {
                2 * u64::from(policy.max_retries) + dice.roll(2, 5)
            } else {
                dice.roll(1, 8)
            }
        };
        let max_receive_count = receives();
        let dead_receives = dice.happens(250).then(receives);
        let function_timeout = steps(dice.roll(300, 9_000));
        let calm = secs(dice.roll(60, 7_200));
        let in_chorus = dice.happens(300);
        let plan = Self {
            is_fifo,
            messages: if in_chorus { dice.roll(5, 15) } else { dice.roll(1, 12) },
            policy,
            limits: limits(dice),
            strategy,
            recursive_loop,
            // Sometimes the function's property is not what the setting says.
            cuts_loops: recursive_loop == RecursiveLoop::Terminate || dice.happens(50),
            dead_letters: dice.pick(&[
                DeadLetters::Redrive,
                DeadLetters::Annotate,
                DeadLetters::Direct,
            ]),
            mode: if dice.happens(50) { Mode::Report } else { Mode::Requeue },
            wrap: if dice.happens(150) { Wrap::Never } else { Wrap::WhenNeeded },
            sample: (in_chorus || dice.happens(400))
                .then(|| dice.pick(&[0.0, 0.25, 0.5, 0.75, 1.0])),
            max_receive_count,
            dead_receives,
            function_timeout,
            window: if dice.happens(300) { steps(dice.roll(1, 1_000)) } else { Duration::ZERO },
            batch_size: dice.pick(&[1, 5, 10, 10, 25]),
            clocks: clocks(dice, if dead_receives.is_some() { 2 } else { 1 }),
            concurrency: dice.pick(&[1, 1, 2]),
            in_chorus,
            per_call: of_bulk.happens(250).then(|| PerCall {
                most: of_bulk.roll(1, 10),
                has_one_scope: of_bulk.happens(700),
            }),
            trouble: Trouble {
                of_requests: dice.pick(&[0, 50, 300, 600]),
                deaths: dice.pick(&[0, 0, 20, 100]),
                throttles: dice.pick(&[0, 0, 0, 100]),
                errors: dice.pick(&[0, 0, 0, 100]),
                duplicates: if is_fifo { 0 } else { dice.pick(&[0, 0, 0, 150]) },
                handlers: dice.pick(&[300, 700, 950]),
                unreadable: dice.pick(&[0, 0, 0, 200, 1_000]),
            },
            table,
            sending: if in_chorus {
                Duration::ZERO
            } else {
                secs(dice.pick(&[0, 1, dice.roll(0, 600)]))
            },
            calm,
            told: Told::Nothing,
            redrives: (0..dice.roll(0, 2)).map(|_| secs(dice.roll(60, 20_000))).collect(),
            host: Host::Mapping,
        };
        let plan = if dice.happens(200) { plan.of_workers(dice) } else { plan };
        // So that calls are full.
        let is_crowded = plan.per_call.is_some() && of_bulk.happens(700);
        let plan = if is_crowded { plan.of_many(of_bulk) } else { plan };
        // So that the messages of a value wait for each other.
        let is_crowded = !plan.policy.key_limits.is_empty() && of_keys.happens(500);
        let plan = if is_crowded { plan.of_many(of_keys) } else { plan };
        // SQS moves messages by their receives long after their attempts.
        let max_receive_count = if plan.counts_attempts() && of_limit.happens(700) {
            plan.max_receive_count.max(100)
        } else {
            plan.max_receive_count
        };
        Self { max_receive_count, ..plan }.telling(of_told)
    }

    /// The same, with calls that say something about the limits.
    fn telling(mut self, dice: &Dice) -> Self {
        let policy = &mut self.policy;
        let is_limited = policy.limit.is_some() || !policy.key_limits.is_empty();
        if !(is_limited && self.per_call.is_none() && dice.happens(300)) {
            return self;
        }
        self.told = if dice.happens(500) { Told::Used(dice.roll(2, 3)) } else { Told::Headers };
        let learns = |limit: &mut RateLimit, place: &mut Option<MessageKey>| {
            limit.headers = self.told == Told::Headers;
            *place = (!limit.headers).then(units);
        };
        let total = policy.limit.iter_mut().zip(std::iter::once(&mut policy.units));
        let keys = policy.key_limits.iter_mut().map(|key| (&mut key.limit, &mut key.units));
        for (at, (limit, place)) in total.chain(keys).enumerate() {
            if at == 0 || dice.happens(500) {
                learns(limit, place);
            }
        }
        // So that calls wait for each other.
        if dice.happens(700) { self.of_many(dice) } else { self }
    }

    /// The same with many messages at once.
    fn of_many(self, dice: &Dice) -> Self {
        let (messages, batch_size) = (dice.roll(5, 20), dice.pick(&[10, 25]));
        Self { messages, batch_size, sending: Duration::ZERO, ..self }
    }

    /// The same without what only Lambda does: it cuts loops, ends invocations, refuses some, and
    /// loses answers.
    fn of_workers(self, dice: &Dice) -> Self {
        let processes = Processes {
            visibility: secs(dice.roll(20, 120)),
            shutdown_timeout: steps(dice.roll(10, 6_000)),
            ends: dice.pick(&[0, 300, 900]),
            has_one_scope: dice.happens(700),
        };
        Self {
            recursive_loop: RecursiveLoop::Allow,
            cuts_loops: false,
            // None that it is told of.
            function_timeout: secs(86_400),
            window: Duration::ZERO,
            trouble: Trouble { throttles: 0, errors: 0, unreadable: 0, ..self.trouble },
            // With a clock that is further off it does not start.
            clocks: self.clocks.iter().map(|ahead| (*ahead).clamp(-59, 59)).collect(),
            host: Host::Worker(processes),
            ..self
        }
    }

    /// Of workers.
    pub fn processes(&self) -> Option<&Processes> {
        match &self.host {
            Host::Mapping => None,
            Host::Worker(processes) => Some(processes),
        }
    }

    /// The scope of a message, where they are not all of one.
    pub fn scope(&self, n: usize) -> usize {
        if self.has_one_scope() { 0 } else { n % 2 }
    }

    /// Whether all messages call the same.
    pub fn has_one_scope(&self) -> bool {
        self.processes().is_some_and(|processes| processes.has_one_scope)
            || self.per_call.as_ref().is_some_and(|calls| calls.has_one_scope)
    }

    /// How many batches of a worker may be in work.
    pub fn receivers(&self) -> usize {
        self.concurrency.min(self.limits.concurrency)
    }

    /// Long enough for every invocation to end before. A worker extends it.
    pub fn visibility(&self) -> u64 {
        match &self.host {
            Host::Mapping => (6 * self.function_timeout + self.window).as_secs() + 1,
            Host::Worker(processes) => processes.visibility.as_secs(),
        }
    }

    /// Whether an execution environment works on the dead-letter queue.
    pub fn works_on_dead(&self, environment: usize) -> bool {
        self.dead_receives.is_some() && environment + 1 == self.clocks.len()
    }

    /// Whether trouble of the table uses receives of a message, since it waits in its place.
    pub fn store_uses_receives(&self) -> bool {
        let waits_in_place = self.is_fifo
            || self.strategy == Strategy::Visibility
            || self.recursive_loop == RecursiveLoop::Terminate;
        waits_in_place && self.table.is_some_and(|faults| faults > 0)
    }

    /// Whether the table counts the attempts at messages.
    pub fn counts_attempts(&self) -> bool {
        // Whether Lambda's loop detection makes a message of a standard queue wait is not known here.
        let waits_in_place = self.is_fifo
            || self.strategy == Strategy::Visibility && self.recursive_loop == RecursiveLoop::Allow;
        let is_direct = self.dead_letters == DeadLetters::Direct && self.mode == Mode::Requeue;
        self.table.is_some() && is_direct && waits_in_place
    }

    /// The furthest apart that two clocks are, that of SQS being one.
    pub fn skew(&self) -> u64 {
        let all = || self.clocks.iter().copied().chain([0]);
        all().max().unwrap_or(0).abs_diff(all().min().unwrap_or(0))
    }
}

fn clocks(dice: &Dice, least: u64) -> Vec<i64> {
    let widest = if dice.happens(500) {
        0
    } else if dice.happens(50) {
        3_600
    } else {
        60
    };
    (0..dice.roll(least, 3)).map(|_| dice.roll(-widest, widest)).collect()
}

fn limits(dice: &Dice) -> Limits {
    let mut limits = Limits::default();
    limits.concurrency = dice.pick(&[1, 3, 12]);
    limits.timeout = steps(dice.roll(10, 6_000));
    limits.reserve = steps(dice.roll(10, 1_000));
    limits
}

fn policy(dice: &Dice) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    policy.max_retries = u32::try_from(dice.roll(0, 12)).expect("small");
    policy.max_retry_after = dice.pick(&[secs(43_200), secs(600)]);
    policy.message_ttl = dice.happens(100).then(|| secs(dice.roll(60, 7_200)));
    policy.max_deferrals = dice.pick(&[0, 1, 3, 100]);
    policy.max_postponements = dice.pick(&[0, 2, 10]);
    policy.max_pause = dice.happens(500).then(|| secs(dice.roll(1, 120)));
    policy.circuit_breaker = dice.happens(500).then(|| {
        let mut breaker = CircuitBreaker::default();
        breaker.threshold = u32::try_from(dice.roll(1, 6)).expect("small");
        breaker.reset_timeout = secs(dice.roll(1, 120));
        breaker
    });
    for class in [&mut policy.rate_limit, &mut policy.quota, &mut policy.temporary] {
        draw_class(class, dice);
    }
    let calls = &mut policy.sqs_calls;
    calls.max_attempts = u32::try_from(dice.roll(1, 6)).expect("small");
    calls.backoff = Backoff::Exponential { base: steps(14), multiplier: 2.0 };
    calls.max_delay = steps(700);
    calls.jitter = Jitter::None;
    policy
}

fn rate_limit(dice: &Dice) -> Option<RateLimit> {
    dice.happens(250).then(|| {
        let calls = u32::try_from(dice.roll(1, 20)).expect("small");
        let mut limit = RateLimit::new(calls, dice.pick(&[secs(1), secs(10)]));
        limit.burst = dice.pick(&[1, limit.burst, 5]);
        limit.max_reservation = dice.pick(&[Duration::ZERO, steps(100), secs(2)]);
        limit
    })
}

/// How the limit is shared, and what is beside it.
fn refine(policy: &mut RetryPolicy, of_limit: &Dice) {
    if let Some(limit) = &mut policy.limit {
        limit.adaptive = of_limit.happens(300);
        policy.fair_shares = of_limit.happens(400).then(|| {
            let mut shares = FairShares::by(MessageKey::MessageGroupId);
            shares.weights.insert("tenant-1".to_owned(), 3);
            shares
        });
        // An attribute that some messages have, with different numbers.
        policy.units = of_limit.happens(200).then(units);
    }
}

/// Limits of one or two keys, beside that of all messages or without one.
fn key_limits(beside: bool, dice: &Dice) -> Vec<KeyLimit> {
    if !dice.happens(if beside { 400 } else { 100 }) {
        return Vec::new();
    }
    let places = [MessageKey::MessageGroupId, MessageKey::Attribute(TENANT.to_owned()), customer()];
    let (first, number) = (dice.roll(0, 2), dice.pick(&[1, 1, 2]));
    let keys = places.into_iter().cycle().skip(first).take(number);
    let limits = keys.map(|key| {
        let calls = u32::try_from(dice.roll(1, 10)).expect("small");
        let mut limit = RateLimit::new(calls, dice.pick(&[secs(1), secs(10)]));
        limit.burst = dice.pick(&[1, 3, 30]);
        limit.max_reservation = dice.pick(&[Duration::ZERO, steps(100), secs(2)]);
        let mut limit = KeyLimit::new(key, limit);
        limit.units = dice.happens(250).then(units);
        limit
    });
    limits.collect()
}

fn customer() -> MessageKey {
    MessageKey::Body(CUSTOMER.parse().expect("a pointer"))
}

fn units() -> MessageKey {
    MessageKey::Attribute(UNITS.to_owned())
}

fn draw_class(class: &mut ClassPolicy, dice: &Dice) {
    let base = secs(dice.roll(1, 60));
    class.backoff = match dice.roll(0, 5) {
        0 | 1 => Backoff::Exponential { base, multiplier: dice.pick(&[1.0, 2.0, 3.0]) },
        2 => Backoff::Linear { base },
        3 => Backoff::Fibonacci { base },
        4 => Backoff::Constant { base },
        _ => Backoff::List { first: base, then: vec![2 * base, 5 * base] },
    };
    class.max_delay = base + secs(dice.pick(&[0, 30, 300, 2_000]));
    class.jitter = dice.pick(&[
        Jitter::Full,
        Jitter::Equal,
        Jitter::Proportional(0.1),
        Jitter::Decorrelated,
        Jitter::None,
    ]);
    class.max_retries = dice.happens(300).then(|| u32::try_from(dice.roll(0, 6)).expect("small"));
    class.total_timeout = dice.pick(&[secs(60), secs(900), secs(10_000), secs(43_200)]);
}
