//! The user's own table, which is asked before every built-in one.

use std::error::Error;
use std::fmt;

use super::chain;
use crate::failure::Failure;

type Rule = Box<dyn Fn(&(dyn Error + 'static)) -> Option<Failure> + Send + Sync>;

/// Own rules by error type, asked in their order and before everything built in, at every level of an error's `source()` chain.
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
#[derive(Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// No rules: everything is left to the built-in tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule for errors of type `E`. A rule that returns `None` leaves the error to the rules after it.
    #[must_use]
    pub fn on<E: Error + 'static>(mut self, rule: impl Fn(&E) -> Option<Failure> + Send + Sync + 'static) -> Self {
        self.0.push(Box::new(move |error| error.downcast_ref().and_then(&rule)));
        self
    }

    /// What the first matching rule says, else [`Failure::classified`].
    #[must_use]
    pub fn classify(&self, error: &(dyn Error + 'static)) -> Failure {
        let matching = |rule: &Rule| chain(error).find_map(rule);
        self.0.iter().find_map(matching).unwrap_or_else(|| Failure::classified(error))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.0.len()).finish()
    }
}
