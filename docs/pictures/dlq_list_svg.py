#!/usr/bin/env python3
"""Draws what `requeue dlq list` shows on a terminal: docs/pictures/dlq-list.svg.

A worker gives up messages that a flaky endpoint refuses, on the embedded SQS of `requeue serve`.
Then the command lists them. This needs boto3 and rich; `tests/run template` installs both:

    cargo build && target/tools/sam/bin/python docs/pictures/dlq_list_svg.py
"""

import os
import re
import subprocess
import time
from pathlib import Path

import boto3
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
REQUEUE = ROOT / "target" / "debug" / "requeue"
PICTURE = ROOT / "docs" / "pictures" / "dlq-list.svg"

# How the endpoint is to respond, and to how many messages.
MESSAGES = {"ok": 20, "quota": 31, "unavailable": 8, "invalid": 12}
POLICY = """{"maxRetries": 2, "maxDelaySeconds": 1, "maxPauseSeconds": "off", "circuitBreaker": "off", "errorConfigs": {
    "QUOTA": {"baseDelay": 1, "maxDelay": 1}, "TEMPORARY": {"baseDelay": 1, "maxDelay": 1}}}"""

TITLE = """<title>requeue dlq list</title>
    <desc>A terminal with the output of requeue dlq list: a table of the dead letters by class and
    reason, with their number, the oldest, an example, and the text of the failure.</desc>"""


def main():
    server = subprocess.Popen([REQUEUE, "serve", "--port", "0", "--sqs-port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        endpoint, sqs, queue, dead_letters = (server.stdout.readline().split()[-1] for _ in range(4))
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
        work = [REQUEUE, "work", "--queue", "orders", "--target-url", endpoint, "--drain"]
        subprocess.run(work, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)
        given_up = str(sum(MESSAGES.values()) - MESSAGES["ok"])
        attribute = "ApproximateNumberOfMessages"
        while client.get_queue_attributes(QueueUrl=dead_letters, AttributeNames=[attribute])["Attributes"][attribute] != given_up:
            time.sleep(1)
        command = ["requeue", "dlq", "list", "--queue", "orders-dlq"]
        shown = subprocess.run([REQUEUE, *command[1:]], env=environment, check=True, capture_output=True, text=True).stdout
    finally:
        server.kill()
        server.wait()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=max(map(len, shown.splitlines())), file=nowhere)
        console.print(Text("$ " + " ".join(command)))
        console.print(Text.from_ansi(shown.rstrip()))
        picture = console.export_svg(title="requeue dlq list")
    PICTURE.write_text(finished(picture))


def finished(picture):
    """Rich's picture of a terminal, with a title, and with the reader's fonts: it fetches none."""
    picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    # Rich repeats the end of each line as a text of its own.
    picture = re.sub(r'<text [^>]*>\n</text>', "", picture)
    picture = re.sub(r"^ +$\n", "", picture, flags=re.MULTILINE)
    return re.sub(r"(<svg [^>]*)>", rf'\1 role="img">\n    {TITLE}', picture, count=1)


if __name__ == "__main__":
    main()
