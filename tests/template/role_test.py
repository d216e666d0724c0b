"""The permissions of the template's role and of the policies in infra/policies."""

import json
import re
import unittest

from stack import BOUNDARY, EVERYTHING, GROUP, KEY, PARAMETER, ROOT, SECRET, SUBNETS, TARGET_FUNCTION, cloudformation, deployed, lint, template, translated

POLICIES = ROOT / "infra" / "policies"

# Actions on "*": IAM knows no narrower resource, or CloudWatch shows composite alarms only so. The last has a condition.
WITHOUT_A_RESOURCE = {
    "operator": {
        "cloudwatch:DescribeAlarms",
        "cloudwatch:GetMetricStatistics",
        "lambda:GetAccountSettings",
        "lambda:ListEventSourceMappings",
        "logs:DescribeLogGroups",
        "logs:GetQueryResults",
    },
    "emergency": {"lambda:UpdateEventSourceMapping"},
}
# The actions of AWSLambdaVPCAccessExecutionRole but for the logs.
INTERFACES = {
    f"ec2:{action}"
    for action in (
        *("CreateNetworkInterface", "DescribeNetworkInterfaces", "DeleteNetworkInterface"),
        *("DescribeSubnets", "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"),
    )
}
INVOKES = {"lambda:InvokeFunction", "lambda:GetFunctionConfiguration"}
# The beginning of the ARN of a function in the stack's account and region.
OWN = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:"
VPC = {"SubnetIds": SUBNETS, "SecurityGroupIds": GROUP}


def listed(value):
    return value if isinstance(value, list) else [value]


def granted(documents):
    """The actions that policy documents allow, by resource in JSON."""
    found = {}
    for document in documents:
        for statement in document["Statement"]:
            assert statement["Effect"] == "Allow" and "NotAction" not in statement
            found.setdefault(json.dumps(statement["Resource"]), set()).update(listed(statement["Action"]))
    return found


def shared():
    """The policy documents in infra/policies, by name, with the template's names of resources."""
    found = {}
    for path in POLICIES.glob("*.json"):
        text = re.sub(r'"\$\{(\w+)\.Arn\}"', r'{"Fn::GetAtt": ["\1", "Arn"]}', path.read_text())
        text = text.replace('"${AWS::StackId}"', '{"Ref": "AWS::StackId"}')
        found[path.stem] = json.loads(text)
    return found


class Role(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.translated = cloudformation()
        cls.shared = shared()

    def granted(self, **given):
        """The role's actions by resource, with these parameters."""
        return granted(policy["PolicyDocument"] for policy in deployed(self.translated, **given)["Role"]["Properties"]["Policies"])

    def test_the_role_can_do_what_the_function_needs_and_nothing_else(self):
        (role,) = [resource for resource in deployed(self.translated).values() if resource["Type"] == "AWS::IAM::Role"]
        self.assertNotIn("ManagedPolicyArns", role["Properties"])
        of_queue = ["ReceiveMessage", "GetQueueAttributes", "DeleteMessage", "SendMessage", "ChangeMessageVisibility"]
        least = {
            json.dumps({"Fn::GetAtt": ["Queue", "Arn"]}): {f"sqs:{action}" for action in of_queue},
            json.dumps({"Fn::GetAtt": ["LogGroup", "Arn"]}): {"logs:CreateLogStream", "logs:PutLogEvents"},
        }
        self.assertEqual(self.granted(), least)
        self.assertEqual(self.granted(DeadLetterMode="redrive"), least)
        use = {"kms:GenerateDataKey", "kms:Decrypt"}
        for given, more in [
            ({"SharedTable": "dynamodb"}, {json.dumps({"Fn::GetAtt": ["Table", "Arn"]}): {"dynamodb:GetItem", "dynamodb:UpdateItem"}}),
            ({"TargetFunction": TARGET_FUNCTION}, {json.dumps(TARGET_FUNCTION): INVOKES}),
            *(({"TargetFunction": name}, {json.dumps({"Fn::Sub": f"{OWN}{name}"}): INVOKES}) for name in ("orders", "orders:live")),
            ({"DeadLetterMode": "direct"}, {json.dumps({"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}): {"sqs:SendMessage"}}),
            ({"SecretArns": f"{SECRET},{SECRET}2"}, {json.dumps([SECRET, f"{SECRET}2"]): {"secretsmanager:GetSecretValue"}}),
            ({"ParameterArns": PARAMETER}, {json.dumps([PARAMETER]): {"ssm:GetParameter"}}),
            ({"SecretKmsKeyArn": KEY}, {json.dumps(KEY): {"kms:Decrypt"}}),
            ({"KmsKeyArn": KEY}, {json.dumps(KEY): use}),
            ({"OtherKmsKeyArns": f"{KEY}2,{KEY}3"}, {json.dumps([f"{KEY}2", f"{KEY}3"]): use}),
            ({"KmsKeyArn": KEY, "OtherKmsKeyArns": f"{KEY}2"}, {json.dumps(KEY): use, json.dumps([f"{KEY}2"]): use}),
            (VPC, {json.dumps("*"): INTERFACES}),
        ]:
            self.assertEqual(self.granted(**given), {**least, **more})

    def test_the_page_on_security_lists_the_role(self):
        page = (ROOT / "docs" / "project" / "security-model.md").read_text()
        table = page[page.index("The function's role, as") : page.index("Only the CDK and Terraform have these options.")]
        rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in re.findall(r"^\| `.*$", table, re.MULTILINE)]
        resources = {
            "the queue": {"Fn::GetAtt": ["Queue", "Arn"]},
            "the log group": {"Fn::GetAtt": ["LogGroup", "Arn"]},
            "the dead-letter queue": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]},
            "the target function": TARGET_FUNCTION,
            "the table": {"Fn::GetAtt": ["Table", "Arn"]},
            "the queues' key": KEY,
            "the queues' other keys": [KEY],
            "the secrets' key": KEY,
            "the named secrets": [SECRET],
            "the named parameters": [PARAMETER],
            "`*`": "*",
        }
        values = {"TargetFunction": TARGET_FUNCTION, "SecretArns": SECRET, "ParameterArns": PARAMETER, "DeadLetterMode": "direct", "SharedTable": "dynamodb"}
        for condition in {row[3] for row in rows}:
            on_page = {}
            for actions, on, _, when in rows:
                if when in ("always", condition):
                    on_page.setdefault(json.dumps(resources[on]), set()).update(re.findall(r"`(\w+:\w+)`", actions))
            name = condition.strip("`").split("=")[0]
            given = {} if name == "always" else VPC if name == "SubnetIds" else {name: values.get(name, KEY)}
            self.assertEqual(on_page, self.granted(**given), condition)
        # Each parameter that the role depends on has its row.
        everything = set().union(*self.granted(**EVERYTHING).values())
        self.assertEqual(set(re.findall(r"`(\w+:\w+)`", "".join(row[0] for row in rows))), everything)
        # The queue and the log group have theirs always.
        self.assertEqual(len({row[3] for row in rows}) + 1, len(self.granted(**EVERYTHING)))

    def test_the_page_on_security_says_what_encrypts_each_store_and_how_long_it_keeps_data(self):
        page = (ROOT / "docs" / "project" / "security-model.md").read_text()
        sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
        resources = deployed(self.translated, AlarmEmail="operator@example.com")
        for name in ("Queue", "DeadLetterQueue"):
            self.assertTrue(resources[name]["Properties"]["SqsManagedSseEnabled"])
        for name, key in [("LogGroup", "KmsKeyId"), ("Function", "KmsKeyArn"), ("AlarmTopic", "KmsMasterKeyId")]:
            self.assertNotIn(key, resources[name]["Properties"])
        paths = ("template.yaml", "infra/cdk/lib/props.ts", "infra/terraform/variables.tf", "infra/terraform/options.tf")
        known = "".join((ROOT / path).read_text() for path in paths)
        known = set(re.findall(r'^(?:  |  readonly |variable ")(\w+)(?=:\n|\??: |" )', known, re.MULTILINE))
        rows = re.findall(r"^\| [^-].*$", sections["Encryption at rest"], re.MULTILINE)[1:]
        keys = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[3])]
        self.assertEqual(len(keys), 15)
        self.assertLessEqual(set(keys), known)
        days = re.findall(r"(\d+) days", sections["How long data stays"].split("A message can pass")[0])
        in_template = [resources[name]["Properties"]["MessageRetentionPeriod"] // 86400 for name in ("Queue", "DeadLetterQueue")]
        self.assertEqual([int(number) for number in days], [*in_template, resources["LogGroup"]["Properties"]["RetentionInDays"]])

    def test_no_statement_of_the_role_is_wide(self):
        statements = self.granted(**EVERYTHING)
        self.assertEqual(statements.pop(json.dumps("*")), INTERFACES)
        self.assertEqual(len(statements), 10)
        for resource, actions in statements.items():
            self.assertNotIn("*", resource + "".join(actions))

    def test_only_lambda_itself_may_change_network_interfaces(self):
        (policy,) = [one for one in deployed(self.translated, **VPC)["Role"]["Properties"]["Policies"] if "ec2:" in json.dumps(one)]
        (statement,) = policy["PolicyDocument"]["Statement"]
        # The key is in the credentials of the function's code only.
        self.assertEqual(statement["Condition"], {"Null": {"lambda:SourceFunctionArn": "true"}})

    def test_the_role_has_a_permissions_boundary_where_one_is_given(self):
        role = lambda **given: deployed(self.translated, **given)["Role"]["Properties"]
        self.assertNotIn("PermissionsBoundary", role())
        self.assertEqual(role(PermissionsBoundaryArn=BOUNDARY)["PermissionsBoundary"], BOUNDARY)

    # IAM replaces a policy at once, but one policy after the other.
    def test_all_keys_of_the_queues_are_in_one_policy(self):
        policies = deployed(self.translated, KmsKeyArn=KEY, OtherKmsKeyArns=f"{KEY}2")["Role"]["Properties"]["Policies"]
        named = [policy["PolicyName"] for policy in policies if "kms:" in json.dumps(policy)]
        self.assertEqual(named, ["QueueKey"])

    def test_each_action_of_the_role_says_why(self):
        text = (ROOT / "template.yaml").read_text()
        role = text[text.index("\n  Role:\n") : text.index("\n  LogGroup:\n")]
        actions = re.findall(r"^ +- (\w+:\w+)(.*)$", role, re.MULTILINE)
        self.assertEqual({action for action, _ in actions}, set().union(*self.granted(**EVERYTHING).values()))
        for action, comment in actions:
            self.assertRegex(comment, r"^ # \w+", action)

    def test_the_shared_policy_of_the_function_is_that_of_the_role(self):
        self.assertEqual(granted([self.shared["function"]]), self.granted())

    def test_who_works_a_queue_needs_what_the_function_does_but_the_logs_and_a_look_at_the_dead_letter_queue(self):
        (queue, actions), *_ = self.granted().items()
        dead_letters = json.dumps({"Fn::GetAtt": ["DeadLetterQueue", "Arn"]})
        # A worker may find its queue by name.
        working = {queue: actions | {"sqs:GetQueueUrl"}, dead_letters: {"sqs:GetQueueAttributes"}}
        self.assertEqual(granted([self.shared["worker"]]), working)
        self.assertEqual(granted([self.shared["producer"]]), {queue: {"sqs:SendMessage"}})

    def test_shared_policies_are_narrow_but_where_iam_knows_no_resource(self):
        self.assertEqual(set(self.shared), {"function", "worker", "producer", "operator", "emergency"})
        for name, document in self.shared.items():
            for resource, actions in granted([document]).items():
                self.assertNotIn("*", "".join(actions), name)
                if "*" in resource:
                    self.assertEqual(actions, WITHOUT_A_RESOURCE[name], name)

    def test_an_emergency_stops_the_mappings_of_this_function_only(self):
        (mappings,) = [one for one in self.shared["emergency"]["Statement"] if one["Resource"] == "*"]
        function = {"Fn::GetAtt": ["Function", "Arn"]}
        self.assertEqual(mappings["Condition"], {"StringEquals": {"lambda:FunctionArn": function}})

    def test_an_emergency_adds_no_code_by_a_layer(self):
        (settings,) = [one for one in self.shared["emergency"]["Statement"] if "lambda:UpdateFunctionConfiguration" in listed(one["Action"])]
        # Lambda gives the key with a request that names layers.
        self.assertEqual(settings["Condition"], {"Null": {"lambda:Layer": "true"}})
        runbook = (ROOT / "docs" / "operate" / "runbook.md").read_text()
        self.assertNotIn("--layers", runbook)

    def test_shared_policies_lint_clean(self):
        resources = {f"Policy{place}": {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": document}}
                     for place, document in enumerate(self.shared.values())}
        with_policies = {**self.translated, "Resources": {**self.translated["Resources"], **resources}}
        self.assertEqual(lint(with_policies), "")

    def test_the_guide_to_the_shared_policies_explains_each_action(self):
        guide = (POLICIES / "README.md").read_text()
        explained = guide[guide.index("## Why each action") : guide.index("## Permissions of optional features")]
        allowed = set().union(*(actions for document in self.shared.values() for actions in granted([document]).values()))
        self.assertEqual(set(re.findall(r"`(\w+:\w+)`", explained)), allowed)
        self.assertEqual(set(re.findall(r"`(\w+)\.json`", guide)), set(self.shared))
