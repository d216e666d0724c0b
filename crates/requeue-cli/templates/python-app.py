"""Charges orders. Requeue invokes `handler` with the SQS event, and retries each failed record by its class."""

import json

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

# If all records fail, Powertools would throw, and the fields below would be lost.
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


class BankBusy(Exception):
    """The bank asks to wait."""

    def __init__(self, seconds):
        super().__init__(f"the bank asks for {seconds} s")
        self.seconds = seconds


class InvalidOrder(Exception):
    """No retry can help."""


def charge(record):
    order = json.loads(record.body)
    if order["cents"] <= 0:
        raise InvalidOrder("an order has a positive amount")
    if order.get("card") == "busy":
        raise BankBusy(seconds=60)
    if order.get("card") != "ok":
        raise ConnectionError("the bank did not respond")


def verdict(error):
    """What Requeue reads in a failed item; SQS and Powertools ignore it."""
    match error:
        case BankBusy(seconds=seconds):
            return {"class": "rate-limit", "delaySeconds": seconds, "reason": "bank-busy"}
        case InvalidOrder() | json.JSONDecodeError():
            return {"class": "non-retryable", "reason": "invalid-order"}
        case _:
            # Requeue finds the class by the type.
            return {"errorType": type(error).__name__, "errorMessage": str(error)}


def handler(event, context):
    response = process_partial_response(event, charge, processor, context)
    for item, (_, error, _) in zip(response["batchItemFailures"], processor.exceptions):
        item |= verdict(error)
    return response
