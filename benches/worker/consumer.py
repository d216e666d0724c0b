"""A loop of boto3: four threads, each with batches of ten, whose messages are posted at once."""

import http.client
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import boto3

QUEUE_URL, TARGET = os.environ["QUEUE_URL"], urlsplit(os.environ["TARGET_URL"])
LOCAL = threading.local()


def is_done(message):
    if not hasattr(LOCAL, "connection"):
        LOCAL.connection = http.client.HTTPConnection(TARGET.hostname, TARGET.port)
    LOCAL.connection.request("POST", TARGET.path or "/", message["Body"])
    response = LOCAL.connection.getresponse()
    response.read()
    return response.status == 200


def receive():
    sqs = boto3.session.Session().client("sqs")
    with ThreadPoolExecutor(10) as pool:
        while True:
            batch = sqs.receive_message(QueueUrl=QUEUE_URL, MaxNumberOfMessages=10, WaitTimeSeconds=20).get("Messages", [])
            done = [message for message, done in zip(batch, pool.map(is_done, batch)) if done]
            if done:
                entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(done)]
                sqs.delete_message_batch(QueueUrl=QUEUE_URL, Entries=entries)


receivers = [threading.Thread(target=receive) for _ in range(4)]
for receiver in receivers:
    receiver.start()
for receiver in receivers:
    receiver.join()
