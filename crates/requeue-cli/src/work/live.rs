//! The state of a worker, as the page's screen "Live" shows it.

use requeue::{DeadLetterMode, Mode};

use super::Started;
use super::line::Figures;
use crate::stop::Stop;
use crate::ui::{LiveCounts, LiveState};

/// Most pauses and circuits on the page.
const MAX_PAUSES: usize = 50;

/// What becomes of the messages that were dead-lettered, if SQS has to move them.
fn dead_lettered(mode: &DeadLetterMode, figures: &Figures) -> Option<&'static str> {
    let text = match mode {
        DeadLetterMode::Redrive => {
            "SQS moves a message that was dead-lettered to the dead-letter queue after maxReceiveCount \
             receives. Until then it is in this queue."
        }
        DeadLetterMode::Annotate => {
            "Requeue sends a copy of a dead-lettered message, with the reason. SQS moves this \
             copy to the dead-letter queue after maxReceiveCount receives. Until then it is in this \
             queue."
        }
        _ => return None,
    };
    let is_any = figures.progress.dead_lettered > 0 && figures.mode == Mode::Requeue;
    is_any.then_some(text)
}

pub(super) fn on_page(
    started: &Started,
    figures: Figures,
    troubles: Vec<String>,
    stop: &Stop,
) -> LiveState {
    let dead_lettered = dead_lettered(&started.dead_letter, &figures);
    LiveState {
        source: "worker",
        queue: figures.queue,
        target: Some(started.target.clone()),
        waiting: figures.waiting,
        rate: figures.rate,
        counts: Some(LiveCounts::of(&figures.progress, figures.mode)),
        dead_lettered,
        pauses: Some(figures.pauses.into_iter().take(MAX_PAUSES).collect()),
        troubles,
        is_ending: stop.is_told(),
        ..LiveState::default()
    }
}
