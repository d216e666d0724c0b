//! The settings in the order of their page, with their defaults, and the values that may be shown.

use std::collections::BTreeMap;

use requeue_lambda::{TargetRules, TargetUrl};
use serde_json::{Map, Value};

use super::{Effective, PREFIX};

/// The parts of a value that may be shown.
#[derive(Clone, Copy)]
enum Shown {
    Whole,
    Hidden,
    /// The names of a JSON object.
    Names,
    /// A URL without its path.
    Address,
    /// The policy has a table of its own.
    Elsewhere,
}

use Shown::{Address, Elsewhere, Hidden, Names, Whole};

/// Without the prefix, with the default in the words of `docs/reference/settings.md`.
const SETTINGS: [(&str, &str, Shown); 35] = [
    ("TARGET_URL", "none", Address),
    ("METHOD", "POST", Whole),
    ("CONTENT_TYPE", "by the first character of the body", Whole),
    ("HEADERS", "none", Names),
    ("ATTRIBUTE_HEADERS", "none", Whole),
    ("SIGNING_SECRET", "none", Hidden),
    ("SCOPE", "all messages", Whole),
    ("HTTP_VERSION", "auto", Whole),
    ("CONNECT_TIMEOUT_SECONDS", "5", Whole),
    ("READ_TIMEOUT_SECONDS", "the rest of REQUEUE_TIMEOUT_SECONDS", Whole),
    ("IDLE_TIMEOUT_SECONDS", "4", Whole),
    ("CLIENT_CERTIFICATE", "none", Hidden),
    ("CLIENT_KEY", "none", Hidden),
    ("ALLOW_HTTP", "false", Whole),
    ("ALLOW_LINK_LOCAL", "false", Whole),
    ("TARGET_FUNCTION", "none", Whole),
    ("MESSAGES_PER_CALL", "10", Whole),
    ("POLICY", "the preset standard", Elsewhere),
    ("CONCURRENCY", "10", Whole),
    ("TIMEOUT_SECONDS", "30", Whole),
    ("RESERVE_SECONDS", "5", Whole),
    ("STRATEGY", "copy", Whole),
    ("WRAP", "when-needed", Whole),
    ("MODE", "requeue", Whole),
    ("TABLE", "none", Whole),
    ("NAMESPACE", "the function's name; empty elsewhere", Whole),
    ("MAX_ENVIRONMENTS", "1,000", Whole),
    ("RECURSIVE_LOOP", "Terminate", Whole),
    ("DEAD_LETTER", "redrive in a Lambda function, annotate in a worker", Whole),
    ("DEAD_LETTER_QUEUE_URL", "none", Whole),
    ("TRUSTED_SENDERS", "none", Whole),
    ("DETAIL_TEXT", "off", Whole),
    ("PRODUCER_LIMITS", "on", Whole),
    ("METRICS", "emf in a Lambda function, off elsewhere", Whole),
    ("SERVICE", "the function's name; requeue elsewhere", Whole),
];

pub(super) fn effective(
    variables: &BTreeMap<String, String>,
    function: Option<&str>,
) -> Vec<Effective> {
    let setting = |(name, default, shown): (&str, &str, Shown)| {
        let name = format!("{PREFIX}{name}");
        let (value, origin) = match variables.get(&name) {
            Some(value) => (shown.part_of(value), "environment variable"),
            None => (default_of(function, &name, default), "default"),
        };
        Effective { name, value: value.into(), origin: origin.to_owned() }
    };
    SETTINGS.into_iter().map(setting).collect()
}

/// The default in a worker, or in the function of this name.
fn default_of(function: Option<&str>, name: &str, default: &str) -> String {
    let value = match (function, name) {
        (Some(function), "REQUEUE_NAMESPACE" | "REQUEUE_SERVICE") => function,
        (Some(_), "REQUEUE_METRICS") => "emf",
        (Some(_), "REQUEUE_DEAD_LETTER") => "redrive",
        (None, "REQUEUE_DEAD_LETTER") => "annotate",
        (None, "REQUEUE_NAMESPACE") => "empty",
        (None, "REQUEUE_SERVICE") => "requeue",
        (None, "REQUEUE_METRICS") => "off",
        _ => default,
    };
    value.replace(',', "")
}

impl Shown {
    fn part_of(self, value: &str) -> String {
        match self {
            Self::Whole => value.trim().to_owned(),
            Self::Hidden => "set, not shown".to_owned(),
            Self::Names => {
                let headers: Map<String, Value> = serde_json::from_str(value).unwrap_or_default();
                let names: Vec<&str> = headers.keys().map(String::as_str).collect();
                format!("{}, values not shown", names.join(", "))
            }
            Self::Address => {
                let rules = TargetRules::default().allow_http().allow_link_local();
                let url = TargetUrl::parse_with(value.trim(), rules);
                url.map_or_else(|_| "set, not shown".to_owned(), |url| url.to_string())
            }
            Self::Elsewhere => "see below".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the page's tables.
    fn page() -> Vec<(String, String)> {
        let page =
            std::fs::read_to_string(requeue_testkit::repository("docs/reference/settings.md"))
                .expect("the page");
        let rows = page.lines().filter(|line| line.starts_with("| `REQUEUE_"));
        rows.map(|row| {
            let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
            let plain = |text: &str| text.replace('`', "");
            (plain(cells[0]), plain(cells[cells.len() - 1]))
        })
        .collect()
    }

    #[test]
    fn the_settings_and_defaults_are_those_of_their_page() {
        let page = page();
        assert_eq!(page.len(), SETTINGS.len());
        for ((name, default), (own, value, _)) in page.iter().zip(SETTINGS) {
            assert_eq!(*name, format!("{PREFIX}{own}"));
            assert!(default.starts_with(value), "{name}: {default}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let variables = [
            ("REQUEUE_HEADERS", r#"{"Authorization": "Bearer s3cret"}"#),
            ("REQUEUE_SIGNING_SECRET", "whsec_s3cret"),
            ("REQUEUE_CLIENT_KEY", "s3cret"),
            ("REQUEUE_CLIENT_CERTIFICATE", "s3cret"),
            ("REQUEUE_TARGET_URL", "https://user:s3cret@example.com/hooks/s3cret?token=s3cret"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for setting in effective(&variables, None) {
            assert!(
                !setting.value.to_string().contains("s3cret"),
                "{}: {}",
                setting.name,
                setting.value
            );
        }
    }
}
