//! The parts of the simulations: a function with its execution environments, the store that they
//! share, and the progress of a run. All of them run in virtual time.

mod function;
mod progress;
mod store;

pub(crate) use function::{BATCHING_WINDOW, Handled, SimulatedFunction, requests};
pub(crate) use progress::RunProgress;
pub(crate) use store::{OwnStore, SimulatedStore};
