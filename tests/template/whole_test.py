"""The template as a whole. Linters look neither into SAM's resources nor behind conditions."""

import itertools
import unittest

from stack import EVERYTHING, ROOT, cloudformation, deployed, lint, made, references, template, translated


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template()
        cls.translated = cloudformation()

    def test_the_translated_template_lints_clean(self):
        self.assertEqual(lint(self.translated), "")

    def test_what_there_is_with_all_optional_parameters_lints_clean(self):
        given = {"TargetUrl": "https://api.example.com/orders", **EVERYTHING}
        everything = {
            "Resources": deployed(self.translated, **given),
            "Outputs": made(self.translated, "Outputs", **given),
        }
        self.assertEqual(lint(everything), "")

    def test_the_lint_sees_into_the_function(self):
        broken = template()
        broken["Resources"]["Function"]["Properties"]["Runtime"] = "provided.al2022"
        self.assertIn("provided.al2022", lint(translated(broken)))

    def test_nothing_refers_to_what_is_not_there(self):
        alone = [{name: value} for name, value in EVERYTHING.items()]
        without_one = [{other: EVERYTHING[other] for other in EVERYTHING if other != name} for name in EVERYTHING]
        choices = [{}, *alone, *without_one, EVERYTHING]
        for monitoring, choice in itertools.product(self.source["Parameters"]["Monitoring"]["AllowedValues"], choices):
            given = {"Monitoring": monitoring, **choice}
            resources = deployed(self.translated, **given)
            known = set(resources) | set(self.translated["Parameters"])
            parts = {**resources, "Outputs": made(self.translated, "Outputs", **given)}
            for name, part in parts.items():
                dangling = {reference for reference in references(part) if not reference.startswith("AWS::")} - known
                self.assertEqual(dangling, set(), f"{name} with {given}")

    def test_every_parameter_and_condition_is_used(self):
        used = set(references([self.translated[part] for part in ("Resources", "Conditions", "Rules", "Outputs")]))
        self.assertEqual(set(self.source["Parameters"]) - used, set())
        text = (ROOT / "template.yaml").read_text()
        for condition in self.source["Conditions"]:
            self.assertGreater(text.count(condition), 1, condition)

    def test_the_queues_are_exported_under_the_name_of_the_stack(self):
        outputs = made(self.translated, "Outputs")
        exports = {name: output["Export"]["Name"]["Fn::Sub"] for name, output in outputs.items() if "Export" in output}
        names = ["QueueUrl", "QueueArn", "DeadLetterQueueUrl", "DeadLetterQueueArn"]
        self.assertEqual(exports, {name: f"${{AWS::StackName}}-{name}" for name in names})
        self.assertEqual(outputs["QueueUrl"]["Value"], {"Ref": "Queue"})
        self.assertEqual(outputs["QueueArn"]["Value"], {"Fn::GetAtt": ["Queue", "Arn"]})
        self.assertEqual(outputs["DeadLetterQueueUrl"]["Value"], {"Ref": "DeadLetterQueue"})
        self.assertEqual(outputs["DeadLetterQueueArn"]["Value"], {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]})

    def test_dashboard_and_alarm_topic_are_outputs_where_they_are(self):
        for given, expected in [
            ({}, {"DashboardUrl"}),
            ({"Monitoring": "alarms"}, set()),
            ({"Monitoring": "alarms", "AlarmEmail": "a@example.com"}, {"AlarmTopicArn"}),
        ]:
            self.assertEqual(set(made(self.translated, "Outputs", **given)) & {"DashboardUrl", "AlarmTopicArn"}, expected)
