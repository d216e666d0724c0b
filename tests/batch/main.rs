//! One batch and what becomes of it, over the real SDK client and an embedded queue, in virtual time.

#![cfg(feature = "embedded")]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod world;

mod edges;
mod settling;
