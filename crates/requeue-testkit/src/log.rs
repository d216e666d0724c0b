//! Captures the log during a test.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span;

/// The captured log: all events of this crate, and those of others at a function's default level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<String>>);

thread_local! {
    static LISTENING: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Runs once, before the first event.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nobody else does");
    });
}

impl Log {
    /// Listens on this thread until the guard is dropped.
    pub fn listen(&self) -> Listening {
        LISTENING.set(Some(self.clone()));
        Listening
    }

    /// Takes the events since the last call.
    pub fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().expect("no panic while it is held"))
    }

    pub fn text(&self) -> String {
        self.0.lock().expect("no panic while it is held").clone()
    }
}

pub struct Listening;

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.set(None);
    }
}

/// The one subscriber of all tests. A subscriber for each thread could miss an event that another
/// thread met first.
struct Listener;

impl Listener {
    fn note(name: &str, record: impl FnOnce(&mut Fields)) {
        let Some(log) = LISTENING.with_borrow(Clone::clone) else {
            return;
        };
        let mut fields = Fields(name.to_owned());
        record(&mut fields);
        let mut text = log.0.lock().expect("no panic while it is held");
        text.push_str(&fields.0);
        text.push('\n');
    }
}

struct Fields(String);

impl Visit for Fields {
    /// Unchanged: the code that logs a value has to escape it.
    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}=\"{value}\"", field.name()).expect("a string takes everything");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes everything");
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("requeue") || *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        Self::note(span.metadata().name(), |fields| span.record(fields));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        Self::note("", |fields| values.record(fields));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        Self::note(event.metadata().target(), |fields| event.record(fields));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
