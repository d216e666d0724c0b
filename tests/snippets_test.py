#!/usr/bin/env python3
"""The snippets of docs/start/languages.md: in Ruby and Go, in a function that Requeue invokes; and in Go
and Python, the signatures of requests that Requeue posts.

Needs `target/debug/requeue`. `tests/run examples` brings Ruby and Go where a package of Debian can be
had; without the program, its test is skipped. AWS's runtime interface clients for both are not here.
RUNTIME takes their place: like them, it hands over an event and takes the response as JSON.
"""

import base64
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUEUE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "requeue"
FUNCTION, SERVICE = (ROOT / "docs/start/languages.md").read_text().split("\n## An HTTP service\n")

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


SIGNATURE_IN_PYTHON = """
import base64, hmac, json, sys, time

%s

request = json.load(sys.stdin)
print(is_signed(request["secret"], request["headers"], request["body"].encode()))
"""

SIGNATURE_IN_GO = """package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

%s
func main() {
	var request struct {
		Secret, Body string
		Headers      map[string]string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		panic(err)
	}
	headers := http.Header{}
	for name, value := range request.Headers {
		headers.Set(name, value)
	}
	fmt.Println(isSigned(request.Secret, headers, []byte(request.Body)))
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


def snippet(page, language):
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return code


class Posted(http.server.BaseHTTPRequestHandler):
    """Keeps the headers and the body of a request."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append({"headers": headers, "body": body})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Snippets(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def source(self, language, suffix, around, page=FUNCTION):
        """A file of the page's snippet with the rest of a program."""
        file = self.directory / f"function.{suffix}"
        file.write_text(around % snippet(page, language))
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

    def test_the_signature_in_python_is_that_of_requeue(self):
        self.assert_it_knows_the_signature(sys.executable, self.source("python", "py", SIGNATURE_IN_PYTHON, SERVICE))

    @unittest.skipUnless(shutil.which("go"), "there is no go")
    def test_the_signature_in_go_is_that_of_requeue(self):
        program = self.directory / "service"
        subprocess.run(["go", "build", "-o", program, self.source("go", "go", SIGNATURE_IN_GO, SERVICE)], check=True)
        self.assert_it_knows_the_signature(program)

    def assert_it_knows_the_signature(self, *program):
        secret, other = (f"whsec_{base64.b64encode(os.urandom(32)).decode()}" for _ in range(2))
        request = self.signed_request(secret)
        late = {**request["headers"], "webhook-timestamp": str(int(request["headers"]["webhook-timestamp"]) - 301)}
        for change, expected in [
            ({"secret": secret}, "true"),
            ({"secret": other}, "false"),
            ({"secret": secret, "body": "{}"}, "false"),
            ({"secret": secret, "headers": late}, "false"),
        ]:
            text = json.dumps({**request, **change})
            run = subprocess.run(program, input=text, capture_output=True, text=True)
            self.assertEqual((run.stdout.strip().lower(), run.stderr), (expected, ""), change)

    def signed_request(self, secret):
        """A request that Requeue posts, with one message."""
        server = http.server.HTTPServer(("127.0.0.1", 0), Posted)
        self.addCleanup(server.server_close)
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        path = self.directory / "event.json"
        path.write_text(subprocess.run([REQUEUE, "event", '{"id":"o-1"}'], capture_output=True, text=True, check=True).stdout)
        command = [REQUEUE, "invoke", path, "--target-url", f"http://127.0.0.1:{server.server_port}/orders"]
        subprocess.run(command, env={**os.environ, "REQUEUE_SIGNING_SECRET": secret}, capture_output=True, check=True)
        (request,) = server.requests
        return request


class Services(unittest.TestCase):
    def test_the_signatures_in_node_and_java_are_those_of_the_example(self):
        for language, name in [("js", "service.mjs"), ("java", "Service.java")]:
            self.assertIn(snippet(SERVICE, language), (ROOT / "examples/http-service" / name).read_text())


if __name__ == "__main__":
    unittest.main()
