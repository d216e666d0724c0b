"""The values and the lines that `docs/operate/deploy.md` shows for the template, and those of `docs/project/migration.md` for
a template of the reader."""

import copy
import json
import re
import shlex
import tempfile
import tomllib
import unittest
from pathlib import Path

from samcli.cli.types import CfnParameterOverridesType
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse
from stack import ROOT, NoManagedPolicies, cloudformation, lint, lint_file, template, translated

PAGE = (ROOT / "docs" / "operate" / "deploy.md").read_text()
SAM_CONFIG = (ROOT / "samconfig.toml").read_text()
# The sections with lines for the template: the line before which they go, and their indentation.
PLACES = {
    "A service in a VPC": ("  Queue:\n", 2),
    "Settings without a parameter": ("          REQUEUE_RECURSIVE_LOOP: Allow\n", 10),
    "Gradual deployment": ("      Role: !GetAtt Role.Arn\n", 6),
}


def section(heading):
    return PAGE.partition(f"\n### {heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def blocks(heading, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.DOTALL | re.MULTILINE)


def parameters(values):
    """The parameters as SAM hands them to CloudFormation."""
    return CfnParameterOverridesType().convert(values, None, None)


def with_lines_of(heading, text):
    """The template's text with the lines of a section."""
    (block,) = blocks(heading, "yaml")
    line, indentation = PLACES[heading]
    if text.count(f"\n{line}") != 1:
        raise RuntimeError(f"template.yaml has {text.count(line)} times: {line}")
    lines = "".join(" " * indentation + text for text in block.splitlines(keepends=True))
    return text.replace(f"\n{line}", f"\n{lines}{line}")


class DeployPageExamples(unittest.TestCase):
    def test_each_way_to_pass_a_policy_gives_the_same_policy(self):
        (command,) = blocks("Pass a policy", "sh")
        (config,) = blocks("Pass a policy", "toml")
        (file,) = blocks("Pass a policy", "yaml")
        words = shlex.split(command.replace("\\\n", ""))
        given = [
            words[words.index("--parameter-overrides") + 1 :],
            # The file ends with the section under which the page adds these lines.
            tomllib.loads(SAM_CONFIG + config)["default"]["deploy"]["parameters"]["parameter_overrides"],
            [yaml_parse(file)],
        ]
        policies = [parameters(values) for values in given]
        rule = {"match": {"status": 401}, "class": "temporary", "delaySeconds": 300}
        for policy in policies:
            self.assertEqual(policy["TargetUrl"], "https://api.example.com/orders")
            self.assertEqual(json.loads(policy["Policy"]), {"rules": [rule]})

    def test_the_command_with_a_table_gives_the_policy_that_it_shows(self):
        (command,) = blocks("A table for all environments", "sh")
        words = shlex.split(command.replace("\\\n", ""))
        given = parameters(words[words.index("--parameter-overrides") + 1 :])
        self.assertEqual(given["SharedTable"], "dynamodb")
        self.assertEqual(json.loads(given["Policy"]), {"rateLimit": {"limit": 49}, "idempotency": {"key": "/orderId"}})

    def test_the_template_with_endpoint_and_settings_lints_clean(self):
        text = (ROOT / "template.yaml").read_text()
        for heading in ("A service in a VPC", "Settings without a parameter"):
            text = with_lines_of(heading, text)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "template.yaml"
            path.write_text(text)
            self.assertEqual(lint_file(path, region="eu-west-1"), "")

    def test_the_vpc_command_gives_parameters_that_the_template_takes(self):
        (command,) = blocks("A service in a VPC", "sh")
        words = shlex.split(command.replace("\\\n", ""))
        given = parameters(words[words.index("--parameter-overrides") + 1 :])
        self.assertEqual(list(given), ["TargetUrl", "SubnetIds", "SecurityGroupIds"])
        for name, text in given.items():
            self.assertRegex(text, template()["Parameters"][name]["AllowedPattern"])


class GradualDeployment(unittest.TestCase):
    """The template with the lines of the section, as SAM translates it."""

    @classmethod
    def setUpClass(cls):
        cls.source = yaml_parse(with_lines_of("Gradual deployment", (ROOT / "template.yaml").read_text()))
        cls.translated = translated(cls.source)
        cls.resources = cls.translated["Resources"]

    def only(self, kind):
        (found,) = [(name, one) for name, one in self.resources.items() if one["Type"] == kind]
        return found

    def version(self, given=None, **properties):
        """The logical id of the version with these parameters and properties of the function. A new id is a new version."""
        source = copy.deepcopy(self.source)
        source["Resources"]["Function"]["Properties"].update(properties)
        (name,) = [name for name, one in translated(source, given)["Resources"].items() if one["Type"] == "AWS::Lambda::Version"]
        return name

    def test_the_mapping_stays_and_invokes_the_alias(self):
        alias, resource = self.only("AWS::Lambda::Alias")
        self.assertEqual(resource["Properties"]["Name"], "live")
        expected = copy.deepcopy(cloudformation()["Resources"]["FunctionMessages"])
        expected["Properties"]["FunctionName"] = {"Ref": alias}
        self.assertEqual(self.resources["FunctionMessages"], expected)

    def test_codedeploy_moves_the_alias_and_rolls_back_by_two_alarms(self):
        _, alias = self.only("AWS::Lambda::Alias")
        name, group = self.only("AWS::CodeDeploy::DeploymentGroup")
        self.assertEqual(alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"], {"Ref": name})
        alarms = group["Properties"]["AlarmConfiguration"]
        named = [{"Name": {"Ref": alarm}} for alarm in ("FunctionErrorsAlarm", "SendUnconfirmedAlarm")]
        self.assertEqual(alarms, {"Enabled": True, "Alarms": named})
        self.assertIn("DEPLOYMENT_STOP_ON_ALARM", group["Properties"]["AutoRollbackConfiguration"]["Events"])
        # Ten minutes are two periods of these alarms.
        self.assertEqual([self.resources[alarm["Name"]["Ref"]]["Properties"]["Period"] for alarm in named], [300, 300])
        self.assertEqual(group["Properties"]["DeploymentConfigName"]["Fn::Sub"][1], {"ConfigName": "Canary10Percent10Minutes"})

    def test_the_role_of_codedeploy_has_the_policy_that_the_page_names(self):
        role = self.resources["CodeDeployServiceRole"]["Properties"]
        self.assertEqual(role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"], {"Service": ["codedeploy.amazonaws.com"]})
        self.assertEqual(role["ManagedPolicyArns"], ["arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"])
        self.assertNotIn("PermissionsBoundary", role)

    def test_nothing_else_changes(self):
        added = {"AWS::Lambda::Version", "AWS::Lambda::Alias", "AWS::CodeDeploy::Application", "AWS::CodeDeploy::DeploymentGroup", "AWS::IAM::Role"}
        before = cloudformation()["Resources"]
        self.assertEqual({one["Type"] for name, one in self.resources.items() if name not in before}, added)
        changed = [name for name in before if self.resources[name] != before[name]]
        self.assertEqual(changed, ["FunctionMessages"])

    def test_a_version_is_published_for_new_code_and_lines_but_not_for_a_parameter_alone(self):
        before = self.version()
        self.assertNotEqual(self.version(CodeUri="s3://bucket/other"), before)
        self.assertNotEqual(self.version(Description="Another one."), before)
        # If this fails, SAM has learnt it: shorten the page.
        self.assertEqual(self.version({"MemorySize": 512, "TargetUrl": "https://api.example.com/"}), before)

    def test_it_lints_clean(self):
        # W1001: without alarms, CloudFormation refuses the template, as the page says. W1033 is the
        # exception in the template, which this option replaces.
        self.assertEqual(lint(self.translated, "W1001", "W1033"), "")


class ExistingFunction(unittest.TestCase):
    def test_the_template_takes_the_parameters_and_the_timeouts_of_the_page(self):
        page = (ROOT / "docs" / "start" / "existing-function.md").read_text()
        known = template()["Parameters"]
        (command,) = re.findall(r"^ *sam deploy (.*\\\n.*)$", page, re.MULTILINE)
        overrides = command.replace("\\\n", "").partition("--parameter-overrides")[2]
        options = re.findall(r"^ *FIFO=\S* OPTIONS=\((.*)\)$", page, re.MULTILINE)
        fifo = ["Fifo", "DeadLetterMode", "MaxReceiveCount"]
        for option, names, retries in zip(options, [["BatchingWindow"], fifo], [3, 4], strict=True):
            given = parameters(shlex.split(overrides.replace('"${OPTIONS[@]}"', option)))
            self.assertEqual(list(given), ["TargetFunction", "FunctionTimeout", *names, "Policy"])
            self.assertEqual(json.loads(given["Policy"]), {"errorConfigs": {"temporary": {"maxRetries": retries}}})
            for name in names:
                self.assertIn(given[name], map(str, known[name].get("AllowedValues", [given[name]])))
        for name, value in re.findall(r"\b([A-Z][a-z]\w+)=(\w+|\"\")", "".join(re.findall(r"`[^`\n]+`", page))):
            self.assertIn(name, known)
            self.assertIn(value, map(str, known[name].get("AllowedValues", [value])))
        (listed,) = re.findall(r"for LONGER in ([\d ]+);", page)
        self.assertEqual(listed.split(), known["FunctionTimeout"]["AllowedValues"])
        for output in re.findall(r"`!GetAtt Retries\.Outputs\.(\w+)`", page):
            self.assertIn(output, template()["Outputs"])


# The reader's own resources.
OWN = """\
  Charge: { Type: AWS::Serverless::Function, Properties: { CodeUri: s3://bucket/charge, Handler: app.handler, Runtime: python3.13 } }
  Queue: { Type: AWS::SQS::Queue, Properties: { VisibilityTimeout: 480 } }
  DeadLetterQueue: { Type: AWS::SQS::Queue }
"""


class OwnTemplate(unittest.TestCase):
    def test_the_function_of_the_migration_may_send_and_invoke_and_receives_nothing_yet(self):
        page = (ROOT / "docs" / "project" / "migration.md").read_text().partition("### In your own template\n")[2]
        lines = re.search(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1].replace("bootstrap.zip", "s3://bucket/bootstrap")
        made = transform(yaml_parse(f"Transform: AWS::Serverless-2016-10-31\nResources:\n{lines}{OWN}"), {}, NoManagedPolicies())
        self.assertEqual(lint(made), "")
        resources = made["Resources"]
        self.assertFalse(resources["RequeueFunctionMessages"]["Properties"]["Enabled"])
        (policy,) = resources["RequeueFunctionRole"]["Properties"]["Policies"]
        allowed = [(one["Resource"]["Fn::GetAtt"][0], one["Action"]) for one in policy["PolicyDocument"]["Statement"]]
        expected = [
            ("Charge", ["lambda:InvokeFunction", "lambda:GetFunctionConfiguration"]),
            ("Queue", ["sqs:SendMessage", "sqs:ChangeMessageVisibility"]),
            ("DeadLetterQueue", "sqs:SendMessage"),
        ]
        self.assertEqual(allowed, expected)
        # SAM adds the other actions on the queue and those on the log.
        managed = " ".join(map(str, resources["RequeueFunctionRole"]["Properties"]["ManagedPolicyArns"]))
        self.assertRegex(managed, "AWSLambdaBasicExecutionRole.*AWSLambdaSQSQueueExecutionRole")


if __name__ == "__main__":
    unittest.main()
