//! IAM's simulation of a role's policies: a form of its own, and a response in XML.

use serde::Deserialize;
use serde_json::Value;

use super::arn::Arn;
use super::facts::{Access, AccessDecision};
use crate::function::encoded;

/// A text that is there and not empty.
pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The items of a list. A list that is missing is empty.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The parameters of a simulation, with the facts of the request that policies of organizations
/// have conditions on. Lambda and the SDK send no request without TLS.
pub(crate) fn simulation(role: &str, actions: &[&str], resource: &str) -> String {
    let Arn { region, account, .. } = Arn::of(resource);
    let facts = [
        ("aws:RequestedRegion", "string", region),
        ("aws:SecureTransport", "boolean", "true"),
        ("aws:PrincipalAccount", "string", Arn::of(role).account),
        ("aws:ResourceAccount", "string", account),
    ];
    let mut form = vec![
        "Action=SimulatePrincipalPolicy&Version=2010-05-08".to_owned(),
        format!("PolicySourceArn={}", encoded(role)),
        format!("ResourceArns.member.1={}", encoded(resource)),
    ];
    let actions = (1..).zip(actions);
    form.extend(actions.map(|(n, action)| format!("ActionNames.member.{n}={}", encoded(action))));
    for (n, (key, kind, value)) in (1..).zip(facts.into_iter().filter(|fact| !fact.2.is_empty())) {
        let entry = format!("ContextEntries.member.{n}.ContextKey");
        form.push(format!("{entry}Name={}&{entry}Type={kind}", encoded(key)));
        form.push(format!("{entry}Values.member.1={}", encoded(value)));
    }
    form.join("&")
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The decision on each action.
pub(crate) fn access(body: &[u8]) -> Result<Access, BoxError> {
    let response: Response = quick_xml::de::from_str(std::str::from_utf8(body)?)?;
    let results = response.simulate_principal_policy_result.evaluation_results.member;
    Ok(results.iter().map(|one| (one.eval_action_name.clone(), one.decision())).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    simulate_principal_policy_result: SimulationResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SimulationResult {
    evaluation_results: Members<Evaluation>,
}

/// A list of the query protocol.
#[derive(Default, Deserialize)]
#[serde(default, bound = "T: Default + Deserialize<'de>")]
struct Members<T> {
    member: Vec<T>,
}

/// The decision on an action, or on one of its resources.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Evaluation {
    eval_action_name: String,
    /// `allowed`, `explicitDeny` or `implicitDeny`.
    eval_decision: String,
    missing_context_values: Members<String>,
    permissions_boundary_decision_detail: Bounds,
    organizations_decision_detail: Bounds,
    /// Of a simulation with a resource, some details are here only. Source: IAM API reference.
    resource_specific_results: Members<Evaluation>,
}

/// Whether a policy that bounds the permissions of others allows the action.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Bounds {
    allowed_by_permissions_boundary: Option<bool>,
    allowed_by_organizations: Option<bool>,
}

impl Evaluation {
    fn decision(&self) -> AccessDecision {
        let any = |is: fn(&Self) -> bool| {
            is(self) || self.resource_specific_results.member.iter().any(is)
        };
        let by_organizations =
            any(|one| one.organizations_decision_detail.allowed_by_organizations == Some(false));
        if self.eval_decision == "allowed" {
            AccessDecision::Allowed
        } else if any(|one| !one.missing_context_values.member.is_empty()) {
            AccessDecision::Depends
        } else if self.eval_decision == "explicitDeny" && !by_organizations {
            AccessDecision::Denied
        } else if any(|one| {
            one.permissions_boundary_decision_detail.allowed_by_permissions_boundary == Some(false)
        }) {
            AccessDecision::OutOfBoundary
        } else if by_organizations {
            AccessDecision::OutOfOrganization
        } else {
            AccessDecision::NotAllowed
        }
    }
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
        <OrganizationsDecisionDetail><AllowedByOrganizations>false</AllowedByOrganizations></OrganizationsDecisionDetail>
        <EvalActionName>ssm:GetParameters</EvalActionName>
        <EvalDecision>explicitDeny</EvalDecision>
      </member>
      <member>
        <EvalActionName>sqs:PurgeQueue</EvalActionName>
        <EvalDecision>explicitDeny</EvalDecision>
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
        let expected = [
            ("sqs:SendMessage", AccessDecision::Allowed),
            ("sqs:DeleteMessage", AccessDecision::Depends),
            ("kms:Decrypt", AccessDecision::Depends),
            ("ssm:GetParameter", AccessDecision::OutOfOrganization),
            ("ssm:GetParameters", AccessDecision::OutOfOrganization),
            ("sqs:PurgeQueue", AccessDecision::Denied),
            ("logs:PutLogEvents", AccessDecision::OutOfBoundary),
        ];
        let expected = expected.map(|(action, decision)| (action.to_owned(), decision));
        assert_eq!(access(body.as_bytes()).expect("XML"), expected.into());
        assert!(access(b"{}").is_err());
    }

    #[test]
    fn a_simulation_has_the_facts_of_the_request() {
        let role = "arn:aws:iam::123456789012:role/orders";
        let form =
            simulation(role, &["sqs:SendMessage"], "arn:aws:sqs:eu-west-1:999999999999:orders");
        let facts = [
            ("aws%3ARequestedRegion", "string", "eu-west-1"),
            ("aws%3ASecureTransport", "boolean", "true"),
            ("aws%3APrincipalAccount", "string", "123456789012"),
            ("aws%3AResourceAccount", "string", "999999999999"),
        ];
        let fact = |(n, (key, kind, value)): (usize, (&str, &str, &str))| {
            let entry = format!("&ContextEntries.member.{n}.ContextKey");
            format!("{entry}Name={key}{entry}Type={kind}{entry}Values.member.1={value}")
        };
        let facts: String = (1..).zip(facts).map(fact).collect();
        assert!(form.ends_with(&facts), "{form}");
        // An ARN without a region and an account.
        let form = simulation(role, &["sqs:SendMessage"], "*");
        assert_eq!(form.matches("ContextKeyName").count(), 2, "{form}");
    }
}
