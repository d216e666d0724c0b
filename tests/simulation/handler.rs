//! The handler. Its result for each call follows from the seed alone.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use requeue::{Failure, FailureClass, Handler, Message, Scope};
use tokio::time::sleep;

use crate::book::Ended;
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
enum Act {
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
fn act(world: &World, n: usize, call: usize) -> (Duration, Act, bool) {
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
        if plan.processes().is_some_and(|processes| processes.has_one_scope) {
            return Scope::default();
        }
        let scope = producer::number(message.body()).map(|n| plan.scope(n).to_string());
        Scope::of(scope.unwrap_or_default())
    }

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let mut call = Call {
            world: Arc::clone(&self.world),
            environment: self.environment,
            message,
            ended: Ended::Cut,
            goes_on: true,
            words: None,
        };
        let Some((n, count)) =
            self.world.book().called(&self.world, self.environment, &call.message)
        else {
            return Ok(());
        };
        let (time, act, stalls) = act(&self.world, n, count);
        sleep(time).await;
        if let Some((status, named)) =
            act.response().filter(|_| stalls && !call.message.time_left().is_zero())
        {
            // The head is there now, and decides also if the call is cut short while the body is
            // waited for.
            (call.ended, call.goes_on) = (act.end(), act.goes_on());
            let delivered = stalled::deliver(status, named).await;
            call.words = delivered.as_ref().err().map(|failure| failure.detail().to_owned());
            return delivered;
        }
        (call.ended, call.goes_on) = (act.end(), act.goes_on());
        match act {
            Act::Done => Ok(()),
            Act::Fail(class, named) => {
                let (words, scrubbed) = words(&self.world, n, count);
                call.words = Some(scrubbed);
                let failure = match class {
                    FailureClass::RateLimit => Failure::rate_limit(words),
                    FailureClass::Quota => Failure::quota(words),
                    FailureClass::Temporary => Failure::temporary(words),
                    FailureClass::NonRetryable => Failure::non_retryable(words),
                };
                Err(named.into_iter().fold(failure, Failure::retry_after))
            }
            Act::Postpone(delay) => Err(Failure::postpone(delay)),
            Act::Doubt => {
                let (words, scrubbed) = words(&self.world, n, count);
                call.words = Some(scrubbed);
                Err(Failure::temporary(words).in_doubt())
            }
            // Unlike `panic!`, prints nothing.
            Act::Panic => resume_unwind(Box::new("as scripted")),
            Act::Hang => std::future::pending().await,
        }
    }
}

/// Notes how a call ends, be it that it is cut short.
struct Call {
    world: Arc<World>,
    environment: usize,
    message: Message,
    ended: Ended,
    /// Whether what it began may go on.
    goes_on: bool,
    /// Those of its failure, as others are to see them.
    words: Option<String>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let (has_words, words) = (self.words.is_some(), self.words.take());
        let mut book = self.world.book();
        book.leaves(&self.world, self.environment, &self.message, self.goes_on);
        book.ends_probe(self.environment, &self.message);
        if let Some(n) = book.ended(self.environment, &self.message, self.ended, words) {
            book.heard(&self.world, self.environment, n, &self.message, self.ended, has_words);
        }
    }
}
