//! An error and all that caused it.

use std::error::Error;
use std::iter::successors;

/// The most errors that are read. No real error is nested deeper, and a chain with a cycle ends
/// here.
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
        // The source of an `io::Error` is the source of the error inside it, and so would skip that
        // error.
        match error.downcast_ref().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    };
    successors(Some(error), cause).take(MAX_DEPTH)
}
