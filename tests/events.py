#!/usr/bin/env python3
"""Writes `events/*.json`: SQS events with the exact keys that Lambda delivers, digests included.

    tests/events.py            write the files
    tests/events.py --check    fail if a file differs from what this script writes

The field "answer" of a body chooses the response of the demo endpoint; see ANSWERS.
"""

import base64
import hashlib
import json
import re
import struct
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVENTS = ROOT / "events"
LIST = ROOT / "examples" / "README.md"

ARN = "arn:aws:sqs:us-east-1:000000000000:orders"
FIFO_ARN = ARN + ".fifo"
PRODUCER = "AIDAEXAMPLEPRODUCER01"
REQUEUE = "AROAEXAMPLEREQUEUE001:requeue-lambda"
OPERATOR = "AROAEXAMPLEOPERATOR01:redrive"

SENT = 1_778_580_000_000  # 2026-05-12T10:00:00.000Z
SECOND = 1_000
DAY = 86_400 * SECOND
MEBIBYTE = 1_048_576

# ok → 200, rate-limit → 429 with `Retry-After: 5`, unavailable → 503, quota → 403 with reason
# quotaExceeded, invalid → 400, hang → no response, reset → connection reset. A body without the field
# gets 200, and so does a text without `answer=…`.
ANSWERS = ("ok", "rate-limit", "unavailable", "quota", "invalid", "hang", "reset")


def order(number, answer=None, **members):
    """The JSON text of an order, as a producer writes it."""
    body = {"orderId": f"A-{number}", "amount": f"{number % 90 + 10}.50", **members}
    if answer is not None:
        assert answer in ANSWERS
        body["answer"] = answer
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def string(value, label=""):
    return {"stringValue": value, "stringListValues": [], "binaryListValues": [], "dataType": "String" + label}


def number(value, label=""):
    return {"stringValue": value, "stringListValues": [], "binaryListValues": [], "dataType": "Number" + label}


def binary(value, label=""):
    encoded = base64.b64encode(value).decode()
    return {"binaryValue": encoded, "stringListValues": [], "binaryListValues": [], "dataType": "Binary" + label}


def md5(data):
    return hashlib.md5(data).hexdigest()


def md5_of_attributes(attributes):
    """SQS's digest: by sorted names, the name, type, kind (1 text, 2 binary) and value of each, with lengths."""

    def sized(data):
        return struct.pack(">I", len(data)) + data

    digest = b""
    for name in sorted(attributes):
        attribute = attributes[name]
        digest += sized(name.encode()) + sized(attribute["dataType"].encode())
        if "binaryValue" in attribute:
            digest += b"\x02" + sized(base64.b64decode(attribute["binaryValue"]))
        else:
            digest += b"\x01" + sized(attribute["stringValue"].encode())
    return md5(digest)


def message_id(name):
    """The same UUID for the same name, version 4 in form."""
    return str(uuid.UUID(bytes=hashlib.sha256(name.encode()).digest()[:16], version=4))


def receipt_handle(name):
    noise = b"".join(hashlib.sha512(f"{name} {part}".encode()).digest() for part in range(3))
    return "AQEB" + base64.b64encode(noise)[:176].decode()


def record(name, body, *, arn=ARN, sent=SENT, received=1, first_received=None, sender=PRODUCER, system=None, attributes=None):
    """One record; `name` fixes its ids, `system` adds to its system attributes."""
    record = {
        "messageId": message_id(name),
        "receiptHandle": receipt_handle(f"{name} {received}"),
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(received),
            "SentTimestamp": str(sent),
            "SenderId": sender,
            "ApproximateFirstReceiveTimestamp": str(sent + 12 if first_received is None else first_received),
            **(system or {}),
        },
        "messageAttributes": attributes or {},
    }
    if attributes:
        record["md5OfMessageAttributes"] = md5_of_attributes(attributes)
    record["md5OfBody"] = md5(body.encode())
    record["eventSource"] = "aws:sqs"
    record["eventSourceARN"] = arn
    record["awsRegion"] = "us-east-1"
    return record


def rfc3339(epoch_ms):
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{epoch_ms % 1000:03}Z"


def copy_of(name, body, *, retry_count, sent, state):
    """`body`, a JSON object, with Requeue's fields at its end, as in a copy sent at `sent`."""
    members = {
        "retryCount": retry_count,
        "originalMessageId": message_id(name),
        "retryTimestamp": rfc3339(sent),
        "retryState": state,
    }
    return append(body, members)


def append(body, members):
    return body[:-1] + "," + json.dumps(members, separators=(",", ":"))[1:]


def state(first_sent, counts, **members):
    return {"v": 1, "firstSent": first_sent, "firstReceived": first_sent + 12, "counts": counts, **members}


def single():
    return [record("single", order(1001, "rate-limit"))]


def mixed_batch():
    answers = ["ok", "rate-limit", "ok", "unavailable", "quota", "ok", "invalid", None, "ok", "reset"]
    bodies = [order(1010 + place, answer) for place, answer in enumerate(answers)]
    bodies[7] = "order A-1017 please, by hand"
    attributes = {3: {"tenant": string("acme"), "priority": number("5")}}
    return [
        record(f"mixed {place}", body, sent=SENT + 40 * place, attributes=attributes.get(place))
        for place, body in enumerate(bodies)
    ]


def every_class():
    return [record(f"class {answer}", order(1020 + place, answer)) for place, answer in enumerate(ANSWERS)]


def attributes():
    ten = {f"label-{number}": string(f"value {number}") for number in range(1, 8)}
    ten |= {"count": number("-12.75"), "checksum": binary(bytes(range(16))), "note": string("zwölf · 十二 · 🧾")}
    return [
        record("string", order(1030, "unavailable"), attributes={"tenant": string("acme")}),
        record("number", order(1031, "unavailable"), attributes={"amount": number("12345678901234567890.123456789")}),
        record("binary", order(1032, "unavailable"), attributes={"thumbprint": binary(b"\x00\x01\xfe\xff binary \x80")}),
        record(
            "labels",
            order(1033, "unavailable"),
            attributes={
                "Body.ContentType": string("application/json", ".mime"),
                "weight": number("0.5", ".kilogram"),
                "image": binary(b"\x89PNG\r\n\x1a\n", ".png"),
            },
        ),
        record("ten", order(1034, "unavailable"), attributes=ten),
    ]


def text_bodies():
    bodies = {
        "plain": "call back customer 84010 at 16:30",
        "xml": '<?xml version="1.0" encoding="UTF-8"?>\n<order id="A-1041">\n  <amount currency="EUR">12.50</amount>\n</order>\n',
        "array": '[{"orderId":"A-1042","answer":"rate-limit"}, {"orderId":"A-1043"}]',
        "number": "12345678901234567890",
        "string": '"A-1044"',
        "boolean": "true",
        "null": "null",
        "broken": '{"orderId":"A-1045","amount":12.50,"answer":"rate-limit"',
        "byte order mark": '\ufeff{"orderId":"A-1046","answer":"rate-limit"}',
        "quotes": 'She said "no", then: \\ and \\n\r\n\tand a tab\nZürich, 東京, 🧾, \u2028 line separator',
        "blank": " \n",
        "form": "orderId=A-1047&amount=47.50&answer=unavailable&times=1",
    }
    return [record(f"text {name}", body) for name, body in bodies.items()]


def sns_wrapped():
    topic = "arn:aws:sns:us-east-1:000000000000:orders"
    members = {
        "Type": "Notification",
        "MessageId": message_id("notification"),
        "TopicArn": topic,
        "Subject": "Order placed",
        "Message": order(1050, "rate-limit"),
        "Timestamp": rfc3339(SENT - 35),
        "SignatureVersion": "1",
        "Signature": base64.b64encode(hashlib.sha512(b"signature").digest() * 4).decode(),
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + md5(b"certificate") + ".pem",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn="
        + f"{topic}:{message_id('subscription')}",
        "MessageAttributes": {"tenant": {"Type": "String", "Value": "acme"}},
    }
    body = json.dumps(members, indent=2, separators=(",", " : "))
    return [record("sns", body, sender="AIDAEXAMPLESNSSERVICE")]


def s3_pointer():
    pointer = {"s3BucketName": "orders-large-payloads", "s3Key": message_id("s3 object")}
    body = json.dumps(["software.amazon.payloadoffloading.PayloadS3Pointer", pointer], separators=(",", ":"))
    return [record("s3 pointer", body, attributes={"ExtendedPayloadSize": number("3145728")})]


def fifo():
    def in_group(group, place, answer):
        name = f"fifo {group} {place}"
        system = {
            "SequenceNumber": str(18_905_842_000_000_000_000 + 256 * len(records)),
            "MessageGroupId": group,
            "MessageDeduplicationId": hashlib.sha256(name.encode()).hexdigest(),
        }
        sent = SENT + 10 * len(records)
        records.append(record(name, order(1060 + len(records), answer), arn=FIFO_ARN, sent=sent, system=system))

    records = []
    for place, (first, second) in enumerate([("ok", "ok"), ("unavailable", "ok"), ("ok", "ok")]):
        in_group("customer-1", place, first)
        in_group("customer-2", place, second)
    return records


def redriven():
    copied = SENT + 3 * 3600 * SECOND
    members = state(SENT, {"rate-limit": 50}, **{"class": "rate-limit", "delay": 300})
    body = copy_of("redriven first", order(1070, "rate-limit"), retry_count=50, sent=copied, state=members)
    return [record("redriven", body, sent=copied + DAY, sender=OPERATOR)]


def exhausted():
    copied = SENT + 3 * 3600 * SECOND
    members = state(SENT, {"temporary": 50}, **{"class": "temporary", "delay": 60})
    return [
        record(
            f"exhausted {received}",
            copy_of(
                f"exhausted first {received}", order(1080 + received, "unavailable"), retry_count=50, sent=copied, state=members
            ),
            sent=copied + 3,
            first_received=copied + 3 + 60 * SECOND,
            received=received,
            sender=REQUEUE,
        )
        for received in (1, 2)
    ]


def article_in_flight():
    copied = SENT + 90 * SECOND
    members = {
        "retryCount": 3,
        "originalMessageId": message_id("article first"),
        "retryTimestamp": rfc3339(copied),
    }
    body = append(order(1090, "rate-limit"), members)
    return [record("article", body, sent=copied + 20, first_received=copied + 60 * SECOND, sender=REQUEUE)]


def later_version():
    copied = SENT + 90 * SECOND
    members = {**state(SENT, {"temporary": 2}), "v": 2, "lane": {"name": "slow", "since": SENT}}
    body = copy_of("later first", order(1100, "ok"), retry_count=2, sent=copied, state=members)
    return [record("later", body, sent=copied + 3, sender=REQUEUE)]


def fair_queue():
    tenants = [("tenant-a", "rate-limit"), ("tenant-b", "ok"), ("tenant-a", "rate-limit"), ("tenant-c", "unavailable")]
    return [
        record(f"fair {place}", order(1110 + place, answer), system={"MessageGroupId": tenant})
        for place, (tenant, answer) in enumerate(tenants)
    ]


def one_mebibyte():
    frame = '{"orderId":"A-1120","answer":"unavailable","notes":"%s"}'
    body = frame % ("x" * (MEBIBYTE - len(frame % "")))
    assert len(body.encode()) == MEBIBYTE
    return [record("one mebibyte", body)]


def malformed():
    def damaged(name, answer="unavailable", *, without=(), **replaced):
        damaged = record(f"malformed {name}", order(1130 + len(records), answer))
        for key in without:
            del damaged[key]
        records.append({**damaged, **replaced})

    records = []
    damaged("null id", messageId=None)
    damaged("no id", "ok", without=["messageId"])
    damaged("no body", without=["body"])
    damaged("body a number", body=1132)
    damaged("no attributes", without=["attributes", "messageAttributes"])
    damaged("no receipt handle", without=["receiptHandle"])
    damaged("no queue", without=["eventSourceARN"])
    damaged("no such queue", eventSourceARN="not an ARN")
    damaged(
        "not base64",
        messageAttributes={
            "thumbprint": {"binaryValue": "%%%", "stringListValues": [], "binaryListValues": [], "dataType": "Binary"}
        },
    )
    damaged("twice")
    records.append({**records[-1], "receiptHandle": receipt_handle("malformed twice again")})
    records[-1]["attributes"] = {**records[-1]["attributes"], "ApproximateReceiveCount": "2"}
    damaged("in order", "ok")
    return records


FILES = {
    "single": single,
    "mixed-batch": mixed_batch,
    "every-class": every_class,
    "attributes": attributes,
    "text-bodies": text_bodies,
    "sns-wrapped": sns_wrapped,
    "s3-pointer": s3_pointer,
    "fifo": fifo,
    "fair-queue": fair_queue,
    "redriven": redriven,
    "exhausted": exhausted,
    "article-in-flight": article_in_flight,
    "later-version": later_version,
    "one-mebibyte": one_mebibyte,
    "malformed": malformed,
}


def main():
    stale = []
    for name, records in FILES.items():
        path = EVENTS / f"{name}.json"
        text = json.dumps({"Records": records()}, indent=2, ensure_ascii=False) + "\n"
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    listed = set(re.findall(r"^\| `(.*)\.json` \|", LIST.read_text(), re.MULTILINE))
    stale += [path.name for path in EVENTS.glob("*") if path.stem not in FILES]
    stale += [LIST.name] if listed != set(FILES) else []
    if stale:
        sys.exit(f"out of date: {', '.join(sorted(stale))}; run tests/events.py")


if __name__ == "__main__":
    main()
