//! A function as the target.

#[cfg_attr(not(test), expect(dead_code, reason = "the target of a function calls it"))]
mod answer;
