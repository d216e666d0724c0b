#!/usr/bin/env python3
"""Functions as targets, on an emulator: SAM deploys each with the template of `requeue new`, in which Requeue is nested.

The functions obey their messages. Lambda's own runtime interface clients run them, since the emulator's lose the type of
an exception. After deployed_test.py, whose built application is the nested one.

Left to the tests of `requeue invoke --target`, since the emulator cannot do it: a response that is no JSON (the emulator
makes a JSON text of it), and a function that runs out of memory (no memory is limited).

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), $REQUEUE_TEST_RUNTIME_PYTHON (a Python with awslambdaric and Powertools),
$REQUEUE_TEST_RUNTIME_NODE (Node, beside tests/runtimes/node_modules), and sam on the PATH. `tests/run deployed` provides
them.
"""

import concurrent.futures
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from deployed_test import (
    ARCHITECTURE,
    BUILD,
    ENDPOINT,
    POLICY,
    ROOT,
    Queue,
    Target,
    Words,
    aws,
    order,
    requeue,
    run,
    steps_of_first_hour,
    wait_for,
    zipped,
)

sys.path.append(str(ROOT / "tests" / "template"))
import stack

TEMPLATE = ROOT / "crates" / "requeue-cli" / "templates" / "function.yaml"
# The function's own timeout, in seconds.
TIMEOUT = 2

# Whole responses, and items of a list, by the words that ask for them. Both functions read them.
ANSWERS = {
    "responses": json.loads((ROOT / "tests" / "runtimes" / "responses.json").read_text()),
    "items": {
        "fail": {},
        "quota": {"class": "QUOTA", "reason": "back-at-nine"},
        "refuse": {"class": "NON_RETRYABLE", "reason": "invalid-order"},
    },
}

# Asks the test for the word of each record, and then does what the words say.
IN_PYTHON = """\
import json
import os
import time
import urllib.request
from pathlib import Path

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text())

class BankClosed(Exception):
    pass

class ThrottlingException(Exception):
    pass

def word(record):
    names = ["RequeueAttempt", "RequeueLastAttempt", "ApproximateReceiveCount"]
    headers = {"messageId": record["messageId"], **{name: record["attributes"][name] for name in names}}
    request = urllib.request.Request(os.environ["URL"], record["body"].encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()

def act(said):
    if "throw" in said:
        raise BankClosed("back-at-nine")
    if "throttle" in said:
        raise ThrottlingException("slow down")
    if "hang" in said:
        time.sleep(60)
    if "exit" in said:
        os._exit(3)

def plain(event, context):
    words = {record["messageId"]: word(record) for record in event["Records"]}
    act(words.values())
    responses, items = ANSWERS["responses"], ANSWERS["items"]
    for one in words.values():
        if one in responses:
            return responses[one]
    return {"batchItemFailures": [{"itemIdentifier": id, **items[one]} for id, one in words.items() if one in items]}

def handle(record):
    one = word(record.raw_event)
    act([one])
    if one != "ok":
        raise BankClosed("back-at-nine")

def powertools(event, context):
    return process_partial_response(event, handle, BatchProcessor(EventType.SQS), context)
"""

IN_NODE = """\
import { readFileSync } from "node:fs";

const { responses, items } = JSON.parse(readFileSync(new URL("answers.json", import.meta.url)));

class BankClosed extends Error {
  name = "BankClosed";
}

async function word(record) {
  const headers = { messageId: record.messageId };
  for (const name of ["RequeueAttempt", "RequeueLastAttempt", "ApproximateReceiveCount"]) headers[name] = record.attributes[name];
  const answer = await fetch(process.env.URL, { method: "POST", headers, body: record.body });
  return answer.text();
}

export async function plain(event) {
  const words = new Map();
  for (const record of event.Records) words.set(record.messageId, await word(record));
  const said = [...words.values()];
  if (said.includes("throw")) throw new BankClosed("back-at-nine");
  if (said.includes("hang")) await new Promise((done) => setTimeout(done, 60_000));
  if (said.includes("exit")) process.exit(3);
  for (const one of said) if (one in responses) return responses[one];
  const failed = [...words].filter(([, one]) => one in items);
  return { batchItemFailures: failed.map(([id, one]) => ({ itemIdentifier: id, ...items[one] })) };
}
"""


def nested(stack_name, path):
    """Writes the template of Requeue with the built function. Translated, since the emulator nests no template of SAM."""
    template = stack.template()
    template["Resources"]["Function"]["Properties"].update(CodeUri=f"s3://{stack_name}/function", Architectures=[ARCHITECTURE])
    path.write_text(json.dumps(stack.translated(template)))
    aws("s3").create_bucket(Bucket=stack_name)
    aws("s3").put_object(Bucket=stack_name, Key="function", Body=zipped(BUILD / "Function" / "bootstrap"))


def project(made, directory):
    """Writes the function, and the template of `requeue new` with settings with which a test ends in seconds."""
    function = directory / "function"
    function.mkdir()
    (function / "app.py").write_text(IN_PYTHON)
    (function / "app.mjs").write_text(IN_NODE)
    (function / "answers.json").write_text(json.dumps(ANSWERS))
    bootstrap = function / "bootstrap"
    bootstrap.write_text(f"#!/bin/sh\nexec {made.runtime()} app.{made.HANDLER}\n")
    bootstrap.chmod(0o755)
    properties = f"""    Properties:
      CodeUri: function
      Handler: app.{made.HANDLER}
      Runtime: provided.al2023
      Architectures: [{ARCHITECTURE}]
      Timeout: {TIMEOUT}
      Environment: {{ Variables: {{ URL: "{made.target.url}" }} }}
"""
    policy = {**POLICY, "circuitBreaker": "off", "maxPauseSeconds": "off"}
    parameters = f"""        FunctionTimeout: "30"
        DeadLetterMode: direct
        # The emulator does not support alarms on expressions.
        Monitoring: none
        Policy: '{json.dumps(policy)}'
{made.PARAMETERS}"""
    source = TEMPLATE.read_text()
    for stands, takes_its_place in [
        ("    # Properties\n      Timeout: 30\n", properties),
        ("Location: requeue/template.yaml", "Location: requeue.json"),
        ('        FunctionTimeout: "60"\n', parameters),
    ]:
        if source.count(stands) != 1:
            raise RuntimeError(f"{TEMPLATE.name} has {source.count(stands)} times: {stands}")
        source = source.replace(stands, takes_its_place)
    (directory / "template.yaml").write_text(source)
    nested(made.STACK, directory / "requeue.json")


def python():
    return f"{Path(os.environ['REQUEUE_TEST_RUNTIME_PYTHON']).absolute()} -m awslambdaric"


def node():
    client = ROOT / "tests" / "runtimes" / "node_modules" / "aws-lambda-ric" / "index.mjs"
    # The client needs the variable, and the emulator does not set it.
    return f"env AWS_LAMBDA_LOG_GROUP_NAME=any {Path(os.environ['REQUEUE_TEST_RUNTIME_NODE']).absolute()} {client.resolve()}"


class Answers:
    """The tests of each function."""

    STACK, HANDLER, PARAMETERS = "invoked", "plain", ""
    runtime = staticmethod(python)
    # With which a record alone is done or failed, and with which nobody knows which one of several failed.
    DONE = ("null", "object", "empty", "text", "ok")
    FAILED = ("fail", "unknown", "no-id", "no-list", "throw", "hang", "exit")
    UNCLEAR = ("unknown", "no-list", "hang", "exit")

    @classmethod
    def deploy(cls):
        cls.maxDiff = None
        cls.target = Target(Words)
        with tempfile.TemporaryDirectory() as directory:
            project(cls, Path(directory))
            run(
                *("sam", "deploy", "--template", f"{directory}/template.yaml", "--stack-name", cls.STACK, "--region", "us-east-1", "--no-confirm-changeset"),
                *("--config-file", ROOT / "crates" / "requeue-cli" / "templates" / "function-samconfig.toml"),
                AWS_ENDPOINT_URL=ENDPOINT,
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
            )
        (made,) = aws("cloudformation").describe_stacks(StackName=cls.STACK)["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in made["Outputs"]}
        cls.queue = Queue(outputs["QueueUrl"], outputs["DeadLetterQueueUrl"], outputs["RequeueFunction"])
        # The emulator does not take these from a template; see deployed_test.py.
        cls.queue.configure(BatchSize=10, MaximumBatchingWindowInSeconds=0, ScalingConfig={"MaximumConcurrency": 2})
        aws("lambda").put_function_recursion_config(FunctionName=cls.queue.function, RecursiveLoop="Allow")

    @classmethod
    def tearDownClass(cls):
        cls.target.close()

    def tearDown(self):
        self.queue.wait_for_counts((0, 0, 0))

    def calls(self, name):
        return self.target.called(f"A-{name}")

    def send(self, name, *answers):
        (message_id,) = self.queue.send(order(name, *answers))
        return message_id

    def wait_for_calls(self, name, count):
        wait_for(f"call {count} for {name}", lambda: len(self.calls(name)) >= count)
        return self.calls(name)

    def assert_calls(self, name, message_id, answers):
        """The function got the message once for each of `answers`, as if SQS had delivered it again."""
        self.wait_for_calls(name, len(answers))
        self.queue.wait_for_counts((0, 0, 0))
        calls = self.calls(name)
        self.assertEqual([call["answer"] for call in calls], answers)
        self.assertEqual({call["body"] for call in calls}, {order(name, *answers).encode()})
        self.assertEqual({call["headers"]["messageid"] for call in calls}, {message_id})
        numbers = [(call["headers"]["requeueattempt"], call["headers"]["approximatereceivecount"]) for call in calls]
        self.assertEqual(numbers, [(str(number), str(number)) for number in range(1, len(answers) + 1)])

    def assert_dead_letter(self, name, message_id, failure, reason, retry_count, detail):
        dead = json.loads(self.queue.dead_letter(f"A-{name}")["Body"])
        letter = dead["retryState"]["deadLetter"]
        self.assertEqual(dead["originalMessageId"], message_id)
        self.assertEqual((letter["class"], letter["reason"], letter["retryCount"]), (failure, reason, retry_count))
        self.assertIn(detail, letter["detail"])

    def batch(self, **answers):
        """Sends messages that arrive in one batch. Returns their ids."""
        self.queue.polled(False)
        ids = self.queue.send(*(order(name, *words) for name, words in answers.items()))
        self.queue.polled(True)
        return dict(zip(answers, ids))

    def test_a_record_alone_is_done_or_retried(self):
        answers = {f"alone-{word}": [word] for word in self.DONE} | {f"alone-{word}": [word, "ok"] for word in self.FAILED}
        with self.queue.with_variables(REQUEUE_MESSAGES_PER_CALL="1"):
            names = list(answers)
            for names in filter(None, (names[:10], names[10:])):
                for name, message_id in self.batch(**{name: answers[name] for name in names}).items():
                    self.assert_calls(name, message_id, answers[name])

    def test_after_an_unclear_call_its_records_are_called_again_without_a_copy(self):
        for word in self.UNCLEAR:
            names = [f"unclear-{word}-{number}" for number in range(3)]
            self.batch(**{name: [word, "ok"] if name == names[1] else ["ok"] for name in names})
            self.wait_for_calls(names[1], 2)
            self.queue.wait_for_counts((0, 0, 0))
            for name in names:
                headers = self.calls(name)[-1]["headers"]
                # By its visibility, each receive is a retry.
                attempt = "2" if self.queue.url.endswith(".fifo") else "1"
                self.assertEqual((headers["requeueattempt"], headers["approximatereceivecount"]), (attempt, "2"), name)

    def test_of_several_records_only_the_named_one_is_retried(self):
        answers = {f"named-{number}": ["fail", "ok"] if number == 4 else ["ok"] for number in range(10)}
        for name, message_id in self.batch(**answers).items():
            self.assert_calls(name, message_id, answers[name])

    def test_a_record_that_makes_the_function_throw_is_the_only_dead_letter_of_its_batch(self):
        answers = {f"poison-{number}": ["throw"] if number == 4 else ["ok"] for number in range(10)}
        ids = self.batch(**answers)
        self.assert_dead_letter("poison-4", ids["poison-4"], "temporary", "retries-exhausted", 2, "BankClosed")
        self.queue.wait_for_counts((0, 0, 0))
        dead = [message["Body"] for url, message in self.queue.taken if url == self.queue.dead_letter_url]
        self.assertEqual([body for body in dead if "A-poison-" in body and "A-poison-4" not in body], [])
        calls = {name: len(self.calls(name)) for name in answers}
        # A lone one has three attempts.
        self.assertIn(calls.pop("poison-4"), range(3, 7))
        self.assertEqual({name: count for name, count in calls.items() if count > 3}, {})


class InPython(Answers, unittest.TestCase):
    def test_the_class_is_that_of_the_exception_or_of_the_item(self):
        for word, failure, reason, calls, detail in [
            ("throttle", "rate-limit", "retries-exhausted", 3, "ThrottlingException"),
            ("quota", "quota", "retries-exhausted", 3, "back-at-nine"),
            ("refuse", "non-retryable", "non-retryable", 1, "invalid-order"),
        ]:
            message_id = self.send(f"always-{word}", word)
            self.assert_dead_letter(f"always-{word}", message_id, failure, reason, calls - 1, detail)
            attempts = [call["headers"]["requeuelastattempt"] for call in self.calls(f"always-{word}")]
            self.assertEqual(attempts, ["false"] * (calls - 1) + ["true" if calls > 1 else "false"])

    def test_a_redriven_dead_letter_goes_through_the_mended_function(self):
        message_id = self.send("redriven", "refuse", "ok")
        self.wait_for_calls("redriven", 1)
        dead_letters = Queue(self.queue.dead_letter_url, None, None)
        dead_letters.wait_for_counts((1, 0, 0))
        # The emulator does not tell the source of a dead-letter queue.
        done = requeue("dlq", "redrive", "--queue", self.queue.dead_letter_url, "--copy", "--to", self.queue.url, "--yes")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        _, second = self.wait_for_calls("redriven", 2)
        headers = second["headers"]
        self.assertEqual((headers["messageid"], headers["requeueattempt"]), (message_id, "1"))
        self.queue.wait_for_counts((0, 0, 0))
        dead_letters.wait_for_counts((0, 0, 0))

    def test_the_doctor_finds_the_target_and_no_danger(self):
        done = requeue("doctor", "--function", self.queue.function, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        findings = json.loads(done.stdout)["deployments"][0]["findings"]
        levels = {finding["id"]: finding["level"] for finding in findings if finding["id"].startswith("target")}
        ids = ("target", "target-timeout", "target-concurrency", "target-permissions")
        self.assertEqual(levels, dict.fromkeys(ids, "ok"), done.stdout)

    def test_the_first_hour_is_for_the_test_function_alone(self):
        first_hour = ["doctor", "--function", self.queue.function, "--first-hour", "--send-test-messages", "--wait", "60"]
        done = requeue(*first_hour)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("and only requeue-test-endpoint is surely no real one", done.stderr)
        self.assertEqual(self.queue.counts(), (0, 0, 0))

        client, name = aws("cloudformation"), "requeue-test-endpoint"
        template = (ROOT / "examples" / "test-endpoint" / "template.yaml").read_text()
        client.create_stack(StackName=name, TemplateBody=template, Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"])
        client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        # As the parameter TargetFunction would.
        role = aws("lambda").get_function_configuration(FunctionName=self.queue.function)["Role"].split("/")[-1]
        allow = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": f"arn:aws:lambda:us-east-1:000000000000:function:{name}"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        aws("iam").put_role_policy(RoleName=role, PolicyName="test", PolicyDocument=document)
        self.queue.received(9)
        with self.queue.with_variables(REQUEUE_TARGET_FUNCTION=name), self.queue.with_log_lines():
            done = requeue(*first_hour)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"rate-limit +1 failed, 1 retried after [56] s\n")
        page = steps_of_first_hour((ROOT / "docs" / "operate" / "first-hour.md").read_text())
        self.assertEqual(steps_of_first_hour(done.stdout), page.replace("within a minute", "at once"))
        dead = json.loads(self.queue.dead_letter("requeue-test")["Body"])
        self.assertEqual(dead["retryState"]["deadLetter"]["detail"], "chosen by the function")


class WithPowertools(Answers, unittest.TestCase):
    STACK, HANDLER = "invoked-powertools", "powertools"
    DONE = ("ok",)
    FAILED = ("fail", "throw", "hang", "exit")
    UNCLEAR = ("hang", "exit")


class InNode(Answers, unittest.TestCase):
    STACK = "invoked-node"
    runtime = staticmethod(node)
    UNCLEAR = ("unknown", "exit")


class OnFifoQueue(Answers, unittest.TestCase):
    STACK = "invoked-fifo"
    UNCLEAR = ("unknown", "hang")
    PARAMETERS = """\
        Fifo: "true"
        MaxReceiveCount: "100"
"""


def setUpModule():
    """Deploys the others at once, since a deployment mostly waits. The first one makes the bucket of SAM."""
    first, *others = Answers.__subclasses__()
    first.deploy()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda other: other.deploy(), others))


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
