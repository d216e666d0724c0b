//! Methods that a handler appends to a fallible call to name the class of its failure.

use std::any::type_name;
use std::error::Error;

use crate::failure::{Evidence, Failure};

/// Turns the error of any [`Result`] into a [`Failure`]: `charge(order).temporary()?`.
///
/// The reason is the name of the error's type. It never holds the error's text, which may quote a
/// body or a secret. For words of your own, write
/// `.map_err(|_| Failure::temporary("the ledger is locked"))`.
///
/// ```
/// use requeue::{Failure, FailureClass, ResultExt};
///
/// fn amount(body: &str) -> Result<u64, Failure> {
///     body.parse::<u64>().non_retryable()
/// }
/// let failure = amount("my secret").unwrap_err();
/// assert_eq!(failure.class(), FailureClass::NonRetryable);
/// assert_eq!(failure.detail(), "core::num::error::ParseIntError");
/// ```
///
/// If you choose the class of a timeout with one of the other methods, and the policy has
/// [`idempotency`](crate::policy::RetryPolicy::idempotency), add [`Failure::in_doubt`].
///
/// Only [`Result`] implements the trait, so later versions can add methods to it.
pub trait ResultExt<T, E>: Sized + sealed::Sealed {
    /// The downstream service limits the rate: [`Failure::rate_limit`].
    fn rate_limit(self) -> Result<T, Failure>;
    /// An allowance is used up: [`Failure::quota`].
    fn quota(self) -> Result<T, Failure>;
    /// The call may work later: [`Failure::temporary`].
    fn temporary(self) -> Result<T, Failure>;
    /// The call will never work: [`Failure::non_retryable`].
    fn non_retryable(self) -> Result<T, Failure>;
    /// The class that the rules and the built-in tables find: [`Failure::classified`]. Takes every
    /// error that is `Send` and `Sync`, also boxed errors and strings.
    fn classified(self) -> Result<T, Failure>
    where
        E: Into<Box<dyn Error + Send + Sync>>;
}

mod sealed {
    use crate::failure::Failure;

    pub trait Sealed {}
    impl<T, E> Sealed for Result<T, E> {}

    /// No type has it; it exists for the compiler's advice.
    #[diagnostic::on_unimplemented(
        message = "no class of failure is known for `{Self}`",
        label = "say its class: `.classified()?`, or `.temporary()?`, `.non_retryable()?`, … of `requeue::ResultExt`",
        note = "for an error type of your own, write `impl From<{Self}> for Failure`"
    )]
    pub trait HasClass {
        fn into_failure(self) -> Failure;
    }
}

/// For no type: the class of a foreign error is to be said. A type of your own may have its
/// `impl From<MyError> for Failure`.
///
/// ```compile_fail,E0277
/// # use requeue::{Failure, Message};
/// async fn charge(message: Message) -> Result<(), Failure> {
///     let amount: u64 = message.body().parse()?; // .non_retryable()?
///     Ok(())
/// }
/// ```
impl<E: sealed::HasClass> From<E> for Failure {
    fn from(error: E) -> Self {
        error.into_failure()
    }
}

macro_rules! named {
    ($($class:ident)+) => {
        $(fn $class(self) -> Result<T, Failure> {
            self.map_err(|_| Failure::$class(type_name::<E>()))
        })+
    };
}

impl<T, E> ResultExt<T, E> for Result<T, E> {
    named!(rate_limit quota temporary non_retryable);

    fn classified(self) -> Result<T, Failure>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.map_err(|error| {
            let failure = Failure::classified(&*error.into());
            match failure.evidence() {
                Evidence::Unrecognised => {
                    let reason = format_args!("unrecognised: {}", type_name::<E>());
                    let named = Failure::new(failure.class(), Evidence::Unrecognised, reason);
                    named.doubted(failure.is_in_doubt())
                }
                Evidence::Handler
                | Evidence::Rule
                | Evidence::Typed
                | Evidence::Text
                | Evidence::Body
                | Evidence::Connection
                | Evidence::Panic
                | Evidence::TimeOut => failure,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureClass;

    #[test]
    fn the_word_decides_the_class_and_the_text_stays_out() {
        let secret = || Err::<(), _>("429 with a secret".to_owned());
        for (result, class) in [
            (secret().rate_limit(), FailureClass::RateLimit),
            (secret().quota(), FailureClass::Quota),
            (secret().temporary(), FailureClass::Temporary),
            (secret().non_retryable(), FailureClass::NonRetryable),
        ] {
            let failure = result.expect_err("the error was given");
            assert_eq!(
                (failure.class(), failure.evidence(), failure.detail()),
                (class, Evidence::Handler, "alloc::string::String")
            );
        }
    }

    #[test]
    fn what_is_classified_may_be_typed_boxed_or_words() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let boxed: Box<dyn Error + Send + Sync> = refused().into();
        for (result, reason) in [
            (Err(refused()).classified(), "connection refused"),
            (Err(boxed).classified(), "connection refused"),
            (Err("it timed out").classified(), "timed out"),
            (Err("gone fishing").classified(), "unrecognised: &str"),
        ] {
            let failure = Result::<(), _>::expect_err(result, "the error was given");
            assert_eq!((failure.class(), failure.detail()), (FailureClass::Temporary, reason));
        }
    }
}
