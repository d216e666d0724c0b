//! `requeue doctor` where there is nothing to look at. What it finds in deployments, `tests/doctor_test.py` and the tests beside its checks
//! say.

use std::net::TcpListener;

use crate::run::requeue_with;

const KEYS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "any"),
    ("AWS_SECRET_ACCESS_KEY", "any"),
    ("AWS_REGION", "eu-west-1"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

#[test]
fn a_deployment_is_named_by_its_function_or_its_queue_and_not_by_both() {
    for arguments in [&["doctor"][..], &["doctor", "--function", "orders", "--queue-url", "https://host/1/orders"]] {
        let run = requeue_with(&KEYS, arguments);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{}", run.stderr);
        assert!(run.stderr.contains("--function <NAME>"), "{}", run.stderr);
    }
}

#[test]
fn what_keeps_it_from_looking_is_told_with_the_remedy() {
    // Nobody listens there any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{address}");
    let with_endpoint: Vec<_> = KEYS.into_iter().chain([("AWS_ENDPOINT_URL", endpoint.as_str())]).collect();
    let function = &["doctor", "--function", "orders"][..];
    let nowhere = &["doctor", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"][..];
    for (variables, arguments, expected) in [
        (&KEYS[3..], function, "in which region? Set AWS_REGION, or give --region"),
        (
            &KEYS[2..],
            function,
            "AWS does not answer in eu-west-1 (NoAnswer: no credentials found in chain): check the network, ",
        ),
        (&with_endpoint[..], function, "AWS does not answer in eu-west-1 (NoAnswer: Connection refused"),
        (&with_endpoint[..], nowhere, "SQS does not answer in eu-west-1 (NoAnswer): check the network, "),
        (
            &KEYS[2..],
            nowhere,
            "SQS does not answer in eu-west-1 (NoAnswer): check the network, AWS_ENDPOINT_URL, and that there are AWS credentials",
        ),
        (&KEYS[..], &["doctor", "--queue-url", "orders"], "--queue-url orders is not the URL of an SQS queue, as in "),
        (&KEYS[..], &["doctor", "--function", "f", "--policy", "none.json"], "the policy none.json cannot be read: "),
    ] {
        let run = requeue_with(variables, arguments);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
        assert!(run.stderr.starts_with(&format!("error: {expected}")), "{}", run.stderr);
    }
}
