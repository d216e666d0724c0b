//! Tables and durations for human readers.

use std::time::Duration;

use comfy_table::{ContentArrangement, LineStyle, Table, presets};

/// The least width of a table. A narrower terminal breaks its lines.
const LEAST_COLUMNS: u16 = 60;

/// A table with these headings, no wider than the terminal.
pub(crate) fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    let line = LineStyle::none().fill('─').junction('─');
    table.load_style(presets::NOTHING.header_separator(line)).set_header(heads);
    // Some terminals report a width of 0.
    if table.width().is_some_and(|columns| columns >= LEAST_COLUMNS) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

/// `12,000`.
pub(crate) fn thousands(count: impl TryInto<u64>) -> String {
    let digits = count.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `5 s`, `2 min`, `1 h 40 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let secs = duration.as_secs();
    let (hours, mins) = (secs / 3_600, secs % 3_600 / 60);
    match (secs, hours) {
        (0, _) => format!("{millis} ms"),
        (..120, _) => format!("{secs} s"),
        (_, 0) => format!("{mins} min {} s", secs % 60),
        _ => format!("{hours} h {mins} min"),
    }
}

/// `12 h`, not `12 h 0 min`: the times of a policy are round.
pub(crate) fn span(time: Duration) -> String {
    if time.is_zero() {
        return "0 s".to_owned();
    }
    let text = duration(time);
    text.strip_suffix(" 0 s")
        .or_else(|| text.strip_suffix(" 0 min"))
        .map_or(text.clone(), str::to_owned)
}
