#!/usr/bin/env python3
"""Draws what `requeue dlq list` shows on a terminal: docs/dlq-list.svg.

A worker gives up messages that a flaky endpoint refuses, on the embedded SQS of `requeue serve`, and the command is asked.

    cargo build && docs/dlq_list_svg.py     needs boto3 and rich; `tests/run template` installs both: target/tools/sam/bin/python
"""

import os
import re
import subprocess
import time
from pathlib import Path

import boto3
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
REQUEUE = ROOT / "target" / "debug" / "requeue"
PICTURE = ROOT / "docs" / "dlq-list.svg"

# What the endpoint answers, and to how many messages.
MESSAGES = {"ok": 20, "quota": 31, "unavailable": 8, "invalid": 12}
POLICY = """{"maxRetries": 2, "maxDelaySeconds": 1, "errorConfigs": {
    "QUOTA": {"baseDelay": 1, "maxDelay": 1}, "TEMPORARY": {"baseDelay": 1, "maxDelay": 1}}}"""


def main():
    server = subprocess.Popen([REQUEUE, "serve", "--port", "0", "--sqs-port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        endpoint, sqs, queue, dead_letters = (server.stdout.readline().split()[-1] for _ in range(4))
        sqs = sqs.partition("=")[2]
        client = boto3.client("sqs", endpoint_url=sqs, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any")
        for answer, count in MESSAGES.items():
            for _ in range(count):
                client.send_message(QueueUrl=queue, MessageBody=f'{{"answer": "{answer}"}}')
        environment = os.environ | {
            "AWS_ENDPOINT_URL_SQS": sqs,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "REQUEUE_DEAD_LETTER": "annotate",
            "REQUEUE_POLICY": POLICY,
        }
        work = [REQUEUE, "work", "--queue-url", queue, "--target-url", endpoint, "--drain"]
        subprocess.run(work, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)
        given_up = str(sum(MESSAGES.values()) - MESSAGES["ok"])
        attribute = "ApproximateNumberOfMessages"
        while client.get_queue_attributes(QueueUrl=dead_letters, AttributeNames=[attribute])["Attributes"][attribute] != given_up:
            time.sleep(1)
        command = ["requeue", "dlq", "list", "--queue-url", dead_letters]
        shown = subprocess.run([REQUEUE, *command[1:]], env=environment, check=True, capture_output=True, text=True).stdout
    finally:
        server.kill()
        server.wait()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=max(map(len, shown.splitlines())), file=nowhere)
        console.print(Text("$ " + " ".join(command)))
        console.print(Text.from_ansi(shown.rstrip()))
        picture = console.export_svg(title="requeue dlq list")
    # Fonts are those of the reader: a document fetches nothing.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
