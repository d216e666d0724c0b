//! `requeue serve` with a function, as processes: a handler of `requeue::run`, and one that speaks
//! the Runtime API by itself.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod end;
mod function;
mod mapping;
mod page;
mod process;
mod rebuild;
mod refused;
mod send;
mod served;
mod target;
mod target_process;
mod target_served;
