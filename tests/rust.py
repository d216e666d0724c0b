#!/usr/bin/env python3
"""`cargo test` with the ignored long tests, and with several suites at the same time.

Cargo runs one suite after the other, but some suites only wait for processes and clocks. The output
of a suite is shown when it has ended.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 3
# More threads than cores, since most tests wait: those of the command line for queues and clocks.
THREADS = {"cli": "14"}
# The longest suites begin first.
FIRST = ["cli", "simulation", "batch"]


def suites():
    """Builds all tests, and returns name, executable and package directory of each suite."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    messages = map(json.loads, done.stdout.splitlines())
    built = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    found = [(message["target"]["name"], message["executable"], Path(message["manifest_path"]).parent) for message in built]
    return sorted(found, key=lambda suite: FIRST.index(suite[0]) if suite[0] in FIRST else len(FIRST))


def run(name, executable, directory):
    threads = os.environ.get("RUST_TEST_THREADS", THREADS.get(name, "6"))
    environment = {**os.environ, "RUST_TEST_THREADS": threads}
    done = subprocess.run(
        [executable, "--include-ignored"], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return name, done


def main():
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for suite in as_completed([pool.submit(run, *suite) for suite in suites()]):
            name, done = suite.result()
            print(f"\n{name}\n{done.stdout}", end="", flush=True)
            if done.returncode:
                failed.append(name)
    if subprocess.run(["cargo", "test", "--locked", "--doc", "--no-fail-fast"], cwd=ROOT).returncode:
        failed.append("doc")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
