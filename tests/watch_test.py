#!/usr/bin/env python3
"""The local path of `docs/start/local.md`: the real `cargo lambda watch` and `cargo lambda invoke`, on files of `events/`.

Its Runtime API names a deadline in 1970, unlike the Runtime API of the other tests.

Needs cargo-lambda on the PATH. `tests/run watch` provides it.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import boto3

from deployed_test import ROOT, Target, run, wait_for

EVENTS = ROOT / "events"
NO_DEADLINE = "the Runtime API names no deadline that an invocation can have"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def fresh(name, change=lambda place, record: None):
    """An event file with messages sent just now. Those in `events/` have fixed times, so a failure would be too old."""
    event = json.loads((EVENTS / name).read_text())
    now = str(int(time.time() * 1000))
    for place, record in enumerate(event["Records"]):
        record["attributes"].update(SentTimestamp=now, ApproximateFirstReceiveTimestamp=now)
        change(place, record)
    return event


class Process:
    """A program and its children. Their output goes to a file outside the project, where `watch` does not see it."""

    def __init__(self, *command, cwd=ROOT, **environment):
        self.log = tempfile.NamedTemporaryFile("r", prefix="requeue-watch-")
        with open(self.log.name, "w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=cwd,
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def text(self):
        return Path(self.log.name).read_text()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


class Watched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.maxDiff = None
        # In two builds, like `watch`. Examples may use more crates, so one build of both would use other
        # features.
        run("cargo", "build", "--locked", "--bin", "requeue", "--bin", "requeue-lambda")
        run("cargo", "build", "--locked", "--example", "trouble")
        cls.target = Target()
        cls.addClassCleanup(cls.target.close)
        cls.serve = Process(ROOT / "target" / "debug" / "requeue", "serve", "--port", "0", "--sqs-port", "0")
        cls.addClassCleanup(cls.serve.close)
        wait_for("an SQS", lambda: "dead letters" in cls.serve.text())
        lines = dict(line.split(maxsplit=1) for line in cls.serve.text().splitlines() if line.startswith(("SQS", "queue")))
        cls.queue_url = lines["queue"].strip()
        cls.sqs_url = lines["SQS"].strip()
        cls.environment = {
            "AWS_ENDPOINT_URL_SQS": cls.sqs_url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "REQUEUE_TARGET_URL": "",
            "REQUEUE_TIMEOUT_SECONDS": "1",
            "REQUEUE_RECURSIVE_LOOP": "Allow",
            # Invocations follow each other at once, and no pause may keep a message from its call.
            "REQUEUE_POLICY": '{"maxPauseSeconds": "off", "circuitBreaker": "off"}',
        }
        cls.sqs = boto3.client(
            "sqs",
            endpoint_url=cls.sqs_url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )

    def watch(self, *options, **environment):
        """Starts `cargo lambda watch`. Returns it and its port for invocations."""
        port = free_port()
        address = ("--invoke-address", "127.0.0.1", "--invoke-port", port)
        watched = Process("cargo", "lambda", "watch", "--ignore-changes", *address, *options, **environment)
        self.addCleanup(watched.close)

        def is_open():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        wait_for("a Runtime API", is_open)
        return watched, port

    def invoke(self, port, name, event):
        """The ids in the response's `batchItemFailures`, sorted. `event` is a file or its contents."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            if isinstance(event, dict):
                json.dump(event, file)
                file.flush()
                event = file.name
            done = subprocess.run(
                ["cargo", "lambda", "invoke", name, "--invoke-address", "127.0.0.1", "--invoke-port", str(port)]
                + ["--data-file", str(event)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(item["itemIdentifier"] for item in json.loads(done.stdout)["batchItemFailures"])

    def messages(self):
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(count) for count in attributes.values())

    def calls(self):
        return {order: len(calls) for order, calls in self.target.calls.items()}

    def test_the_ready_lambda_calls_its_endpoint_for_each_message_of_each_event(self):
        environment = {**self.environment, "REQUEUE_TARGET_URL": self.target.url}
        watched, port = self.watch("--bin", "requeue-lambda", **environment)
        before = self.messages()
        records = fresh("every-class.json")["Records"]
        ids = {json.loads(record["body"])["answer"]: record["messageId"] for record in records}
        orders = {json.loads(record["body"])["orderId"] for record in records}

        # With the times in the file, a failure is half a year old.
        failed = self.invoke(port, "requeue-lambda", EVENTS / "every-class.json")
        self.assertEqual(failed, sorted(set(ids.values()) - {ids["ok"]}))
        # If a used connection is reset, the client repeats the request once, with the same key.
        reset = next(json.loads(record["body"])["orderId"] for record in records if '"reset"' in record["body"])
        calls = self.calls()
        self.assertIn(calls.pop(reset), (1, 2))
        self.assertEqual({call["headers"]["idempotency-key"] for call in self.target.called(reset)}, {ids["reset"]})
        self.assertEqual(calls, {order: 1 for order in orders - {reset}})
        self.assertEqual(self.messages(), before)

        def renamed(place, record):
            record["messageId"] = record["messageId"][:-2] + f"{place:02}"

        event = fresh("every-class.json", renamed)
        final = [record["messageId"] for record in event["Records"] if '"invalid"' in record["body"]]
        self.assertEqual(self.invoke(port, "requeue-lambda", event), final)
        calls = self.calls()
        self.assertEqual(calls.pop(next(json.loads(r["body"])["orderId"] for r in records if '"ok"' in r["body"])), 2)
        self.assertEqual(self.messages() - before, len(records) - 2, "a copy of each that is to be retried")
        self.assertEqual(watched.text().count(NO_DEADLINE), 1, watched.text())

    def test_a_handler_of_ones_own_is_called(self):
        # `watch` starts no examples. An example started by hand gets the invocations of the function
        # without a name.
        _, port = self.watch("--only-lambda-apis")
        own = Process(
            ROOT / "target" / "debug" / "examples" / "trouble",
            AWS_LAMBDA_RUNTIME_API=f"http://127.0.0.1:{port}/.rt",
            AWS_LAMBDA_FUNCTION_NAME="_",
            AWS_LAMBDA_FUNCTION_VERSION="1",
            AWS_LAMBDA_FUNCTION_MEMORY_SIZE="128",
            **self.environment,
        )
        self.addCleanup(own.close)
        before = self.messages()
        tasks = ["ok", "non-retryable", "temporary", "panic"]

        def task(place, record):
            record.update(messageId=f"{tasks[place]}-1", body=json.dumps({"do": tasks[place]}))

        event = fresh("every-class.json")
        event["Records"] = event["Records"][: len(tasks)]
        for place, record in enumerate(event["Records"]):
            task(place, record)
        self.assertEqual(self.invoke(port, "_", event), ["non-retryable-1"])
        self.assertEqual(self.messages() - before, 2)
        # The body has no task for this handler, so its message is non-retryable.
        (record,) = fresh("single.json")["Records"]
        self.assertEqual(self.invoke(port, "_", EVENTS / "single.json"), [record["messageId"]])
        self.assertEqual(own.text().count(NO_DEADLINE), 1, own.text())


if __name__ == "__main__":
    unittest.main()
