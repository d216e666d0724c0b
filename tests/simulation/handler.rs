//! The handler. Its result for each call follows from the seed alone.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use requeue::{Failure, FailureClass, Handler, Message, Scope};
use tokio::time::sleep;

use crate::book::{Ended, InCall};
use crate::plan::{secs, steps};
use crate::producer;
use crate::stalled;
use crate::system::World;
use requeue_testkit::dice::Dice;

pub struct Script {
    pub world: Arc<World>,
    pub environment: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Act {
    Done,
    Fail(FailureClass, Option<Duration>),
    Postpone(Duration),
    /// A timeout of its own: the service may work on.
    Doubt,
    Panic,
    Hang,
}

impl Act {
    /// As a response over HTTP says it: status and `Retry-After`.
    fn response(self) -> Option<(u16, Option<Duration>)> {
        match self {
            Self::Done => Some((200, None)),
            // Over HTTP no delay at all is none.
            Self::Fail(_, Some(Duration::ZERO))
            | Self::Fail(FailureClass::Quota, _)
            | Self::Postpone(_)
            | Self::Doubt
            | Self::Panic
            | Self::Hang => None,
            Self::Fail(FailureClass::RateLimit, named) => Some((429, named)),
            Self::Fail(FailureClass::Temporary, named) => Some((503, named)),
            Self::Fail(FailureClass::NonRetryable, _) => Some((400, None)),
        }
    }

    /// Its failure, and its words as others are to see them, if there are any.
    pub fn failure(
        self,
        world: &World,
        n: usize,
        call: usize,
    ) -> Option<(Failure, Option<String>)> {
        let (words, scrubbed) = words(world, n, call);
        let failure = match self {
            Self::Done | Self::Panic | Self::Hang => return None,
            Self::Postpone(delay) => return Some((Failure::postpone(delay), None)),
            Self::Doubt => Failure::temporary(words).in_doubt(),
            Self::Fail(class, named) => {
                let failure = match class {
                    FailureClass::RateLimit => Failure::rate_limit(words),
                    FailureClass::Quota => Failure::quota(words),
                    FailureClass::Temporary => Failure::temporary(words),
                    FailureClass::NonRetryable => Failure::non_retryable(words),
                };
                named.into_iter().fold(failure, Failure::retry_after)
            }
        };
        Some((failure, Some(scrubbed)))
    }

    /// How the call ends by it.
    fn end(self) -> Ended {
        match self {
            Self::Done => Ended::Done,
            Self::Fail(FailureClass::NonRetryable, _) => Ended::Final,
            Self::Fail(class, named) => Ended::Failed(class, named),
            Self::Postpone(delay) => Ended::Postponed(delay),
            Self::Doubt | Self::Panic => Ended::Failed(FailureClass::Temporary, None),
            Self::Hang => Ended::Cut,
        }
    }

    /// Whether what it began may go on.
    fn goes_on(self) -> bool {
        matches!(self, Self::Doubt | Self::Panic | Self::Hang)
    }

    /// Returns only if the call has a result.
    pub async fn halt(self) {
        match self {
            // Unlike `panic!`, prints nothing.
            Self::Panic => resume_unwind(Box::new("as scripted")),
            Self::Hang => std::future::pending().await,
            Self::Done | Self::Fail(..) | Self::Postpone(_) | Self::Doubt => {}
        }
    }
}

/// Words of a failure, and what is left of them in logs and dead letters.
fn words(world: &World, n: usize, call: usize) -> (String, String) {
    let (words, scrubbed) = Dice::of(world.seed, 3_000_000 + (n * 10_000 + call) as u64).pick(&[
        ("no", "no"),
        ("HTTP 402, code card_declined", "HTTP 402, code card_declined"),
        ("a\nb\u{1b}[2Kc\u{202e}d\u{FFFF}\u{9b}\"\\\u{1F980}", "a b [2Kc d  \"\\\u{1F980}"),
        ("", ""),
    ]);
    let long = "\u{e4}".repeat(if n.is_multiple_of(3) { 300 } else { 0 });
    (format!("{words}{long}"), format!("{scrubbed}{long}").chars().take(256).collect())
}

/// What happens on the so-many-th call for a message, after how long, and whether it comes in a
/// response of which the body never ends.
pub fn act(world: &World, n: usize, call: usize) -> (Duration, Act, bool) {
    let voice = if world.plan.in_chorus { 0 } else { n };
    let dice = Dice::of(world.seed, 1_000_000 + (voice * 10_000 + call) as u64);
    let time = if dice.happens(400) {
        steps(dice.pick(&[dice.roll(1, 100), dice.roll(1, 8_000)]))
    } else {
        Duration::ZERO
    };
    if !dice.happens(world.plan.trouble.handlers) {
        return (time, Act::Done, dice.happens(50));
    }
    let named = dice
        .happens(400)
        .then(|| secs(dice.pick(&[0, 1, dice.roll(1, 60), dice.roll(1, 2_000), 20_000])));
    let act = match dice.roll(0, 12) {
        0..=2 => Act::Fail(FailureClass::Temporary, named),
        3 | 4 => Act::Fail(FailureClass::RateLimit, named),
        5 | 6 => Act::Fail(FailureClass::Quota, named),
        7 => Act::Fail(FailureClass::NonRetryable, None),
        8 | 9 => Act::Postpone(secs(dice.pick(&[1, 60, 3_000]))),
        10 => Act::Panic,
        11 => Act::Doubt,
        _ => Act::Hang,
    };
    (time, act, dice.happens(200))
}

impl Handler for Script {
    type Error = Failure;

    fn scope(&self, message: &Message) -> Scope {
        let plan = &self.world.plan;
        if plan.has_one_scope() {
            return Scope::default();
        }
        let scope = producer::number(message.body()).map(|n| plan.scope(n).to_string());
        Scope::of(scope.unwrap_or_default())
    }

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let (mut call, begun) = Call::begin(self, message, InCall::ALONE);
        let Some((n, count)) = begun else { return Ok(()) };
        let (time, act, stalls) = act(&self.world, n, count);
        sleep(time).await;
        if let Some((status, named)) =
            act.response().filter(|_| stalls && !call.message.time_left().is_zero())
        {
            // The head is there now, and decides also if the call is cut short while the body is
            // waited for.
            call.ends(act);
            let delivered = stalled::deliver(status, named).await;
            call.words = delivered.as_ref().err().map(|failure| failure.detail().to_owned());
            return delivered;
        }
        call.ends(act);
        act.halt().await;
        self.world.book().tells(&self.world, self.environment, &call.message, n);
        let Some((failure, words)) = act.failure(&self.world, n, count) else { return Ok(()) };
        call.words = words;
        Err(failure)
    }
}

/// Notes how a call ends for one of its messages, be it that it is cut short.
pub struct Call {
    world: Arc<World>,
    environment: usize,
    message: Message,
    place: InCall,
    ended: Ended,
    /// Whether the call fails as a whole, and has other messages too.
    is_unclear: bool,
    /// Whether the service works for some messages of the call, and not for others. Which of them
    /// is heard last is not known.
    pub is_mixed: bool,
    /// Whether what it began may go on.
    goes_on: bool,
    /// Those of its failure, as others are to see them.
    pub words: Option<String>,
}

impl Call {
    /// Also returns by which message it is, and for the how many-th time.
    pub fn begin(
        script: &Script,
        message: Message,
        place: InCall,
    ) -> (Self, Option<(usize, usize)>) {
        let Script { world, environment } = script;
        let begun = world.book().called(world, *environment, &message, place);
        let call = Self {
            world: Arc::clone(world),
            environment: *environment,
            message,
            place,
            ended: Ended::Cut,
            is_unclear: place.messages > 1,
            is_mixed: false,
            goes_on: true,
            words: None,
        };
        (call, begun)
    }

    /// Its message has this result.
    pub fn ends(&mut self, act: Act) {
        (self.ended, self.goes_on, self.is_unclear) = (act.end(), act.goes_on(), false);
    }

    /// Whether its service does not work, as far as its message knows.
    pub fn is_down(&self) -> bool {
        matches!(self.ended, Ended::Failed(FailureClass::Temporary, _))
    }

    /// The whole call has this result.
    pub fn ends_for_all(&mut self, act: Act) {
        self.ends(act);
        self.is_unclear = self.place.messages > 1 && self.ended != Ended::Done;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (has_words, words) = (self.words.is_some(), self.words.take());
        let mut book = self.world.book();
        book.leaves(&self.world, self.environment, &self.message, self.goes_on);
        book.ends_probe(self.environment, &self.message);
        let ended = book.ended(self.environment, &self.message, self.ended, self.is_unclear, words);
        // A call counts once.
        let is_heard = !self.is_unclear || self.place.is_first();
        if let Some(n) = ended.filter(|_| is_heard) {
            // By which of its messages an unclear call counts is not known. Who panics or runs out
            // of time says nothing.
            let has_failed = matches!(self.ended, Ended::Failed(..));
            let is_known = !self.is_mixed && (!has_failed || has_words && !self.is_unclear);
            book.heard(&self.world, self.environment, n, &self.message, self.ended, is_known);
        }
    }
}
