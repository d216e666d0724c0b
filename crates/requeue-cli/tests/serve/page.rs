//! The options in the page on laptops are those of the command.

use requeue_testkit::repository;

use crate::served::run;

#[test]
fn the_pages_options_have_the_commands_defaults() {
    let page = std::fs::read_to_string(repository("docs/start/local.md")).unwrap();
    let help = String::from_utf8(run(&["serve", "--help"], &[]).stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, section) = page.split_once("\n## Set up the queue and the mapping\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| `--")).collect();
    assert_eq!(rows.len(), 7);
    for row in rows {
        let mut cells = row.split(" | ");
        let option = cells.next().unwrap().trim_end_matches('`');
        let default = cells.next().unwrap().replace('`', "");
        let (_, after) = help.split_once(&format!(" --{option} <")).unwrap();
        let (_, said) = after.split_once("[default: ").unwrap();
        assert!(said.starts_with(&format!("{default}]")), "{option} is {default}: {said}");
    }
}
