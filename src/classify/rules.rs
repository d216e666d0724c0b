//! The user's own rules, which are asked before every built-in table.

use std::cell::OnceCell;
use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::aws;
use super::chain::chain;
use super::response::Response;
use super::status::told;
use super::text::Words;
use crate::failure::{Evidence, Failure, FailureClass};

tokio::task_local! {
    /// The rules by which the handler that runs here classifies. Not an argument, as
    /// [`Failure::classified`] and `.classified()?` have none: a handler names an error and nothing
    /// else, wherever it does so.
    static CURRENT: Rules;
}

/// Own rules, asked in their order and before everything built in; the first that matches wins.
///
/// They are the list `rules` of the policy document, from which
/// [`Settings::from_env`](crate::Settings::from_env) and [`str::parse`] read them, or made in code
/// with [`on`](Self::on), or both. Whatever a handler classifies goes by the rules of its
/// [`Settings`](crate::Settings): a response
/// ([`Failure::from_response`], `HttpTarget`) as much as an error
/// ([`ResultExt::classified`](crate::ResultExt::classified), [`Failure::classified`],
/// [`Failure::aws`], [`Failure::from_grpc`]). A task that the handler starts is reached by
/// [`scope`](Self::scope).
///
/// A rule of the document has a `match`, of which all that is given must hold:
///
/// | condition | holds for | holds if |
/// |---|---|---|
/// | `status` | responses | it is the status: a number from 300 to 999, `"3xx"`, `"4xx"` or `"5xx"` |
/// | `code` | responses, AWS errors, gRPC names | it is a code or reason of the error body, case included, wherever the body has it; or the error's own |
/// | `header` | responses | each of these headers is there and equal to the text, whatever its case; `true` asks for none |
/// | `words` | responses, errors | the beginning of the response's body (16 KiB), or of the error's messages (2,048 characters), has these whole words in this order |
///
/// In place of one `status`, `code` or `words` there may be a list, of which one must hold. `class`
/// is what the failure then is, and `delaySeconds` (0.001 to 43,200) what it waits at least,
/// whatever the response names; without it the response's own `Retry-After` counts. `reason` (1 to
/// 64 characters) is what logs and dead letters call it; by default they name the place of the
/// rule.
///
/// Words within an address (`https://…`) that an error's message quotes do not count, and a target
/// that did not respond at all is a temporary failure by any rule. A postponement (429,
/// `Retry-After` and `Requeue-Scope: message`), and what the handler says itself, is no matter for
/// rules.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use requeue::{Failure, FailureClass};
/// use requeue::classify::{Response, Rules};
///
/// let rules: Rules = r#"{"rules": [
///     {"match": {"status": 404, "words": "not found yet"}, "class": "TEMPORARY", "delaySeconds": 30}
/// ]}"#.parse()?;
///
/// let response = Response { status: 404, headers: &[], body: br#"{"message": "Not found, yet."}"# };
/// let failure = rules.within(|| Failure::from_response(&response, SystemTime::UNIX_EPOCH));
/// assert_eq!(failure.class(), FailureClass::Temporary);
/// assert_eq!(failure.delay(), Some(Duration::from_secs(30)));
/// assert_eq!(failure.reason(), "status 404, by rules[0]");
/// # Ok::<(), requeue::InvalidPolicy>(())
/// ```
#[derive(Clone, Default)]
pub struct Rules(Arc<Vec<Rule>>);

type ByType = dyn Fn(&(dyn Error + 'static)) -> Option<Failure> + Send + Sync;

#[derive(Clone)]
enum Rule {
    ByType(Arc<ByType>),
    Matching(Match, Effect),
}

/// The conditions of a rule of the document. An empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) statuses: Vec<RangeInclusive<u16>>,
    pub(crate) codes: Vec<String>,
    /// Names, and the value if one is asked for.
    pub(crate) headers: Vec<(String, Option<String>)>,
    pub(crate) words: Vec<Phrase>,
}

/// Words as they are compared; at least one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phrase(String);

impl Phrase {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(Self(super::text::phrase(text))).filter(|phrase| !phrase.0.is_empty())
    }
}

/// The effect of a rule of the document on a failure that it matches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    /// Where the rule stands in the document: its default reason, unless the user gave it
    /// one.
    pub(crate) place: String,
    pub(crate) class: FailureClass,
    pub(crate) delay: Option<Duration>,
    /// The user's name for it.
    pub(crate) reason: Option<String>,
}

impl Rules {
    /// No rules: everything is left to the built-in tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn matching(rules: impl IntoIterator<Item = (Match, Effect)>) -> Self {
        Self(Arc::new(
            rules
                .into_iter()
                .map(|(condition, effect)| Rule::Matching(condition, effect))
                .collect(),
        ))
    }

    /// Adds a rule for errors of type `E`, at every level of an error's `source()` chain. A rule
    /// that returns `None` leaves the error to the rules after it; what it classifies itself goes
    /// by the built-in tables.
    ///
    /// ```
    /// use requeue::{Failure, FailureClass};
    /// use requeue::classify::Rules;
    ///
    /// #[derive(Debug)]
    /// struct Locked { by: u32 }
    /// impl std::fmt::Display for Locked {
    ///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "status 403") }
    /// }
    /// impl std::error::Error for Locked {}
    ///
    /// let rules = Rules::new().on::<Locked>(|locked| (locked.by != 0).then(|| Failure::temporary("the account is locked")));
    /// assert_eq!(rules.classify(&Locked { by: 7 }).reason(), "the account is locked");
    /// assert_eq!(rules.classify(&Locked { by: 0 }).class(), FailureClass::NonRetryable);
    /// ```
    #[must_use]
    pub fn on<E: Error + 'static>(
        mut self,
        rule: impl Fn(&E) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        let by_type = move |error: &(dyn Error + 'static)| error.downcast_ref().and_then(&rule);
        Arc::make_mut(&mut self.0).push(Rule::ByType(Arc::new(by_type)));
        self
    }

    /// The failure that the first matching rule makes, else [`Failure::classified`].
    #[must_use]
    pub fn classify(&self, error: &(dyn Error + 'static)) -> Failure {
        self.within(|| Failure::classified(error))
    }

    /// Whatever is classified within `classify` goes by these rules.
    pub fn within<T>(&self, classify: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), classify)
    }

    /// Whatever is classified by `work`, but not by tasks that it starts, goes by these rules.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn by_rules(&self, facts: &Facts<'_>) -> Option<Failure> {
        self.0.iter().find_map(|rule| match rule {
            // Were the rules still in force, one that asks the built-in tables would be asked again
            // for ever.
            Rule::ByType(rule) => {
                Self::new().within(|| chain(facts.error?).find_map(|level| rule(level)))
            }
            Rule::Matching(condition, effect) => condition.holds(facts).then(|| effect.of(facts)),
        })
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.len()).finish()
    }
}

/// All that is known of a failure and that a rule may ask for.
#[derive(Default)]
pub(super) struct Facts<'a> {
    response: Option<&'a Response<'a>>,
    error: Option<&'a (dyn Error + 'static)>,
    codes: Vec<&'a str>,
    /// The code of the response that may be told.
    own_code: Option<&'a str>,
    words: OnceCell<Words>,
}

impl<'a> Facts<'a> {
    pub(super) fn response(
        response: &'a Response<'a>,
        codes: impl Iterator<Item = &'a str>,
        own_code: Option<&'a str>,
    ) -> Self {
        Self { response: Some(response), codes: codes.collect(), own_code, ..Self::default() }
    }

    /// `code` is known besides those that the error's chain shows.
    pub(super) fn error(error: &'a (dyn Error + 'static), code: Option<&'a str>) -> Self {
        Self {
            error: Some(error),
            codes: code.into_iter().chain(aws::codes(error)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn code(code: &'a str) -> Self {
        Self { codes: vec![code], ..Self::default() }
    }

    /// The failure that the first matching rule of those in force here makes.
    pub(super) fn by_rules(&self) -> Option<Failure> {
        CURRENT.try_with(Rules::clone).ok()?.by_rules(self)
    }

    fn words(&self) -> &Words {
        self.words.get_or_init(|| match (self.response, self.error) {
            (Some(response), _) => Words::of_body(response.body),
            (None, Some(error)) => Words::of_errors(chain(error)),
            (None, None) => Words::default(),
        })
    }
}

impl Match {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let status = |range: &RangeInclusive<u16>| {
            facts.response.is_some_and(|response| range.contains(&response.status))
        };
        let code = |code: &String| {
            facts.codes.iter().any(|known| known == code || aws::bare(known) == code)
        };
        let header = |(name, value): &(String, Option<String>)| {
            let is_wanted = |found: &[u8]| {
                value.as_ref().is_none_or(|value| found.eq_ignore_ascii_case(value.as_bytes()))
            };
            facts.response.is_some_and(|response| response.values(name).any(is_wanted))
        };
        one_of(&self.statuses, status)
            && one_of(&self.codes, code)
            && self.headers.iter().all(header)
            && one_of(&self.words, |phrase| facts.words().hold(&phrase.0))
    }
}

fn one_of<T>(wanted: &[T], holds: impl Fn(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(holds)
}

impl Effect {
    fn of(&self, facts: &Facts<'_>) -> Failure {
        let place = &self.place;
        let reason = match (facts.response, &self.reason) {
            (Some(response), Some(reason)) => told(response.status, Some(reason), None),
            (Some(response), None) => {
                format!("{}, by {place}", told(response.status, None, facts.own_code))
            }
            (None, Some(reason)) => reason.clone(),
            (None, None) => format!("by {place}"),
        };
        let failure = Failure::new(self.class, Evidence::Rule, reason);
        match self.delay {
            Some(delay) => failure.retry_after(delay),
            None => failure,
        }
    }
}
