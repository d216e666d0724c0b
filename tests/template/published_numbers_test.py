"""`benches/aws/measure.py`: its dry run, its copy of the template, and that it deletes all that it made."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

from stack import ROOT, lint, translated
from samtranslator.yaml_helper import yaml_parse

SCRIPT = ROOT / "benches" / "aws" / "measure.py"
PAGE = ROOT / "docs" / "project" / "published-numbers.md"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True

import measure

# An AWS CLI that records its calls, and ends or waits as told in `cloudformation deploy`.
AWS = """#!/bin/sh
echo "$1 $2 $3 $4" >> {calls}
case "$1 $2" in
"sts get-caller-identity") echo '{{"Account": "123456789012"}}' ;;
"cloudformation deploy") {deploy} ;;
esac
"""
DELETIONS = ["cloudformation delete-stack", "cloudformation wait", "s3 rb"]


def bootstrap(machine):
    return b"\x7fELF" + bytes(14) + machine + bytes(44)


class PublishedNumbers(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.zip = self.directory / "bootstrap.zip"
        self.pack(b"\xb7\x00")

    def pack(self, machine):
        with zipfile.ZipFile(self.zip, "w") as archive:
            archive.writestr("bootstrap", bootstrap(machine))

    def start(self, *options, deploy=None, region="eu-west-1"):
        if deploy:
            cli = self.directory / "aws"
            cli.write_text(AWS.format(calls=self.directory / "calls", deploy=deploy))
            cli.chmod(0o755)
        environment = {"PATH": f"{self.directory}:/usr/bin:/bin" if deploy else str(self.directory), "AWS_REGION": region}
        command = [sys.executable, "-B", SCRIPT, "--zip", self.zip, *options]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def refused(self, message, *options, **world):
        with self.start(*options, **world) as process:
            output, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, output), (1, ""), errors)
        self.assertIn(message, errors)

    def calls(self):
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def assert_deleted(self):
        """Everything that was made is deleted, by the name under which it was made."""
        calls = self.calls()
        (bucket,) = [line.split()[2] for line in calls if line.startswith("s3 mb")]
        self.assertEqual([" ".join(line.split()[:2]) for line in calls[-3:]], DELETIONS)
        self.assertEqual(calls[-1].split()[2], bucket)
        self.assertEqual(calls[-3].split()[3], bucket.removeprefix("s3://"))

    def test_a_dry_run_calls_nothing_and_prints_the_rows_of_the_page(self):
        with self.start("--dry-run") as process:
            output, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, errors)
        commands = [line.split() for line in output.splitlines() if line.startswith("aws ")]
        stack = next(words[3].removeprefix("s3://") for words in commands if words[1:3] == ["s3", "mb"])
        self.assertEqual([" ".join(words[1:3]) for words in commands[-3:]], DELETIONS)
        self.assertTrue(all(stack in " ".join(words) for words in commands[-3:]))
        rows = re.findall(r"^\| ([^|]+) \|  \|$", output, re.MULTILINE)
        on_page = re.findall(r"^\| ([^|]+) \|(?: [\d./]+ \|| \|)* \|$", PAGE.read_text(), re.MULTILINE)
        self.assertEqual(sorted(rows), sorted(on_page))
        self.assertIn("1,024 MB", rows)

    def test_its_copy_of_the_template_is_valid_and_leaves_nothing(self):
        copy = yaml_parse(measure.template("s3://bucket/key").replace(f"{ROOT}/infra/", "infra/"))
        resources = copy["Resources"]
        self.assertEqual([name for name, resource in resources.items() if "Retain" in resource.get("DeletionPolicy", "")], [])
        self.assertEqual(resources["Function"]["Properties"]["LoggingConfig"]["SystemLogLevel"], "INFO")
        self.assertIs(resources["Function"]["Properties"]["Events"]["Messages"]["Properties"]["Enabled"], False)
        self.assertEqual(lint(translated(copy)), "")

    def test_its_target_refuses_the_first_attempt_of_a_message_to_retry(self):
        code = {}
        exec(yaml_parse(measure.TARGET)["Resources"]["Target"]["Properties"]["InlineCode"], code)
        record = lambda id, body, attempt: {"messageId": id, "body": body, "attributes": {"RequeueAttempt": attempt}}
        records = [record("a", '{"retry": true}', "1"), record("b", '{"retry": true}', "2"), record("c", '{"order": 1}', "1")]
        self.assertEqual(code["handler"]({"Records": records}, None), {"batchItemFailures": [{"itemIdentifier": "a"}]})

    def test_the_log_gives_means_and_the_time_of_the_drain(self):
        report = lambda at, size, duration, **more: (at, json.dumps({"record": {"metrics": {"memorySizeMB": size, "durationMs": duration, "maxMemoryUsedMB": 16, **more}}}))
        cold = [report(at, size, 2, initDurationMs=10 * at) for at in (2, 3) for size in measure.SIZES]
        batches = [report(12_000, 256, 40), report(10_100, 256, 60, initDurationMs=40)]
        options = measure.argparse.Namespace(cold_starts=2, messages=20)
        rows = dict(measure.rows(batches + cold, options))
        self.assertEqual(rows["1,024 MB"], "25.0/16.0")
        self.assertEqual(rows["drain"], "20 messages in 2.0 s")
        self.assertEqual(rows["batches"], "2 of 50.0 ms")
        for incomplete in (cold, cold[1:] + batches[:1]):
            with self.assertRaisesRegex(SystemExit, "not all of 8 cold starts"):
                dict(measure.rows(incomplete, options))

    def test_it_deletes_all_after_an_error(self):
        self.refused("`aws cloudformation deploy`: no permission", "--yes", deploy="echo no permission >&2; exit 1")
        self.assert_deleted()

    def test_it_deletes_all_after_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            (self.directory / "calls").unlink(missing_ok=True)
            with self.start("--yes", deploy="exec sleep 60") as process:
                deadline = time.monotonic() + 30
                while not any(line.startswith("cloudformation deploy") for line in self.calls()):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
                process.send_signal(number)
                _, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 1)
            self.assertIn(f"error: {number.name}", errors)
            self.assert_deleted()

    def test_it_says_what_it_could_not_delete(self):
        with self.start("--yes", deploy="exit 1 ;;\n\"cloudformation delete-stack\") exit 1") as process:
            _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors, "Something is left, and may cost money. Repeat: aws cloudformation delete-stack --stack-name requeue-bench-")
        self.assert_deleted()

    def test_it_makes_nothing_without_its_needs_or_consent(self):
        self.refused("the AWS CLI is not on the PATH", "--yes")
        self.refused("nothing was made: reply yes, or give --yes", deploy="true")
        self.refused("no region is set", "--yes", deploy="true", region="")
        self.refused("--messages 10 to 5000", "--yes", "--messages", "5001", deploy="true")
        self.pack(b"\x3e\x00")
        self.refused("must be a program for Linux on arm64", "--yes", deploy="true")
        self.zip.unlink()
        self.refused("must be a zip with the program `bootstrap`", "--yes", deploy="true")
        self.assertEqual({line.split()[0] for line in self.calls()}, {"sts"})


if __name__ == "__main__":
    unittest.main()
