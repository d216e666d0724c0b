//! The options of the command that replace settings.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use requeue::{Settings, Variables};

use crate::duration_argument::within;

/// The settings of the environment that options of the command replace.
#[derive(clap::Args)]
pub(super) struct SettingArguments {
    /// How a message that is dead-lettered reaches the dead-letter queue, instead of
    /// `REQUEUE_DEAD_LETTER`. `direct` needs `REQUEUE_DEAD_LETTER_QUEUE_URL`. [default: annotate]
    #[arg(long, help_heading = "Queue", value_name = "MODE",
          value_parser = PossibleValuesParser::new(["redrive", "annotate", "direct"]))]
    dead_letter: Option<String>,
    /// The most handlers at once, instead of `REQUEUE_CONCURRENCY`. [default: 10]
    #[arg(long, value_name = "HANDLERS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: Option<u16>,
    /// The longest run of one handler, instead of `REQUEUE_TIMEOUT_SECONDS`. [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = within(1..=5_400))]
    timeout: Option<Duration>,
}

impl SettingArguments {
    pub(super) fn variables(&self) -> Variables {
        let mut variables = Variables::from_env();
        if let Some(mode) = &self.dead_letter {
            variables.set("DEAD_LETTER", mode.clone());
            // The URL belongs to the mode that the option replaces.
            if mode != "direct" {
                variables.set("DEAD_LETTER_QUEUE_URL", String::new());
            }
        }
        if let Some(concurrency) = self.concurrency {
            variables.set("CONCURRENCY", concurrency.to_string());
        }
        if let Some(timeout) = self.timeout {
            variables.set("TIMEOUT_SECONDS", timeout.as_secs().to_string());
        }
        variables
    }

    /// Lets the options that are given replace the settings of single queues too.
    pub(super) fn replace(&self, settings: &mut Settings) {
        for own in settings.queues.values_mut() {
            own.dead_letter = own.dead_letter.take().filter(|_| self.dead_letter.is_none());
            own.concurrency = own.concurrency.filter(|_| self.concurrency.is_none());
            own.timeout = own.timeout.filter(|_| self.timeout.is_none());
        }
    }
}
