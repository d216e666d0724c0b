#!/usr/bin/env python3
"""The projects of `requeue new`, with the next steps of their reader: `cargo test`, `cargo lambda watch`, `sam build` and `sam deploy`.

And the commands of `docs/start/http-target.md`, which bash runs as they stand there.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), and cargo-lambda, sam and node on the PATH. `tests/run
examples` provides them. It uses the dependencies that `cargo test` has built, so it takes seconds.
"""

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from deployed_test import ENDPOINT, ROOT, Queue, aws, wait_for
from watch_test import Process, free_port

PROJECTS = ROOT / "target" / "examples"
# A cargo-lambda that compiles like `cargo build`, with the compiled dependencies. The template in the
# root is built with the real one.
CARGO_LAMBDA = """#!/bin/sh
set -e
test "$1 $2 $3 $4" = "lambda build --release --bin"
cargo build --bin "$5"
mkdir -p "{target}/lambda/$5"
cp "{target}/debug/$5" "{target}/lambda/$5/bootstrap"
"""
AWS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def run(*command, cwd=ROOT, **environment):
    """Runs a command and returns its output. Shows its errors if it fails."""
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def features(directory, edges):
    """The crates that a package needs, `name v1.2.3` or `name v1.2.3 (path)`, and the features of each."""
    command = ["cargo", "tree", "--offline", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"]
    found = {}
    for line in filter(None, run(*command, cwd=directory).splitlines()):
        crate, names = line.removesuffix(" (*)").split("|")
        found.setdefault(crate, set()).update(filter(None, names.split(",")))
    return found


def shared():
    """Settings of cargo for all projects: the target directory and the profile of the repository."""
    manifest = (ROOT / "Cargo.toml").read_text()
    profile = re.search(r"^\[profile\.dev\]$.*?(?=^\[profile\.(?!dev))", manifest, re.MULTILINE | re.DOTALL)[0]
    shutil.rmtree(PROJECTS, ignore_errors=True)
    (PROJECTS / ".cargo").mkdir(parents=True)
    (PROJECTS / ".cargo" / "config.toml").write_text(f'[build]\ntarget-dir = "{ROOT / "target"}"\n\n[net]\noffline = true\n\n{profile}')


def project(name, *options):
    """A new project with the versions of the repository. One more dependency adds features, so that nothing is compiled anew."""
    directory = PROJECTS / name
    run(ROOT / "target" / "debug" / "requeue", "new", directory, *options)
    shutil.copy(ROOT / "Cargo.lock", directory)
    everywhere = features(ROOT, "normal,build,dev")
    lines = []
    for crate, own in features(directory, "normal,build").items():
        if everywhere.get(crate, own) != own:
            found, version, path = re.fullmatch(r"(\S+) v(\S+)(?: \((.*)\))?", crate).groups()
            source = f'path = "{path}"' if path else f'version = "={version}"'
            lines.append(f"{found} = {{ {source}, default-features = false, features = {json.dumps(sorted(everywhere[crate]))} }}\n")
    extra = PROJECTS / f"{name}-features"
    (extra / "src").mkdir(parents=True)
    (extra / "src" / "lib.rs").touch()
    (extra / "Cargo.toml").write_text(f'[package]\nname = "{extra.name}"\nedition = "2024"\n\n[dependencies]\n{"".join(lines)}')
    with open(directory / "Cargo.toml", "a") as manifest:
        manifest.write(f"\n[target.'cfg(all())'.dependencies]\n{extra.name} = {{ path = \"../{extra.name}\" }}\n")
    return directory


def setUpModule():
    run("cargo", "build", "--locked", "--bin", "requeue", "--bin", "requeue-lambda")
    shared()


class OwnHandler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.orders = project("orders")
        # First, since it builds the programs for the other tests.
        cls.tests = run("cargo", "test", "--test", "life", cwd=cls.orders)

    def test_its_tests_pass(self):
        self.assertIn("2 passed; 0 failed", self.tests)

    def test_its_event_reaches_the_handler_under_cargo_lambda(self):
        port = free_port()
        address = ("--invoke-address", "127.0.0.1", "--invoke-port", str(port))
        watched = Process("cargo", "lambda", "watch", "--ignore-changes", *address, cwd=self.orders, **AWS)
        self.addCleanup(watched.close)
        invoke = ["cargo", "lambda", "invoke", "orders", *address, "--data-file", "event.json"]

        def response():
            done = subprocess.run(invoke, cwd=self.orders, capture_output=True, text=True, timeout=60)
            return done.stdout

        self.assertEqual(json.loads(wait_for("a response", response)), {"batchItemFailures": []}, watched.text())
        self.assertIn('"Completed":1', watched.text())

    def test_a_busy_bank_is_asked_again_behind_a_queue_on_this_machine(self):
        port = str(free_port())
        command, function = (ROOT / "target" / "debug" / name for name in ("requeue", "orders"))
        # Built without the dependencies of tests, as by `cargo run`.
        run("cargo", "build", cwd=self.orders)
        served = Process(command, "serve", "--sqs-port", port, "--function", function)
        self.addCleanup(served.close)
        wait_for("a queue", lambda: "function started" in served.text())
        run(command, "send", "--sqs-port", port, '{"id":"o-busy","cents":500,"card":"busy"}')
        wait_for("a copy", lambda: "1 copy in" in served.text())

    def test_what_fails_is_retried_and_what_is_declined_is_dead_lettered_when_it_is_deployed(self):
        binaries = PROJECTS / "bin"
        binaries.mkdir()
        shim = binaries / "cargo-lambda"
        shim.write_text(CARGO_LAMBDA.format(target=ROOT / "target"))
        shim.chmod(0o755)
        environment = {**AWS, "SAM_CLI_TELEMETRY": "0", "AWS_ENDPOINT_URL": ENDPOINT}
        run("sam", "build", cwd=self.orders, PATH=f"{binaries}:{os.environ['PATH']}", **environment)
        run(
            *("sam", "deploy", "--stack-name", "orders", "--resolve-s3", "--capabilities", "CAPABILITY_IAM"),
            *("--no-confirm-changeset", "--region", "us-east-1"),
            cwd=self.orders,
            **environment,
        )
        (stack,) = aws("cloudformation").describe_stacks(StackName="orders")["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        queue = Queue(outputs["QueueUrl"], outputs["DeadLetterQueueUrl"], outputs["FunctionName"])
        # The emulator does not take these from a template; see deployed_test.py.
        queue.configure(BatchSize=10, MaximumBatchingWindowInSeconds=0, ScalingConfig={"MaximumConcurrency": 2})
        aws("lambda").put_function_recursion_config(FunctionName=queue.function, RecursiveLoop="Allow")

        def order(card):
            return json.dumps({"id": f"o-{card}", "cents": 500, "card": card})

        ok, declined = queue.send(order("ok"), order("declined"))
        members = json.loads(queue.dead_letter("o-declined")["Body"])
        self.assertEqual(members["originalMessageId"], declined)
        letter = members["retryState"]["deadLetter"]
        self.assertEqual((letter["class"], letter["detail"], letter["retryCount"]), ("non-retryable", "the card was declined", 0))
        queue.wait_for_counts((0, 0, 0))

        (busy,) = queue.send(order("busy"))
        # The copy waits for the two seconds that the bank names.
        wait_for("a retry that waits", lambda: queue.counts()[2] == 1)
        queue.polled(False)
        copy = queue.copy("o-busy")
        members = json.loads(copy["Body"])
        self.assertEqual((members["originalMessageId"], members["retryState"]["class"]), (busy, "rate-limit"))
        queue.polled(True)
        queue.sqs.send_message(QueueUrl=queue.url, MessageBody=copy["Body"])
        queue.wait_for_counts((0, 0, 0))
        self.assertEqual(queue.sqs.receive_message(QueueUrl=queue.dead_letter_url).get("Messages", []), [])


class Http(unittest.TestCase):
    def test_it_compiles(self):
        run("cargo", "check", cwd=project("webhooks", "--http"))


class HttpService(unittest.TestCase):
    PAGE = (ROOT / "docs/start/http-target.md").read_text()
    SERVICE = "node examples/http-service/service.mjs"

    def setUp(self):
        port, sqs_port = free_port(), free_port()
        self.environment = {"PATH": f"{ROOT / 'target' / 'debug'}:{os.environ['PATH']}", "PORT": str(port)}
        self.words = {
            "127.0.0.1:3000": f"127.0.0.1:{port}",
            "requeue serve": f"requeue serve --sqs-port {sqs_port}",
            "requeue send": f"requeue send --sqs-port {sqs_port}",
            "node examples/http-service/service.mjs": self.SERVICE,
            "sleep 1": f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done",
        }

    def block(self, beginning, language="sh"):
        """The block of the page that begins with these words, with the ports of this test."""
        _, _, rest = self.PAGE.partition(f"```{language}\n{beginning}")
        self.assertTrue(rest, beginning)
        text = beginning + rest.partition("```")[0]
        for word, own in self.words.items():
            text = text.replace(word, own)
        return text

    def start(self, command, until):
        process = Process("bash", "-c", command, **self.environment)
        self.addCleanup(process.close)
        wait_for(until, lambda: until in process.text())
        return process

    def test_the_service_meets_the_calls_that_the_page_shows(self):
        service = self.start(self.block(self.SERVICE), "listening on")
        served = self.start(self.block("REQUEUE_TARGET_URL="), "function started")
        run("bash", "-c", self.block("requeue send"), **self.environment)

        def timeless(text):
            return sorted(re.sub(r"\d{10}", "TIME", text).splitlines())

        def calls():
            return service.text().partition("\n")[2]

        shown = self.block("200  retry 0", "text")
        wait_for("the last call", lambda: len(calls().splitlines()) >= len(shown.splitlines()))
        wait_for("the dead letter", lambda: "non-retryable (status 422)" in served.text())
        self.assertEqual(timeless(calls()), timeless(shown))

    def test_an_invocation_says_what_the_page_shows(self):
        self.start(self.block(self.SERVICE), "listening on")
        command = ["bash", "-c", f"({self.block('requeue event')}) 2>&1"]
        said, shown = run(*command, **self.environment), self.block(" message    attempt", "text")

        def words(text):
            # Without the message id, the lines of the table and its spaces, and with any time.
            return re.sub(r"\b[0-9a-f]{8}\b|─+", "", re.sub(r"\d+ s\b", "TIME", text)).split()

        self.assertEqual(words(said), words(shown))

    def test_the_service_knows_a_signature_from_that_of_another_secret(self):
        said = run("bash", "-mc", self.block("export SIGNING_SECRET"), **self.environment)
        self.assertEqual([line[:3] for line in said.splitlines() if "retry 0" in line], ["200", "401"])


@unittest.skipUnless(shutil.which("java"), "there is no java")
class HttpServiceInJava(HttpService):
    SERVICE = "java examples/http-service/Service.java"


if __name__ == "__main__":
    unittest.main()
