#!/usr/bin/env python3
"""The snippets of docs/start/existing-function.md in Ruby and Go, in a function that Requeue invokes.

Needs `target/debug/requeue`. `tests/run examples` brings Ruby and Go where a package of Debian can be
had; without the program, its test is skipped. AWS's runtime interface clients for both are not here.
RUNTIME takes their place: like them, it hands over an event and takes the response as JSON.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUEUE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "requeue"
PAGE = (ROOT / "docs/start/existing-function.md").read_text()

# Runs the program of its arguments for each invocation.
RUNTIME = """
import os, subprocess, sys, urllib.request
api = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
while True:
    with urllib.request.urlopen(f"{api}/next") as invocation:
        request, event = invocation.headers["Lambda-Runtime-Aws-Request-Id"], invocation.read()
    response = subprocess.run(sys.argv[1:], input=event, stdout=subprocess.PIPE, check=True).stdout
    urllib.request.urlopen(f"{api}/{request}/response", response).close()
"""

RUBY = """
require 'json'
require 'net/http'

class BankBusy < StandardError
  def seconds = 60
end

def charge(record)
  raise BankBusy if record['body'] == 'busy'
  raise Net::ReadTimeout if record['body'] == 'late'
end

%s
puts handler(event: JSON.parse($stdin.read), context: nil).to_json
"""

GO = """package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

type BankBusy struct{ Seconds float64 }

func (*BankBusy) Error() string { return "the bank is busy" }

type ReadTimeout struct{}

func (*ReadTimeout) Error() string { return "no answer" }

%s
func main() {
	var event struct{ Records []struct{ MessageId, Body string } }
	if err := json.NewDecoder(os.Stdin).Decode(&event); err != nil {
		panic(err)
	}
	response := Response{}
	for _, record := range event.Records {
		err := map[string]error{"busy": fmt.Errorf("charge: %%w", &BankBusy{60}), "late": &ReadTimeout{}}[record.Body]
		if err != nil {
			response.BatchItemFailures = append(response.BatchItemFailures, failed(record.MessageId, err))
		}
	}
	json.NewEncoder(os.Stdout).Encode(response)
}
"""


def event(*bodies):
    arn = "arn:aws:sqs:us-east-1:123456789012:orders"
    attributes = {"ApproximateReceiveCount": "1", "SentTimestamp": "1795860000000"}
    return {
        "Records": [
            {"messageId": body, "receiptHandle": body, "body": body, "attributes": attributes, "messageAttributes": {}, "eventSource": "aws:sqs", "eventSourceARN": arn}
            for body in bodies
        ]
    }


class Snippets(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def source(self, language, suffix, around):
        """A file of the page's snippet with the rest of a function."""
        (snippet,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        file = self.directory / f"function.{suffix}"
        file.write_text(around % snippet)
        return file

    def assert_it_says_class_delay_and_reason(self, *program):
        path = self.directory / "event.json"
        path.write_text(json.dumps(event("ok", "busy", "late")))
        command = [REQUEUE, "invoke", path, "--json", "--target", "--", sys.executable, "-c", RUNTIME, *program]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        ends = {message["messageId"]: message for message in json.loads(run.stdout)["messages"]}
        told = {name: (end["class"], end["detail"]) for name, end in ends.items()}
        self.assertEqual(told, {"ok": (None, None), "busy": ("rate-limit", "bank-busy"), "late": ("temporary", "timed out: ReadTimeout")})
        # The named delay, with up to a tenth of it as jitter.
        self.assertTrue(60 <= ends["busy"]["delaySeconds"] <= 66, ends["busy"])

    @unittest.skipUnless(shutil.which("ruby"), "there is no ruby")
    def test_the_snippet_in_ruby_says_class_delay_and_reason(self):
        self.assert_it_says_class_delay_and_reason("ruby", self.source("ruby", "rb", RUBY))

    @unittest.skipUnless(shutil.which("go"), "there is no go")
    def test_the_snippet_in_go_says_class_delay_and_reason(self):
        program = self.directory / "function"
        subprocess.run(["go", "build", "-o", program, self.source("go", "go", GO)], check=True)
        self.assert_it_says_class_delay_and_reason(program)


if __name__ == "__main__":
    unittest.main()
