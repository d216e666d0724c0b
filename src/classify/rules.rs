//! The user's own rules, which apply before every built-in table.

use std::cell::OnceCell;
use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::status::told;
use super::text::Words;
use super::{Response, aws, chain, code, exception};
use crate::failure::{DetailText, Evidence, Failure, FailureClass};

tokio::task_local! {
    /// The rules of the handler that runs here. They are no argument, because
    /// [`Failure::classified`] and `.classified()?` take nothing but an error.
    static CURRENT: Rules;
}

/// Rules of your own. They apply in their order, before the built-in tables; the first match wins.
///
/// Write them as the list `rules` of the policy document, or in code with [`on`](Self::on), or
/// both. [`Settings::from_env`](crate::Settings::from_env) and [`str::parse`] read the document.
///
/// The rules of a handler's [`Settings`](crate::Settings) apply to everything that it classifies.
/// For a task that the handler starts, use [`scope`](Self::scope). The rules do not apply to a
/// postponement, to a class that the handler itself chose, or to a target that did not respond:
/// this failure is temporary.
///
/// `docs/reference/policy.md` has the conditions of a rule of the document, and its effects.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use requeue::{Failure, FailureClass};
/// use requeue::classify::{Response, Rules};
///
/// let rules: Rules = r#"{"rules": [
///     {"match": {"status": 404, "words": "not found yet"}, "class": "temporary", "delaySeconds": 30}
/// ]}"#.parse()?;
///
/// let response = Response { status: 404, headers: &[], body: br#"{"message": "Not found, yet."}"# };
/// let failure = rules.within(|| Failure::from_response(&response, SystemTime::UNIX_EPOCH));
/// assert_eq!(failure.class(), FailureClass::Temporary);
/// assert_eq!(failure.delay(), Some(Duration::from_secs(30)));
/// assert_eq!(failure.detail(), "status 404, by rules[0]");
/// # Ok::<(), requeue::InvalidPolicy>(())
/// ```
#[derive(Clone, Default)]
pub struct Rules(Arc<Vec<Rule>>, DetailText);

type ByType = dyn Fn(&(dyn Error + 'static)) -> Option<Failure> + Send + Sync;

#[derive(Clone)]
enum Rule {
    ByType(Arc<ByType>),
    Matching(Match, Effect),
}

/// The conditions of a rule of the document. An empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) statuses: Vec<RangeInclusive<u16>>,
    pub(crate) codes: Vec<String>,
    /// Names, each with its value if the rule has one.
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
    /// The place of the rule in the document: its default reason, unless the user gave it one.
    pub(crate) place: String,
    pub(crate) class: FailureClass,
    pub(crate) delay: Option<Duration>,
    pub(crate) reason: Option<String>,
}

/// The words for the classes that a rule of the document, or a function in its response, may give; the
/// older ones come last.
pub(crate) const CLASSES: [(&str, FailureClass); 11] = [
    ("rate-limit", FailureClass::RateLimit),
    ("quota", FailureClass::Quota),
    ("temporary", FailureClass::Temporary),
    ("non-retryable", FailureClass::NonRetryable),
    ("RATE_LIMIT", FailureClass::RateLimit),
    ("RATE_LIMIT_EXCEEDED", FailureClass::RateLimit),
    ("QUOTA", FailureClass::Quota),
    ("QUOTA_EXCEEDED", FailureClass::Quota),
    ("TEMPORARY", FailureClass::Temporary),
    ("TEMPORARY_ERROR", FailureClass::Temporary),
    ("NON_RETRYABLE", FailureClass::NonRetryable),
];

/// The class that a word names, as policy documents and logs write it, or by an older name.
pub fn class_named(word: &str) -> Option<FailureClass> {
    let letters = |text: &str| text.replace(['-', '_', ' '], "").to_ascii_uppercase();
    let word = letters(word);
    CLASSES.iter().find(|(known, _)| letters(known) == word).map(|(_, class)| *class)
}

impl Rules {
    /// No rules: the built-in tables classify everything.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn matching(rules: impl IntoIterator<Item = (Match, Effect)>) -> Self {
        let rules = rules.into_iter().map(|(condition, effect)| Rule::Matching(condition, effect));
        Self(Arc::new(rules.collect()), DetailText::Off)
    }

    /// Adds a rule for errors of type `E`, at every level of an error's `source()` chain. A rule
    /// that returns `None` leaves the error to the rules after it. If the rule itself classifies an
    /// error, only the built-in tables apply.
    #[must_use]
    pub fn on<E: Error + 'static>(
        mut self,
        rule: impl Fn(&E) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        let by_type = move |error: &(dyn Error + 'static)| error.downcast_ref().and_then(&rule);
        Arc::make_mut(&mut self.0).push(Rule::ByType(Arc::new(by_type)));
        self
    }

    /// The same rules. If the text is on, failures keep the service's own words.
    pub(crate) fn keeping(self, text: DetailText) -> Self {
        Self(self.0, text)
    }

    /// The failure that the first matching rule makes, else [`Failure::classified`].
    pub fn classify(&self, error: &(dyn Error + 'static)) -> Failure {
        self.within(|| Failure::classified(error))
    }

    /// Applies these rules to everything that `classify` classifies.
    pub fn within<T>(&self, classify: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), classify)
    }

    /// Applies these rules to everything that `work` classifies, but not to tasks that it starts.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn by_rules(&self, facts: &Facts<'_>) -> Option<Failure> {
        self.0.iter().find_map(|rule| match rule {
            // If the rules were still in force, a rule that uses the built-in tables would call
            // itself for ever.
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

/// Whether a rule in force here names this status. Only then does the response of a success have to
/// be read and given to [`Failure::from_success`].
pub fn names_status(status: u16) -> bool {
    let names = |rule: &Rule| match rule {
        Rule::ByType(_) => false,
        Rule::Matching(condition, _) => {
            condition.statuses.iter().any(|range| range.contains(&status))
        }
    };
    CURRENT.try_with(|rules| rules.0.iter().any(names)).unwrap_or(false)
}

pub(super) fn keep_text() -> bool {
    CURRENT.try_with(|rules| rules.1 == DetailText::On).unwrap_or(false)
}

/// The facts of a failure that a rule may test.
#[derive(Default)]
pub(super) struct Facts<'a> {
    response: Option<&'a Response<'a>>,
    error: Option<&'a (dyn Error + 'static)>,
    codes: Vec<&'a str>,
    /// The code of the response that may be logged.
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

    /// `code` is a further code, in addition to the error's chain.
    pub(super) fn error(error: &'a (dyn Error + 'static), code: Option<&'a str>) -> Self {
        Self {
            error: Some(error),
            codes: code
                .into_iter()
                .chain(aws::codes(error))
                .chain(exception::codes(error))
                .collect(),
            ..Self::default()
        }
    }

    pub(super) fn code(code: &'a str) -> Self {
        Self { codes: vec![code], ..Self::default() }
    }

    /// The failure by the first matching rule of those in force here.
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
        // A rule for failures must not make one of a success.
        if facts.response.is_some_and(Response::is_success) && self.statuses.is_empty() {
            return false;
        }
        let code = |code: &String| {
            facts.codes.iter().any(|known| known == code || code::bare(known) == code)
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
            Some(delay) => failure.ruled_delay(delay),
            None => failure,
        }
    }
}
