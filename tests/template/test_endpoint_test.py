"""The stack of `examples/test-endpoint`. Its code runs in `tests/deployed_test.py`."""

import unittest

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse
from stack import ROOT, NoManagedPolicies, lint

PATH = ROOT / "examples" / "test-endpoint" / "template.yaml"


class TestEndpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = transform(yaml_parse(PATH.read_text()), {}, NoManagedPolicies())

    def test_cfn_lint_finds_nothing(self):
        self.assertEqual(lint(self.template), "")

    def test_anybody_may_call_its_url_and_nothing_else(self):
        permissions = [resource["Properties"] for resource in self.template["Resources"].values() if resource["Type"] == "AWS::Lambda::Permission"]
        # Since October 2025 a function URL needs both.
        by_action = {permission["Action"]: permission for permission in permissions}
        self.assertEqual(set(by_action), {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"})
        self.assertEqual(by_action["lambda:InvokeFunctionUrl"]["FunctionUrlAuthType"], "NONE")
        self.assertIs(by_action["lambda:InvokeFunction"]["InvokedViaFunctionUrl"], True)

    def test_its_only_output_is_the_target_url(self):
        # The page takes the first output.
        self.assertEqual(list(self.template["Outputs"]), ["TargetUrl"])


if __name__ == "__main__":
    unittest.main()
