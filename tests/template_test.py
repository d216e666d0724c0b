#!/usr/bin/env python3
"""What the template must say, and no linter sees: linters look neither into SAM's resources nor at what AWS recommends.

Needs aws-sam-translator and cfn-lint (`tests/requirements-sam.txt`).
"""

import copy
import json
import os
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


class Template(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template()
        cls.parameters = cls.source["Parameters"]
        cls.resources = translated(cls.source)["Resources"]
        (cls.mapping,) = cls.of_type("AWS::Lambda::EventSourceMapping")
        cls.function = cls.resources["Function"]["Properties"]
        cls.queue = cls.resources["Queue"]["Properties"]
        cls.dead_letters = cls.resources["DeadLetterQueue"]["Properties"]

    @classmethod
    def of_type(cls, kind):
        return [resource["Properties"] for resource in cls.resources.values() if resource["Type"] == kind]

    def test_the_translated_template_lints_clean(self):
        self.assertEqual(lint(translated(self.source)), "")

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
        (rule,) = self.source["Rules"].values()
        self.assertEqual(rule["RuleCondition"], {"Fn::Equals": [{"Ref": "BatchingWindow"}, "0"]})
        (assertion,) = rule["Assertions"]
        sizes = [str(size) for size in range(1, 11)]
        self.assertEqual(assertion["Assert"], {"Fn::Contains": [sizes, {"Ref": "BatchSize"}]})
        self.assertEqual(self.mapping["BatchSize"], {"Ref": "BatchSize"})
        self.assertLessEqual(self.parameters["BatchSize"]["Default"], 10)

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

    def test_the_role_can_do_what_the_function_needs_and_nothing_else(self):
        (role,) = self.of_type("AWS::IAM::Role")
        self.assertNotIn("ManagedPolicyArns", role)
        granted = {}
        for policy in role["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                self.assertEqual(statement["Effect"], "Allow")
                self.assertNotIn("*", json.dumps(statement["Action"]) + json.dumps(statement["Resource"]))
                granted.setdefault(json.dumps(statement["Resource"]), set()).update(statement["Action"])
        of_queue = ["ReceiveMessage", "GetQueueAttributes", "DeleteMessage", "SendMessage", "ChangeMessageVisibility"]
        expected = {
            json.dumps({"Fn::GetAtt": ["Queue", "Arn"]}): {f"sqs:{action}" for action in of_queue},
            json.dumps({"Fn::GetAtt": ["LogGroup", "Arn"]}): {"logs:CreateLogStream", "logs:PutLogEvents"},
        }
        self.assertEqual(granted, expected)


if __name__ == "__main__":
    unittest.main()
