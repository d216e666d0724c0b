//! SQS as a state machine: it takes a request, and returns a response at the time that was set
//! last. It reads no clock, does not wait, and knows no protocol.

pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod digest;
pub(crate) mod error;
mod index;
pub(crate) mod limits;
pub(crate) mod message;
mod moves;
mod queue;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use error::SqsError;
pub(crate) use message::Arrivals;
use message::{Draft, Message, Received, Sent};
pub(crate) use moves::{MoveStatus, MoveTask};
use queue::{QueueState, Take};
use settings::Settings;

use requeue_sqs::{MAX_QUEUE_NAME, epoch_millis};

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) region: String,
    pub(crate) account: String,
    /// The time of all operations, until another is set.
    pub(crate) now: SystemTime,
    queues: BTreeMap<String, QueueState>,
    deleted: BTreeMap<String, SystemTime>,
    moves: Vec<MoveTask>,
    arrivals: Arrivals,
    instances: u64,
    ids: Ids,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receive {
    pub(crate) max_messages: Option<i64>,
    pub(crate) visibility_secs: Option<i64>,
    pub(crate) wait_secs: Option<i64>,
}

impl Receive {
    /// With the visibility timeout of the queue.
    pub(crate) fn of(max: usize, wait: Duration) -> Self {
        let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        let max_messages = number(u64::try_from(max).unwrap_or(u64::MAX));
        Self { max_messages, visibility_secs: None, wait_secs: number(wait.as_secs()) }
    }
}

/// How long an empty receive waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongPoll {
    pub(crate) wait: Duration,
    /// The next time at which another try may find something, if nothing else happens.
    pub(crate) next_due: Option<SystemTime>,
}

/// A result, and its consequences for waiting requests.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    /// Long polls may find messages.
    pub(crate) is_news: bool,
    /// The result is empty, and its request may wait.
    pub(crate) long_poll: Option<LongPoll>,
}

impl Engine {
    pub(crate) fn new(region: &str, account: &str, seed: u64) -> Self {
        Self {
            region: region.to_owned(),
            account: account.to_owned(),
            now: SystemTime::UNIX_EPOCH,
            queues: BTreeMap::new(),
            deleted: BTreeMap::new(),
            moves: Vec::new(),
            arrivals: Arrivals::default(),
            // A handle of an earlier process must not be valid in this one.
            instances: seed,
            ids: Ids { seed, given: 0 },
        }
    }

    pub(crate) fn arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{name}", self.region, self.account)
    }

    pub(crate) fn create_queue(
        &mut self,
        name: &str,
        attributes: &BTreeMap<String, String>,
        tags: BTreeMap<String, String>,
    ) -> Result<(), SqsError> {
        let fifo =
            attributes.get("FifoQueue").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        queue_name(name, fifo)?;
        let settings = Settings::of(fifo).with(attributes)?;
        if let Some(queue) = self.queues.get(name) {
            return same_attributes(queue, &settings, attributes);
        }
        if self.deleted.get(name).is_some_and(|at| self.now < *at + limits::NAME_HELD) {
            return Err(SqsError::new(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another \
                 with the same name.",
            ));
        }
        self.check_redrive(name, &settings)?;
        self.instances = self.instances.wrapping_add(1);
        let mut queue = QueueState::new(name, settings, self.instances, self.now);
        queue.tags = tags;
        queue.arrivals = self.arrivals.clone();
        self.queues.insert(name.to_owned(), queue);
        Ok(())
    }

    /// Calls the observer for each message that enters a queue by any way.
    pub(crate) fn tell(&mut self, arrivals: Arrivals) {
        for queue in self.queues.values_mut() {
            queue.arrivals = arrivals.clone();
        }
        self.arrivals = arrivals;
    }

    pub(crate) fn queue_names(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }

    /// A queue, after time has passed.
    pub(crate) fn queue(&mut self, name: &str) -> Result<&mut QueueState, SqsError> {
        self.advance_moves();
        self.at(name).ok_or_else(SqsError::no_queue)
    }

    fn at(&mut self, name: &str) -> Option<&mut QueueState> {
        let queue = self.queues.get_mut(name)?;
        queue.advance(self.now);
        Some(queue)
    }

    pub(crate) fn delete_queue(&mut self, name: &str) -> Result<(), SqsError> {
        self.queues.remove(name).ok_or_else(SqsError::no_queue)?;
        self.deleted.insert(name.to_owned(), self.now);
        Ok(())
    }

    pub(crate) fn attributes(&mut self, name: &str) -> Result<BTreeMap<String, String>, SqsError> {
        let arn = self.arn(name);
        let queue = self.queue(name)?;
        let counts = queue.index.counts();
        let mut out = queue.settings.to_attributes();
        let seconds = |time| (epoch_millis(time) / 1_000).to_string();
        out.extend([
            ("QueueArn".to_owned(), arn),
            ("CreatedTimestamp".to_owned(), seconds(queue.created)),
            ("LastModifiedTimestamp".to_owned(), seconds(queue.modified)),
            ("ApproximateNumberOfMessages".to_owned(), counts.visible.to_string()),
            ("ApproximateNumberOfMessagesDelayed".to_owned(), counts.delayed.to_string()),
            ("ApproximateNumberOfMessagesNotVisible".to_owned(), counts.in_flight.to_string()),
        ]);
        Ok(out)
    }

    pub(crate) fn set_attributes(
        &mut self,
        name: &str,
        attributes: &BTreeMap<String, String>,
    ) -> Result<(), SqsError> {
        let settings = self.queue(name)?.settings.with(attributes)?;
        self.check_redrive(name, &settings)?;
        self.queue(name)?.configure(settings);
        Ok(())
    }

    pub(crate) fn dead_letter_sources(&self, name: &str) -> Vec<&str> {
        let arn = self.arn(name);
        let names_it = |queue: &&QueueState| {
            let policy = queue.settings.redrive.as_ref();
            policy.is_some_and(|policy| policy.dead_letter_target_arn == arn)
        };
        self.queues.values().filter(names_it).map(|queue| queue.name.as_str()).collect()
    }

    pub(crate) fn send(&mut self, name: &str, draft: Draft) -> Result<Sent, SqsError> {
        let id = self.ids.next();
        self.queue(name)?.send(draft, id)
    }

    pub(crate) fn receive(
        &mut self,
        name: &str,
        asked: Receive,
    ) -> Result<Answered<Vec<Received>>, SqsError> {
        let dead_letter = self.dead_letter_queue(name);
        let source_arn = self.arn(name);
        let queue = self.queue(name)?;
        let number = check::bounds_or;
        let limit =
            number(1, asked.max_messages, "MaxNumberOfMessages", &limits::RECEIVE_MESSAGES)?;
        let own = queue.settings.number("VisibilityTimeout");
        let visibility =
            number(own, asked.visibility_secs, "VisibilityTimeout", &limits::VISIBILITY_SECS)?;
        let visibility = Duration::from_secs(visibility);
        let own = queue.settings.number("ReceiveMessageWaitTimeSeconds");
        let wait = number(own, asked.wait_secs, "WaitTimeSeconds", &limits::WAIT_SECS)?;
        let wait = Duration::from_secs(wait);
        // A long poll waits and finds nothing. Source: guide, "Amazon SQS visibility timeout".
        if wait.is_zero()
            && !queue.settings.is_fifo()
            && queue.index.counts().in_flight >= limits::IN_FLIGHT
        {
            return Err(SqsError::new(
                "OverLimit",
                "The maximum number of in flight messages is reached.",
            ));
        }
        let take = Take {
            limit: usize::try_from(limit).unwrap_or(1),
            visibility,
            max_receive_count: dead_letter.as_ref().map(|(_, max)| *max),
        };
        let (value, moved) = queue.receive(take);
        let is_news = !moved.is_empty();
        if let Some((dead_letter, _)) = dead_letter {
            self.dead_letter(&dead_letter, &source_arn, moved);
        }
        let long_poll = LongPoll { wait, next_due: self.next_due(name) };
        let long_poll = value.is_empty().then_some(long_poll);
        Ok(Answered { value, is_news, long_poll })
    }

    /// The queue that a queue's redrive policy names, if it exists, and the policy's limit.
    fn dead_letter_queue(&self, name: &str) -> Option<(String, u64)> {
        let policy = self.queues.get(name)?.settings.redrive.as_ref()?;
        let target = name_of(&policy.dead_letter_target_arn);
        self.queues.contains_key(target).then(|| (target.to_owned(), policy.max_receive_count))
    }

    fn dead_letter(&mut self, target: &str, source_arn: &str, moved: Vec<Message>) {
        let now = self.now;
        let Some(queue) = self.at(target) else { return };
        for mut message in moved {
            message.dead_letter_source = Some(source_arn.to_owned());
            // A FIFO queue's clock starts again, and its deduplication id becomes the message id.
            // Source: guide, "Using dead-letter queues", and "dead-letter queue redrive".
            if queue.settings.is_fifo() {
                message.sent = now;
                message.retained_from = now;
                message.deduplication = Some(message.id.clone());
            }
            queue.accept(message, Duration::ZERO);
        }
    }

    fn next_due(&self, name: &str) -> Option<SystemTime> {
        let queue = self.queues.get(name).and_then(|queue| queue.index.next_due());
        let moves = self.next_move();
        [queue, moves].into_iter().flatten().min()
    }

    fn check_redrive(&self, name: &str, settings: &Settings) -> Result<(), SqsError> {
        let Some(policy) = &settings.redrive else {
            return Ok(());
        };
        let arn = &policy.dead_letter_target_arn;
        let refused = |reason: &str| Err(SqsError::invalid_value(arn, "RedrivePolicy", reason));
        let Some(target) =
            self.queues.get(name_of(arn)).filter(|target| self.arn(&target.name) == *arn)
        else {
            return refused("Dead letter target does not exist.");
        };
        if target.settings.is_fifo() != settings.is_fifo() {
            return refused("Dead-letter queue must be same type of queue as the source.");
        }
        let allow = target.settings.redrive_allow.as_ref();
        if allow.is_some_and(|allow| !allow.allows(&self.arn(name))) {
            return refused(
                "The source queue is not permitted by the redrive allow policy of the dead-letter \
                 queue.",
            );
        }
        Ok(())
    }
}

/// Message ids: they look random, and are the same in every run with the same seed.
#[derive(Debug)]
struct Ids {
    seed: u64,
    given: u64,
}

impl Ids {
    fn next(&mut self) -> String {
        use md5::{Digest, Md5};
        self.given += 1;
        let digest = Md5::digest([self.seed.to_be_bytes(), self.given.to_be_bytes()].concat());
        uuid::Builder::from_random_bytes(digest.into()).into_uuid().to_string()
    }
}

fn name_of(arn: &str) -> &str {
    arn.rsplit([':', '/']).next().unwrap_or(arn)
}

fn queue_name(name: &str, fifo: bool) -> Result<(), SqsError> {
    let stem = name.strip_suffix(".fifo");
    let (chars, ending) = match (fifo, stem) {
        (true, Some(stem)) => (stem, true),
        (true, None) => (name, false),
        (false, _) => (name, true),
    };
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if ending && !chars.is_empty() && name.len() <= MAX_QUEUE_NAME && chars.bytes().all(legal) {
        return Ok(());
    }
    Err(SqsError::invalid(if fifo {
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or \
         underscores, must end with .fifo suffix and be 1 to 80 in length."
    } else {
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
    }))
}

fn same_attributes(
    queue: &QueueState,
    asked: &Settings,
    named: &BTreeMap<String, String>,
) -> Result<(), SqsError> {
    let (existing, asked) = (queue.settings.to_attributes(), asked.to_attributes());
    // AWS lets a queue be "created" again without its attributes.
    match named.keys().find(|name| existing.get(*name) != asked.get(*name)) {
        None => Ok(()),
        Some(name) => Err(SqsError::new(
            "QueueAlreadyExists",
            format!(
                "A queue already exists with the same name and a different value for attribute \
                 {name}"
            ),
        )),
    }
}
