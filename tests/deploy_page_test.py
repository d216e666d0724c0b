#!/usr/bin/env python3
"""The commands of `docs/operate/deploy.md`: bash runs them on an emulator, and messages go through the result.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), the AWS CLI beside this Python, and the build of
`deployed_test.py`. `tests/run deployed` provides all of it.
"""

import contextlib
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
from botocore.exceptions import ClientError

from deployed_test import ARCHITECTURE, BUILD, ENDPOINT, ROOT, Target, order, wait_for

PAGE = ROOT / "docs" / "operate" / "deploy.md"
# Names on the page.
REGION, NAME = "eu-west-1", "orders"
QUEUES = [f"{NAME}-messages", f"{NAME}-dead-letters"]

# Version 1 of the AWS CLI calls the real SQS unless an argument names the endpoint.
BEFORE = 'set -euo pipefail\naws() { command aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"; }\n'


def commands(section):
    """The shell commands of a section."""
    text = re.search(rf"^## {section}\n(.*?)(?:^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
    return "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def deploying(target):
    """The commands that deploy, with the differences of this test."""
    script = commands("cargo-lambda and the AWS CLI")
    for stands, runs in [
        # Left out: `sam build` has built the same program.
        ("cargo lambda build --release --arm64 -p requeue-lambda --output-format zip\n", ""),
        # The function runs on this machine.
        ("--architectures arm64", f"--architectures {ARCHITECTURE}"),
        # No message leaves this machine.
        ("https://api.example.com/orders", target),
    ]:
        if script.count(stands) != 1:
            raise RuntimeError(f"{PAGE.name} has {script.count(stands)} times: {stands}")
        script = script.replace(stands, runs)
    return script


class DeployPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client = lambda service: boto3.client(
            service, endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
        )
        cls.sqs, cls.functions, cls.iam, cls.logs = (client(service) for service in ("sqs", "lambda", "iam", "logs"))
        cls.target = Target()
        cls.addClassCleanup(cls.target.close)
        # The reader's directory: the parts of the repository that the commands use.
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        repository = Path(directory.name)
        (repository / "infra").symlink_to(ROOT / "infra")
        package = repository / "target" / "lambda" / "requeue-lambda"
        package.mkdir(parents=True)
        with zipfile.ZipFile(package / "bootstrap.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(BUILD / "Function" / "bootstrap", "bootstrap")
        cls.addClassCleanup(cls.remove)
        # Without this machine's configuration of AWS, so that no other account or endpoint is called.
        cls.environment = {
            "PATH": os.pathsep.join([str(ROOT / "target" / "debug"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": directory.name,
            "AWS_ENDPOINT_URL": ENDPOINT,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        cls.shown = cls.run_commands(deploying(cls.target.url), repository)
        cls.queue, cls.dead_letters = map(cls.url, QUEUES)
        cls.addClassCleanup(cls.remove_as_the_page_does)

    @classmethod
    def run_commands(cls, script, directory):
        done = subprocess.run(
            ["bash", "-c", BEFORE + script], cwd=directory, env=cls.environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{PAGE.name}, status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    @classmethod
    def remove_as_the_page_does(cls):
        names = f"export AWS_DEFAULT_REGION={REGION} NAME={NAME} QUEUE={cls.queue} DLQ={cls.dead_letters}\n"
        cls.run_commands(names + commands("Remove"), ROOT)
        left = [queue for queue in cls.sqs.list_queues().get("QueueUrls", []) if queue in (cls.queue, cls.dead_letters)]
        if left or cls.functions.list_event_source_mappings(FunctionName=NAME)["EventSourceMappings"]:
            raise RuntimeError(f"{PAGE.name} leaves something behind: {left}")

    @classmethod
    def url(cls, queue):
        return cls.sqs.get_queue_url(QueueName=queue)["QueueUrl"]

    @classmethod
    def remove(cls):
        """Removes all that the page made and did not remove itself."""

        def delete_mappings():
            for mapping in cls.functions.list_event_source_mappings(FunctionName=NAME)["EventSourceMappings"]:
                cls.functions.delete_event_source_mapping(UUID=mapping["UUID"])

        for step in [
            delete_mappings,
            lambda: cls.functions.delete_function(FunctionName=NAME),
            *(lambda queue=queue: cls.sqs.delete_queue(QueueUrl=cls.url(queue)) for queue in QUEUES),
            lambda: cls.iam.delete_role_policy(RoleName=NAME, PolicyName="requeue"),
            lambda: cls.iam.delete_role(RoleName=NAME),
            lambda: cls.logs.delete_log_group(logGroupName=f"/aws/lambda/{NAME}"),
        ]:
            with contextlib.suppress(ClientError):
                step()

    def send(self, body):
        return self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)["MessageId"]

    def calls(self, name, count):
        calls = lambda: self.target.called(f"A-{name}")
        wait_for(f"call {count} for {name}", lambda: len(calls()) >= count)
        return calls()

    def test_a_message_reaches_the_endpoint(self):
        body = order("page-ok", "ok")
        message_id = self.send(body)
        (call,) = self.calls("page-ok", 1)
        self.assertEqual((call["body"], call["headers"]["idempotency-key"]), (body.encode(), message_id))

    def test_a_message_that_fails_is_retried(self):
        body = order("page-retried", "unavailable", "ok")
        self.send(body)
        calls = self.calls("page-retried", 2)
        self.assertEqual([(call["body"], call["answer"]) for call in calls], [(body.encode(), "unavailable"), (body.encode(), "ok")])

    def test_a_message_that_is_refused_ends_in_the_dead_letter_queue(self):
        message_id = self.send(order("page-refused", "invalid"))
        received = lambda: self.sqs.receive_message(QueueUrl=self.dead_letters, WaitTimeSeconds=1).get("Messages")
        (dead,) = wait_for("a dead letter", received, 60)
        members = json.loads(dead["Body"])
        self.assertEqual((members["orderId"], members["originalMessageId"]), ("A-page-refused", message_id))
        self.assertEqual(members["retryState"]["deadLetter"]["class"], "non-retryable")
        self.assertEqual(len(self.target.called("A-page-refused")), 1)

    def test_the_doctor_finds_nothing_wrong_but_the_alarms_that_another_page_adds(self):
        # The doctor is the last command.
        self.assertRegex(self.shown.splitlines()[-1], r"^0 danger, 2 warning, 0 unknown, \d+ ok$", self.shown)
        self.assertEqual(re.findall(r"^warning +(\S+)", self.shown, re.MULTILINE), ["dead-letter-alarm", "age-alarm"])

    def test_the_policy_names_the_queue_and_the_log_group(self):
        policy = self.iam.get_role_policy(RoleName=NAME, PolicyName="requeue")["PolicyDocument"]
        group = self.logs.describe_log_groups(logGroupNamePrefix=f"/aws/lambda/{NAME}")["logGroups"][0]
        queue = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.assertEqual([statement["Resource"] for statement in policy["Statement"]], [queue, group["arn"]])


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
