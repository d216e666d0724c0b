//! Emulators and programs that Rust alone does not bring; `tests/run` starts and installs them.

use std::io::{Write, stderr};
use std::thread;

/// The value of a variable that `tests/run` sets: an endpoint or a program. Without it, the test
/// that asks is to end at once: it is named as skipped, and fails where `REQUEUE_TEST_REQUIRE_TOOLS`
/// is set.
///
/// # Panics
///
/// In `tests/run`, when the variable is not set.
pub fn tool(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        assert!(
            std::env::var_os("REQUEUE_TEST_REQUIRE_TOOLS").is_none(),
            "{variable} is not set, and REQUEUE_TEST_REQUIRE_TOOLS is"
        );
        let test = thread::current().name().unwrap_or("a test").to_owned();
        // Not by `eprintln!`, whose text is shown for failed tests only.
        let _ = writeln!(stderr(), "SKIPPED {test}: {variable} is not set; run `tests/run rust`");
    }
    value
}
