//! Findings about versions and aliases.

use super::*;

/// An alias, with a second version that differs in these properties.
fn canary(d: &mut Deployment, differences: Known<Vec<&'static str>>) {
    let second = Some(SecondVersion { version: "4".to_owned(), weight: 0.1, differences });
    d.function().qualifier = Some("live".to_owned());
    d.function().alias = Some(Ok(Alias { version: "3".to_owned(), second }));
}

fn qualified(d: &mut Deployment, qualifier: &str, alias: Option<Known<Alias>>) {
    d.function().qualifier = Some(qualifier.to_owned());
    d.function().alias = alias;
}

pub(super) const ROWS: &[Row] = &[
    ("function-version", |_| {}, None),
    ("function-version", |d| qualified(d, "3", None), Some(Fine)),
    (
        "function-version",
        |d| qualified(d, "live", Some(Ok(Alias { version: "3".to_owned(), second: None }))),
        Some(Fine),
    ),
    ("function-version", |d| qualified(d, "live", Some(refused())), Some(Unknown)),
    ("function-version", |d| canary(d, Ok(Vec::new())), Some(Fine)),
    ("function-version", |d| canary(d, Ok(vec!["Timeout"])), Some(Unknown)),
    ("function-version", |d| canary(d, refused()), Some(Unknown)),
];

#[test]
fn two_versions_of_an_alias_are_told_with_their_differences() {
    let mut deployment = good();
    canary(&mut deployment, Ok(vec!["Timeout", "Environment"]));
    let finding = found(&deployment, "function-version").unwrap();
    assert_eq!(
        finding.diagnosis.found,
        "not checked: version 4 differs in Timeout, Environment; the alias live invokes version 3, \
         and version 4 for 10 % of the batches"
    );
}

#[test]
fn a_changed_configuration_takes_effect_in_a_new_version() {
    let mut deployment = good();
    canary(&mut deployment, Ok(Vec::new()));
    deployment.function().logs.is_json = false;
    let remedies = found(&deployment, "logs").unwrap().diagnosis.remedies;
    assert!(
        remedies[0].ends_with(
            "; then aws lambda publish-version --region eu-west-1 --function-name orders, and \
             point live at the new version"
        ),
        "{remedies:?}"
    );
}
