//! Everything that is logged on a thread: all of this crate's, and what others log at the level that a function has by default.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span;

thread_local! {
    static LINES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What was logged on this thread since the last time.
pub fn take() -> String {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Listener).expect("nobody else does"));
    LINES.take()
}

/// The one subscriber of all threads.
struct Listener;

impl Listener {
    fn note(record: impl FnOnce(&mut Fields<'_>)) {
        LINES.with_borrow_mut(|lines| {
            record(&mut Fields(lines));
            lines.push('\n');
        });
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    /// As it is: what could forge a line is to be found too.
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
        Self::note(|fields| span.record(fields));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        Self::note(|fields| values.record(fields));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        Self::note(|fields| event.record(fields));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
