//! The operations of Lambda, IAM, KMS and CloudWatch Logs that the doctor calls, and the fields of
//! their responses that it reads. Names as in the services' API references.

use std::collections::HashMap;

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call, call_json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct FunctionConfiguration {
    pub(crate) function_name: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) timeout: Option<u64>,
    #[serde(rename = "KMSKeyArn")]
    pub(crate) kms_key_arn: Option<String>,
    pub(crate) environment: Option<Environment>,
    pub(crate) logging_config: Option<LoggingConfig>,
    pub(crate) state: Option<String>,
    pub(crate) state_reason: Option<String>,
    pub(crate) last_update_status: Option<String>,
    pub(crate) last_update_status_reason: Option<String>,
    pub(crate) vpc_config: Option<VpcConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct VpcConfig {
    pub(crate) vpc_id: Option<String>,
    pub(crate) subnet_ids: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Environment {
    pub(crate) variables: Option<HashMap<String, String>>,
    pub(crate) error: Option<Encrypted>,
}

/// The reason for a hidden value.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Encrypted {
    pub(crate) error_code: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct LoggingConfig {
    pub(crate) log_format: Option<String>,
    pub(crate) application_log_level: Option<String>,
    pub(crate) log_group: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct EventSourceMapping {
    #[serde(rename = "UUID")]
    pub(crate) uuid: Option<String>,
    pub(crate) event_source_arn: Option<String>,
    pub(crate) function_arn: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) batch_size: Option<u32>,
    pub(crate) maximum_batching_window_in_seconds: Option<u64>,
    pub(crate) function_response_types: Option<Vec<String>>,
    pub(crate) scaling_config: Option<ScalingConfig>,
    pub(crate) provisioned_poller_config: Option<ProvisionedPollerConfig>,
    pub(crate) filter_criteria: Option<FilterCriteria>,
    pub(crate) filter_criteria_error: Option<Encrypted>,
    #[serde(rename = "KMSKeyArn")]
    pub(crate) kms_key_arn: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ScalingConfig {
    pub(crate) maximum_concurrency: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ProvisionedPollerConfig {
    pub(crate) maximum_pollers: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct FilterCriteria {
    pub(crate) filters: Option<Vec<Filter>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Filter {
    pub(crate) pattern: Option<String>,
}

/// IAM's decision on one action.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct EvaluationResult {
    pub(crate) action: String,
    /// `allowed`, `explicitDeny` or `implicitDeny`.
    pub(crate) decision: String,
    pub(crate) is_missing_context: bool,
}

pub(crate) async fn function_configuration(
    sdk: &SdkConfig,
    function: &str,
) -> Result<FunctionConfiguration, CallError> {
    get(sdk, format!("/2015-03-31/functions/{}/configuration", encoded(function))).await
}

pub(crate) async fn recursive_loop(
    sdk: &SdkConfig,
    function: &str,
) -> Result<Option<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        recursive_loop: Option<String>,
    }
    let path = format!("/2024-08-31/functions/{}/recursion-config", encoded(function));
    get(sdk, path).await.map(|output: Output| output.recursive_loop)
}

pub(crate) async fn reserved_concurrency(
    sdk: &SdkConfig,
    function: &str,
) -> Result<Option<u32>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        reserved_concurrent_executions: Option<u32>,
    }
    let path = format!("/2019-09-30/functions/{}/concurrency", encoded(function));
    get(sdk, path).await.map(|output: Output| output.reserved_concurrent_executions)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct AccountLimit {
    pub(crate) unreserved_concurrent_executions: Option<u32>,
}

pub(crate) async fn account_limit(sdk: &SdkConfig) -> Result<AccountLimit, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        account_limit: AccountLimit,
    }
    let output = get(sdk, "/2016-08-19/account-settings".to_owned()).await;
    output.map(|output: Output| output.account_limit)
}

/// Whether there is a log group of this name. Names are sorted, so the first page has it.
pub(crate) async fn has_log_group(sdk: &SdkConfig, name: &str) -> Result<bool, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Output {
        log_groups: Vec<LogGroup>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LogGroup {
        log_group_name: Option<String>,
    }
    let parameters = json!({ "logGroupNamePrefix": name });
    let operation = "Logs_20140328.DescribeLogGroups";
    let output: Output = call_json(sdk, Service::Logs, operation, &parameters).await?;
    let mut names = output.log_groups.into_iter().filter_map(|group| group.log_group_name);
    Ok(names.any(|group| group == name))
}

/// All mappings with this `FunctionName` or `EventSourceArn`.
pub(crate) async fn event_source_mappings(
    sdk: &SdkConfig,
    parameter: &str,
    value: &str,
) -> Result<Vec<EventSourceMapping>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Page {
        next_marker: Option<String>,
        event_source_mappings: Option<Vec<EventSourceMapping>>,
    }
    let first = format!("/2015-03-31/event-source-mappings?{parameter}={}", encoded(value));
    let mut path = first.clone();
    let mut mappings = Vec::new();
    for _ in 0..MOST_PAGES {
        let page: Page = get(sdk, path).await?;
        mappings.extend(page.event_source_mappings.unwrap_or_default());
        match page.next_marker.filter(|marker| !marker.is_empty()) {
            Some(marker) => path = format!("{first}&Marker={}", encoded(&marker)),
            None => return Ok(mappings),
        }
    }
    Err(CallError::construction_failure("there are too many event source mappings"))
}

/// Longest list that the doctor reads, in pages of 100.
const MOST_PAGES: u32 = 50;

/// With its filters, even if a key encrypts them.
pub(crate) async fn event_source_mapping(
    sdk: &SdkConfig,
    uuid: &str,
) -> Result<EventSourceMapping, CallError> {
    get(sdk, format!("/2015-03-31/event-source-mappings/{}", encoded(uuid))).await
}

/// A key of KMS.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct KeyMetadata {
    pub(crate) arn: Option<String>,
    pub(crate) key_state: Option<String>,
    /// `AWS` or `CUSTOMER`.
    pub(crate) key_manager: Option<String>,
}

/// The key of this ARN or alias.
pub(crate) async fn describe_key(sdk: &SdkConfig, key: &str) -> Result<KeyMetadata, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        key_metadata: KeyMetadata,
    }
    let parameters = json!({ "KeyId": key });
    let output = call_json(sdk, Service::Kms, "TrentService.DescribeKey", &parameters).await;
    output.map(|output: Output| output.key_metadata)
}

/// The policy of the key of this ARN. A key has one policy, `default`.
pub(crate) async fn key_policy(sdk: &SdkConfig, key: &str) -> Result<String, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        policy: String,
    }
    let parameters = json!({ "KeyId": key, "PolicyName": "default" });
    let output = call_json(sdk, Service::Kms, "TrentService.GetKeyPolicy", &parameters).await;
    output.map(|output: Output| output.policy)
}

pub(crate) async fn simulate_principal_policy(
    sdk: &SdkConfig,
    role: &str,
    actions: &[&str],
    resource: &str,
) -> Result<Vec<EvaluationResult>, CallError> {
    let mut form = vec![
        "Action=SimulatePrincipalPolicy&Version=2010-05-08".to_owned(),
        format!("PolicySourceArn={}", encoded(role)),
        format!("ResourceArns.member.1={}", encoded(resource)),
    ];
    let actions = (1..).zip(actions);
    form.extend(actions.map(|(n, action)| format!("ActionNames.member.{n}={}", encoded(action))));
    let request = Request::builder()
        .method(Method::POST)
        .uri("/")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.join("&"))
        .map_err(CallError::construction_failure)?;
    call(sdk, Service::Iam, request, |body| Ok(evaluation_results(std::str::from_utf8(body)?)?))
        .await
}

fn evaluation_results(body: &str) -> Result<Vec<EvaluationResult>, roxmltree::Error> {
    let document = roxmltree::Document::parse(body)?;
    let results = document
        .descendants()
        .filter(|node| node.tag_name().name() == "EvaluationResults")
        .flat_map(|results| results.children().filter(roxmltree::Node::is_element));
    Ok(results
        .map(|result| {
            let child = |name| result.children().find(|child| child.tag_name().name() == name);
            let text = |name| child(name).and_then(|child| child.text()).unwrap_or_default();
            EvaluationResult {
                action: text("EvalActionName").to_owned(),
                decision: text("EvalDecision").to_owned(),
                is_missing_context: child("MissingContextValues")
                    .is_some_and(|values| values.children().any(|value| value.is_element())),
            }
        })
        .collect())
}

async fn get<T: DeserializeOwned + Send + Sync + 'static>(
    sdk: &SdkConfig,
    path: String,
) -> Result<T, CallError> {
    let request =
        Request::get(path).body(String::new()).map_err(CallError::construction_failure)?;
    call(sdk, Service::Lambda, request, requeue_aws::json).await
}

/// Source: RFC 3986, unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iam_decided_is_read_for_each_action() {
        let body = r#"<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">
  <SimulatePrincipalPolicyResult>
    <IsTruncated>false</IsTruncated>
    <EvaluationResults>
      <member>
        <MatchedStatements><member><EndPosition><Column>9</Column></EndPosition></member></MatchedStatements>
        <MissingContextValues/>
        <EvalActionName>sqs:SendMessage</EvalActionName>
        <EvalDecision>allowed</EvalDecision>
      </member>
      <member>
        <MissingContextValues><member>aws:SourceIp</member></MissingContextValues>
        <EvalActionName>sqs:DeleteMessage</EvalActionName>
        <EvalDecision>implicitDeny</EvalDecision>
      </member>
    </EvaluationResults>
  </SimulatePrincipalPolicyResult>
</SimulatePrincipalPolicyResponse>"#;
        let result = |action: &str, decision: &str, is_missing_context| EvaluationResult {
            action: action.to_owned(),
            decision: decision.to_owned(),
            is_missing_context,
        };
        assert_eq!(
            evaluation_results(body).expect("XML"),
            [
                result("sqs:SendMessage", "allowed", false),
                result("sqs:DeleteMessage", "implicitDeny", true)
            ]
        );
        assert!(evaluation_results("{}").is_err());
    }

    #[test]
    fn names_and_arns_fit_into_paths_and_forms() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders_1-a.b~c";
        assert_eq!(
            encoded(arn).to_string(),
            "arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Aorders_1-a.b~c"
        );
    }
}
