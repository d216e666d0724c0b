#!/usr/bin/env python3
"""What the template must say, and no linter sees: linters look neither into SAM's resources nor at what AWS recommends.

Needs aws-sam-translator and cfn-lint (`tests/requirements-sam.txt`).
"""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

os.environ["AWS_DEFAULT_REGION"] = "us-east-1"

ROOT = Path(__file__).resolve().parent.parent
DAY = 86_400


class NoManagedPolicies:
    def load(self):
        return {}


def template():
    return yaml_parse((ROOT / "template.yaml").read_text())


def translated(template):
    """The CloudFormation that SAM makes of it."""
    template = copy.deepcopy(template)
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "s3://bucket/key"
    return transform(template, {}, NoManagedPolicies())


def lint(template):
    """cfn-lint's findings, as it prints them."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(template, file)
        file.flush()
        command = [Path(sys.executable).parent / "cfn-lint", "--regions", "us-east-1", "--template", file.name]
        return subprocess.run(command, capture_output=True, text=True).stdout


NO_VALUE = object()


def deployed(template, **given):
    """The resources of a translated template, as they are made with these parameters."""
    parameters = {}
    for name, parameter in template["Parameters"].items():
        text = str(given.get(name, parameter.get("Default", "")))
        parameters[name] = text.split(",") if parameter["Type"] == "CommaDelimitedList" else text

    def value(node):
        match node:
            case {"Ref": "AWS::NoValue"}:
                return NO_VALUE
            case {"Ref": name} if name in parameters:
                return parameters[name]
            case {"Fn::If": [condition, yes, no]}:
                return value(yes if value(template["Conditions"][condition]) else no)
            case {"Fn::Not": [condition]}:
                return not value(condition)
            case {"Fn::Equals": [one, other]}:
                return value(one) == value(other)
            case {"Fn::Join": [separator, texts]}:
                return separator.join(value(texts))
            case dict():
                members = {name: value(member) for name, member in node.items()}
                return {name: member for name, member in members.items() if member is not NO_VALUE}
            case list():
                return [member for member in map(value, node) if member is not NO_VALUE]
            case _:
                return node

    return value(template["Resources"])


SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders/api-AbCdEf"
PARAMETER = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

# Each optional parameter with its variable, texts that it takes and texts that it refuses.
OPTIONAL = {
    "Method": ("METHOD", ["PUT", "PATCH"], ["GET", "put"]),
    "ContentType": ("CONTENT_TYPE", ["text/csv", "text/plain; charset=utf-8"], ["text", "/csv", " "]),
    "MessageConcurrency": ("CONCURRENCY", ["1", "1000"], ["0", "1001"]),
    "Headers": ("HEADERS", [json.dumps({"Authorization": f"Bearer {SECRET}:token::"}), '{"A":"1",\n"B":"2"}'], ["A: 1", "[]", " "]),
    "AttributeHeaders": ("ATTRIBUTE_HEADERS", ["tenant=X-Tenant", "a.b=X-A, c_d=X-C"], ["tenant", "tenant=", "a=X-A,", " "]),
    "SigningSecret": ("SIGNING_SECRET", ["whsec_bm90IHNlY3JldA==", f"{SECRET} {SECRET}::AWSPREVIOUS:"], ["secret", "whsec_", " "]),
    "Policy": ("POLICY", ['{"preset":"critical"}'], []),
    "Scope": ("SCOPE", ["tenant", "/account/id"], ["account/id", "a tenant", " "]),
    "Mode": ("MODE", ["report"], ["off", ""]),
}
ARNS = {
    "SecretArns": ([SECRET, SECRET.replace("aws", "aws-us-gov", 1)], [f"{SECRET}:token::", SECRET[:-7], f"{SECRET[:-6]}??????", "*"]),
    "ParameterArns": ([PARAMETER], [f"{PARAMETER}:3", f"{PARAMETER}*", "/orders/signing"]),
    "SecretKmsKeyArn": ([KEY], [KEY.replace("key/", "alias/"), f"{KEY}*", "*"]),
}


def takes(parameter, text):
    """Whether CloudFormation accepts the text."""
    if "AllowedValues" in parameter:
        return text in parameter["AllowedValues"]
    if parameter["Type"] == "Number":
        return parameter["MinValue"] <= float(text) <= parameter["MaxValue"]
    return re.fullmatch(parameter.get("AllowedPattern", ".*"), text) is not None


class Template(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template()
        cls.parameters = cls.source["Parameters"]
        cls.translated = translated(cls.source)
        cls.resources = cls.translated["Resources"]
        (cls.mapping,) = cls.of_type("AWS::Lambda::EventSourceMapping")
        cls.function = cls.resources["Function"]["Properties"]
        cls.queue = cls.resources["Queue"]["Properties"]
        cls.dead_letters = cls.resources["DeadLetterQueue"]["Properties"]

    @classmethod
    def of_type(cls, kind):
        return [resource["Properties"] for resource in cls.resources.values() if resource["Type"] == kind]

    def settings(self, **given):
        """The function's environment with these parameters."""
        return deployed(self.translated, **given)["Function"]["Properties"]["Environment"]["Variables"]

    def granted(self, **given):
        """The role's actions by resource, with these parameters."""
        granted = {}
        for policy in deployed(self.translated, **given)["Role"]["Properties"]["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                self.assertEqual(statement["Effect"], "Allow")
                granted.setdefault(json.dumps(statement["Resource"]), set()).update(statement["Action"])
        return granted

    def test_the_translated_template_lints_clean(self):
        self.assertEqual(lint(self.translated), "")

    def test_the_lint_sees_into_the_function(self):
        broken = template()
        broken["Resources"]["Function"]["Properties"]["Runtime"] = "provided.al2022"
        self.assertIn("provided.al2022", lint(translated(broken)))

    def test_visibility_is_six_function_timeouts_and_the_window(self):
        of_function = {"Fn::FindInMap": ["VisibilityTimeout", {"Ref": "FunctionTimeout"}, "Seconds"]}
        self.assertEqual(self.queue["VisibilityTimeout"], of_function)
        self.assertEqual(self.function["Timeout"], {"Ref": "FunctionTimeout"})
        self.assertEqual(self.mapping["MaximumBatchingWindowInSeconds"], {"Ref": "BatchingWindow"})
        timeouts = self.parameters["FunctionTimeout"]["AllowedValues"]
        visibility = self.source["Mappings"]["VisibilityTimeout"]
        self.assertEqual(set(visibility), set(timeouts))
        window = self.parameters["BatchingWindow"]["MaxValue"]
        for timeout in timeouts:
            self.assertGreaterEqual(visibility[timeout]["Seconds"], 6 * int(timeout) + window)
            self.assertLessEqual(visibility[timeout]["Seconds"], 43_200)

    def test_batches_above_ten_need_a_window(self):
        rule = self.source["Rules"]["LargeBatchesAreGathered"]
        self.assertEqual(rule["RuleCondition"], {"Fn::Equals": [{"Ref": "BatchingWindow"}, "0"]})
        (assertion,) = rule["Assertions"]
        sizes = [str(size) for size in range(1, 11)]
        self.assertEqual(assertion["Assert"], {"Fn::Contains": [sizes, {"Ref": "BatchSize"}]})
        self.assertEqual(self.mapping["BatchSize"], {"Ref": "BatchSize"})
        self.assertLessEqual(self.parameters["BatchSize"]["Default"], 10)

    def test_messages_end_before_the_function_settles(self):
        for timeout in (10, 30, 60):
            rule = self.source["Rules"][f"MessagesFitInto{timeout}Seconds"]
            self.assertEqual(rule["RuleCondition"], {"Fn::Equals": [{"Ref": "FunctionTimeout"}, str(timeout)]})
            (assertion,) = rule["Assertions"]
            longest = int(timeout - min(5, timeout / 4))
            fitting = [str(seconds) for seconds in range(1, longest + 1)]
            self.assertEqual(assertion["Assert"], {"Fn::Contains": [fitting, {"Ref": "MessageTimeout"}]})
            self.assertIn(f"at most {longest}.", assertion["AssertDescription"])
        self.assertIn(str(self.parameters["MessageTimeout"]["Default"]), fitting)
        self.assertEqual(self.parameters["FunctionTimeout"]["Default"], "60")

    def test_only_failed_messages_come_back(self):
        self.assertEqual(self.mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])

    def test_the_mapping_is_bounded(self):
        self.assertEqual(self.mapping["ScalingConfig"], {"MaximumConcurrency": {"Ref": "MaximumConcurrency"}})
        self.assertGreaterEqual(self.parameters["MaximumConcurrency"]["MinValue"], 2)

    def test_a_loop_through_the_own_queue_is_allowed_and_said_to_the_function(self):
        self.assertEqual(self.function["RecursiveLoop"], "Allow")
        self.assertEqual(self.function["Environment"]["Variables"]["REQUEUE_RECURSIVE_LOOP"], "Allow")

    # That messages outlive every preset is for tests/batch/retention.rs to say, which knows the presets.
    def test_dead_letters_are_kept_two_weeks_of_which_a_week_is_left_at_least(self):
        self.assertEqual(self.dead_letters["MessageRetentionPeriod"], 14 * DAY)
        self.assertGreaterEqual(self.dead_letters["MessageRetentionPeriod"] - self.queue["MessageRetentionPeriod"], 7 * DAY)

    def test_messages_are_dead_lettered_after_at_least_five_receives(self):
        redrive = self.queue["RedrivePolicy"]
        self.assertGreaterEqual(redrive["maxReceiveCount"], 5)
        self.assertEqual(redrive["deadLetterTargetArn"], {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]})

    def test_the_dead_letter_queue_serves_this_queue_only(self):
        allowed = self.dead_letters["RedriveAllowPolicy"]
        self.assertEqual(allowed["redrivePermission"], "byQueue")
        (source,) = allowed["sourceQueueArns"]
        self.assertTrue(source["Fn::Sub"].endswith(":" + self.queue["QueueName"]["Fn::Sub"]))

    def test_queues_are_encrypted(self):
        for queue in self.of_type("AWS::SQS::Queue"):
            self.assertIs(queue["SqsManagedSseEnabled"], True)

    def test_the_function_is_the_packaged_binary_on_its_own_runtime(self):
        properties = self.source["Resources"]["Function"]
        self.assertEqual(properties["Metadata"]["BuildProperties"]["Binary"], "requeue-lambda")
        self.assertEqual(self.function["Runtime"], "provided.al2023")
        self.assertEqual(self.parameters["Architecture"]["Default"], "arm64")

    def test_log_lines_are_json_and_kept_for_a_time(self):
        self.assertEqual(self.function["LoggingConfig"]["LogFormat"], "JSON")
        self.assertEqual(self.function["LoggingConfig"]["LogGroup"], {"Ref": "LogGroup"})
        self.assertIn("RetentionInDays", self.resources["LogGroup"]["Properties"])

    def test_without_optional_parameters_the_function_has_few_settings(self):
        expected = {
            "REQUEUE_TARGET_URL": "https://api.example.com/orders",
            "REQUEUE_TIMEOUT_SECONDS": "10",
            "REQUEUE_DEAD_LETTER": "annotate",
            "REQUEUE_RECURSIVE_LOOP": "Allow",
        }
        self.assertEqual(self.settings(TargetUrl="https://api.example.com/orders"), expected)

    def test_each_optional_parameter_arrives_as_its_setting(self):
        without = self.settings()
        for name, (variable, texts, _) in OPTIONAL.items():
            self.assertEqual(self.settings(**{name: texts[0]}), {**without, f"REQUEUE_{variable}": texts[0]})

    def test_all_optional_parameters_arrive_together(self):
        given = {name: texts[0] for name, (_, texts, _) in OPTIONAL.items()}
        expected = {f"REQUEUE_{variable}": texts[0] for variable, texts, _ in OPTIONAL.values()}
        self.assertEqual(self.settings(**given), {**self.settings(), **expected})

    def test_what_is_left_out_is_the_default_of_the_function(self):
        readme = (ROOT / "README.md").read_text()
        defaults = dict(re.findall(r"^\| `REQUEUE_(\w+)` \|.*\| (.*?) \|$", readme, re.MULTILINE))
        for name, (variable, *_) in OPTIONAL.items():
            default = str(self.parameters[name]["Default"])
            self.assertIn(default, ["", defaults[variable].strip("`")])

    def test_parameters_take_what_is_sound_and_refuse_what_is_not(self):
        table = {name: (good, bad) for name, (_, good, bad) in OPTIONAL.items()} | ARNS
        for name, (good, bad) in table.items():
            parameter = self.parameters[name]
            self.assertTrue(takes(parameter, str(parameter["Default"])), name)
            for text in good:
                self.assertTrue(takes(parameter, text), f"{name}: {text}")
            for text in bad:
                self.assertFalse(takes(parameter, text), f"{name}: {text}")

    def test_secrets_are_not_echoed(self):
        hidden = {name for name, parameter in self.parameters.items() if parameter.get("NoEcho")}
        self.assertEqual(hidden, {"Headers", "SigningSecret"})

    def test_the_console_shows_all_parameters_in_their_order(self):
        groups = self.source["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        self.assertEqual([name for group in groups for name in group["Parameters"]], list(self.parameters))

    def test_the_role_can_do_what_the_function_needs_and_nothing_else(self):
        (role,) = self.of_type("AWS::IAM::Role")
        self.assertNotIn("ManagedPolicyArns", role)
        of_queue = ["ReceiveMessage", "GetQueueAttributes", "DeleteMessage", "SendMessage", "ChangeMessageVisibility"]
        least = {
            json.dumps({"Fn::GetAtt": ["Queue", "Arn"]}): {f"sqs:{action}" for action in of_queue},
            json.dumps({"Fn::GetAtt": ["LogGroup", "Arn"]}): {"logs:CreateLogStream", "logs:PutLogEvents"},
        }
        self.assertEqual(self.granted(), least)
        self.assertEqual(self.granted(DeadLetterMode="redrive"), least)
        for given, more in [
            ({"DeadLetterMode": "direct"}, {json.dumps({"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}): {"sqs:SendMessage"}}),
            ({"SecretArns": f"{SECRET},{SECRET}2"}, {json.dumps([SECRET, f"{SECRET}2"]): {"secretsmanager:GetSecretValue"}}),
            ({"ParameterArns": PARAMETER}, {json.dumps([PARAMETER]): {"ssm:GetParameter"}}),
            ({"SecretKmsKeyArn": KEY}, {json.dumps(KEY): {"kms:Decrypt"}}),
        ]:
            self.assertEqual(self.granted(**given), {**least, **more})

    def test_no_statement_of_the_role_is_wide(self):
        given = {"DeadLetterMode": "direct", "SecretArns": SECRET, "ParameterArns": PARAMETER, "SecretKmsKeyArn": KEY}
        statements = self.granted(**given)
        self.assertEqual(len(statements), 6)
        for resource, actions in statements.items():
            self.assertNotIn("*", resource + "".join(actions))

    def test_the_function_knows_its_dead_letter_queue_where_it_sends_to_it(self):
        for mode in ("annotate", "redrive", "direct"):
            expected = {**self.settings(), "REQUEUE_DEAD_LETTER": mode}
            if mode == "direct":
                expected["REQUEUE_DEAD_LETTER_QUEUE_URL"] = {"Ref": "DeadLetterQueue"}
            self.assertEqual(self.settings(DeadLetterMode=mode), expected)


if __name__ == "__main__":
    unittest.main()
