//! The recipes of `docs/recipes/`: `requeue check` takes each policy as it stands. What responses
//! meet there, `tests/batch/recipes.rs` plays.

use std::fs;

use requeue_testkit::repository;

use crate::documents::text;
use crate::run::requeue_reading;

/// The longest recipe.
const MAX_WORDS: usize = 300;

#[test]
fn each_recipe_is_short_and_has_a_policy_that_the_check_takes() {
    let index = text("docs/recipes/README.md");
    let mut recipes = 0;
    for entry in fs::read_dir(repository("docs/recipes")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = text(&format!("docs/recipes/{name}"));
        let words = page.split_whitespace().count();
        assert!(words <= MAX_WORDS, "{name} has {words} words");
        if name == "README.md" {
            continue;
        }
        recipes += 1;
        let title = page.lines().next().unwrap().trim_start_matches("# ");
        assert!(index.contains(&format!("[{title}]({name})")), "the index lacks {name}");
        let policy = page.split_once("\n```json\n").unwrap().1.split_once("\n```").unwrap().0;
        let said = requeue_reading(policy, &["check", "-"]).succeeded();
        assert!(said.starts_with("the policy (standard input) is valid:"), "{name}: {said}");
        assert!(!said.contains("warning"), "{name}: {said}");
        // A page may show the limits of its policy.
        for line in page.lines().filter_map(|line| line.strip_suffix("; …")) {
            assert!(said.contains(line), "{name}: {said}");
        }
    }
    assert!(recipes >= 16, "{recipes}");
}
