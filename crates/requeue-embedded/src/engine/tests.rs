//! Whatever is done to a queue, in whatever order: no message is lost, shown twice at once, or
//! shown out of turn.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::message::{Draft, State};
use super::{Engine, Receive};

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { group: u8, delay: u16 },
    Receive { max: u8, visibility: u16 },
    Delete { nth: usize },
    ChangeVisibility { nth: usize, secs: u16 },
    Pass { millis: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u8, 0..30_u16).prop_map(|(group, delay)| Step::Send { group, delay }),
        3 => (1..=10_u8, 0..30_u16).prop_map(|(max, visibility)| Step::Receive { max, visibility }),
        2 => (0..20_usize).prop_map(|nth| Step::Delete { nth }),
        2 => (0..20_usize, 0..30_u16).prop_map(|(nth, secs)| Step::ChangeVisibility { nth, secs }),
        2 => (0..20_000_u32).prop_map(|millis| Step::Pass { millis }),
    ]
}

/// What is known of a message by looking on from outside.
#[derive(Clone, Debug)]
struct Known {
    group: u8,
    /// Nobody may see it before.
    hidden_until: SystemTime,
    handle: Option<String>,
    received: u32,
}

/// A queue, and beside it the plainest account of it.
struct Trial {
    engine: Engine,
    name: &'static str,
    now: SystemTime,
    sent: u32,
    /// By the number that each body holds, and so in order.
    alive: BTreeMap<u32, Known>,
}

impl Trial {
    fn new(name: &'static str) -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        let mut engine = Engine::new("r", "1", 7);
        engine.now = now;
        let fifo = name.strip_suffix(".fifo").is_some();
        let attributes = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let attributes = if fifo { attributes.into() } else { BTreeMap::new() };
        engine.create_queue(name, &attributes, BTreeMap::new()).expect("a legal queue");
        Self { engine, name, now, sent: 0, alive: BTreeMap::new() }
    }

    fn fifo(&self) -> bool {
        self.name.strip_suffix(".fifo").is_some()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Send { group, delay } => self.send(group, delay),
            Step::Receive { max, visibility } => self.receive(max, visibility),
            Step::Delete { nth } => self.delete(nth),
            Step::ChangeVisibility { nth, secs } => self.change_visibility(nth, secs),
            Step::Pass { millis } => {
                self.now += Duration::from_millis(u64::from(millis));
                self.engine.now = self.now;
            }
        }
        self.agrees();
    }

    fn send(&mut self, group: u8, delay: u16) {
        let delay = if self.fifo() { 0 } else { delay };
        let draft = Draft {
            body: self.sent.to_string(),
            delay_secs: Some(i64::from(delay)),
            group: Some(format!("g{group}")),
            ..Draft::default()
        };
        self.engine.send(self.name, draft).expect("a legal message");
        let known = Known {
            group,
            hidden_until: self.now + Duration::from_secs(u64::from(delay)),
            handle: None,
            received: 0,
        };
        self.alive.insert(self.sent, known);
        self.sent += 1;
    }

    fn receive(&mut self, max: u8, visibility: u16) {
        let asked = Receive {
            max_messages: Some(i64::from(max)),
            visibility_secs: Some(i64::from(visibility)),
            wait_secs: Some(0),
        };
        let possible = self.possible();
        let found = self.engine.receive(self.name, asked).expect("it exists").value;
        assert!(found.len() <= usize::from(max));
        assert_eq!(
            found.is_empty(),
            possible.is_empty(),
            "a receive finds something if there is something"
        );
        let mut last_of_group = BTreeMap::new();
        for received in found {
            let number: u32 = received.message.body.parse().expect("a number");
            assert!(possible.contains(&number), "{number} was not to be seen");
            let known = self.alive.get_mut(&number).expect("it was deleted");
            known.received += 1;
            known.hidden_until = self.now + Duration::from_secs(u64::from(visibility));
            known.handle = Some(received.receipt_handle);
            assert_eq!(received.message.receive_count, known.received);
            let previous = last_of_group.insert(known.group, number);
            if self.name.strip_suffix(".fifo").is_some() {
                let between = |other: &u32| {
                    self.alive[other].group == self.alive[&number].group && *other < number
                };
                let before = possible.iter().copied().filter(between).max();
                assert_eq!(previous, before, "within its group none is left out");
            }
        }
    }

    /// The messages that a receive may show now.
    fn possible(&self) -> Vec<u32> {
        let hidden = |known: &Known| known.hidden_until > self.now;
        let waits = |number: &u32, group| {
            let mut earlier = self.alive.range(..number).map(|(_, known)| known);
            self.fifo() && earlier.any(|known| known.group == group && hidden(known))
        };
        let visible = self.alive.iter();
        let visible =
            visible.filter(|(number, known)| !hidden(known) && !waits(number, known.group));
        visible.map(|(number, _)| *number).collect()
    }

    fn held(&self, nth: usize) -> Option<(u32, Known)> {
        let mut held = self.alive.iter().filter(|(_, known)| known.handle.is_some());
        held.nth(nth).map(|(number, known)| (*number, known.clone()))
    }

    fn delete(&mut self, nth: usize) {
        let Some((number, known)) = self.held(nth) else {
            return;
        };
        let handle = known.handle.expect("held");
        let deleted = self.engine.queue(self.name).and_then(|queue| queue.delete(&handle));
        let expired = self.fifo() && known.hidden_until <= self.now;
        assert_eq!(deleted.is_err(), expired);
        if !expired {
            self.alive.remove(&number);
        }
    }

    fn change_visibility(&mut self, nth: usize, secs: u16) {
        let Some((number, known)) = self.held(nth) else {
            return;
        };
        let (handle, now) = (known.handle.expect("held"), self.now);
        let queue = self.engine.queue(self.name).expect("it exists");
        let changed = queue.change_visibility(&handle, i64::from(secs));
        let is_hidden = known.hidden_until > now;
        assert_eq!(changed.is_ok(), is_hidden || !self.fifo());
        if is_hidden {
            let known = self.alive.get_mut(&number).expect("held");
            known.hidden_until = now + Duration::from_secs(u64::from(secs));
        }
    }

    fn agrees(&mut self) {
        let now = self.now;
        let queue = self.engine.queue(self.name).expect("it exists");
        let numbers: Vec<u32> =
            queue.messages.values().filter_map(|message| message.body.parse().ok()).collect();
        assert_eq!(numbers, self.alive.keys().copied().collect::<Vec<_>>());
        for (message, known) in queue.messages.values().zip(self.alive.values()) {
            let hidden = !matches!(message.state, State::Visible { .. });
            assert_eq!(hidden, known.hidden_until > now, "{}", message.body);
        }
        let counts = queue.index.counts();
        assert_eq!(counts.visible + counts.delayed + counts.in_flight, numbers.len());
    }
}

proptest! {
    #[test]
    fn a_standard_queue_keeps_its_word(steps in prop::collection::vec(step(), 1..120)) {
        let mut trial = Trial::new("q");
        for step in steps {
            trial.take(step);
        }
    }

    #[test]
    fn a_fifo_queue_keeps_its_word_and_its_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut trial = Trial::new("q.fifo");
        for step in steps {
            trial.take(step);
        }
    }
}

#[test]
fn a_handle_of_an_earlier_process_means_nothing() {
    let receive = |seed| {
        let mut engine = Engine::new("r", "1", seed);
        engine.create_queue("q", &BTreeMap::new(), BTreeMap::new()).expect("a legal queue");
        let draft = Draft { body: "x".to_owned(), ..Draft::default() };
        engine.send("q", draft).expect("a legal message");
        let found = engine.receive("q", Receive::default()).expect("it exists");
        (engine, found.value[0].receipt_handle.clone())
    };
    let (_, old) = receive(1);
    let (mut engine, _) = receive(2);
    assert!(engine.queue("q").is_ok_and(|queue| queue.delete(&old).is_err()));
}
