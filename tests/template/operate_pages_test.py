"""The commands of the pages: all by their form; those in `docs/operate/` that change a deployment also in
version 1 of the AWS CLI and on an emulator.

Those on the emulator need $REQUEUE_TEST_MOTO (endpoint URL). `tests/run template` provides it.
"""

import os
import re
import shutil
import subprocess
import sys
import unittest
import uuid
from pathlib import Path

from created_test import MOTO, Emulator
from stack import KEY, ROOT, TOPIC, cloudformation, deployed, template

OPERATE = ROOT / "docs" / "operate"
# The AWS CLI beside this Python calls the emulator only if an argument names it.
BEFORE = 'set -euo pipefail\naws() { command aws --endpoint-url "$REQUEUE_TEST_MOTO" "$@"; }\n'


def blocks(page, heading):
    """The shell commands of a section, by block."""
    section = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,3}} |\Z)", (OPERATE / page).read_text(), re.DOTALL | re.MULTILINE)[2]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def run(script, **variables):
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        **{"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"},
        "REQUEUE_TEST_MOTO": MOTO,
        **variables,
    }
    done = subprocess.run(["bash", "-c", BEFORE + script], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Commands(unittest.TestCase):
    def test_each_deployment_names_its_stack(self):
        # samconfig.toml names none, except in a project where `--guided` has saved it.
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        commands = [
            (page.name, command)
            for page in pages
            # In a block, or behind another command. `sam deploy` alone is only the name of the command.
            for command in re.findall(r"(?:^ *|&& |`(?=sam deploy -))(sam deploy\b[^`\n]*)", page.read_text(), re.MULTILINE)
        ]
        self.assertGreater(len(commands), 10)
        nameless = [one for one in commands if "--stack-name " not in one[1] and "--guided" not in one[1]]
        self.assertEqual(nameless, [("rust-handler.md", 'sam deploy --parameter-overrides AlarmTopicArn="$TOPIC_ARN"')])

    def test_a_shell_block_means_the_same_in_an_interactive_zsh(self):
        # There, `#` begins no comment, and the `:l` of `$FUNCTION:live` asks for lower case.
        pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        texts = {page: (ROOT / page).read_text() for page in pages}
        lines = [
            (page, line)
            for page, text in texts.items()
            for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
            for line in block.splitlines()
        ]
        self.assertGreater(len(lines), 300)
        self.assertEqual([one for one in lines if re.search(r"(^|\s)#", one[1])], [])
        self.assertEqual([(page, name) for page, text in texts.items() for name in re.findall(r"\$\w+:[A-Za-z]\w*", text)], [])

    def test_the_names_that_the_runbook_makes_are_those_of_terraform(self):
        (line,) = re.findall(r"^FUNCTION=\$STACK .*$", (OPERATE / "runbook.md").read_text(), re.MULTILINE)
        made = {name: (url or value).replace("$STACK", "${var.name}") for name, url, value in re.findall(r'(\w+)=(?:\$\(url "([^"]+)"\)|(\S+))', line)}
        module = "".join((ROOT / "infra" / "terraform" / f"{name}.tf").read_text() for name in ("function", "queues"))
        self.assertEqual(made.pop("FUNCTION"), "${var.name}")
        self.assertRegex(module, r"function_name = var\.name\n")
        self.assertIn(f'"{made.pop("LOGS")}"', module)
        self.assertEqual(list(made), ["QUEUE", "DLQ"])
        for name in made.values():
            self.assertIn(f'"{name}${{local.suffix}}"', module)

    def test_the_emergency_levers_name_values_that_exist(self):
        text = (OPERATE / "runbook.md").read_text()
        levers = text[text.index("| lever") : text.index("### Stop all calls")]
        self.assertEqual(len(re.findall(r"^\| \[?(?:stop|call|change|switch|reserve) .*$", levers, re.MULTILINE)), 5)
        given = re.findall(r"`([A-Z]\w+)=\w+`", levers)
        self.assertEqual(given, ["MaximumConcurrency", "Mode", "ReserveConcurrency"])
        self.assertLessEqual(set(given), set(template()["Parameters"]))
        self.assertIn('variable "enabled"', (ROOT / "infra/terraform/options.tf").read_text())


@unittest.skipUnless(MOTO, "REQUEUE_TEST_MOTO is not set; run `tests/run template`")
class OnAnEmulator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.moto = Emulator(MOTO)

    def parameters(self, name):
        (stack,) = self.moto.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        return {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}

    @unittest.skipUnless(shutil.which("jq"), "jq is not installed")
    def test_the_function_of_the_runbook_changes_one_parameter_to_any_text(self):
        parameters = template()["Parameters"]
        # One resource, and texts only: the emulator cannot evaluate the template's conditions, and shows
        # lists and hidden values in other forms.
        small = {
            "Parameters": {name: {"Type": "String"} for name in parameters},
            "Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": uuid.uuid4().hex}}},
        }
        expected = {name: str(parameter.get("Default", "https://api.example.com/orders")) for name, parameter in parameters.items()}
        name, _ = self.moto.create(small, **expected)
        (commands,) = [block for block in blocks("runbook.md", "Change one setting") if block.startswith("parameter()")]
        definition, example = re.fullmatch(r"(parameter\(\) \{\n.*\n\}\n)(.*\n)", commands, re.DOTALL).groups()
        self.assertEqual(example, "parameter MemorySize 512\n")
        for key, value in [
            ("Policy", '{"rules": [{"match": {"text": "it\'s [a], \\"b=c\\""}, "class": "TEMPORARY"}]}'),
            ("OtherKmsKeyArns", f"{KEY},{KEY.replace('1234', '5678')}"),
            ("OtherKmsKeyArns", ""),
        ]:
            run(f'{definition}parameter "$KEY" "$VALUE"', STACK=name, KEY=key, VALUE=value)
            expected[key] = value
            self.assertEqual(self.parameters(name), expected, key)

    def test_the_alarms_of_the_page_are_those_of_the_template(self):
        (commands,) = [block for block in blocks("monitoring.md", "In a deployment without the template") if "put-metric-alarm" in block]
        name = f"orders-{uuid.uuid4().hex[:8]}"
        run(commands, NAME=name, TOPIC=TOPIC)
        made = self.moto.client("cloudwatch").describe_alarms(AlarmNamePrefix=name)["MetricAlarms"]
        self.assertEqual([alarm["AlarmName"] for alarm in made], [f"{name}-dead-letters", f"{name}-message-age"])
        names = {"Ref": {"Function": name}, "Fn::GetAtt": {"Queue": f"{name}-messages", "DeadLetterQueue": f"{name}-dead-letters"}}

        def plain(node):
            """The template's alarm with the names of the page, and with all metrics in one form."""
            match node:
                case {"Ref": name}:
                    return names["Ref"][name]
                case {"Fn::GetAtt": [name, _]}:
                    return names["Fn::GetAtt"][name]
                case dict():
                    return {key: plain(value) for key, value in node.items()}
                case list():
                    return [plain(value) for value in node]
                case _:
                    return node

        alarms = deployed(cloudformation())
        for alarm, of in zip(made, ("DeadLettersAlarm", "MessageAgeAlarm"), strict=True):
            expected = {key: value for key, value in plain(alarms[of]["Properties"]).items() if key not in ("AlarmDescription", "OKActions")}
            expected["AlarmActions"] = [TOPIC]
            found = {key: alarm.get(key) for key in expected}
            self.assertEqual(found, expected, of)


if __name__ == "__main__":
    unittest.main()
