//! Asks AWS: each call has a permission, and its failure is a reason for an unknown fact. The line
//! of progress names the call that began last.

use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use requeue::aws::{SdkConfig, UNREADABLE};
use requeue::queue::CallError;
use requeue_aws::{Service, call_json};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::arn::Arn;
use super::super::calls::list;
use super::super::checks::REQUEUE;
use super::super::facts::{Known, Unread};
use crate::endpoints;
use crate::failed_call::{FailedCall, TOO_MANY_PAGES, call_error};
use crate::function::{LogEvent, encoded, get, log_events};
use crate::progress::{CommandProgress, NOTICEABLE};

pub(crate) struct Clients {
    pub(super) region: String,
    pub(crate) sdk: SdkConfig,
    pub(in super::super) sqs: aws_sdk_sqs::Client,
    progress: CommandProgress,
}

/// A page of a list, and the token of the next one.
type Page<T> = Result<(Vec<T>, Option<String>), requeue_aws::CallError>;

/// Longest list that the doctor reads. Most services have pages of 100.
const MOST_PAGES: u32 = 50;

/// An operation of AWS's JSON protocol: its service, permission and name, and the field of its
/// response that counts; empty for all fields.
pub(super) type Operation = (Service, &'static str, &'static str, &'static str);

const METRIC: Operation = (
    Service::CloudWatch,
    "cloudwatch:GetMetricStatistics",
    "GraniteServiceVersion20100801.GetMetricStatistics",
    "",
);

impl Clients {
    pub(crate) fn new(sdk: &SdkConfig, region: &str) -> Self {
        let region = region.to_owned();
        let sdk = sdk.to_builder().region(Region::new(region.clone())).build();
        let progress = CommandProgress::shown_after(NOTICEABLE, "waiting for AWS's configuration");
        let sqs = aws_sdk_sqs::Client::new(&sdk);
        Self { region, sdk, sqs, progress }
    }

    /// Without a line of progress.
    pub(crate) fn quiet(self) -> Self {
        Self { progress: CommandProgress::silent(""), ..self }
    }

    /// For calls in the region of this ARN.
    pub(super) fn at(&self, arn: &str) -> SdkConfig {
        let of_arn = Some(Arn::of(arn).region).filter(|region| !region.is_empty());
        let region = of_arn.unwrap_or(&self.region).to_owned();
        self.sdk.to_builder().region(Region::new(region)).build()
    }

    /// The fact in the response to a call that needs this permission.
    pub(crate) async fn ask<T, E>(
        &self,
        permission: &'static str,
        resource: &str,
        call: impl Future<Output = Result<T, SdkError<E>>>,
    ) -> Known<T>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.progress.step(format!("waiting for {permission}"));
        // A join of many calls would otherwise be a very large future.
        Box::pin(call).await.map_err(|error| Unread::of(permission, resource, call_error(&error)))
    }

    /// The items of the first pages, and whether these are all. `page` gets the token of a page,
    /// and returns its items and the next token.
    async fn pages<T>(
        &self,
        permission: &'static str,
        resource: &str,
        most: u32,
        mut page: impl AsyncFnMut(Option<String>) -> Page<T>,
    ) -> Known<(Vec<T>, bool)> {
        let (mut all, mut token) = (Vec::new(), None);
        for _ in 0..most {
            let (items, next) = self.ask(permission, resource, page(token)).await?;
            all.extend(items);
            token = next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok((all, true));
            }
        }
        Ok((all, false))
    }

    /// A whole list of [`MOST_PAGES`] pages.
    pub(super) async fn list<T>(
        &self,
        permission: &'static str,
        resource: &str,
        page: impl AsyncFnMut(Option<String>) -> Page<T>,
    ) -> Known<Vec<T>> {
        let (list, is_all) = self.pages(permission, resource, MOST_PAGES, page).await?;
        let too_long = || CallError::ambiguous(TOO_MANY_PAGES);
        is_all.then_some(list).ok_or_else(|| Unread::of(permission, resource, too_long()))
    }

    /// Lambda's response about a resource, which replaces `{}` in the path.
    pub(super) async fn get(
        &self,
        permission: &'static str,
        resource: &str,
        path: &str,
    ) -> Known<Value> {
        let path = path.replace("{}", &encoded(resource).to_string());
        self.ask(permission, resource, get(&self.sdk, &path)).await
    }

    /// The field of the response to an operation in the region of `sdk`.
    pub(super) async fn ask_json(
        &self,
        sdk: &SdkConfig,
        (service, permission, name, field): Operation,
        resource: &str,
        parameters: Value,
    ) -> Known<Value> {
        let call = call_json::<Value>(sdk, service, name, &parameters);
        let mut response = self.ask(permission, resource, call).await?;
        if field.is_empty() {
            return Ok(response);
        }
        response
            .get_mut(field)
            .map(Value::take)
            .ok_or_else(|| Unread::of(permission, resource, CallError::ambiguous(UNREADABLE)))
    }

    /// The lines of a log since this time, in milliseconds of the epoch, that match the pattern,
    /// and whether these are all. A page has at most 1 MB.
    pub(crate) async fn log_lines(
        &self,
        group: &str,
        since: u64,
        pattern: Option<&str>,
        most_pages: u32,
    ) -> Known<(Vec<LogEvent>, bool)> {
        let page = async |token: Option<String>| {
            let page = log_events(&self.sdk, group, since, pattern, token.as_deref()).await?;
            Ok((page.events, page.next_token))
        };
        self.pages("logs:FilterLogEvents", group, most_pages, page).await
    }

    /// The sum of a metric of Requeue's from `start` on, in seconds of the epoch, for `span`
    /// seconds.
    pub(crate) async fn metric_sum(
        &self,
        metric: &str,
        dimensions: [(&str, &str); 2],
        (start, span): (i64, u32),
    ) -> Known<Option<f64>> {
        let of = (REQUEUE, metric, "Sum");
        let points = self.statistic(of, &dimensions, (start, span), span).await?;
        Ok(points.into_iter().map(|(_, sum)| sum).reduce(|sum, more| sum + more))
    }

    /// The values of a metric with their times, in seconds of the epoch: one for each period, the
    /// latest last. `of` is its namespace, its name, and the statistic.
    pub(crate) async fn statistic(
        &self,
        (namespace, metric, statistic): (&str, &str, &str),
        dimensions: &[(&str, &str)],
        (start, span): (i64, u32),
        period: u32,
    ) -> Known<Vec<(f64, f64)>> {
        let dimensions =
            dimensions.iter().map(|(name, value)| json!({ "Name": name, "Value": value }));
        let parameters = json!({
            "Namespace": namespace,
            "MetricName": metric,
            "Dimensions": dimensions.collect::<Vec<_>>(),
            "StartTime": start,
            "EndTime": start + i64::from(span),
            "Period": period,
            "Statistics": [statistic],
        });
        let output = self.ask_json(&self.sdk, METRIC, "*", parameters).await?;
        let point = |point: &Value| {
            Some((point["Timestamp"].as_f64().unwrap_or_default(), point[statistic].as_f64()?))
        };
        let mut points: Vec<_> = list(&output["Datapoints"]).iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(points)
    }

    /// Begins a wait for something else than a response.
    pub(in super::super) fn begin_wait(&self, step: &str, began: Instant, deadline: Instant) {
        let longest = deadline.saturating_duration_since(began).as_secs();
        self.progress.step(step);
        self.progress.count("s", Some(longest));
    }

    pub(in super::super) fn tell_wait(&self, began: Instant) {
        self.progress.done(began.elapsed().as_secs());
    }

    pub(crate) fn told(&self, Unread { permission, resource, error }: &Unread) -> String {
        let (prefix, operation) = permission.split_once(':').unwrap_or_default();
        let service = endpoints::service(prefix);
        let endpoint = &endpoints::shown_endpoint(service, &self.sdk);
        FailedCall { service, operation, resource, endpoint, error }.to_string()
    }
}
