"""The values and the lines that `docs/operate/deploy.md` shows for the template."""

import json
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

from samcli.cli.types import CfnParameterOverridesType
from samtranslator.yaml_helper import yaml_parse
from stack import ROOT

PAGE = (ROOT / "docs" / "operate" / "deploy.md").read_text()
SAM_CONFIG = (ROOT / "samconfig.toml").read_text()
# The line of the template before which a block of the page goes, and the block's indentation.
PLACES = [
    ("      Role: !GetAtt Role.Arn\n", 6),
    ("      AssumeRolePolicyDocument:\n", 6),
    ("  Queue:\n", 2),
    ("          REQUEUE_RECURSIVE_LOOP: Allow\n", 10),
]


def section(heading):
    return PAGE.partition(f"\n### {heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def blocks(heading, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.DOTALL | re.MULTILINE)


def parameters(values):
    """The parameters as SAM hands them to CloudFormation."""
    return CfnParameterOverridesType().convert(values, None, None)


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
        rule = {"match": {"status": 401}, "class": "TEMPORARY", "delaySeconds": 300}
        for policy in policies:
            self.assertEqual(policy["TargetUrl"], "https://api.example.com/orders")
            self.assertEqual(json.loads(policy["Policy"]), {"rules": [rule]})

    def test_the_template_with_a_vpc_lints_clean(self):
        text = (ROOT / "template.yaml").read_text()
        shown = blocks("A service in a VPC, and settings without a parameter", "yaml")
        self.assertEqual(len(shown), len(PLACES))
        for block, (line, indentation) in zip(shown, PLACES):
            self.assertEqual(text.count(f"\n{line}"), 1, line)
            lines = "".join(" " * indentation + text for text in block.splitlines(keepends=True))
            text = text.replace(f"\n{line}", f"\n{lines}{line}")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "template.yaml"
            path.write_text(text)
            command = [Path(sys.executable).parent / "cfn-lint", "--regions", "eu-west-1", "--template", path]
            self.assertEqual(subprocess.run(command, capture_output=True, text=True).stdout, "")


if __name__ == "__main__":
    unittest.main()
