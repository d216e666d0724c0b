"""A Lambda function without any library, which does what the body of a message says."""

import base64
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request

API = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime"


def handle(body):
    """Whether the message stays in the queue. JSON after `fail ` joins its item of the response."""
    if body == "exit":
        sys.exit(3)
    if body == "hang":
        time.sleep(600)
    if body == "environment":
        for name, value in sorted(os.environ.items()):
            print(f"{name}={value}", flush=True)
    return body.startswith("fail")


def respond_and_exit(request_id):
    """Sends a whole response in many segments, and reads nothing."""
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
    body = b" " * 1_000_000 + b"{}"
    head = (
        f"POST /2018-06-01/runtime/invocation/{request_id}/response HTTP/1.1\r\n"
        f"host: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    socket.create_connection((host, int(port))).sendall(head.encode() + body)
    os._exit(0)


def send_chunks(path, body, error):
    """Ends a response in chunks with an error. Returns the status of its response."""
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
    chunks = f"{len(body):x}\r\n{body}\r\n" if body else ""
    encoded = base64.b64encode(json.dumps(error).encode()).decode()
    sent = (
        f"POST /2018-06-01/runtime/{path} HTTP/1.1\r\nhost: {host}\r\n"
        "lambda-runtime-function-response-mode: streaming\r\ntransfer-encoding: chunked\r\n"
        "trailer: lambda-runtime-function-error-type, lambda-runtime-function-error-body\r\n\r\n"
        f"{chunks}0\r\nlambda-runtime-function-error-type: Refused\r\n"
        f"lambda-runtime-function-error-body: {encoded}\r\n\r\n"
    )
    stream = socket.create_connection((host, int(port)))
    stream.sendall(sent.encode())
    return stream.recv(1000).decode().split()[1]


def post(path, value):
    request = urllib.request.Request(f"{API}/{path}", json.dumps(value).encode())
    urllib.request.urlopen(request).close()


print("starts", *sys.argv[1:], flush=True)
while True:
    with urllib.request.urlopen(f"{API}/invocation/next") as invocation:
        request_id = invocation.headers["Lambda-Runtime-Aws-Request-Id"]
        deadline = int(invocation.headers["Lambda-Runtime-Deadline-Ms"])
        assert 0 < deadline - time.time() * 1000 <= 900_000
        records = json.load(invocation)["Records"]
    bodies = [record["body"] for record in records]
    print("gets", *bodies, flush=True)
    if "error" in bodies:
        post(f"invocation/{request_id}/error", {"errorMessage": "no", "errorType": "Refused"})
        continue
    if bodies[0].startswith("chunks "):
        error = {"errorMessage": "no", "errorType": "Refused", "stackTrace": ["x" * 24_000]}
        path = f"invocation/{request_id}/response"
        print("status", send_chunks(path, bodies[0].partition(" ")[2], error), flush=True)
        continue
    if "unknown" in bodies:
        statuses = []
        for path, value in [("response", {}), ("error", {"errorType": "Refused"})]:
            try:
                post(f"invocation/unknown/{path}", value)
            except urllib.error.HTTPError as refused:
                statuses.append((refused.code, json.load(refused)["errorType"]))
        print("refused", *statuses, flush=True)
    if "respond and exit" in bodies:
        respond_and_exit(request_id)
    kept = [
        {"itemIdentifier": r["messageId"], **json.loads(r["body"].partition(" ")[2] or "{}")}
        for r in records
        if handle(r["body"])
    ]
    post(f"invocation/{request_id}/response", {"batchItemFailures": kept})
