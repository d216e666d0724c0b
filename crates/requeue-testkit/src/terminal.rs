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
    let mut column = 0;
    let mut characters = output.chars();
    while let Some(character) = characters.next() {
        let line = lines.last_mut().expect("there is always a line");
        match character {
            '\n' => {
                lines.push(Vec::new());
                column = 0;
            }
            '\r' => column = 0,
            '\u{1b}' => {
                let sequence: String =
                    characters.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
                // Of the sequences that Requeue writes, only `[2K` and colours have a 2.
                if sequence == "[2" {
                    line.clear();
                }
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
