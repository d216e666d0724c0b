//! The pages stay short: words, and one page for each fact. Pages and code have no banned words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use requeue_testkit::{ROOT_PAGES, repository};

use crate::documents::{code_below, text};

/// How a page is made.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// All of it is written by hand.
    ByHand,
    /// A test compares its tables with the code.
    Reference,
    /// A test plays its policy, or writes the page.
    Played,
}

use Made::{ByHand, Played, Reference};

/// The words that each page may have, and a tenth more: a sentence that comes to a page at its limit
/// takes the place of another one.
const TARGETS: &[(&str, usize, Made)] = &[
    ("README.md", 400, ByHand),
    ("concepts/classification.md", 1_150, ByHand),
    ("concepts/dead-letters.md", 990, ByHand),
    ("concepts/how-it-works.md", 1_220, ByHand),
    ("concepts/idempotency.md", 1_150, ByHand),
    ("concepts/protection.md", 1_370, ByHand),
    ("concepts/rate-limits.md", 2_405, ByHand),
    ("concepts/retry-policy.md", 1_200, ByHand),
    ("concepts/strategies.md", 470, ByHand),
    ("operate/cost.md", 930, ByHand),
    ("operate/dead-letter-tools.md", 2_130, ByHand),
    ("operate/deploy.md", 2_480, ByHand),
    ("operate/doctor.md", 755, ByHand),
    ("operate/first-hour.md", 1_400, ByHand),
    ("operate/monitoring.md", 1_050, ByHand),
    ("operate/runbook.md", 4_360, ByHand),
    ("operate/upgrade.md", 1_300, ByHand),
    ("project/comparison.md", 970, ByHand),
    ("project/decisions.md", 950, ByHand),
    ("project/guarantees.md", 1_205, ByHand),
    ("project/migration.md", 2_170, ByHand),
    ("project/performance.md", 730, Played),
    ("project/published-numbers.md", 380, ByHand),
    ("project/security-model.md", 2_010, ByHand),
    ("project/versioning.md", 615, ByHand),
    ("recipes/README.md", 230, Played),
    ("recipes/anthropic.md", 270, Played),
    ("recipes/github.md", 250, Played),
    ("recipes/google.md", 230, Played),
    ("recipes/hubspot.md", 240, Played),
    ("recipes/maintenance-window.md", 230, Played),
    ("recipes/nightly-quota.md", 260, Played),
    ("recipes/openai.md", 270, Played),
    ("recipes/poison-messages.md", 260, Played),
    ("recipes/salesforce.md", 260, Played),
    ("recipes/shopify.md", 250, Played),
    ("recipes/slack.md", 230, Played),
    ("recipes/sns.md", 230, Played),
    ("recipes/stripe.md", 270, Played),
    ("recipes/success-that-failed.md", 270, Played),
    ("recipes/tenants.md", 290, Played),
    ("recipes/twilio.md", 270, Played),
    ("reference/classes.md", 1_340, Reference),
    ("reference/cli.md", 510, Reference),
    ("reference/http.md", 1_060, ByHand),
    ("reference/limits.md", 450, Reference),
    ("reference/metrics.md", 1_500, Reference),
    ("reference/parameters.md", 800, Reference),
    ("reference/policy.md", 1_810, Reference),
    ("reference/secrets.md", 700, ByHand),
    ("reference/settings.md", 960, Reference),
    ("reference/wire-format.md", 790, Reference),
    ("start/existing-function.md", 1_165, ByHand),
    ("start/http-target.md", 980, ByHand),
    ("start/languages.md", 1_250, ByHand),
    ("start/local.md", 1_080, ByHand),
    ("start/rust-handler.md", 960, ByHand),
    ("start/testing.md", 1_030, ByHand),
    ("start/worker.md", 1_000, ByHand),
];

const MOST_BY_HAND: usize = 46_000;
/// The pages of `reference/` that tests compare with the code.
const MOST_OF_REFERENCE: usize = 8_000;
/// The recipes and the page of the performance.
const MOST_PLAYED: usize = 5_250;

/// All Markdown below `docs/` but the table of contents and the page of a wrong address.
fn pages() -> BTreeMap<String, String> {
    fn below(directory: &Path, pages: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, pages);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(repository("docs")).unwrap();
                pages.insert(name.to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut pages = BTreeMap::new();
    below(&repository("docs"), &mut pages);
    pages.retain(|name, _| !["SUMMARY.md", "404.md"].contains(&name.as_str()));
    pages
}

fn all_pages() -> BTreeMap<String, String> {
    let mut pages = pages();
    pages.extend(ROOT_PAGES.map(|name| (name.to_owned(), text(name))));
    pages
}

/// The words of a text. The borders of a table are none.
fn words(text: &str) -> usize {
    let is_border =
        |word: &&str| word.starts_with('|') && word.chars().all(|c| matches!(c, '|' | '-' | ':'));
    text.split_whitespace().filter(|word| !is_border(word)).count()
}

#[test]
fn the_borders_of_a_table_are_no_words() {
    assert_eq!(words("- a list\n\n| key | meaning |\n|---|:--|\n| `a|b` | |\n| c \\| d | - |"), 10);
}

#[test]
fn each_page_keeps_to_its_words() {
    let pages = pages();
    let mut over = Vec::new();
    for (name, page) in &pages {
        let (_, target, _) = TARGETS
            .iter()
            .find(|(named, ..)| named == name)
            .unwrap_or_else(|| panic!("give docs/{name} a target of words"));
        let (words, most) = (words(page), target + target / 10);
        if words > most {
            over.push(format!("docs/{name} has {words} words, {most} at most"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    assert_eq!(pages.len(), TARGETS.len(), "a page of the table does not exist");

    for (made, most, by) in [
        (ByHand, MOST_BY_HAND, "by hand"),
        (Reference, MOST_OF_REFERENCE, "of the reference"),
        (Played, MOST_PLAYED, "of recipes and performance"),
    ] {
        let is_one = |name: &str| TARGETS.iter().any(|one| one.0 == name && one.2 == made);
        let own = pages.iter().filter(|(name, _)| is_one(name)).map(|page| words(page.1));
        let own: usize = own.sum();
        assert!(own <= most, "{own} words {by}");
    }
}

#[test]
fn the_front_page_is_short() {
    let page = text("README.md");
    assert!(page.lines().count() <= 120, "{} lines", page.lines().count());
    assert!(words(&page) <= 900, "{} words", words(&page));
}

#[test]
fn the_map_of_the_code_is_short() {
    let page = text("ARCHITECTURE.md");
    assert!(words(&page) <= 1_200, "{} words", words(&page));
}

/// Words with their forms; `*` stands for the rest of a word.
const BANNED: &[&str] = &[
    "answer*",
    "patien*",
    "behind",
    "told",
    "lease",
    "leases",
    "leased",
    "callee*",
    "crew*",
    "brake*",
    "hold back",
    "holds back",
    "held back",
    "holding back",
    "put off",
    "puts off",
    "give up",
    "gives up",
    "given up",
    "gave up",
    "by chance",
    "in its place",
    "goes the way of",
    "which of them",
    "in line",
    "newcomer*",
    "stands free",
    "fate",
];

/// The beginnings that a sentence, or a clause after a colon, does not have.
const BEGINNINGS: &[&str] = &["what", "who"];

/// The sentences and clauses of a page: no code, no targets of links.
fn clauses(page: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            prose.push('.');
        } else if !is_code {
            // A row, a heading and an item of a list are sentences of their own.
            let is_own = ["|", "#", "- ", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
                .iter()
                .any(|start| line.trim_start().starts_with(start));
            prose.push_str(if is_own || line.is_empty() { "." } else { " " });
            prose.push_str(line);
        }
    }
    let prose: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut plain = String::new();
    let mut rest = prose.as_str();
    while let Some((before, link)) = rest.split_once("](") {
        plain.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let clause = |text: &str| {
        let letters = |c: char| if c.is_alphabetic() || c == '\'' { c } else { ' ' };
        let words: String = text.chars().map(letters).collect();
        words.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    plain.split(['.', ':', ';', '?', '!', '|']).map(clause).filter(|one| !one.is_empty()).collect()
}

fn is_banned(clause: &str, banned: &str) -> bool {
    let clause = format!(" {clause} ");
    match banned.strip_suffix('*') {
        Some(start) => clause.contains(&format!(" {start}")),
        None => clause.contains(&format!(" {banned} ")),
    }
}

#[test]
fn a_clause_is_searched_for_words_and_not_for_parts_of_them() {
    for (clause, banned, found) in [
        ("the messages wait behind it", "behind", true),
        ("the answers", "answer*", true),
        ("requeue was told", "told", true),
        ("a release", "lease", false),
        ("unanswered", "answer*", false),
    ] {
        assert_eq!(is_banned(clause, banned), found, "{clause}");
    }
    let page = "One `what` is\nwho.\n```\nanswer\n```\nFor it: [what](answer.md) is\n| who | c |";
    assert_eq!(clauses(page), ["one is who", "for it", "what is", "who", "c"]);
}

/// The directories that may have a README and production code.
fn rooms() -> impl Iterator<Item = PathBuf> {
    let below = |directory: &str| fs::read_dir(repository(directory)).unwrap();
    let rooms = ["crates", "examples", "infra"].into_iter().flat_map(below);
    let rooms = rooms.map(|entry| entry.unwrap().path());
    // The package `requeue-testkit` is for tests alone.
    let rooms = rooms.filter(|room| !room.ends_with("requeue-testkit"));
    rooms.chain([repository(""), repository("examples")])
}

/// The blocks of comments in Rust code, and its literals, without the placeholders of formats. A
/// literal without a blank is a name and no prose.
fn prose(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, after) = rest.split_at(at);
        rest = if let Some(comment) = after.strip_prefix("//") {
            let (line, next) = comment.split_once('\n').unwrap_or((comment, ""));
            let line = line.trim_start_matches(['/', '!']);
            match found.last_mut().filter(|_| before.trim_matches(' ').is_empty()) {
                Some(block) => block.extend(["\n", line]),
                None => found.push(line.to_owned()),
            }
            next
        } else if let Some(literal) = after.strip_prefix('"') {
            let bare = before.trim_end_matches('#');
            let mut is_escaped = false;
            let end = if bare.ends_with('r') {
                literal.find(&format!("\"{}", &before[bare.len()..]))
            } else {
                literal.find(|c: char| {
                    let is_end = c == '"' && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    is_end
                })
            };
            let (literal, next) = literal.split_at(end.expect("a literal ends"));
            if literal.contains(' ') {
                let parts = literal.split('{').filter_map(|part| part.rsplit('}').next());
                found.push(parts.collect());
            }
            &next[1..]
        } else if let Some(escape) = after.strip_prefix("'\\") {
            escape[1..].split_once('\'').map_or("", |(_, next)| next)
        } else {
            let quoted = ["'\"'", "'/'"].iter().find_map(|quoted| after.strip_prefix(quoted));
            quoted.unwrap_or(&after[1..])
        };
    }
    found
}

#[test]
fn the_prose_of_code_is_its_comments_and_sentences() {
    let code = r##"//! One,
//! two
let answer = ('"', '\'', '\\', "it {told}\" is", "told", r#"an "http://host" it"#); // three

/// four
"##;
    let expected = [" One,\n two", "it \\\" is", "an \"http://host\" it", " three", " four"];
    assert_eq!(prose(code), expected);
}

#[test]
fn no_page_and_no_code_has_a_banned_word() {
    let mut texts: Vec<(String, String)> = all_pages().into_iter().collect();
    for room in rooms() {
        let (page, code) = (room.join("README.md"), room.join("src"));
        texts.extend(fs::read_to_string(&page).map(|text| (page.display().to_string(), text)));
        if code.is_dir() {
            let prose = prose(&code_below(&code)).into_iter();
            texts.extend(prose.map(|text| (code.display().to_string(), text)));
        }
    }
    assert!(texts.len() > 5_000, "the comments and literals are there");
    let mut found = Vec::new();
    for (name, text) in texts {
        for clause in clauses(&text) {
            let banned = BANNED.iter().find(|banned| is_banned(&clause, banned)).copied();
            let begins =
                BEGINNINGS.iter().find(|word| clause.split(' ').next() == Some(word)).copied();
            found.extend(banned.or(begins).map(|word| format!("{name}: {word}: {clause}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Facts, each by its numbers or phrases, and the only page that has one of them. Other pages link to
/// this page.
const FACTS: &[(&[&str], &str)] = &[
    // Twenty-one that stood on four to ten pages each.
    (
        &[
            "SQS requests for a single retry",
            "$ for a million single retries",
            "four SQS requests",
            "four requests",
            "4 SQS requests",
            "2 SQS requests",
        ],
        "concepts/how-it-works.md",
    ),
    (&["about 16 copies", "after about 16", "Mexico (Central)"], "operate/deploy.md"),
    (
        &["copies in a row that Requeue sends", "ten copies", "10 copies", "copied ten times"],
        "reference/limits.md",
    ),
    (
        &["`maxReceiveCount` of 5 or more", "`maxReceiveCount` above `maxRetries`"],
        "operate/deploy.md",
    ),
    (&["120 s after the function sent it", "before its delay of 10 s"], "reference/wire-format.md"),
    (
        &[
            "An outage dead-letters a message only in these cases",
            "## Remaining losses in an outage",
        ],
        "concepts/protection.md",
    ),
    (
        &["The message used up `maxRetries`", "The handler postponed the message more"],
        "concepts/dead-letters.md",
    ),
    (&["| preset | `maxRetries` | `baseDelayMultiplier` |"], "reference/policy.md"),
    (&["| preset | class | waits in seconds |"], "concepts/retry-policy.md"),
    (&["circuit breaker: opens after"], "reference/policy.md"),
    (&["41,940 s", "11 h 39 min"], "reference/limits.md"),
    (&["4,096 for each execution environment"], "reference/limits.md"),
    (
        &["kms:GenerateDataKey`", "kms:Encrypt", "kms:CreateGrant", "kms:ReEncrypt"],
        "project/security-model.md",
    ),
    (
        &["`sqs:DeleteMessage` | the queue", "ec2:CreateNetworkInterface", "logs:PutLogEvents"],
        "project/security-model.md",
    ),
    (
        &["kms:GetKeyPolicy", "dynamodb:DescribeTable`", "ssm:DescribeParameters"],
        "operate/doctor.md",
    ),
    (&["attest"], "operate/deploy.md"),
    (&["output() {"], "operate/runbook.md"),
    (&["$0.06 an hour"], "operate/cost.md"),
    (&["`--shutdown-timeout` (30 s)", "terminationGracePeriodSeconds"], "start/worker.md"),
    (&["SIGINT", "SIGQUIT", "SIGHUP"], "start/worker.md"),
    (&["deadline - reserve"], "concepts/how-it-works.md"),
    (&["Choose something else when"], "README.md"),
    // Numbers and names that were on several pages, or would soon be.
    (&["16,191"], "concepts/protection.md"),
    (&["120,000"], "reference/limits.md"),
    (&["9.4 MiB", "3.92 MB", "2.58 ms"], "project/performance.md"),
    (&["1,260 s", "5,400 s"], "reference/limits.md"),
    (&["1,208,700"], "reference/policy.md"),
    (&["HTTP_1_1_REQUIRED", "fd00:ec2::/32"], "reference/http.md"),
    (&["aws login"], "reference/cli.md"),
    (&["PR(:0)", "TableTimedOut"], "reference/metrics.md"),
    (&["AROA"], "reference/settings.md"),
    (&["x-toggl-quota-remaining"], "reference/classes.md"),
    (&["$ for a million retries", "Fifteen terms"], "concepts/how-it-works.md"),
    (&["| messages | 10 min |"], "concepts/protection.md"),
    (&["23 days"], "concepts/idempotency.md"),
    (&["67 characters"], "operate/deploy.md"),
    (&["19 November 2026"], "project/comparison.md"),
    (&["CARRIER_SQS_RECEIVERS"], "project/migration.md"),
    (&["MAX_AMBIGUOUS_TRIES"], "project/security-model.md"),
    (&["the oldest Rust"], "project/versioning.md"),
    (&["4.7 million"], "TESTING.md"),
];

/// The figures of [`FACTS`] that the front page repeats.
const HEADLINES: [&str; 2] = ["four SQS requests", "16,191"];

#[test]
fn each_fact_stands_on_one_page() {
    let pages = all_pages();
    let pages: BTreeMap<&str, String> = pages
        .iter()
        .map(|(name, page)| (name.as_str(), page.lines().collect::<Vec<_>>().join(" ")))
        .collect();
    for (phrases, home) in FACTS {
        assert!(phrases.iter().any(|phrase| pages[home].contains(phrase)), "{home}: {phrases:?}");
        for phrase in *phrases {
            let elsewhere: Vec<&str> = pages
                .iter()
                .filter(|(name, page)| *name != home && page.contains(phrase))
                .map(|(name, _)| *name)
                .filter(|name| *name != "README.md" || !HEADLINES.contains(phrase))
                .collect();
            assert!(elsewhere.is_empty(), "{phrase}: {elsewhere:?}");
        }
    }
    for headline in HEADLINES {
        assert!(pages["README.md"].contains(headline), "the front page lacks {headline}");
    }
}
