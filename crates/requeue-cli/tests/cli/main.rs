//! The command line, as a shell runs it: what it prints where, and its exit status.

#![allow(clippy::float_cmp, missing_docs, clippy::unwrap_used, reason = "tests")]

mod check;
mod config;
mod dlq;
mod dlq_discard;
mod dlq_ended;
mod dlq_export;
mod dlq_filters;
mod dlq_import;
mod dlq_left;
mod dlq_redrive;
mod dlq_sources;
mod dlq_standing;
mod dlq_unconfirmed;
mod dlq_world;
mod doctor;
mod laptop;
mod run;
mod measured;
mod new;
mod outage;
mod profile;
mod documents;
mod documents_words;
mod rate;
mod recipes;
mod reference;
mod reference_output;
mod schedule;
mod serve;
mod shell;
mod status;
mod terminal;
mod ui_memory;
mod unwritable;
