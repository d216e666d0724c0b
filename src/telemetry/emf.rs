//! Writes the metrics of a batch to the standard output, from where CloudWatch takes them, in its
//! embedded metric format.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use metrique::emf::Emf;
use metrique::writer::format::Format;

use super::metrics::{Figures, Line, NAMESPACE, QUEUE, SERVICE};
use crate::failure::FailureClass;
use crate::report::Report;
use crate::settings::Metrics;

/// The dimension of messages whose record does not say from which queue it is. Lambda's all do.
const UNKNOWN: &str = "unknown";

pub(crate) struct Emitter {
    settings: Metrics,
    format: Mutex<Emf>,
}

impl Emitter {
    pub(crate) fn new(settings: Metrics) -> Self {
        let dimensions = vec![SERVICE.to_owned(), QUEUE.to_owned()];
        let format = Emf::builder(NAMESPACE.to_owned(), vec![dimensions]).build();
        Self { settings, format: Mutex::new(format) }
    }

    /// A line that cannot be written is lost, as a log line is.
    pub(crate) fn emit(&self, report: &Report) {
        let _ = std::io::stdout().lock().write_all(&self.lines(report));
    }

    /// A line for each queue, and one for each class with which messages of it failed.
    pub(super) fn lines(&self, report: &Report) -> Vec<u8> {
        let mut figures: BTreeMap<(&str, Option<FailureClass>), Figures> = BTreeMap::new();
        for outcome in &report.outcomes {
            let queue = outcome.queue.as_ref().map_or(UNKNOWN, |queue| queue.name());
            figures.entry((queue, None)).or_default().add(outcome);
            if outcome.class.is_some() {
                figures.entry((queue, outcome.class)).or_default().add(outcome);
            }
        }
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for ((queue, class), figures) in figures {
            let Metrics { service, level } = &self.settings;
            // Memory can be written to, and names and dimensions are fixed: a build with debug
            // assertions, as that of the tests, checks them.
            let _ = format.format(&Line { service, queue, class, level, figures }, &mut lines);
        }
        lines
    }
}
