//! An error and all that caused it.

use std::error::Error;
use std::iter::successors;

/// No honest error is nested deeper; a chain that bites its own tail ends here.
const MAX_DEPTH: usize = 32;

/// An error and all that caused it, outermost first.
///
/// ```
/// let error = std::io::Error::other(std::fmt::Error);
/// assert_eq!(requeue::classify::chain(&error).count(), 2);
/// ```
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        let error: &'a (dyn Error + 'static) = *error;
        // `io::Error` names as its source the source of the error it was made from, and so would
        // hide that one.
        match error.downcast_ref().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    };
    successors(Some(error), cause).take(MAX_DEPTH)
}
