//! Threads for handlers where the caller's runtime has too few.

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// A runtime for handlers, if the caller's has too few threads. It ends without waiting: a handler
/// may block for ever, and a runtime must not be waited for within another.
pub(super) struct Spare(Option<Runtime>);

impl Spare {
    /// `None` if the runtime from which this is called has enough threads.
    pub(super) fn if_needed() -> std::io::Result<Option<Self>> {
        let workers = match Handle::current().runtime_flavor() {
            RuntimeFlavor::CurrentThread => 1,
            _ => Handle::current().metrics().num_workers(),
        };
        (workers < 2).then(Self::new).transpose()
    }

    fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("handler")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
