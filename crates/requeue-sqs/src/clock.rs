//! The time of day, injected, so that every run can be repeated.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

/// The time of day.
///
/// ```
/// use requeue::Clock;
/// let clock = Clock::system();
/// assert!(clock.now() > std::time::SystemTime::UNIX_EPOCH);
/// ```
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// The clock of this machine.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub fn system() -> Self {
        Self(Arc::new(SystemTime::now))
    }

    /// A clock that shows `start` now and advances with tokio's clock, also while that one is
    /// paused.
    pub fn starting_at(start: SystemTime) -> Self {
        let origin = Instant::now();
        Self(Arc::new(move || start + origin.elapsed()))
    }

    /// A clock that shows the time that `time` returns, for tests that set it.
    pub fn showing(time: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(time))
    }

    /// The time of day now.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// Whole milliseconds since the epoch; a time before it counts as the epoch.
pub fn epoch_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
