#!/usr/bin/env python3
"""`cargo test` with the ignored long tests, and with several suites at the same time.

Cargo runs one suite after the other, but some suites only wait for processes and clocks. The output
of a suite is shown when it has ended. What only computes has a lower priority, so that a test of a
deadline finds a processor.
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
# The suites with a virtual clock, and their tests with a real one, which run by themselves.
COMPUTE = {"simulation": [], "batch": ["hostile::"]}
NICE = 10


def suites():
    """Builds all tests, and returns name, executable and package directory of each suite."""
    command = ["nice", "-n", str(NICE), "cargo", "test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    messages = map(json.loads, done.stdout.splitlines())
    built = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    found = [(message["target"]["name"], message["executable"], Path(message["manifest_path"]).parent) for message in built]
    return sorted(found, key=lambda suite: FIRST.index(suite[0]) if suite[0] in FIRST else len(FIRST))


def runs(suites):
    """Name, command and directory of each run."""
    for name, executable, directory in suites:
        command = [executable, "--include-ignored"]
        timed = COMPUTE.get(name)
        if timed is None:
            yield name, command, directory
            continue
        skip = [word for test in timed for word in ("--skip", test)]
        yield name, ["nice", "-n", str(NICE), *command, *skip], directory
        if timed:
            yield f"{name}: {', '.join(timed)}", [*command, *timed], directory


def run(name, command, directory):
    threads = os.environ.get("RUST_TEST_THREADS", THREADS.get(name, "6"))
    environment = {**os.environ, "RUST_TEST_THREADS": threads}
    done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return name, done


def main():
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for suite in as_completed([pool.submit(run, *each) for each in runs(suites())]):
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
