//! The parts of the simulations: the world of a run, a function with its execution environments, the
//! store that they share, and the comparison of runs. All of them run in virtual time.

mod comparison;
mod function;
mod table;
mod world;

pub(crate) use comparison::{Comparison, Figures, Run, RunProgress, SimulationArguments};
pub(crate) use function::{BATCHING_WINDOW, Handled, SimulatedFunction, requests};
pub(crate) use table::SimulatedTable;
pub(crate) use world::{Bucket, CALL, World, number, shared_by};
