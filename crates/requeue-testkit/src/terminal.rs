//! Commands on a terminal, and the text that a person then sees there.

/// Runs its arguments in a terminal of its own, of so many columns.
const IN_TERMINAL: &str = "import os, pty, sys; \
                           sys.exit(os.waitstatus_to_exitcode(pty.spawn(['sh', '-c', 'stty rows 24 \
                           cols ' + sys.argv[1] + '; exec \"$@\"', '-'] + sys.argv[2:])))";

/// The words before a command that run it in a terminal of so many columns. Its standard input is
/// the keyboard; both outputs come together.
pub fn in_terminal(columns: &str) -> [&str; 4] {
    ["python3", "-c", IN_TERMINAL, columns]
}

/// The lines that are left on the screen, without colours. A line that is longer than the terminal
/// stays whole.
pub fn screen(output: &str) -> Vec<String> {
    let mut lines = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut rest = output;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\u{1b}[1A") {
            (row, rest) = (row - 1, after);
            continue;
        }
        rest = &rest[character.len_utf8()..];
        let line = &mut lines[row];
        match character {
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(Vec::new());
                }
                column = 0;
            }
            '\r' => column = 0,
            '\u{1b}' => {
                let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_default();
                // Of the sequences that Requeue writes, only `[2K` and colours have a 2.
                if &rest[..end] == "[2" {
                    line.clear();
                }
                rest = &rest[end + 1..];
            }
            character => {
                if line.len() <= column {
                    line.resize(column + 1, ' ');
                }
                line[column] = character;
                column += 1;
            }
        }
    }
    lines
        .into_iter()
        .map(|line| line.into_iter().collect::<String>().trim_end().to_owned())
        .collect()
}
