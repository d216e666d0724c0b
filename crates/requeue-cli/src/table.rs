//! Tables, numbers and durations for human readers. A table that is wider than the terminal
//! breaks no word; it leaves out columns, or each row becomes lines `name  value`.

use std::io::{stderr, stdout};
use std::iter::repeat_n;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use requeue::printable;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The narrowest terminal. A narrower one breaks the lines itself.
const LEAST_COLUMNS: usize = 40;
/// A narrower column of texts would be a column of words.
const LEAST_TEXT: usize = 16;
/// The narrowest column of texts whose words may be broken.
const LEAST_BREAKABLE: usize = 24;
/// A narrower text does not hang below its beginning.
const LEAST_HANGING: usize = 36;
/// The blanks in front of the first column, and those between two columns.
const MARGIN: usize = 1;
const GAP: usize = 3;

/// The head of a column. The first column without a head names the rows.
#[derive(Clone, Copy)]
pub(crate) enum Head {
    Text(&'static str),
    /// A text of other programs. A word may be longer than the terminal is wide, so it may be broken.
    Breakable(&'static str),
    /// Aligned to the right, and never broken.
    Number(&'static str),
}

pub(crate) struct Rows {
    heads: Vec<Head>,
    lines: Vec<Vec<String>>,
    /// The columns to leave out if there is no room, the first one first.
    spare: &'static [usize],
}

impl Head {
    fn text(self) -> &'static str {
        match self {
            Self::Text(text) | Self::Breakable(text) | Self::Number(text) => text,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Number(_))
    }
}

impl Rows {
    pub(crate) fn under(heads: impl IntoIterator<Item = Head>) -> Self {
        Self { heads: heads.into_iter().collect(), lines: Vec::new(), spare: &[] }
    }

    /// Leaves these columns out where the table would have no room, the first one first.
    pub(crate) fn sparing(self, spare: &'static [usize]) -> Self {
        Self { spare, ..self }
    }

    pub(crate) fn add(&mut self, row: impl IntoIterator<Item = String>) {
        // A line feed in a value could imitate further rows.
        let cells = row.into_iter().map(|cell| printable::line(&cell).into_owned());
        self.lines.push(cells.collect());
    }

    pub(crate) fn text(&self) -> String {
        self.within(columns(stdout()))
    }

    pub(crate) fn note(&self) -> String {
        self.within(columns(stderr()))
    }

    /// `None` is no terminal: the table is as wide as its cells.
    fn within(&self, columns: Option<usize>) -> String {
        let columns = columns.unwrap_or(usize::MAX);
        let table = (0..=self.spare.len()).find_map(|count| {
            let rows = self.without(&self.spare[..count]);
            rows.widths(columns).map(|widths| rows.table(&widths))
        });
        table.unwrap_or_else(|| self.stacked(columns))
    }

    fn without(&self, spare: &[usize]) -> Self {
        fn kept<T: Clone>(all: &[T], spare: &[usize]) -> Vec<T> {
            let kept = all.iter().enumerate().filter(|(at, _)| !spare.contains(at));
            kept.map(|(_, one)| one.clone()).collect()
        }
        let lines = self.lines.iter().map(|row| kept(row, spare)).collect();
        Self { heads: kept(&self.heads, spare), lines, spare: &[] }
    }

    fn widths(&self, columns: usize) -> Option<Vec<usize>> {
        let each = || 0..self.heads.len();
        let whole: Vec<usize> = each().map(|at| self.whole(at)).collect();
        let mut widths: Vec<usize> = each().map(|at| self.least(at)).collect();
        let between = MARGIN + GAP * self.heads.len().saturating_sub(1);
        let mut rest = columns.checked_sub(between + widths.iter().sum::<usize>())?;
        while rest > 0 {
            // Texts first, and among them the one that lacks most.
            let lack = |at: &usize| (!self.heads[*at].is_number(), whole[*at] - widths[*at]);
            let Some(at) = each().filter(|at| widths[*at] < whole[*at]).max_by_key(lack) else {
                break;
            };
            widths[at] += 1;
            rest -= 1;
        }
        Some(widths)
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    fn whole(&self, column: usize) -> usize {
        let cells = self.cells(column).chain([self.heads[column].text()]);
        cells.map(UnicodeWidthStr::width).max().unwrap_or_default()
    }

    /// The width that breaks no number with its unit, and no word that must stay whole.
    fn least(&self, column: usize) -> usize {
        let longest =
            |text: &str| text.split(' ').map(UnicodeWidthStr::width).max().unwrap_or_default();
        let words = |text: &str| longest(text) + self.indent(column, text);
        let head = longest(self.heads[column].text());
        let some = self.whole(column).min(LEAST_TEXT).max(head);
        let cells = self.cells(column);
        match self.heads[column] {
            Head::Number(_) => cells.map(UnicodeWidthStr::width).fold(head, usize::max),
            Head::Text(_) => cells.map(words).fold(some, usize::max),
            Head::Breakable(_) => cells.map(words).fold(some, usize::max).min(LEAST_BREAKABLE),
        }
    }

    /// The blanks in front of the further lines of a cell. The names of rows hang.
    fn indent(&self, column: usize, cell: &str) -> usize {
        let names = self.heads[column].text().is_empty();
        if names { cell.len() - cell.trim_start().len() + 2 } else { 0 }
    }

    fn table(&self, widths: &[usize]) -> String {
        let heads: Vec<&str> = self.heads.iter().map(|head| head.text()).collect();
        let line = "─".repeat(MARGIN + widths.iter().sum::<usize>() + GAP * (widths.len() - 1));
        let rows = self.lines.iter().map(|row| {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.row(&cells, widths)
        });
        [self.row(&heads, widths), line].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }

    fn row(&self, cells: &[&str], widths: &[usize]) -> String {
        let cells: Vec<Vec<String>> = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, (cell, width))| {
                let words: Vec<String> = match self.heads[at] {
                    Head::Breakable(_) => {
                        cell.split(' ').flat_map(|word| pieces(word, *width)).collect()
                    }
                    Head::Text(_) | Head::Number(_) => cell.split(' ').map(str::to_owned).collect(),
                };
                let words = words.iter().map(String::as_str);
                let lines = broken("", self.indent(at, cell), words, "", *width);
                lines.lines().map(str::to_owned).collect()
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        let line = |number: usize| {
            let mut line = " ".repeat(MARGIN);
            for ((cell, width), head) in cells.iter().zip(widths).zip(&self.heads) {
                let text = cell.get(number).map_or("", String::as_str);
                let blanks = " ".repeat(width.saturating_sub(text.width()));
                let [left, right] = if head.is_number() { [&*blanks, ""] } else { ["", &blanks] };
                line.extend([left, text, right, &" ".repeat(GAP)]);
            }
            line.trim_end().to_owned()
        };
        (0..height.max(1)).map(line).collect::<Vec<_>>().join("\n")
    }

    fn stacked(&self, columns: usize) -> String {
        let names = usize::from(self.heads.first().is_some_and(|head| head.text().is_empty()));
        let heads = &self.heads[names..];
        let width = heads.iter().map(|head| head.text().width()).max().unwrap_or_default();
        let rows = self.lines.iter().map(|row| {
            let name = row[..names].iter().map(|name| format!("{name}\n"));
            let lines = heads.iter().zip(&row[names..]).filter(|(_, cell)| !cell.is_empty());
            let lines = lines.map(|(head, cell)| {
                let head = format!("{}{:width$}  ", &"  "[..2 * names], head.text());
                hanging(&head, cell, columns) + "\n"
            });
            name.chain(lines).collect::<String>()
        });
        // The caller's line feed makes the blank line below the table.
        let between = if names == 0 { "\n" } else { "" };
        rows.collect::<Vec<_>>().join(between)
    }
}

/// The columns of a terminal; `None` if the stream is none. Some terminals report a width of 0.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(width.0))
        .filter(|columns| *columns > 0)
        .map(|columns| columns.max(LEAST_COLUMNS))
}

/// A text whose long lines go on below, further to the right.
pub(crate) fn wrapped(text: &str, columns: Option<usize>) -> String {
    let lines = text.split('\n').map(|line| broken_line(line, columns.unwrap_or(usize::MAX)));
    lines.collect::<Vec<_>>().join("\n")
}

fn broken_line(line: &str, columns: usize) -> String {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    // A shell takes a line to paste only as a whole.
    let columns = if line.starts_with("export ") { usize::MAX } else { columns };
    broken(&line[..indent], indent + 2, words.split(' '), "", columns)
}

/// A text with a head in front. The other lines begin below the text, if there is room.
pub(crate) fn hanging(head: &str, text: &str, columns: usize) -> String {
    let is_narrow = columns.saturating_sub(head.width()) < LEAST_HANGING;
    let indent = if is_narrow { head.width().min(columns / 6) } else { head.width() };
    broken(head, indent, text.split(' '), "", columns)
}

/// Whether a shell can run the step; if not, it is in words.
pub(crate) fn is_command(step: &str) -> bool {
    ["aws ", "requeue ", "curl ", "install ", "rm "].iter().any(|it| step.starts_with(it))
}

/// A step in lines. A shell can read those of a command together.
pub(crate) fn hanging_step(step: &str, columns: usize) -> String {
    if !is_command(step) {
        return hanging("", step, columns);
    }
    // A blank between quotes is a part of an argument.
    let mut is_quoted = false;
    let words = step.split(|character| {
        is_quoted ^= character == '\'';
        character == ' ' && !is_quoted
    });
    broken("", 2, words, " \\", columns)
}

/// The word in pieces that are as wide as a line, so each of them but the last fills one.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for character in word.chars() {
        let width = character.width().unwrap_or_default();
        if used + width > columns {
            pieces.push(String::new());
            used = 0;
        }
        used += width;
        pieces.last_mut().expect("there is one").push(character);
    }
    pieces
}

/// Lines of at most `columns` columns, of which all but the first are indented, and all but the
/// last have this end. No word is broken, so a longer one exceeds the columns.
fn broken<'t>(
    head: &str,
    indent: usize,
    words: impl Iterator<Item = &'t str>,
    end: &str,
    columns: usize,
) -> String {
    let mut lines = String::from(head);
    let mut used = head.width();
    let mut words = words.peekable();
    let mut is_first = true;
    while let Some(word) = words.next() {
        let width = word.width();
        let end_width = if words.peek().is_some() { end.len() } else { 0 };
        let blank = usize::from(!is_first);
        if used > indent && used.saturating_add(blank + width + end_width) > columns {
            lines.truncate(lines.trim_end().len());
            lines.push_str(end);
            lines.push('\n');
            lines.extend(repeat_n(' ', indent));
            used = indent;
        } else if !is_first {
            lines.push(' ');
            used += 1;
        }
        is_first = false;
        lines.push_str(word);
        used += width;
    }
    lines
}

/// At most this many columns of a line, with `…` where its end is missing.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

pub(crate) fn thousands(count: impl TryInto<u64>) -> String {
    grouped(&count.try_into().unwrap_or(u64::MAX).to_string())
}

/// `1 message`, `2,000 messages`.
pub(crate) fn messages(count: impl TryInto<u64>) -> String {
    counted(count, "message")
}

/// `1 copy`, `2,000 copies`.
pub(crate) fn counted(count: impl TryInto<u64>, thing: &str) -> String {
    match (count.try_into().unwrap_or(u64::MAX), thing.strip_suffix('y')) {
        (1, _) => format!("1 {thing}"),
        (count, Some(stem)) => format!("{} {stem}ies", thousands(count)),
        (count, None) => format!("{} {thing}s", thousands(count)),
    }
}

/// `12,000.5`, with this many digits after the point.
pub(crate) fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let whole = text.find('.').unwrap_or(text.len());
    grouped(&text[..whole]) + &text[whole..]
}

fn grouped(digits: &str) -> String {
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

/// `2026-11-21T01:02:03Z`
pub(crate) fn moment(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|timestamp| format!("{timestamp:.0}"))
}

/// `14:03:22`, in UTC.
pub(crate) fn clock_time(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or_default().strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::Head::{Breakable, Number, Text};
    use super::*;

    const ID: &str = "0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112";

    fn rows() -> Rows {
        let mut rows = Rows::under([Number("messages"), Text("example"), Text("failure")]);
        rows.add([
            thousands(12_000_u64),
            ID.to_owned(),
            "no such account in the ledger".to_owned(),
        ]);
        rows.add([thousands(3_u64), ID.to_owned(), String::new()]);
        rows
    }

    /// The lines below each other, with their rule.
    #[track_caller]
    fn is_shown(text: &str, lines: &[&str]) {
        let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with('─')).collect();
        assert_eq!(shown, lines, "{text}");
        let widest = shown.iter().map(|line| line.width()).max().unwrap_or_default();
        let mut rules = text.lines().filter(|line| line.starts_with('─'));
        assert!(rules.all(|rule| rule.width() >= widest), "{text}");
    }

    #[test]
    fn a_table_breaks_texts_and_neither_words_nor_numbers() {
        let whole = [
            " messages   example                                failure",
            "   12,000   0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112   no such account in the ledger",
            "        3   0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112",
        ];
        is_shown(&rows().within(None), &whole);
        is_shown(&rows().within(Some(80)), &whole);
        let broken = [
            whole[0],
            "   12,000   0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112   no such account in",
            "                                                   the ledger",
            whole[2],
        ];
        is_shown(&rows().within(Some(79 - 9)), &broken);
        let stacked = [
            "messages  12,000",
            "example   0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112",
            "failure   no such account in the ledger",
            "",
            "messages  3",
            "example   0f8c2a4e-9b1d-4c3e-8f7a-5d6e7f809112",
        ];
        is_shown(&rows().within(Some(66)), &stacked);
        let sparing = rows().sparing(&[1]);
        is_shown(&sparing.within(Some(80)), &whole);
        let spared =
            [" messages   failure", "   12,000   no such account in the ledger", "        3"];
        is_shown(&sparing.within(Some(66)), &spared);
    }

    #[test]
    fn a_long_word_of_another_program_does_not_cost_the_table_its_columns() {
        let mut rows = Rows::under([Number("messages"), Text("class"), Breakable("failure")]);
        let long = "refused by https://payments.example/v1/charges/ch_3PqL0d2eZvKYlo2C today";
        rows.add(["12".into(), "temporary".into(), long.into()]);
        is_shown(
            &rows.within(Some(60)),
            &[
                " messages   class       failure",
                "       12   temporary   refused by",
                "                        https://payments.example/v1/charges/",
                "                        ch_3PqL0d2eZvKYlo2C today",
            ],
        );
        assert_eq!(rows.within(None).lines().count(), 3);
        assert_eq!(pieces("一二三", 5), ["一二", "三"]);
    }

    #[test]
    fn the_names_of_rows_hang_and_head_the_lines_of_a_narrow_terminal() {
        let mut rows = Rows::under([Text(""), Number("without a table"), Number("with a table")]);
        rows.add(["  called after a later message".into(), "1,200.0".into(), "0.5".into()]);
        is_shown(
            &rows.within(Some(48)),
            &[
                "                                 without    with",
                "                                 a table       a",
                "                                           table",
                "   called after a later          1,200.0     0.5",
                "     message",
            ],
        );
        is_shown(
            &rows.within(Some(30)),
            &[
                "  called after a later message",
                "  without a table  1,200.0",
                "  with a table     0.5",
            ],
        );
    }

    #[test]
    fn a_command_goes_on_as_a_shell_reads_it() {
        let text = "aws sqs set-queue-attributes --queue-url URL --attributes '{\"a b\":\"c d\"}'";
        is_shown(
            &hanging_step(text, 36),
            &[
                "aws sqs set-queue-attributes \\",
                "  --queue-url URL --attributes \\",
                "  '{\"a b\":\"c d\"}'",
            ],
        );
    }

    #[test]
    fn numbers_have_groups_of_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
        for (number, text) in [(0.04, "0.0"), (999.96, "1,000.0"), (12_345.67, "12,345.7")] {
            assert_eq!(decimal(number, 1), text);
        }
    }
}
