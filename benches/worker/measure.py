#!/usr/bin/env python3
"""Drains a queue with `requeue work`, with sqs-consumer (Node.js) and with a loop of boto3, side by side.

    benches/worker/measure.py [ROUNDS]

Each has 40 calls at once, on the embedded SQS of `requeue serve` and a target that takes 5 ms. In the
second table one message in ten fails. A run ends when all others are done. Times are those from the
first call to the last; processor time and memory are those of the worker alone, its start included.
After them: 100 handlers, and a redrive of dead letters, with 5 ms added to each request to SQS.
Needs cargo, Node.js with npm, and Python with venv; installs its packages below target/.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = ROOT / "target/bench-worker"
REQUEUE = ROOT / "target/release/requeue"
NODE = ["sqs-consumer@14.2.8", "@aws-sdk/client-sqs@3.1175.0", "undici@7.30.2"]
MESSAGES = 20_000
REDRIVEN = 50_000
TICKS = os.sysconf("SC_CLK_TCK")


def install():
    subprocess.run(["cargo", "build", "--locked", "--release", "--package", "requeue-cli"], cwd=ROOT, check=True)
    TOOLS.mkdir(parents=True, exist_ok=True)
    (TOOLS / "consumer.mjs").write_text((HERE / "consumer.mjs").read_text())
    if not (TOOLS / "node_modules").exists():
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", TOOLS, *NODE]
        subprocess.run(command, check=True)
    if not (TOOLS / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", TOOLS / "venv"], check=True)
        subprocess.run([TOOLS / "venv/bin/pip", "install", "--quiet", "boto3==1.44.8"], check=True)


def done(target):
    return int(urllib.request.urlopen(target).read())


def used(pid):
    """Seconds of processor time, and the most memory in MiB."""
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return sum(map(int, times)) / TICKS, int(peak.split()[1]) / 1024


@contextmanager
def queue(latency=False, target_ms=5):
    """The environment of a worker for an embedded queue, SQS's latency added or not, and the parts that it ends."""
    def started(*command):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process.stdout

    processes = []
    try:
        serve = started(REQUEUE, "serve", "--sqs-port", "0", "--port", "0", "--visibility-timeout", "1h")
        endpoint = direct = next(line.split("AWS_ENDPOINT_URL_SQS=")[1].split()[0] for line in serve if "AWS_ENDPOINT_URL_SQS=" in line)
        if latency:
            endpoint = f"http://127.0.0.1:{started('node', HERE / 'proxy.mjs', endpoint.rsplit(':', 1)[1]).readline().strip()}"
        url = f"http://127.0.0.1:{started('node', HERE / 'target.mjs', str(target_ms)).readline().strip()}/"
        yield os.environ | {
            "AWS_ENDPOINT_URL_SQS": endpoint, "DIRECT": direct, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local", "TARGET_URL": url, "QUEUE_URL": f"{endpoint}/000000000000/orders",
            "AWS_LAMBDA_LOG_LEVEL": "ERROR",
        }
    finally:
        for one in processes:
            one.kill()
            one.wait()


def send(environment, count, queue="orders", fails=False):
    """Sends messages, of which one in ten fails or none."""
    endpoint = environment["DIRECT"]
    headers = {"X-Amz-Target": "AmazonSQS.SendMessageBatch", "Content-Type": "application/x-amz-json-1.0"}
    bodies = ['{"ok": 1}'] * 9 + ['{"fail": 1}' if fails else '{"ok": 1}']
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    batch = json.dumps({"QueueUrl": f"{endpoint}/000000000000/{queue}", "Entries": entries}).encode()
    for _ in range(count // 10):
        urllib.request.urlopen(urllib.request.Request(endpoint, batch, headers)).read()


def work(environment, command, wanted):
    """Seconds from the first call to the last one, processor time and memory."""
    url = environment["TARGET_URL"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while done(url) == 0:
            assert process.poll() is None
            time.sleep(0.005)
        began = time.monotonic()
        while done(url) < wanted:
            assert process.poll() is None and time.monotonic() < began + 600
            time.sleep(0.02)
        return time.monotonic() - began, *used(process.pid)
    finally:
        process.kill()
        process.wait()


def drain(worker, fails):
    """Time, processor time and memory of one run."""
    with queue() as environment:
        send(environment, MESSAGES, fails=fails)
        commands = {
            "requeue work": [REQUEUE, "work", "orders", "--target-url", environment["TARGET_URL"], "--concurrency", "40"],
            "sqs-consumer": ["node", TOOLS / "consumer.mjs"],
            "boto3": [TOOLS / "venv/bin/python", HERE / "consumer.py"],
        }
        return work(environment, commands[worker], MESSAGES * 9 // 10 if fails else MESSAGES)


def hundred_handlers():
    """Messages a second, and their share of what 100 handlers allow if SQS's latency stands beside each call."""
    with queue(latency=True, target_ms=50) as environment:
        send(environment, MESSAGES)
        command = [REQUEUE, "work", "orders", "--target-url", environment["TARGET_URL"], "--concurrency", "100"]
        rate = MESSAGES / work(environment, command, MESSAGES)[0]
        return rate, rate / (100 / 0.055)


def redrive():
    """Messages a second and requests for each, of a redrive by copies."""
    with queue(latency=True) as environment:
        send(environment, REDRIVEN, "orders-dlq")
        before, began = done(environment["AWS_ENDPOINT_URL_SQS"]), time.monotonic()
        command = [REQUEUE, "dlq", "redrive", "orders-dlq", "--yes", "--max-messages", str(REDRIVEN)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        requests = done(environment["AWS_ENDPOINT_URL_SQS"]) - before
        return REDRIVEN / (time.monotonic() - began), requests / REDRIVEN


def main():
    install()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for fails in [False, True]:
        print(f"\n{MESSAGES:,} messages" + (", one in ten fails" if fails else ""))
        runs = {name: [] for name in ["requeue work", "sqs-consumer", "boto3"]}
        for _ in range(rounds):
            for name, results in runs.items():
                results.append(drain(name, fails))
        for name, results in runs.items():
            seconds, processor, memory = map(median, zip(*results))
            print(f"{name:14} {seconds:7.2f} s {processor:7.2f} s of processor time {memory:6.1f} MiB")
    print("\nWith 5 ms added to each request to SQS")
    rate, share = map(median, zip(*(hundred_handlers() for _ in range(rounds))))
    print(f"requeue work with 100 handlers, a target of 50 ms: {rate:,.0f} messages a second, {share:.0%} of 100 / 55 ms")
    rate, requests = map(median, zip(*(redrive() for _ in range(rounds))))
    print(f"requeue dlq redrive of {REDRIVEN:,}, by copies: {rate:,.0f} messages a second, {requests:.2f} requests each")


if __name__ == "__main__":
    main()
