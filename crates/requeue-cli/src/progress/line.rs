//! The text of a line of progress.

use std::time::Duration;

use super::ProgressState;
use crate::table::{span, thousands};

pub(super) struct Pace {
    pub(super) elapsed: Duration,
    pub(super) per_second: f64,
    pub(super) left: Duration,
    /// The time since the step or the counts changed.
    pub(super) still: Duration,
    /// The time without a response of SQS.
    pub(super) silent: Option<Duration>,
    pub(super) is_stopping: bool,
}

impl Pace {
    fn is_stuck(&self) -> bool {
        self.silent.is_some() || self.still >= STILL
    }
}

/// Without a change for so long, the rate and the time are no longer known.
const STILL: Duration = Duration::from_secs(5);
/// An estimate from less time is a guess.
const ESTIMATED: Duration = Duration::from_secs(2);
/// The widths of the bar, of which the first that fits is drawn.
const BARS: [usize; 3] = [24, 12, 6];

impl ProgressState {
    /// With a bar, if there is one that fits into so many columns; the words of a longer line go on
    /// below. `None` is no terminal.
    pub(super) fn text(&self, columns: Option<usize>, pace: &Pace) -> String {
        let stopping = if pace.is_stopping { "stopping" } else { "" };
        let (step, counts) = (joined(&[&self.step, stopping]), self.counts());
        let all = joined(&[&counts, &self.rate(pace), &self.time(pace)]);
        let fits = |text: &String| Some(text.chars().count()) <= columns;
        let with_bar = |width| Some(format!("{step}  {}  {all}", self.bar(width)?));
        let drawn = BARS.into_iter().filter_map(with_bar).find(fits);
        drawn.unwrap_or_else(|| match (&*counts, &*all) {
            (_, "") => step.clone(),
            ("", all) => format!("{step}, {all}"),
            (_, all) => format!("{step}: {all}"),
        })
    }

    /// `4,000 of 12,000 messages, 3 failed`.
    fn counts(&self) -> String {
        let Self { unit, done, total, failed, detail, .. } = self;
        if unit.is_empty() {
            return String::new();
        }
        let total = total.map(|total| format!(" of {}", thousands(total.max(*done))));
        let failed =
            if *failed > 0 { format!("{} failed", thousands(*failed)) } else { String::new() };
        let counted = format!("{}{} {unit}", thousands(*done), total.unwrap_or_default());
        joined(&[&counted, detail, &failed])
    }

    /// `410/s`, unless it is a guess, or the counted things are not the result.
    fn rate(&self, pace: &Pace) -> String {
        // Seconds pass at one in a second.
        let has_rate = self.is_counting() && self.unit != "s" && self.detail.is_empty();
        let is_known =
            has_rate && !pace.is_stuck() && pace.elapsed >= ESTIMATED && pace.per_second >= 0.1;
        if is_known { format!("{}/s", per_second(pace.per_second)) } else { String::new() }
    }

    /// `20 s left`, or the time since the beginning if the end is not known.
    fn time(&self, pace: &Pace) -> String {
        let seconds = |time: Duration| span(Duration::from_secs(time.as_secs()));
        match self.total {
            _ if let Some(silent) = pace.silent => {
                format!("no response from SQS for {}", seconds(silent))
            }
            _ if pace.elapsed < ESTIMATED => String::new(),
            // Its messages are hidden.
            _ if self.is_counting() && pace.still >= STILL => {
                format!("no change for {}", seconds(pace.still))
            }
            Some(total) if self.is_counting() && total > self.done && !pace.left.is_zero() => {
                format!("{} left", seconds(pace.left.max(Duration::from_secs(1))))
            }
            _ => seconds(pace.elapsed),
        }
    }

    fn is_counting(&self) -> bool {
        !self.unit.is_empty() && self.done > 0
    }

    /// `━━━━────────`, if the total is known.
    fn bar(&self, width: usize) -> Option<String> {
        let total = self.total.filter(|total| *total > 0 && !self.unit.is_empty())?;
        let part = u128::from(self.done.min(total)) * width as u128 / u128::from(total);
        let filled = usize::try_from(part).unwrap_or(width);
        Some("━".repeat(filled) + &"─".repeat(width - filled))
    }
}

fn per_second(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    thousands(per_second.round() as u64)
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_longest_bar_that_fits() {
        let state = ProgressState {
            step: "copying to orders".to_owned(),
            unit: "messages",
            done: 4_000,
            total: Some(12_000),
            failed: 3,
            detail: String::new(),
            notes: Vec::new(),
        };
        let pace = Pace {
            elapsed: Duration::from_secs(9),
            per_second: 410.4,
            left: Duration::from_secs(20),
            still: Duration::ZERO,
            silent: None,
            is_stopping: false,
        };
        let plain = "copying to orders: 4,000 of 12,000 messages, 3 failed, 410/s, 20 s left";
        for (columns, text) in [
            (
                Some(100),
                "copying to orders  ━━━━━━━━────────────────  4,000 of 12,000 messages, 3 failed, \
                 410/s, 20 s left",
            ),
            (
                Some(90),
                "copying to orders  ━━━━────────  4,000 of 12,000 messages, 3 failed, 410/s, 20 s left",
            ),
            (
                Some(79),
                "copying to orders  ━━────  4,000 of 12,000 messages, 3 failed, 410/s, 20 s left",
            ),
            (Some(78), plain),
            (Some(10), plain),
            (None, plain),
        ] {
            assert_eq!(state.text(columns, &pace), text, "{columns:?}");
        }
        let stuck = Pace { still: Duration::from_secs(94), ..pace };
        let silent = Pace { silent: Some(Duration::from_secs(8)), ..stuck };
        for (pace, end) in [
            (&stuck, ": 4,000 of 12,000 messages, 3 failed, no change for 94 s"),
            (&silent, ": 4,000 of 12,000 messages, 3 failed, no response from SQS for 8 s"),
            (
                &Pace { is_stopping: true, ..silent },
                ", stopping: 4,000 of 12,000 messages, 3 failed, no response from SQS for 8 s",
            ),
        ] {
            assert_eq!(state.text(None, pace), format!("copying to orders{end}"));
        }
        let looking = ProgressState { detail: "80 copied".to_owned(), failed: 0, ..state };
        assert_eq!(
            looking.text(Some(90), &pace),
            "copying to orders  ━━━━────────  4,000 of 12,000 messages, 80 copied, 20 s left"
        );
    }

    #[test]
    fn a_line_estimates_only_what_it_can() {
        let of = |unit, done, total, secs| {
            let still = if secs > 9 { Duration::from_secs(5) } else { Duration::ZERO };
            let state = ProgressState {
                step: "asking".to_owned(),
                unit,
                done,
                total,
                ..Default::default()
            };
            let elapsed = Duration::from_secs(secs);
            let pace = Pace {
                elapsed,
                per_second: 2.0,
                left: Duration::from_secs(7),
                still,
                silent: None,
                is_stopping: false,
            };
            state.text(None, &pace)
        };
        for (said, text) in [
            (of("", 0, None, 1), "asking"),
            (of("", 0, None, 3), "asking, 3 s"),
            (of("calls", 0, None, 1), "asking: 0 calls"),
            (of("calls", 2, None, 3), "asking: 2 calls, 2.0/s, 3 s"),
            (of("calls", 0, Some(9), 3), "asking: 0 of 9 calls, 3 s"),
            (of("calls", 2, Some(9), 1), "asking: 2 of 9 calls"),
            (of("calls", 2, Some(9), 3), "asking: 2 of 9 calls, 2.0/s, 7 s left"),
            (of("calls", 10, Some(9), 3), "asking: 10 of 10 calls, 2.0/s, 3 s"),
            (of("calls", 2, Some(9), 10), "asking: 2 of 9 calls, no change for 5 s"),
            (of("calls", 0, None, 10), "asking: 0 calls, 10 s"),
        ] {
            assert_eq!(said, text);
        }
    }
}
