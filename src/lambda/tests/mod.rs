//! From the bytes of an event to the batch response.

use super::*;

mod fuzz;

#[test]
fn only_a_deadline_that_an_invocation_can_have_counts() {
    const NOW: u64 = 1_795_000_000_000;
    let secs = Duration::from_secs;
    for (deadline, left, what) in [
        (0, None, "an emulator that names none"),
        (600_000, None, "cargo lambda watch"),
        (NOW + 300_000, Some(secs(300)), "Lambda, aws-lambda-rie and sam local"),
        (NOW + 1, Some(Duration::from_millis(1)), "the last moment"),
        (NOW, Some(Duration::ZERO), "over"),
        (NOW - 1, Some(Duration::ZERO), "over"),
        (NOW - 120_000, Some(Duration::ZERO), "over: the process was stopped for two minutes"),
        (NOW - 5_400_000, Some(Duration::ZERO), "the longest that an invocation can have waited"),
        (NOW - 5_400_001, None, "no function runs for so long"),
        (NOW + 900_000, Some(secs(900)), "the longest function, but for Managed Instances"),
        (NOW + 900_001, Some(Duration::from_millis(900_001)), "Managed Instances"),
        (NOW + 3_600_000, Some(secs(3_600)), "aws-lambda-rie with a timeout of an hour"),
        (NOW + 5_399_999, Some(Duration::from_millis(5_399_999)), "the longest function"),
        (NOW + 5_400_000, Some(secs(5_400)), "the longest function"),
        (NOW + 5_400_001, Some(secs(5_400)), "a clock that is slow"),
        (NOW + 5_460_000, Some(secs(5_400)), "a clock that is slow"),
        (NOW + 5_460_001, None, "no clock is so slow"),
        (NOW + 7_200_000, None, "aws-lambda-rie with AWS_LAMBDA_FUNCTION_TIMEOUT=7200"),
        (NOW / 1_000, None, "seconds for milliseconds"),
        (NOW * 1_000_000, None, "nanoseconds for milliseconds"),
        (u64::MAX, None, "no time of any clock"),
    ] {
        assert_eq!(time_left(deadline, from_epoch_millis(NOW)), left, "{deadline}: {what}");
    }
}

#[test]
fn an_event_of_another_service_is_named_and_one_of_sqs_is_read() {
    let of_record = |source: &str| format!(r#"{{"Records":[{{"eventSource":"{source}"}}]}}"#);
    for (event, service) in [
        (of_record("aws:s3"), "S3"),
        (of_record("aws:kinesis"), "Kinesis"),
        (of_record("aws:dynamodb"), "DynamoDB Streams"),
        (of_record("aws:ses"), "SES"),
        (of_record("aws:codecommit"), "CodeCommit"),
        (of_record("aws:new"), "another service of AWS"),
        (r#"{"Records":[{"EventSource":"aws:sns","Sns":{}}]}"#.to_owned(), "SNS"),
        (r#"[{"eventSource":"aws:kinesis","data":""}]"#.to_owned(), "Kinesis"),
        (r#"{"eventSource":"aws:kafka","records":{"orders-0":[]}}"#.to_owned(), "Amazon MSK"),
        (r#"{"eventSource":"SelfManagedKafka","records":{}}"#.to_owned(), "Apache Kafka"),
        (r#"{"eventSource":"aws:mq","messages":[]}"#.to_owned(), "Amazon MQ (ActiveMQ)"),
        (r#"{"eventSource":"aws:rmq"}"#.to_owned(), "Amazon MQ (RabbitMQ)"),
        (
            r#"{"version":"0","detail-type":"Scheduled Event","detail":{}}"#.to_owned(),
            "EventBridge",
        ),
        (
            r#"{"httpMethod":"POST","body":"{}"}"#.to_owned(),
            "API Gateway, a load balancer or a function URL",
        ),
        (r#"{"triggerSource":"PreSignUp_SignUp"}"#.to_owned(), "Cognito"),
        (r#"{"awslogs":{"data":""}}"#.to_owned(), "CloudWatch Logs"),
        (r#"{"deliveryStreamArn":"arn","records":[]}"#.to_owned(), "Data Firehose"),
    ] {
        let read: SqsEvent = serde_json::from_str(&event).expect("JSON");
        let refused = read.into_records().expect_err("none of SQS");
        assert_eq!(refused, InvocationError::NoRecords { service: Some(service) }, "{event}");
        assert!(refused.to_string().starts_with(&format!("the event is one of {service}")));
    }
    for (event, records) in [
        (r#"{"Records":[]}"#, Some(0)),
        (r#"{"Records":[{"body":"{}"}]}"#, Some(1)),
        (r#"{"Records":[{"eventSource":"aws:sqs"},{"eventSource":"aws:sns"}]}"#, Some(2)),
        (r#"{"Records":[{"eventSource":"aws:sns"},7]}"#, Some(2)),
        (r#"{"Records":[{"eventSource":"mine","body":"{}"}],"detail-type":"x"}"#, Some(1)),
        (r#"[{"messageId":"1","body":"{}","eventSource":"aws:sqs"}]"#, Some(1)),
        (r#"[{"messageId":"1","body":"{}"},{"eventSource":"aws:sqs"}]"#, Some(2)),
        ("[]", None),
        ("[1]", None),
        ("{}", None),
        (r#"{"key1":"value1"}"#, None),
        ("null", None),
    ] {
        let read: SqsEvent = serde_json::from_str(event).expect("JSON");
        let read = read.into_records().map(|records| records.len());
        assert_eq!(read, records.ok_or(InvocationError::NoRecords { service: None }), "{event}");
    }
}
