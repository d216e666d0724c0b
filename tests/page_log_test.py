#!/usr/bin/env python3
"""`requeue ui --function`: the page follows the log of a deployed function, which an emulator keeps.

Needs $REQUEUE_TEST_MOTO (endpoint URL). `tests/run doctor` provides it.
"""

import http.cookiejar
import json
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

from doctor_test import COMMAND, KEYS, MOTO, Account


def line(message, disposition, **fields):
    """A line about a message, as Requeue writes it."""
    fields = {"message": "message", "messageId": message, "originalMessageId": message, "disposition": disposition, **fields}
    return json.dumps({"timestamp": "t", "level": "INFO", "fields": fields})


def metrics(**values):
    """The metrics of a batch."""
    return json.dumps({"_aws": {"Timestamp": 1, "CloudWatchMetrics": []}, "Service": "logged", **values})


class Page:
    """The page of a function, and the data of its screen."""

    def __init__(self, test, *arguments):
        command = [COMMAND, "ui", "--port", "0", *arguments]
        self.child = subprocess.Popen(command, env={**KEYS, "AWS_ENDPOINT_URL": MOTO}, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        url = self.child.stdout.readline().split()[-1]
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(cookies)
        opener.open(url, timeout=10).close()
        self.stream = opener.open(urllib.parse.urljoin(url, "/api/live/events"), timeout=30)
        self.state, self.events = None, []

    def read_until(self, is_there):
        while not is_there():
            text = self.stream.readline().decode()
            if text.startswith("data:"):
                data = json.loads(text.removeprefix("data:"))
                self.state = data.get("state", self.state)
                self.events += data.get("events", [])

    def end(self):
        self.child.terminate()
        self.child.wait()
        self.child.stdout.close()


class PageOfAFunction(unittest.TestCase):
    def test_the_screen_live_has_the_lines_and_the_counts_of_the_log_once(self):
        account = Account(MOTO)
        account.good("logged")
        group = "/aws/lambda/logged"
        for stream in ("a", "b"):
            account.logs.create_log_stream(logGroupName=group, logStreamName=stream)

        def write(stream, *lines):
            now = int(time.time() * 1000)
            events = [{"timestamp": now, "message": text} for text in lines]
            account.logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)

        failed = line("m-1", "requeue", **{"class": "rate-limit", "detail": "status 429", "delaySeconds": 9, "retryCount": 1})
        write("a", "START RequestId: 1", failed, metrics(Received=5, Completed=3, Requeued=1, Released=1))
        write("b", metrics(Received=2, DeadLettered=2), metrics(Class="quota", DeadLettered=2), "[1]")
        page = Page(self, "--function", "logged")
        page.read_until(lambda: page.state and page.state["counts"] and len(page.events) > 1)
        self.assertEqual((page.state["source"], page.state["queue"], page.state["troubles"]), ("log", "logged", []))
        counts = {"received": 7, "done": 3, "retried": 1, "deferred": 1, "dead": 2}
        self.assertEqual(page.state["counts"], counts)
        shown = [(event["kind"], event["messageId"], event.get("class"), event.get("reason")) for event in page.events]
        self.assertEqual(shown, [("requeued", "m-1", "rate-limit", "status 429"), ("copied", "m-1", None, None)])
        write("b", line("m-2", "dead-letter", reason="retries-exhausted"))
        page.read_until(lambda: len(page.events) > 2)
        self.assertEqual([event["messageId"] for event in page.events], ["m-1", "m-1", "m-2"])
        self.assertEqual(page.state["counts"], counts)
        account.logs.delete_log_group(logGroupName=group)
        page.read_until(lambda: page.state["troubles"])
        self.assertEqual(page.state["troubles"], [f"there is no log group {group}: the function wrote nothing yet"])

    def test_a_function_that_is_not_there_is_an_error(self):
        command = [COMMAND, "ui", "--port", "0", "--function", "nobody"]
        done = subprocess.run(command, env={**KEYS, "AWS_ENDPOINT_URL": MOTO}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("there is no function nobody in us-east-1; check its name", done.stderr)


if __name__ == "__main__":
    unittest.main()
