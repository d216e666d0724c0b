//! Findings about the network of a function in a VPC.

use super::*;

/// A function in a VPC, with these copies of the last hour.
fn sent(d: &mut Deployment, are_confirmed: Option<bool>) {
    d.function().vpc = Some("vpc-1".to_owned());
    d.sends = Ok(are_confirmed);
}

pub(super) const ROWS: &[Row] = &[
    ("network", |_| {}, Some(Fine)),
    ("network", |d| d.function = None, None),
    ("network", |d| sent(d, Some(true)), Some(Fine)),
    ("network", |d| sent(d, None), Some(Warning)),
    ("network", |d| sent(d, Some(false)), Some(Danger)),
    (
        "network",
        |d| {
            sent(d, None);
            d.sends = refused();
        },
        Some(Unknown),
    ),
];

#[test]
fn a_function_without_a_way_to_sqs_gets_the_command_that_shows_and_the_one_that_makes_it() {
    let mut deployment = good();
    sent(&mut deployment, Some(false));
    let diagnosis = found(&deployment, "network").unwrap().diagnosis;
    assert_eq!(
        diagnosis.found,
        "SQS did not confirm each copy of the last hour, and the function is in vpc-1"
    );
    let [look, endpoint] = &diagnosis.remedies[..] else { panic!("{diagnosis:?}") };
    assert!(look.contains("--filter-pattern NoConnection"), "{look:?}");
    assert!(endpoint.contains("--vpc-id vpc-1 --vpc-endpoint-type Interface"), "{endpoint:?}");
}
