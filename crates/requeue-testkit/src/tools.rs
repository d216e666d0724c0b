//! Emulators and programs that are not Rust packages; `tests/run` installs and starts them.

use std::io::{Write, stderr};
use std::thread;

/// The value of a variable that `tests/run` sets: an endpoint or a program. Without it, the test
/// must end at once. It is reported as skipped, and fails if `REQUEUE_TEST_REQUIRE_TOOLS` is set.
///
/// # Panics
///
/// If `tests/run` runs the test, and the variable is not set.
pub fn tool(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        assert!(
            std::env::var_os("REQUEUE_TEST_REQUIRE_TOOLS").is_none(),
            "{variable} is not set, and REQUEUE_TEST_REQUIRE_TOOLS is"
        );
        let test = thread::current().name().unwrap_or("a test").to_owned();
        // Not with `eprintln!`, because its text is shown only for failed tests.
        let _ = writeln!(stderr(), "SKIPPED {test}: {variable} is not set; run `tests/run rust`");
    }
    value
}
