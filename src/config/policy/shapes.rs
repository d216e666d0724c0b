//! The shapes of values at a key: how each is read and written, and how a wrong value is
//! refused. The bounds of numbers stand at the end, each with its reason.

use std::time::Duration;

use serde_json::Value;

use super::json::Json;

/// The longest list of delays. A longer one is a curve.
pub(super) const MAX_LISTED: usize = 100;
pub(super) const OFF: &str = "off";

pub(super) trait Shape: Schema {
    type Value;

    /// Reads a value. If it is refused, the problems have the reason.
    fn read(&self, json: &Json<'_>) -> Option<Self::Value>;

    /// The value for a document. `None` leaves its key out, as that of rules: they name words of
    /// responses.
    fn write(&self, _: &Self::Value) -> Option<Value> {
        None
    }
}

pub(in crate::config) struct Count {
    pub(super) min: u32,
    pub(in crate::config) max: u32,
}

pub(super) struct Number {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) what: &'static str,
}

/// A number of seconds within bounds; fractions are allowed.
pub(super) struct Seconds(pub(super) Number);

pub(super) struct WholeSeconds(pub(super) Count);

pub(super) struct OneOf<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// One value, or a list of them.
pub(super) struct Many<S>(pub(super) S);

/// A value that may be left out, and has no default.
pub(super) struct Maybe<S>(pub(super) S);

/// As [`Maybe`], with the place of the value.
pub(super) struct Placed<S>(pub(super) S);

/// The word [`OFF`], or a value that the function knows, with words for it.
pub(super) struct Off<S>(pub(super) S, pub(super) fn(&Json<'_>) -> bool, pub(super) fn() -> String);

pub(super) struct Flag;

/// A value for other programs, which is not read.
pub(super) struct Ignored;

/// A value of the document, and where it stands; without a place if no document has it.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) path: String,
}

impl Count {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, and within the bounds of a u32"
    )]
    fn of(&self, number: Option<f64>) -> Option<u32> {
        let whole = number.filter(|number| {
            (f64::from(self.min)..=f64::from(self.max)).contains(number) && number.fract() == 0.0
        });
        whole.map(|number| number as u32)
    }

    fn words(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }
}

impl Shape for Count {
    type Value = u32;

    fn read(&self, json: &Json<'_>) -> Option<u32> {
        self.of(json.number()).or_else(|| json.refuse(&self.words()))
    }

    fn write(&self, count: &u32) -> Option<Value> {
        Some((*count).into())
    }
}

impl Number {
    pub(super) fn words(&self) -> String {
        format!("{} from {} to {}", self.what, self.min, self.max)
    }

    fn of(&self, number: Option<f64>) -> Option<f64> {
        number.filter(|number| (self.min..=self.max).contains(number))
    }
}

impl Shape for Number {
    type Value = f64;

    fn read(&self, json: &Json<'_>) -> Option<f64> {
        self.of(json.number()).or_else(|| json.refuse(&self.words()))
    }

    fn write(&self, number: &f64) -> Option<Value> {
        Some((*number).into())
    }
}

impl Shape for Seconds {
    type Value = Duration;

    fn read(&self, json: &Json<'_>) -> Option<Duration> {
        let secs = self.0.of(json.seconds()).or_else(|| json.refuse_duration(&self.0.words()));
        secs.map(Duration::from_secs_f64)
    }

    /// Whole seconds as an integer, as people write them.
    fn write(&self, time: &Duration) -> Option<Value> {
        let is_whole = time.subsec_nanos() == 0;
        Some(if is_whole { time.as_secs().into() } else { time.as_secs_f64().into() })
    }
}

impl Shape for WholeSeconds {
    type Value = Duration;

    fn read(&self, json: &Json<'_>) -> Option<Duration> {
        let secs = self.0.of(json.seconds()).or_else(|| json.refuse_duration(&self.0.words()));
        secs.map(|secs| Duration::from_secs(secs.into()))
    }
}

impl<S: Shape> Shape for Many<S> {
    type Value = Vec<S::Value>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let Some(items) = json.items() else {
            return Some(vec![self.0.read(json)?]);
        };
        if !(1..=MAX_LISTED).contains(&items.len()) {
            return json.refuse(&format!("a list of 1 to {MAX_LISTED}"));
        }
        read_all(&items, |item| self.0.read(item))
    }
}

/// Reads every item, also after one is refused, so that all problems are reported.
pub(super) fn read_all<T>(
    items: &[Json<'_>],
    read: impl FnMut(&Json<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let values: Vec<Option<T>> = items.iter().map(read).collect();
    values.into_iter().collect()
}

impl<S: Shape> Shape for Maybe<S> {
    type Value = Option<S::Value>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        self.0.read(json).map(Some)
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        self.0.write(value.as_ref()?)
    }
}

impl<S: Shape> Shape for Placed<S> {
    type Value = Option<Given<S::Value>>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let path = json.path.clone();
        self.0.read(json).map(|value| Some(Given { value, path }))
    }

    fn write(&self, given: &Self::Value) -> Option<Value> {
        self.0.write(&given.as_ref()?.value)
    }
}

impl<S: Shape> Shape for Off<S> {
    type Value = Option<S::Value>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let Self(shape, is_meant, words) = self;
        match json.text() {
            Some(word) if word == OFF => Some(None),
            _ if is_meant(json) => shape.read(json).map(Some),
            _ => json.refuse(&format!("{OFF}, or {}", words())),
        }
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        value.as_ref().map_or_else(|| Some(OFF.into()), |value| self.0.write(value))
    }
}

impl<T: Clone + PartialEq> OneOf<T> {
    pub(super) fn find(&self, json: &Json<'_>) -> Option<T> {
        let text = json.text()?;
        self.0.iter().find(|(word, _)| *word == text).map(|(_, meaning)| meaning.clone())
    }

    /// The words, without older ones for the same.
    pub(super) fn list(&self) -> String {
        let is_first = |at: usize| !self.0[..at].iter().any(|(_, other)| *other == self.0[at].1);
        let words = (0..self.0.len()).filter(|at| is_first(*at)).map(|at| self.0[at].0);
        words.collect::<Vec<_>>().join(", ")
    }
}

impl<T: Clone + PartialEq> Shape for OneOf<T> {
    type Value = T;

    fn read(&self, json: &Json<'_>) -> Option<T> {
        self.find(json).or_else(|| json.refuse(&self.list()))
    }

    fn write(&self, value: &T) -> Option<Value> {
        self.0.iter().find(|(_, meaning)| meaning == value).map(|(word, _)| (*word).into())
    }
}

impl Shape for Ignored {
    type Value = ();

    fn read(&self, _: &Json<'_>) -> Option<()> {
        Some(())
    }
}

impl Shape for Flag {
    type Value = bool;

    fn read(&self, json: &Json<'_>) -> Option<bool> {
        json.flag().or_else(|| json.refuse("true or false"))
    }

    fn write(&self, is: &bool) -> Option<Value> {
        Some((*is).into())
    }
}

/// Every retry and every deferral is a message sent, received and deleted.
const MAX_COPIES: u32 = 10_000;
/// The shortest delay: a delay of zero is a loop at full speed.
const MIN_DELAY: f64 = 0.001;
/// The longest delay, since allowances are renewed once a day at the latest. A longer wait is a
/// schedule and no retry.
const MAX_DELAY: f64 = 86_400.0;
/// A queue keeps a message for 14 days at most, and the last wait may add 900 s to a message's age.
/// Source: SQS message quotas.
const MAX_AGE: f64 = 14.0 * 86_400.0 - 900.0;

const fn seconds(min: f64, max: f64) -> Seconds {
    Seconds(Number { min, max, what: "a number of seconds" })
}

/// The most threads and file descriptors of one function. Source: Lambda quotas.
pub(in crate::config) const HANDLERS: Count = Count { min: 1, max: 1_000 };
/// Longest run of a function that an SQS queue invokes: one on Lambda Managed Instances has 90
/// minutes. Source: Lambda quotas.
pub(in crate::config) const MAX_SECONDS: f64 = 5_400.0;
/// The run of a handler, within that of a function.
pub(super) const RUN: Seconds = seconds(MIN_DELAY, MAX_SECONDS);
pub(super) const COPIES: Count = Count { min: 0, max: MAX_COPIES };
pub(super) const DELAY: Seconds = seconds(MIN_DELAY, MAX_DELAY);
/// Budgets are counted in whole seconds, so no age is shorter.
pub(super) const AGE: Seconds = seconds(1.0, MAX_AGE);
/// Beyond this factor the second delay is the cap in any case.
pub(super) const FACTOR: Number = Number { min: 1.0, max: 100.0, what: "a number" };
pub(super) const SHARE: Number = Number { min: 0.0, max: 1.0, what: "a share" };
/// With the default pauses, these attempts take 20 s.
pub(super) const ATTEMPTS: Count = Count { min: 1, max: 10 };
/// A send takes no longer, all its tries included.
pub(super) const PAUSE: Seconds = seconds(MIN_DELAY, 60.0);
/// The longest visibility timeout of SQS, as for the delay of a response.
pub(super) const RULED: Seconds = seconds(MIN_DELAY, 43_200.0);
/// A longer pause would probe a service too late after it works again.
pub(super) const LONG_PAUSE: Seconds = seconds(MIN_DELAY, 900.0);
/// A higher threshold would open the circuit only after the damage is done.
pub(super) const FAILURES: Count = Count { min: 1, max: 1_000 };
/// More calls in a period are no limit that one downstream service has.
pub(super) const CALLS: Count = Count { min: 1, max: 1_000_000 };
/// A longer period is a quota, which the service itself counts.
pub(super) const PERIOD: Seconds = seconds(0.01, 86_400.0);
/// SQS delays by whole seconds, so a message may be up to a second early. A longer wait for a call
/// costs more than another delivery.
pub(super) const SLOT_WAIT: Seconds = seconds(1.0, 20.0);
/// A shorter time is over before SQS delivers a duplicate. The longest is a year.
pub(super) const KEEP: Seconds = seconds(60.0, 365.0 * 86_400.0);

/// The form of a shape in JSON Schema. Only tests make it.
pub(super) trait Schema {
    #[cfg(test)]
    fn schema(&self) -> Value;
}

#[cfg(not(test))]
impl<S> Schema for S {}
