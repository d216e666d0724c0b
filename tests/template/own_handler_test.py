"""The template of `examples/own-handler`: the properties that a function of your own must keep."""

import json
import re
import unittest

from samtranslator.yaml_helper import yaml_parse
from stack import ROOT, lint, lint_file, template, translated

PATH = ROOT / "examples" / "own-handler" / "template.yaml"


class OwnHandler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = yaml_parse(PATH.read_text())
        cls.resources = cls.source["Resources"]
        cls.function = cls.resources["Function"]["Properties"]

    def test_it_lints_clean_as_it_is_and_translated(self):
        self.assertEqual(lint_file(PATH), "")
        self.assertEqual(lint(translated(self.source)), "")

    def test_it_is_short(self):
        self.assertLessEqual(len(PATH.read_text().splitlines()), 100)

    def test_the_queues_are_as_a_function_of_this_timeout_needs_them(self):
        queue, dead_letters = (self.resources[name]["Properties"] for name in ("Queue", "DeadLetterQueue"))
        self.assertGreaterEqual(queue["VisibilityTimeout"], 6 * self.function["Timeout"])
        self.assertGreaterEqual(queue["RedrivePolicy"]["maxReceiveCount"], 5)
        self.assertEqual(queue["RedrivePolicy"]["deadLetterTargetArn"], {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]})
        self.assertEqual(dead_letters["MessageRetentionPeriod"], 14 * 86_400)

    def test_a_deleted_stack_leaves_both_queues(self):
        for name in ("Queue", "DeadLetterQueue"):
            self.assertEqual(self.resources[name]["DeletionPolicy"], "RetainExceptOnCreate")
            self.assertEqual(self.resources[name]["UpdateReplacePolicy"], "Retain")

    def test_its_alarms_are_those_of_the_ready_lambdas_template_that_the_doctor_asks_for(self):
        """But for their texts, and who is told."""
        ready = template()["Resources"]
        alarms = {name for name, resource in self.resources.items() if resource["Type"] == "AWS::CloudWatch::Alarm"}
        self.assertEqual(alarms, {"DeadLettersAlarm", "MessageAgeAlarm"})
        for name in alarms:
            own, of_ready = ({**resources[name]["Properties"]} for resources in (self.resources, ready))
            for properties in (own, of_ready):
                for text in ("AlarmDescription", "AlarmActions", "OKActions", "Threshold"):
                    properties.pop(text, None)
            self.assertEqual(own, of_ready)

    def test_the_function_says_which_messages_failed_and_may_send_to_its_own_queue(self):
        (event,) = self.function["Events"].values()
        self.assertEqual(event["Properties"]["FunctionResponseTypes"], ["ReportBatchItemFailures"])
        self.assertEqual(event["Properties"]["Queue"], {"Fn::GetAtt": ["Queue", "Arn"]})
        self.assertEqual(self.function["RecursiveLoop"], "Allow")
        self.assertEqual(self.function["Environment"]["Variables"]["REQUEUE_RECURSIVE_LOOP"], "Allow")

    def test_the_role_may_do_what_the_ready_lambdas_role_may_do_and_nothing_else(self):
        def allowed(document, values):
            text = json.dumps(document)
            for name, value in values.items():
                text = text.replace(json.dumps(value), json.dumps(name))
            return {(action, statement["Resource"]) for statement in json.loads(text)["Statement"] for action in statement["Action"]}

        (policy,) = self.resources["Role"]["Properties"]["Policies"]
        own = allowed(policy["PolicyDocument"], {f"${{{name}.Arn}}": {"Fn::GetAtt": [name, "Arn"]} for name in ("Queue", "LogGroup")})
        ready = json.loads((ROOT / "infra" / "policies" / "function.json").read_text())
        self.assertEqual(own, allowed(ready, {}))
        self.assertNotIn("ManagedPolicyArns", self.resources["Role"]["Properties"])
        self.assertEqual(self.function["Role"], {"Fn::GetAtt": ["Role", "Arn"]})

    def test_its_settings_and_names_are_those_of_the_ready_lambdas_template(self):
        ready = template()
        names = {name for name in self.resources} | set(self.source["Outputs"])
        self.assertEqual(names - set(ready["Resources"]) - set(ready["Outputs"]), set())
        settings = set(self.function["Environment"]["Variables"])
        self.assertLessEqual(settings, set(ready["Resources"]["Function"]["Properties"]["Environment"]["Variables"]))

    def test_the_binary_is_the_packages(self):
        manifest = (PATH.parent / "Cargo.toml").read_text()
        name = re.search(r'^name = "(.*)"$', manifest, re.MULTILINE)[1]
        self.assertEqual(self.resources["Function"]["Metadata"]["BuildProperties"], {"Binary": name})

    def test_cargo_lambda_leaves_a_panic_to_one_message(self):
        # Without this line, cargo-lambda builds with `panic = "abort"`.
        self.assertIn('\nprofile.release.panic = "unwind"', (PATH.parent / "Cargo.toml").read_text())


if __name__ == "__main__":
    unittest.main()
