//! What an event is that is none of SQS, by the names that only events of its service have. Nothing
//! else of such an event is read.

use serde::Deserialize;

use super::lenient::Expected;

/// The service of an event. One that names none may be of SQS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventOrigin(Option<&'static str>);

impl EventOrigin {
    pub(super) fn is_sqs(self) -> bool {
        self.0.is_none()
    }

    /// The other service, if it is known.
    pub(super) fn service(self) -> Option<&'static str> {
        self.0
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }
}

/// A member of an event that only one kind of events has.
#[derive(Deserialize)]
pub(super) enum EventMember {
    Records,
    /// Of events that have their records elsewhere.
    #[serde(rename = "eventSource")]
    EventSource,
    #[serde(rename = "detail-type")]
    EventBridge,
    #[serde(rename = "requestContext", alias = "httpMethod", alias = "routeKey")]
    Http,
    #[serde(rename = "awslogs")]
    Logs,
    #[serde(rename = "triggerSource", alias = "identityPoolId")]
    Cognito,
    #[serde(rename = "deliveryStreamArn")]
    Firehose,
    #[serde(rename = "invokingEvent")]
    Config,
    #[serde(rename = "CodePipeline.job")]
    CodePipeline,
    #[serde(rename = "ResourceProperties")]
    CloudFormation,
    #[serde(other)]
    Other,
}

impl EventMember {
    pub(super) fn origin(&self) -> EventOrigin {
        EventOrigin(match self {
            Self::Records | Self::EventSource | Self::Other => None,
            Self::EventBridge => Some("EventBridge"),
            Self::Http => Some("API Gateway, a load balancer or a function URL"),
            Self::Logs => Some("CloudWatch Logs"),
            Self::Cognito => Some("Cognito"),
            Self::Firehose => Some("Data Firehose"),
            Self::Config => Some("AWS Config"),
            Self::CodePipeline => Some("CodePipeline"),
            Self::CloudFormation => Some("CloudFormation"),
        })
    }
}

/// The member `eventSource` of an event or of a record; SNS writes `EventSource`.
#[derive(Default)]
pub(super) struct EventSource(pub(super) EventOrigin);

/// Source: Lambda developer guide, the events of each service.
const SOURCES: [(&str, &str); 12] = [
    ("aws:sns", "SNS"),
    ("aws:s3", "S3"),
    ("aws:kinesis", "Kinesis"),
    ("aws:dynamodb", "DynamoDB Streams"),
    ("aws:ses", "SES"),
    ("aws:codecommit", "CodeCommit"),
    ("aws:cognito-sync", "Cognito"),
    ("aws:kafka", "Amazon MSK"),
    ("SelfManagedKafka", "Apache Kafka"),
    ("aws:mq", "Amazon MQ (ActiveMQ)"),
    ("aws:rmq", "Amazon MQ (RabbitMQ)"),
    ("aws:docdb", "DocumentDB"),
];

impl Expected for EventSource {
    fn text(&mut self, text: &str) {
        if text == "aws:sqs" {
            return;
        }
        let known = SOURCES.iter().find(|(source, _)| *source == text);
        let other = text.starts_with("aws:").then_some("another service of AWS");
        self.0 = EventOrigin(known.map(|(_, service)| *service).or(other));
    }
}
