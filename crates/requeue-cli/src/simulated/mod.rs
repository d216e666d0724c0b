//! The parts of the simulations: a function with its execution environments, the store that they
//! share, and the progress of a run. All of them run in virtual time.

use crate::Error;
use crate::stop::Stop;

mod function;
mod progress;
mod store;

pub(crate) use function::{BATCHING_WINDOW, Handled, SimulatedFunction, requests};
pub(crate) use progress::RunProgress;
pub(crate) use store::{OwnStore, SimulatedStore};

/// Runs the future in virtual time until its end, or until the stop.
pub(crate) async fn unless_stopped<T>(
    stop: &Stop,
    running: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = stop.told() => Err("stopped before its end".into()),
        ended = running => ended,
    }
}
