#!/usr/bin/env python3
"""Measures the column "Requeue on AWS" of docs/project/published-numbers.md in your account.

    benches/aws/measure.py             asks first, and takes ten to fifteen minutes
    benches/aws/measure.py --dry-run   prints the commands, each loop once, and calls nothing

Needs the AWS CLI, credentials that may deploy, invoke and read log and metrics, and the function:
cargo lambda build --release --arm64 -p requeue-lambda --output-format zip
It makes a bucket and a stack, and deletes both at the end, after an error, and after Ctrl-C.
"""

import argparse
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parent.parent.parent
SIZES, DRAIN_SIZE = [128, 256, 512, 1024], 256
METRICS = {"sent": "NumberOfMessagesSent", "received": "NumberOfMessagesReceived", "deleted": "NumberOfMessagesDeleted"}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

# Refuses the first attempt of some messages. It has no log, since its role may write only to the other
# function's.
TARGET = """
Resources:
  Target:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: !Sub ${AWS::StackName}-target
      Runtime: python3.13
      Handler: index.handler
      Timeout: 5
      Role: !GetAtt Role.Arn
      InlineCode: |
        def handler(event, _):
            first = [r for r in event["Records"] if r["attributes"]["RequeueAttempt"] == "1"]
            return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in first if "retry" in r["body"]]}
"""
# In the copy of template.yaml, Lambda logs its reports, the mapping waits, and nothing outlives the stack.
CHANGES = [
    ("CodeUri: .\n", "CodeUri: {package}\n"),
    ("Location: infra/", f"Location: {ROOT}/infra/"),
    ("SystemLogLevel: WARN", "SystemLogLevel: INFO"),
    ("            BatchSize: !Ref BatchSize\n", "            Enabled: false\n            BatchSize: !Ref BatchSize\n"),
    ("DeletionPolicy: RetainExceptOnCreate", "DeletionPolicy: Delete"),
    ("\nResources:\n", TARGET),
]
dry_run = False
# The responses of a dry run.
REPORTS = [{"record": {"metrics": {"memorySizeMB": size, "durationMs": 1, "maxMemoryUsedMB": 1, "initDurationMs": 1}}} for size in SIZES]
DRY = {
    "cloudformation describe-stacks": [["QueueUrl", "QUEUE"], ["FunctionName", "FUNCTION"], ["LogGroupName", "LOG_GROUP"]],
    "lambda list-event-source-mappings": {"EventSourceMappings": [{"UUID": "MAPPING"}]},
    "sqs get-queue-attributes": {"Attributes": {}},
    "cloudwatch get-metric-data": {"MetricDataResults": [{"Id": name, "Values": [11]} for name in METRICS]},
    "logs filter-log-events": [[at, json.dumps(report)] for at in (0, 1) for report in REPORTS],
}


def say(message):
    print(message, file=sys.stderr)


def aws(*words, seconds=90):
    name = " ".join(words[:2])
    if dry_run:
        print(shlex.join(["aws", *words]))
        return DRY.get(name, {})
    try:
        done = subprocess.run(["aws", *words, "--output", "json"], capture_output=True, text=True, timeout=seconds)
    except FileNotFoundError:
        sys.exit("error: the AWS CLI is not on the PATH; install it: https://docs.aws.amazon.com/cli/")
    except subprocess.TimeoutExpired:
        sys.exit(f"error: `aws {name}` took more than {seconds} s")
    if done.returncode:
        sys.exit(f"error: `aws {name}`: {done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout) if done.stdout.lstrip()[:1] in ("{", "[") else {}


def prepare(options):
    """Checks options, tools, package and credentials, asks, and returns the sizes of the zip and of its program."""
    if not (1 <= options.cold_starts <= 50 and 10 <= options.messages <= 5000):
        sys.exit("error: --cold-starts must be 1 to 50, and --messages 10 to 5000")
    if dry_run:
        options.cold_starts, options.messages = 1, 10
        return None
    try:
        with zipfile.ZipFile(options.zip) as archive:
            program = archive.read("bootstrap")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        sys.exit(f"error: --zip {options.zip} must be a zip with the program `bootstrap` ({error}); `--help` has the command that builds it")
    if program[:4] != b"\x7fELF" or program[18:20] != b"\xb7\x00":
        sys.exit(f"error: {options.zip}: `bootstrap` must be a program for Linux on arm64; `--help` has the command that builds it")
    if not options.region:
        sys.exit("error: no region is set; give --region, for example --region eu-west-1")
    os.environ.update(AWS_REGION=options.region, AWS_DEFAULT_REGION=options.region, AWS_PAGER="", AWS_MAX_ATTEMPTS="5")
    account = aws("sts", "get-caller-identity")["Account"]
    say(f"This makes a bucket and a stack in account {account}, {options.region}, and deletes them. It costs less than $0.10: Lambda, SQS, S3, log, metrics.")
    if not options.yes and (not sys.stdin.isatty() or input("Type yes to go on: ") != "yes"):
        sys.exit("error: nothing was made: reply yes, or give --yes")
    return f"{options.zip.stat().st_size / 1e6:.2f} MB, {len(program) / 1e6:.2f} MB"


def template(package):
    text = (ROOT / "template.yaml").read_text()
    for before, after in CHANGES:
        if before not in text:
            sys.exit(f"error: template.yaml has no {before.strip()!r}; take measure.py and template.yaml of the same version")
        text = text.replace(before, after.replace("{package}", str(package)))
    return text


def deploy(stack, package, directory):
    say("Deploying: about two minutes.")
    source, packaged = directory / "template.yaml", str(directory / "packaged.yaml")
    source.write_text(template(package))
    aws("s3", "mb", f"s3://{stack}")
    aws("cloudformation", "package", "--template-file", str(source), "--s3-bucket", stack, "--output-template-file", packaged, seconds=300)
    options = ["--capabilities", "CAPABILITY_IAM", "--parameter-overrides", f"TargetFunction={stack}-target", "Monitoring=none"]
    aws("cloudformation", "deploy", "--template-file", packaged, "--stack-name", stack, "--s3-bucket", stack, *options, seconds=900)
    return dict(aws("cloudformation", "describe-stacks", "--stack-name", stack, "--query", "Stacks[0].Outputs[].[OutputKey, OutputValue]"))


def resize(function, size):
    """A new memory size ends all execution environments, so that the next invocation starts one."""
    aws("lambda", "update-function-configuration", "--function-name", function, "--memory-size", str(size))
    aws("lambda", "wait", "function-updated-v2", "--function-name", function, seconds=330)


def cold_starts(function, rounds, directory):
    say(f"{rounds * len(SIZES)} cold starts: about 6 s each.")
    event, response = directory / "event.json", directory / "response.json"
    event.write_text('{"Records": []}')
    for size in SIZES * rounds:
        resize(function, size)
        if "FunctionError" in aws("lambda", "invoke", "--function-name", function, "--payload", f"fileb://{event}", str(response)):
            sys.exit(f"error: the function failed with {size} MB: {response.read_text()[:1500]}")


def drain(function, queue, messages):
    """Fills the queue, and lets Lambda poll it until it is empty."""
    say(f"Sending {messages} messages, and draining the queue: about two minutes.")
    resize(function, DRAIN_SIZE)
    mapping = aws("lambda", "list-event-source-mappings", "--function-name", function)["EventSourceMappings"][0]["UUID"]
    for at in range(0, messages, 10):
        bodies = [{"order": n, "retry": True} if n % 10 == 0 else {"order": n} for n in range(at, min(at + 10, messages))]
        entries = [{"Id": str(place), "MessageBody": json.dumps(body)} for place, body in enumerate(bodies)]
        sent = aws("sqs", "send-message-batch", "--queue-url", queue, "--entries", json.dumps(entries))
        if sent.get("Failed"):
            sys.exit(f"error: SQS refused a message: {sent['Failed'][0]}")
    aws("lambda", "update-event-source-mapping", "--uuid", mapping, "--enabled")
    kinds = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
    polls = empty = 0
    while empty < 3:  # The counts are approximate.
        if polls == 120:
            sys.exit("error: the queue was not empty ten minutes after the last message")
        time.sleep(0 if dry_run else 5)
        counts = aws("sqs", "get-queue-attributes", "--queue-url", queue, "--attribute-names", *kinds)["Attributes"]
        polls, empty = polls + 1, 0 if any(map(int, counts.values())) else empty + 1


def counted(queue, expected):
    """CloudWatch's sums, which arrive minutes late."""
    say("Waiting for CloudWatch: at most five minutes.")
    of = {"Namespace": "AWS/SQS", "Dimensions": [{"Name": "QueueName", "Value": queue.split("/")[-1]}]}
    queries = [{"Id": id_, "MetricStat": {"Metric": {**of, "MetricName": name}, "Period": 60, "Stat": "Sum"}} for id_, name in METRICS.items()]
    for _ in range(10):
        time.sleep(0 if dry_run else 30)
        hour = int(time.time()) // 3600 * 3600
        times = ["--start-time", str(hour - 3600), "--end-time", str(hour + 7200)]
        found = aws("cloudwatch", "get-metric-data", "--metric-data-queries", json.dumps(queries), *times)["MetricDataResults"]
        sums = {result["Id"]: int(sum(result["Values"])) for result in found}
        if min(sums.values(), default=0) >= expected:
            break
    return ", ".join(f"{sums.get(name, 0):,}" for name in METRICS)


def rows(lines, options):
    """Label and value of rows on the page, from Lambda's reports of the invocations. The first ones are the cold starts."""
    reports = sorted(((at, json.loads(line)["record"]["metrics"]) for at, line in lines), key=lambda report: report[0])
    count = len(SIZES) * options.cold_starts
    cold, batches = [report for _, report in reports[:count]], reports[count:]
    if not batches or any("initDurationMs" not in report for report in cold):
        sys.exit(f"error: the log has not all of {count} cold starts, and {len(batches)} batches; run it again")
    for size in SIZES:
        of_size = [report for report in cold if report["memorySizeMB"] == size]
        yield f"{size:,} MB", "/".join(f"{mean(report[key] for report in of_size):.1f}" for key in ("initDurationMs", "maxMemoryUsedMB"))
    first = min(at - report["durationMs"] - report.get("initDurationMs", 0) for at, report in batches)
    yield "drain", f"{options.messages:,} messages in {(batches[-1][0] - first) / 1000:.1f} s"
    yield "batches", f"{len(batches):,} of {mean(report['durationMs'] for _, report in batches):.1f} ms"


def remove(stack):
    """Deletes bucket and stack, and returns 1 if a step failed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    say("Deleting the stack and the bucket: about two minutes. Please wait.")
    left = 0
    for words in (
        ["cloudformation", "delete-stack", "--stack-name", stack],
        ["cloudformation", "wait", "stack-delete-complete", "--stack-name", stack],
        ["s3", "rb", f"s3://{stack}", "--force"],
    ):
        try:
            aws(*words, seconds=900)
        except SystemExit as error:
            if "NoSuchBucket" not in str(error):
                left = 1
                say(f"{error}\nSomething is left, and may cost money. Repeat: {shlex.join(['aws', *words])}")
    return left


def main():
    global dry_run
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zip", type=lambda path: Path(path).resolve(), default=ROOT / "target/lambda/requeue-lambda/bootstrap.zip")
    parser.add_argument("--cold-starts", type=int, default=10, metavar="N", help="for each memory size (default: 10)")
    parser.add_argument("--messages", type=int, default=1000, metavar="M", help="one of ten is retried once (default: 1000)")
    parser.add_argument("--region", default=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    dry_run = options.dry_run
    stack = f"requeue-bench-{secrets.token_hex(6)}"
    sizes = prepare(options)
    for number in SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(f"error: {signal.Signals(number).name}"))
    with tempfile.TemporaryDirectory() as directory:
        try:
            made = deploy(stack, options.zip, Path(directory))
            cold_starts(made["FunctionName"], options.cold_starts, Path(directory))
            drain(made["FunctionName"], made["QueueUrl"], options.messages)
            sums = counted(made["QueueUrl"], options.messages + -(-options.messages // 10))
            bounds = ["--filter-pattern", '{ $.type = "platform.report" }', "--max-items", "20000", "--query", "events[].[timestamp, message]"]
            lines = aws("logs", "filter-log-events", "--log-group-name", made["LogGroupName"], *bounds)
            column = [("binary sizes", sizes), *rows(lines, options), ("sent, received, deleted", sums)]
            print("| | Requeue on AWS |\n|---|---|")
            print("\n".join(f"| {label} | {'' if dry_run else value} |" for label, value in column))
        finally:
            left = remove(stack)
    sys.exit(left)


if __name__ == "__main__":
    main()
