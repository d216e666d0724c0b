//! Operations of IAM.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_query};

use super::encoded;

/// IAM's decision on one action.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct EvaluationResult {
    pub(crate) action: String,
    /// `allowed`, `explicitDeny` or `implicitDeny`.
    pub(crate) decision: String,
    pub(crate) is_missing_context: bool,
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
    let read: fn(&[u8]) -> _ = |body| Ok(evaluation_results(std::str::from_utf8(body)?)?);
    call_query(sdk, Service::Iam, form.join("&"), read).await
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
}
