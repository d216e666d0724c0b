#!/usr/bin/env python3
"""The commands of `docs/project/migration.md` for the same queue: bash runs them on an emulator, forth and back, and no
message is lost or handled twice.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), the AWS CLI beside this Python, jq, and the build of `deployed_test.py`.
`tests/run deployed` provides all of it.
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import boto3

from deployed_test import ARCHITECTURE, BUILD, ENDPOINT, ROOT, wait_for, zipped

PAGE = ROOT / "docs" / "project" / "migration.md"
# Names of the page's first block of commands.
REGION, NAME, OLD = re.search(r"^export AWS_REGION=(\S+) .*NAME=(\S+) OLD=(\S+)$", PAGE.read_text(), re.MULTILINE).groups()
QUEUES = ["orders-dlq", "orders"]
ARN = f"arn:aws:sqs:{REGION}:000000000000:"

# Version 1 of the AWS CLI calls the real SQS unless an argument names the endpoint. Status 3 of the doctor is a finding.
# Without a terminal there is no question, and the emulator does not know ListDeadLetterSourceQueues.
BEFORE = """set -euo pipefail
aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"; }
requeue() {
  case "$*" in "dlq import "*) set -- "$@" --yes ;; "dlq discard "*) set -- "$@" --yes --any-queue ;; esac
  command requeue "$@" || [[ "$? $1" = "3 doctor" ]]
}
"""

# Writes each record to a file. Requeue's records have attributes of its own.
CHARGE = """\
import json, os
def handler(event, context):
    failed = []
    with open(os.environ["FILE"], "a") as file:
        for record in event["Records"]:
            file.write(json.dumps([record["body"], "RequeueAttempt" in record["attributes"]]) + "\\n")
            if record["body"] == "invalid":
                failed.append({"itemIdentifier": record["messageId"], "class": "non-retryable"})
    return {"batchItemFailures": failed}
"""


def blocks(page, section):
    """The shell commands of a section, by block."""
    text = re.search(rf"^{section}\n(.*?)(?:^##+ )", page.read_text(), re.DOTALL | re.MULTILINE)[1]
    return [block for _, block in re.findall(r"^( *)```sh\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)]


def run_commands(*blocks, directory=ROOT):
    environment = {
        "PATH": os.pathsep.join([str(ROOT / "target" / "debug"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(directory),
        "AWS_ENDPOINT_URL": ENDPOINT,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "SAM_CLI_TELEMETRY": "0",
    }
    script = BEFORE + "".join(blocks)
    done = subprocess.run(["bash", "-c", script], cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{done.stdout}{done.stderr}")
    return done.stdout


class Migration(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client = lambda service: boto3.client(
            service, endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
        )
        cls.sqs, cls.functions = client("sqs"), client("lambda")
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = Path(directory.name)
        (cls.directory / "infra").symlink_to(ROOT / "infra")
        package = cls.directory / "target" / "lambda" / "requeue-lambda"
        package.mkdir(parents=True)
        (package / "bootstrap.zip").write_bytes(zipped(BUILD / "Function" / "bootstrap"))
        cls.handled = cls.directory / "handled"
        cls.handled.touch()
        redrive = json.dumps({"deadLetterTargetArn": f"{ARN}orders-dlq", "maxReceiveCount": 3})
        attributes = [{}, {"VisibilityTimeout": "90", "RedrivePolicy": redrive}]
        urls = [cls.sqs.create_queue(QueueName=name, Attributes=own)["QueueUrl"] for name, own in zip(QUEUES, attributes)]
        cls.dead_letters, cls.queue = urls
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("charge.py", CHARGE)
        cls.functions.create_function(
            FunctionName=OLD,
            Runtime="python3.11",
            Handler="charge.handler",
            Role="arn:aws:iam::000000000000:role/charge",
            Code={"ZipFile": code.getvalue()},
            Timeout=70,
            Environment={"Variables": {"FILE": str(cls.handled)}},
        )
        mapping = cls.functions.create_event_source_mapping(
            FunctionName=OLD, EventSourceArn=f"{ARN}orders", BatchSize=5, FunctionResponseTypes=["ReportBatchItemFailures"]
        )
        cls.addClassCleanup(lambda: [cls.sqs.delete_queue(QueueUrl=url) for url in urls])
        cls.addClassCleanup(cls.functions.delete_function, FunctionName=OLD)
        cls.addClassCleanup(cls.functions.delete_event_source_mapping, UUID=mapping["UUID"])

    def run_commands(self, *blocks):
        return run_commands(*blocks, directory=self.directory)

    def of_queue(self):
        names = ["VisibilityTimeout", "RedrivePolicy"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return {**attributes, "RedrivePolicy": json.loads(attributes["RedrivePolicy"])}

    def mapping(self, function):
        (mapping,) = self.functions.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
        return mapping["State"], mapping["BatchSize"]

    def send(self, *bodies):
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)

    def handles(self, body, by_requeue):
        """The function gets the message once."""
        calls = lambda: [is_retried for one, is_retried in map(json.loads, self.handled.read_text().splitlines()) if one == body]
        wait_for(f"a call for {body}", calls)
        self.assertEqual(calls(), [by_requeue], body)

    def dead(self):
        found = self.sqs.get_queue_attributes(QueueUrl=self.dead_letters, AttributeNames=["ApproximateNumberOfMessages"])
        return int(found["Attributes"]["ApproximateNumberOfMessages"])

    def test_the_queue_goes_to_requeue_and_back(self):
        before = self.of_queue()
        self.send("before")
        self.handles("before", by_requeue=False)

        # `sam build` has built the same program, and the function runs on this machine.
        names, values, *steps = blocks(PAGE, "### The same queue, step by step")
        script = "".join(steps)
        build = "cargo lambda build --release --arm64 -p requeue-lambda --output-format zip\n"
        for stands in (build, "--architectures arm64"):
            self.assertEqual(script.count(stands), 1, stands)
        script = script.replace(build, "").replace("--architectures arm64", f"--architectures {ARCHITECTURE}")
        shown = self.run_commands(names, values, script)
        first, second = re.findall(r"^function .*?^\d+ danger.*?$", shown, re.DOTALL | re.MULTILINE)
        self.assertRegex(first, r"(?m)^warning +mapping-enabled ")
        self.assertRegex(first, r"\n0 danger, \d+ warning, 0 unknown, \d+ ok$")
        self.assertRegex(second, r"\n0 danger, \d+ warning, 0 unknown, \d+ ok$")
        self.assertRegex(first, r"\nok +target-permissions .*\n(.*\n)*ok +queue-permissions ")
        self.assertEqual((self.mapping(OLD)[0], self.mapping(NAME)), ("Disabled", ("Enabled", 5)))
        self.assertEqual(self.functions.get_function_configuration(FunctionName=NAME)["Timeout"], 90)
        self.assertEqual((self.of_queue()["VisibilityTimeout"], self.of_queue()["RedrivePolicy"]["maxReceiveCount"]), ("540", 100))
        self.send("meanwhile", "invalid")
        self.handles("meanwhile", by_requeue=True)
        wait_for("a dead letter", lambda: self.dead() == 1)

        self.run_commands(names, *blocks(PAGE, "### Change to copy"))
        variables = self.functions.get_function_configuration(FunctionName=NAME)["Environment"]["Variables"]
        self.assertEqual((variables["REQUEUE_STRATEGY"], variables["REQUEUE_TARGET_FUNCTION"], len(variables)), ("copy", OLD, 5))

        # In a new shell, as the page says: the file keeps the first values.
        (found,) = re.findall(r"`(NEW_MAPPING=[^`]*)`", PAGE.read_text())
        self.run_commands(names, values, f"{found}\n", *blocks(PAGE, "### Go back on the same queue"))
        self.assertEqual((self.mapping(OLD)[0], self.of_queue()), ("Enabled", before))
        with self.assertRaises(self.functions.exceptions.ResourceNotFoundException):
            self.functions.get_function_configuration(FunctionName=NAME)
        self.send("after")
        self.handles("after", by_requeue=False)
        self.handles("before", by_requeue=False)
        self.handles("meanwhile", by_requeue=True)

        self.handled.write_text("")
        self.run_commands(names, *blocks(PAGE, "### Dead letters"))
        self.handles("invalid", by_requeue=False)


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
