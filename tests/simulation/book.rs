//! The state of a run as seen from outside: the place of each message, its invocation, and its
//! outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use requeue::{FailureClass, Message};
use serde_json::Value;
use tokio::time::Instant;

use crate::asked::Asked;
use crate::counted::Counted;
use crate::history::History;
use crate::idempotency::{Event, Work};
use crate::life::Life;
use crate::limits::{Capped, Changed, Kept, Place, Rated};
use crate::probes::Probe;
use crate::producer::Product;
use crate::starved::Waiting;
use crate::system::World;
use crate::wire::{Past, at};

/// Each receipt handle of the embedded SQS begins so.
pub const HANDLE: &str = "cmVxdWV1ZS";

/// How a call of the handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    Failed(FailureClass, Option<Duration>),
    Postponed(Duration),
    Final,
    /// It was cut short.
    Cut,
}

/// The place of a message in its call.
#[derive(Clone, Copy)]
pub struct InCall {
    pub number: usize,
    pub messages: usize,
}

impl InCall {
    pub const ALONE: Self = Self { number: 0, messages: 1 };

    /// Each call counts by its first message.
    pub fn is_first(self) -> bool {
        self.number == 0
    }
}

/// One message in one invocation.
#[derive(Clone)]
pub struct Member {
    pub n: usize,
    pub receives: u64,
    /// How often it had been received when an environment first saw it in this queue, at the least,
    /// and when that was.
    pub arrival: (u64, SystemTime),
    pub past: Past,
    pub asked: Asked,
    /// Receives that it may have used up by waiting for its time, or behind a message of its group
    /// that did.
    pub waits: u64,
    /// Whether it may be more: behind a message that SQS moved, of which this environment alone
    /// knows when it arrived.
    pub may_wait_more: bool,
    pub is_called: bool,
    pub in_call: InCall,
    /// Whether its call failed as a whole, and had other messages too.
    pub is_unclear: bool,
    /// Retries that the handler was told of.
    pub told: u64,
    pub ended: Option<Ended>,
    ended_at: Option<Instant>,
    /// Whether its call ended because it took too long, which is a failure.
    pub is_timed_out: bool,
    /// Of its failure, if they are known.
    pub words: Option<String>,
    /// How many calls in its environment have spoken of their service by the end of its own.
    pub spoke_of_service: u64,
}

impl Member {
    /// Whether its failure speaks of the service, and not of the message. A call that failed as a
    /// whole counts once.
    pub fn speaks_of_service(&self) -> bool {
        match self.ended {
            _ if self.is_unclear && !self.in_call.is_first() => false,
            Some(Ended::Failed(FailureClass::Temporary, _)) => {
                self.words.as_deref().is_some_and(|words| words.starts_with("status 503"))
            }
            Some(Ended::Failed(FailureClass::RateLimit | FailureClass::Quota, _) | Ended::Cut) => {
                true
            }
            _ => false,
        }
    }
}

pub struct Invocation {
    pub environment: usize,
    /// Whether it works on the dead-letter queue.
    pub is_on_dead: bool,
    pub started: Instant,
    /// By message id.
    pub members: BTreeMap<String, Member>,
    /// Which message each receipt handle is about.
    pub handles: BTreeMap<String, String>,
    /// How many copies of each message SQS confirmed.
    pub confirmed: BTreeMap<usize, usize>,
    /// The ids of the messages that were to be deleted.
    pub deleted: BTreeSet<String>,
    /// And of those of which something was asked: to delete them, or when they are to be visible
    /// again.
    pub settled: BTreeSet<String>,
    /// How many invocations in a row led to it.
    pub row: u32,
    /// Calls that run.
    pub running: usize,
}

impl Invocation {
    pub fn of(&self, n: usize) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |member| member.n == n)
    }

    pub fn done(&self, n: usize) -> usize {
        self.of(n).filter(|member| member.ended == Some(Ended::Done)).count()
    }
}

/// The receives of the message before another one in its FIFO group, in the same batch.
#[derive(Default)]
struct Predecessor {
    /// Those by which it, or one before it, waited for its time.
    waits: u64,
    may_wait_more: bool,
    attempts: u64,
}

/// What is known of one message in all its copies.
pub struct Track {
    pub product: Product,
    pub is_done: bool,
    pub calls: usize,
    /// Those by an environment that works on the dead-letter queue.
    pub calls_when_dead: usize,
    /// Those of each copy, by message id.
    pub calls_of: BTreeMap<String, usize>,
    /// Those of copies that were deferred on a later receive, each by a new copy.
    pub calls_renewed: usize,
    pub postponed: usize,
    /// Copies without a retry, since its service served nobody.
    pub unserved: usize,
    /// Calls that failed as a whole, and had other messages too.
    pub unclear: usize,
    pub most_receives: u64,
    /// Whether anything but the handler went wrong with it, so that it may have been received in
    /// vain or be there twice.
    pub is_troubled: bool,
    /// How often SQS delivered it once more.
    pub shown_again: usize,
    /// How often it was hidden for a while without a call, which uses up a receive.
    pub deferrals_in_place: u32,
    pub was_dead: bool,
    pub redrives: usize,
    /// It is not to be called earlier.
    pub due: Option<Instant>,
    /// When it was sent, by SQS.
    pub sent: SystemTime,
}

pub struct Book {
    pub history: History,
    pub tracks: Vec<Track>,
    pub invocations: BTreeMap<usize, Invocation>,
    pub invoked: usize,
    /// Invocations until the last call of a handler ended.
    pub invoked_by_last_call: usize,
    /// When a request of an environment last met trouble.
    pub troubles: BTreeMap<usize, Instant>,
    /// How many invocations in a row led to a message.
    rows: BTreeMap<String, u32>,
    /// When each message was first seen in the dead-letter queue, and how often it had been
    /// received by then.
    arrivals: BTreeMap<String, (u64, SystemTime)>,
    pub longest_row: u32,
    /// On which receive each environment dead-lettered which messages, in the queue or the dead-letter
    /// queue, for as long as it lives.
    dead_lettered: BTreeMap<(usize, bool, String), u64>,
    /// What failed, and each environment asked nothing about: it may have given that up too.
    left: BTreeSet<(usize, bool, String)>,
    /// The messages of which one worker had several deliveries in hand at once, whose copies nobody
    /// can tell apart for certain.
    pub in_hand_twice: BTreeSet<usize>,
    /// The messages of which each environment sent a copy.
    pub copied: BTreeSet<(usize, String)>,
    /// What an operator has changed.
    pub changed: BTreeMap<Place, Changed>,
    /// The highest limits that an operator has set.
    pub most_set: BTreeMap<Place, u32>,
    /// The last responses without an allowance.
    pub capped: BTreeMap<Kept, Capped>,
    /// The calls by each limit. Those of one environment count as long as it lives.
    pub rated: BTreeMap<Kept, Vec<Rated>>,
    /// The attempts that the table counts, of each message in the queue or the dead-letter queue.
    pub counted: BTreeMap<(bool, String), Counted>,
    /// How many calls in each environment spoke of their service.
    pub spoke_of_service: BTreeMap<usize, u64>,
    /// The work on each event that is handled once.
    pub at_work: BTreeMap<Event, Work>,
    /// The probes that run, by scope.
    pub probes: BTreeMap<usize, Vec<Probe>>,
    /// The messages that wait behind others in the dead-letter queue.
    pub waiting: Waiting,
    /// Of the workers, by environment.
    pub lives: BTreeMap<usize, Life>,
}

/// What one environment keeps in mind of trouble with the queue may keep its messages waiting for
/// so long.
const TROUBLED_FOR: Duration = Duration::from_secs(120);

impl Book {
    pub fn new() -> Self {
        Self {
            history: History::new(),
            tracks: Vec::new(),
            invocations: BTreeMap::new(),
            invoked: 0,
            invoked_by_last_call: 0,
            troubles: BTreeMap::new(),
            rows: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            longest_row: 0,
            dead_lettered: BTreeMap::new(),
            left: BTreeSet::new(),
            in_hand_twice: BTreeSet::new(),
            copied: BTreeSet::new(),
            changed: BTreeMap::new(),
            most_set: BTreeMap::new(),
            capped: BTreeMap::new(),
            rated: BTreeMap::new(),
            counted: BTreeMap::new(),
            spoke_of_service: BTreeMap::new(),
            at_work: BTreeMap::new(),
            probes: BTreeMap::new(),
            waiting: Waiting::default(),
            lives: BTreeMap::new(),
        }
    }

    pub fn sent(&mut self, world: &World, n: usize, product: Product) {
        let (maker, copies, group, asked) =
            (product.maker, product.copies, &product.group, product.asked);
        let what = format!(
            "sent: {maker:?}, {copies:?}, {group:?}, {} bytes, {asked:?}",
            product.body.len()
        );
        self.history.note(Some(n), what);
        self.tracks.push(Track {
            // What no copy can be made of uses up receives.
            is_troubled: Self::cannot_be_copied(copies, world),
            product,
            is_done: false,
            calls: 0,
            calls_when_dead: 0,
            calls_of: BTreeMap::new(),
            unserved: 0,
            unclear: 0,
            calls_renewed: 0,
            postponed: 0,
            most_receives: 0,
            shown_again: 0,
            deferrals_in_place: 0,
            was_dead: false,
            redrives: 0,
            due: None,
            sent: world.clock.now(),
        });
    }

    /// The dead letters are about to be moved back.
    pub fn redriving(&mut self, world: &World) {
        self.find_dead(world);
        self.history.note(None, "the dead letters are moved back");
        for track in &mut self.tracks {
            track.redrives += 1;
            track.due = None;
        }
    }

    /// An invocation begins; returns its number.
    pub fn begin(&mut self, world: &World, environment: usize, event: &Value) -> usize {
        let id = self.invoked;
        self.invoked += 1;
        let mut invocation = Invocation {
            environment,
            is_on_dead: world.plan.works_on_dead(environment),
            started: Instant::now(),
            members: BTreeMap::new(),
            handles: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            deleted: BTreeSet::new(),
            settled: BTreeSet::new(),
            row: 0,
            running: 0,
        };
        let mut groups = BTreeMap::new();
        for record in event["Records"].as_array().expect("an event") {
            self.receive(world, id, &mut invocation, &mut groups, record);
        }
        self.wait_behind(world, &invocation, event);
        self.invocations.insert(id, invocation);
        id
    }

    /// `groups` has the message before it in its FIFO group.
    fn receive(
        &mut self,
        world: &World,
        number: usize,
        invocation: &mut Invocation,
        groups: &mut BTreeMap<String, Predecessor>,
        record: &Value,
    ) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let (id, handle) = (text(&record["messageId"]), text(&record["receiptHandle"]));
        let n = crate::producer::number(record["body"].as_str().expect("a body"))
            .expect("every message bears its mark");
        let receives = record["attributes"]["ApproximateReceiveCount"]
            .as_str()
            .and_then(|count| count.parse().ok());
        let receives = receives.expect("a number");
        assert!(handle.starts_with(HANDLE), "{handle}");
        invocation.handles.insert(handle, id.clone());
        invocation.row = invocation.row.max(self.rows.get(&id).copied().unwrap_or(0));
        let track = &mut self.tracks[n];
        track.most_receives = track.most_receives.max(receives);
        track.was_dead |= invocation.is_on_dead;
        let mut past = Past::of(record, &track.product, world.plan.policy.max_retries);
        if world.plan.is_fifo {
            // There its receives count, and nothing else.
            past.count = 0;
        }
        let what = format!(
            "received by {number} in environment {}: {id}, receive {receives}, {} retries, {} deferrals, {} hops",
            invocation.environment, past.count, past.deferrals, past.hops
        );
        self.history.note(Some(n), what);
        let seen = (receives, world.clock.now());
        let arrival = if past.is_moved {
            let first = *self.arrivals.entry(id.clone()).or_insert(seen);
            // A receive that was overtaken by a later one may come with the lower count.
            (first.0.min(seen.0), first.1)
        } else {
            (1, seen.1)
        };
        let asked = track.product.asked;
        // When this environment saw a moved message arrive, and so for how long it waited here, is
        // not known.
        let own = if past.is_moved { 0 } else { asked.waits(at(past.received_here)) };
        let receives_here = receives - arrival.0 + 1;
        let (waits, may_wait_more) = match &track.product.group {
            Some(group) if world.plan.is_fifo => {
                let before = groups.entry(group.clone()).or_default();
                let behind = receives_here.saturating_sub(before.attempts).min(before.waits);
                let waits = own.max(behind);
                before.waits = waits;
                before.attempts = receives_here.saturating_sub(waits);
                before.may_wait_more |= past.is_moved && asked.not_before.is_some();
                (waits, before.may_wait_more)
            }
            _ => (own, false),
        };
        let member = Member {
            n,
            receives,
            arrival,
            past,
            asked,
            waits,
            may_wait_more,
            is_called: false,
            in_call: InCall::ALONE,
            is_unclear: false,
            told: 0,
            ended: None,
            ended_at: None,
            is_timed_out: false,
            spoke_of_service: 0,
            words: None,
        };
        let known = invocation.members.entry(id).or_insert(member);
        known.receives = known.receives.max(receives);
    }

    /// Notes which messages an invocation has sent.
    pub fn descendants(&mut self, world: &World, invocation: usize, bodies: &[String]) {
        if !world.plan.cuts_loops || bodies.is_empty() {
            return;
        }
        let Some(row) = self.invocations.get(&invocation).map(|invocation| invocation.row) else {
            return;
        };
        for message in world.all() {
            let is_known =
                self.invocations.values().any(|other| other.members.contains_key(&message.id));
            // A late copy of another invocation bears another time or another row.
            if !is_known && bodies.contains(&message.body) {
                self.rows.entry(message.id).or_insert(row + 1);
            }
        }
    }

    /// A request was not answered as it should have been.
    pub fn trouble(&mut self, invocation: usize, environment: usize) {
        self.troubles.insert(environment, Instant::now());
        self.excuse(invocation, "trouble with the queue");
    }

    /// An environment takes the place of one that died.
    pub fn born(&mut self, environment: usize) {
        self.dead_lettered.retain(|(other, ..), _| *other != environment);
        self.rated.retain(|(keeper, _), _| *keeper != Some(environment));
        self.capped.retain(|_, capped| capped.environment != environment);
        self.left.retain(|(other, ..)| *other != environment);
        self.waiting.born(environment);
    }

    /// What was final, by an environment that is to remember it while it is in its queue.
    pub fn gave_up(&mut self, world: &World, id: usize) {
        let invocation = &self.invocations[&id];
        for (message, member) in &invocation.members {
            let key = (invocation.environment, invocation.is_on_dead, message.clone());
            let may_be_final =
                |ended| matches!(ended, Ended::Failed(..) | Ended::Postponed(_) | Ended::Final);
            let has_failed = member.is_timed_out || member.ended.is_some_and(may_be_final);
            let has_failed = has_failed && !member.is_unclear;
            if has_failed && !invocation.settled.contains(message) {
                self.left.insert(key.clone());
            }
            // What went wrong may have changed its end.
            let is_final = match member.ended {
                _ if member.is_unclear => false,
                Some(Ended::Final) => true,
                Some(Ended::Failed(..)) => {
                    member.told >= u64::from(member.asked.retries(&world.plan))
                }
                _ => false,
            };
            if is_final && !self.tracks[member.n].is_troubled {
                self.dead_lettered.insert(key, member.receives);
            }
        }
    }

    /// Whether the environment of this invocation dead-lettered the message on an earlier receive.
    pub fn was_dead_lettered(&self, invocation: &Invocation, message: &str, receives: u64) -> bool {
        let dead_lettered = self.dead_lettered.get(&(
            invocation.environment,
            invocation.is_on_dead,
            message.to_owned(),
        ));
        dead_lettered.is_some_and(|earlier| *earlier < receives)
    }

    pub fn may_have_dead_lettered(
        &self,
        invocation: &Invocation,
        message: &str,
        receives: u64,
    ) -> bool {
        let is_left = self.left.contains(&(
            invocation.environment,
            invocation.is_on_dead,
            message.to_owned(),
        ));
        is_left || self.was_dead_lettered(invocation, message, receives)
    }

    /// Something else than the handler went wrong with these messages.
    pub fn excuse(&mut self, invocation: usize, why: &str) {
        let Some(invocation) = self.invocations.get(&invocation) else { return };
        for n in invocation.members.values().map(|member| member.n).collect::<Vec<_>>() {
            self.excuse_one(n, why);
        }
    }

    pub fn excuse_one(&mut self, n: usize, why: &str) {
        if !self.tracks[n].is_troubled {
            self.tracks[n].is_troubled = true;
            self.history.note(Some(n), format!("is troubled: {why}"));
        }
    }

    /// Whether the environment of an invocation may remember trouble with the queue.
    pub fn remembers_trouble(&self, invocation: &Invocation) -> bool {
        let last = self.troubles.get(&invocation.environment);
        last.is_some_and(|last| last.elapsed() < TROUBLED_FOR + invocation.started.elapsed())
    }

    /// The handler's call ends; returns by which message it was.
    pub fn ended(
        &mut self,
        environment: usize,
        message: &Message,
        ended: Ended,
        is_unclear: bool,
        words: Option<String>,
    ) -> Option<usize> {
        let mut spoke = self.spoke_of_service.get(&environment).copied().unwrap_or(0);
        let (n, id) = self.find(
            environment,
            message,
            |member| member.is_called && member.ended.is_none(),
            |invocation, id| {
                let member = invocation.members.get_mut(id).expect("it is there");
                invocation.running -= usize::from(member.in_call.is_first());
                (member.ended, member.words) = (Some(ended), words);
                member.is_unclear = is_unclear;
                member.is_timed_out = ended == Ended::Cut && message.time_left().is_zero();
                spoke += u64::from(member.speaks_of_service());
                member.spoke_of_service = spoke;
                member.ended_at = Some(Instant::now());
            },
        )?;
        // The messages of calls that end together are heard in any order.
        let now = Some(Instant::now());
        let of_it = self.invocations.values_mut().filter(|all| all.environment == environment);
        let together = of_it.flat_map(|all| all.members.values_mut());
        for member in together.filter(|it| it.in_call.messages > 1 && it.ended_at == now) {
            member.spoke_of_service = spoke;
        }
        self.spoke_of_service.insert(environment, spoke);
        self.invoked_by_last_call = self.invoked;
        let unclear = if is_unclear { ", and nobody knows for which message" } else { "" };
        self.history.note(Some(n), format!("call ends: {ended:?}{unclear}"));
        if ended == Ended::Done {
            self.remains_to_delete(id, n, true);
        }
        let track = &mut self.tracks[n];
        track.is_done |= ended == Ended::Done;
        track.unclear += usize::from(is_unclear);
        track.postponed += usize::from(matches!(ended, Ended::Postponed(_)) && !is_unclear);
        Some(n)
    }

    /// Finds the message among the invocations of an environment, and does something about it.
    pub fn find(
        &mut self,
        environment: usize,
        message: &Message,
        suits: impl Fn(&Member) -> bool,
        act: impl FnOnce(&mut Invocation, &str),
    ) -> Option<(usize, usize)> {
        let (id, receives) = (message.id()?, u64::from(message.receive_count()));
        // Each receive has its own count.
        let suits = |member: &Member| member.receives == receives && suits(member);
        let is_it = |(_, invocation): &(&usize, &mut Invocation)| {
            invocation.environment == environment && invocation.members.get(id).is_some_and(suits)
        };
        let (&number, invocation) = self.invocations.iter_mut().find(is_it)?;
        let n = invocation.members[id].n;
        act(invocation, id);
        Some((n, number))
    }
}
