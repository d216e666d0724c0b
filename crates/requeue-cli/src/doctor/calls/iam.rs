//! Operations of IAM.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_query};

use super::encoded;

/// IAM's decision on one action.
pub(crate) struct EvaluationResult {
    pub(crate) action: String,
    /// `allowed`, `explicitDeny` or `implicitDeny`.
    pub(crate) decision: String,
    pub(crate) is_missing_context: bool,
    /// `false` if the role's permissions boundary does not allow the action.
    pub(crate) is_in_boundary: bool,
    /// `false` if the organization's policies do not allow the action.
    pub(crate) is_in_organization: bool,
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
            let all =
                |name| result.descendants().filter(move |node| node.tag_name().name() == name);
            let is_false = |name| all(name).any(|node| node.text() == Some("false"));
            let text = |name| child(name).and_then(|child| child.text()).unwrap_or_default();
            EvaluationResult {
                action: text("EvalActionName").to_owned(),
                decision: text("EvalDecision").to_owned(),
                // Of a simulation with a resource, they are in `ResourceSpecificResults`. Source:
                // IAM API reference, `EvaluationResult`.
                is_missing_context: all("MissingContextValues")
                    .any(|values| values.children().any(|value| value.is_element())),
                is_in_boundary: !is_false("AllowedByPermissionsBoundary"),
                is_in_organization: !is_false("AllowedByOrganizations"),
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
        <MissingContextValues/>
        <ResourceSpecificResults><member>
          <EvalResourceName>arn:aws:sqs:eu-west-1:123456789012:orders</EvalResourceName>
          <EvalResourceDecision>implicitDeny</EvalResourceDecision>
          <MissingContextValues><member>aws:SourceIp</member></MissingContextValues>
        </member></ResourceSpecificResults>
        <EvalActionName>sqs:DeleteMessage</EvalActionName>
        <EvalDecision>implicitDeny</EvalDecision>
      </member>
      <member>
        <MissingContextValues><member>aws:SourceIp</member></MissingContextValues>
        <EvalActionName>kms:Decrypt</EvalActionName>
        <EvalDecision>implicitDeny</EvalDecision>
      </member>
      <member>
        <PermissionsBoundaryDecisionDetail>
          <AllowedByPermissionsBoundary>true</AllowedByPermissionsBoundary>
        </PermissionsBoundaryDecisionDetail>
        <OrganizationsDecisionDetail><AllowedByOrganizations>false</AllowedByOrganizations></OrganizationsDecisionDetail>
        <EvalActionName>ssm:GetParameter</EvalActionName>
        <EvalDecision>implicitDeny</EvalDecision>
      </member>
      <member>
        <ResourceSpecificResults><member>
          <PermissionsBoundaryDecisionDetail>
            <AllowedByPermissionsBoundary>false</AllowedByPermissionsBoundary>
          </PermissionsBoundaryDecisionDetail>
        </member></ResourceSpecificResults>
        <EvalActionName>logs:PutLogEvents</EvalActionName>
        <EvalDecision>implicitDeny</EvalDecision>
      </member>
    </EvaluationResults>
  </SimulatePrincipalPolicyResult>
</SimulatePrincipalPolicyResponse>"#;
        let results = evaluation_results(body).expect("XML");
        let read = results.iter().map(|result| {
            let EvaluationResult { action, decision, .. } = result;
            let limits = [result.is_in_boundary, result.is_in_organization];
            (&**action, &**decision, result.is_missing_context, limits)
        });
        assert_eq!(
            read.collect::<Vec<_>>(),
            [
                ("sqs:SendMessage", "allowed", false, [true, true]),
                ("sqs:DeleteMessage", "implicitDeny", true, [true, true]),
                ("kms:Decrypt", "implicitDeny", true, [true, true]),
                ("ssm:GetParameter", "implicitDeny", false, [true, false]),
                ("logs:PutLogEvents", "implicitDeny", false, [false, true]),
            ]
        );
        assert!(evaluation_results("{}").is_err());
    }
}
