"""Functions that do what the field `do` in a body says, without and with Powertools."""

import json
import os
import signal
import time
from pathlib import Path

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    process_partial_response,
)


class BankClosed(Exception):
    pass


class ThrottlingException(Exception):
    pass


class ValidationError(Exception):
    pass


# Whole responses of a function.
RESPONSES = json.loads(Path(__file__).with_name("responses.json").read_text())

ITEMS = {
    "classified": {"class": "rate-limit", "delaySeconds": 7, "reason": "back-at-nine"},
    "misnamed": {"class": "RATE_LIMITED"},
}


def act(record, context):
    """Whether the record is done."""
    body = json.loads(record["body"])
    do, count = body["do"], int(record["attributes"]["ApproximateReceiveCount"])
    # Powertools' parser refuses a record without it.
    assert record["attributes"]["SenderId"]
    print("gets", record["messageId"], body.get("name", do), count)
    if do == "throw":
        raise BankClosed("back-at-nine")
    if do == "throttle":
        raise ThrottlingException("slow down")
    if do == "invalid":
        raise ValidationError("no amount")
    if do == "hang":
        time.sleep(60)
    if do == "exit":
        os._exit(3)
    if do == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "forge":
        print("12:00:00 #7 1 message: 1 deleted, 1 ms\r12:00:00 #8 1 message\x1b[2K")
    if do == "needs":
        return os.path.exists(body["file"])
    return do != "fail" and count > body.get("failures", 0)


def plain(event, context):
    failures = []
    for record in event["Records"]:
        do = json.loads(record["body"])["do"]
        if do in RESPONSES:
            return RESPONSES[do]
        if do in ITEMS:
            failures.append({"itemIdentifier": record["messageId"], **ITEMS[do]})
        elif not act(record, context):
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def handle(record):
    if not act(record.raw_event, None):
        raise BankClosed("back-at-nine")


def powertools(event, context):
    return process_partial_response(event, handle, BatchProcessor(EventType.SQS), context)


def powertools_fifo(event, context):
    return process_partial_response(event, handle, SqsFifoPartialProcessor(), context)
