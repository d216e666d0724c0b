#!/usr/bin/env python3
"""The real deployment, on an emulator: `sam build` and `sam deploy` of `template.yaml`, the packaged binaries, Lambda's poller.

The tests find the end of a message in the queues and at the called endpoint, never in log lines.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), and cargo-lambda and sam on the PATH. `tests/run deployed`
provides them.
"""

import base64
import contextlib
import http.server
import io
import itertools
import json
import os
import platform
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest
import uuid
import zipfile
from collections import defaultdict
from pathlib import Path

import boto3
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "sam"
ENDPOINT = os.environ.get("REQUEUE_TEST_MINISTACK", "")
ARCHITECTURE = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"

# Short delays, so that a test ends in seconds.
POLICY = {
    "maxRetries": 2,
    "maxDelaySeconds": 1,
    "baseDelayMultiplier": 1.0,
    "jitterPercentage": 0.0,
    "totalTimeoutSeconds": 600,
    "errorConfigs": {
        "RATE_LIMIT": {"baseDelay": 1, "maxDelay": 1},
        "QUOTA": {"baseDelay": 1, "maxDelay": 1},
        "TEMPORARY": {"baseDelay": 1, "maxDelay": 1},
        "DEFAULT": {"baseDelay": 1, "maxDelay": 1},
    },
}
RETRY_AFTER = 3

# Starts the real cargo-lambda, but compiles as the tests do, whose dependencies are there. A build with
# optimization takes minutes, and changes nothing that these tests see.
CARGO = """#!/bin/sh
set -e
PATH=${{PATH#*:}}
case "$1 $2 $3" in
lambda\\ *) PATH={directory}:$PATH exec env -u CARGO cargo-lambda "$@" ;;
"build --target "*) ;;
*) exec cargo "$@" ;;
esac
case "$*" in *profile.*) echo "Cargo.toml lacks a key of profile.release, so cargo-lambda sets it: $*" >&2; exit 1 ;; esac
cargo build --locked --bin requeue-lambda
mkdir -p "{target}/$3/release"
cp "{target}/debug/requeue-lambda" "{target}/$3/release/"
"""

# The secret in Secrets Manager.
TOKEN = "s3cret"

# One text is only in the embedded SQS, the other only in the command line. Neither may be in a package.
MARKERS = [b"Source queue must be configured as a Dead Letter Queue.", b"Run one Lambda invocation with the SQS event in a file"]


def aws(service):
    return boto3.client(
        service,
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def run(*command, **environment):
    """Runs a command in the project, and shows its output only if it fails."""
    command = [str(word) for word in command]
    environment = {**os.environ, "CARGO_LAMBDA_COMPILER": "cargo", "SAM_CLI_TELEMETRY": "0", **environment}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build_application():
    """`sam build`; the directory with the built template."""
    architecture = "      Architectures: [arm64]\n"
    source = (ROOT / "template.yaml").read_text()
    if source.count(architecture) != 1:
        raise RuntimeError(f"template.yaml has {source.count(architecture)} times: {architecture}")
    # The function runs on this machine.
    source = source.replace(architecture, architecture.replace("arm64", ARCHITECTURE))
    template = ROOT / "target" / "template.yaml"
    template.write_text(source.replace("{ Location: infra/", "{ Location: ../infra/"))
    with tempfile.TemporaryDirectory() as directory:
        cargo = Path(directory, "cargo")
        cargo.write_text(CARGO.format(directory=directory, target=ROOT / "target"))
        cargo.chmod(0o755)
        path = f"{directory}:{os.environ['PATH']}"
        run("sam", "build", "--template", template, "--base-dir", ROOT, "--build-dir", BUILD, PATH=path)
    return BUILD


def build_for_tests():
    """The command line and the example whose handler panics, blocks and hangs; their directory. As `cargo test` builds them."""
    run("cargo", "build", "--locked", "--bin", "requeue", "--example", "trouble")
    return ROOT / "target" / "debug"


def zipped(bootstrap):
    """A deployment package with this program."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo("bootstrap")
        entry.external_attr = 0o755 << 16
        archive.writestr(entry, bootstrap.read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def requeue(*words):
    """Runs the command line against the emulator."""
    environment = {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return subprocess.run([build_for_tests() / "requeue", *words], env=environment, capture_output=True, text=True)


def complaints():
    """The last lines of the emulator's Lambda, for example why a process did not start."""
    log = os.environ.get("REQUEUE_TEST_MINISTACK_LOG")
    lines = Path(log).read_text().splitlines() if log else []
    return "\n".join([line for line in lines if re.search(r"(ERROR|WARNING) \[lambda\]", line)][-3:])


def wait_for(what, condition, seconds=30):
    """Polls `condition` and returns its first true value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}\n{complaints()}")
        time.sleep(0.1)


class Target(http.server.ThreadingHTTPServer):
    """The endpoint. A body chooses its responses: the n-th call gets the n-th word of "answers", later calls the last word.

    In JSON that is the field "answers" (or "answer"), in other text `answers=…,…`. "order A-…" identifies either.
    """

    daemon_threads = True
    # Ten connections come at once. With Python's default of 5 the kernel drops some, and these are
    # repeated after a second, which is too late.
    request_queue_size = 128

    def __init__(self, endpoint=None):
        super().__init__(("127.0.0.1", 0), endpoint or Endpoint)
        self.calls = defaultdict(list)
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/orders"

    def called(self, order):
        return list(self.calls[order])

    def close(self):
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        at = time.monotonic()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = body.decode()
        order = re.search(r"A-[\w-]+", text)[0]
        answers = re.search(r'"answers?":\s*\[?([^\]}]*)|answers?=([\w,-]+)', text)
        answers = re.findall(r"[\w-]+", answers[1] or answers[2])
        calls = self.server.calls[order]
        answer = answers[min(len(calls), len(answers) - 1)]
        headers = {name.lower(): value for name, value in self.headers.items()}
        calls.append({"body": body, "headers": headers, "at": at, "answer": answer})
        self.respond(answer)

    def respond(self, answer):
        getattr(self, answer.replace("-", "_"))()

    def ok(self):
        self.reply(200)

    def rate_limit(self):
        self.reply(429, {"Retry-After": str(RETRY_AFTER)})

    def unavailable(self):
        self.reply(503)

    def quota(self):
        self.reply(403, body=b'{"error":{"errors":[{"reason":"quotaExceeded"}]}}')

    def invalid(self):
        self.reply(400)

    def hang(self):
        self.server.closing.wait(60)
        self.close_connection = True

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def reply(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Words(Endpoint):
    """Tells the function of target_function_test.py its answer for a record."""

    def respond(self, answer):
        self.reply(200, body=answer.encode())


class FirstHourTarget(http.server.ThreadingHTTPServer):
    """The function of `examples/test-endpoint`, behind its URL."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), FunctionUrl)
        template = yaml_parse((ROOT / "examples" / "test-endpoint" / "template.yaml").read_text())
        code = {}
        exec(template["Resources"]["Endpoint"]["Properties"]["InlineCode"], code)
        self.handler = code["handler"]
        output = template["Outputs"]["TargetUrl"]["Value"]["Fn::Sub"]
        self.url = output.replace("${EndpointUrl.FunctionUrl}", f"http://127.0.0.1:{self.server_port}/")
        threading.Thread(target=self.serve_forever, daemon=True).start()


class FunctionUrl(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event = {"headers": {name.lower(): value for name, value in self.headers.items()}, "body": body.decode()}
        result = self.server.handler(event, None)
        body = result.get("body", "").encode()
        self.send_response(result["statusCode"])
        for name, value in {**result.get("headers", {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Queue:
    """A deployed queue, its dead-letter queue and the mapping between the queue and its function."""

    def __init__(self, url, dead_letter_url, function):
        self.sqs = aws("sqs")
        self.url = url
        self.dead_letter_url = dead_letter_url
        self.function = function
        self.taken = []

    def send(self, *bodies, **options):
        """Sends the bodies in one call, so that they arrive as one batch, on a FIFO queue each in its group. Returns their ids."""

        def entry(place, body):
            in_order = {"MessageGroupId": f"group-{place}", "MessageDeduplicationId": uuid.uuid4().hex}
            return {"Id": str(place), "MessageBody": body, **(in_order if self.url.endswith(".fifo") else {}), **options}

        entries = [entry(place, body) for place, body in enumerate(bodies)]
        sent = self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)
        ids = {entry["Id"]: entry["MessageId"] for entry in sent["Successful"]}
        return [ids[entry["Id"]] for entry in entries]

    def counts(self):
        """The counts of messages: visible, in flight, delayed."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return tuple(int(attributes[name]) for name in names)

    def wait_for_counts(self, expected, seconds=30):
        wait_for(f"{expected} of {self.url}, was {self.counts()}", lambda: self.counts() == expected, seconds)

    def receive(self, url, mine, what, seconds=30):
        """Removes the messages for which `mine` is true from the queue, and returns the first one."""

        def found():
            answer = self.sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                self.taken.append((url, message))
            return next((message for place, message in self.taken if place == url and mine(message["Body"])), None)

        return wait_for(what, found, seconds)

    def dead_letter(self, mark, seconds=30):
        """The message in the dead-letter queue whose body contains `mark`."""
        return self.receive(self.dead_letter_url, lambda body: mark in body, f"{mark} in the dead-letter queue", seconds)

    def copy(self, mark, seconds=30):
        """The message in the queue whose body contains `mark`. The mapping is off, so that Lambda does not take it."""
        return self.receive(self.url, lambda body: mark in body, f"a copy of {mark}", seconds)

    def polled(self, enabled):
        """Switches the function's polling on or off."""
        self.configure(Enabled=enabled)

    def configure(self, **settings):
        client = aws("lambda")
        (mapping,) = client.list_event_source_mappings(FunctionName=self.function)["EventSourceMappings"]
        client.update_event_source_mapping(UUID=mapping["UUID"], **settings)

    @contextlib.contextmanager
    def with_variables(self, **variables):
        """Meanwhile the function has these variables instead of its own."""
        client, name = aws("lambda"), self.function
        before = client.get_function_configuration(FunctionName=name)["Environment"]["Variables"]

        def update(variables):
            client.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
            client.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.2})

        update({**before, **variables})
        try:
            yield
        finally:
            update(before)

    @contextlib.contextmanager
    def with_log_lines(self):
        """Meanwhile the emulator keeps each line. A line that it reads late comes into the log with the next invocation."""
        over = threading.Event()

        def invoke():
            while not over.wait(3):
                aws("lambda").invoke(FunctionName=self.function, Payload=b'{"Records":[]}')

        invoking = threading.Thread(target=invoke)
        invoking.start()
        try:
            yield
        finally:
            over.set()
            invoking.join()

    def received(self, count):
        """Writes the metric of received messages. In place of CloudWatch, since the emulator makes no metrics of lines."""
        names = {"Service": self.function, "Queue": self.url.rsplit("/", 1)[1]}
        dimensions = [{"Name": name, "Value": value} for name, value in names.items()]
        datum = {"MetricName": "Received", "Dimensions": dimensions, "Value": count, "Timestamp": time.time() + 60}
        aws("cloudwatch").put_metric_data(Namespace="Requeue", MetricData=[datum])


def steps_of_first_hour(shown):
    """The steps in an output or on the page, without numbers and with the page's names of queues."""
    steps = re.search(r"^first hour\n.*?\d+ ok$", shown, re.DOTALL | re.MULTILINE)[0]
    steps = re.sub(r"\S+(-messages|-dead-letters)", r"first-hour\1", steps)
    return re.sub(r"\d+( min)?( \d+)?", "#", steps)


def order(name, *answers, **members):
    return json.dumps({"orderId": f"A-{name}", "amount": 12.50, "answers": answers, **members})


ATTRIBUTES = {
    "tenant": {"DataType": "String", "StringValue": "acme · 十二"},
    "weight": {"DataType": "Number.kilogram", "StringValue": "0.5"},
    "thumbprint": {"DataType": "Binary.sha", "BinaryValue": b"\x00\x01\xfe\xff"},
}

TEXTS = {
    "plain": "order A-plain, \"by hand\"\n\tanswers=unavailable,ok\\ Zürich 東京 🧾",
    "xml": '<?xml version="1.0"?>\n<order id="A-xml" do="answers=unavailable,ok"/>\n',
    "array": '[ {"orderId":"A-array", "answers":["unavailable","ok"]} , 1.0 ]',
    "broken": '{"orderId":"A-broken","note":"answers=unavailable,ok"',
}


class Deployed(unittest.TestCase):
    """`requeue-lambda` from the template."""

    @classmethod
    def setUpClass(cls):
        cls.maxDiff = None
        built = build_application()
        cls.bootstrap = built / "Function" / "bootstrap"
        cls.target = Target()
        cls.addClassCleanup(cls.target.close)
        secret = aws("secretsmanager").create_secret(Name="orders", SecretString=json.dumps({"token": TOKEN}))["ARN"]
        parameters = {
            "TargetUrl": cls.target.url,
            "Headers": json.dumps({"Authorization": f"Bearer {secret}:token::"}),
            "AttributeHeaders": "trace=X-Trace",
            "SecretArns": secret,
            "Policy": json.dumps(POLICY),
            "MessageTimeout": 1,
            "FunctionTimeout": 10,
            "MaximumConcurrency": 2,
            # The emulator does not support alarms on expressions.
            "Monitoring": "none",
        }
        overrides = [f"{name}={json.dumps(str(value))}" for name, value in parameters.items()]
        run(
            *("sam", "deploy", "--template", built / "template.yaml", "--stack-name", "requeue", "--region", "us-east-1"),
            *("--config-file", ROOT / "samconfig.toml", "--no-confirm-changeset"),
            *("--parameter-overrides", *overrides),
            AWS_ENDPOINT_URL=ENDPOINT,
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
        )
        (stack,) = aws("cloudformation").describe_stacks(StackName="requeue")["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        cls.queue = Queue(outputs["QueueUrl"], outputs["DeadLetterQueueUrl"], outputs["FunctionName"])
        # The emulator gives a template's numbers to the mapping as texts, and cannot compare them. AWS
        # makes them numbers.
        cls.queue.configure(BatchSize=10, MaximumBatchingWindowInSeconds=0, ScalingConfig={"MaximumConcurrency": 2})
        # It also drops the property RecursiveLoop.
        aws("lambda").put_function_recursion_config(FunctionName=cls.queue.function, RecursiveLoop="Allow")

    def tearDown(self):
        self.queue.wait_for_counts((0, 0, 0))

    def wait_for_calls(self, name, count, seconds=30):
        wait_for(f"call {count} for {name}", lambda: len(self.target.called(f"A-{name}")) >= count, seconds)
        return self.target.called(f"A-{name}")

    def assert_calls(self, name, body, message_id, answers):
        """The endpoint was called once for each of `answers`, always with the same bytes and the same key."""
        calls = self.wait_for_calls(name, len(answers))
        self.queue.wait_for_counts((0, 0, 0))
        calls = self.target.called(f"A-{name}")
        self.assertEqual([call["answer"] for call in calls], answers)
        self.assertEqual({call["body"] for call in calls}, {body.encode()})
        self.assertEqual({call["headers"]["idempotency-key"] for call in calls}, {message_id})
        retry_counts = [int(call["headers"]["x-requeue-retry-count"]) for call in calls]
        self.assertEqual(retry_counts[0], 0)
        for answer, (before, after) in zip(answers, itertools.pairwise(retry_counts)):
            # If a used connection is reset, the client repeats the request at once, without a retry.
            self.assertIn(after - before, [0, 1] if answer == "reset" else [1], retry_counts)
        return calls

    def assert_given_up(self, name, body, message_id, *, failure, reason, retry_count):
        """The message is in the dead-letter queue, with the reason and the body's own bytes."""
        dead = self.queue.dead_letter(f"A-{name}")
        self.assertTrue(dead["Body"].startswith(body[:-1]), dead["Body"])
        members = json.loads(dead["Body"])
        self.assertEqual(members["originalMessageId"], message_id)
        letter = members["retryState"]["deadLetter"]
        self.assertEqual((letter["class"], letter["retryCount"]), (failure, retry_count))
        if reason:
            self.assertEqual(letter["reason"], reason)
        return dead

    def test_a_message_that_succeeds_is_done(self):
        body = order("success", "ok")
        (message_id,) = self.queue.send(body)
        self.assert_calls("success", body, message_id, ["ok"])

    def test_a_batch_that_succeeds_is_done_once(self):
        bodies = [order(f"batch-{place}", "ok") for place in range(10)]
        ids = self.queue.send(*bodies)
        for place, (body, message_id) in enumerate(zip(bodies, ids)):
            self.assert_calls(f"batch-{place}", body, message_id, ["ok"])

    def test_every_attempt_carries_the_headers_from_secret_and_attribute(self):
        body = order("headers", "unavailable", "ok")
        (message_id,) = self.queue.send(body, MessageAttributes={"trace": {"DataType": "String", "StringValue": "t-1"}})
        for call in self.assert_calls("headers", body, message_id, ["unavailable", "ok"]):
            self.assertEqual((call["headers"]["authorization"], call["headers"]["x-trace"]), (f"Bearer {TOKEN}", "t-1"))

    def test_a_temporary_failure_is_retried_with_the_same_bytes(self):
        body = order("temporary", "unavailable", "reset", "ok", big=12345678901234567890, float=1.0)
        (message_id,) = self.queue.send(body, MessageAttributes=ATTRIBUTES)
        self.assert_calls("temporary", body, message_id, ["unavailable", "reset", "ok"])

    def test_an_endpoint_that_does_not_answer_is_a_temporary_failure(self):
        body = order("hang", "hang", "ok")
        (message_id,) = self.queue.send(body)
        first, second = self.assert_calls("hang", body, message_id, ["hang", "ok"])
        self.assertGreaterEqual(second["at"] - first["at"], 1.9)

    def test_a_used_up_quota_is_retried(self):
        body = order("quota", "quota", "ok")
        (message_id,) = self.queue.send(body)
        self.assert_calls("quota", body, message_id, ["quota", "ok"])

    def test_a_rate_limit_waits_as_long_as_it_says(self):
        body = order("rate", "rate-limit", "ok")
        (message_id,) = self.queue.send(body)
        first, second = self.assert_calls("rate", body, message_id, ["rate-limit", "ok"])
        self.assertGreaterEqual(second["at"] - first["at"], RETRY_AFTER)

    def test_a_copy_carries_the_members_the_attributes_and_the_group(self):
        body = order("copy", "rate-limit")
        (message_id,) = self.queue.send(body, MessageAttributes=ATTRIBUTES, MessageGroupId="tenant-a")
        self.wait_for_calls("copy", 1)
        self.queue.polled(False)
        self.addCleanup(self.queue.polled, True)
        copy = self.queue.copy("A-copy")
        self.assertNotEqual(copy["MessageId"], message_id)
        self.assertTrue(copy["Body"].startswith(body[:-1]), copy["Body"])
        members = json.loads(copy["Body"])
        added = {"retryCount", "originalMessageId", "retryTimestamp", "retryState"}
        self.assertEqual(set(members), set(json.loads(body)) | added)
        self.assertEqual((members["retryCount"], members["originalMessageId"]), (1, message_id))
        state = members["retryState"]
        self.assertEqual((state["v"], state["class"]), (1, "rate-limit"))
        self.assertIn(state["delay"], (RETRY_AFTER, RETRY_AFTER + 1))
        self.assertEqual(copy["MessageAttributes"], ATTRIBUTES)
        self.assertEqual(copy["Attributes"]["MessageGroupId"], "tenant-a")

    def test_a_message_that_is_refused_is_called_once_and_given_up(self):
        body = order("refused", "invalid")
        (message_id,) = self.queue.send(body, MessageAttributes=ATTRIBUTES)
        dead = self.assert_given_up("refused", body, message_id, failure="non-retryable", reason=None, retry_count=0)
        self.assertEqual(dead["MessageAttributes"], ATTRIBUTES)
        self.assertEqual(len(self.target.called("A-refused")), 1)

    def test_a_message_that_never_succeeds_is_given_up_when_its_retries_are_used(self):
        body = order("exhausted", "unavailable")
        (message_id,) = self.queue.send(body)
        self.assert_given_up("exhausted", body, message_id, failure="temporary", reason="retries-exhausted", retry_count=2)
        self.assertEqual(len(self.target.called("A-exhausted")), 3)

    def test_bodies_that_are_no_json_object_are_retried_with_the_same_bytes(self):
        ids = self.queue.send(*TEXTS.values(), MessageAttributes=ATTRIBUTES)
        for (name, text), message_id in zip(TEXTS.items(), ids):
            self.assert_calls(name, text, message_id, ["unavailable", "ok"])

    def test_a_copy_of_a_text_is_wrapped(self):
        text = '"order" A-wrapped\n answers=rate-limit \\ 🧾'
        (message_id,) = self.queue.send(text, MessageAttributes=ATTRIBUTES)
        self.wait_for_calls("wrapped", 1)
        self.queue.polled(False)
        self.addCleanup(self.queue.polled, True)
        copy = self.queue.copy("A-wrapped")
        members = json.loads(copy["Body"])
        self.assertEqual((members["retryBody"], members["retryCount"]), (text, 1))
        self.assertEqual(members["originalMessageId"], message_id)
        self.assertEqual(copy["MessageAttributes"], ATTRIBUTES)

    def test_one_batch_of_every_answer_ends_with_each_message_where_it_belongs(self):
        names = ["ok", "unavailable", "invalid", "reset", "hang", "quota"]
        answers = [[name] if name in ("ok", "invalid") else [name, "ok"] for name in names]
        bodies = [order(f"mixed-{name}", *said) for name, said in zip(names, answers)]
        ids = self.queue.send(*bodies)
        for name, said, body, message_id in zip(names, answers, bodies, ids):
            if name == "invalid":
                self.assert_given_up("mixed-invalid", body, message_id, failure="non-retryable", reason=None, retry_count=0)
            else:
                self.assert_calls(f"mixed-{name}", body, message_id, said)

    def doctor(self, *options):
        return requeue("doctor", "--function", self.queue.function, *options)

    def test_the_doctor_finds_no_danger(self):
        # In place of the template's alarms, which this stack lacks.
        queue, dead_letters = (url.rsplit("/", 1)[1] for url in (self.queue.url, self.queue.dead_letter_url))
        for namespace, metric, dimensions in [
            ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": dead_letters}),
            ("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": queue}),
            ("Requeue", "MessageAge", {"Service": self.queue.function, "Queue": queue}),
        ]:
            aws("cloudwatch").put_metric_alarm(
                AlarmName=metric,
                Namespace=namespace,
                MetricName=metric,
                Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
                Statistic="Maximum",
                Period=60,
                EvaluationPeriods=1,
                ComparisonOperator="GreaterThanThreshold",
                Threshold=0,
                AlarmActions=["arn:aws:sns:us-east-1:000000000000:on-call"],
            )
        done = self.doctor("--strict")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertNotIn(TOKEN, done.stdout)

    def test_the_uploaded_dashboard_is_included(self):
        processed = aws("cloudformation").get_template(StackName="requeue", TemplateStage="Processed")["TemplateBody"]
        body = dict(processed)["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
        self.assertEqual(json.loads(body), json.loads((ROOT / "infra" / "dashboard.json").read_text()))

    def test_the_first_hour_sends_nothing_to_a_service(self):
        done = self.doctor("--first-hour", "--send-test-messages")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(", and the path does not end in /requeue-test-endpoint", done.stderr)
        self.assertEqual(self.queue.counts(), (0, 0, 0))

    def test_the_first_hour_sees_each_class_and_the_dead_letter(self):
        target = FirstHourTarget()
        self.addCleanup(target.server_close)
        self.addCleanup(target.shutdown)
        with self.queue.with_variables(REQUEUE_TARGET_URL=target.url):
            planned = self.doctor("--first-hour", "--json")
            self.assertEqual((planned.returncode, planned.stderr), (0, ""), planned.stdout)
            self.assertEqual(json.loads(planned.stdout)["firstHour"]["sent"], False)
            self.assertEqual(self.queue.counts(), (0, 0, 0))
            self.queue.received(13)
            with self.queue.with_log_lines():
                done = self.doctor("--first-hour", "--send-test-messages", "--wait", "60")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"rate-limit +1 failed, 1 retried after [56] s\n")
        page = (ROOT / "docs" / "operate" / "first-hour.md").read_text()
        self.assertEqual(steps_of_first_hour(done.stdout), steps_of_first_hour(page))
        # The command has deleted nothing.
        dead = self.queue.dead_letter("requeue-test")
        self.assertEqual(json.loads(dead["Body"])["answers"], ["non-retryable"])

    def test_the_package_is_without_the_embedded_queue_and_the_command_line(self):
        command, bootstrap = (build_for_tests() / "requeue").read_bytes(), self.bootstrap.read_bytes()
        for marker in MARKERS:
            self.assertTrue(marker in command, f"nothing contains {marker} any more")
            self.assertFalse(marker in bootstrap, f"the package contains {marker}")

    def test_a_panic_in_a_release_unwinds(self):
        # With "abort", one handler's panic ends the whole batch. `CARGO` sees that cargo-lambda sets no other value.
        manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
        self.assertEqual(manifest["profile"]["release"]["panic"], "unwind")


class OwnHandler(unittest.TestCase):
    """A Lambda on the library whose handler obeys the message: {"do":"panic"} and the like."""

    NAME = "trouble"

    @classmethod
    def setUpClass(cls):
        bootstrap = build_for_tests() / "examples" / "trouble"
        sqs = aws("sqs")
        dead_letters = sqs.create_queue(QueueName=f"{cls.NAME}-dead-letters")["QueueUrl"]
        redrive = {"deadLetterTargetArn": cls.arn(f"{cls.NAME}-dead-letters"), "maxReceiveCount": 5}
        attributes = {"VisibilityTimeout": "60", "RedrivePolicy": json.dumps(redrive)}
        url = sqs.create_queue(QueueName=cls.NAME, Attributes=attributes)["QueueUrl"]
        client = aws("lambda")
        client.create_function(
            FunctionName=cls.NAME,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role="arn:aws:iam::000000000000:role/trouble",
            Architectures=[ARCHITECTURE],
            Code={"ZipFile": zipped(bootstrap)},
            Timeout=10,
            MemorySize=256,
            Environment={
                "Variables": {
                    "REQUEUE_POLICY": json.dumps(POLICY),
                    "REQUEUE_TIMEOUT_SECONDS": "1",
                    "REQUEUE_DEAD_LETTER": "annotate",
                    "REQUEUE_RECURSIVE_LOOP": "Allow",
                }
            },
        )
        client.get_waiter("function_active_v2").wait(FunctionName=cls.NAME)
        client.create_event_source_mapping(
            FunctionName=cls.NAME,
            EventSourceArn=cls.arn(cls.NAME),
            BatchSize=10,
            FunctionResponseTypes=["ReportBatchItemFailures"],
            ScalingConfig={"MaximumConcurrency": 2},
        )
        cls.queue = Queue(url, dead_letters, cls.NAME)
        # The first invocation starts the process.
        cls.queue.send(cls.message("first", "ok"))
        wait_for("the function's process", cls.processes)
        cls.queue.wait_for_counts((0, 0, 0))

    @staticmethod
    def arn(queue):
        return f"arn:aws:sqs:us-east-1:000000000000:{queue}"

    @staticmethod
    def message(name, do):
        return json.dumps({"id": f"T-{name}", "do": do})

    @classmethod
    def processes(cls):
        """The process ids of the function's execution environments."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"AWS_LAMBDA_FUNCTION_NAME={cls.NAME}".encode() in environment:
                found.add(int(process.name))
        return found

    def batch(self, name, do):
        """Sends a batch of nine that succeed around one that does not. Returns the id of that one."""
        bodies = [self.message(f"{name}-neighbour-{place}", "ok") for place in range(9)]
        bodies.insert(4, self.message(name, do))
        before = self.processes()
        self.queue.polled(False)
        message_id = self.queue.send(*bodies)[4]
        self.queue.polled(True)
        wait_for("the batch", lambda: self.queue.counts()[0] == 0)
        return message_id, before

    def assert_contained(self, name, do, failure):
        """The neighbours are gone after their first receive, the one is in the queue as a copy, and the process lives."""
        message_id, before = self.batch(name, do)
        # A batch that failed as a whole would stay in flight for the visibility timeout, a minute.
        wait_for("done neighbours", lambda: sum(self.queue.counts()) <= 1, 10)
        dead = self.queue.dead_letter(f'"T-{name}"')
        members = json.loads(dead["Body"])
        self.assertEqual((members["originalMessageId"], members["do"]), (message_id, do))
        letter = members["retryState"]["deadLetter"]
        self.assertEqual((letter["class"], letter["retryCount"]), (failure, 2 if failure == "temporary" else 0))
        self.queue.wait_for_counts((0, 0, 0))
        self.assertLessEqual(before, self.processes(), "a process was restarted")

    def test_a_panic_stays_with_its_message(self):
        self.assert_contained("panic", "panic", "temporary")

    def test_a_handler_that_never_ends_is_cancelled(self):
        self.assert_contained("hang", "hang", "temporary")

    def test_a_temporary_failure_stays_with_its_message(self):
        self.assert_contained("temporary", "temporary", "temporary")

    def test_a_final_failure_stays_with_its_message(self):
        self.assert_contained("final", "non-retryable", "non-retryable")

    def test_a_handler_that_blocks_its_thread_is_abandoned(self):
        self.addCleanup(self.queue.sqs.purge_queue, QueueUrl=self.queue.url)
        _, before = self.batch("block", "block")
        # Requeue releases the message without a copy: the original is left, in flight, and the
        # invocation ended in time.
        self.queue.wait_for_counts((0, 1, 0), 20)
        self.assertLessEqual(before, self.processes(), "a process was restarted")
        self.queue.send(self.message("after", "ok"))
        self.queue.wait_for_counts((0, 1, 0), 20)


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
